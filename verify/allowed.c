/* Which calls are allowed: operands that come and go together, outputs in place of inputs, choices of dtypes and options; by
 * the op's tables, for case.h. SPDX-License-Identifier: MIT */
#include <string.h>

#include "case.h"

/* ---- which operands there are ---- */

static uint32_t bit(int number)
{
	return UINT32_C(1) << number;
}

static struct ek_named_operands named_operands(const struct test_case *c)
{
	return c->pass == BACKWARD ? c->op->in_backward : c->op->in_forward;
}

/* All operands that the op of this name has. */
static uint32_t operands_of(const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	uint32_t all = 0;
	for (int i = 0; i < op->operand_count; i++)
		all |= ek_operand_has_kind(&op->operands[i], c->op->kind) ? bit(i) : 0;
	return all & named_operands(c).has;
}

uint32_t case_optional(const struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	uint32_t optional = 0;
	for (int i = 0; i < op->operand_count; i++)
		optional |= op->operands[i].flags & EK_OPTIONAL ? bit(i) : 0;
	return optional & operands_of(c) & ~named_operands(c).needs;
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

void case_drop_statistics(struct test_case *c)
{
	const struct ek_op *op = case_op(c), *backward = c->op->backward;
	uint32_t kept = case_statistics(c);
	for (int i = 0; i < op->output_count; i++)
		kept |= ek_operand_named(backward, op->operands[i].name) >= backward->output_count ? bit(i)
												   : 0;
	case_drop_operands(c, kept);
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
		     (operand->needs.kinds == 0 || operand->needs.kinds >> c->op->kind & 1) &&
		     (!operand->needs.choice || c->choices[operand->needs.choice - 1]);
	return needs ? bit(operand->needs.number - 1) : 0;
}

int case_over(const struct test_case *c, int input)
{
	for (int i = 0; i < case_op(c)->output_count; i++)
		if (c->over[i] == input + 1)
			return i;
	return -1;
}

/* Whether the output may take the memory of the input, which no output before it takes. */
static bool may_be_over(const struct test_case *c, int output, int input)
{
	bool taken = false;
	for (int i = 0; i < output; i++)
		taken = taken || c->over[i] == input + 1;
	return case_op(c)->operands[output].in_place >> input & 1 && !taken && c->present >> output & 1 &&
	       c->present >> input & 1 && operand_dtype(c, output) == operand_dtype(c, input) &&
	       operand_bytes(c, output) == operand_bytes(c, input);
}

static void take_places(struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	for (int i = 0; i < op->output_count; i++)
		for (int input = op->output_count; input < op->operand_count && !c->over[i]; input++)
			if (may_be_over(c, i, input))
				c->over[i] = (uint8_t)(input + 1);
}

bool case_set_over(struct test_case *c, int number)
{
	const struct ek_op *op = case_op(c);
	memset(c->over, 0, sizeof c->over);
	for (int i = 0; i < op->output_count && number > 0; i++)
		for (int input = op->output_count; input < op->operand_count && number > 0; input++)
			if (op->operands[i].in_place >> input & 1 && --number == 0) {
				c->over[i] = (uint8_t)(input + 1);
				return true;
			}
	if (number == 1)
		take_places(c);
	return number <= 1;
}

/* The dtype that a choice follows. */
static ek_dtype followed(const struct test_case *c, const struct ek_choice *choice)
{
	int other = choice->follows ? c->choices[choice->follows - 1] : 0;
	return other ? (ek_dtype)other : c->dtype;
}

/* Whether the op of this name may have that value. */
static bool choice_allows(const struct test_case *c, int number, int value)
{
	return ek_choice_allows(&ek_choices[number], followed(c, &ek_choices[number]), value) &&
	       (number != EK_CHOICE_ACTIVATION || value == 0 || c->op->activations >> value & 1);
}

/* weight_dtype, the first, is as the case was made. */
static void normalise_choices(struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	for (int i = EK_CHOICE_WEIGHT_DTYPE + 1; i < op->choice_count; i++) {
		const struct ek_choice *choice = &op->choices[i];
		if (!(c->op->open_choices >> i & 1) || !c->choices[i])
			c->choices[i] = c->op->usual[i];
		if (!choice_allows(c, i, c->choices[i]))
			c->choices[i] = c->op->usual[i];
		if (!op->choice[i] || !choice_allows(c, i, c->choices[i]) ||
		    (choice->is_dtype && c->choices[i] == (int)followed(c, choice)))
			c->choices[i] = 0;
	}
}

/* Value number `value` of those that a choice may have, 0 aside; 0: there are fewer. */
static int choice_value(const struct test_case *c, int number, int value)
{
	const struct ek_op *op = case_op(c);
	const struct ek_choice *choice = &op->choices[number];
	int most = choice->is_dtype ? EK_F64 : choice->most;
	bool open = op->choice[number] && c->op->open_choices >> number & 1;
	for (int i = 1; i <= most && open; i++) {
		bool same = choice->is_dtype && i == (int)followed(c, choice);
		if (!same && choice_allows(c, number, i) && value-- == 0)
			return i;
	}
	return 0;
}

static int values_of_choice(const struct test_case *c, int number)
{
	int count = 0;
	while (choice_value(c, number, count))
		count++;
	return count + 1;
}

int case_choice_count(const struct test_case *c)
{
	int count = 1;
	for (int i = EK_CHOICE_WEIGHT_DTYPE + 1; i < case_op(c)->choice_count; i++)
		count *= values_of_choice(c, i);
	return count;
}

void case_choose(struct test_case *c, int number)
{
	for (int i = EK_CHOICE_WEIGHT_DTYPE + 1; i < case_op(c)->choice_count; i++) {
		int values = values_of_choice(c, i), value = number % values;
		c->choices[i] = value ? choice_value(c, i, value - 1) : 0;
		number /= values;
	}
	case_normalise(c);
}

/* Whether the operand goes with the choices that are made. */
static bool choices_allow(const struct test_case *c, const struct ek_operand *operand)
{
	return (!operand->with_choice || c->choices[operand->with_choice - 1]) &&
	       (!operand->without_choice || !c->choices[operand->without_choice - 1]);
}

/* Those whose operand is absent. */
static void drop_choices(struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	for (int i = 0; i < op->choice_count; i++)
		if (op->choice[i] && op->choices[i].operand &&
		    !(c->present >> operand_number(op, op->choices[i].operand) & 1))
			c->choices[i] = 0;
}

/* Forward has no call that gives the statistics of an x of h_dtype to which a bias of another dtype is added. */
static bool has_no_forward(const struct test_case *c)
{
	int bias = c->pass == BACKWARD ? ek_operand_named(case_op(c), "x_bias") : -1;
	return bias >= 0 && c->present >> bias & 1 && c->choices[EK_CHOICE_H_DTYPE];
}

/* Those that need an activation or a value which the case does not have. */
static void drop_scalars(struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	int value = op->scalar[EK_VALUE_OFFSET] ? operand_number(op, "value") : -1;
	if (op->scalar[EK_ALPHA] && c->activation != EK_SILU)
		c->alpha = 0;
	if (value >= 0 && !(c->present >> value & 1) && !c->interleaved)
		c->value_offset = 0;
}

/* An output, and what is needed by the operands that are there. */
static void add_needed(struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	if (!(c->present & case_outputs_of(c)))
		c->present |= bit(0);
	for (int turn = 0; turn < op->operand_count; turn++)
		for (int i = 0; i < op->operand_count; i++) {
			c->present |= c->present >> i & 1 ? needed_by(c, i) : 0;
			if (op->operands[i].instead && !(c->present >> (op->operands[i].instead - 1) & 1))
				c->present |= bit(i);
		}
}

void case_normalise(struct test_case *c)
{
	const struct ek_op *op = case_op(c);
	uint32_t all = operands_of(c);
	normalise_choices(c);
	c->present = (c->present & all) | (all & ~case_optional(c));
	add_needed(c);
	for (int turn = 0; turn < 2; turn++) { /* choices go with operands, and operands with choices */
		drop_choices(c);
		for (int i = 0; i < op->operand_count; i++)
			if (c->present & (op->operands[i].excludes & (bit(i) - 1)) ||
			    !choices_allow(c, &op->operands[i]) || needed_by(c, i) & ~c->present)
				c->present &= ~bit(i);
	}
	drop_choices(c);
	add_needed(c); /* where the one output did not go with the choices */
	drop_scalars(c);
	for (int i = 0; i < op->operand_count; i++)
		if (op->operands[i].flags & EK_INDEX && c->present >> i & 1)
			c->table_step = c->first_row = 0; /* positions are rows already */
	c->arbitrary = (c->arbitrary || has_no_forward(c)) && c->present & case_statistics(c);
	c->accumulate = c->accumulate && op->accumulate;
	for (int i = 0; i < op->operand_count; i++)
		if (c->over[i] && (i >= op->output_count || c->over[i] > op->operand_count ||
				   !may_be_over(c, i, c->over[i] - 1)))
			c->over[i] = 0;
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
