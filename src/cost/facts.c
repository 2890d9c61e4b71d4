/* Facts: added by the ops, read in expressions. SPDX-License-Identifier: MIT */
#include "facts.h"

#include "core/sizes.h"
#include "gpu/kernels/columns_layout.h"

static struct ek_fact *new_fact(struct ek_facts *facts, const char *name)
{
	struct ek_fact *fact = &facts->at[facts->count < EK_MOST_FACTS ? facts->count : EK_MOST_FACTS];
	facts->count++;
	fact->name = name;
	fact->count = 0;
	return fact;
}

void ek_facts_add(struct ek_facts *facts, const char *name, int64_t number, int symbols,
		  const enum ek_symbol *symbol)
{
	struct ek_fact *fact = new_fact(facts, name);
	struct ek_term *term = &fact->terms[0];
	fact->count = number != 0;
	*term = (struct ek_term){.factor = number};
	for (int i = 0; i < symbols; i++)
		term->power[symbol[i]]++;
}

void ek_facts_add_number(struct ek_facts *facts, const char *name, int64_t number)
{
	ek_facts_add(facts, name, number, 0, NULL);
}

void ek_facts_add_symbol(struct ek_facts *facts, const char *name, enum ek_symbol symbol, int64_t value)
{
	ek_facts_add(facts, name, 1, 1, &symbol);
	facts->values[symbol] = value;
}

void ek_facts_add_bytes(struct ek_facts *facts, const char *name, const struct ek_op *op, const void *args,
			uint32_t operands, const struct ek_cost_symbols *symbols)
{
	struct ek_fact *fact = new_fact(facts, name);
	for (int i = 0; i < op->operand_count; i++) {
		const struct ek_operand *operand = &op->operands[i];
		if (!(operands >> i & 1) || !ek_operand_pointer(operand, args))
			continue;
		struct ek_term *bytes = &fact->terms[fact->count++];
		*bytes = (struct ek_term){.factor = 1};
		for (int dim = 0; dim < operand->rank; dim++)
			bytes->factor *= ek_dim_each(op, &operand->dims[dim], args);
		if (operand->flags & EK_INDEX)
			bytes->factor *= (int64_t)sizeof(int64_t);
		else
			bytes->power[symbols->dtype(op, operand, args)]++;
		for (int dim = 0; dim < operand->rank; dim++)
			for (int k = 0; k < symbols->size_count[operand->dims[dim].size]; k++)
				bytes->power[symbols->size[operand->dims[dim].size][k]]++;
	}
}

void ek_facts_add_operands(struct ek_facts *facts, const struct ek_op *op, const void *args,
			   const struct ek_cost_symbols *symbols)
{
	uint32_t outputs = (UINT32_C(1) << op->output_count) - 1, sums = 0;
	for (int i = 0; i < op->output_count; i++)
		sums |= (uint32_t)((op->operands[i].flags & EK_ACCUMULATES) != 0) << i;
	ek_facts_add_bytes(facts, "inputs", op, args, ~outputs, symbols);
	ek_facts_add_bytes(facts, "outputs", op, args, outputs, symbols);
	ek_facts_add_bytes(facts, "gradients", op, args, sums, symbols);
}

void ek_facts_add_partials(struct ek_facts *facts, const int64_t partials[EK_COST_PARTIALS])
{
	static const char *const names[] = {"partials", "partials_2", "partials_3", "partials_4"};
	static const char *const folds[] = {"fold_1", "fold_2", "fold_3"};
	int last = 0;
	for (int i = 0; i < EK_COST_PARTIALS; i++) {
		ek_facts_add_symbol(facts, names[i], (enum ek_symbol)(EK_SYMBOL_PARTIALS + i), partials[i]);
		if (i > 0)
			ek_facts_add_number(facts, folds[i - 1], partials[i] > 0);
		if (partials[i] > 0)
			last = i;
	}
	ek_facts_add_symbol(facts, "last_partials", (enum ek_symbol)(EK_SYMBOL_PARTIALS + last),
			    partials[last]);
}

void ek_facts_add_folds(struct ek_facts *facts, int64_t partials)
{
	int64_t folded[EK_COST_PARTIALS] = {partials};
	for (int i = 1; i < EK_COST_PARTIALS && folded[i - 1] > FOLD_TOGETHER; i++)
		folded[i] = quotient_up(folded[i - 1], FOLD_TOGETHER);
	ek_facts_add_partials(facts, folded);
}

static const char *meaning_of(void *user, const char *name, size_t length, struct ek_polynomial *value)
{
	const struct ek_facts *facts = user;
	const struct ek_fact *fact = facts->at, *end = facts->at + facts->count;
	while (fact < end && !ek_is_named(fact->name, name, length))
		fact++;
	if (fact == end)
		return "a name that is no fact";
	value->count = 0;
	for (int i = 0; i < fact->count; i++) {
		const struct ek_polynomial term = {.count = 1, .terms = {fact->terms[i]}};
		(void)ek_polynomial_add(value, value, &term); /* a few terms always fit */
	}
	return NULL;
}

const char *ek_facts_read(const struct ek_facts *facts, const char *text, struct ek_polynomial *value)
{
	const struct ek_meaning meaning = {.name = meaning_of, .user = (void *)(uintptr_t)facts};
	if (facts->count > EK_MOST_FACTS)
		return "there are more facts than EK_MOST_FACTS";
	return ek_expression_read(text, &meaning, value).what;
}
