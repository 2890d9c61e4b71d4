/* ek_norm_cost: judges its arguments, finds the facts (facts.c), reads the rows of the variant's table (tables.c), and
 * writes formulas and numbers. SPDX-License-Identifier: MIT */
#include "cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/versions.h"
#include "ops/norm/op.h"

/* ---- arguments ---- */

static ek_status check_kind(const ek_cost_args *a)
{
	REQUIRE(a->norm == EK_LAYER_NORM || a->norm == EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is neither EK_LAYER_NORM (%d) nor EK_RMS_NORM (%d)", (int)a->norm,
		(int)EK_LAYER_NORM, (int)EK_RMS_NORM);
	REQUIRE(a->pass == EK_FORWARD || a->pass == EK_BACKWARD, EK_ERROR_ARGUMENT,
		"pass (%d) is neither EK_FORWARD (%d) nor EK_BACKWARD (%d)", (int)a->pass, (int)EK_FORWARD,
		(int)EK_BACKWARD);
	REQUIRE(a->variant >= EK_REFERENCE && a->variant <= EK_EVENKEEL, EK_ERROR_ARGUMENT,
		"variant (%d) is none of EK_REFERENCE (%d), EK_PYTORCH (%d), EK_EVENKEEL (%d)",
		(int)a->variant, (int)EK_REFERENCE, (int)EK_PYTORCH, (int)EK_EVENKEEL);
	REQUIRE(a->device == EK_CPU || a->device == EK_CUDA, EK_ERROR_ARGUMENT,
		"device (%d) is neither EK_CPU (%d) nor EK_CUDA (%d)", (int)a->device, (int)EK_CPU,
		(int)EK_CUDA);
	const int all = EK_NO_WEIGHT | EK_NO_BIAS | EK_NO_STATISTICS | EK_NO_MEAN_LO;
	REQUIRE((a->absent & ~all) == 0, EK_ERROR_ARGUMENT, "absent (%d) has bits beyond EK_NO_… (%d)",
		a->absent, all);
	const int others = EK_WITH_RESIDUAL | EK_WITH_X_BIAS | EK_WITH_RESIDUAL_AFTER;
	const int with = others | EK_WITH_GATE;
	const int residuals = EK_WITH_RESIDUAL | EK_WITH_RESIDUAL_AFTER;
	REQUIRE((a->with & ~with) == 0, EK_ERROR_ARGUMENT, "with (%d) has bits beyond EK_WITH_… (%d)",
		a->with, with);
	REQUIRE((a->with & residuals) != residuals, EK_ERROR_ARGUMENT,
		"with (%d) has both EK_WITH_RESIDUAL and EK_WITH_RESIDUAL_AFTER: at most one is allowed",
		a->with);
	REQUIRE(!(a->with & EK_WITH_RESIDUAL_AFTER) || !a->activation, EK_ERROR_ARGUMENT,
		"activation (%d) does not go with EK_WITH_RESIDUAL_AFTER; expected EK_NO_ACTIVATION (%d)",
		(int)a->activation, (int)EK_NO_ACTIVATION);
	REQUIRE(!(a->with & EK_WITH_GATE) || (a->activation && !(a->with & others)), EK_ERROR_ARGUMENT,
		"with (%d) has EK_WITH_GATE, activation is %d; expected an activation and no other EK_WITH_…",
		a->with, (int)a->activation);
	REQUIRE(a->gate_first == 0 || (a->gate_first == 1 && a->with & EK_WITH_GATE), EK_ERROR_ARGUMENT,
		"gate_first (%d) must be 0, or 1 with EK_WITH_GATE", a->gate_first);
	REQUIRE(a->arch >= 0, EK_ERROR_ARGUMENT, "arch (%d) must not be negative", a->arch);
	REQUIRE(a->multiprocessors >= 0, EK_ERROR_ARGUMENT, "multiprocessors (%d) must not be negative",
		a->multiprocessors);
	return EK_OK;
}

/* evenkeel is asked for what it can do; the others may have any dtypes. stats_dtype and intermediate_dtype stay 0 where they are dtype's. */
static ek_status check_dtypes(ek_cost_args *a)
{
	ek_dtype stats = a->stats_dtype, intermediate = a->intermediate_dtype;
	PASS_ON(ek_check_dtype("dtype", &a->dtype, 0));
	PASS_ON(ek_check_dtype("weight_dtype", &a->weight_dtype, a->dtype));
	if (a->variant == EK_EVENKEEL)
		PASS_ON(ek_norm_check_dtypes(a->dtype, &a->weight_dtype));
	PASS_ON(ek_norm_check_choices(a->dtype, a->weight_dtype, &a->h_dtype, &a->y_dtype, &a->gradient_dtype,
				      a->weight_offset, a->rounding, a->activation));
	PASS_ON(ek_check_dtype("compute_dtype", &a->compute_dtype, a->dtype));
	PASS_ON(ek_check_dtype("stats_dtype", &stats, a->dtype));
	PASS_ON(ek_check_dtype("intermediate_dtype", &intermediate, a->dtype));
	return EK_OK;
}

/* One group of all columns is none. */
static ek_status check_groups(ek_cost_args *a)
{
	if (a->group_cols == 0)
		return EK_OK;
	REQUIRE(a->group_cols > 0 && a->hidden_size % a->group_cols == 0, EK_ERROR_ARGUMENT,
		"group_cols (%" PRId64 ") does not divide hidden_size (%" PRId64
		"); expected a divisor of it, or 0",
		a->group_cols, a->hidden_size);
	if (a->group_cols == a->hidden_size)
		a->group_cols = 0;
	return EK_OK;
}

static ek_status check_sizes(const ek_cost_args *a)
{
	int64_t rows, bytes;
	REQUIRE(a->batch_size >= 1, EK_ERROR_ARGUMENT, "batch_size (%" PRId64 ") must be at least 1",
		a->batch_size);
	REQUIRE(a->seq_len >= 1, EK_ERROR_ARGUMENT, "seq_len (%" PRId64 ") must be at least 1", a->seq_len);
	REQUIRE(a->hidden_size >= 1 && a->hidden_size <= EK_MAX_COLS, EK_ERROR_ARGUMENT,
		"hidden_size (%" PRId64 ") is not in 1 to EK_MAX_COLS (%d)", a->hidden_size, EK_MAX_COLS);
	/* A tensor must fit the address space; then so do the slots and partial sums over its rows. */
	bool overflows = __builtin_mul_overflow(a->batch_size, a->seq_len, &rows) ||
			 __builtin_mul_overflow(rows, a->hidden_size * 8, &bytes) || rows > PTRDIFF_MAX / 64;
	REQUIRE(!overflows, EK_ERROR_ARGUMENT,
		"batch_size (%" PRId64 ") times seq_len (%" PRId64 ") times hidden_size (%" PRId64
		") is more than memory can hold",
		a->batch_size, a->seq_len, a->hidden_size);
	return EK_OK;
}

ek_status ek_cost_take(const ek_cost_args *args, const ek_cost *cost, ek_cost_args *resolved)
{
	REQUIRE(args, EK_ERROR_ARGUMENT, "args is NULL: give the address of an ek_cost_args");
	REQUIRE(cost, EK_ERROR_ARGUMENT, "cost is NULL: give the address of an ek_cost");
	REQUIRE_SIZE(args->size, ek_cost_args);
	REQUIRE_SIZE(cost->size, ek_cost);
	*resolved = (ek_cost_args){.size = sizeof *resolved};
	memcpy(resolved, args, args->size); /* the fields of later versions stay zero */
	return EK_OK;
}

ek_status ek_cost_check(ek_cost_args *resolved)
{
	PASS_ON(check_kind(resolved));
	PASS_ON(check_dtypes(resolved));
	PASS_ON(check_sizes(resolved));
	PASS_ON(check_groups(resolved));
	if (resolved->arch == 0)
		resolved->arch = 90;
	if (resolved->multiprocessors == 0)
		resolved->multiprocessors = 132;
	return EK_OK;
}

/* ---- formulas and numbers ---- */

const struct ek_metric_field ek_metric_fields[EK_METRIC_COUNT] = {
	{"FLOPs", offsetof(ek_cost_kernel, flops), offsetof(ek_cost_kernel, symbols.flops)},
	{"bytes read", offsetof(ek_cost_kernel, read_bytes), offsetof(ek_cost_kernel, symbols.read_bytes)},
	{"bytes written", offsetof(ek_cost_kernel, write_bytes),
	 offsetof(ek_cost_kernel, symbols.write_bytes)}};

ek_status ek_cost_fill(ek_cost_kernel *kernel, const struct ek_metrics *metrics, const int64_t *values)
{
	for (int i = 0; i < EK_METRIC_COUNT; i++) {
		const struct ek_metric_field *field = &ek_metric_fields[i];
		const struct ek_polynomial *p = &metrics->of[i];
		REQUIRE(ek_polynomial_evaluate(p, values, (int64_t *)((char *)kernel + field->number)),
			EK_ERROR_ARGUMENT, "the %s of %s do not fit 64 bits at these sizes", field->name,
			kernel->name);
		REQUIRE(ek_polynomial_print(p, (char *)kernel + field->text, EK_COST_TEXT), EK_ERROR_ARGUMENT,
			"the %s of %s: the formula is longer than %d characters", field->name, kernel->name,
			EK_COST_TEXT - 1);
	}
	return EK_OK;
}

/* Of T_BYTES and ROW_BLOCKS evenkeel's formulas have none, and of slots, partial sums and chunks the others have none. */
_Static_assert(EK_SYMBOL_COUNT - 2 <= (int)EK_COST_SYMBOLS, "a formula may use all symbols of its variant");

void ek_cost_use_symbols(bool *used, const struct ek_metrics *metrics)
{
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
		for (int metric = 0; metric < EK_METRIC_COUNT; metric++)
			used[symbol] = used[symbol] ||
				       ek_polynomial_uses(&metrics->of[metric], (enum ek_symbol)symbol);
}

void ek_cost_list_symbols(ek_cost *cost, const bool *used, const int64_t *values)
{
	cost->symbol_count = 0;
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
		if (used[symbol] && cost->symbol_count < EK_COST_SYMBOLS)
			cost->symbols[cost->symbol_count++] =
				(ek_cost_symbol){.name = ek_symbol_name((enum ek_symbol)symbol),
						 .origin = ek_symbol_origin((enum ek_symbol)symbol),
						 .value = values[symbol]};
}

ek_cost_kernel *ek_cost_add_kernel(ek_cost *cost)
{
	return cost->kernel_count < EK_COST_KERNELS ? &cost->kernels[cost->kernel_count++] : NULL;
}

void ek_cost_name_total(ek_cost *cost, const char *origin)
{
	cost->total.type = "total";
	(void)snprintf(cost->total.name, sizeof cost->total.name, "total");
	(void)snprintf(cost->total.origin, sizeof cost->total.origin, "%s", origin);
}

/* Of a function with neighbours: add_layer_norm and its like. */
#define NAMED_PATH(prefix, norm, suffix, pass) "evenkeel.torch." prefix norm suffix " -> ek_norm_" pass
#define NAMED_PATHS(prefix, suffix)                                                \
	{                                                                          \
		{NAMED_PATH(prefix, "layer_norm", suffix, "forward"),              \
		 NAMED_PATH(prefix, "layer_norm", suffix, "backward")},            \
		{                                                                  \
			NAMED_PATH(prefix, "rms_norm", suffix, "forward"),         \
				NAMED_PATH(prefix, "rms_norm", suffix, "backward") \
		}                                                                  \
	}

/* Who calls, up to the native op. */
static const char *path_of(const ek_cost_args *a)
{
	static const char *const torch[2][2] = {
		{"torch.nn.LayerNorm.forward -> torch.nn.functional.layer_norm -> aten::native_layer_norm",
		 "torch.nn.LayerNorm.forward -> torch.nn.functional.layer_norm -> aten::native_layer_norm_backward"},
		{"torch.nn.RMSNorm.forward -> torch.nn.functional.rms_norm -> aten::_fused_rms_norm",
		 "torch.nn.RMSNorm.forward -> torch.nn.functional.rms_norm -> aten::_fused_rms_norm_backward"}};
	static const char *const ours[2][2] = {
		{"evenkeel.torch.LayerNorm.forward -> evenkeel.torch.layer_norm -> ek_norm_forward",
		 "evenkeel.torch.LayerNorm.forward -> evenkeel.torch.layer_norm -> ek_norm_backward"},
		{"evenkeel.torch.RMSNorm.forward -> evenkeel.torch.rms_norm -> ek_norm_forward",
		 "evenkeel.torch.RMSNorm.forward -> evenkeel.torch.rms_norm -> ek_norm_backward"}};
	static const char *const added[2][2] = NAMED_PATHS("add_", "");
	static const char *const after[2][2] = NAMED_PATHS("", "_residual");
	static const char *const activated[2][2] = NAMED_PATHS("", "_act");
	static const char *const gated[2][2] = NAMED_PATHS("", "_gated");
	return (a->variant != EK_EVENKEEL          ? torch
		: a->with & EK_WITH_RESIDUAL       ? added
		: a->with & EK_WITH_RESIDUAL_AFTER ? after
		: a->with & EK_WITH_GATE           ? gated
		: a->activation                    ? activated
						   : ours)[a->norm == EK_RMS_NORM][a->pass == EK_BACKWARD];
}

static void name_kernel(ek_cost_kernel *kernel, const struct ek_cost_row *row, const ek_cost_args *a)
{
	kernel->type = row->type;
	(void)snprintf(kernel->name, sizeof kernel->name, "%s", row->name);
	if (row->call && *row->call == '=')
		(void)snprintf(kernel->origin, sizeof kernel->origin, "%s", row->call + 1);
	else
		(void)snprintf(kernel->origin, sizeof kernel->origin, "%s%s%s", path_of(a),
			       row->call ? " -> " : "", row->call ? row->call : "");
}

static const char *read_row(const struct ek_facts *facts, const struct ek_cost_row *row,
			    struct ek_metrics *metrics, struct ek_metrics *total)
{
	const char *wrong = NULL;
	for (int metric = 0; metric < EK_METRIC_COUNT && !wrong; metric++) {
		struct ek_polynomial *sum = &total->of[metric];
		wrong = ek_facts_read(facts, row->of[metric], &metrics->of[metric]);
		if (!wrong)
			wrong = ek_polynomial_add(sum, sum, &metrics->of[metric]);
	}
	return wrong;
}

/* Adds the kernel of a row, if it is launched. */
static ek_status add_kernel(ek_cost *cost, const struct ek_facts *facts, const struct ek_cost_row *row,
			    const ek_cost_args *a, struct ek_metrics *total)
{
	struct ek_polynomial when;
	struct ek_metrics metrics;
	const char *wrong = ek_facts_read(facts, row->when, &when);
	if (!wrong && when.count == 0)
		return EK_OK;
	if (!wrong)
		wrong = read_row(facts, row, &metrics, total);
	REQUIRE(!wrong, EK_ERROR_ARGUMENT, "the cost of %s: %s", row->name, wrong);
	ek_cost_kernel *kernel = ek_cost_add_kernel(cost);
	REQUIRE(kernel, EK_ERROR_ARGUMENT, "the cost of %s: there are more than EK_COST_KERNELS (%d) kernels",
		row->name, EK_COST_KERNELS);
	name_kernel(kernel, row, a);
	return ek_cost_fill(kernel, &metrics, facts->values);
}

ek_status ek_norm_cost(const ek_cost_args *args, ek_cost *cost)
{
	ek_cost_args a = {.size = 0};
	struct ek_facts facts;
	struct ek_metrics total = {0};
	bool used[EK_SYMBOL_COUNT] = {false};
	PASS_ON(ek_cost_take(args, cost, &a));
	PASS_ON(ek_cost_check(&a));
	ek_norm_facts(&facts, &a, true);
	ek_cost found = {.size = cost->size};
	for (const struct ek_cost_row *row = ek_cost_rows(a.variant, a.pass, a.device); row->name; row++)
		PASS_ON(add_kernel(&found, &facts, row, &a, &total));
	ek_cost_name_total(&found, path_of(&a));
	PASS_ON(ek_cost_fill(&found.total, &total, facts.values));
	ek_cost_use_symbols(used, &total);
	ek_cost_list_symbols(&found, used, facts.values);
	memcpy(cost, &found, found.size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}
