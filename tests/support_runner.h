/* The test runner: `program [short|long] [NAME or other argument]`. Called by every C test, also by those that need
 * none of the library's cases (support.h). SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_RUNNER_H
#define EK_TESTS_SUPPORT_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

/* Sanitizers bring their own malloc and cannot start threads in a child of a process with threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNDER_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define UNDER_SANITIZER 1
#endif
#endif
#ifndef UNDER_SANITIZER
#define UNDER_SANITIZER 0
#endif

enum test_mode { TEST_SHORT, TEST_DEFAULT, TEST_LONG };
extern enum test_mode test_mode;
extern const char *test_argument; /* what was neither short nor long nor a test's name; may be NULL */
extern bool test_update;          /* --update: write what is expected, if the test has a file of it */

/* A test is TEST(a_sentence) { … }. The runner has main; it runs the tests in the order of the file, or the one that the
 * command line names. SETUP() { … } and TEARDOWN() { … } are run in their place, whatever is named. */
#define TEST(name) ADD_TEST(name, #name)
#define SETUP() ADD_TEST(set_up, NULL)
#define TEARDOWN() ADD_TEST(tear_down, NULL)
#define ADD_TEST(function, name)                                      \
	static void function(void);                                   \
	__attribute__((constructor)) static void add_##function(void) \
	{                                                             \
		test_add(name, function);                             \
	}                                                             \
	static void function(void)
void test_add(const char *name, void (*test)(void));

/* Marks the running test as failed; the first few messages of a test are printed. */
void test_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define EXPECT(condition, ...) ((condition) ? (void)0 : test_fail(__VA_ARGS__))
bool test_failed(void);
/* Marks the running test as skipped, unless it fails: what it needs is not there. The test then returns. */
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SKIP_IF(condition, ...)                 \
	do {                                    \
		if (condition) {                \
			test_skip(__VA_ARGS__); \
			return;                 \
		}                               \
	} while (0)
/* Of a product too large to run: one of one_in calls is true, as the seed chooses; in short mode one of ten times as
 * many, in long mode every call. $EVENKEEL_TEST_SEED is the seed, 1 where it is not set; a failure prints it. */
bool test_sampled(int64_t one_in);
/* $EVENKEEL_TEST_SLICE K/N: true for every N-th call of a test from K on, for N processes at once; without it, for every call.
 * A GPU's kernels take their time to compile. */
bool test_in_slice(void);
/* count in default mode, a tenth (at least 1) in short mode, ten times in long mode. */
int64_t test_scaled(int64_t count);
/* The seed of the run, mixed with the name of the running test: for random cases. */
uint64_t test_seed(void);

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

#endif
