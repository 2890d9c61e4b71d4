/* What the names in an op's rows of kernels mean for given arguments: numbers, products of symbols, and sums of the bytes of
 * operands. The op adds them (ops/NAME/cost.c); cost.c and references.c read rows with them. SPDX-License-Identifier: MIT */
#ifndef EK_COST_FACTS_H
#define EK_COST_FACTS_H

#include "core/operand.h"
#include "expression.h"

enum { EK_MOST_FACTS = 64 };

/* A sum of terms, one for each operand that it counts. */
struct ek_fact {
	const char *name;
	int count;
	struct ek_term terms[EK_MOST_OPERANDS];
};

struct ek_facts {
	int count;                            /* past the limit: ek_facts_read says so */
	struct ek_fact at[EK_MOST_FACTS + 1]; /* the last takes what is past the limit */
	int64_t values[EK_SYMBOL_COUNT];      /* of the symbols */
};

void ek_facts_add(struct ek_facts *facts, const char *name, int64_t number, int symbols,
		  const enum ek_symbol *symbol);
void ek_facts_add_number(struct ek_facts *facts, const char *name, int64_t number);
void ek_facts_add_symbol(struct ek_facts *facts, const char *name, enum ek_symbol symbol, int64_t value);

/* How an op's sizes and dtypes are written in formulas. */
struct ek_cost_symbols {
	int size_count
		[EK_MOST_SIZES]; /* symbols of a size; of one that dimensions have halves of: of the half */
	enum ek_symbol size[EK_MOST_SIZES][2];
	enum ek_symbol (*dtype)(const struct ek_op *op, const struct ek_operand *operand, const void *args);
};
/* Adds a fact: the bytes of those operands of the mask that args have. */
void ek_facts_add_bytes(struct ek_facts *facts, const char *name, const struct ek_op *op, const void *args,
			uint32_t operands, const struct ek_cost_symbols *symbols);

/* The same of all inputs, all outputs, and those outputs that are column sums: "inputs", "outputs" and "gradients". */
void ek_facts_add_operands(struct ek_facts *facts, const struct ek_op *op, const void *args,
			   const struct ek_cost_symbols *symbols);

/* How partial column sums are folded: those written, then those after each fold; 0 past the last. More take over 2^40 rows. */
enum { EK_COST_PARTIALS = 4 };
void ek_facts_add_partials(struct ek_facts *facts, const int64_t partials[EK_COST_PARTIALS]);
/* Of so many that are written (gpu/columns.h). */
void ek_facts_add_folds(struct ek_facts *facts, int64_t partials);

/* The polynomial of an expression of the rows. Returns NULL, or what is wrong with it. */
const char *ek_facts_read(const struct ek_facts *facts, const char *text, struct ek_polynomial *value);

#endif
