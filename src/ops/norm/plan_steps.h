/* What plan.c has for forward and backward alike. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_PLAN_STEPS_H
#define EK_OPS_NORM_PLAN_STEPS_H

#include "core/dtype.h"
#include "op.h"
#include "plan.h"

/* The lowest bits of all addresses and strides tell their common alignment. */
struct ek_alignment {
	uintptr_t matrices, weights;
	bool bytes;      /* some pointer is not a multiple of its element size */
	bool half_quads; /* of a width that may have them, and all matrices start at multiples of four elements */
};
struct ek_alignment ek_norm_alignment(const struct ek_op *op, const void *args);
/* Whether ACCESS_HALF_QUADS is for rows of such a width: dense rows of 16 bits start at multiples of 8 bytes and not of 16. */
static inline bool ek_norm_may_have_half_quads(int64_t cols)
{
	return cols % 8 == 4;
}

/* ACCESS_… */
int ek_norm_access(const struct ek_alignment *found);
/* The same as a kernel's constant: one that has rows of several dtypes has no trays for shifted ones. */
int ek_norm_kernel_access(int access, bool one_dtype);

/* All but kind and policy. */
struct ek_norm_key ek_norm_key_of(const struct ek_op *op, const void *args, const struct ek_norm_form *form,
				  const struct ek_alignment *found);

void ek_norm_start_plan(struct ek_norm_plan *plan, bool staged);
struct ek_step *ek_norm_add_step(struct ek_norm_plan *plan, const struct ek_norm_key *key,
				 struct ek_launch launch, const void *arguments, size_t size);
/* The rows of staged.cu: forward, or backward's. Changes the key's kind and access to the kernel's. */
void ek_norm_add_staged_rows(struct ek_norm_plan *plan, struct ek_norm_key *key,
			     const struct ek_norm_form *form, const struct staged_arguments *s);

/* .flavour of a key. */
static inline uint8_t ek_norm_flavour(int weight_offset, ek_rounding rounding, ek_activation activation,
				      int gate_first)
{
	return (uint8_t)((weight_offset ? FLAVOUR_WEIGHT_OFFSET : 0) |
			 (rounding == EK_ROUND_EACH ? FLAVOUR_ROUND_EACH : 0) |
			 FLAVOUR_OF((int)activation, gate_first));
}

static inline int64_t ek_real_bytes(ek_dtype dtype)
{
	return (int64_t)ek_bytes_of_dtype(ek_real_of(dtype));
}

static inline void *ek_offset(const void *pointer, int64_t bytes)
{
	return pointer ? (char *)(uintptr_t)pointer + bytes : NULL;
}

#endif
