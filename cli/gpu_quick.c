/* The kernels that verify --quick compiles on a GPU. A width, a dtype or a set of operands is a kernel of its own and
 * takes up to half a second; rows, places and values are free. So every row of the tables in src/ops/norm/policy.c is
 * here once, at its widest, where registers are scarcest, or with a tail; every way of reading rows and every set of
 * operands is in some of them. That they meet each other is for the longer lists; tests/test_gpu_quick.c sees to the
 * rest. SPDX-License-Identifier: MIT */
#include "gpu_quick.h"

const struct gpu_kernel gpu_quick[] = {
	/* 16 bits, rows that start at multiples of 16 bytes: part of a warp, a warp, several, a block, clusters, and
	 * rows that are read again */
	{FORWARD, 2, 24, "plain"},
	{FORWARD, 2, 768, "plain"},
	{FORWARD, 2, 4096, "plain"},
	{FORWARD, 2, 5120, "no weight"},
	{FORWARD, 2, 8192, "plain"},
	{FORWARD, 2, 16384, "plain"},
	{FORWARD, 2, 32768, "no optional input"},
	{FORWARD, 2, 65536, "plain"},
	{FORWARD, 2, 131072, "plain"},
	{FORWARD, 2, 1280, "plain"},
	{FORWARD, 2, 1992, "no bias"},
	{FORWARD, 2, 2560, "plain"},
	{FORWARD, 2, 4600, "plain"},
	{FORWARD, 2, 7168, "plain"},
	{FORWARD, 2, 11008, "plain"},
	{FORWARD, 2, 300000, "plain"},
	/* those that start anywhere, by odd widths, gaps and odd addresses */
	{FORWARD, 2, 1023, "plain"},
	{FORWARD, 2, 2047, "plain"},
	{FORWARD, 2, 3333, "misaligned"},
	{FORWARD, 2, 8192, "strided rows"},
	{FORWARD, 2, 16383, "plain"},
	{FORWARD, 2, 32768, "misaligned"},
	{FORWARD, 2, 65535, "plain"},
	{FORWARD, 2, 131071, "plain"},
	/* 32 bits */
	{FORWARD, 4, 768, "plain"},
	{FORWARD, 4, 1536, "plain"},
	{FORWARD, 4, 4096, "plain"},
	{FORWARD, 4, 8192, "no bias"},
	{FORWARD, 4, 16384, "plain"},
	{FORWARD, 4, 32768, "plain"},
	{FORWARD, 4, 65536, "no weight"},
	{FORWARD, 4, 131072, "plain"},
	{FORWARD, 4, 140000, "plain"},
	{FORWARD, 4, 17, "plain"},
	{FORWARD, 4, 1999, "plain"},
	{FORWARD, 4, 8191, "plain"},
	{FORWARD, 4, 16384, "strided rows"},
	{FORWARD, 4, 32767, "misaligned"},
	{FORWARD, 4, 65535, "plain"},
	{FORWARD, 4, 131071, "plain"},
	/* 64 bits */
	{FORWARD, 8, 1000, "misaligned"},
	{FORWARD, 8, 8191, "plain"},
	{FORWARD, 8, 16384, "plain"},
	{FORWARD, 8, 32768, "no optional input"},
	{FORWARD, 8, 65536, "plain"},
	{FORWARD, 8, 70001, "plain"},

	{BACKWARD, 2, 24, "plain"},
	{BACKWARD, 2, 1024, "no rstd"},
	{BACKWARD, 2, 2047, "plain"},
	{BACKWARD, 2, 4096, "plain"},
	{BACKWARD, 2, 6144, "plain"},
	{BACKWARD, 2, 8192, "no weight"},
	{BACKWARD, 2, 16384, "plain"},
	{BACKWARD, 2, 12345, "dx alone"},
	{BACKWARD, 2, 32768, "misaligned"},
	{BACKWARD, 2, 65536, "dweight alone"},
	{BACKWARD, 2, 131072, "plain"},
	{BACKWARD, 2, 140000, "plain"},
	{BACKWARD, 4, 768, "plain"},
	{BACKWARD, 4, 2048, "strided rows"},
	{BACKWARD, 4, 4096, "dbias alone"},
	{BACKWARD, 4, 8192, "plain"},
	{BACKWARD, 4, 16384, "dx alone"},
	{BACKWARD, 4, 32767, "plain"},
	{BACKWARD, 4, 65536, "no rstd"},
	{BACKWARD, 4, 70000, "plain"},
	{BACKWARD, 8, 1000, "plain"},
	{BACKWARD, 8, 20001, "no dx"},
};

const int gpu_quick_count = sizeof gpu_quick / sizeof gpu_quick[0];
