/* How calls are planned for every GPU (src/cuda/policy.c, norm_recipe.c and norm.c), without one: kernels, launches and
 * workspaces of every dtype, alignment, pass and of many widths. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "cuda/norm.h"
#include "cuda/policy.h"
#include "support.h"
#include "support_recipe.h"
#include "support_rows.h"

/* Shared memory of a block in KiB: the table of compute capabilities in NVIDIA's programming guide. */
struct arch {
	int arch, multiprocessors, shared_kib;
};
static const struct arch archs[] = {{80, 108, 163}, {86, 84, 99},    {87, 16, 163}, {89, 58, 99},
				    {90, 132, 227}, {100, 148, 227}, {120, 170, 99}};

static const char *const access_names[] = {"aligned", "shifted", "elements"};

/* A call, of which only the alignments of its tensors are known. */
struct plan {
	struct arch gpu;
	bool backward;
	struct dtype_pair dtypes;
	enum ek_access access;
	int64_t rows, cols;
};

static const char *plan_text(const struct plan *p)
{
	static char text[160];
	(void)snprintf(text, sizeof text, "sm_%d %s %lldx%lld %s/%s %s", p->gpu.arch,
		       p->backward ? "backward" : "forward", (long long)p->rows, (long long)p->cols,
		       ek_dtype_name(p->dtypes.dtype), ek_dtype_name(p->dtypes.weight_dtype),
		       access_names[p->access]);
	return text;
}

static void *address(const struct plan *p, int tensor)
{
	size_t element = ek_dtype_size(p->dtypes.dtype);
	size_t offset = p->access == EK_ACCESS_QUADS ? 0 : p->access == EK_ACCESS_SHIFTED ? element : 1;
	return (void *)(((uintptr_t)(tensor + 1) << 40) + offset);
}

static ek_norm_forward_args forward_args(const struct plan *p)
{
	int64_t stride = (p->cols + 7) / 8 * 8;
	return (ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
				      .norm = EK_LAYER_NORM,
				      .dtype = p->dtypes.dtype,
				      .weight_dtype = p->dtypes.weight_dtype,
				      .rows = p->rows,
				      .cols = p->cols,
				      .x_stride = stride,
				      .y_stride = stride,
				      .x = address(p, 0),
				      .y = address(p, 1)};
}

static ek_norm_backward_args backward_args(const struct plan *p)
{
	int64_t stride = (p->cols + 7) / 8 * 8;
	return (ek_norm_backward_args){.size = sizeof(ek_norm_backward_args),
				       .norm = EK_LAYER_NORM,
				       .dtype = p->dtypes.dtype,
				       .weight_dtype = p->dtypes.weight_dtype,
				       .rows = p->rows,
				       .cols = p->cols,
				       .dy_stride = stride,
				       .x_stride = stride,
				       .dx_stride = stride,
				       .dy = address(p, 0),
				       .x = address(p, 1),
				       .dx = address(p, 2),
				       .dweight = address(p, 3),
				       .dbias = address(p, 4)};
}

static size_t workspace_of(const struct plan *p)
{
	struct ek_gpu gpu = {.arch = p->gpu.arch,
			     .multiprocessors = p->gpu.multiprocessors,
			     .shared_limit = p->gpu.shared_kib << 10};
	ek_norm_backward_args args = backward_args(p);
	return ek_cuda_norm_backward_workspace(&gpu, &args);
}

/* ---- every plan is one that its GPU can launch ---- */

static bool in_range(int value, int least, int most)
{
	return value >= least && value <= most;
}

static void check_constant(const struct plan *p, const struct ek_recipe *recipe, const char *name, int least,
			   int most)
{
	int value = recipe_constant(recipe, name);
	EXPECT(in_range(value, least, most), "%s: %s has %s %d, expected %d to %d", plan_text(p),
	       recipe->name, name, value, least, most);
}

static void check_recipe(const struct plan *p, const struct ek_recipe *recipe)
{
	int most_cluster = p->gpu.arch < 90 ? 1 : p->gpu.arch == 90 ? 16 : 8;
	int threads = 32 * recipe_constant(recipe, "ROW_WARPS") * recipe_constant(recipe, "BLOCK_ROWS");
	bool wide = strstr(recipe->name, "_wide") != NULL;
	check_constant(p, recipe, "ROW_BLOCKS", 1, most_cluster);
	check_constant(p, recipe, "WARP_SEGMENTS", 1, 8);
	check_constant(p, recipe, "ROW_THREADS", 1, 32);
	check_constant(p, recipe, "ROWS_AT_ONCE", 1, 2);
	check_constant(p, recipe, "BLOCKS", 1, 32);
	check_constant(p, recipe, "BOUND_THREADS", threads, 1024);
	EXPECT(in_range(threads, 32, 1024), "%s: %s has %d threads", plan_text(p), recipe->name, threads);
	EXPECT(in_range(recipe->shared_bytes, 0, p->gpu.shared_kib << 10),
	       "%s: %s needs %d bytes of shared memory", plan_text(p), recipe->name, recipe->shared_bytes);
	if (wide) {
		check_constant(p, recipe, "UNIT_SEGMENTS", 1, EK_MAX_COLS / 1024);
		check_constant(p, recipe, "WIDE_UNITS", 1, 512);
		check_constant(p, recipe, "SLOTS", 1, EK_MAX_COLS / 1024);
	}
}

/* The policy itself, with the shared memory that its launches ask for. */
static void check_policy(const struct plan *p)
{
	struct ek_gpu_limits limits = {p->gpu.arch, p->gpu.shared_kib << 10};
	struct ek_backward_form form = {.dtype = p->dtypes.dtype,
					.weight_dtype = p->dtypes.weight_dtype,
					.cols = p->cols,
					.shifted = p->access == EK_ACCESS_SHIFTED,
					.sums = 2};
	struct ek_policy policy = (p->backward ? ek_backward_policy : ek_forward_policy)(
		p->dtypes.dtype, p->cols, p->access, limits);
	if (policy.unit_segments > 0)
		return; /* check_recipe has it */
	int shared = p->backward ? ek_backward_shared(&policy, &form)
				 : ek_forward_shared(&policy, p->dtypes.dtype, p->cols, p->access);
	int64_t held = (int64_t)policy.row_warps * policy.row_blocks * policy.warp_segments * 1024;
	EXPECT(in_range(shared, 0, limits.shared_bytes), "%s: %d bytes of shared memory", plan_text(p),
	       shared);
	EXPECT(held >= p->cols, "%s: the warps of a row hold %lld columns", plan_text(p), (long long)held);
	EXPECT(ek_policy_cluster(&policy) == 1 || p->gpu.arch >= 90, "%s: clusters", plan_text(p));
}

static void check_workspace(const struct plan *p)
{
	ek_norm_backward_args args = backward_args(p);
	struct ek_norm_cut cut = ek_cuda_norm_cut(NULL, &args, p->gpu.arch, p->gpu.multiprocessors);
	size_t real = p->dtypes.dtype == EK_F64 ? 8 : 4, bytes = workspace_of(p);
	size_t needed = (size_t)cut.partials[0] * 2 * (size_t)p->cols * real + (size_t)cut.chunk_bytes;
	EXPECT(cut.partials[0] > 0 && bytes >= needed, "%s: %zu bytes of workspace for %zu", plan_text(p),
	       bytes, needed);
}

static void check_plan(const struct plan *p)
{
	struct ek_recipe recipes[8];
	ek_norm_forward_args forward = forward_args(p);
	ek_norm_backward_args backward = backward_args(p);
	int count = ek_cuda_norm_recipes(p->backward ? NULL : &forward, p->backward ? &backward : NULL,
					 p->gpu.arch, recipes, COUNT_OF(recipes));
	EXPECT(count > 0, "%s: no kernel", plan_text(p));
	for (int i = 0; i < count; i++)
		check_recipe(p, &recipes[i]);
	check_policy(p);
	if (p->backward)
		check_workspace(p);
}

static int64_t step_at(int64_t cols)
{
	return cols < 64 ? 4 : cols < 1024 ? 64 : cols < 8192 ? 256 : cols < 32768 ? 1024 : cols;
}

/* Around each width at which a row of a table may end, and an odd one between. */
static void check_widths(struct plan p)
{
	for (int64_t end = 4; end < EK_MAX_COLS; end += step_at(end)) {
		const int64_t widths[] = {end - 1, end, end + 1, (end + step_at(end) / 2) | 1};
		for (int i = 0; i < COUNT_OF(widths); i++) {
			p.cols = widths[i];
			check_plan(&p);
		}
	}
	p.cols = EK_MAX_COLS;
	check_plan(&p);
}

static void every_gpu_can_launch_every_plan(void)
{
	for (int gpu = 0; gpu < COUNT_OF(archs); gpu++)
		for (int pair = 0; pair < DTYPE_PAIRS; pair++)
			for (int k = 0; k < 6; k++)
				check_widths((struct plan){.gpu = archs[gpu],
							   .backward = k >= 3,
							   .dtypes = dtype_pairs[pair],
							   .access = (enum ek_access)(k % 3),
							   .rows = 5000});
}

/* ---- workspaces ---- */

static void check_workspace_grows(struct plan p)
{
	size_t most = 0;
	for (int64_t of = 0; p.rows <= most_rows; p.rows = next_rows(p.rows, p.cols)) {
		size_t bytes = workspace_of(&p);
		EXPECT(bytes >= most, "%s: given %zu bytes, %lld rows need %zu", plan_text(&p), bytes,
		       (long long)of, most);
		if (bytes < most)
			return;
		of = bytes > most ? p.rows : of;
		most = bytes;
		p.access = (enum ek_access)(p.rows % 3);
		if (p.rows > 0)
			check_workspace(&p);
	}
}

/* So that one allocation, for the largest call, is enough. */
static void the_workspace_of_many_rows_is_enough_for_fewer(void)
{
	static const int64_t widths[] = {1, 128, 129, 768, 1025, 4096, 9000, 33000, 70000, 140000, 1 << 20};
	for (int w = 0; w < COUNT_OF(widths); w++)
		for (int gpu = 0; gpu < COUNT_OF(archs); gpu++)
			for (int d = 0; d < DTYPE_PAIRS; d++)
				if ((w + gpu + d) % (test_mode == TEST_SHORT ? 5 : 2) == 0)
					check_workspace_grows((struct plan){.gpu = archs[gpu],
									    .backward = true,
									    .dtypes = dtype_pairs[d],
									    .cols = widths[w]});
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	TEST(every_gpu_can_launch_every_plan);
	TEST(the_workspace_of_many_rows_is_enough_for_fewer);
	return test_end();
}
