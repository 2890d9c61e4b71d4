/* Cases and their argument structs, by the tables of their ops; case.h says what. SPDX-License-Identifier: MIT */
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
		       offsetof(struct test_case, cols) == offsetof(struct test_case, sizes[EK_NORM_COLS]),
	       "rows and cols are the sizes of the norms");
_Static_assert(EK_MOST_OPERANDS < 32, "operands are bits of a mask");
_Static_assert((int)EK_FORWARD_OPERANDS <= EK_MOST_OPERANDS && (int)EK_BACKWARD_OPERANDS <= EK_MOST_OPERANDS,
	       "arrays by number have room for all operands");

/* ---- which operands there are ---- */

static uint32_t bit(int number)
{
	return UINT32_C(1) << number;
}

/* All operands that this kind of op has. */
static uint32_t operands_of(const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	uint32_t all = 0;
	for (int i = 0; i < op->operand_count; i++)
		all |= ek_operand_has_kind(&op->operands[i], c->op->kind) ? bit(i) : 0;
	return all;
}

uint32_t case_optional(const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	uint32_t optional = 0;
	for (int i = 0; i < op->operand_count; i++)
		optional |= op->operands[i].flags & EK_OPTIONAL ? bit(i) : 0;
	return optional & operands_of(c);
}

uint32_t case_statistics(const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	uint32_t statistics = 0;
	for (int i = op->output_count; i < op->operand_count && c->pass == BACKWARD; i++) {
		int returned = ek_operand_named(c->op->forward, op->operands[i].name);
		statistics |= returned >= 0 && returned < c->op->forward->output_count ? bit(i) : 0;
	}
	return statistics & operands_of(c);
}

uint32_t case_outputs_of(const struct test_case *c)
{
	return bit(case_op(c)->output_count) - 1;
}

/* The operand that another one needs; none: 0. */
static uint32_t needed_by(const struct test_case *c, int number)
{
	const struct ek_operand *operand = &case_op(c)->operands[number];
	bool needs = operand->needs.number &&
		     (operand->needs.kinds == 0 || operand->needs.kinds >> c->op->kind & 1);
	return needs ? bit(operand->needs.number - 1) : 0;
}

/* The output that may take the memory of this input. */
int operand_over(const struct ek_op *op, int input)
{
	for (int i = 0; i < op->output_count; i++)
		if (op->operands[i].in_place >> input & 1)
			return i;
	return -1;
}

void case_normalise(struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	uint32_t all = operands_of(c);
	c->present = (c->present & all) | (all & ~case_optional(c));
	if (!(c->present & case_outputs_of(c)))
		c->present |= bit(0);
	for (int turn = 0; turn < op->operand_count; turn++)
		for (int i = 0; i < op->operand_count; i++)
			c->present |= c->present >> i & 1 ? needed_by(c, i) : 0;
	c->arbitrary = c->arbitrary && c->present & case_statistics(c);
	c->accumulate = c->accumulate && op->accumulate;
	int output = c->over ? operand_over(op, c->over - 1) : -1;
	if (output < 0 || !(c->present >> output & 1) || !(c->present >> (c->over - 1) & 1))
		c->over = 0;
}

void case_drop_operands(struct test_case *c, uint32_t operands)
{
	const struct ek_op *op = case_op(c);
	for (int turn = 0; turn < op->operand_count; turn++)
		for (int i = 0; i < op->operand_count; i++)
			operands |= needed_by(c, i) & operands ? bit(i) : 0;
	c->present &= ~operands;
	case_normalise(c);
}

/* ---- by words ---- */

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

/* The input, from 1, that a word such as over_x or in_place has an output written over; 0: none in this pass. */
static int over_of(const struct ek_op *op, const char *word)
{
	for (int i = 0; i < op->output_count; i++)
		for (int input = op->output_count; input < op->operand_count; input++)
			if (op->operands[i].in_place >> input & 1 &&
			    (strcmp(word, "in_place") == 0 ||
			     strcmp(word + 5, op->operands[input].name) == 0))
				return input + 1;
	return 0;
}

static bool is_over(const char *word)
{
	return strcmp(word, "in_place") == 0 || strncmp(word, "over_", 5) == 0;
}

/* Adds the word to a form, in which present has the words' operands alone. */
static void add_word(const struct test_case *c, const char *word, struct test_case *form)
{
	int number = ek_operand_named(case_op(c), word);
	if (number >= 0)
		form->present |= bit(number);
	else if (strcmp(word, "all") == 0)
		form->present = ~UINT32_C(0);
	else if (strcmp(word, "accumulate") == 0)
		form->accumulate = true;
	else if (strcmp(word, "arbitrary") == 0)
		form->arbitrary = true;
	else if (is_over(word) && over_of(c->op->forward, word) + over_of(c->op->backward, word) > 0)
		form->over = (uint8_t)over_of(case_op(c), word);
	else if (ek_operand_named(c->op->forward, word) < 0 && ek_operand_named(c->op->backward, word) < 0)
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
	c->over = form.over;
	case_normalise(c);
}

void case_add(struct test_case *c, const char *words)
{
	struct test_case form = form_of(c, words);
	c->present |= form.present;
	c->accumulate |= form.accumulate;
	c->arbitrary |= form.arbitrary;
	c->over = form.over ? form.over : c->over;
	case_normalise(c);
}

void case_drop(struct test_case *c, const char *words)
{
	struct test_case form = form_of(c, words);
	c->accumulate &= !form.accumulate;
	c->arbitrary &= !form.arbitrary;
	c->over = form.over ? 0 : c->over;
	case_drop_operands(c, form.present);
}

bool case_has(const struct test_case *c, const char *word)
{
	struct test_case form = form_of(c, word);
	return c->present & form.present || (c->accumulate && form.accumulate) ||
	       (c->arbitrary && form.arbitrary) || (c->over && c->over == form.over);
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

struct test_case case_forward(const struct test_case *c)
{
	struct test_case forward = *c;
	forward.pass = FORWARD;
	forward.present = 0;
	forward.over = 0;
	memset(forward.pad, 0, sizeof forward.pad);
	memset(forward.offset, 0, sizeof forward.offset);
	for (int i = 0; i < c->op->backward->operand_count; i++) {
		int number = ek_operand_named(c->op->forward, c->op->backward->operands[i].name);
		if (number < 0)
			continue;
		forward.present |= (c->present & case_statistics(c)) >> i & 1 ? bit(number) : 0;
		forward.pad[number] = c->pad[i];
		forward.offset[number] = c->offset[i];
	}
	case_normalise(&forward);
	return forward;
}

/* ---- words ---- */

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
	if (c->over)
		add_text(text, " over_%s", op->operands[c->over - 1].name);
}

const char *case_text(const struct test_case *c)
{
	static char line[512];
	const struct ek_op *op = case_op(c);
	struct text text = {line, sizeof line};
	add_text(&text, "%s %s %lldx%lld %s/%s eps %g %s", c->op->name, pass_names[c->pass],
		 (long long)c->rows, (long long)c->cols, ek_dtype_name(c->dtype),
		 ek_dtype_name(c->weight_dtype), c->eps, filling_names[c->filling]);
	add_operands(&text, c);
	for (int i = 0; i < op->operand_count; i++) {
		if (c->pad[i])
			add_text(&text, " %s_pad %lld", op->operands[i].name, (long long)c->pad[i]);
		if (c->offset[i])
			add_text(&text, " %s_offset %d", op->operands[i].name, c->offset[i]);
	}
	add_text(&text, " seed %llu", (unsigned long long)c->seed);
	return line;
}
