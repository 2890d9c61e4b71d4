/* The devices that the commands run on: opening what --device asks for, and what to call it.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_DEVICE_H
#define CLI_DEVICE_H

#include <stdbool.h>

#include "evenkeel.h"

struct options;

/* Opens a context on what --device, --isa and --threads ask for. Returns an exit status, and has complained
 * unless that is STATUS_FINE. */
int device_open(ek_context **ctx, const struct options *options);

/* How many GPUs there are. */
int device_gpus(void);

/* Threads for what the CPU is timed against (copy.h). NULL: they cannot be started; has complained. */
struct team *team_start(int threads);

/* What a context runs on, in words. */
struct device_words {
	bool gpu;
	char name[16]; /* "cpu", "cuda:0" */
	char isa[16];  /* "avx2", "sm_90" */
	int threads;   /* 0 on a GPU */
	/* For a line of text: "avx2, 2 threads"; "cuda:0 (NVIDIA H200, sm_90)". */
	char text[160];
};
struct device_words device_words(const ek_context *ctx);

/* The exit status for a call of the library that has failed: whether the device is at fault, or the arguments. */
int device_exit_status(ek_status status);

#endif
