/* A row for each op. SPDX-License-Identifier: MIT */
#include "registry.h"

#include "core/backend.h"
#include "cpu/open.h"
#include "gpu/open.h"
#include "norm/cpu.h"
#include "norm/cuda.h"
#include "norm/reference.h"

const struct ek_op_entry ek_ops[EK_OP_COUNT] = {
	{"layer_norm", &ek_norm_forward_op, &ek_norm_backward_op, EK_LAYER_NORM},
	{"rms_norm", &ek_norm_forward_op, &ek_norm_backward_op, EK_RMS_NORM},
};

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
