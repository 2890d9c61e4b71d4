/* Machines out of files, of the program's own text, or measured here. Called by explain.c.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L

#include "machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "device.h"
#include "json.h"
#include "measure.h"

extern const char text_machine_h200[]; /* docs/results/machine-h200.json, by cmake/embed.cmake */
static const char how[] = "evenkeel info --measure FILE writes one";

/* ---- from JSON ---- */

/* Keeps the copies in the order of their sizes; of one size the fastest, which is that of all threads. */
static bool add_copy(struct machine *machine, double bytes, double rate)
{
	int at = 0;
	if (!(bytes >= 1 && rate >= 1 && bytes < 1e18 && rate < 1e18))
		return false;
	while (at < machine->copy_count && machine->copies[at].bytes < bytes)
		at++;
	if (at < machine->copy_count && machine->copies[at].bytes == bytes) {
		if (bytes / rate < machine->copies[at].seconds)
			machine->copies[at].seconds = bytes / rate;
		return true;
	}
	if (machine->copy_count == MOST_COPIES)
		return false;
	memmove(&machine->copies[at + 1], &machine->copies[at],
		(size_t)(machine->copy_count - at) * sizeof machine->copies[0]);
	machine->copies[at].bytes = bytes;
	machine->copies[at].seconds = bytes / rate;
	machine->copy_count++;
	return true;
}

static bool read_copies(struct machine *machine, const struct json *copies)
{
	if (!copies || copies->kind != JSON_ARRAY)
		return false;
	for (const struct json *copy = copies->first; copy; copy = copy->next)
		if (!add_copy(machine, json_number(copy, "bytes", 0),
			      json_number(copy, "bytes_per_second", 0)))
			return false;
	return machine->copy_count > 0;
}

static bool read_flops(struct machine *machine, const struct json *flops)
{
	static const char *const dtypes[] = {"f32", "f64"};
	if (!flops || flops->kind != JSON_ARRAY)
		return false;
	for (const struct json *rate = flops->first; rate; rate = rate->next)
		for (int i = 0; i < 2; i++) {
			double number = json_number(rate, "flops_per_second", 0);
			if (strcmp(json_text(rate, "dtype", ""), dtypes[i]) != 0)
				continue;
			if (!(number >= 1 && number < 1e21)) /* times stay finite, and JSON valid */
				return false;
			if (number > machine->flops[i])
				machine->flops[i] = number;
		}
	return machine->flops[0] > 0 && machine->flops[1] > 0;
}

/* The name stands in lines and in cells of tables: control characters and bars become spaces. */
static void take_name(struct machine *machine, const char *name)
{
	(void)snprintf(machine->name, sizeof machine->name, "%s", name);
	for (char *c = machine->name; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127 || *c == '|')
			*c = ' ';
}

/* A GPU or a CPU, which may name the GPU beside it; and what of a GPU decides how its kernels cut their work. */
static void read_device(struct machine *machine, const struct json *about)
{
	double multiprocessors = json_number(about, "multiprocessors", 0);
	const char *device = json_text(about, "device", *json_text(about, "gpu", "") ? "cuda" : "cpu");
	machine->gpu = strcmp(device, "cuda") == 0;
	take_name(machine, json_text(about, machine->gpu ? "gpu" : "cpu", "unnamed machine"));
	if (sscanf(json_text(about, "gpu_isa", ""), "sm_%4d", &machine->arch) != 1 || machine->arch < 0)
		machine->arch = 0;
	if (multiprocessors >= 1 && multiprocessors <= 10000)
		machine->multiprocessors = (int)multiprocessors;
}

/* Returns what is missing, NULL if nothing is. */
static const char *read_machine(struct machine *machine, const struct json *file)
{
	const struct json *about = json_member(file, "machine");
	if (!json_member(file, "evenkeel") || !about || about->kind != JSON_OBJECT)
		return "\"evenkeel\" and \"machine\"";
	read_device(machine, about);
	if (!read_copies(machine, json_member(file, "copy")))
		return "a list \"copy\" of bytes and bytes_per_second from 1 to 1e18";
	if (!read_flops(machine, json_member(file, "flops")))
		return "a list \"flops\" of f32 and f64 with flops_per_second from 1 to 1e21";
	return NULL;
}

static int take_json(struct machine *machine, const char *name, struct json *file, const char *error,
		     bool built_in)
{
	if (!file)
		return complain(STATUS_USAGE, "--machine %s: %s; %s", name, error, how);
	const char *missing = read_machine(machine, file);
	char version[32];
	(void)snprintf(version, sizeof version, "%s", json_text(file, "evenkeel", "?"));
	json_free(file);
	if (missing)
		return complain(STATUS_USAGE, "--machine %s: is no machine file, it lacks %s; %s", name,
				missing, how);
	/* What was measured is the machine's and not the version's. */
	if (!built_in && strcmp(version, ek_version()) != 0)
		(void)complain(STATUS_FINE,
			       "--machine %s: measured by evenkeel %s, this is %s; its figures are used",
			       name, version, ek_version());
	return STATUS_FINE;
}

/* What info --measure writes, of this machine. */
static int measure(struct machine *machine, bool gpu, const struct options *options)
{
	char *text = NULL, error[256] = "";
	size_t length;
	ek_context *ctx;
	int status = gpu ? device_open(&ctx, options) : open_context(&ctx, NULL, 0, 0);
	if (status != STATUS_FINE)
		return status;
	FILE *memory = open_memstream(&text, &length);
	if (!memory) {
		status = complain(STATUS_USAGE, "--machine this: no memory for what is measured (%s)",
				  strerror(errno));
	} else {
		status = measure_machine(ctx, true, gpu ? stderr : NULL, memory);
		if (fclose(memory) == 0 && status == STATUS_FINE)
			status = take_json(machine, "this", json_parse(text, error, sizeof error), error,
					   false);
		free(text);
	}
	ek_close(ctx);
	return status;
}

int machine_find(struct machine *machine, const char *name, bool gpu, const struct options *options)
{
	char error[256] = "";
	*machine = (struct machine){.copy_count = 0};
	if (strcmp(name, "this") == 0)
		return measure(machine, gpu, options);
	if (strcmp(name, "h200") == 0)
		return take_json(machine, name, json_parse(text_machine_h200, error, sizeof error), error,
				 true);
	struct json *file = json_read(name, error, sizeof error);
	return take_json(machine, name, file, error, false);
}

/* ---- the roofline ---- */

/* On a GPU time grows along straight lines between the sizes. What is smaller than all takes a launch, as the smallest
 * does; for what is larger this is too little. */
static double gpu_copy_seconds(const struct machine *machine, double bytes)
{
	int last = machine->copy_count - 1, at = 0;
	if (bytes <= machine->copies[0].bytes)
		return machine->copies[0].seconds;
	if (bytes >= machine->copies[last].bytes)
		return machine->copies[last].seconds;
	while (machine->copies[at + 1].bytes < bytes)
		at++;
	double from = machine->copies[at].bytes, to = machine->copies[at + 1].bytes;
	double share = (bytes - from) / (to - from);
	return machine->copies[at].seconds * (1 - share) + machine->copies[at + 1].seconds * share;
}

/* Tensors are not in a cache: smaller copies, which are, make nothing faster. On a CPU nothing is launched either. */
double machine_copy_seconds(const struct machine *machine, double bytes)
{
	double large = bytes / machine_bandwidth(machine);
	double small = machine->gpu && bytes > 0 ? gpu_copy_seconds(machine, bytes) : 0;
	return large > small ? large : small;
}

double machine_flop_rate(const struct machine *machine, ek_dtype dtype)
{
	return machine->flops[dtype == EK_F64];
}

/* Dense products of 16 bits in a clock of a multiprocessor, over its f32 fma: NVIDIA's architecture white papers. */
static double tensor_cores(int arch)
{
	static const struct {
		int arch, times;
	} known[] = {{70, 8}, {75, 8},  {80, 16},  {86, 4},   {87, 8},
		     {89, 4}, {90, 16}, {100, 32}, {103, 32}, {120, 4}};
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].arch == arch)
			return known[i].times;
	return 1;
}

double machine_product_rate(const struct machine *machine, ek_dtype dtype)
{
	bool tensor = machine->gpu && ek_dtype_size(dtype) == 2;
	return machine_flop_rate(machine, dtype) * (tensor ? tensor_cores(machine->arch) : 1);
}

double machine_bandwidth(const struct machine *machine)
{
	int last = machine->copy_count - 1;
	return machine->copies[last].bytes / machine->copies[last].seconds;
}
