/* The texts of GPU kernels, FILE as ek_text_NAME: CMakeLists.txt lists them, cmake/embed.cmake writes the definitions when the
 * library is built. Recipes (recipe.h) put them together. SPDX-License-Identifier: MIT */
#ifndef EK_GPU_TEXT_H
#define EK_GPU_TEXT_H

extern const char ek_text_words[];
extern const char ek_text_division[];
extern const char ek_text_order[];
extern const char ek_text_elements[];
extern const char ek_text_folds[];
extern const char ek_text_columns_layout[];
extern const char ek_text_columns[];
extern const char ek_text_copy[];
extern const char ek_text_flops[];
extern const char ek_text_math_constants[]; /* then math_words, then math: math/kernel.cu */
extern const char ek_text_math_words[];
extern const char ek_text_math[];

#endif
