/* A row for each choice. SPDX-License-Identifier: MIT */
#include "choices.h"

_Static_assert((int)EK_CHOICES <= (int)EK_MOST_CHOICES, "EK_MOST_CHOICES is too small");

const struct ek_choice ek_choices[EK_CHOICES] = {
	[EK_CHOICE_WEIGHT_DTYPE] = {.name = "weight_dtype", .is_dtype = true},
	[EK_CHOICE_H_DTYPE] = {.name = "h_dtype", .is_dtype = true},
	[EK_CHOICE_Y_DTYPE] = {.name = "y_dtype", .is_dtype = true, .narrows = true},
	[EK_CHOICE_GRADIENT_DTYPE] = {.name = "gradient_dtype",
				      .is_dtype = true,
				      .follows = EK_CHOICE_WEIGHT_DTYPE + 1},
	[EK_CHOICE_WEIGHT_OFFSET] = {.name = "weight_offset", .most = 1},
	[EK_CHOICE_ROUNDING] = {.name = "rounding", .most = EK_ROUND_EACH},
	[EK_CHOICE_ACTIVATION] = {.name = "activation", .most = EK_IDENTITY},
	[EK_CHOICE_GATE_FIRST] = {.name = "gate_first", .most = 1, .operand = "gate"},
	[EK_CHOICE_INTERLEAVED] = {.name = "interleaved", .most = 1},
	[EK_CHOICE_TABLE_DTYPE] = {.name = "table_dtype", .is_dtype = true},
	[EK_CHOICE_TRAILING] = {.name = "trailing", .most = 1},
	[EK_CHOICE_NORM] = {.name = "norm", .most = EK_RMS_NORM},
	[EK_CHOICE_NORM_LAST] = {.name = "norm_last", .most = 1},
};
