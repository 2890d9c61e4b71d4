/* The part of oneDNN's C API (version 3) that measurements use, declared here so that a build needs no oneDNN: the
 * library is found with dlopen. peers.c includes this file. bench/comparison/backends/onednn.py reads its text: numbers
 * are DNNL_NAME = NUMBER, functions X(int, name, (parameters)). SPDX-License-Identifier: MIT */
#ifndef CLI_ONEDNN_H
#define CLI_ONEDNN_H

#include <stddef.h>
#include <stdint.h>

enum {
	DNNL_SUCCESS = 0,
	DNNL_MAX_NDIMS = 12,
	DNNL_CPU = 1,
	DNNL_STREAM_DEFAULT = 1,
	DNNL_F16 = 1,
	DNNL_BF16 = 2,
	DNNL_F32 = 3,
	DNNL_FORWARD_TRAINING = 64,
	DNNL_FORWARD_INFERENCE = 96,
	DNNL_BACKWARD = 128,
	DNNL_BACKWARD_DATA = 160,
	DNNL_USE_SCALE = 2,
	DNNL_USE_SHIFT = 4,
	DNNL_RMS_NORM = 32,
	DNNL_ARG_SRC = 1,
	DNNL_ARG_DST = 17,
	DNNL_ARG_MEAN = 49,
	DNNL_ARG_VARIANCE = 50,
	DNNL_ARG_SCALE = 51,
	DNNL_ARG_SHIFT = 52,
	DNNL_ARG_DIFF_SRC = 129,
	DNNL_ARG_DIFF_DST = 145,
	DNNL_ARG_DIFF_SCALE = 255,
	DNNL_ARG_DIFF_SHIFT = 256
};

typedef int64_t dnnl_dims[DNNL_MAX_NDIMS];

struct dnnl_arg {
	int arg;
	void *memory;
};

struct dnnl_version {
	int major, minor, patch;
};

/* X(result, name, parameters). Handles are pointers. */
#define DNNL_FUNCTIONS(X)                                                                                    \
	X(const struct dnnl_version *, version, (void))                                                      \
	X(int, engine_create, (void **engine, int kind, size_t index))                                       \
	X(int, engine_destroy, (void *engine))                                                               \
	X(int, stream_create, (void **stream, void *engine, unsigned flags))                                 \
	X(int, stream_destroy, (void *stream))                                                               \
	X(int, stream_wait, (void *stream))                                                                  \
	X(int, memory_desc_create_with_strides,                                                              \
	  (void **desc, int ndims, const dnnl_dims dims, int type, const dnnl_dims strides))                 \
	X(int, memory_desc_destroy, (void *desc))                                                            \
	X(int, memory_create, (void **memory, const void *desc, void *engine, void *handle))                 \
	X(int, memory_destroy, (void *memory))                                                               \
	X(int, layer_normalization_forward_primitive_desc_create,                                            \
	  (void **pd, void *engine, int prop, const void *src, const void *dst, const void *stat, float eps, \
	   unsigned flags, const void *attr))                                                                \
	X(int, layer_normalization_backward_primitive_desc_create,                                           \
	  (void **pd, void *engine, int prop, const void *diff_src, const void *diff_dst, const void *src,   \
	   const void *stat, float eps, unsigned flags, const void *hint, const void *attr))                 \
	X(int, primitive_desc_destroy, (void *pd))                                                           \
	X(int, primitive_create, (void **primitive, const void *pd))                                         \
	X(int, primitive_destroy, (void *primitive))                                                         \
	X(int, primitive_execute,                                                                            \
	  (const void *primitive, void *stream, int count, const struct dnnl_arg *args))

#endif
