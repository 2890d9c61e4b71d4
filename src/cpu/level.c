/* The table of CPU levels. api.c chooses one per context; src/cpu/norm.c runs its kernels.
 * SPDX-License-Identifier: MIT */
#include "level.h"

#include <stddef.h>
#include <string.h>

#include "detect.h"

extern const struct ek_norm_kernels ek_norm_scalar, ek_norm_avx2, ek_norm_avx512, ek_norm_avx512bf16,
	ek_norm_neon;

static bool always(void)
{
	return true;
}

/* Slowest first. CMakeLists.txt defines EK_LEVEL_… for those that it compiles. */
static const struct ek_level levels[] = {
	{"reference", always, NULL},
	{"scalar", always, &ek_norm_scalar},
#ifdef EK_LEVEL_AVX2
	{"avx2", ek_has_avx2, &ek_norm_avx2},
#endif
#ifdef EK_LEVEL_AVX512
	{"avx512", ek_has_avx512, &ek_norm_avx512},
#endif
#ifdef EK_LEVEL_AVX512BF16
	{"avx512bf16", ek_has_avx512bf16, &ek_norm_avx512bf16},
#endif
#ifdef EK_LEVEL_NEON
	{"neon", ek_has_neon, &ek_norm_neon},
#endif
};
enum { LEVELS = sizeof levels / sizeof *levels };

const struct ek_level *ek_level_at(int index)
{
	return index >= 0 && index < LEVELS ? &levels[index] : NULL;
}

const struct ek_level *ek_level_named(const char *name)
{
	for (int i = 0; i < LEVELS; i++)
		if (strcmp(levels[i].name, name) == 0)
			return &levels[i];
	return NULL;
}

const struct ek_level *ek_level_best(void)
{
	int best = LEVELS - 1;
	while (!levels[best].usable())
		best--;
	return &levels[best];
}
