/* Which kernel serves a norm of a given width and dtype, and how its work is cut: data, in policy.c, apart
 * from kernels (kernels/) and launches (norm.c). Nothing here changes a bit. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_POLICY_H
#define EK_CUDA_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "evenkeel.h"

/* The constants of kernels/norm_rows.cu, norm_backward.cu and norm_wide.cu by the same names. */
struct ek_policy {
	int row_warps, row_blocks, warp_segments, block_rows, row_threads, rows_at_once, blocks;
	int registers;     /* of a thread, in forward; 0: as many as there are */
	int unit_segments; /* over 0: norm_wide.cu */
	/* backward */
	int stages, keep, keep_weight, fold_blocks;
};

/* What a GPU has that matters here. */
struct ek_gpu_limits {
	int arch;         /* 90 is compute capability 9.0 */
	int shared_bytes; /* that a block may have */
};
/* Of every GPU of that compute capability. */
struct ek_gpu_limits ek_limits_of(int arch);

/* How rows start in memory: ACCESS of kernels/norm_rows.cu. */
enum ek_access {
	EK_ACCESS_QUADS,   /* at multiples of 16 bytes */
	EK_ACCESS_SHIFTED, /* at multiples of the element size */
	EK_ACCESS_ELEMENTS /* anywhere */
};

struct ek_policy ek_forward_policy(ek_dtype dtype, int64_t cols, enum ek_access access,
				   struct ek_gpu_limits limits);
/* Of few rows, which wait for their slowest step and not for the memory, where they have a kernel of their own:
 * false where they have none. Few are those that a GPU holds at once: `blocks` for every multiprocessor. */
bool ek_forward_few_policy(ek_dtype dtype, int64_t cols, enum ek_access access, struct ek_policy *policy);
struct ek_policy ek_backward_policy(ek_dtype dtype, int64_t cols, enum ek_access access,
				    struct ek_gpu_limits limits);
/* Of rows that do not fit into registers, however they are aligned: norm_wide.cu serves them. The two above return it
 * for such rows. */
struct ek_policy ek_wide_policy(ek_dtype dtype, int64_t cols, bool forward, struct ek_gpu_limits limits);

/* For operands that take more of them. */
void ek_policy_add_registers(struct ek_policy *policy, int more);
/* BOUND_THREADS: more than a block has, so that the compiler takes no more registers than it was given. */
int ek_policy_bound(const struct ek_policy *policy);

/* Threads of a block, blocks of a cluster. */
int ek_policy_threads(const struct ek_policy *policy);
int ek_policy_cluster(const struct ek_policy *policy);
/* Slots whose column sums backward folds before it writes them. */
int ek_policy_slots(const struct ek_policy *policy);

/* Bytes of dynamic shared memory of forward. */
int ek_forward_shared(const struct ek_policy *policy, ek_dtype dtype, int64_t cols, enum ek_access access);

/* Of the rows of norm_wide.cu: x alone or dy, too, in shared memory; again: they are looked at several times. */
struct ek_wide_form {
	ek_dtype dtype;
	int64_t cols;
	int tensors; /* 1 or 2 */
	bool again;
};
int ek_wide_slots(const struct ek_policy *policy, const struct ek_wide_form *form, int shared_limit);
int ek_wide_shared(const struct ek_policy *policy, const struct ek_wide_form *form, int slots);

/* Of its columns: constants of the same names, and what a block needs. */
enum { EK_WALK_WARPS = 4, EK_WALK_AHEAD = 8, EK_ROW_NUMBERS = 8, EK_MOST_WALK_SLOTS = 4 };
int ek_walk_shared(ek_dtype dtype);

/* Of backward: rows that start anywhere need more (shifted). */
struct ek_backward_form {
	ek_dtype dtype, weight_dtype;
	int64_t cols;
	bool shifted;
	int sums; /* column sums wanted: 0, 1 or 2 */
};
int ek_backward_shared(const struct ek_policy *policy, const struct ek_backward_form *form);
/* What a block needs besides for the sums of chunks, where slots have over 32 rows: in shared memory or, without
 * room there, in the workspace. */
int ek_backward_chunk_bytes(const struct ek_policy *policy, const struct ek_backward_form *form);

/* For tools that try policies: while it is not NULL it stands in for what the tables say. variant must differ
 * between policies that are tried on one GPU. */
struct ek_policy_trial {
	struct ek_policy policy;
	unsigned variant; /* 1 to 1023 */
};
extern const struct ek_policy_trial *ek_policy_tried;

#endif
