/* The norm kernels for one pair of dtypes, and the struct LEVEL_ACT_WEIGHT of them; norm_level.inc.h says what the
 * parameters are.
 * SPDX-License-Identifier: MIT */
#include "norm_stats.inc.h"
#include "norm_forward.inc.h"
#include "norm_backward.inc.h"
#include "norm_wide.inc.h"

extern const struct ek_norm_kernel N(LEVEL);
const struct ek_norm_kernel N(LEVEL) = {
	.forward = N(forward),
	.backward = N(backward),
	.backward_with_sums = N(backward_with_sums),
	.finish_columns = N(finish_columns),
	.wide_first = N(wide_first),
	.wide_second = N(wide_second),
	.wide_finish = N(wide_finish),
	.wide_given = N(wide_given),
	.wide_reduce = N(wide_reduce),
	.wide_means = N(wide_means),
};
#undef ACT
#undef WEIGHT
