/* The ABI of DLPack 1.x, from its specification: how frameworks hand a strided tensor to each other, as a
 * struct, as an owned struct, and through functions that hang on a framework's type. view.c and exchange.c read it.
 * SPDX-License-Identifier: MIT */
#ifndef EK_PYTHON_DLPACK_H
#define EK_PYTHON_DLPACK_H

#include <stdint.h>

typedef struct DLPackVersion {
	uint32_t major;
	uint32_t minor;
} DLPackVersion;

/* The devices that matter here. Pinned host memory is the CPU's, managed memory the GPU's. */
enum { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };

typedef struct DLDevice {
	int32_t device_type;
	int32_t device_id;
} DLDevice;

enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };

typedef struct DLDataType {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
} DLDataType;

typedef struct DLTensor {
	void *data;
	DLDevice device;
	int32_t ndim;
	DLDataType dtype;
	int64_t *shape;
	int64_t *strides; /* in elements; before version 1.2 it may be NULL: rows one after another */
	uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
	DLTensor dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

enum { DLPACK_FLAG_READ_ONLY = 1 };

typedef struct DLManagedTensorVersioned {
	DLPackVersion version;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensorVersioned *self);
	uint64_t flags;
	DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* ---- the C exchange API: a capsule "dlpack_exchange_api" at type.__dlpack_c_exchange_api__ ----
 * Its functions return 0, or -1 with a Python exception set (the allocator reports through set_error). */

typedef struct DLPackExchangeAPIHeader {
	DLPackVersion version;
	struct DLPackExchangeAPIHeader *prev_api; /* the same of an older major version, or NULL */
} DLPackExchangeAPIHeader;

typedef void (*DLPackSetError)(void *error_ctx, const char *kind, const char *message);

typedef struct DLPackExchangeAPI {
	DLPackExchangeAPIHeader header;
	/* A new tensor of the prototype's shape, dtype and device. */
	int (*managed_tensor_allocator)(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
					DLPackSetError set_error);
	int (*managed_tensor_from_py_object_no_sync)(void *object, DLManagedTensorVersioned **out);
	/* Takes the tensor over. */
	int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor, void **object);
	/* A view without an owner, valid while the object is; may be NULL. */
	int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out);
	int (*current_work_stream)(int32_t device_type, int32_t device_id, void **stream);
} DLPackExchangeAPI;

#endif
