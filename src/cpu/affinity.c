/* How many threads this process may run at once: the affinity mask and the CPU quotas of its cgroups.
 * ek_open asks when it is not told. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "detect.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Bits in the affinity mask; 0 if it cannot be read. The kernel refuses a mask shorter than its own, whose
 * length it does not tell, so longer ones are tried. */
static int affinity_cpus(void)
{
	for (int cpus = CPU_SETSIZE; cpus <= 1 << 20; cpus *= 2) {
		cpu_set_t *set = CPU_ALLOC((size_t)cpus);
		size_t size = CPU_ALLOC_SIZE((size_t)cpus);
		if (!set)
			return 0;
		bool too_short = false;
		int count = 0;
		if (sched_getaffinity(0, size, set) == 0)
			count = CPU_COUNT_S(size, set);
		else
			too_short = errno == EINVAL;
		CPU_FREE(set);
		if (!too_short)
			return count;
	}
	return 0;
}

/* ---- cgroups ---- */

/* A kind of cgroup: how its lines in /proc/self/cgroup are known, where it is mounted, how a quota reads. */
struct hierarchy {
	const char *controller; /* in the second field of the line; "": the field is empty (version 2) */
	const char *mounts[2];
	int (*quota)(const char *folder); /* CPUs, rounded up; INT_MAX: none */
};

static int cpus_of(long long quota, long long period)
{
	if (quota <= 0 || period <= 0 || (quota - 1) / period >= INT_MAX)
		return INT_MAX;
	return (int)((quota - 1) / period + 1);
}

/* The first line of folder/name; "" if there is none. */
static void read_line(const char *folder, const char *name, char *line, int size)
{
	char path[PATH_MAX + 64];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	*line = '\0';
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(line, size, file))
		*line = '\0';
	fclose(file);
}

/* cpu.max: "QUOTA PERIOD" in microseconds, or "max PERIOD". */
static int quota_v2(const char *folder)
{
	char line[64];
	long long quota, period;
	read_line(folder, "cpu.max", line, sizeof line);
	return sscanf(line, "%lld %lld", &quota, &period) == 2 ? cpus_of(quota, period) : INT_MAX;
}

/* One number per file; a quota of -1 is none. */
static int quota_v1(const char *folder)
{
	char quota_line[64], period_line[64];
	long long quota, period;
	read_line(folder, "cpu.cfs_quota_us", quota_line, sizeof quota_line);
	read_line(folder, "cpu.cfs_period_us", period_line, sizeof period_line);
	if (sscanf(quota_line, "%lld", &quota) != 1 || sscanf(period_line, "%lld", &period) != 1)
		return INT_MAX;
	return cpus_of(quota, period);
}

static const struct hierarchy hierarchies[] = {
	{"", {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, quota_v2},
	{"cpu", {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}, quota_v1},
};
enum { HIERARCHIES = sizeof hierarchies / sizeof *hierarchies };

/* The least quota from the cgroup up to the mount: each binds. Folders that are missing are passed by,
 * since a container sees the host's path to its cgroup but has only the cgroup itself mounted. */
static int least_quota(const char *root, const char *mount, const char *path,
		       int (*quota)(const char *folder))
{
	char folder[PATH_MAX];
	int length = snprintf(folder, sizeof folder, "%s%s%s", root, mount, path);
	size_t top = strlen(root) + strlen(mount);
	int least = INT_MAX;
	if (length < 0 || (size_t)length >= sizeof folder)
		return INT_MAX;
	for (;;) {
		int cpus = quota(folder);
		if (cpus < least)
			least = cpus;
		if (strlen(folder) <= top)
			return least;
		*strrchr(folder, '/') = '\0';
	}
}

/* Whether the comma-separated list has the word; an empty list has "" alone. */
static bool list_has(const char *list, const char *word)
{
	size_t length = strlen(word);
	for (;;) {
		size_t item = strcspn(list, ",");
		if (item == length && strncmp(list, word, length) == 0)
			return true;
		if (list[item] == '\0')
			return false;
		list += item + 1;
	}
}

/* A line is "ID:CONTROLLERS:/PATH". */
static int line_cpus(const char *root, char *line)
{
	char *controllers = strchr(line, ':');
	char *path = controllers ? strchr(controllers + 1, ':') : NULL;
	int least = INT_MAX;
	if (!path)
		return INT_MAX;
	controllers++;
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	for (int h = 0; h < HIERARCHIES; h++) {
		if (!list_has(controllers, hierarchies[h].controller))
			continue;
		for (int m = 0; m < 2; m++) {
			int cpus = least_quota(root, hierarchies[h].mounts[m], path, hierarchies[h].quota);
			if (cpus < least)
				least = cpus;
		}
	}
	return least;
}

int ek_cgroup_cpus(const char *root)
{
	char line[PATH_MAX];
	snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
	FILE *file = fopen(line, "re");
	int least = INT_MAX;
	if (!file)
		return INT_MAX;
	while (fgets(line, sizeof line, file)) {
		int cpus = line_cpus(root, line);
		if (cpus < least)
			least = cpus;
	}
	fclose(file);
	return least;
}

int ek_cpu_threads(void)
{
	int cpus = affinity_cpus();
	if (cpus == 0)
		cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
	int quota = ek_cgroup_cpus("");
	int threads = cpus < quota ? cpus : quota;
	return threads < 1 ? 1 : threads;
}
