"""The state of this machine that a timing depends on, and how to put it into a known one. Needs root.

Page cache (dropped or filled, and checked), read-ahead, which huge pages the daemon may have, and memory that the host of
a virtual machine has really backed: its first touch costs seconds per GiB and would be charged to the first user.
"""
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

SYS_CACHESTAT = 451
PAGE = os.sysconf("SC_PAGESIZE")
TICK = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None, use_errno=True)
NO_SUCH_ORDER = 11  # larger than any block of free pages


def cached_bytes(path):
    """How much of a file is in the page cache (Linux 6.5 and later)."""
    window, counts = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    with open(path, "rb") as file:
        if LIBC.syscall(SYS_CACHESTAT, file.fileno(), window, counts, 0):
            raise OSError(ctypes.get_errno(), "cachestat; this benchmark needs Linux 6.5", str(path))
    return counts[0] * PAGE


def cached_share(files):
    return sum(cached_bytes(f) for f in files) / sum(f.stat().st_size for f in files)


def make_cold(files):
    os.sync()
    for _ in range(10):
        Path("/proc/sys/vm/drop_caches").write_text("1\n")
        if cached_share(files) == 0:
            return
        time.sleep(0.1)
    raise RuntimeError("something keeps the checkpoint in the page cache; is it mapped?")


def read_all(files):
    buffer = memoryview(bytearray(8 << 20))
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def make_hot(files):
    """In the page cache as one sequential read leaves it; some virtual machines take idle pages away again."""
    for attempt in range(5):
        if attempt == 0 and cached_share(files) < 0.99:
            for path in files:
                with open(path, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        read_all(files)
        if cached_share(files) > 0.999:
            return
    raise RuntimeError("the checkpoint does not stay in the page cache")


@contextlib.contextmanager
def knob(path, value):
    """Writes a setting and puts the old one back; None leaves it alone."""
    path = Path(path)
    old = path.read_text().strip()
    if "[" in old:  # "always [never] advise"
        old = old[old.index("[") + 1:old.index("]")]
    try:
        if value is not None:
            path.write_text(f"{value}\n")
        yield
    finally:
        path.write_text(f"{old}\n")


def disk_queue(folder):
    device = os.stat(folder).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    return next(p for p in (block / "queue", block.parent / "queue") if p.exists())


def read_ahead(folder, kib):
    return knob(disk_queue(folder) / "read_ahead_kb", kib)


def shared_huge_pages(setting):
    return knob("/sys/kernel/mm/transparent_hugepage/shmem_enabled", setting)


def reserved_huge_pages(count):
    return knob("/proc/sys/vm/nr_hugepages", count)


def take_over(program):
    """Before anything is measured: root, ahead of other work, and ended by SIGTERM so that settings are put back."""
    if os.geteuid():
        sys.exit(f"{program}: settings of the machine are changed and put back, which needs root")
    os.setpriority(os.PRIO_PROCESS, 0, -15)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"{program}: terminated"))


def free_page_reporting():
    """Nothing, or the guest's habit of telling the host about free memory, switched off: what the host takes back while a
    load runs costs seconds per GiB at the next touch, and whom that hits is chance."""
    order = Path("/sys/module/page_reporting/parameters/page_reporting_order")
    return knob(order, NO_SUCH_ORDER) if order.exists() else contextlib.nullcontext()


def io_count(pids, name):
    return sum(int(line.split()[1]) for pid in pids for line in Path(f"/proc/{pid}/io").read_text().splitlines()
               if line.startswith(name))


def disk_bytes_read(pids):
    """Bytes fetched from storage on behalf of these processes."""
    return io_count(pids, "read_bytes")


def bytes_asked(pids):
    """Bytes that these processes asked the kernel for by system calls that read, from wherever they came."""
    return io_count(pids, "rchar")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def machine_busy_seconds():
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / TICK


def available_bytes():
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(meminfo["MemAvailable"].split()[0]) * 1024


def resident_peak(pid):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) * 1024


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def wait_until_quiet(seconds=5):
    """Waits for other work to pause, but not for ever."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = machine_busy_seconds()
        time.sleep(0.25)
        if machine_busy_seconds() - before < 0.04:
            return


class Backed:
    """Memory touched by a helper process, given back just before the clock starts."""

    def __init__(self, native):
        self.native, self.helper = native, None

    def take(self, size):
        self.give()
        size = min(size, available_bytes() - (3 << 30))
        if size > 0:
            self.helper = subprocess.Popen([self.native, "hold", str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.helper.stdout.readline()

    def give(self):
        if self.helper:
            self.helper.communicate()
            self.helper = None


def describe():
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?")
    memory = next(int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return f"{os.cpu_count()} cores of {cpu}, {memory / 1048576:.0f} GiB, Linux {os.uname().release}"
