/* What the stand-in's own tests share (test_emulator.c, test_driver.c, test_loader.c): its libraries, opened, and the
 * kernels of selftest.cu, loaded and launched. SPDX-License-Identifier: MIT */
#ifndef STANDIN_SELFTEST_H
#define STANDIN_SELFTEST_H

#include "support.h"
#include "support_standin.h"

enum { THREADS = 256, THREAD_BYTES = 16, BLOCK_BYTES = THREADS * THREAD_BYTES, BLOCK_NUMBERS = THREADS * 4 };

#define EXPECT_RESULT(wanted, call)                                                                \
	do {                                                                                       \
		int result_ = (call);                                                              \
		EXPECT(result_ == (wanted), "%s gives %d, not %d", #call, result_, (int)(wanted)); \
	} while (0)
#define EXPECT_SUCCESS(call) EXPECT_RESULT(CUDA_SUCCESS, call)

/* Opens $EVENKEEL_LIBCUDA and $EVENKEEL_NVRTC and loads the kernels; the end unloads them and sees that nothing is left. */
void selftest_begin(void);
void selftest_end(void);

extern struct ek_driver driver; /* the stand-in's functions */
extern CUcontext context;       /* of device 0, current */
extern CUmodule module;         /* selftest.cu */

/* What a file holds, with a zero at the end; to be freed. */
char *source_of(const char *path);
/* The image of a text for an architecture ("sm_90", "compute_90"); NULL where it is refused. Both are to be freed. */
char *compile(const char *text, const char *arch, char **log);

/* ---- launching ---- */

struct shape {
	unsigned blocks, threads, cluster, shared_bytes;
	bool overlaps;
	CUstream stream;
};
extern const struct shape plain, clusters;

/* As selftest.cu has it. */
struct arguments {
	unsigned char *to;
	const unsigned char *from;
	long long bytes;
	int stages;
};

CUfunction function_of(const char *name);
struct arguments arguments_of(CUdeviceptr to, CUdeviceptr from, size_t bytes, int stages);
CUresult launch(CUfunction function, struct shape shape, struct arguments *arguments);

/* ---- what a kernel gets and should give: 16 bytes per thread and stage ---- */

enum { MOST_NUMBERS = 16 * BLOCK_NUMBERS };
extern float input[MOST_NUMBERS], wanted[MOST_NUMBERS];

void fill_input(size_t count);
/* Every thread is to give the sum of the input of its group, four times. */
void want_sums(size_t count, size_t group);
/* Runs a kernel over `bytes` of input; false where the output is not what is wanted. */
bool gives_wanted(CUfunction function, struct shape shape, int stages, size_t bytes);

#endif
