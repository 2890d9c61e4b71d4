/* The reference of the gated activations: picks the arithmetic. reference.inc.h is the definition itself.
 * SPDX-License-Identifier: MIT */
#include "reference.h"

#include <stdbool.h>

#include "core/order.h"
#include "core/slots.h"
#include "cpu/fpenv.h"
#include "math/activations.h"
#include "math/reference.h"
#include "ops/elements.h"

#define CALL_OF(a)                                                                                          \
	{                                                                                                   \
		.gate = (a)->gate, .value = (a)->value, .gate_bias = (a)->gate_bias,                        \
		.value_bias = (a)->value_bias, .gate_stride = (a)->gate_stride,                             \
		.value_stride = (a)->value_stride, .dtype = (a)->dtype, .weight_dtype = (a)->weight_dtype,  \
		.activation = (a)->activation, .interleaved = (a)->interleaved, .clamped = (a)->limit != 0, \
		.limit = (real)(a)->limit, .alpha = (real)(a)->alpha,                                       \
		.value_offset = (real)(a)->value_offset,                                                    \
	}

#define real float
#define NAME(x) x##_f32
#include "reference.inc.h"
#undef real
#undef NAME

#define real double
#define NAME(x) x##_f64
#include "reference.inc.h"

static ek_status forward(ek_context *ctx, const ek_glu_forward_args *args, enum ek_intent intent)
{
	(void)ctx;
	if (intent == EK_PREPARE)
		return EK_OK;
	struct ek_fpenv saved = ek_fpenv_enter();
	if (args->dtype == EK_F64)
		forward_f64(args);
	else
		forward_f32(args);
	ek_fpenv_leave(saved);
	return EK_OK;
}

/* The slots of one column. */
static size_t backward_workspace(const ek_context *ctx, const ek_glu_backward_args *args)
{
	(void)ctx;
	if (!args->dgate_bias && !args->dvalue_bias)
		return 0;
	return (size_t)ek_most_slots(args->rows, args->cols) * ek_bytes_of_dtype(ek_real_of(args->dtype));
}

static ek_status backward(ek_context *ctx, const ek_glu_backward_args *args, enum ek_intent intent)
{
	ek_status status = ek_glu_check_backward_memory(args, backward_workspace(ctx, args));
	if (status != EK_OK || intent == EK_PREPARE)
		return status;
	struct ek_fpenv saved = ek_fpenv_enter();
	if (args->dtype == EK_F64)
		backward_f64(args);
	else
		backward_f32(args);
	ek_fpenv_leave(saved);
	return EK_OK;
}

const struct ek_glu_backend ek_glu_reference = {forward, backward, backward_workspace};
