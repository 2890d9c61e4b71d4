/* Column sums of a task's rows (rule 6): terms of rows into chunks, slots and leaves, leaves into an aligned subtree, and the
 * subtrees of all tasks into a gradient. Included by the CPU kernels of an op, with the words of level.inc.h.
 * Makes: N(columns), N(add_columns), N(column_sums), N(columns_for), N(plus_product), N(rows_in_chunk), N(rows_are_in), N(open_sums), N(finish_tree),
 * N(finish_gradient). SPDX-License-Identifier: MIT */

/* Where column sums come from and go: [cols] of each sum. mask 0: from +0. */
struct N(columns) {
	enum columns kind;
	const real *from;
	real *to;
	int64_t mask, cols;
};

struct N(column_tree) {
	int64_t leaves, cols, width; /* width: of all sums */
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
		N(add_columns)(tree->pending[level], tree->leaf, tree->leaf, tree->width);
	real *free = tree->pending[level];
	tree->pending[level] = tree->leaf;
	tree->leaf = free;
	tree->leaves++;
}

INLINE struct N(column_tree) N(tree_in)(void *scratch, int64_t rows, int64_t leaf_rows, int64_t cols, int sums)
{
	struct N(column_tree) tree = {.cols = cols, .width = sums * cols};
	real *next = scratch;
	tree.leaf = next;
	tree.chunk = next + tree.width;
	next += 2 * tree.width;
	for (int level = 0; level == 0 || (leaf_rows << level) < 2 * rows; level++, next += tree.width)
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
			N(add_columns)(tree->pending[level], sum, result, tree->width);
		sum = sum ? result : tree->pending[level];
	}
	if (!sum)
		memset(result, 0, (size_t)tree->width * sizeof(real));
	else if (sum != result)
		memcpy(result, sum, (size_t)tree->width * sizeof(real));
}

/* The column sums that a task adds up, and where its rows' go. */
struct N(column_sums) {
	const struct ek_column_task *task; /* NULL: not wanted */
	struct N(column_tree) tree;
	int64_t leaf_rows;
};

/* Rows from `row` on that may go together: none beyond the end of a chunk or a leaf. */
INLINE int64_t N(rows_in_chunk)(const struct N(column_sums) *sums, int64_t row)
{
	int64_t in_leaf = (row - sums->task->first_row) % sums->leaf_rows;
	return smaller(sums->leaf_rows - in_leaf, CHUNK_ROWS - in_leaf % CHUNK_ROWS);
}

/* Where rows from `row` on add theirs. */
INLINE struct N(columns) N(columns_for)(const struct N(column_sums) *sums, int64_t row)
{
	if (!sums->task)
		return (struct N(columns)){COLUMNS_NONE, V(zeros), NULL, 0, 0};
	int64_t in_leaf = (row - sums->task->first_row) % sums->leaf_rows;
	real *to = in_leaf >= CHUNK_ROWS ? sums->tree.chunk : sums->tree.leaf;
	bool begins = in_leaf % CHUNK_ROWS == 0;
	enum columns kind = sums->task->slot_rows == 1 ? COLUMNS_SLOTS : COLUMNS_CHAIN;
	return (struct N(columns)){kind, begins ? V(zeros) : to, to, begins ? 0 : -1, sums->tree.cols};
}

/* A column's sum and a term a * b. Slots of one row are sums of their own, which are added. */
INLINE vec N(plus_product)(enum columns kind, vec a, vec b, vec sum)
{
	return kind == COLUMNS_SLOTS ? V(add)(sum, V(mul)(a, b)) : V(fma)(a, b, sum);
}

/* Rows up to `end` are in: does a chunk or a leaf end here? */
INLINE void N(rows_are_in)(struct N(column_sums) *sums, int64_t end)
{
	int64_t in_leaf = (end - 1 - sums->task->first_row) % sums->leaf_rows + 1;
	bool leaf_ends = in_leaf == sums->leaf_rows || end == sums->task->end_row;
	if (in_leaf > CHUNK_ROWS && (leaf_ends || in_leaf % CHUNK_ROWS == 0))
		N(add_columns)(sums->tree.leaf, sums->tree.chunk, sums->tree.leaf, sums->tree.width);
	if (leaf_ends)
		N(push_leaf)(&sums->tree);
}

/* `count` sums of each column over the rows of task, if there is one. */
INLINE void N(open_sums)(struct N(column_sums) *sums, const struct ek_column_task *task, int64_t rows, int64_t cols, int count)
{
	sums->task = task;
	if (!task)
		return;
	sums->leaf_rows = ek_leaf_rows(task->slot_rows);
	sums->tree = N(tree_in)(task->scratch, rows, sums->leaf_rows, cols, count);
}

/* Columns first … end-1 of one gradient: the tree over the tasks' results, +0, the old value if asked for. */
INLINE void N(finish_gradient)(const real *results, int64_t count, int64_t stride, int64_t first, int64_t end,
			       bool accumulate, TW *gradient)
{
	for (int64_t i = first; i < end; i += N(W)) {
		int n = end - i < N(W) ? (int)(end - i) : N(W);
		vec a[EK_MOST_COLUMN_TASKS];
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
