"""Mappings of memory that was handed off: where they lie, and that nothing of the way there stays."""
import mmap
import os
from pathlib import Path

import pytest
from tensorcast_client import memory

MiB = 1 << 20


@pytest.fixture
def memfd():
    fd = os.memfd_create("memory")
    os.ftruncate(fd, 5 * MiB)
    os.pwrite(fd, b"first", 0)
    yield fd
    os.close(fd)


def mapped():
    """[(first address, end)] of what this process has mapped of that memfd."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    return [tuple(int(x, 16) for x in line[0].split("-")) for line in lines if "/memfd:memory" in line]


@pytest.mark.parametrize("size", [mmap.PAGESIZE, 2 * MiB - mmap.PAGESIZE, 2 * MiB, 5 * MiB])
@pytest.mark.parametrize("off", [0, mmap.PAGESIZE])
def test_a_mapping_begins_at_a_huge_page_wherever_the_kernel_would_put_it(monkeypatch, memfd, size, off):
    plain, calls = memory._mmap, []

    def elsewhere(address, wanted, protection, flags, fd):
        calls.append(fd)
        if address is None and fd == memfd:  # a kernel that aligns files, or has this one begin a page behind
            start = plain(None, wanted + 2 * memory.HUGE_PAGE_BYTES, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
            address = -(-start // memory.HUGE_PAGE_BYTES) * memory.HUGE_PAGE_BYTES + off
            plain(address, wanted, protection, flags | memory._MAP_FIXED, fd)
            memory.unmap(start, address - start)
            memory.unmap(address + wanted, start + 2 * memory.HUGE_PAGE_BYTES - address)
            return address
        return plain(address, wanted, protection, flags, fd)

    monkeypatch.setattr(memory, "_mmap", elsewhere)
    address = memory.map_aligned(memfd, size, mmap.PROT_READ, mmap.MAP_SHARED)
    assert address % memory.HUGE_PAGE_BYTES == 0 and mapped() == [(address, address + size)]
    assert calls == ([-1, memfd] if size < 2 * MiB else [memfd, -1, memfd] if off else [memfd])
    memory.unmap(address, size)
    assert mapped() == []
