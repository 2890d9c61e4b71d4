/* The sizes of the caches, as Linux shows them. Called by info.c and report.c.
 * SPDX-License-Identifier: MIT */
#include "system.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool read_word(int index, const char *name, char *word, size_t size)
{
	char path[96];
	(void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
	FILE *file = fopen(path, "r");
	if (!file)
		return false;
	bool fine = fgets(word, (int)size, file) != NULL;
	(void)fclose(file);
	word[strcspn(word, "\n")] = 0;
	return fine;
}

struct caches system_caches(void)
{
	struct caches caches = {0};
	char level[16];
	char type[16];
	char text[32];
	for (int i = 0; read_word(i, "level", level, sizeof level); i++) {
		long long size = 0;
		char unit = 0;
		if (!read_word(i, "type", type, sizeof type) || !read_word(i, "size", text, sizeof text) ||
		    strcmp(type, "Instruction") == 0 || sscanf(text, "%lld%c", &size, &unit) < 1)
			continue;
		size *= unit == 'K' ? 1024 : unit == 'M' ? 1048576 : 1;
		if (level[0] == '1')
			caches.l1d = size;
		else if (level[0] == '2')
			caches.l2 = size;
		else if (level[0] == '3')
			caches.l3 = size;
	}
	return caches;
}
