"""The mutations that mutate.py tries: each is a small, plausible mistake that the tests must notice. `old` is
exact text that occurs once in the file. SPDX-License-Identifier: MIT"""

import typing


class Mutation(typing.NamedTuple):
    name: str
    file: str
    old: str
    new: str
    why: str
    needs: str = ""  # a flag of /proc/cpuinfo without which the changed code does not run
    tests: str = ""  # a pattern of tests that run for it, if not those of the reference and the CPU


STATS = "src/ops/norm/cpu_stats.inc.h"
FORWARD = "src/ops/norm/cpu_forward.inc.h"
BACKWARD = "src/ops/norm/cpu_backward.inc.h"
COLUMNS = "src/cpu/columns.inc.h"
REFERENCE = "src/ops/norm/reference.inc.h"
FUSED = "src/ops/norm/cpu_fused.inc.h"
FUSED_FORWARD = "src/ops/norm/cpu_fused_forward.inc.h"
FUSED_BACKWARD = "src/ops/norm/cpu_fused_backward.inc.h"
DT = "src/ops/norm/cpu_fused_dt.inc.h"
DT_DTYPE = "src/ops/norm/cpu_fused_dt_dtype.inc.h"
GATE_DTYPE = "src/ops/norm/cpu_fused_gate_dtype.inc.h"
FORWARD_CU = "src/ops/norm/kernels/forward.cu"
ACTIVATION_CU = "src/ops/norm/kernels/activation.cu"
SLOTS_CU = "src/ops/norm/kernels/slots.cu"
SUMS_CU = "src/ops/norm/kernels/sums.cu"
ON_STANDIN = "^cuda_(bits|forms)$"
GLU_REFERENCE = "src/ops/glu/reference.inc.h"
GLU_ROWS = "src/ops/glu/cpu_rows.inc.h"
GLU_ELEMENTS_CU = "src/ops/glu/kernels/elements.cu"
GLU_ROWS_CU = "src/ops/glu/kernels/rows.cu"
GLU_SUMS_CU = "src/ops/glu/kernels/sums.cu"
GLU_ON_STANDIN = "^cuda_glu$"
ROPE_OP = "src/ops/rope/op.c"
ROPE_REFERENCE = "src/ops/rope/reference.inc.h"
ROPE_HEADS = "src/ops/rope/cpu_heads.inc.h"
ROPE_DIRECT = "src/ops/rope/cpu_direct.inc.h"
ROPE_TURN = "src/ops/rope/cpu_turn.inc.h"
ROPE_BIASES_CU = "src/ops/rope/kernels/biases.cu"
ROPE_ON_STANDIN = "^cuda_rope$"

MUTATIONS = [
    # ---- the contract itself: reference and kernels together, or the reference alone ----
    Mutation("chunk_of_64", "src/core/order.h", "CHUNK_ROWS = 32", "CHUNK_ROWS = 64",
             "chunks of 64 rows instead of 32, everywhere alike"),
    Mutation("slot_rows", "src/core/slots.h", "cols <= 16384 ? 1024", "cols <= 16384 ? 512",
             "R of rule 6, everywhere alike"),
    Mutation("reference_clamp", REFERENCE, "real var = v < 0 ? 0 : v;", "real var = v;",
             "the clamp of the variance at 0 left out of the reference"),
    Mutation("lanes", "src/core/order.h", "SEGMENT = 1024, LANES = 256", "SEGMENT = 1024, LANES = 128",
             "128 lanes in the reference and the kernels alike"),
    Mutation("f16_overflow", "src/core/half.h", "magnitude >= 0x477ff000u", "magnitude >= 0x477fe000u",
             "f16: 65504 and up to 65519 round to infinity"),
    Mutation("bf16_ties", "src/core/half.h", "(bits + 0x7fffu + (bits >> 16 & 1)) >> 16", "(bits + 0x8000u) >> 16",
             "bf16: ties away from zero"),

    # ---- row sums and statistics ----
    Mutation("tail_not_cleared", STATS, "\t\tif (n != N(STEP))\n\t\t\tA(first2)(d, n);\n", "",
             "absent elements of a tail add (0 - m0) and its square"),
    Mutation("lane_restarted", STATS, "sum[i] = first ? d[i] : V(add)(sum[i], d[i]);", "sum[i] = d[i];",
             "a lane keeps its last term alone"),
    Mutation("square_not_fused", STATS, "V(fma)(d[i], d[i], squares[i])", "V(add)(V(mul)(d[i], d[i]), squares[i])",
             "d*d rounded before it is added"),
    Mutation("clamp_left_out", STATS, "V(sqrt1)((v < 0 ? 0 : v) + eps)", "V(sqrt1)(v + eps)",
             "the clamp of the variance at 0 left out"),
    Mutation("mean_not_corrected", STATS, "stats->mean = m0 + c;", "stats->mean = m0;", "mean without its correction"),
    Mutation("mean_lo_dropped", STATS, "stats->mean_lo = (m0 - stats->mean) + c;", "stats->mean_lo = 0;",
             "what rounding took from the mean is lost"),
    Mutation("variance_not_corrected", STATS, "real v = V(fma1)(-c, c, q / n);", "real v = q / n;",
             "variance about m0 instead of the mean"),
    Mutation("reciprocal_for_division", STATS, "real m0 = first_sum / (real)cols;",
             "real m0 = first_sum * (1 / (real)cols);", "m0 by a reciprocal"),
    Mutation("segment_tree", "src/cpu/simd.h", "for (int64_t bits = tree->count++; bits & 1; bits >>= 1)",
             "for (int64_t bits = tree->count++; bits & 2; bits >>= 1)", "a step of the tree over segments"),
    Mutation("minus_zero_leaves", "src/cpu/simd.h", "return sum + 0; /* -0 never leaves a sum */",
             "return sum;         /* -0 never leaves a sum */", "no +0 at the end of a row sum"),

    # ---- the vocabularies ----
    Mutation("scalar_tree_step", "src/cpu/simd_scalar.h", "return (a[0] + a[1]) + (a[2] + a[3]);",
             "return (a[0] + a[2]) + (a[1] + a[3]);", "lanes fold in another order (scalar)"),
    Mutation("avx512_lane_order", "src/cpu/simd_avx512.h",
             "return fold_floats(fold_floats(a[0], a[1]), fold_floats(a[2], a[3]));",
             "return fold_floats(fold_floats(a[0], a[2]), fold_floats(a[1], a[3]));",
             "lanes fold in another order (AVX-512)", needs="avx512bw"),
    Mutation("avx512_odd_ties", "src/cpu/simd_avx512.h",
             "_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd)",
             "_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), _mm512_setzero_si512())",
             "bf16 ties away from zero (AVX-512)", needs="avx512bw"),
    Mutation("native_bf16_unguarded", "src/cpu/simd_avx512.h",
             "if (__builtin_expect(_mm512_testn_epi16_mask(native, _mm512_set1_epi16(0x7fff)) == 0, 1))", "if (1)",
             "the instruction's flushed subnormals are taken", needs="avx512_bf16"),

    # ---- forward ----
    Mutation("y_stride_ignored", FORWARD, "row * a->y_stride", "row * a->cols", "y is taken to be dense"),
    Mutation("mean_lo_not_stored", FORWARD, "memcpy((real *)a->mean_lo + row, &stats->mean_lo, sizeof(real));",
             "memcpy((real *)a->mean_lo + row, &stats->mean, sizeof(real));", "another statistic is returned"),
    Mutation("tail_of_bias", FORWARD, "b = B(load_part)(f.bias + (i & f.bias_mask), n)",
             "b = B(load_part)(f.bias + (i & f.weight_mask), n)", "an absent weight hides the bias in a tail"),
    Mutation("nontemporal_head", "src/cpu/simd.h", "smaller(start + SEGMENT + head, cols)",
             "smaller(start + SEGMENT, cols)",
             "columns between the spans of segments stored non-temporally are not written"),
    Mutation("head_not_written", FORWARD, "if (start == 0 && r->head)", "if (start != 0 && r->head)",
             "what lies before the first whole line of a row stored non-temporally is not written"),
    Mutation("turn_after_a_head", FORWARD, "at + LANES <= n; at += LANES) /* a head made the span shorter */",
             "at + LANES < 0; at += LANES) /* a head made the span shorter */",
             "a row that is summed beside a shorter span loses lanes", needs="avx512bw"),
    Mutation("rows_together", FORWARD, "row += rows[i].count, i = !i)", "row++, i = !i)",
             "rows that went together are taken again"),
    Mutation("narrow_row", STATS, "if (at >= n) /* a narrow row */", "if (at + N(BLOCK) >= n) /* a narrow row */",
             "the last block of a narrow row is skipped"),

    # ---- backward ----
    Mutation("dx_stride_ignored", BACKWARD, "row * a->dx_stride", "row * a->x_stride",
             "dx is taken to lie like x"),
    Mutation("given_mean_lo_ignored", BACKWARD, "N(given)(a->mean_lo, row), N(given)(a->rstd, row), 0}",
             "0, N(given)(a->rstd, row), 0}",
             "the caller's mean_lo is dropped"),
    Mutation("tail_of_xhat", BACKWARD, "\t\tif (part)\n\t\t\txhat[k] = V(first)(xhat[k], n); "
             "/* 0 * infinity must not come in */\n", "", "0 times infinity comes in from past a row's end"),
    Mutation("dx_order", BACKWARD, "V(sub)(g, V(fma)(xhat, a, V(splat)(r->mean_g)))",
             "V(sub)(V(fnma)(xhat, a, g), V(splat)(r->mean_g))", "dx by another order of the same sum"),
    Mutation("chunk_ignored", COLUMNS, "real *to = in_leaf >= CHUNK_ROWS ?",
             "real *to = in_leaf >= 2 * CHUNK_ROWS ?", "the second chunk of a slot is not a chunk"),
    Mutation("slots_of_one_row", COLUMNS, "sums->task->slot_rows == 1 ? COLUMNS_SLOTS : COLUMNS_CHAIN", "COLUMNS_CHAIN",
             "two slots of one row added as one slot of two"),
    Mutation("group_over_a_chunk", BACKWARD, "smaller(count, N(rows_in_chunk)(sums, row)) : count;", "count : count;",
             "rows that go together cross the end of a chunk"),
    Mutation("task_tree", COLUMNS, "for (int64_t task = 0; task + h < count; task += 2 * h)",
             "for (int64_t task = 0; task + h < count; task += 4 * h)", "a step of the tree over tasks"),
    Mutation("column_minus_zero", COLUMNS, "\t\ta[0] = V(add)(a[0], V(splat)(0));\n", "",
             "no +0 at the end of a column sum"),
    Mutation("accumulate_ignored", COLUMNS, "if (accumulate)", "if (0)", "dweight and dbias are overwritten"),

    # ---- residuals, biases, flavours, activations and gates ----
    Mutation("reference_h_not_rounded", REFERENCE,
             "h = NAME(rounded)(r->h_dtype, h + NAME(element)(&r->residual, i));",
             "h = h + NAME(element)(&r->residual, i);", "x + residual does not round to h's dtype in the reference"),
    Mutation("reference_dgate_order", REFERENCE, "return (du * NAME(element)(&r->x, i)) * slope;",
             "return du * (NAME(element)(&r->x, i) * slope);",
             "dgate of a gate that comes first by another order of the product, in the reference"),
    Mutation("reference_dweight_each", REFERENCE, "NAME(rounded_xhat)(&r, in_group), acc)",
             "NAME(xhat)(&r, in_group), acc)",
             "dweight takes xhat before it rounds, in the reference"),
    Mutation("x_bias_columns", FORWARD, "C(load2)(f.bias + (i & f.bias_mask), c);", "C(load2)(f.bias, c);",
             "x_bias of a segment's first columns is added to all of them"),
    Mutation("dh_of_tail", BACKWARD,
             "A(store_part)(r.dx + i, has_dh ? V(add)(dx, A(load_part)(r.dh + i, n)) : dx, n);",
             "A(store_part)(r.dx + i, dx, n);", "dh is not added in a tail"),
    Mutation("gate_of_tail", FORWARD, "y[0] = V(mul)(y[0], gate[0]);", "(void)gate;",
             "the gate does not multiply a tail of y"),
    Mutation("gate_of_other_row", FORWARD, "stride = a->gate ? a->gate_stride : a->residual_stride;\n\tresidual",
             "stride = a->gate ? a->x_stride : a->residual_stride;\n\tresidual",
             "a gate that comes first is taken to lie like x"),
    Mutation("weight_offset_dropped", FUSED, "w->numbers[i] = 1 + w->numbers[i];", "w->numbers[i] = w->numbers[i] - 0;",
             "weight for 1 + weight"),
    Mutation("xhat_not_rounded", FUSED_FORWARD, "\tN(conversions)[dtype].round(numbers, n);\n", "\t(void)dtype;\n",
             "with several roundings xhat is multiplied before it rounds"),
    Mutation("dx_bias_of_segment", FUSED_BACKWARD, "N(add_dx_columns)(dx, &c, n);", "N(add_dx_columns)(dx, &c, n - 1);",
             "dx_bias loses the last column of each segment"),
    Mutation("dgate_slope", FUSED_BACKWARD, "N(multiply)(factor, slope, n, factor);",
             "N(multiply)(factor, value, n, factor);", "dgate has the activation for its derivative"),
    Mutation("dt_sets", DT, "kept + i * (N(DT_NUMBERS) / 2)", "kept + 0 * i",
             "what is kept of the rows before is overwritten by the rows at hand"),
    Mutation("dt_head", DT, "if (start == 0 && r->head)", "if (start != 0 && r->head)",
             "what lies before the first whole line of dx is not written"),
    Mutation("dt_dgate_order", DT_DTYPE,
             "V(mul)(V(mul)(dy, P(affine)(x, stats, f, i, n)), slope)",
             "V(mul)(dy, V(mul)(P(affine)(x, stats, f, i, n), slope))",
             "dgate by another order of the product"),
    Mutation("dt_tail", DT_DTYPE, "N(put)(s->dt + i, dt, n);",
             "N(put)(s->dt + i, n == N(W) ? dt : dy, n);", "dy for dt in a tail"),
    Mutation("cuda_dgate_order", ACTIVATION_CU, "*dgate = dy * affine(xhat, weight, bias) * slope;",
             "*dgate = dy * (affine(xhat, weight, bias) * slope);", "dgate by another order of the product, on a GPU",
             tests=ON_STANDIN),
    Mutation("cuda_dgate_first_order", ACTIVATION_CU, "return du * x * slope;", "return du * (x * slope);",
             "the same of a gate that comes first", tests=ON_STANDIN),
    Mutation("cuda_walkers_order", SLOTS_CU, "other * ROW_THREADS)", "(walkers - other) * ROW_THREADS)",
             "the chunks of a slot's walkers added in the wrong order, on a GPU", tests=ON_STANDIN),
    Mutation("cuda_own_means", SUMS_CU, "pair[0] = second ? other : own[0];", "pair[0] = own[0];",
             "half of the threads take the mean of the deviations for that of the squares, on a GPU", tests=ON_STANDIN),
    Mutation("cuda_affine_not_rounded", ACTIVATION_CU, "ACTIVATE(ROUND_EACH ? rounded(t, Y_ELEMENT) : t)",
             "ACTIVATE(t)",
             "with several roundings the activation is applied before the affine result rounds, on a GPU",
             tests=ON_STANDIN),
    Mutation("cuda_h_not_rounded", FORWARD_CU, "rounded(h[e] + add[e], NEIGHBOUR_ELEMENT)", "h[e] + add[e]",
             "the norm reads h before it rounds, where a kernel of binary32 has 16-bit rows", tests=ON_STANDIN),
    Mutation("gate_of_x_slipped", GATE_DTYPE, "t[2] = {D(load)(by + i), D(load)(by + i + N(W))}",
             "t[2] = {D(load)(by + i), D(load)(by + i)}", "half of x is multiplied by another element's gate"),

    # ---- the door ----
    Mutation("gate_first_alone", "src/ops/norm/op.c", "gate_first == 0 || (gate_first == 1 && gate)",
             "gate_first == 0 || gate_first == 1", "gate_first is let in without a gate"),
    Mutation("unknown_activation", "src/ops/norm/op.c", "(unsigned)activation <= EK_GELU_TANH",
             "(unsigned)activation <= EK_GELU_TANH + 1", "an activation that there is not is let in"),
    Mutation("unknown_rounding", "src/ops/norm/op.c", "rounding == EK_ROUND_ONCE || rounding == EK_ROUND_EACH",
             "(int)rounding >= 0", "a rounding that there is not is let in"),
    Mutation("short_stride", "src/core/check_op.h", "*stride < inner ||", "*stride < inner - 1 ||",
             "rows that overlap by one element are let in"),
    Mutation("too_many_columns", "src/ops/norm/op.c", "FIELD(cols), 1, EK_MAX_COLS,",
             "FIELD(cols), 1, EK_MAX_COLS + 1,",
             "2^24 + 1 columns are let in"),
    Mutation("nan_eps", "src/core/check_op.h", "isgreaterequal(eps, 0.0) && isless(eps, (double)INFINITY)",
             "!isless(eps, 0.0) && !isgreaterequal(eps, (double)INFINITY)", "a NaN eps is let in"),
    Mutation("overlap_by_a_byte", "src/core/check.c", "return a->end <= b->begin || b->end <= a->begin;",
             "return a->end <= b->begin + 1 || b->end <= a->begin + 1;", "buffers that share a byte are let in"),
    Mutation("interleaving", "src/core/check.c", "offset >= low_bytes && offset + high_bytes <= period",
             "offset >= low_bytes", "rows that reach into the next row of another tensor are let in"),
    Mutation("in_place_stride", "src/core/check.c",
             "for (int dim = 0; same && dim < a->rank; dim++)", "for (int dim = 1; same && dim < a->rank; dim++)",
             "in place with two strides is let in"),
    Mutation("workspace_alignment", "src/core/check_op.h", "(uintptr_t)workspace % 64 == 0)",
             "(uintptr_t)workspace % 32 == 0)", "a workspace at 32 bytes is let in"),

    Mutation("other_kind", "src/core/check_op.h", "given && __builtin_expect(!ek_operand_has_kind(operand, kind), 0)",
             "given && __builtin_expect(kind < 0, 0)", "an operand that this kind of the op does not have is let in"),
    Mutation("needed_operand", "src/core/check_op.h", "if (operand->needs.number && given &&",
             "if (operand->needs.number > EK_MOST_OPERANDS && given &&", "mean is let in without rstd"),

    # ---- rows shared by threads ----
    Mutation("split_second_sum", "src/ops/norm/cpu_split.inc.h", "w->sums[1][k][part] = V(tree_sum)(&squares);",
             "w->sums[1][k][part] = V(tree_sum)(&sum);", "a part of a split row gives its sum for that of squares"),
    Mutation("split_parts_in_a_chain", "src/ops/norm/cpu_split.inc.h", "V(tree_add)(&tree, (real)parts[part]);",
             "tree.pending[0] = (tree.count ? tree.pending[0] : 0) + (real)parts[part], tree.count = 1;",
             "the parts of a split row are added one after another"),
    Mutation("split_last_part", "src/ops/norm/cpu_split.inc.h", "return smaller((part + 1) * w->part_cols, cols);",
             "return smaller((part + 1) * w->part_cols, cols - 1);", "the last column of a split row is left out"),
    Mutation("split_leaf", "src/ops/norm/cpu_split.c", "(size_t)(row / 2) * leaf_size", "(size_t)0 * leaf_size",
             "all pairs of split rows write one leaf of the column sums"),

    # ---- gated activations ----
    Mutation("glu_reference_offset_first", GLU_REFERENCE, "if (c->value_offset != 0)\n\t\tp.v = p.v + c->value_offset;",
             "if (c->value_offset != 0 && !c->clamped)\n\t\tp.v = p.v + c->value_offset;",
             "a value that may be clamped gets no offset, in the reference"),
    Mutation("glu_limit_on_one_side", GLU_ROWS, "V(at_least)(V(at_most)(*v, l->value_most), l->value_least)",
             "V(at_most)(*v, l->value_most)", "the value is clamped from above alone"),
    Mutation("glu_gradient_over_the_limit", GLU_ROWS, "V(if_less)(l->limit, over, zero, *dgate)",
             "V(if_less)(over, l->limit, *dgate, zero)", "no gradient where the gate equals the limit"),
    Mutation("glu_order_of_products", GLU_ROWS, "V(mul)(V(mul)(dy, v), slope)", "V(mul)(V(mul)(dy, slope), v)",
             "dy * slope first"),
    Mutation("glu_inverse_of_alpha", GLU_ROWS, "return V(mul)(LIMITED ? V(mul)(a, l->inverse) : a, v);",
             "return V(mul)(a, v);", "silu(alpha * x) without its factor"),
    Mutation("glu_sum_of_the_value", GLU_ROWS, "N(add_terms)(&columns, 1, start, dvalue, n);",
             "N(add_terms)(&columns, 1, start, dgate, n);", "dvalue_bias is the sum of dgate"),
    Mutation("glu_tail_of_a_bias", GLU_ROWS, "N(add)(bias, start, n, buffer);", "N(add)(bias, start, n - 1, buffer);",
             "the last element of a segment gets no bias"),
    Mutation("glu_lines", GLU_ROWS, "(uintptr_t)to->at % 64 == 0", "(uintptr_t)to->at % 2 == 0",
             "non-temporal stores of rows that do not start at a line"),
    Mutation("glu_direct_value", GLU_ROWS, "const bool plain = !task && a->value", "const bool plain = a->value",
             "no column sums where there are no biases"),
    Mutation("glu_division_of_units", "src/ops/glu/plan.c", "a->shift = 31 + shift;", "a->shift = 32 + shift;",
             "units are in half the row that they are in", tests=GLU_ON_STANDIN),
    Mutation("glu_last_row_of_dense", "src/ops/glu/plan.c", "a.cols = all % DENSE_COLS;",
             "a.cols = (all - 1) % DENSE_COLS;",
             "the last element of dense tensors is left out", tests=GLU_ON_STANDIN),
    Mutation("glu_tail_of_a_unit", GLU_ROWS_CU, "WHOLE || a->cols - p.col >= UNIT ? UNIT : (int)(a->cols - p.col)",
             "UNIT", "a unit that a row does not fill is written whole", tests=GLU_ON_STANDIN),
    Mutation("glu_gradient_beyond_on_gpus", GLU_ELEMENTS_CU, "const real over = t, beyond = M(magnitude)(v);",
             "const real over = t, beyond = v;", "a value below -limit has a gradient", tests=GLU_ON_STANDIN),
    Mutation("glu_pairs_on_gpus", GLU_ELEMENTS_CU, "p.v[e] = of_gate[2 * e + 1];", "p.v[e] = of_gate[2 * e];",
             "the gate is its own value in pairs", tests=GLU_ON_STANDIN),
    Mutation("glu_chunks_on_gpus", GLU_SUMS_CU, "if (i > 0 && i % CHUNK_ROWS == 0) {",
             "if (i > CHUNK_ROWS && i % CHUNK_ROWS == 0) {",
             "the first chunk of a slot has 64 rows", tests=GLU_ON_STANDIN),
    Mutation("glu_parts_on_gpus", GLU_SUMS_CU, "of_slots[k] = (k + 1) % parts == 0 ? sum : 0;", "of_slots[k] = own;",
             "chunks of a slot that warps share are added as a tree", tests=GLU_ON_STANDIN),
    Mutation("glu_ring_on_gpus", GLU_SUMS_CU, "FETCH_WAIT(STAGES - 1);", "FETCH_WAIT(STAGES);",
             "a row is read before it has come", tests=GLU_ON_STANDIN),

    # ---- RoPE and norms of heads ----
    Mutation("rope_reference_sign", ROPE_REFERENCE, "back ? second * sin : -(second * sin)", "-(second * sin)",
             "backward turns the same way as forward"),
    Mutation("rope_reference_weight", ROPE_REFERENCE, "x[i] = xhat[i] * NAME(weight)(c, side, i);", "x[i] = xhat[i];",
             "the weight of a head's norm is left out"),
    Mutation("rope_rows_of_batch", "src/ops/rope/op.h", "return b * call->table_step + call->offset + s;",
             "return call->offset + s;", "all sequences take the rows of the first"),
    Mutation("rope_trailing", "src/ops/rope/op.h", "(call->trailing ? call->head_dim - call->rotary_dim : 0)", "0",
             "the first elements of a head turn, also with trailing"),
    Mutation("rope_back", ROPE_TURN, "angles->sin[half + i] = back ? -sines[i] : sines[i];",
             "angles->sin[half + i] = sines[i];",
             "the second elements of pairs turn forward in backward"),
    Mutation("rope_partner", "src/cpu/simd.h", "return v##_load_part(p + (i ^ 1), n);",
             "return v##_load_part(p + i, n);",
             "an element is its own partner in the scalar kernels"),
    Mutation("rope_rest_of_a_head", ROPE_TURN, "if (x != y && rest)", "if (false && rest)",
             "elements that do not turn are not written"),
    Mutation("rope_order_of_angles", ROPE_HEADS, "\t\tdirect->order(angles->sin, c->rotary_dim);\n", "",
             "angles lie in another order than the elements of bf16", "avx512_bf16"),
    Mutation("rope_bias_of_the_next_head", ROPE_DIRECT, "h->bias.at + head * h->bias.stride",
             "h->bias.at + (head + 1) * h->bias.stride",
             "a head gets the bias of the next one"),
    Mutation("rope_order_of_sums", ROPE_DIRECT, "numbers[start + (int)index[i]] = ordered[i];",
             "numbers[start + i] = ordered[i];", "the gradient of a weight lies in the order of bf16's elements",
             "avx512_bf16"),
    Mutation("rope_chunks_of_heads", ROPE_HEADS, "count = smaller(count, N(rows_in_chunk)(&sums, row));", "(void)0;",
             "heads that go together cross the end of a chunk"),
    Mutation("rope_chain_of_slots", "src/cpu/columns.inc.h",
             "kind == COLUMNS_SLOTS ? V(add)(sum, V(mul)(a, b)) : V(fma)(a, b, sum)",
             "V(fma)(a, b, sum)",
             "two slots of one row each are one chain of fma"),
    Mutation("rope_weight_rows", ROPE_HEADS, "N(rows_are_in)(sums, row + i + 1);", "N(rows_are_in)(sums, row + 1);",
             "chunks of a weight's sum end with other heads"),
    Mutation("rope_normalized_weight", ROPE_HEADS, "N(multiply)(w->d, w->weight, dv, c->head_dim);",
             "N(multiply)(w->d, w->ones, dv, c->head_dim);", "the gradient of a head's norm leaves out the weight"),
    Mutation("rope_last_pass_writes", "src/ops/rope/cpu.c", "side->y && !side->dbias);", "side->y);",
             "dq is written before the gradient of the bias is summed, also where it lies over what is read"),
    Mutation("rope_positions_past_the_table", ROPE_OP, "position >= 0 && position < table_rows", "position >= 0",
             "a position past the table is taken"),
    Mutation("rope_table_too_short", ROPE_OP, "!overflows && end <= table_rows", "!overflows && end <= table_rows + 1",
             "the last token may be one row past the table"),
    Mutation("rope_overlapping_result", ROPE_OP, "REQUIRE(stride >= inside,", "REQUIRE(stride >= 0,",
             "a result may have elements that overlap"),
    Mutation("rope_slots_of_a_warp_on_gpus", "src/ops/rope/plan.c", "to->chunk_rows = (unsigned)to->slot_rows;", "",
             "two slots that a warp walks are added as one", tests=ROPE_ON_STANDIN),
    Mutation("rope_chunks_of_biases_on_gpus", ROPE_BIASES_CU, "\t\t\tin_chunk = 0;\n", "",
             "all chunks of a slot after the first are one", tests=ROPE_ON_STANDIN),
    Mutation("rope_next_sequence_on_gpus", ROPE_BIASES_CU, "wraps ? 0 : w->seq + 1;", "w->seq + 1;",
             "the first token of a sequence turns by the row after the last one", tests=ROPE_ON_STANDIN),
    Mutation("rope_turn_past_the_end_on_gpus", ROPE_BIASES_CU, "row + 1 < rows, &next)", "1, &next)",
             "the tables are read past their last row", tests=ROPE_ON_STANDIN),
    Mutation("packed_slices", "src/core/check.c",
             "if (low_bytes && high_bytes && offset >= low_bytes && offset + high_bytes <= period)",
             "if (low_bytes && high_bytes && offset >= low_bytes)",
             "a block may reach into the next one of another tensor"),

    # ---- threads and environment ----
    Mutation("last_task_dropped", "src/cpu/pool.c", "if (i >= tasks)", "if (i >= tasks - 1)",
             "the last task of a job is not run"),
    Mutation("fork_not_counted", "src/cpu/pool.c", "atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);",
             "atomic_fetch_add_explicit(&generation, 0, memory_order_relaxed);",
             "a child takes its parent's threads for its own"),
    Mutation("environment_kept", "src/cpu/fpenv.h", "if (!ek_fpenv_is_default(saved))\n\t\tek_fpenv_write((struct",
             "if (0)\n\t\tek_fpenv_write((struct", "the caller's rounding mode and flushing reach the kernels"),
    Mutation("environment_not_restored", "src/cpu/fpenv.h",
             "\tif (!ek_fpenv_is_default(saved))\n\t\tek_fpenv_write(saved);\n",
             "\t(void)saved;\n", "the caller's rounding mode is lost"),
]
