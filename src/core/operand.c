/* What follows from an op's tables at any time: for the program, Python and the tests. Calls themselves go through
 * check.h, where the tables are constants. SPDX-License-Identifier: MIT */
#include "operand.h"

const char *const ek_scalar_names[EK_SCALARS] = {"eps", "limit", "alpha", "value_offset"};

int64_t ek_operand_stride(const struct ek_op *op, const struct ek_operand *operand, int dim, const void *args)
{
	const struct ek_dim *d = &operand->dims[dim];
	int64_t stride = d->stride ? *(const int64_t *)ek_field(args, d->stride) : 0;
	if (stride != 0 || dim == operand->rank - 1)
		return stride != 0 ? stride : ek_dim_each(op, d, args);
	return ek_operand_stride(op, operand, dim + 1, args) *
	       ek_dim_count(op, &operand->dims[dim + 1], args);
}

int64_t ek_operand_elements(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	int64_t elements = 1;
	for (int dim = 0; dim < operand->rank; dim++)
		elements *= ek_dim_of(op, &operand->dims[dim], args);
	return elements;
}

size_t ek_operand_bytes(const struct ek_op *op, const struct ek_operand *operand, const void *args)
{
	if (ek_operand_elements(op, operand, args) == 0)
		return 0;
	int64_t end = ek_operand_stride(op, operand, operand->rank - 1, args);
	for (int dim = 0; dim < operand->rank; dim++)
		end += (ek_dim_count(op, &operand->dims[dim], args) - 1) *
		       ek_operand_stride(op, operand, dim, args);
	return (size_t)end * ek_operand_element(op, operand, args);
}

int ek_operand_named(const struct ek_op *op, const char *name)
{
	for (int i = 0; i < op->operand_count; i++)
		if (strcmp(op->operands[i].name, name) == 0)
			return i;
	return -1;
}

static bool has_16_bits(ek_dtype dtype)
{
	return dtype == EK_F16 || dtype == EK_BF16;
}

bool ek_choice_allows(const struct ek_choice *choice, ek_dtype of, int value)
{
	if (!choice->is_dtype)
		return value >= 0 && value <= choice->most;
	ek_dtype dtype = (ek_dtype)value;
	return value == 0 || dtype == of || (dtype == EK_F32 && has_16_bits(of)) ||
	       (choice->narrows && of == EK_F32 && has_16_bits(dtype));
}
