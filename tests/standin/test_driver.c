/* The stand-in's driver, tested before anything is tested with it: launches, memory, contexts, graphs and threads do
 * what those of a real one do, and what that refuses is refused. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "selftest.h"
#include "support_files.h"

SETUP()
{
	selftest_begin();
}

TEST(wrong_launches_are_refused)
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
	set("EVENKEEL_STANDIN_ARCH", "80");
	shape = clusters;
	EXPECT_RESULT(CUDA_ERROR_INVALID_VALUE, launch(sums, shape, &arguments));
	set("EVENKEEL_STANDIN_ARCH", NULL);
}

TEST(large_limits_are_asked_for)
{
	CUfunction sums = function_of("cluster_sums");
	EXPECT_SUCCESS(driver.function_set(sums, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
	EXPECT_SUCCESS(driver.function_set(sums, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
	struct shape shape = {.blocks = 16, .threads = THREADS, .cluster = 16, .shared_bytes = 227 << 10};
	fill_input(16 * BLOCK_NUMBERS);
	want_sums(16 * BLOCK_NUMBERS, 16 * BLOCK_NUMBERS);
	EXPECT_RESULT(true, gives_wanted(sums, shape, 16, 16 * BLOCK_BYTES));
}

TEST(memory_is_told_from_other_memory)
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

TEST(contexts_stand_apart)
{
	CUcontext other, current;
	CUdevice device = -1;
	unsigned flags;
	int active = -1;
	struct arguments arguments = {NULL, NULL, 0, 0};
	CUfunction sums = function_of("block_sums");
	set("EVENKEEL_STANDIN_DEVICES", "2");
	EXPECT_SUCCESS(driver.primary_state(1, &flags, &active));
	EXPECT(active == 0, "the primary context is active before it is retained");
	EXPECT_SUCCESS(driver.primary_retain(&other, 1));
	EXPECT_SUCCESS(driver.primary_state(1, &flags, &active));
	EXPECT(active == 1, "a primary context that is retained is not active");
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
	EXPECT_RESULT(CUDA_ERROR_INVALID_DEVICE, driver.primary_state(2, &flags, &active));
	set("EVENKEEL_STANDIN_DEVICES", NULL);
}

TEST(failures_come_when_asked_for)
{
	int version, count;
	CUdeviceptr pointer;
	standin.reset();
	EXPECT_RESULT(0, standin.count("cuMemAlloc_v2"));
	EXPECT_RESULT(-1, standin.count("cuSomething"));
	set("EVENKEEL_STANDIN_FAIL", "cuDriverGetVersion=11040,cuMemAlloc_v2=2@2");
	EXPECT_SUCCESS(driver.driver_version(&version));
	EXPECT(version == 11040, "version %d", version);
	for (int i = 1; i <= 3; i++) {
		EXPECT_RESULT(i == 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS,
			      driver.memory_alloc(&pointer, 16));
		if (i != 2)
			EXPECT_SUCCESS(driver.memory_free(pointer));
	}
	EXPECT_RESULT(3, standin.count("cuMemAlloc_v2"));
	set("EVENKEEL_STANDIN_FAIL", "cuStreamSynchronize=700");
	EXPECT_SUCCESS(driver.context_synchronize());
	EXPECT_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, driver.stream_synchronize(NULL));
	set("EVENKEEL_STANDIN_FAIL", NULL);
	EXPECT_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, driver.context_synchronize());
	EXPECT_RESULT(CUDA_ERROR_ILLEGAL_ADDRESS, driver.memory_alloc(&pointer, 16));
	EXPECT_SUCCESS(driver.device_count(&count));
	standin.reset();
	EXPECT_SUCCESS(driver.context_synchronize());
}

TEST(graphs_replay_what_was_captured)
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
	struct arguments arguments = arguments_of(to, from, BLOCK_BYTES, 0);
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
		struct arguments arguments = arguments_of(to, from, BLOCK_BYTES, 0);
		*wrong += driver.copy_to_device(from, numbers, sizeof(numbers)) != 0 ||
			  launch(sums, shape, &arguments) != 0 ||
			  driver.copy_to_host(numbers, to, sizeof(numbers)) != 0 ||
			  numbers[7] != (float)(i * BLOCK_NUMBERS);
	}
	*wrong +=
		driver.memory_free(from) != 0 || driver.memory_free(to) != 0 || driver.context_pop(NULL) != 0;
	return NULL;
}

TEST(threads_may_launch_at_once)
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

TEST(nothing_is_left)
{
	selftest_end();
}
