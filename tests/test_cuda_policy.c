/* How calls are planned for every GPU (policy.c, plan.c and recipe.c of src/ops/norm/), without one: kernels, launches and
 * workspaces of every dtype, alignment, pass and of many widths. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "ops/norm/plan.h"
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
	int access;
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

/* LayerNorm without weights and statistics; rows start at multiples of 16 bytes, of an element or anywhere. */
static void args_of(const struct plan *p, union op_args *args)
{
	struct test_case c = case_of(p->backward, EK_LAYER_NORM, p->dtypes, p->rows, p->cols);
	int element = (int)ek_dtype_size(p->dtypes.dtype);
	case_set(&c, "dx dweight dbias");
	for (int i = 0; i < case_op(&c)->operand_count; i++) {
		c.pad[i] = (p->cols + 7) / 8 * 8 - p->cols;
		c.offset[i] = p->access == ACCESS_QUADS ? 0 : p->access == ACCESS_SHIFTED ? element : 1;
	}
	case_args_nowhere(&c, args);
}

static struct ek_gpu_limits limits_of(const struct plan *p)
{
	return (struct ek_gpu_limits){p->gpu.arch, p->gpu.multiprocessors, p->gpu.shared_kib << 10};
}

static size_t workspace_of(const struct plan *p)
{
	struct ek_gpu_limits limits = limits_of(p);
	union op_args args;
	args_of(p, &args);
	return ek_norm_plan_workspace(&args.backward, &limits);
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
	bool staged = strstr(recipe->name, "_staged") != NULL;
	EXPECT(!recipe->too_long, "%s: the recipe of %s is too long", plan_text(p), recipe->name);
	if (strncmp(recipe->name, "ek_columns_", 11) == 0) /* no policy is in it */
		return;
	check_constant(p, recipe, "ROW_BLOCKS", 1, most_cluster);
	check_constant(p, recipe, "WARP_SEGMENTS", 1, 8);
	check_constant(p, recipe, "ROW_THREADS", 1, 32);
	check_constant(p, recipe, "ROWS_AT_ONCE", 1, 4);
	check_constant(p, recipe, "BLOCKS", 1, 32);
	check_constant(p, recipe, "BOUND_THREADS", threads, 1024);
	EXPECT(in_range(threads, 32, 1024), "%s: %s has %d threads", plan_text(p), recipe->name, threads);
	EXPECT(in_range(recipe->shared_bytes, EK_SHARED_MOST, p->gpu.shared_kib << 10),
	       "%s: %s needs %d bytes of shared memory", plan_text(p), recipe->name, recipe->shared_bytes);
	if (staged) {
		check_constant(p, recipe, "UNIT_SEGMENTS", 1, EK_MAX_COLS / 1024);
		check_constant(p, recipe, "STAGED_UNITS", 1, 512);
		check_constant(p, recipe, "TILES", 1, EK_MAX_COLS / 1024);
	}
}

/* Registers hold the row, and shared memory what the launch asks for. */
static void check_form_fits(const struct plan *p, const struct ek_norm_form *form,
			    const struct ek_gpu_limits *limits)
{
	struct ek_norm_policy policy = (p->backward ? ek_backward_policy : ek_forward_policy)(form, limits);
	if (ek_policy_is_staged(&policy))
		return; /* check_recipe has it */
	int shared = p->backward ? ek_backward_shared(&policy, form) : ek_forward_shared(&policy, form);
	int64_t held = (int64_t)policy.row_warps * policy.row_blocks * policy.warp_segments * 1024;
	EXPECT(in_range(shared, 0, limits->shared_bytes), "%s: %d bytes of shared memory", plan_text(p),
	       shared);
	EXPECT(held >= p->cols, "%s: the warps of a row hold %lld columns", plan_text(p), (long long)held);
	EXPECT(ek_policy_cluster(&policy) == 1 || p->gpu.arch >= 90, "%s: clusters", plan_text(p));
}

/* The policies of a plain norm, of one with a residual and x_bias, and with a residual after or a gate. */
static void check_policy(const struct plan *p)
{
	struct ek_gpu_limits limits = limits_of(p);
	struct ek_norm_form form = {.norm = EK_LAYER_NORM,
				    .dtype = p->dtypes.dtype,
				    .weight_dtype = p->dtypes.weight_dtype,
				    .cols = p->cols,
				    .access = p->access,
				    .sums = p->backward ? 2 : 0,
				    .kept = 1,
				    .tensors = p->backward ? 2 : 1};
	check_form_fits(p, &form, &limits);
	form.sums += p->backward;
	form.tensors++;
	form.kept = 2;
	check_form_fits(p, &form, &limits);
	form.kept = 1 + 2 * p->backward;
	form.after = !p->backward;
	form.gate = p->backward;
	check_form_fits(p, &form, &limits);
}

static void check_workspace(const struct plan *p)
{
	struct ek_gpu_limits limits = limits_of(p);
	struct ek_norm_plan plan;
	union op_args args;
	args_of(p, &args);
	ek_norm_plan_backward(&args.backward, &limits, false, &plan);
	size_t real = p->dtypes.dtype == EK_F64 ? 8 : 4, bytes = workspace_of(p);
	size_t needed = (size_t)plan.partials[0] * 2 * (size_t)p->cols * real + (size_t)plan.chunk_bytes;
	EXPECT(plan.partials[0] > 0 && bytes >= needed, "%s: %zu bytes of workspace for %zu", plan_text(p),
	       bytes, needed);
}

static void check_plan(const struct plan *p)
{
	struct ek_recipe recipes[8];
	union op_args args;
	args_of(p, &args);
	int count = list_recipes(p->backward ? &ek_norm_backward_op : &ek_norm_forward_op, &args, p->gpu.arch,
				 recipes, COUNT_OF(recipes));
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

TEST(every_gpu_can_launch_every_plan)
{
	for (int gpu = 0; gpu < COUNT_OF(archs); gpu++)
		for (int pair = 0; pair < DTYPE_PAIRS; pair++)
			for (int k = 0; k < 6; k++)
				check_widths((struct plan){.gpu = archs[gpu],
							   .backward = k >= 3,
							   .dtypes = dtype_pairs[pair],
							   .access = k % 3,
							   .rows = 5000});
}

/* ---- more rows than a launch has blocks for ---- */

/* Each launch of a step starts where the one before has ended, and the last ends with the last row. */
static void check_launches(const char *what, struct ek_step *step, int64_t rows, int64_t cluster_rows)
{
	struct forward_arguments f;
	memcpy(&f, step->arguments, sizeof f);
	const unsigned char *x = f.x;
	int64_t done = 0;
	for (int64_t left = step->launch.blocks; left > EK_MOST_BLOCKS; left -= EK_MOST_BLOCKS) {
		step->advance(step->arguments, step->launch_rows, step->statistic_bytes);
		done += EK_MOST_BLOCKS / step->launch.cluster * cluster_rows;
		memcpy(&f, step->arguments, sizeof f);
		EXPECT(f.rows == rows - done && f.x == x + done * f.x_stride &&
			       (char *)f.rstd == (char *)1 + done * step->statistic_bytes,
		       "%s: after %lld rows the next launch starts elsewhere", what, (long long)done);
	}
	EXPECT(done > 0 && done < rows && rows - done <= step->launch_rows,
	       "%s: the last launch has %lld rows", what, (long long)(rows - done));
}

TEST(launches_of_many_blocks_cover_all_rows)
{
	static const ek_dtype dtypes[] = {EK_BF16, EK_F32, EK_F64};
	const struct ek_gpu_limits limits = ek_limits_of(90, 132);
	for (int d = 0; d < COUNT_OF(dtypes); d++) {
		struct plan p = {.gpu = archs[4],
				 .dtypes = {dtypes[d], dtypes[d]},
				 .rows = (int64_t)1 << 40,
				 .cols = 700};
		union op_args args;
		struct ek_norm_plan plan;
		args_of(&p, &args);
		args.forward.rstd = (void *)1;
		ek_norm_plan_forward(&args.forward, &limits, &plan);
		struct ek_step *step = &plan.plan.steps[plan.plan.count - 1];
		struct ek_norm_key key;
		memcpy(&key, &step->key, sizeof key);
		check_launches(plan_text(&p), step, p.rows, ek_policy_rows(&key.policy));
	}
}

/* The tree over partial sums has no more steps than a plan has room for. */
TEST(the_most_rows_have_a_plan)
{
	const struct ek_gpu_limits limits = ek_limits_of(90, 132);
	for (int d = 0; d < DTYPE_PAIRS; d++) {
		struct plan p = {.gpu = archs[4],
				 .backward = true,
				 .dtypes = dtype_pairs[d],
				 .rows = PTRDIFF_MAX / 32,
				 .cols = 1};
		union op_args args;
		struct ek_norm_plan plan;
		args_of(&p, &args);
		ek_norm_plan_backward(&args.backward, &limits, true, &plan);
		int last = EK_MOST_FOLDS;
		while (last > 0 && plan.partials[last] == 0)
			last--;
		EXPECT(plan.plan.count <= EK_MOST_STEPS && plan.partials[last] > 0 &&
			       plan.partials[last] <= FOLD_TOGETHER,
		       "%s: %d steps, %lld partial sums after the last fold", plan_text(&p), plan.plan.count,
		       (long long)plan.partials[last]);
	}
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
		p.access = (int)(p.rows % 3);
		if (p.rows > 0)
			check_workspace(&p);
	}
}

/* So that one allocation, for the largest call, is enough. */
TEST(the_workspace_of_many_rows_is_enough_for_fewer)
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
