/* What evenkeel explain has found out, and how it is shown. SPDX-License-Identifier: MIT */
#ifndef CLI_EXPLAIN_H
#define CLI_EXPLAIN_H

#include <stdbool.h>
#include <stdio.h>

#include "machine.h"
#include "options.h"

enum { MOST_VARIANTS = 3 };

/* A cost on a machine. */
struct roof {
	double intensity; /* FLOP for a byte */
	double seconds;   /* that the machine allows, at least */
	bool computes;    /* bound by arithmetic; else by memory */
	bool elsewhere;   /* kernels of another device: no bound and no seconds */
};

struct variant {
	const char *name, *about;
	ek_cost_list cost; /* of the kernels in `counted` */
	ek_cost_kernel counted[EK_BLOCK_KERNELS];
	struct roof kernels[EK_BLOCK_KERNELS], total;
};

/* What is explained. */
enum explained { EXPLAIN_NORM, EXPLAIN_GLU, EXPLAIN_ROPE, EXPLAIN_BLOCK, EXPLAIN_EXPRESSION };

/* The sizes of it, by the names of their symbols. */
struct explained_size {
	const char *name;
	int64_t value;
};
enum { MOST_EXPLAINED_SIZES = 8 };

struct explanation {
	const char *subject; /* the op, or the expression */
	enum explained kind;
	bool expression;
	bool sizes_given;
	ek_cost_args args; /* norm, pass, sizes, dtypes, operands */
	struct machine machine;
	int count;
	struct variant variants[MOST_VARIANTS];
};

/* Fills in e->kind and e->args (explain_arguments.c). */
void explain_arguments(struct explanation *e, const struct options *options);
int explain_sizes(const struct explanation *e, struct explained_size *sizes);

/* What is counted how, and the option that changes it ("": none does). Returns how many. */
struct assumption {
	char text[192];
	const char *option;
};
enum { MOST_ASSUMPTIONS = 14 };
int explain_assumptions(const struct explanation *e, struct assumption *assumptions);
/* "NVIDIA H200: large copies at …; ridge at …". */
enum { EXPLAIN_MACHINE_TEXT = 256 };
void explain_machine(char *text, size_t size, const struct explanation *e);
/* Whether it is an expression with the kernels that PyTorch launches. */
bool explain_names_pytorch(const struct explanation *e);
const char *explain_pass(const struct explanation *e);
const char *explain_bound(const struct roof *roof); /* "memory" or "compute", "-" where there is none */
/* The least time in words, "-" where there is none. */
void explain_time(char *text, size_t size, const struct roof *roof);
/* "268.4 M" and the like, with a unit behind. */
void explain_count(char *text, size_t size, double number, const char *unit);
/* Has a variant before this one shown the symbol with that value? */
bool explain_shown(const struct explanation *e, int before, const ek_cost_symbol *symbol);

/* Of a block: kernels by their numbers, launches, what others have counted wrongly (explain_block.c). */
void explain_block_variant(FILE *out, const struct explanation *e, const struct variant *variant);
void explain_block_end(FILE *out, const struct explanation *e);
void explain_block_markdown(FILE *out, const struct explanation *e);
void explain_block_json(FILE *out);
struct launches {
	int all, products, attention;
};
struct launches explain_launches(const struct variant *variant);

void explain_text(FILE *out, const struct explanation *e);
void explain_markdown(FILE *out, const struct explanation *e);
/* The object of explain --json. */
void explain_json(FILE *out, const struct explanation *e);

#endif
