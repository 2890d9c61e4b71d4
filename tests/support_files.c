/* Files and processes of tests; support_files.h says what. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "support_files.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_runner.h"

/* ---- files ---- */

static char base[64];

static void remove_base(void)
{
	remove_tree(base);
}

void files_begin(void)
{
	(void)snprintf(base, sizeof base, "/tmp/evenkeel_test_XXXXXX");
	if (!mkdtemp(base)) {
		perror("mkdtemp");
		exit(1);
	}
	(void)atexit(remove_base);
}

const char *in_base(const char *name)
{
	static char paths[4][128];
	static int next;
	char *path = paths[next++ & 3];
	(void)snprintf(path, sizeof paths[0], "%s/%s", base, name);
	return path;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)status, (void)kind, (void)where;
	return remove(path);
}

void remove_tree(const char *path)
{
	(void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *fresh_path(void)
{
	remove_tree(in_base("folder"));
	return in_base("folder");
}

const char *fresh_folder(void)
{
	const char *path = fresh_path();
	EXPECT(mkdir(path, 0700) == 0, "no folder");
	return path;
}

bool exists(const char *path)
{
	struct stat status;
	return lstat(path, &status) == 0;
}

static int files_counted;

static int count_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)path, (void)status, (void)where;
	files_counted += kind == FTW_F;
	return 0;
}

int files_in(const char *path)
{
	files_counted = 0;
	(void)nftw(path, count_one, 16, FTW_PHYS);
	return files_counted;
}

size_t read_file(const char *path, char *bytes, size_t room)
{
	FILE *file = fopen(path, "re");
	size_t size = file ? fread(bytes, 1, room, file) : 0;
	if (file)
		(void)fclose(file);
	return size;
}

const char *text_of(const char *path)
{
	static char text[4096];
	text[read_file(path, text, sizeof text - 1)] = '\0';
	return text;
}

void write_file(const char *path, const char *bytes, size_t size)
{
	FILE *file = fopen(path, "we");
	EXPECT(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "%s cannot be written",
	       path);
	(void)chmod(path, 0600);
}

/* ---- processes ---- */

void set(const char *name, const char *value)
{
	if (value)
		(void)setenv(name, value, 1);
	else
		(void)unsetenv(name);
}

void in_child(void (*part)(void))
{
	int status = -1;
	(void)fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		part();
		(void)fflush(stdout);
		_exit(test_failed() ? 1 : 0);
	}
	EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
		       WEXITSTATUS(status) == 0,
	       "the child process ended with status %d", status);
}

int end_of_child(int (*part)(const void *given), const void *given, char *said, size_t room)
{
	int ends[2], status = -1;
	(void)fflush(stdout);
	if (pipe(ends) != 0)
		return -1;
	pid_t child = fork();
	if (child == 0) {
		(void)dup2(ends[1], 2);
		(void)close(ends[1]);
		(void)alarm(60);
		_exit(part(given)); /* what it printed is dropped */
	}
	(void)close(ends[1]);
	FILE *file = fdopen(ends[0], "r");
	size_t size = file ? fread(said, 1, room - 1, file) : 0;
	said[size] = '\0';
	if (file)
		(void)fclose(file);
	(void)waitpid(child, &status, 0);
	return status;
}
