/* The texts of the norm kernels; gpu/text.h has those that all ops share. SPDX-License-Identifier: MIT */
#ifndef EK_OPS_NORM_TEXT_H
#define EK_OPS_NORM_TEXT_H

extern const char ek_text_norm_layout[];
extern const char ek_text_norm_rows[];
extern const char ek_text_norm_shift[];
extern const char ek_text_norm_strips[];
extern const char ek_text_norm_activation[];
extern const char ek_text_norm_sums[];
extern const char ek_text_norm_slots[];
extern const char ek_text_norm_forward[];
extern const char ek_text_norm_backward[];
extern const char ek_text_norm_staged[];

#endif
