/* What ek_norm_cost and ek_reference_cost share. SPDX-License-Identifier: MIT */
#ifndef EK_COST_COST_H
#define EK_COST_COST_H

#include "tables.h"

struct ek_metrics {
	struct ek_polynomial of[EK_METRIC_COUNT];
};

/* Copies args, of any version; ek_cost_check then validates the copy and fills in the defaults. */
ek_status ek_cost_take(const ek_cost_args *args, const ek_cost *cost, ek_cost_args *resolved);
ek_status ek_cost_check(ek_cost_args *resolved);

/* One kernel more; NULL where there are EK_COST_KERNELS. */
ek_cost_kernel *ek_cost_add_kernel(ek_cost *cost);

void ek_cost_name_total(ek_cost *cost, const char *origin);

/* Where a kernel has a metric's number and formula. */
extern const struct ek_metric_field {
	const char *name;
	size_t number, text;
} ek_metric_fields[EK_METRIC_COUNT];

/* Prints and evaluates the formulas into a kernel of which name, type and origin are set. */
ek_status ek_cost_fill(ek_cost_kernel *kernel, const struct ek_metrics *metrics, const int64_t *values);
/* Marks the symbols that the formulas use, of which there are EK_SYMBOL_COUNT; lists those that are marked. */
void ek_cost_use_symbols(bool *used, const struct ek_metrics *metrics);
void ek_cost_list_symbols(ek_cost *cost, const bool *used, const int64_t *values);

#endif
