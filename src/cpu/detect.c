/* Features, name and caches of the CPU, from CPUID and XGETBV on x86-64, from HWCAP and /proc on arm64.
 * level.c asks for features, open.c for the name. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "detect.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- features and name ---- */

#if defined(__x86_64__)

#include <cpuid.h>

enum { HAS_AVX2 = 1, HAS_AVX512 = 2, HAS_AVX512BF16 = 4, KNOWN = 8 };

struct registers {
	unsigned a, b, c, d;
};

/* Zeros for a leaf that the CPU does not have. */
static struct registers cpuid(unsigned leaf, unsigned subleaf)
{
	struct registers r = {0, 0, 0, 0};
	__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
	return r;
}

/* The register state that the OS saves on a switch: without it the instructions fault, whatever CPUID
 * says. */
static uint64_t saved_state(void)
{
	if ((cpuid(1, 0).c & bit_OSXSAVE) == 0)
		return 0;
	uint32_t low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

static bool all(uint64_t value, uint64_t bits)
{
	return (value & bits) == bits;
}

static unsigned detect(void)
{
	const uint64_t ymm = 0x06;       /* XMM, upper halves of YMM */
	const uint64_t zmm = 0xE0 | ymm; /* opmasks, upper halves of ZMM0-15, ZMM16-31 */
	const unsigned bf16 = 1u << 5;   /* leaf 7.1 EAX */
	uint64_t state = saved_state();
	struct registers base = cpuid(1, 0), more = cpuid(7, 0);
	unsigned has = KNOWN;
	if (all(state, ymm) && all(base.c, bit_FMA | bit_F16C | bit_AVX) && all(more.b, bit_AVX2))
		has |= HAS_AVX2;
	if ((has & HAS_AVX2) && all(state, zmm) &&
	    all(more.b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL))
		has |= HAS_AVX512;
	if ((has & HAS_AVX512) && more.a >= 1 && all(cpuid(7, 1).a, bf16))
		has |= HAS_AVX512BF16;
	return has;
}

/* Asked once: under a hypervisor each CPUID is a trip out of the guest. Two threads may both ask. */
static unsigned features(void)
{
	static _Atomic unsigned cached;
	unsigned has = atomic_load_explicit(&cached, memory_order_relaxed);
	if (has == 0) {
		has = detect();
		atomic_store_explicit(&cached, has, memory_order_relaxed);
	}
	return has;
}

bool ek_has_avx2(void)
{
	return features() & HAS_AVX2;
}

bool ek_has_avx512(void)
{
	return features() & HAS_AVX512;
}

bool ek_has_avx512bf16(void)
{
	return features() & HAS_AVX512BF16;
}

/* 48 characters from three leaves, then a NUL; all NUL where the CPU has no such leaves. */
static void read_name(char brand[64])
{
	memset(brand, 0, 64);
	for (unsigned i = 0; i < 3; i++) {
		struct registers r = cpuid(0x80000002u + i, 0);
		memcpy(brand + 16 * i, &r, sizeof r);
	}
}

#define FALLBACK_NAME "x86-64"

#elif defined(__aarch64__)

#include <sys/auxv.h>

bool ek_has_neon(void)
{
	const unsigned long asimd = 1ul << 1; /* HWCAP_ASIMD */
	return (getauxval(AT_HWCAP) & asimd) != 0;
}

/* arm64 has no name in a register; some kernels give one. */
static void read_name(char brand[64])
{
	memset(brand, 0, 64);
	FILE *file = fopen("/proc/cpuinfo", "re");
	if (!file)
		return;
	char line[256];
	while (!*brand && fgets(line, sizeof line, file))
		if (strncmp(line, "model name", 10) == 0 || strncmp(line, "Hardware", 8) == 0)
			sscanf(line, "%*[^:]: %63[^\n]", brand);
	fclose(file);
}

#define FALLBACK_NAME "arm64"

#else
#error "evenkeel runs on x86-64 and arm64"
#endif

void ek_cpu_name(char *name, size_t size)
{
	char brand[64];
	read_name(brand);
	const char *first = brand + strspn(brand, " ");
	size_t length = strlen(first);
	while (length > 0 && first[length - 1] == ' ')
		length--;
	snprintf(name, size, "%.*s", (int)length, first);
	if (length == 0)
		snprintf(name, size, "%s", FALLBACK_NAME);
}

/* ---- caches ---- */

/* The first line of a file of /sys about cache `index` of CPU 0. */
static bool read_cache_file(int index, const char *file_name, char *text, int size)
{
	char path[96];
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, file_name);
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	bool read = fgets(text, size, file) != NULL;
	fclose(file);
	return read;
}

static int64_t cache_bytes_from_sys(int level)
{
	char text[32];
	for (int index = 0; read_cache_file(index, "level", text, sizeof text); index++) {
		if (atoi(text) != level || !read_cache_file(index, "type", text, sizeof text) || *text == 'I')
			continue; /* another level, or instructions */
		if (!read_cache_file(index, "size", text, sizeof text))
			continue;
		char *unit;
		int64_t size = strtoll(text, &unit, 10);
		return *unit == 'K' ? size << 10 : *unit == 'M' ? size << 20 : size;
	}
	return 0;
}

/* /sys first: for some CPUs what sysconf gives for level 3 is not what one core can use. */
int64_t ek_cpu_cache_bytes(int level)
{
	int64_t bytes = cache_bytes_from_sys(level);
#if defined(_SC_LEVEL1_DCACHE_SIZE)
	const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
	if (bytes == 0 && level >= 1 && level <= 3)
		bytes = sysconf(names[level - 1]);
#endif
	return bytes > 0 ? bytes : 0;
}
