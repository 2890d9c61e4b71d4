/* The kernels' texts, src/cuda/kernels/NAME.cu as ek_text_NAME: cmake/embed.cmake writes the definitions when
 * the library is built. Recipes (kernel.h) put them together. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_TEXT_H
#define EK_CUDA_TEXT_H

extern const char ek_text_words[];
extern const char ek_text_division[];
extern const char ek_text_norm_rows[];
extern const char ek_text_norm_shift[];
extern const char ek_text_norm_sums[];
extern const char ek_text_norm_slots[];
extern const char ek_text_norm_forward[];
extern const char ek_text_norm_backward[];
extern const char ek_text_norm_wide[];
extern const char ek_text_norm_columns[];
extern const char ek_text_copy[];
extern const char ek_text_flops[];

#endif
