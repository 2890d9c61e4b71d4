/* The public functions: judge the arguments (check.c), choose reference or backend, run it.
 * SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "context.h"
#include "cpu/detect.h"
#include "cpu/fpenv.h"
#include "cpu/level.h"
#include "cpu/norm.h"
#include "cpu/pool.h"
#include "cuda/gpu.h"
#include "cuda/norm.h"
#include "dtype.h"
#include "ref/norm.h"
#include "require.h"

#define DEFAULT_STREAM_BYTES (512 << 10)

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

/* ---- context ---- */

const char *ek_cpu_level(int index, int *usable)
{
	const struct ek_level *level = ek_level_at(index);
	if (!level)
		return NULL;
	if (usable)
		*usable = level->usable() ? 1 : 0;
	return level->name;
}

static ek_status fail_unknown_level(const char *source, const char *name)
{
	char list[160] = "";
	for (int i = 0; ek_level_at(i); i++) {
		if (i > 0)
			strncat(list, ", ", sizeof list - strlen(list) - 1);
		strncat(list, ek_level_at(i)->name, sizeof list - strlen(list) - 1);
	}
	return ek_fail(EK_ERROR_ARGUMENT, "%s \"%.64s\" is unknown; expected %s", source, name, list);
}

/* By the option, else by the environment, else the best. */
static ek_status choose_level(const char *isa, const char *cpu_name, const struct ek_level **level)
{
	const char *source = "isa";
	if (!isa) {
		source = "$EVENKEEL_ISA";
		isa = getenv("EVENKEEL_ISA");
		if (!isa || !*isa) {
			*level = ek_level_best();
			return EK_OK;
		}
	}
	*level = ek_level_named(isa);
	if (!*level)
		return fail_unknown_level(source, isa);
	if (!(*level)->usable())
		return ek_fail(EK_ERROR_UNSUPPORTED,
			       "%s \"%s\" cannot run on this CPU (%s), whose best is \"%s\"", source, isa,
			       cpu_name, ek_level_best()->name);
	return EK_OK;
}

static int choose_threads(int asked, const struct ek_level *level)
{
	if (!level->norm)
		return 1;
	if (asked > 0)
		return asked;
	int threads = ek_cpu_threads();
	return threads < EK_MAX_THREADS ? threads : EK_MAX_THREADS;
}

static int64_t choose_stream_bytes(int64_t asked)
{
	return asked == 0 ? DEFAULT_STREAM_BYTES : asked < 0 ? INT64_MAX : asked;
}

static ek_status open_gpu(ek_context **ctx, const ek_options *options)
{
	ek_context *made = malloc(sizeof *made);
	if (!made)
		return ek_fail(EK_ERROR_MEMORY, "out of memory for a context");
	*made = (ek_context){.device = EK_CUDA, .ordinal = options->ordinal};
	ek_status status = ek_gpu_open(options, &made->gpu);
	if (status != EK_OK) {
		free(made);
		return status;
	}
	memcpy(made->name, made->gpu->name, sizeof made->name);
	*ctx = made;
	return EK_OK;
}

static ek_status open_cpu(ek_context **ctx, const ek_options *options)
{
	ek_context opened = {.device = EK_CPU,
			     .stream_bytes = choose_stream_bytes(options->stream_bytes),
			     .parallel_for = options->parallel_for,
			     .parallel_user = options->parallel_user};
	ek_cpu_name(opened.name, sizeof opened.name);
	PASS_ON(choose_level(options->isa, opened.name, &opened.level));
	opened.threads = choose_threads(options->threads, opened.level);
	bool needs_pool = opened.threads > 1 && !opened.parallel_for;
	if (needs_pool)
		opened.pool = ek_pool_create(opened.threads);
	ek_context *made = malloc(sizeof *made);
	if (!made || (needs_pool && !opened.pool)) {
		ek_pool_destroy(opened.pool);
		free(made);
		return ek_fail(EK_ERROR_MEMORY, "out of memory for a context of %d threads", opened.threads);
	}
	if (opened.pool && options->start_threads)
		ek_pool_start(opened.pool);
	*made = opened;
	*ctx = made;
	return EK_OK;
}

ek_status ek_open(ek_context **ctx, const ek_options *options)
{
	ek_options resolved;
	REQUIRE(ctx, EK_ERROR_ARGUMENT, "ctx is NULL: give the address of the ek_context * to set");
	*ctx = NULL; /* what a caller finds after any failure below */
	PASS_ON(ek_check_options(options, &resolved));
	return resolved.device == EK_CUDA ? open_gpu(ctx, &resolved) : open_cpu(ctx, &resolved);
}

void ek_close(ek_context *ctx)
{
	if (!ctx)
		return;
	ek_pool_destroy(ctx->pool);
	ek_gpu_close(ctx->gpu);
	free(ctx);
}

ek_status ek_describe(const ek_context *ctx, ek_description *description)
{
	PASS_ON(ek_check_describe(ctx, description));
	ek_description d = {.size = description->size,
			    .device = ctx->device,
			    .ordinal = ctx->ordinal,
			    .threads = ctx->threads,
			    .isa = ctx->gpu ? "cuda" : ctx->level->name,
			    .stream_bytes = ctx->stream_bytes == INT64_MAX ? -1 : ctx->stream_bytes};
	memcpy(d.name, ctx->name, sizeof d.name);
	if (ctx->pool)
		d.workers = ek_pool_workers(ctx->pool, &d.workers_error);
	memcpy(description, &d, description->size); /* an earlier version of the struct ends sooner */
	return EK_OK;
}

/* ---- normalization ---- */

ek_status ek_norm_forward(ek_context *ctx, const ek_norm_forward_args *args)
{
	ek_norm_forward_args resolved;
	ek_status status = ek_check_norm_forward(ctx, args, &resolved);
	if (status != EK_OK || resolved.rows == 0)
		return status;
	if (ctx->gpu)
		return ek_cuda_norm_forward(ctx->gpu, &resolved, false);
	struct ek_fpenv saved = ek_fpenv_enter();
	if (ctx->level->norm)
		ek_cpu_norm_forward(ctx, &resolved);
	else
		ek_ref_norm_forward(&resolved);
	ek_fpenv_leave(saved);
	return EK_OK;
}

ek_status ek_norm_forward_prepare(ek_context *ctx, const ek_norm_forward_args *args)
{
	ek_norm_forward_args resolved;
	ek_status status = ek_check_norm_forward(ctx, args, &resolved);
	if (status != EK_OK || !ctx->gpu)
		return status;
	return ek_cuda_norm_forward(ctx->gpu, &resolved, true);
}

static size_t backward_workspace(const ek_context *ctx, const ek_norm_backward_args *resolved)
{
	if (ctx->gpu)
		return ek_cuda_norm_backward_workspace(ctx->gpu, resolved);
	return ctx->level->norm ? ek_cpu_norm_backward_workspace(ctx, resolved)
				: ek_ref_norm_backward_workspace(resolved);
}

ek_status ek_norm_backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args, size_t *bytes)
{
	ek_norm_backward_args resolved;
	ek_status status = ek_check_norm_backward_sizes(ctx, args, &resolved);
	if (status != EK_OK)
		return status;
	if (!bytes)
		return ek_fail(EK_ERROR_ARGUMENT, "bytes is NULL: give the address of the size_t to set");
	*bytes = backward_workspace(ctx, &resolved);
	return EK_OK;
}

static ek_status check_norm_backward(const ek_context *ctx, const ek_norm_backward_args *args,
				     ek_norm_backward_args *resolved)
{
	ek_status status = ek_check_norm_backward_sizes(ctx, args, resolved);
	if (status != EK_OK)
		return status;
	return ek_check_norm_backward_buffers(ctx, resolved, backward_workspace(ctx, resolved));
}

ek_status ek_norm_backward(ek_context *ctx, const ek_norm_backward_args *args)
{
	ek_norm_backward_args resolved;
	ek_status status = check_norm_backward(ctx, args, &resolved);
	if (status != EK_OK)
		return status;
	if (ctx->gpu)
		return ek_cuda_norm_backward(ctx->gpu, &resolved, false);
	/* No rows still means sums to write, of nothing. */
	struct ek_fpenv saved = ek_fpenv_enter();
	if (ctx->level->norm)
		ek_cpu_norm_backward(ctx, &resolved);
	else
		ek_ref_norm_backward(&resolved);
	ek_fpenv_leave(saved);
	return EK_OK;
}

ek_status ek_norm_backward_prepare(ek_context *ctx, const ek_norm_backward_args *args)
{
	ek_norm_backward_args resolved;
	ek_status status = check_norm_backward(ctx, args, &resolved);
	if (status != EK_OK || !ctx->gpu)
		return status;
	return ek_cuda_norm_backward(ctx->gpu, &resolved, true);
}
