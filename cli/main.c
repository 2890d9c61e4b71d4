/* The program evenkeel: the table of commands, their help, and the dispatch to command_*().
 * SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "options.h"
#include "report.h"

struct command_entry {
	const char *name;
	enum command command;
	int (*function)(const struct options *options);
	const char *arguments;
	const char *summary;
	const char *text; /* what it does and prints, and examples */
};

static const struct command_entry commands[] = {
	{"info", COMMAND_INFO, command_info, "[options]", "what evenkeel is and what it runs on here",
	 "Shows the version, the version of the numerics contract, the CPU, the levels of kernels that it can\n"
	 "run and the one chosen, threads, caches, and from what size on results are written past the caches; then\n"
	 "the GPUs, CUDA's driver, NVRTC, which compiles kernels for them, and where compiled kernels are kept, or\n"
	 "what is missing and what to install. Then which ops run in which dtypes, found by calls on the device\n"
	 "that --device names; --json has all devices.\n\n"
	 "Examples\n"
	 "  evenkeel info\n"
	 "  evenkeel info --json -              the same for a program\n"
	 "  evenkeel info --measure here.json   measure this machine: copies by size, FLOP rate\n"
	 "  evenkeel info --measure gpu.json --device cuda   the same of its first GPU\n"},
	{"run", COMMAND_RUN, command_run, "OP [options]", "one op on one shape: check it, time it",
	 "Computes OP, compares every value with the reference bit for bit, and shows milliseconds, GB/s and the\n"
	 "share of a copy's speed: a copy of the same bytes is the limit, 1.00. OP is layer_norm or rms_norm;\n"
	 "add_layer_norm or add_rms_norm: h = x + residual, y = the norm of h, both returned;\n"
	 "layer_norm_residual or rms_norm_residual: y = residual + the norm of x;\n"
	 "layer_norm_act or rms_norm_act: y = an activation of the norm of x, GELU by default; layer_norm_gelu: a GELU;\n"
	 "layer_norm_gated or rms_norm_gated: y = the norm of x times an activation of a gate, SiLU by default;\n"
	 "glu: y = an activation of the gate, SiLU by default, times a value; swiglu, geglu: glu with a SiLU, a GELU;\n"
	 "bias_act: y = an activation of x + a bias, GELU by default.\n"
	 "On a GPU also what a call costs with the host's part, and the first call with a new width.\n\n"
	 "Examples\n"
	 "  evenkeel run layer_norm\n"
	 "  evenkeel run layer_norm --rows 512 --cols 768 --dtype bf16 --weight-dtype f32\n"
	 "  evenkeel run rms_norm --pass backward --length 4096 8192 --threads 1\n"
	 "  evenkeel run add_rms_norm --rows 2048 --cols 4096 --dtype bf16 --pass backward\n"
	 "  evenkeel run add_rms_norm --dtype bf16 --residual-dtype f32 --weight-offset 1\n"
	 "  evenkeel run layer_norm_gelu --dtype bf16 --activation gelu_tanh\n"
	 "  evenkeel run rms_norm_gated --dtype bf16 --gate-first 1\n"
	 "  evenkeel run swiglu --dtype bf16 --pass backward --packed 1\n"
	 "  evenkeel run glu --dtype bf16 --interleaved 1 --limit 7 --alpha 1.702 --value-offset 1      as in gpt-oss\n"
	 "  evenkeel run bias_act --dtype bf16 --activation relu_squared\n"
	 "  evenkeel run layer_norm --init integers --time 0      check only\n"
	 "  evenkeel run layer_norm --dtype bf16 --device cuda    on the first GPU\n"},
	{"verify", COMMAND_VERIFY, command_verify, "[OP...] [options]",
	 "compare all kernels with the reference, bit for bit",
	 "Computes a list of cases (shapes, dtypes, passes, operand forms) at every level that this CPU can run\n"
	 "and with several numbers of threads, or on a GPU, and compares all results with the reference on the CPU\n"
	 "bit for bit, and what lies between and around them.\n"
	 "Stops at the first difference, shows it and the command that repeats it, and exits with 1.\n\n"
	 "Examples\n"
	 "  evenkeel verify --quick                    all ops by turns: about 35 seconds\n"
	 "  evenkeel verify                            every op with every shape: some minutes\n"
	 "  evenkeel verify layer_norm --isa avx2 --dtype f32,bf16\n"
	 "  evenkeel verify --rows 39 --cols 777 --pass backward\n"
	 "  evenkeel verify add_layer_norm --dtype bf16 --residual-dtype f32 --rounding each\n"
	 "  evenkeel verify glu --activation gelu --interleaved 1\n"
	 "  evenkeel verify --device cuda              the first GPU; --device all: the CPU and every GPU\n"
	 "  evenkeel verify --device cuda --quick      few kernels to compile: about a minute, then seconds\n"},
	{"bench", COMMAND_BENCH, command_bench, "[OP...] [options]",
	 "measure speed beside a copy of the same bytes",
	 "Times each op from memory: buffers rotate through at least 256 MB, op and copy take turns, medians\n"
	 "count. \"of copy\" is the time of a copy of the same bytes over the time of the op: 1.00 is the limit.\n"
	 "Forward moves x and y; backward x, dy and dx, and its copy reads two streams and writes one. With a\n"
	 "residual both move it, or its gradient, and h as well; with a gate and a value forward moves three tensors\n"
	 "and backward five. oneDNN is timed beside the plain norms where\n"
	 "libdnnl.so.3 can be opened ($EVENKEEL_DNNL names another file).\n\n"
	 "On a GPU calls are captured in CUDA graphs over at least 512 MB and timed by the GPU's clock; the copy\n"
	 "is the fastest of several kernels, from x to y, times the op's bytes over those of the copy: 1.5 for\n"
	 "backward. \"in a loop\" is a call without a graph, \"host\" what it takes from the calling thread.\n\n"
	 "Examples\n"
	 "  evenkeel bench --quick\n"
	 "  evenkeel bench --json before.json          the whole list, some minutes\n"
	 "  evenkeel bench --compare before.json       what changed since then\n"
	 "  evenkeel bench layer_norm --shapes 512x768,333x1000 --dtype f32,bf16 --csv -\n"
	 "  evenkeel bench add_layer_norm --quick\n"
	 "  evenkeel bench swiglu --shapes 2048x4096 --dtype f32,bf16\n"
	 "  evenkeel bench --device cuda --quick\n"},
	{"explain", COMMAND_EXPLAIN, command_explain, "OP|block|REFERENCE [options]",
	 "what an op costs: FLOPs, bytes, the least time",
	 "Counts FLOPs, bytes read and bytes written, kernel by kernel, as formulas and as numbers, for the\n"
	 "decomposition (reference), for what PyTorch launches (pytorch) and for evenkeel, with the arithmetic\n"
	 "intensity, whether memory or arithmetic is the limit, and the least time that a measured machine allows.\n"
	 "Nothing is run. Assumptions are listed, each with the option that switches it; docs/cost.md explains.\n"
	 "block: a transformer block, kernel by kernel, of evenkeel.torch, torch.compile and eager PyTorch, with\n"
	 "launches counted and what is often counted wrongly.\n"
	 "An expression of references, quoted, is expanded; its variables are batch_size, seq_len, hidden_size,\n"
	 "a_bytes and w_bytes.\n\n"
	 "Examples\n"
	 "  evenkeel explain layer_norm --batch 8 --seq 2048 --hidden 4096 --dtype bf16\n"
	 "  evenkeel explain layer_norm --dtype bf16 --compute-dtype f32 --stats-dtype f32\n"
	 "  evenkeel explain rms_norm --pass backward --machine here.json\n"
	 "  evenkeel explain add_layer_norm --dtype bf16 --residual-dtype f32\n"
	 "  evenkeel explain layer_norm --device cpu              on this machine, measured first\n"
	 "  evenkeel explain swiglu --ffn 11008 --dtype bf16 --pass backward\n"
	 "  evenkeel explain rope --heads 32 --kv-heads 8 --head-dim 128 --dtype bf16\n"
	 "  evenkeel explain block --order pre --pass step --batch 2 --d-model 4096 --heads 32 --ffn 11008\n"
	 "  evenkeel explain '2*${torch.nn.functional.layer_norm}(batch_size, seq_len, hidden_size)'\n"},
	{"warmup", COMMAND_WARMUP, command_warmup, "[OP...] --cols N,N [options]",
	 "compile GPU kernels ahead of their first use",
	 "Compiles the kernels that calls with these widths and dtypes need, forward and backward, into the cache\n"
	 "of the user (evenkeel info shows where). With --pack they go into one file instead, for machines without\n"
	 "NVRTC: name it there as $EVENKEEL_PACK or ek_options.pack.\n\n"
	 "Examples\n"
	 "  evenkeel warmup --cols 4096,8192 --dtype bf16\n"
	 "  evenkeel warmup layer_norm --cols 768 --dtype bf16 --weight-dtype f32 --pass forward\n"
	 "  evenkeel warmup add_rms_norm --cols 4096 --dtype bf16\n"
	 "  evenkeel warmup swiglu --cols 11008 --dtype bf16      a kernel of gated activations has many widths\n"
	 "  evenkeel warmup qk_norm_rope --head-dim 128 --dtype bf16   for any number of heads\n"
	 "  evenkeel warmup rms_norm --cols 4096 --pack kernels.pack --arch 90,80\n"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

int complain(int status, const char *format, ...)
{
	va_list arguments;
	(void)fflush(stdout);
	(void)fputs("evenkeel: ", stderr);
	va_start(arguments, format);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	(void)fputc('\n', stderr);
	return status;
}

int open_context(ek_context **ctx, const char *isa, int threads, int64_t stream_bytes)
{
	ek_options options = {
		.size = sizeof options, .isa = isa, .threads = threads, .stream_bytes = stream_bytes};
	ek_status status = ek_open(ctx, &options);
	if (status == EK_OK)
		return STATUS_FINE;
	return complain(status == EK_ERROR_NO_DEVICE ? STATUS_NO_DEVICE : STATUS_USAGE, "%s", ek_error(NULL));
}

static const struct command_entry *command_named(const char *name)
{
	for (int i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	return complain(STATUS_USAGE,
			"%s: unknown command, must be info, run, verify, bench, explain, warmup or help",
			name);
}

static int print_help(FILE *out)
{
	(void)fprintf(
		out,
		"evenkeel %s: LayerNorm and RMSNorm with the same bits everywhere, at the speed of a copy\n\n"
		"Usage: evenkeel COMMAND [options]\n\n",
		ek_version());
	for (int i = 0; i < COMMAND_COUNT; i++)
		(void)fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
	(void)fputs(
		"  help     this text; evenkeel help COMMAND for more\n\n"
		"Start here\n"
		"  evenkeel info                what runs on this machine\n"
		"  evenkeel run layer_norm      one shape, checked and timed\n"
		"  evenkeel verify --quick      every kernel against the reference\n"
		"  evenkeel bench --quick       speed beside a copy of the same bytes\n"
		"  evenkeel explain layer_norm  what it costs, and the least time that it can take\n\n"
		"Exit status: 0 fine, 1 a check failed or standard output cannot be written, 2 bad arguments,\n"
		"3 the device is not there or cannot be used.\n",
		out);
	return STATUS_FINE;
}

static int print_command_help(const struct command_entry *entry)
{
	printf("evenkeel %s %s: %s\n\n%s\nOptions (their defaults in brackets)\n", entry->name,
	       entry->arguments, entry->summary, entry->text);
	options_print(stdout, entry->command);
	return STATUS_FINE;
}

static int help_command(int argc, char **argv)
{
	if (argc == 0)
		return print_help(stdout);
	const struct command_entry *entry = command_named(argv[0]);
	return entry ? print_command_help(entry) : unknown_command(argv[0]);
}

/* The command on what --device asks for; with `all`, on the CPU and then on each GPU. */
static int run_command(const struct command_entry *entry, const struct options *options)
{
	int status = entry->function(options);
	int gpus = options->every_device ? device_gpus() : 0;
	for (int ordinal = 0; ordinal < gpus && status == STATUS_FINE; ordinal++) {
		struct options there = *options;
		there.device = EK_CUDA;
		there.ordinal = ordinal;
		printf("\n");
		status = entry->function(&there);
	}
	return status;
}

static bool is_help(const char *argument)
{
	return strcmp(argument, "help") == 0 || strcmp(argument, "--help") == 0 ||
	       strcmp(argument, "-h") == 0;
}

static int run_program(int argc, char **argv)
{
	if (argc < 2) {
		(void)print_help(stderr);
		return STATUS_USAGE;
	}
	if (is_help(argv[1]))
		return help_command(argc - 2, argv + 2);
	if (strcmp(argv[1], "--version") == 0) {
		printf("evenkeel %s, numerics %d\n", ek_version(), ek_numerics_version());
		return STATUS_FINE;
	}
	const struct command_entry *entry = command_named(argv[1]);
	if (!entry)
		return unknown_command(argv[1]);
	struct options options;
	int status = options_parse(&options, entry->command, argc - 2, argv + 2);
	if (status != STATUS_FINE)
		return status;
	return options.help ? print_command_help(entry) : run_command(entry, &options);
}

/* A report that was lost, on a full disk for example, is a failure. Other statuses have complained already. */
int main(int argc, char **argv)
{
	int status = run_program(argc, argv);
	const char *error = output_error(stdout);
	if (!error || (status != STATUS_FINE && status != STATUS_CHECK_FAILED))
		return status;
	return complain(STATUS_CHECK_FAILED, "standard output: cannot be written (%s)", error);
}
