/* The kernels that verify --quick compiles on a GPU. A width, a dtype or a set of operands is a kernel of its own and
 * takes up to half a second; rows, places and values are free. So every row of the tables in src/ops/norm/policy.c is
 * here once, at its widest, where registers are scarcest, or with a tail; every way of reading rows and every set of
 * operands is in some of them. That they meet each other is for the longer lists; tests/test_gpu_quick.c sees to the
 * rest. SPDX-License-Identifier: MIT */
#include "gpu_quick.h"

#define NORM &ek_norm_forward_op
#define GLU &ek_glu_forward_op
#define ROPE &ek_rope_forward_op

const struct gpu_kernel gpu_quick[] = {
	/* 16 bits, rows that start at multiples of 16 bytes: part of a warp, a warp, several, a block, clusters, and
	 * rows that are read again */
	{NORM, FORWARD, 2, 24, "plain", 0},
	{NORM, FORWARD, 2, 768, "plain", 0},
	{NORM, FORWARD, 2, 4096, "plain", 0},
	{NORM, FORWARD, 2, 5120, "no weight", 0},
	{NORM, FORWARD, 2, 8192, "plain", 0},
	{NORM, FORWARD, 2, 16384, "plain", 0},
	{NORM, FORWARD, 2, 32768, "no optional input", 0},
	{NORM, FORWARD, 2, 65536, "plain", 0},
	{NORM, FORWARD, 2, 131072, "plain", 0},
	{NORM, FORWARD, 2, 1280, "plain", 0},
	{NORM, FORWARD, 2, 1992, "no bias", 0},
	{NORM, FORWARD, 2, 2560, "plain", 0},
	{NORM, FORWARD, 2, 4600, "plain", 0},
	{NORM, FORWARD, 2, 7168, "plain", 0},
	{NORM, FORWARD, 2, 11008, "plain", 0},
	{NORM, FORWARD, 2, 300000, "plain", 0},
	/* those that start anywhere, by odd widths, gaps and odd addresses */
	{NORM, FORWARD, 2, 1023, "plain", 0},
	{NORM, FORWARD, 2, 2047, "plain", 0},
	{NORM, FORWARD, 2, 3333, "misaligned", 0},
	{NORM, FORWARD, 2, 8192, "strided rows", 0},
	{NORM, FORWARD, 2, 16383, "plain", 0},
	{NORM, FORWARD, 2, 32768, "misaligned", 0},
	{NORM, FORWARD, 2, 65535, "plain", 0},
	{NORM, FORWARD, 2, 131071, "plain", 0},
	/* 32 bits */
	{NORM, FORWARD, 4, 768, "plain", 0},
	{NORM, FORWARD, 4, 1536, "plain", 0},
	{NORM, FORWARD, 4, 4096, "plain", 0},
	{NORM, FORWARD, 4, 8192, "no bias", 0},
	{NORM, FORWARD, 4, 16384, "plain", 0},
	{NORM, FORWARD, 4, 32768, "plain", 0},
	{NORM, FORWARD, 4, 65536, "no weight", 0},
	{NORM, FORWARD, 4, 131072, "plain", 0},
	{NORM, FORWARD, 4, 140000, "plain", 0},
	{NORM, FORWARD, 4, 17, "plain", 0},
	{NORM, FORWARD, 4, 1999, "plain", 0},
	{NORM, FORWARD, 4, 8191, "plain", 0},
	{NORM, FORWARD, 4, 16384, "strided rows", 0},
	{NORM, FORWARD, 4, 32767, "misaligned", 0},
	{NORM, FORWARD, 4, 65535, "plain", 0},
	{NORM, FORWARD, 4, 131071, "plain", 0},
	/* 64 bits */
	{NORM, FORWARD, 8, 1000, "misaligned", 0},
	{NORM, FORWARD, 8, 8191, "plain", 0},
	{NORM, FORWARD, 8, 16384, "plain", 0},
	{NORM, FORWARD, 8, 32768, "no optional input", 0},
	{NORM, FORWARD, 8, 65536, "plain", 0},
	{NORM, FORWARD, 8, 70001, "plain", 0},

	{NORM, BACKWARD, 2, 24, "plain", 0},
	{NORM, BACKWARD, 2, 1024, "no rstd", 0},
	{NORM, BACKWARD, 2, 2047, "plain", 0},
	{NORM, BACKWARD, 2, 4096, "plain", 0},
	{NORM, BACKWARD, 2, 6144, "plain", 0},
	{NORM, BACKWARD, 2, 8192, "no weight", 0},
	{NORM, BACKWARD, 2, 16384, "plain", 0},
	{NORM, BACKWARD, 2, 12345, "dx alone", 0},
	{NORM, BACKWARD, 2, 32768, "misaligned", 0},
	{NORM, BACKWARD, 2, 65536, "dweight alone", 0},
	{NORM, BACKWARD, 2, 131072, "plain", 0},
	{NORM, BACKWARD, 2, 140000, "plain", 0},
	{NORM, BACKWARD, 4, 768, "plain", 0},
	{NORM, BACKWARD, 4, 2048, "strided rows", 0},
	{NORM, BACKWARD, 4, 4096, "dbias alone", 0},
	{NORM, BACKWARD, 4, 8192, "plain", 0},
	{NORM, BACKWARD, 4, 16384, "dx alone", 0},
	{NORM, BACKWARD, 4, 32767, "plain", 0},
	{NORM, BACKWARD, 4, 65536, "no rstd", 0},
	{NORM, BACKWARD, 4, 70000, "plain", 0},
	{NORM, BACKWARD, 8, 1000, "plain", 0},
	{NORM, BACKWARD, 8, 20001, "no dx", 0},

	/* gated activations: kernels are for all widths; by quads, by elements, from odd addresses, with and without
	 * sums over the rows */
	{GLU, FORWARD, 2, 4096, "plain", 0},
	{GLU, FORWARD, 2, 1000, "no optional input", 2},
	{GLU, FORWARD, 4, 1023, "plain", 4},
	{GLU, FORWARD, 4, 500, "plain", 9},
	{GLU, FORWARD, 2, 777, "misaligned", 7},
	{GLU, FORWARD, 8, 300, "plain", 10},
	{GLU, BACKWARD, 2, 4096, "plain", 2},
	{GLU, BACKWARD, 2, 4096, "no sums over rows", 2},
	{GLU, BACKWARD, 2, 1000, "no optional input", 11},
	{GLU, BACKWARD, 2, 777, "misaligned", 8},
	{GLU, BACKWARD, 4, 1023, "no sums over rows", 10},
	{GLU, BACKWARD, 4, 96, "no dgate_bias", 7},
	{GLU, BACKWARD, 4, 500, "dgate_bias alone", 3},
	{GLU, BACKWARD, 4, 1023, "plain", 15},
	{GLU, BACKWARD, 8, 300, "plain", 1},
	{GLU, FORWARD, 4, 1000, "plain", 12},

	/* ops on heads, without and with a norm: heads of 128, of 64, one odd or long one; by units of 16 bytes and by
	 * elements */
	{ROPE, FORWARD, 2, 4096, "plain", 0},
	{ROPE, FORWARD, 4, 77, "misaligned", 2},
	{ROPE, FORWARD, 8, 1024, "no positions", 3},
	{ROPE, FORWARD, 2, 1024, "no optional input", 0},
	{ROPE, FORWARD, 2, 4096, "plain", 10},
	{ROPE, FORWARD, 2, 1024, "no positions", 11},
	{ROPE, FORWARD, 4, 96, "plain", 9},
	{ROPE, FORWARD, 2, 4096, "no optional input", 8},
	{ROPE, BACKWARD, 2, 4096, "no sums over rows", 0},
	{ROPE, BACKWARD, 4, 1024, "plain", 3},
	{ROPE, BACKWARD, 8, 300, "plain", 2},
	{ROPE, BACKWARD, 2, 4096, "plain", 10},
	{ROPE, BACKWARD, 4, 77, "no sums over rows", 15},
	{ROPE, BACKWARD, 8, 64, "dq_weight alone", 15},
};

const int gpu_quick_count = sizeof gpu_quick / sizeof gpu_quick[0];
