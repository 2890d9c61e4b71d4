/* Files as the cache and the packs write and read them. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_FILE_H
#define EK_CUDA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes folder/name whole or not at all: into a temporary, NAME.PID.NUMBER.tmp, that is then renamed. folder is
 * a descriptor or AT_FDCWD. Returns 0, or errno and leaves nothing behind. */
int ek_file_write(int folder, const char *name, mode_t mode, const void *data, size_t size);

/* The length of NAME in NAME.PID.NUMBER.tmp, which a killed process leaves behind; strlen(name) for other names. */
size_t ek_file_final_length(const char *name);

/* Reads exactly size bytes at offset; false where the file has fewer. */
bool ek_file_read(int file, void *data, size_t size, off_t offset);

#endif
