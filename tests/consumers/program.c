/* An outside C program: normalises two rows and checks the first against the arithmetic by hand. Built by
 * run.py in every way that a user may. SPDX-License-Identifier: MIT */
#include <evenkeel.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	const float x[8] = {1, 2, 3, 4, -1, -1, 1, 1};
	float y[8] = {0};
	ek_context *ctx = NULL;

	if (strcmp(ek_version(), EK_VERSION_STRING) != 0) {
		printf("header %s, library %s\n", EK_VERSION_STRING, ek_version());
		return 1;
	}
	if (ek_open(&ctx, NULL) != EK_OK) {
		printf("ek_open: %s\n", ek_error(NULL));
		return 1;
	}
	ek_norm_forward_args args = {.size = sizeof args,
				     .norm = EK_LAYER_NORM,
				     .dtype = EK_F32,
				     .rows = 2,
				     .cols = 4,
				     .eps = 1e-5,
				     .x = x,
				     .y = y};
	ek_status status = ek_norm_forward(ctx, &args);
	if (status != EK_OK) {
		printf("%s: %s\n", ek_status_name(status), ek_error(ctx));
		return 1;
	}
	/* mean 2.5, variance 1.25: the first element is -1.5 / sqrt(1.25 + eps) */
	int right = fabsf(y[0] + 1.3416354f) < 1e-6f && y[3] == -y[0] && y[4] == -y[6];
	args.cols = -3;
	int refused = ek_norm_forward(ctx, &args) == EK_ERROR_ARGUMENT && strstr(ek_error(ctx), "-3");
	ek_close(ctx);
	printf("%s %g %g %g %g\n", right && refused ? "right" : "wrong", y[0], y[1], y[2], y[3]);
	return right && refused ? 0 : 1;
}
