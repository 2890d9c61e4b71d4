/* What a kernel that was compiled for the CPU (words.h) and the emulator that runs it (emulator.c) know of each
 * other. SPDX-License-Identifier: MIT */
#ifndef STANDIN_MACHINE_H
#define STANDIN_MACHINE_H

#include <stddef.h>
#include <stdint.h>

/* A place in a kernel's text where a word stands; one object per place, so that pointers tell places apart. */
struct standin_place {
	const char *word, *function;
	int line;
};

/* Where the running thread is. */
struct standin_here {
	int thread, rank;
	int64_t block, blocks;
	unsigned char *shared;
};

/* A module's entry for a kernel: what dlsym finds under the kernel's name. */
struct standin_kernel {
	void (*run)(const void *arguments);
	size_t argument_bytes;
	int threads; /* the most that a block may have */
};

/* What the words call. */
struct standin_machine {
	const struct standin_here *const *here;

	/* Look at an access to global memory and count it, and do not return from a wrong one; give the address.
	 * Under 16 bytes may be shared memory's, too. */
	const void *(*reading)(const void *address, size_t bytes, const struct standin_place *place);
	void *(*writing)(void *address, size_t bytes, const struct standin_place *place);

	void (*start_fetch)(void *to, const void *from, int size, int bytes,
			    const struct standin_place *place);
	void (*fetch_close)(void);
	void (*fetch_wait)(int open, const struct standin_place *place);

	/* The value that lane `source` of the warp brings. */
	uint64_t (*exchange)(uint64_t value, int source, const struct standin_place *place);
	void (*sync_warp)(const struct standin_place *place);
	void (*sync_block)(const struct standin_place *place);
	void (*sync_some)(int barrier, int threads, const struct standin_place *place);
	void (*sync_cluster)(const struct standin_place *place);
	/* The mbarrier at an address of our own shared memory; sending gives the place of `own` in block `rank`. */
	void (*mbarrier_make)(void *box, const struct standin_place *place);
	void (*mbarrier_expect)(void *box, int bytes, const struct standin_place *place);
	void (*mbarrier_wait)(const void *box, int round, const struct standin_place *place);
	void *(*send)(const void *own, int rank, int bytes, const void *box,
		      const struct standin_place *place);

	/* The bytes of block `rank` of the cluster that are `own` in our shared memory. */
	void *(*remote)(const void *own, int rank, size_t bytes, const struct standin_place *place);

	void (*wait_for_kernels_before)(void);
};

/* What a module exports beside its kernels: standin_attach tells it the machine, standin_target what it was
 * compiled for. */
typedef void standin_attach_function(const struct standin_machine *machine);
struct standin_target {
	int arch;  /* 90 is 9.0 */
	int final; /* machine code, as opposed to PTX that a newer GPU's driver finishes */
};

#endif
