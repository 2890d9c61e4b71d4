/* Indices past 2^31: huge row strides over a mapping of which only the rows are ever touched, so that a few
 * pages of memory do; in long mode also more than 2^31 elements of which every one is read and written,
 * over a mapping that shows the same memory again and again. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

/* Address space without memory behind it until it is touched. */
static unsigned char *reserve(size_t bytes)
{
	unsigned char *map =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return map;
}

/* Rows of a dense operand spread over a huge one, or gathered from it. */
static void move_rows(unsigned char *sparse, int64_t stride, const struct operand *dense, bool spread)
{
	size_t element = ek_dtype_size(dense->dtype), row = (size_t)dense->cols * element;
	for (int64_t r = 0; r < dense->rows; r++) {
		unsigned char *far = sparse + (size_t)(r * stride) * element,
			      *near = dense->buffer.data + (size_t)r * row;
		memcpy(spread ? far : near, spread ? near : far, row);
	}
}

/* A case run with strides of over 2^31 elements must equal the dense one. */
static void check_spread(struct test_case c, int64_t stride, const char *level, int threads)
{
	const struct ek_op *op = case_op(&c);
	size_t map_bytes = ((size_t)(c.rows - 1) * (size_t)stride + (size_t)c.cols) * ek_dtype_size(EK_F64);
	ek_context *ctx = context_of((struct setting){level, threads, PLAIN});
	unsigned char *map[EK_MOST_OPERANDS] = {NULL};
	case_outputs(ctx, &c, &case_actual);
	union op_args args = case_args_in(&c, &case_actual);
	for (int i = 0; i < op->operand_count; i++) {
		if (op->operands[i].rank < 2 || !(c.present >> i & 1))
			continue;
		map[i] = reserve(map_bytes);
		if (i >= op->output_count)
			move_rows(map[i], stride, &case_inputs.of[i], true);
		ek_operand_set(&op->operands[i], &args, map[i]);
		memcpy(ek_field(&args, op->operands[i].dims[0].stride), &stride, sizeof stride);
	}
	EXPECT(op->call(ctx, &args) == EK_OK, "%s, stride %lld: %s", case_text(&c), (long long)stride,
	       ek_error(ctx));
	for (int i = 0; i < op->output_count; i++)
		if (map[i])
			move_rows(map[i], stride, &case_actual.of[i], false);
	case_compare(&c, level, threads, &case_actual);
	for (int i = 0; i < op->operand_count; i++)
		if (map[i])
			munmap(map[i], map_bytes);
}

TEST(strides_past_2_31_elements)
{
	static const struct {
		int64_t rows, cols, stride;
	} shapes[] = {{4, 1000, (INT64_C(1) << 31) + 5},
		      {3, 70, (INT64_C(1) << 30) + 1},
		      {600, 300, (INT64_C(1) << 23) + 3},
		      {5, 3, (INT64_C(1) << 32) + 64}};
	for (int s = 0; s < COUNT_OF(shapes); s++)
		for (int k = 0; k < OPS; k += test_mode == TEST_SHORT ? 5 : 1) {
			struct test_case c = op_case(k, shapes[s].rows, shapes[s].cols);
			case_expect(&c);
			check_spread(c, shapes[s].stride, "reference", 1);
			for (int i = 0; i < level_count(); i++) {
				check_spread(c, shapes[s].stride, level_name(i), 1);
				check_spread(c, shapes[s].stride, level_name(i), 3);
			}
		}
}

/* ---- every element of more than 2^31 ---- */

enum { BLOCK_ROWS = 16384, BLOCK_COLS = 1024 };

static void set_pointer(const struct test_case *c, const char *name, void *args, void *pointer)
{
	ek_operand_set(&case_op(c)->operands[operand_number(case_op(c), name)], args, pointer);
}

/* Rows repeat with the memory, so y and dx must be those of one block, and the column sums the reference's
 * over all rows. */
static void check_repeated(bool backward, ek_norm norm, ek_dtype dtype)
{
	int64_t times = (INT64_C(1) << 31) / (BLOCK_ROWS * BLOCK_COLS) + 2;
	size_t block = (size_t)BLOCK_ROWS * BLOCK_COLS * ek_dtype_size(dtype);
	struct test_case c =
		case_of(backward, norm, (struct dtype_pair){dtype, dtype}, BLOCK_ROWS, BLOCK_COLS);
	case_drop(&c, STATISTICS);
	case_expect(&c);
	unsigned char *x = memory_repeated(INPUT("x")->buffer.data, block, times),
		      *dy = memory_repeated(backward ? INPUT("dy")->buffer.data : NULL, block, times),
		      *out = memory_repeated(NULL, block, times);
	if (!x || !dy || !out)
		return;
	struct test_case all = c;
	all.rows = BLOCK_ROWS * times;
	const char *levels[] = {"reference", level_best()};
	for (int l = backward ? 0 : 1; l < 2; l++) {
		ek_context *ctx = context_of((struct setting){levels[l], l ? 2 : 1, PLAIN});
		case_outputs(ctx, &c, &case_actual);
		union op_args args = case_args_in(&c, &case_actual);
		void *workspace = NULL;
		size_t bytes = 0;
		args_take_rows(case_op(&c), &args, 0, all.rows);
		set_pointer(&c, "x", &args, x);
		set_pointer(&c, backward ? "dx" : "y", &args, l == 0 ? NULL : out);
		if (backward)
			set_pointer(&c, "dy", &args, dy);
		if (args_workspace(case_op(&c), ctx, &args, &bytes) == EK_OK && bytes)
			args_set_workspace(case_op(&c), &args,
					   workspace = aligned_alloc(64, (bytes + 63) / 64 * 64), bytes);
		EXPECT(case_op(&c)->call(ctx, &args) == EK_OK, "%s: %s", case_text(&all), ek_error(ctx));
		free(workspace);
		for (int i = 1; l == 0 && i < case_op(&c)->output_count;
		     i++) /* the column sums to come up to */
			memcpy(case_expected.of[i].buffer.data, case_actual.of[i].buffer.data,
			       case_expected.of[i].buffer.bytes);
		if (l == 0)
			continue;
		memcpy(case_actual.of[0].buffer.data, out + (size_t)(times - 1) * block, block);
		case_compare(&all, levels[l], 2, &case_actual);
	}
	munmap(x, block * (size_t)times), munmap(dy, block * (size_t)times),
		munmap(out, block * (size_t)times);
}

TEST(more_than_2_31_elements_forward)
{
	SKIP_IF(test_mode != TEST_LONG, "long mode only");
	check_repeated(false, EK_LAYER_NORM, EK_F32);
	check_repeated(false, EK_RMS_NORM, EK_BF16);
}

TEST(more_than_2_31_elements_backward)
{
	SKIP_IF(test_mode != TEST_LONG, "long mode only");
	check_repeated(true, EK_LAYER_NORM, EK_F32);
	check_repeated(true, EK_RMS_NORM, EK_BF16);
}
