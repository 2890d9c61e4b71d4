/* Validates the arguments of an op by its tables, for the ops' entry points. Every call passes through, 1x1 too: the
 * functions are inlined where the tables are constants, so nothing of them is left but the tests of each field; messages
 * are formatted in functions of their own (check.c). Nothing is written but *resolved. SPDX-License-Identifier: MIT */
#ifndef EK_CORE_CHECK_OP_H
#define EK_CORE_CHECK_OP_H

#include <float.h>
#include <math.h>

#include "check.h"
#include "dtype.h"
#include "operand.h"
#include "require.h"

#define EK_INLINE static inline __attribute__((always_inline))
#define EK_UNROLL _Pragma("GCC unroll 24")

/* Copies args, of any size since the first version, to *resolved; fields that it does not have are zero. */
EK_INLINE ek_status ek_check_struct(const struct ek_op *op, const ek_context *ctx, const void *args,
				    void *resolved)
{
	if (__builtin_expect(!ctx || !args, 0)) {
		(void)ek_fail_null(op, ctx);
		return EK_ERROR_ARGUMENT;
	}
	size_t size = *(const size_t *)args;
	if (__builtin_expect(size != op->args_size, 0)) {
		if (size < op->first_args_size || size > op->args_size) {
			(void)ek_fail_args_size(op, size);
			return EK_ERROR_STRUCT_SIZE;
		}
		memset(resolved, 0, op->args_size);
		memcpy(resolved, args, size);
		return EK_OK;
	}
	memcpy(resolved, args, op->args_size);
	return EK_OK;
}

/* A size that cuts another divides it; one that is equal to it becomes 0. */
EK_INLINE ek_status ek_check_cut(const struct ek_op *op, int size, void *args)
{
	int64_t *value = ek_field(args, op->sizes[size].offset);
	int64_t of = ek_size_of(op, op->sizes[size].cuts - 1, args);
	if (__builtin_expect(*value == 0, 1))
		return EK_OK;
	if (*value < 1 || of % *value != 0)
		return ek_fail_cut(op, size, args);
	if (*value == of)
		*value = 0;
	return EK_OK;
}

/* A dtype that follows another: 0 as *dtype becomes it; f32 goes with 16 bits. */
EK_INLINE ek_status ek_check_follower(const char *name, ek_dtype *dtype, const char *of_name, ek_dtype of)
{
	if ((int)*dtype == 0)
		*dtype = of;
	if (__builtin_expect(*dtype == of || (*dtype == EK_F32 && of != EK_F64), 1))
		return EK_OK;
	return ek_fail_follower(name, dtype, of_name, of);
}

EK_INLINE ek_status ek_check_sizes(const struct ek_op *op, void *args)
{
	EK_UNROLL for (int i = 0; i < op->size_count; i++)
	{
		int64_t value = ek_size_of(op, i, args);
		if (op->sizes[i].cuts) {
			ek_status status = ek_check_cut(op, i, args);
			if (__builtin_expect(status != EK_OK, 0))
				return status;
			continue;
		}
		if (__builtin_expect(value < op->sizes[i].least || value > op->sizes[i].most, 0))
			return ek_fail_size(&op->sizes[i], value);
	}
	return EK_OK;
}

/* Fills in a stride of 0 as `dense`, and sees to it that no offset into the operand overflows: *reach is the bytes that the
 * dimensions inside of this one span. */
EK_INLINE ek_status ek_check_stride(const struct ek_op *op, const struct ek_operand *operand, int dim,
				    int64_t dense, int64_t *reach, void *args)
{
	int64_t *stride = ek_field(args, operand->dims[dim].stride);
	int64_t inner = ek_dim_of(op, &operand->dims[operand->rank - 1], args);
	int64_t count = ek_dim_count(op, &operand->dims[dim], args), bytes;
	if (*stride == 0)
		*stride = dense;
	size_t element = ek_operand_element(op, operand, args);
	bool overflows = __builtin_mul_overflow(*stride, (int64_t)element, &bytes) ||
			 __builtin_mul_overflow(bytes, count, &bytes) ||
			 __builtin_add_overflow(*reach, bytes, reach);
	if (__builtin_expect(*stride < inner || overflows, 0))
		return ek_fail_stride(op, operand, dim, args);
	return EK_OK;
}

/* Of operands that are absent, too: their strides may be wrong all the same. Innermost first. */
EK_INLINE ek_status ek_check_strides(const struct ek_op *op, void *args)
{
	EK_UNROLL for (int i = 0; i < op->operand_count; i++)
	{
		const struct ek_operand *operand = &op->operands[i];
		int64_t dense = 1, reach = 0;
		EK_UNROLL for (int dim = EK_MOST_DIMS - 1; dim >= 0; dim--)
		{
			if (dim >= operand->rank)
				continue;
			if (operand->dims[dim].stride) {
				ek_status status = ek_check_stride(op, operand, dim, dense, &reach, args);
				if (__builtin_expect(status != EK_OK, 0))
					return status;
				dense = *(const int64_t *)ek_field(args, operand->dims[dim].stride);
			}
			int64_t size = ek_dim_of(op, &operand->dims[dim], args);
			dense *= size > 0 ? size : 1;
		}
	}
	return EK_OK;
}

EK_INLINE bool ek_is_empty(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	bool empty = false;
	EK_UNROLL for (int dim = 0; dim < EK_MOST_DIMS; dim++) if (dim < operand->rank) empty |=
		ek_dim_count(op, &operand->dims[dim], args) == 0;
	return empty;
}

/* Which operands there are: required ones, those of another kind, those that need another or a choice. */
EK_INLINE ek_status ek_check_presence(const struct ek_op *op, const void *args)
{
	int kind = ek_kind_of(op, args);
	uint32_t outputs = 0, required_outputs = 0, present = 0;
	EK_UNROLL for (int i = 0; i < op->operand_count; i++)
	{
		const struct ek_operand *operand = &op->operands[i];
		bool given = ek_operand_pointer(operand, args) != NULL;
		bool needed = !(operand->flags & EK_OPTIONAL);
		if (i < op->output_count) {
			outputs |= given;
			required_outputs |= needed;
		}
		if (needed && __builtin_expect(!given, 0) && !ek_is_empty(op, operand, args))
			return ek_fail_missing(op, operand, args);
		if (operand->instead && !given &&
		    __builtin_expect(!ek_operand_pointer(&op->operands[operand->instead - 1], args), 0) &&
		    !ek_is_empty(op, operand, args))
			return ek_fail_missing(op, operand, args);
		if (operand->kinds && given && __builtin_expect(!ek_operand_has_kind(operand, kind), 0))
			return ek_fail_kind(op, operand, args);
		if (operand->needs.number && given &&
		    (!operand->needs.kinds || operand->needs.kinds >> kind & 1) &&
		    (!operand->needs.choice || ek_choice_of(op, operand->needs.choice, args)) &&
		    __builtin_expect(!ek_operand_pointer(&op->operands[operand->needs.number - 1], args),
				     0) &&
		    !ek_is_empty(op, &op->operands[operand->needs.number - 1], args))
			return ek_fail_needs(op, operand, args);
		if (operand->with_choice && given &&
		    __builtin_expect(!ek_choice_of(op, operand->with_choice, args), 0))
			return ek_fail_without_choice(op, operand, args);
		if (operand->without_choice && given &&
		    __builtin_expect(ek_choice_of(op, operand->without_choice, args), 0))
			return ek_fail_with_choice(op, operand, args);
		present |= (uint32_t)given << i;
		if (operand->excludes && given && __builtin_expect((operand->excludes & present) != 0, 0))
			return ek_fail_excluded(op, operand, args);
	}
	if (!required_outputs && __builtin_expect(!outputs, 0))
		return ek_fail_no_output(op);
	return EK_OK;
}

/* ---- memory ---- */

/* Bytes begin … end-1 of an operand or of the workspace, and of one with strides the bytes that are contiguous. */
struct ek_region {
	const struct ek_operand *operand;
	uintptr_t begin, end;
	size_t row; /* 0: no strides */
};

/* The regions of a call that are there and not empty, the outputs before the inputs. */
struct ek_regions {
	const struct ek_op *op;
	const void *args;
	int count, outputs;
	struct ek_region at[EK_MOST_OPERANDS + 1];
};

EK_INLINE void ek_add_operand(const struct ek_op *op, int number, const void *args,
			      struct ek_regions *regions)
{
	const struct ek_operand *operand = &op->operands[number];
	uintptr_t begin = (uintptr_t)ek_operand_pointer(operand, args);
	size_t element = ek_operand_element(op, operand, args), row = element, last = 0;
	bool has_strides = false;
	if (!begin || ek_is_empty(op, operand, args))
		return;
	EK_UNROLL for (int dim = 0; dim < EK_MOST_DIMS; dim++)
	{
		if (dim >= operand->rank)
			continue;
		if (!operand->dims[dim].stride) {
			row *= (size_t)ek_dim_of(op, &operand->dims[dim], args);
			continue;
		}
		has_strides = true;
		last += (size_t)(ek_dim_count(op, &operand->dims[dim], args) - 1) *
			*(const size_t *)ek_field(args, operand->dims[dim].stride) * element;
	}
	regions->at[regions->count++] = (struct ek_region){
		.operand = operand, .begin = begin, .end = begin + last + row, .row = has_strides ? row : 0};
}

/* No output may overlap anything else, except in place and where rows of matrices interleave. workspace_bytes: what the
 * call needs of it. */
EK_INLINE ek_status ek_check_memory(const struct ek_op *op, const void *args, size_t workspace_bytes)
{
	struct ek_regions regions;
	regions.op = op;
	regions.args = args;
	regions.count = 0;
	EK_UNROLL for (int i = 0; i < op->output_count; i++) ek_add_operand(op, i, args, &regions);
	if (op->workspace && workspace_bytes > 0) {
		uintptr_t begin = (uintptr_t)ek_pointer_field(args, op->workspace);
		regions.at[regions.count++] = (struct ek_region){
			.operand = &ek_workspace_operand,
			.begin = begin,
			.end = begin + *(const size_t *)ek_field(args, op->workspace_size)};
	}
	regions.outputs = regions.count;
	EK_UNROLL for (int i = op->output_count; i < op->operand_count; i++)
		ek_add_operand(op, i, args, &regions);
	return ek_check_regions(&regions);
}

EK_INLINE ek_status ek_check_stream(const struct ek_op *op, const ek_context *ctx, const void *args)
{
	const void *stream = ek_pointer_field(args, op->stream);
	return __builtin_expect(ctx->device == EK_CPU && stream, 0) ? ek_fail_stream(stream) : EK_OK;
}

/* Only comparisons, so that the caller's rounding mode does not matter. isless and its like do not trap on a NaN,
 * as < may under the caller's floating-point environment. */
EK_INLINE ek_status ek_check_eps(double eps, ek_dtype dtype)
{
	const double first_infinite = 0x1.ffffffp127; /* FLT_MAX and half a unit in its last place */
	REQUIRE(isgreaterequal(eps, 0.0) && isless(eps, (double)INFINITY), EK_ERROR_ARGUMENT,
		"eps (%g) must be finite and not negative", isnan(eps) ? (double)NAN : eps); /* no -nan */
	REQUIRE(dtype == EK_F64 || isless(eps, first_infinite), EK_ERROR_ARGUMENT,
		"eps (%g) is infinite in binary32, in which %s is computed: it must be at most %g", eps,
		ek_dtype_name(dtype), (double)FLT_MAX);
	return EK_OK;
}

EK_INLINE ek_status ek_check_accumulate(const struct ek_op *op, const void *args)
{
	int accumulate = *(const int *)ek_field(args, op->accumulate);
	return __builtin_expect((unsigned)accumulate > 1, 0) ? ek_fail_accumulate(accumulate) : EK_OK;
}

EK_INLINE ek_status ek_check_workspace(const struct ek_op *op, const void *args, size_t needed)
{
	const void *workspace = ek_pointer_field(args, op->workspace);
	size_t size = *(const size_t *)ek_field(args, op->workspace_size);
	bool fine = needed == 0 || (workspace && size >= needed && (uintptr_t)workspace % 64 == 0);
	return __builtin_expect(fine, 1) ? EK_OK : ek_fail_workspace(op, workspace, size, needed);
}

#endif
