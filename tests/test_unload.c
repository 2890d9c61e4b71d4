/* The shared library opened and closed at run time, with worker threads alive: a call, dlclose with and
 * without ek_close, dlopen again, exit with workers alive. The library is the program's argument or
 * $EVENKEEL_LIBRARY. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

static const char *path;

/* What a program finds in the library. */
struct library {
	void *handle;
	ek_status (*open)(ek_context **ctx, const ek_options *options);
	void (*close)(ek_context *ctx);
	ek_status (*forward)(ek_context *ctx, const ek_norm_forward_args *args);
};

static bool symbol(struct library *library, const char *name, void *pointer)
{
	void *found = dlsym(library->handle, name);
	EXPECT(found, "%s has no %s", path, name);
	memcpy(pointer, &found, sizeof(found)); /* C has no cast from an object to a function pointer */
	return found;
}

static bool load(struct library *library)
{
	library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	EXPECT(library->handle, "%s", library->handle ? "" : dlerror());
	return library->handle && symbol(library, "ek_open", &library->open) &&
	       symbol(library, "ek_close", &library->close) &&
	       symbol(library, "ek_norm_forward", &library->forward);
}

enum { ROWS = 3000, COLS = 300 };
static float x[ROWS * COLS], y[ROWS * COLS], wanted[ROWS * COLS];

static ek_context *open_context(struct library *library, const char *isa, int threads)
{
	ek_context *ctx = NULL;
	ek_options options = {.size = sizeof(options), .threads = threads, .isa = isa};
	EXPECT(library->open(&ctx, &options) == EK_OK, "ek_open fails");
	return ctx;
}

/* Contexts that are left open on purpose stay in sight of a leak checker. */
static ek_context *left_open[16];
static int left;

static ek_status forward(const struct library *library, ek_context *ctx, float *to)
{
	return library->forward(ctx, &(ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
							     .norm = EK_LAYER_NORM,
							     .dtype = EK_F32,
							     .rows = ROWS,
							     .cols = COLS,
							     .eps = 1e-5,
							     .x = x,
							     .y = to});
}

static void call(struct library *library, ek_context *ctx)
{
	memset(y, CANARY, sizeof(y));
	ek_status status = forward(library, ctx, y);
	EXPECT(status == EK_OK, "status %d", (int)status);
	for (size_t i = 0; i < ROWS * COLS; i++)
		if (memcmp(&y[i], &wanted[i], 4) != 0) {
			test_fail(
				"layer_norm forward %dx%d f32: y[%zu][%zu] is %a (%.9g), the reference has %a (%.9g)",
				ROWS, COLS, i / COLS, i % COLS, (double)y[i], (double)y[i], (double)wanted[i],
				(double)wanted[i]);
			break;
		}
}

/* In a child, so that a crash at dlclose or exit is seen and the next test starts afresh. */
static void in_child(void (*body)(struct library *library), int wanted_status)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		struct library library;
		alarm(60);
		if (load(&library))
			body(&library);
		fflush(stdout);
		exit(test_failed() ? 1 : wanted_status); /* exit, not _exit: destructors and atexit run */
	}
	int status = -1;
	waitpid(child, &status, 0);
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == wanted_status, "the child ended with status 0x%x",
	       status);
}

static void closed_then_unloaded(struct library *library)
{
	for (int i = 0; i < 5; i++) {
		ek_context *ctx = open_context(library, NULL, 3);
		call(library, ctx);
		library->close(ctx);
		EXPECT(dlclose(library->handle) == 0, "dlclose: %s", dlerror());
		if (!load(library))
			return;
	}
}

/* The workers of contexts that nobody closed must find their code still there. */
static void unloaded_without_close(struct library *library)
{
	for (int i = 0; i < 5; i++) {
		call(library, left_open[left++] = open_context(library, NULL, 3));
		EXPECT(dlclose(library->handle) == 0, "dlclose: %s", dlerror());
		usleep(20000);
		if (!load(library))
			return;
	}
	ek_context *ctx = open_context(library, NULL, 2);
	call(library, ctx);
	library->close(ctx);
}

static void workers_alive_at_exit(struct library *library)
{
	call(library, left_open[left++] = open_context(library, NULL, 3));
	call(library, left_open[left++] = open_context(library, NULL, 7));
}

SETUP()
{
	path = test_argument ? test_argument : getenv("EVENKEEL_LIBRARY");
	if (!path) {
		printf("usage: test_unload [short|long] LIBRARY, or set EVENKEEL_LIBRARY to the shared library's path\n");
		exit(1);
	}
}

/* First: what the bits should be, by the library's own reference. */
TEST(the_library_loads)
{
	struct library library;
	if (!load(&library))
		return;
	ek_context *reference = open_context(&library, "reference", 1);
	uint64_t state = 3;
	for (size_t i = 0; i < ROWS * COLS; i++)
		x[i] = (float)(int64_t)(random_bits(&state) >> 40) * 0x1p-22f - 2;
	memset(wanted, CANARY, sizeof(wanted));
	EXPECT(forward(&library, reference, wanted) == EK_OK, "the reference fails");
	library.close(reference);
	EXPECT(dlclose(library.handle) == 0, "dlclose: %s", dlerror());
}

TEST(dlclose_after_ek_close)
{
	in_child(closed_then_unloaded, 0);
}

TEST(dlclose_without_ek_close)
{
	in_child(unloaded_without_close, 0);
}

TEST(exit_with_workers_alive)
{
	in_child(workers_alive_at_exit, 42);
}
