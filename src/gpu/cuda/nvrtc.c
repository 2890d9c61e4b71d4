/* Compiling text with NVRTC: kernel.c calls it for what no cache has. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "nvrtc.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "library.h"

/* The oldest that compiles the kernels; and those of clusters, which send by st.async from compute capability 9.0 on. */
enum { OLDEST = 12000, CLUSTER_ARCH = 90, OLDEST_WITH_CLUSTERS = 12010 };

const char ek_nvrtc_contract[5][20] = {"--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true",
				       ""};

/* ---- the library ---- */

typedef int result; /* 0: success */
enum { OUT_OF_MEMORY = 1 };
typedef struct program *program;

#define SYMBOLS(X)                                                                                       \
	X(result, version, "nvrtcVersion", (int *major, int *minor))                                     \
	X(const char *, error_string, "nvrtcGetErrorString", (result error))                             \
	X(result, arch_count, "nvrtcGetNumSupportedArchs", (int *count))                                 \
	X(result, archs, "nvrtcGetSupportedArchs", (int *archs))                                         \
	X(result, create, "nvrtcCreateProgram",                                                          \
	  (program * made, const char *text, const char *name, int headers, const char *const *sources,  \
	   const char *const *names))                                                                    \
	X(result, destroy, "nvrtcDestroyProgram", (program * made))                                      \
	X(result, compile, "nvrtcCompileProgram", (program made, int count, const char *const *options)) \
	X(result, cubin_size, "nvrtcGetCUBINSize", (program made, size_t * size))                        \
	X(result, cubin, "nvrtcGetCUBIN", (program made, char *to))                                      \
	X(result, ptx_size, "nvrtcGetPTXSize", (program made, size_t * size))                            \
	X(result, ptx, "nvrtcGetPTX", (program made, char *to))                                          \
	X(result, log_size, "nvrtcGetProgramLogSize", (program made, size_t * size))                     \
	X(result, log, "nvrtcGetProgramLog", (program made, char *to))

#define FIELD(type, field, symbol, parameters) type(*field) parameters;
struct nvrtc {
	int release; /* 13000 is 13.0 */
	SYMBOLS(FIELD)
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static struct nvrtc loaded;
static char loaded_path[512];
static struct {
	bool done;
	char file[PATH_MAX]; /* $EVENKEEL_NVRTC; "": unset */
	char missing[512];
} failed_search;

static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
static const char *const wheels[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", NULL};

#define NOT_FOUND                                                                                     \
	"NVRTC (%s or %s) is not installed: pip install nvidia-cuda-nvrtc-cu12, or install the CUDA " \
	"toolkit, or name the file in $EVENKEEL_NVRTC; looked among the loaded libraries, on the "    \
	"system's paths, in Python's site-packages, $CONDA_PREFIX, $CUDA_HOME, $CUDA_PATH and "       \
	"/usr/local/cuda"

#define NEEDS                                                                                            \
	"evenkeel needs NVRTC 12.0 or newer, 12.1 from compute capability 9.0 on: install one, or name " \
	"it in $EVENKEEL_NVRTC"

/* The name of a symbol that the library lacks; NULL if none. */
static const char *resolve(void *library, struct nvrtc *nvrtc)
{
#define RESOLVE(type, field, symbol, parameters) \
	address = dlsym(library, symbol);        \
	if (!address)                            \
		return symbol;                   \
	memcpy(&nvrtc->field, &address, sizeof(address));
	void *address;
	SYMBOLS(RESOLVE)
	return NULL;
}

/* The library's functions, or what is wrong with it in missing. */
static struct nvrtc examine(void *library, char *missing, size_t size)
{
	struct nvrtc found = {0};
	int major = 0, minor = 0;
	const char *lacking = resolve(library, &found);
	if (lacking)
		(void)snprintf(missing, size, "%.200s lacks %s: " NEEDS, loaded_path, lacking);
	else if (found.version(&major, &minor) != 0 || major * 1000 + minor * 10 < OLDEST)
		(void)snprintf(missing, size, "%.200s is NVRTC %d.%d: " NEEDS, loaded_path, major, minor);
	else
		found.release = major * 1000 + minor * 10;
	return found;
}

/* Into missing where the library is not there or not good. file: "" for a search. */
static void load(const char *file, char *missing, size_t size)
{
	const struct ek_library library = {names, wheels};
	void *handle = *file ? ek_library_open_file(file, loaded_path, sizeof loaded_path)
			     : ek_library_open(&library, loaded_path, sizeof loaded_path);
	if (handle)
		loaded = examine(handle, missing, size);
	else if (*file)
		(void)snprintf(missing, size, "$EVENKEEL_NVRTC names no library that can be loaded: %s",
			       dlerror());
	else
		(void)snprintf(missing, size, NOT_FOUND, names[0], names[1]);
	if (handle && loaded.release == 0)
		(void)dlclose(handle);
}

/* A failure is not repeated for the same file. */
static void load_once(void)
{
	const char *file = secure_getenv("EVENKEEL_NVRTC");
	if (!file)
		file = "";
	if (loaded.release || (failed_search.done && strcmp(failed_search.file, file) == 0))
		return;
	load(file, failed_search.missing, sizeof failed_search.missing);
	failed_search.done = loaded.release == 0;
	(void)snprintf(failed_search.file, sizeof failed_search.file, "%s", file);
}

/* NULL and missing where there is none. What was found stays. */
static const struct nvrtc *get(char *missing, size_t size)
{
	*missing = '\0';
	(void)pthread_mutex_lock(&mutex);
	load_once();
	const struct nvrtc *nvrtc = loaded.release ? &loaded : NULL;
	if (!nvrtc)
		(void)snprintf(missing, size, "%s", failed_search.missing);
	(void)pthread_mutex_unlock(&mutex);
	return nvrtc;
}

void ek_nvrtc_describe(struct ek_nvrtc_info *info)
{
	*info = (struct ek_nvrtc_info){0};
	const struct nvrtc *nvrtc = get(info->missing, sizeof info->missing);
	if (!nvrtc)
		return;
	info->version = nvrtc->release;
	memcpy(info->path, loaded_path, sizeof info->path);
}

/* ---- compiling ---- */

static int read_archs(const struct nvrtc *nvrtc, int archs[EK_NVRTC_ARCHS])
{
	int count = 0;
	if (nvrtc->arch_count(&count) != 0 || count > EK_NVRTC_ARCHS || nvrtc->archs(archs) != 0)
		return 0;
	return count;
}

int ek_nvrtc_archs(int archs[EK_NVRTC_ARCHS])
{
	char missing[512];
	const struct nvrtc *nvrtc = get(missing, sizeof missing);
	return nvrtc ? read_archs(nvrtc, archs) : 0;
}

/* The newest architecture not above arch; 0: none. */
static int nearest_arch(const struct nvrtc *nvrtc, int arch)
{
	int archs[EK_NVRTC_ARCHS], nearest = 0;
	int count = read_archs(nvrtc, archs);
	for (int i = 0; i < count; i++)
		if (archs[i] <= arch && archs[i] > nearest)
			nearest = archs[i];
	return nearest;
}

static char *read_log(const struct nvrtc *nvrtc, program made)
{
	size_t size = 0;
	if (nvrtc->log_size(made, &size) != 0 || size <= 1) /* the final zero counts */
		return NULL;
	char *log = malloc(size);
	if (log && nvrtc->log(made, log) != 0) {
		free(log);
		return NULL;
	}
	return log;
}

/* The line that says what is wrong: the first with "error", else the first. */
static void first_error(const char *log, char line[256])
{
	line[0] = '\0';
	if (!log)
		return;
	const char *error = strstr(log, "error");
	const char *start = error ? error : log;
	while (start > log && start[-1] != '\n')
		start--;
	(void)snprintf(line, 256, "%.*s", (int)strcspn(start, "\n"), start);
}

static result read_image(const struct nvrtc *nvrtc, program made, bool machine_code, struct ek_image *image)
{
	size_t size = 0;
	result failed = machine_code ? nvrtc->cubin_size(made, &size) : nvrtc->ptx_size(made, &size);
	if (failed)
		return failed;
	char *data = malloc(size + 1);
	if (!data)
		return OUT_OF_MEMORY;
	failed = machine_code ? nvrtc->cubin(made, data) : nvrtc->ptx(made, data);
	if (failed)
		free(data);
	else
		*image = (struct ek_image){data, size};
	return failed;
}

/* options of the caller, of the contract, and the architecture; NULL without memory. */
static const char **all_options(const char *const *options, int count, const char *arch, int *total)
{
	const char **all = malloc(((size_t)count + 8) * sizeof *all);
	if (!all)
		return NULL;
	*total = 0;
	for (int i = 0; i < count; i++)
		all[(*total)++] = options[i];
	for (int i = 0; ek_nvrtc_contract[i][0]; i++)
		all[(*total)++] = ek_nvrtc_contract[i];
	all[(*total)++] = arch;
	return all;
}

static result compile(const struct nvrtc *nvrtc, program made, const char *const *options, int count,
		      const char *arch)
{
	int total;
	const char **all = all_options(options, count, arch, &total);
	if (!all)
		return OUT_OF_MEMORY;
	result failed = nvrtc->compile(made, total, all);
	free(all);
	return failed;
}

static ek_status fail_compile(const struct nvrtc *nvrtc, result failed, const char *name, int arch,
			      const char *target, const char *log)
{
	char line[256];
	bool too_old = arch >= CLUSTER_ARCH && nvrtc->release < OLDEST_WITH_CLUSTERS;
	first_error(log, line);
	return ek_fail(failed == OUT_OF_MEMORY ? EK_ERROR_MEMORY : EK_ERROR_COMPILE,
		       "NVRTC %d.%d refused %s (%s): %s%s%s%s", nvrtc->release / 1000,
		       nvrtc->release % 1000 / 10, name, target, nvrtc->error_string(failed),
		       line[0] ? ": " : "", line, too_old ? "; " NEEDS : "");
}

ek_status ek_nvrtc_compile(const char *name, const char *text, const char *const *options, int count,
			   int arch, struct ek_image *image, char **log)
{
	char missing[512], target[48], file[128];
	program made = NULL;
	if (log)
		*log = NULL;
	const struct nvrtc *nvrtc = get(missing, sizeof missing);
	if (!nvrtc)
		return ek_fail(EK_ERROR_COMPILE, "%s cannot be compiled: %s", name, missing);
	int nearest = nearest_arch(nvrtc, arch);
	if (nearest == 0)
		return ek_fail(EK_ERROR_COMPILE,
			       "NVRTC %d.%d knows no compute capability up to %d.%d: install another version",
			       nvrtc->release / 1000, nvrtc->release % 1000 / 10, arch / 10, arch % 10);
	(void)snprintf(target, sizeof target, "--gpu-architecture=%s_%d", nearest == arch ? "sm" : "compute",
		       nearest);
	(void)snprintf(file, sizeof file, "%.100s.cu", name);

	char *said = NULL;
	result failed = nvrtc->create(&made, text, file, 0, NULL, NULL);
	if (!failed) {
		failed = compile(nvrtc, made, options, count, target);
		said = read_log(nvrtc, made);
	}
	if (!failed)
		failed = read_image(nvrtc, made, nearest == arch, image);
	if (made)
		(void)nvrtc->destroy(&made);
	ek_status status = failed ? fail_compile(nvrtc, failed, name, arch, target, said) : EK_OK;
	if (log)
		*log = said;
	else
		free(said);
	return status;
}
