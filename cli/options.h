/* The options of all commands: one table (options.c) that parsing and --help both read. Called by main.c.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stdio.h>

#include "cases.h"

/* One bit per command: the table says which commands take an option. */
enum command {
	COMMAND_INFO = 1,
	COMMAND_RUN = 2,
	COMMAND_VERIFY = 4,
	COMMAND_BENCH = 8,
	COMMAND_WARMUP = 16,
	COMMAND_EXPLAIN = 32
};

enum { MAX_SHAPES = 64, MAX_ARCHS = 16 };

/* Of EK_ROUND_ONCE and EK_ROUND_EACH. */
extern const char *const rounding_names[2];
/* Of EK_NO_ACTIVATION and so on. */
extern const char *const activation_names[EK_IDENTITY + 1];
struct options {
	enum command command;
	const struct ek_op_entry *ops[EK_OP_NAMES]; /* in the order given */
	int op_count;                               /* 0: all */
	bool pass[PASS_COUNT];                      /* both false: the command's default */
	int64_t rows, cols;                         /* 0: not given */
	int64_t group_cols;                         /* 0: cols */
	struct shape shapes[MAX_SHAPES];            /* --shapes, or the one of --rows and --cols */
	int shape_count;                            /* warmup: the widths of --cols, with one row */
	ek_dtype dtypes[4];
	int dtype_count;
	ek_dtype weight_dtype;        /* 0: the same as dtype */
	int choices[EK_MOST_CHOICES]; /* by number, weight_dtype aside (choices.c); 0: the default */
	enum filling filling;         /* --init */
	uint64_t seed;
	double eps;
	double limit, alpha, value_offset; /* 0: none, 1, none */
	bool packed;                       /* --packed */
	bool heads_first, positions;       /* of ops on heads */
	bool weight, bias;
	bool bias_given;           /* --bias */
	bool x_bias, x_bias_given; /* --x-bias */
	bool verify, time;
	int64_t rotate; /* megabytes that buffers rotate through; 0: the device's default */
	ek_device device;
	int ordinal;       /* of the GPU */
	bool device_given; /* --device */
	bool every_device; /* --device all: the CPU and each GPU in turn */
	int threads;       /* 0: all */
	const char *isa;   /* NULL: the best */
	bool quick, full;
	const char *json, *csv, *compare, *measure, *pack;
	int archs[MAX_ARCHS]; /* --arch: 90 is compute capability 9.0 */
	int arch_count;
	/* explain; sizes of heads: all commands */
	const char *expression;     /* of references, instead of an op */
	int64_t batch, seq, hidden; /* 0: not given; here and in the next lines */
	int64_t ffn, heads, kv_heads, head_dim, rotary_dim;
	bool block; /* instead of an op */
	int order;  /* EK_REORDERED and so on */
	bool gated, qk_norm, causal;
	ek_dtype compute_dtype, stats_dtype, intermediate_dtype;
	int variant; /* 0: all */
	bool statistics, markdown;
	const char *machine; /* NULL: the device's default */
	bool help;
};

/* Reads the arguments after the command's name. Returns an exit status; has complained unless it is 0. */
int options_parse(struct options *options, enum command command, int argc, char **argv);

/* "layer_norm, rms_norm or …": the ops of the registry. */
const char *ops_text(void);

/* Whether weights may have that dtype beside activations of dtype; 0 is the same. */
bool weight_dtype_fits(ek_dtype dtype, ek_dtype weight_dtype);

/* The options that command takes, one line each, with their defaults. */
void options_print(FILE *out, enum command command);

#endif
