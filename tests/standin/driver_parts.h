/* The parts of the stand-in driver: objects and their contexts, launches, and how each function starts.
 * SPDX-License-Identifier: MIT */
#ifndef STANDIN_DRIVER_PARTS_H
#define STANDIN_DRIVER_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"
#include "emulator.h"
#include "standin.h"

/* The functions are called by the fields of struct ek_driver here, and exported as CUDA's symbols. */
#define DECLARE_FUNCTION(field, symbol, parameters) \
	CUresult driver_##field parameters __asm__(symbol) STANDIN_EXPORT;
EK_DRIVER_SYMBOLS(DECLARE_FUNCTION)

#define DECLARE_NAME(field, symbol, parameters) const char *field;
struct driver_names {
	EK_DRIVER_SYMBOLS(DECLARE_NAME)
};
extern const struct driver_names driver_names;

/* More of CUresult and of CUstream than src/gpu/cuda/driver.h needs. */
enum {
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_INVALID_CLUSTER_SIZE = 912
};

/* ---- how a function starts ---- */

enum need {
	NEEDS_NOTHING,
	NEEDS_INIT,    /* cuInit */
	NEEDS_HEALTH,  /* and no error that sticks */
	NEEDS_CONTEXT, /* and a current context */
	NEEDS_PEACE    /* and no capture in the way */
};
CUresult driver_enter(const char *name, enum need need);
#define ENTER(field, need)                                                 \
	do {                                                               \
		CUresult entered = driver_enter(driver_names.field, need); \
		if (entered != CUDA_SUCCESS)                               \
			return entered;                                    \
	} while (0)

/* ---- objects: all that a handle stands for ---- */

enum kind {
	KIND_CONTEXT,
	KIND_MODULE,
	KIND_FUNCTION,
	KIND_STREAM,
	KIND_EVENT,
	KIND_GRAPH,
	KIND_EXECUTABLE,
	KIND_MEMORY,
	KINDS
};

struct object {
	enum kind kind;
	CUcontext context;
	void (*destroy)(struct object *object); /* frees it; it is no longer listed; NULL: free */
	struct object *next;
};

/* A new object of the current context, zero past its head; NULL without memory. Its handle is known once it is
 * listed, when the rest has been filled in. */
void *object_create(enum kind kind, size_t bytes, void (*destroy)(struct object *object));
void object_list(void *object);
/* Is it listed, of this kind and (but for contexts) of the current context? */
bool object_is(enum kind kind, const void *object);
void object_destroy(void *object);
/* Destroys it if it is of this kind; `otherwise` if not. */
CUresult object_end(enum kind kind, void *object, CUresult otherwise);
void objects_destroy_of(CUcontext context);
int64_t objects_count(enum kind kind);
/* The first object of a kind that matches, under the lock: for look-ups by something else than the handle. */
struct object *object_find(enum kind kind, bool (*matches)(const struct object *object, const void *wanted),
			   const void *wanted);

/* ---- contexts ---- */

struct CUctx_st {
	struct object object;
	CUdevice device;
	int retained; /* of a primary context */
};

CUcontext context_current(void); /* NULL where there is none, or it was destroyed */
int device_arch(void);
int device_shared_limit(void);
bool device_is(CUdevice device);

/* ---- functions and launches ---- */

enum { DEFAULT_SHARED_LIMIT = 48 << 10 };

struct CUfunc_st {
	struct object object;
	CUmodule module;
	const struct standin_kernel *kernel;
	int shared_limit;
	bool large_clusters;
	char name[128];
};

/* A launch that was judged, and owns its arguments. */
struct launch {
	CUfunction function;
	struct standin_launch shape;
	void *arguments;
};
CUresult launch_run(struct launch *launch);
void launch_free(struct launch *launch);
void launch_forget(void); /* standin_last_launch's */

/* ---- streams ---- */

/* Is it a stream of the current context? The default streams are. */
bool stream_is(CUstream stream);
/* The graph that a launch on the stream goes into, NULL: none. An error where it may not be launched now. */
CUresult stream_capture(CUstream stream, CUgraph *graph);
/* Does a capture forbid this thread calls that cannot be part of a graph? */
bool stream_capture_in_the_way(void);
bool graph_append(CUgraph graph, const struct launch *launch); /* copies it; false without memory */

/* The clock that events read, in nanoseconds: launches advance it, so that times are the same everywhere. */
void clock_advance(uint64_t nanoseconds);

#endif
