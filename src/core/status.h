/* Failing with a message: every refusal of the library goes through ek_fail.
 * SPDX-License-Identifier: MIT */
#ifndef EK_STATUS_H
#define EK_STATUS_H

#include "evenkeel.h"

/* Keeps the message for the calling thread's ek_error and returns status. */
__attribute__((cold, format(printf, 2, 3))) ek_status ek_fail(ek_status status, const char *format, ...);

/* A struct of a size that this library does not know; the struct is called name and suffix. */
__attribute__((cold)) ek_status ek_fail_struct_size(const char *name, const char *suffix, size_t size,
						    size_t expected);

#endif
