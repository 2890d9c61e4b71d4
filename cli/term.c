/* Colour, bars and progress: on a terminal only, so that a pipe gets plain text. Called by all commands.
 * SPDX-License-Identifier: MIT */
#define _POSIX_C_SOURCE 200809L
#include "term.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "timing.h"

static bool is_terminal(FILE *out)
{
	const char *term = getenv("TERM");
	return isatty(fileno(out)) && !(term && strcmp(term, "dumb") == 0);
}

const char *term_style(FILE *out, enum style style)
{
	static const char *const escapes[] = {"\033[0m",  "\033[1m",  "\033[2m",
					      "\033[32m", "\033[33m", "\033[31m"};
	const char *no_color = getenv("NO_COLOR");
	if ((no_color && *no_color) || !is_terminal(out))
		return "";
	return escapes[style];
}

static bool speaks_utf8(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
	for (int i = 0; i < 3; i++) {
		const char *value = getenv(names[i]);
		if (value && *value)
			return strstr(value, "UTF-8") || strstr(value, "utf8");
	}
	return false;
}

void term_bar(FILE *out, double fraction, int width)
{
	static const char *const eighths[] = {"",       "\u258f", "\u258e", "\u258d",
					      "\u258c", "\u258b", "\u258a", "\u2589"};
	if (!is_terminal(out))
		return;
	if (fraction < 0 || fraction > 1)
		fraction = fraction < 0 ? 0 : 1;
	bool fine = speaks_utf8();
	int filled = (int)(fraction * width * 8 + 0.5);
	(void)fputs("  ", out);
	(void)fputs(term_style(out, fraction >= 0.75  ? STYLE_GOOD
				    : fraction >= 0.5 ? STYLE_FAIR
						      : STYLE_BAD),
		    out);
	for (int i = 0; i < filled / 8; i++)
		(void)fputs(fine ? "\u2588" : "#", out);
	bool part = fine && filled % 8;
	if (part)
		(void)fputs(eighths[filled % 8], out);
	(void)fputs(term_style(out, STYLE_NONE), out);
	(void)fprintf(out, "%*s", width - filled / 8 - (part ? 1 : 0), "");
}

static struct {
	double begun, shown;
	int64_t total, step;
	bool line;
} progress;

void progress_begin(int64_t total)
{
	progress.begun = progress.shown = seconds_now();
	progress.total = total;
	progress.step = 0;
	progress.line = false;
}

void progress_step(const char *format, ...)
{
	double now = seconds_now();
	int64_t step = progress.step++;
	if (now - progress.begun < 2 || now - progress.shown < 0.1 || !is_terminal(stderr))
		return;
	progress.shown = now;
	progress.line = true;
	double left = step ? (now - progress.begun) / (double)step * (double)(progress.total - step) : 0;
	(void)fprintf(stderr, "\r\033[K%3d %%  ", (int)(100 * step / (progress.total ? progress.total : 1)));
	va_list arguments;
	va_start(arguments, format);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	(void)fprintf(stderr, "  (about %.0f s left)", left);
	(void)fflush(stderr);
}

void progress_clear(void)
{
	if (!progress.line)
		return;
	(void)fputs("\r\033[K", stderr);
	(void)fflush(stderr);
	progress.line = false;
}
