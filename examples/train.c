/* A training loop: forward, loss, backward, update. It learns the weight and bias of a LayerNorm that
 * made the targets, from inputs whose mean lies far from zero, and prints the loss as it falls.
 * SPDX-License-Identifier: MIT */
#include <evenkeel.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 256, COLS = 96, STEPS = 100 };
static const double eps = 1e-5;
static const float learning_rate = 0.1f;

static float x[ROWS * COLS], y[ROWS * COLS], target[ROWS * COLS], dy[ROWS * COLS];
static float mean[ROWS], rstd[ROWS], mean_lo[ROWS];
static float weight[COLS], bias[COLS], dweight[COLS], dbias[COLS];

/* Uniform in [-1, 1), the same numbers on every machine. */
static float uniform(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (float)(int32_t)*state / 2147483648.0f;
}

/* Ends the program where a call failed; the message names the argument and its value. */
static void check(const ek_context *ctx, ek_status status)
{
	if (status == EK_OK)
		return;
	fprintf(stderr, "train: %s: %s\n", ek_status_name(status), ek_error(ctx));
	exit(1);
}

/* y = LayerNorm(x), keeping the statistics that backward wants. */
static void forward(ek_context *ctx, const float *w, const float *b, float *out)
{
	const ek_norm_forward_args args = {
		.size = sizeof args,
		.norm = EK_LAYER_NORM,
		.dtype = EK_F32,
		.rows = ROWS,
		.cols = COLS,
		.eps = eps,
		.x = x,
		.weight = w,
		.bias = b,
		.y = out,
		.mean = mean,
		.rstd = rstd,
		.mean_lo = mean_lo,
	};
	check(ctx, ek_norm_forward(ctx, &args));
}

/* Half the mean squared error, summed over the columns; dy becomes its gradient. */
static double loss_and_gradient(void)
{
	double loss = 0;
	for (int i = 0; i < ROWS * COLS; i++) {
		float miss = y[i] - target[i];
		loss += 0.5 * miss * miss / ROWS;
		dy[i] = miss / ROWS;
	}
	return loss;
}

static void update(float *parameter, const float *gradient)
{
	for (int j = 0; j < COLS; j++)
		parameter[j] -= learning_rate * gradient[j];
}

int main(void)
{
	uint32_t seed = 1;
	float true_weight[COLS], true_bias[COLS];
	for (int i = 0; i < ROWS * COLS; i++)
		x[i] = 1000 + uniform(&seed);
	for (int j = 0; j < COLS; j++) {
		true_weight[j] = 1 + uniform(&seed);
		true_bias[j] = uniform(&seed);
		weight[j] = 1;
	}

	ek_context *ctx = NULL;
	check(NULL, ek_open(&ctx, NULL));
	forward(ctx, true_weight, true_bias, target);

	/* dx is not asked for: this layer is the first of its network. */
	ek_norm_backward_args backward = {
		.size = sizeof backward,
		.norm = EK_LAYER_NORM,
		.dtype = EK_F32,
		.rows = ROWS,
		.cols = COLS,
		.dy = dy,
		.x = x,
		.weight = weight,
		.mean = mean,
		.rstd = rstd,
		.mean_lo = mean_lo,
		.dweight = dweight,
		.dbias = dbias,
	};
	check(ctx, ek_norm_backward_workspace(ctx, &backward, &backward.workspace_size));
	backward.workspace = aligned_alloc(64, (backward.workspace_size + 63) / 64 * 64);
	if (backward.workspace_size > 0 && !backward.workspace) {
		fprintf(stderr, "train: out of memory\n");
		return 1;
	}

	double first = 0, loss = 0;
	for (int step = 0; step < STEPS; step++) {
		forward(ctx, weight, bias, y);
		loss = loss_and_gradient();
		if (step == 0)
			first = loss;
		if (step % 20 == 0 || step == STEPS - 1)
			printf("step %2d  loss %.3e\n", step, loss);
		check(ctx, ek_norm_backward(ctx, &backward));
		update(weight, dweight);
		update(bias, dbias);
	}
	free(backward.workspace);
	ek_close(ctx);
	if (!(loss < first * 1e-6)) {
		fprintf(stderr, "train: the loss went from %g to %g\n", first, loss);
		return 1;
	}
	return 0;
}
