/* ek_reference_cost: expressions of references to costs, expanded once for each of FLOPs, bytes read and bytes written.
 * SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "core/versions.h"
#include "cost.h"
#include "ops/norm/op.h"

enum { MOST_TEXT = 300 }; /* so that the message has room for it */

/* What a reference stands for: a whole op, or one kernel of the decomposition. */
struct known {
	const char *name;
	ek_variant variant;
	ek_norm norm;
	ek_pass pass;
	const char *kernel; /* NULL: all that are launched */
};

static const struct known known[] = {
	{"torch.nn.LayerNorm", EK_REFERENCE, EK_LAYER_NORM, EK_FORWARD, NULL},
	{"torch.nn.functional.layer_norm", EK_REFERENCE, EK_LAYER_NORM, EK_FORWARD, NULL},
	{"torch.native_layer_norm", EK_PYTORCH, EK_LAYER_NORM, EK_FORWARD, NULL},
	{"torch.native_layer_norm_backward", EK_PYTORCH, EK_LAYER_NORM, EK_BACKWARD, NULL},
	{"torch.nn.RMSNorm", EK_REFERENCE, EK_RMS_NORM, EK_FORWARD, NULL},
	{"torch.nn.functional.rms_norm", EK_REFERENCE, EK_RMS_NORM, EK_FORWARD, NULL},
	{"torch.var_mean", EK_REFERENCE, EK_LAYER_NORM, EK_FORWARD, "var_mean"},
	{"torch.rsqrt", EK_REFERENCE, EK_LAYER_NORM, EK_FORWARD, "rsqrt"},
	{"torch.addcmul", EK_REFERENCE, EK_LAYER_NORM, EK_FORWARD, "affine"},
	{"torch.Tensor.to", EK_REFERENCE, EK_LAYER_NORM, EK_FORWARD, "cast_in"},
	{"evenkeel.layer_norm", EK_EVENKEEL, EK_LAYER_NORM, EK_FORWARD, NULL},
	{"evenkeel.rms_norm", EK_EVENKEEL, EK_RMS_NORM, EK_FORWARD, NULL},
};

enum { KNOWN_COUNT = sizeof known / sizeof known[0] };
_Static_assert(KNOWN_COUNT <= EK_COST_KERNELS, "all may be met in one expression");

const char *ek_reference_name(int index)
{
	return index >= 0 && index < KNOWN_COUNT ? known[index].name : NULL;
}

/* ---- an expression in the making ---- */

struct expansion {
	const ek_cost_args *args;
	const int64_t *values; /* of the symbols */
	enum ek_metric metric; /* that is being expanded */
	char problem[640];     /* a message that is put together */
	bool met[KNOWN_COUNT];
	int order[KNOWN_COUNT], count; /* the references, as they are first met */
	int open;                      /* references whose arguments are being read */
	bool nested;                   /* a reference was met inside the outermost of them */
};

/* The first are the arguments of a reference. */
static const enum ek_symbol variables[] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN, EK_SYMBOL_HIDDEN_SIZE,
					   EK_SYMBOL_A_BYTES, EK_SYMBOL_W_BYTES};

enum { VARIABLE_COUNT = sizeof variables / sizeof variables[0] };

/* "unknown variable x, must be batch_size, …" */
static const char *unknown(struct expansion *e, const char *kind, const char *name, size_t length, int count,
			   const char *(*at)(int))
{
	int used = snprintf(e->problem, sizeof e->problem, "unknown %s %.*s, must be", kind,
			    length < 60 ? (int)length : 60, name);
	for (int i = 0; i < count && used >= 0 && (size_t)used < sizeof e->problem; i++)
		used += snprintf(e->problem + used, sizeof e->problem - (size_t)used, "%s %s",
				 i == 0           ? ""
				 : i + 1 == count ? " or"
						  : ",",
				 at(i));
	return e->problem;
}

static const char *variable_name(int i)
{
	return ek_symbol_name(variables[i]);
}

static const char *variable(void *user, const char *name, size_t length, struct ek_polynomial *value)
{
	for (int i = 0; i < VARIABLE_COUNT; i++)
		if (ek_is_named(variable_name(i), name, length)) {
			ek_polynomial_symbol(value, variables[i]);
			return NULL;
		}
	return unknown(user, "variable", name, length, VARIABLE_COUNT, variable_name);
}

/* Whether a row is what the reference stands for, and is launched. A cast that is named is meant, also where the op
 * needs none. */
static bool has_row(const struct known *reference, const struct ek_cost_row *row,
		    const struct ek_polynomial *when)
{
	if (!reference->kernel)
		return when->count > 0;
	return strcmp(reference->kernel, row->name) == 0 && strcmp(reference->name, row->call) == 0 &&
	       (when->count > 0 || strcmp(row->type, "cast") == 0);
}

/* Adds a row's metric, if the reference has it. */
static const char *add_row(const struct known *reference, const struct ek_facts *facts,
			   const struct ek_cost_row *row, enum ek_metric metric, struct ek_polynomial *sum)
{
	struct ek_polynomial part;
	const char *wrong = ek_facts_read(facts, row->when, &part);
	if (wrong || !has_row(reference, row, &part))
		return wrong;
	wrong = ek_facts_read(facts, row->of[metric], &part);
	return wrong ? wrong : ek_polynomial_add(sum, sum, &part);
}

/* What runs keeps statistics in f32, or f64 beside f64; s_bytes is the decomposition's, whose width users choose. */
static const char *fix_statistics(struct ek_polynomial *value, const ek_cost_args *args)
{
	struct ek_polynomial width;
	const struct ek_polynomial *by[EK_SYMBOL_COUNT] = {NULL};
	if (args->variant == EK_REFERENCE)
		return NULL;
	ek_polynomial_number(&width, args->dtype == EK_F64 ? 8 : 4);
	by[EK_SYMBOL_S_BYTES] = &width;
	return ek_polynomial_substitute(value, value, by);
}

/* The metric of a reference in its own sizes. RMSNorm has no bias in PyTorch. */
static const char *formula(const struct expansion *e, const struct known *reference,
			   struct ek_polynomial *value)
{
	ek_cost_args args = *e->args;
	struct ek_facts facts;
	const char *wrong = NULL;
	args.variant = reference->variant;
	args.norm = reference->norm;
	args.pass = reference->pass;
	args.with = args.gate_first = 0;
	args.activation = EK_NO_ACTIVATION;
	if (args.norm == EK_RMS_NORM)
		args.absent |= EK_NO_BIAS;
	ek_norm_facts(&facts, &args, false);
	ek_polynomial_number(value, 0);
	const struct ek_cost_row *row = ek_cost_rows(args.variant, args.pass, args.device);
	for (; row->name && !wrong; row++)
		wrong = add_row(reference, &facts, row, e->metric, value);
	return wrong ? wrong : fix_statistics(value, &args);
}

/* A reference in an argument has another value for each metric: which one is wrong must be said. */
static const char *metric_of(const struct expansion *e)
{
	static const char *const words[] = {" where FLOPs are counted", " where bytes read are counted",
					    " where bytes written are counted"};
	return e->nested ? words[e->metric] : "";
}

/* Sizes are whole numbers from 1, in a reference's arguments as everywhere. */
static const char *check_sizes(struct expansion *e, const struct ek_polynomial *arguments)
{
	for (int i = 0; i < EK_REFERENCE_ARGUMENTS; i++) {
		int64_t value;
		bool fits = ek_polynomial_evaluate(&arguments[i], e->values, &value);
		if (fits && value >= 1)
			continue;
		if (!fits)
			(void)snprintf(e->problem, sizeof e->problem,
				       "the %s of this reference does not fit 64 bits%s", variable_name(i),
				       metric_of(e));
		else
			(void)snprintf(e->problem, sizeof e->problem,
				       "the %s of this reference is %lld%s, must be at least 1",
				       variable_name(i), (long long)value, metric_of(e));
		return e->problem;
	}
	return NULL;
}

/* What evenkeel refuses to run has no cost. */
static const char *check_dtypes(struct expansion *e, const struct known *reference)
{
	ek_dtype weight_dtype = e->args->weight_dtype;
	if (reference->variant != EK_EVENKEEL || ek_norm_check_dtypes(e->args->dtype, &weight_dtype) == EK_OK)
		return NULL;
	(void)snprintf(e->problem, sizeof e->problem, "%s", ek_error(NULL));
	return e->problem;
}

static const char *reference(void *user, const char *name, size_t length,
			     const struct ek_polynomial *arguments, struct ek_polynomial *value)
{
	struct expansion *e = user;
	int found = 0;
	while (found < KNOWN_COUNT && !ek_is_named(known[found].name, name, length))
		found++;
	if (found == KNOWN_COUNT)
		return unknown(e, "reference", name, length, KNOWN_COUNT, ek_reference_name);
	if (!e->met[found]) {
		e->met[found] = true;
		e->order[e->count++] = found;
	}
	if (!arguments) {
		e->open++;
		return check_dtypes(e, &known[found]);
	}
	const char *wrong = check_sizes(e, arguments);
	e->nested = --e->open > 0;
	const struct ek_polynomial *by[EK_SYMBOL_COUNT] = {NULL};
	struct ek_polynomial own;
	for (int i = 0; i < EK_REFERENCE_ARGUMENTS; i++)
		by[variables[i]] = &arguments[i];
	if (!wrong)
		wrong = formula(e, &known[found], &own);
	return wrong ? wrong : ek_polynomial_substitute(value, &own, by);
}

/* ---- the whole ---- */

static ek_status fail_at(const char *text, struct ek_mistake mistake)
{
	return ek_fail(EK_ERROR_ARGUMENT, "%s\n  %s\n  %*s", mistake.what, text, (int)mistake.at + 1, "^");
}

/* The text as one line, which a caret can point into. */
static ek_status take_text(const char *text, char *line)
{
	if (!text)
		return ek_fail(EK_ERROR_ARGUMENT, "text is NULL: give an expression");
	if (strlen(text) > MOST_TEXT)
		return ek_fail(EK_ERROR_ARGUMENT, "the expression has %zu characters, more than %d",
			       strlen(text), MOST_TEXT);
	size_t length = strlen(text), plain = length;
	for (size_t i = 0; i <= length; i++) {
		bool control = (unsigned char)text[i] < ' ' || text[i] == 127;
		bool space = text[i] && strchr("\t\r\n", text[i]);
		line[i] = space ? ' ' : text[i] && control ? '?' : text[i];
		if (plain == length && text[i] && !space && (control || (unsigned char)text[i] > 127))
			plain = i;
	}
	return plain == length ? EK_OK
			       : fail_at(line, (struct ek_mistake){"a character is not plain ASCII", plain});
}

/* What is not launched (torch.addcmul without a bias) costs nothing; the reader is told why. */
static void name_reference(ek_cost_kernel *kernel, const struct known *met, bool launched)
{
	static const char *const variants[] = {
		[EK_REFERENCE] = "reference", [EK_PYTORCH] = "pytorch", [EK_EVENKEEL] = "evenkeel"};
	kernel->type = "reference";
	(void)snprintf(kernel->name, sizeof kernel->name, "%s", met->name);
	(void)snprintf(kernel->origin, sizeof kernel->origin, "%s of %s, variant %s%s",
		       met->kernel ? met->kernel : "all kernels",
		       met->norm == EK_LAYER_NORM ? "layer_norm" : "rms_norm", variants[met->variant],
		       launched ? "" : ", not launched with these operands");
}

/* The references that were met, each with the formula of its own sizes, and the symbols in it. */
static ek_status list_references(const struct expansion *e, ek_cost *cost, bool *used)
{
	struct expansion one = *e;
	ek_status status = EK_OK;
	for (int i = 0; i < e->count && status == EK_OK; i++) {
		const struct known *met = &known[e->order[i]];
		ek_cost_kernel *kernel = &cost->kernels[cost->kernel_count++]; /* KNOWN_COUNT fit */
		struct ek_metrics metrics;
		for (int metric = 0; metric < EK_METRIC_COUNT; metric++) {
			one.metric = (enum ek_metric)metric;
			(void)formula(&one, met, &metrics.of[metric]);
		}
		name_reference(kernel, met, metrics.of[EK_METRIC_READ].count > 0);
		ek_cost_use_symbols(used, &metrics);
		status = ek_cost_fill(kernel, &metrics, e->values);
	}
	return status;
}

/* A difference may be less than nothing; no cost is. */
static ek_status check_not_negative(const ek_cost_kernel *total)
{
	for (int i = 0; i < EK_METRIC_COUNT; i++) {
		long long number = *(const int64_t *)((const char *)total + ek_metric_fields[i].number);
		REQUIRE(number >= 0, EK_ERROR_ARGUMENT,
			"the expression is below 0 at these sizes: its %s are %lld", ek_metric_fields[i].name,
			number);
	}
	return EK_OK;
}

/* Fields that references do not use get valid values, so that ek_cost_check can be used here as well. */
static ek_status check(const ek_cost_args *args, const ek_cost *cost, ek_cost_args *resolved)
{
	REQUIRE(cost, EK_ERROR_ARGUMENT, "cost is NULL: give the address of an ek_cost");
	REQUIRE_SIZE(cost->size, ek_cost);
	PASS_ON(ek_cost_take(args, resolved));
	resolved->norm = EK_LAYER_NORM;
	resolved->pass = EK_FORWARD;
	resolved->variant = EK_REFERENCE;
	return ek_cost_check(resolved);
}

ek_status ek_reference_cost(const char *text, const ek_cost_args *args, ek_cost *cost)
{
	ek_cost_args a;
	struct ek_facts facts;
	struct ek_metrics total;
	bool used[EK_SYMBOL_COUNT] = {false};
	char line[MOST_TEXT + 1];
	PASS_ON(take_text(text, line));
	PASS_ON(check(args, cost, &a));
	ek_norm_facts(&facts, &a, false);
	struct expansion e = {.args = &a, .values = facts.values};
	const struct ek_meaning meaning = {.name = variable, .reference = reference, .user = &e};
	ek_cost found = {.size = cost->size};
	for (int metric = 0; metric < EK_METRIC_COUNT; metric++) {
		e.metric = (enum ek_metric)metric;
		struct ek_mistake mistake = ek_expression_read(line, &meaning, &total.of[metric]);
		if (mistake.what)
			return fail_at(line, mistake);
	}
	ek_cost_name_total(&found.total, "the expression");
	ek_cost_use_symbols(used, &total);
	PASS_ON(list_references(&e, &found, used));
	PASS_ON(ek_cost_fill(&found.total, &total, facts.values));
	PASS_ON(check_not_negative(&found.total));
	found.symbol_count = ek_cost_list_symbols(found.symbols, used, facts.values);
	memcpy(cost, &found, found.size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}
