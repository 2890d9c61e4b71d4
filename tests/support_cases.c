/* Cases run on the reference once and on any number of contexts, and compared (verify/operands.h); support.h says what.
 * SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "support.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first rows of the registry. */
enum { PLAIN_NORMS = 2 };

struct operands case_inputs, case_expected, case_actual;

#define OPEN_OP(name, kind)                                                                                  \
	{                                                                                                    \
		name, &ek_norm_forward_op, &ek_norm_backward_op, kind, {~UINT32_C(0), 0}, {~UINT32_C(0), 0}, \
			~UINT32_C(0), {0}, EK_NORM_ACTIVATIONS                                               \
	}
const struct ek_op_entry open_ops[OPEN_OPS] = {OPEN_OP("any_layer_norm", EK_LAYER_NORM),
					       OPEN_OP("any_rms_norm", EK_RMS_NORM)};

const struct ek_op_entry open_glu = {.name = "any_glu",
				     .forward = &ek_glu_forward_op,
				     .backward = &ek_glu_backward_op,
				     .in_forward = {~UINT32_C(0), 0},
				     .in_backward = {~UINT32_C(0), 0},
				     .open_choices = ~UINT32_C(0),
				     .usual = {[EK_CHOICE_ACTIVATION] = EK_SILU},
				     .activations = EK_NORM_ACTIVATIONS | 1 << EK_RELU |
						    1 << EK_RELU_SQUARED | 1 << EK_IDENTITY};

struct test_case case_of(bool backward, ek_norm norm, struct dtype_pair dtypes, int64_t rows, int64_t cols)
{
	const struct ek_op_entry *op = ek_ops;
	while (op->forward != &ek_norm_forward_op || op->kind != (int)norm)
		op++;
	return case_make(op, backward ? BACKWARD : FORWARD, dtypes, rows, cols);
}

/* The registry's op number `turn` of this kind, those of the plain norms not counted. */
static const struct ek_op_entry *other_op(int kind, uint64_t turn)
{
	const struct ek_op_entry *others[EK_NORM_OPS] = {ek_ops};
	int count = 0;
	for (int i = PLAIN_NORMS; i < EK_NORM_OPS; i++)
		if (ek_ops[i].kind == kind)
			others[count++] = &ek_ops[i];
	return others[turn % (uint64_t)count];
}

struct test_case op_case(int k, int64_t rows, int64_t cols)
{
	const struct ek_op_entry *op = &ek_ops[k / 2 % PLAIN_NORMS];
	uint64_t seed = (uint64_t)(k + 100 * rows + 7919 * cols), turn = random_mixed(seed);
	if (k >= PLAIN_OPS)
		op = other_op(op->kind, turn >> 8);
	struct test_case c = case_make(op, k % 2 ? BACKWARD : FORWARD,
				       dtype_pairs[k % PLAIN_OPS / 2 / PLAIN_NORMS], rows, cols);
	if (k >= PLAIN_OPS && turn % 4 > 0)
		case_choose(&c, (int)((turn >> 32) % (uint64_t)case_choice_count(&c)));
	c.seed = seed;
	return c;
}

struct test_case glu_case(int k, int64_t rows, int64_t cols)
{
	static const double limits[] = {0, 0, 0.75, 2}, alphas[] = {0, 1.702, 0.5}, offsets[] = {0, 1, -0.25};
	uint64_t seed = (uint64_t)(k + 100 * rows + 7919 * cols), turn = random_mixed(seed);
	struct test_case c =
		case_make(&ek_ops[EK_NORM_OPS + k % GLU_OPS], k / GLU_OPS % PASS_COUNT ? BACKWARD : FORWARD,
			  dtype_pairs[k / GLU_OPS / PASS_COUNT % DTYPE_PAIRS], rows, cols);
	case_choose(&c, (int)((turn >> 32) % (uint64_t)case_choice_count(&c)));
	c.limit = limits[turn % 4];
	c.alpha = alphas[turn / 4 % 3];
	c.value_offset = offsets[turn / 16 % 3];
	c.seed = seed;
	case_normalise(&c);
	return c;
}

void case_fill(const struct test_case *c)
{
	ek_status status = inputs_fill(reference(), c, &case_inputs);
	EXPECT(status == EK_OK, "%s: inputs: %s", case_text(c), ek_error(reference()));
}

void case_outputs(ek_context *ctx, const struct test_case *c, struct operands *set)
{
	ek_status status = outputs_make(ctx, c, &case_inputs, set);
	EXPECT(status == EK_OK, "%s: outputs: %s", case_text(c), ek_error(ctx));
}

union op_args case_args_in(const struct test_case *c, const struct operands *set)
{
	union op_args args;
	operands_args(c, &case_inputs, set, &args);
	return args;
}

ek_status case_call(ek_context *ctx, const struct test_case *c, struct operands *set)
{
	return outputs_compute(ctx, c, &case_inputs, set);
}

static bool run(ek_context *ctx, const struct test_case *c, const char *level, int threads,
		struct operands *set)
{
	ek_status status = case_call(ctx, c, set);
	EXPECT(status == EK_OK, "%s, level %s, %d threads: %s: %s", case_text(c), level, threads,
	       ek_status_name(status), ek_error(ctx));
	return status == EK_OK;
}

void case_run(ek_context *ctx, const struct test_case *c, struct operands *set)
{
	ek_description description = {.size = sizeof description};
	(void)ek_describe(ctx, &description);
	(void)run(ctx, c, description.isa, description.threads, set);
}

static bool expect_same(const struct test_case *c, const char *level, int threads, bool same,
			const struct difference *difference)
{
	EXPECT(same, "%s, level %s, %d threads: %s", case_text(c), level, threads,
	       difference_text(difference));
	return same;
}

bool case_compare(const struct test_case *c, const char *level, int threads, const struct operands *set)
{
	struct difference difference;
	bool same = outputs_same(&case_expected, set, &difference);
	return expect_same(c, level, threads, same, &difference);
}

void case_expect(const struct test_case *c)
{
	struct difference difference;
	case_fill(c);
	if (run(reference(), c, "reference", 1, &case_expected)) {
		bool whole = outputs_whole(&case_expected, &difference);
		(void)expect_same(c, "reference", 1, whole, &difference);
	}
}

bool case_check(const struct test_case *c, struct setting setting)
{
	return run(context_of(setting), c, setting.level, setting.threads, &case_actual) &&
	       case_compare(c, setting.level, setting.threads, &case_actual);
}

void case_check_levels(const struct test_case *c)
{
	case_expect(c);
	for (int i = 0; i < level_count(); i++)
		case_check(c, (struct setting){level_name(i), 1, PLAIN});
}

unsigned char *memory_repeated(const void *block, size_t bytes, int64_t times)
{
	int file = memfd_create("evenkeel-test", 0);
	unsigned char *map = mmap(NULL, bytes * (size_t)times, PROT_NONE,
				  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	bool made = file >= 0 && map != MAP_FAILED && ftruncate(file, (off_t)bytes) == 0;
	for (int64_t i = 0; i < times && made; i++)
		made = mmap(map + (size_t)i * bytes, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			    file, 0) != MAP_FAILED;
	(void)close(file);
	EXPECT(made, "no mapping of %lld times %zu bytes", (long long)times, bytes);
	if (made && block)
		memcpy(map, block, bytes);
	return made ? map : NULL;
}
