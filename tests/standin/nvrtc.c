/* A stand-in for NVRTC: compiles kernels with the C compiler for this CPU, as a shared library that the stand-in
 * driver loads. The words of CUDA are left out (EK_WORDS) and words.h is put in their place.
 * Tests name this library in $EVENKEEL_NVRTC. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

/* The build says what they are: the folder of words.h, its compiler, the flags of a sanitizer. */
#ifndef STANDIN_FOLDER
#define STANDIN_FOLDER "tests/standin"
#endif
#ifndef STANDIN_CC
#define STANDIN_CC "cc"
#endif
#ifndef STANDIN_CFLAGS
#define STANDIN_CFLAGS ""
#endif

#define EXPORT __attribute__((visibility("default")))

extern char **environ;

enum {
	NVRTC_SUCCESS = 0,
	NVRTC_ERROR_OUT_OF_MEMORY = 1,
	NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
	NVRTC_ERROR_INVALID_INPUT = 3,
	NVRTC_ERROR_INVALID_PROGRAM = 4,
	NVRTC_ERROR_INVALID_OPTION = 5,
	NVRTC_ERROR_COMPILATION = 6
};

struct blob {
	char *data;
	size_t size;
};

struct program {
	char *text;
	struct blob log, image;
	int arch;   /* 90 is 9.0 */
	bool final; /* machine code was asked for, not PTX */
};
typedef struct program *nvrtcProgram;

EXPORT int nvrtcVersion(int *major, int *minor);
EXPORT int nvrtcGetNumSupportedArchs(int *count);
EXPORT int nvrtcGetSupportedArchs(int *archs);
EXPORT const char *nvrtcGetErrorString(int error);
EXPORT int nvrtcCreateProgram(nvrtcProgram *program, const char *text, const char *name, int header_count,
			      const char *const *headers, const char *const *header_names);
EXPORT int nvrtcDestroyProgram(nvrtcProgram *program);
EXPORT int nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options);
EXPORT int nvrtcGetCUBINSize(nvrtcProgram program, size_t *size);
EXPORT int nvrtcGetCUBIN(nvrtcProgram program, char *data);
EXPORT int nvrtcGetPTXSize(nvrtcProgram program, size_t *size);
EXPORT int nvrtcGetPTX(nvrtcProgram program, char *data);
EXPORT int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size);
EXPORT int nvrtcGetProgramLog(nvrtcProgram program, char *data);
EXPORT int64_t standin_count(const char *name);
EXPORT void standin_reset(void);

#define ENTER()                                      \
	do {                                         \
		int entered = calls_enter(__func__); \
		if (entered != NVRTC_SUCCESS)        \
			return entered;              \
	} while (0)

/* ---- how a test talks to it ---- */

/* Compilations that wait for each other: $EVENKEEL_STANDIN_TOGETHER. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t more;
	int begun;
} together = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

/* False: the others did not come. */
static bool meet_others(void)
{
	const int wanted = calls_setting("EVENKEEL_STANDIN_TOGETHER", 1);
	struct timespec until;
	int waited = 0;
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	(void)pthread_mutex_lock(&together.lock);
	together.begun++;
	(void)pthread_cond_broadcast(&together.more);
	while (together.begun < wanted && waited == 0)
		waited = pthread_cond_timedwait(&together.more, &together.lock, &until);
	bool met = together.begun >= wanted;
	(void)pthread_mutex_unlock(&together.lock);
	return met;
}

int64_t standin_count(const char *name)
{
	int64_t count = calls_count(name);
	return count < 0 && strncmp(name, "nvrtc", 5) == 0 ? 0 : count;
}

void standin_reset(void)
{
	calls_reset();
	(void)pthread_mutex_lock(&together.lock);
	together.begun = 0;
	(void)pthread_mutex_unlock(&together.lock);
}

/* ---- what it is ---- */

/* A version that NVIDIA will not release, so that no cache takes its images for real ones; or nvrtcVersion=12000. */
int nvrtcVersion(int *major, int *minor)
{
	int asked_for = calls_enter(__func__), version = asked_for ? asked_for : 12990;
	*major = version / 1000;
	*minor = version % 1000 / 10;
	return NVRTC_SUCCESS;
}

static const int supported[] = {80, 90, 100, 120};
enum { SUPPORTED = sizeof(supported) / sizeof(supported[0]) };

int nvrtcGetNumSupportedArchs(int *count)
{
	ENTER();
	*count = SUPPORTED;
	return NVRTC_SUCCESS;
}

int nvrtcGetSupportedArchs(int *archs)
{
	ENTER();
	memcpy(archs, supported, sizeof(supported));
	return NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(int error)
{
	static const char *const names[] = {"NVRTC_SUCCESS",
					    "NVRTC_ERROR_OUT_OF_MEMORY",
					    "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
					    "NVRTC_ERROR_INVALID_INPUT",
					    "NVRTC_ERROR_INVALID_PROGRAM",
					    "NVRTC_ERROR_INVALID_OPTION",
					    "NVRTC_ERROR_COMPILATION"};
	bool known = error >= 0 && error <= NVRTC_ERROR_COMPILATION;
	return known ? names[error] : "NVRTC_ERROR unknown";
}

/* ---- programs ---- */

int nvrtcCreateProgram(nvrtcProgram *program, const char *text, const char *name, int header_count,
		       const char *const *headers, const char *const *header_names)
{
	ENTER();
	(void)name, (void)headers, (void)header_names;
	if (!text || header_count != 0)
		return NVRTC_ERROR_INVALID_INPUT;
	struct program *created = calloc(1, sizeof(*created));
	if (!created)
		return NVRTC_ERROR_OUT_OF_MEMORY;
	created->text = strdup(text);
	*program = created;
	return NVRTC_SUCCESS;
}

int nvrtcDestroyProgram(nvrtcProgram *program)
{
	ENTER();
	if (!*program)
		return NVRTC_ERROR_INVALID_PROGRAM;
	free((*program)->text);
	free((*program)->log.data);
	free((*program)->image.data);
	free(*program);
	*program = NULL;
	return NVRTC_SUCCESS;
}

static int copy_blob(const struct blob *blob, bool there, char *data, size_t *size)
{
	if (!there)
		return NVRTC_ERROR_INVALID_PROGRAM;
	if (size)
		*size = blob->size;
	if (data)
		memcpy(data, blob->data, blob->size);
	return NVRTC_SUCCESS;
}

int nvrtcGetCUBINSize(nvrtcProgram program, size_t *size)
{
	ENTER();
	return copy_blob(&program->image, program->image.data && program->final, NULL, size);
}

int nvrtcGetCUBIN(nvrtcProgram program, char *data)
{
	ENTER();
	return copy_blob(&program->image, program->image.data && program->final, data, NULL);
}

int nvrtcGetPTXSize(nvrtcProgram program, size_t *size)
{
	ENTER();
	return copy_blob(&program->image, program->image.data && !program->final, NULL, size);
}

int nvrtcGetPTX(nvrtcProgram program, char *data)
{
	ENTER();
	return copy_blob(&program->image, program->image.data && !program->final, data, NULL);
}

int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *size)
{
	ENTER();
	static char nothing[] = "";
	struct blob empty = {nothing, 1};
	return copy_blob(program->log.data ? &program->log : &empty, true, NULL, size);
}

int nvrtcGetProgramLog(nvrtcProgram program, char *data)
{
	ENTER();
	static char nothing[] = "";
	struct blob empty = {nothing, 1};
	return copy_blob(program->log.data ? &program->log : &empty, true, data, NULL);
}

/* ---- files ---- */

enum { FOLDER_ROOM = 256, PATH_ROOM = FOLDER_ROOM + 32 };

/* In a folder that nobody else can look into. */
static bool make_folder(char folder[FOLDER_ROOM])
{
	const char *parent = getenv("TMPDIR");
	(void)snprintf(folder, FOLDER_ROOM, "%s/evenkeel-standin-XXXXXX",
		       parent && *parent ? parent : "/tmp");
	return mkdtemp(folder) != NULL;
}

static const char *path_in(const char *folder, const char *name, char path[PATH_ROOM])
{
	(void)snprintf(path, PATH_ROOM, "%s/%s", folder, name);
	return path;
}

static void remove_folder(const char *folder)
{
	char path[PATH_ROOM];
	if (calls_setting("EVENKEEL_STANDIN_KEEP", 0)) {
		(void)fprintf(stderr, "standin: the kernel is in %s\n", folder);
		return;
	}
	(void)unlink(path_in(folder, "kernel.cu", path));
	(void)unlink(path_in(folder, "kernel.so", path));
	(void)unlink(path_in(folder, "log", path));
	(void)rmdir(folder);
}

static bool write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	if (!file)
		return false;
	bool written = fputs(text, file) >= 0;
	return fclose(file) == 0 && written;
}

/* A file's bytes, with a zero behind them that the size does not count. */
static struct blob read_file(const char *path)
{
	struct blob blob = {NULL, 0};
	FILE *file = fopen(path, "r");
	if (!file)
		return blob;
	long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
	rewind(file);
	blob.data = size >= 0 ? calloc(1, (size_t)size + 1) : NULL;
	if (blob.data)
		blob.size = fread(blob.data, 1, (size_t)size, file);
	(void)fclose(file);
	return blob;
}

/* ---- the compiler's command line ---- */

enum { MOST_WORDS = 160, TEXT_ROOM = 16384, DEFINE_ROOM = 48 };

struct command {
	char *words[MOST_WORDS + 1]; /* each in text */
	char text[TEXT_ROOM];
	size_t used;
	int count;
};

static void add(struct command *command, const char *word)
{
	size_t bytes = strlen(word) + 1;
	if (command->count == MOST_WORDS || bytes > TEXT_ROOM - command->used) {
		(void)fprintf(stderr, "standin: the compiler's command line is too long\n");
		abort();
	}
	command->words[command->count++] = memcpy(command->text + command->used, word, bytes);
	command->used += bytes;
}

/* Words between spaces. */
static void add_all(struct command *command, const char *words)
{
	char *copy = strdup(words), *rest = NULL;
	for (char *word = copy ? strtok_r(copy, " ", &rest) : NULL; word; word = strtok_r(NULL, " ", &rest))
		add(command, word);
	free(copy);
}

static const char *setting(const char *name, const char *fallback)
{
	const char *value = getenv(name);
	return value ? value : fallback;
}

static const char *after(const char *option, const char *start)
{
	size_t length = strlen(start);
	return strncmp(option, start, length) == 0 ? option + length : NULL;
}

/* sm_90, sm_90a or compute_90; no further options of NVRTC's have a meaning here. */
static bool read_arch(struct program *program, const char *arch)
{
	const char *digits = after(arch, "sm_");
	program->final = digits != NULL;
	if (!digits)
		digits = after(arch, "compute_");
	program->arch = digits ? (int)strtol(digits, NULL, 10) : 0;
	for (int i = 0; i < SUPPORTED; i++)
		if (program->arch >= supported[i] && program->arch < supported[i] + 10)
			return true;
	return false;
}

static bool read_options(struct program *program, int count, const char *const *options,
			 struct command *command)
{
	program->arch = supported[0];
	program->final = false;
	for (int i = 0; i < count; i++) {
		const char *arch = after(options[i], "--gpu-architecture=");
		if (!arch)
			arch = after(options[i], "-arch=");
		if (arch && !read_arch(program, arch))
			return false;
		const char *define = after(options[i], "--define-macro=");
		if (define) {
			add(command, "-D");
			add(command, define);
		} else if (after(options[i], "-D")) {
			add(command, options[i]);
		}
	}
	return true;
}

/* Exact floating point as in the library's own build. Kernels read bytes as what they like. */
static void write_command(const struct program *program, const char *folder, struct command *command)
{
	char path[PATH_ROOM], define[DEFINE_ROOM];
	add_all(command, "-x c -std=gnu11 -O1 -g1 -w -fPIC -shared -fvisibility=hidden -fno-strict-aliasing");
	add_all(command, "-fno-fast-math -ffp-contract=off -fno-math-errno");
#ifdef __x86_64__
	if (__builtin_cpu_supports("fma"))
		add(command, "-mfma");
#endif
	(void)snprintf(define, sizeof(define), "-D__CUDA_ARCH__=%d", program->arch * 10);
	add(command, define);
	(void)snprintf(define, sizeof(define), "-DSTANDIN_FINAL=%d", program->final);
	add(command, define);
	add(command, "-DEK_WORDS");
	add(command, "-include");
	add(command, STANDIN_FOLDER "/words.h");
	add(command, path_in(folder, "kernel.cu", path));
	add(command, "-o");
	add(command, path_in(folder, "kernel.so", path));
	add_all(command, setting("EVENKEEL_STANDIN_CFLAGS", STANDIN_CFLAGS));
	add(command, "-lm");
}

/* Runs it, with what it says in `log`. */
static bool run(struct command *command, const char *log)
{
	posix_spawn_file_actions_t actions;
	pid_t child;
	int status = -1;
	command->words[command->count] = NULL;
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	(void)posix_spawn_file_actions_adddup2(&actions, 1, 2);
	int failed = posix_spawnp(&child, command->words[0], &actions, NULL, command->words, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	if (failed) {
		(void)fprintf(stderr, "standin: cannot run %s: %s\n", command->words[0], strerror(failed));
		return false;
	}
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool compile_in(struct program *program, const char *folder, struct command *command)
{
	char path[PATH_ROOM];
	if (!write_file(path_in(folder, "kernel.cu", path), program->text))
		return false;
	write_command(program, folder, command);
	bool compiled = run(command, path_in(folder, "log", path));
	program->log = read_file(path);
	program->log.size += program->log.data != NULL; /* NVRTC counts the zero at the end */
	if (compiled)
		program->image = read_file(path_in(folder, "kernel.so", path));
	return compiled && program->image.data;
}

int nvrtcCompileProgram(nvrtcProgram program, int count, const char *const *options)
{
	ENTER();
	struct command command = {.used = 0};
	char folder[FOLDER_ROOM];
	int result = NVRTC_ERROR_INVALID_OPTION;
	if (!meet_others())
		return NVRTC_ERROR_COMPILATION;
	add(&command, setting("EVENKEEL_STANDIN_CC", STANDIN_CC));
	if (!program->image.data && read_options(program, count, options, &command)) {
		result = NVRTC_ERROR_COMPILATION;
		if (make_folder(folder)) {
			if (compile_in(program, folder, &command))
				result = NVRTC_SUCCESS;
			remove_folder(folder);
		}
	}
	return result;
}
