/* How a check reads: the condition that should hold, the status and the message where it does not. Formats nothing
 * before a rule is broken. Used by check.c, cost/ and cuda/norm.c. SPDX-License-Identifier: MIT */
#ifndef EK_REQUIRE_H
#define EK_REQUIRE_H

#include "status.h"

#define REQUIRE(condition, status, ...)                      \
	do {                                                 \
		if (__builtin_expect(!(condition), 0))       \
			return ek_fail(status, __VA_ARGS__); \
	} while (0)

/* first: the struct's size in the first version that had it. Later versions append fields and accept every size since. */
#define REQUIRE_SIZE_SINCE(given, type, first)                                         \
	REQUIRE((given) >= (first) && (given) <= sizeof(type), EK_ERROR_STRUCT_SIZE,   \
		"size (%zu) is not sizeof(" #type ") (%zu): set .size = sizeof(" #type \
		"), with the evenkeel.h of this library (" EK_VERSION_STRING ")",      \
		(size_t)(given), sizeof(type))

#define REQUIRE_SIZE(given, type) REQUIRE_SIZE_SINCE(given, type, sizeof(type))

/* Passes on what another call found. */
#define PASS_ON(call)                                      \
	do {                                               \
		ek_status status_ = (call);                \
		if (__builtin_expect(status_ != EK_OK, 0)) \
			return status_;                    \
	} while (0)

#endif
