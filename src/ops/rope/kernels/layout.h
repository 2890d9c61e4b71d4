/* What the host and the kernels of rotary position embedding share, in one text that both compile. The host includes it in C11;
 * recipes put it in front of the kernels. SPDX-License-Identifier: MIT */
#ifndef EK_ROPE_LAYOUT_H
#define EK_ROPE_LAYOUT_H

/* KIND of a kernel. */
#define KIND_ROPE_FORWARD 1  /* turn.cu */
#define KIND_ROPE_BACKWARD 2 /* turn.cu: no gradient of a bias or weight is wanted */
#define KIND_ROPE_WEIGHTS 3  /* weights.cu: with partial sums of the gradients of weights */
#define KIND_ROPE_BIASES 4   /* biases.cu: with those of biases */

enum { ROPE_BATCH, ROPE_SEQ, ROPE_HEAD, ROPE_STRIDES };

/* Whether the threads of a head fold its sums by shuffles alone; otherwise through an exchange in shared memory, of so many numbers
 * a head: what the tree over 256 lanes starts from, or both factors of the terms of lanes that have several. */
#define ROPE_BY_SHUFFLES(head_dim, rotary_dim, unit, threads) \
	((head_dim) <= 256 && (rotary_dim) == (head_dim) && (rotary_dim) / 2 == (unit) * (threads))
#define EXCHANGE_NUMBERS(head_dim, unit) ((head_dim) <= 256 ? (head_dim) / (unit) : 2 * (head_dim))
#define EXCHANGE_BYTES(head_dim, unit, groups, heads, real_bytes) \
	((groups) * (heads)*EXCHANGE_NUMBERS(head_dim, unit) * (real_bytes) / 16 * 16 + 16)

/* Whether heads of column sums are fetched ahead, so many units of a thread. */
#define ROPE_FETCHES(unit, units) ((unit) > 1 && (units) <= 4)

/* weights.cu, biases.cu: rows that a thread has on their way or in hand: narrow heads have few threads, long ones little room. */
#define ROPE_STAGES(head_dim) ((head_dim) <= 256 ? 4 : 3)

/* q or k. Strides in bytes; pointers of absent operands NULL. */
struct rope_side {
	const unsigned char *x, *dy, *bias, *weight;
	unsigned char *y;
	void *partials; /* of its sums: [block][pitch]; NULL: none are wanted */
	long long x_strides[ROPE_STRIDES], dy_strides[ROPE_STRIDES], y_strides[ROPE_STRIDES];
	long long slot_rows, pitch; /* weights.cu, biases.cu; pitch: numbers of a sum of all columns */
	unsigned chunk_rows;        /* biases.cu: of a chunk, or of a slot, of which a warp walks two then */
	unsigned blocks;            /* weights.cu, biases.cu: of this side */
	unsigned heads;
	unsigned groups; /* turn.cu: threads that share the heads of a token; they take every so many-th */
	unsigned units;  /* turn.cu: threads for a token */
	unsigned magic, shift; /* of the division by units (divide in heads.cu) */
	unsigned walkers;      /* weights.cu: which take the chunks of a slot by turns, a power of two */
};

struct rope_arguments {
	struct rope_side sides[2];
	const unsigned char *cos, *sin, *positions;
	long long cos_stride, sin_stride, positions_stride; /* in bytes */
	long long table_rows, table_step, offset;
	long long first, tokens; /* the first token of this launch, and the number of all */
	long long seq;
	double eps;
	unsigned seq_magic,
		seq_shift;      /* as magic and shift, by seq, where there are fewer than 2^31 tokens */
	unsigned launch_tokens; /* turn.cu: of this launch and of each that follows it, at most */
};

#endif
