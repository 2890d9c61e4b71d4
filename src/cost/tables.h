/* The kernels of each variant as rows of text (ops/NAME/cost.c), and how a row becomes polynomials. Called by cost.c and
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

/* The folds of an op's partial column sums: `sums` of `columns` columns, which start at quads (ek_facts_add_partials). */
#define EK_FOLD(name, when, from, to, written)                                     \
	{                                                                          \
		name, "reduction", "src/gpu/kernels/columns.cu", when,             \
		{                                                                  \
			"sums*" from "*columns", "sums*" from "*padded*s", written \
		}                                                                  \
	}
#define EK_FOLD_TO(when, from, to) EK_FOLD("columns_fold", when, from, to, "sums*" to "*padded*s")
#define EK_FOLDS                                                                                          \
	EK_FOLD_TO("fold_1", "partials", "partials_2"), EK_FOLD_TO("fold_2", "partials_2", "partials_3"), \
		EK_FOLD_TO("fold_3", "partials_3", "partials_4"),                                         \
		EK_FOLD("columns_final", "any_sums", "last_partials", "", "gradients")

/* The rows of a norm's variant and pass, up to one without a name. */
const struct ek_cost_row *ek_cost_rows(ek_variant variant, ek_pass pass, ek_device device);

/* What their names mean. args are validated, their defaults filled in. What depends on the sizes beyond the formulas
 * themselves (whether a kernel is the vectorised one, how many partial sums there are) does so with `exact`; without, the
 * usual case. */
void ek_norm_facts(struct ek_facts *facts, const ek_cost_args *args, bool exact);
/* Who calls a norm's kernels, up to the native op. */
const char *ek_norm_cost_path(const ek_cost_args *args);

/* The other ops (ops/NAME/cost.c). */
struct ek_cost_op {
	ek_status (*check)(ek_cost_args *args); /* and fills in the defaults */
	const struct ek_cost_row *(*rows)(const ek_cost_args *args);
	void (*facts)(struct ek_facts *facts, const ek_cost_args *args);
	const char *(*path)(const ek_cost_args *args);
};
/* Of an activation, and of it and its derivative: a function of one number counts one. */
struct ek_activation_flops {
	int value, slope;
};
struct ek_activation_flops ek_glu_flops(ek_activation activation);
extern const struct ek_cost_op ek_glu_cost_op, ek_rope_cost_op;

/* The rows of a variant, by forward and backward; those of evenkeel on the CPU come last. */
static inline const struct ek_cost_row *ek_cost_table(const struct ek_cost_row *const tables[][2],
						      ek_variant variant, ek_pass pass, ek_device device)
{
	int table = variant == EK_EVENKEEL && device == EK_CPU ? 3 : (int)variant - 1;
	return tables[table][pass - 1];
}

#endif
