/* The norm kernels for one pair of dtypes. cpu_level.inc.h says what the parameters are. Makes: LEVEL_ACT_WEIGHT, a struct
 * ek_norm_kernel.
 * SPDX-License-Identifier: MIT */
#include "cpu_stats.inc.h"
#include "cpu_forward.inc.h"
#include "cpu_backward.inc.h"
#include "cpu_split.inc.h"
#ifdef FUSED_DTYPES
#include "cpu_fused.inc.h"
#endif

extern const struct ek_norm_kernel N(LEVEL);
const struct ek_norm_kernel N(LEVEL) = {
	.forward = N(forward),
	.forward_neighbours = N(forward_neighbours),
	.backward = N(backward),
	.finish_columns = N(finish_columns),
	.split_first = N(split_first),
	.split_second = N(split_second),
	.split_finish = N(split_finish),
	.split_given = N(split_given),
	.split_reduce = N(split_reduce),
	.split_means = N(split_means),
};
#undef ACT
#undef WEIGHT
