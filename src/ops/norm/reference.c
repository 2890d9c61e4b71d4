/* The reference of the norm ops: picks the arithmetic. f32, f16 and bf16 tensors are computed in binary32, f64
 * in binary64; reference.inc.h is the definition itself. SPDX-License-Identifier: MIT */
#include "reference.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "core/dtype.h"
#include "core/order.h"
#include "core/slots.h"
#include "cpu/fpenv.h"
#include "math/activations.h"
#include "math/reference.h"
#include "ops/elements.h"

#define real float
#define fma_real fmaf
#define sqrt_real sqrtf
#define STATS_DTYPE EK_F32
#define NAME(x) x##_f32
#include "reference.inc.h"
#undef real
#undef fma_real
#undef sqrt_real
#undef STATS_DTYPE
#undef NAME

#define real double
#define fma_real fma
#define sqrt_real sqrt
#define STATS_DTYPE EK_F64
#define NAME(x) x##_f64
#include "reference.inc.h"

static ek_status forward(ek_context *ctx, const ek_norm_forward_args *args, enum ek_intent intent)
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

static size_t backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args)
{
	(void)ctx;
	if (!args->dweight && !args->dbias && !args->dx_bias)
		return 0;
	size_t numbers = KEPT_f32 * (size_t)(args->rows * ek_norm_groups(args->cols, args->group_cols)) +
			 EK_REFERENCE_STRIP * (size_t)ek_most_slots(args->rows, args->cols);
	return numbers * ek_bytes_of_dtype(ek_real_of(args->dtype));
}

static ek_status backward(ek_context *ctx, const ek_norm_backward_args *args, enum ek_intent intent)
{
	ek_status status = ek_norm_check_backward_memory(args, backward_workspace(ctx, args));
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

const struct ek_norm_backend ek_norm_reference = {forward, backward, backward_workspace};
