/* The test runner: names, modes, messages, totals. Needs nothing of the library, so that a test may open
 * that at run time. SPDX-License-Identifier: MIT */
#include "support_runner.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "verify/random.h"

enum { MESSAGES_PER_TEST = 5, MOST_TESTS = 64 };

enum test_mode test_mode = TEST_DEFAULT;
const char *test_argument;
bool test_update;

static struct {
	const char *name; /* NULL: to set up or tear down */
	void (*test)(void);
} tests[MOST_TESTS];
static int test_count;

static const char *program, *only, *running;
static int passed, failed, skipped, messages;
static char why_skipped[600];
static uint64_t seed = 1, draws; /* of the run; of the running test */
static int slice_calls;          /* of the running test */

void test_add(const char *name, void (*test)(void))
{
	if (test_count == MOST_TESTS)
		abort();
	tests[test_count].name = name;
	tests[test_count++].test = test;
}

static void read_arguments(int argc, char **argv)
{
	program = argv[0];
	const char *given = getenv("EVENKEEL_TEST_SEED");
	if (given && *given)
		seed = strtoull(given, NULL, 10);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "short") == 0)
			test_mode = TEST_SHORT;
		else if (strcmp(argv[i], "long") == 0)
			test_mode = TEST_LONG;
		else if (strcmp(argv[i], "--update") == 0)
			test_update = true;
		else if (strchr(argv[i], '_') && !strchr(argv[i], '/') && argv[i][0] != '-')
			only = argv[i];
		else
			test_argument = argv[i];
	}
}

static void run(const char *name, void (*test)(void))
{
	running = name;
	messages = 0;
	draws = 0;
	slice_calls = 0;
	why_skipped[0] = '\0';
	clock_t began = clock();
	test();
	double seconds = (double)(clock() - began) / CLOCKS_PER_SEC;
	if (messages > 0)
		failed++;
	else if (why_skipped[0])
		skipped++;
	else
		passed++;
	if (messages == 0 && why_skipped[0])
		printf("skipped %s: %s\n", name, why_skipped);
	else
		printf("%s %-60s %6.1f s of CPU\n", messages == 0 ? "ok" : "FAILED", name, seconds);
	if (messages > MESSAGES_PER_TEST)
		printf("  (%d more messages)\n", messages - MESSAGES_PER_TEST);
	if (messages > 0) {
		static const char *const modes[] = {" short", "", " long"};
		printf("  again: EVENKEEL_TEST_SEED=%" PRIu64 " %s%s %s\n", seed, program, modes[test_mode],
		       name);
	}
	fflush(stdout);
}

void test_fail(const char *format, ...)
{
	if (messages++ >= MESSAGES_PER_TEST)
		return;
	va_list arguments;
	va_start(arguments, format);
	printf("  %s: ", running);
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
}

void test_skip(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(why_skipped, sizeof why_skipped, format, arguments);
	va_end(arguments);
}

bool test_failed(void)
{
	return messages > 0;
}

int64_t test_scaled(int64_t count)
{
	if (test_mode == TEST_LONG)
		return count * 10;
	return test_mode == TEST_DEFAULT || count < 10 ? count : count / 10;
}

uint64_t test_seed(void)
{
	uint64_t bits = random_mixed(seed);
	for (const char *letter = running; *letter; letter++)
		bits = random_mixed(bits + (unsigned char)*letter);
	return bits;
}

bool test_in_slice(void)
{
	const char *text = getenv("EVENKEEL_TEST_SLICE");
	int first = 0, step = 1;
	if (text && (sscanf(text, "%d/%d", &first, &step) != 2 || first < 0 || first >= step)) {
		printf("EVENKEEL_TEST_SLICE=%s: must be such as 0/4, 1/4, 2/4 or 3/4\n", text);
		exit(1);
	}
	return slice_calls++ % step == first;
}

bool test_sampled(int64_t one_in)
{
	if (test_mode == TEST_LONG || (one_in <= 1 && test_mode == TEST_DEFAULT))
		return true;
	uint64_t of = (uint64_t)one_in * (test_mode == TEST_SHORT ? 10 : 1);
	return random_mixed(test_seed() + draws++ * UINT64_C(0x9e3779b97f4a7c15)) % of == 0;
}

int main(int argc, char **argv)
{
	read_arguments(argc, argv);
	for (int i = 0; i < test_count; i++)
		if (!tests[i].name)
			tests[i].test();
		else if (!only || strcmp(only, tests[i].name) == 0)
			run(tests[i].name, tests[i].test);
	if (only && passed + failed + skipped == 0) {
		printf("no test is called %s\n", only);
		return 1;
	}
	printf("%d passed, %d failed", passed, failed);
	if (skipped > 0)
		printf(", %d skipped", skipped);
	printf("\n");
	return failed > 0;
}
