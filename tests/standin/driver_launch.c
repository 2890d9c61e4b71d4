/* The stand-in driver's launches: judged as a real driver judges them, then run at once or recorded in the graph
 * that the stream is captured into. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/fpenv.h"
#include "driver_parts.h"

enum { MOST_THREADS = 1024, PORTABLE_CLUSTER = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct standin_launch last;
static bool launched;

bool standin_last_launch(struct standin_launch *launch)
{
	(void)pthread_mutex_lock(&lock);
	bool any = launched;
	*launch = last;
	(void)pthread_mutex_unlock(&lock);
	return any;
}

void launch_forget(void)
{
	(void)pthread_mutex_lock(&lock);
	launched = false;
	(void)pthread_mutex_unlock(&lock);
}

static void remember(const struct standin_launch *shape)
{
	(void)pthread_mutex_lock(&lock);
	last = *shape;
	launched = true;
	(void)pthread_mutex_unlock(&lock);
}

/* ---- judging ---- */

static bool is_row(unsigned x, unsigned y, unsigned z, unsigned limit)
{
	return x >= 1 && x <= limit && y == 1 && z == 1;
}

static CUresult read_attributes(const CUlaunchConfig *config, struct standin_launch *shape)
{
	shape->cluster = 1;
	for (unsigned i = 0; i < config->numAttrs; i++) {
		const CUlaunchAttribute *attribute = &config->attrs[i];
		if (attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
			shape->overlaps = attribute->value.programmaticStreamSerializationAllowed != 0;
			continue;
		}
		if (attribute->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION || device_arch() < 90 ||
		    !is_row(attribute->value.clusterDim.x, attribute->value.clusterDim.y,
			    attribute->value.clusterDim.z, INT32_MAX))
			return CUDA_ERROR_INVALID_VALUE;
		shape->cluster = (int)attribute->value.clusterDim.x;
	}
	return CUDA_SUCCESS;
}

static CUresult judge_size(const CUlaunchConfig *config, const struct CUfunc_st *function)
{
	if (!is_row(config->gridDimX, config->gridDimY, config->gridDimZ, INT32_MAX) ||
	    !is_row(config->blockDimX, config->blockDimY, config->blockDimZ, MOST_THREADS) ||
	    config->sharedMemBytes > (unsigned)function->shared_limit)
		return CUDA_ERROR_INVALID_VALUE;
	if (config->blockDimX > (unsigned)function->kernel->threads)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	return CUDA_SUCCESS;
}

static CUresult judge_cluster(const struct standin_launch *shape, const struct CUfunc_st *function)
{
	if (shape->cluster > (function->large_clusters ? MOST_CLUSTER : PORTABLE_CLUSTER))
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	return shape->blocks % shape->cluster == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult expect_status(const CUlaunchConfig *config, CUfunction function, struct standin_launch *shape)
{
	if (!object_is(KIND_FUNCTION, function) || !stream_is(config->hStream))
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult result = judge_size(config, function);
	if (result != CUDA_SUCCESS)
		return result;
	*shape = (struct standin_launch){.blocks = config->gridDimX,
					 .threads = (int)config->blockDimX,
					 .shared_bytes = (int)config->sharedMemBytes,
					 .stream = config->hStream};
	memcpy(shape->kernel, function->name, sizeof(shape->kernel));
	result = read_attributes(config, shape);
	return result == CUDA_SUCCESS ? judge_cluster(shape, function) : result;
}

/* ---- running ---- */

CUresult launch_run(struct launch *launch)
{
	if (!object_is(KIND_FUNCTION, launch->function))
		return CUDA_ERROR_INVALID_HANDLE;
	const struct standin_launch *shape = &launch->shape;
	struct emulator_launch run = {.name = shape->kernel,
				      .kernel = launch->function->kernel,
				      .arguments = launch->arguments,
				      .blocks = shape->blocks,
				      .threads = shape->threads,
				      .cluster = shape->cluster,
				      .shared_bytes = shape->shared_bytes,
				      .overlaps = shape->overlaps,
				      .host_addresses = calls_setting("EVENKEEL_STANDIN_PAGEABLE", 0) != 0};
	struct ek_fpenv saved = ek_fpenv_enter(); /* a GPU's arithmetic does not depend on the host's */
	emulator_run(&run, launch->shape.order);
	ek_fpenv_leave(saved);
	clock_advance(10000);
	remember(shape);
	return CUDA_SUCCESS;
}

void launch_free(struct launch *launch)
{
	free(launch->arguments);
}

static CUresult record(struct launch *launch, CUgraph graph)
{
	launch->shape.captured = true;
	remember(&launch->shape);
	return graph_append(graph, launch) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult driver_launch(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
	ENTER(launch, NEEDS_CONTEXT);
	if (!config || !parameters || !parameters[0] || extra)
		return CUDA_ERROR_INVALID_VALUE;
	struct launch launch = {.function = function};
	CUresult result = expect_status(config, function, &launch.shape);
	if (result != CUDA_SUCCESS)
		return result;
	CUgraph graph;
	result = stream_capture(config->hStream, &graph);
	if (result != CUDA_SUCCESS)
		return result;
	launch.arguments = malloc(function->kernel->argument_bytes);
	if (!launch.arguments)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(launch.arguments, parameters[0], function->kernel->argument_bytes);
	result = graph ? record(&launch, graph) : launch_run(&launch);
	launch_free(&launch);
	return result;
}
