/* Finding a library of NVIDIA's without running Python or asking a package manager: the process's own map says
 * which Python it is. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "library.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *opened(void *handle, const char *name, char *path, size_t size)
{
	struct link_map *map = NULL;
	if (!handle)
		return NULL;
	bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0];
	(void)snprintf(path, size, "%s", known ? map->l_name : name);
	return handle;
}

void *ek_library_open_file(const char *file, char *path, size_t size)
{
	return opened(dlopen(file, RTLD_NOW | RTLD_LOCAL), file, path, size);
}

/* By soname: one that is loaded already, or one on the system's paths. */
static void *open_named(const struct ek_library *library, int flags, char *path, size_t size)
{
	void *handle = NULL;
	for (int i = 0; !handle && library->names[i]; i++)
		handle = opened(dlopen(library->names[i], RTLD_NOW | RTLD_LOCAL | flags), library->names[i],
				path, size);
	return handle;
}

static void *open_in(const struct ek_library *library, const char *folder, char *path, size_t size)
{
	char file[PATH_MAX];
	void *handle = NULL;
	for (int i = 0; !handle && library->names[i]; i++) {
		int length = snprintf(file, sizeof file, "%s/%s", folder, library->names[i]);
		if (length > 0 && (size_t)length < sizeof file && access(file, R_OK) == 0)
			handle = ek_library_open_file(file, path, size);
	}
	return handle;
}

/* ---- Python's folders ---- */

static void *open_in_site(const struct ek_library *library, const char *site, char *path, size_t size)
{
	char folder[PATH_MAX];
	void *handle = NULL;
	for (int i = 0; !handle && library->wheels[i]; i++) {
		int length = snprintf(folder, sizeof folder, "%s/%s", site, library->wheels[i]);
		if (length > 0 && (size_t)length < sizeof folder)
			handle = open_in(library, folder, path, size);
	}
	return handle;
}

/* lib/python3.X/site-packages for every X. */
static void *open_in_environment(const struct ek_library *library, const char *prefix, char *path,
				 size_t size)
{
	char site[PATH_MAX];
	void *handle = NULL;
	(void)snprintf(site, sizeof site, "%s/lib", prefix);
	DIR *names = opendir(site);
	if (!names)
		return NULL;
	for (struct dirent *entry = readdir(names); entry && !handle; entry = readdir(names)) {
		int length = snprintf(site, sizeof site, "%s/lib/%s/site-packages", prefix, entry->d_name);
		if (strncmp(entry->d_name, "python3", 7) == 0 && (size_t)length < sizeof site)
			handle = open_in_site(library, site, path, size);
	}
	(void)closedir(names);
	return handle;
}

/* Cuts a mapped file's path down to the site-packages it belongs to: that which it lies in, or that of the
 * interpreter (…/bin/python3.X) or libpython (…/lib/libpython3.X.so) that it is. "" if none. */
static void site_of(const char *file, char site[PATH_MAX])
{
	const char *const folders[] = {"/site-packages/", "/dist-packages/"};
	const char *name = strrchr(file, '/') + 1;
	site[0] = '\0';
	for (int i = 0; i < 2; i++) {
		const char *inside = strstr(file, folders[i]);
		if (inside) {
			int length = (int)(inside - file + (ptrdiff_t)strlen(folders[i]) - 1);
			(void)snprintf(site, PATH_MAX, "%.*s", length, file);
			return;
		}
	}
	int skip = strncmp(name, "libpython3.", 11) == 0 ? 3 : 0;
	if (strncmp(name + skip, "python3.", 8) != 0)
		return;
	int digits = 0;
	while (isdigit((unsigned char)name[skip + 8 + digits]))
		digits++;
	(void)snprintf(site, PATH_MAX, "%.*s%s%.*s/site-packages", (int)(name - file), file,
		       skip ? "" : "../lib/", 8 + digits, name + skip);
}

static void *open_beside_python(const struct ek_library *library, char *path, size_t size)
{
	char site[PATH_MAX], last[PATH_MAX] = "";
	char *line = NULL;
	size_t room = 0;
	void *handle = NULL;
	FILE *maps = fopen("/proc/self/maps", "re");
	if (!maps)
		return NULL;
	while (!handle && getline(&line, &room, maps) > 0) {
		char *file = strchr(line, '/');
		if (!file || strlen(file) >= PATH_MAX)
			continue;
		file[strcspn(file, "\n")] = '\0';
		site_of(file, site);
		if (!site[0] ||
		    strcmp(site, last) == 0) /* a library has several lines, a folder many libraries */
			continue;
		memcpy(last, site, sizeof last);
		handle = open_in_site(library, site, path, size);
	}
	free(line);
	(void)fclose(maps);
	return handle;
}

/* ---- toolkits ---- */

static void *open_in_toolkit(const struct ek_library *library, const char *prefix, char *path, size_t size)
{
	const char *const folders[] = {"lib64", "lib"};
	char folder[PATH_MAX];
	void *handle = NULL;
	for (int i = 0; prefix && *prefix && !handle && i < 2; i++) {
		int length = snprintf(folder, sizeof folder, "%s/%s", prefix, folders[i]);
		if (length > 0 && (size_t)length < sizeof folder)
			handle = open_in(library, folder, path, size);
	}
	return handle;
}

void *ek_library_open(const struct ek_library *library, char *path, size_t size)
{
	const char *environment = secure_getenv("VIRTUAL_ENV");
	const char *const toolkits[] = {secure_getenv("CONDA_PREFIX"), secure_getenv("CUDA_HOME"),
					secure_getenv("CUDA_PATH"), "/usr/local/cuda"};
	void *handle = open_named(library, RTLD_NOLOAD, path, size);
	if (!handle)
		handle = open_named(library, 0, path, size);
	if (!handle)
		handle = open_beside_python(library, path, size);
	if (!handle && environment && *environment)
		handle = open_in_environment(library, environment, path, size);
	for (int i = 0; !handle && i < 4; i++)
		handle = open_in_toolkit(library, toolkits[i], path, size);
	return handle;
}
