/* A small JSON reader, for the files that the program writes. SPDX-License-Identifier: MIT */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stddef.h>

enum json_kind { JSON_NULL, JSON_BOOLEAN, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
	enum json_kind kind;
	double number;      /* a boolean is 0 or 1 */
	char *text;         /* of a string */
	char *name;         /* of a member of an object */
	struct json *first; /* of an array's or object's children */
	struct json *next;  /* sibling */
};

/* Reads a file. NULL with a message (what is wrong, line and column) in error if it is not JSON. */
struct json *json_read(const char *path, char *error, size_t error_size);
/* The same of a text. */
struct json *json_parse(const char *text, char *error, size_t error_size);
void json_free(struct json *json);

/* The member of an object, NULL if there is none. */
const struct json *json_member(const struct json *object, const char *name);
/* The member's number or text, or the default if it is not there or of another kind. */
double json_number(const struct json *object, const char *name, double otherwise);
const char *json_text(const struct json *object, const char *name, const char *otherwise);

#endif
