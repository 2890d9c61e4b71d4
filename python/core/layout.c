/* How a tensor lies in memory: without gaps, or as an op's strides can say. Called by operands.c, statistics.c and
 * workspace.c. SPDX-License-Identifier: MIT */
#include "call.h"

bool is_empty(const struct view *view)
{
	for (int i = 0; i < view->ndim; i++)
		if (view->shape[i] == 0)
			return true;
	return false;
}

bool is_in_order(const struct view *view)
{
	int64_t expected = 1;
	for (int i = view->ndim - 1; i >= 0 && view->strides; i--) {
		if (view->strides[i] != expected)
			return false;
		expected *= view->shape[i] > 0 ? view->shape[i] : 1;
	}
	return true;
}

/* The one stride that walks through dimensions first … end-1, or -1; `alone` where they have one element. */
static int64_t collapse(const struct view *view, int first, int end, int64_t alone)
{
	int64_t stride = alone, expected = -1;
	for (int i = end - 1; i >= first; i--) {
		if (view->shape[i] == 1)
			continue;
		if (expected == -1)
			stride = expected = view->strides[i];
		if (view->strides[i] != expected)
			return -1;
		expected *= view->shape[i];
	}
	return stride;
}

bool is_contiguous(const struct view *view)
{
	return !view->strides || (!view->scattered && collapse(view, 0, view->ndim, 1) == 1) ||
	       is_empty(view);
}

/* The elements of a dimension that the op reads. */
static int64_t count_in(const struct call *call, const struct ek_dim *dim)
{
	int64_t count = size_of(call, dim->size) * each_of(call, dim);
	return dim->halves ? count / 2 : count;
}

/* Sets the strides of a tensor with gaps, from the innermost size to the outermost. The outer sizes may lie in any order. */
static bool set_strides(struct call *call, const struct ek_operand *operand, const struct view *view)
{
	int64_t least = 1; /* below it, elements overlap, as those of an expanded tensor */
	for (int dim = operand->rank - 1, end = view->ndim; dim >= 0; dim--) {
		const struct ek_dim *d = &operand->dims[dim];
		int first = end - call->extents[d->size].ndim;
		int64_t stride = collapse(view, first, end, least);
		if (stride < least || (stride > least && !d->stride))
			return false;
		if (d->stride)
			*(int64_t *)ek_field(&call->args, d->stride) = stride;
		if (dim == operand->rank - 1)
			least = count_in(call, d);
		end = first;
	}
	return true;
}

/* Sizes that no tensor has given yet are this one's: a dimension each, of the outermost all that lead. */
static bool take_sizes(struct call *call, const struct ek_operand *operand, const struct view *view)
{
	for (int dim = operand->rank - 1, end = view->ndim; dim >= 0; dim--) {
		const struct extent *extent = &call->extents[operand->dims[dim].size];
		int ndim = extent->ndim >= 0 ? extent->ndim : dim > 0 ? 1 : end;
		end -= ndim;
		if (end < 0 || ndim < 0)
			return false;
		if (extent->ndim < 0)
			set_size(call, operand->dims[dim].size, (struct extent){ndim, view->shape + end});
	}
	return true;
}

bool is_flat(const struct ek_operand *operand, const struct view *view)
{
	return operand->rank == 2 && view->ndim == 1 && !operand->dims[0].stride;
}

static enum layout lay_out_flat(const struct call *call, const struct ek_operand *operand,
				const struct view *view)
{
	int64_t elements = count_in(call, &operand->dims[0]) * count_in(call, &operand->dims[1]);
	if (view->shape[0] != elements)
		return OTHER_SHAPE;
	return is_contiguous(view) ? FITS : SCATTERED;
}

/* Most tensors have no gaps: their shape and strides are read in one pass, from the innermost dimension to the outermost. */
enum layout lay_out(struct call *call, const struct ek_operand *operand, const struct view *view)
{
	const int64_t *shape = view->shape, *strides = view->strides;
	int64_t expected = 1;
	int i = view->ndim;
	bool dense = !view->scattered;
	if (is_flat(operand, view))
		return lay_out_flat(call, operand, view);
	if (!take_sizes(call, operand, view))
		return OTHER_SHAPE;
	for (int d = operand->rank - 1; d >= 0; d--) {
		const struct ek_dim *dim = &operand->dims[d];
		const struct extent extent = call->extents[dim->size];
		if (dim->stride)
			*(int64_t *)ek_field(&call->args, dim->stride) = expected;
		int64_t each = each_of(call, dim);
		for (int k = extent.ndim - 1; k >= 0; k--, each = 1) {
			const int64_t size = extent.shape[k] * each;
			if (--i < 0 || (shape[i] != size && !(dim->halves && shape[i] == size / 2)))
				return OTHER_SHAPE;
			dense &= !strides || strides[i] == expected || shape[i] == 1;
			expected *= shape[i];
		}
	}
	if (i > 0)
		return OTHER_SHAPE;
	return dense || is_empty(view) || (!view->scattered && set_strides(call, operand, view)) ? FITS
												 : SCATTERED;
}

size_t view_bytes(const struct view *view)
{
	size_t bytes = ek_dtype_size(view->dtype);
	for (int i = 0; i < view->ndim; i++)
		bytes *= (size_t)view->shape[i];
	return bytes;
}
