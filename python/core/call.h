/* One call of an op on Python objects, driven by the op's tables (core/operand.h). A signature says what each argument of
 * a Python function is; call.c reads them into the op's argument struct, opens the outputs and the workspace, and calls
 * the library. norm.c has the signatures. SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_CALL_H
#define EK_PYTHON_CALL_H

#include "core/operand.h"
#include "view.h"
#include "workspace.h"

/* ---- signatures ---- */

/* What an argument of a Python function is. EPS to VALUE_OFFSET are the numbers of enum ek_scalar. PACKED says whether x is
 * one tensor with its partner behind it in each row (struct pack). CUT is the size that cuts another: group_cols. DTYPE is
 * the op's, where x has another. SIZE is a size of the op that no tensor gives. */
enum role {
	OPERAND,
	CHOICE,
	SIZE,
	KIND,
	SHAPE,
	EPS,
	LIMIT,
	ALPHA,
	VALUE_OFFSET,
	PACKED,
	CUT,
	DTYPE,
	STATISTICS,
	WORKSPACE,
	THREADS,
	STREAM,
	ROLES
};
_Static_assert((int)VALUE_OFFSET - (int)EPS == (int)EK_SCALARS - 1, "a role for each number");

struct argument {
	uint8_t role;
	uint8_t operand;  /* its number in the op's table */
	uint8_t choice;   /* the same of a choice */
	uint8_t size;     /* the same of a size */
	bool is_required; /* of a choice: None does not stand for its default */
	const char *name; /* in messages and as a keyword; NULL: that of the table */
};

enum { MAX_ARGUMENTS = EK_MOST_OPERANDS + EK_MOST_CHOICES + ROLES, MAX_ARGS_SIZE = 640 };

/* Names of the values of an option. */
enum { MAX_VALUES = 8 };

enum { NOWHERE = MAX_ARGUMENTS }; /* an index all the same: of an array with one element more */

/* An operand of a call. */
struct parameter {
	const struct ek_operand *operand;
	const char *name; /* in messages */
	uint8_t number;   /* of the operand */
	uint8_t at;       /* its position among the arguments, or NOWHERE */
	uint32_t alike;   /* the inputs of its dimensions, a bit each */
	bool per_row; /* it has one element for each row, a row being one position in x's leading dimensions */
};

/* In a packed call each row of the operand has one of its partner behind it. */
struct pack {
	uint8_t operand, partner;
};

/* A choice of a call (choices.c). */
struct choice {
	const struct ek_choice *choice;
	const char *name;   /* in messages */
	uint8_t number, at; /* of the choice, and its position among the arguments */
	bool is_required;
	uint8_t first;   /* the number of the first value that has a name */
	uint16_t offset; /* of its field */
	PyObject *values
		[MAX_VALUES]; /* of an option whose values have names: strings, by number less first; else NULL */
};

struct signature {
	const char *function;
	const struct ek_op *op; /* of at most EK_MOST_OPERANDS operands, MAX_ARGS_SIZE bytes of arguments */
	uint8_t x;              /* the operand that gives the sizes, the device and the framework */
	uint8_t count;
	/* The operands and choices of the op that .arguments leaves out are arguments too, keywords by their names. */
	bool takes_all;
	bool asks_workspace; /* the function returns the bytes of the workspace; outputs are wanted or not */
	uint32_t default_eps_kinds; /* kinds whose eps may be None: the epsilon of the arithmetic */
	/* An output that, where both are to be made and their dtypes agree, is another one; 0: none. */
	uint8_t twin, twin_of;
	/* An input: where it is f32, an output that is always there is so by default, else of x's dtype; 0: none. */
	uint8_t wider;
	/* An input that has the dtype of x, and whose field of the dtype is another than x's; 0: none. */
	uint8_t like_x;
	/* An operand that messages call otherwise, or 0. */
	uint8_t renamed;
	const char *name_of_renamed;
	uint8_t pack_count;
	struct pack packs[EK_MOST_OPERANDS / 2];
	uint32_t activations; /* those that the function has, a bit each; 0: all */
	/* Fields of a dtype: where no tensor of the first decides on it, it is the second's. 0: none. */
	uint16_t undecided, decided_by;
	struct argument arguments[MAX_ARGUMENTS];

	/* From the arguments and the op's table, by signature_resolve. */
	const char *name_of_x;
	uint8_t at[ROLES]; /* positions of x and of the scalars; NOWHERE: not an argument of the function */
	uint8_t positional_count; /* the others are keywords */
	uint8_t input_count, output_count, statistic_count, choice_count, size_count;
	struct {
		uint8_t size, at;
	} sizes[EK_MOST_SIZES];
	struct choice choices[EK_MOST_CHOICES];
	struct parameter inputs[EK_MOST_OPERANDS]; /* beside x */
	struct parameter outputs[EK_MOST_OPERANDS];
	struct parameter statistics[EK_MOST_OPERANDS]; /* the operands that make up the statistics */
};

/* Once for each signature; -1 with an exception. */
int signature_resolve(struct signature *signature);
/* The same for several; the last is NULL. */
int signatures_resolve(struct signature *const *signatures);

/* ---- calls ---- */

/* The dimensions of a tensor that a size of the op consists of. */
struct extent {
	int ndim; /* -1: no tensor has given it */
	const int64_t *shape;
};

/* The outputs that the signature names, in its order and None where one is not wanted, then the statistics where they are.
 * A reference each; one more may be added. */
struct results {
	int count;
	ek_dtype dtype; /* the op's */
	PyObject *at[EK_MOST_OPERANDS + 2];
};

void results_close(struct results *results);
/* Takes the references over. */
PyObject *tuple_of(struct results *results);

enum { WORKSPACE_VIEW = EK_MOST_OPERANDS, MAX_VIEWS };
_Static_assert(MAX_VIEWS <= 32, "struct call has a bit for each view");

struct call {
	const struct signature *signature;
	const struct ek_op *op;
	bool eager; /* PyTorch makes the outputs (eager.h); else the exchange API of x's framework does */
	/* A tensor that was read does not lie in memory as the op's strides can say: the caller must copy it. */
	bool scattered;
	bool packed;
	int64_t cols; /* of x, where a row of it has two elements for each */
	uint32_t kind_bit;
	ek_device device;
	int ordinal;
	void *stream;
	ek_context *context;
	const DLPackExchangeAPI *api; /* of x, or NULL */
	struct extent extents[EK_MOST_SIZES];
	PyObject *const *given; /* the arguments */
	struct results *results;
	uint32_t opened; /* views, a bit each */
	struct view views
		[MAX_VIEWS]; /* by the number of the operand; a tensor of statistics by that of its first */
	struct workspace workspace;
	union {
		size_t size; /* which every argument struct starts with */
		double alignment;
		char bytes[MAX_ARGS_SIZE];
	} args;
};

/* Calls the op with signature->count arguments. 0: the results are there; 1: a tensor must be made contiguous first; -1
 * with an exception. */
int call_op(const struct signature *signature, PyObject *const *given, bool eager, struct results *results);
/* The same for a function of the module: one result alone is not in a tuple, and None stands for 1. The given are the
 * positional arguments, then those of the keywords, a tuple or NULL. */
PyObject *call_function(const struct signature *signature, PyObject *const *given, Py_ssize_t count,
			PyObject *keywords);
/* A function that only checks the signature's choices, which are given in order. */
PyObject *check_function(const struct signature *signature, PyObject *const *given, Py_ssize_t count);

/* The arguments of a signature. */
#define ARGUMENTS(...)                                                               \
	.count = sizeof((struct argument[]){__VA_ARGS__}) / sizeof(struct argument), \
	.arguments = {__VA_ARGS__}
/* Functions of the module, by their signatures. */
#define POSITIONAL_FUNCTION(name, row)                                             \
	PyObject *name(PyObject *module, PyObject *const *given, Py_ssize_t count) \
	{                                                                          \
		(void)module;                                                      \
		return call_function(&(row), given, count, NULL);                  \
	}
#define CHECK_FUNCTION(name, row)                                                  \
	PyObject *name(PyObject *module, PyObject *const *given, Py_ssize_t count) \
	{                                                                          \
		(void)module;                                                      \
		return check_function(&(row), given, count);                       \
	}

/* ---- the parts of a call: 0, or -1 with an exception ---- */

static inline const struct ek_operand *operand_of(const struct call *call, int number)
{
	return &call->op->operands[number];
}

/* 0 for a kind that no op has. */
static inline uint32_t kind_bit(long kind)
{
	return kind >= 0 && kind < 32 ? 1u << kind : 0;
}

/* A scalar of the call; None where it is not an argument of the function. */
static inline PyObject *scalar_of(const struct call *call, enum role role)
{
	int at = call->signature->at[role];
	return at == NOWHERE ? Py_None : call->given[at];
}

static inline bool has_kind(const struct call *call, uint32_t kinds)
{
	return kinds == 0 || (kinds & call->kind_bit);
}

static inline int64_t size_of(const struct call *call, int size)
{
	return ek_size_of(call->op, size, &call->args);
}

/* The elements that a dimension has for each of its size. */
static inline int64_t each_of(const struct call *call, const struct ek_dim *dim)
{
	return dim->pairs && (call->packed || ek_choice_of(call->op, dim->pairs, &call->args)) ? 2 : 1;
}

/* Of an operand with one element for each row, or for each piece of a row. */
static inline int64_t count_of(const struct call *call, const struct ek_operand *operand)
{
	return ek_dim_of(call->op, &operand->dims[0], &call->args);
}

/* Reads the scalars and x, and finds the sizes, the context and the stream (frame.c). */
int call_open(struct call *call);
void set_size(struct call *call, int size, struct extent extent);
/* Takes the reference over; -1 for NULL. */
int add_result(struct call *call, PyObject *object);

/* Reads the choices into the arguments: None stands for the default (choices.c). */
int read_choices(struct call *call);
/* The same of values alone, in the order of the signature's choices. */
int check_choices(const struct signature *signature, PyObject *const *values);
/* The op's own dtype, where the function has it as an argument. */
int read_dtype(struct call *call);
/* The dtypes that neither a tensor nor an argument decided on. */
void decide_dtypes(struct call *call);
/* Of signature_resolve: the names of its values. */
int name_values(const struct signature *signature, struct choice *choice);
/* Where the text of a message starts with a choice that has named values, and a value: writes that as Python has it, None
 * for a value without a name. Returns the length of what it stands for, or 0. */
int choice_in_python(const char *text, char *into, size_t size);

/* Sets the pointer of an operand whose strides are set, in a packed call its partner's too (operands.c). */
void place_operand(struct call *call, int number, const char *data);
/* Where a tensor's elements are. Without elements it may have no address, which the library takes for an absent operand. */
const char *address_of(const struct view *view);
/* Reads a tensor into the arguments (operands.c). */
int read_input(struct call *call, const struct parameter *parameter, PyObject *object);
/* Makes or checks a tensor that the call writes, and adds it to the results. Given are None or False (not wanted), True
 * (to be made; None too, if the op requires it), or an object to write to. */
int open_output(struct call *call, const struct parameter *parameter, PyObject *given);

/* Whether an output is given or to be made. */
static inline bool is_wanted(PyObject *given)
{
	return given != Py_None && given != Py_False;
}

/* Of a view whose shape and dtype are right. */
int check_output(const struct call *call, const struct view *view);

/* The statistics of all rows, as one tensor or a tuple of them (statistics.c). */
int read_statistics(struct call *call);
int open_statistics(struct call *call);

/* ---- tensors of a call ---- */

/* A view of an object on x's device, closed with the call; NULL with an exception. */
struct view *open_view(struct call *call, int number, PyObject *object, const char *name);

/* require.c: -1 with an exception, those named refuse_… always. */
int refuse_device(const struct call *call, const struct view *view);
int require_shape(const struct view *view, int ndim, const int64_t *shape);
int require_dtype(const struct view *view, ek_dtype dtype, const char *like); /* like: who decided, or NULL */
int require_writable(const struct view *view);
int require_contiguous(const struct view *view);
int refuse_layout(const struct view *view, const char *layout);
int refuse_end(const struct view *x, PyObject *shape); /* of x's shape */
int refuse_ndim(const struct view *view, int least);
int refuse_odd(const struct view *view);                                    /* a last dimension of pairs */
int refuse_number(const char *name, PyObject *value, const char *expected); /* instead of the exception set */

/* Whether two operands have the same dimensions. For tables: parameters have it resolved. */
bool are_alike(const struct ek_operand *one, const struct ek_operand *other);

/* ---- how a tensor lies in memory (layout.c) ---- */

bool is_empty(const struct view *view);
/* Are its strides those of a new tensor, also where a dimension has one element, and any would do? */
bool is_in_order(const struct view *view);
/* Do its elements follow each other without gaps? */
bool is_contiguous(const struct view *view);

enum layout { FITS, OTHER_SHAPE, SCATTERED };
/* Whether a tensor has an operand's shape, and strides that the fields of the operand can express, which are set. Sizes that
 * no tensor has given yet are this one's. */
enum layout lay_out(struct call *call, const struct ek_operand *operand, const struct view *view);

/* Are its dimensions given as one? An operand without strides may be. */
bool is_flat(const struct ek_operand *operand, const struct view *view);

size_t view_bytes(const struct view *view);

#endif
