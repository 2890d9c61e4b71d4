/* A row for each op. SPDX-License-Identifier: MIT */
#include "registry.h"

#include "core/backend.h"
#include "cpu/open.h"
#include "gpu/open.h"
#include "glu/cpu.h"
#include "glu/cuda.h"
#include "glu/reference.h"
#include "norm/cpu.h"
#include "norm/cuda.h"
#include "norm/reference.h"
#include "rope/cpu.h"
#include "rope/cuda.h"
#include "rope/reference.h"

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
	ACT_BACKWARD = AFTER_BACKWARD | BIT(EK_BACKWARD_BIAS),
	GATED_FORWARD = PLAIN_FORWARD | BIT(EK_FORWARD_GATE),
	GATED_BACKWARD =
		PLAIN_BACKWARD | BIT(EK_BACKWARD_BIAS) | BIT(EK_BACKWARD_GATE) | BIT(EK_BACKWARD_DGATE)
};
/* clang-format off */
#define NORM(name, kind, FORWARD, needed, BACKWARD, needed_backward, act, allowed)                                       \
	{name, &ek_norm_forward_op, &ek_norm_backward_op, kind, {FORWARD, needed}, {BACKWARD, needed_backward},          \
	 ~(((act) ? 0 : BIT(EK_CHOICE_ACTIVATION)) | ((FORWARD) & BIT(EK_FORWARD_GATE) ? 0 : BIT(EK_CHOICE_GATE_FIRST))),     \
	 {[EK_CHOICE_ACTIVATION] = (act)}, allowed}
#define PLAIN(name, kind) NORM(name, kind, PLAIN_FORWARD, 0, PLAIN_BACKWARD, BIT(EK_BACKWARD_DY), 0, 0)
#define ADD(name, kind) NORM(name, kind, ADD_FORWARD, BIT(EK_FORWARD_RESIDUAL), ADD_BACKWARD, BIT(EK_BACKWARD_DY), 0, 0)
#define AFTER(name, kind) \
	NORM(name, kind, AFTER_FORWARD, BIT(EK_FORWARD_RESIDUAL_AFTER), AFTER_BACKWARD, BIT(EK_BACKWARD_DY), 0, 0)
#define ACT(name, kind, allowed) NORM(name, kind, ACT_FORWARD, 0, ACT_BACKWARD, BIT(EK_BACKWARD_DY), EK_GELU, allowed)
#define GATED(name, kind)                                                              \
	NORM(name, kind, GATED_FORWARD, BIT(EK_FORWARD_GATE), GATED_BACKWARD,          \
	     BIT(EK_BACKWARD_DY) | BIT(EK_BACKWARD_GATE), EK_SILU, EK_NORM_ACTIVATIONS)
/* ---- gated activations ---- */

enum {
	BIAS_ACT_FORWARD = BIT(EK_GLU_FORWARD_Y) | BIT(EK_GLU_FORWARD_GATE) | BIT(EK_GLU_FORWARD_GATE_BIAS),
	BIAS_ACT_BACKWARD = BIT(EK_GLU_BACKWARD_DGATE) | BIT(EK_GLU_BACKWARD_DGATE_BIAS) | BIT(EK_GLU_BACKWARD_DY) |
			    BIT(EK_GLU_BACKWARD_GATE) | BIT(EK_GLU_BACKWARD_GATE_BIAS),
	GLU_CHOICES = BIT(EK_CHOICE_WEIGHT_DTYPE) | BIT(EK_CHOICE_GRADIENT_DTYPE) | BIT(EK_CHOICE_ACTIVATION)
};
#define GLU(name, usual, allowed, more)                                                                                    \
	{name, &ek_glu_forward_op, &ek_glu_backward_op, 0, {~UINT32_C(0), BIT(EK_GLU_FORWARD_VALUE)},                      \
	 {~UINT32_C(0), BIT(EK_GLU_BACKWARD_VALUE)}, GLU_CHOICES | (more), {[EK_CHOICE_ACTIVATION] = (usual)}, allowed}
#define GLU_ACTIVATIONS (EK_NORM_ACTIVATIONS | BIT(EK_RELU) | BIT(EK_RELU_SQUARED) | BIT(EK_IDENTITY))
#define GELUS (BIT(EK_GELU) | BIT(EK_GELU_TANH))

/* ---- rotary position embedding ---- */

enum {
	ROPE_FORWARD = ~(BIT(EK_ROPE_FORWARD_Q_WEIGHT) | BIT(EK_ROPE_FORWARD_K_WEIGHT)),
	ROPE_BACKWARD = ~(BIT(EK_ROPE_BACKWARD_DQ_WEIGHT) | BIT(EK_ROPE_BACKWARD_DK_WEIGHT) | BIT(EK_ROPE_BACKWARD_Q) |
			  BIT(EK_ROPE_BACKWARD_K) | BIT(EK_ROPE_BACKWARD_Q_BIAS) | BIT(EK_ROPE_BACKWARD_K_BIAS) |
			  BIT(EK_ROPE_BACKWARD_Q_WEIGHT) | BIT(EK_ROPE_BACKWARD_K_WEIGHT)),
	ROPE_CHOICES = BIT(EK_CHOICE_WEIGHT_DTYPE) | BIT(EK_CHOICE_GRADIENT_DTYPE) | BIT(EK_CHOICE_TABLE_DTYPE) |
		       BIT(EK_CHOICE_INTERLEAVED) | BIT(EK_CHOICE_TRAILING),
	QK_NORM_CHOICES = BIT(EK_CHOICE_NORM) | BIT(EK_CHOICE_NORM_LAST) | BIT(EK_CHOICE_WEIGHT_OFFSET)
};

const struct ek_op_entry ek_ops[EK_OP_NAMES] = {
	PLAIN("layer_norm", EK_LAYER_NORM),
	PLAIN("rms_norm", EK_RMS_NORM),
	ADD("add_layer_norm", EK_LAYER_NORM),
	ADD("add_rms_norm", EK_RMS_NORM),
	AFTER("layer_norm_residual", EK_LAYER_NORM),
	AFTER("rms_norm_residual", EK_RMS_NORM),
	ACT("layer_norm_act", EK_LAYER_NORM, EK_NORM_ACTIVATIONS),
	ACT("rms_norm_act", EK_RMS_NORM, EK_NORM_ACTIVATIONS),
	GATED("layer_norm_gated", EK_LAYER_NORM),
	GATED("rms_norm_gated", EK_RMS_NORM),
	GLU("glu", EK_SILU, GLU_ACTIVATIONS, BIT(EK_CHOICE_INTERLEAVED)),
	{"bias_act", &ek_glu_forward_op, &ek_glu_backward_op, 0, {BIAS_ACT_FORWARD, 0}, {BIAS_ACT_BACKWARD, 0},
	 GLU_CHOICES, {[EK_CHOICE_ACTIVATION] = EK_GELU}, GLU_ACTIVATIONS},
	/* fewer activations of one above */
	ACT("layer_norm_gelu", EK_LAYER_NORM, GELUS),
	GLU("swiglu", EK_SILU, BIT(EK_SILU), 0),
	GLU("geglu", EK_GELU, GELUS, 0),
	/* on heads */
	{"rope", &ek_rope_forward_op, &ek_rope_backward_op, 0, {ROPE_FORWARD, 0}, {ROPE_BACKWARD, 0},
	 ROPE_CHOICES, {0}, 0},
	{"qk_norm_rope", &ek_rope_forward_op, &ek_rope_backward_op, 0, {~UINT32_C(0), 0},
	 {~UINT32_C(0), 0}, ROPE_CHOICES | QK_NORM_CHOICES, {[EK_CHOICE_NORM] = EK_RMS_NORM}, 0},
};
/* clang-format on */

const struct ek_backend ek_backend_reference = {
	.close = ek_cpu_close,
	.describe = ek_cpu_describe,
	.norm = &ek_norm_reference,
	.glu = &ek_glu_reference,
	.rope = &ek_rope_reference,
};

const struct ek_backend ek_backend_cpu = {
	.close = ek_cpu_close,
	.describe = ek_cpu_describe,
	.norm = &ek_norm_cpu,
	.glu = &ek_glu_cpu,
	.rope = &ek_rope_cpu,
};

const struct ek_backend ek_backend_cuda = {
	.close = ek_cuda_close,
	.describe = ek_cuda_describe,
	.norm = &ek_norm_cuda,
	.glu = &ek_glu_cuda,
	.rope = &ek_rope_cuda,
};
