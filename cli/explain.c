/* evenkeel explain: what an op costs by the library's model (ek_norm_cost, ek_reference_cost), and the least time that a
 * measured machine allows for it. Shown by explain_text.c and explain_write.c. SPDX-License-Identifier: MIT */
#include "explain.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "report.h"

/* Bound by arithmetic is what lies above the ridge, as docs/cost.md has it; without a division, since bytes may be 0. */
static struct roof roof_of(const struct machine *machine, const ek_cost_kernel *kernel, ek_dtype dtype,
			   bool elsewhere)
{
	double bytes = (double)kernel->read_bytes + (double)kernel->write_bytes;
	double flops = (double)kernel->flops;
	double moving = machine_copy_seconds(machine, bytes);
	bool products = strcmp(kernel->type, "product") == 0 || strcmp(kernel->type, "attention") == 0;
	double rate = products ? machine_product_rate(machine, dtype) : machine_flop_rate(machine, dtype),
	       computing = flops / rate;
	return (struct roof){.intensity = bytes > 0 ? flops / bytes : 0,
			     .computes = flops * machine_bandwidth(machine) > bytes * rate,
			     .seconds = computing > moving ? computing : moving,
			     .elsewhere = elsewhere};
}

/* Kernels run one after the other: the total is the sum of their times. Of references it is not known how often each is
 * met, and the time is that of all bytes at once. */
static void add_roofs(const struct explanation *e, struct variant *variant, bool elsewhere)
{
	double seconds = 0, computing = 0;
	for (int i = 0; i < variant->cost.kernel_count; i++) {
		variant->kernels[i] =
			roof_of(&e->machine, &variant->cost.kernels[i], e->args.dtype, elsewhere);
		seconds += variant->kernels[i].seconds;
		computing += variant->kernels[i].computes ? variant->kernels[i].seconds : 0;
	}
	variant->total = roof_of(&e->machine, &variant->cost.total, e->args.dtype, elsewhere);
	if (e->expression)
		return;
	variant->total.seconds = seconds;
	if (e->kind == EXPLAIN_BLOCK) /* by what takes most of the time */
		variant->total.computes = 2 * computing > seconds;
}

/* PyTorch's kernels are counted as they are on a GPU. What it does on a CPU is not counted, so a CPU's rates give no
 * limit for it. */
static bool is_elsewhere(const struct explanation *e, ek_variant variant)
{
	bool pytorch = variant == EK_PYTORCH || variant == EK_COMPILED;
	return (pytorch || explain_names_pytorch(e)) && e->args.device == EK_CPU;
}

/* Norms and expressions have room for fewer kernels of their own. */
static ek_status copy_cost(ek_status status, const ek_cost *from, ek_cost_list *to)
{
	if (status != EK_OK)
		return status;
	memcpy(to->kernels, from->kernels, (size_t)from->kernel_count * sizeof *to->kernels);
	memcpy(to->symbols, from->symbols, sizeof to->symbols);
	to->kernel_count = from->kernel_count;
	to->symbol_count = from->symbol_count;
	to->total = from->total;
	return EK_OK;
}

static ek_status count(const struct explanation *e, const ek_cost_args *args, ek_cost_list *cost)
{
	static ek_cost own; /* it is large */
	own.size = sizeof own;
	switch (e->kind) {
	case EXPLAIN_EXPRESSION:
		return copy_cost(ek_reference_cost(e->subject, args, &own), &own, cost);
	case EXPLAIN_GLU:
		return ek_glu_cost(args, cost);
	case EXPLAIN_ROPE:
		return ek_rope_cost(args, cost);
	case EXPLAIN_BLOCK:
		return ek_block_cost(args, cost);
	default:
		return copy_cost(ek_norm_cost(args, &own), &own, cost);
	}
}

static int fill(struct explanation *e, const char *name, const char *about, ek_variant variant)
{
	struct variant *to = &e->variants[e->count++];
	ek_cost_args args = e->args;
	to->name = name;
	to->about = about;
	to->cost = (ek_cost_list){
		.size = sizeof to->cost, .kernels = to->counted, .most_kernels = EK_BLOCK_KERNELS};
	args.variant = variant;
	if (count(e, &args, &to->cost) != EK_OK)
		return complain(STATUS_USAGE, "explain: %s", ek_error(NULL));
	add_roofs(e, to, is_elsewhere(e, variant));
	return STATUS_FINE;
}

/* In the order in which they are shown; those of ops, of blocks. Their names, and what they are on a GPU and on a CPU. */
static const struct shown {
	ek_variant variant;
	const char *name, *on_gpu, *on_cpu;
} shown_of_ops[] =
	{{EK_REFERENCE, "reference", "the decomposition, every step of it a kernel of its own",
	  "the decomposition, every step of it a kernel of its own"},
	 {EK_PYTORCH, "pytorch", "what PyTorch 2.11 launches on a GPU",
	  "what PyTorch 2.11 launches on a GPU; what it does on a CPU is not counted, so there is no time"},
	 {EK_EVENKEEL, "evenkeel", "what evenkeel launches on a GPU",
	  "what evenkeel does on the CPU, in one sweep"}},
  shown_of_blocks[] = {{EK_EVENKEEL, "evenkeel", "what a block of evenkeel.torch launches on a GPU",
			"what a block of evenkeel.torch does on the CPU"},
		       {EK_COMPILED, "torch.compile",
			"an estimate: what inductor fuses by its rules, on a GPU",
			"an estimate: what inductor fuses by its rules, on a GPU; so there is no time"},
		       {EK_PYTORCH, "eager", "what PyTorch launches on a GPU, operation by operation",
			"what PyTorch launches on a GPU, operation by operation; so there is no time"}};

/* Those that are asked for, 0: all. */
static int fill_variants(struct explanation *e, int asked)
{
	bool block = e->kind == EXPLAIN_BLOCK, cpu = e->args.device == EK_CPU;
	const struct shown *shown = block ? shown_of_blocks : shown_of_ops;
	int status = STATUS_FINE;
	if (e->expression)
		return fill(e, "expression", "the references, then all with their own arguments",
			    EK_REFERENCE);
	if (asked == (block ? (int)EK_REFERENCE : (int)EK_COMPILED))
		return complain(STATUS_USAGE, "--variant %s: of %s it must be %s",
				block ? "reference" : "torch.compile", e->subject,
				block ? "evenkeel, torch.compile or eager"
				      : "reference, pytorch or evenkeel");
	for (int i = 0; i < MOST_VARIANTS && status == STATUS_FINE; i++)
		if (asked == 0 || asked == (int)shown[i].variant)
			status = fill(e, shown[i].name, cpu ? shown[i].on_cpu : shown[i].on_gpu,
				      shown[i].variant);
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
	explain_arguments(e, options);
	status = explain(e, options);
	free(e);
	return status;
}
