/* The description of an op: its sizes and operands, as tables. Validation (check.h), the checks and kernel keys of the
 * GPU (gpu/), the cost model, the program, Python and the tests read them; ops/registry.h lists the ops.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CORE_OPERAND_H
#define EK_CORE_OPERAND_H

#include <stdbool.h>
#include <string.h>

#include "dtype.h"

struct ek_gpu_limits;
struct ek_plan;

/* Masks of operands have 32 bits. */
enum { EK_MOST_SIZES = 9, EK_MOST_DIMS = 4, EK_MOST_OPERANDS = 24, EK_MOST_CHOICES = 13 };

/* Offsets are those of fields of the op's argument struct; 0, where .size is, stands for "no such field". */

/* A size, an int64_t of the arguments. */
struct ek_size {
	const char *name;
	uint16_t offset;
	int64_t least, most;
	const char *most_name; /* of a limit that has a name; NULL: the limit is memory */
	uint8_t cuts; /* number of the size that it must divide, from 1, or 0: none. A value of 0 stands for that size's
		       * own value, and an equal value becomes 0 */
};

/* A dimension of an operand: which size, and the field of the distance between its elements. Without such a field, or
 * where it is 0, the elements follow each other. */
struct ek_dim {
	uint8_t size;
	uint16_t stride;
	const char *stride_name;
	uint8_t pieces; /* number of a size that cuts another, from 1: this dimension has an element for each piece; 0: none */
	uint8_t pairs; /* number of a choice, from 1, with which this dimension has two elements for each of its size; 0: none */
	bool halves; /* it has one element for each two of its size */
};

enum ek_operand_flags {
	EK_OUTPUT = 1,      /* the call writes it */
	EK_OPTIONAL = 2,    /* NULL: absent */
	EK_ACCUMULATES = 4, /* with .accumulate the call adds to it */
	EK_CONSTANT = 8,    /* GPU kernels are compiled for its presence */
	EK_INDEX = 16       /* its elements are int64_t, whatever the dtypes of the call */
};

struct ek_operand {
	const char *name;
	uint16_t pointer; /* offset of the pointer */
	uint16_t
		dtype; /* offset of its ek_dtype; 0: that of the arithmetic, EK_F64 where the op's dtype is, else EK_F32 */
	uint8_t flags;
	uint8_t rank;
	struct ek_dim dims[EK_MOST_DIMS]; /* outermost first; the last has no stride */
	uint32_t in_place;                /* of an output: the inputs, by number, whose memory it may share */
	uint32_t kinds;                   /* the kinds of the op that have it, a bit each; 0: all */
	uint32_t excludes; /* operands before it that must be absent where it is given, a bit each */
	struct {
		uint8_t number; /* an operand that must be there beside it, numbered from 1; 0: none */
		uint32_t kinds; /* for these kinds alone; 0: all */
		uint8_t choice; /* where that choice is not 0 alone, numbered from 1; 0: always */
	} needs;
	uint8_t with_choice,
		without_choice; /* the choice that must not, or must, be 0 beside it, numbered from 1; 0: none */
	uint8_t instead; /* of an optional input: must be there where this one is not, numbered from 1; 0: none */
};

/* A dtype of its own that some operands have, or an option: a field of four bytes, of which 0 is the default. */
struct ek_choice {
	const char *name;
	bool is_dtype;
	int most;        /* of an option: its values are 0 to that */
	uint8_t follows; /* of a dtype: the choice that 0 stands for, numbered from 1; 0: the op's dtype */
	bool narrows;    /* of a dtype: may have 16 bits where that is f32 */
	const char *operand; /* that must be there where the choice is not 0; NULL: none */
};

/* The numbers of all ops, fields of type double: each has one meaning in every op that has it. */
enum ek_scalar { EK_EPS, EK_LIMIT, EK_ALPHA, EK_VALUE_OFFSET, EK_SCALARS };
extern const char *const ek_scalar_names[EK_SCALARS];

/* A direction of an op: forward or backward. */
struct ek_op {
	const char *function; /* "ek_norm_forward"; its arguments are an ek_norm_forward_args */
	uint16_t args_size, first_args_size;             /* bytes now, and in the first version */
	uint8_t size_count, operand_count, output_count; /* outputs come first */
	struct ek_size sizes[EK_MOST_SIZES];
	const struct ek_operand *operands;
	/* Fields that are neither sizes nor operands. */
	uint16_t kind, dtype, accumulate, workspace, workspace_size, stream;
	uint16_t scalar[EK_SCALARS];
	const char *const *kind_names;   /* by the value of .kind */
	const struct ek_choice *choices; /* the same list for forward and backward */
	uint8_t choice_count;
	uint16_t choice[EK_MOST_CHOICES]; /* their offsets; 0: this direction has no such field */
	/* The public functions. */
	ek_status (*call)(ek_context *ctx, const void *args);
	ek_status (*prepare)(ek_context *ctx, const void *args);
	ek_status (*workspace_bytes)(const ek_context *ctx, const void *args,
				     size_t *bytes); /* NULL: it needs none */
	/* What a call with these resolved arguments would run on a GPU, which need not be there; with the kernels that
	 * other numbers of rows need. */
	void (*plan)(const void *args, const struct ek_gpu_limits *limits, struct ek_plan *plan);
};

/* ---- fields of an argument struct ---- */

static inline void *ek_field(const void *args, uint16_t offset)
{
	return (char *)(uintptr_t)args + offset;
}

/* A field that is a void * or const void *, hence memcpy. */
static inline void *ek_pointer_field(const void *args, uint16_t offset)
{
	void *pointer;
	memcpy(&pointer, ek_field(args, offset), sizeof pointer);
	return pointer;
}

static inline void *ek_operand_pointer(const struct ek_operand *operand, const void *args)
{
	return ek_pointer_field(args, operand->pointer);
}

static inline void ek_operand_set(const struct ek_operand *operand, void *args, const void *pointer)
{
	memcpy(ek_field(args, operand->pointer), &pointer, sizeof pointer);
}

static inline int64_t ek_size_of(const struct ek_op *op, int size, const void *args)
{
	return *(const int64_t *)ek_field(args, op->sizes[size].offset);
}

/* The pieces into which a size cuts another; 1 where it is 0. */
static inline int64_t ek_pieces_of(const struct ek_op *op, int size, const void *args)
{
	int64_t piece = ek_size_of(op, size, args);
	return piece ? ek_size_of(op, op->sizes[size].cuts - 1, args) / piece : 1;
}

/* The value of a choice, numbered from 1. */
static inline int ek_choice_of(const struct ek_op *op, int number, const void *args)
{
	return *(const int *)ek_field(args, op->choice[number - 1]);
}

/* The elements that a dimension has for each of its size. */
static inline int64_t ek_dim_each(const struct ek_op *op, const struct ek_dim *dim, const void *args)
{
	if (dim->pairs && ek_choice_of(op, dim->pairs, args))
		return 2;
	return dim->pieces ? ek_pieces_of(op, dim->pieces - 1, args) : 1;
}

/* How many there are of these in a dimension. */
static inline int64_t ek_dim_count(const struct ek_op *op, const struct ek_dim *dim, const void *args)
{
	int64_t size = ek_size_of(op, dim->size, args);
	return dim->halves ? size / 2 : size;
}

/* The elements of a dimension. */
static inline int64_t ek_dim_of(const struct ek_op *op, const struct ek_dim *dim, const void *args)
{
	return ek_dim_count(op, dim, args) * ek_dim_each(op, dim, args);
}

/* The value of .kind; 0 of an op that has no kinds. */
static inline int ek_kind_of(const struct ek_op *op, const void *args)
{
	return op->kind ? *(const int *)ek_field(args, op->kind) : 0;
}

/* Of resolved arguments; not of an EK_INDEX. */
static inline ek_dtype ek_operand_dtype(const struct ek_op *op, const struct ek_operand *operand,
					const void *args)
{
	if (operand->dtype)
		return *(const ek_dtype *)ek_field(args, operand->dtype);
	return *(const ek_dtype *)ek_field(args, op->dtype) == EK_F64 ? EK_F64 : EK_F32;
}

/* Bytes of an element; of resolved arguments. */
static inline size_t ek_operand_element(const struct ek_op *op, const struct ek_operand *operand,
					const void *args)
{
	return operand->flags & EK_INDEX ? sizeof(int64_t)
					 : ek_bytes_of_dtype(ek_operand_dtype(op, operand, args));
}

static inline bool ek_operand_has_kind(const struct ek_operand *operand, int kind)
{
	return operand->kinds == 0 || operand->kinds >> kind & 1;
}

/* ---- how an operand lies in memory; of resolved arguments, or with strides of 0 where it is dense ---- */

/* From an element of a dimension to the next; where it has several for each of its size, from those of one to those of the
 * next. */
int64_t ek_operand_stride(const struct ek_op *op, const struct ek_operand *operand, int dim,
			  const void *args);
/* Its elements, without the gaps between rows. */
int64_t ek_operand_elements(const struct ek_op *op, const struct ek_operand *operand, const void *args);
/* Bytes from its first element to its last, gaps included; 0 without elements. */
size_t ek_operand_bytes(const struct ek_op *op, const struct ek_operand *operand, const void *args);

/* Whether the choice accepts the value. A dtype may be 0, `of`, which is the dtype that it follows, or f32 when `of` has 16
 * bits; a choice that narrows may also have 16 bits when `of` is f32. */
bool ek_choice_allows(const struct ek_choice *choice, ek_dtype of, int value);

/* The number of the operand of that name; -1: there is none. */
int ek_operand_named(const struct ek_op *op, const char *name);

#endif
