/* A GPU's clock; gpu_watch.h says what. SPDX-License-Identifier: MIT */
#include "gpu_watch.h"

#include "cli.h"
#include "device.h"

bool watch_failed(const struct watch *watch)
{
	return watch->result != CUDA_SUCCESS || watch->status != EK_OK;
}

int watch_say_failure(const struct watch *watch)
{
	ek_status status = watch->status;
	if (watch->result != CUDA_SUCCESS)
		status = ek_gpu_fail(watch->gpu, watch->result, watch->what);
	return complain(device_exit_status(status), "%s", ek_error(NULL));
}

void watch_open(struct watch *watch, struct ek_gpu *gpu)
{
	*watch = (struct watch){.gpu = gpu, .driver = gpu->driver};
	/* What was copied and cleared on the default stream is done before anything runs on ours. */
	WATCH_TRY(watch, "waiting", watch->driver->context_synchronize());
	WATCH_TRY(watch, "making a stream",
		  watch->driver->stream_create(&watch->stream, CU_STREAM_NON_BLOCKING));
	WATCH_TRY(watch, "making an event", watch->driver->event_create(&watch->from, CU_EVENT_DEFAULT));
	WATCH_TRY(watch, "making an event", watch->driver->event_create(&watch->to, CU_EVENT_DEFAULT));
}

void watch_close(struct watch *watch)
{
	if (watch->to)
		(void)watch->driver->event_destroy(watch->to);
	if (watch->from)
		(void)watch->driver->event_destroy(watch->from);
	if (watch->stream)
		(void)watch->driver->stream_destroy(watch->stream);
}

void watch_wait(struct watch *watch)
{
	WATCH_TRY(watch, "waiting", watch->driver->stream_synchronize(watch->stream));
}

void watch_start(struct watch *watch)
{
	WATCH_TRY(watch, "timing", watch->driver->event_record(watch->from, watch->stream));
}

double watch_elapsed(struct watch *watch)
{
	float milliseconds = 0;
	WATCH_TRY(watch, "timing", watch->driver->event_record(watch->to, watch->stream));
	WATCH_TRY(watch, "waiting", watch->driver->event_synchronize(watch->to));
	WATCH_TRY(watch, "timing", watch->driver->event_elapsed(&milliseconds, watch->from, watch->to));
	return 1e-3 * (double)milliseconds;
}

CUgraphExec watch_capture(struct watch *watch, watch_enqueue *enqueue, const void *work, int64_t calls)
{
	CUgraph graph = NULL;
	CUgraphExec ready = NULL;
	WATCH_TRY(watch, "capturing",
		  watch->driver->capture_begin(watch->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (watch_failed(watch))
		return NULL;
	for (int64_t i = 0; i < calls && !watch_failed(watch); i++)
		enqueue(watch, work, i);
	/* also after a failure: the stream is to be left as it was */
	CUresult ended = watch->driver->capture_end(watch->stream, &graph);
	WATCH_TRY(watch, "capturing", ended);
	WATCH_TRY(watch, "making a graph", watch->driver->graph_instantiate(&ready, graph, 0));
	if (graph)
		(void)watch->driver->graph_destroy(graph);
	return ready;
}

double watch_replay(struct watch *watch, CUgraphExec graph, int64_t calls)
{
	watch_start(watch);
	WATCH_TRY(watch, "starting a graph", watch->driver->graph_launch(graph, watch->stream));
	return watch_elapsed(watch) / (double)calls;
}

void watch_discard(const struct watch *watch, CUgraphExec graph)
{
	if (graph)
		(void)watch->driver->graph_exec_destroy(graph);
}
