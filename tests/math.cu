/* All functions of src/math over an array, for gpu_math.c: results of a function lie one after another. Follows the texts words,
 * math_constants, math_words, math and tests/math_functions.h. Constants, given as -D: KERNEL_NAME, THREADS, MATH_F64.
 * SPDX-License-Identifier: MIT */

struct arguments {
	const M(num) *from;
	M(num) *to;
	i64 count; /* of numbers: results of function f start at to + f count */
};

#define STORE(name, statement)                      \
	{                                           \
		M(num) v;                           \
		statement;                          \
		store_one(M(num), to, v);           \
		to += a.count;                      \
	}

KERNEL(KERNEL_NAME, THREADS, 1, arguments)
{
	const i64 i = block_index() * THREADS + thread_index();
	if (i >= a.count)
		return;
	wait_for_kernels_before();
	const M(num) t = load_one(M(num), a.from + i);
	M(num) *to = a.to + i;
	MATH_FUNCTIONS(STORE)
}
