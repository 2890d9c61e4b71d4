/* Norm calls whose operands are an allocation each; support_traffic.h says what. SPDX-License-Identifier: MIT */
#include "support_traffic.h"

#include "../cli/memory.h"

int64_t element_bytes(const struct norm_case *c)
{
	return (int64_t)ek_dtype_size(c->dtype);
}

int64_t stride_bytes(const struct norm_case *c, enum operand_id id)
{
	return (c->cols + c->pad[id]) * element_bytes(c);
}

int64_t real_bytes(const struct norm_case *c)
{
	return (int64_t)ek_dtype_size(operand_dtype(c, RSTD));
}

static void make_operand(struct call *call, enum operand_id id, size_t bytes)
{
	size_t offset = (size_t)call->c->offset[id];
	call->start[id] = memory_make(call->gpu, offset + bytes);
	call->at[id] = (char *)call->start[id] + offset;
	EXPECT(call->start[id], "no memory for %s", operand_names[id]);
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
	ek_norm_forward_args forward = case_forward_at(c, call->at);
	ek_norm_backward_args backward = case_backward_at(c, call->at, 0);
	if (c->backward && ek_norm_backward_workspace(ctx, &backward, &call->workspace) == EK_OK &&
	    call->workspace)
		make_operand(call, WORKSPACE, call->workspace);
	backward = case_backward_at(c, call->at, call->workspace);
	standin.traffic_count(true);
	ek_status status = c->backward ? ek_norm_backward(ctx, &backward) : ek_norm_forward(ctx, &forward);
	EXPECT(status == EK_OK, "%s, %s: %s", case_text(c), name_of(call->model), ek_error(ctx));
	return status == EK_OK;
}

void call_free(struct call *call)
{
	standin.traffic_count(false);
	for (enum operand_id id = 0; id < OPERANDS; id++)
		memory_free(call->gpu, call->start[id]);
}
