/* The GPUs' part of evenkeel info: what there is, and what is missing. Called by info.c.
 * SPDX-License-Identifier: MIT */
#include "info.h"

#include "evenkeel.h"
#include "gpu/cache.h"
#include "report.h"

static void find_out(ek_cuda_info *cuda, struct ek_cache_info *cache_info)
{
	*cuda = (ek_cuda_info){.size = sizeof *cuda};
	*cache_info = (struct ek_cache_info){0};
	(void)ek_describe_cuda(cuda); /* which cannot fail with this */
	struct ek_cache *cache = ek_cache_open(NULL, NULL);
	if (!cache)
		return;
	ek_cache_describe(cache, cache_info);
	ek_cache_close(cache);
}

/* 12040 is 12.4 to CUDA's driver and to NVRTC alike. */
static void print_version(FILE *out, int version)
{
	(void)fprintf(out, "%d.%d", version / 1000, version % 1000 / 10);
}

static void print_device(FILE *out, int ordinal)
{
	ek_gpu_info gpu = {.size = sizeof gpu};
	(void)fprintf(out, "%-10s cuda:%d ", ordinal ? "" : "GPU", ordinal);
	if (ek_describe_gpu(ordinal, &gpu) != EK_OK) {
		(void)fprintf(out, "not usable: %s\n", ek_error(NULL));
		return;
	}
	(void)fprintf(out, "%s, compute capability %d.%d, %d multiprocessors, ", gpu.name, gpu.arch / 10,
		      gpu.arch % 10, gpu.multiprocessors);
	print_bytes(out, (long long)gpu.memory);
	(void)fputc('\n', out);
}

static void print_devices(FILE *out, const ek_cuda_info *cuda)
{
	for (int i = 0; i < cuda->gpu_count; i++)
		print_device(out, i);
	if (cuda->gpu_count == 0)
		(void)fprintf(out, "GPU        none: %s\n", cuda->gpu_missing);
	if (cuda->driver_version) {
		(void)fprintf(out, "driver     CUDA ");
		print_version(out, cuda->driver_version);
		(void)fputc('\n', out);
	}
}

void print_cache(FILE *out, const struct ek_cache_info *cache)
{
	(void)fprintf(out, "kernels    ");
	if (cache->folder[0]) {
		(void)fprintf(out, "%s, %lld kept", cache->folder, cache->entries);
		if (cache->entries) {
			(void)fputs(", ", out);
			print_bytes(out, cache->bytes);
		}
	}
	if (cache->why_not[0])
		(void)fprintf(out, "%snot kept: %s", cache->folder[0] ? "; more are " : "", cache->why_not);
	(void)fputc('\n', out);
	if (cache->pack[0])
		(void)fprintf(out, "pack       %s, %d kernel%s\n", cache->pack, cache->pack_entries,
			      cache->pack_entries == 1 ? "" : "s");
	else if (cache->pack_why_not[0])
		(void)fprintf(out, "pack       not used: %s\n", cache->pack_why_not);
}

void print_gpus(FILE *out)
{
	ek_cuda_info cuda;
	struct ek_cache_info cache;
	find_out(&cuda, &cache);
	print_devices(out, &cuda);
	(void)fprintf(out, "NVRTC      ");
	if (cuda.nvrtc_version) {
		print_version(out, cuda.nvrtc_version);
		(void)fprintf(out, ", %s\n", cuda.nvrtc_path);
	} else {
		(void)fprintf(out, "none: %s\n", cuda.nvrtc_missing);
	}
	print_cache(out, &cache);
}

static void write_device(FILE *file, int ordinal)
{
	ek_gpu_info gpu = {.size = sizeof gpu};
	(void)fprintf(file, "%s{\"device\": \"cuda:%d\", ", ordinal ? ", " : "", ordinal);
	if (ek_describe_gpu(ordinal, &gpu) != EK_OK)
		(void)fprintf(file, "\"missing\": %s}", quoted(ek_error(NULL)));
	else
		(void)fprintf(
			file,
			"\"name\": %s, \"isa\": \"sm_%d\", \"multiprocessors\": %d, \"memory_bytes\": %lld}",
			quoted(gpu.name), gpu.arch, gpu.multiprocessors, (long long)gpu.memory);
}

/* An empty text if there is none. */
static void write_version(FILE *file, const char *name, int version)
{
	(void)fprintf(file, "  \"%s\": {\"version\": \"", name);
	if (version)
		print_version(file, version);
	(void)fputs("\", ", file);
}

void write_gpus(FILE *file)
{
	ek_cuda_info cuda;
	struct ek_cache_info cache;
	find_out(&cuda, &cache);
	(void)fputs("  \"gpus\": [", file);
	for (int i = 0; i < cuda.gpu_count; i++)
		write_device(file, i);
	(void)fputs("],\n", file);
	write_version(file, "driver", cuda.driver_version);
	(void)fprintf(file, "\"missing\": %s},\n", quoted(cuda.gpu_missing));
	write_version(file, "nvrtc", cuda.nvrtc_version);
	(void)fprintf(file, "\"path\": %s, \"missing\": %s},\n", quoted(cuda.nvrtc_path),
		      quoted(cuda.nvrtc_missing));
	(void)fprintf(file,
		      "  \"cache\": {\"folder\": %s, \"entries\": %lld, \"bytes\": %lld, \"missing\": %s, "
		      "\"pack\": %s, \"pack_entries\": %d, \"pack_missing\": %s}",
		      quoted(cache.folder), cache.entries, cache.bytes, quoted(cache.why_not),
		      quoted(cache.pack), cache.pack_entries, quoted(cache.pack_why_not));
}
