/* The smallest use of evenkeel: normalise each row of a matrix, and say what went wrong if it fails.
 * Everything optional is left out of the argument struct: a field that is not named is zero.
 * SPDX-License-Identifier: MIT */
#include <evenkeel.h>

#include <stdio.h>

enum { ROWS = 2, COLS = 4 };

int main(void)
{
	const float x[ROWS][COLS] = {{1, 2, 3, 4}, {10001, 10002, 10003, 10004}};
	const float weight[COLS] = {1, 1, 1, 2};
	const float bias[COLS] = {0, 0, 0, 1};
	float y[ROWS][COLS];

	ek_context *ctx = NULL;
	if (ek_open(&ctx, NULL) != EK_OK) {
		fprintf(stderr, "forward: %s\n", ek_error(NULL));
		return 1;
	}
	const ek_norm_forward_args args = {
		.size = sizeof args,
		.norm = EK_LAYER_NORM,
		.dtype = EK_F32,
		.rows = ROWS,
		.cols = COLS,
		.eps = 1e-5,
		.x = x,
		.weight = weight,
		.bias = bias,
		.y = y,
	};
	ek_status status = ek_norm_forward(ctx, &args);
	if (status != EK_OK)
		fprintf(stderr, "forward: %s: %s\n", ek_status_name(status), ek_error(ctx));
	for (int r = 0; status == EK_OK && r < ROWS; r++)
		printf("%9.6f %9.6f %9.6f %9.6f\n", y[r][0], y[r][1], y[r][2], y[r][3]);
	ek_close(ctx);
	return status == EK_OK ? 0 : 1;
}
