/* What the eager calls share: what they are given of PyTorch, and the questions they ask it. eager_forward.c and
 * eager_backward.c serve PyTorch's common calls and their node of autograd without a step in Python, where nobody but
 * PyTorch's kernels would have seen them; what they cannot do they leave to evenkeel.torch.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_EAGER_H
#define EK_PYTHON_EAGER_H

#include "stable_abi.h"

#include <stdbool.h>

#include "frame.h"

enum { MAX_WATCHERS = 8, MAX_GPUS = 16 };

/* Callables and types of PyTorch, which live as long as the process; all NULL where it is too old. */
struct pytorch {
	PyTypeObject *tensor, *parameter;
	PyObject *empty_like, *new_empty, *contiguous, *is_neg, *get_num_threads, *is_grad_enabled;
	PyObject *in_float32; /* keyword arguments: a dtype */
	PyObject *apply;      /* of the function of autograd that keeps what eager_forward has computed */
	PyObject *backward;   /* for what eager_backward cannot serve */
	PyObject *forward_ad; /* a module's dictionary */
	PyObject *watchers[MAX_WATCHERS]; /* each returns something false where it watches nothing */
	int watcher_count;
};
extern struct pytorch torch;

/* Attributes: of forward_ad, of tensors, and of what autograd calls ctx. */
struct names {
	PyObject *current_level, *requires_grad, *to_save, *saved_tensors, *needs_input_grad, *options;
};
extern struct names names;

/* Questions: 1 yes, 0 no, -1 an exception. */

/* The truth of an answer, whose reference it takes; NULL is an exception. */
int is_true(PyObject *answer);
/* Modes, transforms, tracing, autocast, forward-mode differentiation. */
int is_watched(void);
/* Is every one PyTorch's own tensor or parameter? The first must be there, the others may be None. */
bool are_ordinary(PyObject *const *tensors, int count);
/* Is one lazily minus what lies in its memory, as the imaginary part of a conjugate is? Of parameters no public call
 * makes one whose elements follow each other, so they need not be asked. */
int is_negated(PyObject *const *tensors, int count, bool parameters);
int needs_gradient(PyObject *const *tensors, int count);
/* Has a normalized shape more than one element in a row? Else rows may be at any distance, and results like them. */
bool has_neighbours(PyObject *shape);

/* New tensors whose storage belongs to PyTorch's allocator. (A tensor from its exchange API has a storage that cannot be
 * resized, and record_stream ignores it: a saved-tensor hook that copies on another stream would race with the reuse of
 * its memory.) */
PyObject *make_like(PyObject *tensor);
/* [count, rows] for the statistics of x. */
PyObject *make_statistics(const struct frame *frame, PyObject *x, int64_t count);

#endif
