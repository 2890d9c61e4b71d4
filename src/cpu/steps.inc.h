/* The words of a dtype for steps of two registers, where the dtype is an argument: a constant in every loop that these are inlined
 * into. Numbers are in the order that the dtype's load2 has (simd.h). Included by CPU kernels with the words of level.inc.h, N(W),
 * N(STEP) and CONVERTED_DTYPES(X). Makes: N(load2), N(store2), N(in_order), N(first2), N(fold), N(fold_blocks).
 * SPDX-License-Identifier: MIT */

#define OF_DTYPE(CASE)                   \
	switch (dtype) {                 \
		CONVERTED_DTYPES(CASE)   \
	default:                         \
		__builtin_unreachable(); \
	}

/* The first n (1 … STEP) elements of a tensor from the i-th on; the others are +0. */
INLINE void N(load2)(const int dtype, const void *tensor, int64_t i, int n, vec v[2])
{
#define CASE(d)                                                                            \
	case dtype_##d:                                                                    \
		if (n == N(STEP))                                                          \
			PASTE(d, load2)((const PASTE(d, element) *)tensor + i, v);         \
		else                                                                       \
			PASTE(d, load2_part)((const PASTE(d, element) *)tensor + i, n, v); \
		return;
	OF_DTYPE(CASE)
#undef CASE
}

INLINE void N(store2)(const int dtype, const bool nontemporal, void *tensor, int64_t i, const vec v[2])
{
#define CASE(d)                                                                           \
	case dtype_##d:                                                                   \
		if (nontemporal)                                                          \
			PASTE(d, store2_nontemporal)((PASTE(d, element) *)tensor + i, v); \
		else                                                                      \
			PASTE(d, store2)((PASTE(d, element) *)tensor + i, v);             \
		return;
	OF_DTYPE(CASE)
#undef CASE
}

/* From registers side by side. */
INLINE void N(in_order)(const int dtype, vec v[2])
{
#define CASE(d)                        \
	case dtype_##d:                \
		PASTE(d, in_order)(v); \
		return;
	OF_DTYPE(CASE)
#undef CASE
}

INLINE void N(first2)(const int dtype, vec v[2], int n)
{
#define CASE(d)                         \
	case dtype_##d:                 \
		PASTE(d, first2)(v, n); \
		return;
	OF_DTYPE(CASE)
#undef CASE
}

/* The first steps of rule 2's tree, over a block of GROUP registers. */
INLINE vec N(fold)(const int dtype, const vec block[GROUP])
{
#define CASE(d)         \
	case dtype_##d: \
		return PASTE(d, narrow)(block);
	OF_DTYPE(CASE)
#undef CASE
}

/* The others, over the blocks of a segment. */
INLINE real N(fold_blocks)(const int dtype, const vec *blocks)
{
#define CASE(d)         \
	case dtype_##d: \
		return PASTE(d, sum)(blocks);
	OF_DTYPE(CASE)
#undef CASE
}
#undef OF_DTYPE
