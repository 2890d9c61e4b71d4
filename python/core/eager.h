/* The eager calls: what they are given of PyTorch, and the questions they ask it. eager_forward.c and eager_backward.c
 * serve PyTorch's common calls and their node of autograd without a step in Python, where nothing but a kernel would see
 * them; evenkeel.torch serves the others. SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_EAGER_H
#define EK_PYTHON_EAGER_H

#include "call.h"

/* ---- PyTorch ---- */

/* The arguments of eager_setup: objects of PyTorch, which live as long as the process. */
enum pytorch {
	TENSOR,
	PARAMETER,
	EMPTY_LIKE,
	NEW_EMPTY,
	DTYPES, /* a tuple: those of EK_F32, EK_F16, EK_BF16 and EK_F64 */
	CONTIGUOUS,
	IS_NEG,
	GET_NUM_THREADS,
	IS_GRAD_ENABLED,
	/* Tuples, an element for each op: apply of the function of autograd that keeps what forward has computed (NULL:
	 * PyTorch is too old), what serves calls that eager_forward cannot, and what computes gradients that backward
	 * cannot. */
	APPLY,
	LEAVE,
	BACKWARD,
	FORWARD_AD,         /* a module's dictionary */
	OPERATION_WATCHERS, /* tuples of callables without arguments */
	CALL_WATCHERS,
	PYTORCH
};
extern PyObject *torch[PYTORCH];

/* Attributes: of forward_ad, of tensors, and of what autograd calls ctx. */
struct names {
	PyObject *current_level, *requires_grad, *to_save, *saved_tensors, *needs_input_grad, *options,
		*materialize_grads;
};
extern struct names names;

/* ---- ops ---- */

/* What a node remembers beside tensors, as Python has it (_autograd.Options); then come the choices of backward. */
enum option {
	OPTION_KIND,
	OPTION_SHAPE,
	OPTION_EPS,
	OPTION_ESTIMATE,
	OPTION_COLUMNS,
	OPTION_DTYPE,
	OPTION_CUT,
	OPTIONS
};

/* An op as autograd has it. Backward's outputs are the gradients of forward's inputs, in the order of the signatures; its
 * inputs are the gradients of forward's outputs ("dy" of "y"), forward's inputs of the same names, and x. An input that
 * forward adds to its first output has no such gradient: it is that of the output. */
struct eager_op {
	struct signature *forward, *backward;
	uint32_t
		copied_kinds; /* kinds of which evenkeel.torch copies inference tensors, so that autograd can save them */
	uint8_t number;   /* of its functions in torch[APPLY] and torch[BACKWARD] */
	uint8_t saved_x;  /* the operand of forward that backward takes as x: its x, or an output */
	uint8_t added;    /* the operand of forward that is added to its first output; 0: none */
	uint8_t required; /* an operand of forward that is optional in the library and not here; 0: none */

	/* From the signatures and the tables, by eager_resolve. */
	uint8_t given_count; /* of forward's arguments, up to the statistics */
	uint8_t input_count, saved_count;
	uint8_t choices[EK_MOST_CHOICES]; /* positions among them of the choices that backward has */
	uint8_t added_at;                 /* the number of .added among the inputs; none: their count */
	uint8_t required_at;              /* the same of .required */
	uint8_t inputs[EK_MOST_OPERANDS]; /* positions of the inputs among them, x first */
	uint8_t saved
		[EK_MOST_OPERANDS]; /* what backward reads, and is saved: inputs, numbered as above, then outputs */
	/* For each of them, 1 + the number of backward's choice with which backward does not take it; 0: none. */
	uint8_t saved_without[EK_MOST_OPERANDS];
	uint32_t models[EK_MOST_OPERANDS]; /* for each input the saved ones, a bit each, of its dimensions */
	/* For each argument of backward its place among the saved, or that of its gradient, counted down from -1. */
	int16_t sources[MAX_ARGUMENTS];
};

/* With its signatures; -1 with an exception. */
int eager_resolve(struct eager_op *op);

PyObject *eager_forward_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count);
PyObject *eager_compute_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count);
PyObject *eager_keep_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count);
PyObject *eager_backward_of(const struct eager_op *op, PyObject *const *given, Py_ssize_t count);

/* ---- questions: 1 yes, 0 no, -1 an exception ---- */

/* The truth of an answer, whose reference it takes; NULL is an exception. */
int is_true(PyObject *answer);
/* Would nothing but a kernel see operations on these tensors? They are PyTorch's own tensors and parameters, or None, and
 * no mode, transform, tracing or forward-mode differentiation sees operations. evenkeel.torch asks this too. */
int are_plain(PyObject *const *tensors, Py_ssize_t count);
/* Function modes and autocast, which evenkeel.torch handles before it asks is_plain. */
int is_call_watched(void);
/* Is one lazily minus what lies in its memory, as the imaginary part of a conjugate is? Of parameters no public call
 * makes one whose elements follow each other, so they need not be asked. */
int is_negated(PyObject *const *tensors, int count, bool parameters);
int is_grad_enabled(void);
int needs_gradient(PyObject *const *tensors, int count);
/* Has a normalized shape more than one element in a row? Else rows may be at any distance, and results like them. */
bool has_neighbours(PyObject *shape);

PyObject *ask_number_of_threads(void); /* NULL with an exception */

/* ---- new tensors ---- */

/* Their storage belongs to PyTorch's allocator. (A tensor from its exchange API has a storage that cannot be resized, and
 * record_stream ignores it: a saved-tensor hook that copies on another stream would race with the reuse of its memory.) */

/* The number of a dtype of PyTorch's; 0: not one of evenkeel's. */
int pytorch_dtype(PyObject *dtype);

/* Of another tensor's dimensions, and of a dtype that may be another. */
PyObject *make_like(const struct view *model, ek_dtype dtype);
PyObject *make_statistics(const struct call *call, ek_dtype dtype, const int64_t shape[2]);

#endif
