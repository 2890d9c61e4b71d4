/* Names of statuses, and the last message of each thread (ek_status_name, ek_error).
 * SPDX-License-Identifier: MIT */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

#include "cpu/fpenv.h"

#define NAME(status) [status] = #status
static const char *const names[] = {
	NAME(EK_OK),
	NAME(EK_ERROR_ARGUMENT),
	NAME(EK_ERROR_STRUCT_SIZE),
	NAME(EK_ERROR_DTYPE),
	NAME(EK_ERROR_OVERLAP),
	NAME(EK_ERROR_WORKSPACE),
	NAME(EK_ERROR_UNSUPPORTED),
	NAME(EK_ERROR_NO_DEVICE),
	NAME(EK_ERROR_MEMORY),
	NAME(EK_ERROR_CUDA),
	NAME(EK_ERROR_COMPILE),
	NAME(EK_ERROR_NOT_READY),
};

/* Per thread rather than per context: many threads use one context, and ek_open can fail without one. */
static _Thread_local char message[1024];

ek_status ek_fail(ek_status status, const char *format, ...)
{
	va_list values;
	struct ek_fpenv saved = ek_fpenv_enter(); /* printf rounds decimals by the caller's mode */
	va_start(values, format);
	vsnprintf(message, sizeof message, format, values);
	va_end(values);
	ek_fpenv_leave(saved);
	return status;
}

ek_status ek_fail_struct_size(const char *name, const char *suffix, size_t size, size_t expected)
{
	return ek_fail(
		EK_ERROR_STRUCT_SIZE,
		"size (%zu) is not sizeof(%s%s) (%zu): set .size = sizeof(%s%s), with the evenkeel.h of this "
		"library (" EK_VERSION_STRING ")",
		size, name, suffix, expected, name, suffix);
}

const char *ek_status_name(ek_status status)
{
	size_t i = (size_t)status;
	return i < sizeof names / sizeof *names ? names[i] : "unknown status";
}

const char *ek_error(const ek_context *ctx)
{
	(void)ctx;
	return message;
}
