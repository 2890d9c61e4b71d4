/* The table of options, and the parsing of it: a bad argument is one line that names it and says what it
 * may be. Called by main.c. SPDX-License-Identifier: MIT */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MAX_THREADS = 1024 };

/* Sets one option from its values. Returns NULL, or what the value may be. */
typedef const char *set_function(struct options *options, char **values);

struct option {
	const char *name;
	const char *values; /* as help shows them; their number is value_count */
	int value_count;
	int commands;
	set_function *set;
	const char *help;
};

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

static const char *set_switch(bool *target, const char *text)
{
	if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
		return "0 or 1";
	*target = *text == '1';
	return NULL;
}

#define MAX_ROWS INT64_C(1099511627776)
static const char rows_range[] = "a whole number from 1 to 1099511627776";
static const char cols_range[] = "a whole number from 1 to 16777216";

static const char *set_rows(struct options *options, char **values)
{
	return parse_count(values[0], 1, MAX_ROWS, &options->rows) ? NULL : rows_range;
}

/* Reads the numbers of a list with commas between, which goes on behind *at; false at its end or if the next
 * is not a number from low to high (*at is then not at the end of the text). */
static bool next_of_list(const char **at, int64_t low, int64_t high, int64_t *number)
{
	char text[32];
	size_t length = strcspn(*at, ",");
	if (length == 0 || length >= sizeof text)
		return false;
	memcpy(text, *at, length);
	text[length] = 0;
	if (!parse_count(text, low, high, number))
		return false;
	*at += length;
	if (**at == ',' && (*at)[1])
		(*at)++;
	return true;
}

/* warmup: several widths, each a shape of one row, since kernels serve any number of rows. */
static const char *set_widths(struct options *options, const char *list)
{
	int64_t cols;
	options->shape_count = 0;
	while (options->shape_count < MAX_SHAPES && next_of_list(&list, 1, EK_MAX_COLS, &cols))
		options->shapes[options->shape_count++] = (struct shape){1, cols};
	return *list ? "up to 64 whole numbers from 1 to 16777216 with commas between" : NULL;
}

static const char *set_cols(struct options *options, char **values)
{
	if (options->command == COMMAND_WARMUP)
		return set_widths(options, values[0]);
	return parse_count(values[0], 1, EK_MAX_COLS, &options->cols) ? NULL : cols_range;
}

static const char *set_arch(struct options *options, char **values)
{
	const char *list = values[0];
	int64_t arch;
	options->arch_count = 0;
	while (options->arch_count < MAX_ARCHS && next_of_list(&list, 50, 999, &arch))
		options->archs[options->arch_count++] = (int)arch;
	return *list ? "compute capabilities without their dot and with commas between, such as 90,80" : NULL;
}

static const char *set_length(struct options *options, char **values)
{
	if (set_rows(options, values) || set_cols(options, values + 1))
		return "two whole numbers: rows from 1 to 1099511627776, columns from 1 to 16777216";
	return NULL;
}

static const char *set_shapes(struct options *options, char **values)
{
	static const char form[] = "up to 64 shapes ROWSxCOLS with commas between, such as 512x768,7x131072";
	char text[64];
	const char *at = values[0];
	options->shape_count = 0;
	for (;;) {
		size_t length = strcspn(at, ",");
		if (length == 0 || length >= sizeof text || options->shape_count == MAX_SHAPES)
			return form;
		memcpy(text, at, length);
		text[length] = 0;
		char *x = strchr(text, 'x');
		if (!x)
			return form;
		*x = 0;
		struct shape *shape = &options->shapes[options->shape_count++];
		if (!parse_count(text, 1, MAX_ROWS, &shape->rows) ||
		    !parse_count(x + 1, 1, EK_MAX_COLS, &shape->cols))
			return form;
		at += length;
		if (!*at)
			return NULL;
		at++;
	}
}

static ek_dtype dtype_named(const char *name, size_t length)
{
	for (int dtype = EK_F32; dtype <= EK_F64; dtype++) {
		const char *known = ek_dtype_name((ek_dtype)dtype);
		if (strlen(known) == length && memcmp(known, name, length) == 0)
			return (ek_dtype)dtype;
	}
	return (ek_dtype)0;
}

static const char *set_dtype(struct options *options, char **values)
{
	static const char names[] =
		"f32, f16, bf16 or f64; verify and bench take several with commas between";
	options->dtype_count = 0;
	for (const char *at = values[0];;) {
		size_t length = strcspn(at, ",");
		ek_dtype dtype = dtype_named(at, length);
		if (!dtype)
			return names;
		for (int i = 0; i < options->dtype_count; i++)
			if (options->dtypes[i] == dtype)
				return "a list that names each dtype once";
		options->dtypes[options->dtype_count++] = dtype;
		at += length;
		if (!*at)
			return NULL;
		at++;
	}
}

#define SET_DTYPE(field)                                                       \
	static const char *set_##field(struct options *options, char **values) \
	{                                                                      \
		options->field = dtype_named(values[0], strlen(values[0]));    \
		return options->field ? NULL : "f32, f16, bf16 or f64";        \
	}
SET_DTYPE(weight_dtype)
SET_DTYPE(compute_dtype)
SET_DTYPE(stats_dtype)
SET_DTYPE(intermediate_dtype)

static const char *set_batch(struct options *options, char **values)
{
	return parse_count(values[0], 1, MAX_ROWS, &options->batch) ? NULL : rows_range;
}

static const char *set_seq(struct options *options, char **values)
{
	return parse_count(values[0], 1, MAX_ROWS, &options->seq) ? NULL : rows_range;
}

static const char *set_hidden(struct options *options, char **values)
{
	return parse_count(values[0], 1, EK_MAX_COLS, &options->hidden) ? NULL : cols_range;
}

static const char *set_pass(struct options *options, char **values)
{
	for (int pass = 0; pass < PASS_COUNT; pass++)
		if (strcmp(values[0], pass_names[pass]) == 0) {
			options->pass[FORWARD] = options->pass[BACKWARD] = false;
			options->pass[pass] = true;
			return NULL;
		}
	return "forward or backward";
}

static const char *set_init(struct options *options, char **values)
{
	static const enum filling fillings[] = {FILL_ONES, FILL_INTEGERS, FILL_DECIMALS};
	for (int i = 0; i < 3; i++) {
		const char number[] = {(char)('0' + i), 0};
		if (strcmp(values[0], filling_names[fillings[i]]) == 0 || strcmp(values[0], number) == 0) {
			options->filling = fillings[i];
			return NULL;
		}
	}
	return "ones, integers or decimals (or 0, 1, 2)";
}

static const char *set_seed(struct options *options, char **values)
{
	int64_t seed;
	if (!parse_count(values[0], 0, INT64_MAX, &seed))
		return "a whole number from 0 to 9223372036854775807";
	options->seed = (uint64_t)seed;
	return NULL;
}

static const char *set_eps(struct options *options, char **values)
{
	char *end;
	options->eps = strtod(values[0], &end);
	if (end == values[0] || *end || !isfinite(options->eps) || options->eps < 0)
		return "a finite number, 0 or more";
	return NULL;
}

static const char *set_threads(struct options *options, char **values)
{
	int64_t threads;
	if (!parse_count(values[0], 1, MAX_THREADS, &threads))
		return "a whole number from 1 to 1024";
	options->threads = (int)threads;
	return NULL;
}

static const char *set_isa(struct options *options, char **values)
{
	static char names[256] = "one of this build's levels:";
	int usable;
	const char *name;
	for (int i = 0; (name = ek_cpu_level(i, &usable)); i++)
		if (strcmp(name, values[0]) == 0) {
			options->isa = name;
			return usable ? NULL : "a level that this CPU can run (evenkeel info lists them)";
		}
	for (int i = 0; (name = ek_cpu_level(i, &usable)); i++) {
		size_t used = strlen(names);
		(void)snprintf(names + used, sizeof names - used, "%s %s", i ? "," : "", name);
	}
	return names;
}

static const char *set_device(struct options *options, char **values)
{
	const char *name = values[0];
	bool lists = options->command & (COMMAND_VERIFY | COMMAND_BENCH);
	int64_t ordinal = 0;
	options->device = EK_CPU;
	options->device_given = true;
	options->every_device = lists && strcmp(name, "all") == 0;
	if (options->every_device || strcmp(name, "cpu") == 0)
		return NULL;
	if (strcmp(name, "cuda") != 0 &&
	    !(strncmp(name, "cuda:", 5) == 0 && parse_count(name + 5, 0, 255, &ordinal)))
		return lists ? "cpu, cuda, cuda:N or all" : "cpu, cuda or cuda:N";
	options->device = EK_CUDA;
	options->ordinal = (int)ordinal;
	return NULL;
}

static const char *set_rotate(struct options *options, char **values)
{
	int64_t megabytes;
	if (!parse_count(values[0], 1, 1048576, &megabytes))
		return "a whole number from 1 to 1048576";
	options->rotate = 1048576 * (double)megabytes;
	return NULL;
}

static const char *set_weight(struct options *options, char **values)
{
	return set_switch(&options->weight, values[0]);
}

static const char *set_bias(struct options *options, char **values)
{
	options->bias_given = true;
	return set_switch(&options->bias, values[0]);
}

static const char *set_verify(struct options *options, char **values)
{
	return set_switch(&options->verify, values[0]);
}

static const char *set_time(struct options *options, char **values)
{
	return set_switch(&options->time, values[0]);
}

#define SET_TEXT(field)                                                        \
	static const char *set_##field(struct options *options, char **values) \
	{                                                                      \
		options->field = values[0];                                    \
		return *values[0] ? NULL : "the name of a file";               \
	}
SET_TEXT(json)
SET_TEXT(csv)
SET_TEXT(compare)
SET_TEXT(measure)
SET_TEXT(pack)
SET_TEXT(machine)

static const char *set_statistics(struct options *options, char **values)
{
	bool statistics = true;
	const char *allowed = set_switch(&statistics, values[0]);
	options->no_statistics = !statistics;
	return allowed;
}

const char *const variant_names[3] = {"reference", "pytorch", "evenkeel"};

static const char *set_variant(struct options *options, char **values)
{
	for (int i = 0; i < 3; i++)
		if (strcmp(values[0], variant_names[i]) == 0) {
			options->variant = i + 1;
			return NULL;
		}
	return "reference, pytorch or evenkeel";
}

static const char *set_markdown(struct options *options, char **values)
{
	(void)values;
	options->markdown = true;
	return NULL;
}

static const char *set_quick(struct options *options, char **values)
{
	(void)values;
	options->quick = true;
	return NULL;
}

static const char *set_full(struct options *options, char **values)
{
	(void)values;
	options->full = true;
	return NULL;
}

static const char *set_help(struct options *options, char **values)
{
	(void)values;
	options->help = true;
	return NULL;
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

static const struct option table[] = {
	{"--quick", "", 0, TO_LISTS, set_quick, "a short list that still touches everything"},
	{"--full", "", 0, COMMAND_VERIFY, set_full, "the whole list, several minutes"},
	{"--rows", "M", 1, TO_OPS, set_rows, "rows of the tensors (run: 2048; else: the list's)"},
	{"--cols", "N", 1, TO_OPS, set_cols, "columns, the normalized size (run: 4096; else: the list's)"},
	{"--batch", "B", 1, TO_EXPLAIN, set_batch, "batch_size (8)"},
	{"--seq", "S", 1, TO_EXPLAIN, set_seq, "seq_len; rows are batch_size * seq_len (2048)"},
	{"--hidden", "H", 1, TO_EXPLAIN, set_hidden, "hidden_size, the normalized size (4096)"},
	{"--rows", "M", 1, TO_EXPLAIN, set_rows, "the same as --batch M --seq 1"},
	{"--cols", "N", 1, TO_EXPLAIN, set_cols, "the same as --hidden N"},
	{"--cols", "N,N", 1, COMMAND_WARMUP, set_cols, "the widths that will be used"},
	{"--length", "M N", 2, TO_OPS | TO_EXPLAIN, set_length, "rows and columns at once"},
	{"--shapes", "MxN,MxN", 1, TO_LISTS, set_shapes, "these shapes instead of the list's"},
	{"--pass", "PASS", 1, TO_KERNELS, set_pass, "forward or backward (run: forward; else: both)"},
	{"--dtype", "TYPE", 1, TO_OPS, set_dtype, "f32, f16, bf16 or f64 (run: f32; else: the list's)"},
	{"--pass", "PASS", 1, TO_EXPLAIN, set_pass, "forward or backward (forward)"},
	{"--dtype", "TYPE", 1, TO_EXPLAIN, set_dtype, "f32, f16, bf16 or f64 (f32)"},
	{"--dtype", "TYPE", 1, COMMAND_WARMUP, set_dtype, "f32, f16, bf16 or f64 (f32, f16 and bf16)"},
	{"--weight-dtype", "TYPE", 1, TO_KERNELS | TO_EXPLAIN, set_weight_dtype,
	 "f32 beside 16-bit tensors (the same as --dtype)"},
	{"--compute-dtype", "TYPE", 1, TO_EXPLAIN, set_compute_dtype,
	 "in which the reference computes; casts where it is not --dtype (--dtype)"},
	{"--stats-dtype", "TYPE", 1, TO_EXPLAIN, set_stats_dtype,
	 "of the reference's statistics (--dtype, as analyses by hand count; f32 is the truth)"},
	{"--intermediate-dtype", "TYPE", 1, TO_EXPLAIN, set_intermediate_dtype,
	 "of what lies between the reference's casts (--dtype)"},
	{"--weight", "0|1", 1, TO_KERNELS | TO_EXPLAIN, set_weight, "with a weight, and its gradient (1)"},
	{"--bias", "0|1", 1, TO_KERNELS, set_bias, "with a bias, and its gradient (1)"},
	{"--bias", "0|1", 1, TO_EXPLAIN, set_bias, "with a bias, and its gradient (1; rms_norm: 0)"},
	{"--statistics", "0|1", 1, TO_EXPLAIN, set_statistics,
	 "evenkeel returns statistics, or is given them (1)"},
	{"--eps", "E", 1, TO_OPS, set_eps, "added to the variance (1e-5)"},
	{"--init", "KIND", 1, TO_OPS, set_init,
	 "ones, integers from -5 to 4, or decimals; or 0, 1, 2 (decimals)"},
	{"--seed", "S", 1, TO_OPS, set_seed, "of the random values (1)"},
	{"--verify", "0|1", 1, TO_RUN, set_verify, "compare the result with the reference (1)"},
	{"--time", "0|1", 1, TO_RUN, set_time, "measure the time (1)"},
	{"--rotate", "MB", 1, COMMAND_RUN | COMMAND_BENCH, set_rotate,
	 "megabytes that the buffers rotate through (256; on a GPU 512)"},
	{"--device", "NAME", 1, COMMAND_RUN | COMMAND_INFO, set_device, "cpu, cuda or cuda:N (cpu)"},
	{"--device", "NAME", 1, TO_LISTS, set_device, "cpu, cuda, cuda:N, or all that are there (cpu)"},
	{"--device", "NAME", 1, COMMAND_WARMUP, set_device, "cuda or cuda:N (cuda)"},
	{"--device", "NAME", 1, TO_EXPLAIN, set_device,
	 "cpu or cuda, where evenkeel runs (what --machine is)"},
	{"--machine", "NAME", 1, TO_EXPLAIN, set_machine,
	 "whose roofline: this, h200 or a file from info --measure (h200; with --device cpu: this)"},
	{"--variant", "NAME", 1, TO_EXPLAIN, set_variant, "reference, pytorch or evenkeel alone (all)"},
	{"--markdown", "", 0, TO_EXPLAIN, set_markdown, "tables for a document"},
	{"--arch", "N,N", 1, COMMAND_WARMUP, set_arch,
	 "for --pack: compute capabilities, such as 90,80 (the GPU's)"},
	{"--pack", "FILE", 1, COMMAND_WARMUP, set_pack, "write the kernels into one file; needs no GPU"},
	{"--threads", "T", 1, TO_CPU, set_threads, "threads a call may use (as many as the process may)"},
	{"--isa", "NAME", 1, TO_CPU, set_isa, "level of the kernels; evenkeel info lists them (the best)"},
	{"--compare", "OLD.json", 1, COMMAND_BENCH, set_compare,
	 "show what changed since that --json, mark losses"},
	{"--measure", "FILE", 1, COMMAND_INFO, set_measure,
	 "measure copies and FLOP rate, write a machine file"},
	{"--json", "FILE", 1, COMMAND_INFO | COMMAND_RUN | COMMAND_BENCH | COMMAND_EXPLAIN, set_json,
	 "write JSON; - is standard output"},
	{"--csv", "FILE", 1, COMMAND_RUN | COMMAND_BENCH, set_csv, "write CSV; - is standard output"},
	{"--help", "", 0, TO_ALL, set_help, "this text"},
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
	int taken = 1 + option->value_count;
	if (inline_value && option->value_count == 1) {
		inline_value++;
		values = &inline_value;
		taken = 1;
	} else if (inline_value || argc < taken) {
		complain(STATUS_USAGE, "%s: must be followed by %s", option->name,
			 option->value_count ? option->values : "nothing");
		return 0;
	}
	const char *allowed = option->set(options, values);
	if (allowed) {
		complain(STATUS_USAGE, "%s %s%s%s: must be %s", option->name, values[0],
			 option->value_count == 2 ? " " : "", option->value_count == 2 ? values[1] : "",
			 allowed);
		return 0;
	}
	return taken;
}

/* before: the option that ends where name begins; NULL: an op, or nothing, does. */
static int parse_op(struct options *options, const char *name, const struct option *before)
{
	for (int i = 0; i < EK_OP_COUNT; i++)
		if (strcmp(ek_ops[i].name, name) == 0) {
			for (int k = 0; k < options->op_count; k++)
				if (options->ops[k] == &ek_ops[i])
					return complain(STATUS_USAGE, "%s: named twice", name);
			options->ops[options->op_count++] = &ek_ops[i];
			return STATUS_FINE;
		}
	bool explain = options->command == COMMAND_EXPLAIN;
	bool expression = explain && strpbrk(name, "$(){}+*");
	if (!expression && before && isdigit((unsigned char)*name))
		return complain(STATUS_USAGE, "%s: one value too many for %s, which takes %s", name,
				before->name, before->value_count ? before->values : "none");
	if (!expression)
		return complain(STATUS_USAGE, "%s: unknown op, must be layer_norm or rms_norm%s", name,
				explain ? ", or an expression of references such as "
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

static int check_weight_dtype(ek_dtype dtype, ek_dtype weight_dtype)
{
	if (weight_dtype_fits(dtype, weight_dtype))
		return STATUS_FINE;
	return complain(STATUS_USAGE, "--weight-dtype %s: with --dtype %s it must be %s%s",
			ek_dtype_name(weight_dtype), ek_dtype_name(dtype), ek_dtype_name(dtype),
			dtype != EK_F32 && weight_dtype_fits(dtype, EK_F32) ? " or f32" : "");
}

/* Those of the list, or f32, which run and explain suppose; verify and bench leave out of theirs what does not fit. */
static int check_weight_dtypes(const struct options *options)
{
	bool supposed = options->command & (COMMAND_RUN | COMMAND_EXPLAIN) && options->dtype_count == 0;
	int status = supposed ? check_weight_dtype(EK_F32, options->weight_dtype) : STATUS_FINE;
	for (int i = 0; i < options->dtype_count && status == STATUS_FINE; i++)
		status = check_weight_dtype(options->dtypes[i], options->weight_dtype);
	return status;
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
	if (!options->shape_count)
		return complain(STATUS_USAGE, "warmup: must have --cols, the widths that will be used");
	if (options->arch_count && !options->pack)
		return complain(STATUS_USAGE,
				"--arch: must come with --pack; without, kernels are for the GPU");
	return STATUS_FINE;
}

static int check_explain(const struct options *options)
{
	if (options->op_count + (options->expression != NULL) != 1)
		return complain(STATUS_USAGE, "explain: must be followed by one op, layer_norm or rms_norm, "
					      "or by one expression of references");
	if (options->expression && (options->variant || options->pass[FORWARD] || options->pass[BACKWARD]))
		return complain(STATUS_USAGE, "%s: must be with an op; an expression's references say it",
				options->variant ? "--variant" : "--pass");
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
		return complain(STATUS_USAGE, "run: must be followed by one op, layer_norm or rms_norm");
	if (command == COMMAND_INFO && options->op_count)
		return complain(STATUS_USAGE, "%s: info takes no op", options->ops[0]->name);
	if (command == COMMAND_RUN && options->dtype_count > 1)
		return complain(STATUS_USAGE, "--dtype: run takes one dtype, f32, f16, bf16 or f64");
	status = check_weight_dtypes(options);
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
