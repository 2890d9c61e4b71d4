/* Whole files, written at once: what cache.c and pack.c keep. SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
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

/* A new file; its name is written to temporary. -1 and errno. A number that a killed process of the same id, or one
 * in another container, has left behind is skipped. */
static int create_temporary(int folder, const char *name, mode_t mode, char *temporary, size_t room)
{
	static atomic_uint counter;
	int file;
	do {
		int length = snprintf(temporary, room, "%s.%ld.%u.tmp", name, (long)getpid(),
				      atomic_fetch_add(&counter, 1));
		if (length < 0 || (size_t)length >= room) {
			errno = ENAMETOOLONG;
			return -1;
		}
		file = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	} while (file < 0 && errno == EEXIST);
	return file;
}

int ek_file_write(int folder, const char *name, mode_t mode, const void *data, size_t size)
{
	char temporary[1024];
	int file = create_temporary(folder, name, mode, temporary, sizeof temporary);
	if (file < 0)
		return errno;
	int error = fill(file, data, size);
	if (error == 0 && renameat(folder, temporary, folder, name) != 0)
		error = errno;
	if (error != 0)
		(void)unlinkat(folder, temporary, 0);
	return error;
}

/* Where the ".NUMBER" begins that ends at `end`; `end` where there is none. */
static size_t before_number(const char *name, size_t end)
{
	size_t start = end;
	while (start > 0 && name[start - 1] >= '0' && name[start - 1] <= '9')
		start--;
	return start > 0 && start < end && name[start - 1] == '.' ? start - 1 : end;
}

size_t ek_file_final_length(const char *name)
{
	static const char ending[] = ".tmp";
	const size_t length = strlen(name), tail = sizeof ending - 1;
	if (length <= tail || strcmp(name + length - tail, ending) != 0)
		return length;
	const size_t pid_end = before_number(name, length - tail);
	const size_t name_end = before_number(name, pid_end);
	return name_end < pid_end && pid_end < length - tail ? name_end : length;
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
