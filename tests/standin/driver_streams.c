/* The stand-in driver's streams, on which everything runs at once; their capture into graphs, which hold launches;
 * and events, which read a clock that launches advance. SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "driver_parts.h"

struct CUgraph_st {
	struct object object;
	struct launch *launches;
	int count, room;
};

struct CUgraphExec_st {
	struct object object;
	CUgraph graph; /* its own copy */
};

struct CUstream_st {
	struct object object;
	bool blocking;            /* waits for the default stream, and that one for it */
	_Atomic(CUgraph) capture; /* other threads ask whether there is one */
	_Atomic int mode;
	_Atomic(const void *) capturer; /* tells threads apart */
};

struct CUevent_st {
	struct object object;
	bool recorded;
	uint64_t time;
};

static _Atomic uint64_t clock_now;

void clock_advance(uint64_t nanoseconds)
{
	clock_now += nanoseconds;
}

/* ---- streams ---- */

static bool is_default(CUstream stream)
{
	return (uintptr_t)stream <= 2; /* NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
}

bool stream_is(CUstream stream)
{
	return is_default(stream) || object_is(KIND_STREAM, stream);
}

static void free_graph(struct object *object)
{
	CUgraph graph = (CUgraph)object;
	for (int i = 0; i < graph->count; i++)
		launch_free(&graph->launches[i]);
	free(graph->launches);
	free(graph);
}

static void free_stream(struct object *object)
{
	CUstream stream = (CUstream)object;
	if (stream->capture)
		free_graph(&stream->capture->object);
	free(stream);
}

CUresult driver_stream_create(CUstream *stream, unsigned flags)
{
	ENTER(stream_create, NEEDS_CONTEXT);
	if (flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	CUstream created = object_create(KIND_STREAM, sizeof(*created), free_stream);
	if (!created)
		return CUDA_ERROR_OUT_OF_MEMORY;
	created->blocking = flags == 0;
	object_list(created);
	*stream = created;
	return CUDA_SUCCESS;
}

CUresult driver_stream_destroy(CUstream stream)
{
	ENTER(stream_destroy, NEEDS_CONTEXT);
	return object_end(KIND_STREAM, stream, CUDA_ERROR_INVALID_HANDLE);
}

/* ---- capture ---- */

/* What a thread that captures, or sees others capture, may call (cuThreadExchangeStreamCaptureMode). */
static _Thread_local int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool is_in_the_way(const struct object *object, const void *unused)
{
	(void)unused;
	const struct CUstream_st *stream = (const struct CUstream_st *)object;
	if (!stream->capture || stream->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return stream->capturer == &thread_mode || (stream->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
						    thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

bool stream_capture_in_the_way(void)
{
	return thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	       object_find(KIND_STREAM, is_in_the_way, NULL) != NULL;
}

CUresult driver_capture_exchange(int *mode)
{
	ENTER(capture_exchange, NEEDS_INIT);
	if (*mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	int before = thread_mode;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

static bool holds_up_default(const struct object *object, const void *context)
{
	const struct CUstream_st *stream = (const struct CUstream_st *)object;
	return stream->blocking && stream->capture && object->context == context;
}

CUresult stream_capture(CUstream stream, CUgraph *graph)
{
	*graph = is_default(stream) ? NULL : stream->capture;
	if (is_default(stream) && object_find(KIND_STREAM, holds_up_default, context_current()))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	return CUDA_SUCCESS;
}

CUresult driver_stream_synchronize(CUstream stream)
{
	ENTER(stream_synchronize, NEEDS_CONTEXT);
	if (!stream_is(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	CUgraph graph;
	CUresult result = stream_capture(stream, &graph);
	return graph ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : result;
}

CUresult driver_stream_is_capturing(CUstream stream, int *status)
{
	ENTER(stream_is_capturing, NEEDS_CONTEXT);
	if (!stream_is(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	CUgraph graph;
	CUresult result = stream_capture(stream, &graph);
	*status = graph ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
	return result;
}

CUresult driver_capture_begin(CUstream stream, int mode)
{
	ENTER(capture_begin, NEEDS_CONTEXT);
	if (is_default(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (!object_is(KIND_STREAM, stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (stream->capture || mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraph graph = object_create(KIND_GRAPH, sizeof(*graph), free_graph);
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->mode = mode;
	stream->capturer = &thread_mode;
	stream->capture = graph;
	return CUDA_SUCCESS;
}

CUresult driver_capture_end(CUstream stream, CUgraph *graph)
{
	ENTER(capture_end, NEEDS_CONTEXT);
	if (!object_is(KIND_STREAM, stream))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!stream->capture)
		return CUDA_ERROR_INVALID_VALUE;
	object_list(stream->capture);
	*graph = stream->capture;
	stream->capture = NULL;
	return CUDA_SUCCESS;
}

/* ---- graphs ---- */

bool graph_append(CUgraph graph, const struct launch *launch)
{
	if (graph->count == graph->room) {
		int room = graph->room ? 2 * graph->room : 8;
		struct launch *launches = realloc(graph->launches, (size_t)room * sizeof(*launches));
		if (!launches)
			return false;
		graph->launches = launches;
		graph->room = room;
	}
	size_t bytes = launch->function->kernel->argument_bytes;
	struct launch *copy = &graph->launches[graph->count];
	*copy = *launch;
	copy->arguments = malloc(bytes);
	if (!copy->arguments)
		return false;
	memcpy(copy->arguments, launch->arguments, bytes);
	graph->count++;
	return true;
}

static bool append_all(CUgraph to, CUgraph from)
{
	for (int i = 0; i < from->count; i++)
		if (!graph_append(to, &from->launches[i]))
			return false;
	return true;
}

static void free_executable(struct object *object)
{
	CUgraphExec executable = (CUgraphExec)object;
	free_graph(&executable->graph->object);
	free(executable);
}

CUresult driver_graph_instantiate(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
	ENTER(graph_instantiate, NEEDS_CONTEXT);
	if (!object_is(KIND_GRAPH, graph) || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUgraph copy = object_create(KIND_GRAPH, sizeof(*copy), free_graph);
	CUgraphExec created = object_create(KIND_EXECUTABLE, sizeof(*created), free_executable);
	if (!copy || !created || !append_all(copy, graph)) {
		if (copy)
			free_graph(&copy->object);
		free(created);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	created->graph = copy;
	object_list(created);
	*executable = created;
	return CUDA_SUCCESS;
}

CUresult driver_graph_launch(CUgraphExec executable, CUstream stream)
{
	ENTER(graph_launch, NEEDS_CONTEXT);
	if (!object_is(KIND_EXECUTABLE, executable) || !stream_is(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	CUgraph capture;
	CUresult result = stream_capture(stream, &capture);
	if (capture)
		return append_all(capture, executable->graph) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	for (int i = 0; result == CUDA_SUCCESS && i < executable->graph->count; i++) {
		executable->graph->launches[i].shape.stream = stream;
		result = launch_run(&executable->graph->launches[i]);
	}
	return result;
}

CUresult driver_graph_exec_destroy(CUgraphExec executable)
{
	ENTER(graph_exec_destroy, NEEDS_HEALTH);
	return object_end(KIND_EXECUTABLE, executable, CUDA_ERROR_INVALID_VALUE);
}

CUresult driver_graph_destroy(CUgraph graph)
{
	ENTER(graph_destroy, NEEDS_HEALTH);
	return object_end(KIND_GRAPH, graph, CUDA_ERROR_INVALID_VALUE);
}

/* ---- events ---- */

CUresult driver_event_create(CUevent *event, unsigned flags)
{
	ENTER(event_create, NEEDS_CONTEXT);
	(void)flags;
	CUevent created = object_create(KIND_EVENT, sizeof(*created), NULL);
	if (!created)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object_list(created);
	*event = created;
	return CUDA_SUCCESS;
}

CUresult driver_event_destroy(CUevent event)
{
	ENTER(event_destroy, NEEDS_CONTEXT);
	return object_end(KIND_EVENT, event, CUDA_ERROR_INVALID_HANDLE);
}

CUresult driver_event_record(CUevent event, CUstream stream)
{
	ENTER(event_record, NEEDS_CONTEXT);
	if (!object_is(KIND_EVENT, event) || !stream_is(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	clock_advance(100);
	event->time = clock_now;
	event->recorded = true;
	return CUDA_SUCCESS;
}

CUresult driver_event_synchronize(CUevent event)
{
	ENTER(event_synchronize, NEEDS_CONTEXT);
	return object_is(KIND_EVENT, event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult driver_event_elapsed(float *milliseconds, CUevent from, CUevent to)
{
	ENTER(event_elapsed, NEEDS_CONTEXT);
	if (!object_is(KIND_EVENT, from) || !object_is(KIND_EVENT, to) || !from->recorded || !to->recorded)
		return CUDA_ERROR_INVALID_HANDLE;
	*milliseconds = (float)((double)(int64_t)(to->time - from->time) * 1e-6);
	return CUDA_SUCCESS;
}
