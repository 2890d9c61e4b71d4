/* What a GPU has that plans depend on; known without the GPU, too. SPDX-License-Identifier: MIT */
#ifndef EK_GPU_LIMITS_H
#define EK_GPU_LIMITS_H

#include <stdbool.h>

#include "evenkeel.h"

struct ek_gpu_limits {
	int arch; /* 90 is compute capability 9.0 */
	int multiprocessors;
	int shared_bytes; /* that a block may have */
};

/* Of every GPU of that compute capability. */
static inline struct ek_gpu_limits ek_limits_of(int arch, int multiprocessors)
{
	bool large = arch == 90 || arch / 10 == 10, medium = arch == 80 || arch == 87;
	return (struct ek_gpu_limits){arch, multiprocessors, (large ? 227 : medium ? 163 : 99) << 10};
}

#endif
