/* Files and processes of tests: a folder of the test's own, environment variables, parts that run in a child.
 * SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_FILES_H
#define EK_TESTS_SUPPORT_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* Makes the test's own folder; it is removed with all that is in it when the process exits. */
void files_begin(void);

/* A path in that folder; four of them at a time. */
const char *in_base(const char *name);
/* A path there at which nothing is, and an empty folder at it. */
const char *fresh_path(void);
const char *fresh_folder(void);
void remove_tree(const char *path);

bool exists(const char *path);
int files_in(const char *path);
/* Returns how many bytes it has read, up to room; 0 where there is no file. */
size_t read_file(const char *path, char *bytes, size_t room);
const char *text_of(const char *path);
void write_file(const char *path, const char *bytes, size_t size);

void set(const char *name, const char *value); /* an environment variable; NULL: unset */

/* Runs a part in a process of its own; its failures count here, too. */
void in_child(void (*part)(void));
#define TEST_IN_CHILD(name)             \
	static void name##_there(void); \
	TEST(name)                      \
	{                               \
		in_child(name##_there); \
	}                               \
	static void name##_there(void)
/* How a child that runs the part ends, as waitpid says it: with what the part returns, or killed. *said is what it
 * wrote to stderr, up to room bytes. */
int end_of_child(int (*part)(const void *given), const void *given, char *said, size_t room);

#endif
