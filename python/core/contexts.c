/* Contexts are opened when first asked for and stay open: idle they cost nothing, and a thread may be inside one
 * at any time. The list is read and changed under Python's lock alone, which a fork also holds.
 * SPDX-License-Identifier: MIT */
#include "contexts.h"

#include <stdlib.h>

#include "failure.h"
#include "stable_abi.h"

struct entry {
	ek_device device;
	int ordinal;
	int threads; /* of the CPU; 0 on GPUs */
	ek_context *context;
	struct entry *next;
};

static struct entry *entries;

static ek_context *add(ek_device device, int ordinal, int threads)
{
	struct entry *entry = malloc(sizeof *entry);
	if (!entry) {
		PyErr_NoMemory();
		return NULL;
	}
	*entry = (struct entry){.device = device, .ordinal = ordinal, .threads = threads, .next = entries};
	const ek_options options = {.size = sizeof options,
				    .device = device,
				    .ordinal = ordinal,
				    .threads = threads,
				    .trust_pointers =
					    1}; /* frame.c compares the devices that frameworks report */
	ek_status status = ek_open(&entry->context, &options);
	if (status != EK_OK) {
		free(entry);
		(void)raise_status(status);
		return NULL;
	}
	entries = entry;
	return entry->context;
}

ek_context *context_of(ek_device device, int ordinal, int threads)
{
	if (device == EK_CUDA)
		threads = 0;
	for (const struct entry *entry = entries; entry; entry = entry->next)
		if (entry->threads == threads && entry->device == device && entry->ordinal == ordinal)
			return entry->context;
	return add(device, ordinal, threads);
}
