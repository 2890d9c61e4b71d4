/* Fused multiply-adds and nothing else: the rate that a GPU's arithmetic is measured by (cli/gpu_kernels.c). Follows words.cu.
 * Constants, given as -D:
 *   KERNEL_NAME   of the function
 *   THREADS       of a block
 *   ELEMENT       0 f32, 3 f64
 *   CHAINS        independent chains of a thread: with those of other warps enough to hide the latency of one
 *   STEPS         of each chain
 * SPDX-License-Identifier: MIT */

#if ELEMENT == 3
typedef double real;
#define fma_real fma_f64
#else
typedef float real;
#define fma_real fma_f32
#endif

enum { AT_ONCE = 64 }; /* steps between two looks at the counter: under 1 % of the instructions are not counted */

struct arguments {
	real *to;   /* one number */
	double one; /* 1: what the compiler does not know it cannot compute */
};

/* Chains converge to 2: no overflow, no subnormals. Their sum is never 0, so that nothing is stored, which the compiler
 * cannot know, and leaves none out. */
KERNEL(KERNEL_NAME, THREADS, 1, arguments)
{
	const real factor = (real)(0.5 * a.one), term = (real)a.one;
	real chains[CHAINS], sum = 0;
	UNROLL
	for (int k = 0; k < CHAINS; k++)
		chains[k] = (real)(k + thread_index());
	for (int step = 0; step < STEPS; step += AT_ONCE) {
		UNROLL
		for (int i = 0; i < AT_ONCE * CHAINS; i++)
			chains[i % CHAINS] = fma_real(chains[i % CHAINS], factor, term);
	}
	UNROLL
	for (int k = 0; k < CHAINS; k++)
		sum = sum + chains[k];
	if (sum == 0)
		store_one(real, a.to, sum);
}
