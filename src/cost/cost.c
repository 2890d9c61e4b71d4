/* The arguments of all costs, rows of tables as kernels of a list, their total and symbols; ek_norm_cost.
 * SPDX-License-Identifier: MIT */
#include "cost.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/versions.h"
#include "ops/norm/op.h"

/* ---- arguments ---- */

static ek_status check_pass(ek_pass pass, ek_pass last)
{
	if (last == EK_STEP)
		REQUIRE(pass >= EK_FORWARD && pass <= EK_STEP, EK_ERROR_ARGUMENT,
			"pass (%d) is not EK_FORWARD (%d), EK_BACKWARD (%d) or EK_STEP (%d)", (int)pass,
			(int)EK_FORWARD, (int)EK_BACKWARD, (int)EK_STEP);
	else
		REQUIRE(pass == EK_FORWARD || pass == EK_BACKWARD, EK_ERROR_ARGUMENT,
			"pass (%d) is neither EK_FORWARD (%d) nor EK_BACKWARD (%d)", (int)pass,
			(int)EK_FORWARD, (int)EK_BACKWARD);
	return EK_OK;
}

ek_status ek_cost_check_op(ek_cost_args *a, ek_pass last_pass, ek_variant last_variant)
{
	PASS_ON(check_pass(a->pass, last_pass));
	if (last_variant == EK_COMPILED)
		REQUIRE(a->variant >= EK_PYTORCH && a->variant <= EK_COMPILED, EK_ERROR_ARGUMENT,
			"variant (%d) is not EK_PYTORCH (%d), EK_EVENKEEL (%d) or EK_COMPILED (%d)",
			(int)a->variant, (int)EK_PYTORCH, (int)EK_EVENKEEL, (int)EK_COMPILED);
	else
		REQUIRE(a->variant >= EK_REFERENCE && a->variant <= EK_EVENKEEL, EK_ERROR_ARGUMENT,
			"variant (%d) is not EK_REFERENCE (%d), EK_PYTORCH (%d) or EK_EVENKEEL (%d)",
			(int)a->variant, (int)EK_REFERENCE, (int)EK_PYTORCH, (int)EK_EVENKEEL);
	REQUIRE(a->device == EK_CPU || a->device == EK_CUDA, EK_ERROR_ARGUMENT,
		"device (%d) is neither EK_CPU (%d) nor EK_CUDA (%d)", (int)a->device, (int)EK_CPU,
		(int)EK_CUDA);
	REQUIRE(a->arch >= 0, EK_ERROR_ARGUMENT, "arch (%d) must not be negative", a->arch);
	REQUIRE(a->multiprocessors >= 0, EK_ERROR_ARGUMENT, "multiprocessors (%d) must not be negative",
		a->multiprocessors);
	if (a->arch == 0)
		a->arch = 90;
	if (a->multiprocessors == 0)
		a->multiprocessors = 132;
	return EK_OK;
}

static ek_status check_kind(const ek_cost_args *a)
{
	REQUIRE(a->norm == EK_LAYER_NORM || a->norm == EK_RMS_NORM, EK_ERROR_ARGUMENT,
		"norm (%d) is neither EK_LAYER_NORM (%d) nor EK_RMS_NORM (%d)", (int)a->norm,
		(int)EK_LAYER_NORM, (int)EK_RMS_NORM);
	const int all = EK_NO_WEIGHT | EK_NO_BIAS | EK_NO_STATISTICS | EK_NO_MEAN_LO | EK_NO_DGATE;
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

ek_status ek_cost_check_size(const char *name, int64_t size, int64_t most, const char *most_name)
{
	REQUIRE(size >= 1 && size <= most, EK_ERROR_ARGUMENT,
		"%s (%" PRId64 ") is not in 1 to %s (%" PRId64 ")", name, size, most_name, most);
	return EK_OK;
}

/* Then so do the slots and partial sums over the rows. */
ek_status ek_cost_check_memory(const ek_cost_args *a, const char *what, int64_t cols)
{
	int64_t rows, bytes;
	REQUIRE(a->batch_size >= 1, EK_ERROR_ARGUMENT, "batch_size (%" PRId64 ") must be at least 1",
		a->batch_size);
	REQUIRE(a->seq_len >= 1, EK_ERROR_ARGUMENT, "seq_len (%" PRId64 ") must be at least 1", a->seq_len);
	bool overflows = __builtin_mul_overflow(a->batch_size, a->seq_len, &rows) ||
			 __builtin_mul_overflow(rows, cols * 8, &bytes) || rows > PTRDIFF_MAX / 64;
	REQUIRE(!overflows, EK_ERROR_ARGUMENT,
		"batch_size (%" PRId64 ") times seq_len (%" PRId64 ") times %s (%" PRId64
		") is more than memory can hold",
		a->batch_size, a->seq_len, what, cols);
	return EK_OK;
}

ek_status ek_cost_take(const ek_cost_args *args, ek_cost_args *resolved)
{
	REQUIRE(args, EK_ERROR_ARGUMENT, "args is NULL: give the address of an ek_cost_args");
	REQUIRE_SIZE(args->size, ek_cost_args);
	*resolved = (ek_cost_args){.size = sizeof *resolved};
	memcpy(resolved, args, args->size); /* the fields of later versions stay zero */
	return EK_OK;
}

ek_status ek_cost_check(ek_cost_args *a)
{
	PASS_ON(check_kind(a));
	PASS_ON(ek_cost_check_op(a, EK_BACKWARD, EK_EVENKEEL));
	PASS_ON(check_dtypes(a));
	PASS_ON(ek_cost_check_size("hidden_size", a->hidden_size, EK_MAX_COLS, "EK_MAX_COLS"));
	PASS_ON(ek_cost_check_memory(a, "hidden_size", a->hidden_size));
	return check_groups(a);
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

/* Heads and tables are RoPE's and the blocks', columns of a feed-forward the others'; a norm's formulas have none of them, evenkeel's
 * none of T_BYTES and ROW_BLOCKS, and the others' none of slots, partial sums and chunks. */
enum { NOT_OF_NORMS = 6 };
_Static_assert(EK_SYMBOL_COUNT - 2 - NOT_OF_NORMS <= (int)EK_COST_SYMBOLS,
	       "a formula may use all symbols of its variant");

void ek_cost_use_symbols(bool *used, const struct ek_metrics *metrics)
{
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
		for (int metric = 0; metric < EK_METRIC_COUNT; metric++)
			used[symbol] = used[symbol] ||
				       ek_polynomial_uses(&metrics->of[metric], (enum ek_symbol)symbol);
}

int ek_cost_list_symbols(ek_cost_symbol *symbols, const bool *used, const int64_t *values)
{
	int count = 0;
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
		if (used[symbol] && count < EK_COST_SYMBOLS)
			symbols[count++] =
				(ek_cost_symbol){.name = ek_symbol_name((enum ek_symbol)symbol),
						 .origin = ek_symbol_origin((enum ek_symbol)symbol),
						 .value = values[symbol]};
	return count;
}

void ek_cost_name_total(ek_cost_kernel *total, const char *origin)
{
	total->type = "total";
	(void)snprintf(total->name, sizeof total->name, "total");
	(void)snprintf(total->origin, sizeof total->origin, "%s", origin);
}

/* ---- rows as kernels ---- */

ek_status ek_cost_start(struct ek_cost_making *making, const ek_cost_list *list)
{
	REQUIRE(list, EK_ERROR_ARGUMENT, "cost is NULL: give the address of an ek_cost_list");
	REQUIRE_SIZE(list->size, ek_cost_list);
	REQUIRE(list->kernels && list->most_kernels > 0, EK_ERROR_ARGUMENT,
		"kernels is %s, most_kernels is %d; expected an array and its length",
		list->kernels ? "there" : "NULL", list->most_kernels);
	*making = (struct ek_cost_making){
		.list = {.size = list->size, .kernels = list->kernels, .most_kernels = list->most_kernels}};
	return EK_OK;
}

static void name_kernel(ek_cost_kernel *kernel, const struct ek_cost_row *row, const char *role,
			const char *path)
{
	kernel->type = row->type;
	(void)snprintf(kernel->name, sizeof kernel->name, "%s%s%s", role ? role : "", role ? "/" : "",
		       row->name);
	if (row->call && *row->call == '=')
		(void)snprintf(kernel->origin, sizeof kernel->origin, "%s", row->call + 1);
	else
		(void)snprintf(kernel->origin, sizeof kernel->origin, "%s%s%s", path, row->call ? " -> " : "",
			       row->call ? row->call : "");
}

/* Cuts by their numbers. */
static const char *number_cuts(struct ek_polynomial *p, const struct ek_facts *facts)
{
	struct ek_polynomial numbers[EK_FIRST_WIDTH - EK_FIRST_CUT];
	const struct ek_polynomial *by[EK_SYMBOL_COUNT] = {NULL};
	for (int symbol = EK_FIRST_CUT; symbol < EK_FIRST_WIDTH; symbol++) {
		struct ek_polynomial *number = &numbers[symbol - EK_FIRST_CUT];
		ek_polynomial_number(number, facts->values[symbol]);
		by[symbol] = number;
	}
	return ek_polynomial_substitute(p, p, by);
}

static const char *read_row(const struct ek_cost_making *making, const struct ek_facts *facts,
			    const struct ek_cost_row *row, struct ek_metrics *metrics)
{
	const char *wrong = NULL;
	for (int metric = 0; metric < EK_METRIC_COUNT && !wrong; metric++) {
		wrong = ek_facts_read(facts, row->of[metric], &metrics->of[metric]);
		if (!wrong && making->numbered)
			wrong = number_cuts(&metrics->of[metric], facts);
	}
	return wrong;
}

static const char *add_to_total(struct ek_metrics *total, const struct ek_metrics *metrics)
{
	const char *wrong = NULL;
	for (int i = 0; i < EK_METRIC_COUNT && !wrong; i++)
		wrong = ek_polynomial_add(&total->of[i], &total->of[i], &metrics->of[i]);
	return wrong;
}

/* Adds the kernel of a row, if it is launched. */
static ek_status add_row(struct ek_cost_making *making, const struct ek_facts *facts,
			 const struct ek_cost_row *row, const char *path)
{
	ek_cost_list *list = &making->list;
	struct ek_polynomial when;
	struct ek_metrics metrics;
	const char *wrong = ek_facts_read(facts, row->when, &when);
	if (!wrong && when.count == 0)
		return EK_OK;
	if (!wrong)
		wrong = read_row(making, facts, row, &metrics);
	if (!wrong)
		wrong = add_to_total(&making->total, &metrics);
	REQUIRE(!wrong, EK_ERROR_ARGUMENT, "the cost of %s: %s", row->name, wrong);
	REQUIRE(list->kernel_count < list->most_kernels, EK_ERROR_ARGUMENT,
		"the cost of %s: there are more kernels than there is room for (%d)", row->name,
		list->most_kernels);
	ek_cost_kernel *kernel = &list->kernels[list->kernel_count++];
	name_kernel(kernel, row, making->role, path);
	return ek_cost_fill(kernel, &metrics, facts->values);
}

ek_status ek_cost_add_rows(struct ek_cost_making *making, const struct ek_cost_row *rows,
			   const struct ek_facts *facts, const char *path)
{
	for (const struct ek_cost_row *row = rows; row->name; row++)
		PASS_ON(add_row(making, facts, row, path));
	return EK_OK;
}

ek_status ek_cost_finish(struct ek_cost_making *making, const char *path, const int64_t *values,
			 ek_cost_list *list)
{
	ek_cost_list *found = &making->list;
	ek_cost_name_total(&found->total, path);
	PASS_ON(ek_cost_fill(&found->total, &making->total, values));
	ek_cost_use_symbols(making->used, &making->total);
	found->symbol_count = ek_cost_list_symbols(found->symbols, making->used, values);
	memcpy(list, found, found->size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}

/* ---- norms ---- */

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
const char *ek_norm_cost_path(const ek_cost_args *a)
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

ek_status ek_norm_cost(const ek_cost_args *args, ek_cost *cost)
{
	ek_cost_args a = {.size = 0};
	struct ek_facts facts;
	struct ek_cost_making making = {.numbered = false};
	REQUIRE(cost, EK_ERROR_ARGUMENT, "cost is NULL: give the address of an ek_cost");
	REQUIRE_SIZE(cost->size, ek_cost);
	PASS_ON(ek_cost_take(args, &a));
	PASS_ON(ek_cost_check(&a));
	ek_norm_facts(&facts, &a, true);
	ek_cost found = {.size = cost->size};
	ek_cost_list list = {.size = sizeof list, .kernels = found.kernels, .most_kernels = EK_COST_KERNELS};
	PASS_ON(ek_cost_start(&making, &list));
	PASS_ON(ek_cost_add_rows(&making, ek_cost_rows(a.variant, a.pass, a.device), &facts,
				 ek_norm_cost_path(&a)));
	PASS_ON(ek_cost_finish(&making, ek_norm_cost_path(&a), facts.values, &list));
	found.kernel_count = list.kernel_count;
	found.total = list.total;
	found.symbol_count = list.symbol_count;
	memcpy(found.symbols, list.symbols, sizeof list.symbols);
	memcpy(cost, &found, found.size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}

/* ---- the other ops ---- */

static ek_status op_cost(const struct ek_cost_op *op, const ek_cost_args *args, ek_cost_list *cost)
{
	ek_cost_args a = {.size = 0};
	struct ek_facts facts;
	struct ek_cost_making making = {.numbered = false};
	PASS_ON(ek_cost_start(&making, cost));
	PASS_ON(ek_cost_take(args, &a));
	PASS_ON(op->check(&a));
	op->facts(&facts, &a);
	PASS_ON(ek_cost_add_rows(&making, op->rows(&a), &facts, op->path(&a)));
	return ek_cost_finish(&making, op->path(&a), facts.values, cost);
}

ek_status ek_glu_cost(const ek_cost_args *args, ek_cost_list *cost)
{
	return op_cost(&ek_glu_cost_op, args, cost);
}

ek_status ek_rope_cost(const ek_cost_args *args, ek_cost_list *cost)
{
	return op_cost(&ek_rope_cost_op, args, cost);
}
