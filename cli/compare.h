/* bench --compare: what changed since an older bench --json. SPDX-License-Identifier: MIT */
#ifndef CLI_COMPARE_H
#define CLI_COMPARE_H

#include "report.h"

struct json;

/* Reads the older file; returns an exit status. */
int compare_read(const char *path, struct json **old);

/* Shows the share of a copy before and now, cell by cell, and marks losses over 5 %. */
void compare_print(FILE *out, const struct json *old, const struct results *results);

#endif
