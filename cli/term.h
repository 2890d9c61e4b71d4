/* What depends on the terminal: colour, bars, the progress line. SPDX-License-Identifier: MIT */
#ifndef CLI_TERM_H
#define CLI_TERM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "cli.h"

enum style { STYLE_NONE, STYLE_BOLD, STYLE_DIM, STYLE_GOOD, STYLE_FAIR, STYLE_BAD };

/* The escape sequence that starts a style on out; "" in a pipe, with NO_COLOR and on dumb terminals. */
const char *term_style(FILE *out, enum style style);

/* Two spaces and a bar of `width` places, filled by fraction and coloured by it; nothing in a pipe. */
void term_bar(FILE *out, double fraction, int width);

/* A progress line on standard error, if that is a terminal and two seconds have passed. */
void progress_begin(int64_t total);
void progress_step(const char *format, ...) PRINTF_LIKE(1, 2);
/* Removes the line, before something else is printed and at the end. */
void progress_clear(void);

#endif
