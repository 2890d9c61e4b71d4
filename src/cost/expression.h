/* Expressions: sums, differences and products of whole numbers, names and references ${name}(…, …, …). The tables of
 * kernels (tables.c) and what users ask for (references.c) are written in them. SPDX-License-Identifier: MIT */
#ifndef EK_COST_EXPRESSION_H
#define EK_COST_EXPRESSION_H

#include <string.h>

#include "polynomial.h"

enum { EK_REFERENCE_ARGUMENTS = 3 };

/* What names mean. Each function returns NULL, or what is wrong with the name or its arguments. */
struct ek_meaning {
	const char *(*name)(void *user, const char *name, size_t length, struct ek_polynomial *value);
	/* NULL: there are no references. Asked twice: whether the name is known, arguments and value NULL; then for
	 * its value. */
	const char *(*reference)(void *user, const char *name, size_t length,
				 const struct ek_polynomial *arguments, struct ek_polynomial *value);
	void *user;
};

/* Where the text is wrong, and how. */
struct ek_mistake {
	const char *what; /* NULL: nothing */
	size_t at;
};

/* Whether the `length` characters at name are the known name. */
static inline bool ek_is_named(const char *known, const char *name, size_t length)
{
	return strlen(known) == length && memcmp(known, name, length) == 0;
}

/* Reads all of text. */
struct ek_mistake ek_expression_read(const char *text, const struct ek_meaning *meaning,
				     struct ek_polynomial *value);

#endif
