/* What check_op.h leaves to functions: the overlap of memory, and the messages. Each ek_fail_… names the argument and its
 * value, and what is expected. SPDX-License-Identifier: MIT */
#ifndef EK_CORE_CHECK_H
#define EK_CORE_CHECK_H

#include "context.h"
#include "operand.h"
#include "status.h"

extern const struct ek_operand ek_workspace_operand; /* of any op */
struct ek_regions;
ek_status ek_check_regions(const struct ek_regions *regions);

#define EK_COLD __attribute__((cold, noinline))
EK_COLD ek_status ek_fail_null(const struct ek_op *op, const ek_context *ctx);
EK_COLD ek_status ek_fail_args_size(const struct ek_op *op, size_t size);
EK_COLD ek_status ek_fail_size(const struct ek_size *size, int64_t value);
EK_COLD ek_status ek_fail_cut(const struct ek_op *op, int size, const void *args);
EK_COLD ek_status ek_fail_follower(const char *name, ek_dtype *dtype, const char *of_name, ek_dtype of);
EK_COLD ek_status ek_fail_stride(const struct ek_op *op, const struct ek_operand *operand, int dim,
				 const void *args);
EK_COLD ek_status ek_fail_missing(const struct ek_op *op, const struct ek_operand *operand, const void *args);
EK_COLD ek_status ek_fail_kind(const struct ek_op *op, const struct ek_operand *operand, const void *args);
EK_COLD ek_status ek_fail_with_choice(const struct ek_op *op, const struct ek_operand *operand,
				      const void *args);
EK_COLD ek_status ek_fail_without_choice(const struct ek_op *op, const struct ek_operand *operand,
					 const void *args);
EK_COLD ek_status ek_fail_excluded(const struct ek_op *op, const struct ek_operand *operand,
				   const void *args);
EK_COLD ek_status ek_fail_needs(const struct ek_op *op, const struct ek_operand *operand, const void *args);
EK_COLD ek_status ek_fail_no_output(const struct ek_op *op);
EK_COLD ek_status ek_fail_stream(const void *stream);
EK_COLD ek_status ek_fail_accumulate(int accumulate);
EK_COLD ek_status ek_fail_workspace(const struct ek_op *op, const void *workspace, size_t size,
				    size_t needed);

#endif
