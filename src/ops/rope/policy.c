/* The constants of the kernels of rotary position embedding: how a head is cut into units, how many threads share it, how many heads
 * a thread has in hand. Called by plan.c. SPDX-License-Identifier: MIT */
#include "policy.h"

#include "core/dtype.h"
#include "core/sizes.h"
#include "kernels/layout.h"

enum { WARP = 32, BLOCK = 256, SMALL_BLOCK = 128 };

static bool has_sums(const struct ek_rope_form *form)
{
	return form->kind == KIND_ROPE_WEIGHTS || form->kind == KIND_ROPE_BIASES;
}

/* As much as an access may have: both elements of a pair, and what does not turn, must start at units. */
static int unit_of(const struct ek_rope_form *form)
{
	int element = (int)ek_bytes_of_dtype(form->dtype);
	for (int bytes = 16; bytes >= 8 && bytes > element; bytes /= 2) {
		int unit = bytes / element;
		if (form->alignment >= bytes && form->rotary_dim / 2 % unit == 0 &&
		    (form->head_dim - form->rotary_dim) % unit == 0)
			return unit;
	}
	return 1;
}

int ek_rope_units(const struct ek_rope_form *form, int unit, int row_threads)
{
	int pair_units = form->rotary_dim / 2 / unit, pass_units = (form->head_dim - form->rotary_dim) / unit;
	return (int)(2 * quotient_up(pair_units, row_threads) + quotient_up(pass_units, row_threads));
}

/* Threads that sum over a head, or that stand in a strip of 32, are a power of two. Others are as many as leave none idle,
 * with no more than two units of what does not turn. */
static int row_threads_of(const struct ek_rope_form *form, int unit)
{
	int element = (int)ek_bytes_of_dtype(form->dtype), pass = form->head_dim - form->rotary_dim;
	if (!form->norm && !has_sums(form))
		return (int)larger(form->rotary_dim / 2 / unit, quotient_up(pass / unit, 2));
	int most = unit == 1 ? 8 : 32 / element * (pass ? 2 : 1), threads = 1; /* elements of a thread */
	while (threads < WARP && ek_rope_units(form, unit, threads) * unit > most)
		threads *= 2;
	return threads;
}

/* With a norm two heads of a thread share the steps of their statistics, cos, sin and weights, where its part of a head is small enough:
 * half as many elements of backward, of LayerNorm or a bias, and of parts that do not turn or units of one element. Without, many threads of one head are faster (RoPE
 * 4096x4096, bf16: 1.04 of the copy; four heads a thread .99). A row of column sums is one head. */
static int heads_of(const struct ek_rope_form *form, int unit, int held)
{
	int most = form->dtype == EK_F64 ? 16 : 32; /* elements of a head */
	if (has_sums(form) || !form->norm)
		return 1;
	most /= form->kind != KIND_ROPE_FORWARD ? 2 : 1;
	most /= form->centred || form->bias ? 2 : 1;
	most /= form->rotary_dim < form->head_dim || unit == 1 ? 2 : 1;
	return held > most ? 1 : 2;
}

/* Whether 80 registers are enough: forward, of heads that turn as a whole. */
static bool is_plain(const struct ek_rope_form *form)
{
	return !has_sums(form) && !form->bias && !form->centred && form->kind == KIND_ROPE_FORWARD &&
	       form->rotary_dim == form->head_dim && form->dtype != EK_F64;
}

/* 128 registers in most cases. */
static int blocks_of(const struct ek_rope_form *form, int held)
{
	if (is_plain(form))
		return form->norm ? 3 : 6;
	return held * (form->dtype == EK_F64 ? 2 : 1) > 16 && (form->norm || has_sums(form)) ? 1 : 2;
}

struct ek_rope_policy ek_rope_policy(const struct ek_rope_form *form)
{
	struct ek_rope_policy p = {.unit = unit_of(form),
				   .threads = form->norm || has_sums(form) ? BLOCK : SMALL_BLOCK};
	p.row_threads = row_threads_of(form, p.unit);
	int units = ek_rope_units(form, p.unit, p.row_threads), held = units * p.unit;
	p.heads = heads_of(form, p.unit, held);
	p.blocks = blocks_of(form, held);
	/* shared memory for an exchange of elements, or for many units that are on their way */
	if ((form->norm && form->head_dim > 256) || (has_sums(form) && units > 2))
		p.threads = SMALL_BLOCK;
	return p;
}

int ek_rope_shared(const struct ek_rope_form *form, const struct ek_rope_policy *p)
{
	int real = (int)ek_bytes_of_dtype(ek_real_of(form->dtype)), groups = p->threads / p->row_threads;
	int units = ek_rope_units(form, p->unit, p->row_threads), bytes = 0;
	if (form->norm && !ROPE_BY_SHUFFLES(form->head_dim, form->rotary_dim, p->unit, p->row_threads))
		bytes += EXCHANGE_BYTES(form->head_dim, p->unit, groups, p->heads, real);
	if (has_sums(form)) {
		bytes += units * p->unit * p->threads * real;
		if (ROPE_FETCHES(p->unit, units))
			bytes += ROPE_STAGES(form->head_dim) * (form->norm ? 2 : 1) * units * p->threads * 16;
	}
	return bytes;
}
