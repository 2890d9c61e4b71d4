/* Norm calls on the stand-in GPU whose operands are an allocation each, so that what launches move can be told apart
 * (standin/traffic.c), and what each launch should move. Called by test_cuda_bytes.c. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_TRAFFIC_H
#define EK_TESTS_SUPPORT_TRAFFIC_H

#include "cuda/gpu.h"
#include "support_models.h"
#include "support_standin.h"

/* ---- a call: support_traffic.c ---- */

struct call {
	const struct norm_case *c;
	struct model model;
	struct ek_gpu *gpu;
	void *start[OPERANDS]; /* of its allocation */
	void *at[OPERANDS];    /* the operand; NULL: there is none */
	size_t workspace;
};

/* Makes the operands that the case has, and counts what the call moves; false and a message where it fails. call->c and
 * call->model are given. call_free goes with it in either case. */
bool call_run(struct call *call);
void call_free(struct call *call);

/* Bytes of an element, from a matrix's row to the next, of a statistic. */
int64_t element_bytes(const struct norm_case *c);
int64_t stride_bytes(const struct norm_case *c, enum operand_id id);
int64_t real_bytes(const struct norm_case *c);

/* ---- what its launches should move: support_traffic_plan.c ---- */

struct moved {
	int64_t read, written;
	int64_t read_in_all_at_most; /* 0: it may be read often, which the L2 serves */
};

enum { MOST_LAUNCHES = 6 };
struct launch {
	const char *part; /* of the kernel's name */
	struct moved of[OPERANDS];
};
struct plan {
	struct launch launches[MOST_LAUNCHES];
	int count;
};

struct plan plan_of(const struct call *call);

#endif
