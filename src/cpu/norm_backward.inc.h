/* The backward kernel, rules 5 and 6 of docs/numerics.md: rows in pairs, which share the loads of weight and of
 * the column sums; the pair to come is fetched meanwhile. Included by norm_kernels.inc.h. SPDX-License-Identifier: MIT */

struct N(grad_row) {
	const T *x, *dy;
	T *dx;
	struct N(stats) stats;
	real mean_g, mean_g_xhat;
};

/* Where column sums of a pair come from and go: [cols] of dweight, then [cols] of dbias. mask 0: from +0. */
struct N(columns) {
	const real *from;
	real *to;
	int64_t mask, cols;
};

/* One register of columns, the first n (1 … W) of it, at column i of `count` rows. */
INLINE void N(reduce_terms)(const int count, const enum columns kind, const struct N(grad_row) *r, int64_t i, int n,
			    const struct N(affine) *f, const struct N(columns) *c, const bool centred, const bool first,
			    vec *g_xhat[2], vec *g_sum[2])
{
	const bool part = n != N(W);
	vec w = part ? B(load_part)(f->weight + (i & f->weight_mask), n) : B(load)(f->weight + (i & f->weight_mask));
	vec dy[2], xhat[2], dw, db;
	UNROLL for (int k = 0; k < count; k++) {
		dy[k] = part ? A(load_part)(r[k].dy + i, n) : A(load)(r[k].dy + i);
		xhat[k] = N(xhat)(part ? A(load_part)(r[k].x + i, n) : A(load)(r[k].x + i), &r[k].stats, centred);
		if (part)
			xhat[k] = V(first)(xhat[k], n); /* 0 * infinity must not come in */
		IN_REGISTER(dy[k]);
		vec g = V(mul)(dy[k], w);
		*g_xhat[k] = first ? V(mul)(g, xhat[k]) : V(fma)(g, xhat[k], *g_xhat[k]);
		if (centred)
			*g_sum[k] = first ? g : V(add)(*g_sum[k], g);
	}
	if (kind == COLUMNS_NONE)
		return;
	if (kind == COLUMNS_EACH) {
		dw = V(mul)(dy[0], xhat[0]);
		db = dy[0];
		if (count == 2) {
			dw = V(add)(dw, V(mul)(dy[1], xhat[1]));
			db = V(add)(db, dy[1]);
		}
	} else {
		const real *from = c->from + (i & c->mask), *from_db = from + (c->cols & c->mask);
		dw = part ? V(load_part)(from, n) : V(load)(from);
		db = part ? V(load_part)(from_db, n) : V(load)(from_db);
		UNROLL for (int k = 0; k < count; k++) {
			dw = V(fma)(dy[k], xhat[k], dw);
			db = V(add)(db, dy[k]);
		}
	}
	if (part) {
		V(store_part)(c->to + i, dw, n);
		V(store_part)(c->to + c->cols + i, db, n);
	} else {
		V(store)(c->to + i, dw);
		V(store)(c->to + c->cols + i, db);
	}
}

/* The block of lanes at column `from`; n elements are left in the segment from there. */
INLINE void N(reduce_block)(const int count, const enum columns kind, const struct N(grad_row) *r, int64_t from,
			    int64_t n, const struct N(affine) *f, const struct N(columns) *c, struct fetch *ahead,
			    const bool centred, vec g_xhat[2][GROUP], vec g_sum[2][GROUP])
{
	const int fetch = count * N(BLOCK) * (int)sizeof(T) / 2;
	int64_t at = 0;
#define TERMS(v, n, first)                                                                                     \
	N(reduce_terms)(count, kind, r, from + at + (v) * N(W), n, f, c, centred, first,                           \
			(vec *[2]){&g_xhat[0][v], &g_xhat[1][v]}, (vec *[2]){&g_sum[0][v], &g_sum[1][v]})
	if (n >= N(BLOCK)) {
		fetch_ahead(&ahead[0], fetch);
		fetch_ahead(&ahead[1], fetch);
		UNROLL for (int v = 0; v < GROUP; v++)
			TERMS(v, N(W), true);
		at = LANES;
	} else {
		UNROLL for (int v = 0; v < GROUP; v++)
			g_xhat[0][v] = g_xhat[1][v] = g_sum[0][v] = g_sum[1][v] = V(splat)(0);
	}
	for (; at + N(BLOCK) <= n; at += LANES) {
		fetch_ahead(&ahead[0], fetch);
		fetch_ahead(&ahead[1], fetch);
		UNROLL for (int v = 0; v < GROUP; v++)
			TERMS(v, N(W), false);
	}
	UNROLL for (int v = 0; v < GROUP; v++) {
		int64_t left = n - at - v * N(W);
		if (left <= 0)
			break;
		if (left >= N(W))
			TERMS(v, N(W), false);
		else
			TERMS(v, (int)left, false);
	}
#undef TERMS
}

/* The segment of n columns at `start`: sums of g * xhat and of g. */
INLINE void N(reduce_segment)(const int count, const enum columns kind, const struct N(grad_row) *rows, int64_t start,
			      int64_t n, const struct N(affine) *f, const struct N(columns) *c, struct fetch *ahead,
			      const bool centred, real g_xhat[2], real g_sum[2])
{
	struct N(grad_row) r[2] = {rows[0], rows[count - 1]};
	struct N(affine) weights = *f; /* copies, which no store of the loop can change */
	struct N(columns) columns = {0};
	struct fetch fetch[2] = {ahead[0], ahead[1]};
	if (kind != COLUMNS_NONE)
		columns = *c;
	vec a[2][N(BLOCKS)], b[2][N(BLOCKS)];
	for (int block = 0; block < N(BLOCKS); block++) {
		int64_t at = (int64_t)block * N(BLOCK);
		vec lanes[2][GROUP], sums[2][GROUP];
		N(reduce_block)(count, kind, r, start + at, n - at, &weights, &columns, fetch, centred, lanes, sums);
		UNROLL for (int k = 0; k < count; k++) {
			a[k][block] = V(narrow)(lanes[k]);
			if (centred)
				b[k][block] = V(narrow)(sums[k]);
		}
	}
	UNROLL for (int k = 0; k < count; k++) {
		g_xhat[k] = V(sum)(a[k]);
		g_sum[k] = centred ? V(sum)(b[k]) : 0;
	}
	ahead[0] = fetch[0];
	ahead[1] = fetch[1];
}

#define REDUCE(name, count, kind, centred)                                                                     \
	OUTLINE void N(name)(const struct N(grad_row) *rows, int64_t start, int64_t n, const struct N(affine) *f,  \
			     const struct N(columns) *c, struct fetch *ahead, real g_xhat[2], real g_sum[2])               \
	{                                                                                                          \
		N(reduce_segment)(count, kind, rows, start, n, f, c, ahead, centred, g_xhat, g_sum);                   \
	}
#define REDUCE_KINDS(name, count, centred)             \
	REDUCE(name##_none, count, COLUMNS_NONE, centred)  \
	REDUCE(name##_each, count, COLUMNS_EACH, centred)  \
	REDUCE(name##_chain, count, COLUMNS_CHAIN, centred)
REDUCE_KINDS(reduce_centred_one, 1, true)
REDUCE_KINDS(reduce_centred_two, 2, true)
REDUCE_KINDS(reduce_rms_one, 1, false)
REDUCE_KINDS(reduce_rms_two, 2, false)
#undef REDUCE_KINDS
#undef REDUCE

typedef void N(reduce)(const struct N(grad_row) *, int64_t, int64_t, const struct N(affine) *,
		       const struct N(columns) *, struct fetch *, real[2], real[2]);

static N(reduce) *const N(reduces)[2][2][3] = {
	{{N(reduce_rms_one_none), N(reduce_rms_one_each), N(reduce_rms_one_chain)},
	 {N(reduce_rms_two_none), N(reduce_rms_two_each), N(reduce_rms_two_chain)}},
	{{N(reduce_centred_one_none), N(reduce_centred_one_each), N(reduce_centred_one_chain)},
	 {N(reduce_centred_two_none), N(reduce_centred_two_each), N(reduce_centred_two_chain)}},
};

/* ---- dx ---- */

INLINE vec N(dx)(vec x, vec dy, vec w, const struct N(grad_row) *r, const bool centred)
{
	vec xhat = N(xhat)(x, &r->stats, centred), g = V(mul)(dy, w), a = V(splat)(r->mean_g_xhat);
	vec d = centred ? V(sub)(g, V(fma)(xhat, a, V(splat)(r->mean_g))) : V(fnma)(xhat, a, g);
	return V(mul)(d, V(splat)(r->stats.rstd));
}

/* Columns from … to-1 of `count` rows. With stream, dx + from is aligned to a line. */
INLINE void N(write_dx)(const int count, const struct N(grad_row) *rows, const struct N(affine) *affine, int64_t from,
			int64_t to, struct fetch *ahead, const bool centred, const bool stream)
{
	struct N(affine) f = *affine;
	struct N(grad_row) r[2] = {rows[0], rows[count - 1]};
	struct fetch fetch[2] = {ahead[0], ahead[1]};
	int64_t i = from;
	for (; i + 2 * N(W) <= to; i += 2 * N(W)) {
		vec w0 = B(load)(f.weight + (i & f.weight_mask)), w1 = B(load)(f.weight + ((i + N(W)) & f.weight_mask));
		vec dx[2][2];
		UNROLL for (int k = 0; k < count; k++) {
			dx[k][0] = N(dx)(A(load)(r[k].x + i), A(load)(r[k].dy + i), w0, &r[k], centred);
			dx[k][1] = N(dx)(A(load)(r[k].x + i + N(W)), A(load)(r[k].dy + i + N(W)), w1, &r[k], centred);
		}
		ALL_LOADED;
		UNROLL for (int k = 0; k < count; k++) {
			if (stream)
				A(stream2)(r[k].dx + i, dx[k][0], dx[k][1]);
			else
				A(store2)(r[k].dx + i, dx[k][0], dx[k][1]);
		}
		fetch_ahead(&fetch[0], count * N(W) * (int)sizeof(T));
		fetch_ahead(&fetch[1], count * N(W) * (int)sizeof(T));
	}
	for (; i < to; i += N(W)) {
		int n = to - i < N(W) ? (int)(to - i) : N(W);
		vec w = B(load_part)(f.weight + (i & f.weight_mask), n);
		for (int k = 0; k < count; k++) {
			vec dx = N(dx)(A(load_part)(r[k].x + i, n), A(load_part)(r[k].dy + i, n), w, &r[k], centred);
			A(store_part)(r[k].dx + i, dx, n);
		}
	}
	ahead[0] = fetch[0];
	ahead[1] = fetch[1];
}

#define WRITE_DX(name, count, centred)                                                                         \
	OUTLINE void N(name)(const struct N(grad_row) *rows, const struct N(affine) *f, int64_t from, int64_t to,  \
			     struct fetch *ahead, bool stream)                                                         \
	{                                                                                                          \
		if (stream)                                                                                            \
			N(write_dx)(count, rows, f, from, to, ahead, centred, true);                                       \
		else                                                                                                   \
			N(write_dx)(count, rows, f, from, to, ahead, centred, false);                                      \
	}
WRITE_DX(write_dx_centred_one, 1, true)
WRITE_DX(write_dx_centred_two, 2, true)
WRITE_DX(write_dx_rms_one, 1, false)
WRITE_DX(write_dx_rms_two, 2, false)
#undef WRITE_DX

OUTLINE void N(write_dx_segment)(const struct N(grad_row) *rows, int count, const struct N(affine) *f, int64_t start,
				int64_t cols, struct fetch *ahead, bool centred, bool stream)
{
	struct span spans[2][2];
	if (write_spans(count, rows[0].dx, rows[count - 1].dx, sizeof(T), start, cols, stream, spans)) {
		struct span s = spans[0][1];
		(centred ? N(write_dx_centred_two) : N(write_dx_rms_two))(rows, f, s.from, s.to, ahead, stream);
		return;
	}
	for (int k = 0; k < count; k++)
		for (int part = 0; part < 2; part++) {
			struct span s = spans[k][part];
			if (s.from < s.to)
				(centred ? N(write_dx_centred_one) : N(write_dx_rms_one))(rows + k, f, s.from, s.to, ahead,
											  stream && part);
		}
}

/* ---- column sums: leaves into an aligned subtree ---- */

struct N(column_tree) {
	int64_t leaves, cols;
	real *leaf, *chunk, *pending[64];
};

OUTLINE void N(add_columns)(const real *a, const real *b, real *to, int64_t n)
{
	int64_t i = 0;
	for (; i + N(W) <= n; i += N(W))
		V(store)(to + i, V(add)(V(load)(a + i), V(load)(b + i)));
	for (; i < n; i++)
		to[i] = a[i] + b[i];
}

/* A leaf is full: it joins the subtrees of its size that wait for it. */
INLINE void N(push_leaf)(struct N(column_tree) *tree)
{
	int level = 0;
	for (; tree->leaves >> level & 1; level++)
		N(add_columns)(tree->pending[level], tree->leaf, tree->leaf, 2 * tree->cols);
	real *free = tree->pending[level];
	tree->pending[level] = tree->leaf;
	tree->leaf = free;
	tree->leaves++;
}

INLINE struct N(column_tree) N(tree_in)(void *scratch, int64_t rows, int64_t leaf_rows, int64_t cols)
{
	struct N(column_tree) tree = {.cols = cols};
	real *next = scratch;
	tree.leaf = next;
	tree.chunk = next + 2 * cols;
	next += 4 * cols;
	for (int level = 0; level == 0 || (leaf_rows << level) < 2 * rows; level++, next += 2 * cols)
		tree.pending[level] = next;
	return tree;
}

INLINE void N(finish_tree)(struct N(column_tree) *tree, real *result)
{
	const real *sum = NULL;
	for (int level = 0; tree->leaves >> level; level++) {
		if (!(tree->leaves >> level & 1))
			continue;
		if (sum)
			N(add_columns)(tree->pending[level], sum, result, 2 * tree->cols);
		sum = sum ? result : tree->pending[level];
	}
	if (!sum)
		memset(result, 0, 2 * (size_t)tree->cols * sizeof(real));
	else if (sum != result)
		memcpy(result, sum, 2 * (size_t)tree->cols * sizeof(real));
}

/* ---- rows ---- */

struct N(grad_pair) {
	struct N(grad_row) rows[2];
	int count;
};

INLINE real N(given)(const void *tensor, int64_t row)
{
	real value = 0;
	if (tensor)
		memcpy(&value, (const real *)tensor + row, sizeof value);
	return value;
}

/* The pair's pointers and statistics: the given ones, or x's own. */
INLINE struct N(grad_pair) N(grad_pair_at)(const ek_norm_backward_args *a, int64_t row, int64_t end, const bool centred)
{
	struct N(grad_pair) p = {.count = end - row >= 2 ? 2 : 1};
	for (int k = 0; k < p.count; k++) {
		p.rows[k].x = (const T *)a->x + (row + k) * a->x_stride;
		p.rows[k].dy = (const T *)a->dy + (row + k) * a->dy_stride;
		p.rows[k].dx = a->dx ? (T *)a->dx + (row + k) * a->dx_stride : NULL;
		p.rows[k].stats = (struct N(stats)){N(given)(a->mean, row + k), N(given)(a->mean_lo, row + k),
						    N(given)(a->rstd, row + k), 0};
		N(set_shift)(&p.rows[k].stats);
	}
	if (!a->rstd) {
		struct fetch none = {0};
		const T *const x[2] = {p.rows[0].x, p.rows[1].x};
		struct N(stats) *stats[2] = {&p.rows[0].stats, &p.rows[1].stats};
		N(first_sweep)(x, p.count, a->cols, (real)a->eps, &none, stats, centred);
		if (centred)
			N(second_sweep)(x, p.count, a->cols, (real)a->eps, &none, stats);
	}
	return p;
}

/* Row sums of a pair, and its part of the column sums. */
INLINE void N(reduce_pair)(const ek_norm_backward_args *a, struct N(grad_pair) *p, const struct N(affine) *f,
			   enum columns kind, const struct N(columns) *c, struct fetch *ahead, const bool centred)
{
	N(reduce) *reduce = N(reduces)[centred][p->count - 1][kind];
	struct V(tree) g_xhat[2], g_sum[2];
	g_xhat[0].count = g_xhat[1].count = g_sum[0].count = g_sum[1].count = 0;
	for (int64_t start = 0; start < a->cols; start += SEGMENT) {
		real s[2], t[2];
		reduce(p->rows, start, N(segment_length)(a->cols, start), f, c, ahead, s, t);
		for (int k = 0; k < p->count; k++) {
			V(tree_add)(&g_xhat[k], s[k]);
			V(tree_add)(&g_sum[k], t[k]);
		}
	}
	for (int k = 0; k < p->count; k++) {
		p->rows[k].mean_g_xhat = V(tree_sum)(&g_xhat[k]) / (real)a->cols;
		p->rows[k].mean_g = V(tree_sum)(&g_sum[k]) / (real)a->cols;
	}
}

/* Where the pair at `row` of the task adds its column sums. */
INLINE void N(reduce_into_tree)(const ek_norm_backward_args *a, const struct ek_column_task *task, int64_t row,
				struct N(grad_pair) *p, const struct N(affine) *f, struct N(column_tree) *tree,
				struct fetch *ahead, const bool centred)
{
	int64_t leaf_rows = ek_leaf_rows(task->slot_rows), in_leaf = (row - task->first_row) % leaf_rows;
	int64_t in_chunk = in_leaf % EK_CHUNK_ROWS;
	bool later_chunk = in_leaf >= EK_CHUNK_ROWS;
	real *to = later_chunk ? tree->chunk : tree->leaf;
	struct N(columns) c = {in_chunk ? to : V(zeros), to, in_chunk ? -1 : 0, tree->cols};
	N(reduce_pair)(a, p, f, task->slot_rows == 1 ? COLUMNS_EACH : COLUMNS_CHAIN, &c, ahead, centred);
	bool leaf_ends = in_leaf + 2 >= leaf_rows || row + 2 >= task->end_row;
	if (later_chunk && (leaf_ends || in_chunk + 2 == EK_CHUNK_ROWS))
		N(add_columns)(tree->leaf, tree->chunk, tree->leaf, 2 * tree->cols);
	if (leaf_ends)
		N(push_leaf)(tree);
}

/* Rows first … end-1; the column sums of task, if there is one. */
INLINE void N(backward_rows)(const ek_norm_backward_args *a, int64_t first, int64_t end,
			     const struct ek_column_task *task, bool stream, const bool centred)
{
	struct N(affine) f = N(affine_of)(a->weight, NULL);
	struct N(column_tree) tree = {0};
	int64_t bytes = a->cols * (int64_t)sizeof(T);
	struct fetch ahead[2] = {fetch_rows(a->x, first + 2, end, bytes, a->x_stride * (int64_t)sizeof(T)),
				 fetch_rows(a->dy, first + 2, end, bytes, a->dy_stride * (int64_t)sizeof(T))};
	if (task)
		tree = N(tree_in)(task->scratch, end - first, ek_leaf_rows(task->slot_rows), a->cols);
	for (int64_t row = first; row < end; row += 2) {
		struct N(grad_pair) pair = N(grad_pair_at)(a, row, end, centred);
		ahead[0].due += ahead[0].rows ? 2 * bytes : 0;
		ahead[1].due += ahead[1].rows ? 2 * bytes : 0;
		for (int k = 0; stream && k < pair.count; k++)
			fetch_edges(pair.rows[k].dx, bytes);
		if (task)
			N(reduce_into_tree)(a, task, row, &pair, &f, &tree, ahead, centred);
		else
			N(reduce_pair)(a, &pair, &f, COLUMNS_NONE, NULL, ahead, centred);
		for (int64_t start = 0; a->dx && start < a->cols; start += SEGMENT)
			N(write_dx_segment)(pair.rows, pair.count, &f, start, a->cols, ahead, centred, stream);
		fetch_rest(&ahead[0]);
		fetch_rest(&ahead[1]);
	}
	if (task)
		N(finish_tree)(&tree, task->result);
	if (stream)
		stream_fence();
}

static void N(backward)(const ek_norm_backward_args *a, int64_t first, int64_t end, bool stream)
{
	if (a->norm == EK_LAYER_NORM)
		N(backward_rows)(a, first, end, NULL, stream, true);
	else
		N(backward_rows)(a, first, end, NULL, stream, false);
}

static void N(backward_with_sums)(const ek_norm_backward_args *a, const struct ek_column_task *task, bool stream)
{
	if (a->norm == EK_LAYER_NORM)
		N(backward_rows)(a, task->first_row, task->end_row, task, stream, true);
	else
		N(backward_rows)(a, task->first_row, task->end_row, task, stream, false);
}

/* Columns first … end-1 of one gradient: the tree over the tasks' results, +0, the old value if asked for. */
INLINE void N(finish_gradient)(const real *results, int64_t count, int64_t stride, int64_t first, int64_t end,
			       bool accumulate, TW *gradient)
{
	for (int64_t i = first; i < end; i += N(W)) {
		int n = end - i < N(W) ? (int)(end - i) : N(W);
		vec a[EK_MAX_COLUMN_TASKS];
		for (int64_t task = 0; task < count; task++)
			a[task] = V(load_part)(results + task * stride + i, n);
		for (int64_t h = 1; h < count; h *= 2)
			for (int64_t task = 0; task + h < count; task += 2 * h)
				a[task] = V(add)(a[task], a[task + h]);
		a[0] = V(add)(a[0], V(splat)(0));
		if (accumulate)
			a[0] = V(add)(B(load_part)(gradient + i, n), a[0]);
		B(store_part)(gradient + i, a[0], n);
	}
}

static void N(finish_columns)(const ek_norm_backward_args *args, const void *results, int64_t count, int64_t first,
			      int64_t end)
{
	const real *of_weight = results, *of_bias = of_weight + args->cols;
	int64_t stride = 2 * args->cols;
	if (args->dweight)
		N(finish_gradient)(of_weight, count, stride, first, end, args->accumulate, args->dweight);
	if (args->dbias)
		N(finish_gradient)(of_bias, count, stride, first, end, args->accumulate, args->dbias);
}
