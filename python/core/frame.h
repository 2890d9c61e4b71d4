/* What the tensors of one call share: x decides on the device, the dtype, the rows and the columns, and every
 * other tensor is read against it. forward.c and backward.c build one for each call.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_FRAME_H
#define EK_PYTHON_FRAME_H

#include "view.h"

enum { MAX_VIEWS = 12 };

struct frame {
	ek_norm norm;
	ek_device device;
	int ordinal;
	void *stream;
	ek_context *context;
	ek_dtype dtype;
	ek_dtype weight_dtype; /* 0 until a tensor of columns has been read */
	ek_dtype stats_dtype;
	int64_t rows;
	int64_t cols;
	int ndim; /* of x, of which the last `normalized_ndim` are normalized */
	int normalized_ndim;
	const int64_t *shape;
	const int64_t *normalized;
	const DLPackExchangeAPI *api; /* of x, or NULL */

	/* A tensor that was read does not lie in memory as rows of elements that follow each other, the rows at one
	 * distance: the caller must copy it. */
	bool scattered;

	bool fresh; /* the outputs that are given were just made for this call */

	struct view views[MAX_VIEWS];
	int opened;
};

/* The scalars that all calls have; 0, or -1 with an exception, as everything below. */
struct scalars {
	PyObject *norm;
	PyObject *shape;
	PyObject *threads;
	PyObject *stream;
};

/* Reads x, and finds the context and the stream. */
int frame_open(struct frame *frame, PyObject *x, const struct scalars *scalars, const void **data,
	       int64_t *stride);
void frame_close(struct frame *frame);

/* Reads eps; None is, for RMSNorm alone, the epsilon of the type in which statistics are computed. */
int frame_eps(const struct frame *frame, PyObject *number, double *eps);
/* Reads a tensor of x's shape and dtype. */
int frame_rows(struct frame *frame, PyObject *object, const char *name, const void **data, int64_t *stride);
/* Reads a tensor of the normalized shape; None is NULL. */
int frame_columns(struct frame *frame, PyObject *object, const char *name, const void **data);
/* Reads a statistic: one element a row, in whatever shape. */
int frame_statistic(struct frame *frame, PyObject *object, const char *name, const void **data);
/* Reads a tensor [count, rows] of statistics; count is what it has. */
int frame_statistics(struct frame *frame, PyObject *object, const void **data, int64_t *count);

/* A view of an object on x's device, closed with the frame; NULL with an exception. */
struct view *frame_view(struct frame *frame, PyObject *object, const char *name);
int require_shape(const struct view *view, int ndim, const int64_t *shape);
int require_dtype(const struct view *view, ek_dtype dtype, const char *like);
int require_writable(const struct view *view);
/* Always -1: a tensor that is written must lie otherwise. */
int refuse_layout(const struct view *view, const char *layout);
/* Are its strides those of a new tensor, also where a dimension has one element, and any would do? */
bool is_in_order(const struct view *view);
/* Do the elements of a tensor follow each other without gaps? */
bool is_contiguous(const struct view *view);
/* The distance between rows where a tensor of x's shape lies as rows, else -1. */
int64_t row_stride(const struct frame *frame, const struct view *view);

/* Is the call over so soon that letting other threads into Python meanwhile would cost more than it gives? */
bool frame_is_short(const struct frame *frame);

#endif
