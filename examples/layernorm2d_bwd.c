/* LayerNorm backward on one matrix: dx, dweight and dbias, checked and timed, with the command line that
 * GPU kernel libraries give such a program: `layernorm2d_bwd 1 2 1 --length 4000 2000`.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <evenkeel.h>

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu_memory.h"

enum { EXIT_VALID = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_NO_DEVICE = 3 };
enum init { INIT_ONES, INIT_INTEGERS, INIT_DECIMALS };

static const double eps = 1e-5;

struct config {
	int verify, init, timing;
	int64_t rows, cols;
	ek_dtype dtype;
	ek_device device;
	int64_t ordinal; /* of the GPU */
};

/* The matrices have the dtype of the run; weight, its gradients and the statistics are f32. */
struct tensors {
	void *x, *dy, *dx;
	float *weight, *dweight, *dbias;
	float *mean, *rstd, *mean_lo;
};

static const char usage[] =
	"usage: layernorm2d_bwd [VERIFY INIT TIME] [--length M N] [--dtype f16|f32|bf16]\n"
	"                       [--device cpu|cuda|cuda:N]\n"
	"\n"
	"  VERIFY   1: compare with the reference, bit for bit, and with double precision; 0: do not\n"
	"  INIT     0: ones; 1: whole numbers from -5 to 4; 2: decimals from -0.5 to 0.5\n"
	"  TIME     1: print milliseconds and GB/s; 0: do not\n"
	"  --length M N   rows and columns (1024 1024)\n"
	"  --dtype T      of x, dy and dx (f16)\n"
	"  --device D     cpu, or a GPU (cpu)\n"
	"\n"
	"Without arguments: layernorm2d_bwd 1 2 1. Exit status: 0 valid, 1 wrong, 2 bad arguments, 3 no such\n"
	"device.\n";

/* ---- the command line ---- */

static int bad_argument(const char *name, const char *value, const char *expected)
{
	fprintf(stderr, "layernorm2d_bwd: %s is '%s'; it must be %s\n", name, value ? value : "(missing)",
		expected);
	return EXIT_USAGE;
}

static int parse_integer(const char *text, int64_t low, int64_t high, int64_t *value)
{
	if (!text || !*text)
		return 0;
	char *end;
	errno = 0;
	long long number = strtoll(text, &end, 10);
	if (errno || *end || number < low || number > high)
		return 0;
	*value = number;
	return 1;
}

static int parse_dtype(const char *text, ek_dtype *dtype)
{
	static const ek_dtype known[] = {EK_F16, EK_F32, EK_BF16};
	for (size_t i = 0; text && i < sizeof known / sizeof *known; i++) {
		if (strcmp(text, ek_dtype_name(known[i])) == 0) {
			*dtype = known[i];
			return 1;
		}
	}
	return 0;
}

static int parse_device(const char *text, struct config *config)
{
	if (!text)
		return 0;
	config->device = strncmp(text, "cuda", 4) == 0 ? EK_CUDA : EK_CPU;
	config->ordinal = 0;
	if (config->device == EK_CPU)
		return strcmp(text, "cpu") == 0;
	return !text[4] || (text[4] == ':' && parse_integer(text + 5, 0, 255, &config->ordinal));
}

/* Fills config; anything but EXIT_VALID ends the program with a line already printed. */
static int parse(int argc, char **argv, struct config *config)
{
	static const struct {
		const char *name, *expected;
		int high;
	} flags[] = {{"VERIFY", "0 or 1", 1}, {"INIT", "0, 1 or 2", 2}, {"TIME", "0 or 1", 1}};
	int64_t value[3] = {config->verify, config->init, config->timing};
	int given = 0;

	for (int i = 1; i < argc; i++) {
		/* argv ends with NULL, so a missing value reads as NULL and not past the end */
		if (strcmp(argv[i], "--length") == 0) {
			const char *m = argv[i + 1], *n = m ? argv[i + 2] : NULL;
			if (!parse_integer(m, 1, INT64_C(1) << 31, &config->rows))
				return bad_argument("--length M", m, "a number of rows from 1 to 2147483648");
			if (!parse_integer(n, 1, EK_MAX_COLS, &config->cols))
				return bad_argument("--length N", n,
						    "a number of columns from 1 to 16777216");
			i += 2;
		} else if (strcmp(argv[i], "--dtype") == 0) {
			if (!parse_dtype(argv[i + 1], &config->dtype))
				return bad_argument("--dtype", argv[i + 1], "f16, f32 or bf16");
			i += 1;
		} else if (strcmp(argv[i], "--device") == 0) {
			if (!parse_device(argv[i + 1], config))
				return bad_argument("--device", argv[i + 1], "cpu, cuda or cuda:N");
			i += 1;
		} else if (given < 3 && argv[i][0] != '-') {
			if (!parse_integer(argv[i], 0, flags[given].high, &value[given]))
				return bad_argument(flags[given].name, argv[i], flags[given].expected);
			given++;
		} else {
			return bad_argument("argument", argv[i], "one of those that --help lists");
		}
	}
	if (given == 1 || given == 2)
		return bad_argument(flags[given].name, NULL, flags[given].expected);
	config->verify = (int)value[0];
	config->init = (int)value[1];
	config->timing = (int)value[2];
	return EXIT_VALID;
}

/* ---- elements ---- */

/* A 16-bit format by its fields; a finite value in range rounds to nearest, ties to even. */
struct format {
	int exponent_bits, mantissa_bits;
};
static const struct format f16 = {5, 10}, bf16 = {8, 7};

static uint16_t encode(double value, struct format format)
{
	int exponent, least = 2 - (1 << (format.exponent_bits - 1));
	frexp(value, &exponent);
	exponent = exponent - 1 < least || value == 0 ? least : exponent - 1;
	/* with its hidden bit, a normal significand carries into the exponent field by itself */
	double significand = rint(ldexp(fabs(value), format.mantissa_bits - exponent));
	unsigned bits = (unsigned)significand + ((unsigned)(exponent - least) << format.mantissa_bits);
	return (uint16_t)(bits | (signbit(value) ? 0x8000u : 0));
}

static double decode(uint16_t bits, struct format format)
{
	int exponent = (bits & 0x7fff) >> format.mantissa_bits, hidden = 1 << format.mantissa_bits;
	int significand = bits & (hidden - 1);
	int least = 2 - (1 << (format.exponent_bits - 1)) - format.mantissa_bits;
	if (exponent == 0)
		exponent = 1;
	else
		significand += hidden;
	double value = ldexp(significand, exponent - 1 + least);
	return bits & 0x8000 ? -value : value;
}

static void put(void *tensor, ek_dtype dtype, int64_t i, double value)
{
	if (dtype == EK_F32)
		((float *)tensor)[i] = (float)value;
	else
		((uint16_t *)tensor)[i] = encode(value, dtype == EK_F16 ? f16 : bf16);
}

static double get(const void *tensor, ek_dtype dtype, int64_t i)
{
	if (dtype == EK_F32)
		return ((const float *)tensor)[i];
	return decode(((const uint16_t *)tensor)[i], dtype == EK_F16 ? f16 : bf16);
}

static void fill(void *tensor, ek_dtype dtype, int64_t count, int init, uint64_t *state)
{
	for (int64_t i = 0; i < count; i++) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		double random = (double)(*state >> 40) / 16777216; /* [0, 1) */
		double number = init == INIT_INTEGERS ? floor(random * 10) - 5 : random - 0.5;
		put(tensor, dtype, i, init == INIT_ONES ? 1 : number);
	}
}

/* ---- memory ---- */

/* Cache-line aligned: what the workspace needs, and what large tensors like best. */
static void *allocate(size_t bytes)
{
	void *memory = aligned_alloc(64, bytes / 64 * 64 + 64);
	if (!memory) {
		fprintf(stderr, "layernorm2d_bwd: no memory for %zu bytes\n", bytes);
		exit(EXIT_WRONG);
	}
	return memory;
}

/* Where the library computes: NULL is the host. */
static void *allocate_on(const struct gpu *gpu, size_t bytes)
{
	return gpu ? gpu_allocate(gpu, bytes) : allocate(bytes);
}

static void free_on(const struct gpu *gpu, void *memory)
{
	if (gpu)
		gpu_free(gpu, memory);
	else
		free(memory);
}

static struct tensors allocate_tensors(const struct gpu *gpu, const struct config *config)
{
	size_t rows = (size_t)config->rows, cols = (size_t)config->cols;
	size_t matrix = rows * cols * ek_dtype_size(config->dtype);
	return (struct tensors){
		.x = allocate_on(gpu, matrix),
		.dy = allocate_on(gpu, matrix),
		.dx = allocate_on(gpu, matrix),
		.weight = allocate_on(gpu, cols * sizeof(float)),
		.dweight = allocate_on(gpu, cols * sizeof(float)),
		.dbias = allocate_on(gpu, cols * sizeof(float)),
		.mean = allocate_on(gpu, rows * sizeof(float)),
		.rstd = allocate_on(gpu, rows * sizeof(float)),
		.mean_lo = allocate_on(gpu, rows * sizeof(float)),
	};
}

static void free_tensors(const struct gpu *gpu, struct tensors *t)
{
	void *all[] = {t->x, t->dy, t->dx, t->weight, t->dweight, t->dbias, t->mean, t->rstd, t->mean_lo};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free_on(gpu, all[i]);
}

/* The inputs of the op to the GPU, and all that it computed back. */
static void send_inputs(const struct gpu *gpu, const struct config *config, const struct tensors *to,
			const struct tensors *from)
{
	size_t matrix = (size_t)config->rows * (size_t)config->cols * ek_dtype_size(config->dtype);
	gpu_put(gpu, to->x, from->x, matrix);
	gpu_put(gpu, to->dy, from->dy, matrix);
	gpu_put(gpu, to->weight, from->weight, (size_t)config->cols * sizeof(float));
}

static void fetch_outputs(const struct gpu *gpu, const struct config *config, const struct tensors *to,
			  const struct tensors *from)
{
	size_t row = (size_t)config->rows * sizeof(float), column = (size_t)config->cols * sizeof(float);
	gpu_get(gpu, to->dx, from->dx,
		(size_t)config->rows * (size_t)config->cols * ek_dtype_size(config->dtype));
	gpu_get(gpu, to->dweight, from->dweight, column);
	gpu_get(gpu, to->dbias, from->dbias, column);
	gpu_get(gpu, to->mean, from->mean, row);
	gpu_get(gpu, to->rstd, from->rstd, row);
	gpu_get(gpu, to->mean_lo, from->mean_lo, row);
}

/* ---- the library ---- */

static void check(const ek_context *ctx, ek_status status)
{
	if (status == EK_OK)
		return;
	fprintf(stderr, "layernorm2d_bwd: %s: %s\n", ek_status_name(status), ek_error(ctx));
	exit(status == EK_ERROR_NO_DEVICE ? EXIT_NO_DEVICE : EXIT_WRONG);
}

/* The statistics of x; y itself is not kept: it goes where dx will be. */
static void statistics(ek_context *ctx, const struct config *config, const struct tensors *t)
{
	const ek_norm_forward_args args = {
		.size = sizeof args,
		.norm = EK_LAYER_NORM,
		.dtype = config->dtype,
		.rows = config->rows,
		.cols = config->cols,
		.eps = eps,
		.x = t->x,
		.y = t->dx,
		.mean = t->mean,
		.rstd = t->rstd,
		.mean_lo = t->mean_lo,
	};
	check(ctx, ek_norm_forward(ctx, &args));
}

/* The arguments of one backward on ctx, workspace included; the caller frees it. */
static ek_norm_backward_args backward_args(ek_context *ctx, const struct gpu *gpu,
					   const struct config *config, const struct tensors *t)
{
	ek_norm_backward_args args = {
		.size = sizeof args,
		.norm = EK_LAYER_NORM,
		.dtype = config->dtype,
		.weight_dtype = EK_F32,
		.rows = config->rows,
		.cols = config->cols,
		.dy = t->dy,
		.x = t->x,
		.weight = t->weight,
		.mean = t->mean,
		.rstd = t->rstd,
		.mean_lo = t->mean_lo,
		.dx = t->dx,
		.dweight = t->dweight,
		.dbias = t->dbias,
	};
	check(ctx, ek_norm_backward_workspace(ctx, &args, &args.workspace_size));
	args.workspace = allocate_on(gpu, args.workspace_size);
	return args;
}

/* ---- verification ---- */

static int same_bits(const char *name, const void *got, const void *want, size_t bytes)
{
	if (memcmp(got, want, bytes) == 0)
		return 1;
	size_t at = 0;
	while (((const char *)got)[at] == ((const char *)want)[at])
		at++;
	printf("%s differs from the reference at byte %zu\n", name, at);
	return 0;
}

static int matches_reference(const struct config *config, const struct tensors *t)
{
	ek_context *ctx = NULL;
	check(NULL, ek_open(&ctx, &(ek_options){.size = sizeof(ek_options), .isa = "reference"}));
	struct tensors want = *t;
	size_t column = (size_t)config->cols * sizeof(float);
	size_t matrix = (size_t)config->rows * (size_t)config->cols * ek_dtype_size(config->dtype);
	want.dx = allocate(matrix);
	want.dweight = allocate(column);
	want.dbias = allocate(column);
	ek_norm_backward_args args = backward_args(ctx, NULL, config, &want);
	check(ctx, ek_norm_backward(ctx, &args));
	int same = same_bits("dx", t->dx, want.dx, matrix);
	same &= same_bits("dweight", t->dweight, want.dweight, column);
	same &= same_bits("dbias", t->dbias, want.dbias, column);
	free(args.workspace);
	free(want.dx);
	free(want.dweight);
	free(want.dbias);
	ek_close(ctx);
	return same;
}

/* Column sums in double precision, and the sums of their magnitudes that the errors are held against. */
struct columns {
	double *dweight, *dbias, *dweight_size, *dbias_size;
};

/* One row of dx by the formula, and its share of the column sums. Returns the number of wrong elements:
 * off by more than 1e-6 |g| rstd and the rounding to the dtype. */
static int64_t check_row(const struct config *config, const struct tensors *t, int64_t row,
			 const struct columns *sums)
{
	const int64_t cols = config->cols, at = row * cols;
	const double mean = (double)t->mean[row] + t->mean_lo[row], rstd = t->rstd[row];
	const double rounding = config->dtype == EK_F32   ? 0
				: config->dtype == EK_F16 ? ldexp(1, -11)
							  : ldexp(1, -8);
	double a = 0, b = 0, norm = 0;
	for (int64_t j = 0; j < cols; j++) {
		double dy = get(t->dy, config->dtype, at + j), g = dy * t->weight[j];
		double xhat = (get(t->x, config->dtype, at + j) - mean) * rstd;
		a += g * xhat / (double)cols;
		b += g / (double)cols;
		norm += g * g;
		sums->dweight[j] += dy * xhat;
		sums->dweight_size[j] += fabs(dy * xhat);
		sums->dbias[j] += dy;
		sums->dbias_size[j] += fabs(dy);
	}
	int64_t wrong = 0;
	for (int64_t j = 0; j < cols; j++) {
		double g = get(t->dy, config->dtype, at + j) * t->weight[j];
		double xhat = (get(t->x, config->dtype, at + j) - mean) * rstd;
		double want = (g - b - xhat * a) * rstd;
		double allowed = 1e-6 * sqrt(norm) * rstd + rounding * fabs(want) + ldexp(rounding, -14);
		wrong += !(fabs(get(t->dx, config->dtype, at + j) - want) <= allowed);
	}
	return wrong;
}

static int matches_double(const struct config *config, const struct tensors *t)
{
	size_t cols = (size_t)config->cols;
	double *memory = calloc(4 * cols, sizeof(double));
	if (!memory) {
		fprintf(stderr, "layernorm2d_bwd: no memory for %zu bytes\n", 4 * cols * sizeof(double));
		exit(EXIT_WRONG);
	}
	struct columns sums = {memory, memory + cols, memory + 2 * cols, memory + 3 * cols};
	int64_t dx = 0, dweight = 0, dbias = 0;
	for (int64_t row = 0; row < config->rows; row++)
		dx += check_row(config, t, row, &sums);
	for (size_t j = 0; j < cols; j++) {
		dweight += !(fabs(t->dweight[j] - sums.dweight[j]) <= 1e-6 * sums.dweight_size[j] + 1e-30);
		dbias += !(fabs(t->dbias[j] - sums.dbias[j]) <= 1e-6 * sums.dbias_size[j] + 1e-30);
	}
	free(memory);
	if (dx || dweight || dbias)
		printf("elements far from double precision: dx %lld, dweight %lld, dbias %lld\n",
		       (long long)dx, (long long)dweight, (long long)dbias);
	return !dx && !dweight && !dbias;
}

/* ---- timing ---- */

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median of 21 rounds on the same buffers: small matrices are timed from the caches. On a GPU a round is a
 * row of calls, since the host would wait longer for one than that takes. */
static double seconds_per_call(ek_context *ctx, const struct gpu *gpu, const ek_norm_backward_args *args)
{
	enum { ROUNDS = 21 };
	double seconds[ROUNDS];
	int calls = gpu ? 20 : 1;
	for (int i = 0; i < ROUNDS; i++) {
		double start = now();
		for (int call = 0; call < calls; call++)
			check(ctx, ek_norm_backward(ctx, args));
		if (gpu)
			gpu_synchronize(gpu);
		seconds[i] = (now() - start) / calls;
	}
	qsort(seconds, ROUNDS, sizeof *seconds, by_value);
	return seconds[ROUNDS / 2];
}

static void print_head(const ek_context *ctx, const struct config *config)
{
	ek_description on = {.size = sizeof on};
	check(ctx, ek_describe(ctx, &on));
	printf("layernorm2d_bwd %lld x %lld %s, ", (long long)config->rows, (long long)config->cols,
	       ek_dtype_name(config->dtype));
	if (config->device == EK_CUDA)
		printf("cuda:%d %s\n", on.ordinal, on.name);
	else
		printf("%s, threads %d\n", on.isa, on.threads);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return fputs(usage, stdout) < 0;
	}
	struct config config = {
		.verify = 1, .init = INIT_DECIMALS, .timing = 1, .rows = 1024, .cols = 1024, .dtype = EK_F16};
	int bad = parse(argc, argv, &config);
	if (bad)
		return bad;

	ek_context *ctx = NULL;
	check(NULL, ek_open(&ctx, &(ek_options){.size = sizeof(ek_options),
						.device = config.device,
						.ordinal = (int)config.ordinal}));
	struct gpu functions = {0}, *gpu = config.device == EK_CUDA ? &functions : NULL;
	if (gpu)
		gpu_open(gpu, (int)config.ordinal);
	struct tensors t = allocate_tensors(NULL, &config);
	uint64_t seed = 1;
	fill(t.x, config.dtype, config.rows * config.cols, config.init, &seed);
	fill(t.dy, config.dtype, config.rows * config.cols, config.init, &seed);
	fill(t.weight, EK_F32, config.cols, config.init, &seed);
	struct tensors there = gpu ? allocate_tensors(gpu, &config) : t;
	if (gpu)
		send_inputs(gpu, &config, &there, &t);
	statistics(ctx, &config, &there);

	ek_norm_backward_args args = backward_args(ctx, gpu, &config, &there);
	check(ctx, ek_norm_backward(ctx, &args));
	if (gpu)
		fetch_outputs(gpu, &config, &t, &there);
	print_head(ctx, &config);

	int valid = 1;
	if (config.verify) {
		valid = matches_reference(&config, &t);
		valid &= matches_double(&config, &t);
	}
	if (config.timing) {
		double seconds = seconds_per_call(ctx, gpu, &args);
		double bytes =
			3.0 * (double)(config.rows * config.cols) * (double)ek_dtype_size(config.dtype);
		printf("%.4f ms, %.2f GB/s (x + dy + dx)\n", seconds * 1e3, bytes / seconds * 1e-9);
	}
	if (config.verify)
		puts(valid ? "valid: the reference's bits, and double precision's values" : "WRONG");
	free_on(gpu, args.workspace);
	if (gpu)
		free_tensors(gpu, &there);
	free_tensors(NULL, &t);
	ek_close(ctx);
	return valid ? EXIT_VALID : EXIT_WRONG;
}
