/* Norm cases on models of GPU that are not there; support_models.h says what. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "support_models.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/slots.h"
#include "verify/mirror.h"

/* ---- GPUs ---- */

const struct model models[MODELS] = {{90, 132}, {86, 20}, {80, 108}, {120, 170}, {100, 148}};

/* The stand-in asks the environment at every call what it is. */
ek_context *context_on(struct model model)
{
	static struct {
		struct model model;
		ek_context *ctx;
	} opened[16];
	char text[16];
	int i = 0;
	(void)snprintf(text, sizeof(text), "%d", model.arch);
	(void)setenv("EVENKEEL_STANDIN_ARCH", text, 1);
	(void)snprintf(text, sizeof(text), "%d", model.multiprocessors);
	(void)setenv("EVENKEEL_STANDIN_SMS", text, 1);
	while (i < COUNT_OF(opened) && opened[i].ctx &&
	       (opened[i].model.arch != model.arch ||
		opened[i].model.multiprocessors != model.multiprocessors))
		i++;
	if (i < COUNT_OF(opened) && opened[i].ctx)
		return opened[i].ctx;
	ek_options options = {.size = sizeof(options), .device = EK_CUDA};
	if (i == COUNT_OF(opened) || ek_open(&opened[i].ctx, &options) != EK_OK) {
		printf("no context on a GPU of compute capability %d: %s\n", model.arch, ek_error(NULL));
		exit(1);
	}
	opened[i].model = model;
	return opened[i].ctx;
}

const char *name_of(struct model model)
{
	static char name[48];
	(void)snprintf(name, sizeof(name), "cuda (arch %d, %d multiprocessors)", model.arch,
		       model.multiprocessors);
	return name;
}

/* ---- cases ---- */

struct test_case case_for(bool backward, int norm, struct dtype_pair dtypes, int64_t rows, int64_t cols)
{
	struct test_case c = case_of(backward, norm ? EK_RMS_NORM : EK_LAYER_NORM, dtypes, rows, cols);
	c.seed = (uint64_t)(rows * 100 + cols * 7919 + backward * 2 + norm);
	return c;
}

int64_t rows_of_slots(int64_t cols, int64_t most)
{
	return (most - 1) * ek_slot_target(cols) + 1;
}

int64_t rows_for(int64_t cols)
{
	return cols <= 64 ? 70 : cols <= 20000 ? 5 : cols <= 300000 ? 2 : 1;
}

void case_lay_out(struct test_case *c, int access, int choice)
{
	const struct ek_op *op = case_op(c);
	const int element = (int)ek_dtype_size(c->dtype);
	int matrices[EK_MOST_OPERANDS] = {0}, count = 0;
	for (int i = op->operand_count - 1; i >= 0; i--) /* inputs first */
		if (op->operands[i].rank > 1)
			matrices[count++] = i;
	for (int i = 0; i < count; i++) {
		const int turned = (choice + i) % 4;
		int *offset = &c->offset[matrices[i]];
		int64_t *pad = &c->pad[matrices[i]];
		if (access == ACCESS_HALF_QUADS) {
			*offset = 16 * turned + 4 * (int)ek_dtype_size(operand_dtype(c, matrices[i])) % 16;
			*pad = 4 * (choice * i % 3);
		} else if (access == ACCESS_QUADS) {
			*offset = 16 * turned;
			*pad = (16 - c->cols * element % 16) % 16 / element + 16 / element * (choice * i % 3);
		} else {
			*offset = turned == 0 ? 0 : turned == 3 ? 64 - element : 32 * (turned - 1) + element;
			*pad = turned * 3;
		}
	}
	if (access == ACCESS_SHIFTED)
		c->offset[matrices[0]] = element; /* something must not be aligned */
	if (access == ACCESS_ELEMENTS) {
		c->offset[matrices[choice % (count > 0 ? count : 1)]] = 17 + 2 * choice;
		c->offset[matrices[1]] = 1;
	}
}

static uint64_t inputs_digest(void)
{
	const struct ek_op *op = case_inputs.op;
	uint64_t digest = DIGEST_START;
	for (int i = op->output_count; i < op->operand_count; i++) {
		const struct buffer *buffer = &case_inputs.of[i].buffer;
		int64_t bytes = case_inputs.of[i].present ? (int64_t)buffer->bytes + 2 * BUFFER_MARGIN : 0;
		for (int64_t at = 0; at < bytes; at++)
			digest = (digest ^ buffer->data[at - BUFFER_MARGIN]) * 0x100000001b3u;
	}
	return digest;
}

bool same_on(struct model model, const struct test_case *c)
{
	ek_context *ctx = context_on(model);
	uint64_t inputs = inputs_digest();
	ek_status status = case_call(ctx, c, &case_actual);
	if (status != EK_OK) {
		test_fail("%s, %s: %s: %s", case_text(c), name_of(model), ek_status_name(status),
			  ek_error(ctx));
		return false;
	}
	EXPECT(inputs_digest() == inputs, "%s, %s: an input was written", case_text(c), name_of(model));
	return case_compare(c, name_of(model), 1, &case_actual);
}

void check_on(struct model model, const struct test_case *c)
{
	static uint64_t turn;
	if (test_mode == TEST_DEFAULT ? !test_sampled(3)
				      : test_mode == TEST_SHORT && (test_seed() + turn++) % 2)
		return;
	case_expect(c);
	(void)same_on(model, c);
}

bool same_without_margins(struct model model, const struct test_case *c)
{
	ek_context *ctx = context_on(model);
	case_outputs(ctx, c, &case_actual);
	const union op_args args = case_args_in(c, &case_actual);
	const ek_status status = mirror_call(ctx, case_op(c), &args, 0);
	EXPECT(status == EK_OK, "%s: %s", case_text(c), ek_error(ctx));
	return status == EK_OK && case_compare(c, name_of(model), 1, &case_actual);
}
