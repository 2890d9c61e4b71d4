/* The kernels of the norm ops by key: what distinguishes one from another, and how each is made.
 * SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_NORM_RECIPE_H
#define EK_CUDA_NORM_RECIPE_H

#include "kernel.h"
#include "policy.h"

enum ek_norm_part {
	EK_PART_FORWARD = 1,  /* norm_forward.cu */
	EK_PART_BACKWARD,     /* norm_backward.cu */
	EK_PART_WIDE_FORWARD, /* norm_wide.cu */
	EK_PART_WIDE_ROWS,
	EK_PART_WIDE_COLUMNS,
	EK_PART_FOLD, /* norm_columns.cu: partial sums into fewer */
	EK_PART_FINAL /* norm_columns.cu: into dweight and dbias */
};

struct ek_norm_key {
	enum ek_norm_part part;
	ek_norm norm;
	ek_dtype dtype, weight_dtype;
	int64_t cols;
	bool weight, bias, given, dx, dweight, dbias;
	enum ek_access access;
	bool weight_elements; /* weight or bias starts at no multiple of 16 */
	bool bytes;           /* some pointer is no multiple of its element size */
	bool few;             /* ek_forward_few_policy */
};

uint64_t ek_norm_key_pack(const struct ek_norm_key *key);

/* An ek_write_recipe. */
void ek_norm_write_recipe(uint64_t key, const struct ek_gpu *gpu, struct ek_recipe *recipe);
/* The same for GPUs that are not at hand. */
void ek_norm_write_recipe_for(uint64_t key, struct ek_gpu_limits limits, struct ek_recipe *recipe);

/* The policy of a key's part. For EK_PART_FORWARD and EK_PART_BACKWARD it may say that norm_wide.cu serves the rows
 * (unit_segments over 0): the kernel then has a part EK_PART_WIDE_…, whose policy is the same. */
struct ek_policy ek_norm_policy(const struct ek_norm_key *key, struct ek_gpu_limits limits);

/* Bytes of shared memory of a part of norm_wide.cu. */
int ek_norm_wide_shared(const struct ek_norm_key *key, const struct ek_policy *policy, int shared_limit);

#endif
