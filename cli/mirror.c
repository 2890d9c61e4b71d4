/* Norm calls on host memory, wherever the context computes: ranges of host memory and their doubles on the
 * GPU. SPDX-License-Identifier: MIT */
#include "mirror.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "status.h"

enum { MOST_RANGES = 12, ALIGNMENT = 64, CHUNK = 1 << 24 };

struct range {
	unsigned char *start, *end;
	unsigned char *block; /* on the GPU */
	unsigned char *twin;  /* of start, in block */
};

struct mirror {
	struct ek_gpu *gpu;
	size_t margin;
	struct range ranges[MOST_RANGES];
	int count;
};

/* Takes `bytes` from data on into the mirror; ranges that overlap become one. */
static void cover(struct mirror *mirror, const void *data, size_t bytes)
{
	if (!data)
		return;
	unsigned char *first = (unsigned char *)(uintptr_t)data;
	struct range added = {.start = first - mirror->margin, .end = first + bytes + mirror->margin};
	for (int i = 0; i < mirror->count;) {
		const struct range *other = &mirror->ranges[i];
		if (other->end <= added.start || added.end <= other->start) {
			i++;
			continue;
		}
		added.start = other->start < added.start ? other->start : added.start;
		added.end = other->end > added.end ? other->end : added.end;
		mirror->ranges[i] = mirror->ranges[--mirror->count];
		i = 0; /* the larger range may reach one that was passed over */
	}
	mirror->ranges[mirror->count++] = added;
}

static void *twin_of(const struct mirror *mirror, const void *data)
{
	const unsigned char *at = data;
	for (int i = 0; data && i < mirror->count; i++) {
		const struct range *range = &mirror->ranges[i];
		if (at == range->start || (at > range->start && at < range->end))
			return range->twin + (at - range->start);
	}
	return NULL;
}

static ek_status copy_there(struct mirror *mirror)
{
	ek_status status = EK_OK;
	for (int i = 0; i < mirror->count && status == EK_OK; i++) {
		struct range *range = &mirror->ranges[i];
		size_t bytes = (size_t)(range->end - range->start);
		range->block = memory_make(mirror->gpu, bytes + ALIGNMENT);
		if (!range->block)
			return EK_ERROR_MEMORY;
		range->twin = range->block + (uintptr_t)range->start % ALIGNMENT;
		status = memory_write(mirror->gpu, range->twin, range->start, bytes);
	}
	return status;
}

/* What is equal is left alone: inputs may be in memory that must not be written. */
static ek_status copy_range_back(const struct mirror *mirror, const struct range *range, unsigned char *chunk)
{
	size_t bytes = (size_t)(range->end - range->start);
	for (size_t at = 0; at < bytes; at += CHUNK) {
		size_t count = bytes - at < CHUNK ? bytes - at : CHUNK;
		ek_status status = memory_read(mirror->gpu, chunk, range->twin + at, count);
		if (status != EK_OK)
			return status;
		if (memcmp(range->start + at, chunk, count) != 0)
			memcpy(range->start + at, chunk, count);
	}
	return EK_OK;
}

static ek_status copy_back(const struct mirror *mirror)
{
	unsigned char *chunk = malloc(CHUNK);
	ek_status status = EK_OK;
	if (!chunk)
		return ek_fail(EK_ERROR_MEMORY, "out of memory for %d bytes", CHUNK);
	for (int i = 0; i < mirror->count && status == EK_OK; i++)
		status = copy_range_back(mirror, &mirror->ranges[i], chunk);
	free(chunk);
	return status;
}

static void release(struct mirror *mirror)
{
	for (int i = 0; i < mirror->count; i++)
		memory_free(mirror->gpu, mirror->ranges[i].block);
}

static size_t matrix_bytes(int64_t rows, int64_t cols, int64_t stride, ek_dtype dtype)
{
	if (rows <= 0)
		return 0;
	return (size_t)((rows - 1) * (stride ? stride : cols) + cols) * ek_dtype_size(dtype);
}

static size_t statistic_bytes(int64_t rows, ek_dtype dtype)
{
	return (size_t)rows * (dtype == EK_F64 ? 8 : 4);
}

/* A pointer of the arguments, and what it points to. */
struct operand {
	void *field; /* of type void * or const void * */
	size_t bytes;
};

static void *pointer_of(const struct operand *operand)
{
	void *pointer;
	memcpy(&pointer, operand->field, sizeof pointer);
	return pointer;
}

/* Doubles the operands, up to the one without a field, and has the fields point to their doubles. */
static ek_status move_there(struct mirror *mirror, const struct operand *operands)
{
	for (const struct operand *operand = operands; operand->field; operand++)
		cover(mirror, pointer_of(operand), operand->bytes);
	ek_status status = copy_there(mirror);
	for (const struct operand *operand = operands; operand->field && status == EK_OK; operand++) {
		void *twin = twin_of(mirror, pointer_of(operand));
		memcpy(operand->field, &twin, sizeof twin);
	}
	return status;
}

ek_status mirror_forward(ek_context *ctx, const ek_norm_forward_args *args, size_t margin)
{
	struct mirror mirror = {.gpu = gpu_of(ctx), .margin = margin};
	if (!mirror.gpu)
		return ek_norm_forward(ctx, args);
	ek_norm_forward_args a = *args;
	size_t vector = (size_t)a.cols * ek_dtype_size(a.weight_dtype ? a.weight_dtype : a.dtype);
	size_t statistic = statistic_bytes(a.rows, a.dtype);
	const struct operand operands[] = {{&a.x, matrix_bytes(a.rows, a.cols, a.x_stride, a.dtype)},
					   {&a.y, matrix_bytes(a.rows, a.cols, a.y_stride, a.dtype)},
					   {&a.weight, vector},
					   {&a.bias, vector},
					   {&a.mean, statistic},
					   {&a.rstd, statistic},
					   {&a.mean_lo, statistic},
					   {NULL, 0}};
	ek_status status = move_there(&mirror, operands);
	if (status == EK_OK)
		status = ek_norm_forward(ctx, &a);
	if (status == EK_OK)
		status = copy_back(&mirror);
	release(&mirror);
	return status;
}

ek_status mirror_backward(ek_context *ctx, const ek_norm_backward_args *args, size_t margin)
{
	struct mirror mirror = {.gpu = gpu_of(ctx), .margin = margin};
	if (!mirror.gpu)
		return ek_norm_backward(ctx, args);
	ek_norm_backward_args a = *args;
	size_t vector = (size_t)a.cols * ek_dtype_size(a.weight_dtype ? a.weight_dtype : a.dtype);
	size_t statistic = statistic_bytes(a.rows, a.dtype);
	const struct operand operands[] = {{&a.dy, matrix_bytes(a.rows, a.cols, a.dy_stride, a.dtype)},
					   {&a.x, matrix_bytes(a.rows, a.cols, a.x_stride, a.dtype)},
					   {&a.dx, matrix_bytes(a.rows, a.cols, a.dx_stride, a.dtype)},
					   {&a.weight, vector},
					   {&a.dweight, vector},
					   {&a.dbias, vector},
					   {&a.mean, statistic},
					   {&a.rstd, statistic},
					   {&a.mean_lo, statistic},
					   {&a.workspace, a.workspace_size},
					   {NULL, 0}};
	ek_status status = move_there(&mirror, operands);
	if (status == EK_OK)
		status = ek_norm_backward(ctx, &a);
	if (status == EK_OK)
		status = copy_back(&mirror);
	release(&mirror);
	return status;
}
