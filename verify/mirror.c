/* Calls on host memory, wherever the context computes: ranges of host memory and their doubles on the GPU. SPDX-License-Identifier: MIT */
#include "mirror.h"

#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "memory.h"

/* All operands and the workspace. */
enum { MOST_RANGES = EK_MOST_OPERANDS + 1, ALIGNMENT = 64, CHUNK = 1 << 24 };

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
		size_t before = (uintptr_t)range->start % ALIGNMENT;
		/* no byte behind the range, so that what reads past it is seen */
		range->block = memory_make(mirror->gpu, before + bytes > 0 ? before + bytes : 1);
		if (!range->block)
			return EK_ERROR_MEMORY;
		range->twin = range->block + before;
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

/* Doubles what the arguments point to, and has them point to the doubles. */
static ek_status move_there(struct mirror *mirror, const struct ek_op *op, union op_args *args)
{
	void *workspace = NULL;
	size_t bytes = 0;
	for (int i = 0; i < op->operand_count; i++)
		cover(mirror, ek_operand_pointer(&op->operands[i], args),
		      ek_operand_bytes(op, &op->operands[i], args));
	if (op->workspace) {
		memcpy(&workspace, ek_field(args, op->workspace), sizeof workspace);
		memcpy(&bytes, ek_field(args, op->workspace_size), sizeof bytes);
		cover(mirror, workspace, bytes);
	}
	ek_status status = copy_there(mirror);
	for (int i = 0; i < op->operand_count && status == EK_OK; i++)
		ek_operand_set(&op->operands[i], args,
			       twin_of(mirror, ek_operand_pointer(&op->operands[i], args)));
	args_set_workspace(op, args, twin_of(mirror, workspace), bytes);
	return status;
}

ek_status mirror_call(ek_context *ctx, const struct ek_op *op, const void *args, size_t margin)
{
	struct mirror mirror = {.gpu = gpu_of(ctx), .margin = margin};
	union op_args there;
	if (!mirror.gpu)
		return op->call(ctx, args);
	memcpy(&there, args, op->args_size);
	ek_status status = move_there(&mirror, op, &there);
	if (status == EK_OK)
		status = op->call(ctx, &there);
	if (status == EK_OK)
		status = copy_back(&mirror);
	release(&mirror);
	return status;
}
