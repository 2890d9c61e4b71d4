/* What the machine is: features and caches of its CPU (detect.c), how many threads this process may run
 * at once (affinity.c). level.c, open.c and `evenkeel info` ask. SPDX-License-Identifier: MIT */
#ifndef EK_CPU_DETECT_H
#define EK_CPU_DETECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
bool ek_has_avx2(void);       /* with FMA and F16C */
bool ek_has_avx512(void);     /* F, BW, DQ, VL, and all of ek_has_avx2 */
bool ek_has_avx512bf16(void); /* that and AVX512_BF16 */
#elif defined(__aarch64__)
bool ek_has_neon(void);
#endif

/* The CPU's name as it gives it, cut to fit. */
void ek_cpu_name(char *name, size_t size);

/* Bytes of the data (or unified) cache of level 1, 2 or 3; 0: none, or not known. */
int64_t ek_cpu_cache_bytes(int level);

/* Threads that the affinity mask and the cgroups' CPU quota let run at once; at least 1. */
int ek_cpu_threads(void);

/* CPUs that the quotas allow, rounded up; INT_MAX without any. root goes before the paths under /proc and
 * /sys that are read: "" but in tests. */
int ek_cgroup_cpus(const char *root);

#endif
