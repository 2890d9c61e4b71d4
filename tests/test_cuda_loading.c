/* What the CUDA backend loads, when it is missing or refused, on the stand-in GPU (standin/standin.h): the driver, the
 * GPU, NVRTC, kernels and their cache. Every failure has its status and a message that names what is wrong, leaves
 * nothing behind, and is over once its cause is. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support_recipe.h"
#include "support_cache.h"
#include "support_cuda.h"

SETUP()
{
	cuda_test_begin();
}

/* ---- the driver: before this process has loaded it ---- */

TEST_IN_CHILD(a_driver_is_missing)
{
	ek_cuda_info cuda = {.size = sizeof cuda, .gpu_count = 7, .driver_version = 7};
	ek_gpu_info gpu = {.size = sizeof gpu, .arch = 7};
	ek_options options = gpu_options();
	set("EVENKEEL_LIBCUDA", "/nonexistent/libcuda.so.1");
	set("EVENKEEL_NVRTC", "/nonexistent/libnvrtc.so");
	open_refused("no library", options, EK_ERROR_NO_DEVICE,
		     SAYS("device EK_CUDA, ordinal 0", "no NVIDIA driver", "/nonexistent/libcuda.so.1",
			  "unset $EVENKEEL_LIBCUDA"));
	EXPECT(ek_describe_cuda(&cuda) == EK_OK && cuda.gpu_count == 0 && cuda.driver_version == 0 &&
		       strstr(cuda.gpu_missing, "no NVIDIA driver") && cuda.nvrtc_version == 0 &&
		       !cuda.nvrtc_path[0] && strstr(cuda.nvrtc_missing, "/nonexistent/libnvrtc.so"),
	       "%d GPUs (\"%s\"), NVRTC %d (\"%s\")", cuda.gpu_count, cuda.gpu_missing, cuda.nvrtc_version,
	       cuda.nvrtc_missing);
	set("EVENKEEL_NVRTC", standin.nvrtc);
	expect_status("no library, described", ek_describe_gpu(0, &gpu), EK_ERROR_NO_DEVICE,
		      SAYS("EK_CUDA, ordinal 0", "no NVIDIA driver"));
	EXPECT(gpu.arch == 7, "a refused ek_describe_gpu wrote");
	options.ordinal = 3;
	open_refused("no library, ordinal 3", options, EK_ERROR_NO_DEVICE, SAYS("EK_CUDA, ordinal 3"));
	options.ordinal = 0;
	write_file(in_base("text.so"), "no library at all", 17);
	set("EVENKEEL_LIBCUDA", in_base("text.so"));
	open_refused("a text", options, EK_ERROR_NO_DEVICE, SAYS("no NVIDIA driver", in_base("text.so")));
	set("EVENKEEL_LIBCUDA", "libc.so.6");
	open_refused("another library", options, EK_ERROR_NO_DEVICE,
		     SAYS("EK_CUDA, ordinal 0", "libc.so.6 has no cuInit", "unset $EVENKEEL_LIBCUDA"));
	opens_after_all();
}

TEST_IN_CHILD(a_driver_is_too_old)
{
	fail("cuDriverGetVersion=11040");
	open_refused("CUDA 11.4", gpu_options(), EK_ERROR_NO_DEVICE,
		     SAYS("EK_CUDA, ordinal 0", "CUDA 11.4", "needs 12.0", "update"));
	EXPECT(standin.count("cuInit") == 0, "too old a driver is initialised");
	opens_after_all();
}

TEST_IN_CHILD(a_driver_does_not_start)
{
	ek_cuda_info cuda = {.size = sizeof cuda};
	fail("cuInit=100");
	open_refused("cuInit 100", gpu_options(), EK_ERROR_NO_DEVICE,
		     SAYS("EK_CUDA, ordinal 0", "sees no GPU", "CUDA_VISIBLE_DEVICES"));
	fail("cuInit=3");
	open_refused("cuInit 3", gpu_options(), EK_ERROR_NO_DEVICE,
		     SAYS("does not start", "cuInit", "CUDA_ERROR_NOT_INITIALIZED"));
	fail("cuInit=999");
	open_refused("cuInit 999", gpu_options(), EK_ERROR_NO_DEVICE, SAYS("does not start", "999"));
	fail(NULL);
	set("EVENKEEL_STANDIN_DEVICES", "0");
	open_refused("no GPU", gpu_options(), EK_ERROR_NO_DEVICE, SAYS("sees no GPU"));
	set("EVENKEEL_STANDIN_DEVICES", NULL);
	opens_after_all();
	set("EVENKEEL_STANDIN_DEVICES", "0"); /* taken away from a driver that has started */
	open_refused("no GPU any more", gpu_options(), EK_ERROR_NO_DEVICE,
		     SAYS("EK_CUDA, ordinal 0", "0 GPUs"));
	EXPECT(ek_describe_cuda(&cuda) == EK_OK && cuda.gpu_count == 0 && strstr(cuda.gpu_missing, "no GPU"),
	       "missing: \"%s\"", cuda.gpu_missing);
	set("EVENKEEL_STANDIN_DEVICES", NULL);
}

/* ---- NVRTC and packs: before this process has loaded NVRTC ---- */

/* A forward that needs a kernel and does not get it. */
static void forward_refused(const char *what, struct work *w, ek_status wanted, const char *const *parts)
{
	struct living before = living();
	expect_status(what, ek_norm_forward(w->ctx, &w->forward), wanted, parts);
	nothing_is_left(what, before);
	EXPECT(standin.nvrtc_count("nvrtcCreateProgram") == standin.nvrtc_count("nvrtcDestroyProgram") ||
		       getenv("EVENKEEL_STANDIN_FAIL"),
	       "%s: a program of the compiler stays", what);
	EXPECT(is_untouched(w), "%s: bytes were written", what);
}

static const char *pack_path(void)
{
	return in_base("kernels.pack");
}

/* Of the kernels of a small forward and backward, as `evenkeel warmup --pack` makes them. */
static void write_pack_in_a_child(void)
{
	enum { MOST = 8 };
	static struct ek_recipe recipes[MOST];
	static struct ek_image images[MOST], damaged[MOST];
	static char *keys[MOST];
	static char nonsense[] = "no image at all";
	ek_context *ctx = opened(gpu_options());
	struct work w = work_make(ctx, small);
	int count = list_recipes(&ek_norm_forward_op, &w.forward, 90, recipes, MOST);
	count += list_recipes(&ek_norm_backward_op, &w.backward, 90, recipes + count, MOST - count);
	EXPECT(count == 4, "%d kernels", count);
	for (int i = 0; i < count; i++) {
		EXPECT(ek_kernel_build(&recipes[i], 90, NULL, &images[i], &keys[i], NULL) == EK_OK, "%s",
		       ek_error(NULL));
		damaged[i] = (struct ek_image){nonsense, sizeof(nonsense)};
	}
	EXPECT(ek_pack_write(pack_path(), (const char *const *)keys, images, count) == EK_OK &&
		       ek_pack_write(in_base("nonsense.pack"), (const char *const *)keys, damaged, count) ==
			       EK_OK,
	       "%s", ek_error(NULL));
}

static ek_context *opened_with_pack(const char *pack)
{
	ek_options options = gpu_options();
	options.cache = "";
	options.pack = pack;
	return opened(options);
}

TEST_IN_CHILD(nvrtc_is_missing)
{
	set("EVENKEEL_NVRTC", "/nonexistent/libnvrtc.so");
	ek_context *ctx = opened_with("");
	struct work w = work_make(ctx, small);
	forward_refused("no NVRTC", &w, EK_ERROR_COMPILE,
			SAYS("ek_layer_norm_forward_f32_40", "$EVENKEEL_NVRTC", "/nonexistent/libnvrtc.so"));
	expect_status("no NVRTC, prepare", prepare_backward(&w), EK_ERROR_COMPILE,
		      SAYS("ek_layer_norm_backward_f32_40"));
	work_close(&w);

	ctx = opened_with_pack(in_base("no.pack"));
	w = work_make(ctx, small);
	forward_refused("no pack", &w, EK_ERROR_COMPILE,
			SAYS("$EVENKEEL_NVRTC", "the pack does not help", "no.pack: No such file"));
	set("EVENKEEL_NVRTC", "libc.so.6");
	forward_refused(
		"a library that is not NVRTC", &w, EK_ERROR_COMPILE,
		SAYS("lacks nvrtcVersion: evenkeel needs NVRTC 12.0", "12.1 from compute capability 9.0 on"));
	set("EVENKEEL_NVRTC", standin.nvrtc);
	expect_runs("when NVRTC has come", &w);
	work_close(&w);
}

static void a_pack_serves_in_a_child(void)
{
	set("EVENKEEL_NVRTC", "/nonexistent/libnvrtc.so");
	ek_context *ctx = opened_with_pack(pack_path());
	struct work w = work_make(ctx, small), other = work_make(ctx, (struct shape){EK_F32, 5, 41});
	expect_runs("from a pack", &w);
	forward_refused(
		"not in the pack", &other, EK_ERROR_COMPILE,
		SAYS("ek_layer_norm_forward_f32_41", "$EVENKEEL_NVRTC", pack_path(), "has no such kernel"));
	expect_runs("from a pack, after another kernel was missing", &w);
	work_free(&w);
	work_close(&other);
	set("EVENKEEL_PACK", pack_path());
	ek_options options = gpu_options();
	options.cache = "";
	options.pack = NULL;
	expect_works_once("from $EVENKEEL_PACK", opened(options));

	ctx = opened_with_pack(in_base("nonsense.pack"));
	w = work_make(ctx, small);
	forward_refused("a pack of nonsense", &w, EK_ERROR_COMPILE,
			SAYS("refused the compiled ek_layer_norm_forward_f32_40", "CUDA_ERROR_INVALID_IMAGE",
			     "$EVENKEEL_NVRTC"));
	work_close(&w);
}

TEST(a_pack_serves_without_nvrtc)
{
	in_child(write_pack_in_a_child);
	in_child(a_pack_serves_in_a_child);
}

/* Where there is nothing at all: no system paths, no toolkit, no Python. */
TEST_IN_CHILD(nothing_is_installed)
{
	struct work w = work_make(opened_with(""), small);
	set("EVENKEEL_NVRTC", NULL);
	if ((geteuid() != 0 && unshare(CLONE_NEWUSER) != 0) || chroot(fresh_folder()) != 0 || chdir("/") != 0)
		return;
	forward_refused("nothing installed", &w, EK_ERROR_COMPILE,
			SAYS("ek_layer_norm_forward_f32_40 cannot be compiled", "NVRTC (libnvrtc.so.13",
			     "not installed", "pip install", "CUDA toolkit", "$EVENKEEL_NVRTC"));
	work_close(&w);
}

TEST_IN_CHILD(nvrtc_11_8_is_too_old)
{
	struct work w = work_make(opened_with(""), small);
	fail("nvrtcVersion=11080");
	for (int i = 0; i < 2; i++) /* found once, refused twice */
		forward_refused("NVRTC 11.8", &w, EK_ERROR_COMPILE,
				SAYS("is NVRTC 11.8: evenkeel needs NVRTC 12.0 or newer", "$EVENKEEL_NVRTC"));
	EXPECT(standin.nvrtc_count("nvrtcVersion") == 1, "a library that is too old is opened %d times",
	       (int)standin.nvrtc_count("nvrtcVersion"));
	work_close(&w);
}

TEST_IN_CHILD(nvrtc_12_0_is_too_old_for_9_0)
{
	struct work w = work_make(opened_with(""), small);
	fail("nvrtcVersion=12000,nvrtcCompileProgram=6");
	forward_refused(
		"NVRTC 12.0 for 9.0", &w, EK_ERROR_COMPILE,
		SAYS("NVRTC 12.0 refused", "; evenkeel needs NVRTC", "12.1 from compute capability 9.0 on"));
	fail(NULL);
	expect_runs("what NVRTC 12.0 does compile", &w);
	work_close(&w);
}

/* ---- the GPU ---- */

TEST(ordinals_out_of_range)
{
	ek_options options = gpu_options();
	options.ordinal = 1;
	open_refused("ordinal 1 of 1", options, EK_ERROR_NO_DEVICE, SAYS("ordinal 1", "there is 1 GPU,"));
	set("EVENKEEL_STANDIN_DEVICES", "2");
	options.ordinal = 2;
	open_refused("ordinal 2 of 2", options, EK_ERROR_NO_DEVICE, SAYS("ordinal 2", "there are 2 GPUs"));
	options.ordinal = INT32_MAX;
	open_refused("the largest ordinal", options, EK_ERROR_NO_DEVICE, SAYS("ordinal 2147483647"));
	options.ordinal = 1;
	ek_context *ctx = opened(options);
	ek_description d = {.size = sizeof(d)};
	EXPECT(ek_describe(ctx, &d) == EK_OK && d.device == EK_CUDA && d.ordinal == 1 &&
		       strcmp(d.isa, "cuda") == 0 && strcmp(d.name, "evenkeel stand-in GPU 1") == 0,
	       "described as device %d, ordinal %d, \"%s\", \"%s\"", (int)d.device, d.ordinal, d.isa, d.name);
	ek_close(ctx);
	set("EVENKEEL_STANDIN_DEVICES", NULL);
}

/* What the driver says of GPU ordinal, which must be there. */
static ek_gpu_info described(int ordinal)
{
	ek_gpu_info gpu = {.size = sizeof(gpu)};
	EXPECT(ek_describe_gpu(ordinal, &gpu) == EK_OK, "%s", ek_error(NULL));
	return gpu;
}

TEST(gpus_are_described_without_a_cuda_context)
{
	struct living before = living();
	ek_cuda_info info = {.size = sizeof(info)};
	ek_gpu_info gpu = {.size = sizeof(gpu)};
	set("EVENKEEL_STANDIN_DEVICES", "2");
	EXPECT(ek_describe_cuda(&info) == EK_OK && info.gpu_count == 2 && !info.gpu_missing[0] &&
		       info.driver_version == cuda()->version && info.nvrtc_version > 0 &&
		       !info.nvrtc_missing[0] && strstr(info.nvrtc_path, "nvrtc"),
	       "%d GPUs, driver %d, NVRTC %d (%s)", info.gpu_count, info.driver_version, info.nvrtc_version,
	       info.nvrtc_path);
	gpu = described(1);
	EXPECT(gpu.size == sizeof(gpu) && gpu.ordinal == 1 && gpu.arch == 90 && gpu.usable == 1 &&
		       gpu.multiprocessors > 0 && gpu.memory > 0 &&
		       strcmp(gpu.name, "evenkeel stand-in GPU 1") == 0,
	       "GPU %d, arch %d, \"%s\"", gpu.ordinal, gpu.arch, gpu.name);
	expect_status("GPU 2 of 2", ek_describe_gpu(2, &gpu), EK_ERROR_NO_DEVICE,
		      SAYS("ordinal 2", "there are 2 GPUs"));
	fail("cuDeviceTotalMem_v2=1");
	expect_status("no memory", ek_describe_gpu(0, &gpu), EK_ERROR_CUDA,
		      SAYS("asking for attributes on GPU 0 failed"));
	fail("cuDeviceGetCount=999");
	EXPECT(ek_describe_cuda(&info) == EK_OK && info.gpu_count == 0 &&
		       strstr(info.gpu_missing, "the driver answers CUDA error 999"),
	       "missing: \"%s\"", info.gpu_missing);
	fail(NULL);
	set("EVENKEEL_STANDIN_DEVICES", NULL);
	nothing_is_left("a description", before);
}

TEST(a_gpu_is_too_old)
{
	set("EVENKEEL_STANDIN_ARCH", "75");
	open_refused("compute capability 7.5", gpu_options(), EK_ERROR_UNSUPPORTED,
		     SAYS("ordinal 0", "stand-in GPU 0", "7.5", "8.0"));
	EXPECT(described(0).arch == 75 && described(0).usable == 0, "described as usable, arch %d",
	       described(0).arch);
	set("EVENKEEL_STANDIN_ARCH", NULL);
}

TEST(the_driver_fails_while_opening)
{
	static const struct failure cases[] = {
		{"cuDeviceGetCount=999", EK_ERROR_CUDA, "CUDA error 999"},
		{"cuDeviceGet=101", EK_ERROR_CUDA, "CUDA_ERROR_INVALID_DEVICE"},
		{"cuDeviceGetAttribute=1", EK_ERROR_CUDA, "CUDA_ERROR_INVALID_VALUE"},
		{"cuDeviceGetAttribute=1@5", EK_ERROR_CUDA, "asking for attributes on GPU 0 failed"},
		{"cuDeviceGetName=1", EK_ERROR_CUDA, "CUDA_ERROR_INVALID_VALUE"},
		{"cuDevicePrimaryCtxRetain=2", EK_ERROR_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
		{"cuDevicePrimaryCtxRetain=999", EK_ERROR_CUDA, "making a CUDA context"},
		{"cuDevicePrimaryCtxRetain=719", EK_ERROR_CUDA, "CUDA_ERROR_LAUNCH_FAILED"},
		{"cuDevicePrimaryCtxRetain=2,cuGetErrorName=1", EK_ERROR_MEMORY, "CUDA error 2"},
		{"cuDevicePrimaryCtxRetain=2,cuGetErrorString=1", EK_ERROR_MEMORY,
		 "CUDA_ERROR_OUT_OF_MEMORY"}};
	for (int i = 0; i < COUNT_OF(cases); i++) {
		fail(cases[i].failure);
		open_refused(cases[i].failure, gpu_options(), cases[i].status, SAYS("GPU 0", cases[i].says));
	}
	opens_after_all();
}

/* ---- kernels: the compiler ---- */

TEST(a_compilation_fails)
{
	static const struct failure cases[] = {
		{"nvrtcCreateProgram=2", EK_ERROR_COMPILE, "NVRTC_ERROR_PROGRAM_CREATION_FAILURE"},
		{"nvrtcCreateProgram=1", EK_ERROR_MEMORY, "NVRTC_ERROR_OUT_OF_MEMORY"},
		{"nvrtcCompileProgram=6", EK_ERROR_COMPILE, "NVRTC_ERROR_COMPILATION"},
		{"nvrtcCompileProgram=1", EK_ERROR_MEMORY, "NVRTC_ERROR_OUT_OF_MEMORY"},
		{"nvrtcCompileProgram=6,nvrtcGetProgramLogSize=4", EK_ERROR_COMPILE,
		 "NVRTC_ERROR_COMPILATION"},
		{"nvrtcGetCUBINSize=4", EK_ERROR_COMPILE, "NVRTC_ERROR_INVALID_PROGRAM"},
		{"nvrtcGetCUBIN=4", EK_ERROR_COMPILE, "NVRTC_ERROR_INVALID_PROGRAM"},
		{"nvrtcGetNumSupportedArchs=4", EK_ERROR_COMPILE, "9.0"},
		{"nvrtcGetSupportedArchs=4", EK_ERROR_COMPILE, "9.0"}};
	struct work w = work_make(opened_with(""), small);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		fail(cases[i].failure);
		forward_refused(cases[i].failure, &w, cases[i].status, SAYS("NVRTC 12.99", cases[i].says));
	}
	fail(NULL);
	set("EVENKEEL_STANDIN_CC", "/bin/false");
	forward_refused(
		"a compiler that says nothing", &w, EK_ERROR_COMPILE,
		SAYS("NVRTC 12.99 refused ek_layer_norm_forward_f32_40", "sm_90", "NVRTC_ERROR_COMPILATION"));
	set("EVENKEEL_STANDIN_CC", NULL);
	expect_runs("when the compiler works", &w);
	work_close(&w);
}

TEST(what_the_compiler_said_is_kept)
{
	const char *folder = fresh_folder();
	char path[256];
	cache_file(folder, "ek_layer_norm_forward_f32_40", ".log", path);
	ek_context *ctx = opened_with(folder);
	struct work w = work_make(ctx, small);
	fail(NULL);
	set("EVENKEEL_STANDIN_CFLAGS", "-include no_such_header.h");
	forward_refused("a text that is refused", &w, EK_ERROR_COMPILE,
			SAYS("NVRTC_ERROR_COMPILATION", "error", "no_such_header.h", path));
	EXPECT(strstr(text_of(path), "no_such_header.h"), "the log is \"%s\"", text_of(path));
	EXPECT(files_in(folder) == 1, "%d files beside the log", files_in(folder) - 1);
	work_close(&w);
	ctx = opened_with("");
	w = work_make(ctx, small);
	forward_refused("and nowhere to keep it", &w, EK_ERROR_COMPILE,
			SAYS("NVRTC_ERROR_COMPILATION", "error", "no_such_header.h"));
	set("EVENKEEL_STANDIN_CFLAGS", NULL);
	expect_runs("when the text is right", &w);
	work_close(&w);
}

/* ---- kernels: loading ---- */

TEST(an_image_does_not_load)
{
	static const struct failure cases[] = {
		{"cuModuleLoadData=2", EK_ERROR_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"},
		{"cuModuleLoadData=200", EK_ERROR_CUDA, "CUDA_ERROR_INVALID_IMAGE"},
		{"cuModuleLoadData=209", EK_ERROR_CUDA, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
		{"cuModuleGetFunction=500", EK_ERROR_CUDA, "CUDA_ERROR_NOT_FOUND"},
		{"cuModuleGetFunction=2", EK_ERROR_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
		{"cuStreamIsCapturing=999", EK_ERROR_CUDA, "CUDA error 999"},
	};
	struct work w = work_make(opened_with(fresh_folder()), small);
	for (int i = 0; i < COUNT_OF(cases); i++) {
		fail(cases[i].failure);
		forward_refused(cases[i].failure, &w, cases[i].status, SAYS("GPU 0", cases[i].says));
	}
	fail("cuStreamIsCapturing=400");
	forward_refused("a default stream that is none", &w, EK_ERROR_ARGUMENT,
			SAYS("stream NULL does not belong"));
	fail("cuFuncSetAttribute=1"); /* backward asks for shared memory */
	expect_status("no shared memory", prepare_backward(&w), EK_ERROR_CUDA,
		      SAYS("loading ek_layer_norm_backward_f32_40", "CUDA_ERROR_INVALID_VALUE"));
	EXPECT(standin.count("cuModuleLoadData") == standin.count("cuModuleUnload"), "the module stays");
	fail("cuThreadExchangeStreamCaptureMode=1");
	expect_runs("when images load", &w);
	fail(NULL);
	work_close(&w);
}

static struct ek_recipe forward_recipe(struct work *w)
{
	struct ek_recipe recipe = {0};
	EXPECT(list_recipes(&ek_norm_forward_op, &w->forward, 90, &recipe, 1) == 1, "no recipe");
	return recipe;
}

/* Puts nonsense under the name of a good entry: whole by its checksum, and no image. */
static void damage_cache(const char *folder, struct work *w)
{
	struct ek_nvrtc_info nvrtc;
	struct ek_image image;
	char *key = NULL, longer[4096], nonsense[] = "no image at all";
	struct ek_recipe recipe = forward_recipe(w);
	struct ek_cache *entries = ek_cache_open(folder, "");
	ek_nvrtc_describe(&nvrtc);
	EXPECT(ek_kernel_build(&recipe, 90, entries, &image, &key, NULL) == EK_OK, "%s", ek_error(NULL));
	(void)snprintf(longer, sizeof(longer), "%s nvrtc=%d", key, nvrtc.version);
	free(image.data);
	free(key);
	EXPECT(ek_cache_get(entries, longer, &image), "the key in the folder is another");
	free(image.data);
	ek_cache_put(entries, longer, &(struct ek_image){nonsense, sizeof(nonsense)});
	ek_cache_close(entries);
}

TEST(a_refused_image_is_compiled_again)
{
	const char *folder = fresh_folder();
	ek_context *ctx = opened_with(folder);
	struct work w = work_make(ctx, small);
	damage_cache(folder, &w);
	fail(NULL);
	expect_runs("with a damaged image in the cache", &w);
	EXPECT(standin.nvrtc_count("nvrtcCompileProgram") == 3, "compiled %d times, for three kernels",
	       (int)standin.nvrtc_count("nvrtcCompileProgram"));
	EXPECT(standin.live("module") == 3, "%d modules", (int)standin.live("module"));
	work_close(&w);
	ctx = opened_with(folder);
	fail(NULL);
	expect_works("from the cache", ctx);
	EXPECT(standin.nvrtc_count("nvrtcCompileProgram") == 0, "the damaged image stays in the cache");
	ek_close(ctx);

	ctx = opened_with(folder);
	w = work_make(ctx, small);
	fail("cuModuleLoadData=209@1");
	expect_status("of another architecture", prepare_forward(&w), EK_OK, SAYS(NULL));
	EXPECT(standin.nvrtc_count("nvrtcCompileProgram") == 1, "compiled %d times",
	       (int)standin.nvrtc_count("nvrtcCompileProgram"));
	fail(NULL);
	expect_runs("with an image that the driver refused", &w);
	work_close(&w);
}

/* A backward has several kernels: without one of them it writes nothing, whether the others are in memory or not. */
TEST(a_later_kernel_is_missing)
{
	for (int warm = 0; warm < 2; warm++) {
		struct work w = work_make(opened_with(""), small);
		fail("nvrtcCompileProgram=6@2");
		if (warm)
			expect_status("prepare", prepare_backward(&w), EK_ERROR_COMPILE, SAYS(NULL));
		fail(warm ? "nvrtcCompileProgram=6" : "nvrtcCompileProgram=6@2");
		expect_status("the second kernel", run_backward(&w), EK_ERROR_COMPILE,
			      SAYS("ek_columns_final_", "NVRTC_ERROR_COMPILATION"));
		EXPECT(standin.count("cuLaunchKernelEx") == 0 && is_untouched(&w), "bytes were written");
		fail(NULL);
		expect_runs("with all kernels", &w);
		work_close(&w);
	}
}

/* ---- kernels: threads ---- */

struct preparation {
	struct work work;
	ek_status status;
};

static void *prepare(void *argument)
{
	struct preparation *preparation = argument;
	preparation->status = ek_norm_forward_prepare(preparation->work.ctx, &preparation->work.forward);
	return NULL;
}

/* Each in its thread. Returns how many succeed; the others fail with EK_ERROR_COMPILE. */
static int prepare_at_once(ek_context *ctx, const int64_t *cols, int count)
{
	struct preparation preparations[4];
	pthread_t threads[4];
	int prepared = 0;
	for (int i = 0; i < count; i++)
		preparations[i].work = work_make(ctx, (struct shape){EK_F32, 3, cols[i]});
	for (int i = 0; i < count; i++)
		EXPECT(pthread_create(&threads[i], NULL, prepare, &preparations[i]) == 0, "no thread");
	for (int i = 0; i < count; i++) {
		(void)pthread_join(threads[i], NULL);
		prepared += preparations[i].status == EK_OK;
		EXPECT(preparations[i].status == EK_OK || preparations[i].status == EK_ERROR_COMPILE,
		       "thread %d: %s", i, ek_status_name(preparations[i].status));
		work_free(&preparations[i].work);
	}
	return prepared;
}

/* Each compilation waits in the compiler until the other has begun. */
TEST(different_kernels_compile_at_the_same_time)
{
	ek_context *ctx = opened_with("");
	fail(NULL);
	set("EVENKEEL_STANDIN_TOGETHER", "2");
	int prepared = prepare_at_once(ctx, (const int64_t[]){24, 56}, 2);
	set("EVENKEEL_STANDIN_TOGETHER", NULL);
	EXPECT(prepared == 2, "the second compilation begins when the first has ended");
	ek_close(ctx);
}

TEST(the_same_kernel_compiles_once)
{
	const int64_t same[] = {24, 24, 24, 24};
	ek_context *ctx = opened_with("");
	fail(NULL);
	EXPECT(prepare_at_once(ctx, same, 4) == 4, "not prepared");
	EXPECT(standin.nvrtc_count("nvrtcCompileProgram") == 1 && standin.count("cuModuleLoadData") == 1,
	       "%d compilations, %d loads", (int)standin.nvrtc_count("nvrtcCompileProgram"),
	       (int)standin.count("cuModuleLoadData"));
	ek_close(ctx);
	ctx = opened_with("");
	fail("nvrtcCompileProgram=6@1"); /* and the next thread tries */
	EXPECT(prepare_at_once(ctx, same, 4) == 3, "a failure is not one thread's");
	EXPECT(standin.nvrtc_count("nvrtcCompileProgram") == 2, "%d compilations after one that failed",
	       (int)standin.nvrtc_count("nvrtcCompileProgram"));
	fail(NULL);
	ek_close(ctx);
}

/* As warm-up asks for them: for any number of rows, each once. */
TEST(recipes_are_listed_once)
{
	enum { MOST = 8 };
	static struct ek_recipe recipes[MOST];
	static const int64_t rows[] = {0, 1, 1000, (int64_t)1 << 36, (int64_t)1 << 50};
	static const ek_dtype dtypes[] = {EK_F32, EK_F64};
	ek_context *ctx = opened(gpu_options());
	for (int i = 0; i < COUNT_OF(rows) * COUNT_OF(dtypes); i++) {
		struct work w = work_make(ctx, (struct shape){dtypes[i % 2], 1, 24});
		w.forward.rows = w.backward.rows = rows[i / 2];
		int forward = list_recipes(&ek_norm_forward_op, &w.forward, 90, recipes, MOST);
		int backward = list_recipes(&ek_norm_backward_op, &w.backward, 90, recipes, MOST);
		EXPECT(forward == 1 && backward == 3 + i % 2, "%lld rows: %d and %d recipes",
		       (long long)rows[i / 2], forward, backward);
		work_free(&w);
	}
	ek_close(ctx);
}

/* ---- kernels: the cache's folder ---- */

TEST_IN_CHILD(others_may_write_a_folder)
{
	const char *folder = fresh_folder();
	int noted = open(in_base("notes"), O_RDWR | O_CREAT | O_TRUNC, 0600), before = dup(2);
	EXPECT(chmod(folder, 0777) == 0 && noted >= 0 && dup2(noted, 2) == 2, "no notes");
	for (int i = 0; i < 3; i++) {
		struct work w = work_make(opened_with(folder), small);
		EXPECT(run_forward(&w) == EK_OK, "%s", ek_error(w.ctx));
		work_close(&w);
	}
	(void)dup2(before, 2);
	const char *notes = text_of(in_base("notes")), *first = strstr(notes, "evenkeel: ");
	EXPECT(first && strstr(first, folder) && strstr(first, "written by others") &&
		       !strstr(first + 1, "evenkeel: "),
	       "on standard error: \"%s\"", notes);
	EXPECT(files_in(folder) == 0, "%d files are kept where others may write", files_in(folder));
}

TEST_IN_CHILD(a_turned_off_cache_keeps_no_files)
{
	const char *home = fresh_folder();
	ek_options options = gpu_options();
	options.cache = options.pack = NULL;
	set("HOME", home);
	set("XDG_CACHE_HOME", home);
	set("EVENKEEL_CACHE", "");
	EXPECT(chdir(home) == 0, "no folder");
	ek_context *ctx = opened(options);
	struct work w = work_make(ctx, small);
	set("EVENKEEL_STANDIN_CC", "/bin/false");
	EXPECT(run_forward(&w) == EK_ERROR_COMPILE, "compiled by nothing");
	set("EVENKEEL_STANDIN_CC", NULL);
	expect_runs("without a cache", &w);
	EXPECT(files_in(home) == 0, "%d files are kept", files_in(home));
	set("EVENKEEL_CACHE", NULL);
	work_close(&w);
	expect_works_once("with the user's cache", opened(options));
	EXPECT(files_in(in_base("folder/evenkeel")) == 3, "%d files are kept, of three kernels",
	       files_in(in_base("folder/evenkeel")));
}

/* Nobody may write there, not even root. */
TEST(a_folder_cannot_be_written)
{
	char folder[64];
	(void)snprintf(folder, sizeof(folder), "/proc/%d", (int)getpid());
	struct work w = work_make(opened_with(folder), small);
	set("EVENKEEL_STANDIN_CFLAGS", "-include no_such_header.h");
	forward_refused("a log that cannot be kept", &w, EK_ERROR_COMPILE, SAYS("no_such_header.h"));
	set("EVENKEEL_STANDIN_CFLAGS", NULL);
	expect_runs("without a folder to write to", &w);
	work_close(&w);
}
