/* Overlapping memory, and what is said of arguments that check_op.h refuses. SPDX-License-Identifier: MIT */
#include "check.h"

#include <inttypes.h>
#include <stdio.h>

#include "check_op.h"
#include "require.h"

/* ---- overlap ---- */

static bool are_apart(const struct ek_region *a, const struct ek_region *b)
{
	return a->end <= b->begin || b->end <= a->begin;
}

static size_t stride_bytes(const struct ek_regions *regions, const struct ek_operand *operand, int dim)
{
	return (size_t)ek_operand_stride(regions->op, operand, dim, regions->args) *
	       ek_operand_element(regions->op, operand, regions->args);
}

/* Of an operand with strides that is seen as blocks at multiples of `period` from its start: the bytes of a block. 0 where one
 * of its strides crosses the blocks. */
static size_t block_bytes(const struct ek_regions *regions, const struct ek_region *region, size_t period)
{
	size_t bytes = region->row;
	for (int dim = 0; dim < region->operand->rank - 1; dim++) {
		size_t stride = stride_bytes(regions, region->operand, dim);
		int64_t count = ek_dim_count(regions->op, &region->operand->dims[dim], regions->args);
		if (stride < period)
			bytes += (size_t)(count - 1) * stride;
		else if (count > 1 && stride % period != 0)
			return 0;
	}
	return bytes;
}

static bool has_stride(const struct ek_regions *regions, const struct ek_operand *operand, size_t stride)
{
	bool has = false;
	for (int dim = 0; !has && dim < operand->rank - 1; dim++)
		has = stride_bytes(regions, operand, dim) == stride;
	return has;
}

/* Whether no block of one touches a block of the other, at a distance that both have: two column ranges of one wider matrix,
 * the heads of q and of k in one packed tensor. */
static bool rows_interleave(const struct ek_regions *regions, const struct ek_region *a,
			    const struct ek_region *b)
{
	const struct ek_region *low = a->begin <= b->begin ? a : b;
	const struct ek_region *high = low == a ? b : a;
	for (int dim = 0; a->row && b->row && dim < a->operand->rank - 1; dim++) {
		size_t period = stride_bytes(regions, a->operand, dim);
		if (!has_stride(regions, b->operand, period))
			continue;
		size_t offset = (high->begin - low->begin) % period;
		size_t low_bytes = block_bytes(regions, low, period),
		       high_bytes = block_bytes(regions, high, period);
		if (low_bytes && high_bytes && offset >= low_bytes && offset + high_bytes <= period)
			return true;
	}
	return false;
}

const struct ek_operand ek_workspace_operand = {.name = "workspace", .flags = EK_OUTPUT | EK_OPTIONAL};

static bool may_be_in_place(const struct ek_regions *regions, const struct ek_region *output,
			    const struct ek_region *input)
{
	return output->operand->in_place >> (input->operand - regions->op->operands) & 1;
}

/* Element for element: the same start, length of rows and strides, that of neighbours too. */
static bool is_in_place(const struct ek_regions *regions, const struct ek_region *output,
			const struct ek_region *input)
{
	const struct ek_operand *a = output->operand, *b = input->operand;
	bool same = output->begin == input->begin && output->row == input->row && a->rank == b->rank;
	for (int dim = 0; same && dim < a->rank; dim++)
		same = stride_bytes(regions, a, dim) == stride_bytes(regions, b, dim);
	return same;
}

EK_COLD static ek_status fail_overlap(const struct ek_region *a, const struct ek_region *b, bool in_place)
{
	return ek_fail(EK_ERROR_OVERLAP,
		       "%s [0x%" PRIxPTR ", 0x%" PRIxPTR ") overlaps %s [0x%" PRIxPTR ", 0x%" PRIxPTR ")%s",
		       a->operand->name, a->begin, a->end, b->operand->name, b->begin, b->end,
		       in_place ? ": in place means the same address, stride and dtype" : "");
}

/* Each output against all that follows it, outputs and inputs; inputs may share memory. */
ek_status ek_check_regions(const struct ek_regions *regions)
{
	const struct ek_region *at = regions->at;
	for (int i = 0; i < regions->count; i++)
		REQUIRE(at[i].begin < at[i].end, EK_ERROR_ARGUMENT,
			"%s (0x%" PRIxPTR ") with its %zu bytes reaches past the end of the address space",
			at[i].operand->name, at[i].begin, (size_t)(at[i].end - at[i].begin));
	for (int i = 0; i < regions->outputs; i++) {
		for (int j = i + 1; j < regions->count; j++) {
			if (__builtin_expect(are_apart(&at[i], &at[j]), 1) ||
			    rows_interleave(regions, &at[i], &at[j]))
				continue;
			bool in_place = j >= regions->outputs && may_be_in_place(regions, &at[i], &at[j]);
			if (in_place && is_in_place(regions, &at[i], &at[j]))
				continue;
			return fail_overlap(&at[i], &at[j], in_place);
		}
	}
	return EK_OK;
}

/* ---- messages ---- */

ek_status ek_fail_null(const struct ek_op *op, const ek_context *ctx)
{
	if (!ctx)
		return ek_fail(EK_ERROR_ARGUMENT, "ctx is NULL: make one with ek_open");
	return ek_fail(EK_ERROR_ARGUMENT, "args is NULL: give the address of an %s_args", op->function);
}

ek_status ek_fail_args_size(const struct ek_op *op, size_t size)
{
	return ek_fail_struct_size(op->function, "_args", size, op->args_size);
}

ek_status ek_fail_size(const struct ek_size *size, int64_t value)
{
	if (size->most_name)
		return ek_fail(EK_ERROR_ARGUMENT,
			       "%s (%" PRId64 ") is not in %" PRId64 " to %s (%" PRId64 ")", size->name,
			       value, size->least, size->most_name, size->most);
	if (value < size->least)
		return ek_fail(EK_ERROR_ARGUMENT, "%s (%" PRId64 ") must not be negative", size->name, value);
	return ek_fail(EK_ERROR_ARGUMENT, "%s (%" PRId64 ") is more than memory can hold (%" PRId64 ")",
		       size->name, value, size->most);
}

ek_status ek_fail_cut(const struct ek_op *op, int size, const void *args)
{
	const struct ek_size *of = &op->sizes[op->sizes[size].cuts - 1];
	return ek_fail(EK_ERROR_ARGUMENT,
		       "%s (%" PRId64 ") does not divide %s (%" PRId64 "); expected a divisor of it, or 0",
		       op->sizes[size].name, ek_size_of(op, size, args), of->name,
		       *(const int64_t *)ek_field(args, of->offset));
}

/* y of f32 x may also have 16 bits, which its op has allowed. */
ek_status ek_fail_follower(const char *name, ek_dtype *dtype, const char *of_name, ek_dtype of)
{
	const bool narrows = of == EK_F32 && strcmp(name, "y_dtype") == 0;
	PASS_ON(ek_check_dtype(name, dtype, 0));
	return ek_fail(EK_ERROR_DTYPE, "%s %s does not go with %s %s (allowed: %s%s)", name,
		       ek_dtype_name(*dtype), of_name, ek_dtype_name(of), ek_dtype_name(of),
		       narrows                        ? ", f16, bf16"
		       : of != EK_F32 && of != EK_F64 ? ", f32"
						      : "");
}

ek_status ek_fail_stride(const struct ek_op *op, const struct ek_operand *operand, int dim, const void *args)
{
	const struct ek_dim *d = &operand->dims[dim];
	const struct ek_dim *inner = &operand->dims[operand->rank - 1];
	int64_t stride = *(const int64_t *)ek_field(args, d->stride);
	int64_t most = ek_dim_of(op, inner, args);
	if (stride < 0)
		return ek_fail(EK_ERROR_ARGUMENT, "%s (%" PRId64 ") must not be negative", d->stride_name,
			       stride);
	if (stride < most)
		return ek_fail(EK_ERROR_ARGUMENT, "%s (%" PRId64 ") is smaller than %s%s%s (%" PRId64 ")",
			       d->stride_name, stride, ek_dim_each(op, inner, args) == 2 ? "2 " : "",
			       op->sizes[inner->size].name, inner->halves ? " / 2" : "", most);
	return ek_fail(EK_ERROR_ARGUMENT,
		       "%s (%" PRId64 ") times %s (%" PRId64 ") of %s is more than memory can hold (%" PRId64
		       " bytes)",
		       d->stride_name, stride, op->sizes[d->size].name, ek_size_of(op, d->size, args),
		       ek_dtype_name(ek_operand_dtype(op, operand, args)), (int64_t)PTRDIFF_MAX);
}

ek_status ek_fail_missing(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	int outer = operand->dims[0].size;
	return ek_fail(EK_ERROR_ARGUMENT, "%s is NULL, with %s (%" PRId64 ")", operand->name,
		       op->sizes[outer].name, ek_size_of(op, outer, args));
}

ek_status ek_fail_kind(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	return ek_fail(EK_ERROR_ARGUMENT, "%s (%p) must be NULL: %s has no %s", operand->name,
		       ek_operand_pointer(operand, args), op->kind_names[ek_kind_of(op, args)],
		       operand->name);
}

ek_status ek_fail_excluded(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	const struct ek_operand *other = op->operands;
	while (!(operand->excludes >> (other - op->operands) & 1) || !ek_operand_pointer(other, args))
		other++;
	return ek_fail(EK_ERROR_ARGUMENT, "%s (%p) does not go with %s (%p): one of them must be NULL",
		       operand->name, ek_operand_pointer(operand, args), other->name,
		       ek_operand_pointer(other, args));
}

ek_status ek_fail_without_choice(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	const char *choice = op->choices[operand->with_choice - 1].name;
	return ek_fail(EK_ERROR_ARGUMENT, "%s (%p) goes with %s %s alone, and %s is 0; expected NULL",
		       operand->name, ek_operand_pointer(operand, args),
		       strchr("aeiou", *choice) ? "an" : "a", choice, choice);
}

ek_status ek_fail_with_choice(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	const char *choice = op->choices[operand->without_choice - 1].name;
	return ek_fail(EK_ERROR_ARGUMENT, "%s (%p) does not go with %s (%d); expected NULL, or %s 0",
		       operand->name, ek_operand_pointer(operand, args), choice,
		       *(const int *)ek_field(args, op->choice[operand->without_choice - 1]), choice);
}

ek_status ek_fail_needs(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	const char *needed = op->operands[operand->needs.number - 1].name;
	return ek_fail(EK_ERROR_ARGUMENT, "%s (%p) is given but %s is NULL; %s needs %s", operand->name,
		       ek_operand_pointer(operand, args), needed, operand->name, needed);
}

ek_status ek_fail_no_output(const struct ek_op *op)
{
	char names[256] = "";
	for (int i = 0; i < op->output_count; i++) {
		size_t length = strlen(names);
		(void)snprintf(names + length, sizeof names - length, "%s%s",
			       i == 0                      ? ""
			       : i == op->output_count - 1 ? " and "
							   : ", ",
			       op->operands[i].name);
	}
	return ek_fail(EK_ERROR_ARGUMENT, "%s are all NULL: at least one is needed", names);
}

ek_status ek_fail_stream(const void *stream)
{
	return ek_fail(EK_ERROR_ARGUMENT, "stream (%p) must be NULL on the CPU", stream);
}

ek_status ek_fail_accumulate(int accumulate)
{
	return ek_fail(EK_ERROR_ARGUMENT, "accumulate (%d) must be 0 or 1", accumulate);
}

ek_status ek_fail_workspace(const struct ek_op *op, const void *workspace, size_t size, size_t needed)
{
	REQUIRE(workspace, EK_ERROR_WORKSPACE, "workspace is NULL: %s_workspace asks for %zu bytes",
		op->function, needed);
	REQUIRE(size >= needed, EK_ERROR_WORKSPACE,
		"workspace_size (%zu) is smaller than what %s_workspace asks for (%zu)", size, op->function,
		needed);
	return ek_fail(EK_ERROR_WORKSPACE,
		       "workspace (%p) is %d bytes past a multiple of 64: it must be 64-byte aligned",
		       workspace, (int)((uintptr_t)workspace % 64));
}
