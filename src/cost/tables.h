/* The kernels of each variant as rows of text (tables.c), and how a row becomes polynomials. Called by cost.c and
 * references.c. SPDX-License-Identifier: MIT */
#ifndef EK_COST_TABLES_H
#define EK_COST_TABLES_H

#include "facts.h"

/* FLOPs, bytes read, bytes written. */
enum ek_metric { EK_METRIC_FLOPS, EK_METRIC_READ, EK_METRIC_WRITE, EK_METRIC_COUNT };

/* A kernel. `when` and `of` are expressions (expression.h) of names (facts.h). */
struct ek_cost_row {
	const char *name, *type;
	/* What comes last in its origin; NULL: nothing after the native op. "=torch.add": not inside the native op, and all. */
	const char *call;
	const char *when; /* 0: it is not launched */
	const char *of[EK_METRIC_COUNT];
};

/* The rows of a variant and pass, up to one without a name. */
const struct ek_cost_row *ek_cost_rows(ek_variant variant, ek_pass pass, ek_device device);

/* What their names mean. args are validated, their defaults filled in. What depends on the sizes beyond the formulas
 * themselves (whether a kernel is the vectorised one, how many partial sums there are) does so with `exact`; without, the
 * usual case. */
void ek_norm_facts(struct ek_facts *facts, const ek_cost_args *args, bool exact);

#endif
