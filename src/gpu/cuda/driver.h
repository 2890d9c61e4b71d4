/* CUDA's driver API as far as evenkeel uses it: declared here, so that a build needs no CUDA, and found at
 * run time with dlopen, so that one binary runs with and without a GPU. Names, values and layouts are
 * those of NVIDIA's cuda.h, which this file stands for. SPDX-License-Identifier: MIT */
#ifndef EK_CUDA_DRIVER_H
#define EK_CUDA_DRIVER_H

#include <stddef.h>

#include "evenkeel.h"

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEINITIALIZED = 4,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_IMAGE = 200,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
	CUDA_ERROR_ECC_UNCORRECTABLE = 214,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
	CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
	CUDA_ERROR_CONTAINED = 226,
	CUDA_ERROR_INVALID_SOURCE = 300,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
	CUDA_ERROR_LAUNCH_TIMEOUT = 702,
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	CUDA_ERROR_ASSERT = 710,
	CUDA_ERROR_HARDWARE_STACK_ERROR = 714, /* 715 to 718 are kernels' faults, too */
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
	CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
	CUDA_ERROR_EXTERNAL_DEVICE = 911
};

/* CUdevice_attribute */
enum {
	CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
	CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
	CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
	CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
	CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

/* CUfunction_attribute */
enum {
	CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
	CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
	CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
	CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
};

/* CUpointer_attribute, CUmemorytype */
enum { CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9 };
enum { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_DEVICE = 2 };

/* CUstreamCaptureStatus, CUstreamCaptureMode */
enum { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };
enum { CU_STREAM_CAPTURE_MODE_GLOBAL = 0, CU_STREAM_CAPTURE_MODE_RELAXED = 2 };

enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DEFAULT = 0 };

/* CUlaunchAttributeID */
enum { CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };

typedef struct CUlaunchAttribute {
	int id;
	char pad[4];
	union {
		char bytes[64];
		struct {
			unsigned x, y, z;
		} clusterDim;
		int programmaticStreamSerializationAllowed;
	} value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
	unsigned gridDimX, gridDimY, gridDimZ;
	unsigned blockDimX, blockDimY, blockDimZ;
	unsigned sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned numAttrs;
} CUlaunchConfig;

/* X(field, symbol, parameters): every function we call. Those with a suffix are the entry points that
 * cuda.h's macros choose for CUDA 12. */
#define EK_DRIVER_SYMBOLS(X)                                                                             \
	X(init, "cuInit", (unsigned flags))                                                              \
	X(driver_version, "cuDriverGetVersion", (int *version))                                          \
	X(error_name, "cuGetErrorName", (CUresult error, const char **name))                             \
	X(error_string, "cuGetErrorString", (CUresult error, const char **text))                         \
	X(device_count, "cuDeviceGetCount", (int *count))                                                \
	X(device_get, "cuDeviceGet", (CUdevice * device, int ordinal))                                   \
	X(device_name, "cuDeviceGetName", (char *name, int length, CUdevice device))                     \
	X(device_memory, "cuDeviceTotalMem_v2", (size_t * bytes, CUdevice device))                       \
	X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, CUdevice device))        \
	X(primary_state, "cuDevicePrimaryCtxGetState", (CUdevice device, unsigned *flags, int *active))  \
	X(primary_retain, "cuDevicePrimaryCtxRetain", (CUcontext * context, CUdevice device))            \
	X(primary_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice device))                            \
	X(context_current, "cuCtxGetCurrent", (CUcontext * context))                                     \
	X(context_device, "cuCtxGetDevice", (CUdevice * device))                                         \
	X(context_push, "cuCtxPushCurrent_v2", (CUcontext context))                                      \
	X(context_pop, "cuCtxPopCurrent_v2", (CUcontext * context))                                      \
	X(context_synchronize, "cuCtxSynchronize", (void))                                               \
	X(module_load, "cuModuleLoadData", (CUmodule * module, const void *image))                       \
	X(module_unload, "cuModuleUnload", (CUmodule module))                                            \
	X(module_function, "cuModuleGetFunction",                                                        \
	  (CUfunction * function, CUmodule module, const char *name))                                    \
	X(function_attribute, "cuFuncGetAttribute", (int *value, int attribute, CUfunction function))    \
	X(function_set, "cuFuncSetAttribute", (CUfunction function, int attribute, int value))           \
	X(launch, "cuLaunchKernelEx",                                                                    \
	  (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra))          \
	X(pointer_attribute, "cuPointerGetAttribute", (void *value, int attribute, CUdeviceptr pointer)) \
	X(memory_alloc, "cuMemAlloc_v2", (CUdeviceptr * pointer, size_t bytes))                          \
	X(memory_free, "cuMemFree_v2", (CUdeviceptr pointer))                                            \
	X(memory_info, "cuMemGetInfo_v2", (size_t * free, size_t * total))                               \
	X(copy_to_device, "cuMemcpyHtoD_v2", (CUdeviceptr to, const void *from, size_t bytes))           \
	X(copy_to_host, "cuMemcpyDtoH_v2", (void *to, CUdeviceptr from, size_t bytes))                   \
	X(fill_bytes, "cuMemsetD8_v2", (CUdeviceptr to, unsigned char value, size_t bytes))              \
	X(stream_create, "cuStreamCreate", (CUstream * stream, unsigned flags))                          \
	X(stream_destroy, "cuStreamDestroy_v2", (CUstream stream))                                       \
	X(stream_synchronize, "cuStreamSynchronize", (CUstream stream))                                  \
	X(stream_is_capturing, "cuStreamIsCapturing", (CUstream stream, int *status))                    \
	X(capture_begin, "cuStreamBeginCapture_v2", (CUstream stream, int mode))                         \
	X(capture_exchange, "cuThreadExchangeStreamCaptureMode", (int *mode))                            \
	X(capture_end, "cuStreamEndCapture", (CUstream stream, CUgraph * graph))                         \
	X(graph_instantiate, "cuGraphInstantiateWithFlags",                                              \
	  (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                           \
	X(graph_launch, "cuGraphLaunch", (CUgraphExec executable, CUstream stream))                      \
	X(graph_exec_destroy, "cuGraphExecDestroy", (CUgraphExec executable))                            \
	X(graph_destroy, "cuGraphDestroy", (CUgraph graph))                                              \
	X(event_create, "cuEventCreate", (CUevent * event, unsigned flags))                              \
	X(event_destroy, "cuEventDestroy_v2", (CUevent event))                                           \
	X(event_record, "cuEventRecord", (CUevent event, CUstream stream))                               \
	X(event_synchronize, "cuEventSynchronize", (CUevent event))                                      \
	X(event_elapsed, "cuEventElapsedTime", (float *milliseconds, CUevent from, CUevent to))

#define EK_DRIVER_FIELD(field, symbol, parameters) CUresult(*field) parameters;
struct ek_driver {
	int version; /* 12040 is CUDA 12.4 */
	EK_DRIVER_SYMBOLS(EK_DRIVER_FIELD)
};

/* The oldest driver that works: cuLaunchKernelEx with clusters, and NVRTC 12's images. */
#define EK_OLDEST_DRIVER 12000

/* The driver, loaded and initialised at the first call (or tried again after a failure: a GPU may come).
 * $EVENKEEL_LIBCUDA names another library file than libcuda.so.1. EK_ERROR_NO_DEVICE with a message that
 * says what is missing: the library, a symbol (too old a driver), a device. */
ek_status ek_driver_get(const struct ek_driver **driver);

/* "CUDA_ERROR_OUT_OF_MEMORY (out of memory)", valid until the thread's next call. */
const char *ek_driver_error(const struct ek_driver *driver, CUresult error);

#endif
