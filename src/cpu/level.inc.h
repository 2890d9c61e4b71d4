/* The words that the CPU kernels of every op are written in. ISA_HEADER is the level's isa_….h, which names it and its
 * vocabulary, and BASE_ISA where it shares kernels of another level. Kernels are then included once per pair of dtypes, with
 *     ACT, WEIGHT    the dtypes of activations and weights
 *     T, TW          their elements          A(word), B(word)   their words of the vocabulary
 *     real, vec      the arithmetic          V(word)            its words of the vocabulary
 *     C(word)        the words for weights in the order of activations
 *     N(name)        name, made unique
 * SPDX-License-Identifier: MIT */
#include ISA_HEADER

#include <stddef.h>
#include <string.h>

#include "columns.h"
#include "core/dtype.h"
#include "core/slots.h"
#include "simd.h"

/* What rows do to the column sums: nothing; go on with a chunk of a slot; add slots of one row (R = 1). */
enum columns { COLUMNS_NONE, COLUMNS_CHAIN, COLUMNS_SLOTS };

#define NAMED(dtype, name, bytes) dtype_##name = (dtype),
enum { EK_DTYPES(NAMED) dtype_end };
/* From registers side by side to the order of a dtype's store2. */
#define f32_in_order(v) (void)(v)
#define f16_in_order(v) (void)(v)
#define f64_in_order(v) (void)(v)
#define bf16_in_order(v) vf_split(v)

#define T PASTE(ACT, element)
#define TW PASTE(WEIGHT, element)
#define A(word) PASTE(ACT, word)
#define B(word) PASTE(WEIGHT, word)
#define C(word) PASTE(PASTE(ACT, WEIGHT), word)
#define real PASTE(ACT, real)
#define vec PASTE(ACT, vec)
#define N(name) PASTE(name, PASTE(ACT, WEIGHT))
