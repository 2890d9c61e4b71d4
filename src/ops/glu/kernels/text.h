/* The texts of the kernels of gated activations; gpu/text.h has those that all ops share. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_GLU_TEXT_H
#define EK_OPS_GLU_TEXT_H

extern const char ek_text_glu_layout[];
extern const char ek_text_glu_elements[];
extern const char ek_text_glu_rows[];
extern const char ek_text_glu_sums[];

#endif
