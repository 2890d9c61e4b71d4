/* Whole files, written at once: what cache.c and pack.c keep. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(int file, const char *data, size_t size)
{
	while (size > 0) {
		ssize_t written = write(file, data, size);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			return written < 0 ? errno : EIO;
		data += written;
		size -= (size_t)written;
	}
	return 0;
}

/* On the disk before the name is: a crash leaves the old file or the new one, never an empty one. */
static int fill(int file, const void *data, size_t size)
{
	int error = write_all(file, data, size);
	if (error == 0 && fsync(file) != 0)
		error = errno;
	if (close(file) != 0 && error == 0)
		error = errno;
	return error;
}

int ek_file_write(int folder, const char *name, mode_t mode, const void *data, size_t size)
{
	static atomic_uint counter;
	char temporary[1024];
	int length = snprintf(temporary, sizeof temporary, "%s.%ld.%u.tmp", name, (long)getpid(),
			      atomic_fetch_add(&counter, 1));
	if (length < 0 || (size_t)length >= sizeof temporary)
		return ENAMETOOLONG;
	int file = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (file < 0)
		return errno;
	int error = fill(file, data, size);
	if (error == 0 && renameat(folder, temporary, folder, name) != 0)
		error = errno;
	if (error != 0)
		(void)unlinkat(folder, temporary, 0);
	return error;
}

bool ek_file_read(int file, void *data, size_t size, off_t offset)
{
	char *to = data;
	while (size > 0) {
		ssize_t got = pread(file, to, size, offset);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		to += got;
		offset += got;
		size -= (size_t)got;
	}
	return true;
}
