/* What text, Markdown and JSON of explain have in common: words, counts, assumptions. Called by explain_text.c and
 * explain_write.c. SPDX-License-Identifier: MIT */
#include <stdarg.h>
#include <string.h>

#include "cli.h"
#include "explain.h"
#include "report.h"

/* References are forward ones, but for those whose name says else. */
static const char *pass_of_references(const ek_cost_list *cost)
{
	int backward = 0;
	for (int i = 0; i < cost->kernel_count; i++)
		backward += strstr(cost->kernels[i].name, "_backward") != NULL;
	return backward == 0 ? "forward" : backward == cost->kernel_count ? "backward" : "both";
}

const char *explain_pass(const struct explanation *e)
{
	if (e->expression)
		return pass_of_references(&e->variants[0].cost);
	return e->args.pass == EK_FORWARD ? "forward" : e->args.pass == EK_BACKWARD ? "backward" : "step";
}

const char *explain_bound(const struct roof *roof)
{
	return roof->elsewhere ? "-" : roof->computes ? "compute" : "memory";
}

void explain_time(char *text, size_t size, const struct roof *roof)
{
	if (roof->elsewhere)
		(void)snprintf(text, size, "-");
	else
		format_seconds(text, size, roof->seconds);
}

static PRINTF_LIKE(4, 5) void add(struct assumption *assumptions, int *count, const char *option,
				  const char *format, ...)
{
	struct assumption *to = &assumptions[(*count)++];
	va_list values;
	to->option = option;
	va_start(values, format);
	(void)vsnprintf(to->text, sizeof to->text, format, values);
	va_end(values);
}

/* Of the reference alone. */
static void add_widths(const ek_cost_args *a, struct assumption *assumptions, int *count)
{
	bool forward = a->pass == EK_FORWARD;
	ek_dtype compute = a->compute_dtype ? a->compute_dtype : a->dtype;
	ek_dtype read = a->with & EK_WITH_RESIDUAL && a->h_dtype ? a->h_dtype : a->dtype;
	bool in = compute != read, out = compute != (a->y_dtype ? a->y_dtype : a->dtype);
	add(assumptions, count, "--compute-dtype TYPE", "reference: computes in %s, %s",
	    ek_dtype_name(compute),
	    in && (out || !forward) ? "with casts at both ends"
	    : in                    ? "with a cast of what the norm reads"
	    : out && forward        ? "with a cast to y"
	    : out                   ? "with a cast of dy"
				    : "no casts");
	add(assumptions, count, "--stats-dtype TYPE", "reference: statistics as wide as %s%s",
	    ek_dtype_name(a->stats_dtype ? a->stats_dtype : a->dtype),
	    a->stats_dtype || ek_dtype_size(a->dtype) > 2 ? "" : ", the activation (in truth f32)");
	if (in || out)
		add(assumptions, count, "--intermediate-dtype TYPE",
		    "reference: tensors between casts as wide as %s%s",
		    ek_dtype_name(a->intermediate_dtype ? a->intermediate_dtype : a->dtype),
		    a->intermediate_dtype ? "" : ", the activation");
}

/* Of the GPU that the library supposes where none is known. */
enum { USUAL_ARCH = 90, USUAL_MULTIPROCESSORS = 132 };

static void add_device(const ek_cost_args *a, struct assumption *assumptions, int *count)
{
	int arch = a->arch ? a->arch : USUAL_ARCH;
	if (a->device == EK_CPU)
		add(assumptions, count, "--device cpu|cuda", "evenkeel: runs on the CPU");
	else
		add(assumptions, count, "--device cpu|cuda",
		    "evenkeel: runs on a GPU of %d multiprocessors, compute capability %d.%d",
		    a->multiprocessors ? a->multiprocessors : USUAL_MULTIPROCESSORS, arch / 10, arch % 10);
}

bool explain_names_pytorch(const struct explanation *e)
{
	return e->expression && strstr(e->subject, "torch.native_layer_norm");
}

static bool counts_pytorch(const struct explanation *e)
{
	for (int i = 0; i < e->count; i++)
		if (strcmp(e->variants[i].name, "pytorch") == 0)
			return true;
	return explain_names_pytorch(e);
}

static int assume_of_norm(const struct explanation *e, struct assumption *assumptions)
{
	const ek_cost_args *a = &e->args;
	bool forward = a->pass == EK_FORWARD;
	bool no_weight = a->absent & EK_NO_WEIGHT, no_bias = a->absent & EK_NO_BIAS;
	const char *gradient = ", and its gradient";
	int count = 0;
	add(assumptions, &count, "--weight 0|1", "%s weight%s", no_weight ? "no" : "a",
	    no_weight || forward ? "" : gradient);
	add(assumptions, &count, "--bias 0|1", "%s bias%s", no_bias ? "no" : "a",
	    no_bias || forward ? "" : gradient);
	if (a->with & (EK_WITH_RESIDUAL | EK_WITH_RESIDUAL_AFTER) ||
	    (a->activation && !(a->with & EK_WITH_GATE)))
		add(assumptions, &count, "--x-bias 0|1", "%s bias of x%s",
		    a->with & EK_WITH_X_BIAS ? "a" : "no",
		    a->with & EK_WITH_X_BIAS && !forward ? gradient : "");
	if (a->with & EK_WITH_RESIDUAL)
		add(assumptions, &count, "--residual-dtype TYPE", "residual and h in %s%s",
		    ek_dtype_name(a->h_dtype ? a->h_dtype : a->dtype),
		    forward || (a->h_dtype && a->h_dtype != a->dtype) ? "" : "; dx is also dresidual");
	if (forward && a->with & EK_WITH_RESIDUAL_AFTER)
		add(assumptions, &count, "--residual-dtype TYPE", "the residual in %s",
		    ek_dtype_name(a->h_dtype ? a->h_dtype : a->dtype));
	if (a->y_dtype && a->y_dtype != a->dtype)
		add(assumptions, &count, "--out-dtype TYPE", "y and dy in %s", ek_dtype_name(a->y_dtype));
	add_widths(a, assumptions, &count);
	add(assumptions, &count, "--statistics 0|1", "evenkeel: statistics are %s",
	    a->absent & EK_NO_STATISTICS ? forward ? "not returned" : "recomputed"
	    : forward                    ? "returned"
					 : "given");
	add_device(a, assumptions, &count);
	if (counts_pytorch(e) && a->weight_dtype && a->weight_dtype != a->dtype)
		add(assumptions, &count, "",
		    "pytorch: these kernels are those of equal dtypes; a GPU's PyTorch takes weights of another "
		    "dtype only under autocast, or by its unfused composite");
	return count;
}

static const char functions_count_one[] = "a function of one number (exp, tanh, erf) counts one FLOP";

static int assume_of_glu(const ek_cost_args *a, struct assumption *assumptions)
{
	bool value = a->with & EK_WITH_VALUE, bias = a->with & EK_WITH_BIASES;
	const char *gradient = a->pass == EK_FORWARD || !bias ? ""
			       : value                        ? ", and their gradients"
							      : ", and its gradient";
	int count = 0;
	add(assumptions, &count, "--bias 0|1", "%s%s",
	    value  ? bias ? "biases of gate and value" : "no biases"
	    : bias ? "a bias"
		   : "no bias",
	    gradient);
	add(assumptions, &count, "--activation NAME", "%s", activation_names[a->activation]);
	add(assumptions, &count, "", functions_count_one);
	add_device(a, assumptions, &count);
	return count;
}

static int assume_of_rope(const ek_cost_args *a, struct assumption *assumptions)
{
	bool bias = a->with & EK_WITH_BIASES, forward = a->pass == EK_FORWARD;
	int count = 0;
	add(assumptions, &count, "--bias 0|1", "%s%s", bias ? "biases of q and k" : "no biases",
	    bias && !forward ? ", and their gradients" : "");
	if (a->norm)
		add(assumptions, &count, "--norm NAME", "%s of each head before the turn, %s weights",
		    a->norm == EK_RMS_NORM ? "rms_norm" : "layer_norm",
		    a->absent & EK_NO_WEIGHT ? "without" : "with");
	add(assumptions, &count, "", "all sequences share cos and sin, of %s",
	    ek_dtype_name(a->table_dtype       ? a->table_dtype
			  : a->dtype == EK_F64 ? EK_F64
					       : EK_F32));
	add_device(a, assumptions, &count);
	return count;
}

static int assume_of_block(const struct explanation *e, struct assumption *assumptions)
{
	const ek_cost_args *a = &e->args;
	int count = 0;
	add(assumptions, &count, "--order reordered|pre", "%s",
	    a->order == EK_REORDERED ? "h = x + norm(attention(x)), out = h + norm(ffn(h))"
				     : "h = x + attention(norm(x)), out = h + ffn(norm(h))");
	add(assumptions, &count, "--norm NAME", "%s", a->norm == EK_RMS_NORM ? "rms_norm" : "layer_norm");
	add(assumptions, &count, "--bias 0|1", "%s",
	    a->with & EK_WITH_BIASES ? "biases in all products" : "no biases");
	add(assumptions, &count, "--gated 0|1", "%s%s", activation_names[a->activation],
	    a->with & EK_WITH_VALUE ? " of a gate, times a value" : " without a gate");
	add(assumptions, &count, "--packed 0|1", "%s",
	    a->with & EK_WITH_PACKED
		    ? "q, k and v are one product, gate and value another, as in evenkeel.torch"
		    : "q, k and v are three products, gate and value two");
	add(assumptions, &count, "--causal 0|1", "attention to %s",
	    a->causal ? "earlier tokens alone" : "all tokens");
	add(assumptions, &count, "--qk-norm 0|1", "%s",
	    a->with & EK_WITH_QK_NORM ? "RMSNorm of q and k" : "no norm of q and k");
	add(assumptions, &count, "",
	    "products at the tensor cores' peak (16 bits), and attention, no exp counted");
	add(assumptions, &count, "", functions_count_one);
	add_device(a, assumptions, &count);
	return count;
}

int explain_assumptions(const struct explanation *e, struct assumption *assumptions)
{
	int count = e->kind == EXPLAIN_GLU     ? assume_of_glu(&e->args, assumptions)
		    : e->kind == EXPLAIN_ROPE  ? assume_of_rope(&e->args, assumptions)
		    : e->kind == EXPLAIN_BLOCK ? assume_of_block(e, assumptions)
					       : assume_of_norm(e, assumptions);
	add(assumptions, &count, "",
	    "a kernel reads and writes every byte of a tensor once, however often it looks");
	add(assumptions, &count, "", "tensors are contiguous and aligned; an fma counts two FLOP");
	return count;
}

void explain_count(char *text, size_t size, double number, const char *unit)
{
	static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
	int i = 0;
	for (; number >= 999.95 && i < 6; i++)
		number /= 1000;
	const char *space = i > 0 || *unit ? " " : "";
	(void)snprintf(text, size, i > 0 ? "%.1f%s%s%s" : "%.0f%s%s%s", number, space, prefixes[i], unit);
}

void explain_machine(char *text, size_t size, const struct explanation *e)
{
	double rate = machine_flop_rate(&e->machine, e->args.dtype),
	       bandwidth = machine_bandwidth(&e->machine);
	char copies[32], flops[32];
	explain_count(copies, sizeof copies, bandwidth, "B/s");
	explain_count(flops, sizeof flops, rate, "FLOP/s");
	(void)snprintf(text, size, "%s: large copies at %s, %s in %s; ridge at %.1f FLOP/byte",
		       e->machine.name, copies, flops, e->args.dtype == EK_F64 ? "f64" : "f32",
		       rate / bandwidth);
}

bool explain_shown(const struct explanation *e, int before, const ek_cost_symbol *symbol)
{
	for (int i = 0; i < before; i++)
		for (int k = 0; k < e->variants[i].cost.symbol_count; k++) {
			const ek_cost_symbol *other = &e->variants[i].cost.symbols[k];
			if (strcmp(other->name, symbol->name) == 0 && other->value == symbol->value)
				return true;
		}
	return false;
}
