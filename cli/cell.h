/* One cell of the speed list: a case with its buffers, many sets of them, so that calls that go through the
 * sets find their data in memory and not in a cache. SPDX-License-Identifier: MIT */
#ifndef CLI_CELL_H
#define CLI_CELL_H

#include "cases.h"
#include "copy.h"
#include "report.h"
#include "verify/operands.h"

struct ek_gpu;
struct peer;

struct cell {
	struct test_case test_case;
	struct ek_gpu *gpu; /* whose memory it is; NULL: the host's */
	const struct ek_op *op;
	int64_t sets;
	unsigned char *slabs[EK_MOST_OPERANDS]; /* by number; NULL: absent */
	size_t steps[EK_MOST_OPERANDS];         /* bytes from a set's to the next one's; 0: all share it */
	void *workspace;
	int64_t set; /* that the arguments point to */
	union op_args args;
};

/* Of the operand of that name; NULL: it is absent. */
unsigned char *cell_slab(const struct cell *cell, const char *name);

/* How long and how often to measure. */
enum { MAX_ROUNDS = 64 };
struct effort {
	int least_rounds, most_rounds; /* up to MAX_ROUNDS */
	double seconds;                /* rounds go on for so long */
};

/* Makes as many sets as hold --rotate bytes together (256 MiB; on a GPU 512 MiB, or four times its L2), but at
 * least 2; or as told if sets > 0. Returns an exit status. */
int cell_make(struct cell *cell, ek_context *ctx, const struct options *options,
	      const struct test_case *test_case, int64_t sets);
void cell_free(struct cell *cell);

/* The number of the input that a copy reads: x, or what the op has for it. */
int cell_input(const struct cell *cell);
/* Bytes of a tensor that a copy moves beside one set of the op; and the op's bytes over those of a copy that moves so many
 * tensors. */
size_t cell_copied(const struct cell *cell);
double cell_copies(const struct cell *cell, int tensors);

/* One call of the op on one set. */
ek_status cell_call(struct cell *cell, ek_context *ctx, int64_t set);

/* What is measured, and on what; the figures are 0. */
void cell_describe(const struct cell *cell, const ek_context *ctx, struct result *result);

/* On the CPU: times op, copy and peer (may be NULL) in interleaved rounds and fills result. Returns an exit status. */
int cell_measure(struct cell *cell, ek_context *ctx, struct team *team, struct peer *peer,
		 const struct effort *effort, struct result *result);

/* On the CPU: times calls on one set that stays in the caches. Returns an exit status. */
int cell_measure_cached(struct cell *cell, ek_context *ctx, struct peer *peer, struct result *result);

#endif
