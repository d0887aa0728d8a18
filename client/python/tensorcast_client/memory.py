"""Memory that the daemon handed off: the mapping, and the lease that lives as long as the mapping does.

Arrays and tensors keep the buffer alive, the buffer keeps the lease: when the last of them is gone, the memory is unmapped
and the hand-off connection is closed, which ends the lease. Buffers of several files share one lease. A forked child
inherits all of it; what it closes is its own copy, so the parent's lease goes on.
"""
import ctypes
import errno
import mmap
import os
import weakref

HUGE_PAGE_BYTES = 2 << 20

_PROT_NONE, _MAP_FIXED, _MAP_NORESERVE = 0, 0x10, 0x4000  # Linux, x86-64 and arm64; not in the mmap module
_MADV_POPULATE_WRITE, _MADV_COLLAPSE = 23, 25
_BACKED_AT_ONCE = 64 << 20
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _mmap(address, size, protection, flags, fd):
    got = _libc.mmap(address, size, protection, flags, fd, 0)
    if got == _FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot map {size} bytes: {os.strerror(code)}")
    return got


def map_aligned(fd, size, protection, flags):
    """Maps `size` bytes (a multiple of the page size) at a multiple of 2 MiB, so that huge pages stay huge. The address."""
    if size >= HUGE_PAGE_BYTES:  # many file systems do that by themselves: one call instead of four
        address = _mmap(None, size, protection, flags, fd)
        if address % HUGE_PAGE_BYTES == 0:
            return address
        _libc.munmap(address, size)
    room = size + HUGE_PAGE_BYTES
    start = _mmap(None, room, _PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE, -1)
    address = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    try:
        _mmap(address, size, protection, flags | _MAP_FIXED, fd)
    except OSError:
        _libc.munmap(start, room)
        raise
    if address > start:
        _libc.munmap(start, address - start)
    if start + room > address + size:
        _libc.munmap(address + size, start + room - address - size)
    return address


def prefer_huge_pages(address, size):
    """For large memory that is about to be filled, as NumPy asks for its own: the first touch takes a third of the time then."""
    start = -(-address // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    stop = (address + size) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    if stop > start:
        _libc.madvise(start, stop - start, mmap.MADV_HUGEPAGE)  # a kernel without them refuses, and nothing is lost


def back(start, stop):
    """Makes the pages of [start, stop), multiples of the page size in one shared mapping whose address is a multiple of 2 MiB:
    huge ones where the kernel has them. MemoryError when there is no memory. This process is charged for the pages."""
    pieces = [(at, min(at + _BACKED_AT_ONCE, stop)) for at in range(start, stop, _BACKED_AT_ONCE)]
    if len(pieces) < 2:
        for piece in pieces:
            _back_piece(piece)
        return
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(min(8, len(pieces), os.cpu_count() or 1)) as pool:
        list(pool.map(_back_piece, pieces))


def _back_piece(piece):
    start, stop = piece
    whole = start + (stop - start) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    for at in range(start, whole, HUGE_PAGE_BYTES):
        _populate(at, at + mmap.PAGESIZE)  # a range that is all hole cannot be collapsed
    if whole == start or _libc.madvise(start, whole - start, _MADV_COLLAPSE):
        whole = start
    _populate(whole, stop)


def _populate(start, stop):
    while stop > start and _libc.madvise(start, stop - start, _MADV_POPULATE_WRITE):
        code = ctypes.get_errno()
        if code == errno.EINVAL:  # before Linux 5.14: a page of shared memory is made by reading it
            for at in range(start, stop, mmap.PAGESIZE):
                ctypes.c_ubyte.from_address(at).value
            return
        if code not in (errno.EAGAIN, errno.EINTR):
            raise MemoryError(f"no memory behind {stop - start} bytes of a region: {os.strerror(code)}")


leases: "weakref.WeakSet[Lease]" = weakref.WeakSet()  # of this process


class Lease:
    """The hand-off's connection, closed when the last mapping that holds it is gone."""

    def __init__(self, fd):
        leases.add(self)
        self._finalizer = weakref.finalize(self, os.close, fd)
        self._finalizer.atexit = False

    def end(self):
        self._finalizer()


def unmap(address, size, *held):
    """Gives back what map_aligned() made. What is `held`, such as a lease, goes with the arguments."""
    _libc.munmap(address, size)


def _map_private(fd, size, writable):
    """A mapping whose pages become this process's own when they are written to; None when it need not be and cannot be."""
    try:
        return map_aligned(fd, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_NORESERVE)
    except OSError as error:
        if writable or error.errno != errno.ENOMEM:
            raise
        return None


def map_leased(memory_fd, memory_bytes, page_bytes, lease, writable=False):
    """A read-only mapping, or if `writable` one whose changes no other process sees, as a ctypes array of bytes that holds the
    lease. writable=None: writable unless this process may not have so much memory of its own, as with RLIMIT_DATA or
    vm.overcommit_memory = 2, which count it although no process writes. Closes memory_fd whatever happens.

    The array says it is writable although it may not be: frameworks that cannot express read-only memory would
    otherwise print a warning for it. Nothing else may hold the array than what shares the lease.
    """
    try:
        size = -(-memory_bytes // page_bytes) * page_bytes
        address = _map_private(memory_fd, size, writable) if writable is not False else None
        if address is None:
            address = map_aligned(memory_fd, size, mmap.PROT_READ, mmap.MAP_SHARED)
    finally:
        os.close(memory_fd)
    buffer = (ctypes.c_ubyte * memory_bytes).from_address(address)
    # not at exit: the memory has to stay until the process is gone, other threads may still be reading
    weakref.finalize(buffer, unmap, address, size, lease).atexit = False
    return buffer
