/* Which constants serve a call's kernels on a GPU: policy.c. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_POLICY_H
#define EK_OPS_ROPE_POLICY_H

#include "op.h"

/* What a policy depends on. */
struct ek_rope_form {
	int kind; /* KIND_ROPE_… of kernels/layout.h */
	ek_dtype dtype;
	bool norm, centred, bias; /* centred: LayerNorm */
	int head_dim, rotary_dim;
	int alignment; /* of heads: 16, 8, or less */
};

struct ek_rope_policy {
	int unit;        /* neighbouring elements that a thread loads at once */
	int row_threads; /* that share a head */
	int heads;       /* that a thread has in hand at once */
	int threads;     /* of a block */
	int blocks;      /* that shall fit a multiprocessor */
};

struct ek_rope_policy ek_rope_policy(const struct ek_rope_form *form);

/* Units of a thread. */
int ek_rope_units(const struct ek_rope_form *form, int unit, int row_threads);
/* Bytes of shared memory. */
int ek_rope_shared(const struct ek_rope_form *form, const struct ek_rope_policy *policy);

#endif
