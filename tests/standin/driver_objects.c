/* The stand-in driver's objects, and how its functions start: counted, failed on demand, refused without cuInit or
 * a context, and after an error that sticks. SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "driver_parts.h"

#define NAME_ENTRY(field, symbol, parameters) .field = symbol,
const struct driver_names driver_names = {EK_DRIVER_SYMBOLS(NAME_ENTRY)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *objects;
static bool initialised;
static CUresult stuck;

/* ---- how a function starts ---- */

/* Faults of kernels, after which the context is of no use. */
static bool sticks(CUresult error)
{
	return error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_LAUNCH_TIMEOUT ||
	       error == CUDA_ERROR_ASSERT ||
	       (error >= CUDA_ERROR_HARDWARE_STACK_ERROR && error <= CUDA_ERROR_LAUNCH_FAILED);
}

static CUresult state_of_driver(CUresult failure, enum need need)
{
	(void)pthread_mutex_lock(&lock);
	CUresult result = CUDA_SUCCESS;
	if (need >= NEEDS_INIT && !initialised)
		result = CUDA_ERROR_NOT_INITIALIZED;
	else if (need >= NEEDS_HEALTH && stuck)
		result = stuck;
	if (sticks(failure))
		stuck = failure;
	(void)pthread_mutex_unlock(&lock);
	return result;
}

CUresult driver_enter(const char *name, enum need need)
{
	CUresult failure = calls_enter(name);
	CUresult state = state_of_driver(failure, need);
	if (state != CUDA_SUCCESS)
		return state;
	if (failure != CUDA_SUCCESS)
		return failure;
	if (need >= NEEDS_CONTEXT && !context_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (need >= NEEDS_PEACE && stream_capture_in_the_way())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return CUDA_SUCCESS;
}

CUresult driver_init(unsigned flags)
{
	ENTER(init, NEEDS_NOTHING);
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (calls_setting("EVENKEEL_STANDIN_DEVICES", 1) == 0)
		return CUDA_ERROR_NO_DEVICE;
	(void)pthread_mutex_lock(&lock);
	initialised = true;
	(void)pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

void standin_reset(void)
{
	calls_reset();
	launch_forget();
	(void)pthread_mutex_lock(&lock);
	stuck = CUDA_SUCCESS;
	(void)pthread_mutex_unlock(&lock);
}

static bool is_function(const char *name)
{
#define IS_NAME(field, symbol, parameters) || strcmp(name, symbol) == 0
	return false EK_DRIVER_SYMBOLS(IS_NAME);
}

int64_t standin_count(const char *name)
{
	int64_t count = calls_count(name);
	return count < 0 && is_function(name) ? 0 : count;
}

/* ---- objects ---- */

void *object_create(enum kind kind, size_t bytes, void (*destroy)(struct object *object))
{
	struct object *object = calloc(1, bytes);
	if (!object)
		return NULL;
	object->kind = kind;
	object->context = kind == KIND_CONTEXT ? NULL : context_current();
	object->destroy = destroy;
	return object;
}

void object_list(void *object)
{
	struct object *listed = object;
	(void)pthread_mutex_lock(&lock);
	listed->next = objects;
	objects = listed;
	(void)pthread_mutex_unlock(&lock);
}

struct object *object_find(enum kind kind, bool (*matches)(const struct object *object, const void *wanted),
			   const void *wanted)
{
	(void)pthread_mutex_lock(&lock);
	struct object *object = objects;
	while (object && !(object->kind == kind && matches(object, wanted)))
		object = object->next;
	(void)pthread_mutex_unlock(&lock);
	return object;
}

static bool is_itself(const struct object *object, const void *wanted)
{
	return object == wanted;
}

bool object_is(enum kind kind, const void *object)
{
	const struct object *found = object_find(kind, is_itself, object);
	return found && (kind == KIND_CONTEXT || found->context == context_current());
}

static bool unlist(struct object *object)
{
	(void)pthread_mutex_lock(&lock);
	struct object **link = &objects;
	while (*link && *link != object)
		link = &(*link)->next;
	bool found = *link != NULL;
	if (found)
		*link = object->next;
	(void)pthread_mutex_unlock(&lock);
	return found;
}

void object_destroy(void *object)
{
	struct object *listed = object;
	if (!unlist(listed))
		return;
	if (listed->destroy)
		listed->destroy(listed);
	else
		free(listed);
}

CUresult object_end(enum kind kind, void *object, CUresult otherwise)
{
	if (!object_is(kind, object))
		return otherwise;
	object_destroy(object);
	return CUDA_SUCCESS;
}

static bool is_of(const struct object *object, const void *wanted)
{
	return object->context == wanted;
}

void objects_destroy_of(CUcontext context)
{
	struct object *object;
	for (enum kind kind = KIND_MODULE; kind < KINDS; kind++)
		while ((object = object_find(kind, is_of, context)))
			object_destroy(object);
}

int64_t objects_count(enum kind kind)
{
	int64_t count = 0;
	(void)pthread_mutex_lock(&lock);
	for (const struct object *object = objects; object; object = object->next)
		count += object->kind == kind;
	(void)pthread_mutex_unlock(&lock);
	return count;
}

int64_t standin_live(const char *kind)
{
	static const char *const names[KINDS] = {"context", "module", "function",   "stream",
						 "event",   "graph",  "executable", "memory"};
	for (enum kind i = 0; i < KINDS; i++)
		if (strcmp(kind, names[i]) == 0)
			return objects_count(i);
	return -1;
}
