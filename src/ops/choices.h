/* The choices of all ops: dtypes that some operands have of their own, and options. A choice has one number and one
 * name in every op that has it. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_CHOICES_H
#define EK_OPS_CHOICES_H

#include "core/operand.h"

enum ek_choice_number {
	EK_CHOICE_WEIGHT_DTYPE,
	EK_CHOICE_H_DTYPE,
	EK_CHOICE_Y_DTYPE,
	EK_CHOICE_GRADIENT_DTYPE,
	EK_CHOICE_WEIGHT_OFFSET,
	EK_CHOICE_ROUNDING,
	EK_CHOICE_ACTIVATION,
	EK_CHOICE_GATE_FIRST,
	EK_CHOICE_INTERLEAVED,
	EK_CHOICE_TABLE_DTYPE,
	EK_CHOICE_TRAILING,
	EK_CHOICE_NORM,
	EK_CHOICE_NORM_LAST,
	EK_CHOICES
};

extern const struct ek_choice ek_choices[EK_CHOICES];

#endif
