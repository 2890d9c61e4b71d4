/* The functions of src/math on one CPU level: the table math_LEVEL (support_math.h). Compiled once for every level, as
 * the ops' kernels are. SPDX-License-Identifier: MIT */
#include ISA_HEADER

#include "math/simd.h"
#include "support_math.h"

/* Two registers at once, as in a kernel. */
#define DEFINE(name, statement)                                                \
	static void N(name)(const M(real) * from, M(real) * to, int64_t count) \
	{                                                                      \
		for (int64_t i = 0; i < count; i += 2 * M(WIDTH)) {            \
			M(num) v, t = M(load)(from + i);                       \
			statement;                                             \
			M(store)(to + i, v);                                   \
			t = M(load)(from + i + M(WIDTH));                      \
			statement;                                             \
			M(store)(to + i + M(WIDTH), v);                        \
		}                                                              \
	}
#define M(word) PASTE(vf, word)
#define N(name) PASTE(f32, name)
MATH_FUNCTIONS(DEFINE)
#undef M
#undef N
#define M(word) PASTE(vd, word)
#define N(name) PASTE(f64, name)
MATH_FUNCTIONS(DEFINE)

#define F32_ENTRY(name, statement) f32_##name,
#define F64_ENTRY(name, statement) f64_##name,
#define TABLE PASTE(math, ISA)
extern const struct math_table TABLE;
const struct math_table TABLE = {{MATH_FUNCTIONS(F32_ENTRY)}, {MATH_FUNCTIONS(F64_ENTRY)}};
