/* NVRTC, NVIDIA's run-time compiler, found at run time with dlopen. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_NVRTC_H
#define EK_CUDA_NVRTC_H

#include <stddef.h>

#include "evenkeel.h"

struct ek_nvrtc_info {
	int version;       /* 13000 is 13.0; 0: not there */
	char path[512];    /* of the library */
	char missing[512]; /* where it was looked for and what to install, if it is not there */
};

/* Searches for the library at the first call: $EVENKEEL_NVRTC (a file; nothing else is tried then), else where
 * library.h says. A library that was found stays. A failure is remembered, and the search is repeated only when
 * $EVENKEEL_NVRTC has another value. */
void ek_nvrtc_describe(struct ek_nvrtc_info *info);

/* Writes the compute capabilities that the library compiles to machine code (90 is 9.0) and returns how many they
 * are; 0: no library, or it does not tell. */
enum { EK_NVRTC_ARCHS = 256 };
int ek_nvrtc_archs(int archs[EK_NVRTC_ARCHS]);

struct ek_image {
	void *data; /* malloc */
	size_t size;
};

/* What the contract asks of the compiler: no contraction, no flushing, exact division and root. Every
 * compilation has them; "" past the last. */
extern const char ek_nvrtc_contract[5][20];

/* Compiles text for compute capability arch (90 is 9.0): machine code where this NVRTC knows it, else PTX
 * of the newest it knows below, which the driver finishes. options are NVRTC's, those of the contract
 * are added. *log (malloc, may be NULL; log itself too) is what the compiler said, also where it refused.
 * EK_ERROR_COMPILE: no NVRTC, or it refused the text. */
ek_status ek_nvrtc_compile(const char *name, const char *text, const char *const *options, int count,
			   int arch, struct ek_image *image, char **log);

#endif
