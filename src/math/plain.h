/* The words of math.inc.h in plain C, one number a register: for the reference, the level scalar and the stand-in GPU.
 * SPDX-License-Identifier: MIT */
#ifndef EK_MATH_PLAIN_H
#define EK_MATH_PLAIN_H

#include <stdint.h>
#include <string.h>

/* NAME(word) makes a name, such as word_f32; bits are an integer of the real's size, `significand` of them the
 * significand; least is the smallest normal number. */
#define EK_PLAIN_WORDS(INLINE_C, NAME, real, bits, significand, least)   \
	typedef real NAME(num);                                          \
	INLINE_C bits NAME(bits_of)(real a)                              \
	{                                                                \
		bits b;                                                  \
		memcpy(&b, &a, sizeof b);                                \
		return b;                                                \
	}                                                                \
	INLINE_C real NAME(real_of)(bits b)                              \
	{                                                                \
		real a;                                                  \
		memcpy(&a, &b, sizeof a);                                \
		return a;                                                \
	}                                                                \
	INLINE_C real NAME(magnitude)(real a)                            \
	{                                                                \
		return NAME(real_of)(NAME(bits_of)(a) & (bits)-1 >> 1);  \
	}                                                                \
	INLINE_C real NAME(at_least)(real a, real c)                     \
	{                                                                \
		return a < c ? c : a;                                    \
	}                                                                \
	INLINE_C real NAME(at_most)(real a, real c)                      \
	{                                                                \
		return a > c ? c : a;                                    \
	}                                                                \
	INLINE_C real NAME(if_less)(real a, real b, real x, real y)      \
	{                                                                \
		return a < b ? x : y;                                    \
	}                                                                \
	INLINE_C real NAME(reciprocal)(real a)                           \
	{                                                                \
		const real r = 1 / a;                                    \
		return r < (least) ? 0 : r;                              \
	}                                                                \
	INLINE_C real NAME(power)(real m)                                \
	{                                                                \
		return NAME(real_of)(NAME(bits_of)(m) << (significand)); \
	}

#endif
