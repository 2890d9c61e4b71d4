/* What the functions of evenkeel/cost.h share. SPDX-License-Identifier: MIT */
#ifndef EK_COST_COST_H
#define EK_COST_COST_H

#include "tables.h"

struct ek_metrics {
	struct ek_polynomial of[EK_METRIC_COUNT];
};

/* Copies args, of any version; ek_cost_check then validates the copy and fills in the defaults: of any op, of a norm. */
ek_status ek_cost_take(const ek_cost_args *args, ek_cost_args *resolved);
ek_status ek_cost_check_op(ek_cost_args *resolved, ek_pass last_pass, ek_variant last_variant);
ek_status ek_cost_check(ek_cost_args *resolved);
/* least … EK_MAX_COLS and the like. */
ek_status ek_cost_check_size(const char *name, int64_t size, int64_t most, const char *most_name);
/* Whether tensors of batch_size * seq_len rows of so many elements fit an address space. */
ek_status ek_cost_check_memory(const ek_cost_args *a, const char *what, int64_t cols);

void ek_cost_name_total(ek_cost_kernel *total, const char *origin);

/* A list in the making. */
struct ek_cost_making {
	ek_cost_list list;
	struct ek_metrics total;
	bool used[EK_SYMBOL_COUNT];
	/* For ops side by side, whose cuts differ: formulas have the numbers of the symbols from EK_FIRST_CUT on. */
	bool numbered;
	const char *role; /* in front of the kernels' names; NULL: none */
};

/* Checks the caller's list, and starts with none of its kernels. */
ek_status ek_cost_start(struct ek_cost_making *making, const ek_cost_list *list);
/* Adds the kernels of those rows that are launched; path: the origin, up to what rows say. */
ek_status ek_cost_add_rows(struct ek_cost_making *making, const struct ek_cost_row *rows,
			   const struct ek_facts *facts, const char *path);
/* The total and the symbols; then gives the caller all. */
ek_status ek_cost_finish(struct ek_cost_making *making, const char *path, const int64_t *values,
			 ek_cost_list *list);

/* Where a kernel has a metric's number and formula. */
extern const struct ek_metric_field {
	const char *name;
	size_t number, text;
} ek_metric_fields[EK_METRIC_COUNT];

/* Prints and evaluates the formulas into a kernel of which name, type and origin are set. */
ek_status ek_cost_fill(ek_cost_kernel *kernel, const struct ek_metrics *metrics, const int64_t *values);
/* Marks the symbols that the formulas use, of which there are EK_SYMBOL_COUNT; lists those that are marked. */
void ek_cost_use_symbols(bool *used, const struct ek_metrics *metrics);
int ek_cost_list_symbols(ek_cost_symbol *symbols, const bool *used, const int64_t *values);

#endif
