/* libFuzzer harness over the argument structs: the input's bytes choose an op, sizes, strides, dtypes and
 * where in a small arena each buffer lies. A call that is accepted must leave the arena as the reference
 * leaves it, bit for bit; a refused one must leave it alone; and what is plainly wrong must be refused,
 * what is plainly right accepted. `make fuzz` builds and runs it. SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "evenkeel.h"

enum { ARENA = 64 << 10, WORKSPACE = 4 << 20, CONTEXTS = 16 };

static _Alignas(64) unsigned char start[ARENA], expected[ARENA], actual[ARENA];
static _Alignas(64) unsigned char reference_workspace[WORKSPACE];
static ek_context *reference, *contexts[CONTEXTS];
static int context_count;
static long calls, accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fuzz_norm: %s; the last message was: %s\n", what, ek_error(reference));
	abort();
}

static void print_totals(void)
{
	fprintf(stderr, "fuzz_norm: %ld calls, %ld of them accepted\n", calls, accepted);
}

static void open_contexts(void)
{
	atexit(print_totals);
	ek_options options = {.size = sizeof options, .isa = "reference"};
	require(ek_open(&reference, &options) == EK_OK, "the reference does not open");
	int usable;
	for (int i = 1; (options.isa = ek_cpu_level(i, &usable)) != NULL; i++) {
		for (int form = 0; usable && form < 2 && context_count < CONTEXTS; form++) {
			options.threads = form ? 3 : 1;
			options.stream_bytes =
				form ? 1 : 0; /* every result past the caches, or none this small */
			require(ek_open(&contexts[context_count++], &options) == EK_OK,
				"a usable level does not open");
		}
	}
}

/* ---- reading the input ---- */

struct input {
	const uint8_t *data;
	size_t left;
};

static uint64_t take(struct input *in, int bytes)
{
	uint64_t value = 0;
	for (int i = 0; i < bytes && in->left > 0; i++, in->left--)
		value |= (uint64_t)*in->data++ << 8 * i;
	return value;
}

static int64_t below(struct input *in, int64_t limit)
{
	return (int64_t)(take(in, 2) % (uint64_t)limit);
}

/* Mostly `usual`; now and then a number from the edges, or any number at all. */
static int64_t unusual(struct input *in, int64_t usual)
{
	static const int64_t edges[] = {0,
					-1,
					1,
					EK_MAX_COLS,
					EK_MAX_COLS + 1,
					INT64_MAX,
					INT64_MIN,
					INT64_MAX / 8,
					(int64_t)1 << 31,
					(int64_t)1 << 40,
					(int64_t)1 << 62};
	switch (take(in, 1)) {
	case 254:
		return edges[take(in, 1) % (sizeof edges / sizeof edges[0])];
	case 255:
		return (int64_t)take(in, 8);
	default:
		return usual;
	}
}

static int64_t take_stride(struct input *in, int64_t cols)
{
	switch (take(in, 1) % 4) {
	case 0:
		return unusual(in, 0);
	case 1:
		return (int64_t)((uint64_t)cols + take(in, 1)); /* padded rows; of any cols, INT64_MAX too */
	case 2:
		return (int64_t)((uint64_t)cols * 2);
	default:
		return unusual(in, cols);
	}
}

/* ---- one call, forward or backward, and what the harness itself thinks of it ---- */

enum { MAX_OPERANDS = 12 };

struct operand {
	int64_t rows, cols, stride;
	ek_dtype dtype;
	size_t bytes;
	bool is_output;
	const void **pointer; /* the field of the argument struct */
};

struct call {
	bool backward;
	ek_norm_forward_args forward_args;
	ek_norm_backward_args backward_args;
	struct operand operands[MAX_OPERANDS];
	int count;
	bool wrong;    /* must be refused */
	bool too_wide; /* some buffer does not fit in the arena: not to be called if it might be accepted */
	bool overlap;  /* some output touches another buffer: may be refused */
	size_t used;   /* of the arena, by buffers laid out one after another */
	size_t workspace_bytes;
};

static bool known_dtype(ek_dtype dtype)
{
	return ek_dtype_size(dtype) > 0;
}

/* first * second * third, or INT64_MAX where that is more or makes no sense. */
static int64_t product(int64_t first, int64_t second, int64_t third)
{
	int64_t result;
	bool overflows = __builtin_mul_overflow(first, second, &result) ||
			 __builtin_mul_overflow(result, third, &result);
	return first < 0 || second < 0 || overflows ? INT64_MAX : result;
}

/* From the first byte of a matrix to its last; INT64_MAX: more than there are. */
static int64_t extent(int64_t rows, int64_t cols, int64_t stride, ek_dtype dtype)
{
	int64_t size = (int64_t)ek_dtype_size(dtype), last_row = product(cols, size, 1);
	if (rows <= 0)
		return rows < 0 ? INT64_MAX : 0;
	int64_t before = product(rows - 1, stride, size);
	return before > INT64_MAX - last_row ? INT64_MAX : before + last_row;
}

/* Registers a buffer and lays it out: absent, after those before it, or anywhere. */
static void place(struct input *in, struct call *call, const void **pointer, int64_t rows, int64_t cols,
		  int64_t stride, ek_dtype dtype, bool is_output, bool often)
{
	uint64_t choice = take(in, 1);
	*pointer = NULL;
	if (choice < (often ? 4 : 100))
		return;
	if (stride == 0)
		stride = cols;
	int64_t bytes = extent(rows, cols, stride, dtype);
	size_t offset = call->used + take(in, 1) % 65;
	if (choice > 250)
		offset = (size_t)below(in, ARENA);
	else if (choice > 235 && call->count > 0)
		offset = (size_t)((const unsigned char *)*call->operands[take(in, 1) % (size_t)call->count]
					  .pointer -
				  actual);
	if (bytes > ARENA || offset > ARENA - (size_t)bytes) {
		call->too_wide = true;
		offset = 0;
		bytes = 0;
	}
	*pointer = actual + offset;
	if (offset + (size_t)bytes > call->used)
		call->used = offset + (size_t)bytes;
	call->operands[call->count++] = (struct operand){.rows = rows,
							 .cols = cols,
							 .stride = stride,
							 .dtype = dtype,
							 .bytes = (size_t)bytes,
							 .is_output = is_output,
							 .pointer = pointer};
}

/* Whether a matrix must be refused for its stride alone. */
static bool wrong_stride(int64_t rows, int64_t cols, int64_t stride, ek_dtype dtype)
{
	if (stride == 0)
		stride = cols;
	return stride < cols || product(stride, (int64_t)ek_dtype_size(dtype), rows) == INT64_MAX;
}

static bool wrong_common(size_t size, size_t right_size, ek_norm norm, ek_dtype dtype, ek_dtype weight_dtype,
			 int64_t rows, int64_t cols, double eps)
{
	bool weights_fit = (int)weight_dtype == 0 || weight_dtype == dtype ||
			   (weight_dtype == EK_F32 && (dtype == EK_F16 || dtype == EK_BF16));
	bool infinite = !isfinite(dtype == EK_F64 ? eps : (double)(float)eps);
	return size != right_size || (norm != EK_LAYER_NORM && norm != EK_RMS_NORM) || !known_dtype(dtype) ||
	       !weights_fit || rows < 0 || cols < 1 || cols > EK_MAX_COLS || infinite || eps < 0;
}

static double take_eps(struct input *in)
{
	static const double usual[] = {1e-5, 1e-6, 0, 1, 1e-40, 1e300, -1e-5, NAN, INFINITY};
	uint64_t choice = take(in, 1);
	if (choice < 200)
		return usual[choice % 4];
	return usual[choice % (sizeof usual / sizeof usual[0])];
}

static size_t take_size(struct input *in, size_t right)
{
	return take(in, 1) == 255 ? (size_t)take(in, 8) : right;
}

static int take_enum(struct input *in, int limit)
{
	return take(in, 1) == 255 ? (int)take(in, 4) : (int)(take(in, 1) % (unsigned)limit) + 1;
}

static void take_shape(struct input *in, int64_t *rows, int64_t *cols)
{
	bool tall = take(in, 1) % 2;
	*rows = unusual(in, below(in, tall ? 80 : 6));
	*cols = unusual(in, 1 + below(in, tall ? 130 : 2100));
}

static void take_forward(struct input *in, struct call *call)
{
	ek_norm_forward_args *a = &call->forward_args;
	a->size = take_size(in, sizeof *a);
	a->norm = (ek_norm)take_enum(in, 2);
	a->dtype = (ek_dtype)take_enum(in, 4);
	a->weight_dtype = take(in, 1) % 2 ? (ek_dtype)0 : (ek_dtype)take_enum(in, 4);
	take_shape(in, &a->rows, &a->cols);
	a->x_stride = take_stride(in, a->cols);
	a->y_stride = take_stride(in, a->cols);
	a->eps = take_eps(in);
	ek_dtype weights = (int)a->weight_dtype ? a->weight_dtype : a->dtype;
	ek_dtype stats = a->dtype == EK_F64 ? EK_F64 : EK_F32;
	place(in, call, &a->x, a->rows, a->cols, a->x_stride, a->dtype, false, true);
	place(in, call, (const void **)&a->y, a->rows, a->cols, a->y_stride, a->dtype, true, true);
	place(in, call, &a->weight, 1, a->cols, 0, weights, false, false);
	place(in, call, &a->bias, 1, a->cols, 0, weights, false, false);
	place(in, call, (const void **)&a->rstd, a->rows, 1, 1, stats, true, false);
	if (a->norm == EK_LAYER_NORM || take(in, 1) == 0) {
		place(in, call, (const void **)&a->mean, a->rows, 1, 1, stats, true, false);
		place(in, call, (const void **)&a->mean_lo, a->rows, 1, 1, stats, true, false);
	}
	call->wrong = wrong_common(a->size, sizeof *a, a->norm, a->dtype, a->weight_dtype, a->rows, a->cols,
				   a->eps) ||
		      wrong_stride(a->rows, a->cols, a->x_stride, a->dtype) ||
		      wrong_stride(a->rows, a->cols, a->y_stride, a->dtype) ||
		      (a->rows > 0 && (!a->x || !a->y)) ||
		      (a->norm == EK_RMS_NORM && (a->mean || a->mean_lo));
}

static void take_backward(struct input *in, struct call *call)
{
	ek_norm_backward_args *a = &call->backward_args;
	a->size = take_size(in, sizeof *a);
	a->norm = (ek_norm)take_enum(in, 2);
	a->dtype = (ek_dtype)take_enum(in, 4);
	a->weight_dtype = take(in, 1) % 2 ? (ek_dtype)0 : (ek_dtype)take_enum(in, 4);
	take_shape(in, &a->rows, &a->cols);
	a->dy_stride = take_stride(in, a->cols);
	a->x_stride = take_stride(in, a->cols);
	a->dx_stride = take_stride(in, a->cols);
	a->eps = take_eps(in);
	a->accumulate = take(in, 1) % 2;
	ek_dtype weights = (int)a->weight_dtype ? a->weight_dtype : a->dtype;
	ek_dtype stats = a->dtype == EK_F64 ? EK_F64 : EK_F32;
	place(in, call, &a->dy, a->rows, a->cols, a->dy_stride, a->dtype, false, true);
	place(in, call, &a->x, a->rows, a->cols, a->x_stride, a->dtype, false, true);
	place(in, call, &a->weight, 1, a->cols, 0, weights, false, false);
	place(in, call, (const void **)&a->dx, a->rows, a->cols, a->dx_stride, a->dtype, true, false);
	place(in, call, (const void **)&a->dweight, 1, a->cols, 0, weights, true, false);
	place(in, call, (const void **)&a->dbias, 1, a->cols, 0, weights, true, false);
	uint64_t given = take(in, 1);
	if (given % 2) {
		place(in, call, &a->rstd, a->rows, 1, 1, stats, false, true);
		if (a->norm == EK_LAYER_NORM || given > 250) {
			place(in, call, &a->mean, a->rows, 1, 1, stats, false, true);
			place(in, call, &a->mean_lo, a->rows, 1, 1, stats, false, false);
		}
	}
	bool layer_norm = a->norm == EK_LAYER_NORM;
	call->wrong = wrong_common(a->size, sizeof *a, a->norm, a->dtype, a->weight_dtype, a->rows, a->cols,
				   a->eps) ||
		      wrong_stride(a->rows, a->cols, a->dy_stride, a->dtype) ||
		      wrong_stride(a->rows, a->cols, a->x_stride, a->dtype) ||
		      wrong_stride(a->rows, a->cols, a->dx_stride, a->dtype) ||
		      (a->rows > 0 && (!a->x || !a->dy)) || (!a->dx && !a->dweight && !a->dbias) ||
		      (layer_norm && !a->mean != !a->rstd) || (layer_norm && a->mean_lo && !a->mean) ||
		      (!layer_norm && (a->mean || a->mean_lo));
}

/* Asks for the workspace and lays it out, at times too small, misaligned or over something else. */
static void take_workspace(struct input *in, struct call *call, ek_context *ctx)
{
	ek_norm_backward_args *a = &call->backward_args;
	size_t bytes = 0;
	if (ek_norm_backward_workspace(ctx, a, &bytes) != EK_OK)
		return;
	if (bytes == 0)
		return;
	uint64_t choice = take(in, 1);
	size_t offset = (call->used + 63) / 64 * 64;
	if (choice > 250)
		offset = (size_t)below(in, ARENA) & ~(size_t)(choice % 2 ? 63 : 0);
	a->workspace_size = choice == 250 ? bytes - 1 : choice == 249 ? (size_t)take(in, 8) : bytes;
	if (bytes > ARENA || offset > ARENA - bytes) {
		call->too_wide = true;
		return;
	}
	a->workspace = choice == 248 ? NULL : actual + offset;
	call->workspace_bytes = bytes;
	call->wrong = call->wrong || choice == 248 || a->workspace_size < bytes || offset % 64 != 0;
	call->overlap = call->overlap || offset < call->used || choice == 249;
}

/* Ranges from first to last byte: rows that interleave count as touching, the library may know better. */
static void find_overlaps(struct call *call)
{
	for (int i = 0; i < call->count; i++) {
		const struct operand *a = &call->operands[i];
		const unsigned char *a_begin = *a->pointer;
		for (int j = 0; a->is_output && j < call->count; j++) {
			const struct operand *b = &call->operands[j];
			const unsigned char *b_begin = *b->pointer;
			if (i != j && a_begin < b_begin + b->bytes && b_begin < a_begin + a->bytes)
				call->overlap = true;
		}
	}
}

/* ---- running and comparing ---- */

/* Mostly bytes that make a moderate, finite number of either sign in every dtype at every alignment; or
 * any bytes, NaN and infinity among them. */
static void fill_arena(uint64_t seed)
{
	bool any = seed % 4 == 0;
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
	for (size_t i = 0; i < ARENA; i += 8) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		uint64_t bytes = any ? state : (state & 0x8787878787878787u) | 0x3838383838383838u;
		memcpy(start + i, &bytes, 8);
	}
}

static void *moved(const void *pointer, unsigned char *arena)
{
	return pointer ? arena + ((const unsigned char *)pointer - actual) : NULL;
}

/* The same call by the reference, in the arena `expected`. */
static ek_status call_reference(const struct call *call)
{
	if (!call->backward) {
		ek_norm_forward_args a = call->forward_args;
		a.x = moved(a.x, expected), a.weight = moved(a.weight, expected),
		a.bias = moved(a.bias, expected);
		a.y = moved(a.y, expected), a.mean = moved(a.mean, expected),
		a.rstd = moved(a.rstd, expected);
		a.mean_lo = moved(a.mean_lo, expected);
		return ek_norm_forward(reference, &a);
	}
	ek_norm_backward_args a = call->backward_args;
	a.dy = moved(a.dy, expected), a.x = moved(a.x, expected), a.weight = moved(a.weight, expected);
	a.mean = moved(a.mean, expected), a.rstd = moved(a.rstd, expected),
	a.mean_lo = moved(a.mean_lo, expected);
	a.dx = moved(a.dx, expected), a.dweight = moved(a.dweight, expected),
	a.dbias = moved(a.dbias, expected);
	size_t needed = 0;
	require(ek_norm_backward_workspace(reference, &a, &needed) == EK_OK, "the reference refuses sizes");
	require(needed <= WORKSPACE, "the harness has too little workspace for the reference");
	a.workspace = reference_workspace;
	a.workspace_size = needed;
	return ek_norm_backward(reference, &a);
}

/* NaN payloads are not promised: every NaN of an output becomes the same one. */
static void level_nans(unsigned char *arena, const struct operand *operand)
{
	static const uint64_t exponent[] = {
		[EK_F32] = 0x7f800000, [EK_F16] = 0x7c00, [EK_BF16] = 0x7f80, [EK_F64] = 0x7ff0000000000000};
	size_t size = ek_dtype_size(operand->dtype);
	for (int64_t row = 0; row < operand->rows; row++) {
		unsigned char *at = moved(*operand->pointer, arena);
		at += (size_t)(row * operand->stride) * size;
		for (int64_t i = 0; i < operand->cols; i++, at += size) {
			uint64_t bits = 0;
			memcpy(&bits, at, size);
			if ((bits & (((uint64_t)1 << (size * 8 - 1)) - 1)) > exponent[operand->dtype])
				memset(at, 0xff, size);
		}
	}
}

static void compare(struct call *call)
{
	require(call_reference(call) == EK_OK, "a level accepts what the reference refuses");
	for (int i = 0; i < call->count; i++) {
		if (call->operands[i].is_output) {
			level_nans(actual, &call->operands[i]);
			level_nans(expected, &call->operands[i]);
		}
	}
	if (call->backward && call->backward_args.workspace) { /* scratch: nothing is promised of it */
		size_t offset = (size_t)((unsigned char *)call->backward_args.workspace - actual);
		memcpy(expected + offset, actual + offset, call->workspace_bytes);
	}
	require(memcmp(actual, expected, ARENA) == 0, "the bits differ from the reference's");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!reference)
		open_contexts();
	struct input in = {data, size};
	struct call call = {.backward = take(&in, 1) % 2};
	ek_context *ctx = contexts[take(&in, 1) % (unsigned)context_count];
	fill_arena(take(&in, 2));
	(call.backward ? take_backward : take_forward)(&in, &call);
	find_overlaps(&call);
	if (call.backward)
		take_workspace(&in, &call, ctx);
	if (call.too_wide && !call.wrong)
		return 0;
	memcpy(actual, start, ARENA);
	memcpy(expected, start, ARENA);
	ek_status status = call.backward ? ek_norm_backward(ctx, &call.backward_args)
					 : ek_norm_forward(ctx, &call.forward_args);
	require(status == EK_OK || *ek_error(ctx), "a refusal without a message");
	require(status == EK_OK || memcmp(actual, start, ARENA) == 0, "a refused call has written");
	require(!call.wrong || status != EK_OK, "a wrong call was accepted");
	require(call.wrong || call.overlap || status == EK_OK, "a right call was refused");
	calls++;
	if (status == EK_OK) {
		accepted++;
		compare(&call);
	}
	return 0;
}
