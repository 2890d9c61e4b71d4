/* NVRTC, where it is installed: texts are compiled or refused, through the cache. What happens without it is in
 * test_cuda_loading.c. SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/kernel.h"
#include "gpu/cuda/nvrtc.h"
#include "support_cache.h"
#include "support_files.h"
#include "support_runner.h"

static const char scale_text[] =
	"extern \"C\" __global__ void NAME(float *x)\n{\n\tx[threadIdx.x] *= FACTOR;\n}\n";

static struct ek_recipe scale_recipe(const char *factor)
{
	struct ek_recipe recipe = {.texts = {"/* one text */\n", scale_text},
				   .text_count = 2,
				   .option_count = 2,
				   .name = "scale"};
	(void)snprintf(recipe.options[0], sizeof recipe.options[0], "-DNAME=scale");
	(void)snprintf(recipe.options[1], sizeof recipe.options[1], "-DFACTOR=%s", factor);
	return recipe;
}

/* false: not installed, and the test is skipped. */
static bool nvrtc_is_there(void)
{
	struct ek_nvrtc_info info;
	ek_nvrtc_describe(&info);
	if (info.version) {
		EXPECT(info.path[0] && !info.missing[0] && info.version >= 12000,
		       "NVRTC %d in \"%s\", \"%s\"", info.version, info.path, info.missing);
		return true;
	}
	EXPECT((strstr(info.missing, "install") || strstr(info.missing, "$EVENKEEL_NVRTC")) && !info.path[0],
	       "\"%s\" does not help", info.missing);
	test_skip("%s", info.missing);
	return false;
}

SETUP()
{
	files_begin();
	set("EVENKEEL_CACHE", "");
	set("EVENKEEL_PACK", NULL);
}

/* ---- before NVRTC is found ---- */

static char real_nvrtc[512];

/* What is installed after a search that failed is found under another name alone: the search is not repeated. */
static void failure_is_remembered(void)
{
	struct ek_nvrtc_info info;
	char file[256], other[256], first[sizeof info.missing];
	(void)snprintf(file, sizeof file, "%s", in_base("libnvrtc.so"));
	(void)snprintf(other, sizeof other, "%s", in_base("./libnvrtc.so"));
	set("EVENKEEL_NVRTC", file);
	ek_nvrtc_describe(&info);
	EXPECT(info.version == 0 && strstr(info.missing, file), "missing: \"%s\"", info.missing);
	memcpy(first, info.missing, sizeof first);
	EXPECT(symlink(real_nvrtc, file) == 0, "no link");
	ek_nvrtc_describe(&info);
	EXPECT(info.version == 0 && strcmp(info.missing, first) == 0, "searched again: version %d, \"%s\"",
	       info.version, info.missing);
	int archs[EK_NVRTC_ARCHS];
	EXPECT(ek_nvrtc_archs(archs) == 0, "a library that is missing knows architectures");
	set("EVENKEEL_NVRTC", other);
	ek_nvrtc_describe(&info);
	EXPECT(info.version >= 12000 && !info.missing[0], "not searched for another value: \"%s\"",
	       info.missing);
}

/* The path of the installed NVRTC, found in a process of its own. */
static void find_real_nvrtc(void)
{
	struct ek_nvrtc_info info;
	ek_nvrtc_describe(&info);
	if (info.version)
		write_file(in_base("path"), info.path, strlen(info.path));
}

TEST(a_failed_search_is_remembered)
{
	in_child(find_real_nvrtc);
	size_t length = read_file(in_base("path"), real_nvrtc, sizeof real_nvrtc - 1);
	real_nvrtc[length] = '\0';
	if (length)
		in_child(failure_is_remembered);
	else
		test_skip("NVRTC is not installed");
}

/* ---- with NVRTC ---- */

TEST(texts_are_compiled)
{
	struct ek_image machine_code, text;
	char *log, *key;
	struct ek_recipe recipe = scale_recipe("2.0f");
	if (!nvrtc_is_there())
		return;
	EXPECT(ek_kernel_build(&recipe, 80, NULL, &machine_code, &key, &log) == EK_OK, "%s", ek_error(NULL));
	EXPECT(machine_code.size > 500 && memcmp(machine_code.data, "\177ELF", 4) == 0, "no machine code");
	EXPECT(strstr(key, "scale") && strstr(key, "arch=80") && strstr(key, "-DFACTOR=2.0f") &&
		       strstr(key, "--fmad=false") && !strstr(key, "nvrtc"),
	       "the key is \"%s\"", key);
	free(machine_code.data);
	free(key);
	free(log);
	/* One that no NVRTC knows yet. */
	EXPECT(ek_kernel_build(&recipe, 999, NULL, &text, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	EXPECT(text.size > 100 && strstr(text.data, ".visible .entry scale("), "no PTX");
	free(text.data);
	EXPECT(ek_kernel_build(&recipe, 10, NULL, &text, NULL, NULL) == EK_ERROR_COMPILE &&
		       strstr(ek_error(NULL), "1.0"),
	       "compiled for 1.0: %s", ek_error(NULL));
}

TEST(a_refused_text_is_explained)
{
	struct ek_image image;
	char *log = NULL;
	struct ek_recipe recipe = scale_recipe("no_such_name");
	if (!nvrtc_is_there())
		return;
	struct ek_cache *cache = ek_cache_open(fresh_path(), "");
	EXPECT(ek_kernel_build(&recipe, 80, cache, &image, NULL, &log) == EK_ERROR_COMPILE &&
		       strstr(ek_error(NULL), "no_such_name") && strstr(ek_error(NULL), "scale"),
	       "the message is \"%s\"", ek_error(NULL));
	EXPECT(log && strstr(log, "no_such_name"), "the log is \"%s\"", log ? log : "");
	EXPECT(describe(cache).entries == 0, "a failure is kept");
	free(log);
	ek_cache_close(cache);
}

/* Two builds are one compilation; other options, texts or architectures are other entries. */
TEST(builds_go_through_the_cache)
{
	struct ek_image first = {0}, again = {0}, other = {0};
	char *log = NULL;
	struct ek_recipe recipe = scale_recipe("2.0f"), other_recipe = scale_recipe("3.0f");
	if (!nvrtc_is_there())
		return;
	struct ek_cache *cache = ek_cache_open(fresh_path(), "");
	EXPECT(ek_kernel_build(&recipe, 80, cache, &first, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	EXPECT(describe(cache).entries == 1, "%lld entries after one build", describe(cache).entries);
	EXPECT(ek_kernel_build(&recipe, 80, cache, &again, NULL, &log) == EK_OK && !log, "%s",
	       ek_error(NULL));
	EXPECT(first.size == again.size && memcmp(first.data, again.data, first.size) == 0,
	       "another image comes back");
	EXPECT(ek_kernel_build(&other_recipe, 80, cache, &other, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	free(other.data);
	EXPECT(ek_kernel_build(&recipe, 90, cache, &other, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	free(other.data);
	recipe.texts[0] = "/* another text */\n";
	EXPECT(ek_kernel_build(&recipe, 80, cache, &other, NULL, NULL) == EK_OK, "%s", ek_error(NULL));
	free(other.data);
	EXPECT(describe(cache).entries == 4, "%lld entries of four", describe(cache).entries);
	free(first.data);
	free(again.data);
	ek_cache_close(cache);
}

TEST(architectures_are_listed)
{
	int archs[EK_NVRTC_ARCHS];
	bool has_80 = false, has_999 = false;
	if (!nvrtc_is_there())
		return;
	int count = ek_nvrtc_archs(archs);
	for (int i = 0; i < count; i++) {
		has_80 = has_80 || archs[i] == 80;
		has_999 = has_999 || archs[i] == 999;
	}
	EXPECT(count > 3 && has_80 && !has_999, "%d architectures, 80 is %s", count,
	       has_80 ? "there" : "not");
}
