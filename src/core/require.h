/* How a check reads: the condition that should hold, the status and the message where it does not. Formats nothing
 * before a rule is broken. Used by core/, ops/, cost/ and gpu/. SPDX-License-Identifier: MIT */
#ifndef EK_CORE_REQUIRE_H
#define EK_CORE_REQUIRE_H

#include "status.h"

#define REQUIRE(condition, status, ...)                      \
	do {                                                 \
		if (__builtin_expect(!(condition), 0))       \
			return ek_fail(status, __VA_ARGS__); \
	} while (0)

/* Passes on what another call found. */
#define PASS_ON(call)                                      \
	do {                                               \
		ek_status status_ = (call);                \
		if (__builtin_expect(status_ != EK_OK, 0)) \
			return status_;                    \
	} while (0)

#endif
