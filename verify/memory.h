/* Memory where a context computes: the host's, or a GPU's own. SPDX-License-Identifier: MIT */
#ifndef VERIFY_MEMORY_H
#define VERIFY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "evenkeel.h"

struct ek_gpu;

/* The GPU that a context computes on; NULL: the CPU. The functions below take NULL as "the host". */
struct ek_gpu *gpu_of(const ek_context *ctx);

/* Zeros, aligned to 64 bytes on the host and to 256 on a GPU. NULL: there is not so much. */
void *memory_make(struct ek_gpu *gpu, size_t bytes);
void memory_free(struct ek_gpu *gpu, void *memory); /* NULL is allowed */

/* From and to the host's memory. They have waited for what was launched on the default stream. */
ek_status memory_write(struct ek_gpu *gpu, void *to, const void *from, size_t bytes);
ek_status memory_read(struct ek_gpu *gpu, void *to, const void *from, size_t bytes);

/* Copies the first `step` bytes behind themselves, until they are there `count` times. */
ek_status memory_repeat(struct ek_gpu *gpu, void *memory, size_t step, int64_t count);

/* Whether there is memory for that many bytes. */
bool memory_suffices(struct ek_gpu *gpu, double bytes);

#endif
