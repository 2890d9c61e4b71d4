/* A case: an op of the registry, a pass, dtypes, sizes, which operands there are and how they lie in memory. Argument
 * structs are built from it by the op's table (core/operand.h). `evenkeel verify`, run and bench and the tests make their
 * calls from cases. SPDX-License-Identifier: MIT */
#ifndef VERIFY_CASE_H
#define VERIFY_CASE_H

#include "buffer.h"
#include "ops/glu/op.h"
#include "ops/norm/op.h"
#include "ops/registry.h"
#include "ops/rope/op.h"
#include "values.h"

enum pass { FORWARD, BACKWARD, PASS_COUNT };
extern const char *const pass_names[PASS_COUNT];

struct test_case {
	const struct ek_op_entry *op;
	enum pass pass;
	ek_dtype dtype; /* of the op */
	union {
		int choices[EK_MOST_CHOICES]; /* by number; dtypes of 0 are the op's */
		struct {
			ek_dtype weight_dtype, h_dtype, y_dtype, gradient_dtype;
			int weight_offset, rounding, activation, gate_first, interleaved;
			ek_dtype table_dtype;
			int trailing, norm, norm_last;
		};
	};
	union {
		int64_t sizes[EK_MOST_SIZES]; /* by number */
		struct {
			int64_t rows, cols, group_cols; /* the last of the norms */
		};
		struct { /* of ek_rope */
			int64_t batch, seq, heads, k_heads, head_dim, rotary_dim, table_rows, table_step,
				first_row;
		};
	};
	uint32_t present; /* operands, by number */
	bool accumulate;
	bool arbitrary; /* inputs that forward returns are not those of forward */
	bool packed; /* rows of gate and value, and of their gradients, are halves of rows of one tensor; pad says so too */
	uint8_t over
		[EK_MOST_OPERANDS]; /* of outputs: the input, numbered from 1, whose memory it takes; 0: none */
	enum placement placement;
	int64_t pad[EK_MOST_OPERANDS]; /* elements between rows, by number, and between blocks of them */
	uint32_t heads_first; /* operands whose heads lie outside of their tokens in memory, a bit each */
	int offset[EK_MOST_OPERANDS]; /* bytes past a 64-byte boundary */
	enum filling filling;
	union {
		double scalars[EK_SCALARS]; /* by number; those that the op does not have are left out */
		struct {
			double eps, limit, alpha, value_offset;
		};
	};
	uint64_t seed;
};

/* The dtypes that go together (EK_NORM_DTYPES). */
struct dtype_pair {
	ek_dtype dtype, weight_dtype;
};
#define COUNT_PAIR(dtype, weight_dtype) +1
enum { DTYPE_PAIRS = EK_NORM_DTYPES(COUNT_PAIR) };
extern const struct dtype_pair dtype_pairs[DTYPE_PAIRS];

/* A case with every operand, dense and aligned. */
struct test_case case_make(const struct ek_op_entry *op, enum pass pass, struct dtype_pair dtypes,
			   int64_t rows, int64_t cols);
/* The same of an op on heads: batch, seq, heads, k_heads, head_dim and rotary_dim; with tables of as many rows as tokens need. */
struct head_sizes {
	int64_t batch, seq, heads, k_heads, head_dim, rotary_dim;
};
struct test_case case_make_heads(const struct ek_op_entry *op, enum pass pass, struct dtype_pair dtypes,
				 struct head_sizes sizes);
/* Its op in that pass. */
static inline const struct ek_op *case_op(const struct test_case *c)
{
	return c->pass == BACKWARD ? c->op->backward : c->op->forward;
}

/* Whether its columns may be cut into groups (group_cols). */
static inline bool case_has_groups(const struct test_case *c)
{
	return case_op(c)->size_count > EK_NORM_GROUP_COLS && case_op(c)->sizes[EK_NORM_GROUP_COLS].cuts;
}

/* ---- which operands there are ----
 * Words are names of operands, "all" of them, "accumulate", "arbitrary", "in_place" (the first output over the first input
 * that the table allows), "over_INPUT" (the first output that may be), "OUTPUT_over_INPUT" and "all_in_place" (each output
 * over an input that is left), with spaces between them. Those that this pass or this op does not have are left out; a word that no pass
 * of the op has ends the program. What an operand needs comes with it, and goes with it. */
void case_set(struct test_case *c, const char *words); /* these optional ones alone */
void case_add(struct test_case *c, const char *words);
void case_drop(struct test_case *c, const char *words);
bool case_has(const struct test_case *c, const char *word);
/* The same by numbers. */
void case_drop_operands(struct test_case *c, uint32_t operands);
/* Makes any bits of present, accumulate, arbitrary, over and choices a call that is allowed. */
void case_normalise(struct test_case *c);
/* Operands that may be absent; outputs; inputs that forward returns. */
uint32_t case_optional(const struct test_case *c);
uint32_t case_outputs_of(const struct test_case *c);
uint32_t case_statistics(const struct test_case *c);
/* Drops what forward returns for backward: its outputs, or backward's inputs. */
void case_drop_statistics(struct test_case *c);
#define STATISTICS "mean rstd mean_lo"

/* In-place form number i: none, each output over each input that it may take, all outputs. false: there are fewer. */
bool case_set_over(struct test_case *c, int i);
/* The output that takes the memory of this input; -1: none. */
int case_over(const struct test_case *c, int input);

/* Combinations of the dtypes and options that a call of this dtype and weight_dtype may choose; 0 is the default of all. */
int case_choice_count(const struct test_case *c);
void case_choose(struct test_case *c, int number);

/* Of a case of backward: forward with those outputs alone that backward is given. */
struct test_case case_forward(const struct test_case *c);

/* What it is, in one line; valid until the next call. The golden digests are listed by it. */
const char *case_text(const struct test_case *c);

/* ---- arguments ---- */

union op_args {
	size_t size;
	ek_norm_forward_args forward;
	ek_norm_backward_args backward;
	ek_glu_forward_args glu_forward;
	ek_glu_backward_args glu_backward;
	ek_rope_forward_args rope_forward;
	ek_rope_backward_args rope_backward;
	unsigned char bytes[512];
};

/* The arguments of a case whose operands are at these addresses, by number; at NULL: without memory. */
void case_args(const struct test_case *c, void *const at[EK_MOST_OPERANDS], union op_args *args);
/* Addresses that nothing is read from: what counts is that they are there, and their alignment. */
void case_args_nowhere(const struct test_case *c, union op_args *args);
void args_set_workspace(const struct ek_op *op, void *args, void *workspace, size_t bytes);
void args_set_stream(const struct ek_op *op, void *args, void *stream);
/* Bytes that a call with these arguments needs; 0 where the op needs none. */
ek_status args_workspace(const struct ek_op *op, ek_context *ctx, const void *args, size_t *bytes);
/* Cuts the call to `count` from `first` on of its outermost size: of the norms, its rows. */
void args_take_rows(const struct ek_op *op, void *args, int64_t first, int64_t count);

/* The number of the operand of that name, which must be there. */
int operand_number(const struct ek_op *op, const char *name);
/* Bytes of an operand without gaps between rows, and from a row to the next. */
int64_t operand_bytes(const struct test_case *c, int number);
int64_t stride_bytes(const struct test_case *c, int number);
ek_dtype operand_dtype(const struct test_case *c, int number);

#endif
