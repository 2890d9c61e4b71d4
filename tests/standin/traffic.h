/* The bytes of device memory that launches move, counted where a test asks for it (standin_traffic_count of standin.h).
 * SPDX-License-Identifier: MIT */
#ifndef STANDIN_TRAFFIC_H
#define STANDIN_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>

#include "memory.h"

extern bool traffic_counts; /* the running launch */

enum traffic_kind { TRAFFIC_READ = 1, TRAFFIC_WRITTEN = 2 };

/* Around a launch, whose name stays while it runs; one at a time. */
void traffic_begin(const char *kernel);
void traffic_end(void);

/* An access of the running launch to an allocation; for launches that are counted. */
void traffic_add(const struct memory_range *allocation, const void *address, size_t bytes,
		 enum traffic_kind kind);

#endif
