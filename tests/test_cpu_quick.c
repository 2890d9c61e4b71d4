/* The list of `evenkeel verify --quick` on a CPU (cli/cases.c): ops take turns, and yet nothing is left out.
 * SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "../cli/options.h"
#include "support_runner.h"

static const struct options quick = {.command = COMMAND_VERIFY,
				     .quick = true,
				     .device = EK_CPU,
				     .weight = true,
				     .bias = true,
				     .x_bias = true};
static struct listed_case *cases, *all;
static int case_count, all_count;

/* All that is listed where every op is named. */
SETUP()
{
	struct options options = quick;
	cases = cases_list(&options, false, &case_count);
	options.op_count = EK_OP_COUNT;
	for (int i = 0; i < EK_OP_COUNT; i++)
		options.ops[i] = &ek_ops[i];
	all = cases_list(&options, false, &all_count);
}

static bool same_shape(const struct listed_case *a, const struct listed_case *b)
{
	return a->c.rows == b->c.rows && a->c.cols == b->c.cols;
}

static bool same_form(const struct listed_case *a, const struct listed_case *b)
{
	return a->c.pass == b->c.pass && a->c.dtype == b->c.dtype && a->c.weight_dtype == b->c.weight_dtype &&
	       strcmp(a->form, b->form) == 0;
}

/* Whether a case of the wanted one's op is the same in that respect. */
static bool is_listed(const struct listed_case *wanted,
		      bool (*is_same)(const struct listed_case *a, const struct listed_case *b))
{
	for (int i = 0; i < case_count; i++)
		if (cases[i].c.op == wanted->c.op && is_same(&cases[i], wanted))
			return true;
	return false;
}

TEST(every_op_and_pass_meets_every_form_in_every_dtype)
{
	EXPECT(all_count > 4 * case_count, "%d of %d cases", case_count, all_count);
	for (int i = 0; i < all_count; i++)
		EXPECT(is_listed(&all[i], same_form), "no %s %s %s: %s", all[i].c.op->name,
		       pass_names[all[i].c.pass], ek_dtype_name(all[i].c.dtype), all[i].form);
}

TEST(every_op_meets_every_shape)
{
	for (int i = 0; i < all_count; i++)
		EXPECT(is_listed(&all[i], same_shape), "no %s of %lldx%lld", all[i].c.op->name,
		       (long long)all[i].c.rows, (long long)all[i].c.cols);
}

TEST(every_activation_meets_every_op_and_order_of_a_gate)
{
	for (int op = 0; op < EK_OP_COUNT; op++)
		for (int choice = 0; choice < EK_IDENTITY * 2; choice++) {
			int activation = 1 + choice % EK_IDENTITY, first = choice / EK_IDENTITY, count = 0;
			bool gated = ek_ops[op].open_choices >> EK_CHOICE_GATE_FIRST & 1;
			if (!(ek_ops[op].open_choices >> EK_CHOICE_ACTIVATION & 1) || (first && !gated) ||
			    !(ek_ops[op].activations >> activation & 1))
				continue;
			for (int i = 0; i < case_count; i++)
				count += cases[i].c.op == &ek_ops[op] &&
					 cases[i].c.activation == activation &&
					 cases[i].c.gate_first == first;
			EXPECT(count > 0, "no %s with activation %d%s", ek_ops[op].name, activation,
			       first ? " and the gate first" : "");
		}
}

TEST(groups_that_are_asked_for_leave_out_other_widths)
{
	struct options options = quick;
	int count;
	options.group_cols = 7;
	struct listed_case *listed = cases_list(&options, false, &count);
	EXPECT(count > 0, "no cases");
	for (int i = 0; i < count; i++)
		EXPECT(listed[i].c.cols % 7 == 0 && listed[i].c.group_cols == 7,
		       "%lld columns in groups of %lld", (long long)listed[i].c.cols,
		       (long long)listed[i].c.group_cols);
	free(listed);
}

TEARDOWN()
{
	free(cases);
	free(all);
}
