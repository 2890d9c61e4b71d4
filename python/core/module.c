/* The module evenkeel._core: its functions and constants. SPDX-License-Identifier: MIT */
#include "functions.h"

#include "ops/registry.h"

#define FAST(name)                                                                    \
	{                                                                             \
#name, (PyCFunction)(void (*)(void))(name), METH_FASTCALL, name##_doc \
	}
static PyMethodDef functions[] = {
	FAST(forward),
	FAST(backward),
	FAST(backward_workspace),
	FAST(eager_setup),
	FAST(is_plain),
	FAST(eager_forward),
	FAST(eager_compute),
	FAST(eager_keep),
	FAST(eager_backward),
	{"info", info, METH_NOARGS, info_doc},
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
	for (int i = 0; i < EK_OP_COUNT; i++) {
		const char *name = ek_ops[i].forward->kind_names[ek_ops[i].kind] + strlen("EK_");
		if (PyModule_AddIntConstant(module, name, ek_ops[i].kind))
			return -1;
	}
	return 0;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
	norm_resolve();
	PyObject *module = PyModule_Create(&definition);
	if (!module)
		return NULL;
	if (add_kinds(module) || PyModule_AddStringConstant(module, "version", ek_version()))
		Py_CLEAR(module);
	return module;
}
