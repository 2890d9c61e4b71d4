/* Files as the cache and the packs write and read them. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_FILE_H
#define EK_CUDA_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Writes folder/name whole or not at all: under another name first, then renamed. folder is a descriptor or
 * AT_FDCWD. 0, or errno's number, with nothing left behind. */
int ek_file_write(int folder, const char *name, mode_t mode, const void *data, size_t size);

/* Reads exactly size bytes at offset; false where the file has fewer. */
bool ek_file_read(int file, void *data, size_t size, off_t offset);

#endif
