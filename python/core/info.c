/* _core.info: what the library is and what it runs on. SPDX-License-Identifier: MIT */
#include "functions.h"

#include "contexts.h"

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

static PyObject *gpu(const ek_gpu_info *info)
{
	return Py_BuildValue("{s:i, s:s, s:(ii), s:i, s:L}", "ordinal", info->ordinal, "name", info->name,
			     "compute_capability", info->arch / 10, info->arch % 10, "multiprocessors",
			     info->multiprocessors, "memory", (long long)info->memory);
}

/* Ends before a GPU that the driver cannot describe: *missing then says why. */
static PyObject *gpus(int count, const char **missing)
{
	PyObject *result = PyList_New(0);
	for (int i = 0; result && i < count; i++) {
		ek_gpu_info info = {.size = sizeof info};
		if (ek_describe_gpu(i, &info) != EK_OK) {
			*missing = ek_error(NULL);
			break;
		}
		PyObject *entry = gpu(&info);
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
	ek_cuda_info cuda = {.size = sizeof cuda};
	(void)ek_describe_cuda(&cuda); /* which cannot fail with this */
	const char *missing = cuda.gpu_count == 0       ? cuda.gpu_missing
			      : cuda.nvrtc_version == 0 ? cuda.nvrtc_missing
							: NULL;
	PyObject *listed = gpus(cuda.gpu_count, &missing);
	return Py_BuildValue("{s:s, s:i, s:s, s:s, s:i, s:N, s:N, s:N, s:N, s:z}", "version", ek_version(),
			     "numerics", ek_numerics_version(), "cpu", cpu->name, "level", cpu->isa,
			     "threads", cpu->threads, "levels", levels(), "gpus", listed, "cuda_driver",
			     cuda_version(cuda.driver_version), "nvrtc", cuda_version(cuda.nvrtc_version),
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
