/* Recipes, text by text and option by option. SPDX-License-Identifier: MIT */
#include "recipe.h"

#include <stdarg.h>
#include <stdio.h>

void ek_recipe_add_text(struct ek_recipe *recipe, const char *text)
{
	if (recipe->text_count == EK_RECIPE_TEXTS)
		recipe->too_long = true;
	else
		recipe->texts[recipe->text_count++] = text;
}

__attribute__((format(printf, 2, 3))) static void add_option(struct ek_recipe *recipe, const char *format,
							     ...)
{
	va_list values;
	if (recipe->option_count == EK_RECIPE_OPTIONS) {
		recipe->too_long = true;
		return;
	}
	char *option = recipe->options[recipe->option_count++];
	va_start(values, format);
	recipe->too_long |= vsnprintf(option, sizeof recipe->options[0], format, values) >=
			    (int)sizeof recipe->options[0];
	va_end(values);
}

void ek_recipe_define(struct ek_recipe *recipe, const char *name, int value)
{
	add_option(recipe, "-D%s=%d", name, value);
}

void ek_recipe_name(struct ek_recipe *recipe, const char *format, ...)
{
	va_list values;
	va_start(values, format);
	recipe->too_long |=
		vsnprintf(recipe->name, sizeof recipe->name, format, values) >= (int)sizeof recipe->name;
	va_end(values);
	add_option(recipe, "-DKERNEL_NAME=%s", recipe->name);
}
