/* _core.cost: the library's cost model, for evenkeel.torch.analyze. SPDX-License-Identifier: MIT */
#include "functions.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "evenkeel.h"

const char cost_doc[] =
	"cost(op, args)\n--\n\nThe kernels of \"norm\", \"glu\", \"rope\" or \"block\" as [(name, type, FLOPs, bytes read, bytes written)]; "
	"args are the fields of an ek_cost_args by their names.";

/* By name; int and the enums have four bytes. */
#define FIELD(name)                                                                            \
	{                                                                                      \
#name, offsetof(ek_cost_args, name), sizeof(((ek_cost_args *)NULL)->name) == 8 \
	}
static const struct {
	const char *name;
	size_t offset;
	bool is_wide;
} fields[] = {FIELD(norm),         FIELD(pass),           FIELD(variant),       FIELD(device),
	      FIELD(batch_size),   FIELD(seq_len),        FIELD(hidden_size),   FIELD(dtype),
	      FIELD(weight_dtype), FIELD(absent),         FIELD(with),          FIELD(h_dtype),
	      FIELD(y_dtype),      FIELD(gradient_dtype), FIELD(weight_offset), FIELD(activation),
	      FIELD(gate_first),   FIELD(group_cols),     FIELD(ffn_size),      FIELD(heads),
	      FIELD(k_heads),      FIELD(head_dim),       FIELD(rotary_dim),    FIELD(table_dtype),
	      FIELD(order),        FIELD(causal)};

static int set_field(ek_cost_args *args, PyObject *name, PyObject *value)
{
	const long long number = PyLong_AsLongLong(value);
	if (number == -1 && PyErr_Occurred())
		return -1;
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		char *field = (char *)args + fields[i].offset;
		if (PyUnicode_CompareWithASCIIString(name, fields[i].name) != 0)
			continue;
		if (fields[i].is_wide)
			memcpy(field, &(int64_t){number}, sizeof(int64_t));
		else
			memcpy(field, &(int){(int)number}, sizeof(int));
		return 0;
	}
	PyErr_Format(PyExc_TypeError, "%R is not a field of ek_cost_args", name);
	return -1;
}

static int read_args(ek_cost_args *args, PyObject *given)
{
	PyObject *name, *value;
	Py_ssize_t at = 0;
	if (!PyDict_Check(given)) {
		PyErr_SetString(PyExc_TypeError, "args is not a dict");
		return -1;
	}
	while (PyDict_Next(given, &at, &name, &value))
		if (set_field(args, name, value))
			return -1;
	return 0;
}

/* Norms have a struct of their own, with room for fewer. */
static ek_status count_norm(const ek_cost_args *args, ek_cost_list *list)
{
	ek_cost *cost = PyMem_Malloc(sizeof *cost);
	if (!cost)
		return EK_ERROR_MEMORY;
	cost->size = sizeof *cost;
	ek_status status = ek_norm_cost(args, cost);
	list->kernel_count = status == EK_OK ? cost->kernel_count : 0;
	memcpy(list->kernels, cost->kernels, (size_t)list->kernel_count * sizeof *list->kernels);
	PyMem_Free(cost);
	return status;
}

static PyObject *kernels_of(const ek_cost_list *list)
{
	PyObject *result = PyList_New(0);
	for (int i = 0; result && i < list->kernel_count; i++) {
		const ek_cost_kernel *k = &list->kernels[i];
		PyObject *entry = Py_BuildValue("(s s L L L)", k->name, k->type, (long long)k->flops,
						(long long)k->read_bytes, (long long)k->write_bytes);
		if (!entry || PyList_Append(result, entry))
			Py_CLEAR(result);
		Py_XDECREF(entry);
	}
	return result;
}

static ek_status count(PyObject *op, const ek_cost_args *args, ek_cost_list *list)
{
	static const struct {
		const char *name;
		ek_status (*count)(const ek_cost_args *args, ek_cost_list *list);
	} ops[] = {
		{"norm", count_norm}, {"glu", ek_glu_cost}, {"rope", ek_rope_cost}, {"block", ek_block_cost}};
	for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
		if (PyUnicode_Check(op) && PyUnicode_CompareWithASCIIString(op, ops[i].name) == 0)
			return ops[i].count(args, list);
	PyErr_Format(PyExc_ValueError, "op is %R; expected \"norm\", \"glu\", \"rope\" or \"block\"", op);
	return EK_ERROR_ARGUMENT;
}

PyObject *cost(PyObject *module, PyObject *const *given, Py_ssize_t given_count)
{
	ek_cost_args args = {.size = sizeof args};
	(void)module;
	if (given_count != 2)
		return refuse_count("cost", 2, given_count);
	if (read_args(&args, given[1]))
		return NULL;
	ek_cost_list list = {.size = sizeof list, .most_kernels = EK_BLOCK_KERNELS};
	list.kernels = PyMem_Malloc(EK_BLOCK_KERNELS * sizeof *list.kernels);
	if (!list.kernels)
		return PyErr_NoMemory();
	PyObject *result = NULL;
	if (count(given[0], &args, &list) == EK_OK)
		result = kernels_of(&list);
	else if (!PyErr_Occurred())
		PyErr_SetString(PyExc_ValueError, ek_error(NULL));
	PyMem_Free(list.kernels);
	return result;
}
