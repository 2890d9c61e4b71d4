/* The table of options, and the parsing of it: a bad argument is one line that names it and says what it
 * may be. Called by main.c. SPDX-License-Identifier: MIT */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "choices.h"
#include "cli.h"
#include "heads.h"

/* How an option's value is read. */
enum kind { FLAG, SWITCH, COUNT, DTYPE, FILE_NAME, LIST, LENGTH, OTHER };

struct option {
	const char *name;
	const char *values; /* as help shows them, with a space between them */
	int commands;
	enum kind kind;
	size_t offset, size; /* of the field of struct options; LIST: of the number of its items */
	int64_t low, high;   /* COUNT */
	/* OTHER: sets the value, LIST: adds an item. Returns NULL, or what the value may be. */
	const char *(*take)(struct options *options, const char *value);
	const char *help;
};

static int value_count(const struct option *option)
{
	return *option->values ? 1 + (strchr(option->values, ' ') != NULL) : 0;
}

static bool parse_count(const char *text, int64_t low, int64_t high, int64_t *count)
{
	char *end;
	errno = 0;
	long long value = strtoll(text, &end, 10);
	if (end == text || *end || errno || value < low || value > high)
		return false;
	*count = value;
	return true;
}

static ek_dtype dtype_named(const char *name)
{
	for (int dtype = EK_F32; dtype <= EK_F64; dtype++)
		if (strcmp(ek_dtype_name((ek_dtype)dtype), name) == 0)
			return (ek_dtype)dtype;
	return (ek_dtype)0;
}

static const char *set_count(const struct option *option, void *field, const char *text)
{
	static char range[96];
	int64_t count;
	if (!parse_count(text, option->low, option->high, &count)) {
		(void)snprintf(range, sizeof range, "a whole number from %lld to %lld",
			       (long long)option->low, (long long)option->high);
		return range;
	}
	if (option->size == sizeof(int))
		*(int *)field = (int)count;
	else
		*(int64_t *)field = count;
	return NULL;
}

static const char *set_switch(bool *field, const char *text)
{
	*field = *text == '1';
	return strcmp(text, "0") == 0 || strcmp(text, "1") == 0 ? NULL : "0 or 1";
}

/* What lies between commas, item by item. */
static const char *set_list(const struct option *option, struct options *options, const char *list)
{
	const char *allowed = NULL;
	for (bool more = true; more && !allowed;) {
		char item[64];
		size_t length = strcspn(list, ",");
		(void)snprintf(item, sizeof item, "%.*s", length < sizeof item ? (int)length : 0, list);
		allowed = option->take(options, item);
		more = list[length] == ',';
		list += length + more;
	}
	return allowed;
}

#define MAX_ROWS INT64_C(1099511627776)

/* warmup: several widths, each a shape of one row, since kernels serve any number of rows. */
static const char *take_width(struct options *options, const char *item)
{
	int64_t cols;
	if (options->shape_count == MAX_SHAPES || !parse_count(item, 1, EK_MAX_COLS, &cols))
		return "up to 64 whole numbers from 1 to 16777216 with commas between";
	options->shapes[options->shape_count++] = (struct shape){1, cols};
	return NULL;
}

static const char *take_shape(struct options *options, const char *item)
{
	char rows[64];
	const char *x = strchr(item, 'x');
	struct shape shape;
	(void)snprintf(rows, sizeof rows, "%.*s", x ? (int)(x - item) : 0, item);
	if (options->shape_count == MAX_SHAPES || !x || !parse_count(rows, 1, MAX_ROWS, &shape.rows) ||
	    !parse_count(x + 1, 1, EK_MAX_COLS, &shape.cols))
		return "up to 64 shapes ROWSxCOLS with commas between, such as 512x768,7x131072";
	options->shapes[options->shape_count++] = shape;
	return NULL;
}

static const char *take_arch(struct options *options, const char *item)
{
	int64_t arch;
	if (options->arch_count == MAX_ARCHS || !parse_count(item, 50, 999, &arch))
		return "compute capabilities without their dot and with commas between, such as 90,80";
	options->archs[options->arch_count++] = (int)arch;
	return NULL;
}

static const char *take_dtype(struct options *options, const char *item)
{
	ek_dtype dtype = dtype_named(item);
	if (!dtype)
		return "f32, f16, bf16 or f64; verify and bench take several with commas between";
	for (int i = 0; i < options->dtype_count; i++)
		if (options->dtypes[i] == dtype)
			return "a list that names each dtype once";
	options->dtypes[options->dtype_count++] = dtype;
	return NULL;
}

static const char *set_length(struct options *options, char **values)
{
	if (!parse_count(values[0], 1, MAX_ROWS, &options->rows) ||
	    !parse_count(values[1], 1, EK_MAX_COLS, &options->cols))
		return "two whole numbers: rows from 1 to 1099511627776, columns from 1 to 16777216";
	return NULL;
}

/* Returns the index of name in names, or -1 if it is not there. */
static int index_of(const char *name, const char *const *names, int count)
{
	while (count-- > 0)
		if (strcmp(name, names[count]) == 0)
			return count;
	return -1;
}

static const char *set_pass(struct options *options, const char *value)
{
	int pass = index_of(value, pass_names, PASS_COUNT);
	if (options->command == COMMAND_EXPLAIN && strcmp(value, "step") == 0) {
		options->pass[FORWARD] = options->pass[BACKWARD] = true;
		return NULL;
	}
	options->pass[FORWARD] = pass == FORWARD;
	options->pass[BACKWARD] = pass == BACKWARD;
	return pass < 0 ? "forward or backward" : NULL;
}

static const char *set_init(struct options *options, const char *value)
{
	static const enum filling fillings[] = {FILL_ONES, FILL_INTEGERS, FILL_DECIMALS};
	for (int i = 0; i < 3; i++) {
		const char number[] = {(char)('0' + i), 0};
		if (strcmp(value, filling_names[fillings[i]]) == 0 || strcmp(value, number) == 0) {
			options->filling = fillings[i];
			return NULL;
		}
	}
	return "ones, integers or decimals (or 0, 1, 2)";
}

static bool is_number(const char *value, double *number)
{
	char *end;
	*number = strtod(value, &end);
	return end != value && !*end && isfinite(*number);
}

static const char *set_eps(struct options *options, const char *value)
{
	return is_number(value, &options->eps) && options->eps >= 0 ? NULL : "a finite number, 0 or more";
}

static const char *set_limit(struct options *options, const char *value)
{
	return is_number(value, &options->limit) && options->limit >= 0 ? NULL : "a finite number, 0 or more";
}

static const char *set_alpha(struct options *options, const char *value)
{
	return is_number(value, &options->alpha) && options->alpha > 0 ? NULL : "a finite number above 0";
}

static const char *set_value_offset(struct options *options, const char *value)
{
	return is_number(value, &options->value_offset) ? NULL : "a finite number";
}

static const char *set_isa(struct options *options, const char *value)
{
	static char names[256] = "one of this build's levels:";
	int usable;
	const char *name;
	for (int i = 0; (name = ek_cpu_level(i, &usable)); i++)
		if (strcmp(name, value) == 0) {
			options->isa = name;
			return usable ? NULL : "a level that this CPU can run (evenkeel info lists them)";
		}
	for (int i = 0; (name = ek_cpu_level(i, &usable)); i++) {
		size_t used = strlen(names);
		(void)snprintf(names + used, sizeof names - used, "%s %s", i ? "," : "", name);
	}
	return names;
}

static const char *set_device(struct options *options, const char *value)
{
	bool lists = options->command & (COMMAND_VERIFY | COMMAND_BENCH);
	int64_t ordinal = 0;
	options->device = EK_CPU;
	options->device_given = true;
	options->every_device = lists && strcmp(value, "all") == 0;
	if (options->every_device || strcmp(value, "cpu") == 0)
		return NULL;
	if (strcmp(value, "cuda") != 0 &&
	    !(strncmp(value, "cuda:", 5) == 0 && parse_count(value + 5, 0, 255, &ordinal)))
		return lists ? "cpu, cuda, cuda:N or all" : "cpu, cuda or cuda:N";
	options->device = EK_CUDA;
	options->ordinal = (int)ordinal;
	return NULL;
}

static const char *set_bias(struct options *options, const char *value)
{
	options->bias_given = true;
	return set_switch(&options->bias, value);
}

static const char *set_x_bias(struct options *options, const char *value)
{
	options->x_bias_given = true;
	return set_switch(&options->x_bias, value);
}

static const char *set_weight_offset(struct options *options, const char *value)
{
	bool offset;
	const char *allowed = set_switch(&offset, value);
	options->choices[EK_CHOICE_WEIGHT_OFFSET] = offset;
	return allowed;
}

static const char *set_gate_first(struct options *options, const char *value)
{
	bool first;
	const char *allowed = set_switch(&first, value);
	options->choices[EK_CHOICE_GATE_FIRST] = first;
	return allowed;
}

static const char *set_interleaved(struct options *options, const char *value)
{
	bool interleaved;
	const char *allowed = set_switch(&interleaved, value);
	options->choices[EK_CHOICE_INTERLEAVED] = interleaved;
	return allowed;
}

static const char *set_trailing(struct options *options, const char *value)
{
	bool trailing;
	const char *allowed = set_switch(&trailing, value);
	options->choices[EK_CHOICE_TRAILING] = trailing;
	return allowed;
}

static const char *set_norm_last(struct options *options, const char *value)
{
	bool last;
	const char *allowed = set_switch(&last, value);
	options->choices[EK_CHOICE_NORM_LAST] = last;
	return allowed;
}

static const char *set_rounding(struct options *options, const char *value)
{
	int rounding = index_of(value, rounding_names, 2);
	options->choices[EK_CHOICE_ROUNDING] = rounding;
	return rounding < 0 ? "once or each" : NULL;
}

static const char *set_activation(struct options *options, const char *value)
{
	int activation = index_of(value, activation_names, EK_IDENTITY + 1);
	options->choices[EK_CHOICE_ACTIVATION] = activation;
	return activation < 1 ? "sigmoid, silu, gelu, gelu_tanh, relu, relu_squared or none" : NULL;
}

static const char *set_order(struct options *options, const char *value)
{
	static const char *const names[] = {"reordered", "pre"};
	options->order = index_of(value, names, 2) + 1;
	return options->order ? NULL : "reordered or pre";
}

static const char *set_norm(struct options *options, const char *value)
{
	static const char *const names[] = {"layer_norm", "rms_norm"};
	int norm = index_of(value, names, 2) + 1;
	options->choices[EK_CHOICE_NORM] = norm;
	return norm ? NULL : "layer_norm or rms_norm";
}

static const char *set_variant(struct options *options, const char *value)
{
	static const char *const names[] = {"reference", "pytorch", "evenkeel", "torch.compile"};
	bool eager = strcmp(value, "eager") == 0;
	options->variant = eager ? (int)EK_PYTORCH : index_of(value, names, 4) + 1;
	return options->variant
		       ? NULL
		       : "reference, pytorch or evenkeel; of a block evenkeel, torch.compile or eager";
}

/* Returns NULL, or what the values may be. */
static const char *set(const struct option *option, struct options *options, char **values)
{
	void *field = (char *)options + option->offset;
	switch (option->kind) {
	case FLAG:
		*(bool *)field = true;
		return NULL;
	case SWITCH:
		return set_switch(field, values[0]);
	case COUNT:
		return set_count(option, field, values[0]);
	case DTYPE:
		*(ek_dtype *)field = dtype_named(values[0]);
		return *(ek_dtype *)field ? NULL : "f32, f16, bf16 or f64";
	case FILE_NAME:
		*(const char **)field = values[0];
		return *values[0] ? NULL : "the name of a file";
	case LIST:
		*(int *)field = 0;
		return set_list(option, options, values[0]);
	case LENGTH:
		return set_length(options, values);
	default:
		return option->take(options, values[0]);
	}
}

enum {
	TO_RUN = COMMAND_RUN,
	TO_OPS = COMMAND_RUN | COMMAND_VERIFY | COMMAND_BENCH,
	TO_LISTS = COMMAND_VERIFY | COMMAND_BENCH,
	TO_CPU = TO_OPS | COMMAND_INFO, /* what the CPU alone has */
	TO_KERNELS = TO_OPS | COMMAND_WARMUP,
	TO_EXPLAIN = COMMAND_EXPLAIN,
	TO_ALL = TO_KERNELS | COMMAND_INFO | COMMAND_EXPLAIN
};

#define FIELD(field) offsetof(struct options, field), sizeof(((struct options *)0)->field)
#define TO(kind, field) kind, FIELD(field), 0, 0, NULL
#define NUMBER(field, low, high) COUNT, FIELD(field), low, high, NULL
#define ROWS(field) NUMBER(field, 1, MAX_ROWS)
#define COLS(field) NUMBER(field, 1, EK_MAX_COLS)
#define ITEMS(count, take) LIST, FIELD(count), 0, 0, take
#define BY(take) OTHER, 0, 0, 0, 0, take

static const struct option table[] = {
	{"--quick", "", TO_LISTS, TO(FLAG, quick), "a short list that still touches everything"},
	{"--full", "", COMMAND_VERIFY, TO(FLAG, full), "the whole list, several minutes"},
	{"--rows", "M", TO_OPS, ROWS(rows), "rows of the tensors (run: 2048; else: the list's)"},
	{"--cols", "N", TO_OPS, COLS(cols), "columns, the normalized size (run: 4096; else: the list's)"},
	{"--batch", "B", TO_EXPLAIN, ROWS(batch), "batch_size (8)"},
	{"--seq", "S", TO_EXPLAIN, ROWS(seq), "seq_len; rows are batch_size * seq_len (2048)"},
	{"--batch", "B", TO_OPS, ROWS(batch), "of ops on heads: sequences; rows are B times S (1)"},
	{"--seq", "S", TO_OPS, ROWS(seq),
	 "of ops on heads: tokens of a sequence (run: 2048; else: the list's)"},
	{"--heads", "N", TO_OPS, COLS(heads), "of ops on heads: heads of q (run: 32; else: the list's)"},
	{"--kv-heads", "N", TO_OPS, COLS(kv_heads), "of ops on heads: heads of k (--heads)"},
	{"--head-dim", "D", TO_OPS, NUMBER(head_dim, 2, EK_MAX_HEAD_DIM),
	 "columns of a head (run: 128; else: the list's)"},
	{"--head-dim", "D", COMMAND_WARMUP, NUMBER(head_dim, 2, EK_MAX_HEAD_DIM), "columns of a head (128)"},
	{"--rotary-dim", "R", TO_KERNELS, NUMBER(rotary_dim, 2, EK_MAX_HEAD_DIM),
	 "columns of a head that turn (--head-dim)"},
	{"--heads-first", "0|1", TO_OPS, TO(SWITCH, heads_first),
	 "1: results, and their gradients, lie head by head, in a head token by token (0)"},
	{"--positions", "0|1", TO_KERNELS, TO(SWITCH, positions), "1: tokens have position ids (0)"},
	{"--hidden", "H", TO_EXPLAIN, COLS(hidden),
	 "hidden_size, the normalized size (4096; of a block 1024)"},
	{"--d-model", "H", TO_EXPLAIN, COLS(hidden), "the same as --hidden H"},
	{"--ffn", "F", TO_EXPLAIN, COLS(ffn),
	 "ffn_size, the columns of gated activations and of a block's (4096)"},
	{"--heads", "N", TO_EXPLAIN, COLS(heads), "heads of queries (32; of a block 16)"},
	{"--kv-heads", "N", TO_EXPLAIN, COLS(kv_heads), "heads of keys and values (--heads)"},
	{"--head-dim", "D", TO_EXPLAIN, NUMBER(head_dim, 1, EK_MAX_HEAD_DIM),
	 "columns of a head (128; of a block --hidden over --heads)"},
	{"--rotary-dim", "R", TO_EXPLAIN, NUMBER(rotary_dim, 2, EK_MAX_HEAD_DIM),
	 "columns of a head that turn (--head-dim)"},
	{"--order", "ORDER", TO_EXPLAIN, BY(set_order),
	 "of a block: reordered: norms after the sublayers, or pre: before them (reordered)"},
	{"--norm", "NAME", TO_EXPLAIN, BY(set_norm),
	 "layer_norm or rms_norm: of a block (layer_norm), of qk_norm_rope (rms_norm)"},
	{"--qk-norm", "0|1", TO_EXPLAIN, TO(SWITCH, qk_norm),
	 "of a block: RMSNorm of the heads of q and k (0)"},
	{"--gated", "0|1", TO_EXPLAIN, TO(SWITCH, gated),
	 "of a block: a gate and a value in the feed-forward (1)"},
	{"--causal", "0|1", TO_EXPLAIN, TO(SWITCH, causal),
	 "of a block: attention to earlier tokens alone (1)"},
	{"--packed", "0|1", TO_EXPLAIN, TO(SWITCH, packed),
	 "of a block: q, k and v one product, gate and value another (0)"},
	{"--rows", "M", TO_EXPLAIN, ROWS(rows), "the same as --batch M --seq 1"},
	{"--cols", "N", TO_EXPLAIN, COLS(cols), "the same as --hidden N"},
	{"--cols", "N,N", COMMAND_WARMUP, ITEMS(shape_count, take_width), "the widths that will be used"},
	{"--length", "M N", TO_OPS | TO_EXPLAIN, LENGTH, 0, 0, 0, 0, NULL, "rows and columns at once"},
	{"--shapes", "MxN,MxN", TO_LISTS, ITEMS(shape_count, take_shape),
	 "these shapes instead of the list's"},
	{"--pass", "PASS", TO_KERNELS, BY(set_pass), "forward or backward (run: forward; else: both)"},
	{"--dtype", "TYPE", TO_OPS, ITEMS(dtype_count, take_dtype),
	 "f32, f16, bf16 or f64 (run: f32; else: the list's)"},
	{"--pass", "PASS", TO_EXPLAIN, BY(set_pass),
	 "forward or backward; of a block also step, both (forward)"},
	{"--dtype", "TYPE", TO_EXPLAIN, ITEMS(dtype_count, take_dtype),
	 "f32, f16, bf16 or f64 (f32; of a block bf16)"},
	{"--dtype", "TYPE", COMMAND_WARMUP, ITEMS(dtype_count, take_dtype),
	 "f32, f16, bf16 or f64 (f32, f16 and bf16)"},
	{"--weight-dtype", "TYPE", TO_KERNELS | TO_EXPLAIN, TO(DTYPE, weight_dtype),
	 "f32 beside 16-bit tensors (the same as --dtype)"},
	{"--residual-dtype", "TYPE", TO_KERNELS | TO_EXPLAIN, TO(DTYPE, choices[EK_CHOICE_H_DTYPE]),
	 "of the residual, and of h: f32 beside 16-bit tensors (the same as --dtype)"},
	{"--out-dtype", "TYPE", TO_KERNELS, TO(DTYPE, choices[EK_CHOICE_Y_DTYPE]),
	 "of y and dy: f32 beside 16-bit x, 16 bits beside f32 (the same as --dtype)"},
	{"--out-dtype", "TYPE", TO_EXPLAIN, TO(DTYPE, choices[EK_CHOICE_Y_DTYPE]),
	 "of y and dy (--dtype; with a residual after the norm --residual-dtype)"},
	{"--gradient-dtype", "TYPE", TO_KERNELS | TO_EXPLAIN, TO(DTYPE, choices[EK_CHOICE_GRADIENT_DTYPE]),
	 "of dweight, dbias and dx_bias: f32 beside 16 bits (the same as --weight-dtype)"},
	{"--compute-dtype", "TYPE", TO_EXPLAIN, TO(DTYPE, compute_dtype),
	 "in which the reference computes; casts where it is not --dtype (--dtype)"},
	{"--stats-dtype", "TYPE", TO_EXPLAIN, TO(DTYPE, stats_dtype),
	 "of the reference's statistics (--dtype, as analyses by hand count; f32 is the truth)"},
	{"--intermediate-dtype", "TYPE", TO_EXPLAIN, TO(DTYPE, intermediate_dtype),
	 "of what lies between the reference's casts (--dtype)"},
	{"--weight", "0|1", TO_KERNELS | TO_EXPLAIN, TO(SWITCH, weight),
	 "with a weight, and its gradient (1)"},
	{"--bias", "0|1", TO_KERNELS & ~COMMAND_VERIFY, BY(set_bias),
	 "with a bias, or biases, and their gradients (1; of a gate and a value 0)"},
	{"--bias", "0|1", COMMAND_VERIFY, BY(set_bias), "with a bias, or biases, and their gradients (1)"},
	{"--bias", "0|1", TO_EXPLAIN, BY(set_bias),
	 "with a bias, and its gradient; or biases; of a block in all products (1; rms_norm: 0)"},
	{"--x-bias", "0|1", TO_EXPLAIN | (TO_KERNELS & ~COMMAND_VERIFY), BY(set_x_bias),
	 "of ops with a residual or an activation: with a bias of x, and its gradient (0)"},
	{"--x-bias", "0|1", COMMAND_VERIFY, BY(set_x_bias),
	 "of ops with a residual or an activation: with a bias of x, and its gradient (1)"},
	{"--weight-offset", "0|1", TO_KERNELS | TO_EXPLAIN, BY(set_weight_offset),
	 "1: the norm multiplies by 1 + weight, as Gemma does (0)"},
	{"--rounding", "once|each", TO_KERNELS | TO_EXPLAIN, BY(set_rounding),
	 "each: the normalized x rounds before weight multiplies it, as in Llama's code (once)"},
	{"--activation", "NAME", TO_KERNELS | TO_EXPLAIN, BY(set_activation),
	 "sigmoid, silu, gelu or gelu_tanh; of glu and bias_act also relu, relu_squared or none (gelu; of a gate silu)"},
	{"--norm", "NAME", TO_KERNELS, BY(set_norm), "of qk_norm_rope: layer_norm or rms_norm (rms_norm)"},
	{"--norm-last", "0|1", TO_KERNELS, BY(set_norm_last),
	 "1: the norm of heads comes after they turn (0)"},
	{"--trailing", "0|1", TO_KERNELS, BY(set_trailing), "1: the last columns of a head turn (0)"},
	{"--table-dtype", "TYPE", TO_KERNELS, TO(DTYPE, choices[EK_CHOICE_TABLE_DTYPE]),
	 "of cos and sin: f32 beside 16-bit tensors (the same as --dtype)"},
	{"--gate-first", "0|1", TO_KERNELS | TO_EXPLAIN, BY(set_gate_first),
	 "of ops with a gate: 1: it multiplies x, 0: the norm's result (0)"},
	{"--packed", "0|1", TO_KERNELS, TO(SWITCH, packed),
	 "of ops with a gate and a value: 1: they are halves of the rows of one tensor (0)"},
	{"--interleaved", "0|1", TO_KERNELS, BY(set_interleaved),
	 "of glu: 1: one tensor has gate and value in turn (0)"},
	{"--limit", "L", TO_KERNELS, BY(set_limit),
	 "of glu and its like: the gate's most, and the value's on both sides; 0: none (0)"},
	{"--alpha", "A", TO_KERNELS, BY(set_alpha), "of their silu: t * sigmoid(A * t) (1)"},
	{"--value-offset", "V", TO_KERNELS, BY(set_value_offset),
	 "of their value: added behind the limit (0)"},
	{"--group-cols", "N", TO_KERNELS | TO_EXPLAIN, COLS(group_cols),
	 "columns that share statistics, a divisor of the width: groups of a row (the width)"},
	{"--statistics", "0|1", TO_EXPLAIN, TO(SWITCH, statistics),
	 "evenkeel returns statistics, or is given them (1)"},
	{"--eps", "E", TO_OPS, BY(set_eps), "added to the variance (1e-5)"},
	{"--init", "KIND", TO_OPS, BY(set_init),
	 "ones, integers from -5 to 4, or decimals; or 0, 1, 2 (decimals)"},
	{"--seed", "S", TO_OPS, NUMBER(seed, 0, INT64_MAX), "of the random values (1)"},
	{"--verify", "0|1", TO_RUN, TO(SWITCH, verify), "compare the result with the reference (1)"},
	{"--time", "0|1", TO_RUN, TO(SWITCH, time), "measure the time (1)"},
	{"--rotate", "MB", COMMAND_RUN | COMMAND_BENCH, NUMBER(rotate, 1, 1048576),
	 "megabytes that the buffers rotate through (256; on a GPU 512)"},
	{"--device", "NAME", COMMAND_RUN | COMMAND_INFO, BY(set_device), "cpu, cuda or cuda:N (cpu)"},
	{"--device", "NAME", TO_LISTS, BY(set_device), "cpu, cuda, cuda:N, or all that are there (cpu)"},
	{"--device", "NAME", COMMAND_WARMUP, BY(set_device), "cuda or cuda:N (cuda)"},
	{"--device", "NAME", TO_EXPLAIN, BY(set_device),
	 "cpu or cuda, where evenkeel runs (what --machine is)"},
	{"--machine", "NAME", TO_EXPLAIN, TO(FILE_NAME, machine),
	 "whose roofline: this, h200 or a file from info --measure (h200; with --device cpu: this)"},
	{"--variant", "NAME", TO_EXPLAIN, BY(set_variant),
	 "reference, pytorch or evenkeel alone; of a block evenkeel, torch.compile or eager (all)"},
	{"--markdown", "", TO_EXPLAIN, TO(FLAG, markdown), "tables for a document"},
	{"--arch", "N,N", COMMAND_WARMUP, ITEMS(arch_count, take_arch),
	 "for --pack: compute capabilities, such as 90,80 (the GPU's)"},
	{"--pack", "FILE", COMMAND_WARMUP, TO(FILE_NAME, pack),
	 "write the kernels into one file; needs no GPU"},
	{"--threads", "T", TO_CPU, NUMBER(threads, 1, 1024),
	 "threads a call may use (as many as the process may)"},
	{"--isa", "NAME", TO_CPU, BY(set_isa), "level of the kernels; evenkeel info lists them (the best)"},
	{"--compare", "OLD.json", COMMAND_BENCH, TO(FILE_NAME, compare),
	 "show what changed since that --json, mark losses"},
	{"--measure", "FILE", COMMAND_INFO, TO(FILE_NAME, measure),
	 "measure copies and FLOP rate, write a machine file"},
	{"--json", "FILE", COMMAND_INFO | COMMAND_RUN | COMMAND_BENCH | COMMAND_EXPLAIN, TO(FILE_NAME, json),
	 "write JSON; - is standard output"},
	{"--csv", "FILE", COMMAND_RUN | COMMAND_BENCH, TO(FILE_NAME, csv), "write CSV; - is standard output"},
	{"--help", "", TO_ALL, TO(FLAG, help), "this text"},
};

enum { OPTION_COUNT = sizeof table / sizeof table[0] };

/* The option as this command takes it; else one of the name that other commands take; else NULL. */
static const struct option *option_named(const char *name, size_t length, enum command command)
{
	const struct option *found = NULL;
	for (int i = 0; i < OPTION_COUNT; i++)
		if (strlen(table[i].name) == length && memcmp(table[i].name, name, length) == 0) {
			found = &table[i];
			if (found->commands & (int)command)
				break;
		}
	return found;
}

/* Reads the option at argv[0] with its values. Returns how many arguments it took; 0 after complaining. */
static int parse_option(struct options *options, enum command command, int argc, char **argv,
			const struct option **found)
{
	const char *name = strcmp(argv[0], "-h") == 0 ? "--help" : argv[0];
	char *inline_value = strchr(argv[0], '=');
	size_t length = inline_value ? (size_t)(inline_value - argv[0]) : strlen(name);
	const struct option *option = option_named(name, length, command);
	if (!option || !(option->commands & (int)command)) {
		complain(STATUS_USAGE, "%.*s: %s (--help lists the options)", (int)length, name,
			 option ? "this command does not take it" : "unknown option");
		return 0;
	}
	*found = option;
	char **values = argv + 1;
	int count = value_count(option), taken = 1 + count;
	if (inline_value && count == 1) {
		inline_value++;
		values = &inline_value;
		taken = 1;
	} else if (inline_value || argc < taken) {
		complain(STATUS_USAGE, "%s: must be followed by %s", option->name,
			 count ? option->values : "nothing");
		return 0;
	}
	const char *allowed = set(option, options, values);
	if (allowed) {
		complain(STATUS_USAGE, "%s %s%s%s: must be %s", option->name, values[0],
			 count == 2 ? " " : "", count == 2 ? values[1] : "", allowed);
		return 0;
	}
	return taken;
}

const char *ops_text(void)
{
	static char text[64 * EK_OP_NAMES];
	size_t length = 0;
	for (int i = 0; i < EK_OP_NAMES; i++)
		length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
					   i == 0                 ? ""
					   : i == EK_OP_NAMES - 1 ? " or "
								  : ", ",
					   ek_ops[i].name);
	return text;
}

/* before: the option that ends where name begins; NULL: an op, or nothing, does. */
static int parse_op(struct options *options, const char *name, const struct option *before)
{
	for (int i = 0; i < EK_OP_NAMES; i++)
		if (strcmp(ek_ops[i].name, name) == 0) {
			for (int k = 0; k < options->op_count; k++)
				if (options->ops[k] == &ek_ops[i])
					return complain(STATUS_USAGE, "%s: named twice", name);
			options->ops[options->op_count++] = &ek_ops[i];
			return STATUS_FINE;
		}
	bool explain = options->command == COMMAND_EXPLAIN;
	if (explain && strcmp(name, "block") == 0) {
		options->block = true;
		return STATUS_FINE;
	}
	bool expression = explain && strpbrk(name, "$(){}+*");
	if (!expression && before && isdigit((unsigned char)*name))
		return complain(STATUS_USAGE, "%s: one value too many for %s, which takes %s", name,
				before->name, *before->values ? before->values : "none");
	if (!expression)
		return complain(STATUS_USAGE, "%s: unknown op, must be %s%s", name, ops_text(),
				explain ? ", block, or an expression of references such as "
					  "'${torch.nn.LayerNorm}(batch_size, seq_len, hidden_size)'"
					: "");
	if (options->expression)
		return complain(STATUS_USAGE, "explain: must be followed by one expression, quoted");
	options->expression = name;
	return STATUS_FINE;
}

bool weight_dtype_fits(ek_dtype dtype, ek_dtype weight_dtype)
{
	for (int i = 0; i < DTYPE_PAIRS; i++)
		if (dtype_pairs[i].dtype == dtype &&
		    dtype_pairs[i].weight_dtype == (weight_dtype ? weight_dtype : dtype))
			return true;
	return false;
}

/* Levels and threads are the CPU's; --device all writes no files, since each device has its own results. */
static int check_device(const struct options *options)
{
	bool gpu = options->device == EK_CUDA;
	if (options->command == COMMAND_WARMUP && !gpu)
		return complain(STATUS_USAGE,
				"--device cpu: must be cuda or cuda:N, the CPU's kernels are ready");
	if (options->command == COMMAND_INFO || !(gpu || options->every_device))
		return STATUS_FINE;
	if (options->isa || options->threads)
		return complain(STATUS_USAGE, "%s: must be with --device cpu, a GPU has none",
				options->isa ? "--isa" : "--threads");
	if (options->every_device && (options->json || options->csv || options->compare))
		return complain(STATUS_USAGE,
				"--device all: must be without --json, --csv and --compare; name one device");
	return STATUS_FINE;
}

static int check_warmup(const struct options *options)
{
	bool need_widths = options->op_count == 0;
	for (int i = 0; i < options->op_count; i++)
		need_widths = need_widths || !is_on_heads(options->ops[i]);
	if (need_widths && !options->shape_count)
		return complain(STATUS_USAGE, "warmup: must have --cols, the widths that will be used");
	if (options->arch_count && !options->pack)
		return complain(STATUS_USAGE,
				"--arch: must come with --pack; without, kernels are for the GPU");
	return STATUS_FINE;
}

static int check_explain(const struct options *options)
{
	if (options->op_count + (options->expression != NULL) + options->block != 1)
		return complain(
			STATUS_USAGE,
			"explain: must be followed by one op, %s, by block, or by one expression of references",
			ops_text());
	if (options->expression && (options->variant || options->pass[FORWARD] || options->pass[BACKWARD]))
		return complain(STATUS_USAGE, "%s: must be with an op; an expression's references say it",
				options->variant ? "--variant" : "--pass");
	if (options->choices[EK_CHOICE_NORM] && !options->block &&
	    !(options->op_count && options->ops[0]->usual[EK_CHOICE_NORM]))
		return complain(STATUS_USAGE, "--norm: must be with block or qk_norm_rope");
	if (options->order && !options->block)
		return complain(STATUS_USAGE, "--order: must be with block");
	if (!options->block && options->pass[FORWARD] && options->pass[BACKWARD])
		return complain(STATUS_USAGE, "--pass step: must be with block; %s has forward or backward",
				options->op_count ? options->ops[0]->name : "an expression");
	if (options->dtype_count > 1)
		return complain(STATUS_USAGE, "--dtype: explain takes one dtype, f32, f16, bf16 or f64");
	if (options->rows && (options->batch || options->seq))
		return complain(STATUS_USAGE, "%s: must be without --rows and --length",
				options->batch ? "--batch" : "--seq");
	if (options->cols && options->hidden)
		return complain(STATUS_USAGE, "--hidden: must be without --cols and --length");
	return STATUS_FINE;
}

/* What no single option can see: how they go together. */
static int check_together(struct options *options, enum command command)
{
	int status = check_device(options);
	if (status == STATUS_FINE && command == COMMAND_WARMUP)
		status = check_warmup(options);
	if (status == STATUS_FINE && command == COMMAND_EXPLAIN)
		status = check_explain(options);
	if (status != STATUS_FINE)
		return status;
	if (options->quick && options->full)
		return complain(STATUS_USAGE, "--quick --full: must be one of the two");
	if (command == COMMAND_RUN && options->op_count != 1)
		return complain(STATUS_USAGE, "run: must be followed by one op, %s", ops_text());
	if (command == COMMAND_INFO && options->op_count)
		return complain(STATUS_USAGE, "%s: info takes no op", options->ops[0]->name);
	if (command == COMMAND_RUN && options->dtype_count > 1)
		return complain(STATUS_USAGE, "--dtype: run takes one dtype, f32, f16, bf16 or f64");
	status = choices_check(options);
	if (status == STATUS_FINE && command & TO_KERNELS)
		status = heads_check(options);
	if (status != STATUS_FINE)
		return status;
	if (command == COMMAND_RUN || command == COMMAND_EXPLAIN || (!options->rows && !options->cols))
		return STATUS_FINE;
	if (options->shape_count)
		return complain(STATUS_USAGE, "--shapes: must be without --rows, --cols and --length");
	if (!options->rows || !options->cols)
		return complain(STATUS_USAGE, "%s: must come with %s", options->rows ? "--rows" : "--cols",
				options->rows ? "--cols" : "--rows");
	options->shapes[options->shape_count++] = (struct shape){options->rows, options->cols};
	return STATUS_FINE;
}

int options_parse(struct options *options, enum command command, int argc, char **argv)
{
	*options = (struct options){.command = command,
				    .device = command & (COMMAND_WARMUP | COMMAND_EXPLAIN) ? EK_CUDA : EK_CPU,
				    .filling = FILL_DECIMALS,
				    .seed = 1,
				    .eps = 1e-5,
				    .weight = true,
				    .bias = true,
				    .x_bias = command == COMMAND_VERIFY,
				    .statistics = true,
				    .gated = true,
				    .causal = true,
				    .verify = true,
				    .time = true};
	const struct option *before = NULL;
	for (int i = 0; i < argc && !options->help;) {
		/* -${…} is an expression, --json=${… an option. */
		bool minus = argv[i][0] == '-' && argv[i][1] != '-' && strstr(argv[i], "${");
		if (argv[i][0] == '-' && !(minus && command == COMMAND_EXPLAIN)) {
			int taken = parse_option(options, command, argc - i, argv + i, &before);
			if (!taken)
				return STATUS_USAGE;
			i += taken;
		} else {
			int status = parse_op(options, argv[i++], before);
			if (status != STATUS_FINE)
				return status;
			before = NULL;
		}
	}
	return options->help ? STATUS_FINE : check_together(options, command);
}

/* Help may end in "(run: A; else: B)", where run's default is not that of the other commands. */
static void print_option_help(FILE *out, const char *help, bool run)
{
	const char *both = strstr(help, "(run: ");
	const char *rest = strstr(help, "; else: ");
	if (!both || !rest)
		(void)fprintf(out, "%s\n", help);
	else if (run)
		(void)fprintf(out, "%.*s(%.*s)\n", (int)(both - help), help, (int)(rest - both - 6),
			      both + 6);
	else
		(void)fprintf(out, "%.*s(%s\n", (int)(both - help), help, rest + 8);
}

void options_print(FILE *out, enum command command)
{
	for (int i = 0; i < OPTION_COUNT; i++) {
		if (!(table[i].commands & (int)command))
			continue;
		char left[40];
		(void)snprintf(left, sizeof left, "%s %s", table[i].name, table[i].values);
		(void)fprintf(out, "  %-22s ", left);
		print_option_help(out, table[i].help, command == COMMAND_RUN);
	}
}
