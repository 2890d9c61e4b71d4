/* A recursive-descent reader of expressions. Called by tables.c and references.c.
 *     sum       = ["-"] product { ("+" | "-") product }
 *     product   = factor { "*" factor }
 *     factor    = number | name | "(" sum ")" | "${" name "}" "(" sum "," sum "," sum ")"
 * SPDX-License-Identifier: MIT */
#include "expression.h"

enum { MOST_DEPTH = 16 };

struct reader {
	const char *start, *at;
	const struct ek_meaning *meaning;
	struct ek_mistake mistake; /* the first */
	int depth;
};

static bool fail(struct reader *reader, const char *what, const char *at)
{
	if (!reader->mistake.what)
		reader->mistake = (struct ek_mistake){what, (size_t)(at - reader->start)};
	return false;
}

static void skip_space(struct reader *reader)
{
	reader->at += strspn(reader->at, " \t\n");
}

static bool take(struct reader *reader, char c)
{
	skip_space(reader);
	if (*reader->at != c)
		return false;
	reader->at++;
	return true;
}

static bool expect(struct reader *reader, char c, const char *what)
{
	return take(reader, c) || fail(reader, what, reader->at);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Letters, digits, underscores; in references dots, too. */
static size_t name_length(const char *at, bool dots)
{
	size_t length = 0;
	if (!is_letter(at[0]))
		return 0;
	while (is_letter(at[length]) || is_digit(at[length]) || (dots && at[length] == '.'))
		length++;
	return length;
}

static bool read_sum(struct reader *reader, struct ek_polynomial *value);

static bool read_number(struct reader *reader, struct ek_polynomial *value)
{
	const char *first = reader->at;
	int64_t number = 0;
	for (; is_digit(*reader->at); reader->at++)
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, *reader->at - '0', &number))
			return fail(reader, "a number does not fit 64 bits", first);
	if (is_letter(*reader->at) || *reader->at == '.')
		return fail(reader, "a number must be whole, with an operator behind it", reader->at);
	ek_polynomial_number(value, number);
	return true;
}

static bool read_name(struct reader *reader, struct ek_polynomial *value)
{
	const char *first = reader->at;
	size_t length = name_length(first, false);
	const char *wrong = reader->meaning->name(reader->meaning->user, first, length, value);
	reader->at += length;
	return wrong ? fail(reader, wrong, first) : true;
}

static bool read_arguments(struct reader *reader, struct ek_polynomial *arguments)
{
	if (!expect(reader, '(', "a reference must be followed by (batch_size, seq_len, hidden_size)"))
		return false;
	for (int i = 0; i < EK_REFERENCE_ARGUMENTS; i++) {
		bool last = i == EK_REFERENCE_ARGUMENTS - 1;
		if (!read_sum(reader, &arguments[i]) ||
		    !expect(reader, last ? ')' : ',',
			    last ? "a reference has three arguments: a ) is missing"
				 : "a reference has three arguments: a , is missing"))
			return false;
	}
	return true;
}

static bool read_reference(struct reader *reader, struct ek_polynomial *value)
{
	struct ek_polynomial arguments[EK_REFERENCE_ARGUMENTS];
	const struct ek_meaning *meaning = reader->meaning;
	reader->at++;
	if (*reader->at != '{')
		return fail(reader, "a { must follow the $ of a reference", reader->at);
	const char *name = ++reader->at;
	size_t length = name_length(name, true);
	if (length == 0)
		return fail(reader, "a name is missing", name);
	reader->at += length;
	if (*reader->at != '}')
		return fail(reader, "a } is missing", reader->at);
	reader->at++;
	/* An unknown name is said before its arguments are looked at. */
	const char *wrong = meaning->reference ? meaning->reference(meaning->user, name, length, NULL, NULL)
					       : "there are no references here";
	if (wrong)
		return fail(reader, wrong, name);
	if (!read_arguments(reader, arguments))
		return false;
	wrong = meaning->reference(meaning->user, name, length, arguments, value);
	return wrong ? fail(reader, wrong, name) : true;
}

static bool read_factor(struct reader *reader, struct ek_polynomial *value)
{
	skip_space(reader);
	if (*reader->at == '$')
		return read_reference(reader, value);
	if (is_digit(*reader->at))
		return read_number(reader, value);
	if (is_letter(*reader->at))
		return read_name(reader, value);
	if (*reader->at != '(')
		return fail(reader, "a number, a variable, a reference or a ( is missing", reader->at);
	reader->at++;
	return read_sum(reader, value) && expect(reader, ')', "a ) is missing");
}

static bool read_product(struct reader *reader, struct ek_polynomial *value)
{
	if (!read_factor(reader, value))
		return false;
	while (take(reader, '*')) {
		struct ek_polynomial factor;
		const char *first = reader->at;
		if (!read_factor(reader, &factor))
			return false;
		const char *wrong = ek_polynomial_multiply(value, value, &factor);
		if (wrong)
			return fail(reader, wrong, first);
	}
	return true;
}

/* Adds the product behind a sign. */
static bool add_product(struct reader *reader, struct ek_polynomial *value, int sign)
{
	struct ek_polynomial product, signs;
	const char *first = reader->at;
	if (!read_product(reader, &product))
		return false;
	ek_polynomial_number(&signs, sign);
	const char *wrong = ek_polynomial_multiply(&product, &product, &signs);
	if (!wrong)
		wrong = ek_polynomial_add(value, value, &product);
	return wrong ? fail(reader, wrong, first) : true;
}

static bool read_sum(struct reader *reader, struct ek_polynomial *value)
{
	int sign = take(reader, '-') ? -1 : 1;
	ek_polynomial_number(value, 0);
	skip_space(reader);
	if (++reader->depth > MOST_DEPTH)
		return fail(reader, "it is nested more than 16 deep", reader->at);
	bool fine = add_product(reader, value, sign);
	while (fine) {
		if (take(reader, '+'))
			sign = 1;
		else if (take(reader, '-'))
			sign = -1;
		else
			break;
		fine = add_product(reader, value, sign);
	}
	reader->depth--;
	return fine;
}

struct ek_mistake ek_expression_read(const char *text, const struct ek_meaning *meaning,
				     struct ek_polynomial *value)
{
	struct reader reader = {.start = text, .at = text, .meaning = meaning};
	if (read_sum(&reader, value)) {
		skip_space(&reader);
		if (*reader.at)
			(void)fail(&reader, "an operator (+, - or *) is missing", reader.at);
	}
	return reader.mistake;
}
