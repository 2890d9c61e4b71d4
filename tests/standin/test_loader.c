/* The stand-in's compiler and what its driver loads, tested before anything is tested with them: a wrong text is
 * refused, an image runs where it should, modules stand apart. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "selftest.h"
#include "support_files.h"

SETUP()
{
	selftest_begin();
}

TEST(a_wrong_text_is_refused_with_a_log)
{
	char *log, *image = compile("int wrong(void) { return missing; }", "sm_90", &log);
	EXPECT(!image && strstr(log, "missing"), "the log is: %s", log);
	free(log);
	image = compile("", "sm_55", &log);
	EXPECT(!image, "sm_55 is taken");
	free(log);
}

TEST(images_run_where_they_should)
{
	static const struct {
		const char *arch, *device;
		CUresult result;
	} list[] = {{"sm_80", "80", CUDA_SUCCESS},
		    {"sm_80", "86", CUDA_SUCCESS},
		    {"sm_80", "90", CUDA_ERROR_NO_BINARY_FOR_GPU},
		    {"sm_90", "80", CUDA_ERROR_NO_BINARY_FOR_GPU},
		    {"compute_80", "90", CUDA_SUCCESS},
		    {"compute_90", "80", CUDA_ERROR_NO_BINARY_FOR_GPU}};
	for (int i = 0; i < COUNT_OF(list); i++) {
		char *log, *image = compile("", list[i].arch, &log);
		CUmodule loaded = NULL;
		set("EVENKEEL_STANDIN_ARCH", list[i].device);
		CUresult result = driver.module_load(&loaded, image);
		set("EVENKEEL_STANDIN_ARCH", NULL);
		EXPECT(result == list[i].result, "%s on %s: %d", list[i].arch, list[i].device, result);
		if (result == CUDA_SUCCESS)
			EXPECT_SUCCESS(driver.module_unload(loaded));
		free(image);
		free(log);
	}
	CUmodule none;
	EXPECT_RESULT(CUDA_ERROR_INVALID_IMAGE, driver.module_load(&none, "no image at all"));
}

/* More modules than files may stay open: none is taken for another. */
TEST(many_modules_stand_apart)
{
	enum { MODULES = 300, IMAGES = 2 };
	static CUmodule loaded[MODULES];
	char *images[IMAGES], *log;
	CUfunction function;
	for (int i = 0; i < IMAGES; i++) {
		char text[128];
		(void)snprintf(text, sizeof(text),
			       "struct arguments { int a; }; KERNEL(kernel_%d, 32, 1, arguments) {}", i);
		images[i] = compile(text, "sm_90", &log);
		free(log);
	}
	for (int i = 0; i < MODULES; i++) {
		EXPECT_SUCCESS(driver.module_load(&loaded[i], images[i % IMAGES]));
		EXPECT_SUCCESS(
			driver.module_function(&function, loaded[i], i % IMAGES ? "kernel_1" : "kernel_0"));
		EXPECT_RESULT(
			CUDA_ERROR_NOT_FOUND,
			driver.module_function(&function, loaded[i], i % IMAGES ? "kernel_0" : "kernel_1"));
	}
	for (int i = 0; i < MODULES; i++)
		EXPECT_SUCCESS(driver.module_unload(loaded[i]));
	for (int i = 0; i < IMAGES; i++)
		free(images[i]);
}

TEST(nothing_is_left)
{
	selftest_end();
}
