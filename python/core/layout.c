/* How a tensor lies in memory: without gaps, or as rows at one distance. Called by frame.c and output.c.
 * SPDX-License-Identifier: MIT */
#include "frame.h"

/* Do dimensions first … ndim-1 follow each other without gaps? */
static bool is_dense(const struct view *view, int first)
{
	int64_t expected = 1;
	for (int i = view->ndim - 1; i >= first; i--) {
		if (view->shape[i] != 1 && view->strides[i] != expected)
			return false;
		expected *= view->shape[i];
	}
	return true;
}

static bool is_empty(const struct view *view)
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

bool is_contiguous(const struct view *view)
{
	if (is_empty(view))
		return true;
	return !view->scattered && (!view->strides || is_dense(view, 0));
}

/* The one stride that walks through dimensions 0 … count-1, or -1; `alone` where they hold one element. */
static int64_t collapse(const struct view *view, int count, int64_t alone)
{
	int64_t stride = alone, expected = -1;
	for (int i = count - 1; i >= 0; i--) {
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

int64_t row_stride(const struct frame *frame, const struct view *view)
{
	int leading = frame->ndim - frame->normalized_ndim;
	if (!view->strides || is_empty(view))
		return frame->cols;
	if (view->scattered || !is_dense(view, leading))
		return -1;
	int64_t stride = collapse(view, leading, frame->cols);
	return stride < frame->cols ? -1 : stride; /* rows that overlap, as those of an expanded tensor */
}
