/* The tree of rule 2 of docs/numerics.md, for the references of the ops, in the arithmetic `real`. Makes: NAME(fold).
 * SPDX-License-Identifier: MIT */

/* Folds n numbers by the tree of rule 2, neighbours first. */
static real NAME(fold)(real *a, int64_t n, int64_t stride)
{
	for (int64_t h = 1; h < n; h *= 2)
		for (int64_t i = 0; i + h < n; i += 2 * h)
			a[i * stride] = a[i * stride] + a[(i + h) * stride];
	return a[0];
}
