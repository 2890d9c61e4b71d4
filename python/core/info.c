/* _core.info: what the library is and what it runs on. SPDX-License-Identifier: MIT */
#include "functions.h"

#include "contexts.h"
#include "cuda/gpu.h"
#include "cuda/nvrtc.h"

const char info_doc[] =
	"info()\n--\n\nVersions, the CPU and its levels, the GPUs and what is missing for them.";

/* {name: can this CPU run it} */
static PyObject *levels(void)
{
	PyObject *result = PyDict_New();
	const char *name;
	int usable;
	for (int i = 0; result && (name = ek_cpu_level(i, &usable)); i++)
		if (PyDict_SetItemString(result, name, usable ? Py_True : Py_False))
			Py_CLEAR(result);
	return result;
}

static PyObject *gpu(int ordinal, const struct ek_gpu_list *list)
{
	int arch = list->gpus[ordinal].arch;
	return Py_BuildValue("{s:i, s:s, s:(ii), s:i, s:L}", "ordinal", ordinal, "name",
			     list->gpus[ordinal].name, "compute_capability", arch / 10, arch % 10,
			     "multiprocessors", list->gpus[ordinal].multiprocessors, "memory",
			     (long long)list->gpus[ordinal].memory);
}

static PyObject *gpus(const struct ek_gpu_list *list)
{
	PyObject *result = PyList_New(0);
	int count = list->count < EK_GPUS_LISTED ? list->count : EK_GPUS_LISTED;
	for (int i = 0; result && i < count; i++) {
		PyObject *entry = gpu(i, list);
		if (!entry || PyList_Append(result, entry))
			Py_CLEAR(result);
		Py_XDECREF(entry);
	}
	return result;
}

/* 12040 is (12, 4) to CUDA's driver and to NVRTC alike; None where there is none. */
static PyObject *cuda_version(int version)
{
	return version ? Py_BuildValue("(ii)", version / 1000, version % 1000 / 10) : Py_BuildValue("");
}

static PyObject *about(const ek_description *cpu)
{
	struct ek_gpu_list list = {0};
	struct ek_nvrtc_info nvrtc = {0};
	ek_gpu_describe_all(&list);
	ek_nvrtc_describe(&nvrtc);
	const char *missing = list.count == 0 ? list.missing : nvrtc.version == 0 ? nvrtc.missing : NULL;
	return Py_BuildValue("{s:s, s:i, s:s, s:s, s:i, s:N, s:N, s:N, s:N, s:z}", "version", ek_version(),
			     "numerics", ek_numerics_version(), "cpu", cpu->name, "level", cpu->isa,
			     "threads", cpu->threads, "levels", levels(), "gpus", gpus(&list), "cuda_driver",
			     cuda_version(list.driver_version), "nvrtc", cuda_version(nvrtc.version),
			     "missing", missing);
}

PyObject *info(PyObject *module, PyObject *nothing)
{
	(void)module;
	(void)nothing;
	ek_description cpu = {.size = sizeof cpu};
	const ek_context *context = context_of(EK_CPU, 0, 0);
	if (!context)
		return NULL;
	(void)ek_describe(context, &cpu); /* which cannot fail with these */
	return about(&cpu);
}
