/* Bad arguments: each is refused with its status, a message that names the argument and both values, and
 * not one byte written; and the forms that look bad but are allowed are allowed. SPDX-License-Identifier: MIT */
#define _DEFAULT_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "support_fpenv.h"

enum { ROWS = 6, COLS = 40, STRIDE = 100 };

/* All buffers of a call, in one place so that one comparison sees every byte. */
static struct arena {
	float x[ROWS * STRIDE], y[ROWS * STRIDE], dy[ROWS * STRIDE], dx[ROWS * STRIDE];
	float weight[COLS], bias[COLS], dweight[COLS], dbias[COLS], mean[ROWS], rstd[ROWS], mean_lo[ROWS];
	_Alignas(64) unsigned char workspace[1 << 20];
} arena, before;

static ek_context *ctx;
static size_t workspace_size;

static ek_norm_forward_args forward_args(void)
{
	return (ek_norm_forward_args){.size = sizeof(ek_norm_forward_args),
				      .norm = EK_LAYER_NORM,
				      .dtype = EK_F32,
				      .rows = ROWS,
				      .cols = COLS,
				      .eps = 1e-5,
				      .x = arena.x,
				      .weight = arena.weight,
				      .bias = arena.bias,
				      .y = arena.y,
				      .mean = arena.mean,
				      .rstd = arena.rstd,
				      .mean_lo = arena.mean_lo};
}

static ek_norm_backward_args backward_args(void)
{
	return (ek_norm_backward_args){.size = sizeof(ek_norm_backward_args),
				       .norm = EK_LAYER_NORM,
				       .dtype = EK_F32,
				       .rows = ROWS,
				       .cols = COLS,
				       .eps = 1e-5,
				       .dy = arena.dy,
				       .x = arena.x,
				       .weight = arena.weight,
				       .mean = arena.mean,
				       .rstd = arena.rstd,
				       .mean_lo = arena.mean_lo,
				       .dx = arena.dx,
				       .dweight = arena.dweight,
				       .dbias = arena.dbias,
				       .workspace = arena.workspace,
				       .workspace_size = workspace_size};
}

/* The verdict on a call that should have been refused: status, message, and nothing written. */
static void expect_status(const char *what, ek_status status, ek_status wanted, const ek_context *of,
			  const char *const *parts)
{
	const char *message = ek_error(of);
	EXPECT(status == wanted, "%s: answered %s (\"%s\"), expected %s", what, ek_status_name(status),
	       message, ek_status_name(wanted));
	for (; status == wanted && *parts; parts++)
		EXPECT(strstr(message, *parts), "%s: the message \"%s\" does not say \"%s\"", what, message,
		       *parts);
	EXPECT(memcmp(&arena, &before, sizeof(arena)) == 0, "%s: bytes were written", what);
	memcpy(&arena, &before, sizeof(arena));
}

#define SAYS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* REFUSED(forward, STATUS, change of a.field, parts of the message …): by the call, and by what prepares it */
#define REFUSED(pass, wanted, change, ...)                                                                  \
	do {                                                                                                \
		ek_norm_##pass##_args a = pass##_args();                                                    \
		change;                                                                                     \
		expect_status(#pass ": " #change, ek_norm_##pass(ctx, &a), wanted, ctx, SAYS(__VA_ARGS__)); \
		expect_status(#pass "_prepare: " #change, ek_norm_##pass##_prepare(ctx, &a), wanted, ctx,   \
			      SAYS(__VA_ARGS__));                                                           \
	} while (0)
#define BOTH(wanted, change, ...)                               \
	do {                                                    \
		REFUSED(forward, wanted, change, __VA_ARGS__);  \
		REFUSED(backward, wanted, change, __VA_ARGS__); \
	} while (0)
#define ALLOWED(pass, change)                                                                            \
	do {                                                                                             \
		ek_norm_##pass##_args a = pass##_args();                                                 \
		change;                                                                                  \
		expect_status(#pass "_prepare: " #change, ek_norm_##pass##_prepare(ctx, &a), EK_OK, ctx, \
			      SAYS(NULL));                                                               \
		ek_status status = ek_norm_##pass(ctx, &a);                                              \
		EXPECT(status == EK_OK, #pass ": " #change ": answered %s: %s", ek_status_name(status),  \
		       ek_error(ctx));                                                                   \
		memcpy(&arena, &before, sizeof(arena));                                                  \
	} while (0)

SETUP()
{
	fill_rows(FILL_NORMAL, EK_F32, arena.x, 1, (int64_t)(offsetof(struct arena, workspace) / 4), 0, 1);
	memset(arena.workspace, CANARY, sizeof(arena.workspace));
	memcpy(&before, &arena, sizeof(arena));
	ctx = context_of((struct setting){level_best(), 1, PLAIN});
	ek_norm_backward_args a = backward_args();
	if (ek_norm_backward_workspace(ctx, &a, &workspace_size) != EK_OK ||
	    workspace_size > sizeof(arena.workspace) - 128) {
		printf("the workspace cannot be asked for: %s\n", ek_error(ctx));
		exit(1);
	}
}

TEST(good_arguments_are_taken)
{
	ALLOWED(forward, (void)0);
	ALLOWED(backward, (void)0);
	ALLOWED(forward, a.weight_dtype = EK_F32);
	ALLOWED(forward, a.x_stride = COLS; a.y_stride = STRIDE);
	ALLOWED(forward, a.eps = 0);
	ALLOWED(backward, a.accumulate = 1);
	ALLOWED(backward, a.workspace_size += 64);
	ALLOWED(backward, a.dweight = a.dbias = a.workspace = NULL; a.workspace_size = 0);
}

TEST(missing_pointers)
{
	BOTH(EK_ERROR_ARGUMENT, a.x = NULL, "x", "NULL");
	REFUSED(forward, EK_ERROR_ARGUMENT, a.y = NULL, "y", "NULL");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.dy = NULL, "dy", "NULL");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.dx = a.dweight = a.dbias = NULL, "dx", "dweight", "dbias",
		"NULL");
}

TEST(missing_structs)
{
	static const struct ek_op *const ops[] = {&ek_norm_forward_op, &ek_norm_backward_op};
	static const char *const no_args[] = {"args is NULL: give the address of an ek_norm_", NULL},
				 *const no_ctx[] = {"ctx is NULL: make one with ek_open", NULL};
	ek_norm_backward_args b = backward_args();
	size_t bytes = 77;
	for (int i = 0; i < COUNT_OF(ops); i++) {
		expect_status("no args", ops[i]->call(ctx, NULL), EK_ERROR_ARGUMENT, ctx, no_args);
		expect_status("no args", ops[i]->prepare(ctx, NULL), EK_ERROR_ARGUMENT, ctx, no_args);
		expect_status("no ctx", ops[i]->call(NULL, &b), EK_ERROR_ARGUMENT, NULL, no_ctx);
		expect_status("no ctx", ops[i]->prepare(NULL, &b), EK_ERROR_ARGUMENT, NULL, no_ctx);
	}
	expect_status("workspace without ctx", ek_norm_backward_workspace(NULL, &b, &bytes),
		      EK_ERROR_ARGUMENT, NULL, no_ctx);
	expect_status("workspace without args", ek_norm_backward_workspace(ctx, NULL, &bytes),
		      EK_ERROR_ARGUMENT, ctx, no_args);
	expect_status("workspace without bytes", ek_norm_backward_workspace(ctx, &b, NULL), EK_ERROR_ARGUMENT,
		      ctx, SAYS("bytes is NULL: give the address"));
	EXPECT(bytes == 77, "a refused ek_norm_backward_workspace wrote %zu", bytes);
	expect_status("no description", ek_describe(ctx, NULL), EK_ERROR_ARGUMENT, ctx,
		      SAYS("description is NULL: give the address of an ek_description"));
	expect_status("description without ctx",
		      ek_describe(NULL, &(ek_description){.size = sizeof(ek_description)}), EK_ERROR_ARGUMENT,
		      NULL, no_ctx);
}

TEST(sizes_out_of_range)
{
	BOTH(EK_ERROR_ARGUMENT, a.rows = -1, "rows", "-1");
	BOTH(EK_ERROR_ARGUMENT, a.rows = INT64_MIN, "rows", "-9223372036854775808");
	BOTH(EK_ERROR_ARGUMENT, a.cols = 0, "cols", "(0)");
	BOTH(EK_ERROR_ARGUMENT, a.cols = -3, "cols", "-3");
	BOTH(EK_ERROR_ARGUMENT, a.cols = 16777217, "cols", "16777217", "16777216");
	BOTH(EK_ERROR_ARGUMENT, a.rows = INT64_MAX, "rows", "9223372036854775807");
	BOTH(EK_ERROR_ARGUMENT, a.rows = INT64_MAX / 100, "rows", "92233720368547758");
	BOTH(EK_ERROR_ARGUMENT, a.norm = (ek_norm)7, "norm", "7");
	BOTH(EK_ERROR_ARGUMENT, a.norm = (ek_norm)0, "norm", "0");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.accumulate = 2, "accumulate", "2");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.accumulate = -1, "accumulate", "-1");
	BOTH(EK_ERROR_ARGUMENT, a.stream = &arena, "stream", "CPU");
}

TEST(bad_strides)
{
	BOTH(EK_ERROR_ARGUMENT, a.x_stride = COLS - 1, "x_stride", "39", "cols", "40");
	BOTH(EK_ERROR_ARGUMENT, a.x_stride = -COLS, "x_stride", "-40");
	BOTH(EK_ERROR_ARGUMENT, a.x_stride = INT64_MAX, "x_stride", "9223372036854775807", "rows", "6");
	BOTH(EK_ERROR_ARGUMENT, a.x_stride = INT64_MAX / 5, "x_stride", "1844674407370955161");
	BOTH(EK_ERROR_ARGUMENT, a.x_stride = INT64_MAX / 20, "x_stride", "461168601842738790");
	REFUSED(forward, EK_ERROR_ARGUMENT, a.y_stride = 1, "y_stride", "(1)", "cols", "40");
	REFUSED(forward, EK_ERROR_ARGUMENT, a.y_stride = -1, "y_stride", "-1");
	REFUSED(forward, EK_ERROR_ARGUMENT, a.y_stride = INT64_MAX / 4, "y_stride", "2305843009213693951");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.dy_stride = 39, "dy_stride", "39", "cols", "40");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.dx_stride = 39, "dx_stride", "39", "cols", "40");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.dx_stride = INT64_MIN, "dx_stride", "-9223372036854775808");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.dy_stride = INT64_MAX / 4, "dy_stride", "2305843009213693951");
}

TEST(bad_eps)
{
	BOTH(EK_ERROR_ARGUMENT, a.eps = (double)NAN, "eps (nan)");
	BOTH(EK_ERROR_ARGUMENT, a.eps = copysign((double)NAN, -1), "eps (nan)");
	BOTH(EK_ERROR_ARGUMENT, a.eps = -1e-5, "eps", "-1e-05");
	BOTH(EK_ERROR_ARGUMENT, a.eps = (double)INFINITY, "eps", "inf");
	BOTH(EK_ERROR_ARGUMENT, a.eps = -(double)INFINITY, "eps", "-inf");
	BOTH(EK_ERROR_ARGUMENT, (a.dtype = EK_F64, a.eps = (double)INFINITY), "eps", "inf");
}

/* Whether an eps is finite in binary32 is decided by rounding to nearest, whatever the caller's rounding mode is. */
TEST(eps_must_be_finite_in_the_arithmetic_of_its_dtype)
{
	static const ek_dtype dtypes[] = {EK_F32, EK_F16, EK_BF16};
	const double rounds_to_infinity = 0x1.ffffffp127, rounds_to_the_largest = 0x1.fffffefffffffp127;
	const uint64_t fpenv = fpenv_get();
	for (int m = -1; m < FPENV_MODES; m++) {
		fpenv_set(m < 0 ? fpenv : fpenv_modes[m]);
		for (int d = 0; d < COUNT_OF(dtypes); d++) {
			const char *name = ek_dtype_name(dtypes[d]);
			BOTH(EK_ERROR_ARGUMENT, (a.dtype = dtypes[d], a.eps = 1e300), "eps (1e+300)",
			     "binary32", name, "3.40282e+38");
			BOTH(EK_ERROR_ARGUMENT, (a.dtype = dtypes[d], a.eps = rounds_to_infinity), "eps");
			ALLOWED(forward, (a.dtype = dtypes[d], a.eps = rounds_to_the_largest));
			ALLOWED(forward, (a.dtype = dtypes[d], a.eps = 1e-300)); /* 0, which is allowed */
		}
		ALLOWED(forward, (a.dtype = EK_F64, a.rows /= 2, a.cols /= 2, a.eps = 1e300));
	}
	fpenv_set(fpenv);
}

TEST(bad_dtypes)
{
	BOTH(EK_ERROR_DTYPE, a.dtype = (ek_dtype)0, "dtype", "0");
	BOTH(EK_ERROR_DTYPE, a.dtype = (ek_dtype)9, "dtype", "9");
	BOTH(EK_ERROR_DTYPE, a.weight_dtype = (ek_dtype)5, "weight_dtype", "5");
	BOTH(EK_ERROR_DTYPE, a.weight_dtype = EK_F16, "weight_dtype", "f16", "f32");
	BOTH(EK_ERROR_DTYPE, a.weight_dtype = EK_F64, "weight_dtype", "f64", "f32");
	BOTH(EK_ERROR_DTYPE, a.dtype = EK_F16; a.weight_dtype = EK_BF16, "weight_dtype", "bf16", "f16");
	BOTH(EK_ERROR_DTYPE, a.dtype = EK_BF16; a.weight_dtype = EK_F16, "weight_dtype", "bf16", "f16");
	BOTH(EK_ERROR_DTYPE, a.dtype = EK_F64; a.weight_dtype = EK_F32, "weight_dtype", "f64", "f32");
}

TEST(struct_sizes)
{
	REFUSED(forward, EK_ERROR_STRUCT_SIZE, a.size = 0, "size (0) is not sizeof(ek_norm_forward_args)",
		"set .size = sizeof(ek_norm_forward_args)");
	REFUSED(backward, EK_ERROR_STRUCT_SIZE, a.size = 0, "size (0) is not sizeof(ek_norm_backward_args)",
		"set .size = sizeof(ek_norm_backward_args)");
	BOTH(EK_ERROR_STRUCT_SIZE, a.size = offsetof(__typeof__(a), stream),
	     "size"); /* the last field of 0.1 is missing */
	BOTH(EK_ERROR_STRUCT_SIZE, a.size += 8, "size");
	BOTH(EK_ERROR_STRUCT_SIZE, a.size = 5, "size", "(5)", "evenkeel.h", EK_VERSION_STRING);
}

TEST(statistics_that_do_not_go_together)
{
	BOTH(EK_ERROR_ARGUMENT, a.norm = EK_RMS_NORM; a.mean_lo = NULL, "mean", "EK_RMS_NORM");
	BOTH(EK_ERROR_ARGUMENT, a.norm = EK_RMS_NORM; a.mean = NULL, "mean_lo", "EK_RMS_NORM");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.rstd = NULL, "mean", "rstd");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.mean = NULL; a.mean_lo = NULL, "mean", "rstd");
	REFUSED(backward, EK_ERROR_ARGUMENT, a.mean = a.rstd = NULL, "mean_lo", "mean");
	ALLOWED(backward, a.mean = a.rstd = a.mean_lo = NULL);
	ALLOWED(backward, a.mean_lo = NULL);
	ALLOWED(backward, a.norm = EK_RMS_NORM; a.mean = a.mean_lo = NULL);
	ALLOWED(forward, a.mean = NULL);
}

TEST(bad_workspaces)
{
	char asked[32], given[32];
	snprintf(asked, sizeof(asked), "%zu", workspace_size);
	snprintf(given, sizeof(given), "%zu", workspace_size - 1);
	EXPECT(workspace_size > 0 && workspace_size <= sizeof(arena.workspace), "the workspace is %zu bytes",
	       workspace_size);
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace = NULL, "workspace", asked);
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace_size--, "workspace_size", asked, given);
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace_size = 0, "workspace_size", asked, "0");
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace = arena.workspace + 32, "workspace", "64");
	REFUSED(backward, EK_ERROR_WORKSPACE, a.workspace = arena.workspace + 1, "workspace", "64");
	ek_norm_backward_args a = backward_args();
	size_t bytes = 1;
	a.dweight = a.dbias = NULL;
	EXPECT(ek_norm_backward_workspace(ctx, &a, &bytes) == EK_OK && bytes == 0,
	       "without dweight and dbias: %zu bytes", bytes);
	a = backward_args();
	a.dy = a.x = a.weight = a.mean = a.rstd = a.mean_lo = NULL; /* "ignores the other pointers" */
	a.dx = a.workspace = NULL;
	a.workspace_size = 0;
	EXPECT(ek_norm_backward_workspace(ctx, &a, &bytes) == EK_OK && bytes == workspace_size,
	       "%zu bytes, and %zu without pointers: %s", workspace_size, bytes, ek_error(ctx));
	a.cols = 0;
	expect_status("workspace of no columns", ek_norm_backward_workspace(ctx, &a, &bytes),
		      EK_ERROR_ARGUMENT, ctx, SAYS("cols"));
}

TEST(overlaps_that_are_refused)
{
	REFUSED(forward, EK_ERROR_OVERLAP, a.y = arena.x + 1, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.y = arena.x + COLS, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.y = (char *)arena.x + 1, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.x = arena.y + ROWS * COLS - 1, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.x = (char *)(arena.y + ROWS * COLS) - 1, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.y = arena.x; a.y_stride = STRIDE, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.weight = arena.y + 3, "y", "weight");
	REFUSED(forward, EK_ERROR_OVERLAP, a.bias = arena.y, "y", "bias");
	REFUSED(forward, EK_ERROR_OVERLAP, a.mean = arena.rstd + 1, "mean", "rstd");
	REFUSED(forward, EK_ERROR_OVERLAP, a.rstd = arena.y + 8, "rstd", "y");
	REFUSED(forward, EK_ERROR_OVERLAP, a.mean_lo = arena.x, "mean_lo", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.mean = arena.weight, "mean", "weight");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dx = arena.dy + 1, "dx", "dy");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dx = arena.x; a.dx_stride = STRIDE, "dx", "x");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dweight = arena.dbias, "dweight", "dbias");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dweight = arena.weight, "dweight", "weight");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dbias = arena.dx + 39, "dbias", "dx");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dbias = arena.x, "dbias", "x");
	REFUSED(backward, EK_ERROR_OVERLAP, a.mean = arena.dweight + 39, "dweight", "mean");
	REFUSED(backward, EK_ERROR_OVERLAP, a.dx = arena.workspace + 4, "dx", "workspace");
	REFUSED(backward, EK_ERROR_OVERLAP, a.x = arena.workspace, "workspace", "x");
	/* Column ranges of one matrix that share a column, or of matrices of other strides. */
	REFUSED(forward, EK_ERROR_OVERLAP, a.x_stride = a.y_stride = STRIDE;
		a.y = arena.x + COLS - 1, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.x_stride = a.y_stride = STRIDE;
		a.y = arena.x + STRIDE - COLS + 1, "y", "x");
	REFUSED(forward, EK_ERROR_OVERLAP, a.x_stride = STRIDE; a.y_stride = STRIDE - 10;
		a.y = arena.x + COLS, "y", "x");
}

TEST(overlaps_that_are_allowed)
{
	ALLOWED(forward, a.y = arena.x);
	ALLOWED(forward, a.y = arena.x; a.x_stride = a.y_stride = STRIDE);
	ALLOWED(forward, a.y = arena.x; a.y_stride = COLS); /* 0 is cols */
	ALLOWED(forward, a.weight = a.bias = arena.x);
	ALLOWED(forward, a.y = arena.x + ROWS * COLS); /* neighbours */
	ALLOWED(forward, a.x_stride = a.y_stride = STRIDE; a.y = arena.x + COLS);
	ALLOWED(forward, a.x_stride = a.y_stride = STRIDE; a.y = arena.x + STRIDE - COLS);
	ALLOWED(forward, a.x_stride = a.y_stride = 2 * COLS; a.x = arena.y + COLS; a.y = arena.y);
	ALLOWED(backward, a.dx = arena.dy);
	ALLOWED(backward, a.dx = arena.x);
	ALLOWED(backward, a.dy = arena.x);
	ALLOWED(backward, a.dy_stride = a.dx_stride = STRIDE; a.dx = arena.dy + COLS);
	ALLOWED(backward, a.mean_lo = arena.mean);
}

/* Interleaved rows keep to their columns. */
TEST(interleaved_rows_stay_apart)
{
	ek_norm_forward_args apart = forward_args(), woven = forward_args();
	float wanted[ROWS * STRIDE];
	apart.x_stride = STRIDE;
	EXPECT(ek_norm_forward(ctx, &apart) == EK_OK, "%s", ek_error(ctx));
	memcpy(wanted, arena.y, sizeof(wanted));
	memcpy(&arena, &before, sizeof(arena));
	woven.x_stride = woven.y_stride = STRIDE;
	woven.y = arena.x + COLS;
	EXPECT(ek_norm_forward(ctx, &woven) == EK_OK, "%s", ek_error(ctx));
	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < STRIDE; i++) {
			float want = i >= COLS && i < 2 * COLS ? wanted[r * COLS + i - COLS]
							       : before.x[r * STRIDE + i];
			EXPECT(arena.x[r * STRIDE + i] == want, "element [%d][%d] is %g, expected %g", r, i,
			       (double)arena.x[r * STRIDE + i], (double)want);
		}
	memcpy(&arena, &before, sizeof(arena));
}

TEST(zero_rows)
{
	ek_norm_forward_args f = forward_args();
	f.rows = 0;
	expect_status("forward of zero rows", ek_norm_forward(ctx, &f), EK_OK, ctx, SAYS(NULL));
	f.x = f.y = NULL;
	expect_status("forward of zero rows without pointers", ek_norm_forward(ctx, &f), EK_OK, ctx,
		      SAYS(NULL));
	for (int l = -1; l < level_count(); l++) {
		ek_context *level =
			context_of((struct setting){l < 0 ? "reference" : level_name(l), 1, PLAIN});
		for (int accumulate = 0; accumulate < 2; accumulate++) {
			ek_norm_backward_args b = backward_args();
			b.rows = 0;
			b.accumulate = accumulate;
			b.workspace_size = sizeof(arena.workspace);
			EXPECT(ek_norm_backward(level, &b) == EK_OK, "backward of zero rows: %s",
			       ek_error(level));
			for (int i = 0; i < COLS; i++) /* the sum of nothing: +0, or what was there */
				EXPECT(element_bits(EK_F32, arena.dweight, i) ==
						       (accumulate ? element_bits(EK_F32, before.dweight, i)
								   : 0) &&
					       element_bits(EK_F32, arena.dbias, i) ==
						       (accumulate ? element_bits(EK_F32, before.dbias, i)
								   : 0),
				       "backward of zero rows, accumulate %d: dweight[%d] is %g, dbias %g",
				       accumulate, i, (double)arena.dweight[i], (double)arena.dbias[i]);
			memcpy(arena.dweight, before.dweight, sizeof(arena.dweight));
			memcpy(arena.dbias, before.dbias, sizeof(arena.dbias));
			memcpy(arena.workspace, before.workspace, sizeof(arena.workspace));
			EXPECT(memcmp(&arena, &before, sizeof(arena)) == 0,
			       "backward of zero rows wrote elsewhere");
			memcpy(&arena, &before, sizeof(arena));
		}
	}
}
