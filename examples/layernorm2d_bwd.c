/* LayerNorm backward on one matrix: dx, dweight and dbias, checked and timed, with the command line that
 * GPU kernel libraries give such a program: `layernorm2d_bwd 1 2 1 --length 4000 2000`.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include <evenkeel.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu_memory.h"

enum { EXIT_VALID = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_NO_DEVICE = 3 };
enum init { INIT_ONES, INIT_INTEGERS, INIT_DECIMALS };

struct config {
	int64_t verify, init, timing;
	int64_t rows, cols;
	ek_dtype dtype;
	ek_device device;
	int64_t ordinal; /* of the GPU */
};

/* The matrices have the dtype of the run; weight, its gradients and the statistics are f32. */
enum { X, DY, WEIGHT, DX, DWEIGHT, DBIAS, MEAN, RSTD, MEAN_LO, TENSORS, FIRST_OUTPUT = DX };
static const char *const names[TENSORS] = {"x",     "dy",   "weight", "dx",     "dweight",
					   "dbias", "mean", "rstd",   "mean_lo"};

static const char usage[] =
	"usage: layernorm2d_bwd [VERIFY INIT TIME] [--length M N] [--dtype f16|f32|bf16]\n"
	"                       [--device cpu|cuda|cuda:N]\n"
	"\n"
	"  VERIFY   1: compare with the reference, bit for bit; 0: do not\n"
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
	for (size_t i = 0; text && i < sizeof known / sizeof *known; i++)
		if (strcmp(text, ek_dtype_name(known[i])) == 0) {
			*dtype = known[i];
			return 1;
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
	const struct {
		const char *name, *expected;
		int64_t high, *value;
	} flags[] = {{"VERIFY", "0 or 1", 1, &config->verify},
		     {"INIT", "0, 1 or 2", 2, &config->init},
		     {"TIME", "0 or 1", 1, &config->timing}};
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
			if (!parse_dtype(argv[++i], &config->dtype))
				return bad_argument("--dtype", argv[i], "f16, f32 or bf16");
		} else if (strcmp(argv[i], "--device") == 0) {
			if (!parse_device(argv[++i], config))
				return bad_argument("--device", argv[i], "cpu, cuda or cuda:N");
		} else if (given < 3 && argv[i][0] != '-') {
			if (!parse_integer(argv[i], 0, flags[given].high, flags[given].value))
				return bad_argument(flags[given].name, argv[i], flags[given].expected);
			given++;
		} else {
			return bad_argument("argument", argv[i], "one of those that --help lists");
		}
	}
	if (given == 1 || given == 2)
		return bad_argument(flags[given].name, NULL, flags[given].expected);
	return EXIT_VALID;
}

/* ---- tensors, on the host (gpu NULL) or on a GPU ---- */

static size_t bytes_of(const struct config *config, int tensor)
{
	size_t rows = (size_t)config->rows, cols = (size_t)config->cols;
	if (tensor == X || tensor == DY || tensor == DX)
		return rows * cols * ek_dtype_size(config->dtype);
	return (tensor >= MEAN ? rows : cols) * sizeof(float);
}

/* Aligned as the workspace must be, and as large tensors like best. */
static void *allocate(const struct gpu *gpu, size_t bytes)
{
	void *memory = gpu ? gpu_allocate(gpu, bytes) : aligned_alloc(64, bytes / 64 * 64 + 64);
	if (!memory) {
		fprintf(stderr, "layernorm2d_bwd: no memory for %zu bytes\n", bytes);
		exit(EXIT_WRONG);
	}
	return memory;
}

static void release(const struct gpu *gpu, void *memory)
{
	if (gpu)
		gpu_free(gpu, memory);
	else
		free(memory);
}

static void allocate_all(const struct gpu *gpu, const struct config *config, void *tensors[TENSORS])
{
	for (int i = 0; i < TENSORS; i++)
		tensors[i] = allocate(gpu, bytes_of(config, i));
}

static void release_all(const struct gpu *gpu, void *tensors[TENSORS])
{
	for (int i = 0; i < TENSORS; i++)
		release(gpu, tensors[i]);
}

/* Element i of a tensor; the 16-bit formats represent each value that fill() makes. */
static void put(void *tensor, ek_dtype dtype, int64_t i, float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
	if (dtype == EK_F32)
		((float *)tensor)[i] = value;
	else if (dtype == EK_BF16)
		((uint16_t *)tensor)[i] = (uint16_t)(bits >> 16);
	else /* an exponent of 5 bits instead of 8 */
		((uint16_t *)tensor)[i] =
			(uint16_t)(sign | (magnitude ? (magnitude - (112u << 23)) >> 13 : 0));
}

/* Decimals are multiples of 1/256. */
static void fill(void *tensor, ek_dtype dtype, int64_t count, int64_t init, uint64_t *state)
{
	for (int64_t i = 0; i < count; i++) {
		*state = *state * 6364136223846793005u + 1442695040888963407u;
		int random = (int)(*state >> 40 & 0xffff);
		float number =
			init == INIT_INTEGERS ? (float)(random % 10 - 5) : (float)(random % 256 - 128) / 256;
		put(tensor, dtype, i, init == INIT_ONES ? 1 : number);
	}
}

/* ---- the library ---- */

static void check(const ek_context *ctx, ek_status status)
{
	if (status == EK_OK)
		return;
	fprintf(stderr, "layernorm2d_bwd: %s: %s\n", ek_status_name(status), ek_error(ctx));
	exit(status == EK_ERROR_NO_DEVICE ? EXIT_NO_DEVICE : EXIT_WRONG);
}

/* Forward for the statistics, then backward. Returns the arguments of backward, whose workspace the caller frees. */
static ek_norm_backward_args compute(ek_context *ctx, const struct gpu *gpu, const struct config *config,
				     void *const t[TENSORS])
{
	const ek_norm_forward_args forward = {
		.size = sizeof forward,
		.norm = EK_LAYER_NORM,
		.dtype = config->dtype,
		.rows = config->rows,
		.cols = config->cols,
		.eps = 1e-5,
		.x = t[X],
		.y = t[DX], /* y is not kept: it goes where dx will be */
		.mean = t[MEAN],
		.rstd = t[RSTD],
		.mean_lo = t[MEAN_LO],
	};
	ek_norm_backward_args backward = {
		.size = sizeof backward,
		.norm = EK_LAYER_NORM,
		.dtype = config->dtype,
		.weight_dtype = EK_F32,
		.rows = config->rows,
		.cols = config->cols,
		.dy = t[DY],
		.x = t[X],
		.weight = t[WEIGHT],
		.mean = t[MEAN],
		.rstd = t[RSTD],
		.mean_lo = t[MEAN_LO],
		.dx = t[DX],
		.dweight = t[DWEIGHT],
		.dbias = t[DBIAS],
	};
	check(ctx, ek_norm_forward(ctx, &forward));
	check(ctx, ek_norm_backward_workspace(ctx, &backward, &backward.workspace_size));
	backward.workspace = allocate(gpu, backward.workspace_size);
	check(ctx, ek_norm_backward(ctx, &backward));
	return backward;
}

/* Computes everything again with the reference, and compares all outputs bit for bit. */
static int matches_reference(const struct config *config, void *const t[TENSORS])
{
	void *want[TENSORS];
	ek_context *ctx = NULL;
	int same = 1;
	check(NULL, ek_open(&ctx, &(ek_options){.size = sizeof(ek_options), .isa = "reference"}));
	allocate_all(NULL, config, want);
	for (int i = 0; i < FIRST_OUTPUT; i++)
		memcpy(want[i], t[i], bytes_of(config, i));
	free(compute(ctx, NULL, config, want).workspace);
	for (int i = FIRST_OUTPUT; i < TENSORS; i++)
		if (memcmp(t[i], want[i], bytes_of(config, i)) != 0) {
			printf("%s differs from the reference\n", names[i]);
			same = 0;
		}
	release_all(NULL, want);
	ek_close(ctx);
	return same;
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

/* The median of 21 rounds on the same buffers: small matrices are timed from the caches. On a GPU a round is
 * several calls, since the host would wait longer for one than that takes. */
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
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0)
			return fputs(usage, stdout) < 0;
	struct config config = {
		.verify = 1, .init = INIT_DECIMALS, .timing = 1, .rows = 1024, .cols = 1024, .dtype = EK_F16};
	int bad = parse(argc, argv, &config), valid = 1;
	if (bad)
		return bad;

	ek_context *ctx = NULL;
	check(NULL, ek_open(&ctx, &(ek_options){.size = sizeof(ek_options),
						.device = config.device,
						.ordinal = (int)config.ordinal}));
	struct gpu functions = {0}, *gpu = config.device == EK_CUDA ? &functions : NULL;
	if (gpu)
		gpu_open(gpu, (int)config.ordinal);
	void *here[TENSORS], *there[TENSORS]; /* on the host, and where the library computes */
	uint64_t seed = 1;
	allocate_all(NULL, &config, here);
	fill(here[X], config.dtype, config.rows * config.cols, config.init, &seed);
	fill(here[DY], config.dtype, config.rows * config.cols, config.init, &seed);
	fill(here[WEIGHT], EK_F32, config.cols, config.init, &seed);
	memcpy(there, here, sizeof there);
	if (gpu)
		allocate_all(gpu, &config, there);
	for (int i = 0; i < FIRST_OUTPUT && gpu; i++)
		gpu_put(gpu, there[i], here[i], bytes_of(&config, i));

	ek_norm_backward_args args = compute(ctx, gpu, &config, there);
	for (int i = FIRST_OUTPUT; i < TENSORS && gpu; i++)
		gpu_get(gpu, here[i], there[i], bytes_of(&config, i));
	print_head(ctx, &config);
	if (config.verify)
		valid = matches_reference(&config, here);
	if (config.timing) {
		double seconds = seconds_per_call(ctx, gpu, &args);
		double bytes = 3.0 * (double)bytes_of(&config, X);
		printf("%.4f ms, %.2f GB/s (x + dy + dx)\n", seconds * 1e3, bytes / seconds * 1e-9);
	}
	if (config.verify)
		puts(valid ? "valid: the reference's bits" : "WRONG");
	release(gpu, args.workspace);
	if (gpu)
		release_all(gpu, there);
	release_all(NULL, here);
	ek_close(ctx);
	return valid ? EXIT_VALID : EXIT_WRONG;
}
