/* The operand forms in which verify calls an op; forms.h says what. SPDX-License-Identifier: MIT */
#include "forms.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct forms {
	struct listed_case *list;
	int count;
};

static bool same_form(const struct test_case *a, const struct test_case *b)
{
	return a->present == b->present && memcmp(a->over, b->over, sizeof a->over) == 0 &&
	       a->accumulate == b->accumulate && a->arbitrary == b->arbitrary && a->filling == b->filling &&
	       a->pad[0] == b->pad[0] && a->offset[0] == b->offset[0] && a->group_cols == b->group_cols &&
	       a->heads_first == b->heads_first;
}

PRINTF_LIKE(3, 4) static void add(struct forms *forms, const struct test_case *c, const char *name, ...)
{
	for (int i = 0; i < forms->count; i++)
		if (same_form(&forms->list[i].c, c))
			return;
	if (forms->count == MOST_FORMS)
		abort(); /* of an op with more operands: enlarge it */
	struct listed_case *form = &forms->list[forms->count++];
	form->c = *c;
	va_list values;
	va_start(values, name);
	/* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the analyzer misses va_start */
	(void)vsnprintf(form->form, sizeof form->form, name, values);
	va_end(values);
}

/* Without one optional operand, and what needs it; those that kernels are compiled for give their names first. */
static void add_absent(struct forms *forms, const struct test_case *plain)
{
	const struct ek_op *op = case_op(plain);
	for (int turn = 0; turn < 2; turn++)
		for (int i = 0; i < op->operand_count; i++) {
			struct test_case c = *plain;
			bool constant = op->operands[i].flags & EK_CONSTANT;
			if (!(plain->present & case_optional(plain) & UINT32_C(1) << i) ||
			    constant != (turn == 0))
				continue;
			case_drop_operands(&c, UINT32_C(1) << i);
			add(forms, &c, "no %s", op->operands[i].name);
		}
}

/* Without any optional input. */
static void add_bare(struct forms *forms, const struct test_case *plain)
{
	struct test_case c = *plain;
	case_drop_operands(&c, case_optional(plain) & ~case_outputs_of(plain));
	add(forms, &c, "no optional input");
}

/* Without sums over rows, as where weights and biases are not trained. */
static void add_without_sums(struct forms *forms, const struct test_case *plain)
{
	const struct ek_op *op = case_op(plain);
	struct test_case c = *plain;
	for (int i = 0; i < op->output_count; i++)
		c.present &= ~(op->operands[i].flags & EK_ACCUMULATES ? UINT32_C(1) << i : 0);
	case_normalise(&c);
	add(forms, &c, "no sums over rows");
}

/* One optional output, with the required one. */
static void add_alone(struct forms *forms, const struct test_case *plain)
{
	const struct ek_op *op = case_op(plain);
	for (int i = 0; i < op->output_count; i++) {
		struct test_case c = *plain;
		c.present &= ~(case_outputs_of(plain) & case_optional(plain)) | UINT32_C(1) << i;
		case_normalise(&c);
		if (i > 0 && !(case_optional(plain) & 1))
			add(forms, &c, "%s and %s", op->operands[0].name, op->operands[i].name);
		else
			add(forms, &c, "%s alone", op->operands[i].name);
	}
}

static void add_in_place(struct forms *forms, const struct test_case *plain)
{
	struct test_case c = *plain;
	for (int number = 1; case_set_over(&c, number); number++) {
		char name[sizeof forms->list->form] = "";
		case_normalise(&c);
		for (int i = 0; i < case_op(&c)->output_count; i++) {
			size_t length = strlen(name);
			if (c.over[i])
				(void)snprintf(name + length, sizeof name - length, "%s%s over %s",
					       length ? ", " : "", case_op(&c)->operands[i].name,
					       case_op(&c)->operands[c.over[i] - 1].name);
		}
		add(forms, &c, "%s", name);
		c = *plain;
	}
}

static void add_with(struct forms *forms, const struct test_case *plain, const char *words, const char *name)
{
	struct test_case c = *plain;
	case_add(&c, words);
	add(forms, &c, "%s", name);
}

/* Gaps between rows, addresses that are no multiple of an element's size. */
static void add_placed(struct forms *forms, const struct test_case *plain)
{
	struct test_case strided = *plain, misaligned = *plain;
	for (int i = 0; i < EK_MOST_OPERANDS; i++) {
		strided.pad[i] = 5;
		misaligned.offset[i] = 1;
	}
	add(forms, &strided, "strided rows");
	add(forms, &misaligned, "misaligned");
	strided = *plain;
	for (int i = 0; i < case_op(plain)->operand_count; i++)
		strided.heads_first |= case_op(plain)->operands[i].rank == 4 ? UINT32_C(1) << i : 0;
	add(forms, &strided, "heads first");
}

/* As few groups as the width can be cut into. */
static void add_groups(struct forms *forms, const struct test_case *plain)
{
	static const int counts[] = {2, 3, 5, 7, 11, 13};
	for (size_t i = 0; i < sizeof counts / sizeof *counts && case_has_groups(plain) && !plain->group_cols;
	     i++) {
		struct test_case c = *plain;
		if (plain->cols % counts[i] != 0)
			continue;
		c.group_cols = plain->cols / counts[i];
		add(forms, &c, "groups");
		return;
	}
}

static void add_special(struct forms *forms, const struct test_case *plain)
{
	struct test_case c = *plain;
	c.filling = FILL_EXTREME;
	add(forms, &c, "extreme values");
	c.filling = FILL_NOT_FINITE;
	case_drop_operands(&c, case_statistics(&c));
	add(forms, &c, "NaN and infinity");
}

int list_forms(const struct test_case *plain, struct listed_case list[MOST_FORMS])
{
	struct forms forms = {list, 0};
	add(&forms, plain, "plain");
	add_absent(&forms, plain);
	add_bare(&forms, plain);
	add_alone(&forms, plain);
	add_without_sums(&forms, plain);
	add_in_place(&forms, plain);
	add_with(&forms, plain, "accumulate", "accumulated");
	add_with(&forms, plain, "arbitrary", "statistics of something else");
	add_placed(&forms, plain);
	add_groups(&forms, plain);
	add_special(&forms, plain);
	return forms.count;
}

bool same_kernel(const struct test_case *a, const struct test_case *b)
{
	const struct ek_op *op = case_op(a);
	uint32_t constant = 0;
	for (int i = 0; i < op->operand_count; i++)
		constant |= op->operands[i].flags & EK_CONSTANT ? UINT32_C(1) << i : 0;
	return (a->present & constant) == (b->present & constant) && a->pad[0] == b->pad[0] &&
	       a->offset[0] == b->offset[0] && a->group_cols == b->group_cols;
}
