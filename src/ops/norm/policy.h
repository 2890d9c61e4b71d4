/* Which kernel serves a norm of a given width and dtype, and how its work is cut: data, in policy.c, apart from kernels
 * (kernels/) and launches (plan.c). Nothing here changes a bit. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_POLICY_H
#define EK_OPS_NORM_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/limits.h"
#include "kernels/layout.h"

/* Constants of the kernels, by the same names (kernels/rows.cu and those that follow it). Part of the kernel's key. */
struct ek_norm_policy {
	uint16_t row_warps, row_blocks, warp_segments, block_rows, row_threads, rows_at_once, blocks;
	uint16_t registers;     /* of a thread, in forward; 0: as many as there are */
	uint16_t unit_segments; /* over 0: staged.cu serves the rows */
	uint16_t tiles;         /* staged.cu */
	/* backward */
	uint16_t stages, keep, keep_weight, fold_blocks;
};

/* What a policy depends on besides the GPU. */
struct ek_norm_form {
	ek_norm norm;
	ek_dtype dtype, weight_dtype;
	int64_t cols;    /* of a group, where there are groups */
	int64_t groups;  /* in a row */
	int access;      /* ACCESS_… */
	bool half_quads; /* 16-bit rows, held in binary32 because they start at multiples of 8 bytes */
	bool given;      /* backward: statistics */
	int sums;        /* backward: column sums wanted */
	bool flavoured; /* forward: a weight offset, several roundings, y in another dtype, a residual after */
	bool after;     /* forward: a residual after the norm, or a gate of the result */
	bool gate;
	ek_activation activation;
	int kept;    /* weight, and x_bias and bias where they are read; forward: 2 also with a gate of x */
	int tensors; /* that are fetched: forward x and the residual; backward 2, 3 in fused calls */
};

struct ek_norm_policy ek_forward_policy(const struct ek_norm_form *form, const struct ek_gpu_limits *limits);
/* Of few rows, which wait for their slowest step and not for the memory, where they have a kernel of their own:
 * false where they have none. Few are those that a GPU holds at once: `blocks` for every multiprocessor. */
bool ek_forward_few_policy(const struct ek_norm_form *form, struct ek_norm_policy *policy);
struct ek_norm_policy ek_backward_policy(const struct ek_norm_form *form, const struct ek_gpu_limits *limits);

/* Whether staged.cu serves the rows: no registers hold them. */
bool ek_policy_is_staged(const struct ek_norm_policy *policy);
/* BOUND_THREADS: more than a block has, so that the compiler takes no more registers than it was given. */
int ek_policy_bound(const struct ek_norm_policy *policy);
/* Threads of a block, blocks of a cluster. */
int ek_policy_threads(const struct ek_norm_policy *policy);
int ek_policy_cluster(const struct ek_norm_policy *policy);
/* Rows that a cluster of forward takes. */
int ek_policy_rows(const struct ek_norm_policy *policy);
/* Slots whose column sums backward folds before it writes them. */
int ek_policy_slots(const struct ek_norm_policy *policy);
/* STAGED_UNITS. */
int ek_policy_units(const struct ek_norm_policy *policy, int64_t cols);

/* Bytes of dynamic shared memory. */
int ek_forward_shared(const struct ek_norm_policy *policy, const struct ek_norm_form *form);
int ek_backward_shared(const struct ek_norm_policy *policy, const struct ek_norm_form *form);
/* What a block of backward needs besides for the sums of chunks, where slots have over 32 rows: in shared memory or,
 * without room there, in the workspace. */
int ek_backward_chunk_bytes(const struct ek_norm_policy *policy, const struct ek_norm_form *form);
/* Of the rows of staged.cu: x alone (forward), or x and dy. */
int ek_staged_shared(const struct ek_norm_policy *policy, const struct ek_norm_form *form, int tensors);
/* Of its columns. */
int ek_walk_shared(ek_dtype dtype, int tensors);

#endif
