"""Host memory that belongs to the caller and that the daemon can fill: a memfd that cannot shrink, mapped by both.

Arrays and tensors over a region keep its memory, and the descriptor by which it is offered, as long as one of them is alive.
A forked child shares the memory with its parent: what one writes, the other sees.
"""
from __future__ import annotations

import bisect
import contextlib
import ctypes
import fcntl
import math
import mmap
import operator
import os
import weakref
from typing import Any, NamedTuple

import numpy as np

from . import errors, memory
from .memory import HUGE_PAGE_BYTES, map_aligned, prefer_huge_pages, unmap

_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_WRITE, _SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16
_PAGE_BYTES = mmap.PAGESIZE
_MOST_BYTES = 1 << 46  # less than an address space has


class Mapping(NamedTuple):
    """Where a region's memory is. The descriptor is open as long as the memory is mapped."""

    start: int
    bytes: int
    fd: int


_mapped = {}  # start: Mapping, of every region that is still in use; each change is atomic


class HostRegion:
    """Memory of this process for View.load_into(): `bytes` new bytes of zeros, or those of a memfd (`fd`, duplicated).

    A memfd has to have F_SEAL_SHRINK, so that the daemon never meets memory that is gone, and no seal against writing.
    Anything else, and a size that no process has room for, is a ValueError. The memory belongs to this process: it is charged
    to the process that touches a page first, the daemon's budgets do not count it, and it is gone with the last array."""

    def __init__(self, bytes: int | None = None, *, fd: int | None = None):  # noqa: A002
        if (bytes is None) == (fd is None):
            raise errors.invalid("a region is made of a number of bytes or of a memfd: HostRegion(bytes) or HostRegion(fd=N)", "BAD_REGION")
        own = _new_memfd(bytes) if fd is None else _checked_memfd(fd)
        self._size = os.fstat(own).st_size
        self._buffer = _map(own, self._size)

    @property
    def fd(self):
        """The memfd, for offers; open as long as the memory is used."""
        return _mapped[ctypes.addressof(self._buffer)].fd

    @property
    def bytes(self) -> int:
        return self._size

    def __len__(self) -> int:
        return self._size

    def __repr__(self):
        return f"<host region of {self._size} bytes>"

    def array(self, dtype: Any, shape: int | tuple[int, ...], offset: int = 0) -> np.ndarray:
        """A C-contiguous NumPy array in the region. `offset` is in bytes and need not be a multiple of the element's size.
        ValueError when it is not inside of the region."""
        try:
            dtype = np.dtype(dtype)
        except TypeError as error:
            raise errors.invalid(f"{dtype!r} is no NumPy dtype: {error}", "BAD_REGION") from None
        if dtype.hasobject or not dtype.itemsize:
            raise errors.invalid(f"elements of {dtype} cannot lie in a region", "BAD_REGION")
        shape, offset = self._place(shape, offset, dtype.itemsize)
        return np.ndarray(shape, dtype, self._buffer, offset)

    def tensor(self, dtype: Any, shape: int | tuple[int, ...], offset: int = 0) -> Any:
        """A contiguous torch tensor in the region; `dtype` is torch's. Otherwise as array()."""
        import torch
        if not isinstance(dtype, torch.dtype):
            raise errors.invalid(f"{dtype!r} is no torch dtype", "BAD_REGION")
        shape, offset = self._place(shape, offset, torch.empty(0, dtype=dtype).element_size())
        count = math.prod(shape)
        if not count:  # which frombuffer() refuses
            return torch.frombuffer(self._buffer, dtype=torch.uint8)[:0].view(dtype).reshape(shape)
        return torch.frombuffer(self._buffer, dtype=dtype, count=count, offset=offset).reshape(shape)

    def _place(self, shape, offset, element_bytes):
        """(shape as a tuple, offset), both checked: elements from `offset` on end inside of the region."""
        try:
            shape = (operator.index(shape),) if hasattr(shape, "__index__") else tuple(map(operator.index, shape))
            offset = operator.index(offset)
        except TypeError:
            raise errors.invalid(f"shape {shape!r} at offset {offset!r}: both are whole numbers", "BAD_REGION") from None
        wanted = math.prod(shape) * element_bytes
        if min(shape, default=0) < 0 or offset < 0 or offset + wanted > self._size:
            raise errors.invalid(f"shape {list(shape)} at byte {offset} takes {wanted} bytes and is not inside of the region of "
                                 f"{self._size} bytes", "OUTSIDE_REGION")
        return shape, offset


def snapshot():
    """A function find(low, high) that returns the Mapping in which bytes [low, high) of this process lie, or None."""
    mapped = sorted(_mapped.copy().values())
    starts = [mapping.start for mapping in mapped]

    def find(low, high):
        at = bisect.bisect_right(starts, low) - 1
        found = mapped[at] if at >= 0 else None
        return found if found and high <= found.start + found.bytes else None

    return find


def back(spans):
    """Makes the pages behind `spans`, (low, high, Mapping) each, in whole pieces of 2 MiB. The process that makes a page is
    charged for it, so the daemon refuses memory with holes."""
    start = stop = 0
    for low, high in sorted(map(_pieces_of, spans)):
        if low > stop:
            memory.back(start, stop)
            start = low
        stop = max(stop, high)
    memory.back(start, stop)


def _pieces_of(span):
    low, high, mapping = span
    end = mapping.start + -(-mapping.bytes // _PAGE_BYTES) * _PAGE_BYTES
    return low // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES, min(-(-high // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end)


def _new_memfd(size):
    try:
        size = operator.index(size)
    except TypeError:
        raise errors.invalid(f"a region of {size!r}; it has a whole number of bytes", "BAD_REGION") from None
    if not 0 < size <= _MOST_BYTES:
        raise errors.invalid(f"a region of {size} bytes; it has from 1 to {_MOST_BYTES}", "BAD_REGION")
    fd = -1
    try:
        fd = os.memfd_create("tensorcast-region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
    except OSError as error:
        if fd >= 0:
            os.close(fd)
        raise errors.invalid(f"a region of {size} bytes cannot be made: {error}", "BAD_REGION") from None
    return fd


def _checked_memfd(given):
    """A duplicate of a descriptor that is fit for a region."""
    try:
        fd = fcntl.fcntl(operator.index(given), fcntl.F_DUPFD_CLOEXEC, 0)
    except (OSError, TypeError, OverflowError, ValueError) as error:
        raise errors.invalid(f"fd={given!r} is no open descriptor: {error}", "BAD_REGION") from None
    why = _unfit(fd)
    if why:
        os.close(fd)
        raise errors.invalid(f"descriptor {given} cannot be a region: {why}", "BAD_REGION")
    return fd


def _unfit(fd):
    """Why a descriptor's memory cannot be a region, "" when it can."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return "it is no memfd; make one with os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)"
    if not seals & _SEAL_SHRINK:
        return "it could shrink; seal it with fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)"
    if seals & (_SEAL_WRITE | _SEAL_FUTURE_WRITE):
        return "it is sealed against writing"
    if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
        return "it is not open for reading and writing"
    size = os.fstat(fd).st_size
    return "" if 0 < size <= _MOST_BYTES else f"it has {size} bytes"


def _map(fd, size):
    """The memory as a ctypes array of bytes, which owns the descriptor from here on."""
    room = -(-size // _PAGE_BYTES) * _PAGE_BYTES
    try:
        start = map_aligned(fd, room, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)
    except OSError as error:
        os.close(fd)
        raise errors.invalid(f"a region of {size} bytes cannot be mapped: {error}", "BAD_REGION") from None
    if size >= HUGE_PAGE_BYTES:
        prefer_huge_pages(start, size)
    buffer = (ctypes.c_ubyte * size).from_address(start)
    _mapped[start] = Mapping(start, size, fd)
    # not at exit: other threads may still be working on the memory
    weakref.finalize(buffer, _release, start, room, fd).atexit = False
    return buffer


def _release(start, room, fd):
    with contextlib.suppress(KeyError):
        del _mapped[start]
    unmap(start, room)
    os.close(fd)
