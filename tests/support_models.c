/* Norm cases on models of GPU that are not there; support_models.h says what. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "support_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/slots.h"

/* ---- GPUs ---- */

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

struct norm_case case_for(bool backward, int norm, struct dtype_pair dtypes, int64_t rows, int64_t cols)
{
	struct norm_case c = case_of(backward, norm ? EK_RMS_NORM : EK_LAYER_NORM, dtypes, rows, cols);
	c.seed = (uint64_t)(rows * 100 + cols * 7919 + backward * 2 + norm);
	return c;
}

int64_t rows_of_slots(int64_t cols, int64_t most)
{
	return (most - 1) * ek_slot_target(cols) + 1;
}

void case_lay_out(struct norm_case *c, enum ek_access access, int choice)
{
	static const enum operand_id matrices[] = {X, DY, Y, DX};
	const int element = (int)ek_dtype_size(c->dtype);
	for (int i = 0; i < COUNT_OF(matrices); i++) {
		const int turned = (choice + i) % 4;
		int *offset = &c->offset[matrices[i]];
		int64_t *pad = &c->pad[matrices[i]];
		if (access == EK_ACCESS_QUADS) {
			*offset = 16 * turned;
			*pad = (16 - c->cols * element % 16) % 16 / element + 16 / element * (choice * i % 3);
		} else {
			*offset = turned == 0 ? 0 : turned == 3 ? 64 - element : 32 * (turned - 1) + element;
			*pad = turned * 3;
		}
	}
	if (access == EK_ACCESS_SHIFTED)
		c->offset[X] = element; /* something must not be aligned */
	if (access == EK_ACCESS_ELEMENTS) {
		c->offset[matrices[choice]] = 17 + 2 * choice;
		c->offset[c->backward ? DY : Y] = 1;
	}
}

static uint64_t inputs_digest(void)
{
	uint64_t digest = DIGEST_START;
	for (int id = X; id <= MEAN_LO; id++) {
		const struct buffer *buffer = &case_inputs[id].buffer;
		size_t bytes = case_inputs[id].present ? buffer->bytes + 2 * (size_t)BUFFER_MARGIN : 0;
		for (size_t at = 0; at < bytes; at += 8) {
			uint64_t word = 0;
			memcpy(&word, buffer->data - BUFFER_MARGIN + at, bytes - at < 8 ? bytes - at : 8);
			digest = (digest ^ word) * 0x9e3779b97f4a7c15u;
		}
	}
	return digest;
}

bool same_on(struct model model, const struct norm_case *c)
{
	ek_context *ctx = context_on(model);
	uint64_t inputs = inputs_digest();
	ek_status status = case_call(ctx, c, case_actual);
	if (status != EK_OK) {
		test_fail("%s, %s: %s: %s", case_text(c), name_of(model), ek_status_name(status),
			  ek_error(ctx));
		return false;
	}
	EXPECT(inputs_digest() == inputs, "%s, %s: an input was written", case_text(c), name_of(model));
	return case_compare(c, name_of(model), 1, case_actual);
}
