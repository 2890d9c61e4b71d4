/* What calls on a GPU promise beside results, on the stand-in GPU (standin/standin.h): whose CUDA context and
 * stream they use, captures, what a warm call does not do, no memory, threads. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu/cuda/nvtx.h"
#include "support_cuda.h"

/* ---- what the program asks of libc: counted, and memory refused on demand ---- */

#if defined(__GLIBC__) && !UNDER_SANITIZER
#define COUNTS 1

/* The linker's: the program's code lies between them, the library's with it and the stand-ins' not. */
extern const char __executable_start[], etext[];

static bool by_program(const void *caller)
{
	return (uintptr_t)caller >= (uintptr_t)__executable_start && (uintptr_t)caller < (uintptr_t)etext;
}
#define IS_COUNTED(caller) by_program(caller)
#include "support_malloc.inc.h"
#define COUNT_CALL() (by_program(__builtin_return_address(0)) ? (void)atomic_fetch_add(&asked, 1) : (void)0)

static const char *value_of(const char *name)
{
	size_t length = strlen(name);
	for (char **each = environ; each && *each; each++)
		if (strncmp(*each, name, length) == 0 && (*each)[length] == '=')
			return *each + length + 1;
	return NULL;
}

char *getenv(const char *name)
{
	COUNT_CALL();
	return (char *)(uintptr_t)value_of(name);
}

char *secure_getenv(const char *name)
{
	COUNT_CALL();
	return (char *)(uintptr_t)value_of(name);
}

int openat(int folder, const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	COUNT_CALL();
	return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	va_start(rest, flags);
	mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	COUNT_CALL();
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
#endif

SETUP()
{
	cuda_test_begin();
}

/* ---- what depends on GPU and driver: before this process has loaded it ---- */

static void expect_overlap(const char *what, bool wanted)
{
	struct standin_launch launch;
	ek_context *ctx = opened(gpu_options());
	EXPECT(gpu_of(ctx)->overlaps == wanted, "%s: launches %s", what, wanted ? "wait" : "overlap");
	expect_works(what, ctx);
	EXPECT(standin.last_launch(&launch) && launch.overlaps == wanted, "%s: launched otherwise", what);
	ek_close(ctx);
}

TEST_IN_CHILD(launches_wait_before_cuda_12_3)
{
	fail("cuDriverGetVersion=12020");
	expect_overlap("CUDA 12.2", false);
}

TEST_IN_CHILD(launches_overlap_where_they_can)
{
	fail("cuDriverGetVersion=12030");
	expect_overlap("CUDA 12.3", true);
	set("EVENKEEL_STANDIN_ARCH", "80");
	expect_overlap("compute capability 8.0", false);
	set("EVENKEEL_STANDIN_ARCH", "89"); /* which the compiler does not know: PTX of 8.0 */
	expect_overlap("compute capability 8.9", false);
	set("EVENKEEL_STANDIN_ARCH", "103");
	expect_overlap("compute capability 10.3", true);
}

/* ---- the CUDA context ---- */

TEST(the_primary_context_is_held_until_the_end)
{
	struct living before = living();
	fail(NULL);
	ek_context *one = opened(gpu_options()), *two = opened(gpu_options());
	EXPECT(gpu_of(one)->context == gpu_of(two)->context && gpu_of(one)->retained,
	       "two contexts of one GPU have two CUDA contexts");
	EXPECT(!current_context(), "ek_open leaves a CUDA context current");
	EXPECT(standin.count("cuDevicePrimaryCtxRetain") == 2, "retained %d times",
	       (int)standin.count("cuDevicePrimaryCtxRetain"));
	expect_works_once("the first of two", one);
	expect_works("the second, when the first is closed", two);
	EXPECT(standin.live("context") == before.contexts + 1, "the CUDA context is gone too early");
	ek_close(two);
	EXPECT(standin.count("cuDevicePrimaryCtxRelease_v2") == 2, "released %d times",
	       (int)standin.count("cuDevicePrimaryCtxRelease_v2"));
	nothing_is_left("two contexts", before);
}

TEST(the_current_context_is_used)
{
	struct living before = living();
	(void)cuda();
	fail(NULL);
	CUcontext theirs = standin.context_create(0);
	push(theirs);
	ek_context *ctx = opened(gpu_options());
	EXPECT(gpu_of(ctx)->context == theirs && !gpu_of(ctx)->retained, "another than the current is used");
	expect_works("in a program's own CUDA context", ctx);
	EXPECT(current_context() == theirs, "the current CUDA context has changed");
	pop();
	expect_works_once("when the program's CUDA context is no longer current", ctx);
	EXPECT(standin.count("cuDevicePrimaryCtxRetain") == 0 &&
		       standin.count("cuDevicePrimaryCtxRelease_v2") == 0,
	       "the primary context is retained or released");
	EXPECT(standin.live("module") == before.modules, "modules stay in the program's context");
	standin.context_destroy(theirs);
	nothing_is_left("a program's CUDA context", before);
}

/* Once a program has released the primary context, it lives as long as the ek_context that uses it. */
TEST(the_current_primary_context_is_retained)
{
	struct living before = living();
	CUcontext primary = NULL;
	fail(NULL);
	EXPECT(cuda()->primary_retain(&primary, 0) == CUDA_SUCCESS, "no primary context");
	push(primary);
	fail("cuDevicePrimaryCtxGetState=999");
	open_refused("no state", gpu_options(), EK_ERROR_CUDA,
		     SAYS("asking for the primary CUDA context on GPU 0 failed", "CUDA error 999"));
	fail("cuDevicePrimaryCtxRetain=2");
	open_refused("not retained", gpu_options(), EK_ERROR_MEMORY, SAYS("CUDA_ERROR_OUT_OF_MEMORY"));
	fail(NULL);
	ek_context *ctx = opened(gpu_options());
	EXPECT(gpu_of(ctx)->context == primary && gpu_of(ctx)->retained, "it is not retained");
	pop();
	EXPECT(cuda()->primary_release(0) == CUDA_SUCCESS && standin.live("context") == before.contexts + 1,
	       "the CUDA context is gone with the program's release");
	expect_works_once("after the program has released the primary context", ctx);
	EXPECT(standin.count("cuDevicePrimaryCtxRetain") == 1 &&
		       standin.count("cuDevicePrimaryCtxRelease_v2") == 2,
	       "retained %d times, released %d times with the program's once",
	       (int)standin.count("cuDevicePrimaryCtxRetain"),
	       (int)standin.count("cuDevicePrimaryCtxRelease_v2"));
	nothing_is_left("a primary context", before);
}

/* Another library holds the primary context; the program has one of its own. */
TEST(another_current_context_leaves_the_primary_one_alone)
{
	struct living before = living();
	CUcontext primary = NULL, theirs = standin.context_create(0);
	fail(NULL);
	EXPECT(cuda()->primary_retain(&primary, 0) == CUDA_SUCCESS, "no primary context");
	push(theirs);
	ek_context *ctx = opened(gpu_options());
	EXPECT(gpu_of(ctx)->context == theirs && !gpu_of(ctx)->retained, "another than the current is used");
	EXPECT(standin.count("cuDevicePrimaryCtxRetain") - 1 == standin.count("cuDevicePrimaryCtxRelease_v2"),
	       "the primary context stays retained");
	expect_works_once("in a CUDA context beside the primary one", ctx);
	pop();
	standin.context_destroy(theirs);
	EXPECT(standin.live("context") == before.contexts + 1 && cuda()->primary_release(0) == CUDA_SUCCESS,
	       "the primary context is gone");
	nothing_is_left("two CUDA contexts", before);
}

TEST(a_current_context_of_another_gpu_is_not_used)
{
	struct living before = living();
	set("EVENKEEL_STANDIN_DEVICES", "2");
	CUcontext theirs = standin.context_create(1);
	push(theirs);
	ek_context *ctx = opened(gpu_options());
	EXPECT(gpu_of(ctx)->context != theirs && gpu_of(ctx)->retained,
	       "a CUDA context of GPU 1 is used for GPU 0");
	expect_works("while another GPU's CUDA context is current", ctx);
	EXPECT(current_context() == theirs, "the current CUDA context has changed");
	ek_close(ctx);
	EXPECT(current_context() == theirs, "ek_close changes the current CUDA context");
	pop();
	standin.context_destroy(theirs);
	push(theirs = standin.context_create(0));
	standin.context_destroy(theirs); /* still the thread's current one */
	ctx = opened(gpu_options());
	EXPECT(gpu_of(ctx)->retained, "a destroyed CUDA context is used");
	expect_works_once("while a destroyed CUDA context is current", ctx);
	pop();
	set("EVENKEEL_STANDIN_DEVICES", NULL);
	nothing_is_left("contexts of another GPU", before);
}

static void *run_in_thread(void *argument)
{
	struct work *w = argument;
	bool right = !current_context() && runs(w) && !current_context();
	return right ? w : NULL;
}

TEST(a_thread_needs_no_current_context)
{
	pthread_t thread;
	void *right = NULL;
	struct work w = work_make(opened(gpu_options()), small);
	EXPECT(pthread_create(&thread, NULL, run_in_thread, &w) == 0 && pthread_join(thread, &right) == 0,
	       "no thread");
	EXPECT(right, "a thread without a CUDA context gets nothing right, or one that stays");
	work_close(&w);
}

/* Refused or not, a call leaves the thread's context as it was. */
TEST(a_refused_call_leaves_the_current_context)
{
	struct work w = work_make(opened(gpu_options()), small);
	ek_norm_forward_args args = w.forward;
	args.x = w.start;
	expect_status("host memory", ek_norm_forward(w.ctx, &args), EK_ERROR_ARGUMENT, SAYS("x"));
	EXPECT(!current_context(), "a refused call leaves a CUDA context");
	fail("cuLaunchKernelEx=701");
	expect_status("no launch", run_backward(&w), EK_ERROR_CUDA,
		      SAYS("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
	EXPECT(!current_context(), "a failed call leaves a CUDA context");
	fail("cuCtxPushCurrent_v2=201");
	expect_status("no context", run_forward(&w), EK_ERROR_CUDA,
		      SAYS("entering the CUDA context", "CUDA_ERROR_INVALID_CONTEXT"));
	fail("cuCtxGetCurrent=4");
	expect_status("no current context", run_backward(&w), EK_ERROR_CUDA,
		      SAYS("entering the CUDA context", "CUDA_ERROR_DEINITIALIZED"));
	fail(NULL);
	EXPECT(is_untouched(&w), "bytes were written");
	expect_runs("after refusals", &w);
	work_close(&w);
}

TEST(a_destroyed_context_ends_no_process)
{
	struct living before = living();
	CUcontext theirs = standin.context_create(0);
	push(theirs);
	ek_context *ctx = opened(gpu_options());
	struct work w = work_make(ctx, small);
	expect_runs("before the end", &w);
	standin.context_destroy(theirs); /* and what it holds, the memory and the modules */
	EXPECT(run_forward(&w) != EK_OK && ek_error(ctx)[0], "a call without a context");
	pop();
	expect_status("a destroyed CUDA context", run_backward(&w), EK_ERROR_CUDA,
		      SAYS("entering the CUDA context", "GPU 0"));
	ek_close(ctx);
	free(w.start);
	free(w.wanted);
	nothing_is_left("a destroyed CUDA context", before);
}

TEST(two_gpus_work_at_once)
{
	struct living before = living();
	ek_context *ctx[2];
	struct work work[2];
	ek_options options = gpu_options();
	set("EVENKEEL_STANDIN_DEVICES", "2");
	for (int i = 0; i < 2; i++) {
		options.ordinal = i;
		ctx[i] = opened(options);
		work[i] = work_make(ctx[i], small);
	}
	EXPECT(gpu_of(ctx[0])->context != gpu_of(ctx[1])->context, "two GPUs have one CUDA context");
	for (int i = 0; i < 6; i++)
		expect_runs("one of two GPUs", &work[i % 2]);
	push(gpu_of(ctx[0])->context);
	expect_runs("GPU 1 while GPU 0 is current", &work[1]);
	EXPECT(current_context() == gpu_of(ctx[0])->context, "the current CUDA context has changed");
	pop();
	work_free(&work[0]);
	ek_close(ctx[0]);
	expect_runs("GPU 1 when GPU 0 is closed", &work[1]);
	work_free(&work[1]);
	ek_close(ctx[1]);
	set("EVENKEEL_STANDIN_DEVICES", NULL);
	nothing_is_left("two GPUs", before);
}

/* ---- the workspace ---- */

/* The block of memory ends with the workspace: the stand-in refuses an access past it. */
TEST(a_call_takes_the_workspace_of_more_rows)
{
	static const struct shape shapes[] = {{EK_F32, 2049, 8}, {EK_F64, 2049, 8}};
	ek_context *ctx = opened(gpu_options());
	for (int i = 0; i < COUNT_OF(shapes); i++) {
		struct work w = work_make(ctx, shapes[i]);
		w.backward.rows = 2048; /* one row a slot: twice as many slots as 2049 rows have */
		expect_status("fewer rows", run_backward(&w), EK_OK, SAYS(NULL));
		work_free(&w);
	}
	ek_close(ctx);
}

/* ---- streams ---- */

static void use_stream(struct work *w, CUstream stream)
{
	w->forward.stream = w->backward.stream = stream;
}

static CUstream stream_numbered(uintptr_t number)
{
	return (CUstream)number;
}

TEST(streams_are_used)
{
	struct standin_launch launch;
	struct work w = work_make(opened(gpu_options()), small);
	CUstream made = stream_make(w.ctx);
	CUstream streams[] = {NULL, stream_numbered(1), stream_numbered(2), made};
	for (int i = 0; i < COUNT_OF(streams); i++) {
		use_stream(&w, streams[i]);
		expect_runs("a stream", &w);
		EXPECT(standin.last_launch(&launch) && launch.stream == streams[i],
		       "launched on another stream");
	}
	stream_free(w.ctx, made);
	work_close(&w);
}

/* ---- capture ---- */

/* A call of the driver in the context's CUDA context. */
#define IN_CONTEXT(ctx, call)                                    \
	do {                                                     \
		push(gpu_of(ctx)->context);                      \
		EXPECT(call == CUDA_SUCCESS, "%s fails", #call); \
		pop();                                           \
	} while (0)

/* An executable graph of what was captured. */
static CUgraphExec capture_end(ek_context *ctx, CUstream stream)
{
	CUgraph graph = NULL;
	CUgraphExec executable = NULL;
	IN_CONTEXT(ctx, cuda()->capture_end(stream, &graph));
	IN_CONTEXT(ctx, cuda()->graph_instantiate(&executable, graph, 0));
	IN_CONTEXT(ctx, cuda()->graph_destroy(graph));
	return executable;
}

TEST(a_capture_without_prepare_is_refused)
{
	struct living before = living();
	for (int mode = CU_STREAM_CAPTURE_MODE_GLOBAL; mode <= CU_STREAM_CAPTURE_MODE_RELAXED; mode++) {
		struct work w = work_make(opened(gpu_options()), small);
		CUstream stream = stream_make(w.ctx);
		use_stream(&w, stream);
		IN_CONTEXT(w.ctx, cuda()->capture_begin(stream, mode));
		expect_status("forward", run_forward(&w), EK_ERROR_NOT_READY,
			      SAYS("captured", "run the model once", "ek_norm_forward_prepare"));
		expect_status("backward", run_backward(&w), EK_ERROR_NOT_READY,
			      SAYS("captured", "ek_norm_backward_prepare"));
		expect_status("prepare, too late", prepare_forward(&w), EK_ERROR_NOT_READY,
			      SAYS("before the capture"));
		/* Another stream, or none, is not captured, and preparing on it does not break the capture. */
		w.forward.stream = w.backward.stream = NULL;
		expect_status("prepare beside it", prepare_forward(&w), EK_OK, SAYS(NULL));
		expect_status("prepare beside it", prepare_backward(&w), EK_OK, SAYS(NULL));
		use_stream(&w, stream);
		expect_status("forward", run_forward(&w), EK_OK, SAYS(NULL));
		expect_status("backward", run_backward(&w), EK_OK, SAYS(NULL));
		CUgraphExec executable = capture_end(w.ctx, stream);
		EXPECT(is_untouched(&w), "a captured call has run");
		IN_CONTEXT(w.ctx, cuda()->graph_launch(executable, stream));
		EXPECT(is_right(&w), "the graph does not give the reference's bits");
		IN_CONTEXT(w.ctx, cuda()->graph_exec_destroy(executable));
		stream_free(w.ctx, stream);
		work_close(&w);
	}
	nothing_is_left("captures", before);
}

TEST(prepared_calls_are_captured_and_replayed)
{
	static const struct shape shapes[] = {
		{EK_F32, 5, 40}, {EK_BF16, 70, 256}, {EK_F16, 3, 3000}, {EK_F64, 2, 33}, {EK_F32, 2, 20000}};
	ek_context *ctx = opened(gpu_options());
	CUstream stream = stream_make(ctx);
	for (int i = 0; i < (test_mode == TEST_SHORT ? 2 : COUNT_OF(shapes)); i++) {
		struct work w = work_make(ctx, shapes[i]);
		struct standin_launch launch;
		use_stream(&w, stream);
		fail(NULL);
		EXPECT(prepare_forward(&w) == EK_OK && prepare_backward(&w) == EK_OK, "%s", ek_error(ctx));
		EXPECT(!standin.last_launch(&launch) && is_untouched(&w), "prepare launches");
		fail(NULL);
		IN_CONTEXT(ctx, cuda()->capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		EXPECT(run_forward(&w) == EK_OK && run_backward(&w) == EK_OK, "%s", ek_error(ctx));
		EXPECT(standin.last_launch(&launch) && launch.captured, "the launch is not captured");
		EXPECT(standin.count("cuModuleLoadData") == 0, "a prepared call loads a kernel");
		CUgraphExec executable = capture_end(ctx, stream);
		EXPECT(is_untouched(&w), "a captured call has run");
		for (int times = 0; times < 3; times++) {
			IN_CONTEXT(ctx, cuda()->graph_launch(executable, stream));
			EXPECT(is_right(&w), "replay %d does not give the reference's bits", times);
			work_restart(&w);
		}
		IN_CONTEXT(ctx, cuda()->graph_exec_destroy(executable));
		work_free(&w);
	}
	stream_free(ctx, stream);
	ek_close(ctx);
}

/* Prepared with few rows, then called with others: some whose column sums have many parts, which another kernel
 * folds, and some whose slots have over 32 rows. */
static void expect_any_rows(ek_dtype dtype, int64_t cols, const int64_t *rows, int count)
{
	ek_context *ctx = opened(gpu_options());
	struct work first = work_make(ctx, (struct shape){dtype, 3, cols});
	EXPECT(ek_norm_forward_prepare(ctx, &first.forward) == EK_OK &&
		       ek_norm_backward_prepare(ctx, &first.backward) == EK_OK,
	       "%s", ek_error(ctx));
	fail(NULL);
	for (int i = 0; i < count; i++) {
		struct work w = work_make(ctx, (struct shape){dtype, rows[i], cols});
		expect_runs("another number of rows", &w);
		EXPECT(standin.count("cuModuleLoadData") == 0 &&
			       standin.nvrtc_count("nvrtcCompileProgram") == 0,
		       "%s, %d rows: a kernel is loaded or compiled", ek_dtype_name(dtype), (int)rows[i]);
		work_free(&w);
	}
	work_close(&first);
}

TEST(another_number_of_rows_needs_no_kernel)
{
	static const int64_t rows[] = {0, 1, 2, 7, 31, 32, 33, 64, 129, 300, 1025, 2049, 33000};
	expect_any_rows(EK_F32, 24, rows, COUNT_OF(rows) - (test_mode == TEST_SHORT));
	expect_any_rows(EK_F64, 24, rows, COUNT_OF(rows) - (test_mode == TEST_SHORT ? 4 : 1));
	(void)setenv("EVENKEEL_STANDIN_SMS", "1",
		     1); /* more than four rows of 8192 columns are then not few */
	expect_any_rows(EK_BF16, 8192, (const int64_t[]){1, 4, 5, 9}, 4);
	(void)unsetenv("EVENKEEL_STANDIN_SMS");
}

TEST(prepare_on_the_cpu_does_nothing)
{
	ek_context *ctx = context_of((struct setting){"scalar", 1, PLAIN});
	struct work w = work_make(opened(gpu_options()), small);
	fail(NULL);
	EXPECT(ek_norm_forward_prepare(ctx, &w.forward) == EK_OK, "%s", ek_error(ctx));
	w.backward.dweight = w.backward.dbias = NULL; /* and with them the workspace */
	EXPECT(ek_norm_backward_prepare(ctx, &w.backward) == EK_OK, "%s", ek_error(ctx));
	EXPECT(standin.count("cuCtxGetCurrent") == 0 && is_untouched(&w), "the GPU is asked");
	work_close(&w);
}

/* ---- warm calls ---- */

#define SYMBOL_NAME(field, symbol, parameters) symbol,
static const char *const driver_functions[] = {EK_DRIVER_SYMBOLS(SYMBOL_NAME)};

/* All that a call with its kernels in memory may ask of the driver: nothing that waits or allocates. */
static bool is_quick(const char *function)
{
	static const char *const quick[] = {"cuCtxGetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
					    "cuPointerGetAttribute", "cuLaunchKernelEx"};
	for (int i = 0; i < COUNT_OF(quick); i++)
		if (strcmp(function, quick[i]) == 0)
			return true;
	return false;
}

TEST(a_warm_call_asks_for_little)
{
	struct work w = work_make(opened(gpu_options()), small);
	expect_runs("the first time", &w);
	fail(NULL);
#ifdef COUNTS
	long long before = atomic_load(&asked);
#endif
	ek_status forward = run_forward(&w), backward = run_backward(&w);
#ifdef COUNTS
	EXPECT(atomic_load(&asked) == before, "%lld allocations, files or environment variables",
	       (long long)(atomic_load(&asked) - before));
#endif
	EXPECT(forward == EK_OK && backward == EK_OK, "%s", ek_error(w.ctx));
	for (int i = 0; i < COUNT_OF(driver_functions); i++)
		EXPECT(is_quick(driver_functions[i]) || standin.count(driver_functions[i]) == 0,
		       "a warm call calls %s", driver_functions[i]);
	EXPECT(standin.count("cuLaunchKernelEx") == 3, "%d launches for one forward and one backward",
	       (int)standin.count("cuLaunchKernelEx"));
	push(gpu_of(w.ctx)->context);
	fail(NULL);
	EXPECT(run_forward(&w) == EK_OK && standin.count("cuCtxPushCurrent_v2") == 0,
	       "a context that is current is pushed");
	pop();
	EXPECT(is_right(&w), "the calls do not give the reference's bits");
	work_close(&w);
}

#ifdef COUNTS
TEST(calls_are_counted)
{
	long long before = atomic_load(&asked);
	void *volatile block = malloc(10);
	(void)getenv("HOME");
	EXPECT(atomic_load(&asked) == before + 2, "malloc or getenv is not counted");
	free(block);
}

TEST(no_memory_for_a_context)
{
	ek_status status = EK_ERROR_MEMORY;
	ek_options options = gpu_options();
	int refusals = 0;
	for (long long room = 0; room < 100 && status == EK_ERROR_MEMORY; room++) {
		ek_context *ctx = (ek_context *)&options;
		struct living before = living();
		long long blocks = atomic_load(&live_blocks);
		atomic_store(&fail_after, room);
		status = ek_open(&ctx, &options);
		atomic_store(&fail_after, -1);
		if (status == EK_ERROR_MEMORY) {
			refusals++;
			EXPECT(strstr(ek_error(NULL), "memory"), "the message is \"%s\"", ek_error(NULL));
			EXPECT(!ctx, "*ctx is %p after a failure, expected NULL", (void *)ctx);
		}
		ek_close(ctx);
		EXPECT(atomic_load(&live_blocks) == blocks, "%lld blocks are left",
		       (long long)(atomic_load(&live_blocks) - blocks));
		nothing_is_left("no memory", before);
	}
	EXPECT(status == EK_OK && refusals > 2, "after %d refusals %s: %s", refusals, ek_status_name(status),
	       ek_error(NULL));
}

/* Wherever memory runs out between the call and its kernel. What is only for later (the cache) may be left out. */
TEST(no_memory_for_a_kernel)
{
	int refusals = 0;
	bool reached = true;
	for (long long room = 0; room < 100 && reached; room++) {
		struct work w = work_make(opened_with(fresh_folder()), small);
		atomic_store(&fail_after, room);
		ek_status status = prepare_forward(&w);
		reached = atomic_load(&fail_after) == 0;
		atomic_store(&fail_after, -1);
		refusals += status != EK_OK;
		if (status != EK_OK)
			expect_status("no memory", status, EK_ERROR_MEMORY,
				      SAYS("ek_layer_norm_forward_f32_40"));
		EXPECT(standin.live("module") == (status == EK_OK), "a module without its kernel");
		EXPECT(prepare_forward(&w) == EK_OK, "with memory: %s", ek_error(w.ctx));
		work_close(&w);
	}
	EXPECT(!reached && refusals > 3, "%d refusals", refusals);
}
#endif

/* ---- profilers ---- */

static int ranges_open, ranges_seen;

static int range_push(const char *name)
{
	ranges_seen += strncmp(name, "ek_norm_", 8) == 0;
	return ranges_open++;
}

static int range_pop(void)
{
	return --ranges_open;
}

TEST(ranges_end_where_calls_fail)
{
	static const struct ek_nvtx fake = {range_push, range_pop};
	ek_options options = gpu_options();
	options.nvtx = 1;
	ek_context *ctx = opened(options);
	EXPECT(gpu_of(ctx)->ranges == (ek_nvtx_get() != NULL), "ranges without NVTX, or none with it");
	expect_works("with the option nvtx", ctx);
	gpu_of(ctx)->nvtx = &fake;
	gpu_of(ctx)->ranges = true;
	struct work w = work_make(ctx, small);
	ranges_seen = 0;
	expect_runs("named", &w);
	fail("cuLaunchKernelEx=701");
	EXPECT(run_forward(&w) != EK_OK && run_backward(&w) != EK_OK, "launched after all");
	fail(NULL);
	EXPECT(ranges_seen == 4 && ranges_open == 0, "%d ranges, %d of them open", ranges_seen, ranges_open);
	work_close(&w);
}

/* ---- threads ---- */

enum { THREADS = 8 };

struct job {
	struct work work;
	int rounds;
	bool right;
};

static void *run_job(void *argument)
{
	struct job *job = argument;
	job->right = true;
	for (int i = 0; i < job->rounds && job->right; i++)
		job->right = runs(&job->work);
	return NULL;
}

static void start_jobs(struct job *jobs, pthread_t *threads, int count)
{
	for (int i = 0; i < count; i++) {
		jobs[i].rounds = (int)test_scaled(20);
		EXPECT(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0, "no thread");
	}
}

static void finish_jobs(struct job *jobs, pthread_t *threads, int count)
{
	for (int i = 0; i < count; i++) {
		(void)pthread_join(threads[i], NULL);
		EXPECT(jobs[i].right, "thread %d, %d columns: not the reference's bits", i,
		       (int)jobs[i].work.forward.cols);
		work_free(&jobs[i].work);
	}
}

/* Compiling, loading and launching at once: a kernel is made once, whoever asks for it. */
TEST(threads_share_a_context)
{
	static struct job jobs[THREADS];
	pthread_t threads[THREADS];
	CUstream streams[THREADS];
	struct living before = living();
	ek_context *ctx = opened_with("");
	for (int i = 0; i < THREADS; i++) {
		struct shape shape = {i % 3 ? EK_F32 : EK_BF16, 3 + i, 17 + 16 * (i / 2)};
		jobs[i].work = work_make(ctx, shape);
		streams[i] = stream_make(ctx);
		use_stream(&jobs[i].work, streams[i]);
	}
	fail(NULL);
	start_jobs(jobs, threads, THREADS);
	finish_jobs(jobs, threads, THREADS);
	EXPECT(standin.count("cuModuleLoadData") == standin.live("module") - before.modules &&
		       standin.nvrtc_count("nvrtcCompileProgram") == standin.count("cuModuleLoadData"),
	       "%d compilations and %d loads for %d kernels", (int)standin.nvrtc_count("nvrtcCompileProgram"),
	       (int)standin.count("cuModuleLoadData"), (int)(standin.live("module") - before.modules));
	for (int i = 0; i < THREADS; i++)
		stream_free(ctx, streams[i]);
	ek_close(ctx);
	nothing_is_left("threads", before);
}

/* Contexts that come and go do not touch what others hold. */
TEST(contexts_close_while_others_work)
{
	static struct job jobs[4];
	pthread_t threads[4];
	struct living before = living();
	ek_context *ctx[2] = {opened(gpu_options()), opened(gpu_options())};
	for (int i = 0; i < 4; i++)
		jobs[i].work = work_make(ctx[i % 2], (struct shape){EK_F32, 9, 24 + i});
	start_jobs(jobs, threads, 4);
	for (int i = 0; i < test_scaled(20); i++) {
		expect_works_once("a context that comes and goes", opened(gpu_options()));
	}
	finish_jobs(jobs, threads, 4);
	ek_close(ctx[1]);
	ek_close(ctx[0]);
	nothing_is_left("contexts that come and go", before);
}
