/* evenkeel: fused normalization kernels for transformers. The whole public API, with evenkeel/cost.h, which is included.
 *
 *     ek_context *ctx;
 *     ek_status status = ek_open(&ctx, NULL);
 *     if (status == EK_OK)
 *         status = ek_norm_forward(ctx, &(ek_norm_forward_args){
 *             .size = sizeof(ek_norm_forward_args), .norm = EK_LAYER_NORM, .dtype = EK_F32,
 *             .rows = 512, .cols = 768, .eps = 1e-5, .x = x, .weight = w, .bias = b, .y = y});
 *     if (status != EK_OK)
 *         fprintf(stderr, "%s: %s\n", ek_status_name(status), ek_error(ctx));
 *     ek_close(ctx);
 *
 * Results are one exact bit pattern for given inputs, on every backend, instruction set and number
 * of threads: docs/numerics.md is the contract, EK_NUMERICS_VERSION its version.
 *
 * Conventions
 * - Every argument struct starts with its own size and is meant for designated initialisers: a field
 *   that is left out is zero, and zero is the default or "absent". Later versions append fields; a library also
 *   accepts the smaller structs of every version since 0.1, and writes no more of a struct than .size bytes.
 * - Tensors are matrices of `rows` rows of `cols` elements; a stride is the distance between the
 *   starts of neighbouring rows, in elements, and 0 means cols. A normalized shape of several
 *   dimensions is flattened by the caller: cols is its product, rows the product of the rest.
 * - Pointers need no alignment, not even to the element size (the workspace alone does).
 * - A call that returns anything but EK_OK has written nothing; ek_error() says why. (Of EK_ERROR_CUDA alone that is not
 *   sure: a GPU reports late, and a call may be several kernels.)
 * - Strings: those that the library returns are constants, valid as long as it is loaded (except ek_error's);
 *   those that it is given need to be valid only until the call returns.
 * - Stack that a norm on the CPU needs, in the calling thread and in those of a caller's parallel_for: up to
 *   24 KiB with the levels avx512 and avx512bf16, 16 KiB with scalar, avx2 and neon, 144 KiB with reference; with
 *   a residual, x_bias, gate, activation, groups or another choice than the defaults up to 224 KiB with all levels.
 *   ek_glu needs up to 80 KiB and ek_rope up to 144 KiB with all levels.
 * - Finite results need eps > 0 and a row whose sum of |x| stays below 3.4e38; full accuracy needs the
 *   sum of (x - mean)^2 (RMSNorm: of x^2) below 3.4e38. With EK_F64 read 1.8e308.
 *
 * SPDX-License-Identifier: MIT */
#ifndef EVENKEEL_H
#define EVENKEEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EK_API __attribute__((visibility("default")))
#else
#define EK_API
#endif

#define EK_VERSION_MAJOR 0
#define EK_VERSION_MINOR 1
#define EK_VERSION_PATCH 0
#define EK_VERSION_STRING "0.1.0"

/* The version of the numerics contract: results are equal bit for bit where this number is equal. */
#define EK_NUMERICS_VERSION 1

/* The widest row: column counts convert exactly to binary32. */
#define EK_MAX_COLS 16777216

/* The longest head of ek_rope. */
#define EK_MAX_HEAD_DIM 1024

/* The version of the library that runs, as opposed to the header that was compiled against. */
EK_API const char *ek_version(void);
EK_API int ek_numerics_version(void);

/* ---- status ---- */

typedef enum ek_status {
	EK_OK = 0,
	EK_ERROR_ARGUMENT = 1,    /* a value out of range, or NULL where a pointer is needed */
	EK_ERROR_STRUCT_SIZE = 2, /* .size is not that of a struct this library knows */
	EK_ERROR_DTYPE = 3,       /* an unknown dtype, or a combination that is not supported */
	EK_ERROR_OVERLAP = 4,     /* buffers overlap in a way that is not an allowed in-place form */
	EK_ERROR_WORKSPACE = 5,   /* workspace missing, too small or misaligned */
	EK_ERROR_UNSUPPORTED = 6, /* this CPU or this build lacks what was asked for */
	EK_ERROR_NO_DEVICE = 7,   /* the device asked for is not there */
	EK_ERROR_MEMORY = 8,      /* out of memory, on the host or on the device */
	EK_ERROR_CUDA = 9,        /* the CUDA driver refused; the message has its words */
	EK_ERROR_COMPILE = 10,    /* a GPU kernel could not be compiled: no NVRTC, or it refused */
	EK_ERROR_NOT_READY = 11   /* the stream is being captured and the kernel is not compiled yet */
} ek_status;

/* "EK_ERROR_DTYPE" for EK_ERROR_DTYPE; "unknown status" for any other number. */
EK_API const char *ek_status_name(ek_status status);

typedef struct ek_context ek_context;

/* The message of the calling thread's last failed call, naming the argument and its value; "" before the first
 * failure. ctx is not read and may be NULL. The string belongs to the thread, whose next call may overwrite it.
 * docs/troubleshooting.md has every message, with its usual cause and what to do. */
EK_API const char *ek_error(const ek_context *ctx);

/* ---- context ---- */

typedef enum ek_device {
	EK_CPU = 0,
	EK_CUDA = 1 /* an NVIDIA GPU; pointers are then device memory, and calls go on a stream */
} ek_device;

/* A caller's own parallel loop: call run(task, i) once for each i in 0 … count-1, from any threads in
 * any order, and return when all have returned.
 *
 * count is the number of tasks. It depends on the shape and may be smaller than ek_options.threads or several
 * times larger. A call may run several loops, one after the other. Tasks do not wait for each other: any number
 * of threads may run them, also one, and the bits are the same. Concurrent calls run concurrent loops. */
typedef void (*ek_parallel_for)(void *user, int64_t count, void (*run)(void *task, int64_t i), void *task);

typedef struct ek_options {
	size_t size; /* sizeof(ek_options) */
	ek_device device;
	int ordinal; /* which GPU; 0 on the CPU */

	/* Threads a call may use, the caller's included. 0: as many as the calling thread's affinity mask and its
	 * cgroup's CPU quota allow. Worker threads start with the first call that is large enough, or in ek_open
	 * (start_threads). If the system refuses one, calls use those that run; ek_describe reports them. */
	int threads;

	/* Level of the CPU kernels, by name (ek_cpu_level). NULL: $EVENKEEL_ISA if set, else the best. */
	const char *isa;

	/* Run tasks on the caller's threads instead of the library's own. `threads` then is how many threads
	 * a call is cut for. */
	ek_parallel_for parallel_for;
	void *parallel_user;

	/* Results (y or dx of a call) of at least this many bytes are written past the caches (non-temporal stores), which is
	 * fastest when they will not be read again soon. 0: the default, 512 KiB; -1: never. */
	int64_t stream_bytes;

	/* EK_CUDA: where compiled kernels are kept. NULL: $EVENKEEL_CACHE, else $XDG_CACHE_HOME/evenkeel, else
	 * ~/.cache/evenkeel; "": nowhere. The folder must be the user's own and closed to others; files are kept in its
	 * subfolder evenkeel-kernels. */
	const char *cache;
	/* EK_CUDA: a file of compiled kernels (evenkeel warmup --pack) for machines without NVRTC. NULL:
	 * $EVENKEEL_PACK, else none. */
	const char *pack;
	int nvtx;   /* EK_CUDA: 1 names every call in NVIDIA's profilers, where NVTX is installed */
	int unused; /* not read: padding in version 0.1 */

	/* Added after 0.1. 1: ek_open starts the worker threads, so that no call starts a thread or allocates memory
	 * (except the first large one in a child after fork()). No effect with parallel_for and on EK_CUDA. */
	int start_threads;

	/* Added after 0.1. EK_CUDA: 1: the pointers of calls are not looked up. The caller knows that the GPU can access
	 * them; a host pointer then makes the CUDA context unusable. */
	int trust_pointers;
} ek_options;

/* Opens a context on one device; options may be NULL. On failure *ctx is NULL. Of the options only
 * parallel_for and parallel_user are used after ek_open.
 *
 * A context may be used by many threads at once, and costs nothing while idle; one on the CPU also in a child
 * after fork(). Its worker threads serve one call at a time. A call that finds them busy does not wait: it runs on
 * the calling thread alone. Concurrent callers that need several threads each need a context each.
 *
 * EK_CUDA uses the CUDA context that is current in the calling thread if it is on that GPU, else the primary
 * one. The primary one is retained until ek_close; any other must outlive ctx.
 * Calls launch on the stream of their arguments and return at once; nothing in them waits, locks or
 * allocates, but the first call with a new width, dtype or set of operands, which compiles (32 ms) or
 * fetches a compiled kernel: ek_norm_forward_prepare does that ahead of time. Each pointer of a call is looked up, and
 * host memory that the GPU cannot access is refused, unless trust_pointers is 1. */
EK_API ek_status ek_open(ek_context **ctx, const ek_options *options);
/* Ends the context's threads. No call may be running on it. NULL is allowed. */
EK_API void ek_close(ek_context *ctx);

typedef struct ek_description {
	size_t size; /* sizeof(ek_description) */
	ek_device device;
	int ordinal;
	int threads;     /* threads a call may use, the caller's included, unless the system refuses some */
	const char *isa; /* level of the CPU kernels; "cuda" */
	char name[96];   /* of the CPU or GPU, as it names itself */
	int64_t stream_bytes;

	/* Added after 0.1. Worker threads that run now, at most threads - 1: none before the first large call, unless
	 * start_threads is 1; always none with parallel_for. A call has one thread more, the caller's. */
	int workers;
	int workers_error; /* errno of a worker that the system refused, such as EAGAIN; 0: none was refused */
} ek_description;

/* Fills description with what the context runs on. */
EK_API ek_status ek_describe(const ek_context *ctx, ek_description *description);

/* The CPU levels of this build, slowest first: "reference" (the contract as scalar C, one thread), "scalar", …;
 * NULL past the last. *usable, if given, is set to 1 where this CPU can run it, else 0. */
EK_API const char *ek_cpu_level(int index, int *usable);

/* ---- GPUs: what EK_CUDA finds. No CUDA context is made. ---- */

typedef struct ek_cuda_info {
	size_t size;             /* sizeof(ek_cuda_info) */
	int gpu_count;           /* GPUs that the driver sees */
	int driver_version;      /* of CUDA, as far as the driver supports it: 12040 is 12.4; 0: no driver */
	int nvrtc_version;       /* of NVRTC, which compiles kernels: 12040 is 12.4; 0: not found */
	char gpu_missing[512];   /* why gpu_count is 0, and what to do; "" */
	char nvrtc_missing[512]; /* why nvrtc_version is 0, and what to do; "" */
	char nvrtc_path[512];    /* of NVRTC's library; "" */
} ek_cuda_info;

/* Fills info with the driver, the number of GPUs and NVRTC. EK_OK also where they are missing. */
EK_API ek_status ek_describe_cuda(ek_cuda_info *info);

typedef struct ek_gpu_info {
	size_t size; /* sizeof(ek_gpu_info) */
	int ordinal;
	int arch; /* compute capability: 90 is 9.0 */
	int multiprocessors;
	int usable;     /* 1: the kernels run on it; 0: its compute capability is below 8.0 */
	int64_t memory; /* bytes */
	char name[96];
} ek_gpu_info;

/* Fills info with what the driver says of GPU ordinal, counted from 0. EK_ERROR_NO_DEVICE where it is not there, and
 * ek_error() says why. */
EK_API ek_status ek_describe_gpu(int ordinal, ek_gpu_info *info);

/* ---- tensors ---- */

typedef enum ek_dtype { EK_F32 = 1, EK_F16 = 2, EK_BF16 = 3, EK_F64 = 4 } ek_dtype;

EK_API size_t ek_dtype_size(ek_dtype dtype);      /* in bytes; 0 for an unknown dtype */
EK_API const char *ek_dtype_name(ek_dtype dtype); /* "f32", …; "unknown" */

typedef enum ek_norm {
	EK_LAYER_NORM = 1, /* xhat = (x - mean) * rstd */
	EK_RMS_NORM = 2    /* xhat = x * rstd */
} ek_norm;

/* How often y is rounded. */
typedef enum ek_rounding {
	EK_ROUND_ONCE = 0, /* computed in binary32 and rounded once, to y */
	EK_ROUND_EACH =
		1 /* xhat rounds to the dtype of the norm's input, then xhat * weight + bias to y's, then the sum with
		   * residual_after, or the activation */
} ek_rounding;

/* A function of a norm's result, or of a gate. */
typedef enum ek_activation {
	EK_NO_ACTIVATION = 0,
	EK_SIGMOID = 1,
	EK_SILU = 2,      /* t sigmoid(t) */
	EK_GELU = 3,      /* t Phi(t), Phi the normal distribution */
	EK_GELU_TANH = 4, /* its form with tanh */
	/* Added after 0.1, of ek_glu alone. */
	EK_RELU = 5,         /* max(t, 0) */
	EK_RELU_SQUARED = 6, /* max(t, 0)^2 */
	EK_IDENTITY = 7      /* t: no activation; "none" in Python and in the program */
} ek_activation;

/* ---- normalization, forward ----
 * The norm's input and the result:
 *     h = (x + x_bias) + residual, rounded to h_dtype; without a residual h = x + x_bias, not rounded
 *     y = activation(xhat(h) * weight + bias) + residual_after
 * xhat has statistics of each row, or of each group of group_cols columns of it: the biased variance (RMSNorm: the mean
 * square) plus eps. residual_after cannot be combined with a residual or an activation.
 * With a gate, the activation is applied to the gate:
 *     y = (xhat(x) * weight + bias) * activation(gate)
 *     y = xhat(x * activation(gate)) * weight + bias, with gate_first; the product is not rounded
 * A gate can be combined with x, weight and bias alone.
 *
 * Dtypes; 0 stands for `dtype`. With EK_F64 all are EK_F64.
 *     x, gate                       dtype
 *     weight, bias, x_bias          weight_dtype: dtype, or EK_F32 with 16-bit activations
 *     residual, h, residual_after   h_dtype: likewise
 *     y                             y_dtype: dtype, EK_F32, or a 16-bit dtype where x is EK_F32
 *     statistics                    binary32
 * In place: y and h may be x or a residual, y also the gate, with the same stride and dtype. Rows of different tensors
 * may also interleave (two column ranges of one matrix); any other overlap is refused. */
typedef struct ek_norm_forward_args {
	size_t size; /* sizeof(ek_norm_forward_args) */
	ek_norm norm;
	ek_dtype dtype;
	ek_dtype weight_dtype;
	int64_t rows; /* >= 0; with 0 the tensors may be NULL */
	int64_t cols; /* 1 … EK_MAX_COLS */
	int64_t x_stride;
	int64_t y_stride;
	double eps; /* finite and >= 0; rounded once to binary32 (binary64 with EK_F64) */
	const void *x;
	const void *weight; /* [cols]; NULL: ones */
	const void *bias;   /* [cols]; NULL: none */
	void *y;
	/* Statistics to return, each [rows] (with groups [rows][cols / group_cols]) and each optional. mean_lo is what
	 * rounding took from the mean: with it, backward is as exact at mean 1e4 as at 0. EK_RMS_NORM has rstd alone:
	 * the others must be NULL. */
	void *mean;
	void *rstd;
	void *mean_lo;
	/* A CUstream or cudaStream_t; NULL on the CPU. On EK_CUDA NULL is the legacy default stream, which synchronizes
	 * with the blocking streams of its CUDA context and cannot be captured. */
	void *stream;

	/* Added after 0.1. */
	ek_dtype h_dtype; /* of residual, h and residual_after */
	ek_dtype y_dtype;
	int64_t residual_stride;
	int64_t h_stride;
	int64_t residual_after_stride;
	const void *x_bias;         /* [cols]; NULL: none */
	const void *residual;       /* NULL: none */
	const void *residual_after; /* NULL: none */
	void *h;                    /* NULL: not wanted; needs a residual */
	int weight_offset;          /* 0, or 1: 1 + weight is used for weight */
	ek_rounding rounding;
	ek_activation activation;
	int gate_first; /* 1: the gate multiplies x */
	int64_t gate_stride;
	const void *gate; /* NULL: none; needs an activation */
	/* Columns that share statistics: a divisor of cols; 0: cols. Each group of group_cols neighbouring columns is
	 * normalized on its own. weight, bias and x_bias still have cols elements; statistics are
	 * [rows][cols / group_cols]. */
	int64_t group_cols;
} ek_norm_forward_args;

EK_API ek_status ek_norm_forward(ek_context *ctx, const ek_norm_forward_args *args);

/* Makes what a call with these arguments needs, so that it can be captured in a CUDA graph and never
 * compiles: on EK_CUDA the kernels, for any number of rows; on the CPU nothing. Pointers are looked at
 * (NULL or not, their alignment) and not followed. */
EK_API ek_status ek_norm_forward_prepare(ek_context *ctx, const ek_norm_forward_args *args);

/* ---- normalization, backward ----
 * With g = dy * weight, over each row:
 *     LayerNorm  dx = (g - mean(g) - xhat * mean(g * xhat)) * rstd
 *     RMSNorm    dx = (g - xhat * mean(g * xhat)) * rstd
 * and over the rows: dweight = sum of dy * xhat, dbias = sum of dy.
 *
 * Statistics: any mean and rstd, taken as they are, also ones that are not x's own; mean_lo is optional
 * beside them (NULL with EK_RMS_NORM). With rstd (and mean) NULL they are recomputed from x and eps, by forward's
 * rules.
 *
 * What forward had    what backward takes
 *     a residual      x is forward's h, of dtype `h_dtype`; dh, the gradient of h from its other uses, is added to dx
 *     x_bias alone    x_bias (with a residual it is part of h)
 *     an activation   bias
 *     a gate          gate, and bias unless gate_first
 * The gradient of residual_after is dy itself. dresidual is dx in `h_dtype`, dx_bias the sum of dx over the rows; dgate
 * has `dtype`.
 * Outputs: dx, dresidual, dgate, dweight, dbias, dx_bias, each optional, at least one. dx, dresidual and dgate may be dy,
 * x, dh or the gate with the same stride and dtype. */
typedef struct ek_norm_backward_args {
	size_t size; /* sizeof(ek_norm_backward_args) */
	ek_norm norm;
	ek_dtype dtype; /* of dx; of dy and x unless y_dtype and h_dtype say otherwise */
	ek_dtype
		weight_dtype; /* of weight, bias, x_bias; of dweight, dbias, dx_bias unless gradient_dtype does; 0: dtype */
	int64_t rows;
	int64_t cols;
	int64_t dy_stride;
	int64_t x_stride;
	int64_t dx_stride;
	double eps;     /* used where statistics are recomputed */
	const void *dy; /* NULL, with dh: zeros */
	const void *x;
	const void *weight;
	const void *mean;
	const void *rstd;
	const void *mean_lo;
	void *dx;
	void *dweight;
	void *dbias;
	int accumulate; /* 1: add the sums to dweight, dbias and dx_bias; 0: overwrite them */
	/* 64-byte aligned, of at least ek_norm_backward_workspace() bytes; calls at the same time need one each. */
	void *workspace;
	size_t workspace_size;
	void *stream; /* as of ek_norm_forward_args */

	/* Added after 0.1. */
	ek_dtype h_dtype;        /* of x, dh and dresidual; 0: dtype */
	ek_dtype y_dtype;        /* of dy; 0: dtype */
	ek_dtype gradient_dtype; /* of dweight, dbias and dx_bias: weight_dtype (or 0) or EK_F32 */
	int weight_offset;       /* as of forward, here and below */
	ek_rounding rounding;
	ek_activation activation;
	int64_t dh_stride;
	int64_t dresidual_stride;
	const void *x_bias;
	const void *
		bias; /* forward's, where there is an activation: backward recomputes what it was applied to */
	const void *dh;
	void *dresidual;
	void *dx_bias;
	int64_t gate_stride;
	int64_t dgate_stride;
	const void *gate;
	void *dgate;
	int gate_first;
	int unused;         /* not read */
	int64_t group_cols; /* as of forward; column sums are those of whole rows */
} ek_norm_backward_args;

/* Sets *bytes to the workspace that backward needs for args on ctx: 0 where none of dweight, dbias and dx_bias is asked
 * for. What is asked for M rows is enough for every call with M rows or fewer and otherwise the same sizes, dtypes and
 * operands: allocate once, for the largest call. Reads the sizes, dtypes and which pointers are NULL; follows none. */
EK_API ek_status ek_norm_backward_workspace(const ek_context *ctx, const ek_norm_backward_args *args,
					    size_t *bytes);

EK_API ek_status ek_norm_backward(ek_context *ctx, const ek_norm_backward_args *args);
EK_API ek_status ek_norm_backward_prepare(ek_context *ctx, const ek_norm_backward_args *args);

/* ---- gated activations, forward ----
 *     t = gate + gate_bias, and no more than limit
 *     v = value + value_bias, in -limit to limit, then plus value_offset
 *     y = activation(t) * v; without a value y = activation(t)
 * SwiGLU is EK_SILU, GEGLU is EK_GELU, EK_IDENTITY the bilinear one; without a value this is a bias and an activation. All is
 * computed in binary32 (EK_F64: binary64) and rounded once, to y.
 *
 * A packed tensor [rows][2 cols] is gate and value with the same stride, value cols elements behind gate. With interleaved,
 * gate holds gate and value in turn, [rows][cols][2], gate_bias and the gradients likewise, and value is NULL.
 * In place: y may be gate or value with the same stride. Rows of different tensors may interleave; any other overlap is
 * refused. */
typedef struct ek_glu_forward_args {
	size_t size;              /* sizeof(ek_glu_forward_args) */
	ek_activation activation; /* not EK_NO_ACTIVATION */
	ek_dtype dtype;           /* of gate, value and y */
	ek_dtype weight_dtype; /* of gate_bias and value_bias: dtype (or 0), or EK_F32 with 16-bit tensors */
	int interleaved;       /* 1: gate holds gate and value in turn */
	int64_t rows;          /* >= 0; with 0 the tensors may be NULL */
	int64_t cols;          /* of y; 1 … EK_MAX_COLS */
	int64_t gate_stride;   /* 0: cols, interleaved 2 cols */
	int64_t value_stride;
	int64_t y_stride;
	double limit;        /* 0: none; rounded to binary32 (binary64 with EK_F64), as are the next two */
	double alpha;        /* of EK_SILU: t * sigmoid(alpha * t); 0: 1 */
	double value_offset; /* needs a value */
	const void *gate;
	const void *value;      /* NULL: none, or interleaved */
	const void *gate_bias;  /* [cols], interleaved [cols][2]; NULL: none */
	const void *value_bias; /* [cols]; NULL: none, or interleaved */
	void *y;
	void *stream; /* as of ek_norm_forward_args */
} ek_glu_forward_args;

EK_API ek_status ek_glu_forward(ek_context *ctx, const ek_glu_forward_args *args);
/* As ek_norm_forward_prepare; a GPU's kernels are for any number of rows and of columns. */
EK_API ek_status ek_glu_forward_prepare(ek_context *ctx, const ek_glu_forward_args *args);

/* ---- gated activations, backward ----
 *     dgate = dy * v * activation'(t), 0 where t was over limit
 *     dvalue = dy * activation(t), 0 where the value was beyond limit
 *     dgate_bias, dvalue_bias: the sums of these over the rows, before they are rounded
 * from what forward was given; nothing else is kept. The gradient passes where t or v equals limit.
 * Outputs: dgate, dvalue, dgate_bias, dvalue_bias, each optional, at least one; interleaved dgate and dgate_bias hold both.
 * dgate and dvalue may be dy, gate or value with the same stride. */
typedef struct ek_glu_backward_args {
	size_t size; /* sizeof(ek_glu_backward_args) */
	ek_activation activation;
	ek_dtype dtype; /* of all but the biases and their gradients */
	ek_dtype weight_dtype;
	ek_dtype gradient_dtype; /* of dgate_bias and dvalue_bias: weight_dtype (or 0), or EK_F32 */
	int interleaved;
	int accumulate; /* 1: add the sums to dgate_bias and dvalue_bias; 0: overwrite them */
	int64_t rows;
	int64_t cols;
	int64_t dy_stride;
	int64_t gate_stride;
	int64_t value_stride;
	int64_t dgate_stride;
	int64_t dvalue_stride;
	double limit;
	double alpha;
	double value_offset;
	const void *dy;
	const void *gate;
	const void *value;
	const void *gate_bias;
	const void *value_bias;
	void *dgate;
	void *dvalue;
	void *dgate_bias;
	void *dvalue_bias;
	/* 64-byte aligned, of at least ek_glu_backward_workspace() bytes; calls at the same time need one each. */
	void *workspace;
	size_t workspace_size;
	void *stream;
} ek_glu_backward_args;

/* As ek_norm_backward_workspace: 0 where neither dgate_bias nor dvalue_bias is asked for. */
EK_API ek_status ek_glu_backward_workspace(const ek_context *ctx, const ek_glu_backward_args *args,
					   size_t *bytes);

EK_API ek_status ek_glu_backward(ek_context *ctx, const ek_glu_backward_args *args);
EK_API ek_status ek_glu_backward_prepare(ek_context *ctx, const ek_glu_backward_args *args);

/* ---- rotary position embedding, forward ----
 * The heads of queries and keys, each after its bias and, where `norm` says so, its norm, turned by the angles of its position:
 *     v = q + q_bias                                              [batch][seq][heads][head_dim]
 *     n = xhat(v) * q_weight, the norm of a head; n = v without a norm, or with norm_last
 *     o[a] = n[a] * cos[i] - n[b] * sin[i],  o[b] = n[b] * cos[i] + n[a] * sin[i],  i = 0 … rotary_dim / 2 - 1
 *     q_out = o; with norm_last xhat(o)
 * and likewise for k, whose heads may be fewer. The pair i is a = i, b = i + rotary_dim / 2; interleaved a = 2i, b = 2i + 1; with
 * `trailing` both count from head_dim - rotary_dim on. The other elements of a head do not turn. All is computed in binary32
 * (EK_F64: binary64) and rounded once, to q_out and k_out.
 *
 * cos and sin are tables of rotary_dim / 2 columns: what their rows have beyond is not read. The token s of sequence b takes row
 * positions[b][s]; without positions row b * table_step + offset + s. Rows outside of the table are refused; positions in the
 * memory of a GPU cannot be looked at: one outside gives NaN in all elements that turn, with norm_last in all of the head.
 *
 * q, k and their results are any views whose heads are contiguous: slices of one packed tensor, either order of heads and
 * tokens. In place: q_out may be q, and k_out may be k, with the same strides. */
typedef struct ek_rope_forward_args {
	size_t size;            /* sizeof(ek_rope_forward_args) */
	ek_dtype dtype;         /* of q, k, q_out and k_out */
	ek_dtype weight_dtype;  /* of biases and weights: dtype (or 0), or EK_F32 with 16-bit tensors */
	ek_dtype table_dtype;   /* of cos and sin: likewise */
	int interleaved;        /* 1: pairs are neighbours */
	int trailing;           /* 1: the last rotary_dim elements of a head turn, not the first */
	int norm;               /* 0: none; EK_LAYER_NORM or EK_RMS_NORM of each head */
	int norm_last;          /* 1: the norm comes after the turn; it has no weights then */
	int weight_offset;      /* 0, or 1: 1 + weight is used for weight */
	int64_t batch;          /* >= 0; with 0 the tensors may be NULL */
	int64_t seq;            /* likewise */
	int64_t heads;          /* of q */
	int64_t k_heads;        /* of k; 0: heads */
	int64_t head_dim;       /* 2 … EK_MAX_HEAD_DIM */
	int64_t rotary_dim;     /* even, at most head_dim; 0: head_dim */
	int64_t table_rows;     /* of cos and sin; with 0 they may be NULL */
	int64_t table_step;     /* rows of the tables from a sequence to the next; 0: all share them */
	int64_t offset;         /* the row of the first token of a sequence */
	int64_t q_batch_stride; /* 0, here and below: dense, in the order of the dimensions */
	int64_t q_seq_stride;
	int64_t q_head_stride;
	int64_t k_batch_stride;
	int64_t k_seq_stride;
	int64_t k_head_stride;
	int64_t q_out_batch_stride;
	int64_t q_out_seq_stride;
	int64_t q_out_head_stride;
	int64_t k_out_batch_stride;
	int64_t k_out_seq_stride;
	int64_t k_out_head_stride;
	int64_t cos_stride; /* 0: rotary_dim / 2 */
	int64_t sin_stride;
	int64_t positions_stride; /* 0: seq */
	double eps;               /* of the norm; finite and >= 0 */
	const void *q;
	const void *k;         /* NULL: q alone */
	const void *cos;       /* [table_rows][rotary_dim / 2] */
	const void *sin;       /* likewise */
	const void *positions; /* int64_t [batch][seq]; NULL: tokens follow each other */
	const void *q_bias;    /* [heads][head_dim]; NULL: none */
	const void *k_bias;    /* [k_heads][head_dim] */
	const void *q_weight;  /* [head_dim], of the norm; NULL: ones */
	const void *k_weight;
	void *q_out;
	void *k_out;
	void *stream; /* as of ek_norm_forward_args */
} ek_rope_forward_args;

EK_API ek_status ek_rope_forward(ek_context *ctx, const ek_rope_forward_args *args);
/* As ek_norm_forward_prepare; a GPU's kernels are for any batch, seq and number of heads. */
EK_API ek_status ek_rope_forward_prepare(ek_context *ctx, const ek_rope_forward_args *args);

/* ---- rotary position embedding, backward ----
 * From the gradients of q_out and k_out those of q and k: the turn the other way, and the gradient of the norm, whose statistics are
 * computed again from q and k. dq_bias and dk_bias are the sums of dq and dk over batch and seq; dq_weight and dk_weight are
 * the sums over batch, seq and heads of the turned-back gradient times xhat; none of them of rounded numbers.
 * Without a norm q, k and the biases are not read. Outputs: dq, dk, dq_bias, dk_bias, dq_weight, dk_weight, each optional, at least
 * one. dq may be dq_out or q with the same strides, dk may be dk_out or k. */
typedef struct ek_rope_backward_args {
	size_t size;
	ek_dtype dtype; /* of all but tables, biases, weights and their gradients */
	ek_dtype weight_dtype;
	ek_dtype table_dtype;
	ek_dtype gradient_dtype; /* of the gradients of biases and weights: weight_dtype (or 0), or EK_F32 */
	int interleaved;
	int trailing;
	int norm;
	int norm_last;
	int weight_offset;
	int accumulate; /* 1: add the sums to the gradients of biases and weights; 0: overwrite them */
	int unused;     /* not read */
	int64_t batch;
	int64_t seq;
	int64_t heads;
	int64_t k_heads;
	int64_t head_dim;
	int64_t rotary_dim;
	int64_t table_rows;
	int64_t table_step;
	int64_t offset;
	int64_t dq_out_batch_stride;
	int64_t dq_out_seq_stride;
	int64_t dq_out_head_stride;
	int64_t dk_out_batch_stride;
	int64_t dk_out_seq_stride;
	int64_t dk_out_head_stride;
	int64_t q_batch_stride;
	int64_t q_seq_stride;
	int64_t q_head_stride;
	int64_t k_batch_stride;
	int64_t k_seq_stride;
	int64_t k_head_stride;
	int64_t dq_batch_stride;
	int64_t dq_seq_stride;
	int64_t dq_head_stride;
	int64_t dk_batch_stride;
	int64_t dk_seq_stride;
	int64_t dk_head_stride;
	int64_t cos_stride;
	int64_t sin_stride;
	int64_t positions_stride;
	double eps;
	const void *dq_out; /* NULL, with dk_out: k alone */
	const void *dk_out; /* NULL, with dq_out: q alone */
	const void *q;      /* forward's, where there is a norm */
	const void *k;
	const void *cos;
	const void *sin;
	const void *positions;
	const void *q_bias; /* forward's, where there is a norm */
	const void *k_bias;
	const void *q_weight;
	const void *k_weight;
	void *dq;
	void *dk;
	void *dq_bias;
	void *dk_bias;
	void *dq_weight;
	void *dk_weight;
	/* 64-byte aligned, of at least ek_rope_backward_workspace() bytes; calls at the same time need one each. */
	void *workspace;
	size_t workspace_size;
	void *stream;
} ek_rope_backward_args;

/* As ek_norm_backward_workspace, for batch * seq tokens and fewer: 0 where no gradient of a bias or weight is asked for. */
EK_API ek_status ek_rope_backward_workspace(const ek_context *ctx, const ek_rope_backward_args *args,
					    size_t *bytes);

EK_API ek_status ek_rope_backward(ek_context *ctx, const ek_rope_backward_args *args);
EK_API ek_status ek_rope_backward_prepare(ek_context *ctx, const ek_rope_backward_args *args);

#ifdef __cplusplus
}
#endif

#include "evenkeel/cost.h"

#endif
