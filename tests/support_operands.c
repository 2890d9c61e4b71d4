/* The operands of a norm case: what each is, which there are, and the argument structs that point to them; support.h
 * says what. Called by the other support_*.c. SPDX-License-Identifier: MIT */
#include "support.h"

const char *const operand_names[OPERANDS] = {
	"x",    "dy",   "weight",  "bias", "mean",    "rstd",  "mean_lo",   "y",
	"mean", "rstd", "mean_lo", "dx",   "dweight", "dbias", "workspace",
};

enum kind { MATRIX = 1, VECTOR, STATISTIC };
enum pass { FORWARD = 1, BACKWARD = 2, BOTH = FORWARD | BACKWARD };

static const struct {
	enum kind kind;
	enum pass pass;
	unsigned form; /* of the case, without which it is not there; 0: it always is */
} operands[OPERANDS] = {
	[X] = {MATRIX, BOTH, 0},
	[DY] = {MATRIX, BACKWARD, 0},
	[WEIGHT] = {VECTOR, BOTH, FORM_WEIGHT},
	[BIAS] = {VECTOR, FORWARD, FORM_BIAS},
	[MEAN] = {STATISTIC, BACKWARD, FORM_MEAN},
	[RSTD] = {STATISTIC, BACKWARD, FORM_RSTD},
	[MEAN_LO] = {STATISTIC, BACKWARD, FORM_MEAN_LO},
	[Y] = {MATRIX, FORWARD, 0},
	[Y_MEAN] = {STATISTIC, FORWARD, FORM_MEAN},
	[Y_RSTD] = {STATISTIC, FORWARD, FORM_RSTD},
	[Y_MEAN_LO] = {STATISTIC, FORWARD, FORM_MEAN_LO},
	[DX] = {MATRIX, BACKWARD, FORM_DX},
	[DWEIGHT] = {VECTOR, BACKWARD, FORM_DWEIGHT},
	[DBIAS] = {VECTOR, BACKWARD, FORM_DBIAS},
};

bool is_matrix(enum operand_id id)
{
	return operands[id].kind == MATRIX;
}

bool is_present(const struct norm_case *c, enum operand_id id)
{
	unsigned form = operands[id].form;
	return operands[id].pass & (c->backward ? BACKWARD : FORWARD) && (form == 0 || c->form & form);
}

ek_dtype operand_dtype(const struct norm_case *c, enum operand_id id)
{
	if (operands[id].kind == STATISTIC)
		return c->dtype == EK_F64 ? EK_F64 : EK_F32;
	return operands[id].kind == VECTOR ? c->weight_dtype : c->dtype;
}

int64_t operand_cols(const struct norm_case *c, enum operand_id id)
{
	return operands[id].kind == STATISTIC ? c->rows : c->cols;
}

int64_t operand_bytes(const struct norm_case *c, enum operand_id id)
{
	int64_t rows = is_matrix(id) ? c->rows : 1;
	return rows * operand_cols(c, id) * (int64_t)ek_dtype_size(operand_dtype(c, id));
}

ek_norm_forward_args case_forward_at(const struct norm_case *c, void *const at[OPERANDS])
{
	enum operand_id x = c->form & FORM_IN_PLACE ? Y : X;
	return (ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
				      .norm = c->norm,
				      .dtype = c->dtype,
				      .weight_dtype = c->weight_dtype,
				      .rows = c->rows,
				      .cols = c->cols,
				      .x_stride = c->cols + c->pad[x],
				      .y_stride = c->cols + c->pad[Y],
				      .eps = c->eps,
				      .x = at[x],
				      .weight = at[WEIGHT],
				      .bias = at[BIAS],
				      .y = at[Y],
				      .mean = at[Y_MEAN],
				      .rstd = at[Y_RSTD],
				      .mean_lo = at[Y_MEAN_LO]};
}

ek_norm_backward_args case_backward_at(const struct norm_case *c, void *const at[OPERANDS],
				       size_t workspace_size)
{
	enum operand_id dy = c->form & FORM_IN_PLACE ? DX : DY, x = c->form & FORM_OVER_X ? DX : X;
	return (ek_norm_backward_args){.size = sizeof(ek_norm_backward_args),
				       .norm = c->norm,
				       .dtype = c->dtype,
				       .weight_dtype = c->weight_dtype,
				       .rows = c->rows,
				       .cols = c->cols,
				       .dy_stride = c->cols + c->pad[dy],
				       .x_stride = c->cols + c->pad[x],
				       .dx_stride = c->cols + c->pad[DX],
				       .eps = c->eps,
				       .dy = at[dy],
				       .x = at[x],
				       .weight = at[WEIGHT],
				       .mean = at[MEAN],
				       .rstd = at[RSTD],
				       .mean_lo = at[MEAN_LO],
				       .dx = at[DX],
				       .dweight = at[DWEIGHT],
				       .dbias = at[DBIAS],
				       .accumulate = (c->form & FORM_ACCUMULATE) != 0,
				       .workspace = at[WORKSPACE],
				       .workspace_size = workspace_size};
}
