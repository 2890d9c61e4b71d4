/* evenkeel verify: each case once at the reference, then at every level and with several numbers of threads, or
 * on a GPU, compared bit for bit. SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "heads.h"
#include "options.h"
#include "problem.h"
#include "term.h"
#include "timing.h"

enum { MAX_LEVELS = 16, MAX_CONTEXTS = 64, LARGE = 1000000 };

/* How a level is run: no number of threads and no way of storing may change a bit. */
struct setting {
	int threads;
	bool large;           /* also on large shapes, where every run takes its time */
	int64_t stream_bytes; /* 0 the default, 1 always past the caches, -1 never */
};

static const struct setting settings[] = {{1, true, 0}, {2, false, 1}, {3, true, 0}, {7, false, -1}};
static const struct setting settings_of_one[] = {{0, true, 0}, {0, true, 1}, {0, true, -1}}; /* --threads */

_Static_assert(MAX_LEVELS *(sizeof settings / sizeof settings[0]) <= MAX_CONTEXTS,
	       "there is room for all contexts");

struct verify {
	const struct options *options;
	ek_context *reference;
	ek_context *contexts[MAX_CONTEXTS];
	bool large[MAX_CONTEXTS];
	int context_count;
	const char *levels[MAX_LEVELS];
	int level_count;
	int cases;
	double values;
};

static int open_level(struct verify *verify, const char *level)
{
	int threads = verify->options->threads;
	const struct setting *list = threads ? settings_of_one : settings;
	size_t count = threads ? sizeof settings_of_one / sizeof *list : sizeof settings / sizeof *list;
	verify->levels[verify->level_count++] = level;
	for (size_t i = 0; i < count; i++) {
		int at = verify->context_count;
		int status = open_context(&verify->contexts[at], level, threads ? threads : list[i].threads,
					  list[i].stream_bytes);
		if (status != STATUS_FINE)
			return status;
		verify->large[at] = list[i].large;
		verify->context_count++;
	}
	return STATUS_FINE;
}

/* The level asked for, or all that this CPU can run; the reference itself only if asked for. */
static int open_levels(struct verify *verify)
{
	const char *asked_for = verify->options->isa;
	const char *name;
	int usable;
	int status = STATUS_FINE;
	for (int i = 0; status == STATUS_FINE && (name = ek_cpu_level(i, &usable)) && i < MAX_LEVELS; i++) {
		bool wanted = asked_for ? strcmp(name, asked_for) == 0 : strcmp(name, "reference") != 0;
		if (wanted && usable)
			status = open_level(verify, name);
	}
	return status;
}

/* A GPU's kernels have one setting: how they cut the work is their own choice. */
static int open_gpu(struct verify *verify)
{
	int status = device_open(&verify->contexts[0], verify->options);
	if (status == STATUS_FINE) {
		verify->large[0] = true;
		verify->context_count = 1;
	}
	return status;
}

static int open_all(struct verify *verify)
{
	int status = open_context(&verify->reference, "reference", 1, 0);
	if (status != STATUS_FINE)
		return status;
	return verify->options->device == EK_CPU ? open_levels(verify) : open_gpu(verify);
}

static int verify_case(struct verify *verify, const struct listed_case *listed)
{
	static struct problem problem;
	struct difference difference;
	bool large = case_shape(&listed->c).rows * case_shape(&listed->c).cols > LARGE;
	int status = problem_make(&problem, verify->reference, listed);
	if (status == STATUS_FINE)
		status = problem_compute(&problem, verify->reference, &problem.expected);
	for (int i = 0; i < verify->context_count && status == STATUS_FINE; i++) {
		if (large && !verify->large[i])
			continue;
		status = problem_compute(&problem, verify->contexts[i], &problem.actual);
		if (status != STATUS_FINE)
			break;
		if (!outputs_same(&problem.expected, &problem.actual, &difference))
			status = show_difference(&problem, &difference, verify->contexts[i], verify->options,
						 "verify");
		verify->values += outputs_values(&problem.actual);
	}
	verify->cases++;
	if (large)
		problem_free(&problem); /* cases that follow are smaller */
	return status;
}

static int verify_cases(struct verify *verify)
{
	int count;
	int status = STATUS_FINE;
	struct listed_case *cases = cases_list(verify->options, false, &count);
	if (!cases)
		return complain(
			STATUS_USAGE,
			"not enough memory for a list of %d cases (%zu bytes): name fewer, by --quick or --shapes",
			count, (size_t)count * sizeof *cases);
	progress_begin(count);
	for (int i = 0; i < count && status == STATUS_FINE; i++) {
		const struct test_case *test_case = &cases[i].c;
		progress_step("%s %s %s %lldx%lld, %s", test_case->op->name, pass_names[test_case->pass],
			      ek_dtype_name(test_case->dtype), (long long)case_shape(test_case).rows,
			      (long long)case_shape(test_case).cols, cases[i].form);
		status = verify_case(verify, &cases[i]);
	}
	progress_clear();
	free(cases);
	if (count == 0)
		return complain(STATUS_USAGE, "nothing to verify: no case has these options together");
	return status;
}

static void print_threads(const struct options *options)
{
	if (options->threads)
		printf("%d thread%s", options->threads, options->threads == 1 ? "" : "s");
	else
		printf("1, 2, 3 and 7 threads");
}

static void print_summary(const struct verify *verify, double seconds)
{
	printf("%sall equal%s  %d cases, %.0f values, bit for bit, in %.1f s\n",
	       term_style(stdout, STYLE_GOOD), term_style(stdout, STYLE_NONE), verify->cases, verify->values,
	       seconds);
	if (verify->options->device != EK_CPU) {
		printf("  device     %s; against reference\n", device_words(verify->contexts[0]).text);
		return;
	}
	printf("  levels     ");
	for (int i = 0; i < verify->level_count; i++)
		printf("%s%s", i ? ", " : "", verify->levels[i]);
	printf("; ");
	print_threads(verify->options);
	printf("; against reference\n");
}

int command_verify(const struct options *options)
{
	struct verify verify = {.options = options};
	double start = seconds_now();
	int status = open_all(&verify);
	if (status == STATUS_FINE)
		status = verify_cases(&verify);
	if (status == STATUS_FINE)
		print_summary(&verify, seconds_now() - start);
	else if (status == STATUS_CHECK_FAILED)
		printf("FAILED at case %d; the cases before it were equal\n", verify.cases);
	for (int i = 0; i < verify.context_count; i++)
		ek_close(verify.contexts[i]);
	ek_close(verify.reference);
	return status;
}
