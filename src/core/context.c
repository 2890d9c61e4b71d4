/* Versions, dtypes and contexts: ek_open validates its options and leaves the rest to the backend's open (cpu/open.c,
 * gpu/open.c). SPDX-License-Identifier: MIT */
#include "context.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "dtype.h"
#include "versions.h"

/* ---- versions and dtypes ---- */

const char *ek_version(void)
{
	return EK_VERSION_STRING;
}

int ek_numerics_version(void)
{
	return EK_NUMERICS_VERSION;
}

#define SIZE_CASE(dtype, name, bytes) \
	case dtype:                   \
		return bytes;
#define NAME_CASE(dtype, name, bytes) \
	case dtype:                   \
		return #name;

size_t ek_dtype_size(ek_dtype dtype)
{
	switch (dtype) {
		EK_DTYPES(SIZE_CASE)
	}
	return 0;
}

const char *ek_dtype_name(ek_dtype dtype)
{
	switch (dtype) {
		EK_DTYPES(NAME_CASE)
	}
	return "unknown";
}

#define LISTED(dtype, name, bytes) ", " #name
#define DTYPE_LIST (&(EK_DTYPES(LISTED))[2])

ek_status ek_check_dtype(const char *name, ek_dtype *dtype, ek_dtype otherwise)
{
	if ((int)*dtype == 0)
		*dtype = otherwise;
	REQUIRE(ek_is_dtype(*dtype), EK_ERROR_DTYPE, "%s (%d) is unknown; expected %s", name, (int)*dtype,
		DTYPE_LIST);
	return EK_OK;
}

/* ---- options ---- */

/* *resolved becomes a copy of options, or the defaults where options is NULL; fields that the caller's version of the struct
 * does not have are zero. isa is looked up later. */
static ek_status check_options(const ek_options *options, ek_options *resolved)
{
	const ek_options *o = resolved;
	*resolved = (ek_options){.size = sizeof *resolved};
	if (!options)
		return EK_OK;
	REQUIRE_SIZE(options->size, ek_options);
	memcpy(resolved, options, options->size); /* the fields of later versions stay zero */
	REQUIRE(o->device == EK_CPU || o->device == EK_CUDA, EK_ERROR_ARGUMENT,
		"device (%d) is neither EK_CPU (%d) nor EK_CUDA (%d)", (int)o->device, (int)EK_CPU,
		(int)EK_CUDA);
	REQUIRE(o->ordinal >= 0, EK_ERROR_ARGUMENT, "ordinal (%d) must not be negative", o->ordinal);
	REQUIRE(o->nvtx == 0 || o->nvtx == 1, EK_ERROR_ARGUMENT, "nvtx (%d) must be 0 or 1", o->nvtx);
	REQUIRE(o->start_threads == 0 || o->start_threads == 1, EK_ERROR_ARGUMENT,
		"start_threads (%d) must be 0 or 1", o->start_threads);
	REQUIRE(o->trust_pointers == 0 || o->trust_pointers == 1, EK_ERROR_ARGUMENT,
		"trust_pointers (%d) must be 0 or 1", o->trust_pointers);
	REQUIRE(o->ordinal == 0 || o->device == EK_CUDA, EK_ERROR_ARGUMENT,
		"ordinal (%d) must be 0 on the CPU", o->ordinal);
	REQUIRE(o->threads >= 0 && o->threads <= EK_MAX_THREADS, EK_ERROR_ARGUMENT,
		"threads (%d) is not in 0 to %d", o->threads, EK_MAX_THREADS);
	REQUIRE(o->stream_bytes >= -1, EK_ERROR_ARGUMENT, "stream_bytes (%" PRId64 ") must be at least -1",
		o->stream_bytes);
	return EK_OK;
}

/* ---- contexts ---- */

ek_status ek_open(ek_context **ctx, const ek_options *options)
{
	ek_options resolved;
	REQUIRE(ctx, EK_ERROR_ARGUMENT, "ctx is NULL: give the address of the ek_context * to set");
	*ctx = NULL; /* what a caller finds after any failure below */
	PASS_ON(check_options(options, &resolved));
	ek_context opened = {.device = resolved.device, .ordinal = resolved.ordinal};
	PASS_ON(resolved.device == EK_CUDA ? ek_cuda_open(&resolved, &opened)
					   : ek_cpu_open(&resolved, &opened));
	ek_context *made = malloc(sizeof *made);
	if (!made) {
		opened.backend->close(&opened);
		return ek_fail(EK_ERROR_MEMORY, "out of memory for a context");
	}
	*made = opened;
	*ctx = made;
	return EK_OK;
}

void ek_close(ek_context *ctx)
{
	if (!ctx)
		return;
	ctx->backend->close(ctx);
	free(ctx);
}

ek_status ek_describe(const ek_context *ctx, ek_description *description)
{
	REQUIRE(ctx, EK_ERROR_ARGUMENT, "ctx is NULL: make one with ek_open");
	REQUIRE(description, EK_ERROR_ARGUMENT, "description is NULL: give the address of an ek_description");
	REQUIRE_SIZE(description->size, ek_description);
	ek_description d = {.size = description->size, .device = ctx->device, .ordinal = ctx->ordinal};
	memcpy(d.name, ctx->name, sizeof d.name);
	ctx->backend->describe(ctx, &d);
	memcpy(description, &d, description->size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}
