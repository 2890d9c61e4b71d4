/* Between tensors of any dtype and real numbers. Included by CPU kernels with the words of level.inc.h, whose ACT is the dtype
 * of the arithmetic, and CONVERTED_DTYPES(X), the dtypes that have it.
 * Makes: N(conversion), N(tensor), N(widen), N(add), N(narrow). SPDX-License-Identifier: MIT */

struct N(conversion) {
	void (*widen)(const void *from, int64_t n, real *to);
	void (*add)(const void *from, int64_t n, real *to);
	void (*narrow)(const real *from, int64_t n, void *to, bool nontemporal);
	void (*round)(real *numbers, int64_t n); /* to the dtype and back */
};

#define CONVERSION(d)                                                                                              \
	static void N(widen_##d)(const void *from, int64_t n, real *to)                                            \
	{                                                                                                          \
		int64_t i = 0;                                                                                     \
		for (; i + N(W) <= n; i += N(W))                                                                   \
			V(store)(to + i, PASTE(d, load)((const PASTE(d, element) *)from + i));                     \
		if (i < n)                                                                                         \
			V(store_part)(to + i, PASTE(d, load_part)((const PASTE(d, element) *)from + i, (int)(n - i)), (int)(n - i)); \
	}                                                                                                          \
	static void N(add_##d)(const void *from, int64_t n, real *to)                                              \
	{                                                                                                          \
		int64_t i = 0;                                                                                     \
		for (; i + N(W) <= n; i += N(W))                                                                   \
			V(store)(to + i, V(add)(V(load)(to + i), PASTE(d, load)((const PASTE(d, element) *)from + i))); \
		if (i < n) {                                                                                       \
			int left = (int)(n - i);                                                                   \
			vec b = PASTE(d, load_part)((const PASTE(d, element) *)from + i, left);                    \
			V(store_part)(to + i, V(add)(V(load_part)(to + i, left), b), left);                        \
		}                                                                                                  \
	}                                                                                                          \
	static void N(narrow_##d)(const real *from, int64_t n, void *to, bool nontemporal)                         \
	{                                                                                                          \
		PASTE(d, element) *p = to;                                                                         \
		int64_t i = 0, head = head_of(p, sizeof *p, n, nontemporal);                                       \
		for (; i < head; i += smaller(N(W), head - i))                                                     \
			PASTE(d, store_part)(p + i, V(load_part)(from + i, (int)smaller(N(W), head - i)),          \
					     (int)smaller(N(W), head - i));                                        \
		for (; i + N(STEP) <= n; i += N(STEP)) {                                                           \
			vec v[2] = {V(load)(from + i), V(load)(from + i + N(W))};                                  \
			PASTE(d, in_order)(v);                                                                     \
			if (nontemporal)                                                                           \
				PASTE(d, store2_nontemporal)(p + i, v);                                            \
			else                                                                                       \
				PASTE(d, store2)(p + i, v);                                                        \
		}                                                                                                  \
		for (; i < n; i += N(W)) {                                                                         \
			int left = (int)smaller(N(W), n - i);                                                      \
			PASTE(d, store_part)(p + i, V(load_part)(from + i, left), left);                           \
		}                                                                                                  \
	}                                                                                                          \
	static void N(round_##d)(real *numbers, int64_t n)                                                         \
	{                                                                                                          \
		PASTE(d, element) narrow[SEGMENT];                                                                 \
		if (sizeof *narrow == sizeof *numbers)                                                             \
			return;                                                                                    \
		N(narrow_##d)(numbers, n, narrow, false);                                                          \
		N(widen_##d)(narrow, n, numbers);                                                                  \
	}
CONVERTED_DTYPES(CONVERSION)
#undef CONVERSION

#define ROW(d) [dtype_##d] = {N(widen_##d), N(add_##d), N(narrow_##d), N(round_##d)},
static const struct N(conversion) N(conversions)[dtype_end] = {CONVERTED_DTYPES(ROW)};
#undef ROW

/* A tensor of the call from the first element of a row on. */
struct N(tensor) {
	ek_dtype dtype;
	size_t element;
	char *at; /* NULL: absent */
};

INLINE struct N(tensor) N(tensor_at)(const void *tensor, ek_dtype dtype, int64_t elements)
{
	size_t element = ek_bytes_of_dtype(dtype);
	return (struct N(tensor)){dtype, element, tensor ? (char *)(uintptr_t)tensor + elements * (int64_t)element : NULL};
}

/* Its elements from `start` on, or NULL. */
INLINE void *N(from)(const struct N(tensor) *t, int64_t start)
{
	return t->at ? t->at + start * (int64_t)t->element : NULL;
}

/* Numbers of the arithmetic that need no widening. */
INLINE bool N(is_real)(const struct N(tensor) *t)
{
	return t->element == sizeof(real);
}

INLINE void N(widen)(const struct N(tensor) *t, int64_t start, int64_t n, real *to)
{
	N(conversions)[t->dtype].widen(N(from)(t, start), n, to);
}

INLINE void N(add)(const struct N(tensor) *t, int64_t start, int64_t n, real *to)
{
	if (t->at)
		N(conversions)[t->dtype].add(N(from)(t, start), n, to);
}

INLINE void N(narrow)(const real *from, const struct N(tensor) *t, int64_t start, int64_t n, bool nontemporal)
{
	if (t->at)
		N(conversions)[t->dtype].narrow(from, n, N(from)(t, start), nontemporal);
}
