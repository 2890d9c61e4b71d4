/* The cost model's formulas: evaluated, each gives its number; what does not fit is said. SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "support_cost.h"

static int64_t value_of_symbol(const ek_cost *cost, const char *name, size_t length)
{
	for (int i = 0; i < cost->symbol_count; i++)
		if (strlen(cost->symbols[i].name) == length &&
		    memcmp(cost->symbols[i].name, name, length) == 0)
			return cost->symbols[i].value;
	test_fail("%.*s has no value", (int)length, name);
	return 0;
}

/* A reader of formulas that is not the library's. */
static int64_t value_of_formula(const ek_cost *cost, const char *formula)
{
	int64_t sum = 0, product = 1;
	for (const char *at = formula;;) {
		size_t length = strcspn(at, "* ");
		product *=
			*at >= '0' && *at <= '9' ? strtoll(at, NULL, 10) : value_of_symbol(cost, at, length);
		at += length;
		if (*at == '*') {
			at++;
			continue;
		}
		sum += product;
		if (!*at)
			return sum;
		EXPECT(strncmp(at, " + ", 3) == 0, "%s is no sum of products", formula);
		product = 1;
		at += 3;
	}
}

static void expect_formulas_give_numbers(const ek_cost *cost)
{
	int64_t flops = 0, read = 0, written = 0;
	for (int i = 0; i <= cost->kernel_count; i++) {
		const ek_cost_kernel *kernel = i < cost->kernel_count ? &cost->kernels[i] : &cost->total;
		expect_numbers(kernel, value_of_formula(cost, kernel->symbols.flops),
			       value_of_formula(cost, kernel->symbols.read_bytes),
			       value_of_formula(cost, kernel->symbols.write_bytes));
		EXPECT(*kernel->origin && *kernel->type, "%s has no origin or type", kernel->name);
		if (i < cost->kernel_count) {
			flops += kernel->flops;
			read += kernel->read_bytes;
			written += kernel->write_bytes;
		}
	}
	expect_numbers(&cost->total, flops, read, written);
}

/* A choice of so many, of a number that stands for several. */
static int take(int *number, int count)
{
	int choice = *number % count;
	*number /= count;
	return choice;
}

TEST(formulas_give_the_numbers_and_kernels_the_total)
{
	static const int64_t widths[] = {1, 33, 128, 1000, 4096, 16384, 100000, 1 << 20};
	static const ek_dtype dtypes[] = {EK_F32, EK_F16, EK_BF16, EK_F64};
	for (int i = 0; i < 2 * 2 * 3 * 2 * COUNT_OF(dtypes) * COUNT_OF(widths) * 16; i++) {
		int at = i;
		ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
		args.norm = take(&at, 2) ? EK_RMS_NORM : EK_LAYER_NORM;
		args.pass = take(&at, 2) ? EK_BACKWARD : EK_FORWARD;
		args.variant = (ek_variant)(EK_REFERENCE + take(&at, 3));
		args.device = take(&at, 2) ? EK_CUDA : EK_CPU;
		args.dtype = dtypes[take(&at, COUNT_OF(dtypes))];
		args.hidden_size = widths[take(&at, COUNT_OF(widths))];
		args.absent = at;
		args.with = (const int[]){0, 1, 2, 3, 4, 6, EK_WITH_GATE}[i / 5 % 7];
		args.gate_first = args.with & EK_WITH_GATE && i % 2;
		args.activation = (ek_activation)(args.with & EK_WITH_RESIDUAL_AFTER ? 0
						  : args.with & EK_WITH_GATE         ? 1 + i % 4
										     : i % 5);
		args.h_dtype = i % 3 ? (ek_dtype)0 : args.dtype == EK_F64 ? EK_F64 : EK_F32;
		args.y_dtype = i % 7 ? (ek_dtype)0 : args.dtype == EK_F64 ? EK_F64 : EK_F32;
		args.gradient_dtype = i % 5 ? (ek_dtype)0 : args.h_dtype;
		args.weight_offset = i / 11 % 2;
		args.compute_dtype = EK_F32;
		args.batch_size = 1 + i % 7;
		expect_formulas_give_numbers(cost_of(&args));
	}
}

/* ---- limits ---- */

TEST(kernels_fill_the_array_and_no_more)
{
	const ek_cost_args args = {.size = sizeof args,
				   .pass = EK_BACKWARD,
				   .variant = EK_REFERENCE,
				   .batch_size = 1,
				   .seq_len = 1,
				   .ffn_size = 8,
				   .dtype = EK_BF16,
				   .activation = EK_SILU,
				   .with = EK_WITH_VALUE | EK_WITH_BIASES};
	static ek_cost_kernel kernels[EK_COST_KERNELS];
	ek_cost_list list = {.size = sizeof list, .kernels = kernels, .most_kernels = EK_COST_KERNELS};
	EXPECT(ek_glu_cost(&args, &list) == EK_OK, "%s", ek_error(NULL));
	list.most_kernels = list.kernel_count;
	EXPECT(ek_glu_cost(&args, &list) == EK_OK, "%s", ek_error(NULL));
	list.most_kernels--;
	EXPECT(ek_glu_cost(&args, &list) == EK_ERROR_ARGUMENT && strstr(ek_error(NULL), "room for (4)"), "%s",
	       ek_error(NULL));
	list.kernels = NULL;
	EXPECT(ek_glu_cost(&args, &list) == EK_ERROR_ARGUMENT && strstr(ek_error(NULL), "kernels is NULL"),
	       "%s", ek_error(NULL));
}

TEST(facts_beyond_the_array_are_refused)
{
	struct ek_facts facts = {.count = EK_MOST_FACTS + 1};
	struct ek_polynomial p;
	const char *wrong = ek_facts_read(&facts, "rows", &p);
	EXPECT(wrong && strstr(wrong, "EK_MOST_FACTS"), "%s", wrong ? wrong : "taken");
}

/* ---- polynomials ---- */

TEST(polynomials_say_what_is_too_large)
{
	struct ek_polynomial p, q;
	const struct ek_polynomial *by[EK_SYMBOL_COUNT] = {NULL};
	int64_t values[EK_SYMBOL_COUNT] = {0}, value;
	char text[8];
	ek_polynomial_symbol(&p, EK_SYMBOL_BATCH_SIZE);
	for (int i = 0; i < 7; i++)
		EXPECT(!ek_polynomial_multiply(&p, &p, &p), "power %d", 2 << i);
	EXPECT(ek_polynomial_multiply(&q, &p, &p), "a power of 256 is taken");
	values[EK_SYMBOL_BATCH_SIZE] = 2;
	EXPECT(!ek_polynomial_evaluate(&p, values, &value), "2^128 fits 64 bits");
	values[EK_SYMBOL_BATCH_SIZE] = 1;
	EXPECT(ek_polynomial_evaluate(&p, values, &value) && value == 1, "1^128 is %lld", (long long)value);
	EXPECT(!ek_polynomial_print(&p, text, sizeof text), "128 names fit 8 characters");
	ek_polynomial_number(&q, 3);
	by[EK_SYMBOL_BATCH_SIZE] = &q;
	EXPECT(ek_polynomial_substitute(&p, &p, by), "3^128 fits 64 bits");
	ek_polynomial_number(&p, 0);
	EXPECT(ek_polynomial_print(&p, text, sizeof text) && strcmp(text, "0") == 0, "zero is %s", text);
	EXPECT(!ek_polynomial_print(&p, text, 0), "zero fits nothing");
}
