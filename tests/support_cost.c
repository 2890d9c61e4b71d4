/* What the tests of the cost model share; support_cost.h says what. SPDX-License-Identifier: MIT */
#include "support_cost.h"

#include <string.h>

ek_cost_args args_of(ek_norm norm, ek_pass pass, ek_variant variant)
{
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .norm = norm,
			      .pass = pass,
			      .variant = variant,
			      .device = EK_CUDA,
			      .batch_size = 8,
			      .seq_len = 2048,
			      .hidden_size = 4096,
			      .dtype = EK_BF16};
}

const ek_cost *cost_of(const ek_cost_args *args)
{
	static ek_cost cost; /* it is large */
	cost.size = sizeof cost;
	ek_status status = ek_norm_cost(args, &cost);
	EXPECT(status == EK_OK, "%s: %s", ek_status_name(status), ek_error(NULL));
	return &cost;
}

void expect_numbers(const ek_cost_kernel *kernel, int64_t flops, int64_t read, int64_t written)
{
	EXPECT(kernel->flops == flops && kernel->read_bytes == read && kernel->write_bytes == written,
	       "%s: %lld FLOP, %lld read, %lld written, by hand %lld, %lld, %lld", kernel->name,
	       (long long)kernel->flops, (long long)kernel->read_bytes, (long long)kernel->write_bytes,
	       (long long)flops, (long long)read, (long long)written);
}

void expect_formulas(const ek_cost_kernel *kernel, const char *flops, const char *read, const char *written)
{
	EXPECT(strcmp(kernel->symbols.flops, flops) == 0, "%s: FLOP are %s, not %s", kernel->name,
	       kernel->symbols.flops, flops);
	EXPECT(strcmp(kernel->symbols.read_bytes, read) == 0, "%s: read are %s, not %s", kernel->name,
	       kernel->symbols.read_bytes, read);
	EXPECT(strcmp(kernel->symbols.write_bytes, written) == 0, "%s: written are %s, not %s", kernel->name,
	       kernel->symbols.write_bytes, written);
}

bool expect_kernels(const ek_cost *cost, const char *names)
{
	char text[512] = "";
	for (int i = 0; i < cost->kernel_count; i++) {
		strncat(text, i ? " " : "", sizeof text - strlen(text) - 1);
		strncat(text, cost->kernels[i].name, sizeof text - strlen(text) - 1);
	}
	EXPECT(strcmp(text, names) == 0, "the kernels are %s, not %s", text, names);
	return strcmp(text, names) == 0;
}
