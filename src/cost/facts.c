/* From arguments to the names of the tables. The shapes that decide how PyTorch and our own GPU kernels cut their work
 * are looked at here. SPDX-License-Identifier: MIT */
#include "facts.h"

#include <string.h>

#include "cuda/norm.h"
#include "ref/slots.h"

static void add_product(struct ek_facts *facts, const char *name, int64_t number, int symbols,
			const enum ek_symbol *symbol)
{
	struct ek_fact *fact = &facts->at[facts->count++];
	*fact = (struct ek_fact){.name = name, .number = number, .symbols = symbols};
	for (int i = 0; i < symbols; i++)
		fact->symbol[i] = symbol[i];
}

static void add_number(struct ek_facts *facts, const char *name, int64_t number)
{
	add_product(facts, name, number, 0, NULL);
}

static void add_symbol(struct ek_facts *facts, const char *name, enum ek_symbol symbol, int64_t value)
{
	add_product(facts, name, 1, 1, &symbol);
	facts->values[symbol] = value;
}

/* ---- sizes and operands ---- */

static void add_sizes(struct ek_facts *facts, const ek_cost_args *a)
{
	static const enum ek_symbol sizes[] = {EK_SYMBOL_BATCH_SIZE, EK_SYMBOL_SEQ_LEN,
					       EK_SYMBOL_HIDDEN_SIZE};
	add_product(facts, "elements", 1, 3, sizes);
	add_product(facts, "rows", 1, 2, sizes);
	add_symbol(facts, "hidden", EK_SYMBOL_HIDDEN_SIZE, a->hidden_size);
	facts->values[EK_SYMBOL_BATCH_SIZE] = a->batch_size;
	facts->values[EK_SYMBOL_SEQ_LEN] = a->seq_len;
}

/* A width that is not asked for is the activation's, and so is its symbol. */
static void add_width(struct ek_facts *facts, const char *name, enum ek_symbol symbol, ek_dtype asked,
		      ek_dtype dtype)
{
	enum ek_symbol used = (int)asked == 0 ? EK_SYMBOL_A_BYTES : symbol;
	add_symbol(facts, name, used, (int64_t)ek_dtype_size((int)asked == 0 ? dtype : asked));
}

static void add_widths(struct ek_facts *facts, const ek_cost_args *a)
{
	bool reference = a->variant == EK_REFERENCE;
	ek_dtype real = a->dtype == EK_F64 ? EK_F64 : EK_F32;
	add_symbol(facts, "a", EK_SYMBOL_A_BYTES, (int64_t)ek_dtype_size(a->dtype));
	add_symbol(facts, "w", EK_SYMBOL_W_BYTES, (int64_t)ek_dtype_size(a->weight_dtype));
	add_width(facts, "s", EK_SYMBOL_S_BYTES, reference ? a->stats_dtype : real, a->dtype);
	add_width(facts, "t", EK_SYMBOL_T_BYTES, a->intermediate_dtype, a->dtype);
}

static void add_operands(struct ek_facts *facts, const ek_cost_args *a)
{
	int weight = !(a->absent & EK_NO_WEIGHT), bias = !(a->absent & EK_NO_BIAS);
	add_number(facts, "centred", a->norm == EK_LAYER_NORM);
	add_number(facts, "casts", a->compute_dtype != a->dtype);
	add_number(facts, "weight", weight);
	add_number(facts, "bias", bias);
	add_number(facts, "sums", weight + bias);
	add_number(facts, "any_sums", weight || bias);
	add_number(facts, "statistics", !(a->absent & EK_NO_STATISTICS));
	add_number(facts, "low", !(a->absent & EK_NO_MEAN_LO));
}

/* ---- how PyTorch cuts ---- */

/* Its vectorised kernel takes rows of whole groups of four, of every dtype but f64. Column sums of over 65536 rows are cut
 * into blocks of rows where the columns alone would leave half of the GPU idle. */
static void add_pytorch(struct ek_facts *facts, const ek_cost_args *a, bool exact)
{
	enum { ROWS_PER_BLOCK = 32, MANY_ROWS = 65536 };
	int64_t rows = exact ? a->batch_size * a->seq_len : 1;
	bool cut = rows > MANY_ROWS && a->hidden_size / 32 < a->multiprocessors / 2;
	int64_t blocks = rows / ROWS_PER_BLOCK + (rows % ROWS_PER_BLOCK != 0);
	add_number(facts, "vectors", !exact || (a->dtype != EK_F64 && a->hidden_size % 4 == 0));
	add_number(facts, "row_sums", cut);
	add_symbol(facts, "row_blocks", EK_SYMBOL_ROW_BLOCKS, blocks);
}

/* ---- how evenkeel cuts ---- */

/* Tensors that are not there but lie as a framework's would: aligned, rows without gaps. */
static struct ek_norm_cut cut_of(const ek_cost_args *a, int64_t rows)
{
	static char tensor[64] __attribute__((aligned(64)));
	void *weight = a->absent & EK_NO_WEIGHT ? NULL : tensor,
	     *bias = a->absent & EK_NO_BIAS ? NULL : tensor;
	void *given = a->absent & EK_NO_STATISTICS ? NULL : tensor;
	const ek_norm_forward_args forward = {.norm = a->norm,
					      .dtype = a->dtype,
					      .weight_dtype = a->weight_dtype,
					      .rows = rows,
					      .cols = a->hidden_size,
					      .x_stride = a->hidden_size,
					      .y_stride = a->hidden_size,
					      .x = tensor,
					      .y = tensor,
					      .weight = weight,
					      .bias = bias};
	const ek_norm_backward_args backward = {.norm = a->norm,
						.dtype = a->dtype,
						.weight_dtype = a->weight_dtype,
						.rows = rows,
						.cols = a->hidden_size,
						.dy_stride = a->hidden_size,
						.x_stride = a->hidden_size,
						.dx_stride = a->hidden_size,
						.dy = tensor,
						.x = tensor,
						.dx = tensor,
						.weight = weight,
						.dweight = weight,
						.dbias = bias,
						.rstd = given,
						.mean = given};
	bool is_forward = a->pass == EK_FORWARD;
	return ek_cuda_norm_cut(is_forward ? &forward : NULL, is_forward ? NULL : &backward, a->arch,
				a->multiprocessors);
}

static void add_partials(struct ek_facts *facts, const struct ek_norm_cut *cut)
{
	static const char *const names[] = {"partials", "partials_2", "partials_3", "partials_4"};
	static const char *const folds[] = {"fold_1", "fold_2", "fold_3"};
	int last = 0;
	for (int i = 0; i <= EK_MOST_FOLDS; i++) {
		add_symbol(facts, names[i], (enum ek_symbol)(EK_SYMBOL_PARTIALS + i), cut->partials[i]);
		if (i > 0)
			add_number(facts, folds[i - 1], cut->partials[i] > 0);
		if (cut->partials[i] > 0)
			last = i;
	}
	add_symbol(facts, "last_partials", (enum ek_symbol)(EK_SYMBOL_PARTIALS + last), cut->partials[last]);
}

static void add_evenkeel(struct ek_facts *facts, const ek_cost_args *a, bool exact)
{
	int64_t rows = exact ? a->batch_size * a->seq_len : 1, real = a->dtype == EK_F64 ? 8 : 4;
	int64_t padded = (a->hidden_size * real + 15) / 16 * 16 / real;
	struct ek_norm_cut cut = exact && a->device == EK_CUDA ? cut_of(a, rows) : (struct ek_norm_cut){0};
	add_number(facts, "wide", cut.wide);
	add_symbol(facts, "slots", EK_SYMBOL_SLOTS, ek_slot_count(rows, a->hidden_size));
	add_partials(facts, &cut);
	add_symbol(facts, "padded", padded == a->hidden_size ? EK_SYMBOL_HIDDEN_SIZE : EK_SYMBOL_PADDED_SIZE,
		   padded);
	if (cut.chunk_bytes > 0)
		add_symbol(facts, "chunk_bytes", EK_SYMBOL_CHUNK_BYTES, cut.chunk_bytes);
	else
		add_number(facts, "chunk_bytes", 0);
}

void ek_facts_find(struct ek_facts *facts, const ek_cost_args *args, bool exact)
{
	*facts = (struct ek_facts){.count = 0};
	add_sizes(facts, args);
	add_widths(facts, args);
	add_operands(facts, args);
	add_pytorch(facts, args, exact);
	add_evenkeel(facts, args, exact);
}

/* ---- expressions of the tables ---- */

static const char *meaning_of(void *user, const char *name, size_t length, struct ek_polynomial *value)
{
	const struct ek_facts *facts = user;
	for (int i = 0; i < facts->count; i++) {
		const struct ek_fact *fact = &facts->at[i];
		if (strlen(fact->name) != length || memcmp(fact->name, name, length) != 0)
			continue;
		ek_polynomial_number(value, fact->number);
		for (int k = 0; k < fact->symbols; k++)
			value->terms[0].power[fact->symbol[k]]++;
		return NULL;
	}
	return "a name that is no fact";
}

const char *ek_facts_read(const struct ek_facts *facts, const char *text, struct ek_polynomial *value)
{
	const struct ek_meaning meaning = {.name = meaning_of, .user = (void *)(uintptr_t)facts};
	return ek_expression_read(text, &meaning, value).what;
}
