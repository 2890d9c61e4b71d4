/* The norm ops on a GPU: from arguments to kernels and launches. A call looks at its arguments, finds its
 * kernels in memory (kernel.c) and launches them; it allocates, waits and locks nothing.
 * Called by api.c. SPDX-License-Identifier: MIT */
#include "norm.h"

#include "../cpu/fpenv.h"
#include "../ref/slots.h"
#include "../require.h"
#include "norm_recipe.h"

/* The most blocks of a launch, a multiple of every cluster size. */
#define MOST_BLOCKS ((int64_t)0x7fffff00)

static int64_t quotient_up(int64_t a, int64_t b)
{
	return a / b + (a % b != 0);
}

static struct ek_gpu_limits limits_of(const struct ek_gpu *gpu)
{
	return (struct ek_gpu_limits){gpu->arch, gpu->shared_limit};
}

/* ---- how operands lie in memory ---- */

/* The lowest bits of all addresses and strides tell their common alignment. */
static uintptr_t address_bits(const void *pointer)
{
	return (uintptr_t)pointer;
}

static void find_access(struct ek_norm_key *key, uintptr_t matrices, uintptr_t weights, uintptr_t gradients,
			uintptr_t statistics)
{
	size_t element = ek_dtype_size(key->dtype), weight_element = ek_dtype_size(key->weight_dtype);
	size_t real = key->dtype == EK_F64 ? 8 : 4;
	key->bytes = matrices % element != 0 || (weights | gradients) % weight_element != 0 ||
		     statistics % real != 0;
	key->weight_elements = weights % 16 != 0;
	key->access = key->bytes           ? EK_ACCESS_ELEMENTS
		      : matrices % 16 == 0 ? EK_ACCESS_QUADS
					   : EK_ACCESS_SHIFTED;
}

/* The policy of a call, and its part. norm_wide.cu, for rows that do not fit into registers, reads rows that are not
 * aligned element by element; ek_norm_policy gives the same policy for the key that results. */
static struct ek_policy choose_part(struct ek_norm_key *key, const struct ek_gpu *gpu)
{
	struct ek_policy policy = ek_norm_policy(key, limits_of(gpu));
	if (policy.unit_segments == 0)
		return policy;
	key->part = key->part == EK_PART_FORWARD ? EK_PART_WIDE_FORWARD : EK_PART_WIDE_ROWS;
	if (key->access == EK_ACCESS_SHIFTED)
		key->access = EK_ACCESS_ELEMENTS;
	return policy;
}

/* Host memory given for device memory ends a process late and darkly: one look-up for each of the tensors. */
static ek_status check_pointer(struct ek_gpu *gpu, const char *name, const void *pointer)
{
	int type = 0;
	if (!pointer || gpu->any_pointers)
		return EK_OK;
	CUresult result = gpu->driver->pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
							 (CUdeviceptr)(uintptr_t)pointer);
	if (__builtin_expect(result == CUDA_SUCCESS, 1))
		return EK_OK; /* device, managed and pinned host memory can all be read */
	if (result != CUDA_ERROR_INVALID_VALUE)
		return ek_gpu_fail(gpu, result, name);
	return ek_fail(EK_ERROR_ARGUMENT,
		       "%s (%p) is not memory that the GPU can reach: it looks like host memory", name,
		       pointer);
}

struct tensor {
	const char *name;
	const void *pointer;
};

/* Up to the one without a name. */
static ek_status check_pointers(struct ek_gpu *gpu, const struct tensor *tensors)
{
	for (; tensors->name; tensors++)
		PASS_ON(check_pointer(gpu, tensors->name, tensors->pointer));
	return EK_OK;
}

/* ---- launching ---- */

/* A call, or what is to be known of it. */
struct task {
	struct ek_gpu *gpu;
	CUstream stream;
	bool fetch;        /* get the kernels ready and launch nothing */
	bool any_rows;     /* those that other numbers of rows need, too */
	struct keys *keys; /* if not NULL: list the kernels and do nothing else */
};

enum { MOST_KERNELS = 4 };
struct keys {
	uint64_t at[MOST_KERNELS];
	int count;
};

/* A call may launch a kernel several times. */
static void list_key(struct keys *keys, uint64_t key)
{
	for (int i = 0; i < keys->count; i++)
		if (keys->at[i] == key)
			return;
	keys->at[keys->count++] = key;
}

static ek_status run(const struct task *task, const struct ek_norm_key *key, struct ek_launch launch,
		     void *arguments)
{
	CUfunction function;
	if (task->keys) {
		list_key(task->keys, ek_norm_key_pack(key));
		return EK_OK;
	}
	PASS_ON(ek_kernel_get(task->gpu, ek_norm_key_pack(key), ek_norm_write_recipe, task->stream,
			      &function));
	if (task->fetch || launch.blocks == 0)
		return EK_OK;
	launch.stream = task->stream;
	return ek_kernel_launch(task->gpu, function, &launch, arguments);
}

/* ---- forward ---- */

/* struct arguments of kernels/norm_forward.cu */
struct forward_arguments {
	const void *x;
	void *y;
	const void *weight, *bias;
	void *mean, *rstd, *mean_lo;
	int64_t x_stride, y_stride, rows;
	double eps;
};

/* struct arguments of kernels/norm_wide.cu */
struct wide_arguments {
	const void *x, *dy;
	void *y;
	const void *weight, *bias;
	void *mean, *rstd, *mean_lo;
	void *numbers, *partials;
	int64_t x_stride, dy_stride, y_stride;
	int64_t rows, slot_rows;
	double eps;
	int walk_slots;
};

/* Rule 1 of docs/numerics.md: to nearest even, subnormals kept, in any floating-point environment of the caller.
 * volatile: only loads and stores stay between the two calls. */
static double rounded_eps(ek_dtype dtype, double eps)
{
	const volatile double exact = eps;
	if (dtype == EK_F64)
		return eps;
	struct ek_fpenv saved = ek_fpenv_enter();
	const volatile double rounded = (double)(float)exact;
	ek_fpenv_leave(saved);
	return rounded;
}

static struct ek_norm_key forward_key(const ek_norm_forward_args *a)
{
	struct ek_norm_key key = {.part = EK_PART_FORWARD,
				  .norm = a->norm,
				  .dtype = a->dtype,
				  .weight_dtype = a->weight_dtype,
				  .cols = a->cols,
				  .weight = a->weight != NULL,
				  .bias = a->bias != NULL};
	uintptr_t strides = (uintptr_t)(a->x_stride | a->y_stride) * ek_dtype_size(a->dtype);
	find_access(&key, address_bits(a->x) | address_bits(a->y) | strides,
		    address_bits(a->weight) | address_bits(a->bias), 0,
		    address_bits(a->mean) | address_bits(a->rstd) | address_bits(a->mean_lo));
	return key;
}

/* Of forward, or of the rows of backward. */
static ek_status run_wide_rows(const struct task *task, const struct ek_norm_key *key,
			       const struct ek_policy *policy, struct wide_arguments *w)
{
	struct ek_launch launch = {.blocks = quotient_up(w->rows, policy->block_rows) * policy->row_blocks,
				   .threads = ek_policy_threads(policy),
				   .cluster = policy->row_blocks,
				   .shared_bytes = ek_norm_wide_shared(key, policy, task->gpu->shared_limit)};
	return run(task, key, launch, w);
}

static ek_status forward_wide(const struct task *task, const struct ek_norm_key *key,
			      const struct ek_policy *policy, struct forward_arguments f)
{
	struct wide_arguments w = {.x = f.x,
				   .dy = f.x,
				   .y = f.y,
				   .weight = f.weight,
				   .bias = f.bias,
				   .mean = f.mean,
				   .rstd = f.rstd,
				   .mean_lo = f.mean_lo,
				   .x_stride = f.x_stride,
				   .y_stride = f.y_stride,
				   .rows = f.rows,
				   .eps = f.eps};
	return run_wide_rows(task, key, policy, &w);
}

static ek_status forward_rows(const struct task *task, const struct ek_norm_key *key,
			      const struct ek_policy *policy, struct forward_arguments f)
{
	if (policy->unit_segments > 0)
		return forward_wide(task, key, policy, f);
	int block_rows = policy->block_rows * policy->rows_at_once * (32 / policy->row_threads);
	struct ek_launch launch = {.blocks = quotient_up(f.rows, block_rows) * policy->row_blocks,
				   .threads = ek_policy_threads(policy),
				   .cluster = policy->row_blocks,
				   .shared_bytes =
					   ek_forward_shared(policy, key->dtype, key->cols, key->access)};
	return run(task, key, launch, &f);
}

static void *offset(const void *pointer, int64_t bytes)
{
	return pointer ? (char *)(uintptr_t)pointer + bytes : NULL;
}

/* Few rows have a kernel of their own at some widths. Who gets one gets both: another number of rows then compiles
 * nothing. */
static ek_status choose_by_rows(const struct task *task, struct ek_norm_key *key, int64_t rows)
{
	struct task fetch = *task;
	struct ek_norm_key few = *key;
	struct ek_policy policy;
	if (!ek_forward_few_policy(key->dtype, key->cols, key->access, &policy))
		return EK_OK;
	fetch.fetch = true;
	few.few = true;
	bool are_few = rows <= (int64_t)policy.blocks * task->gpu->multiprocessors;
	PASS_ON(run(&fetch, are_few ? key : &few, (struct ek_launch){0}, NULL));
	if (are_few)
		*key = few;
	return EK_OK;
}

static ek_status launch_forward(const struct task *task, const ek_norm_forward_args *a)
{
	struct ek_norm_key key = forward_key(a);
	PASS_ON(choose_by_rows(task, &key, a->rows));
	struct ek_policy policy = choose_part(&key, task->gpu);
	int64_t element = (int64_t)ek_dtype_size(a->dtype), real = a->dtype == EK_F64 ? 8 : 4;
	int64_t most_rows = MOST_BLOCKS / policy.row_blocks;
	for (int64_t row = 0; row < a->rows || row == 0; row += most_rows) {
		struct forward_arguments f = {.x = offset(a->x, row * a->x_stride * element),
					      .y = offset(a->y, row * a->y_stride * element),
					      .weight = a->weight,
					      .bias = a->bias,
					      .mean = offset(a->mean, row * real),
					      .rstd = offset(a->rstd, row * real),
					      .mean_lo = offset(a->mean_lo, row * real),
					      .x_stride = a->x_stride * element,
					      .y_stride = a->y_stride * element,
					      .rows = a->rows - row < most_rows ? a->rows - row : most_rows,
					      .eps = rounded_eps(a->dtype, a->eps)};
		PASS_ON(forward_rows(task, &key, &policy, f));
	}
	return EK_OK;
}

ek_status ek_cuda_norm_forward(struct ek_gpu *gpu, const ek_norm_forward_args *a, bool prepare)
{
	struct task task = {.gpu = gpu, .stream = a->stream, .fetch = prepare};
	const struct tensor tensors[] = {
		{"x", a->x},       {"y", a->y},       {"weight", a->weight},   {"bias", a->bias},
		{"mean", a->mean}, {"rstd", a->rstd}, {"mean_lo", a->mean_lo}, {NULL, NULL}};
	bool pushed;
	PASS_ON(ek_gpu_check(gpu));
	PASS_ON(ek_gpu_enter(gpu, &pushed));
	ek_gpu_range_begin(gpu, "ek_norm_forward");
	ek_status status = prepare ? EK_OK : check_pointers(gpu, tensors);
	if (status == EK_OK)
		status = launch_forward(&task, a);
	ek_gpu_range_end(gpu);
	ek_gpu_leave(gpu, pushed);
	return status;
}

/* ---- backward ---- */

/* struct arguments of kernels/norm_backward.cu */
struct backward_arguments {
	const void *x, *dy;
	void *dx;
	const void *weight;
	const void *mean, *rstd, *mean_lo;
	void *partials;
	int64_t x_stride, dy_stride, dx_stride;
	int64_t rows, slot_rows;
	double eps;
	void *slot_sums;
};

/* struct arguments of kernels/norm_columns.cu */
struct columns_arguments {
	const void *partials;
	void *folded;
	void *dweight, *dbias;
	int64_t count;
	int each, accumulate;
};

enum { COLUMN_WARPS = 8, FOLD_ALONE = 16, FOLD_TOGETHER = 128 };

/* How the workspace is used: numbers of the rows in norm_wide.cu, partial column sums, those folded once more where
 * they are many, and sums of chunks that shared memory has no room for. */
struct workspace {
	size_t numbers_bytes;
	int64_t partials, folded; /* how many; 0 folded: one step is enough */
	size_t sums_bytes;        /* of one of them */
	size_t chunks_bytes;
};

static int sums_of(const ek_norm_backward_args *a)
{
	return (a->dweight != NULL) + (a->dbias != NULL);
}

static size_t real_bytes(ek_dtype dtype)
{
	return dtype == EK_F64 ? 8 : 4;
}

static size_t aligned(size_t bytes)
{
	return (bytes + 255) / 256 * 256;
}

/* Strips of columns in norm_wide.cu: a quad a thread of a warp. */
static int64_t strips_of(ek_dtype dtype, int64_t cols)
{
	return quotient_up(cols, 32 * 16 / (int64_t)ek_dtype_size(dtype));
}

/* The fewest slots of which a warp of norm_wide.cu walks `walk` (2 or 4) in its strip: with fewer slots there are too
 * few warps for every multiprocessor. */
static int64_t slots_for_walk(const struct ek_gpu *gpu, const ek_norm_backward_args *a, int walk)
{
	enum { ENOUGH_WARPS = 16 };
	int64_t warps = (int64_t)gpu->multiprocessors * ENOUGH_WARPS * walk;
	int64_t slots = quotient_up(warps, strips_of(a->dtype, a->cols));
	return slots > walk / 2 ? slots : walk / 2 + 1;
}

/* Slots that a warp of norm_wide.cu walks, whose sums it folds. */
static int slots_to_walk(const struct ek_gpu *gpu, const ek_norm_backward_args *a, int64_t slots)
{
	int walk = 1;
	while (walk < EK_MOST_WALK_SLOTS && slots >= slots_for_walk(gpu, a, 2 * walk))
		walk *= 2;
	return walk;
}

/* How backward's kernel in registers is launched. */
struct backward_plan {
	struct ek_launch launch;
	int64_t slot_rows;
};

/* Rows that a row of warps walks where no column sums are wanted: as many as keep the GPU busy. */
static int64_t rows_to_walk(const struct ek_gpu *gpu, const struct ek_policy *policy, int64_t rows)
{
	int64_t walkers = (int64_t)gpu->multiprocessors * policy->blocks * ek_policy_slots(policy) /
			  ek_policy_cluster(policy);
	int64_t walk = quotient_up(rows, walkers > 0 ? walkers : 1);
	/* Many more rows than that go in several waves, which even out. */
	return walk < 64 ? walk : 64;
}

static struct ek_backward_form form_of(const ek_norm_backward_args *a, enum ek_access access)
{
	return (struct ek_backward_form){.dtype = a->dtype,
					 .weight_dtype = a->weight_dtype,
					 .cols = a->cols,
					 .shifted = access == EK_ACCESS_SHIFTED,
					 .sums = sums_of(a)};
}

static int64_t blocks_of(const struct ek_policy *policy, int64_t slots)
{
	return quotient_up(slots, ek_policy_slots(policy)) * ek_policy_cluster(policy);
}

/* Whether the sums of chunks have room in shared memory. */
static bool chunks_fit(const struct ek_gpu *gpu, const struct ek_policy *policy,
		       const struct ek_backward_form *form)
{
	return ek_backward_shared(policy, form) + ek_backward_chunk_bytes(policy, form) <= gpu->shared_limit;
}

static struct backward_plan backward_plan(const struct ek_gpu *gpu, const ek_norm_backward_args *a,
					  const struct ek_policy *policy, enum ek_access access)
{
	struct ek_backward_form form = form_of(a, access);
	int64_t slot_rows = form.sums ? ek_slot_rows(a->rows, a->cols) : rows_to_walk(gpu, policy, a->rows);
	struct backward_plan plan = {.slot_rows = slot_rows > 0 ? slot_rows : 1};
	bool chunks = form.sums && plan.slot_rows > EK_CHUNK_ROWS && chunks_fit(gpu, policy, &form);
	plan.launch =
		(struct ek_launch){.blocks = blocks_of(policy, quotient_up(a->rows, plan.slot_rows)),
				   .threads = ek_policy_threads(policy),
				   .cluster = ek_policy_cluster(policy),
				   .shared_bytes = ek_backward_shared(policy, &form) +
						   (chunks ? ek_backward_chunk_bytes(policy, &form) : 0)};
	return plan;
}

/* Of so many partial sums, with so many slots of over EK_CHUNK_ROWS rows. */
static struct workspace workspace_with(const struct ek_gpu *gpu, const ek_norm_backward_args *a,
				       const struct ek_policy *policy, enum ek_access access,
				       int64_t partials, int64_t chunked_slots)
{
	bool wide = policy->unit_segments > 0;
	struct ek_backward_form form = form_of(a, access);
	struct workspace w = {.partials = partials};
	w.folded = w.partials > FOLD_TOGETHER ? quotient_up(w.partials, FOLD_TOGETHER) : 0;
	w.sums_bytes = (size_t)sums_of(a) * (((size_t)a->cols * real_bytes(a->dtype) + 15) / 16 * 16);
	w.numbers_bytes = wide ? aligned((size_t)a->rows * EK_ROW_NUMBERS * real_bytes(a->dtype)) : 0;
	if (!wide && chunked_slots > 0 && !chunks_fit(gpu, policy, &form))
		w.chunks_bytes = (size_t)blocks_of(policy, chunked_slots) *
				 (size_t)ek_backward_chunk_bytes(policy, &form);
	return w;
}

static struct workspace workspace_of(const struct ek_gpu *gpu, const ek_norm_backward_args *a,
				     const struct ek_policy *policy, enum ek_access access)
{
	if (sums_of(a) == 0)
		return (struct workspace){0};
	int64_t slots = ek_slot_count(a->rows, a->cols);
	bool chunked = ek_slot_rows(a->rows, a->cols) > EK_CHUNK_ROWS;
	int folded = policy->unit_segments > 0 ? slots_to_walk(gpu, a, slots) : ek_policy_slots(policy);
	return workspace_with(gpu, a, policy, access, quotient_up(slots, folded), chunked ? slots : 0);
}

/* The most partial sums of any number of slots up to `slots`: in norm_wide.cu, just before a warp walks more of them. */
static int64_t most_partials(const struct ek_gpu *gpu, const ek_norm_backward_args *a,
			     const struct ek_policy *policy, int64_t slots)
{
	if (policy->unit_segments == 0)
		return quotient_up(slots, ek_policy_slots(policy));
	int64_t most = quotient_up(slots, EK_MOST_WALK_SLOTS);
	for (int walk = 1; walk < EK_MOST_WALK_SLOTS; walk *= 2) {
		int64_t last = slots_for_walk(gpu, a, 2 * walk) - 1;
		int64_t partials = quotient_up(last < slots ? last : slots, walk);
		most = partials > most ? partials : most;
	}
	return most;
}

/* Enough for any number of rows up to a->rows: the most of each part. */
static struct workspace most_workspace(const struct ek_gpu *gpu, const ek_norm_backward_args *a,
				       const struct ek_policy *policy, enum ek_access access)
{
	if (sums_of(a) == 0)
		return (struct workspace){0};
	int64_t slots = ek_most_slots(a->rows, a->cols), chunked = 0;
	if (a->rows > EK_CHUNK_ROWS * ek_slot_target(a->cols)) {
		chunked = quotient_up(a->rows, EK_CHUNK_ROWS + 2); /* rows of a slot are even */
		chunked = chunked < slots ? chunked : slots;
	}
	return workspace_with(gpu, a, policy, access, most_partials(gpu, a, policy, slots), chunked);
}

/* Of all partial sums; folding goes to and fro between them and the folded ones. */
static size_t sums_bytes(const struct workspace *w)
{
	return aligned((size_t)w->partials * w->sums_bytes) + aligned((size_t)w->folded * w->sums_bytes);
}

static size_t workspace_bytes(const struct workspace *w)
{
	return w->numbers_bytes + sums_bytes(w) + w->chunks_bytes;
}

/* The alignment of the call's tensors is not known yet: enough for all. */
size_t ek_cuda_norm_backward_workspace(const struct ek_gpu *gpu, const ek_norm_backward_args *a)
{
	size_t most = 0;
	for (int access = EK_ACCESS_QUADS; access <= EK_ACCESS_ELEMENTS; access++) {
		struct ek_policy policy =
			ek_backward_policy(a->dtype, a->cols, (enum ek_access)access, limits_of(gpu));
		struct workspace w = most_workspace(gpu, a, &policy, (enum ek_access)access);
		size_t bytes = workspace_bytes(&w);
		most = bytes > most ? bytes : most;
	}
	return most;
}

static struct ek_norm_key backward_key(const ek_norm_backward_args *a)
{
	struct ek_norm_key key = {.part = EK_PART_BACKWARD,
				  .norm = a->norm,
				  .dtype = a->dtype,
				  .weight_dtype = a->weight_dtype,
				  .cols = a->cols,
				  .weight = a->weight != NULL,
				  .given = a->rstd != NULL,
				  .dx = a->dx != NULL,
				  .dweight = a->dweight != NULL,
				  .dbias = a->dbias != NULL};
	int64_t strides = a->x_stride | a->dy_stride | (a->dx ? a->dx_stride : 0);
	find_access(&key,
		    address_bits(a->x) | address_bits(a->dy) | address_bits(a->dx) |
			    (uintptr_t)strides * ek_dtype_size(a->dtype),
		    address_bits(a->weight), address_bits(a->dweight) | address_bits(a->dbias),
		    address_bits(a->mean) | address_bits(a->rstd) | address_bits(a->mean_lo));
	return key;
}

/* One step of the tree over the partial sums. */
static ek_status fold_step(const struct task *task, const struct ek_norm_key *key, struct columns_arguments c,
			   int64_t sums_bytes)
{
	int real = (int)real_bytes(key->dtype);
	for (c.each = 1; c.each * COLUMN_WARPS < c.count && c.each * COLUMN_WARPS < FOLD_TOGETHER;)
		c.each *= 2;
	int64_t folds = c.count > FOLD_TOGETHER ? quotient_up(c.count, FOLD_TOGETHER) : 1;
	int columns = c.count <= FOLD_ALONE ? 32 * COLUMN_WARPS : 32; /* that a block takes */
	struct ek_launch launch = {.blocks = quotient_up(sums_bytes / real, columns) * folds,
				   .threads = 32 * COLUMN_WARPS,
				   .cluster = 1,
				   .shared_bytes = COLUMN_WARPS * 33 * real};
	return run(task, key, launch, &c);
}

/* The tree over the partial sums; the last step writes the gradients. */
static ek_status fold_columns(const struct task *task, struct ek_norm_key key, const ek_norm_backward_args *a,
			      char *partials, const struct workspace *w)
{
	char *other = partials + aligned((size_t)w->partials * w->sums_bytes);
	int64_t count = w->partials;
	key.access = EK_ACCESS_ELEMENTS; /* neither rows nor weights are read: one kernel for all forms */
	key.weight = key.given = key.dx = key.weight_elements = false;
	for (; count > FOLD_TOGETHER; count = quotient_up(count, FOLD_TOGETHER)) {
		key.part = EK_PART_FOLD;
		PASS_ON(fold_step(
			task, &key,
			(struct columns_arguments){.partials = partials, .folded = other, .count = count},
			(int64_t)w->sums_bytes));
		char *folded = other;
		other = partials;
		partials = folded;
	}
	if (task->any_rows) {
		key.part = EK_PART_FOLD;
		PASS_ON(run(task, &key, (struct ek_launch){.blocks = 0}, NULL));
	}
	key.part = EK_PART_FINAL;
	return fold_step(task, &key,
			 (struct columns_arguments){.partials = partials,
						    .dweight = a->dweight,
						    .dbias = a->dbias,
						    .count = count,
						    .accumulate = a->accumulate},
			 (int64_t)w->sums_bytes);
}

static ek_status backward_in_registers(const struct task *task, const struct ek_norm_key *key,
				       const struct ek_policy *policy, const ek_norm_backward_args *a,
				       char *partials, const struct workspace *w)
{
	int64_t element = (int64_t)ek_dtype_size(a->dtype);
	struct backward_plan plan = backward_plan(task->gpu, a, policy, key->access);
	struct backward_arguments b = {.x = a->x,
				       .dy = a->dy,
				       .dx = a->dx,
				       .weight = a->weight,
				       .mean = a->mean,
				       .rstd = a->rstd,
				       .mean_lo = a->mean_lo,
				       .partials = partials,
				       .x_stride = a->x_stride * element,
				       .dy_stride = a->dy_stride * element,
				       .dx_stride = a->dx_stride * element,
				       .rows = a->rows,
				       .slot_rows = plan.slot_rows,
				       .eps = rounded_eps(a->dtype, a->eps),
				       .slot_sums = w->chunks_bytes ? partials + sums_bytes(w) : NULL};
	return run(task, key, plan.launch, &b);
}

/* From row `row` on. */
static struct wide_arguments wide_arguments_of(const ek_norm_backward_args *a, int64_t row, char *numbers,
					       char *partials)
{
	int64_t element = (int64_t)ek_dtype_size(a->dtype), real = (int64_t)real_bytes(a->dtype);
	return (struct wide_arguments){.x = offset(a->x, row * a->x_stride * element),
				       .dy = offset(a->dy, row * a->dy_stride * element),
				       .y = offset(a->dx, row * a->dx_stride * element),
				       .weight = a->weight,
				       .mean = offset(a->mean, row * real),
				       .rstd = offset(a->rstd, row * real),
				       .mean_lo = offset(a->mean_lo, row * real),
				       .numbers = offset(numbers, row * EK_ROW_NUMBERS * real),
				       .partials = partials,
				       .x_stride = a->x_stride * element,
				       .dy_stride = a->dy_stride * element,
				       .y_stride = a->dx_stride * element,
				       .rows = a->rows - row,
				       .slot_rows = a->rows ? ek_slot_rows(a->rows, a->cols) : 1,
				       .eps = rounded_eps(a->dtype, a->eps)};
}

static ek_status backward_wide(const struct task *task, struct ek_norm_key key,
			       const struct ek_policy *policy, const ek_norm_backward_args *a, char *numbers,
			       char *partials)
{
	int64_t most_rows = MOST_BLOCKS / policy->row_blocks;
	for (int64_t row = 0; row < a->rows || row == 0; row += most_rows) {
		struct wide_arguments w = wide_arguments_of(a, row, numbers, partials);
		w.rows = w.rows < most_rows ? w.rows : most_rows;
		PASS_ON(run_wide_rows(task, &key, policy, &w));
	}
	if (sums_of(a) == 0)
		return EK_OK;
	/* At most 2048 slots, or 2048 rows in each: never too many blocks. */
	struct wide_arguments w = wide_arguments_of(a, 0, numbers, partials);
	int64_t slots = ek_slot_count(a->rows, a->cols);
	w.walk_slots = slots_to_walk(task->gpu, a, slots);
	int64_t walks = quotient_up(slots, w.walk_slots);
	key.part = EK_PART_WIDE_COLUMNS;
	struct ek_launch launch = {.blocks = quotient_up(strips_of(a->dtype, a->cols) * walks, EK_WALK_WARPS),
				   .threads = 32 * EK_WALK_WARPS,
				   .cluster = 1,
				   .shared_bytes =
					   ek_norm_wide_shared(&key, policy, task->gpu->shared_limit)};
	return run(task, &key, launch, &w);
}

static ek_status launch_backward(const struct task *task, const ek_norm_backward_args *a)
{
	struct ek_norm_key key = backward_key(a);
	struct ek_policy policy = choose_part(&key, task->gpu);
	struct workspace w = workspace_of(task->gpu, a, &policy, key.access);
	char *numbers = a->workspace, *partials = sums_of(a) ? numbers + w.numbers_bytes : NULL;
	if (key.part == EK_PART_WIDE_ROWS)
		PASS_ON(backward_wide(task, key, &policy, a, numbers, partials));
	else
		PASS_ON(backward_in_registers(task, &key, &policy, a, partials, &w));
	return sums_of(a) ? fold_columns(task, key, a, partials, &w) : EK_OK;
}

/* Every kernel before the first launch: a call that cannot have one writes nothing, and a capture is not left
 * with half of it. */
static ek_status fetch_and_launch_backward(struct ek_gpu *gpu, const ek_norm_backward_args *a, bool prepare)
{
	struct task task = {.gpu = gpu, .stream = a->stream, .fetch = true, .any_rows = prepare};
	PASS_ON(launch_backward(&task, a));
	task.fetch = false;
	return prepare ? EK_OK : launch_backward(&task, a);
}

ek_status ek_cuda_norm_backward(struct ek_gpu *gpu, const ek_norm_backward_args *a, bool prepare)
{
	bool needs_workspace = sums_of(a) > 0 && a->rows > 0;
	const struct tensor tensors[] = {{"x", a->x},
					 {"dy", a->dy},
					 {"dx", a->dx},
					 {"weight", a->weight},
					 {"mean", a->mean},
					 {"rstd", a->rstd},
					 {"mean_lo", a->mean_lo},
					 {"dweight", a->dweight},
					 {"dbias", a->dbias},
					 {"workspace", needs_workspace ? a->workspace : NULL},
					 {NULL, NULL}};
	bool pushed;
	PASS_ON(ek_gpu_check(gpu));
	PASS_ON(ek_gpu_enter(gpu, &pushed));
	ek_gpu_range_begin(gpu, "ek_norm_backward");
	ek_status status = prepare ? EK_OK : check_pointers(gpu, tensors);
	if (status == EK_OK)
		status = fetch_and_launch_backward(gpu, a, prepare);
	ek_gpu_range_end(gpu);
	ek_gpu_leave(gpu, pushed);
	return status;
}

/* ---- for warm-up and for counting, without a GPU ---- */

static struct ek_gpu gpu_of(int arch, int multiprocessors)
{
	struct ek_gpu_limits limits = ek_limits_of(arch);
	return (struct ek_gpu){
		.arch = arch, .multiprocessors = multiprocessors, .shared_limit = limits.shared_bytes};
}

int ek_cuda_norm_recipes(const ek_norm_forward_args *forward, const ek_norm_backward_args *backward, int arch,
			 struct ek_recipe *recipes, int most)
{
	struct ek_gpu gpu = gpu_of(arch, 1);
	struct keys keys = {.count = 0};
	struct task task = {.gpu = &gpu, .any_rows = true, .keys = &keys};
	(void)(forward ? launch_forward(&task, forward) : launch_backward(&task, backward));
	for (int i = 0; i < keys.count && i < most; i++)
		ek_norm_write_recipe(keys.at[i], &gpu, &recipes[i]);
	return keys.count < most ? keys.count : most;
}

struct ek_norm_cut ek_cuda_norm_cut(const ek_norm_forward_args *forward,
				    const ek_norm_backward_args *backward, int arch, int multiprocessors)
{
	struct ek_gpu gpu = gpu_of(arch, multiprocessors);
	struct ek_norm_key key = forward ? forward_key(forward) : backward_key(backward);
	struct ek_policy policy = choose_part(&key, &gpu);
	struct ek_norm_cut cut = {.wide = policy.unit_segments > 0};
	if (forward || sums_of(backward) == 0)
		return cut;
	struct workspace w = workspace_of(&gpu, backward, &policy, key.access);
	cut.slots = ek_slot_count(backward->rows, backward->cols);
	cut.chunk_bytes = (int64_t)w.chunks_bytes;
	cut.partials[0] = w.partials;
	for (int i = 0; i < EK_MOST_FOLDS && cut.partials[i] > FOLD_TOGETHER; i++)
		cut.partials[i + 1] = quotient_up(cut.partials[i], FOLD_TOGETHER);
	return cut;
}
