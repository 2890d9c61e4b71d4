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

TEST(bad_options_are_refused)
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
	refused("trust_pointers", (ek_options){.trust_pointers = 2}, EK_ERROR_ARGUMENT, "trust_pointers",
		"must be 0 or 1");
	refused("stream_bytes", (ek_options){.stream_bytes = -2}, EK_ERROR_ARGUMENT, "stream_bytes", "-2");
	EXPECT(ek_open(NULL, NULL) == EK_ERROR_ARGUMENT, "ek_open(NULL, NULL) is accepted");
	ek_close(NULL);
}

static void not_described(const char *what, ek_status status, ek_status wanted, const char *part)
{
	EXPECT(status == wanted && strstr(ek_error(NULL), part), "%s: %s, \"%s\"; expected %s and \"%s\"",
	       what, ek_status_name(status), ek_error(NULL), ek_status_name(wanted), part);
}

TEST(descriptions_of_another_size_are_refused)
{
	ek_cuda_info cuda = {.size = sizeof(cuda) + 1};
	ek_gpu_info gpu = {.size = 0};
	not_described("size", ek_describe_cuda(&cuda), EK_ERROR_STRUCT_SIZE, "sizeof(ek_cuda_info)");
	not_described("size", ek_describe_gpu(0, &gpu), EK_ERROR_STRUCT_SIZE, "sizeof(ek_gpu_info)");
	not_described("NULL", ek_describe_cuda(NULL), EK_ERROR_ARGUMENT, "info is NULL");
	not_described("NULL", ek_describe_gpu(0, NULL), EK_ERROR_ARGUMENT, "info is NULL");
	gpu.size = sizeof(gpu);
	not_described("ordinal", ek_describe_gpu(-1, &gpu), EK_ERROR_ARGUMENT, "ordinal (-1)");
}

/* Of the levels that this CPU lacks, if it lacks one. */
TEST(a_level_that_the_cpu_lacks_is_unsupported)
{
	int usable;
	for (int i = 0; ek_cpu_level(i, &usable); i++)
		if (!usable)
			refused("lacking isa", (ek_options){.isa = ek_cpu_level(i, NULL)},
				EK_ERROR_UNSUPPORTED, "isa", ek_cpu_level(i, NULL));
}

TEST(levels_are_listed_slowest_first)
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

TEST(every_usable_level_opens_by_name)
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

TEST(the_environment_chooses_a_level)
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

TEST(strings_need_to_live_until_ek_open_returns)
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

/* tests/compat/program.c has the structs of version 0.1, of 80 and 136 bytes. */
TEST(sizes_of_no_version_are_refused)
{
	static const size_t sizes[][2] = {{79, sizeof(ek_options) + 1}, {135, sizeof(ek_description) + 1}};
	ek_context *ctx = context_of((struct setting){level_best(), 1, PLAIN}), *none;
	for (int i = 0; i < 2; i++) {
		ek_options options = {.size = sizes[0][i]};
		none = ctx;
		ek_description description = {.size = sizes[1][i], .threads = 12345};
		EXPECT(ek_open(&none, &options) == EK_ERROR_STRUCT_SIZE && !none, "size %zu is accepted",
		       options.size);
		EXPECT(ek_describe(ctx, &description) == EK_ERROR_STRUCT_SIZE && description.threads == 12345,
		       "size %zu is accepted, or written to", description.size);
	}
}

TEST(names_of_statuses_and_dtypes)
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

TEST(messages_belong_to_threads)
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
