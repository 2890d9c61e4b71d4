/* The one way to more than one thread. Called by the CPU backends of the ops. SPDX-License-Identifier: MIT */
#include "tasks.h"

#include "fpenv.h"
#include "pool.h"

struct job {
	void (*run)(void *arg, int64_t i);
	void *arg;
};

/* On a caller's thread, whose floating-point environment is the caller's. */
static void run_foreign(void *task, int64_t i)
{
	const struct job *job = task;
	struct ek_fpenv saved = ek_fpenv_enter();
	job->run(job->arg, i);
	ek_fpenv_leave(saved);
}

void ek_run_tasks(const ek_context *ctx, int64_t count, void (*run)(void *arg, int64_t i), void *arg)
{
	if (count > 1 && ctx->parallel_for) {
		struct job job = {run, arg};
		ctx->parallel_for(ctx->parallel_user, count, run_foreign, &job);
	} else if (count > 1 && ctx->pool) {
		ek_pool_run(ctx->pool, count, run, arg);
	} else {
		for (int64_t i = 0; i < count; i++)
			run(arg, i);
	}
}
