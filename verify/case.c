/* Cases by words: made from them, and described by them; case.h says what. SPDX-License-Identifier: MIT */
#include "case.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"

const char *const pass_names[PASS_COUNT] = {"forward", "backward"};

#define NAMED(dtype, name, bytes) dtype_##name = (dtype),
enum { EK_DTYPES(NAMED) };
#define PAIR(activations, weights) {(ek_dtype)dtype_##activations, (ek_dtype)dtype_##weights},
const struct dtype_pair dtype_pairs[DTYPE_PAIRS] = {EK_NORM_DTYPES(PAIR)};

_Static_assert(offsetof(struct test_case, rows) == offsetof(struct test_case, sizes[EK_NORM_ROWS]) &&
		       offsetof(struct test_case, cols) == offsetof(struct test_case, sizes[EK_NORM_COLS]) &&
		       offsetof(struct test_case, group_cols) ==
			       offsetof(struct test_case, sizes[EK_NORM_GROUP_COLS]),
	       "rows, cols and group_cols are the sizes of the norms");
_Static_assert(offsetof(struct test_case, batch) == offsetof(struct test_case, sizes[EK_ROPE_BATCH]) &&
		       offsetof(struct test_case, first_row) ==
			       offsetof(struct test_case, sizes[EK_ROPE_OFFSET]),
	       "batch to first_row are the sizes of ek_rope");
_Static_assert(offsetof(struct test_case, weight_dtype) == offsetof(struct test_case, choices) &&
		       offsetof(struct test_case, gate_first) ==
			       offsetof(struct test_case, choices[EK_CHOICE_GATE_FIRST]) &&
		       offsetof(struct test_case, interleaved) ==
			       offsetof(struct test_case, choices[EK_CHOICE_INTERLEAVED]) &&
		       offsetof(struct test_case, value_offset) ==
			       offsetof(struct test_case, scalars[EK_VALUE_OFFSET]) &&
		       offsetof(struct test_case, norm_last) ==
			       offsetof(struct test_case, choices[EK_CHOICE_NORM_LAST]),
	       "the choices and the scalars by name");
_Static_assert(EK_MOST_OPERANDS < 32, "operands are bits of a mask");
_Static_assert((int)EK_FORWARD_OPERANDS <= EK_MOST_OPERANDS && (int)EK_BACKWARD_OPERANDS <= EK_MOST_OPERANDS,
	       "arrays by number have room for all operands");

static uint32_t bit(int number)
{
	return UINT32_C(1) << number;
}

/* ---- operands by words ---- */

static void unknown(const char *name, const char *of)
{
	(void)fprintf(stderr, "%s: %s has no such operand\n", name, of);
	exit(1);
}

int operand_number(const struct ek_op *op, const char *name)
{
	int number = ek_operand_named(op, name);
	if (number < 0)
		unknown(name, op->function);
	return number;
}

/* Whether a word such as over_x or h_over_residual is this output over this input. */
static bool says_over(const char *word, const struct ek_operand *output, const struct ek_operand *input)
{
	const char *over = strstr(word, "over_");
	size_t length = over && over > word ? (size_t)(over - word) - 1 : 0;
	if (!over || strcmp(over + 5, input->name) != 0)
		return false;
	return over == word || (strlen(output->name) == length && memcmp(word, output->name, length) == 0);
}

/* Sets over, by outputs, to what the word says; false: it is not a word of this op in place. */
static bool set_over(const struct ek_op *op, const char *word, uint8_t *over)
{
	bool first = strcmp(word, "in_place") == 0, all = strcmp(word, "all_in_place") == 0;
	uint32_t taken = 0;
	for (int i = 0; i < op->output_count; i++)
		for (int input = op->output_count; input < op->operand_count; input++) {
			if (!(op->operands[i].in_place >> input & 1 & ~(taken >> input)) ||
			    !(first || all || says_over(word, &op->operands[i], &op->operands[input])))
				continue;
			over[i] = (uint8_t)(input + 1);
			taken |= bit(input);
			if (!all)
				return true;
			break;
		}
	return taken != 0;
}

/* Adds the word to a form, in which present has the words' operands alone. */
static void add_word(const struct test_case *c, const char *word, struct test_case *form)
{
	int number = ek_operand_named(case_op(c), word);
	uint8_t ignored[EK_MOST_OPERANDS]; /* a form of the other pass */
	if (number >= 0)
		form->present |= bit(number);
	else if (strcmp(word, "all") == 0)
		form->present = ~UINT32_C(0);
	else if (strcmp(word, "accumulate") == 0)
		form->accumulate = true;
	else if (strcmp(word, "arbitrary") == 0)
		form->arbitrary = true;
	else if (!set_over(case_op(c), word, form->over) && !set_over(c->op->forward, word, ignored) &&
		 !set_over(c->op->backward, word, ignored) && ek_operand_named(c->op->forward, word) < 0 &&
		 ek_operand_named(c->op->backward, word) < 0)
		unknown(word, c->op->name);
}

static struct test_case form_of(const struct test_case *c, const char *words)
{
	struct test_case form = {0};
	char word[32];
	int length = 0;
	for (; sscanf(words, " %31s%n", word, &length) == 1; words += length)
		add_word(c, word, &form);
	return form;
}

void case_set(struct test_case *c, const char *words)
{
	struct test_case form = form_of(c, words);
	c->present = form.present;
	c->accumulate = form.accumulate;
	c->arbitrary = form.arbitrary;
	memcpy(c->over, form.over, sizeof c->over);
	case_normalise(c);
}

void case_add(struct test_case *c, const char *words)
{
	struct test_case form = form_of(c, words);
	c->present |= form.present;
	c->accumulate |= form.accumulate;
	c->arbitrary |= form.arbitrary;
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		c->over[i] = form.over[i] ? form.over[i] : c->over[i];
	case_normalise(c);
}

void case_drop(struct test_case *c, const char *words)
{
	struct test_case form = form_of(c, words);
	c->accumulate &= !form.accumulate;
	c->arbitrary &= !form.arbitrary;
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		c->over[i] = form.over[i] ? 0 : c->over[i];
	case_drop_operands(c, form.present);
}

bool case_has(const struct test_case *c, const char *word)
{
	struct test_case form = form_of(c, word);
	bool over = false;
	for (int i = 0; i < EK_MOST_OPERANDS; i++)
		over = over || (c->over[i] && c->over[i] == form.over[i]);
	return over || c->present & form.present || (c->accumulate && form.accumulate) ||
	       (c->arbitrary && form.arbitrary);
}

struct test_case case_make(const struct ek_op_entry *op, enum pass pass, struct dtype_pair dtypes,
			   int64_t rows, int64_t cols)
{
	struct test_case c = {.op = op,
			      .pass = pass,
			      .dtype = dtypes.dtype,
			      .weight_dtype = dtypes.weight_dtype,
			      .rows = rows,
			      .cols = cols,
			      .present = ~UINT32_C(0),
			      .eps = 1e-5,
			      .seed = 1};
	case_normalise(&c);
	return c;
}

struct test_case case_make_heads(const struct ek_op_entry *op, enum pass pass, struct dtype_pair dtypes,
				 struct head_sizes sizes)
{
	struct test_case c = case_make(op, pass, dtypes, sizes.batch, sizes.seq);
	c.heads = sizes.heads;
	c.k_heads = sizes.k_heads;
	c.head_dim = sizes.head_dim;
	c.rotary_dim = sizes.rotary_dim;
	c.table_rows = sizes.seq;
	return c;
}

/* Backward's x has the dtype of forward's sum with the residual, which is the plain norm's x here. */
struct test_case case_forward(const struct test_case *c)
{
	const struct ek_op *op = c->op->forward;
	struct test_case forward = *c;
	uint32_t wanted = 0;
	forward.pass = FORWARD;
	forward.dtype = operand_dtype(c, operand_number(c->op->backward, "x"));
	if (forward.dtype != c->dtype)
		forward.weight_dtype = forward.dtype;
	memset(forward.choices + 1, 0, sizeof forward.choices - sizeof *forward.choices);
	if (c->gate_first && forward.dtype == c->dtype) { /* part of the norm's input */
		forward.activation = c->activation;
		forward.gate_first = c->gate_first;
	}
	forward.accumulate = forward.arbitrary = false;
	memset(forward.over, 0, sizeof forward.over);
	memset(forward.pad, 0, sizeof forward.pad);
	memset(forward.offset, 0, sizeof forward.offset);
	for (int i = 0; i < c->op->backward->operand_count; i++) {
		int number = ek_operand_named(op, c->op->backward->operands[i].name);
		if (number < 0)
			continue;
		bool input = number >= op->output_count &&
			     operand_dtype(&forward, number) == operand_dtype(c, i) &&
			     (number != EK_FORWARD_GATE || forward.gate_first);
		wanted |=
			(c->present & (input ? ~UINT32_C(0) : case_statistics(c))) >> i & 1 ? bit(number) : 0;
		int from = case_over(c, i) >= 0 ? case_over(c, i) : i; /* whose distance of rows it has */
		forward.pad[number] = c->pad[from];
		forward.offset[number] = c->offset[i];
	}
	for (int i = 0; i < op->operand_count; i++)
		wanted |= op->operands[i].flags & EK_OPTIONAL ? 0 : bit(i);
	forward.present = wanted; /* no residual, also where the op of this name needs one */
	return forward;
}

/* ---- a case in words ---- */

struct text {
	char *at;
	size_t room;
};

__attribute__((format(printf, 2, 3))) static void add_text(struct text *text, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the analyzer misses va_start */
	int length = vsnprintf(text->at, text->room, format, values);
	va_end(values);
	size_t written = (size_t)length < text->room ? (size_t)length : text->room - 1;
	text->at += written;
	text->room -= written;
}

/* Optional operands that are there, inputs first. */
static void add_operands(struct text *text, const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	for (int k = 0; k < op->operand_count; k++) {
		int i = (k + op->output_count) % op->operand_count;
		if (c->present & case_optional(c) & bit(i))
			add_text(text, " %s", op->operands[i].name);
	}
	add_text(text, "%s%s", c->accumulate ? " accumulate" : "", c->arbitrary ? " arbitrary" : "");
	for (int i = 0; i < op->output_count; i++)
		if (c->over[i])
			add_text(text, " %s_over_%s", op->operands[i].name,
				 op->operands[c->over[i] - 1].name);
}

/* Whether its sizes are rows and columns. */
static bool is_matrix(const struct ek_op *op)
{
	return strcmp(op->sizes[0].name, "rows") == 0;
}

static void add_sizes(struct text *text, const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	if (is_matrix(op))
		add_text(text, "%lldx%lld ", (long long)c->rows, (long long)c->cols);
	for (int i = 0; i < op->size_count && !is_matrix(op); i++)
		if (c->sizes[i] || op->sizes[i].least > 0)
			add_text(text, "%s %lld ", op->sizes[i].name, (long long)c->sizes[i]);
}

const char *case_text(const struct test_case *c)
{
	static char line[1024];
	const struct ek_op *op = case_op(c);
	struct text text = {line, sizeof line};
	add_text(&text, "%s %s ", c->op->name, pass_names[c->pass]);
	add_sizes(&text, c);
	add_text(&text, "%s/%s", ek_dtype_name(c->dtype), ek_dtype_name(c->weight_dtype));
	for (int i = 0; i < EK_SCALARS; i++)
		if (op->scalar[i] && (i == EK_EPS || c->scalars[i] != 0))
			add_text(&text, " %s %g", ek_scalar_names[i], c->scalars[i]);
	add_text(&text, " %s", filling_names[c->filling]);
	add_operands(&text, c);
	for (int i = EK_CHOICE_WEIGHT_DTYPE + 1; i < op->choice_count; i++) {
		if (c->choices[i] && op->choices[i].is_dtype)
			add_text(&text, " %s %s", op->choices[i].name,
				 ek_dtype_name((ek_dtype)c->choices[i]));
		else if (c->choices[i])
			add_text(&text, " %s %d", op->choices[i].name, c->choices[i]);
	}
	if (is_matrix(op) && c->group_cols)
		add_text(&text, " group_cols %lld", (long long)c->group_cols);
	for (int i = 0; i < op->operand_count; i++) {
		if (c->pad[i])
			add_text(&text, " %s_pad %lld", op->operands[i].name, (long long)c->pad[i]);
		if (c->offset[i])
			add_text(&text, " %s_offset %d", op->operands[i].name, c->offset[i]);
		if (op->operands[i].rank == 4 && c->heads_first >> i & 1)
			add_text(&text, " %s_heads_first", op->operands[i].name);
	}
	add_text(&text, " seed %llu", (unsigned long long)c->seed);
	return line;
}
