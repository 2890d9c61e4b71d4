/* The GPUs' part of evenkeel info: what there is, and what is missing. Called by info.c.
 * SPDX-License-Identifier: MIT */
#include "info_gpu.h"

#include "cuda/gpu.h"
#include "cuda/nvrtc.h"
#include "report.h"

struct gpu_facts {
	struct ek_gpu_list list;
	struct ek_nvrtc_info nvrtc;
	struct ek_cache_info cache;
};

static void find_out(struct gpu_facts *facts)
{
	*facts = (struct gpu_facts){0};
	ek_gpu_describe_all(&facts->list);
	ek_nvrtc_describe(&facts->nvrtc);
	struct ek_cache *cache = ek_cache_open(NULL, NULL);
	if (!cache)
		return;
	ek_cache_describe(cache, &facts->cache);
	ek_cache_close(cache);
}

static int listed(const struct ek_gpu_list *list)
{
	return list->count < EK_GPUS_LISTED ? list->count : EK_GPUS_LISTED;
}

/* 12040 is 12.4 to CUDA's driver and to NVRTC alike. */
static void print_version(FILE *out, int version)
{
	(void)fprintf(out, "%d.%d", version / 1000, version % 1000 / 10);
}

static void print_devices(FILE *out, const struct ek_gpu_list *list)
{
	for (int i = 0; i < listed(list); i++) {
		(void)fprintf(out, "%-10s cuda:%d %s, compute capability %d.%d, %d multiprocessors, ",
			      i ? "" : "GPU", i, list->gpus[i].name, list->gpus[i].arch / 10,
			      list->gpus[i].arch % 10, list->gpus[i].multiprocessors);
		print_bytes(out, (long long)list->gpus[i].memory);
		(void)fputc('\n', out);
	}
	if (list->count == 0)
		(void)fprintf(out, "GPU        none: %s\n", list->missing);
	if (list->driver_version) {
		(void)fprintf(out, "driver     CUDA ");
		print_version(out, list->driver_version);
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
	struct gpu_facts facts;
	find_out(&facts);
	print_devices(out, &facts.list);
	(void)fprintf(out, "NVRTC      ");
	if (facts.nvrtc.version) {
		print_version(out, facts.nvrtc.version);
		(void)fprintf(out, ", %s\n", facts.nvrtc.path);
	} else {
		(void)fprintf(out, "none: %s\n", facts.nvrtc.missing);
	}
	print_cache(out, &facts.cache);
}

static void write_member(FILE *file, const char *name, const char *text)
{
	(void)fprintf(file, "\"%s\": ", name);
	write_json_string(file, text);
}

/* A version as text, empty if there is none; then the rest of the object can go on. */
static void write_version(FILE *file, int version)
{
	(void)fputs("\"version\": \"", file);
	if (version)
		print_version(file, version);
	(void)fputs("\", ", file);
}

static void write_devices(FILE *file, const struct ek_gpu_list *list)
{
	(void)fputs("  \"gpus\": [", file);
	for (int i = 0; i < listed(list); i++) {
		(void)fprintf(file, "%s{\"device\": \"cuda:%d\", ", i ? ", " : "", i);
		write_member(file, "name", list->gpus[i].name);
		(void)fprintf(file, ", \"isa\": \"sm_%d\", \"multiprocessors\": %d, \"memory_bytes\": %zu}",
			      list->gpus[i].arch, list->gpus[i].multiprocessors, list->gpus[i].memory);
	}
	(void)fputs("],\n  \"driver\": {", file);
	write_version(file, list->driver_version);
	write_member(file, "missing", list->missing);
	(void)fputs("},\n", file);
}

void write_gpus(FILE *file)
{
	struct gpu_facts facts;
	find_out(&facts);
	write_devices(file, &facts.list);
	(void)fputs("  \"nvrtc\": {", file);
	write_version(file, facts.nvrtc.version);
	write_member(file, "path", facts.nvrtc.path);
	(void)fputs(", ", file);
	write_member(file, "missing", facts.nvrtc.missing);
	(void)fputs("},\n  \"cache\": {", file);
	write_member(file, "folder", facts.cache.folder);
	(void)fprintf(file, ", \"entries\": %lld, \"bytes\": %lld, ", facts.cache.entries, facts.cache.bytes);
	write_member(file, "missing", facts.cache.why_not);
	(void)fputs(", ", file);
	write_member(file, "pack", facts.cache.pack);
	(void)fprintf(file, ", \"pack_entries\": %d, ", facts.cache.pack_entries);
	write_member(file, "pack_missing", facts.cache.pack_why_not);
	(void)fputs("}", file);
}
