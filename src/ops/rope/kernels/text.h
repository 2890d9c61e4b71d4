/* The texts of the kernels of rotary position embedding; gpu/text.h has those that all ops share. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_ROPE_TEXT_H
#define EK_OPS_ROPE_TEXT_H

extern const char ek_text_rope_layout[];
extern const char ek_text_rope_heads[];
extern const char ek_text_rope_norms[];
extern const char ek_text_rope_rows[];
extern const char ek_text_rope_turn[];
extern const char ek_text_rope_weights[];
extern const char ek_text_rope_biases[];

#endif
