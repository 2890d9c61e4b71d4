"""Small frameworks whose tensors are NumPy's memory: one that has DLPack's C exchange API, written with ctypes, one
that has __dlpack__ alone, and one that has a buffer alone. Tensors of the first two may claim to be on any device.
SPDX-License-Identifier: MIT"""

import ctypes
from ctypes import POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_uint64, c_void_p, py_object

import numpy as np

from reference import DTYPES

CPU, CUDA, CUDA_HOST, ROCM = 1, 2, 3, 10
FLOAT, BFLOAT = 2, 4


def fields(*groups):
    """The fields of a struct from pairs of a type and names."""
    return [(name, kind) for kind, names in groups for name in names.split()]


def aligned(shape, dtype):
    """An array of zeros from an address that the library takes for a workspace."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


class DLTensor(Structure):
    _fields_ = fields(
        (c_void_p, "data"),
        (c_int32, "device_type device_id ndim"),
        (ctypes.c_uint8, "code bits"),
        (ctypes.c_uint16, "lanes"),
        (POINTER(c_int64), "shape strides"),
        (c_uint64, "byte_offset"),
    )


class Managed(Structure):
    _fields_ = fields((DLTensor, "tensor"), (c_void_p, "context deleter"))


class Versioned(Structure):
    _fields_ = fields(
        (ctypes.c_uint32, "major minor"), (c_void_p, "context deleter"), (c_uint64, "flags"), (DLTensor, "tensor")
    )


def dtype_fields(array):
    is_bfloat = array.dtype == DTYPES["bf16"]
    code = BFLOAT if is_bfloat else {"f": FLOAT, "i": 0, "u": 1}[array.dtype.kind]
    return {"code": code, "bits": array.itemsize * 8, "lanes": 1}


def dltensor_of(array, device=(CPU, 0), strides=True):
    """The struct of an array, and what must stay alive with it."""
    shape = (c_int64 * array.ndim)(*array.shape)
    steps = (c_int64 * array.ndim)(*(step // array.itemsize for step in array.strides))
    tensor = DLTensor(
        data=array.ctypes.data,
        device_type=device[0],
        device_id=device[1],
        ndim=array.ndim,
        shape=ctypes.cast(shape, POINTER(c_int64)),
        strides=ctypes.cast(steps, POINTER(c_int64)) if strides else None,
        **dtype_fields(array),
    )
    return tensor, (shape, steps, array)


API_NAME = b"dlpack_exchange_api"  # a capsule keeps the address of its name: it must stay
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]


# ---- __dlpack__ ----


class Exporter:
    """An array with __dlpack__ and nothing else; it notes how it was asked."""

    def __init__(self, array, device=(CPU, 0), version=(1, 0), flags=0, strides=True, name=None):
        self.array, self.device, self.version = array, device, version
        self.asked, self.kept = [], []
        self.flags, self.strides, self.name = flags, strides, name

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **words):
        self.asked.append(words)
        if self.version is None and "max_version" in words:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        tensor, alive = dltensor_of(self.array, self.device, self.strides)
        if self.version is None:
            struct, name = Managed(tensor=tensor), b"dltensor"
        else:
            struct, name = Versioned(*self.version, flags=self.flags, tensor=tensor), b"dltensor_versioned"
        self.kept += [struct, alive, self.name or name]
        return new_capsule(ctypes.addressof(struct), self.name or name, None)


# ---- the C exchange API ----

TensorFromObject = PYFUNCTYPE(c_int, py_object, POINTER(DLTensor))
ObjectFromManaged = PYFUNCTYPE(c_int, POINTER(Versioned), POINTER(c_void_p))
Allocator = PYFUNCTYPE(c_int, POINTER(DLTensor), POINTER(POINTER(Versioned)), c_void_p, c_void_p)
CurrentStream = PYFUNCTYPE(c_int, c_int32, c_int32, POINTER(c_void_p))
Deleter = PYFUNCTYPE(None, POINTER(Versioned))


class Api(Structure):
    _fields_ = fields(
        (ctypes.c_uint32, "major minor"),
        (c_void_p, "previous"),
        (Allocator, "allocate"),
        (c_void_p, "managed_from_object"),
        (ObjectFromManaged, "object_from_managed"),
        (TensorFromObject, "tensor_from_object"),
        (CurrentStream, "current_stream"),
    )


class Tensor:
    """A tensor of the framework with the exchange API."""

    stream = 0
    readable = True
    memory_left = True
    live = {}  # what the allocator has made and nobody has taken or freed: address of the struct, tensor

    def __init__(self, array, device=(CPU, 0)):
        self.array, self.device = array, device
        self.struct, self.alive = dltensor_of(array, device)

    @property
    def shape(self):
        return self.array.shape

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array), self.device)

    def reshape(self, shape):
        return Tensor(self.array.reshape(shape), self.device)

    def __iter__(self):
        return (Tensor(row, self.device) for row in self.array)


@TensorFromObject
def tensor_from_object(tensor, out):
    if not tensor.readable:
        return -1
    out[0] = tensor.struct
    return 0


def dtype_of(prototype):
    names = {(FLOAT, 32): "f32", (FLOAT, 16): "f16", (FLOAT, 64): "f64", (BFLOAT, 16): "bf16"}
    key = (prototype.code, prototype.bits)
    return DTYPES[names[key]] if key in names else np.uint8


@Allocator
def allocate(prototype, out, error_context, set_error):
    if not Tensor.memory_left:
        return -1
    wanted = prototype[0]
    array = aligned(tuple(wanted.shape[i] for i in range(wanted.ndim)), dtype_of(wanted))
    tensor = Tensor(array, (wanted.device_type, wanted.device_id))
    struct = Versioned(major=1, tensor=tensor.struct, deleter=ctypes.cast(free, c_void_p))
    Tensor.live[ctypes.addressof(struct)] = (tensor, struct)
    out[0] = ctypes.pointer(struct)
    return 0


@Deleter
def free(struct):
    del Tensor.live[ctypes.addressof(struct[0])]


@ObjectFromManaged
def object_from_managed(struct, out):
    tensor, _ = Tensor.live.pop(ctypes.addressof(struct[0]))
    ctypes.pythonapi.Py_IncRef(py_object(tensor))
    out[0] = id(tensor)
    return 0


@CurrentStream
def current_stream(device_type, device_id, out):
    out[0] = Tensor.stream
    return 0


api = Api(1, 3, None, allocate, None, object_from_managed, tensor_from_object, current_stream)
newer_api = Api(major=2, previous=ctypes.addressof(api))
Tensor.__dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(api), API_NAME, None)


class NewerTensor(Tensor):
    """Its framework has a later major version, and still the one that is known."""

    __dlpack_c_exchange_api__ = new_capsule(ctypes.addressof(newer_api), API_NAME, None)


class StrangeTensor(Exporter):
    """Its attribute is not what the protocol says: __dlpack__ is left."""

    __dlpack_c_exchange_api__ = "no capsule"


# ---- the buffer protocol ----


class Buffer(Structure):
    _fields_ = fields(
        (c_void_p, "buf obj"),
        (ctypes.c_ssize_t, "len itemsize"),
        (c_int, "readonly ndim"),
        (c_char_p, "format"),
        (c_void_p, "shape strides suboffsets internal"),
    )


class Slot(Structure):
    _fields_ = fields((c_int, "slot"), (c_void_p, "function"))


class Spec(Structure):
    _fields_ = fields(
        (c_char_p, "name"), (c_int, "basicsize itemsize"), (ctypes.c_uint, "flags"), (POINTER(Slot), "slots")
    )


@PYFUNCTYPE(c_int, py_object, POINTER(Buffer), c_int)
def get_buffer(exporter, out, flags):
    """Leaves out the strides, and where it is told so the shape, whatever is asked for."""
    array = exporter.array
    ctypes.pythonapi.Py_IncRef(py_object(exporter))
    out[0] = Buffer(
        buf=array.ctypes.data,
        obj=id(exporter),
        len=array.nbytes,
        itemsize=array.itemsize,
        ndim=exporter.ndim,
        format=b"f",
        shape=ctypes.addressof(exporter.shape_memory) if exporter.has_shape else None,
    )
    return 0


SLOTS = (Slot * 2)(Slot(1, ctypes.cast(get_buffer, c_void_p)), Slot())  # 1 is Py_bf_getbuffer
SPEC = Spec(b"frameworks.WithBuffer", 0, 0, 1 << 10 | 1 << 18, SLOTS)  # Py_TPFLAGS_BASETYPE, Py_TPFLAGS_DEFAULT
make_type = ctypes.pythonapi.PyType_FromSpec
make_type.restype, make_type.argtypes = py_object, [POINTER(Spec)]


class BareBuffer(make_type(SPEC)):
    """An array of f32 whose buffer has less than the buffer protocol promises."""

    def __init__(self, array, shape, ndim=None):
        self.array, self.has_shape, self.ndim = array, shape, array.ndim if ndim is None else ndim
        self.shape_memory = (c_int64 * self.ndim)(*array.shape)
