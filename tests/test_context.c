/* Opening contexts: levels by name and by environment, thread counts, refusals, descriptions, statuses,
 * messages per thread. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static void refused(const char *what, ek_options options, ek_status wanted, const char *part,
		    const char *other)
{
	ek_context *ctx = (ek_context *)&options;
	options.size = sizeof(options);
	ek_status status = ek_open(&ctx, &options);
	EXPECT(status == wanted, "%s: answered %s (\"%s\"), expected %s", what, ek_status_name(status),
	       ek_error(NULL), ek_status_name(wanted));
	EXPECT(strstr(ek_error(NULL), part) && strstr(ek_error(NULL), other),
	       "%s: the message \"%s\" does not say \"%s\" and \"%s\"", what, ek_error(NULL), part, other);
	EXPECT(!ctx || status == EK_OK, "%s: *ctx is %p after a failure, expected NULL", what, (void *)ctx);
	if (status == EK_OK)
		ek_close(ctx);
}

static void bad_options_are_refused(void)
{
	refused("unknown isa", (ek_options){.isa = "avx1024"}, EK_ERROR_ARGUMENT, "isa", "avx1024");
	refused("empty isa", (ek_options){.isa = ""}, EK_ERROR_ARGUMENT, "isa", "scalar");
	refused("negative threads", (ek_options){.threads = -2}, EK_ERROR_ARGUMENT, "threads", "-2");
	refused("unknown device", (ek_options){.device = (ek_device)9}, EK_ERROR_ARGUMENT, "device", "9");
	refused("ordinal", (ek_options){.ordinal = 1}, EK_ERROR_ARGUMENT, "ordinal", "1");
	refused("negative ordinal", (ek_options){.device = EK_CUDA, .ordinal = -3}, EK_ERROR_ARGUMENT,
		"ordinal", "-3");
	refused("nvtx", (ek_options){.device = EK_CUDA, .nvtx = 2}, EK_ERROR_ARGUMENT, "nvtx", "2");
	refused("negative nvtx", (ek_options){.nvtx = -1}, EK_ERROR_ARGUMENT, "nvtx", "-1");
	refused("start_threads", (ek_options){.start_threads = 2}, EK_ERROR_ARGUMENT, "start_threads", "2");
	refused("negative start_threads", (ek_options){.start_threads = -1}, EK_ERROR_ARGUMENT,
		"start_threads", "-1");
	refused("stream_bytes", (ek_options){.stream_bytes = -2}, EK_ERROR_ARGUMENT, "stream_bytes", "-2");
	EXPECT(ek_open(NULL, NULL) == EK_ERROR_ARGUMENT, "ek_open(NULL, NULL) is accepted");
	ek_close(NULL);
}

/* Also where there is a GPU: test_cuda_loading.c has the rest. */
static void no_driver_means_no_device(void)
{
	setenv("EVENKEEL_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
	refused("CUDA", (ek_options){.device = EK_CUDA}, EK_ERROR_NO_DEVICE, "EK_CUDA, ordinal 0",
		"/nonexistent/libcuda.so.1");
	refused("CUDA", (ek_options){.device = EK_CUDA, .ordinal = 2}, EK_ERROR_NO_DEVICE,
		"EK_CUDA, ordinal 2", "$EVENKEEL_LIBCUDA");
	unsetenv("EVENKEEL_LIBCUDA");
}

/* Of the levels that this CPU lacks, if it lacks one. */
static void a_level_that_the_cpu_lacks_is_unsupported(void)
{
	int usable;
	for (int i = 0; ek_cpu_level(i, &usable); i++)
		if (!usable)
			refused("lacking isa", (ek_options){.isa = ek_cpu_level(i, NULL)},
				EK_ERROR_UNSUPPORTED, "isa", ek_cpu_level(i, NULL));
}

static void levels_are_listed_slowest_first(void)
{
	int usable = -1;
	const char *first = ek_cpu_level(0, &usable), *second = ek_cpu_level(1, NULL);
	EXPECT(first && strcmp(first, "reference") == 0 && usable == 1, "level 0 is %s", first);
	EXPECT(second && strcmp(second, "scalar") == 0, "level 1 is %s", second);
	EXPECT(!ek_cpu_level(-1, &usable) && !ek_cpu_level(1000, &usable), "there are levels -1 and 1000");
	EXPECT(level_count() >= 1, "there is no usable level beside the reference");
}

static ek_description describe(const ek_options *options)
{
	ek_context *ctx = NULL;
	ek_description description = {.size = sizeof(description), .threads = -1, .isa = "none"};
	EXPECT(ek_open(&ctx, options) == EK_OK && ek_describe(ctx, &description) == EK_OK, "%s",
	       ek_error(NULL));
	ek_close(ctx);
	return description;
}

static void every_usable_level_opens_by_name(void)
{
	for (int i = 0; i < level_count(); i++) {
		ek_options options = {
			.size = sizeof(options), .isa = level_name(i), .threads = 3, .stream_bytes = 4096};
		ek_description d = describe(&options);
		EXPECT(strcmp(d.isa, level_name(i)) == 0, "asked for %s, got %s", level_name(i), d.isa);
		EXPECT(d.threads == 3 && d.device == EK_CPU && d.ordinal == 0 && d.stream_bytes == 4096 &&
			       d.name[0],
		       "level %s: described as %d threads, stream_bytes %lld, name \"%s\"", d.isa, d.threads,
		       (long long)d.stream_bytes, d.name);
	}
	ek_options reference = {.size = sizeof(reference), .isa = "reference", .threads = 5};
	EXPECT(describe(&reference).threads == 1, "the reference has more than one thread");
	ek_description d = describe(NULL);
	EXPECT(d.threads >= 1 && d.stream_bytes == 512 * 1024, "by default: %d threads, stream_bytes %lld",
	       d.threads, (long long)d.stream_bytes);
	ek_options of_a_gpu = {
		.size = sizeof(of_a_gpu), .cache = "/nonexistent", .pack = "/nonexistent/pack", .nvtx = 1};
	EXPECT(describe(&of_a_gpu).device == EK_CPU, "options of a GPU open device %d",
	       (int)describe(&of_a_gpu).device);
	ek_options never = {.size = sizeof(never), .stream_bytes = -1};
	EXPECT(describe(&never).stream_bytes == -1, "stream_bytes -1 is described as %lld",
	       (long long)describe(&never).stream_bytes);
}

static void the_environment_chooses_a_level(void)
{
	ek_options named = {.size = sizeof(named), .isa = level_best()};
	unsetenv("EVENKEEL_ISA");
	EXPECT(strcmp(describe(NULL).isa, level_best()) == 0, "without $EVENKEEL_ISA: %s",
	       describe(NULL).isa);
	setenv("EVENKEEL_ISA", "scalar", 1);
	EXPECT(strcmp(describe(NULL).isa, "scalar") == 0, "with $EVENKEEL_ISA scalar: %s",
	       describe(NULL).isa);
	EXPECT(strcmp(describe(&named).isa, level_best()) == 0,
	       "the option does not go before $EVENKEEL_ISA");
	setenv("EVENKEEL_ISA", "sse9", 1);
	refused("unknown $EVENKEEL_ISA", (ek_options){.threads = 1}, EK_ERROR_ARGUMENT, "EVENKEEL_ISA",
		"sse9");
	unsetenv("EVENKEEL_ISA");
}

static void strings_need_to_live_until_ek_open_returns(void)
{
	char isa[] = "scalar";
	ek_options options = {.size = sizeof(options), .isa = isa};
	ek_context *ctx = NULL;
	ek_description d = {.size = sizeof(d)};
	EXPECT(ek_open(&ctx, &options) == EK_OK, "%s", ek_error(NULL));
	memset(isa, 'x', sizeof(isa));
	memset(&options, 0xff, sizeof(options));
	EXPECT(ek_describe(ctx, &d) == EK_OK, "%s", ek_error(ctx));
	ek_close(ctx);
	EXPECT(d.isa && strcmp(d.isa, "scalar") == 0, "isa is %s after ek_close", d.isa);
}

/* ---- structs of version 0.1 ---- */

/* As 0.1's header had them. */
struct options_0_1 {
	size_t size;
	ek_device device;
	int ordinal, threads;
	const char *isa;
	ek_parallel_for parallel_for;
	void *parallel_user;
	int64_t stream_bytes;
	const char *cache, *pack;
	int nvtx;
};

struct description_0_1 {
	size_t size;
	ek_device device;
	int ordinal, threads;
	const char *isa;
	char name[96];
	int64_t stream_bytes;
};

/* Ends at a page that may not be read, with 0xA5 in the padding. */
static ek_options *options_0_1(struct buffer *buffer, const char *isa, int threads)
{
	buffer_reset(buffer, sizeof(struct options_0_1), PLACE_GUARD_AFTER, 0);
	struct options_0_1 *options = (struct options_0_1 *)buffer->data;
	options->size = sizeof *options, options->device = EK_CPU, options->ordinal = 0;
	options->threads = threads, options->isa = isa, options->parallel_for = NULL;
	options->parallel_user = NULL, options->stream_bytes = 4096, options->cache = options->pack = NULL;
	options->nvtx = 0;
	return (ek_options *)buffer->data;
}

static void options_of_version_0_1_open(void)
{
	static struct buffer buffer;
	ek_context *ctx = NULL;
	ek_description d = {.size = sizeof(d)};
	ek_options *options = options_0_1(&buffer, level_best(), 3);
	EXPECT(ek_open(&ctx, options) == EK_OK && ek_describe(ctx, &d) == EK_OK, "%s", ek_error(NULL));
	EXPECT(d.threads == 3 && d.stream_bytes == 4096 && d.workers == 0,
	       "opened with %d threads, stream_bytes %lld, %d workers; expected 3, 4096, 0", d.threads,
	       (long long)d.stream_bytes, d.workers);
	ek_close(ctx);
	for (int change = -8; change <= -1; change++) {
		options->size = sizeof(struct options_0_1) + (size_t)change;
		EXPECT(ek_open(&ctx, options) == EK_ERROR_STRUCT_SIZE && !ctx, "size %zu is accepted",
		       options->size);
	}
}

static void a_description_of_version_0_1_is_not_written_past_its_end(void)
{
	static struct buffer buffer;
	ek_context *ctx = context_of((struct setting){level_best(), 1, PLAIN});
	static const enum placement placements[] = {PLACE_GUARD_AFTER, PLACE_OFFSET};
	for (int i = 0; i < COUNT_OF(placements); i++) {
		buffer_reset(&buffer, sizeof(struct description_0_1), placements[i], 0);
		struct description_0_1 *d = (struct description_0_1 *)buffer.data;
		d->size = sizeof *d;
		ek_status status = ek_describe(ctx, (ek_description *)buffer.data);
		EXPECT(status == EK_OK, "%s", ek_error(ctx));
		EXPECT(status == EK_OK && d->size == sizeof *d && d->threads == 1 &&
			       strcmp(d->isa, level_best()) == 0 && d->stream_bytes == 512 * 1024,
		       "size %zu, threads %d, isa %s, stream_bytes %lld", d->size, d->threads, d->isa,
		       (long long)d->stream_bytes);
		EXPECT(placements[i] != PLACE_OFFSET || buffer_margins_whole(&buffer),
		       "bytes around the description were written");
	}
}

static void names_of_statuses_and_dtypes(void)
{
	static const char *const names[] = {"EK_OK",
					    "EK_ERROR_ARGUMENT",
					    "EK_ERROR_STRUCT_SIZE",
					    "EK_ERROR_DTYPE",
					    "EK_ERROR_OVERLAP",
					    "EK_ERROR_WORKSPACE",
					    "EK_ERROR_UNSUPPORTED",
					    "EK_ERROR_NO_DEVICE",
					    "EK_ERROR_MEMORY",
					    "EK_ERROR_CUDA",
					    "EK_ERROR_COMPILE",
					    "EK_ERROR_NOT_READY"};
	for (int i = 0; i < COUNT_OF(names); i++)
		EXPECT(strcmp(ek_status_name((ek_status)i), names[i]) == 0, "status %d is %s", i,
		       ek_status_name((ek_status)i));
	EXPECT(strcmp(ek_status_name((ek_status)COUNT_OF(names)), "unknown status") == 0, "status %d is %s",
	       COUNT_OF(names), ek_status_name((ek_status)COUNT_OF(names)));
	EXPECT(strcmp(ek_status_name((ek_status)-1), "unknown status") == 0, "status -1 is %s",
	       ek_status_name((ek_status)-1));
	static const struct {
		ek_dtype dtype;
		const char *name;
		size_t size;
	} dtypes[] = {{EK_F32, "f32", 4},          {EK_F16, "f16", 2},          {EK_BF16, "bf16", 2},
		      {EK_F64, "f64", 8},          {(ek_dtype)0, "unknown", 0}, {(ek_dtype)5, "unknown", 0},
		      {(ek_dtype)-1, "unknown", 0}};
	for (int i = 0; i < COUNT_OF(dtypes); i++)
		EXPECT(strcmp(ek_dtype_name(dtypes[i].dtype), dtypes[i].name) == 0 &&
			       ek_dtype_size(dtypes[i].dtype) == dtypes[i].size,
		       "dtype %d is %s of %zu bytes", (int)dtypes[i].dtype, ek_dtype_name(dtypes[i].dtype),
		       ek_dtype_size(dtypes[i].dtype));
	EXPECT(strcmp(ek_version(), EK_VERSION_STRING) == 0 && ek_numerics_version() == EK_NUMERICS_VERSION,
	       "version %s, numerics %d", ek_version(), ek_numerics_version());
}

static void *other_thread(void *ctx)
{
	bool clean = ek_error(ctx)[0] == 0;
	ek_norm_forward(ctx, &(ek_norm_forward_args){.size = 1});
	return clean && strstr(ek_error(ctx), "size") ? ctx : NULL;
}

static void messages_belong_to_threads(void)
{
	ek_context *ctx = context_of((struct setting){level_best(), 1, PLAIN});
	pthread_t thread;
	void *fine = NULL;
	ek_norm_forward(ctx, &(ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
						     .norm = EK_LAYER_NORM,
						     .rows = -9});
	EXPECT(pthread_create(&thread, NULL, other_thread, ctx) == 0 && pthread_join(thread, &fine) == 0,
	       "no thread");
	EXPECT(fine, "a new thread has another's message, or not its own");
	EXPECT(strstr(ek_error(ctx), "-9"), "after another thread's failure this one's message is \"%s\"",
	       ek_error(ctx));
}

int main(int argc, char **argv)
{
	test_begin(argc, argv);
	TEST(bad_options_are_refused);
	TEST(no_driver_means_no_device);
	TEST(a_level_that_the_cpu_lacks_is_unsupported);
	TEST(levels_are_listed_slowest_first);
	TEST(every_usable_level_opens_by_name);
	TEST(the_environment_chooses_a_level);
	TEST(strings_need_to_live_until_ek_open_returns);
	TEST(options_of_version_0_1_open);
	TEST(a_description_of_version_0_1_is_not_written_past_its_end);
	TEST(names_of_statuses_and_dtypes);
	TEST(messages_belong_to_threads);
	return test_end();
}
