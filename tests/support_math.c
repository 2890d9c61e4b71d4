/* The reference's functions of src/math over arrays, the list of levels, and numbers to try. SPDX-License-Identifier: MIT */
#include "support_math.h"

#include <math.h>
#include <string.h>

#include "cpu/level.h"
#include "math/reference.h"
#include "verify/random.h"

#define NAME(name, statement) #name,
const char *const math_names[MATH_FUNCTION_COUNT] = {MATH_FUNCTIONS(NAME)};

/* ---- tables ---- */

#define DEFINE(name, statement)                                              \
	static void N(name)(const M(num) * from, M(num) * to, int64_t count) \
	{                                                                    \
		for (int64_t i = 0; i < count; i++) {                        \
			const M(num) t = from[i];                            \
			M(num) v;                                            \
			statement;                                           \
			to[i] = v;                                           \
		}                                                            \
	}
#define M(word) word##_f32
#define N(name) name##_f32_array
MATH_FUNCTIONS(DEFINE)
#undef M
#undef N
#define M(word) word##_f64
#define N(name) name##_f64_array
MATH_FUNCTIONS(DEFINE)

#define F32_ENTRY(name, statement) name##_f32_array,
#define F64_ENTRY(name, statement) name##_f64_array,
const struct math_table math_reference = {{MATH_FUNCTIONS(F32_ENTRY)}, {MATH_FUNCTIONS(F64_ENTRY)}};

#define DECLARE_LEVEL(name, usable) extern const struct math_table math_##name;
EK_LEVELS(DECLARE_LEVEL)
#define LEVEL_ENTRY(name, usable) [EK_LEVEL_ID_##name] = &math_##name,
static const struct math_table *const tables[EK_LEVEL_COUNT] = {EK_LEVELS(LEVEL_ENTRY)};

const struct math_table *math_level(int index, const char **name)
{
	const struct ek_level *level;
	for (int i = 0; (level = ek_level_at(i)); i++)
		if (tables[level->id] && level->usable() && index-- == 0) {
			*name = level->name;
			return tables[level->id];
		}
	return NULL;
}

const struct math_table *math_best_level(void)
{
	const struct math_table *best = NULL, *table;
	const char *name;
	for (int level = 0; (table = math_level(level, &name)); level++)
		best = table;
	return best;
}

/* ---- numbers ---- */

bool math_same_f32(float a, float b)
{
	return bits_of_f32(a) == bits_of_f32(b) || (isnan(a) && isnan(b));
}

bool math_same_f64(double a, double b)
{
	return bits_of_f64(a) == bits_of_f64(b) || (isnan(a) && isnan(b));
}

int math_next_f32(struct math_walk *walk, float t[MATH_NUMBERS])
{
	int count = 0;
	memset(t, 0, MATH_NUMBERS * sizeof *t);
	for (; count < MATH_NUMBERS && walk->next < UINT64_C(1) << 32; walk->next += walk->stride)
		t[count++] = real_of_f32((uint32_t)walk->next);
	return count;
}

/* One of 64 is special, a quarter has any bits, the rest is from -2^k to 2^k. */
void math_fill_f64(uint64_t seed, double t[MATH_NUMBERS])
{
	static const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 0x1p-1074, -0x1p-1022, 1e308};
	for (int i = 0; i < MATH_NUMBERS; i++) {
		uint64_t bits = random_mixed(seed + (uint64_t)i);
		double unit = (double)(int64_t)random_mixed(bits) * 0x1p-63;
		if (i % 64 == 0)
			t[i] = special[bits % (sizeof special / sizeof *special)];
		else
			t[i] = i % 4 == 1 ? real_of_f64(bits) : ldexp(unit, (int)(bits % 16) - 5);
	}
}
