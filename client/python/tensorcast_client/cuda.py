"""GPU memory that the daemon handed off or fills: imported or shared through the NVIDIA driver, offered to frameworks by DLPack.

Only the driver is needed, and only when a device is asked for. What a framework makes of the memory keeps it mapped, and the
daemon's lease with it, until the last of it is gone. A forked child cannot use it: CUDA does not survive fork.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import uuid
import weakref

from grpc import StatusCode

from . import errors
from .dlpack import capsule, dtype_of

_LIBRARY = "libcuda.so.1"
_SUCCESS, _HANDLE_FD, _ON_DEVICE, _READ_WRITE = 0, 1, 1, 3
_DEVICE_NUMBER, _MAPPING_BYTES, _MAPPING_START = 9, 18, 19  # CUpointer_attribute
_OFFER_FD, _OFFER_IPC, _IPC_BYTES = 1, 2, 64  # of an offer of memory, see region.py
_DLPACK_CUDA = 2  # kDLCUDA

_int, _size, _address, _pointer = ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
_FUNCTIONS = {
    "cuInit": [ctypes.c_uint],
    "cuDeviceGetCount": [_pointer],
    "cuDeviceGet": [_pointer, _int],
    "cuDeviceGetUuid_v2": [_pointer, _int],
    "cuDevicePrimaryCtxRetain": [_pointer, _int],
    "cuDevicePrimaryCtxRelease_v2": [_int],
    "cuMemImportFromShareableHandle": [_pointer, _pointer, _int],
    "cuMemRelease": [_address],
    "cuMemAddressReserve": [_pointer, _size, _size, _address, ctypes.c_ulonglong],
    "cuMemAddressFree": [_address, _size],
    "cuMemMap": [_address, _size, _size, _address, ctypes.c_ulonglong],
    "cuMemUnmap": [_address, _size],
    "cuMemSetAccess": [_address, _size, _pointer, _size],
    "cuCtxPushCurrent_v2": [_pointer],
    "cuCtxPopCurrent_v2": [_pointer],
    "cuCtxSynchronize": [],
    "cuPointerGetAttribute": [_pointer, _int, _address],
    "cuMemGetAddressRange_v2": [_pointer, _pointer, _address],
    "cuMemRetainAllocationHandle": [_pointer, _address],
    "cuMemExportToShareableHandle": [_pointer, _address, _int, ctypes.c_ulonglong],
    "cuIpcGetMemHandle": [_pointer, _address],
    "cuGetErrorName": [_int, _pointer],
}


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = [("location_type", _int), ("location_id", _int), ("flags", _int)]


def is_meant(device):
    """Whether a device is anything but host memory."""
    return str(device) not in ("cpu", "cpu:0")


def open_device(name):
    """The device "cuda:N", as this process counts, or the one with that UUID. torch.device works, too."""
    name = str(name)
    is_uuid = name[:4].upper() in ("GPU-", "MIG-")
    kind, _, number = name.partition(":")
    if not is_uuid and (kind != "cuda" or not (number.isdigit() or name == "cuda")):
        raise errors.make(StatusCode.UNIMPLEMENTED, f"device {name} is not supported; there are cpu, cuda:N and the UUIDs of "
                          "GPUs", "DEVICE_UNSUPPORTED")
    driver = _Driver()
    devices = [Device(driver, i) for i in range(driver.count())]
    if is_uuid:
        found = [device for device in devices if device.uuid[4:].lower() == name[4:].lower()]
    else:
        found = devices[int(number or 0):][:1]
    if not found:
        raise errors.make(StatusCode.FAILED_PRECONDITION, f"device {name} is none of the {len(devices)} GPUs that this process "
                          "sees", "NO_CUDA_DEVICE")
    return found[0]


def device_at(address):
    """The device on which memory of this process lies."""
    driver = _Driver()
    return Device(driver, driver.get(_int, "cuPointerGetAttribute", _DEVICE_NUMBER, address))


class _Driver:
    """The driver's functions. call() raises what they report."""

    def __init__(self):
        try:
            self._library = ctypes.CDLL(_LIBRARY)
            for name, arguments in _FUNCTIONS.items():
                function = getattr(self._library, name)
                function.argtypes, function.restype = arguments, _int
        except (OSError, AttributeError) as error:
            raise errors.make(StatusCode.FAILED_PRECONDITION, f"this process has no NVIDIA driver: {error}; GPU memory can be "
                              "taken only where one is installed", "NO_CUDA_DRIVER") from None
        self.call("cuInit", 0)

    def call(self, function, *arguments):
        code = getattr(self._library, function)(*arguments)
        if code != _SUCCESS:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(name))
            raise errors.make(StatusCode.FAILED_PRECONDITION, f"{function} failed: "
                              f"{(name.value or b'an unknown error').decode()} ({code})", "CUDA_FAILED")

    def get(self, kind, function, *arguments):
        """What a function writes to its first argument."""
        value = kind()
        self.call(function, ctypes.byref(value), *arguments)
        return value.value

    def count(self):
        return self.get(_int, "cuDeviceGetCount")


class Device:
    """A GPU as this process sees it."""

    def __init__(self, driver, number):
        self.driver, self.number = driver, number
        self._handle = driver.get(_int, "cuDeviceGet", number)
        raw = (ctypes.c_ubyte * 16)()
        driver.call("cuDeviceGetUuid_v2", ctypes.byref(raw), self._handle)
        self.uuid = f"GPU-{uuid.UUID(bytes=bytes(raw))}"

    def map_leased(self, memory_fd, memory_bytes, lease_fd):
        """The memory behind a descriptor. Takes lease_fd, closes memory_fd whatever happens."""
        driver = self.driver
        undo = [lambda: os.close(lease_fd)]
        try:
            driver.get(_pointer, "cuDevicePrimaryCtxRetain", self._handle)
            undo.append(lambda: driver.call("cuDevicePrimaryCtxRelease_v2", self._handle))
            address = self._import(memory_fd, memory_bytes, undo)
        except BaseException:
            _run(undo)
            raise
        finally:
            os.close(memory_fd)
        return DeviceMemory(self, address, memory_bytes, undo)

    @contextlib.contextmanager
    def current(self):
        """Makes the device's primary context, which all libraries share, this thread's."""
        driver = self.driver
        context = driver.get(_pointer, "cuDevicePrimaryCtxRetain", self._handle)
        try:
            driver.call("cuCtxPushCurrent_v2", context)
            try:
                yield
            finally:
                driver.call("cuCtxPopCurrent_v2", None)
        finally:
            driver.call("cuDevicePrimaryCtxRelease_v2", self._handle)

    def share(self, address, size):
        """(kind, bytes of the allocation, offset in it, IPC handle, descriptor or None) of memory of this process, once everything
        that this process has queued on the device is done."""
        with self.current():
            self.driver.call("cuCtxSynchronize")
            with self._allocation(address, size) as (start, allocation, handle):
                if handle is None:
                    ipc = ctypes.create_string_buffer(_IPC_BYTES)
                    self.driver.call("cuIpcGetMemHandle", ipc, start)
                    return _OFFER_IPC, 0, address - start, ipc.raw, None
                memory_fd = self.driver.get(_int, "cuMemExportToShareableHandle", handle, _HANDLE_FD, 0)
        os.set_inheritable(memory_fd, False)
        return _OFFER_FD, allocation, address - start, b"", memory_fd

    def allocation_of(self, address, size):
        """The address at which the allocation begins that holds all of these bytes. The device has to be current()."""
        with self._allocation(address, size) as (start, _, _):
            return start

    @contextlib.contextmanager
    def _allocation(self, address, size):
        """(address, bytes, handle or None when it is not of virtual memory management) of the allocation that holds the bytes."""
        driver = self.driver
        if driver.get(_int, "cuPointerGetAttribute", _DEVICE_NUMBER, address) != self._handle:
            raise errors.invalid(f"the memory to be filled is not on GPU {self.uuid}", "NOT_DEVICE_MEMORY")
        try:
            handle = driver.get(_address, "cuMemRetainAllocationHandle", address)
        except errors.TensorcastError:
            handle = None
        if handle is None:
            start, allocation = _address(), _size()
            driver.call("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(allocation), address)
            _check_inside(address, size, start.value, allocation.value)
            yield start.value, allocation.value, None
            return
        try:
            start = driver.get(_address, "cuPointerGetAttribute", _MAPPING_START, address)
            allocation = driver.get(_size, "cuPointerGetAttribute", _MAPPING_BYTES, address)
            _check_inside(address, size, start, allocation)
            yield start, allocation, handle
        finally:
            driver.call("cuMemRelease", handle)

    def _import(self, memory_fd, size, undo):
        driver = self.driver
        handle = driver.get(_address, "cuMemImportFromShareableHandle", memory_fd, _HANDLE_FD)
        try:
            address = driver.get(_address, "cuMemAddressReserve", size, 0, 0, 0)
            undo.append(lambda: driver.call("cuMemAddressFree", address, size))
            driver.call("cuMemMap", address, size, 0, handle, 0)
            undo.append(lambda: driver.call("cuMemUnmap", address, size))
            access = _Access(_ON_DEVICE, self._handle, _READ_WRITE)
            driver.call("cuMemSetAccess", address, size, ctypes.byref(access), 1)
        finally:
            driver.call("cuMemRelease", handle)  # the mapping keeps the memory
        return address


def _check_inside(address, size, start, allocation):
    if size > allocation or address - start > allocation - size:
        raise errors.invalid(f"the {size} bytes to be filled are not in one allocation, which has {allocation}",
                             "NOT_DEVICE_MEMORY")


def _run(undo):
    while undo:
        undo.pop()()


class DeviceMemory:
    """The whole of it, as bytes on a GPU: what DLPack's from_dlpack() of any framework takes."""

    def __init__(self, device, address, size, undo, owner=None):
        self.device, self.address, self._size, self._owner = device, address, size, owner
        # not at exit: kernels may still be running, and the process's end gives everything back
        weakref.finalize(self, _run, undo).atexit = False

    def __len__(self):
        return self._size

    def __dlpack_device__(self):
        return _DLPACK_CUDA, self.device.number

    def __dlpack__(self, stream=None, **_):
        """stream is not needed: the daemon hands out memory when everything is in place."""
        return capsule(self, self.address, dtype_of("U8"), (self._size,), self.__dlpack_device__())


class DeviceTensor:
    """One tensor in GPU memory, for frameworks that speak DLPack."""

    def __init__(self, memory, address, dtype, shape):
        self._memory, self.data_ptr, self.dtype, self.shape = memory, address, dtype, shape

    def __dlpack_device__(self):
        return self._memory.__dlpack_device__()

    def __dlpack__(self, stream=None, **_):
        return capsule(self._memory, self.data_ptr, dtype_of(self.dtype), self.shape, self.__dlpack_device__())

    def __repr__(self):
        return f"<{self.dtype} {list(self.shape)} on {self._memory.device.uuid}>"
