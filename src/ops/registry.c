/* A row for each op. SPDX-License-Identifier: MIT */
#include "registry.h"

#include "core/backend.h"
#include "cpu/open.h"
#include "gpu/open.h"
#include "norm/cpu.h"
#include "norm/cuda.h"
#include "norm/reference.h"

/* ---- the norms ---- */

#define BIT(number) (UINT32_C(1) << (number))
enum {
	PLAIN_FORWARD = BIT(EK_FORWARD_Y) | BIT(EK_FORWARD_MEAN) | BIT(EK_FORWARD_RSTD) |
			BIT(EK_FORWARD_MEAN_LO) | BIT(EK_FORWARD_X) | BIT(EK_FORWARD_WEIGHT) |
			BIT(EK_FORWARD_BIAS),
	PLAIN_BACKWARD = BIT(EK_BACKWARD_DX) | BIT(EK_BACKWARD_DWEIGHT) | BIT(EK_BACKWARD_DBIAS) |
			 BIT(EK_BACKWARD_DY) | BIT(EK_BACKWARD_X) | BIT(EK_BACKWARD_WEIGHT) |
			 BIT(EK_BACKWARD_MEAN) | BIT(EK_BACKWARD_RSTD) | BIT(EK_BACKWARD_MEAN_LO),
	ADD_FORWARD = PLAIN_FORWARD | BIT(EK_FORWARD_X_BIAS) | BIT(EK_FORWARD_RESIDUAL) | BIT(EK_FORWARD_H),
	AFTER_FORWARD = PLAIN_FORWARD | BIT(EK_FORWARD_X_BIAS) | BIT(EK_FORWARD_RESIDUAL_AFTER),
	AFTER_BACKWARD = PLAIN_BACKWARD | BIT(EK_BACKWARD_X_BIAS) | BIT(EK_BACKWARD_DX_BIAS),
	ADD_BACKWARD =
		PLAIN_BACKWARD | BIT(EK_BACKWARD_DH) | BIT(EK_BACKWARD_DRESIDUAL) | BIT(EK_BACKWARD_DX_BIAS),
	ACT_FORWARD = PLAIN_FORWARD | BIT(EK_FORWARD_X_BIAS),
	ACT_BACKWARD = AFTER_BACKWARD | BIT(EK_BACKWARD_BIAS)
};
/* clang-format off */
#define NORM(name, alias, kind, forward, backward, needed, act)                                                      \
	{name, alias, &ek_norm_forward_op, &ek_norm_backward_op, kind, {forward, needed}, {backward, BIT(EK_BACKWARD_DY)}, \
	 (act) ? ~UINT32_C(0) : ~BIT(EK_NORM_ACTIVATION), {[EK_NORM_ACTIVATION] = (act)}}

const struct ek_op_entry ek_ops[EK_OP_COUNT] = {
	NORM("layer_norm", NULL, EK_LAYER_NORM, PLAIN_FORWARD, PLAIN_BACKWARD, 0, 0),
	NORM("rms_norm", NULL, EK_RMS_NORM, PLAIN_FORWARD, PLAIN_BACKWARD, 0, 0),
	NORM("add_layer_norm", NULL, EK_LAYER_NORM, ADD_FORWARD, ADD_BACKWARD, BIT(EK_FORWARD_RESIDUAL), 0),
	NORM("add_rms_norm", NULL, EK_RMS_NORM, ADD_FORWARD, ADD_BACKWARD, BIT(EK_FORWARD_RESIDUAL), 0),
	NORM("layer_norm_residual", NULL, EK_LAYER_NORM, AFTER_FORWARD, AFTER_BACKWARD, BIT(EK_FORWARD_RESIDUAL_AFTER), 0),
	NORM("rms_norm_residual", NULL, EK_RMS_NORM, AFTER_FORWARD, AFTER_BACKWARD, BIT(EK_FORWARD_RESIDUAL_AFTER), 0),
	NORM("layer_norm_act", "layer_norm_gelu", EK_LAYER_NORM, ACT_FORWARD, ACT_BACKWARD, 0, EK_GELU),
	NORM("rms_norm_act", NULL, EK_RMS_NORM, ACT_FORWARD, ACT_BACKWARD, 0, EK_GELU),
};
/* clang-format on */

const struct ek_backend ek_backend_reference = {
	.close = ek_cpu_close,
	.describe = ek_cpu_describe,
	.norm = &ek_norm_reference,
};

const struct ek_backend ek_backend_cpu = {
	.close = ek_cpu_close,
	.describe = ek_cpu_describe,
	.norm = &ek_norm_cpu,
};

const struct ek_backend ek_backend_cuda = {
	.close = ek_cuda_close,
	.describe = ek_cuda_describe,
	.norm = &ek_norm_cuda,
};
