/* The devices that the commands run on. Called by every command. SPDX-License-Identifier: MIT */
#include "device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "copy.h"
#include "core/context.h"
#include "gpu/gpu.h"
#include "options.h"

int device_exit_status(ek_status status)
{
	bool device = status == EK_ERROR_NO_DEVICE || status == EK_ERROR_UNSUPPORTED ||
		      status == EK_ERROR_CUDA || status == EK_ERROR_COMPILE;
	return device ? STATUS_NO_DEVICE : STATUS_USAGE;
}

int device_open(ek_context **ctx, const struct options *options)
{
	if (options->device == EK_CPU)
		return open_context(ctx, options->isa, options->threads, 0);
	ek_options asked = {.size = sizeof asked, .device = options->device, .ordinal = options->ordinal};
	ek_status status = ek_open(ctx, &asked);
	if (status == EK_OK)
		return STATUS_FINE;
	return complain(device_exit_status(status), "%s", ek_error(NULL));
}

int device_gpus(void)
{
	ek_cuda_info cuda = {.size = sizeof cuda};
	(void)ek_describe_cuda(&cuda); /* which cannot fail with this */
	return cuda.gpu_count;
}

struct team *team_start(int threads)
{
	struct team *team = team_create(threads);
	if (!team)
		complain(STATUS_USAGE, "--threads %d: cannot be started (%s): name fewer", threads,
			 strerror(errno));
	return team;
}

struct device_words device_words(const ek_context *ctx)
{
	struct device_words words = {.name = "cpu"};
	ek_description description = {.size = sizeof description};
	(void)ek_describe(ctx, &description);
	if (ctx->gpu) {
		words.gpu = true;
		(void)snprintf(words.name, sizeof words.name, "cuda:%d", description.ordinal);
		(void)snprintf(words.isa, sizeof words.isa, "sm_%d", ctx->gpu->limits.arch);
		(void)snprintf(words.text, sizeof words.text, "%s (%s, %s)", words.name, description.name,
			       words.isa);
		return words;
	}
	words.threads = description.threads;
	(void)snprintf(words.isa, sizeof words.isa, "%s", description.isa);
	(void)snprintf(words.text, sizeof words.text, "%s, %d thread%s", words.isa, words.threads,
		       words.threads == 1 ? "" : "s");
	return words;
}
