/* Contexts on the CPU: which level, how many threads. Called by ek_open and ek_close. SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "core/backend.h"
#include "core/require.h"
#include "detect.h"
#include "level.h"
#include "open.h"
#include "pool.h"

#define DEFAULT_NONTEMPORAL_BYTES (512 << 10)

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
	if (level->id == EK_LEVEL_REFERENCE)
		return 1;
	if (asked > 0)
		return asked;
	int threads = ek_cpu_threads();
	return threads < EK_MAX_THREADS ? threads : EK_MAX_THREADS;
}

static int64_t choose_nontemporal_bytes(int64_t asked)
{
	return asked == 0 ? DEFAULT_NONTEMPORAL_BYTES : asked < 0 ? INT64_MAX : asked;
}

ek_status ek_cpu_open(const ek_options *options, ek_context *ctx)
{
	ctx->nontemporal_bytes = choose_nontemporal_bytes(options->stream_bytes);
	ctx->parallel_for = options->parallel_for;
	ctx->parallel_user = options->parallel_user;
	ek_cpu_name(ctx->name, sizeof ctx->name);
	PASS_ON(choose_level(options->isa, ctx->name, &ctx->level));
	ctx->backend = ctx->level->id == EK_LEVEL_REFERENCE ? &ek_backend_reference : &ek_backend_cpu;
	ctx->threads = choose_threads(options->threads, ctx->level);
	if (ctx->threads == 1 || ctx->parallel_for)
		return EK_OK;
	ctx->pool = ek_pool_create(ctx->threads);
	REQUIRE(ctx->pool, EK_ERROR_MEMORY, "out of memory for a context of %d threads", ctx->threads);
	if (options->start_threads)
		ek_pool_start(ctx->pool);
	return EK_OK;
}

void ek_cpu_close(ek_context *ctx)
{
	ek_pool_destroy(ctx->pool);
}

void ek_cpu_describe(const ek_context *ctx, ek_description *description)
{
	description->threads = ctx->threads;
	description->isa = ctx->level->name;
	description->stream_bytes = ctx->nontemporal_bytes == INT64_MAX ? -1 : ctx->nontemporal_bytes;
	if (ctx->pool)
		description->workers = ek_pool_workers(ctx->pool, &description->workers_error);
}
