/* Arithmetic of polynomials with integer factors, each step of it checked for overflow.
 * SPDX-License-Identifier: MIT */
#include "polynomial.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char too_large[] = "a factor does not fit 64 bits";
static const char too_many[] = "it has more than 64 terms";
static const char too_high[] = "a power is above 255";

#define NAME(symbol, name, origin) #name,
static const char *const names[] = {EK_SYMBOLS(NAME)};
#define ORIGIN(symbol, name, origin) origin,
static const char *const origins[] = {EK_SYMBOLS(ORIGIN)};

const char *ek_symbol_name(enum ek_symbol symbol)
{
	return names[symbol];
}

const char *ek_symbol_origin(enum ek_symbol symbol)
{
	return origins[symbol];
}

void ek_polynomial_number(struct ek_polynomial *p, int64_t number)
{
	p->count = number != 0;
	p->terms[0] = (struct ek_term){.factor = number};
}

void ek_polynomial_symbol(struct ek_polynomial *p, enum ek_symbol symbol)
{
	ek_polynomial_number(p, 1);
	p->terms[0].power[symbol] = 1;
}

/* ---- the order of terms ---- */

/* Of the sizes: what grows fastest comes first. */
static int size_degree(const struct ek_term *term)
{
	int degree = 0;
	for (int symbol = 0; symbol < EK_FIRST_CUT; symbol++)
		degree += term->power[symbol];
	return degree;
}

/* Below 0: a comes before b; 0: they have the same powers. */
static int compare_terms(const struct ek_term *a, const struct ek_term *b)
{
	int degrees = size_degree(b) - size_degree(a);
	return degrees ? degrees : memcmp(b->power, a->power, sizeof a->power);
}

static void remove_term(struct ek_polynomial *p, int at)
{
	p->count--;
	memmove(&p->terms[at], &p->terms[at + 1], (size_t)(p->count - at) * sizeof p->terms[0]);
}

static const char *add_term(struct ek_polynomial *p, const struct ek_term *term)
{
	int at = 0, order = 1;
	while (at < p->count && (order = compare_terms(&p->terms[at], term)) < 0)
		at++;
	if (at < p->count && order == 0) {
		if (__builtin_add_overflow(p->terms[at].factor, term->factor, &p->terms[at].factor))
			return too_large;
		if (p->terms[at].factor == 0)
			remove_term(p, at);
		return NULL;
	}
	if (p->count == EK_MOST_TERMS)
		return too_many;
	memmove(&p->terms[at + 1], &p->terms[at], (size_t)(p->count - at) * sizeof p->terms[0]);
	p->terms[at] = *term;
	p->count++;
	return NULL;
}

static const char *multiply_terms(struct ek_term *product, const struct ek_term *a, const struct ek_term *b)
{
	if (__builtin_mul_overflow(a->factor, b->factor, &product->factor))
		return too_large;
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++) {
		int power = a->power[symbol] + b->power[symbol];
		if (power > UINT8_MAX)
			return too_high;
		product->power[symbol] = (uint8_t)power;
	}
	return NULL;
}

/* ---- sums, products, substitution ---- */

const char *ek_polynomial_add(struct ek_polynomial *sum, const struct ek_polynomial *a,
			      const struct ek_polynomial *b)
{
	struct ek_polynomial result = *a;
	const char *wrong = NULL;
	for (int i = 0; i < b->count && !wrong; i++)
		wrong = add_term(&result, &b->terms[i]);
	*sum = result;
	return wrong;
}

const char *ek_polynomial_multiply(struct ek_polynomial *product, const struct ek_polynomial *a,
				   const struct ek_polynomial *b)
{
	struct ek_polynomial result = {0};
	const char *wrong = NULL;
	for (int i = 0; i < a->count && !wrong; i++)
		for (int k = 0; k < b->count && !wrong; k++) {
			struct ek_term term;
			wrong = multiply_terms(&term, &a->terms[i], &b->terms[k]);
			if (!wrong)
				wrong = add_term(&result, &term);
		}
	*product = result;
	return wrong;
}

/* One term, its replaced symbols multiplied out. */
static const char *substitute_term(struct ek_polynomial *result, const struct ek_term *term,
				   const struct ek_polynomial *const *by)
{
	struct ek_term kept = *term;
	const char *wrong = NULL;
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
		if (by[symbol])
			kept.power[symbol] = 0;
	result->count = 1;
	result->terms[0] = kept;
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
		for (int i = 0; by[symbol] && i < term->power[symbol] && !wrong; i++)
			wrong = ek_polynomial_multiply(result, result, by[symbol]);
	return wrong;
}

const char *ek_polynomial_substitute(struct ek_polynomial *result, const struct ek_polynomial *p,
				     const struct ek_polynomial *const *by)
{
	struct ek_polynomial sum = {0}, part;
	const char *wrong = NULL;
	for (int i = 0; i < p->count && !wrong; i++) {
		wrong = substitute_term(&part, &p->terms[i], by);
		if (!wrong)
			wrong = ek_polynomial_add(&sum, &sum, &part);
	}
	*result = sum;
	return wrong;
}

/* ---- numbers and text ---- */

bool ek_polynomial_evaluate(const struct ek_polynomial *p, const int64_t *values, int64_t *value)
{
	int64_t sum = 0;
	for (int i = 0; i < p->count; i++) {
		int64_t product = p->terms[i].factor;
		for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
			for (int k = 0; k < p->terms[i].power[symbol]; k++)
				if (__builtin_mul_overflow(product, values[symbol], &product))
					return false;
		if (__builtin_add_overflow(sum, product, &sum))
			return false;
	}
	*value = sum;
	return true;
}

bool ek_polynomial_uses(const struct ek_polynomial *p, enum ek_symbol symbol)
{
	for (int i = 0; i < p->count; i++)
		if (p->terms[i].power[symbol])
			return true;
	return false;
}

struct text {
	char *at;
	size_t left;
	bool full;
};

static void put(struct text *text, const char *piece)
{
	size_t length = strlen(piece);
	if (length >= text->left) {
		text->full = true;
		return;
	}
	memcpy(text->at, piece, length + 1);
	text->at += length;
	text->left -= length;
}

static void put_term(struct text *text, const struct ek_term *term, bool first)
{
	char number[24];
	bool negative = term->factor < 0;
	uint64_t factor = negative ? 0 - (uint64_t)term->factor : (uint64_t)term->factor;
	const char *between = "";
	put(text, first ? negative ? "-" : "" : negative ? " - " : " + ");
	if (factor != 1) {
		(void)snprintf(number, sizeof number, "%" PRIu64, factor);
		put(text, number);
		between = "*";
	}
	for (int symbol = 0; symbol < EK_SYMBOL_COUNT; symbol++)
		for (int i = 0; i < term->power[symbol]; i++) {
			put(text, between);
			put(text, names[symbol]);
			between = "*";
		}
	if (!*between) /* 1 without a symbol */
		put(text, "1");
}

bool ek_polynomial_print(const struct ek_polynomial *p, char *text, size_t size)
{
	struct text to = {text, size, size == 0};
	if (size > 0)
		text[0] = 0;
	if (p->count == 0)
		put(&to, "0");
	for (int i = 0; i < p->count && !to.full; i++)
		put_term(&to, &p->terms[i], i == 0);
	return !to.full;
}
