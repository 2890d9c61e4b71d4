/* Choices of dtypes and options, validated by the ops' tables; choices.h says what. SPDX-License-Identifier: MIT */
#include "choices.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "heads.h"
#include "options.h"

/* By number. What ops must have for the choice to mean something, an operand or the choice itself; NULL: all have it. For
 * any: also where no op is named, and ops that have it not leave it out. */
static const struct {
	const char *option, *of;
	bool for_any;
} names[EK_CHOICES] = {[EK_CHOICE_WEIGHT_DTYPE] = {"--weight-dtype", NULL, false},
		       [EK_CHOICE_H_DTYPE] = {"--residual-dtype", "residual", false},
		       [EK_CHOICE_Y_DTYPE] = {"--out-dtype", "y_dtype", true},
		       [EK_CHOICE_GRADIENT_DTYPE] = {"--gradient-dtype", NULL, false},
		       [EK_CHOICE_WEIGHT_OFFSET] = {"--weight-offset", "weight_offset", true},
		       [EK_CHOICE_ROUNDING] = {"--rounding", "weight", true},
		       [EK_CHOICE_ACTIVATION] = {"--activation", "activation", false},
		       [EK_CHOICE_GATE_FIRST] = {"--gate-first", "gate_first", false},
		       [EK_CHOICE_INTERLEAVED] = {"--interleaved", "interleaved", false},
		       [EK_CHOICE_TABLE_DTYPE] = {"--table-dtype", "table_dtype", false},
		       [EK_CHOICE_TRAILING] = {"--trailing", "trailing", false},
		       [EK_CHOICE_NORM] = {"--norm", "norm", false},
		       [EK_CHOICE_NORM_LAST] = {"--norm-last", "norm_last", false}};

/* Those of ek_scalar_names that only some ops have. */
static const char *const scalar_options[EK_SCALARS] = {
	[EK_LIMIT] = "--limit", [EK_ALPHA] = "--alpha", [EK_VALUE_OFFSET] = "--value-offset"};

const char *const rounding_names[2] = {"once", "each"};
const char *const activation_names[EK_IDENTITY + 1] = {"",          "sigmoid", "silu",         "gelu",
						       "gelu_tanh", "relu",    "relu_squared", "none"};

static const struct ek_choice *choice_at(int number)
{
	return &ek_norm_backward_op.choices[number];
}

static int chosen(const struct options *options, int number)
{
	return number == EK_CHOICE_WEIGHT_DTYPE ? (int)options->weight_dtype : options->choices[number];
}

/* The dtype that a choice follows: another choice, or the op's. */
static ek_dtype followed(const struct options *options, int number, ek_dtype dtype)
{
	int follows = choice_at(number)->follows;
	int other = follows ? chosen(options, follows - 1) : 0;
	return other ? (ek_dtype)other : dtype;
}

static int refuse_dtype(const struct options *options, int number, ek_dtype dtype)
{
	ek_dtype of = followed(options, number, dtype);
	int follows = choice_at(number)->follows;
	char allowed[64];
	int left = -1; /* beside the dtype that it follows */
	for (int i = EK_F32; i <= EK_F64; i++)
		left += ek_choice_allows(choice_at(number), of, i);
	(void)snprintf(allowed, sizeof allowed, "%s", ek_dtype_name(of));
	for (int i = EK_F32; i <= EK_F64; i++) {
		size_t length = strlen(allowed);
		if (i == (int)of || !ek_choice_allows(choice_at(number), of, i))
			continue;
		(void)snprintf(allowed + length, sizeof allowed - length, "%s%s", --left ? ", " : " or ",
			       ek_dtype_name((ek_dtype)i));
	}
	return complain(STATUS_USAGE, "%s %s: with %s %s it must be %s", names[number].option,
			ek_dtype_name((ek_dtype)chosen(options, number)),
			follows ? names[follows - 1].option : "--dtype", ek_dtype_name(of), allowed);
}

static int check_dtype(const struct options *options, ek_dtype dtype)
{
	for (int i = 0; i < EK_CHOICES; i++)
		if (!ek_choice_allows(choice_at(i), followed(options, i, dtype), chosen(options, i)))
			return refuse_dtype(options, i, dtype);
	return STATUS_FINE;
}

/* A choice that some ops alone have, a residual before or after the norm, or any other operand, by its name. */
static bool has(const struct ek_op_entry *op, const char *name)
{
	for (int i = 0; i < EK_CHOICES; i++)
		if (strcmp(choice_at(i)->name, name) == 0)
			return (op->forward->choice[i] || op->backward->choice[i]) &&
			       op->open_choices >> i & 1;
	for (int i = 0; i < EK_SCALARS; i++)
		if (strcmp(ek_scalar_names[i], name) == 0)
			return op->forward->scalar[i] != 0;
	return op_has(op, name) || (strcmp(name, "residual") == 0 && op_has(op, "residual_after"));
}

/* What an option needs: ops that have what it is about. */
static int check_ops(const struct options *options, const char *option, const char *name)
{
	const struct ek_op_entry *without = NULL, *example = ek_ops;
	for (int i = 0; i < options->op_count && !without; i++)
		without = has(options->ops[i], name) ? NULL : options->ops[i];
	if (options->op_count && !without)
		return STATUS_FINE;
	while (!has(example, name))
		example++;
	return complain(STATUS_USAGE, "%s: must come with an op that has %s %s, such as %s%s%s%s", option,
			strchr("aeiox", *name) ? "an" : "a", name, example->name, without ? "; " : "",
			without ? without->name : "", without ? " has none" : "");
}

/* layer_norm_gelu has not all of them. */
static int check_activation(const struct options *options)
{
	int activation = chosen(options, EK_CHOICE_ACTIVATION), i = 0;
	while (i < options->op_count && options->ops[i]->activations >> activation & 1)
		i++;
	if (!activation || i == options->op_count)
		return STATUS_FINE;
	char allowed[64] = "";
	uint32_t left = options->ops[i]->activations;
	for (int k = EK_NO_ACTIVATION; left >> k; k++) {
		size_t length = strlen(allowed);
		bool last = left >> k == 1;
		if (left >> k & 1)
			(void)snprintf(allowed + length, sizeof allowed - length, "%s%s",
				       !length ? ""
				       : last  ? " or "
					       : ", ",
				       activation_names[k]);
	}
	return complain(STATUS_USAGE, "--activation %s: of %s it must be %s", activation_names[activation],
			options->ops[i]->name, allowed);
}

/* The numbers of gated activations, and how their tensors lie. */
static int check_gated(const struct options *options)
{
	int activation = chosen(options, EK_CHOICE_ACTIVATION), status = STATUS_FINE;
	if (options->limit != 0)
		status = check_ops(options, "--limit", "limit");
	if (options->alpha != 0 && status == STATUS_FINE)
		status = check_ops(options, "--alpha", "alpha");
	if (options->value_offset != 0 && status == STATUS_FINE)
		status = check_ops(options, "--value-offset", "value");
	if (options->packed && status == STATUS_FINE)
		status = check_ops(options, "--packed", "value");
	if (options->packed && chosen(options, EK_CHOICE_INTERLEAVED) && status == STATUS_FINE)
		return complain(STATUS_USAGE, "--packed --interleaved: must be one of the two");
	for (int i = 0; options->alpha != 0 && i < options->op_count && status == STATUS_FINE; i++)
		if ((activation ? activation : options->ops[i]->usual[EK_CHOICE_ACTIVATION]) != EK_SILU)
			return complain(STATUS_USAGE, "--alpha: must be with --activation silu");
	return status;
}

static int check_groups(const struct options *options)
{
	if (options->group_cols && options->op_count) {
		int status = check_ops(options, "--group-cols", "weight");
		if (status != STATUS_FINE)
			return status;
	}
	int64_t wrong = options->group_cols && options->cols % options->group_cols ? options->cols : 0;
	for (int i = 0; options->group_cols && i < options->shape_count && !wrong; i++)
		wrong = options->shapes[i].cols % options->group_cols ? options->shapes[i].cols : 0;
	if (!wrong)
		return STATUS_FINE;
	return complain(STATUS_USAGE,
			"--group-cols %lld does not divide %lld, the columns; expected a divisor of them",
			(long long)options->group_cols, (long long)wrong);
}

/* Of the dtypes of the list, or f32, which run and explain suppose; verify and bench leave out of theirs what does not
 * fit. */
int choices_check(const struct options *options)
{
	bool supposed = options->command & (COMMAND_RUN | COMMAND_EXPLAIN) && options->dtype_count == 0;
	int status = supposed ? check_dtype(options, EK_F32) : STATUS_FINE;
	for (int i = 0; i < options->dtype_count && status == STATUS_FINE; i++)
		status = check_dtype(options, options->dtypes[i]);
	if (options->block) /* ek_block_cost checks them */
		return status;
	for (int i = 0; i < EK_CHOICES && status == STATUS_FINE; i++)
		if (names[i].of && chosen(options, i) && (options->op_count || !names[i].for_any))
			status = check_ops(options, names[i].option, names[i].of);
	if (status == STATUS_FINE && options->x_bias_given)
		status = check_ops(options, "--x-bias", "x_bias");
	if (status == STATUS_FINE)
		status = check_activation(options);
	if (status == STATUS_FINE)
		status = check_gated(options);
	if (status == STATUS_FINE)
		status = check_groups(options);
	return status;
}

const char *choices_text(const struct test_case *c)
{
	static char text[320];
	static const char *const norms[] = {"none", "layer_norm", "rms_norm"};
	size_t length = 0;
	text[0] = 0;
	for (int i = EK_CHOICE_WEIGHT_DTYPE + 1; i < EK_CHOICES; i++) {
		int value = c->choices[i];
		if (value == c->op->usual[i])
			continue;
		const char *word = choice_at(i)->is_dtype      ? ek_dtype_name((ek_dtype)value)
				   : i == EK_CHOICE_ROUNDING   ? rounding_names[value]
				   : i == EK_CHOICE_ACTIVATION ? activation_names[value]
				   : i == EK_CHOICE_NORM       ? norms[value]
							       : "1";
		length += (size_t)snprintf(text + length, sizeof text - length, " %s %s", names[i].option,
					   word);
	}
	for (int i = EK_LIMIT; i < EK_SCALARS; i++)
		if (case_op(c)->scalar[i] && c->scalars[i] != 0)
			length += (size_t)snprintf(text + length, sizeof text - length, " %s %g",
						   scalar_options[i], c->scalars[i]);
	if (c->packed)
		length += (size_t)snprintf(text + length, sizeof text - length, " --packed 1");
	length += (size_t)snprintf(text + length, sizeof text - length, "%s", heads_text(c));
	if (case_has_groups(c) && c->group_cols)
		(void)snprintf(text + length, sizeof text - length, " --group-cols %lld",
			       (long long)c->group_cols);
	return text;
}
