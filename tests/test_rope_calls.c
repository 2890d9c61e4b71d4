/* Calls of ek_rope as a program makes them: where pairs are, that backward turns back, norms without a turn, packed tensors; and what
 * is refused. SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "support.h"

/* ---- calls of a small shape, in binary64, with memory of their own ---- */

enum { BATCH = 2, SEQ = 3, HEADS = 4, K_HEADS = 2, DIM = 10, ROTARY = 6, TABLE = 8 };
static double q[BATCH][SEQ][HEADS][DIM], k[BATCH][SEQ][K_HEADS][DIM];
static double q_out[BATCH][SEQ][HEADS][DIM], k_out[BATCH][SEQ][K_HEADS][DIM];
static double cosines[TABLE][ROTARY / 2], sines[TABLE][ROTARY / 2];
static double bias[HEADS][DIM], weight[DIM], sums[HEADS][DIM];
static int64_t positions[BATCH][SEQ] = {{7, 0, 3}, {2, 2, 1}};
static double workspace[1 << 12] __attribute__((aligned(64)));

static void fill(double *x, int64_t count, uint64_t seed)
{
	fill_rows(FILL_DECIMALS, EK_F64, x, 1, count, count, seed);
}

static ek_rope_forward_args forward_args(void)
{
	fill(&q[0][0][0][0], BATCH * SEQ * HEADS * DIM, 1);
	fill(&k[0][0][0][0], BATCH * SEQ * K_HEADS * DIM, 2);
	fill(&bias[0][0], HEADS * DIM, 3);
	fill(weight, DIM, 4);
	for (int row = 0; row < TABLE; row++)
		for (int i = 0; i < ROTARY / 2; i++) {
			cosines[row][i] = cos(row * pow(10, -i));
			sines[row][i] = sin(row * pow(10, -i));
		}
	return (ek_rope_forward_args){.size = sizeof(ek_rope_forward_args),
				      .dtype = EK_F64,
				      .batch = BATCH,
				      .seq = SEQ,
				      .heads = HEADS,
				      .k_heads = K_HEADS,
				      .head_dim = DIM,
				      .rotary_dim = ROTARY,
				      .table_rows = TABLE,
				      .eps = 1e-6,
				      .q = q,
				      .k = k,
				      .cos = cosines,
				      .sin = sines,
				      .q_out = q_out,
				      .k_out = k_out};
}

static ek_rope_backward_args backward_args(void)
{
	const ek_rope_forward_args f = forward_args();
	return (ek_rope_backward_args){.size = sizeof(ek_rope_backward_args),
				       .dtype = f.dtype,
				       .batch = f.batch,
				       .seq = f.seq,
				       .heads = f.heads,
				       .k_heads = f.k_heads,
				       .head_dim = f.head_dim,
				       .rotary_dim = f.rotary_dim,
				       .table_rows = f.table_rows,
				       .eps = f.eps,
				       .dq_out = q,
				       .dk_out = k,
				       .cos = f.cos,
				       .sin = f.sin,
				       .dq = q_out,
				       .dk = k_out,
				       .workspace = workspace,
				       .workspace_size = sizeof workspace};
}

static void run_forward(const ek_rope_forward_args *args)
{
	EXPECT(ek_rope_forward(reference(), args) == EK_OK, "%s", ek_error(reference()));
}

static void run_backward(const ek_rope_backward_args *args)
{
	EXPECT(ek_rope_backward(reference(), args) == EK_OK, "%s", ek_error(reference()));
}

/* ---- properties ---- */

TEST(a_turn_by_zero_is_the_identity)
{
	ek_rope_forward_args args = forward_args();
	for (int i = 0; i < ROTARY / 2; i++)
		cosines[0][i] = 1, sines[0][i] = 0;
	args.seq = 1;
	args.batch = BATCH * SEQ;
	run_forward(&args);
	EXPECT(memcmp(q, q_out, sizeof q) == 0 && memcmp(k, k_out, sizeof k) == 0, "a bit changed");
}

/* Every pair of elements of a head, in each of the forms, against the formula, and that the others stay. */
TEST(pairs_are_where_they_are_said_to_be)
{
	for (int form = 0; form < 8; form++) {
		ek_rope_forward_args args = forward_args();
		args.interleaved = form & 1;
		args.trailing = form >> 1 & 1;
		args.positions = form & 4 ? positions : NULL;
		args.offset = form & 4 ? 0 : 2;
		args.table_step = form & 4 ? 0 : 3;
		run_forward(&args);
		for (int at = 0; at < BATCH * SEQ * HEADS * DIM; at++) {
			int i = at % DIM, head = at / DIM % HEADS, s = at / DIM / HEADS % SEQ,
			    b = at / DIM / HEADS / SEQ, in = i - (args.trailing ? DIM - ROTARY : 0);
			int64_t row = args.positions ? positions[b][s] : b * 3 + 2 + s;
			int pair = args.interleaved ? in / 2 : in % (ROTARY / 2);
			bool second = args.interleaved ? in % 2 : in >= ROTARY / 2;
			int distance = args.interleaved ? 1 : ROTARY / 2,
			    other = second ? i - distance : i + distance;
			double want = q[b][s][head][i];
			if (in >= 0 && in < ROTARY)
				want = want * cosines[row][pair] +
				       (second ? 1 : -1) * q[b][s][head][other] * sines[row][pair];
			double is = q_out[b][s][head][i];
			EXPECT(fabs(is - want) < 1e-14,
			       "form %d: q_out[%d][%d][%d][%d] is %.17g, expected %.17g", form, b, s, head, i,
			       is, want);
		}
	}
}

TEST(backward_turns_back)
{
	for (int form = 0; form < 4; form++) {
		ek_rope_forward_args args = forward_args();
		ek_rope_backward_args back = backward_args();
		args.interleaved = back.interleaved = form & 1;
		args.trailing = back.trailing = form >> 1;
		run_forward(&args);
		back.dq_out = q_out, back.dk_out = k_out;
		run_backward(&back);
		for (int i = 0; i < BATCH * SEQ * HEADS * DIM; i++)
			EXPECT(fabs((&q_out[0][0][0][0])[i] - (&q[0][0][0][0])[i]) < 1e-14,
			       "form %d, element %d", form, i);
		for (int i = 0; i < BATCH * SEQ * K_HEADS * DIM; i++)
			EXPECT(fabs((&k_out[0][0][0][0])[i] - (&k[0][0][0][0])[i]) < 1e-14,
			       "form %d, element %d", form, i);
	}
}

/* Tables of cos 1 and sin 0, and a rotary dimension that leaves elements alone: the norm of each head as a row. */
TEST(a_norm_without_a_turn_is_the_norm_of_each_head)
{
	static double want[BATCH][SEQ][HEADS][DIM];
	for (int form = 0; form < 8; form++) {
		ek_rope_forward_args args = forward_args();
		for (int i = 0; i < TABLE * ROTARY / 2; i++)
			(&cosines[0][0])[i] = 1, (&sines[0][0])[i] = 0;
		args.norm = form & 1 ? EK_RMS_NORM : EK_LAYER_NORM;
		args.norm_last = form >> 1 & 1;
		args.weight_offset = form >> 2;
		args.q_weight = args.norm_last ? NULL : weight;
		run_forward(&args);
		const ek_norm_forward_args rows = {.size = sizeof rows,
						   .norm = (ek_norm)args.norm,
						   .dtype = EK_F64,
						   .rows = BATCH * SEQ * HEADS,
						   .cols = DIM,
						   .eps = args.eps,
						   .x = q,
						   .weight = args.q_weight,
						   .weight_offset = args.weight_offset,
						   .y = want};
		EXPECT(ek_norm_forward(reference(), &rows) == EK_OK, "%s", ek_error(reference()));
		EXPECT(memcmp(want, q_out, sizeof want) == 0, "form %d differs", form);
	}
}

/* ---- what is refused ---- */

static void expect_refusal(ek_status status, const char *message)
{
	EXPECT(status != EK_OK, "accepted; expected: %s", message);
	EXPECT(status == EK_OK || strstr(ek_error(NULL), message), "says: %s; expected: %s", ek_error(NULL),
	       message);
	for (int i = 0; i < BATCH * SEQ * HEADS * DIM; i++)
		EXPECT((&q_out[0][0][0][0])[i] == 0, "%s: q_out was written", message);
}

#define REFUSED(message, ...)                                                 \
	do {                                                                  \
		ek_rope_forward_args args = forward_args();                   \
		memset(q_out, 0, sizeof q_out);                               \
		__VA_ARGS__;                                                  \
		expect_refusal(ek_rope_forward(reference(), &args), message); \
	} while (0)
TEST(bad_forward_arguments_are_refused)
{
	static const int64_t beyond[BATCH][SEQ] = {{0, 1, 2}, {3, TABLE, 1}},
			     negative[BATCH][SEQ] = {{0, -1, 2}};
	REFUSED("batch (-1) must not be negative", args.batch = -1);
	REFUSED("heads (0) is not in 1 to EK_MAX_COLS", args.heads = 0);
	REFUSED("k_heads (3) does not divide heads (4)", args.k_heads = 3);
	REFUSED("head_dim (1) is not in 2 to EK_MAX_HEAD_DIM (1024)", args.head_dim = 1);
	REFUSED("head_dim (1025) is not in 2 to EK_MAX_HEAD_DIM (1024)", args.head_dim = 1025);
	REFUSED("heads (262144) times head_dim (1024) is more than EK_MAX_COLS", args.heads = 262144,
		args.head_dim = 1024);
	REFUSED("rotary_dim (5) is odd; expected an even number, of pairs", args.rotary_dim = 5);
	REFUSED("rotary_dim (12) is more than head_dim (10)", args.rotary_dim = 12);
	REFUSED("times seq (72057594037927936) is more heads than memory can hold", args.seq = INT64_C(1)
											       << 56);
	REFUSED("table_rows (2) is less than offset (0) + seq (3)", args.table_rows = 2);
	REFUSED("table_rows (8) is less than offset (6) + seq (3) + (batch (2) - 1) * table_step (0)",
		args.offset = 6);
	REFUSED("table_rows (8) is less than offset (0) + seq (3) + (batch (2) - 1) * table_step (6)",
		args.table_step = 6);
	REFUSED("offset (-1) must not be negative", args.offset = -1);
	REFUSED("offset (1) and table_step (0) do not go with positions (", args.offset = 1,
		args.positions = positions);
	REFUSED("positions[1][1] (8) is not a row of the tables; expected 0 to 7", args.positions = beyond);
	REFUSED("positions[0][1] (-1) is not a row of the tables; expected 0 to 7",
		args.positions = negative);
	REFUSED("dtype (9) is unknown", args.dtype = (ek_dtype)9);
	REFUSED("table_dtype f32 does not go with dtype f64", args.table_dtype = EK_F32);
	REFUSED("interleaved (2) must be 0 or 1", args.interleaved = 2);
	REFUSED("trailing (-1) must be 0 or 1", args.trailing = -1);
	REFUSED("norm (3) is not 0, EK_LAYER_NORM (1) or EK_RMS_NORM (2)", args.norm = 3);
	REFUSED("norm_last (1) must be 0: norm is 0", args.norm_last = 1);
	REFUSED("weight_offset (2) must be 0 or 1", args.weight_offset = 2);
	REFUSED("eps (-1) must be finite and not negative", args.eps = -1);
	REFUSED("goes with a norm alone, and norm is 0; expected NULL", args.q_weight = weight);
	REFUSED("does not go with norm_last (1); expected NULL, or norm_last 0", args.q_weight = weight,
		args.norm = 1, args.norm_last = 1);
	REFUSED("q_seq_stride (9) is smaller than head_dim (10)", args.q_seq_stride = 9);
	REFUSED("cos_stride (2) is smaller than rotary_dim / 2 (3)", args.cos_stride = 2);
	REFUSED("is more than memory can hold (9223372036854775807 bytes)",
		args.q_head_stride = args.q_batch_stride = INT64_C(1) << 57,
		args.q_seq_stride = INT64_C(1) << 58);
	REFUSED("q_out_head_stride (10) is smaller than the 30 elements that lie between: elements of q_out would overlap",
		args.q_out_head_stride = args.q_out_seq_stride = 10);
	REFUSED("q is NULL, with batch (2)", args.q = NULL);
	REFUSED("cos is NULL, with table_rows (8)", args.cos = NULL);
	REFUSED("is given but k_out is NULL; k needs k_out", args.k_out = NULL);
	REFUSED("is given but k is NULL; k_out needs k", args.k = NULL);
	REFUSED("is given but k is NULL; k_bias needs k", args.k = args.k_out = NULL, args.k_bias = bias);
	REFUSED("overlaps q [", args.q_out = &q[0][0][1][0]);
	REFUSED("overlaps k_out [", args.k_out = q_out);
	REFUSED("stream (", args.stream = workspace);
}

#define REFUSED_BACKWARD(message, ...)                                         \
	do {                                                                   \
		ek_rope_backward_args args = backward_args();                  \
		memset(q_out, 0, sizeof q_out);                                \
		__VA_ARGS__;                                                   \
		expect_refusal(ek_rope_backward(reference(), &args), message); \
	} while (0)
TEST(bad_backward_arguments_are_refused)
{
	REFUSED_BACKWARD("dq, dk, dq_bias, dk_bias, dq_weight and dk_weight are all NULL",
			 args.dq = args.dk = NULL);
	REFUSED_BACKWARD("is given but dq_out is NULL; dq needs dq_out", args.dq_out = NULL);
	REFUSED_BACKWARD("is given but q is NULL; dq_out needs q", args.norm = EK_RMS_NORM);
	REFUSED_BACKWARD("dq_weight (", args.dq_weight = sums);
	REFUSED_BACKWARD("gradient_dtype f32 does not go with weight_dtype f64",
			 args.gradient_dtype = EK_F32);
	REFUSED_BACKWARD("accumulate (2) must be 0 or 1", args.accumulate = 2);
	REFUSED_BACKWARD("workspace is NULL: ek_rope_backward_workspace asks for", args.dq_bias = sums,
			 args.workspace = NULL);
	REFUSED_BACKWARD("workspace_size (8) is smaller", args.dq_bias = sums, args.workspace_size = 8);
}

/* Empty tensors often have no address; biases and the sums of gradients are there all the same. */
TEST(without_tokens_tensors_may_be_null)
{
	ek_rope_forward_args args = forward_args();
	ek_rope_backward_args back = backward_args();
	args.batch = back.seq = 0;
	args.q = args.k = args.q_out = args.k_out = NULL;
	args.q_bias = args.k_bias = bias;
	run_forward(&args);
	back.dq_out = back.dk_out = back.dq = back.dk = NULL;
	back.dq_bias = sums;
	sums[0][0] = 1;
	run_backward(&back);
	EXPECT(sums[0][0] == 0, "a sum of nothing is %g", sums[0][0]);
}

/* Walking through them would take years. */
TEST(sequences_without_tokens_take_no_time)
{
	ek_rope_backward_args back = backward_args();
	back.batch = INT64_C(1) << 48;
	back.seq = 0;
	back.positions = positions;
	back.dq_bias = sums;
	sums[0][0] = 1;
	run_backward(&back);
	EXPECT(sums[0][0] == 0, "a sum of nothing is %g", sums[0][0]);
}

/* q and k in one packed tensor of q, k and value heads, turned in place, as if they were apart. */
TEST(packed_tensors_are_turned_in_place)
{
	enum { HEADS_IN_ALL = HEADS + 2 * K_HEADS, TOKEN = HEADS_IN_ALL * DIM };
	static double packed[BATCH * SEQ][HEADS_IN_ALL][DIM];
	ek_rope_forward_args args = forward_args();
	run_forward(&args);
	for (int t = 0; t < BATCH * SEQ; t++) {
		memcpy(packed[t][0], (double *)q + t * HEADS * DIM, HEADS * DIM * sizeof(double));
		memcpy(packed[t][HEADS], (double *)k + t * K_HEADS * DIM, K_HEADS * DIM * sizeof(double));
		memcpy(packed[t][HEADS + K_HEADS], (double *)k + t * K_HEADS * DIM,
		       K_HEADS * DIM * sizeof(double));
	}
	args.q = args.q_out = packed;
	args.k = args.k_out = packed[0][HEADS];
	args.q_seq_stride = args.k_seq_stride = args.q_out_seq_stride = args.k_out_seq_stride = TOKEN;
	args.q_batch_stride = args.k_batch_stride = args.q_out_batch_stride = args.k_out_batch_stride =
		SEQ * TOKEN;
	run_forward(&args);
	for (int t = 0; t < BATCH * SEQ; t++) {
		EXPECT(memcmp(packed[t][0], (double *)q_out + t * HEADS * DIM,
			      HEADS * DIM * sizeof(double)) == 0,
		       "q of token %d differs", t);
		EXPECT(memcmp(packed[t][HEADS], (double *)k_out + t * K_HEADS * DIM,
			      K_HEADS * DIM * sizeof(double)) == 0,
		       "k of token %d differs", t);
		EXPECT(memcmp(packed[t][HEADS + K_HEADS], (double *)k + t * K_HEADS * DIM,
			      K_HEADS * DIM * sizeof(double)) == 0,
		       "value of token %d was written", t);
	}
}
