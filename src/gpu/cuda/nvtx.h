/* NVTX, which names stretches of time in NVIDIA's profilers, where it is installed. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_NVTX_H
#define EK_CUDA_NVTX_H

struct ek_nvtx {
	int (*push)(const char *name);
	int (*pop)(void);
};

/* NULL: it is not there. Looked for at the first call. */
const struct ek_nvtx *ek_nvtx_get(void);

#endif
