/* The sizes of the public structs that start with .size. A caller compiled against an earlier header passes a shorter
 * struct, a prefix of today's: input fields that it lacks are zero, output fields that it lacks are not written. Used
 * wherever such a struct enters the library. SPDX-License-Identifier: MIT */
#ifndef EK_CORE_VERSIONS_H
#define EK_CORE_VERSIONS_H

#include "require.h"

/* X(struct, its bytes in the first version that had it, offset of the first field added since). */
#define EK_VERSIONED_STRUCTS(X)                                                 \
	X(ek_options, 80, offsetof(ek_options, start_threads))                  \
	X(ek_description, 136, offsetof(ek_description, workers))               \
	X(ek_norm_forward_args, 128, offsetof(ek_norm_forward_args, h_dtype))   \
	X(ek_norm_backward_args, 176, offsetof(ek_norm_backward_args, h_dtype)) \
	X(ek_glu_forward_args, 136, sizeof(ek_glu_forward_args))                \
	X(ek_glu_backward_args, 208, sizeof(ek_glu_backward_args))              \
	X(ek_rope_forward_args, 336, sizeof(ek_rope_forward_args))              \
	X(ek_rope_backward_args, 464, sizeof(ek_rope_backward_args))            \
	X(ek_cost_args, 80, offsetof(ek_cost_args, with))                       \
	X(ek_cost, 44504, sizeof(ek_cost))                                      \
	X(ek_cost_list, 3808, sizeof(ek_cost_list))                             \
	X(ek_cuda_info, 1560, sizeof(ek_cuda_info))                             \
	X(ek_gpu_info, 128, sizeof(ek_gpu_info))

#define EK_FIRST_SIZE(type, bytes, added) EK_FIRST_SIZE_##type = bytes,
enum { EK_VERSIONED_STRUCTS(EK_FIRST_SIZE) };

/* Not in the padding of the first version either: its callers leave that uninitialised. */
#define EK_APPENDED(type, bytes, added)    \
	_Static_assert((added) == (bytes), \
		       #type ": append fields, and name the first, which starts at byte " #bytes);
EK_VERSIONED_STRUCTS(EK_APPENDED)
_Static_assert(sizeof(ek_cost_kernel) == 3392 && sizeof(ek_cost_symbol) == 24,
	       "ek_cost contains arrays of these, which cannot grow");

#define REQUIRE_SIZE(given, type)                                                                \
	do {                                                                                     \
		size_t given_ = (given);                                                         \
		if (__builtin_expect(given_ < EK_FIRST_SIZE_##type || given_ > sizeof(type), 0)) \
			return ek_fail_struct_size(#type, "", given_, sizeof(type));             \
	} while (0)

#endif
