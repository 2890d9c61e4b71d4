/* The norm kernels for one pair of dtypes; norm_level.inc.h says what the parameters are.
 * SPDX-License-Identifier: MIT */
#include "norm_stats.inc.h"
#include "norm_forward.inc.h"
#include "norm_backward.inc.h"
#include "norm_wide.inc.h"
#undef ACT
#undef WEIGHT
