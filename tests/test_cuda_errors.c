/* Calls that are refused or fail, on the stand-in GPU (standin/standin.h): launches, faults, arguments. Every failure
 * has its status and a message that names what is wrong, and writes nothing. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "gpu/kernel.h"
#include "support_cuda.h"

SETUP()
{
	cuda_test_begin();
}

/* ---- launches ---- */

TEST(a_launch_fails)
{
	static const struct failure cases[] = {
		{"cuLaunchKernelEx=701", EK_ERROR_CUDA, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
		{"cuLaunchKernelEx=1", EK_ERROR_CUDA, "CUDA_ERROR_INVALID_VALUE"},
		{"cuLaunchKernelEx=2", EK_ERROR_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"},
		{"cuPointerGetAttribute=4", EK_ERROR_CUDA, "CUDA_ERROR_DEINITIALIZED"}};
	struct work w = work_make(opened(gpu_options()), small);
	for (int warm = 0; warm < 2; warm++)
		for (int i = 0; i < COUNT_OF(cases); i++) {
			struct living before = living();
			fail(cases[i].failure);
			expect_status(cases[i].failure, run_forward(&w), cases[i].status,
				      SAYS("GPU 0", cases[i].says));
			expect_status(cases[i].failure, run_backward(&w), cases[i].status,
				      SAYS("GPU 0", cases[i].says));
			fail(NULL);
			EXPECT(is_untouched(&w), "%s: bytes were written", cases[i].failure);
			if (warm)
				nothing_is_left(cases[i].failure, before);
			expect_runs(cases[i].failure, &w);
		}
	work_close(&w);
}

/* A launch counts its blocks in 32 bits: more of them must not become fewer. */
TEST(a_launch_is_too_large)
{
	ek_context *ctx = opened(gpu_options());
	struct ek_launch launch = {.blocks = (int64_t)INT32_MAX + 1, .threads = 32, .cluster = 1};
	fail(NULL);
	expect_status("2^31 blocks", ek_kernel_launch(gpu_of(ctx), NULL, &launch, NULL), EK_ERROR_UNSUPPORTED,
		      SAYS("2147483648 blocks", "2147483647"));
	EXPECT(standin.count("cuLaunchKernelEx") == 0, "launched after all");
	ek_close(ctx);
}

static void judge_every_call(const char *what, struct work *w, const char *const *parts)
{
	expect_status(what, ek_norm_forward(w->ctx, &w->forward), EK_ERROR_CUDA, parts);
	expect_status(what, ek_norm_backward(w->ctx, &w->backward), EK_ERROR_CUDA, parts);
	expect_status(what, ek_norm_forward_prepare(w->ctx, &w->forward), EK_ERROR_CUDA, parts);
	expect_status(what, ek_norm_backward_prepare(w->ctx, &w->backward), EK_ERROR_CUDA, parts);
}

/* After a fault of a kernel CUDA has nothing but errors. */
TEST(a_fault_stays)
{
	static const struct {
		const char *failure, *says;
	} cases[] = {{"cuLaunchKernelEx=700@1", "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access"},
		     {"cuLaunchKernelEx=719@1", "CUDA_ERROR_LAUNCH_FAILED"},
		     {"cuLaunchKernelEx=702@1", "CUDA_ERROR_LAUNCH_TIMEOUT"},
		     {"cuLaunchKernelEx=710@1", "CUDA_ERROR_ASSERT"},
		     {"cuLaunchKernelEx=718@1", "CUDA error 718"},
		     {"cuLaunchKernelEx=214@1", "CUDA error 214"},
		     {"cuPointerGetAttribute=700@1", "CUDA_ERROR_ILLEGAL_ADDRESS"}};
	struct living before = living();
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct work w = work_make(opened(gpu_options()), small);
		size_t bytes = 0;
		expect_runs("before the fault", &w);
		fail(cases[i].failure);
		expect_status(cases[i].failure, run_forward(&w), EK_ERROR_CUDA,
			      SAYS("GPU 0", cases[i].says, "unusable", "restart the process"));
		int64_t calls = standin.count("cuLaunchKernelEx") + standin.count("cuPointerGetAttribute");
		judge_every_call(cases[i].failure, &w, SAYS("GPU 0", cases[i].says, "unusable after"));
		judge_every_call(cases[i].failure, &w, SAYS("GPU 0", cases[i].says, "unusable after"));
		EXPECT(standin.count("cuLaunchKernelEx") + standin.count("cuPointerGetAttribute") == calls,
		       "%s: the driver is still called", cases[i].failure);
		EXPECT(ek_norm_backward_workspace(w.ctx, &w.backward, &bytes) == EK_OK && bytes > 0,
		       "the workspace's size is no longer known");
		if (!strstr(cases[i].failure, "214")) /* which the stand-in does not keep */
			open_refused("another context", gpu_options(), EK_ERROR_CUDA, SAYS(cases[i].says));
		fail(NULL);
		EXPECT(is_untouched(&w), "%s: bytes were written", cases[i].failure);
		work_close(&w);
		nothing_is_left("a context with a fault", before);
	}
	opens_after_all();
}

/* ---- arguments ---- */

/* REFUSED(forward, STATUS, change of a.field, parts of the message …) */
#define REFUSED(pass, wanted, change, ...)                                                               \
	do {                                                                                             \
		ek_norm_##pass##_args a = w.pass;                                                        \
		change;                                                                                  \
		expect_status(#pass ": " #change, ek_norm_##pass(w.ctx, &a), wanted, SAYS(__VA_ARGS__)); \
		EXPECT(is_untouched(&w), #pass ": " #change ": bytes were written");                     \
	} while (0)

/* With the operand in host memory; the message begins with its name. */
static void host_refused(struct work *w, bool backward, int operand, void *here, const char *address)
{
	const struct ek_op *op = backward ? w->forward_case.op->backward : w->forward_case.op->forward;
	const char *name = op->operands[operand].name;
	union op_args args;
	memcpy(&args, backward ? (void *)&w->backward : &w->forward, op->args_size);
	int needed = op->operands[operand].needs.number;
	int choice = op->operands[needed ? needed - 1 : operand].with_choice;
	if (needed && !ek_operand_pointer(&op->operands[needed - 1], &args))
		ek_operand_set(&op->operands[needed - 1], &args, w->forward.x);
	if (choice)
		*(int *)ek_field(&args, op->choice[choice - 1]) = 1;
	ek_operand_set(&op->operands[operand], &args, here);
	expect_status(name, op->call(w->ctx, &args), EK_ERROR_ARGUMENT, SAYS(address, "host memory"));
	EXPECT(strncmp(ek_error(w->ctx), name, strlen(name)) == 0 &&
		       strncmp(ek_error(w->ctx) + strlen(name), " (", 2) == 0,
	       "%s, %s: the message is \"%s\"", op->function, name, ek_error(w->ctx));
	EXPECT(is_untouched(w), "%s, %s: bytes were written", op->function, name);
}

TEST(host_memory_is_refused)
{
	float here[512] __attribute__((aligned(64))) = {0};
	struct work w = work_make(opened(gpu_options()), small);
	char address[32];
	(void)snprintf(address, sizeof(address), "(%p)", (void *)here);
	expect_runs("before host memory", &w); /* from now on a launch would be the first thing to happen */
	fail(NULL);
	for (int i = 0; i < EK_FORWARD_OPERANDS; i++)
		host_refused(&w, false, i, here, address);
	for (int i = 0; i < EK_BACKWARD_OPERANDS; i++)
		host_refused(&w, true, i, here, address);
	REFUSED(backward, EK_ERROR_ARGUMENT, a.workspace = here;
		a.workspace_size = sizeof(here), "workspace ", address, "host memory");
	EXPECT(standin.count("cuLaunchKernelEx") == 0, "a call with host memory launches");
	expect_runs("after host memory", &w);
	ek_norm_backward_args b = w.backward; /* a workspace that is not needed may be anything */
	b.dweight = b.dbias = NULL;
	b.workspace = here;
	expect_status("no sums", ek_norm_backward(w.ctx, &b), EK_OK, SAYS(NULL));
	ek_norm_forward_args f = w.forward;
	f.x = here; /* prepare looks at pointers and does not follow them */
	expect_status("prepare", ek_norm_forward_prepare(w.ctx, &f), EK_OK, SAYS(NULL));
	work_close(&w);
}

TEST(trusted_pointers_are_not_looked_up)
{
	ek_options options = gpu_options();
	options.trust_pointers = 1;
	struct work w = work_make(opened(options), small);
	fail(NULL);
	expect_runs("trusted pointers", &w);
	EXPECT(standin.count("cuPointerGetAttribute") == 0, "%d pointers are looked up",
	       (int)standin.count("cuPointerGetAttribute"));
	work_close(&w);
}

TEST(a_gpu_may_read_host_memory)
{
	set("EVENKEEL_STANDIN_PAGEABLE", "1");
	struct work w = work_make(opened(gpu_options()), small);
	fail(NULL);
	ek_norm_forward_args f = w.forward;
	f.x = w.start + work_offset(&w, "x");
	EXPECT(ek_norm_forward(w.ctx, &f) == EK_OK && run_backward(&w) == EK_OK && is_right(&w),
	       "host memory: %s", ek_error(w.ctx));
	EXPECT(standin.count("cuPointerGetAttribute") == 0, "pointers are looked up for nothing");
	work_close(&w);
	set("EVENKEEL_STANDIN_PAGEABLE", NULL);
}

TEST(workspaces_are_judged)
{
	struct work w = work_make(opened(gpu_options()), small);
	char needed[32], given[32];
	size_t bytes = w.backward.workspace_size;
	(void)snprintf(needed, sizeof(needed), "%zu", bytes);
	(void)snprintf(given, sizeof(given), "%zu", bytes - 1);
	EXPECT(bytes > 0, "no workspace is needed");
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace = NULL, "workspace is NULL", needed);
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace_size--, "workspace_size", needed, given);
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace = (char *)a.workspace + 32, "workspace", "64");
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace = (char *)a.workspace + 1, "workspace", "64");
	expect_status("prepare", ek_norm_backward_prepare(w.ctx, &(ek_norm_backward_args){0}),
		      EK_ERROR_STRUCT_SIZE, SAYS("size"));
	w.backward.workspace_size--;
	expect_status("prepare", prepare_backward(&w), EK_ERROR_WORKSPACE, SAYS(needed, given));
	w.backward.workspace_size++;
	expect_runs("after bad workspaces", &w);
	work_close(&w);
}

TEST(overlaps_are_refused)
{
	struct work w = work_make(opened(gpu_options()), small);
	REFUSED(forward, EK_ERROR_OVERLAP, a.y = w.there + work_offset(&w, "x") + 4, "y [", "x [");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dx = w.there + work_offset(&w, "dy") + 4, "dx [", "dy [");
	REFUSED(backward, EK_ERROR_OVERLAP, a.x = w.there + w.workspace, "workspace [", "x [");
	expect_runs("after overlaps", &w);
	work_close(&w);
}

/* Forward has nothing to do; backward's sums are of nothing. */
TEST(no_rows_are_allowed)
{
	struct work w = work_make(opened(gpu_options()), (struct shape){EK_F32, 0, 40});
	fail(NULL);
	ek_norm_forward_args f = w.forward;
	f.x = f.y = f.mean = f.rstd = f.mean_lo = NULL;
	EXPECT(ek_norm_forward(w.ctx, &f) == EK_OK && is_untouched(&w), "%s", ek_error(w.ctx));
	EXPECT(standin.count("cuLaunchKernelEx") == 0, "forward of no rows launches");
	expect_runs("no rows", &w);
	ek_norm_backward_args b = w.backward;
	b.accumulate = 1;
	EXPECT(ek_norm_backward(w.ctx, &b) == EK_OK && is_untouched(&w),
	       "nothing is not added, or more than that: %s", ek_error(w.ctx));
	work_close(&w);
}

TEST(a_stream_is_none)
{
	struct work w = work_make(opened(gpu_options()), small);
	CUcontext theirs = standin.context_create(0);
	CUstream strange = NULL, gone = stream_make(w.ctx);
	stream_free(w.ctx, gone);
	push(theirs);
	EXPECT(cuda()->stream_create(&strange, 0) == CUDA_SUCCESS, "no stream");
	pop();
	for (int warm = 0; warm < 2; warm++) {
		char address[32];
		(void)snprintf(address, sizeof(address), "stream %p does not belong", (void *)gone);
		REFUSED(forward, EK_ERROR_ARGUMENT, a.stream = gone, address, "GPU 0", "destroyed");
		REFUSED(backward, EK_ERROR_ARGUMENT, a.stream = gone, address, "GPU 0", "destroyed");
		(void)snprintf(address, sizeof(address), "stream %p does not belong", (void *)strange);
		REFUSED(forward, EK_ERROR_ARGUMENT, a.stream = strange, address, "another CUDA context");
		REFUSED(backward, EK_ERROR_ARGUMENT, a.stream = strange, address, "another CUDA context");
		expect_runs("after streams that are none", &w);
	}
	standin.context_destroy(theirs);
	work_close(&w);
}
