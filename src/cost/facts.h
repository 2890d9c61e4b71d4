/* What the names in the tables of kernels mean for given arguments: sizes, widths, and which operands are there. Called
 * by cost.c and references.c. SPDX-License-Identifier: MIT */
#ifndef EK_COST_FACTS_H
#define EK_COST_FACTS_H

#include "evenkeel.h"
#include "expression.h"

enum { EK_MOST_FACTS = 40 };

/* A number, times a few symbols. */
struct ek_fact {
	const char *name;
	int64_t number;
	int symbols;
	enum ek_symbol symbol[3];
};

struct ek_facts {
	int count;
	struct ek_fact at[EK_MOST_FACTS];
	int64_t values[EK_SYMBOL_COUNT]; /* of the symbols */
};

/* args are judged, their defaults filled in. What depends on the sizes beyond the formulas themselves (whether a kernel
 * is the vectorised one, how many partial sums there are) does so with `exact`; without, the usual case. */
void ek_facts_find(struct ek_facts *facts, const ek_cost_args *args, bool exact);

/* The polynomial of an expression of the tables. Returns NULL, or what is wrong with it. */
const char *ek_facts_read(const struct ek_facts *facts, const char *text, struct ek_polynomial *value);

#endif
