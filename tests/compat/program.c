/* A program of version 0.1: compiled against that version's header, which is kept here unchanged, and run on today's
 * shared library. Every struct starts as bytes of 0xA5, so that padding is never zero, and lies between canaries.
 * SPDX-License-Identifier: MIT */
#include "evenkeel.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { POISON = 0xA5, CANARY = 64, ROWS = 3, COLS = 4 };

_Static_assert(sizeof(ek_options) == 80 && sizeof(ek_description) == 136 &&
		       sizeof(ek_norm_forward_args) == 128 && sizeof(ek_norm_backward_args) == 176 &&
		       sizeof(ek_cost_args) == 80 && sizeof(ek_cost) == 44504,
	       "this is not the header of version 0.1");

static int failures;

#define EXPECT(condition, ...)                                                       \
	do {                                                                         \
		if (!(condition)) {                                                  \
			(void)printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
			(void)printf(__VA_ARGS__);                                   \
			(void)printf("\n");                                          \
			failures++;                                                  \
		}                                                                    \
	} while (0)

/* A struct between canaries. */
#define GUARDED(type)                         \
	struct {                              \
		unsigned char before[CANARY]; \
		type at;                      \
		unsigned char after[CANARY];  \
	}
#define POISONED(name)                                 \
	do {                                           \
		memset(&(name), POISON, sizeof(name)); \
		(name).at.size = sizeof((name).at);    \
	} while (0)
#define EXPECT_CANARIES(name) \
	EXPECT(is_whole((name).before) && is_whole((name).after), "bytes around " #name " were written")

static bool is_whole(const unsigned char *canary)
{
	for (int i = 0; i < CANARY; i++)
		if (canary[i] != POISON)
			return false;
	return true;
}

static const float x[ROWS * COLS] = {1, 2, 3, 4, -1, -1, 1, 1, 0, 8, 0, -8};
static const float dy[ROWS * COLS] = {1, 0, 0, 0, 2, -1, 0.5f, 3, -2, 1, 1, 4};
static const float weight[COLS] = {1, 2, -1, 0.5f};
static const float bias[COLS] = {0, 1, 0, -3};

static bool near(float value, double wanted)
{
	return fabs((double)value - wanted) <= 1e-5 * (1 + fabs(wanted));
}

static double row_mean(const float *row)
{
	return ((double)row[0] + row[1] + row[2] + row[3]) / COLS;
}

static double row_rstd(const float *row)
{
	double sum = 0, mean = row_mean(row);
	for (int i = 0; i < COLS; i++)
		sum += (row[i] - mean) * (row[i] - mean);
	return 1 / sqrt(sum / COLS + 1e-5);
}

/* ---- contexts ---- */

static ek_context *open_context(void)
{
	GUARDED(ek_options) options;
	ek_context *ctx = NULL;
	POISONED(options);
	options.at.device = EK_CPU, options.at.ordinal = 0, options.at.threads = 2, options.at.isa = NULL;
	options.at.parallel_for = NULL, options.at.parallel_user = NULL, options.at.stream_bytes = 4096;
	options.at.cache = NULL, options.at.pack = NULL, options.at.nvtx = 0;
	EXPECT(ek_open(&ctx, &options.at) == EK_OK, "%s", ek_error(NULL));
	EXPECT_CANARIES(options);
	return ctx;
}

static void describe(const ek_context *ctx)
{
	GUARDED(ek_description) description;
	POISONED(description);
	EXPECT(ek_describe(ctx, &description.at) == EK_OK, "%s", ek_error(NULL));
	const ek_description *d = &description.at;
	EXPECT(d->size == sizeof *d && d->device == EK_CPU && d->ordinal == 0 && d->threads == 2 &&
		       d->stream_bytes == 4096 && d->isa && d->name[0],
	       "size %zu, %d threads, stream_bytes %lld", d->size, d->threads, (long long)d->stream_bytes);
	EXPECT_CANARIES(description);
}

/* ---- the norm ---- */

static float y[ROWS * COLS], mean[ROWS], rstd[ROWS], mean_lo[ROWS];

static void forward(ek_context *ctx)
{
	GUARDED(ek_norm_forward_args) args;
	POISONED(args);
	args.at.norm = EK_LAYER_NORM, args.at.dtype = EK_F32, args.at.weight_dtype = EK_F32;
	args.at.rows = ROWS, args.at.cols = COLS, args.at.x_stride = 0, args.at.y_stride = COLS;
	args.at.eps = 1e-5, args.at.x = x, args.at.weight = weight, args.at.bias = bias, args.at.y = y;
	args.at.mean = mean, args.at.rstd = rstd, args.at.mean_lo = mean_lo, args.at.stream = NULL;
	EXPECT(ek_norm_forward_prepare(ctx, &args.at) == EK_OK, "%s", ek_error(ctx));
	EXPECT(ek_norm_forward(ctx, &args.at) == EK_OK, "%s", ek_error(ctx));
	for (int i = 0; i < ROWS * COLS; i++) {
		const float *row = x + i / COLS * COLS;
		double wanted = (x[i] - row_mean(row)) * row_rstd(row) * weight[i % COLS] + bias[i % COLS];
		EXPECT(near(y[i], wanted), "y[%d] is %g, expected %g", i, (double)y[i], wanted);
	}
	for (int r = 0; r < ROWS; r++)
		EXPECT(near(mean[r], row_mean(x + r * COLS)) && near(rstd[r], row_rstd(x + r * COLS)) &&
			       near(mean_lo[r], 0),
		       "row %d: mean %g, rstd %g, mean_lo %g", r, (double)mean[r], (double)rstd[r],
		       (double)mean_lo[r]);
	EXPECT_CANARIES(args);
}

static void expect_gradients(const float *dx, const float *dweight, const float *dbias)
{
	double wanted_dweight[COLS] = {0}, wanted_dbias[COLS] = {0};
	for (int r = 0; r < ROWS; r++) {
		const float *row = x + r * COLS, *d = dy + r * COLS;
		double xhat[COLS], mean_g = 0, mean_gx = 0;
		for (int i = 0; i < COLS; i++) {
			xhat[i] = (row[i] - row_mean(row)) * row_rstd(row);
			mean_g += (double)d[i] * weight[i] / COLS;
			mean_gx += (double)d[i] * weight[i] * xhat[i] / COLS;
			wanted_dweight[i] += d[i] * xhat[i];
			wanted_dbias[i] += d[i];
		}
		for (int i = 0; i < COLS; i++) {
			double wanted =
				((double)d[i] * weight[i] - mean_g - xhat[i] * mean_gx) * row_rstd(row);
			EXPECT(near(dx[r * COLS + i], wanted), "dx[%d] is %g, expected %g", r * COLS + i,
			       (double)dx[r * COLS + i], wanted);
		}
	}
	for (int i = 0; i < COLS; i++)
		EXPECT(near(dweight[i], wanted_dweight[i]) && near(dbias[i], wanted_dbias[i] + 1),
		       "column %d: dweight %g, dbias %g", i, (double)dweight[i], (double)dbias[i]);
}

/* dbias starts at 1 and is added to; dweight starts at 0. */
static void backward(ek_context *ctx)
{
	static unsigned char workspace[1 << 16] __attribute__((aligned(64)));
	float dx[ROWS * COLS], dweight[COLS] = {0}, dbias[COLS] = {1, 1, 1, 1};
	size_t bytes = 0;
	GUARDED(ek_norm_backward_args) args;
	POISONED(args);
	args.at.norm = EK_LAYER_NORM, args.at.dtype = EK_F32, args.at.weight_dtype = EK_F32;
	args.at.rows = ROWS, args.at.cols = COLS, args.at.eps = 0, args.at.accumulate = 1;
	args.at.dy_stride = 0, args.at.x_stride = COLS, args.at.dx_stride = 0;
	args.at.dy = dy, args.at.x = x, args.at.weight = weight, args.at.dx = dx;
	args.at.mean = mean, args.at.rstd = rstd, args.at.mean_lo = mean_lo;
	args.at.dweight = dweight, args.at.dbias = dbias, args.at.stream = NULL;
	args.at.workspace = workspace, args.at.workspace_size = sizeof workspace;
	EXPECT(ek_norm_backward_workspace(ctx, &args.at, &bytes) == EK_OK && bytes <= sizeof workspace,
	       "%zu bytes: %s", bytes, ek_error(ctx));
	EXPECT(ek_norm_backward_prepare(ctx, &args.at) == EK_OK, "%s", ek_error(ctx));
	EXPECT(ek_norm_backward(ctx, &args.at) == EK_OK, "%s", ek_error(ctx));
	expect_gradients(dx, dweight, dbias);
	EXPECT_CANARIES(args);
}

/* ---- the cost ---- */

static GUARDED(ek_cost_args) cost_args;
static GUARDED(ek_cost) cost;

static void fill_cost_args(void)
{
	POISONED(cost_args);
	POISONED(cost);
	ek_cost_args *a = &cost_args.at;
	a->norm = EK_LAYER_NORM, a->pass = EK_FORWARD, a->variant = EK_EVENKEEL, a->device = EK_CUDA;
	a->batch_size = 2, a->seq_len = ROWS, a->hidden_size = COLS, a->dtype = EK_BF16;
	a->weight_dtype = EK_F32, a->compute_dtype = a->stats_dtype = a->intermediate_dtype = (ek_dtype)0;
	a->absent = EK_NO_STATISTICS, a->arch = 0, a->multiprocessors = 0;
}

static void expect_cost(const char *kernel, const char *symbol, long long read_bytes)
{
	const ek_cost *c = &cost.at;
	EXPECT(c->size == sizeof *c && c->kernel_count == 1 && strcmp(c->kernels[0].name, kernel) == 0,
	       "%d kernels, the first is %s", c->kernel_count, c->kernels[0].name);
	EXPECT(c->total.read_bytes == read_bytes && c->kernels[0].read_bytes == read_bytes &&
		       strcmp(c->total.type, "total") == 0,
	       "%lld bytes read", (long long)c->total.read_bytes);
	EXPECT(c->symbol_count >= 3 && strcmp(c->symbols[0].name, symbol) == 0 && c->symbols[0].value == 2,
	       "%d symbols", c->symbol_count);
	EXPECT_CANARIES(cost);
	EXPECT_CANARIES(cost_args);
}

static void costs(void)
{
	fill_cost_args();
	EXPECT(ek_norm_cost(&cost_args.at, &cost.at) == EK_OK, "%s", ek_error(NULL));
	expect_cost("forward", "batch_size", 2 * ROWS * COLS * 2 + 2 * COLS * 4);
	fill_cost_args();
	EXPECT(ek_reference_cost("${torch.rsqrt}(batch_size, seq_len, hidden_size)", &cost_args.at,
				 &cost.at) == EK_OK,
	       "%s", ek_error(NULL));
	expect_cost("torch.rsqrt", "batch_size", 2 * ROWS * 2);
}

int main(void)
{
	EXPECT(ek_numerics_version() == EK_NUMERICS_VERSION, "numerics %d", ek_numerics_version());
	ek_context *ctx = open_context();
	if (ctx) {
		describe(ctx);
		forward(ctx);
		backward(ctx);
		ek_close(ctx);
	}
	costs();
	(void)printf("%s: %d failures\n", ek_version(), failures);
	return failures != 0;
}
