/* The kernels that `evenkeel verify --quick` compiles on a GPU (cli/gpu_quick.c): few, and yet every row of the
 * policy, every way of reading rows and every set of operands. No GPU is needed. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli/options.h"
#include "gpu/columns.h"
#include "ops/glu/kernels/layout.h"
#include "ops/norm/cuda.h"
#include "ops/norm/policy.h"
#include "ops/rope/kernels/layout.h"
#include "support_recipe.h"
#include "support_runner.h"

enum { MOST_KERNELS = 132, MOST_ROWS = 64, ARCH = 90, SHARED_BYTES = 227 << 10 };

static const struct ek_gpu_limits limits = {ARCH, 1, SHARED_BYTES};
static struct listed_case *cases;
static int case_count;

/* ---- kernels ---- */

struct kernel {
	struct ek_recipe recipe;
	const struct test_case *test_case; /* the first that needs it */
};

static struct kernel kernels[2 * MOST_KERNELS];
static int kernel_count;

static void add_kernel(const struct ek_recipe *recipe, const struct test_case *c)
{
	if (recipe_constant(recipe, "KIND") == KIND_FOLD)
		return; /* listed for any number of rows, compiled for some */
	for (int i = 0; i < kernel_count; i++)
		if (same_recipe(&kernels[i].recipe, recipe))
			return;
	if (kernel_count < COUNT_OF(kernels))
		kernels[kernel_count++] = (struct kernel){*recipe, c};
}

static bool is_norm(const struct kernel *kernel)
{
	return kernel->test_case->op->forward == &ek_norm_forward_op;
}

static void list_kernels(void)
{
	enum { MOST = 8 };
	static struct ek_recipe recipes[MOST];
	for (int i = 0; i < case_count; i++) {
		union op_args args;
		case_args_nowhere(&cases[i].c,
				  &args); /* what counts is that operands are there, and their alignment */
		int count = list_recipes(case_op(&cases[i].c), &args, ARCH, recipes, MOST);
		for (int k = 0; k < count; k++)
			add_kernel(&recipes[k], &cases[i].c);
	}
}

SETUP()
{
	const struct options options = {
		.command = COMMAND_VERIFY, .quick = true, .device = EK_CUDA, .weight = true, .bias = true};
	cases = cases_list(&options, false, &case_count);
	list_kernels();
}

TEST(kernels_are_few)
{
	EXPECT(kernel_count > 0 && kernel_count <= MOST_KERNELS, "%d kernels%s", kernel_count,
	       kernel_count == COUNT_OF(kernels) ? " or more" : "");
}

/* ---- rows of the policy ---- */

/* What distinguishes rows of the tables, whatever the width and how the row is read. */
struct row {
	enum pass pass;
	int element_size;
	bool wide;
	int row_blocks, warp_segments, block_rows, registers, stages, fold_blocks;
	int64_t cols; /* where it was met first */
};

/* Beyond the table's: rows by elements, and those that end inside a quad. */
static int more_registers(ek_dtype dtype, int64_t cols, int access, const struct ek_norm_policy *p)
{
	bool ends_inside = access == ACCESS_QUADS && cols * (int64_t)ek_dtype_size(dtype) % 16 != 0;
	return p->registers && (access == ACCESS_ELEMENTS || (ends_inside && p->warp_segments > 1)) ? 16 : 0;
}

static struct row row_of(enum pass pass, ek_dtype dtype, int64_t cols, int access)
{
	struct ek_norm_policy p = policy_for(pass == BACKWARD, dtype, cols, access, &limits);
	struct row row = {.pass = pass,
			  .element_size = (int)ek_dtype_size(dtype),
			  .wide = p.unit_segments > 0,
			  .cols = cols};
	if (!row.wide) {
		row.row_blocks = p.row_blocks;
		row.warp_segments = p.warp_segments;
		row.block_rows = p.block_rows;
		row.registers = p.registers - more_registers(dtype, cols, access, &p);
		row.stages = p.stages;
		row.fold_blocks = p.fold_blocks;
	}
	return row;
}

static bool same_row(const struct row *a, const struct row *b)
{
	return a->pass == b->pass && a->element_size == b->element_size && a->wide == b->wide &&
	       a->row_blocks == b->row_blocks && a->warp_segments == b->warp_segments &&
	       a->block_rows == b->block_rows && a->registers == b->registers && a->stages == b->stages &&
	       a->fold_blocks == b->fold_blocks;
}

static int add_row(struct row *rows, int count, struct row row)
{
	for (int i = 0; i < count; i++)
		if (same_row(&rows[i], &row))
			return count;
	if (count == MOST_ROWS) {
		test_fail("the policy has over %d rows", MOST_ROWS);
		return count;
	}
	rows[count] = row;
	return count + 1;
}

/* Finds the rows by asking for every width at which one may end. */
static int list_rows(enum pass pass, ek_dtype dtype, struct row *rows)
{
	int count = 0;
	for (int access = ACCESS_QUADS; access <= ACCESS_ELEMENTS; access++)
		for (int64_t cols = 1; cols <= EK_MAX_COLS; cols = next_end(cols))
			count = add_row(rows, count, row_of(pass, dtype, cols, access));
	return count;
}

static bool is_met(const struct row *wanted)
{
	for (int i = 0; i < kernel_count; i++) {
		const struct test_case *c = kernels[i].test_case;
		int access = recipe_constant(&kernels[i].recipe, "ACCESS");
		if (access < 0 || !is_norm(&kernels[i]))
			continue; /* of column sums */
		struct row row = row_of(c->pass, c->dtype, c->cols, access);
		if (same_row(&row, wanted))
			return true;
	}
	return false;
}

TEST(every_row_of_the_policy_is_met)
{
	static const ek_dtype dtypes[] = {EK_BF16, EK_F32, EK_F64};
	static struct row rows[MOST_ROWS];
	for (int pass = 0; pass < PASS_COUNT; pass++)
		for (int d = 0; d < COUNT_OF(dtypes); d++) {
			int count = list_rows((enum pass)pass, dtypes[d], rows);
			for (int i = 0; i < count; i++)
				EXPECT(is_met(&rows[i]),
				       "no kernel of the policy's row for %s %s, %lld columns%s",
				       pass_names[pass], ek_dtype_name(dtypes[d]), (long long)rows[i].cols,
				       rows[i].wide ? " (read again)" : "");
		}
}

/* ---- operands and dtypes ---- */

static int kernels_with(enum pass pass, ek_dtype dtype, ek_dtype weight_dtype, const char *name, int value)
{
	int count = 0;
	for (int i = 0; i < kernel_count; i++) {
		const struct test_case *c = kernels[i].test_case;
		count += c->pass == pass && c->dtype == dtype && c->weight_dtype == weight_dtype &&
			 recipe_constant(&kernels[i].recipe, name) == value;
	}
	return count;
}

TEST(every_dtype_meets_both_ops)
{
	for (int pass = 0; pass < PASS_COUNT; pass++)
		for (int i = 0; i < DTYPE_PAIRS; i++)
			for (int centred = 0; centred < 2; centred++) {
				ek_dtype dtype = dtype_pairs[i].dtype, weight = dtype_pairs[i].weight_dtype;
				EXPECT(kernels_with((enum pass)pass, dtype, weight, "CENTRED", centred) > 0,
				       "no %s of %s in %s with weights in %s", pass_names[pass],
				       centred ? "LayerNorm" : "RMSNorm", ek_dtype_name(dtype),
				       ek_dtype_name(weight));
			}
}

TEST(every_constant_has_all_its_values)
{
	static const struct {
		const char *name;
		bool backward_alone;
		int values;
	} constants[] = {{"ACCESS", false, 3},     {"WEIGHT_ACCESS", false, 2}, {"BYTES", false, 2},
			 {"HAS_WEIGHT", false, 2}, {"HAS_BIAS", false, 2},      {"HAS_RSTD", true, 2},
			 {"HAS_DX", true, 2},      {"HAS_DWEIGHT", true, 2},    {"HAS_DBIAS", true, 2}};
	for (int pass = 0; pass < PASS_COUNT; pass++)
		for (int i = 0; i < COUNT_OF(constants); i++)
			for (int value = 0; value < constants[i].values; value++) {
				int count = 0;
				for (int k = 0; k < kernel_count; k++)
					count += is_norm(&kernels[k]) &&
						 (int)kernels[k].test_case->pass == pass &&
						 recipe_constant(&kernels[k].recipe, constants[i].name) ==
							 value;
				bool never = pass == FORWARD ? constants[i].backward_alone
							     : strcmp(constants[i].name, "HAS_BIAS") == 0;
				EXPECT(never || count > 0, "no %s kernel has %s %d", pass_names[pass],
				       constants[i].name, value);
			}
}

/* ---- gated activations ---- */

static int others_with(const struct ek_op *op, int kind, const char *name, int value)
{
	int count = 0;
	for (int i = 0; i < kernel_count; i++)
		count += kernels[i].test_case->op->forward == op &&
			 recipe_constant(&kernels[i].recipe, "KIND") == kind &&
			 recipe_constant(&kernels[i].recipe, name) == value;
	return count;
}

static int gated_with(int kind, const char *name, int value)
{
	return others_with(&ek_glu_forward_op, kind, name, value);
}

TEST(gated_activations_meet_every_constant)
{
	static const struct {
		const char *name;
		bool anywhere; /* else in each kind of kernel */
	} constants[] = {{"HAS_VALUE", false}, {"HAS_GATE_BIAS", true}, {"PAIRS", false},
			 {"LIMITED", false},   {"BYTES", true},         {"BIAS_QUADS", true}};
	for (int i = 0; i < COUNT_OF(constants); i++)
		for (int value = 0; value < 2; value++) {
			int anywhere = 0;
			for (int kind = KIND_GLU_FORWARD; kind <= KIND_GLU_SUMS; kind++) {
				int count = gated_with(kind, constants[i].name, value);
				anywhere += count;
				EXPECT(count > 0 || constants[i].anywhere, "no kernel of kind %d has %s %d",
				       kind, constants[i].name, value);
			}
			EXPECT(anywhere > 0, "no kernel has %s %d", constants[i].name, value);
		}
}

TEST(gated_activations_meet_every_access_dtype_and_activation)
{
	for (int kind = KIND_GLU_FORWARD; kind <= KIND_GLU_SUMS; kind++)
		EXPECT(gated_with(kind, "ACCESS", ACCESS_QUADS) > 0 &&
			       gated_with(kind, "ACCESS", ACCESS_ELEMENTS) > 0,
		       "kernels of kind %d do not have both accesses", kind);
	for (int i = EK_F32; i <= EK_F64; i++)
		EXPECT(gated_with(KIND_GLU_FORWARD, "ELEMENT", i) > 0 &&
			       gated_with(KIND_GLU_SUMS, "ELEMENT", i) > 0,
		       "not forward and backward in %s", ek_dtype_name((ek_dtype)i));
	for (int i = EK_SIGMOID; i <= EK_IDENTITY; i++)
		EXPECT(gated_with(KIND_GLU_FORWARD, "ACTIVATION", i) > 0, "forward has not activation %d", i);
}

/* ---- ops on heads ---- */

TEST(ops_on_heads_meet_every_constant_and_kind)
{
	static const struct {
		const char *name;
		int least, most;
	} constants[] = {{"ELEMENT", EK_F32, EK_F64},
			 {"NORM", 0, 2},
			 {"CENTRED", 0, 1},
			 {"WEIGHT_OFFSET", 0, 1},
			 {"INTERLEAVED", 0, 1},
			 {"TRAILING", 0, 1},
			 {"BYTES", 0, 1},
			 {"HAS_BIAS", 0, 1},
			 {"HAS_WEIGHT", 0, 1},
			 {"HAS_POSITIONS", 0, 1},
			 {"TABLE_ALIGNED", 0, 1},
			 {"VECTOR_ALIGNED", 0, 1}};
	for (int i = 0; i < COUNT_OF(constants); i++)
		for (int value = constants[i].least; value <= constants[i].most; value++) {
			int count = 0;
			for (int kind = KIND_ROPE_FORWARD; kind <= KIND_ROPE_BIASES; kind++)
				count += others_with(&ek_rope_forward_op, kind, constants[i].name, value);
			EXPECT(count > 0, "no kernel has %s %d", constants[i].name, value);
		}
	for (int kind = KIND_ROPE_FORWARD; kind <= KIND_ROPE_BIASES; kind++)
		EXPECT(others_with(&ek_rope_forward_op, kind, "INTERLEAVED", 0) > 0 &&
			       others_with(&ek_rope_forward_op, kind, "INTERLEAVED", 1) > 0,
		       "kernels of kind %d are not both interleaved and not", kind);
}

TEARDOWN()
{
	free(cases);
}
