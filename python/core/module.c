/* The module evenkeel._core: its functions and constants. SPDX-License-Identifier: MIT */
#include "functions.h"

#include "ops/registry.h"

#define METHOD(name, flags, doc)                                       \
	{                                                              \
#name, (PyCFunction)(void (*)(void))(name), flags, doc \
	}
#define FAST(name) METHOD(name, METH_FASTCALL, name##_doc)
#define WITH_KEYWORDS(name) METHOD(name, METH_FASTCALL | METH_KEYWORDS, name##_doc)
#define EAGER(name, row)                                                                   \
	METHOD(name##_forward, METH_FASTCALL, #name "_forward" EAGER_FORWARD_DOC),         \
		METHOD(name##_compute, METH_FASTCALL, #name "_compute" EAGER_COMPUTE_DOC), \
		METHOD(name##_keep, METH_FASTCALL, #name "_keep" EAGER_KEEP_DOC),          \
		METHOD(name##_backward, METH_FASTCALL, #name "_backward" EAGER_BACKWARD_DOC),
static PyMethodDef functions[] = {
	WITH_KEYWORDS(forward),
	WITH_KEYWORDS(backward),
	WITH_KEYWORDS(backward_workspace),
	FAST(eager_setup),
	FAST(is_plain),
	FAST(check_flavour),
	FAST(check_activation),
	FAST(glu_forward),
	FAST(glu_backward),
	FAST(glu_backward_workspace),
	FAST(bias_act_forward),
	FAST(bias_act_backward),
	FAST(bias_act_backward_workspace),
	FAST(check_glu),
	FAST(rope_forward),
	FAST(rope_backward),
	FAST(rope_backward_workspace),
	FAST(check_rope),
	FAST(cost),
	EAGER_OPS(EAGER){"info", info, METH_NOARGS, info_doc},
	{NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "evenkeel._core",
	.m_doc = "evenkeel's C library on tensors of any framework that has DLPack or the buffer protocol.",
	.m_size = -1,
	.m_methods = functions,
};

PyObject *refuse_count(const char *function, int takes, Py_ssize_t given)
{
	PyErr_Format(PyExc_TypeError, "%s() takes %d arguments (%zd given)", function, takes, given);
	return NULL;
}

/* LAYER_NORM and so on: the kinds of the ops. */
static int add_kinds(PyObject *module)
{
	for (int i = 0; i < EK_NORM_OPS; i++) {
		const char *name = ek_ops[i].forward->kind_names[ek_ops[i].kind] + strlen("EK_");
		if (PyModule_AddIntConstant(module, name, ek_ops[i].kind))
			return -1;
	}
	return 0;
}

/* F32 and so on: the numbers of the dtypes. */
static int add_dtypes(PyObject *module)
{
	static const char *const names[] = {
		[EK_F32] = "F32", [EK_F16] = "F16", [EK_BF16] = "BF16", [EK_F64] = "F64"};
	for (int dtype = 1; dtype < (int)(sizeof names / sizeof *names); dtype++)
		if (PyModule_AddIntConstant(module, names[dtype], dtype))
			return -1;
	return 0;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
	PyObject *module =
		norm_resolve() || glu_resolve() || rope_resolve() ? NULL : PyModule_Create(&definition);
	if (!module)
		return NULL;
	if (add_kinds(module) || add_dtypes(module) ||
	    PyModule_AddStringConstant(module, "version", ek_version()))
		Py_CLEAR(module);
	return module;
}
