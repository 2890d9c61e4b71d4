/* oneDNN's layer normalization through its C API (onednn.h), found with dlopen. Called by cell.c.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "peers.h"

#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell.h"
#include "onednn.h"

enum { MAX_ARGS = 9 };

struct dnnl {
#define DECLARE(type, name, parameters) type(*name) parameters;
	DNNL_FUNCTIONS(DECLARE)
};

struct peer {
	struct dnnl dnnl;
	void *library, *engine, *stream;
	char name[32];
	/* for the cell at hand */
	void *primitive;
	void *activations, *statistics, *vector; /* memory descriptors */
	struct dnnl_arg *args;                   /* MAX_ARGS for each set */
	int arg_count;
	int64_t sets;
	float *scale, *shift, *diff_scale, *diff_shift, *variance;
	unsigned char *out; /* of the first set, for the comparison */
};

static void *open_library(void)
{
	/* Where pip puts it into an environment; the newest oneDNN needs more of what is there, the one for
	 * GNU OpenMP nothing. */
	static const char *const patterns[] = {".venv/lib/libdnnl.so.3", ".venv/lib/libdnnl.so.3.*",
					       ".venv/lib/python3*/site-packages/*/libdnnl.so.3",
					       ".venv/lib/python3*/site-packages/*/lib/libdnnl.so.3"};
	const char *told = getenv("EVENKEEL_DNNL");
	if (told)
		return dlopen(told, RTLD_NOW | RTLD_LOCAL);
	void *library = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; i < sizeof patterns / sizeof patterns[0] && !library; i++) {
		glob_t found = {0};
		if (glob(patterns[i], 0, NULL, &found) == 0)
			for (size_t k = 0; k < found.gl_pathc && !library; k++)
				library = dlopen(found.gl_pathv[k], RTLD_NOW | RTLD_LOCAL);
		globfree(&found);
	}
	return library;
}

static bool load_functions(struct dnnl *dnnl, void *library)
{
	void *symbol;
	/* POSIX promises that a function's address fits an object pointer; memcpy says so without a cast. */
#define LOAD(type, name, parameters)                   \
	if (!(symbol = dlsym(library, "dnnl_" #name))) \
		return false;                          \
	memcpy(&dnnl->name, &symbol, sizeof symbol);
	DNNL_FUNCTIONS(LOAD)
	return true;
}

static void set_threads(void *library, int threads)
{
	void (*set_num_threads)(int);
	void *symbol = dlsym(library, "omp_set_num_threads");
	if (!symbol)
		return;
	memcpy(&set_num_threads, &symbol, sizeof symbol);
	set_num_threads(threads);
}

struct peer *peer_open(int threads)
{
	/* GNU OpenMP's threads spin for milliseconds after each call, which would slow what is timed next. */
	(void)setenv("GOMP_SPINCOUNT", "20000", 0);
	struct peer *peer = calloc(1, sizeof *peer);
	if (!peer)
		return NULL;
	peer->library = open_library();
	if (!peer->library || !load_functions(&peer->dnnl, peer->library) ||
	    peer->dnnl.engine_create(&peer->engine, DNNL_CPU, 0) != DNNL_SUCCESS ||
	    peer->dnnl.stream_create(&peer->stream, peer->engine, DNNL_STREAM_DEFAULT) != DNNL_SUCCESS) {
		peer_close(peer);
		return NULL;
	}
	set_threads(peer->library, threads);
	const struct dnnl_version *version = peer->dnnl.version();
	(void)snprintf(peer->name, sizeof peer->name, "oneDNN %d.%d", version->major, version->minor);
	return peer;
}

void peer_close(struct peer *peer)
{
	if (!peer)
		return;
	if (peer->stream)
		(void)peer->dnnl.stream_destroy(peer->stream);
	if (peer->engine)
		(void)peer->dnnl.engine_destroy(peer->engine);
	/* The library stays loaded: its threads may still be on their way to sleep. */
	free(peer);
}

const char *peer_name(const struct peer *peer)
{
	return peer->name;
}

static bool make_descriptor(struct peer *peer, void **descriptor, int64_t rows, int64_t cols, int type)
{
	dnnl_dims dims = {rows, cols};
	dnnl_dims strides = {cols, 1};
	if (cols == 0) /* a vector */
		strides[0] = 1;
	return peer->dnnl.memory_desc_create_with_strides(descriptor, cols ? 2 : 1, dims, type, strides) ==
	       DNNL_SUCCESS;
}

static bool has_shift(const struct cell *cell)
{
	return cell->bias || cell->dbias;
}

static bool make_primitive(struct peer *peer, const struct cell *cell)
{
	const struct test_case *test_case = &cell->test_case;
	const struct dnnl *dnnl = &peer->dnnl;
	bool forward = test_case->pass == FORWARD;
	float eps = (float)(forward ? cell->forward.eps : cell->backward.eps);
	unsigned flags = (cell->weight ? DNNL_USE_SCALE : 0) | (has_shift(cell) ? DNNL_USE_SHIFT : 0) |
			 (test_case->op->kind == EK_RMS_NORM ? DNNL_RMS_NORM : 0);
	bool parameters = (flags & (DNNL_USE_SCALE | DNNL_USE_SHIFT)) != 0;
	void *hint = NULL;
	void *descriptor = NULL;
	int status = dnnl->layer_normalization_forward_primitive_desc_create(
		&hint, peer->engine, forward ? DNNL_FORWARD_INFERENCE : DNNL_FORWARD_TRAINING,
		peer->activations, peer->activations, peer->statistics, eps, flags, NULL);
	if (status == DNNL_SUCCESS && !forward)
		status = dnnl->layer_normalization_backward_primitive_desc_create(
			&descriptor, peer->engine, parameters ? DNNL_BACKWARD : DNNL_BACKWARD_DATA,
			peer->activations, peer->activations, peer->activations, peer->statistics, eps, flags,
			hint, NULL);
	if (status == DNNL_SUCCESS)
		status = dnnl->primitive_create(&peer->primitive, forward ? hint : descriptor);
	if (hint)
		(void)dnnl->primitive_desc_destroy(hint);
	if (descriptor)
		(void)dnnl->primitive_desc_destroy(descriptor);
	return status == DNNL_SUCCESS;
}

/* oneDNN's scale, shift and statistics are binary32 whatever the activations are. */
static float *as_floats(ek_dtype dtype, const void *data, int64_t count)
{
	float *floats = malloc((size_t)count * sizeof *floats);
	for (int64_t i = 0; i < count && floats; i++)
		floats[i] = data ? (float)element_value(dtype, data, i) : 0;
	return floats;
}

static bool make_operands(struct peer *peer, const struct cell *cell)
{
	const struct test_case *test_case = &cell->test_case;
	int64_t cols = test_case->cols;
	peer->scale = as_floats(test_case->weight_dtype, cell->weight, cols);
	peer->shift = as_floats(test_case->weight_dtype, cell->bias, cols);
	peer->diff_scale = as_floats(EK_F32, NULL, cols);
	peer->diff_shift = as_floats(EK_F32, NULL, cols);
	peer->variance = as_floats(EK_F32, cell->rstd, test_case->rows);
	peer->out = malloc(cell->step);
	peer->args = calloc((size_t)cell->sets, MAX_ARGS * sizeof *peer->args);
	if (!peer->scale || !peer->shift || !peer->diff_scale || !peer->diff_shift || !peer->variance ||
	    !peer->out || !peer->args)
		return false;
	for (int64_t row = 0; row < test_case->rows && cell->rstd; row++) {
		double rstd = peer->variance[row];
		peer->variance[row] = (float)(1 / (rstd * rstd) - cell->backward.eps);
	}
	return true;
}

static bool add(struct peer *peer, struct dnnl_arg *args, int arg, const void *descriptor, const void *data)
{
	if (!data)
		return true;
	struct dnnl_arg *added = &args[peer->arg_count++];
	added->arg = arg;
	void *handle = (void *)(uintptr_t)data; /* the interface takes inputs without const */
	return peer->dnnl.memory_create(&added->memory, descriptor, peer->engine, handle) == DNNL_SUCCESS;
}

static bool make_args(struct peer *peer, const struct cell *cell, int64_t set, const unsigned char *out)
{
	struct dnnl_arg *args = peer->args + set * MAX_ARGS;
	const unsigned char *x = cell->x + cell->step * (size_t)set;
	size_t stats_at = cell->stats_step * (size_t)set;
	bool weight = cell->weight != NULL;
	bool bias = has_shift(cell);
	peer->arg_count = 0;
	bool fine = add(peer, args, DNNL_ARG_SRC, peer->activations, x) &&
		    add(peer, args, DNNL_ARG_SCALE, peer->vector, weight ? peer->scale : NULL) &&
		    add(peer, args, DNNL_ARG_SHIFT, peer->vector,
			bias ? peer->shift : NULL); /* backward wants it too */
	if (cell->test_case.pass == FORWARD)
		return fine && add(peer, args, DNNL_ARG_DST, peer->activations, out);
	return fine &&
	       add(peer, args, DNNL_ARG_DIFF_DST, peer->activations, cell->dy + cell->step * (size_t)set) &&
	       add(peer, args, DNNL_ARG_MEAN, peer->statistics, cell->mean ? cell->mean + stats_at : NULL) &&
	       add(peer, args, DNNL_ARG_VARIANCE, peer->statistics, peer->variance) &&
	       add(peer, args, DNNL_ARG_DIFF_SRC, peer->activations, out) &&
	       add(peer, args, DNNL_ARG_DIFF_SCALE, peer->vector, weight ? peer->diff_scale : NULL) &&
	       add(peer, args, DNNL_ARG_DIFF_SHIFT, peer->vector, bias ? peer->diff_shift : NULL);
}

static void free_args(struct peer *peer, int64_t set)
{
	for (int i = 0; i < MAX_ARGS; i++) {
		struct dnnl_arg *arg = &peer->args[set * MAX_ARGS + i];
		if (arg->memory)
			(void)peer->dnnl.memory_destroy(arg->memory);
		*arg = (struct dnnl_arg){0};
	}
}

/* The largest difference over the largest value. */
static double difference(ek_dtype dtype, const void *a, ek_dtype b_dtype, const void *b, int64_t count)
{
	double worst = 0;
	double largest = 1e-30;
	for (int64_t i = 0; i < count; i++) {
		double value = element_value(dtype, a, i);
		double apart = fabs(value - element_value(b_dtype, b, i));
		if (!(apart <= worst))
			worst = apart;
		if (fabs(value) > largest)
			largest = fabs(value);
	}
	return worst / largest;
}

static bool agrees(struct peer *peer, const struct cell *cell)
{
	const struct test_case *test_case = &cell->test_case;
	if (!make_args(peer, cell, 0, peer->out))
		return false;
	memset(peer->out, 0, cell->step);
	peer_call(peer, 0);
	free_args(peer, 0);
	double allowed = test_case->dtype == EK_F32 ? 1e-4 : 2e-2;
	int64_t elements = test_case->rows * test_case->cols;
	bool same = difference(test_case->dtype, cell->out, test_case->dtype, peer->out, elements) < allowed;
	if (cell->dweight && cell->weight)
		same = same && difference(test_case->weight_dtype, cell->dweight, EK_F32, peer->diff_scale,
					  test_case->cols) < allowed;
	return same;
}

bool peer_prepare(struct peer *peer, const struct cell *cell)
{
	const struct test_case *test_case = &cell->test_case;
	int type = test_case->dtype == EK_F32 ? DNNL_F32 : test_case->dtype == EK_BF16 ? DNNL_BF16 : DNNL_F16;
	peer->sets = cell->sets;
	bool fine = test_case->dtype != EK_F64 &&
		    make_descriptor(peer, &peer->activations, test_case->rows, test_case->cols, type) &&
		    make_descriptor(peer, &peer->statistics, test_case->rows, 0, DNNL_F32) &&
		    make_descriptor(peer, &peer->vector, test_case->cols, 0, DNNL_F32) &&
		    make_primitive(peer, cell) && make_operands(peer, cell) && agrees(peer, cell);
	for (int64_t set = 0; set < cell->sets && fine; set++)
		fine = make_args(peer, cell, set, cell->out + cell->step * (size_t)set);
	if (!fine)
		peer_release(peer);
	return fine;
}

void peer_call(struct peer *peer, int64_t set)
{
	(void)peer->dnnl.primitive_execute(peer->primitive, peer->stream, peer->arg_count,
					   peer->args + set * MAX_ARGS);
	(void)peer->dnnl.stream_wait(peer->stream);
}

void peer_release(struct peer *peer)
{
	for (int64_t set = 0; set < peer->sets && peer->args; set++)
		free_args(peer, set);
	if (peer->primitive)
		(void)peer->dnnl.primitive_destroy(peer->primitive);
	void **const descriptors[] = {&peer->activations, &peer->statistics, &peer->vector};
	for (int i = 0; i < 3; i++) {
		if (*descriptors[i])
			(void)peer->dnnl.memory_desc_destroy(*descriptors[i]);
		*descriptors[i] = NULL;
	}
	free(peer->scale);
	free(peer->shift);
	free(peer->diff_scale);
	free(peer->diff_shift);
	free(peer->variance);
	free(peer->out);
	free(peer->args);
	peer->scale = peer->shift = peer->diff_scale = peer->diff_shift = peer->variance = NULL;
	peer->primitive = NULL;
	peer->out = NULL;
	peer->args = NULL;
}
