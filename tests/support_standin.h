/* The stand-ins for libcuda and NVRTC as tests hold them: $EVENKEEL_LIBCUDA and $EVENKEEL_NVRTC, and the switches of
 * standin/standin.h. SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_STANDIN_H
#define EK_TESTS_SUPPORT_STANDIN_H

#include "standin/standin.h"

struct standin {
	int64_t (*count)(const char *name);
	bool (*last_launch)(struct standin_launch *launch);
	void (*traffic_count)(bool on);
	bool (*traffic_get)(int index, struct standin_traffic *record);
	int64_t (*live)(const char *kind);
	CUcontext (*context_create)(CUdevice device);
	void (*context_destroy)(CUcontext context);
	void (*reset)(void);
	int64_t (*nvrtc_count)(const char *name);
	void (*nvrtc_reset)(void);
	char driver[512], nvrtc[512]; /* their files */
	void *driver_library, *nvrtc_library;
};
extern struct standin standin;

/* Opens both; where one is not there, says so and exits. */
void standin_open(void);
/* Writes the function of that name to *pointer; where it is not there, says so and exits. */
void standin_find(void *library, const char *name, void *pointer);

#endif
