/* libFuzzer harness over the argument structs of all ops: the input's bytes choose an op, sizes, strides, dtypes and
 * where in a small arena each operand of its table lies. A call that is accepted must leave the arena as the reference
 * leaves it, bit for bit; a refused one must leave it alone; and what is plainly wrong must be refused,
 * what is plainly right accepted. `make fuzz` builds and runs it. SPDX-License-Identifier: MIT */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "ops/choices.h"
#include "ops/norm/op.h"
#include "ops/rope/op.h"
#include "ops/registry.h"
#include "verify/case.h"
#include "verify/random.h"

enum { ARENA = 64 << 10, WORKSPACE = 4 << 20, CONTEXTS = 16 };

static _Alignas(64) unsigned char start[ARENA], expected[ARENA], actual[ARENA];
static _Alignas(64) unsigned char reference_workspace[WORKSPACE];
static ek_context *reference, *contexts[CONTEXTS];
static int context_count;
static long calls, accepted;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fuzz_norm: %s; the last message was: %s\n", what, ek_error(reference));
	abort();
}

static void print_totals(void)
{
	fprintf(stderr, "fuzz_norm: %ld calls, %ld of them accepted\n", calls, accepted);
}

static void open_contexts(void)
{
	atexit(print_totals);
	ek_options options = {.size = sizeof options, .isa = "reference"};
	require(ek_open(&reference, &options) == EK_OK, "the reference does not open");
	int usable;
	for (int i = 1; (options.isa = ek_cpu_level(i, &usable)) != NULL; i++) {
		for (int form = 0; usable && form < 2 && context_count < CONTEXTS; form++) {
			options.threads = form ? 3 : 1;
			options.stream_bytes =
				form ? 1 : 0; /* every result past the caches, or none this small */
			require(ek_open(&contexts[context_count++], &options) == EK_OK,
				"a usable level does not open");
		}
	}
}

/* ---- reading the input ---- */

struct input {
	const uint8_t *data;
	size_t left;
};

static uint64_t take(struct input *in, int bytes)
{
	uint64_t value = 0;
	for (int i = 0; i < bytes && in->left > 0; i++, in->left--)
		value |= (uint64_t)*in->data++ << 8 * i;
	return value;
}

static int64_t below(struct input *in, int64_t limit)
{
	return (int64_t)(take(in, 2) % (uint64_t)limit);
}

/* Mostly `usual`; now and then a number from the edges, or any number at all. */
static int64_t unusual(struct input *in, int64_t usual)
{
	static const int64_t edges[] = {0,
					-1,
					1,
					EK_MAX_COLS,
					EK_MAX_COLS + 1,
					INT64_MAX,
					INT64_MIN,
					INT64_MAX / 8,
					(int64_t)1 << 31,
					(int64_t)1 << 40,
					(int64_t)1 << 62};
	switch (take(in, 1)) {
	case 254:
		return edges[take(in, 1) % (sizeof edges / sizeof edges[0])];
	case 255:
		return (int64_t)take(in, 8);
	default:
		return usual;
	}
}

static int64_t take_stride(struct input *in, int64_t dense)
{
	switch (take(in, 1) % 4) {
	case 0:
		return unusual(in, 0);
	case 1:
		return (int64_t)((uint64_t)dense + take(in, 1)); /* padded rows; of any cols, INT64_MAX too */
	case 2:
		return (int64_t)((uint64_t)dense * 2);
	default:
		return unusual(in, dense);
	}
}

/* Mostly one of the first four. */
static double take_scalar(struct input *in, enum ek_scalar scalar)
{
	static const double usual[EK_SCALARS][9] = {
		[EK_EPS] = {1e-5, 1e-6, 0, 1, 1e-40, 1e300, -1e-5, NAN, INFINITY},
		[EK_LIMIT] = {0, 7, 0.5, 0x1p126, 1e-40, 1e300, -1, NAN, INFINITY},
		[EK_ALPHA] = {0, 1, 0, 1.702, 1e-40, 1e300, -1, NAN, INFINITY},
		[EK_VALUE_OFFSET] = {0, 0, 1, -0.25, 1e-40, 1e300, -1, NAN, INFINITY}};
	uint64_t choice = take(in, 1);
	return usual[scalar][choice < 200 ? choice % 4 : choice % 9];
}

static int take_enum(struct input *in, int limit)
{
	return take(in, 1) == 255 ? (int)take(in, 4) : (int)(take(in, 1) % (unsigned)limit) + 1;
}

/* ---- one call, and what the harness itself thinks of it ---- */

struct call {
	const struct ek_op *op;
	union op_args args;
	size_t bytes[EK_MOST_OPERANDS]; /* from the first byte of an operand to its last */
	bool wrong;                     /* must be refused */
	bool too_wide; /* some operand does not fit in the arena: not to be called if it might be accepted */
	bool overlap;  /* some output touches another operand: may be refused */
	size_t used;   /* of the arena, by operands laid out one after another */
	size_t workspace_bytes;
};

static unsigned char *operand_at(const struct call *call, int i)
{
	return ek_operand_pointer(&call->op->operands[i], &call->args);
}

static int int_at(const struct call *call, uint16_t offset)
{
	int value;
	memcpy(&value, ek_field(&call->args, offset), sizeof value);
	return value;
}

/* Of an op that has kinds; else 0. */
static int kind_of(const struct call *call)
{
	return call->op->kind ? int_at(call, call->op->kind) : 0;
}

/* Of a choice: as given, or the dtype that it follows. */
static int chosen_dtype(const struct call *call, int number)
{
	const struct ek_op *op = call->op;
	int own = op->choice[number] ? int_at(call, op->choice[number]) : 0,
	    follows = op->choices[number].follows;
	if (own)
		return own;
	return follows ? chosen_dtype(call, follows - 1) : int_at(call, op->dtype);
}

static ek_dtype dtype_of(const struct call *call, const struct ek_operand *operand)
{
	const struct ek_op *op = call->op;
	int dtype = int_at(call, op->dtype);
	if (!operand->dtype)
		return dtype == EK_F64 ? EK_F64 : EK_F32;
	for (int i = 0; i < op->choice_count; i++)
		if (op->choice[i] == operand->dtype)
			return (ek_dtype)chosen_dtype(call, i);
	return (ek_dtype)dtype;
}

/* Whether the library reads a field: an earlier version's struct, which .size tells, ends before the later ones. */
static bool has_field(const struct call *call, size_t offset, size_t bytes)
{
	bool earlier = call->args.size >= call->op->first_args_size && call->args.size < call->op->args_size;
	return !earlier || offset + bytes <= call->args.size;
}

/* Fields that the library does not read stay zero; offset 0 is that of none. */
static void set(struct call *call, uint16_t offset, const void *value, size_t bytes)
{
	if (offset && has_field(call, offset, bytes))
		memcpy(ek_field(&call->args, offset), value, bytes);
}

static bool is_kind(const struct call *call, int kind)
{
	if (!call->op->kind)
		return true;
	for (int i = 0; i < EK_NORM_OPS; i++)
		if ((ek_ops[i].forward == call->op || ek_ops[i].backward == call->op) &&
		    ek_ops[i].kind == kind)
			return true;
	return false;
}

/* a * b, or INT64_MAX where that is more or makes no sense. */
static int64_t product(int64_t a, int64_t b)
{
	int64_t result;
	return a < 0 || b < 0 || __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

static bool is_on_heads(const struct ek_op *op)
{
	return op == &ek_rope_forward_op || op == &ek_rope_backward_op;
}

/* A size as it is meant: the 0 of k_heads and of rotary_dim stands for the size of which they are at most all. */
static int64_t size_of(const struct call *call, int number)
{
	int64_t size = ek_size_of(call->op, number, &call->args);
	bool follows = is_on_heads(call->op) && (number == EK_ROPE_K_HEADS || number == EK_ROPE_ROTARY_DIM);
	return follows && size == 0 ? ek_size_of(call->op, number - 1, &call->args) : size;
}

/* The pieces into which a size cuts another; of a size that must be refused, 1. */
static int64_t pieces_of(const struct call *call, int size)
{
	int64_t piece = size_of(call, size);
	int64_t of = size_of(call, call->op->sizes[size].cuts - 1);
	return piece > 0 && of > 0 && of % piece == 0 ? of / piece : 1;
}

static int64_t dim_of(const struct call *call, const struct ek_dim *dim)
{
	int64_t size = size_of(call, dim->size);
	if (dim->halves)
		return size / 2;
	if (dim->pairs && int_at(call, call->op->choice[dim->pairs - 1]))
		return product(2, size);
	return dim->pieces ? product(size, pieces_of(call, dim->pieces - 1)) : size;
}

/* The distance of neighbours in a dimension: as given, or such that they follow each other. */
static int64_t stride_of(const struct call *call, const struct ek_operand *operand, int dim)
{
	int64_t stride = 0;
	if (dim == operand->rank - 1)
		return 1;
	if (operand->dims[dim].stride)
		memcpy(&stride, ek_field(&call->args, operand->dims[dim].stride), sizeof stride);
	if (stride)
		return stride;
	int64_t inner = dim_of(call, &operand->dims[dim + 1]);
	return product(stride_of(call, operand, dim + 1), inner == 0 ? 1 : inner);
}

static int64_t element_bytes(const struct call *call, const struct ek_operand *operand)
{
	return operand->flags & EK_INDEX ? (int64_t)sizeof(int64_t)
					 : (int64_t)ek_dtype_size(dtype_of(call, operand));
}

static bool is_empty(const struct call *call, const struct ek_operand *operand)
{
	for (int dim = 0; dim < operand->rank; dim++)
		if (size_of(call, operand->dims[dim].size) == 0)
			return true;
	return false;
}

/* From the first byte to the last; INT64_MAX: more than there are. */
static int64_t extent(const struct call *call, const struct ek_operand *operand)
{
	int64_t elements = 1;
	for (int dim = 0; dim < operand->rank; dim++) {
		int64_t size = dim_of(call, &operand->dims[dim]);
		if (size <= 0)
			return size < 0 ? INT64_MAX : 0;
		int64_t span = product(size - 1, stride_of(call, operand, dim));
		elements = span > INT64_MAX - elements ? INT64_MAX : elements + span;
	}
	return product(elements, element_bytes(call, operand));
}

/* Whether elements of an output may be the same: the dimensions, by stride, must each lie beyond those inside. */
static bool reaches_into_itself(const struct call *call, const struct ek_operand *output)
{
	int64_t inside = dim_of(call, &output->dims[output->rank - 1]);
	for (unsigned left = (1u << (output->rank - 1)) - 1; left;) {
		int next = __builtin_ctz(left);
		for (int dim = next + 1; dim < output->rank - 1; dim++)
			if (left >> dim & 1 && stride_of(call, output, dim) < stride_of(call, output, next))
				next = dim;
		left &= ~(1u << next);
		int64_t stride = stride_of(call, output, next), count = dim_of(call, &output->dims[next]);
		if (count > 1 && stride < inside)
			return true;
		inside += count > 1 ? product(count - 1, stride) : 0;
	}
	return false;
}

/* Whether an operand must be refused for its strides alone. */
static bool wrong_strides(const struct call *call, int number)
{
	const struct ek_operand *operand = &call->op->operands[number];
	int64_t inner = dim_of(call, &operand->dims[operand->rank - 1]), reach = 0;
	for (int dim = 0; dim < operand->rank - 1; dim++) {
		int64_t stride = stride_of(call, operand, dim);
		int64_t bytes = product(product(stride, element_bytes(call, operand)),
					size_of(call, operand->dims[dim].size));
		if (stride < inner || bytes > INT64_MAX - 1 - reach ||
		    product(stride, element_bytes(call, operand)) == INT64_MAX)
			return true;
		reach += bytes;
	}
	bool written = number < call->op->output_count && operand_at(call, number);
	return operand->rank > 2 && written && !is_empty(call, operand) && reaches_into_itself(call, operand);
}

/* The same, f32 beside 16 bits, and of y 16 bits beside f32. */
static bool may_follow(const char *name, int of, int dtype)
{
	bool short_of = of == EK_F16 || of == EK_BF16, is_short = dtype == EK_F16 || dtype == EK_BF16;
	return dtype == of || (short_of && dtype == EK_F32) ||
	       (strcmp(name, "y_dtype") == 0 && of == EK_F32 && is_short);
}

static void take_dtypes(struct input *in, struct call *call)
{
	const struct ek_op *op = call->op;
	int dtype = take_enum(in, EK_F64);
	set(call, op->dtype, &dtype, sizeof dtype);
	call->wrong = dtype < EK_F32 || dtype > EK_F64;
	for (int i = 0; i < op->choice_count; i++) {
		const struct ek_choice *choice = &op->choices[i];
		uint64_t how = take(in, 1);
		int value = how < 200          ? 0
			    : choice->is_dtype ? take_enum(in, EK_F64)
					       : take_enum(in, choice->most);
		if (how >= 100 && how < 200) /* mostly what may be */
			value = choice->is_dtype ? (int)EK_F32 : 1;
		if (!op->choice[i] || !has_field(call, op->choice[i], sizeof value))
			continue;
		set(call, op->choice[i], &value, sizeof value);
		int of = choice->follows ? chosen_dtype(call, choice->follows - 1) : dtype;
		call->wrong = call->wrong || (choice->is_dtype ? value && !may_follow(choice->name, of, value)
							       : value < 0 || value > choice->most);
	}
}

/* Mostly 0 or a divisor. */
static void take_cut(struct input *in, struct call *call, int number)
{
	const struct ek_size *size = &call->op->sizes[number];
	int64_t of = size_of(call, size->cuts - 1), pieces = 1 + below(in, 12);
	int64_t value = take(in, 1) % 2 ? 0 : unusual(in, of > 0 && of % pieces == 0 ? of / pieces : 0);
	if (!has_field(call, size->offset, sizeof value))
		return;
	set(call, size->offset, &value, sizeof value);
	bool divides = value > 0 && of > 0 && of % value == 0;
	call->wrong = call->wrong || (value != 0 && !divides) ||
		      product(size_of(call, 0), pieces_of(call, number)) > call->op->sizes[0].most;
}

/* Of rows and columns. */
static void take_row_sizes(struct input *in, struct call *call)
{
	const struct ek_op *op = call->op;
	bool tall = take(in, 1) % 2;
	for (int i = 0; i < op->size_count; i++) {
		bool last = i == op->size_count - 1 || op->sizes[i + 1].cuts;
		int64_t usual = last ? 1 + below(in, tall ? 130 : 2100) : below(in, tall ? 80 : 6);
		if (op->sizes[i].cuts) {
			take_cut(in, call, i);
			continue;
		}
		int64_t size = unusual(in, usual);
		set(call, op->sizes[i].offset, &size, sizeof size);
		call->wrong = call->wrong || size < op->sizes[i].least || size > op->sizes[i].most;
	}
}

/* Heads that do not go together, more of them than there may be, and tables that are too short. */
static bool wrong_heads(const struct call *call)
{
	const struct ek_op *op = call->op;
	for (int i = 0; i < op->size_count; i++)
		if (size_of(call, i) < op->sizes[i].least || size_of(call, i) > op->sizes[i].most)
			return true;
	int64_t batch = size_of(call, EK_ROPE_BATCH), seq = size_of(call, EK_ROPE_SEQ),
		heads = size_of(call, EK_ROPE_HEADS), head_dim = size_of(call, EK_ROPE_HEAD_DIM),
		rotary_dim = size_of(call, EK_ROPE_ROTARY_DIM);
	return rotary_dim % 2 || rotary_dim > head_dim || heads % size_of(call, EK_ROPE_K_HEADS) ||
	       heads * head_dim > EK_MAX_COLS ||
	       product(product(batch, seq), heads * head_dim) > PTRDIFF_MAX / 32;
}

/* Mostly few tokens, heads of which k has a part, and tables of as many rows as tokens need; so many elements that a call
 * would take long are too wide. */
static void take_head_sizes(struct input *in, struct call *call)
{
	enum { MOST_ELEMENTS = 1 << 18 };
	const struct ek_op *op = call->op;
	bool tall = take(in, 1) % 2, first_rows = take(in, 1) % 2;
	int64_t usual[EK_ROPE_SIZES];
	usual[EK_ROPE_BATCH] = below(in, 4);
	usual[EK_ROPE_SEQ] = below(in, tall ? 40 : 5);
	usual[EK_ROPE_K_HEADS] = 1 + below(in, 3);
	usual[EK_ROPE_HEADS] = usual[EK_ROPE_K_HEADS] * (1 + below(in, 3));
	usual[EK_ROPE_HEAD_DIM] = 2 + 2 * below(in, tall ? 9 : 70);
	usual[EK_ROPE_ROTARY_DIM] = 2 + 2 * below(in, usual[EK_ROPE_HEAD_DIM] / 2);
	usual[EK_ROPE_TABLE_STEP] = first_rows ? 0 : below(in, 8);
	usual[EK_ROPE_OFFSET] = first_rows ? 0 : below(in, 8);
	int64_t end = (usual[EK_ROPE_BATCH] - 1) * usual[EK_ROPE_TABLE_STEP] + usual[EK_ROPE_OFFSET] +
		      usual[EK_ROPE_SEQ] + below(in, 5) - 1; /* now and then a row too few */
	usual[EK_ROPE_TABLE_ROWS] = end < 0 ? 0 : end;
	switch (take(in, 1) % 4) { /* zeros, and the last element of a head alone */
	case 0:
		usual[EK_ROPE_ROTARY_DIM] = 0;
		break;
	case 1:
		usual[EK_ROPE_K_HEADS] = 0;
		break;
	case 2:
		usual[EK_ROPE_HEAD_DIM]++;
		break;
	default:
		break;
	}
	for (int i = 0; i < op->size_count; i++) {
		int64_t size = unusual(in, usual[i]);
		set(call, op->sizes[i].offset, &size, sizeof size);
	}
	call->wrong = call->wrong || wrong_heads(call);
	call->too_wide = product(product(size_of(call, EK_ROPE_BATCH), size_of(call, EK_ROPE_SEQ)),
				 product(size_of(call, EK_ROPE_HEADS), size_of(call, EK_ROPE_HEAD_DIM))) >
			 MOST_ELEMENTS;
}

static void take_strides(struct input *in, struct call *call)
{
	const struct ek_op *op = call->op;
	for (int i = 0; i < op->operand_count; i++)
		for (int dim = op->operands[i].rank - 2; dim >= 0; dim--) {
			int64_t stride = take_stride(in, stride_of(call, &op->operands[i], dim));
			if (op->operands[i].dims[dim].stride)
				set(call, op->operands[i].dims[dim].stride, &stride, sizeof stride);
		}
}

/* The number of an operand that this one needs, in this kind of op; -1: none. */
static int needed_by(const struct call *call, int i)
{
	const struct ek_operand *operand = &call->op->operands[i];
	bool needs = operand->needs.number &&
		     (!operand->needs.kinds || operand->needs.kinds >> (kind_of(call) & 31) & 1) &&
		     (!operand->needs.choice || int_at(call, call->op->choice[operand->needs.choice - 1]));
	return needs ? operand->needs.number - 1 : -1;
}

/* Whether an operand that is there already needs this one. */
static bool is_needed(const struct call *call, int i)
{
	for (int other = 0; other < i; other++)
		if (operand_at(call, other) && needed_by(call, other) == i)
			return true;
	return false;
}

/* Whether operands or choices exclude the operand; or sizes, which say where rows of tables are, positions. */
static bool is_excluded(const struct call *call, int i)
{
	const struct ek_op *op = call->op;
	const struct ek_operand *operand = &op->operands[i];
	for (int other = 0; other < op->operand_count; other++)
		if (operand->excludes >> other & 1 && operand_at(call, other))
			return true;
	if (operand->flags & EK_INDEX &&
	    (size_of(call, EK_ROPE_OFFSET) != 0 || size_of(call, EK_ROPE_TABLE_STEP) != 0))
		return true;
	return (operand->with_choice && !int_at(call, op->choice[operand->with_choice - 1])) ||
	       (operand->without_choice && int_at(call, op->choice[operand->without_choice - 1]));
}

/* Whether the operand is there: those that must be mostly, others often, with what they need and what the op has. */
static bool take_presence(struct input *in, const struct call *call, int i, uint64_t choice)
{
	const struct ek_operand *operand = &call->op->operands[i];
	int needed = needed_by(call, i);
	if (!ek_operand_has_kind(operand, kind_of(call) & 31))
		return take(in, 1) == 0;
	if (needed >= 0 && needed < i && (needed_by(call, needed) == i || !operand_at(call, needed)))
		return choice < 4 ? !operand_at(call, needed) : operand_at(call, needed) != NULL;
	if (is_excluded(call, i))
		return choice < 4;
	bool often = !(operand->flags & EK_OPTIONAL) || operand->instead || is_needed(call, i);
	return choice >= (often ? 4 : 100);
}

/* Lays an operand out: absent, after those before it, over another one, or anywhere. */
static void place(struct input *in, struct call *call, int i)
{
	uint64_t choice = take(in, 1);
	if (!take_presence(in, call, i, choice) ||
	    !has_field(call, call->op->operands[i].pointer, sizeof(void *)))
		return;
	int64_t bytes = extent(call, &call->op->operands[i]);
	size_t offset = call->used + take(in, 1) % 65;
	const unsigned char *other = operand_at(call, (int)(take(in, 1) % call->op->operand_count));
	if (choice > 250)
		offset = (size_t)below(in, ARENA);
	else if (choice > 235 && other)
		offset = (size_t)(other - actual);
	if (bytes > ARENA || offset > ARENA - (size_t)bytes) {
		if (call->op->operands[i].flags & EK_INDEX)
			return; /* what is wrong beside them may be found after they were read */
		call->too_wide = true;
		offset = 0;
		bytes = 0;
	}
	ek_operand_set(&call->op->operands[i], &call->args, actual + offset);
	call->bytes[i] = (size_t)bytes;
	if (offset + (size_t)bytes > call->used)
		call->used = offset + (size_t)bytes;
}

/* Operands without which, or with which, a call must be refused. */
static bool wrong_presence(const struct call *call)
{
	const struct ek_op *op = call->op;
	bool any_output = false;
	for (int i = 0; i < op->operand_count; i++) {
		int needed = needed_by(call, i);
		bool there = operand_at(call, i);
		bool optional = op->operands[i].flags & EK_OPTIONAL;
		int instead = op->operands[i].instead;
		any_output = any_output || (i < op->output_count && (there || !optional));
		if (there ? !ek_operand_has_kind(&op->operands[i], kind_of(call)) || is_excluded(call, i) ||
				    (needed >= 0 && !operand_at(call, needed) &&
				     !is_empty(call, &op->operands[needed]))
			  : (!optional || (instead > 0 && !operand_at(call, instead - 1))) &&
				    !is_empty(call, &op->operands[i]))
			return true;
	}
	for (int i = 0; i < op->choice_count; i++)
		if (op->choices[i].operand && op->choice[i] && int_at(call, op->choice[i]) &&
		    !operand_at(call, operand_number(op, op->choices[i].operand)))
			return true;
	return !any_output;
}

static double double_at(const struct call *call, enum ek_scalar scalar)
{
	double value = 0;
	if (call->op->scalar[scalar])
		memcpy(&value, ek_field(&call->args, call->op->scalar[scalar]), sizeof value);
	return value;
}

/* Rounded to the arithmetic eps is finite; the others are normal numbers, whose reciprocals are, or none. */
static bool wrong_scalar(const struct call *call, enum ek_scalar scalar, double value)
{
	const bool wide = int_at(call, call->op->dtype) == EK_F64;
	const double least = wide ? DBL_MIN : (double)FLT_MIN, most = wide ? 0x1p1022 : 0x1p126;
	if (scalar == EK_EPS)
		return !isfinite(wide ? value : (double)(float)value) || value < 0;
	if (scalar == EK_VALUE_OFFSET)
		return !(fabs(value) <= most);
	return value != 0 && !(value >= least && value <= most);
}

/* alpha is that of a SiLU, gated activations have one, and norms not all. */
static bool wrong_activation(const struct call *call)
{
	const struct ek_op *op = call->op;
	if (!op->choice[EK_CHOICE_ACTIVATION])
		return false;
	int activation = int_at(call, op->choice[EK_CHOICE_ACTIVATION]);
	double alpha = double_at(call, EK_ALPHA);
	if (op->kind)
		return activation > EK_GELU_TANH;
	return activation == EK_NO_ACTIVATION || (alpha != 0 && alpha != 1 && activation != EK_SILU);
}

/* An offset without a value. */
static bool wrong_offset(const struct call *call)
{
	const struct ek_op *op = call->op;
	int value = ek_operand_named(op, "value");
	return double_at(call, EK_VALUE_OFFSET) != 0 && !operand_at(call, value) &&
	       !int_at(call, op->choice[EK_CHOICE_INTERLEAVED]);
}

/* A norm after the turn without a norm, or the last token behind the last row of the tables. */
static bool wrong_rope(const struct call *call)
{
	int64_t batch = size_of(call, EK_ROPE_BATCH), seq = size_of(call, EK_ROPE_SEQ),
		rows = size_of(call, EK_ROPE_TABLE_ROWS), step = size_of(call, EK_ROPE_TABLE_STEP),
		offset = size_of(call, EK_ROPE_OFFSET);
	if (int_at(call, call->op->choice[EK_CHOICE_NORM_LAST]) &&
	    !int_at(call, call->op->choice[EK_CHOICE_NORM]))
		return true;
	if (call->wrong || batch == 0 || seq == 0 || operand_at(call, operand_number(call->op, "positions")))
		return false;
	return product(batch - 1, step) > rows || rows - product(batch - 1, step) < offset + seq;
}

/* Writes positions where they lie, mostly all of them rows of the tables. */
static void take_positions(struct input *in, struct call *call)
{
	int number = operand_number(call->op, "positions");
	const struct ek_operand *positions = &call->op->operands[number];
	unsigned char *at = operand_at(call, number);
	int64_t batch = size_of(call, EK_ROPE_BATCH), seq = size_of(call, EK_ROPE_SEQ),
		rows = size_of(call, EK_ROPE_TABLE_ROWS), stride = stride_of(call, positions, 0);
	if (!at || call->bytes[number] == 0 || stride < seq)
		return;
	uint64_t state = take(in, 2);
	int64_t wrong = take(in, 1) % 16 == 0 ? below(in, batch * seq) : -1;
	for (int64_t i = 0; i < batch * seq; i++) {
		int64_t position = rows > 0 ? (int64_t)(random_bits(&state) % (uint64_t)rows) : 0;
		if (i == wrong)
			position = unusual(in, take(in, 1) % 2 ? rows : -1);
		call->wrong = call->wrong || position < 0 || position >= rows;
		memcpy(start + (at - actual) + (i / seq * stride + i % seq) * 8, &position, sizeof position);
	}
}

static void take_call(struct input *in, struct call *call)
{
	const struct ek_op *op = call->op;
	int kind = take_enum(in, 2), accumulate = take(in, 1) % 2;
	call->args.size = take(in, 1) == 255 ? (size_t)take(in, 8) : op->args_size;
	set(call, op->kind, &kind, sizeof kind);
	take_dtypes(in, call);
	if (is_on_heads(op))
		take_head_sizes(in, call);
	else
		take_row_sizes(in, call);
	take_strides(in, call);
	if (op->accumulate)
		set(call, op->accumulate, &accumulate, sizeof accumulate);
	for (int i = 0; i < EK_SCALARS; i++) {
		double value = op->scalar[i] ? take_scalar(in, (enum ek_scalar)i) : 0;
		set(call, op->scalar[i], &value, sizeof value);
		call->wrong = call->wrong || wrong_scalar(call, (enum ek_scalar)i, value);
	}
	call->wrong = call->wrong || call->args.size < op->first_args_size ||
		      call->args.size > op->args_size || !is_kind(call, kind) || wrong_activation(call);
	for (int i = 0; i < op->operand_count; i++) {
		place(in, call, i);
		call->wrong = call->wrong || wrong_strides(call, i);
	}
	call->wrong = call->wrong || wrong_presence(call) || wrong_offset(call);
	if (is_on_heads(op)) {
		call->wrong = call->wrong || wrong_rope(call);
		take_positions(in, call);
	}
}

/* Asks for the workspace and lays it out, at times too small, misaligned or over something else. */
static void take_workspace(struct input *in, struct call *call, ek_context *ctx)
{
	size_t bytes = 0;
	if (args_workspace(call->op, ctx, &call->args, &bytes) != EK_OK || bytes == 0)
		return;
	uint64_t choice = take(in, 1);
	size_t offset = (call->used + 63) / 64 * 64;
	if (choice > 250)
		offset = (size_t)below(in, ARENA) & ~(size_t)(choice % 2 ? 63 : 0);
	size_t given = choice == 250 ? bytes - 1 : choice == 249 ? (size_t)take(in, 8) : bytes;
	if (bytes > ARENA || offset > ARENA - bytes) {
		call->too_wide = true;
		return;
	}
	args_set_workspace(call->op, &call->args, choice == 248 ? NULL : actual + offset, given);
	call->workspace_bytes = bytes;
	call->wrong = call->wrong || choice == 248 || given < bytes || offset % 64 != 0;
	call->overlap = call->overlap || offset < call->used || choice == 249;
}

/* Ranges from first to last byte: rows that interleave count as touching, the library may know better. */
static void find_overlaps(struct call *call)
{
	for (int i = 0; i < call->op->output_count; i++)
		for (int k = 0; k < call->op->operand_count; k++) {
			const unsigned char *a = operand_at(call, i), *b = operand_at(call, k);
			if (i != k && a && b && a < b + call->bytes[k] && b < a + call->bytes[i])
				call->overlap = true;
		}
}

/* ---- running and comparing ---- */

/* Mostly bytes that make a moderate, finite number of either sign in every dtype at every alignment; or
 * any bytes, NaN and infinity among them. */
static void fill_arena(uint64_t seed)
{
	bool any = seed % 4 == 0;
	uint64_t state = seed;
	for (size_t i = 0; i < ARENA; i += 8) {
		uint64_t random = random_bits(&state);
		uint64_t bytes = any ? random : (random & 0x8787878787878787u) | 0x3838383838383838u;
		memcpy(start + i, &bytes, 8);
	}
}

/* The same call by the reference, in the arena `expected`. */
static ek_status call_reference(const struct call *call)
{
	union op_args args = call->args;
	size_t needed = 0;
	for (int i = 0; i < call->op->operand_count; i++)
		if (operand_at(call, i))
			ek_operand_set(&call->op->operands[i], &args,
				       expected + (operand_at(call, i) - actual));
	require(args_workspace(call->op, reference, &args, &needed) == EK_OK, "the reference refuses sizes");
	require(needed <= WORKSPACE, "the harness has too little workspace for the reference");
	args_set_workspace(call->op, &args, reference_workspace, needed);
	return call->op->call(reference, &args);
}

/* NaN payloads are not promised: every NaN of an output becomes the same one. */
static void level_nans(const struct call *call, const struct ek_operand *operand, int dim, unsigned char *at)
{
	ek_dtype dtype = dtype_of(call, operand);
	size_t size = ek_dtype_size(dtype);
	int64_t count = dim_of(call, &operand->dims[dim]);
	for (int64_t i = 0; i < count; i++) {
		unsigned char *element = at + (size_t)(i * stride_of(call, operand, dim)) * size;
		if (dim < operand->rank - 1)
			level_nans(call, operand, dim + 1, element);
		else if (bits_are_nan(dtype, element_bits(dtype, element, 0)))
			memset(element, 0xff, size);
	}
}

static void compare(const struct call *call)
{
	require(call_reference(call) == EK_OK, "a level accepts what the reference refuses");
	for (int i = 0; i < call->op->output_count; i++)
		if (operand_at(call, i) && !is_empty(call, &call->op->operands[i])) {
			level_nans(call, &call->op->operands[i], 0, operand_at(call, i));
			level_nans(call, &call->op->operands[i], 0,
				   expected + (operand_at(call, i) - actual));
		}
	if (call->workspace_bytes) { /* scratch: nothing is promised of it */
		unsigned char *workspace;
		memcpy(&workspace, ek_field(&call->args, call->op->workspace), sizeof workspace);
		memcpy(expected + (workspace - actual), workspace, call->workspace_bytes);
	}
	require(memcmp(actual, expected, ARENA) == 0, "the bits differ from the reference's");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!reference)
		open_contexts();
	struct input in = {data, size};
	const struct ek_op_entry *entry = &ek_ops[take(&in, 1) % EK_OP_NAMES];
	struct call call = {.op = take(&in, 1) % 2 ? entry->backward : entry->forward};
	ek_context *ctx = contexts[take(&in, 1) % (unsigned)context_count];
	fill_arena(take(&in, 2));
	take_call(&in, &call);
	find_overlaps(&call);
	take_workspace(&in, &call, ctx);
	if (call.too_wide && !call.wrong)
		return 0;
	memcpy(actual, start, ARENA);
	memcpy(expected, start, ARENA);
	ek_status status = call.op->call(ctx, &call.args);
	require(status == EK_OK || *ek_error(ctx), "a refusal without a message");
	require(status == EK_OK || memcmp(actual, start, ARENA) == 0, "a refused call has written");
	require(!call.wrong || status != EK_OK, "a wrong call was accepted");
	require(call.wrong || call.overlap || status == EK_OK, "a right call was refused");
	calls++;
	if (status == EK_OK) {
		accepted++;
		compare(&call);
	}
	return 0;
}
