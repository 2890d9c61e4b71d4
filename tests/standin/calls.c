/* The calls of a stand-in library: counted, and made to fail where a test asks for it. Every exported function
 * starts here. SPDX-License-Identifier: MIT */
#include "calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FUNCTIONS = 80 };

static struct {
	const char *name;
	int64_t count;
} functions[MOST_FUNCTIONS];
static int function_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int index_of(const char *name)
{
	int i = 0;
	while (i < function_count && strcmp(functions[i].name, name) != 0)
		i++;
	return i;
}

static int64_t count_one(const char *name)
{
	(void)pthread_mutex_lock(&lock);
	int i = index_of(name);
	if (i == function_count) {
		if (function_count == MOST_FUNCTIONS)
			abort();
		functions[function_count++].name = name;
	}
	int64_t count = ++functions[i].count;
	(void)pthread_mutex_unlock(&lock);
	return count;
}

/* The code for the count-th call of name in a text such as "cuInit=100,cuMemAlloc_v2=2@3". */
static int code_in(const char *text, const char *name, int64_t count)
{
	size_t length = strlen(name);
	for (const char *item = text; item; item = strchr(item, ',')) {
		item += *item == ',';
		if (strncmp(item, name, length) != 0 || item[length] != '=')
			continue;
		char *end;
		int code = (int)strtol(item + length + 1, &end, 10);
		if (*end != '@' || strtoll(end + 1, NULL, 10) == count)
			return code;
	}
	return 0;
}

int calls_enter(const char *name)
{
	int64_t count = count_one(name);
	const char *failures = getenv("EVENKEEL_STANDIN_FAIL");
	return failures ? code_in(failures, name, count) : 0;
}

int64_t calls_count(const char *name)
{
	(void)pthread_mutex_lock(&lock);
	int i = index_of(name);
	int64_t count = i < function_count ? functions[i].count : -1;
	(void)pthread_mutex_unlock(&lock);
	return count;
}

void calls_reset(void)
{
	(void)pthread_mutex_lock(&lock);
	for (int i = 0; i < function_count; i++)
		functions[i].count = 0;
	(void)pthread_mutex_unlock(&lock);
}

int calls_setting(const char *name, int fallback)
{
	const char *text = getenv(name);
	return text && *text ? (int)strtol(text, NULL, 10) : fallback;
}
