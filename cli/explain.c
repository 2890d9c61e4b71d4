/* evenkeel explain: what an op costs by the library's model (ek_norm_cost, ek_reference_cost), and the least time that a
 * measured machine allows for it. Shown by explain_text.c and explain_write.c. SPDX-License-Identifier: MIT */
#include "explain.h"

#include <stdlib.h>
#include <string.h>

#include "choices.h"
#include "cli.h"
#include "device.h"
#include "report.h"

/* Shown where none are given. */
enum { EXAMPLE_BATCH = 8, EXAMPLE_SEQ = 2048, EXAMPLE_HIDDEN = 4096 };

/* Bound by arithmetic is what lies above the ridge, as docs/cost.md has it; without a division, since bytes may be 0. */
static struct roof roof_of(const struct machine *machine, const ek_cost_kernel *kernel, ek_dtype dtype,
			   bool elsewhere)
{
	double bytes = (double)kernel->read_bytes + (double)kernel->write_bytes;
	double flops = (double)kernel->flops;
	double moving = machine_copy_seconds(machine, bytes);
	double rate = machine_flop_rate(machine, dtype), computing = flops / rate;
	return (struct roof){.intensity = bytes > 0 ? flops / bytes : 0,
			     .computes = flops * machine_bandwidth(machine) > bytes * rate,
			     .seconds = computing > moving ? computing : moving,
			     .elsewhere = elsewhere};
}

/* Kernels run one after the other: the total is the sum of their times. Of references it is not known how often each is
 * met, and the time is that of all bytes at once. */
static void add_roofs(const struct explanation *e, struct variant *variant, bool elsewhere)
{
	double seconds = 0;
	for (int i = 0; i < variant->cost.kernel_count; i++) {
		variant->kernels[i] =
			roof_of(&e->machine, &variant->cost.kernels[i], e->args.dtype, elsewhere);
		seconds += variant->kernels[i].seconds;
	}
	variant->total = roof_of(&e->machine, &variant->cost.total, e->args.dtype, elsewhere);
	if (!e->expression)
		variant->total.seconds = seconds;
}

/* PyTorch's kernels are counted as they are on a GPU. What it does on a CPU is not counted, so a CPU's rates give no
 * limit for it. */
static bool is_elsewhere(const struct explanation *e, ek_variant variant)
{
	return (variant == EK_PYTORCH || explain_names_pytorch(e)) && e->args.device == EK_CPU;
}

static int with_of(const struct options *options)
{
	bool residual = options->op_count && op_has(options->ops[0], "residual");
	bool after = options->op_count && op_has(options->ops[0], "residual_after");
	bool gate = options->op_count && op_has(options->ops[0], "gate");
	return (residual ? EK_WITH_RESIDUAL : 0) | (after ? EK_WITH_RESIDUAL_AFTER : 0) |
	       (gate ? EK_WITH_GATE : 0) | (options->x_bias ? EK_WITH_X_BIAS : 0);
}

static ek_activation activation_of(const struct options *options)
{
	int chosen = options->choices[EK_CHOICE_ACTIVATION];
	return (ek_activation)(chosen || !options->op_count ? chosen
							    : options->ops[0]->usual[EK_CHOICE_ACTIVATION]);
}

/* evenkeel.torch's functions with a residual after the norm return the dtype of the sum. */
static ek_dtype result_dtype(const struct options *options)
{
	int with = with_of(options), asked = options->choices[EK_CHOICE_Y_DTYPE];
	return (ek_dtype)(asked || !(with & EK_WITH_RESIDUAL_AFTER) ? asked
								    : options->choices[EK_CHOICE_H_DTYPE]);
}

static ek_cost_args arguments_of(const struct options *options)
{
	bool rows = options->rows > 0;
	bool rms = options->op_count && options->ops[0]->kind == EK_RMS_NORM;
	bool bias = rms && !options->bias_given ? false : options->bias; /* PyTorch's RMSNorm has none */
	int64_t hidden = options->hidden ? options->hidden : options->cols;
	int64_t batch = options->batch ? options->batch : rows ? options->rows : EXAMPLE_BATCH;
	int64_t seq = options->seq ? options->seq : rows ? 1 : EXAMPLE_SEQ;
	return (ek_cost_args){.size = sizeof(ek_cost_args),
			      .norm = options->op_count ? (ek_norm)options->ops[0]->kind : EK_LAYER_NORM,
			      .pass = options->pass[BACKWARD] ? EK_BACKWARD : EK_FORWARD,
			      .batch_size = batch,
			      .seq_len = seq,
			      .hidden_size = hidden ? hidden : EXAMPLE_HIDDEN,
			      .dtype = options->dtype_count ? options->dtypes[0] : EK_F32,
			      .weight_dtype = options->weight_dtype,
			      .with = with_of(options),
			      .h_dtype = (ek_dtype)options->choices[EK_CHOICE_H_DTYPE],
			      .y_dtype = result_dtype(options),
			      .gradient_dtype = (ek_dtype)options->choices[EK_CHOICE_GRADIENT_DTYPE],
			      .weight_offset = options->choices[EK_CHOICE_WEIGHT_OFFSET],
			      .rounding = (ek_rounding)options->choices[EK_CHOICE_ROUNDING],
			      .activation = activation_of(options),
			      .gate_first = options->choices[EK_CHOICE_GATE_FIRST],
			      .group_cols = options->group_cols,
			      .compute_dtype = options->compute_dtype,
			      .stats_dtype = options->stats_dtype,
			      .intermediate_dtype = options->intermediate_dtype,
			      .absent = (options->weight ? 0 : EK_NO_WEIGHT) | (bias ? 0 : EK_NO_BIAS) |
					(options->statistics ? 0 : EK_NO_STATISTICS)};
}

static int fill(struct explanation *e, const char *name, const char *about, ek_variant variant)
{
	struct variant *to = &e->variants[e->count++];
	ek_cost_args args = e->args;
	to->name = name;
	to->about = about;
	to->cost.size = sizeof to->cost;
	args.variant = variant;
	ek_status status = e->expression ? ek_reference_cost(e->subject, &args, &to->cost)
					 : ek_norm_cost(&args, &to->cost);
	if (status != EK_OK)
		return complain(STATUS_USAGE, "explain: %s", ek_error(NULL));
	add_roofs(e, to, is_elsewhere(e, variant));
	return STATUS_FINE;
}

/* Those that are asked for, 0: all. */
static int fill_variants(struct explanation *e, int asked)
{
	static const char *const about[][2] = {
		/* on a GPU, on a CPU */
		{"the decomposition, every step of it a kernel of its own",
		 "the decomposition, every step of it a kernel of its own"},
		{"what PyTorch 2.11 launches on a GPU",
		 "what PyTorch 2.11 launches on a GPU; what it does on a CPU is not counted, so there is no time"},
		{"what evenkeel launches on a GPU", "what evenkeel does on the CPU, in one sweep"}};
	int status = STATUS_FINE;
	if (e->expression)
		return fill(e, "expression", "the references, then all with their own arguments",
			    EK_REFERENCE);
	for (int i = EK_REFERENCE; i <= EK_EVENKEEL && status == STATUS_FINE; i++)
		if (asked == 0 || asked == i)
			status = fill(e, variant_names[i - 1], about[i - 1][e->args.device == EK_CPU],
				      (ek_variant)i);
	return status;
}

static int show(const struct explanation *e, const struct options *options)
{
	FILE *out = report_stream(options);
	(options->markdown ? explain_markdown : explain_text)(out, e);
	if (!options->json)
		return STATUS_FINE;
	FILE *file = open_output("--json", options->json);
	if (!file)
		return STATUS_USAGE;
	explain_json(file, e);
	return close_output(file, "--json", options->json);
}

/* evenkeel runs on what the machine is, and --device cannot make it something else. */
static int settle_device(struct explanation *e, const struct options *options, const char *name)
{
	e->args.device = e->machine.gpu ? EK_CUDA : EK_CPU;
	if (options->device_given && options->device != e->args.device)
		return complain(STATUS_USAGE,
				"--device %s --machine %s: %s is a %s, must be a %s; leave --device out, or "
				"name another machine",
				e->machine.gpu ? "cpu" : "cuda", name, e->machine.name,
				e->machine.gpu ? "GPU" : "CPU", e->machine.gpu ? "CPU" : "GPU");
	if (e->machine.gpu) {
		e->args.arch = e->machine.arch;
		e->args.multiprocessors = e->machine.multiprocessors;
	}
	return STATUS_FINE;
}

static int explain(struct explanation *e, const struct options *options)
{
	bool cpu = options->device_given && options->device == EK_CPU;
	const char *name = options->machine ? options->machine : cpu ? "this" : "h200";
	/* Without --device `this` is the GPU, where there is one. */
	bool gpu = options->device_given ? !cpu : strcmp(name, "this") == 0 && device_gpus() > 0;
	int status = machine_find(&e->machine, name, gpu, options);
	if (status == STATUS_FINE)
		status = settle_device(e, options, name);
	if (status == STATUS_FINE)
		status = fill_variants(e, options->variant);
	return status == STATUS_FINE ? show(e, options) : status;
}

int command_explain(const struct options *options)
{
	int status = report_files_possible(options);
	if (status != STATUS_FINE)
		return status;
	struct explanation *e = calloc(1, sizeof *e);
	if (!e)
		return complain(STATUS_USAGE, "explain: no memory");
	e->subject = options->expression ? options->expression : options->ops[0]->name;
	e->expression = options->expression != NULL;
	e->sizes_given = options->batch || options->seq || options->hidden || options->rows || options->cols;
	e->args = arguments_of(options);
	status = explain(e, options);
	free(e);
	return status;
}
