/* What tests ask of the stand-in driver beside CUDA's own functions: found with dlsym in the library that
 * $EVENKEEL_LIBCUDA names.
 *
 * The environment, read at each call:
 *   EVENKEEL_STANDIN_DEVICES=2    GPUs (1)
 *   EVENKEEL_STANDIN_ARCH=80      their compute capability (90)
 *   EVENKEEL_STANDIN_SMS=8        their multiprocessors (132)
 *   EVENKEEL_STANDIN_MEMORY=1024  their memory in KB (16 GB)
 *   EVENKEEL_STANDIN_PAGEABLE=1   they read host memory: addresses are then not looked at (0)
 *   EVENKEEL_STANDIN_ORDER        forward, backward, shuffled, shuffled:SEED: in which order threads and blocks
 *                                 run (another one from launch to launch)
 *   EVENKEEL_STANDIN_FAIL         NAME=CODE,… : these functions fail with these codes; NAME=CODE@3: the third call
 *                                 alone. cuDriverGetVersion=11040 and nvrtcVersion=11080 are what these two
 *                                 return or tell. Also for NVRTC's names.
 * and by the compiler (nvrtc.c):
 *   EVENKEEL_STANDIN_CC, EVENKEEL_STANDIN_CFLAGS   the compiler, more options (those of the build)
 *   EVENKEEL_STANDIN_TOGETHER=2   a compilation waits until two have begun since the last reset; one that waits for
 *                                 ten seconds fails
 *   EVENKEEL_STANDIN_KEEP=1       leaves the text and the module in their folder, and names it
 * SPDX-License-Identifier: MIT */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/cuda/driver.h"

#define STANDIN_EXPORT __attribute__((visibility("default")))

struct standin_launch {
	char kernel[128];
	char order[32]; /* for EVENKEEL_STANDIN_ORDER; "" while it is captured */
	int64_t blocks;
	int threads, cluster, shared_bytes;
	bool overlaps; /* programmatic dependent launch */
	bool captured;
	CUstream stream;
};

/* How often the function of this name (a driver's or NVRTC's, each in its own library) was called since the
 * start or the last reset, failures included. -1: there is no such function. */
STANDIN_EXPORT int64_t standin_count(const char *name);

/* The newest launch or captured launch. false: there was none since the start or the last reset. */
STANDIN_EXPORT bool standin_last_launch(struct standin_launch *launch);

/* What a launch moved of one allocation of device memory, shared memory not counted. */
struct standin_traffic {
	char kernel[128];
	int launch;                          /* its number since counting began, from 0 */
	const void *buffer;                  /* where the allocation starts */
	int64_t read, written;               /* different bytes */
	int64_t read_in_all, written_in_all; /* those of every access: what the L2 is asked for */
};

/* Launches are counted from now on (off at the start), or no longer; what was counted is forgotten. */
STANDIN_EXPORT void standin_traffic_count(bool on);
/* The records in the order of launches and, of a launch, of first accesses. false: there is no such record. Not while
 * a launch runs. */
STANDIN_EXPORT bool standin_traffic_get(int index, struct standin_traffic *record);

/* Objects that live: "module", "stream", "event", "graph", "executable", "memory", "context". -1: no such kind. */
STANDIN_EXPORT int64_t standin_live(const char *kind);

/* A context beside the primary one, as another library in the process might have made it; it is current nowhere
 * yet. */
STANDIN_EXPORT CUcontext standin_context_create(CUdevice device);
STANDIN_EXPORT void standin_context_destroy(CUcontext context);

/* Counts start at 0 again, the last launch is forgotten, and an error that stuck is gone. */
STANDIN_EXPORT void standin_reset(void);

#endif
