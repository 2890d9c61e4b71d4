/* The stand-ins for libcuda and NVRTC, tested before anything is tested with them: kernels that do what they
 * should give the right numbers in every order of threads, kernels that break a rule are caught (selftest.cu),
 * and the driver refuses what a real one refuses. The libraries are $EVENKEEL_LIBCUDA and $EVENKEEL_NVRTC.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fiber.h"
#include "half.h"
#include "support.h"
#include "support_files.h"
#include "support_standin.h"

enum { THREADS = 256, THREAD_BYTES = 16, BLOCK_BYTES = THREADS * THREAD_BYTES, BLOCK_NUMBERS = THREADS * 4 };

/* ---- the libraries ---- */

static struct ek_driver driver;

static struct {
	int (*create)(void **program, const char *text, const char *name, int count,
		      const char *const *headers, const char *const *names);
	int (*destroy)(void **program);
	int (*compile)(void *program, int count, const char *const *options);
	int (*cubin_size)(void *program, size_t *size);
	int (*cubin)(void *program, char *data);
	int (*ptx_size)(void *program, size_t *size);
	int (*ptx)(void *program, char *data);
	int (*log_size)(void *program, size_t *size);
	int (*log)(void *program, char *data);
} nvrtc;

static void open_libraries(void)
{
	standin_open();
#define FIND_FUNCTION(field, symbol, parameters) standin_find(standin.driver_library, symbol, &driver.field);
	EK_DRIVER_SYMBOLS(FIND_FUNCTION)
	void *library = standin.nvrtc_library;
	standin_find(library, "nvrtcCreateProgram", &nvrtc.create);
	standin_find(library, "nvrtcDestroyProgram", &nvrtc.destroy);
	standin_find(library, "nvrtcCompileProgram", &nvrtc.compile);
	standin_find(library, "nvrtcGetCUBINSize", &nvrtc.cubin_size);
	standin_find(library, "nvrtcGetCUBIN", &nvrtc.cubin);
	standin_find(library, "nvrtcGetPTXSize", &nvrtc.ptx_size);
	standin_find(library, "nvrtcGetPTX", &nvrtc.ptx);
	standin_find(library, "nvrtcGetProgramLogSize", &nvrtc.log_size);
	standin_find(library, "nvrtcGetProgramLog", &nvrtc.log);
}

#define EXPECT_RESULT(wanted, call)                                                                \
	do {                                                                                       \
		int result_ = (call);                                                              \
		EXPECT(result_ == (wanted), "%s gives %d, not %d", #call, result_, (int)(wanted)); \
	} while (0)
#define EXPECT_SUCCESS(call) EXPECT_RESULT(CUDA_SUCCESS, call)

/* ---- compiling ---- */

/* What a file holds, with a zero at the end. */
static char *source_of(const char *path)
{
	FILE *file = fopen(path, "r");
	if (!file) {
		printf("cannot read %s: run this in the root of the sources\n", path);
		exit(1);
	}
	char *text = calloc(1, 1 << 16);
	size_t size = fread(text, 1, (1 << 16) - 1, file);
	text[size] = 0;
	(void)fclose(file);
	return text;
}

/* The image of a text for an architecture ("sm_90", "compute_90"); NULL where it is refused. */
static char *compile(const char *text, const char *arch, char **log)
{
	void *program = NULL;
	char option[64];
	(void)snprintf(option, sizeof(option), "--gpu-architecture=%s", arch);
	const char *options[] = {option, "--fmad=false", "-DUNUSED=1"};
	char *image = NULL;
	size_t size;
	bool final = arch[0] == 's';
	EXPECT_SUCCESS(nvrtc.create(&program, text, "selftest.cu", 0, NULL, NULL));
	if (nvrtc.compile(program, 3, options) == 0) {
		EXPECT_SUCCESS(final ? nvrtc.cubin_size(program, &size) : nvrtc.ptx_size(program, &size));
		image = malloc(size);
		EXPECT_SUCCESS(final ? nvrtc.cubin(program, image) : nvrtc.ptx(program, image));
	}
	EXPECT_SUCCESS(nvrtc.log_size(program, &size));
	*log = malloc(size);
	EXPECT_SUCCESS(nvrtc.log(program, *log));
	EXPECT_SUCCESS(nvrtc.destroy(&program));
	return image;
}

static CUcontext context;
static CUmodule module;

static void load_kernels(void)
{
	char *words = source_of("src/cuda/kernels/words.cu"),
	     *kernels = source_of("tests/standin/selftest.cu"), *log;
	char *text = calloc(1, strlen(words) + strlen(kernels) + 1);
	strcat(strcat(text, words), kernels);
	char *image = compile(text, "sm_90", &log);
	if (!image || driver.init(0) || driver.primary_retain(&context, 0) || driver.context_push(context) ||
	    driver.module_load(&module, image)) {
		printf("the kernels do not compile or do not load:\n%s\n", log);
		exit(1);
	}
	free(image);
	free(log);
	free(text);
	free(kernels);
	free(words);
}

/* ---- launching ---- */

struct arguments {
	unsigned char *to;
	const unsigned char *from;
	long long bytes;
	int stages;
};

static CUfunction function_of(const char *name)
{
	CUfunction function = NULL;
	EXPECT_SUCCESS(driver.module_function(&function, module, name));
	return function;
}

struct shape {
	unsigned blocks, threads, cluster, shared_bytes;
	bool overlaps;
	CUstream stream;
};

static CUresult launch(CUfunction function, struct shape shape, struct arguments *arguments)
{
	CUlaunchAttribute attributes[2] = {
		{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		 .value.programmaticStreamSerializationAllowed = shape.overlaps},
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {shape.cluster, 1, 1}}};
	CUlaunchConfig config = {.gridDimX = shape.blocks,
				 .gridDimY = 1,
				 .gridDimZ = 1,
				 .blockDimX = shape.threads,
				 .blockDimY = 1,
				 .blockDimZ = 1,
				 .sharedMemBytes = shape.shared_bytes,
				 .hStream = shape.stream,
				 .attrs = attributes,
				 .numAttrs = shape.cluster ? 2 : 1};
	void *parameters[] = {arguments, NULL};
	return driver.launch(&config, function, parameters, NULL);
}

/* What a kernel got and gave: 16 bytes per thread and stage. */
enum { MOST_NUMBERS = 16 * 4 * BLOCK_NUMBERS };
static float input[MOST_NUMBERS], output[MOST_NUMBERS], wanted[MOST_NUMBERS];

static void fill_input(size_t count)
{
	uint64_t state = 5;
	for (size_t i = 0; i < count; i++)
		input[i] = (float)random_below(&state, 100);
}

/* Runs a kernel over `bytes` of input; false where the output is not what is wanted. */
static bool gives_wanted(const char *name, struct shape shape, int stages, size_t bytes)
{
	CUdeviceptr from = 0, to = 0;
	EXPECT_SUCCESS(driver.memory_alloc(&from, bytes));
	EXPECT_SUCCESS(driver.memory_alloc(&to, bytes));
	EXPECT_SUCCESS(driver.copy_to_device(from, input, bytes));
	struct arguments arguments = {(unsigned char *)(uintptr_t)to, (const unsigned char *)(uintptr_t)from,
				      (long long)bytes, stages};
	EXPECT_SUCCESS(launch(function_of(name), shape, &arguments));
	EXPECT_SUCCESS(driver.copy_to_host(output, to, bytes));
	EXPECT_SUCCESS(driver.memory_free(from));
	EXPECT_SUCCESS(driver.memory_free(to));
	return memcmp(output, wanted, bytes) == 0;
}

static const char *const orders[] = {"forward", "backward", "shuffled", "shuffled:11", "shuffled:12"};

/* In how many of the orders the output is not what is wanted. */
static int wrong_orders(const char *name, struct shape shape, int stages, size_t bytes)
{
	int wrong = 0;
	for (int i = 0; i < COUNT_OF(orders); i++) {
		(void)setenv("EVENKEEL_STANDIN_ORDER", orders[i], 1);
		wrong += !gives_wanted(name, shape, stages, bytes);
	}
	(void)unsetenv("EVENKEEL_STANDIN_ORDER");
	return wrong;
}

/* Every thread is to give the sum of the input of its group, four times. */
static void want_sums(size_t count, size_t group)
{
	for (size_t start = 0; start < count; start += group) {
		float sum = 0;
		for (size_t i = start; i < start + group; i++)
			sum += input[i];
		for (size_t i = start; i < start + group; i++)
			wanted[i] = sum;
	}
}

static void want_reversed_warps(size_t count)
{
	for (size_t thread = 0; thread < count / 4; thread++)
		memcpy(&wanted[4 * thread], &input[4 * (thread / 32 * 32 + 31 - thread % 32)], 16);
}

static const struct shape plain = {.blocks = 4, .threads = THREADS, .shared_bytes = 4 * THREADS / 32};
static const struct shape rings = {.blocks = 2, .threads = THREADS, .shared_bytes = 3 * BLOCK_BYTES};
static const struct shape clusters = {
	.blocks = 12, .threads = THREADS, .cluster = 4, .shared_bytes = 4 * THREADS / 32 + 64 + 8};

static void right_kernels_are_right_in_every_order(void)
{
	fill_input(MOST_NUMBERS);
	want_sums(4 * BLOCK_NUMBERS, BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("block_sums", plain, 0, 4 * BLOCK_BYTES));
	want_sums(4 * BLOCK_NUMBERS, BLOCK_NUMBERS / 2);
	EXPECT_RESULT(0, wrong_orders("halves", plain, 0, 4 * BLOCK_BYTES));
	want_sums(12 * BLOCK_NUMBERS, 4 * BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("cluster_sums", clusters, 4, 12 * BLOCK_BYTES));
	want_reversed_warps(14 * BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("ring", rings, 7, 14 * BLOCK_BYTES));
	want_reversed_warps(2 * BLOCK_NUMBERS);
	EXPECT_RESULT(0, wrong_orders("ring", rings, 1, 2 * BLOCK_BYTES));
}

static void what_is_missing_shows_in_some_order(void)
{
	fill_input(MOST_NUMBERS);
	want_sums(4 * BLOCK_NUMBERS, BLOCK_NUMBERS);
	EXPECT(wrong_orders("without_barrier", plain, 0, 4 * BLOCK_BYTES) > 0, "a barrier is not missed");
	EXPECT_RESULT(COUNT_OF(orders), wrong_orders("wrong_neighbour", plain, 0, 4 * BLOCK_BYTES));
	want_sums(12 * BLOCK_NUMBERS, 4 * BLOCK_NUMBERS);
	EXPECT(wrong_orders("without_letterbox_wait", clusters, 4, 12 * BLOCK_BYTES) > 0,
	       "letterbox_wait is not missed");
	want_reversed_warps(14 * BLOCK_NUMBERS);
	EXPECT_RESULT(COUNT_OF(orders), wrong_orders("without_wait", rings, 7, 14 * BLOCK_BYTES));
	EXPECT(wrong_orders("without_sync_after_wait", rings, 7, 14 * BLOCK_BYTES) > 0,
	       "sync_warp after FETCH_WAIT is not missed");
	EXPECT(wrong_orders("without_sync_before_fetch", rings, 7, 14 * BLOCK_BYTES) > 0,
	       "sync_warp before a fetch is not missed");
}

/* Without a wish the order changes from launch to launch, so that all are seen soon. */
static void the_order_changes_by_itself(void)
{
	struct standin_launch last;
	char seen[3][32] = {{0}};
	fill_input(BLOCK_NUMBERS);
	for (int i = 0; i < 3; i++) {
		struct shape shape = plain;
		shape.blocks = 1;
		(void)gives_wanted("block_sums", shape, 0, BLOCK_BYTES);
		EXPECT(standin.last_launch(&last), "no launch is remembered");
		memcpy(seen[i], last.order, sizeof(last.order));
	}
	EXPECT(strcmp(seen[0], seen[1]) != 0 && strcmp(seen[1], seen[2]) != 0 &&
		       strcmp(seen[0], seen[2]) != 0,
	       "%s, %s, %s", seen[0], seen[1], seen[2]);
}

/* ---- arithmetic ---- */

static uint32_t arithmetic(int word, const uint32_t v[4])
{
	float x = ek_float_of_bits(v[0]), y = ek_float_of_bits(v[1]), z = ek_float_of_bits(v[2]);
	uint64_t bits = (uint64_t)v[1] << 32 | v[0], low, high;
	double d, squared, root;
	memcpy(&d, &bits, sizeof(d));
	squared = fma(d, d, d);
	root = sqrt(d);
	memcpy(&low, &squared, sizeof(low));
	memcpy(&high, &root, sizeof(high));
	switch (word) {
	case 0:
		return ek_bits_of_float(fmaf(x, y, z)) ^ ek_bits_of_float(sqrtf(x));
	case 1:
		return half_from_float(x) | (uint32_t)half_from_float(half_to_float((uint16_t)v[3])) << 16;
	case 2:
		return bfloat_from_float(y) | (uint32_t)bfloat_from_float(z) << 16;
	default:
		return (uint32_t)((high >> 32 << 32 | (uint32_t)low) >> (v[3] & 31));
	}
}

static void arithmetic_is_exact(void)
{
	static uint32_t words[4 * BLOCK_NUMBERS], results[4 * BLOCK_NUMBERS];
	uint64_t state = 9;
	/* Positive numbers of every size, subnormals included; NaNs have no bits to compare. */
	for (int i = 0; i < COUNT_OF(words); i++) {
		words[i] = (uint32_t)random_bits(&state) & (i % 4 == 3 ? ~0u : 0x7f7fffffu);
		if (i % 4 == 3 && (words[i] & 0x7c00) == 0x7c00)
			words[i] ^= 0x4000;
		if (i % 4 == 0 && i % 3 == 0) /* the sizes of f16 */
			words[i] = 0x33000000u + words[i] % 0x15000000u;
	}
	for (int i = 0; i < COUNT_OF(words); i++)
		results[i] = arithmetic(i % 4, words + i / 4 * 4);
	memcpy(input, words, sizeof(words));
	memcpy(wanted, results, sizeof(results));
	struct shape shape = {.blocks = 4, .threads = THREADS};
	EXPECT_RESULT(true, gives_wanted("arithmetic", shape, 0, sizeof(words)));
}

/* ---- rules that stop the process, in a child ---- */

struct broken {
	const char *kernel;
	const char *message;      /* a part of what it says */
	const char *asan_message; /* where AddressSanitizer comes first; NULL: the same */
	struct shape shape;
	int stages;
};

static int run_broken(const void *given)
{
	const struct broken *broken = given;
	(void)gives_wanted(broken->kernel, broken->shape, broken->stages,
			   broken->shape.blocks * (size_t)BLOCK_BYTES);
	return 0;
}

static void broken_rules_stop_the_process(void)
{
	enum { ONE = 4 * THREADS / 32 };
	static const struct shape one = {.blocks = 1, .threads = THREADS, .shared_bytes = ONE};
	static const struct shape overlapping = {
		.blocks = 1, .threads = THREADS, .shared_bytes = ONE, .overlaps = true};
	static const struct shape pair = {.blocks = 2, .threads = THREADS, .cluster = 2, .shared_bytes = ONE};
	static const struct shape ring = {.blocks = 1, .threads = THREADS, .shared_bytes = 3 * BLOCK_BYTES};
	const struct broken list[] = {
		{"divergent_shuffle", "waits elsewhere, at shuffle_xor_f32 in divergent_shuffle_kernel", NULL,
		 one, 0},
		{"shuffle_or_barrier", "waits elsewhere, at", NULL, one, 0},
		{"ended_lane", "block 0, warp 1", NULL, one, 0},
		{"no_such_lane", "lane 32 does not exist", NULL, one, 0},
		{"too_many_wanted", "deadlock", NULL, one, 0},
		{"too_many_wanted", "warps 0 to 3 wait at sync_some", NULL, one, 0},
		{"odd_address", "is not a multiple of 16", NULL, one, 0},
		{"load_past_end", "not in device memory: byte 4096 of an allocation of 4096", NULL, one, 0},
		{"fetch_past_end", "not in device memory", NULL, ring, 0},
		{"byte_past_end", "not in device memory: byte 4096 of an allocation of 4096", NULL, one, 0},
		{"odd_number", "is not a multiple of 4", NULL, one, 0},
		{"fetch_to_global", "is not in the block's 32 bytes of shared memory", NULL, one, 0},
		{"load_from_shared", "is in shared memory", NULL, one, 0},
		{"past_shared", "written past its 32 bytes", "heap-buffer-overflow", one, ONE},
		{"block_sums", "before wait_for_kernels_before", NULL, overlapping, 0},
		{"block_sums",
		 "of shared memory",
		 "heap-buffer-overflow",
		 {.blocks = 1, .threads = THREADS, .shared_bytes = ONE - 4},
		 0},
		{"remote_after_end", "block 1 of the cluster has ended", NULL, pair, 0},
	};
	char said[8192];
	(void)setenv("EVENKEEL_STANDIN_ORDER", "backward", 1);
	for (int i = 0; i < COUNT_OF(list); i++) {
		const char *message =
			FIBER_ASAN && list[i].asan_message ? list[i].asan_message : list[i].message;
		int status = end_of_child(run_broken, &list[i], said, sizeof(said));
		EXPECT(status != 0 && strstr(said, message), "%s ends with status 0x%x and says: %s",
		       list[i].kernel, status, said);
	}
	(void)unsetenv("EVENKEEL_STANDIN_ORDER");
}

static void kernels_that_wait_may_overlap(void)
{
	struct shape shape = {.blocks = 3, .threads = THREADS, .overlaps = true};
	struct standin_launch last;
	for (int i = 0; i < 3 * BLOCK_NUMBERS; i++)
		wanted[i] = (float)(i / 128 % (THREADS / 32) * 32 + 7);
	EXPECT_RESULT(true, gives_wanted("waits_for_kernels_before", shape, 0, 3 * BLOCK_BYTES));
	EXPECT(standin.last_launch(&last) && last.overlaps && last.blocks == 3 && last.threads == THREADS &&
		       last.cluster == 1 && last.shared_bytes == 0 && last.stream == NULL && !last.captured &&
		       strcmp(last.kernel, "waits_for_kernels_before") == 0,
	       "the last launch is %s, %lld blocks", last.kernel, (long long)last.blocks);
}

/* ---- the compiler ---- */

static void a_wrong_text_is_refused_with_a_log(void)
{
	char *log, *image = compile("int wrong(void) { return missing; }", "sm_90", &log);
	EXPECT(!image && strstr(log, "missing"), "the log is: %s", log);
	free(log);
	image = compile("", "sm_55", &log);
	EXPECT(!image, "sm_55 is taken");
	free(log);
}

static void images_run_where_they_should(void)
{
	static const struct {
		const char *arch, *device;
		CUresult result;
	} list[] = {{"sm_80", "80", CUDA_SUCCESS},
		    {"sm_80", "86", CUDA_SUCCESS},
		    {"sm_80", "90", CUDA_ERROR_NO_BINARY_FOR_GPU},
		    {"sm_90", "80", CUDA_ERROR_NO_BINARY_FOR_GPU},
		    {"compute_80", "90", CUDA_SUCCESS},
		    {"compute_90", "80", CUDA_ERROR_NO_BINARY_FOR_GPU}};
	for (int i = 0; i < COUNT_OF(list); i++) {
		char *log, *image = compile("", list[i].arch, &log);
		CUmodule loaded = NULL;
		(void)setenv("EVENKEEL_STANDIN_ARCH", list[i].device, 1);
		CUresult result = driver.module_load(&loaded, image);
		(void)unsetenv("EVENKEEL_STANDIN_ARCH");
		EXPECT(result == list[i].result, "%s on %s: %d", list[i].arch, list[i].device, result);
		if (result == CUDA_SUCCESS)
			EXPECT_SUCCESS(driver.module_unload(loaded));
		free(image);
		free(log);
	}
	CUmodule none;
	EXPECT_RESULT(CUDA_ERROR_INVALID_IMAGE, driver.module_load(&none, "no image at all"));
}

/* More modules than files may stay open: none is taken for another. */
static void many_modules_stand_apart(void)
{
	enum { MODULES = 300, IMAGES = 2 };
	static CUmodule loaded[MODULES];
	char *images[IMAGES], *log;
	CUfunction function;
	for (int i = 0; i < IMAGES; i++) {
		char text[128];
		(void)snprintf(
			text, sizeof(text),
			"struct arguments { int a; }; KERNEL(kernel_%d, 32, 1)(const struct arguments a) {}",
			i);
		images[i] = compile(text, "sm_90", &log);
		free(log);
	}
	for (int i = 0; i < MODULES; i++) {
		EXPECT_SUCCESS(driver.module_load(&loaded[i], images[i % IMAGES]));
		EXPECT_SUCCESS(
			driver.module_function(&function, loaded[i], i % IMAGES ? "kernel_1" : "kernel_0"));
		EXPECT_RESULT(
			CUDA_ERROR_NOT_FOUND,
			driver.module_function(&function, loaded[i], i % IMAGES ? "kernel_0" : "kernel_1"));
	}
	for (int i = 0; i < MODULES; i++)
		EXPECT_SUCCESS(driver.module_unload(loaded[i]));
	for (int i = 0; i < IMAGES; i++)
		free(images[i]);
}

/* ---- the driver ---- */

static void wrong_launches_are_refused(void)
{
	CUfunction sums = function_of("block_sums");
	struct arguments arguments = {NULL, NULL, 0, 0};
	static const struct {
		struct shape shape;
		CUresult result;
	} list[] = {
		{{.blocks = 0, .threads = THREADS}, CUDA_ERROR_INVALID_VALUE},
		{{.blocks = 0x80000000u, .threads = THREADS}, CUDA_ERROR_INVALID_VALUE},
		{{.blocks = 1, .threads = 0}, CUDA_ERROR_INVALID_VALUE},
		{{.blocks = 1, .threads = 1025}, CUDA_ERROR_INVALID_VALUE},
		{{.blocks = 1, .threads = 512}, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES},
		{{.blocks = 1, .threads = THREADS, .shared_bytes = 49153}, CUDA_ERROR_INVALID_VALUE},
		{{.blocks = 12, .threads = THREADS, .cluster = 8}, CUDA_ERROR_INVALID_VALUE},
		{{.blocks = 16, .threads = THREADS, .cluster = 16}, 912},
	};
	for (int i = 0; i < COUNT_OF(list); i++)
		EXPECT(launch(sums, list[i].shape, &arguments) == list[i].result, "launch %d is not refused",
		       i);
	struct shape shape = plain;
	shape.stream = (CUstream)(void *)&shape;
	EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, launch(sums, shape, &arguments));
	EXPECT_RESULT(
		CUDA_ERROR_INVALID_VALUE,
		driver.function_set(sums, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (227 << 10) + 1));
	(void)setenv("EVENKEEL_STANDIN_ARCH", "80", 1);
	shape = clusters;
	EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, launch(sums, shape, &arguments));
	(void)unsetenv("EVENKEEL_STANDIN_ARCH");
}

static void large_limits_are_asked_for(void)
{
	fill_input(MOST_NUMBERS);
	want_sums(16 * BLOCK_NUMBERS, 16 * BLOCK_NUMBERS);
	CUdeviceptr from, to;
	EXPECT_SUCCESS(driver.memory_alloc(&from, sizeof(input)));
	EXPECT_SUCCESS(driver.memory_alloc(&to, sizeof(input)));
	EXPECT_SUCCESS(driver.copy_to_device(from, input, sizeof(input)));
	CUfunction sums = function_of("cluster_sums");
	EXPECT_SUCCESS(driver.function_set(sums, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	EXPECT_SUCCESS(driver.function_set(sums, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
	struct shape shape = {.blocks = 16, .threads = THREADS, .cluster = 16, .shared_bytes = 227 << 10};
	struct arguments arguments = {(unsigned char *)(uintptr_t)to, (const unsigned char *)(uintptr_t)from,
				      sizeof(input), 16};
	EXPECT_SUCCESS(launch(sums, shape, &arguments));
	EXPECT_SUCCESS(driver.copy_to_host(output, to, 16 * BLOCK_BYTES));
	EXPECT(memcmp(output, wanted, 16 * BLOCK_BYTES) == 0, "a cluster of 16 sums to %g, not %g",
	       (double)output[0], (double)wanted[0]);
	EXPECT_SUCCESS(driver.memory_free(from));
	EXPECT_SUCCESS(driver.memory_free(to));
}

static void memory_is_told_from_other_memory(void)
{
	CUdeviceptr pointer;
	unsigned type = 0;
	char host[64];
	EXPECT_SUCCESS(driver.memory_alloc(&pointer, 100));
	EXPECT(pointer % 256 == 0, "the pointer is %llx", pointer);
	EXPECT_SUCCESS(driver.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + 99));
	EXPECT(type == CU_MEMORYTYPE_DEVICE, "type %u", type);
	EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE,
		      driver.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer + 100));
	EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE,
		      driver.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					       (CUdeviceptr)(uintptr_t)host));
	EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, driver.copy_to_host(host, pointer + 60, 41));
	EXPECT_SUCCESS(driver.memory_free(pointer));
	EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, driver.memory_free(pointer));
	EXPECT_RESULT(CUDA_ERROR_OUT_OF_MEMORY, driver.memory_alloc(&pointer, (size_t)1 << 40));
}

static void contexts_stand_apart(void)
{
	CUcontext other, current;
	CUdevice device = -1;
	struct arguments arguments = {NULL, NULL, 0, 0};
	CUfunction sums = function_of("block_sums");
	(void)setenv("EVENKEEL_STANDIN_DEVICES", "2", 1);
	EXPECT_SUCCESS(driver.primary_retain(&other, 1));
	EXPECT_SUCCESS(driver.context_push(other));
	EXPECT_SUCCESS(driver.context_device(&device));
	EXPECT(device == 1, "device %d", device);
	EXPECT_RESULT(CUDA_ERROR_INVALID_HANDLE, launch(sums, plain, &arguments));
	EXPECT_SUCCESS(driver.primary_release(1));
	EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, driver.context_device(&device));
	EXPECT_SUCCESS(driver.context_pop(&current));
	CUcontext foreign = standin.context_create(0);
	EXPECT_SUCCESS(driver.context_push(foreign));
	EXPECT_SUCCESS(driver.context_current(&current));
	EXPECT(current == foreign && standin.live("context") == 2, "%lld contexts",
	       (long long)standin.live("context"));
	EXPECT_SUCCESS(driver.context_pop(NULL));
	standin.context_destroy(foreign);
	EXPECT_RESULT(CUDA_ERROR_INVALID_CONTEXT, driver.context_push(foreign));
	EXPECT_RESULT(CUDA_ERROR_INVALID_DEVICE, driver.primary_retain(&other, 2));
	(void)unsetenv("EVENKEEL_STANDIN_DEVICES");
}

static void failures_come_when_asked_for(void)
{
	int version, count;
	CUdeviceptr pointer;
	standin.reset();
	EXPECT_RESULT(0, standin.count("cuMemAlloc_v2"));
	EXPECT_RESULT(-1, standin.count("cuSomething"));
	(void)setenv("EVENKEEL_STANDIN_FAIL", "cuDriverGetVersion=11040,cuMemAlloc_v2=2@2", 1);
	EXPECT_SUCCESS(driver.driver_version(&version));
	EXPECT(version == 11040, "version %d", version);
	for (int i = 1; i <= 3; i++) {
		EXPECT_RESULT(i == 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS,
			      driver.memory_alloc(&pointer, 16));
		if (i != 2)
			EXPECT_SUCCESS(driver.memory_free(pointer));
	}
	EXPECT_RESULT(3, standin.count("cuMemAlloc_v2"));
	(void)setenv("EVENKEEL_STANDIN_FAIL", "cuStreamSynchronize=700", 1);
	EXPECT_SUCCESS(driver.context_synchronize());
	EXPECT_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, driver.stream_synchronize(NULL));
	(void)unsetenv("EVENKEEL_STANDIN_FAIL");
	EXPECT_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, driver.context_synchronize());
	EXPECT_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, driver.memory_alloc(&pointer, 16));
	EXPECT_SUCCESS(driver.device_count(&count));
	standin.reset();
	EXPECT_SUCCESS(driver.context_synchronize());
}

static void graphs_replay_what_was_captured(void)
{
	CUstream stream;
	CUgraph graph;
	CUgraphExec executable;
	CUevent events[2];
	CUdeviceptr from, to, refused;
	int status = -1;
	float milliseconds = 0;
	EXPECT_SUCCESS(driver.memory_alloc(&from, BLOCK_BYTES));
	EXPECT_SUCCESS(driver.memory_alloc(&to, BLOCK_BYTES));
	EXPECT_SUCCESS(driver.stream_create(&stream, CU_STREAM_NON_BLOCKING));
	EXPECT_SUCCESS(driver.fill_bytes(from, 0, BLOCK_BYTES));
	CUfunction sums = function_of("block_sums");
	struct shape shape = {.blocks = 1, .threads = THREADS, .shared_bytes = 32, .stream = stream};
	struct arguments arguments = {(unsigned char *)(uintptr_t)to, (const unsigned char *)(uintptr_t)from,
				      BLOCK_BYTES, 0};
	EXPECT_SUCCESS(driver.capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	EXPECT_SUCCESS(driver.stream_is_capturing(stream, &status));
	EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "status %d", status);
	EXPECT_SUCCESS(launch(sums, shape, &arguments));
	EXPECT_RESULT(900, driver.memory_alloc(&refused, 16));
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	EXPECT_SUCCESS(driver.capture_exchange(&mode));
	EXPECT_SUCCESS(driver.memory_alloc(&refused, 16));
	EXPECT_SUCCESS(driver.memory_free(refused));
	EXPECT_SUCCESS(driver.capture_exchange(&mode));
	EXPECT_RESULT(900, driver.stream_synchronize(stream));
	memset(&arguments, 0, sizeof(arguments)); /* they were copied */
	EXPECT_SUCCESS(driver.capture_end(stream, &graph));
	EXPECT_SUCCESS(driver.graph_instantiate(&executable, graph, 0));
	EXPECT_SUCCESS(driver.graph_destroy(graph));
	EXPECT_SUCCESS(driver.event_create(&events[0], CU_EVENT_DEFAULT));
	EXPECT_SUCCESS(driver.event_create(&events[1], CU_EVENT_DEFAULT));
	EXPECT_SUCCESS(driver.event_record(events[0], stream));
	for (int i = 1; i <= 3; i++) {
		float numbers[BLOCK_NUMBERS];
		for (int j = 0; j < BLOCK_NUMBERS; j++)
			numbers[j] = (float)i;
		EXPECT_SUCCESS(driver.copy_to_device(from, numbers, sizeof(numbers)));
		EXPECT_SUCCESS(driver.graph_launch(executable, stream));
		EXPECT_SUCCESS(driver.copy_to_host(numbers, to, sizeof(numbers)));
		EXPECT(numbers[5] == (float)(i * BLOCK_NUMBERS), "replay %d gives %g", i, (double)numbers[5]);
	}
	EXPECT_SUCCESS(driver.event_record(events[1], stream));
	EXPECT_SUCCESS(driver.event_elapsed(&milliseconds, events[0], events[1]));
	EXPECT(milliseconds > 0.03f && milliseconds < 0.04f, "%g ms", (double)milliseconds);
	EXPECT_SUCCESS(driver.graph_exec_destroy(executable));
	EXPECT_SUCCESS(driver.event_destroy(events[0]));
	EXPECT_SUCCESS(driver.event_destroy(events[1]));
	EXPECT_SUCCESS(driver.stream_destroy(stream));
	EXPECT_SUCCESS(driver.memory_free(from));
	EXPECT_SUCCESS(driver.memory_free(to));
}

/* Launches of several threads wait for each other; one thread's fibers may be another's next. */
static void *launch_often(void *failures)
{
	int *wrong = failures;
	CUdeviceptr from = 0, to = 0;
	float numbers[BLOCK_NUMBERS];
	CUfunction sums = NULL;
	*wrong += driver.context_push(context) != 0 || driver.memory_alloc(&from, BLOCK_BYTES) != 0 ||
		  driver.memory_alloc(&to, BLOCK_BYTES) != 0 ||
		  driver.module_function(&sums, module, "block_sums") != 0;
	for (int i = 0; i < 20; i++) {
		for (int j = 0; j < BLOCK_NUMBERS; j++)
			numbers[j] = (float)i;
		struct shape shape = {.blocks = 1, .threads = THREADS, .shared_bytes = 32};
		struct arguments arguments = {(unsigned char *)(uintptr_t)to,
					      (const unsigned char *)(uintptr_t)from, BLOCK_BYTES, 0};
		*wrong += driver.copy_to_device(from, numbers, sizeof(numbers)) != 0 ||
			  launch(sums, shape, &arguments) != 0 ||
			  driver.copy_to_host(numbers, to, sizeof(numbers)) != 0 ||
			  numbers[7] != (float)(i * BLOCK_NUMBERS);
	}
	*wrong +=
		driver.memory_free(from) != 0 || driver.memory_free(to) != 0 || driver.context_pop(NULL) != 0;
	return NULL;
}

static void threads_may_launch_at_once(void)
{
	pthread_t threads[4];
	int wrong[4] = {0};
	for (int i = 0; i < COUNT_OF(threads); i++)
		EXPECT(pthread_create(&threads[i], NULL, launch_often, &wrong[i]) == 0, "no thread %d", i);
	for (int i = 0; i < COUNT_OF(threads); i++) {
		(void)pthread_join(threads[i], NULL);
		EXPECT(wrong[i] == 0, "thread %d: %d launches went wrong", i, wrong[i]);
	}
}

/* ---- bytes counted ---- */

/* Both buffers' record of launch `number`: from is read, to is written. */
static void expect_traffic(int number, const char *kernel, struct standin_traffic from,
			   struct standin_traffic to)
{
	struct standin_traffic is[2];
	EXPECT(standin.traffic_get(2 * number, &is[0]) && standin.traffic_get(2 * number + 1, &is[1]),
	       "launch %d is not counted", number);
	if (is[0].read_in_all == 0) { /* another order of threads */
		struct standin_traffic other = is[0];
		is[0] = is[1];
		is[1] = other;
	}
	for (int i = 0; i < 2; i++) {
		struct standin_traffic want = i == 0 ? from : to;
		EXPECT(is[i].launch == number && strcmp(is[i].kernel, kernel) == 0 &&
			       is[i].read == want.read && is[i].written == want.written &&
			       is[i].read_in_all == want.read_in_all &&
			       is[i].written_in_all == want.written_in_all,
		       "launch %d, %s: %lld bytes read, %lld in all, %lld written, %lld in all", is[i].launch,
		       is[i].kernel, (long long)is[i].read, (long long)is[i].read_in_all,
		       (long long)is[i].written, (long long)is[i].written_in_all);
	}
}

static void bytes_are_counted_where_asked_for(void)
{
	enum { ALL = 4 * THREADS };
	struct shape shape = {.blocks = 4, .threads = THREADS, .shared_bytes = BLOCK_BYTES};
	struct standin_traffic record;
	fill_input(4 * BLOCK_NUMBERS);
	(void)gives_wanted("block_sums", shape, 0, 4 * BLOCK_BYTES);
	EXPECT(!standin.traffic_get(0, &record), "a launch is counted that was not to be");
	standin.traffic_count(true);
	(void)gives_wanted("block_sums", shape, 0, 4 * BLOCK_BYTES);
	(void)gives_wanted("all_kinds_of_accesses", shape, 0, 4 * BLOCK_BYTES);
	expect_traffic(0, "block_sums", (struct standin_traffic){.read = 16 * ALL, .read_in_all = 16 * ALL},
		       (struct standin_traffic){.written = 16 * ALL, .written_in_all = 16 * ALL});
	expect_traffic(1, "all_kinds_of_accesses",
		       (struct standin_traffic){.read = 12 * ALL + 4, .read_in_all = 28 * ALL},
		       (struct standin_traffic){.written = 2 * ALL, .written_in_all = 2 * ALL});
	EXPECT(!standin.traffic_get(4, &record), "there are more than two buffers of two launches");
	standin.traffic_count(false);
	(void)gives_wanted("block_sums", shape, 0, 4 * BLOCK_BYTES);
	EXPECT(!standin.traffic_get(0, &record), "a launch is counted that was not to be");
}

/* ---- words.h ---- */

/* Every word of words.cu, a function after DEVICE or a macro, stands in words.h as well. */
static void all_words_are_there(void)
{
	char *cuda = source_of("src/cuda/kernels/words.cu"), *here = source_of("tests/standin/words.h"),
	     *rest = NULL;
	int words = 0;
	for (char *line = strtok_r(cuda, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		bool is_function = strncmp(line, "DEVICE ", 7) == 0;
		char *end = strchr(line, '(');
		if (!end || (!is_function && strncmp(line, "#define ", 8) != 0))
			continue;
		char *start = is_function ? end : line + 8;
		while (is_function && start[-1] != ' ' && start[-1] != '*')
			start--;
		char word[64];
		(void)snprintf(word, sizeof(word), "%.*s(", (int)(end - start), start);
		EXPECT(strchr(start, ' ') < end || strstr(here, word), "words.h has no %s", word);
		words++;
	}
	EXPECT(words > 30, "%d words are found in words.cu", words);
	free(cuda);
	free(here);
}

static void nothing_is_left(void)
{
	EXPECT_SUCCESS(driver.module_unload(module));
	static const char *const kinds[] = {"module", "function",   "stream", "event",
					    "graph",  "executable", "memory"};
	for (int i = 0; i < COUNT_OF(kinds); i++)
		EXPECT(standin.live(kinds[i]) == 0, "%lld objects of kind %s are left",
		       (long long)standin.live(kinds[i]), kinds[i]);
	EXPECT_SUCCESS(driver.primary_release(0));
	EXPECT_SUCCESS(driver.context_pop(NULL));
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	open_libraries();
	load_kernels();
	TEST(right_kernels_are_right_in_every_order);
	TEST(what_is_missing_shows_in_some_order);
	TEST(the_order_changes_by_itself);
	TEST(arithmetic_is_exact);
	TEST(broken_rules_stop_the_process);
	TEST(kernels_that_wait_may_overlap);
	TEST(a_wrong_text_is_refused_with_a_log);
	TEST(images_run_where_they_should);
	TEST(many_modules_stand_apart);
	TEST(wrong_launches_are_refused);
	TEST(large_limits_are_asked_for);
	TEST(memory_is_told_from_other_memory);
	TEST(contexts_stand_apart);
	TEST(failures_come_when_asked_for);
	TEST(graphs_replay_what_was_captured);
	TEST(threads_may_launch_at_once);
	TEST(bytes_are_counted_where_asked_for);
	TEST(all_words_are_there);
	TEST(nothing_is_left);
	return test_end();
}
