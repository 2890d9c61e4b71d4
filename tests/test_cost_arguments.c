/* Arguments of the cost model: bad ones are refused, those of 0.1 are taken. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "support_cost.h"

/* What 0.1 has of the struct is a plain norm, whatever lies behind it. */
TEST(arguments_of_0_1_are_a_plain_norm)
{
	ek_cost_args plain = args_of(EK_LAYER_NORM, EK_BACKWARD, EK_EVENKEEL), first = plain;
	const ek_cost_kernel total = cost_of(&plain)->total;
	first.size = offsetof(ek_cost_args, with);
	first.with = first.weight_offset = 0x5a5a;
	EXPECT(memcmp(&cost_of(&first)->total.symbols, &total.symbols, sizeof total.symbols) == 0,
	       "fields behind the struct are read");
}

static void expect_refused(const ek_cost_args *args, ek_status status, const char *words)
{
	ek_cost cost = {.size = sizeof cost};
	ek_status got = ek_norm_cost(args, &cost);
	EXPECT(got == status && strstr(ek_error(NULL), words), "%s: %s, not %s: %s", ek_status_name(got),
	       ek_error(NULL), ek_status_name(status), words);
}

TEST(bad_arguments_are_refused_by_name)
{
	const ek_cost_args good = args_of(EK_LAYER_NORM, EK_FORWARD, EK_REFERENCE);
	ek_cost_args args;
	ek_cost cost = {.size = sizeof cost};
#define REFUSED(field, value, status, words)          \
	do {                                          \
		args = good;                          \
		args.field = (value);                 \
		expect_refused(&args, status, words); \
	} while (0)
	REFUSED(size, 3, EK_ERROR_STRUCT_SIZE, "size (3) is not sizeof(ek_cost_args)");
	REFUSED(norm, (ek_norm)7, EK_ERROR_ARGUMENT, "norm (7)");
	REFUSED(pass, (ek_pass)0, EK_ERROR_ARGUMENT, "pass (0)");
	REFUSED(variant, (ek_variant)4, EK_ERROR_ARGUMENT, "variant (4)");
	REFUSED(device, (ek_device)2, EK_ERROR_ARGUMENT, "device (2)");
	REFUSED(batch_size, 0, EK_ERROR_ARGUMENT, "batch_size (0) must be at least 1");
	REFUSED(seq_len, -1, EK_ERROR_ARGUMENT, "seq_len (-1) must be at least 1");
	REFUSED(hidden_size, 0, EK_ERROR_ARGUMENT, "hidden_size (0) is not in 1 to");
	REFUSED(hidden_size, EK_MAX_COLS + 1, EK_ERROR_ARGUMENT, "hidden_size (16777217)");
	REFUSED(batch_size, INT64_MAX, EK_ERROR_ARGUMENT, "is more than memory can hold");
	REFUSED(batch_size, INT64_MAX / 2048 / 4096 / 8 + 1, EK_ERROR_ARGUMENT,
		"is more than memory can hold");
	/* A tensor that fits, but the reference reads three of them. */
	REFUSED(batch_size, INT64_MAX / 2048 / 4096 / 8, EK_ERROR_ARGUMENT, "do not fit 64 bits");
	/* Rows whose statistics would not fit, however narrow. */
	args = good;
	args.batch_size = INT64_C(1) << 57;
	args.seq_len = args.hidden_size = 1;
	expect_refused(&args, EK_ERROR_ARGUMENT, "is more than memory can hold");
	REFUSED(dtype, (ek_dtype)0, EK_ERROR_DTYPE, "dtype (0)");
	REFUSED(weight_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "weight_dtype (9)");
	REFUSED(compute_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "compute_dtype (9)");
	REFUSED(stats_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "stats_dtype (9)");
	REFUSED(intermediate_dtype, (ek_dtype)9, EK_ERROR_DTYPE, "intermediate_dtype (9)");
	REFUSED(absent, 32, EK_ERROR_ARGUMENT, "absent (32)");
	REFUSED(with, 16, EK_ERROR_ARGUMENT, "with (16) has bits beyond");
	REFUSED(with, EK_WITH_GATE, EK_ERROR_ARGUMENT, "with (8) has EK_WITH_GATE, activation is 0");
	REFUSED(gate_first, 1, EK_ERROR_ARGUMENT, "gate_first (1) must be 0");
	REFUSED(with, 5, EK_ERROR_ARGUMENT, "with (5) has both EK_WITH_RESIDUAL and EK_WITH_RESIDUAL_AFTER");
	REFUSED(h_dtype, EK_F16, EK_ERROR_DTYPE, "h_dtype f16 does not go with dtype bf16");
	REFUSED(y_dtype, EK_F64, EK_ERROR_DTYPE, "y_dtype f64 does not go with dtype bf16");
	REFUSED(gradient_dtype, EK_F16, EK_ERROR_DTYPE,
		"gradient_dtype f16 does not go with weight_dtype bf16");
	REFUSED(weight_offset, 2, EK_ERROR_ARGUMENT, "weight_offset (2) must be 0 or 1");
	REFUSED(rounding, (ek_rounding)2, EK_ERROR_ARGUMENT, "rounding (2)");
	REFUSED(group_cols, -1, EK_ERROR_ARGUMENT, "group_cols (-1) does not divide hidden_size (4096)");
	REFUSED(group_cols, 5, EK_ERROR_ARGUMENT, "group_cols (5) does not divide hidden_size (4096)");
	REFUSED(arch, -1, EK_ERROR_ARGUMENT, "arch (-1)");
	REFUSED(multiprocessors, -1, EK_ERROR_ARGUMENT, "multiprocessors (-1)");
	expect_refused(NULL, EK_ERROR_ARGUMENT, "args is NULL");
	EXPECT(ek_norm_cost(&good, NULL) == EK_ERROR_ARGUMENT, "cost NULL is taken");
	cost.size = 1;
	EXPECT(ek_norm_cost(&good, &cost) == EK_ERROR_STRUCT_SIZE, "a cost of another size is taken");
}

TEST(evenkeel_has_no_cost_for_dtypes_that_it_does_not_take)
{
	static const char refusal[] = "weight_dtype f64 does not go with dtype bf16 (allowed: bf16, f32)";
	ek_cost_args args = args_of(EK_LAYER_NORM, EK_FORWARD, EK_EVENKEEL);
	static ek_cost cost;
	args.weight_dtype = EK_F64;
	expect_refused(&args, EK_ERROR_DTYPE, refusal);
	cost.size = sizeof cost;
	EXPECT(ek_reference_cost("1 + ${evenkeel.layer_norm}(1, 1, 1)", &args, &cost) == EK_ERROR_ARGUMENT &&
		       strstr(ek_error(NULL), refusal) == ek_error(NULL) &&
		       strstr(ek_error(NULL), "\n        ^"),
	       "%s", ek_error(NULL));
	args.variant = EK_REFERENCE;
	EXPECT(cost_of(&args)->symbols[4].value == 8, "w_bytes of f64 are %lld",
	       (long long)cost_of(&args)->symbols[4].value);
	EXPECT(ek_reference_cost("${torch.nn.LayerNorm}(1, 1, 1)", &args, &cost) == EK_OK, "%s",
	       ek_error(NULL));
}
