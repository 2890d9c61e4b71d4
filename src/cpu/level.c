/* The table of CPU levels. cpu/open.c chooses one per context. SPDX-License-Identifier: MIT */
#include "level.h"

#include <stddef.h>
#include <string.h>

#include "detect.h"

static bool ek_always(void)
{
	return true;
}

#define ROW(name, usable) {EK_LEVEL_ID_##name, #name, usable},
static const struct ek_level levels[EK_LEVEL_COUNT] = {{EK_LEVEL_REFERENCE, "reference", ek_always},
						       EK_LEVELS(ROW)};

const struct ek_level *ek_level_at(int index)
{
	return index >= 0 && index < EK_LEVEL_COUNT ? &levels[index] : NULL;
}

const struct ek_level *ek_level_named(const char *name)
{
	for (int i = 0; i < EK_LEVEL_COUNT; i++)
		if (strcmp(levels[i].name, name) == 0)
			return &levels[i];
	return NULL;
}

const struct ek_level *ek_level_best(void)
{
	int best = EK_LEVEL_COUNT - 1;
	while (!levels[best].usable())
		best--;
	return &levels[best];
}
