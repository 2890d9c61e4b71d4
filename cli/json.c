/* A recursive-descent JSON reader. Called by compare.c and machine.c. SPDX-License-Identifier: MIT */
#include "json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64, MAX_FILE = 1 << 26 };

struct reader {
	const char *start, *at;
	const char *wrong; /* the first thing that is wrong */
	int depth;
};

static bool fail(struct reader *reader, const char *wrong)
{
	if (!reader->wrong)
		reader->wrong = wrong;
	return false;
}

static void skip_space(struct reader *reader)
{
	reader->at += strspn(reader->at, " \t\r\n");
}

static bool expect(struct reader *reader, char c, const char *wrong)
{
	skip_space(reader);
	if (*reader->at != c)
		return fail(reader, wrong);
	reader->at++;
	return true;
}

/* Escapes: of those by number only the ones below 128; our own files have no others. */
static bool read_escape(struct reader *reader, char *to)
{
	static const char letters[] = "\"\\/bfnrt";
	static const char meanings[] = "\"\\/\b\f\n\r\t";
	const char *found = *reader->at ? strchr(letters, *reader->at) : NULL;
	if (found) {
		*to = meanings[found - letters];
		reader->at++;
		return true;
	}
	unsigned code = 0;
	if (sscanf(reader->at, "u%4x", &code) != 1 || code == 0 || code > 127)
		return fail(reader, "an unknown escape");
	*to = (char)code;
	reader->at += 5;
	return true;
}

static bool read_string(struct reader *reader, char **text)
{
	if (!expect(reader, '"', "a string is missing"))
		return false;
	size_t most = strcspn(reader->at, "\n");
	char *to = *text = malloc(most + 1);
	if (!to)
		return fail(reader, "no memory");
	while (*reader->at != '"') {
		if ((unsigned char)*reader->at < 0x20) {
			*to = 0;
			return fail(reader, "a string does not end");
		}
		if (*reader->at == '\\') {
			reader->at++;
			if (!read_escape(reader, to)) {
				*to = 0;
				return false;
			}
			to++;
		} else {
			*to++ = *reader->at++;
		}
	}
	*to = 0;
	reader->at++;
	return true;
}

static bool read_number(struct reader *reader, struct json *json)
{
	char *end;
	if (*reader->at != '-' && (*reader->at < '0' || *reader->at > '9'))
		return fail(reader, "a value is missing");
	json->kind = JSON_NUMBER;
	json->number = strtod(reader->at, &end);
	if (end == reader->at)
		return fail(reader, "a number is malformed");
	reader->at = end;
	return true;
}

static bool read_word(struct reader *reader, struct json *json)
{
	static const struct {
		const char *word;
		enum json_kind kind;
		double number;
	} words[] = {{"null", JSON_NULL, 0}, {"true", JSON_BOOLEAN, 1}, {"false", JSON_BOOLEAN, 0}};
	for (int i = 0; i < 3; i++) {
		size_t length = strlen(words[i].word);
		if (strncmp(reader->at, words[i].word, length) == 0) {
			json->kind = words[i].kind;
			json->number = words[i].number;
			reader->at += length;
			return true;
		}
	}
	return read_number(reader, json);
}

static struct json *read_value(struct reader *reader);

static bool read_children(struct reader *reader, struct json *json, bool object)
{
	struct json **last = &json->first;
	char close = object ? '}' : ']';
	json->kind = object ? JSON_OBJECT : JSON_ARRAY;
	reader->at++;
	skip_space(reader);
	if (*reader->at == close) {
		reader->at++;
		return true;
	}
	for (;;) {
		char *name = NULL;
		if (object && (!read_string(reader, &name) || !expect(reader, ':', "a : is missing"))) {
			free(name);
			return false;
		}
		*last = read_value(reader);
		if (!*last) {
			free(name);
			return false;
		}
		(*last)->name = name;
		last = &(*last)->next;
		skip_space(reader);
		if (*reader->at != ',')
			return expect(reader, close, object ? "a , or } is missing" : "a , or ] is missing");
		reader->at++;
	}
}

static struct json *read_value(struct reader *reader)
{
	struct json *json = calloc(1, sizeof *json);
	bool fine = json != NULL;
	skip_space(reader);
	if (!fine || ++reader->depth > MAX_DEPTH) {
		fine = fail(reader, fine ? "it is nested too deeply" : "no memory");
	} else if (*reader->at == '{' || *reader->at == '[') {
		fine = read_children(reader, json, *reader->at == '{');
	} else if (*reader->at == '"') {
		json->kind = JSON_STRING;
		fine = read_string(reader, &json->text);
	} else {
		fine = read_word(reader, json);
	}
	reader->depth--;
	if (fine)
		return json;
	json_free(json);
	return NULL;
}

void json_free(struct json *json)
{
	while (json) {
		struct json *next = json->next;
		json_free(json->first);
		free(json->text);
		free(json->name);
		free(json);
		json = next;
	}
}

static char *read_file(const char *path, char *error, size_t error_size)
{
	FILE *file = fopen(path, "rb");
	char *text = file ? malloc(MAX_FILE) : NULL;
	if (!text) {
		(void)snprintf(error, error_size, "cannot be read (%s)", strerror(errno));
	} else {
		size_t length = fread(text, 1, MAX_FILE - 1, file);
		text[length] = 0;
		if (ferror(file) || !feof(file)) {
			(void)snprintf(error, error_size, "cannot be read (%s)",
				       ferror(file) ? strerror(errno) : "too long");
			free(text);
			text = NULL;
		}
	}
	if (file)
		(void)fclose(file);
	return text;
}

static void say_where(const struct reader *reader, char *error, size_t error_size)
{
	int line = 1;
	const char *line_start = reader->start;
	for (const char *p = reader->start; p < reader->at; p++)
		if (*p == '\n') {
			line++;
			line_start = p + 1;
		}
	(void)snprintf(error, error_size, "%s at line %d, column %d", reader->wrong, line,
		       (int)(reader->at - line_start) + 1);
}

struct json *json_parse(const char *text, char *error, size_t error_size)
{
	struct reader reader = {.start = text, .at = text};
	struct json *json = read_value(&reader);
	skip_space(&reader);
	if (json && *reader.at) {
		(void)fail(&reader, "there is more after the value");
		json_free(json);
		json = NULL;
	}
	if (!json)
		say_where(&reader, error, error_size);
	return json;
}

struct json *json_read(const char *path, char *error, size_t error_size)
{
	char *text = read_file(path, error, error_size);
	if (!text)
		return NULL;
	struct json *json = json_parse(text, error, error_size);
	free(text);
	return json;
}

const struct json *json_member(const struct json *object, const char *name)
{
	if (!object || object->kind != JSON_OBJECT)
		return NULL;
	for (const struct json *member = object->first; member; member = member->next)
		if (strcmp(member->name, name) == 0)
			return member;
	return NULL;
}

double json_number(const struct json *object, const char *name, double otherwise)
{
	const struct json *member = json_member(object, name);
	return member && member->kind == JSON_NUMBER ? member->number : otherwise;
}

const char *json_text(const struct json *object, const char *name, const char *otherwise)
{
	const struct json *member = json_member(object, name);
	return member && member->kind == JSON_STRING ? member->text : otherwise;
}
