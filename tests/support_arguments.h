/* Calls with every operand in one small arena, to be spoilt and refused: for test_arguments.c and test_overlaps.c.
 * SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_ARGUMENTS_H
#define EK_TESTS_SUPPORT_ARGUMENTS_H

#include "support.h"

enum { ROWS = 6, COLS = 40, STRIDE = 100, ROOM = ROWS * STRIDE * 8, CALLS = OPEN_OPS * PASS_COUNT };
/* What a call has beside the norm: a residual before it, one after it, a gate of its result, a gate of x. */
enum { FORM_RESIDUAL, FORM_AFTER, FORM_GATE, FORM_GATE_FIRST, FORMS, ALL_CALLS = FORMS * CALLS };

/* The memory of a call, in one place so that one comparison sees every byte; and what it is before. */
extern struct arena {
	_Alignas(64) unsigned char of[EK_MOST_OPERANDS][ROOM], workspace[1 << 17];
} arena, before;

struct call {
	const struct ek_op_entry *entry;
	const struct ek_op *op;
	union op_args args;
	size_t workspace;
};

/* Fills the arena; returns the context of all calls. */
ek_context *arguments_open(void);

/* A call with every operand of its form. Numbers up to CALLS: LayerNorm forward, backward, RMSNorm forward, backward, with a
 * residual before the norm; then as many of each other form. */
struct call call_of(int number);
/* A field of the op's table; 0 is one that it does not have. */
void put(struct call *call, uint16_t offset, int64_t value, size_t bytes);
void put_eps(struct call *call, double eps);
void put_strides(struct call *call, int64_t stride);
/* Of the op and of its weights; the other dtypes follow. */
void put_dtypes(struct call *call, ek_dtype dtype, ek_dtype weight_dtype);
/* Names with spaces between them become NULL. */
void drop(struct call *call, const char *names);

/* Of what should have been refused: status, parts of the message, and nothing written. */
void expect_answer(const char *what, ek_status status, ek_status wanted, const char *const *parts);
#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})
/* By the call and by what prepares it. */
void refused(const struct call *call, ek_status wanted, const char *const *parts);
void allowed(const char *what, const struct call *call);

#endif
