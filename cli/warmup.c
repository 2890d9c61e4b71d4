/* evenkeel warmup: compiles the kernels of calls to come, into the cache of a GPU's user or into a pack for
 * machines without NVRTC. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "core/context.h"
#include "device.h"
#include "gpu/pack.h"
#include "gpu/plan.h"
#include "heads.h"
#include "info.h"
#include "ops/norm/op.h"
#include "options.h"
#include "report.h"
#include "term.h"
#include "timing.h"

enum { MOST_PACKED = 4096 };

struct warmup {
	const struct options *options;
	struct test_case *calls; /* to come */
	int call_count;
	ek_context *ctx;      /* into the cache: of the GPU */
	int archs[MAX_ARCHS]; /* into a pack */
	int arch_count;
	struct ek_cache *cache; /* that a pack's kernels may come from */
	char *keys[MOST_PACKED];
	struct ek_image images[MOST_PACKED];
	int packed;
};

/* ---- the calls ---- */

enum {
	MOST_CALLS = EK_OP_NAMES * 4 * MAX_SHAPES * 3
}; /* ops, dtypes, widths; forward, backward in two ways */

/* Without the statistics that forward returns, which need no kernel of their own; backward with given and with recomputed statistics. */
static void add_calls(struct warmup *warmup, struct test_case c)
{
	if (c.pass == FORWARD)
		case_drop_statistics(&c);
	warmup->calls[warmup->call_count++] = c;
	if (case_statistics(&c) & c.present) {
		case_drop_statistics(&c);
		warmup->calls[warmup->call_count++] = c;
	}
}

static void add_op(struct warmup *warmup, const struct ek_op_entry *op)
{
	static const ek_dtype usual[] = {EK_F32, EK_F16, EK_BF16};
	const struct options *options = warmup->options;
	const ek_dtype *dtypes = options->dtype_count ? options->dtypes : usual;
	int dtype_count = options->dtype_count ? options->dtype_count : 3;
	bool both = !options->pass[FORWARD] && !options->pass[BACKWARD];
	for (int i = 0; i < dtype_count * options->shape_count * PASS_COUNT; i++) {
		ek_dtype dtype = dtypes[i / PASS_COUNT / options->shape_count];
		struct dtype_pair pair = {dtype, options->weight_dtype ? options->weight_dtype : dtype};
		enum pass pass = (enum pass)(i % PASS_COUNT);
		if (weight_dtype_fits(dtype, pair.weight_dtype) && choices_fit(options, pair) &&
		    (both || options->pass[pass]))
			add_calls(warmup, case_with(options, op, pass, pair,
						    options->shapes[i / PASS_COUNT % options->shape_count]));
	}
}

static void list_calls(struct warmup *warmup)
{
	const struct options *options = warmup->options;
	int op_count = options->op_count ? options->op_count : EK_OP_COUNT;
	for (int i = 0; i < op_count; i++)
		add_op(warmup, options->op_count ? options->ops[i] : &ek_ops[i]);
}

/* Makes the kernels of each call ready by `make`. */
static int make_calls(struct warmup *warmup, int (*make)(struct warmup *warmup, const struct test_case *c,
							 const union op_args *args))
{
	int status = STATUS_FINE;
	progress_begin(warmup->call_count);
	for (int i = 0; i < warmup->call_count && status == STATUS_FINE; i++) {
		const struct test_case *c = &warmup->calls[i];
		union op_args args;
		case_args_nowhere(c, &args);
		progress_step("%s %s %s, %lld columns", c->op->name, pass_names[c->pass],
			      ek_dtype_name(c->dtype), (long long)case_shape(c).cols);
		status = make(warmup, c, &args);
	}
	progress_clear();
	return status;
}

/* A library's call has failed. */
static int refuse(ek_status status, const ek_context *ctx)
{
	progress_clear();
	return complain(device_exit_status(status), "%s", ek_error(ctx));
}

/* ---- into the cache ---- */

static int prepare_call(struct warmup *warmup, const struct test_case *c, const union op_args *args)
{
	ek_status status = case_op(c)->prepare(warmup->ctx, args);
	return status == EK_OK ? STATUS_FINE : refuse(status, warmup->ctx);
}

static int warm_cache(struct warmup *warmup)
{
	struct ek_cache_info info;
	double start = seconds_now();
	int status = device_open(&warmup->ctx, warmup->options);
	if (status != STATUS_FINE)
		return status;
	ek_cache_describe(warmup->ctx->gpu->cache, &info);
	if (info.folder[0])
		status = make_calls(warmup, prepare_call);
	else
		status = complain(STATUS_USAGE, "compiled kernels would not be kept: %s", info.why_not);
	if (status == STATUS_FINE) {
		ek_cache_describe(warmup->ctx->gpu->cache, &info);
		printf("ready      %d call%s on %s, in %.1f s\n", warmup->call_count,
		       warmup->call_count == 1 ? "" : "s", device_words(warmup->ctx).text,
		       seconds_now() - start);
		print_cache(stdout, &info);
	}
	ek_close(warmup->ctx);
	return status;
}

/* ---- into a pack ---- */

static int add_kernel(struct warmup *warmup, char *key, struct ek_image image)
{
	bool known = false;
	for (int i = 0; i < warmup->packed; i++)
		known = known || strcmp(warmup->keys[i], key) == 0;
	if (known || warmup->packed == MOST_PACKED) {
		free(key);
		free(image.data);
		return known ? STATUS_FINE
			     : complain(STATUS_USAGE,
					"--pack %s: more than %d kernels; name fewer widths or dtypes",
					warmup->options->pack, MOST_PACKED);
	}
	warmup->keys[warmup->packed] = key;
	warmup->images[warmup->packed++] = image;
	return STATUS_FINE;
}

static int build_for(struct warmup *warmup, const struct ek_plan *plan, int arch)
{
	const struct ek_step *kernels[EK_MOST_STEPS];
	int count = ek_plan_kernels(plan, kernels), status = STATUS_FINE;
	for (int i = 0; i < count && status == STATUS_FINE; i++) {
		static struct ek_recipe recipe;
		struct ek_image image;
		char *key;
		kernels[i]->write_recipe(&kernels[i]->key, &recipe);
		ek_status built = ek_kernel_build(&recipe, arch, warmup->cache, &image, &key, NULL);
		status = built == EK_OK ? add_kernel(warmup, key, image) : refuse(built, NULL);
	}
	return status;
}

static int build_call(struct warmup *warmup, const struct test_case *c, const union op_args *args)
{
	int status = STATUS_FINE;
	for (int i = 0; i < warmup->arch_count && status == STATUS_FINE; i++) {
		const struct ek_gpu_limits limits = ek_limits_of(warmup->archs[i], 1);
		struct ek_plan plan;
		case_op(c)->plan(args, &limits, &plan);
		status = build_for(warmup, &plan, warmup->archs[i]);
	}
	return status;
}

/* Those that the kernels run on; the others are dropped from the list. */
static int keep_usable(int *archs, int count)
{
	int usable = 0;
	for (int i = 0; i < count; i++)
		if (archs[i] >= EK_OLDEST_ARCH)
			archs[usable++] = archs[i];
	return usable;
}

static int refuse_arch(int arch, const int *usable, int count)
{
	char list[512] = "";
	size_t length = 0;
	struct ek_nvrtc_info nvrtc;
	ek_nvrtc_describe(&nvrtc);
	for (int i = 0; i < count && length < sizeof list; i++)
		length += (size_t)snprintf(list + length, sizeof list - length, "%s%d", i ? ", " : "",
					   usable[i]);
	return complain(STATUS_USAGE, "--arch %d: must be one that NVRTC %d.%d compiles for: %s", arch,
			nvrtc.version / 1000, nvrtc.version % 1000 / 10, list);
}

/* For an unknown one NVRTC would make PTX of the newest that it knows, and a typing error would go unnoticed. Without
 * NVRTC the first compilation says so. */
static int check_archs(const int *archs, int count)
{
	int usable[EK_NVRTC_ARCHS] = {0};
	int usable_count = ek_nvrtc_archs(usable);
	usable_count = keep_usable(usable, usable_count);
	for (int i = 0; i < count && usable_count; i++) {
		int k = 0;
		while (k < usable_count && usable[k] != archs[i])
			k++;
		if (k == usable_count)
			return refuse_arch(archs[i], usable, usable_count);
	}
	return STATUS_FINE;
}

/* Those of --arch, else the GPU's own. */
static int choose_archs(struct warmup *warmup)
{
	const struct options *options = warmup->options;
	ek_context *ctx;
	memcpy(warmup->archs, options->archs, sizeof warmup->archs);
	warmup->arch_count = options->arch_count;
	if (options->arch_count)
		return check_archs(options->archs, options->arch_count);
	if (device_gpus() == 0)
		return complain(STATUS_NO_DEVICE,
				"--pack: must come with --arch where there is no GPU, such as --arch 90");
	int status = device_open(&ctx, options);
	if (status != STATUS_FINE)
		return status;
	warmup->archs[warmup->arch_count++] = ctx->gpu->limits.arch;
	ek_close(ctx);
	return STATUS_FINE;
}

static void print_packed(const struct warmup *warmup, double seconds)
{
	long long bytes = 0;
	for (int i = 0; i < warmup->packed; i++)
		bytes += (long long)warmup->images[i].size;
	printf("packed     %d kernel%s for ", warmup->packed, warmup->packed == 1 ? "" : "s");
	for (int i = 0; i < warmup->arch_count; i++)
		printf("%ssm_%d", i ? ", " : "", warmup->archs[i]);
	printf(" into %s, ", warmup->options->pack);
	print_bytes(stdout, bytes);
	printf(", in %.1f s\n", seconds);
}

static int write_pack(struct warmup *warmup)
{
	double start = seconds_now();
	int status = choose_archs(warmup);
	if (status != STATUS_FINE)
		return status;
	warmup->cache = ek_cache_open(NULL, "");
	status = make_calls(warmup, build_call);
	if (status == STATUS_FINE && ek_pack_write(warmup->options->pack, (const char *const *)warmup->keys,
						   warmup->images, warmup->packed) != EK_OK)
		status = complain(STATUS_USAGE, "--pack %s: %s", warmup->options->pack, ek_error(NULL));
	if (status == STATUS_FINE)
		print_packed(warmup, seconds_now() - start);
	for (int i = 0; i < warmup->packed; i++) {
		free(warmup->keys[i]);
		free(warmup->images[i].data);
	}
	ek_cache_close(warmup->cache);
	return status;
}

int command_warmup(const struct options *options)
{
	static struct test_case calls[MOST_CALLS];
	static struct warmup warmup; /* with room for a pack */
	warmup = (struct warmup){.options = options, .calls = calls};
	if (options->pack && strcmp(options->pack, "-") == 0)
		return complain(STATUS_USAGE, "--pack -: must be a file, not standard output");
	list_calls(&warmup);
	if (warmup.call_count == 0)
		return complain(
			STATUS_USAGE,
			"nothing to compile: no dtype goes with these options, name one with --dtype");
	return options->pack ? write_pack(&warmup) : warm_cache(&warmup);
}
