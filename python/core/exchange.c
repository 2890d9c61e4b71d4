/* A framework hangs its exchange functions on its tensor type. Looking an attribute up takes longer than
 * what the functions do, so the last few types are remembered, those without the functions too.
 * SPDX-License-Identifier: MIT */
#include "exchange.h"

#define CAPSULE_NAME "dlpack_exchange_api"
enum { REMEMBERED = 16, MAJOR_VERSION = 1 };

/* The types are held, so that no other type comes to live at the same address. */
static struct {
	PyTypeObject *type;
	const DLPackExchangeAPI *api;
} known[REMEMBERED];
static int next_to_forget;

static const DLPackExchangeAPI *of_our_version(void *pointer)
{
	const DLPackExchangeAPIHeader *header = pointer;
	while (header && header->version.major != MAJOR_VERSION)
		header = header->prev_api;
	const DLPackExchangeAPI *api = (const DLPackExchangeAPI *)header;
	return api && api->dltensor_from_py_object_no_sync ? api : NULL;
}

static const DLPackExchangeAPI *look_up(PyTypeObject *type)
{
	PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
	void *pointer = capsule ? PyCapsule_GetPointer(capsule, CAPSULE_NAME) : NULL;
	if (!pointer)
		PyErr_Clear();
	Py_XDECREF(capsule); /* the type holds it, and the functions are there for the life of the process */
	return of_our_version(pointer);
}

const DLPackExchangeAPI *exchange_of(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);
	for (int i = 0; i < REMEMBERED; i++)
		if (known[i].type == type)
			return known[i].api;
	const DLPackExchangeAPI *api = look_up(type);
	int slot = next_to_forget++ % REMEMBERED;
	PyTypeObject *forgotten = known[slot].type;
	Py_INCREF(type);
	known[slot].type = type;
	known[slot].api = api;
	Py_XDECREF(forgotten);
	return api;
}
