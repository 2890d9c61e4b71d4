/* Norm calls whose operands are an allocation each; support_traffic.h says what. SPDX-License-Identifier: MIT */
#include "support_traffic.h"

#include "../cli/memory.h"

const char *const call_names[OPERANDS] = {
	"x",      "dy",     "weight",    "bias", "mean",    "rstd",  "mean_lo",   "y",
	"y_mean", "y_rstd", "y_mean_lo", "dx",   "dweight", "dbias", "workspace",
};

bool is_matrix(enum operand_id id)
{
	return id == X || id == DY || id == Y || id == DX;
}

bool is_present(const struct norm_case *c, enum operand_id id)
{
	static const unsigned needs[OPERANDS] = {
		[WEIGHT] = FORM_WEIGHT,   [BIAS] = FORM_BIAS,         [MEAN] = FORM_MEAN,
		[RSTD] = FORM_RSTD,       [MEAN_LO] = FORM_MEAN_LO,   [Y_MEAN] = FORM_MEAN,
		[Y_RSTD] = FORM_RSTD,     [Y_MEAN_LO] = FORM_MEAN_LO, [DX] = FORM_DX,
		[DWEIGHT] = FORM_DWEIGHT, [DBIAS] = FORM_DBIAS};
	static const bool is_of[2][OPERANDS] = {
		{[X] = 1, [WEIGHT] = 1, [BIAS] = 1, [Y] = 1, [Y_MEAN] = 1, [Y_RSTD] = 1, [Y_MEAN_LO] = 1},
		{[X] = 1,
		 [DY] = 1,
		 [WEIGHT] = 1,
		 [MEAN] = 1,
		 [RSTD] = 1,
		 [MEAN_LO] = 1,
		 [DX] = 1,
		 [DWEIGHT] = 1,
		 [DBIAS] = 1}};
	return is_of[c->backward][id] && (needs[id] == 0 || c->form & needs[id]);
}

int64_t real_bytes(const struct norm_case *c)
{
	return c->dtype == EK_F64 ? 8 : 4;
}

int64_t element_bytes(const struct norm_case *c)
{
	return (int64_t)ek_dtype_size(c->dtype);
}

int64_t stride_bytes(const struct norm_case *c, enum operand_id id)
{
	return (c->cols + c->pad[id]) * element_bytes(c);
}

int64_t operand_bytes(const struct norm_case *c, enum operand_id id)
{
	if (is_matrix(id))
		return c->rows * c->cols * element_bytes(c);
	if (id == WEIGHT || id == BIAS || id == DWEIGHT || id == DBIAS)
		return c->cols * (int64_t)ek_dtype_size(c->weight_dtype);
	return c->rows * real_bytes(c);
}

static void make_operand(struct call *call, enum operand_id id, size_t bytes)
{
	size_t offset = (size_t)call->c->offset[id];
	call->start[id] = memory_make(call->gpu, offset + bytes);
	call->at[id] = (char *)call->start[id] + offset;
	EXPECT(call->start[id], "no memory for %s", call_names[id]);
}

static ek_norm_forward_args forward_args(const struct call *call)
{
	const struct norm_case *c = call->c;
	return (ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
				      .norm = c->norm,
				      .dtype = c->dtype,
				      .weight_dtype = c->weight_dtype,
				      .rows = c->rows,
				      .cols = c->cols,
				      .x_stride = c->cols + c->pad[X],
				      .y_stride = c->cols + c->pad[Y],
				      .eps = 1e-5,
				      .x = call->at[X],
				      .weight = call->at[WEIGHT],
				      .bias = call->at[BIAS],
				      .y = call->at[Y],
				      .mean = call->at[Y_MEAN],
				      .rstd = call->at[Y_RSTD],
				      .mean_lo = call->at[Y_MEAN_LO]};
}

static ek_norm_backward_args backward_args(const struct call *call)
{
	const struct norm_case *c = call->c;
	return (ek_norm_backward_args){.size = sizeof(ek_norm_backward_args),
				       .norm = c->norm,
				       .dtype = c->dtype,
				       .weight_dtype = c->weight_dtype,
				       .rows = c->rows,
				       .cols = c->cols,
				       .x_stride = c->cols + c->pad[X],
				       .dy_stride = c->cols + c->pad[DY],
				       .dx_stride = c->cols + c->pad[DX],
				       .eps = 1e-5,
				       .accumulate = (c->form & FORM_ACCUMULATE) != 0,
				       .dy = call->at[DY],
				       .x = call->at[X],
				       .weight = call->at[WEIGHT],
				       .mean = call->at[MEAN],
				       .rstd = call->at[RSTD],
				       .mean_lo = call->at[MEAN_LO],
				       .dx = call->at[DX],
				       .dweight = call->at[DWEIGHT],
				       .dbias = call->at[DBIAS],
				       .workspace = call->at[WORKSPACE],
				       .workspace_size = call->workspace};
}

bool call_run(struct call *call)
{
	const struct norm_case *c = call->c;
	ek_context *ctx = context_on(call->model);
	call->gpu = gpu_of(ctx);
	for (enum operand_id id = 0; id < WORKSPACE; id++) {
		int64_t gaps = is_matrix(id) ? (c->rows - 1) * c->pad[id] * element_bytes(c) : 0;
		if (is_present(c, id))
			make_operand(call, id, (size_t)(operand_bytes(c, id) + gaps));
	}
	ek_norm_backward_args args = backward_args(call);
	if (c->backward && ek_norm_backward_workspace(ctx, &args, &call->workspace) == EK_OK &&
	    call->workspace)
		make_operand(call, WORKSPACE, call->workspace);
	args = backward_args(call);
	ek_norm_forward_args forward = forward_args(call);
	standin.traffic_count(true);
	ek_status status = c->backward ? ek_norm_backward(ctx, &args) : ek_norm_forward(ctx, &forward);
	EXPECT(status == EK_OK, "%s, %s: %s", case_text(c), name_of(call->model), ek_error(ctx));
	return status == EK_OK;
}

void call_free(struct call *call)
{
	standin.traffic_count(false);
	for (enum operand_id id = 0; id < OPERANDS; id++)
		memory_free(call->gpu, call->start[id]);
}
