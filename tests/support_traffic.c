/* Calls whose operands are an allocation each; support_traffic.h says what. SPDX-License-Identifier: MIT */
#include "support_traffic.h"

#include "verify/memory.h"

static void *make(struct call *call, const char *name, size_t offset, size_t bytes, void **start)
{
	*start = memory_make(call->gpu, offset + bytes);
	EXPECT(*start, "no memory for %s", name);
	return (char *)*start + offset;
}

bool call_run(struct call *call)
{
	const struct test_case *c = call->c;
	const struct ek_op *op = case_op(c);
	ek_context *ctx = context_on(call->model);
	void *at[EK_MOST_OPERANDS] = {NULL};
	union op_args args;
	size_t bytes = 0;
	call->gpu = gpu_of(ctx);
	case_args(c, NULL, &args);
	for (int i = 0; i < op->operand_count; i++)
		if (c->present >> i & 1)
			at[i] = make(call, op->operands[i].name, (size_t)c->offset[i],
				     ek_operand_bytes(op, &op->operands[i], &args), &call->start[i]);
	case_args(c, at, &args);
	if (args_workspace(op, ctx, &args, &bytes) == EK_OK && bytes)
		args_set_workspace(op, &args, make(call, "workspace", 0, bytes, &call->start[WORKSPACE]),
				   bytes);
	standin.traffic_count(true);
	ek_status status = op->call(ctx, &args);
	EXPECT(status == EK_OK, "%s, %s: %s", case_text(c), name_of(call->model), ek_error(ctx));
	return status == EK_OK;
}

void call_free(struct call *call)
{
	standin.traffic_count(false);
	for (int i = 0; i <= WORKSPACE; i++)
		memory_free(call->gpu, call->start[i]);
}
