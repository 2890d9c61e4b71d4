/* NVIDIA's libraries, wherever they were installed: the system, a CUDA toolkit, PyPI wheels, conda. nvrtc.c and
 * nvtx.c look here. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_LIBRARY_H
#define EK_CUDA_LIBRARY_H

#include <stddef.h>

struct ek_library {
	const char *const *names;  /* sonames, best first; NULL past the last */
	const char *const *wheels; /* folders of site-packages that hold them; NULL past the last */
};

/* Looks among what the process has loaded, on the system's paths, in the wheels of the Python that runs or
 * of $VIRTUAL_ENV, in $CONDA_PREFIX, and in the toolkits of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda.
 * The handle of dlopen and the file's path; NULL: not found. */
void *ek_library_open(const struct ek_library *library, char *path, size_t size);
/* This file and no other. */
void *ek_library_open_file(const char *file, char *path, size_t size);

#endif
