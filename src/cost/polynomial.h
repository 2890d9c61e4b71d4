/* Costs as polynomials: sums of an integer times powers of symbols (batch_size, a_bytes, …). Made by expression.c,
 * evaluated and printed by cost.c. SPDX-License-Identifier: MIT */
#ifndef EK_COST_POLYNOMIAL_H
#define EK_COST_POLYNOMIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(enum, name, where its value comes from). Terms are printed in this order of symbols. */
#define EK_SYMBOLS(X)                                                                                      \
	X(BATCH_SIZE, batch_size, "input.shape[0]")                                                        \
	X(SEQ_LEN, seq_len, "input.shape[1]")                                                              \
	X(HIDDEN_SIZE, hidden_size, "input.shape[2], which is normalized_shape[0]")                        \
	X(FFN_SIZE, ffn_size, "gate.shape[2], the columns of a feed-forward")                              \
	X(HEADS, heads, "heads of queries")                                                                \
	X(K_HEADS, k_heads, "heads of keys and values")                                                    \
	X(HEAD_DIM, head_dim, "columns of a head")                                                         \
	X(PAIRS, pairs, "pairs of columns of a head that turn: rotary_dim / 2")                            \
	X(SLOTS, slots, "slots of rows whose column sums are added up (rule 6 of docs/numerics.md)")       \
	X(PARTIALS, partials, "partial column sums that are written: slots over those that a block folds") \
	X(PARTIALS_2, partials_2, "the same after one folding, 256 into one")                              \
	X(PARTIALS_3, partials_3, "the same after two foldings")                                           \
	X(PARTIALS_4, partials_4, "the same after three foldings")                                         \
	X(PADDED_SIZE, padded_size, "columns of a sum, rounded up to 16 bytes")                            \
	X(CHUNK_BYTES, chunk_bytes, "sums of chunks of 32 rows that shared memory has no room for")        \
	X(ROW_BLOCKS, row_blocks, "partial column sums of PyTorch: 8 for every 256 rows")                  \
	X(A_BYTES, a_bytes, "size of input.dtype")                                                         \
	X(H_BYTES, h_bytes, "size of residual.dtype")                                                      \
	X(Y_BYTES, y_bytes, "size of the result's dtype")                                                  \
	X(W_BYTES, w_bytes, "size of weight.dtype")                                                        \
	X(G_BYTES, g_bytes, "size of the dtype of weight.grad")                                            \
	X(C_BYTES, c_bytes, "size of cos.dtype")                                                           \
	X(S_BYTES, s_bytes, "size of a statistic's dtype")                                                 \
	X(T_BYTES, t_bytes, "size of the dtype of the tensors between the casts")

#define EK_SYMBOL_ENUM(symbol, name, origin) EK_SYMBOL_##symbol,
enum ek_symbol { EK_SYMBOLS(EK_SYMBOL_ENUM) EK_SYMBOL_COUNT };

/* Those before are sizes; the next ones depend on how a kernel cuts its work, and have one value in each kernel. */
enum { EK_FIRST_CUT = EK_SYMBOL_SLOTS, EK_FIRST_WIDTH = EK_SYMBOL_A_BYTES };

enum { EK_MOST_TERMS = 64 };

struct ek_term {
	int64_t factor;
	uint8_t power[EK_SYMBOL_COUNT];
};

/* In the order in which it is printed, without two terms of the same powers and without zeros. */
struct ek_polynomial {
	int count; /* 0: zero */
	struct ek_term terms[EK_MOST_TERMS];
};

const char *ek_symbol_name(enum ek_symbol symbol);
const char *ek_symbol_origin(enum ek_symbol symbol);

void ek_polynomial_number(struct ek_polynomial *p, int64_t number);
void ek_polynomial_symbol(struct ek_polynomial *p, enum ek_symbol symbol);

/* These return NULL, or what is too large; the result may be an operand. */
const char *ek_polynomial_add(struct ek_polynomial *sum, const struct ek_polynomial *a,
			      const struct ek_polynomial *b);
const char *ek_polynomial_multiply(struct ek_polynomial *product, const struct ek_polynomial *a,
				   const struct ek_polynomial *b);
/* p with each symbol for which by[symbol] is not NULL replaced by that. */
const char *ek_polynomial_substitute(struct ek_polynomial *result, const struct ek_polynomial *p,
				     const struct ek_polynomial *const *by);

/* false: it does not fit 64 bits. */
bool ek_polynomial_evaluate(const struct ek_polynomial *p, const int64_t *values, int64_t *value);
bool ek_polynomial_uses(const struct ek_polynomial *p, enum ek_symbol symbol);
/* "8*batch_size*seq_len*hidden_size + 2*batch_size*seq_len"; "0". false: the text is too long for size. */
bool ek_polynomial_print(const struct ek_polynomial *p, char *text, size_t size);

#endif
