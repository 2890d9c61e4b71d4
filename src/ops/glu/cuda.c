#include "cuda.h"
#include "core/status.h"
static ek_status forward(ek_context *ctx, const ek_glu_forward_args *args, enum ek_intent intent)
{ (void)ctx;(void)args;(void)intent; return ek_fail(EK_ERROR_NO_DEVICE, "not yet"); }
static ek_status backward(ek_context *ctx, const ek_glu_backward_args *args, enum ek_intent intent)
{ (void)ctx;(void)args;(void)intent; return ek_fail(EK_ERROR_NO_DEVICE, "not yet"); }
static size_t workspace(const ek_context *ctx, const ek_glu_backward_args *args)
{ (void)ctx;(void)args; return 0; }
const struct ek_glu_backend ek_glu_cuda = {forward, backward, workspace};
