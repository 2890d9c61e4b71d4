/* Tensors for the commands: allocated with a stride and an offset, filled, and compared bit for bit.
 * SPDX-License-Identifier: MIT */
#ifndef CLI_TENSORS_H
#define CLI_TENSORS_H

#include <stdbool.h>
#include <stddef.h>

#include "cases.h"
#include "evenkeel.h"

enum init { ONES, INTEGERS, DECIMALS };

/* The range of DECIMALS: weights lie around 1, everything else around 0. */
enum role { ACTIVATION, WEIGHT, BIAS, ROLE_RSTD };

/* Bytes around a tensor that belong to it: they are stained and compared too. */
enum { TENSOR_MARGIN = 256 };

/* A matrix, or with one row a vector. Gaps between rows are part of it: they are filled and compared too,
 * so that a kernel that writes there is noticed. */
struct tensor {
	ek_dtype dtype;
	int64_t rows, cols, stride;
	int64_t elements; /* gaps included */
	unsigned char *memory;
	unsigned char *data; /* memory + TENSOR_MARGIN + offset */
};

/* Allocates, 64-byte aligned plus offset bytes. false: no memory. */
bool tensor_make(struct tensor *tensor, ek_dtype dtype, int64_t rows, int64_t cols, int64_t stride,
		 int offset);
void tensor_free(struct tensor *tensor);

size_t tensor_bytes(const struct tensor *tensor);

/* Fills with values that depend on init, seed, role and position alone. */
void tensor_fill(struct tensor *tensor, enum init init, uint64_t seed, enum role role);
/* The same on plain memory. */
void fill_elements(void *data, ek_dtype dtype, int64_t elements, enum init init, uint64_t seed,
		   enum role role);
/* Puts extreme values (or NaN and infinities) into some rows; shift turns the order of the kinds. */
void tensor_add_special(struct tensor *tensor, enum values values, int shift);
/* Copies the elements of a tensor of the same form. */
void tensor_copy(struct tensor *to, const struct tensor *from);
/* Fills tensor and margins with a pattern that no kernel writes: what is left unwritten differs then. */
void tensor_stain(struct tensor *tensor);

/* Compares bit for bit, but any NaN equals any NaN. false: *index is the first element that differs; in a
 * margin it is below 0, or `elements` and more. */
bool tensor_same(const struct tensor *a, const struct tensor *b, int64_t *index);

double element_value(ek_dtype dtype, const void *data, int64_t index);
uint64_t element_bits(ek_dtype dtype, const void *data, int64_t index);
void element_store(ek_dtype dtype, void *data, int64_t index, double value);

#endif
