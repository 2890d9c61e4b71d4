/* Support for the C tests, split by idea: the runner (support_runner.h), values and fillings
 * (support_values.c), buffers with canaries or guard pages (support_buffers.c), the operands of norm cases
 * (support_operands.c), contexts (support_contexts.c), and cases run on one and compared with the reference
 * (support_cases.c, support_compare.c). SPDX-License-Identifier: MIT */
#ifndef EK_TESTS_SUPPORT_H
#define EK_TESTS_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "evenkeel.h"
#include "support_runner.h"

/* ---- values ---- */

/* A 64-bit generator of integers alone, so that inputs are the same everywhere. */
uint64_t random_bits(uint64_t *state);
int64_t random_below(uint64_t *state, int64_t limit);

uint16_t half_from_float(float value);
float half_to_float(uint16_t bits);
uint16_t bfloat_from_float(float value);
float bfloat_to_float(uint16_t bits);

/* One element of a tensor of any dtype, at any alignment. */
double value_get(ek_dtype dtype, const void *tensor, int64_t index);
void value_set(ek_dtype dtype, void *tensor, int64_t index, double value);
uint64_t value_bits(ek_dtype dtype, const void *tensor, int64_t index);
bool bits_are_nan(ek_dtype dtype, uint64_t bits);

enum filling {
	FILL_NORMAL,   /* bell-shaped around 0, deviation about 1.2, all mantissa bits in use */
	FILL_INTEGERS, /* whole numbers from -5 to 4 */
	FILL_ONES,
	FILL_OFFSET,   /* FILL_NORMAL + 1000 */
	FILL_SPECIAL,  /* a kind of trouble per row: NaN, infinities, zeros, subnormals, huge, constant … */
	FILL_POSITIVE, /* from 1 to 4, for statistics given as rstd */
	FILL_CONSTANT, /* x: each row one number of any size; the rest as FILL_NORMAL */
	FILL_CLAMP,    /* x: f32 rows whose variance, as computed, is at times below 0;
		the rest as FILL_NORMAL */
	FILL_UNDERFLOW, /* dy: zeros, then negative numbers whose product with x, which is tiny, rounds to -0 */
	FILL_OVERFLOW /* x: rows whose sum of (x - mean)^2 overflows and whose sum of |x| does not, except in
		f16; the rest as FILL_NORMAL */
};
enum {
	FILL_TINY = 100 /* FILL_POSITIVE * 2^-20: the x of FILL_UNDERFLOW */
};
void fill_rows(enum filling filling, ek_dtype dtype, void *tensor, int64_t rows, int64_t cols, int64_t stride,
	       uint64_t seed);

/* FNV-1a over the elements' bits, every NaN counted as the same one. */
uint64_t digest_rows(uint64_t digest, ek_dtype dtype, const void *tensor, int64_t rows, int64_t cols,
		     int64_t stride);
#define DIGEST_START 0xcbf29ce484222325u

/* ---- buffers ---- */

enum placement {
	PLACE_OFFSET,      /* on the heap, `offset` bytes past a 64-byte boundary, canaries on both sides */
	PLACE_GUARD_AFTER, /* its last byte is the last before a page that may not be touched */
	PLACE_GUARD_BEFORE /* its first byte is the first after such a page */
};
#define CANARY 0xA5
enum { BUFFER_MARGIN = 128 }; /* of canaries, on each side */

struct buffer {
	unsigned char *data;
	size_t bytes;
	enum placement placement;
	unsigned char *block;
	size_t block_bytes;
};

/* Makes room for bytes and fills all of it, margins included, with CANARY. Keeps its memory for the next
 * use; the tests end without freeing. */
void buffer_reset(struct buffer *buffer, size_t bytes, enum placement placement, int offset);
/* Are the canaries beside the data whole? (The guard pages of the other placements need no asking.) */
bool buffer_margins_whole(const struct buffer *buffer);
/* Forbids or allows writing to a buffer placed beside a guard page. */
void buffer_protect(struct buffer *buffer, bool read_only);

/* ---- norm cases ---- */

enum form {
	FORM_WEIGHT = 1 << 0,
	FORM_BIAS = 1 << 1,
	FORM_MEAN = 1 << 2, /* forward: returned; backward: given */
	FORM_RSTD = 1 << 3,
	FORM_MEAN_LO = 1 << 4,
	FORM_DX = 1 << 5,
	FORM_DWEIGHT = 1 << 6,
	FORM_DBIAS = 1 << 7,
	FORM_ACCUMULATE = 1 << 8,
	FORM_ARBITRARY = 1 << 9, /* given statistics are not x's own */
	FORM_IN_PLACE = 1 << 10, /* y over x, dx over dy */
	FORM_OVER_X = 1 << 11,   /* dx over x */
	FORM_STATS = FORM_MEAN | FORM_RSTD | FORM_MEAN_LO,
	FORM_FORWARD = FORM_WEIGHT | FORM_BIAS | FORM_STATS,
	FORM_BACKWARD = FORM_WEIGHT | FORM_STATS | FORM_DX | FORM_DWEIGHT | FORM_DBIAS
};

enum operand_id {
	X,
	DY,
	WEIGHT,
	BIAS,
	MEAN,
	RSTD,
	MEAN_LO, /* inputs */
	Y,
	Y_MEAN,
	Y_RSTD,
	Y_MEAN_LO,
	DX,
	DWEIGHT,
	DBIAS, /* outputs */
	WORKSPACE,
	OPERANDS
};

struct norm_case {
	bool backward;
	ek_norm norm;
	ek_dtype dtype, weight_dtype;
	int64_t rows, cols;
	int64_t pad[OPERANDS]; /* elements between rows of X, DY, Y, DX */
	int offset[OPERANDS];  /* bytes past a 64-byte boundary */
	enum placement placement;
	unsigned form;
	enum filling filling;
	double eps;
	uint64_t seed;
};

/* Of a case: is there such an operand, is it a matrix; its dtype, the columns of a row, the bytes of its numbers
 * without gaps between rows. */
bool is_present(const struct norm_case *c, enum operand_id id);
bool is_matrix(enum operand_id id);
ek_dtype operand_dtype(const struct norm_case *c, enum operand_id id);
int64_t operand_cols(const struct norm_case *c, enum operand_id id);
int64_t operand_bytes(const struct norm_case *c, enum operand_id id);
extern const char *const operand_names[OPERANDS];

/* The argument structs of a case whose operands are at these addresses; NULL: there is none. */
ek_norm_forward_args case_forward_at(const struct norm_case *c, void *const at[OPERANDS]);
ek_norm_backward_args case_backward_at(const struct norm_case *c, void *const at[OPERANDS],
				       size_t workspace_size);

struct operand {
	bool present;
	ek_dtype dtype;
	int64_t rows, cols, stride;
	struct buffer buffer;
};

/* What a context is opened with. */
enum flavour { PLAIN, STREAM_ALWAYS, STREAM_NEVER, LOOP_SERIAL, LOOP_REVERSE, LOOP_THREADS, FLAVOURS };
struct setting {
	const char *level;
	int threads;
	enum flavour flavour;
};

/* The dtypes and the combinations with f32 weights. */
struct dtype_pair {
	ek_dtype dtype, weight_dtype;
};
extern const struct dtype_pair dtype_pairs[];
enum { DTYPE_PAIRS = 6 };

/* A case with every operand, dense and aligned. */
struct norm_case case_of(bool backward, ek_norm norm, struct dtype_pair dtypes, int64_t rows, int64_t cols);
/* Drops from the form what the op does not have (mean with RMSNorm, bias in backward …). */
void case_normalise(struct norm_case *c);
const char *case_text(const struct norm_case *c);

/* The usable levels beside the reference, and a context that stays open until the program ends. With
 * $EVENKEEL_TEST_DEVICE=cuda (or cuda:N) there is one level, "cuda", and it is that GPU; the reference stays on
 * the CPU. test_accuracy, _bits, _golden, _gradients, _guard and _sample then test the GPU. */
int level_count(void);
const char *level_name(int index);
const char *level_best(void);
ek_context *context_of(struct setting setting);
ek_context *reference(void);

extern struct operand case_inputs[OPERANDS], case_expected[OPERANDS], case_actual[OPERANDS];

/* Calls on host memory wherever ctx computes: on a GPU all that args point to is copied there and back. */
ek_status norm_forward(ek_context *ctx, const ek_norm_forward_args *args);
ek_status norm_backward(ek_context *ctx, const ek_norm_backward_args *args);

/* Fills case_inputs, statistics included. */
void case_fill(const struct norm_case *c);
/* Prepares set's outputs (canaries, or what accumulating and in-place forms start from) and calls. */
ek_status case_call(ek_context *ctx, const struct norm_case *c, struct operand set[OPERANDS]);
/* The argument structs of a case whose set has been prepared by case_outputs. */
void case_outputs(ek_context *ctx, const struct norm_case *c, struct operand set[OPERANDS]);
ek_norm_forward_args case_forward_args(const struct norm_case *c, struct operand set[OPERANDS]);
ek_norm_backward_args case_backward_args(const struct norm_case *c, struct operand set[OPERANDS]);

/* case_fill, then the reference's answer into case_expected. */
void case_expect(const struct norm_case *c);
/* Runs on the setting's context into case_actual and compares; false and a message on a difference. */
bool case_check(const struct norm_case *c, struct setting setting);
bool case_compare(const struct norm_case *c, const char *level, int threads, struct operand set[OPERANDS]);
/* case_expect, then case_check on every level, one thread. */
void case_check_levels(const struct norm_case *c);

#endif
