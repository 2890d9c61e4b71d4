/* The rules for arguments (include/evenkeel.h) as code; api.c calls it. It is in the way of every call, a
 * 1x1 one too, so it formats nothing before a rule is broken, and it writes nowhere but to *resolved.
 * SPDX-License-Identifier: MIT */
#include "check.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "dtype.h"
#include "require.h"

/* ---- dtypes ---- */

#define LISTED(dtype, name, bytes) ", " #name
#define DTYPE_LIST (&(EK_DTYPES(LISTED))[2])

#define NAMED(dtype, name, bytes) dtype_##name = (dtype),
enum { EK_DTYPES(NAMED) dtype_end };

#define GOES_WITH(activations, weights) [dtype_##activations][dtype_##weights] = true,
static const bool goes_with[dtype_end][dtype_end] = {EK_NORM_DTYPES(GOES_WITH)};

#define BYTES(dtype, name, bytes) [dtype] = (bytes),
static const uint8_t dtype_bytes[dtype_end] = {EK_DTYPES(BYTES)};

static bool is_dtype(ek_dtype dtype)
{
	return (unsigned)dtype < dtype_end && dtype_bytes[dtype] != 0;
}

ek_status ek_check_dtypes(ek_dtype dtype, ek_dtype *weight_dtype)
{
	REQUIRE(is_dtype(dtype), EK_ERROR_DTYPE, "dtype (%d) is unknown; expected %s", (int)dtype,
		DTYPE_LIST);
	if ((int)*weight_dtype == 0)
		*weight_dtype = dtype;
	REQUIRE(is_dtype(*weight_dtype), EK_ERROR_DTYPE, "weight_dtype (%d) is unknown; expected %s",
		(int)*weight_dtype, DTYPE_LIST);
	REQUIRE(goes_with[dtype][*weight_dtype], EK_ERROR_DTYPE,
		"weight_dtype %s does not go with dtype %s (allowed: %s%s)", ek_dtype_name(*weight_dtype),
		ek_dtype_name(dtype), ek_dtype_name(dtype),
		dtype != EK_F32 && goes_with[dtype][EK_F32] ? ", f32" : "");
	return EK_OK;
}

/* ---- sizes ---- */

static ek_status check_shape(ek_norm norm, int64_t rows, int64_t cols)
{
	REQUIRE(norm == EK_LAYER_NORM || norm == EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is neither EK_LAYER_NORM (%d) nor EK_RMS_NORM (%d)", (int)norm, (int)EK_LAYER_NORM,
		(int)EK_RMS_NORM);
	REQUIRE(rows >= 0, EK_ERROR_ARGUMENT, "rows (%" PRId64 ") must not be negative", rows);
	/* So that the bytes of statistics and of the reference's workspace do not overflow either. */
	REQUIRE(rows <= PTRDIFF_MAX / 32, EK_ERROR_ARGUMENT,
		"rows (%" PRId64 ") is more than memory can hold (%" PRId64 ")", rows,
		(int64_t)(PTRDIFF_MAX / 32));
	REQUIRE(cols >= 1 && cols <= EK_MAX_COLS, EK_ERROR_ARGUMENT,
		"cols (%" PRId64 ") is not in 1 to EK_MAX_COLS (%d)", cols, EK_MAX_COLS);
	return EK_OK;
}

/* Only comparisons, so that the caller's rounding mode does not matter. isless and its like do not trap on a NaN,
 * as < may under the caller's floating-point environment. */
static ek_status check_eps(double eps, ek_dtype dtype)
{
	const double first_infinite = 0x1.ffffffp127; /* FLT_MAX and half a unit in its last place */
	REQUIRE(isgreaterequal(eps, 0.0) && isless(eps, (double)INFINITY), EK_ERROR_ARGUMENT,
		"eps (%g) must be finite and not negative", isnan(eps) ? (double)NAN : eps); /* no -nan */
	REQUIRE(dtype == EK_F64 || isless(eps, first_infinite), EK_ERROR_ARGUMENT,
		"eps (%g) is infinite in binary32, in which %s is computed: it must be at most %g", eps,
		ek_dtype_name(dtype), (double)FLT_MAX);
	return EK_OK;
}

/* Fills in the stride, and sees to it that no offset into the matrix overflows. */
static ek_status check_stride(const char *name, int64_t *stride, int64_t rows, int64_t cols, ek_dtype dtype)
{
	if (*stride == 0)
		*stride = cols;
	REQUIRE(*stride >= 0, EK_ERROR_ARGUMENT, "%s (%" PRId64 ") must not be negative", name, *stride);
	REQUIRE(*stride >= cols, EK_ERROR_ARGUMENT, "%s (%" PRId64 ") is smaller than cols (%" PRId64 ")",
		name, *stride, cols);
	int64_t bytes;
	bool overflows = __builtin_mul_overflow(*stride, (int64_t)dtype_bytes[dtype], &bytes) ||
			 __builtin_mul_overflow(bytes, rows, &bytes);
	REQUIRE(!overflows, EK_ERROR_ARGUMENT,
		"%s (%" PRId64 ") times rows (%" PRId64 ") of %s is more than memory can hold (%" PRId64
		" bytes)",
		name, *stride, rows, ek_dtype_name(dtype), (int64_t)PTRDIFF_MAX);
	return EK_OK;
}

/* ---- buffers ---- */

struct buffer {
	const char *name;
	uintptr_t begin, end; /* bytes begin … end-1 */
	size_t stride, row;   /* of a matrix, in bytes; 0 of a vector */
};

/* The buffers of a call that are there and not empty, the outputs before the inputs. */
struct buffers {
	int count;
	int outputs;
	struct buffer at[10];
};

static inline void add_bytes(struct buffers *buffers, const char *name, const void *start, size_t bytes)
{
	if (!start || bytes == 0)
		return;
	buffers->at[buffers->count++] =
		(struct buffer){.name = name, .begin = (uintptr_t)start, .end = (uintptr_t)start + bytes};
}

static inline void add_vector(struct buffers *buffers, const char *name, const void *start, int64_t count,
			      ek_dtype dtype)
{
	add_bytes(buffers, name, start, (size_t)count * dtype_bytes[dtype]);
}

static inline void add_matrix(struct buffers *buffers, const char *name, const void *start, int64_t rows,
			      int64_t cols, int64_t stride, ek_dtype dtype)
{
	if (!start || rows == 0)
		return;
	size_t row = (size_t)cols * dtype_bytes[dtype];
	size_t stride_bytes = (size_t)stride * dtype_bytes[dtype];
	buffers->at[buffers->count++] =
		(struct buffer){.name = name,
				.begin = (uintptr_t)start,
				.end = (uintptr_t)start + (size_t)(rows - 1) * stride_bytes + row,
				.stride = stride_bytes,
				.row = row};
}

static bool apart(const struct buffer *a, const struct buffer *b)
{
	return a->end <= b->begin || b->end <= a->begin;
}

/* Of two matrices of the same stride, whether no row of one touches a row of the other: two column
 * ranges of one wider matrix. */
static bool rows_interleave(const struct buffer *a, const struct buffer *b)
{
	if (a->stride == 0 || a->stride != b->stride)
		return false;
	const struct buffer *low = a->begin <= b->begin ? a : b;
	const struct buffer *high = low == a ? b : a;
	size_t offset = (high->begin - low->begin) % low->stride;
	return offset >= low->row && offset + high->row <= low->stride;
}

/* All matrices of an op have one dtype and width, so an output may be an input matrix itself. */
static bool in_place(const struct buffer *output, const struct buffer *input)
{
	return output->stride != 0 && output->stride == input->stride && output->begin == input->begin;
}

__attribute__((cold, noinline)) static ek_status fail_overlap(const struct buffer *a, const struct buffer *b,
							      bool may_be_in_place)
{
	return ek_fail(EK_ERROR_OVERLAP,
		       "%s [0x%" PRIxPTR ", 0x%" PRIxPTR ") overlaps %s [0x%" PRIxPTR ", 0x%" PRIxPTR ")%s",
		       a->name, a->begin, a->end, b->name, b->begin, b->end,
		       may_be_in_place ? ": in place means the same address and the same stride" : "");
}

/* Each output against all that follows it, outputs and inputs; inputs may share memory. */
static ek_status check_buffers(const struct buffers *buffers)
{
	const struct buffer *at = buffers->at;
	for (int i = 0; i < buffers->count; i++)
		REQUIRE(at[i].begin < at[i].end, EK_ERROR_ARGUMENT,
			"%s (0x%" PRIxPTR ") with its %zu bytes reaches past the end of the address space",
			at[i].name, at[i].begin, (size_t)(at[i].end - at[i].begin));
	for (int i = 0; i < buffers->outputs; i++) {
		for (int j = i + 1; j < buffers->count; j++) {
			if (__builtin_expect(apart(&at[i], &at[j]), 1) || rows_interleave(&at[i], &at[j]))
				continue;
			bool is_input = j >= buffers->outputs;
			if (is_input && in_place(&at[i], &at[j]))
				continue;
			return fail_overlap(&at[i], &at[j],
					    is_input && at[i].stride != 0 && at[j].stride != 0);
		}
	}
	return EK_OK;
}

/* ---- what forward and backward share ---- */

static ek_dtype stats_dtype(ek_dtype dtype)
{
	return dtype == EK_F64 ? EK_F64 : EK_F32;
}

static ek_status check_stats(ek_norm norm, const void *mean, const void *mean_lo)
{
	REQUIRE(norm != EK_RMS_NORM || !mean, EK_ERROR_ARGUMENT,
		"mean (%p) must be NULL: EK_RMS_NORM has rstd alone", mean);
	REQUIRE(norm != EK_RMS_NORM || !mean_lo, EK_ERROR_ARGUMENT,
		"mean_lo (%p) must be NULL: EK_RMS_NORM has rstd alone", mean_lo);
	return EK_OK;
}

static ek_status check_stream(const ek_context *ctx, const void *stream)
{
	REQUIRE(ctx->device != EK_CPU || !stream, EK_ERROR_ARGUMENT, "stream (%p) must be NULL on the CPU",
		stream);
	return EK_OK;
}

/* ---- forward ---- */

static ek_status check_forward_buffers(const ek_norm_forward_args *a)
{
	REQUIRE(a->x || a->rows == 0, EK_ERROR_ARGUMENT, "x is NULL, with rows (%" PRId64 ")", a->rows);
	REQUIRE(a->y || a->rows == 0, EK_ERROR_ARGUMENT, "y is NULL, with rows (%" PRId64 ")", a->rows);
	PASS_ON(check_stats(a->norm, a->mean, a->mean_lo));

	struct buffers buffers;
	buffers.count = 0;
	add_matrix(&buffers, "y", a->y, a->rows, a->cols, a->y_stride, a->dtype);
	add_vector(&buffers, "mean", a->mean, a->rows, stats_dtype(a->dtype));
	add_vector(&buffers, "rstd", a->rstd, a->rows, stats_dtype(a->dtype));
	add_vector(&buffers, "mean_lo", a->mean_lo, a->rows, stats_dtype(a->dtype));
	buffers.outputs = buffers.count;
	add_matrix(&buffers, "x", a->x, a->rows, a->cols, a->x_stride, a->dtype);
	add_vector(&buffers, "weight", a->weight, a->cols, a->weight_dtype);
	add_vector(&buffers, "bias", a->bias, a->cols, a->weight_dtype);
	return check_buffers(&buffers);
}

ek_status ek_check_norm_forward(const ek_context *ctx, const ek_norm_forward_args *args,
				ek_norm_forward_args *resolved)
{
	REQUIRE(ctx, EK_ERROR_ARGUMENT, "ctx is NULL: make one with ek_open");
	REQUIRE(args, EK_ERROR_ARGUMENT, "args is NULL: give the address of an ek_norm_forward_args");
	REQUIRE_SIZE(args->size, ek_norm_forward_args);
	ek_norm_forward_args *a = resolved;
	*a = *args;
	PASS_ON(check_shape(a->norm, a->rows, a->cols));
	PASS_ON(ek_check_dtypes(a->dtype, &a->weight_dtype));
	PASS_ON(check_eps(a->eps, a->dtype));
	PASS_ON(check_stride("x_stride", &a->x_stride, a->rows, a->cols, a->dtype));
	PASS_ON(check_stride("y_stride", &a->y_stride, a->rows, a->cols, a->dtype));
	PASS_ON(check_stream(ctx, a->stream));
	return check_forward_buffers(a);
}

/* ---- backward ---- */

ek_status ek_check_norm_backward_sizes(const ek_context *ctx, const ek_norm_backward_args *args,
				       ek_norm_backward_args *resolved)
{
	REQUIRE(ctx, EK_ERROR_ARGUMENT, "ctx is NULL: make one with ek_open");
	REQUIRE(args, EK_ERROR_ARGUMENT, "args is NULL: give the address of an ek_norm_backward_args");
	REQUIRE_SIZE(args->size, ek_norm_backward_args);
	ek_norm_backward_args *a = resolved;
	*a = *args;
	PASS_ON(check_shape(a->norm, a->rows, a->cols));
	PASS_ON(ek_check_dtypes(a->dtype, &a->weight_dtype));
	PASS_ON(check_eps(a->eps, a->dtype));
	PASS_ON(check_stride("dy_stride", &a->dy_stride, a->rows, a->cols, a->dtype));
	PASS_ON(check_stride("x_stride", &a->x_stride, a->rows, a->cols, a->dtype));
	PASS_ON(check_stride("dx_stride", &a->dx_stride, a->rows, a->cols, a->dtype));
	REQUIRE(a->accumulate == 0 || a->accumulate == 1, EK_ERROR_ARGUMENT, "accumulate (%d) must be 0 or 1",
		a->accumulate);
	return EK_OK;
}

static ek_status check_backward_operands(const ek_norm_backward_args *a)
{
	REQUIRE(a->dy || a->rows == 0, EK_ERROR_ARGUMENT, "dy is NULL, with rows (%" PRId64 ")", a->rows);
	REQUIRE(a->x || a->rows == 0, EK_ERROR_ARGUMENT, "x is NULL, with rows (%" PRId64 ")", a->rows);
	REQUIRE(a->dx || a->dweight || a->dbias, EK_ERROR_ARGUMENT,
		"dx, dweight and dbias are all NULL: at least one is needed");
	PASS_ON(check_stats(a->norm, a->mean, a->mean_lo));
	REQUIRE(!a->mean || a->rstd, EK_ERROR_ARGUMENT,
		"mean (%p) is given but rstd is NULL: give both or neither", a->mean);
	REQUIRE(a->norm == EK_RMS_NORM || !a->rstd || a->mean, EK_ERROR_ARGUMENT,
		"rstd (%p) is given but mean is NULL: give both or neither", a->rstd);
	REQUIRE(!a->mean_lo || a->mean, EK_ERROR_ARGUMENT,
		"mean_lo (%p) is given but mean is NULL: give mean, too, or leave it out", a->mean_lo);
	return EK_OK;
}

static ek_status check_workspace(const void *workspace, size_t size, size_t needed)
{
	if (needed == 0)
		return EK_OK;
	REQUIRE(workspace, EK_ERROR_WORKSPACE,
		"workspace is NULL: ek_norm_backward_workspace asks for %zu bytes", needed);
	REQUIRE(size >= needed, EK_ERROR_WORKSPACE,
		"workspace_size (%zu) is smaller than what ek_norm_backward_workspace asks for (%zu)", size,
		needed);
	REQUIRE((uintptr_t)workspace % 64 == 0, EK_ERROR_WORKSPACE,
		"workspace (%p) is %d bytes past a multiple of 64: it must be 64-byte aligned", workspace,
		(int)((uintptr_t)workspace % 64));
	return EK_OK;
}

ek_status ek_check_norm_backward_buffers(const ek_context *ctx, const ek_norm_backward_args *resolved,
					 size_t workspace_bytes)
{
	const ek_norm_backward_args *a = resolved;
	PASS_ON(check_stream(ctx, a->stream));
	PASS_ON(check_backward_operands(a));
	PASS_ON(check_workspace(a->workspace, a->workspace_size, workspace_bytes));

	struct buffers buffers;
	buffers.count = 0;
	add_matrix(&buffers, "dx", a->dx, a->rows, a->cols, a->dx_stride, a->dtype);
	add_vector(&buffers, "dweight", a->dweight, a->cols, a->weight_dtype);
	add_vector(&buffers, "dbias", a->dbias, a->cols, a->weight_dtype);
	add_bytes(&buffers, "workspace", a->workspace, workspace_bytes > 0 ? a->workspace_size : 0);
	buffers.outputs = buffers.count;
	add_matrix(&buffers, "dy", a->dy, a->rows, a->cols, a->dy_stride, a->dtype);
	add_matrix(&buffers, "x", a->x, a->rows, a->cols, a->x_stride, a->dtype);
	add_vector(&buffers, "weight", a->weight, a->cols, a->weight_dtype);
	add_vector(&buffers, "mean", a->mean, a->rows, stats_dtype(a->dtype));
	add_vector(&buffers, "rstd", a->rstd, a->rows, stats_dtype(a->dtype));
	add_vector(&buffers, "mean_lo", a->mean_lo, a->rows, stats_dtype(a->dtype));
	return check_buffers(&buffers);
}

/* ---- context ---- */

/* Sizes in version 0.1. A field added since starts at or after them: 0.1's callers left its padding uninitialised. */
enum { OPTIONS_SIZE_0_1 = 80, DESCRIPTION_SIZE_0_1 = 136 };
_Static_assert(offsetof(ek_options, start_threads) >= OPTIONS_SIZE_0_1, "start_threads is in 0.1's padding");
_Static_assert(offsetof(ek_description, workers) >= DESCRIPTION_SIZE_0_1, "workers is in 0.1's padding");

ek_status ek_check_options(const ek_options *options, ek_options *resolved)
{
	const ek_options *o = resolved;
	*resolved = (ek_options){.size = sizeof *resolved};
	if (!options)
		return EK_OK;
	REQUIRE_SIZE_SINCE(options->size, ek_options, OPTIONS_SIZE_0_1);
	memcpy(resolved, options, options->size); /* the fields of later versions stay zero */
	REQUIRE(o->device == EK_CPU || o->device == EK_CUDA, EK_ERROR_ARGUMENT,
		"device (%d) is neither EK_CPU (%d) nor EK_CUDA (%d)", (int)o->device, (int)EK_CPU,
		(int)EK_CUDA);
	REQUIRE(o->ordinal >= 0, EK_ERROR_ARGUMENT, "ordinal (%d) must not be negative", o->ordinal);
	REQUIRE(o->nvtx == 0 || o->nvtx == 1, EK_ERROR_ARGUMENT, "nvtx (%d) must be 0 or 1", o->nvtx);
	REQUIRE(o->start_threads == 0 || o->start_threads == 1, EK_ERROR_ARGUMENT,
		"start_threads (%d) must be 0 or 1", o->start_threads);
	REQUIRE(o->ordinal == 0 || o->device == EK_CUDA, EK_ERROR_ARGUMENT,
		"ordinal (%d) must be 0 on the CPU", o->ordinal);
	REQUIRE(o->threads >= 0 && o->threads <= EK_MAX_THREADS, EK_ERROR_ARGUMENT,
		"threads (%d) is not in 0 to %d", o->threads, EK_MAX_THREADS);
	REQUIRE(o->stream_bytes >= -1, EK_ERROR_ARGUMENT, "stream_bytes (%" PRId64 ") must be at least -1",
		o->stream_bytes);
	return EK_OK;
}

ek_status ek_check_describe(const ek_context *ctx, const ek_description *description)
{
	REQUIRE(ctx, EK_ERROR_ARGUMENT, "ctx is NULL: make one with ek_open");
	REQUIRE(description, EK_ERROR_ARGUMENT, "description is NULL: give the address of an ek_description");
	REQUIRE_SIZE_SINCE(description->size, ek_description, DESCRIPTION_SIZE_0_1);
	return EK_OK;
}
