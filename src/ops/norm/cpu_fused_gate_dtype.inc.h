/* The norm's input where a gate comes first (rule 11): x times an activation of the gate, both of the dtype OUTER, in one loop.
 * Included by cpu_fused.inc.h. Makes: P(widen_gated). SPDX-License-Identifier: MIT */
#define D(word) PASTE(OUTER, word)
#define P(name) PASTE(name, PASTE(ACT, OUTER))

INLINE void P(gated)(const void *x, const void *gate, int64_t n, real *to, const ek_activation activation)
{
	const D(element) *from = x, *by = gate;
	int64_t i = 0;
	for (; i + N(STEP) <= n; i += N(STEP)) {
		vec t[2] = {D(load)(by + i), D(load)(by + i + N(W))};
		V(activate)(activation, t);
		UNROLL for (int k = 0; k < 2; k++)
			V(store)(to + i + k * N(W), V(mul)(D(load)(from + i + k * N(W)), t[k]));
	}
	for (; i < n; i += N(W)) {
		int left = (int)smaller(N(W), n - i);
		vec t[2] = {D(load_part)(by + i, left), V(splat)(0)};
		V(activate_tail)(activation, t);
		V(store_part)(to + i, V(mul)(D(load_part)(from + i, left), t[0]), left);
	}
}

/* A loop for each activation, so that its constants stay in registers. */
static void P(widen_gated)(const void *x, const void *gate, int64_t n, real *to, ek_activation activation)
{
#define MAKE(number, name)                          \
	case number:                                \
		P(gated)(x, gate, n, to, number);   \
		break;
	switch (activation) {
		EK_ACTIVATIONS(MAKE)
	default:
		break;
	}
#undef MAKE
}

#undef D
#undef P
#undef OUTER
