/* The stand-in's libraries and the kernels of selftest.cu, for its own tests; selftest.h says what.
 * SPDX-License-Identifier: MIT */
#include "selftest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_files.h"

/* ---- the libraries ---- */

struct ek_driver driver;
CUcontext context;
CUmodule module;

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

/* ---- compiling ---- */

char *source_of(const char *path)
{
	enum { ROOM = 1 << 16 };
	char *text = calloc(1, ROOM);
	if (read_file(path, text, ROOM - 1) == 0) {
		printf("cannot read %s: run this in the root of the sources\n", path);
		exit(1);
	}
	return text;
}

char *compile(const char *text, const char *arch, char **log)
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

static void load_kernels(void)
{
	char *words = source_of("src/gpu/kernels/words.cu"),
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

const struct shape plain = {.blocks = 4, .threads = THREADS, .shared_bytes = 4 * THREADS / 32};
const struct shape clusters = {
	.blocks = 12, .threads = THREADS, .cluster = 4, .shared_bytes = 4 * THREADS / 32 + 64 + 8};

CUfunction function_of(const char *name)
{
	CUfunction function = NULL;
	EXPECT_SUCCESS(driver.module_function(&function, module, name));
	return function;
}

struct arguments arguments_of(CUdeviceptr to, CUdeviceptr from, size_t bytes, int stages)
{
	return (struct arguments){(unsigned char *)(uintptr_t)to, (const unsigned char *)(uintptr_t)from,
				  (long long)bytes, stages};
}

CUresult launch(CUfunction function, struct shape shape, struct arguments *arguments)
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

/* ---- input and output ---- */

float input[MOST_NUMBERS], wanted[MOST_NUMBERS];

void fill_input(size_t count)
{
	uint64_t state = 5;
	for (size_t i = 0; i < count; i++)
		input[i] = (float)random_below(&state, 100);
}

void want_sums(size_t count, size_t group)
{
	for (size_t start = 0; start < count; start += group) {
		float sum = 0;
		for (size_t i = start; i < start + group; i++)
			sum += input[i];
		for (size_t i = start; i < start + group; i++)
			wanted[i] = sum;
	}
}

bool gives_wanted(CUfunction function, struct shape shape, int stages, size_t bytes)
{
	static float output[MOST_NUMBERS];
	CUdeviceptr from = 0, to = 0;
	EXPECT_SUCCESS(driver.memory_alloc(&from, bytes));
	EXPECT_SUCCESS(driver.memory_alloc(&to, bytes));
	EXPECT_SUCCESS(driver.copy_to_device(from, input, bytes));
	struct arguments arguments = arguments_of(to, from, bytes, stages);
	EXPECT_SUCCESS(launch(function, shape, &arguments));
	EXPECT_SUCCESS(driver.copy_to_host(output, to, bytes));
	EXPECT_SUCCESS(driver.memory_free(from));
	EXPECT_SUCCESS(driver.memory_free(to));
	return memcmp(output, wanted, bytes) == 0;
}

/* ---- the beginning and the end ---- */

void selftest_end(void)
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

void selftest_begin(void)
{
	open_libraries();
	load_kernels();
}
