// An outside C++ program, backward this time: without weights, dx of a constant dy is zero. Built by run.py.
// SPDX-License-Identifier: MIT
#include <evenkeel.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main()
{
	const std::vector<float> x = {1, 2, 3, 4, -1, -1, 1, 1}, dy(8, 2.0f);
	std::vector<float> dx(8, 9.0f);
	ek_context *ctx = nullptr;
	ek_options options = ek_options();
	options.size = sizeof options;
	options.threads = 1;
	if (ek_open(&ctx, &options) != EK_OK) {
		std::printf("ek_open: %s\n", ek_error(nullptr));
		return 1;
	}
	ek_norm_backward_args args = ek_norm_backward_args();
	args.size = sizeof args;
	args.norm = EK_LAYER_NORM;
	args.dtype = EK_F32;
	args.rows = 2;
	args.cols = 4;
	args.eps = 1e-5;
	args.x = x.data();
	args.dy = dy.data();
	args.dx = dx.data();
	ek_status status = ek_norm_backward(ctx, &args);
	if (status != EK_OK)
		std::printf("%s: %s\n", ek_status_name(status), ek_error(ctx));
	bool right = status == EK_OK;
	for (float value : dx)
		right = right && std::fabs(value) < 1e-5f;
	ek_close(ctx);
	std::printf("%s %g %g\n", right ? "right" : "wrong", dx[0], dx[7]);
	return right ? 0 : 1;
}
