/* Norm calls on the stand-in GPU whose operands are an allocation each, so that what launches move can be told apart
 * (standin/traffic.c), and what each launch should move. Called by test_cuda_bytes.c. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_TRAFFIC_H
#define EK_TESTS_SUPPORT_TRAFFIC_H

#include "gpu/gpu.h"
#include "support_models.h"
#include "support_standin.h"

/* ---- a call ---- */

enum { WORKSPACE = EK_MOST_OPERANDS }; /* as the number of an operand */

struct call {
	const struct test_case *c;
	struct model model;
	struct ek_gpu *gpu;
	void *start[WORKSPACE + 1]; /* of each operand's allocation, by number; NULL: there is none */
};

/* Makes the operands that the case has, and counts what the call moves; false and a message where it fails. call->c and
 * call->model are given. call_free goes with it in either case. */
bool call_run(struct call *call);
void call_free(struct call *call);

/* ---- what its launches should move ---- */

struct moved {
	int64_t read, written;
	int64_t read_in_all_at_most; /* 0: it may be read often, which the L2 serves */
};

enum { MOST_LAUNCHES = 6 };
struct launch {
	const char *part;               /* of the kernel's name */
	struct moved of[WORKSPACE + 1]; /* by number */
};
struct plan {
	struct launch launches[MOST_LAUNCHES];
	int count;
};

struct plan plan_of(const struct call *call);

#endif
