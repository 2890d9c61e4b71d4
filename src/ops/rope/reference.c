/* The reference of rotary position embedding: picks the arithmetic. reference.inc.h is the definition itself.
 * SPDX-License-Identifier: MIT */
#include "reference.h"

#include <math.h>

#include "core/order.h"
#include "core/sizes.h"
#include "core/slots.h"
#include "cpu/fpenv.h"
#include "ops/elements.h"

_Static_assert(EK_MAX_HEAD_DIM <= SEGMENT, "a head is one segment of rule 2");

#define real float
#define fma_real fmaf
#define sqrt_real sqrtf
#define NAME(x) x##_f32
#include "reference.inc.h"
#undef real
#undef fma_real
#undef sqrt_real
#undef NAME

#define real double
#define fma_real fma
#define sqrt_real sqrt
#define NAME(x) x##_f64
#include "reference.inc.h"

static ek_status forward(ek_context *ctx, const ek_rope_forward_args *args, enum ek_intent intent)
{
	(void)ctx;
	if (intent == EK_PREPARE)
		return EK_OK;
	struct ek_rope_call call;
	ek_rope_forward_call(args, &call);
	struct ek_fpenv saved = ek_fpenv_enter();
	if (args->dtype == EK_F64)
		forward_f64(&call);
	else
		forward_f32(&call);
	ek_fpenv_leave(saved);
	return EK_OK;
}

/* The slots of the columns of one head. */
static size_t backward_workspace(const ek_context *ctx, const ek_rope_backward_args *args)
{
	(void)ctx;
	struct ek_rope_call call;
	ek_rope_backward_call(args, &call);
	int64_t slots = 0, tokens = call.batch * call.seq;
	for (int k = 0; k < call.side_count; k++) {
		const struct ek_rope_side *side = &call.sides[k];
		if (side->dbias)
			slots = larger(slots, ek_most_slots(tokens, side->heads * call.head_dim));
		if (side->dweight)
			slots = larger(slots, ek_most_slots(tokens * side->heads, call.head_dim));
	}
	return (size_t)(slots * call.head_dim) * ek_bytes_of_dtype(ek_real_of(args->dtype));
}

static ek_status backward(ek_context *ctx, const ek_rope_backward_args *args, enum ek_intent intent)
{
	ek_status status = ek_rope_check_backward_memory(args, backward_workspace(ctx, args));
	if (status != EK_OK || intent == EK_PREPARE)
		return status;
	struct ek_rope_call call;
	ek_rope_backward_call(args, &call);
	struct ek_fpenv saved = ek_fpenv_enter();
	if (args->dtype == EK_F64)
		backward_f64(&call, args->workspace);
	else
		backward_f32(&call, args->workspace);
	ek_fpenv_leave(saved);
	return EK_OK;
}

const struct ek_rope_backend ek_rope_reference = {forward, backward, backward_workspace};
