/* Kernels broken on purpose, on a GPU that is not there (tests/standin/): each gives other bits than the reference, or
 * the stand-in or a sanitizer stops it. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/slots.h"
#include "ops/norm/plan.h"
#include "support_files.h"
#include "support_models.h"
#include "verify/memory.h"

/* ---- mistakes ---- */

/* A kernel's text with one place changed, and a case that must not pass with it. */
struct mutation {
	const char *from, *to;
	int kind;
	ek_norm norm;
	ek_dtype dtype;
	int64_t rows, cols; /* 0 rows: so many that slots have two chunks */
	enum filling filling;
	int access;
};

static const struct mutation mutations[] = {
	/* a step of the tree over lanes goes to the wrong neighbour */
	{"given = shared && !second", "given = shared && second", KIND_FORWARD, EK_LAYER_NORM, EK_F32, 2,
	 1024, FILL_NORMAL, ACCESS_QUADS},
	/* warps do not wait for each other's sums */
	{"\telse\n\t\tsync_block();\n", "", KIND_FORWARD, EK_RMS_NORM, EK_BF16, 2, 4000, FILL_NORMAL,
	 ACCESS_QUADS},
	{"sync_some(group + 1, 32 * ROW_WARPS)", "(void)group", KIND_BACKWARD, EK_LAYER_NORM, EK_BF16, 9,
	 2000, FILL_NORMAL, ACCESS_QUADS},
	{"\t\tmbarrier_wait(mbarrier_of(b, b->round), b->round >> 1);", "\t\t;", KIND_BACKWARD, EK_RMS_NORM,
	 EK_BF16, 5, 12288, FILL_NORMAL, ACCESS_QUADS},
	/* a slot's sums are added before they are there */
	{"\telse\n\t\tsync_block();\n\tfor (int item", "\tfor (int item", KIND_BACKWARD, EK_RMS_NORM, EK_F32,
	 40, 300, FILL_NORMAL, ACCESS_QUADS},
	/* rows are read while they are still being fetched */
	{"FETCH_WAIT(STAGES - 1)", "FETCH_WAIT(STAGES)", KIND_BACKWARD, EK_RMS_NORM, EK_F16, 5, 1000,
	 FILL_NORMAL, ACCESS_QUADS},
	/* a quad starts one column late */
	{"return first + j / SEGMENT_QUADS", "return first + 1 + j / SEGMENT_QUADS", KIND_FORWARD,
	 EK_LAYER_NORM, EK_F32, 2, 1000, FILL_NORMAL, ACCESS_QUADS},
	/* chunks of another length */
	{"CHUNK_ROWS = 32", "CHUNK_ROWS = 64", KIND_BACKWARD, EK_LAYER_NORM, EK_F32, 0, 4, FILL_NORMAL,
	 ACCESS_QUADS},
	/* a shifted row writes one element too many */
	{"if (at < bytes)", "if (at <= bytes)", KIND_FORWARD, EK_LAYER_NORM, EK_BF16, 2, 1023, FILL_NORMAL,
	 ACCESS_SHIFTED},
	/* its threads do not wait for what their neighbours have put into the tray */
	{"\t\treturn;\n\tsync_warp();", "\t\treturn;", KIND_FORWARD, EK_RMS_NORM, EK_BF16, 40, 100,
	 FILL_NORMAL, ACCESS_SHIFTED},
	{"sync_warp(); /* others' quads are there, too */", ";", KIND_BACKWARD, EK_RMS_NORM, EK_F32, 9, 1000,
	 FILL_NORMAL, ACCESS_SHIFTED},
	/* the next row is fetched over the one that is still being taken */
	{"sync_warp(); /* all have taken what was there */", ";", KIND_BACKWARD, EK_LAYER_NORM, EK_BF16, 5000,
	 1000, FILL_NORMAL, ACCESS_SHIFTED},
	/* a variance below zero is kept */
	{"v < 0 ? 0 : v", "v", KIND_FORWARD, EK_LAYER_NORM, EK_F32, 300, 769, FILL_CLAMP, ACCESS_QUADS},
	/* warps of a wide row add up one segment of two */
	{"h < UNIT_SEGMENTS", "h < 1", KIND_STAGED_FORWARD, EK_RMS_NORM, EK_BF16, 1, 530000, FILL_NORMAL,
	 ACCESS_QUADS},
	/* they use segments that are still being fetched */
	{"FETCH_WAIT(AHEAD - 1)", "FETCH_WAIT(AHEAD)", KIND_STAGED_FORWARD, EK_RMS_NORM, EK_F64, 1, 70000,
	 FILL_NORMAL, ACCESS_QUADS},
	/* and sum up a row's segments before all of them are there */
	{"\t\tmbarrier_wait(mbarrier_of(b, b->round), b->round >> 1);", "\t\t;", KIND_STAGED_FORWARD,
	 EK_RMS_NORM, EK_F64, 1, 70000, FILL_NORMAL, ACCESS_QUADS},
	/* a warp takes the second of two slots for all of them */
	{"sums = both(left[level], sums)", "(void)left", KIND_STAGED_COLUMNS, EK_LAYER_NORM, EK_F64, 1000,
	 200, FILL_NORMAL, ACCESS_QUADS},
	/* and reads the numbers of a row before they are there */
	{"sync_warp(); /* the numbers are there for all lanes */", "", KIND_STAGED_COLUMNS, EK_RMS_NORM,
	 EK_F64, 2, 2000, FILL_NORMAL, ACCESS_QUADS},
	/* the last step over partial sums is left out */
	{"h < WARPS", "h < WARPS / 2", KIND_FINAL, EK_LAYER_NORM, EK_BF16, 600, 600, FILL_NORMAL,
	 ACCESS_QUADS},
};

/* ---- kernels with one of them ---- */

static const struct mutation *mutation; /* that write_mutated applies */
static ek_write_recipe *write_right;
static int places_changed;

/* A copy with the place changed, or the text itself. The child that runs it ends without freeing. */
static const char *mutated(const char *text)
{
	const char *place = strstr(text, mutation->from);
	if (!place)
		return text;
	const char *rest = place + strlen(mutation->from);
	size_t before = (size_t)(place - text), to = strlen(mutation->to), after = strlen(rest) + 1;
	char *copy = malloc(before + to + after);
	if (!copy)
		return text;
	memcpy(copy, text, before);
	memcpy(copy + before, mutation->to, to);
	memcpy(copy + before + to, rest, after);
	places_changed++;
	return copy;
}

static void write_mutated(const struct ek_kernel_key *key, struct ek_recipe *recipe)
{
	write_right(key, recipe);
	for (int i = 0; i < recipe->text_count; i++)
		recipe->texts[i] = mutated(recipe->texts[i]);
}

static struct test_case mutation_case(const struct mutation *m)
{
	bool forward = m->kind == KIND_FORWARD || m->kind == KIND_STAGED_FORWARD;
	struct test_case c =
		case_for(!forward, m->norm == EK_RMS_NORM, (struct dtype_pair){m->dtype, m->dtype},
			 m->rows ? m->rows : rows_of_slots(m->cols, CHUNK_ROWS + 1), m->cols);
	c.filling = m->filling;
	c.eps = m->filling == FILL_CLAMP ? 0 : c.eps;
	case_lay_out(&c, m->access, 0);
	return c;
}

/* The key under which the case's call looks for the kernel of that kind. */
static bool mutation_key(const struct ek_gpu *gpu, const struct mutation *m, const struct test_case *c,
			 struct ek_kernel_key *key)
{
	struct ek_norm_plan plan;
	union op_args args = case_args_in(c, &case_expected);
	if (c->pass == BACKWARD)
		ek_norm_plan_backward(&args.backward, &gpu->limits, false, &plan);
	else
		ek_norm_plan_forward(&args.forward, &gpu->limits, &plan);
	for (int i = 0; i < plan.plan.count; i++) {
		struct ek_norm_key found;
		*key = plan.plan.steps[i].key;
		write_right = plan.plan.steps[i].write_recipe;
		memcpy(&found, key, sizeof found);
		if (found.kind == m->kind)
			return true;
	}
	return false;
}

enum { UNNOTICED = 0, DIFFERENT = 3, NOT_MADE = 4 };

struct mutated_call {
	const struct mutation *mutation;
	const struct test_case *c;
};

/* In a child: puts the kernel in the place of the right one, then calls as everyone does. */
static int run_mutation(const void *given)
{
	const struct mutated_call *call = given;
	const struct mutation *m = call->mutation;
	const struct test_case *c = call->c;
	static const struct model fresh = {90, 99}; /* its context has no kernels yet */
	ek_context *ctx = context_on(fresh);
	struct ek_kernel_key key;
	CUfunction function;
	mutation = m;
	ek_status status = EK_ERROR_ARGUMENT;
	if (mutation_key(gpu_of(ctx), m, c, &key))
		status = ek_kernel_get(gpu_of(ctx), &key, write_mutated, NULL, "", &function);
	if (status != EK_OK || places_changed != 1) {
		(void)fprintf(stderr, "%d places were changed: %s", places_changed, ek_error(ctx));
		return NOT_MADE;
	}
	return same_on(fresh, c) ? UNNOTICED : DIFFERENT;
}

/* The result differs, or the stand-in or a sanitizer has stopped the kernel. */
static bool is_noticed(int status, const char *said)
{
	if (WIFEXITED(status) && WEXITSTATUS(status) == DIFFERENT)
		return true;
	return strstr(said, "standin: kernel") || strstr(said, "Sanitizer");
}

TEST(broken_kernels_are_noticed)
{
	for (int i = 0; i < COUNT_OF(mutations); i += test_mode == TEST_SHORT ? 2 : 1) {
		struct mutation whole = mutations[i];
		struct test_case c = mutation_case(&whole);
		char said[4096];
		case_expect(&c);
		int status = end_of_child(run_mutation, &(struct mutated_call){&mutations[i], &c}, said,
					  sizeof(said));
		EXPECT(is_noticed(status, said), "\"%s\" instead of \"%s\" is not noticed: status %x: %s",
		       whole.to, whole.from, (unsigned)status, said);
		whole.to = whole.from;
		if (i > 0 && test_mode != TEST_LONG) /* test_cuda_bits.c has seen that whole kernels pass */
			continue;
		status = end_of_child(run_mutation, &(struct mutated_call){&whole, &c}, said, sizeof(said));
		EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == UNNOTICED,
		       "with \"%s\" as it is: status %x: %s", whole.from, (unsigned)status, said);
	}
}
