/* Facts: added by the ops, read in expressions. SPDX-License-Identifier: MIT */
#include "facts.h"

#include <string.h>

void ek_facts_add(struct ek_facts *facts, const char *name, int64_t number, int symbols,
		  const enum ek_symbol *symbol)
{
	if (facts->count++ >= EK_MOST_FACTS)
		return;
	struct ek_fact *fact = &facts->at[facts->count - 1];
	*fact = (struct ek_fact){.name = name, .number = number, .symbols = symbols};
	for (int i = 0; i < symbols; i++)
		fact->symbol[i] = symbol[i];
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

static void operand_bytes(const struct ek_op *op, const struct ek_operand *operand,
			  const struct ek_cost_symbols *symbols, struct ek_polynomial *bytes)
{
	ek_polynomial_number(bytes, 1);
	bytes->terms[0].power[symbols->dtype(op, operand)]++;
	for (int dim = 0; dim < operand->rank; dim++)
		for (int i = 0; i < symbols->size_count[operand->dims[dim].size]; i++)
			bytes->terms[0].power[symbols->size[operand->dims[dim].size][i]]++;
}

void ek_facts_add_bytes(struct ek_facts *facts, const char *name, const struct ek_op *op, const void *args,
			uint32_t operands, const struct ek_cost_symbols *symbols)
{
	if (facts->bytes_count++ >= EK_MOST_BYTES)
		return;
	struct ek_bytes *bytes = &facts->bytes[facts->bytes_count - 1];
	bytes->name = name;
	bytes->sum.count = 0;
	for (int i = 0; i < op->operand_count; i++) {
		struct ek_polynomial one;
		if (!(operands >> i & 1) || !ek_operand_pointer(&op->operands[i], args))
			continue;
		operand_bytes(op, &op->operands[i], symbols, &one);
		(void)ek_polynomial_add(&bytes->sum, &bytes->sum, &one); /* a few terms always fit */
	}
}

static bool is_named(const char *fact, const char *name, size_t length)
{
	return strlen(fact) == length && memcmp(fact, name, length) == 0;
}

static const char *meaning_of(void *user, const char *name, size_t length, struct ek_polynomial *value)
{
	const struct ek_facts *facts = user;
	for (int i = 0; i < facts->bytes_count; i++)
		if (is_named(facts->bytes[i].name, name, length)) {
			*value = facts->bytes[i].sum;
			return NULL;
		}
	for (int i = 0; i < facts->count; i++) {
		const struct ek_fact *fact = &facts->at[i];
		if (!is_named(fact->name, name, length))
			continue;
		ek_polynomial_number(value, fact->number);
		for (int k = 0; k < fact->symbols; k++)
			value->terms[0].power[fact->symbol[k]]++;
		return NULL;
	}
	return "a name that is no fact";
}

const char *ek_facts_read(const struct ek_facts *facts, const char *text, struct ek_polynomial *value)
{
	const struct ek_meaning meaning = {.name = meaning_of, .user = (void *)(uintptr_t)facts};
	if (facts->count > EK_MOST_FACTS || facts->bytes_count > EK_MOST_BYTES)
		return "there are more facts than EK_MOST_FACTS";
	return ek_expression_read(text, &meaning, value).what;
}
