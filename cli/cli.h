/* What every file of the program shares: exit statuses, the commands, and how errors are said.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_H
#define CLI_H

#include <stdint.h>

#include "evenkeel.h"

struct options;

/* Scripts rely on these numbers. */
enum {
	STATUS_FINE = 0,
	STATUS_CHECK_FAILED = 1, /* or standard output cannot be written */
	STATUS_USAGE = 2,        /* bad arguments; also what they ask for does not fit or cannot be written */
	STATUS_NO_DEVICE = 3     /* it is not there, or cannot be used */
};

/* A printf-like function, for the compiler to check its arguments. */
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* Writes "evenkeel: " and one line to standard error, and returns status. */
int complain(int status, const char *format, ...) PRINTF_LIKE(2, 3);

/* Opens a context on the CPU; device_open (device.h) does what --device asks for. isa NULL: the best; threads
 * 0: all; stream_bytes 0: the default. Returns an exit status, and has complained unless that is STATUS_FINE. */
int open_context(ek_context **ctx, const char *isa, int threads, int64_t stream_bytes);

int command_info(const struct options *options);
int command_run(const struct options *options);
int command_verify(const struct options *options);
int command_bench(const struct options *options);
int command_warmup(const struct options *options);
int command_explain(const struct options *options);

#endif
