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

static void cover_forward(struct mirror *mirror, const ek_norm_forward_args *args)
{
	ek_dtype weight_dtype = args->weight_dtype ? args->weight_dtype : args->dtype;
	size_t vector = (size_t)args->cols * ek_dtype_size(weight_dtype);
	size_t statistic = statistic_bytes(args->rows, args->dtype);
	cover(mirror, args->x, matrix_bytes(args->rows, args->cols, args->x_stride, args->dtype));
	cover(mirror, args->y, matrix_bytes(args->rows, args->cols, args->y_stride, args->dtype));
	cover(mirror, args->weight, vector);
	cover(mirror, args->bias, vector);
	cover(mirror, args->mean, statistic);
	cover(mirror, args->rstd, statistic);
	cover(mirror, args->mean_lo, statistic);
}

ek_status mirror_forward(ek_context *ctx, const ek_norm_forward_args *args, size_t margin)
{
	struct mirror mirror = {.gpu = gpu_of(ctx), .margin = margin};
	if (!mirror.gpu)
		return ek_norm_forward(ctx, args);
	cover_forward(&mirror, args);
	ek_status status = copy_there(&mirror);
	if (status == EK_OK) {
		ek_norm_forward_args there = *args;
		there.x = twin_of(&mirror, args->x);
		there.y = twin_of(&mirror, args->y);
		there.weight = twin_of(&mirror, args->weight);
		there.bias = twin_of(&mirror, args->bias);
		there.mean = twin_of(&mirror, args->mean);
		there.rstd = twin_of(&mirror, args->rstd);
		there.mean_lo = twin_of(&mirror, args->mean_lo);
		status = ek_norm_forward(ctx, &there);
	}
	if (status == EK_OK)
		status = copy_back(&mirror);
	release(&mirror);
	return status;
}

static void cover_backward(struct mirror *mirror, const ek_norm_backward_args *args)
{
	ek_dtype weight_dtype = args->weight_dtype ? args->weight_dtype : args->dtype;
	size_t vector = (size_t)args->cols * ek_dtype_size(weight_dtype);
	size_t statistic = statistic_bytes(args->rows, args->dtype);
	cover(mirror, args->dy, matrix_bytes(args->rows, args->cols, args->dy_stride, args->dtype));
	cover(mirror, args->x, matrix_bytes(args->rows, args->cols, args->x_stride, args->dtype));
	cover(mirror, args->dx, matrix_bytes(args->rows, args->cols, args->dx_stride, args->dtype));
	cover(mirror, args->weight, vector);
	cover(mirror, args->dweight, vector);
	cover(mirror, args->dbias, vector);
	cover(mirror, args->mean, statistic);
	cover(mirror, args->rstd, statistic);
	cover(mirror, args->mean_lo, statistic);
	cover(mirror, args->workspace, args->workspace_size);
}

ek_status mirror_backward(ek_context *ctx, const ek_norm_backward_args *args, size_t margin)
{
	struct mirror mirror = {.gpu = gpu_of(ctx), .margin = margin};
	if (!mirror.gpu)
		return ek_norm_backward(ctx, args);
	cover_backward(&mirror, args);
	ek_status status = copy_there(&mirror);
	if (status == EK_OK) {
		ek_norm_backward_args there = *args;
		there.dy = twin_of(&mirror, args->dy);
		there.x = twin_of(&mirror, args->x);
		there.dx = twin_of(&mirror, args->dx);
		there.weight = twin_of(&mirror, args->weight);
		there.dweight = twin_of(&mirror, args->dweight);
		there.dbias = twin_of(&mirror, args->dbias);
		there.mean = twin_of(&mirror, args->mean);
		there.rstd = twin_of(&mirror, args->rstd);
		there.mean_lo = twin_of(&mirror, args->mean_lo);
		there.workspace = twin_of(&mirror, args->workspace);
		status = ek_norm_backward(ctx, &there);
	}
	if (status == EK_OK)
		status = copy_back(&mirror);
	release(&mirror);
	return status;
}
