/* What the operating system says of the machine. SPDX-License-Identifier: MIT */
#ifndef CLI_SYSTEM_H
#define CLI_SYSTEM_H

/* Bytes of the first CPU's caches (l1d and l2 of one core, l3 of the socket); 0: not known. */
struct caches {
	long long l1d, l2, l3;
};

struct caches system_caches(void);

#endif
