/* The levels of CPU kernels (instruction sets): one list, slowest first, that ek_open, ek_cpu_level, the ops' tables of
 * kernels and the tests read. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_LEVEL_H
#define EK_CPU_LEVEL_H

#include <stdbool.h>

/* Those that CMakeLists.txt compiles: it defines EK_LEVEL_…. */
#ifdef EK_LEVEL_AVX2
#define EK_IF_AVX2(row) row
#else
#define EK_IF_AVX2(row)
#endif
#ifdef EK_LEVEL_AVX512
#define EK_IF_AVX512(row) row
#else
#define EK_IF_AVX512(row)
#endif
#ifdef EK_LEVEL_AVX512BF16
#define EK_IF_AVX512BF16(row) row
#else
#define EK_IF_AVX512BF16(row)
#endif
#ifdef EK_LEVEL_NEON
#define EK_IF_NEON(row) row
#else
#define EK_IF_NEON(row)
#endif

/* X(name, test of this CPU and its OS); the reference is no level of kernels. */
#define EK_LEVELS(X)                                       \
	X(scalar, ek_always)                               \
	EK_IF_AVX2(X(avx2, ek_has_avx2))                   \
	EK_IF_AVX512(X(avx512, ek_has_avx512))             \
	EK_IF_AVX512BF16(X(avx512bf16, ek_has_avx512bf16)) \
	EK_IF_NEON(X(neon, ek_has_neon))

#define EK_LEVEL_ID(name, usable) EK_LEVEL_ID_##name,
enum ek_level_id { EK_LEVEL_REFERENCE, EK_LEVELS(EK_LEVEL_ID) EK_LEVEL_COUNT };

struct ek_level {
	enum ek_level_id id;
	const char *name;
	bool (*usable)(void);
};

/* The level at index, NULL past the last. */
const struct ek_level *ek_level_at(int index);
/* The level of that name, usable or not; NULL if there is none. */
const struct ek_level *ek_level_named(const char *name);
/* The fastest level that this CPU can run. */
const struct ek_level *ek_level_best(void);

#endif
