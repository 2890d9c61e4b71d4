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
#include "choices.h"
#include "onednn.h"

/* oneDNN's arguments and the operands that they are. Where it wants f32 whatever the operand's dtype is, or a variance
 * for rstd, it gets a copy. */
enum form { BY_ELEMENT, BY_ROW, BY_COLUMN, FORMS };
static const struct {
	int arg;
	const char *operand;
	enum form form;
	bool copied;
} arguments[] = {{DNNL_ARG_SRC, "x", BY_ELEMENT, false},
		 {DNNL_ARG_SCALE, "weight", BY_COLUMN, true},
		 {DNNL_ARG_SHIFT, "bias", BY_COLUMN, true},
		 {DNNL_ARG_DST, "y", BY_ELEMENT, false},
		 {DNNL_ARG_DIFF_DST, "dy", BY_ELEMENT, false},
		 {DNNL_ARG_MEAN, "mean", BY_ROW, false},
		 {DNNL_ARG_VARIANCE, "rstd", BY_ROW, true},
		 {DNNL_ARG_DIFF_SRC, "dx", BY_ELEMENT, false},
		 {DNNL_ARG_DIFF_SCALE, "dweight", BY_COLUMN, true},
		 {DNNL_ARG_DIFF_SHIFT, "dbias", BY_COLUMN, true}};
enum { ARGUMENTS = sizeof arguments / sizeof arguments[0] };

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
	void *descriptors[FORMS];
	struct dnnl_arg *args; /* ARGUMENTS for each set */
	int arg_count;
	int64_t sets;
	float *copies[ARGUMENTS]; /* NULL: the operand itself */
	unsigned char *out;       /* of the first set, for the comparison */
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

/* The operand that an argument is; -1: the cell has none. Backward has no bias, yet oneDNN wants a shift. */
static int operand_of(const struct cell *cell, int argument)
{
	const char *name = arguments[argument].operand;
	bool shift = arguments[argument].arg == DNNL_ARG_SHIFT && cell->test_case.pass == BACKWARD;
	int number = ek_operand_named(cell->op, shift ? "dbias" : name);
	return number >= 0 && cell->slabs[number] ? number : -1;
}

static bool make_primitive(struct peer *peer, const struct cell *cell)
{
	const struct test_case *test_case = &cell->test_case;
	const struct dnnl *dnnl = &peer->dnnl;
	bool forward = test_case->pass == FORWARD;
	float eps = (float)test_case->eps;
	void *x = peer->descriptors[BY_ELEMENT], *statistics = peer->descriptors[BY_ROW];
	unsigned flags = (cell_slab(cell, "weight") ? DNNL_USE_SCALE : 0) |
			 (cell_slab(cell, forward ? "bias" : "dbias") ? DNNL_USE_SHIFT : 0) |
			 (test_case->op->kind == EK_RMS_NORM ? DNNL_RMS_NORM : 0);
	bool parameters = (flags & (DNNL_USE_SCALE | DNNL_USE_SHIFT)) != 0;
	void *hint = NULL;
	void *descriptor = NULL;
	int status = dnnl->layer_normalization_forward_primitive_desc_create(
		&hint, peer->engine, forward ? DNNL_FORWARD_INFERENCE : DNNL_FORWARD_TRAINING, x, x,
		statistics, eps, flags, NULL);
	if (status == DNNL_SUCCESS && !forward)
		status = dnnl->layer_normalization_backward_primitive_desc_create(
			&descriptor, peer->engine, parameters ? DNNL_BACKWARD : DNNL_BACKWARD_DATA, x, x, x,
			statistics, eps, flags, hint, NULL);
	if (status == DNNL_SUCCESS)
		status = dnnl->primitive_create(&peer->primitive, forward ? hint : descriptor);
	if (hint)
		(void)dnnl->primitive_desc_destroy(hint);
	if (descriptor)
		(void)dnnl->primitive_desc_destroy(descriptor);
	return status == DNNL_SUCCESS;
}

static float *copy_operand(const struct cell *cell, int number, bool variance)
{
	const struct test_case *c = &cell->test_case;
	ek_dtype dtype = operand_dtype(c, number);
	int64_t count = operand_bytes(c, number) / (int64_t)ek_dtype_size(dtype);
	float *floats = malloc((size_t)count * sizeof *floats);
	for (int64_t i = 0; i < count && floats; i++) {
		double value = element_value(dtype, cell->slabs[number], i);
		floats[i] = (float)(variance ? 1 / (value * value) - c->eps : value);
	}
	return floats;
}

static bool make_copies(struct peer *peer, const struct cell *cell)
{
	bool fine = true;
	for (int i = 0; i < ARGUMENTS && fine; i++) {
		int number = operand_of(cell, i);
		if (!arguments[i].copied || number < 0)
			continue;
		peer->copies[i] = copy_operand(cell, number, arguments[i].arg == DNNL_ARG_VARIANCE);
		fine = peer->copies[i] != NULL;
	}
	peer->out = malloc(cell->steps[0]);
	peer->args = calloc((size_t)cell->sets, ARGUMENTS * sizeof *peer->args);
	return fine && peer->out && peer->args;
}

/* out: where the result goes; NULL: into the set. */
static bool make_args(struct peer *peer, const struct cell *cell, int64_t set, void *out)
{
	peer->arg_count = 0;
	for (int i = 0; i < ARGUMENTS; i++) {
		struct dnnl_arg *added = &peer->args[set * ARGUMENTS + peer->arg_count];
		int number = operand_of(cell, i);
		if (number < 0)
			continue;
		void *data = peer->copies[i]      ? (void *)peer->copies[i]
			     : number == 0 && out ? out
						  : cell->slabs[number] + cell->steps[number] * (size_t)set;
		added->arg = arguments[i].arg;
		if (peer->dnnl.memory_create(&added->memory, peer->descriptors[arguments[i].form],
					     peer->engine, data) != DNNL_SUCCESS)
			return false;
		peer->arg_count++;
	}
	return true;
}

static void free_args(struct peer *peer, int64_t set)
{
	for (int i = 0; i < ARGUMENTS; i++) {
		struct dnnl_arg *arg = &peer->args[set * ARGUMENTS + i];
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
	const struct test_case *c = &cell->test_case;
	double allowed = c->dtype == EK_F32 ? 1e-4 : 2e-2;
	const void *dweight = cell_slab(cell, "dweight");
	if (!make_args(peer, cell, 0, peer->out))
		return false;
	memset(peer->out, 0, cell->steps[0]);
	peer_call(peer, 0);
	free_args(peer, 0);
	bool same = difference(c->dtype, cell->slabs[0], c->dtype, peer->out, c->rows * c->cols) < allowed;
	for (int i = 0; i < ARGUMENTS && dweight; i++)
		if (arguments[i].arg == DNNL_ARG_DIFF_SCALE)
			same = same && difference(c->weight_dtype, dweight, EK_F32, peer->copies[i],
						  c->cols) < allowed;
	return same;
}

bool peer_prepare(struct peer *peer, const struct cell *cell)
{
	const struct test_case *c = &cell->test_case;
	int type = c->dtype == EK_F32 ? DNNL_F32 : c->dtype == EK_BF16 ? DNNL_BF16 : DNNL_F16;
	peer->sets = cell->sets;
	/* It has neither neighbours nor choices: the bytes are those of a plain norm. */
	bool plain = c->op->forward == &ek_norm_forward_op && c->op->in_forward.needs == 0 &&
		     choices_text(c)[0] == 0 && !c->activation;
	bool fine = plain && c->dtype != EK_F64 &&
		    make_descriptor(peer, &peer->descriptors[BY_ELEMENT], c->rows, c->cols, type) &&
		    make_descriptor(peer, &peer->descriptors[BY_ROW], c->rows, 0, DNNL_F32) &&
		    make_descriptor(peer, &peer->descriptors[BY_COLUMN], c->cols, 0, DNNL_F32) &&
		    make_primitive(peer, cell) && make_copies(peer, cell) && agrees(peer, cell);
	for (int64_t set = 0; set < cell->sets && fine; set++)
		fine = make_args(peer, cell, set, NULL);
	if (!fine)
		peer_release(peer);
	return fine;
}

void peer_call(struct peer *peer, int64_t set)
{
	(void)peer->dnnl.primitive_execute(peer->primitive, peer->stream, peer->arg_count,
					   peer->args + set * ARGUMENTS);
	(void)peer->dnnl.stream_wait(peer->stream);
}

void peer_release(struct peer *peer)
{
	for (int64_t set = 0; set < peer->sets && peer->args; set++)
		free_args(peer, set);
	if (peer->primitive)
		(void)peer->dnnl.primitive_destroy(peer->primitive);
	for (int i = 0; i < FORMS; i++)
		if (peer->descriptors[i])
			(void)peer->dnnl.memory_desc_destroy(peer->descriptors[i]);
	for (int i = 0; i < ARGUMENTS; i++)
		free(peer->copies[i]);
	free(peer->out);
	free(peer->args);
	memset(peer->descriptors, 0, sizeof peer->descriptors);
	memset(peer->copies, 0, sizeof peer->copies);
	peer->primitive = NULL;
	peer->out = NULL;
	peer->args = NULL;
}
