"""A read-only file system in this process that stops answering when it is told to, as a dead NFS server does.

    with HangingFiles(folder, {"m/model.safetensors": data}) as files:    # mounted on folder, for this process and its children;
                                                                          # a text instead of bytes is the target of a link
        files.hangs = {"read"}           # from now on these requests are never answered: any of NAMES, or "late_read"
        ...
        files.hung                       # the names of the requests that were not answered, in order
        files.answer_late(b"\xee")       # answers the reads among them, with that byte

    with HungFiles(header, bytes_in_all) as files:    # one file, files.path, whose first bytes can be read

Linux, root and /dev/fuse only: see why_not(). The mount is in a mount name space that the calling thread, and what it starts
afterwards, has for itself. At the end the connection is cut: a process that hangs gets an error.
"""
import ctypes
import errno
import os
import stat
import struct
import tempfile
import threading
from pathlib import Path

CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, MNT_FORCE, MNT_DETACH = 0x20000, 1 << 12, 1 << 14, 1 << 18, 1, 2
NAMES = {1: "lookup", 3: "getattr", 5: "readlink", 14: "open", 15: "read", 18: "release", 25: "flush", 27: "opendir", 28: "readdir", 29: "releasedir"}
INIT, FORGET, BATCH_FORGET, INTERRUPT, STATFS, DESTROY = 26, 2, 42, 36, 17, 38
ROOT = 1
MAX_WRITE = 1 << 17
READ = 15
libc = ctypes.CDLL(None, use_errno=True)


def why_not():
    """What this needs and does not have; "" when it has everything."""
    if os.geteuid() != 0:
        return "mounting needs root"
    return "" if os.access("/dev/fuse", os.R_OK | os.W_OK) else "there is no /dev/fuse"


def check(result, what):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


has_own_mounts = False


def have_mounts_of_our_own():
    """For this thread and what it starts: no other process sees what they mount. In a chroot, whose / is no mount, that depends on
    how the mount around it was made."""
    global has_own_mounts
    if not has_own_mounts:
        check(libc.unshare(CLONE_NEWNS), "unshare")
        if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) == 0:
            drop_copies()
        elif ctypes.get_errno() != errno.EINVAL:
            raise OSError(ctypes.get_errno(), "mount --make-rprivate /")
        has_own_mounts = True


def drop_copies():
    """Of images that tests beside this one have mounted: as long as there is one of them, what is unmounted there stays."""
    for line in Path("/proc/thread-self/mountinfo").read_text().splitlines():
        point, source = line.split()[4], line.split(" - ")[1].split()[1]
        if source.startswith("/dev/loop"):
            libc.umount2(point.encode().decode("unicode-escape").encode("latin-1"), MNT_DETACH)


class HangingFiles:
    late_from = 1 << 20  # a late read begins there: behind what is read for a header

    def __init__(self, folder, files):
        self.folder, self.hangs, self.hung, self.change = os.fsencode(str(folder)), set(), [], threading.Condition()
        self.late_error = 0  # errno of late reads
        self.spared = set()  # nodes for which nothing hangs
        self.late = []  # (request, bytes) of the reads that hang
        self.nodes, self.children = {ROOT: None}, {ROOT: {}}  # id -> bytes, text (a link) or None (a folder); id -> name -> id
        for path, data in files.items():
            self.add(path, data)

    def add(self, path, data):
        *folders, name = path.split("/")
        at = ROOT
        for folder in folders:
            at = self.children[at].get(folder) or self.make(at, folder, None)
        self.make(at, name, data)

    def make(self, parent, name, data):
        node = len(self.nodes) + 1
        self.nodes[node], self.children[node] = data, {}
        self.children[parent][name] = node
        return node

    def __enter__(self):
        have_mounts_of_our_own()
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        check(libc.mount(b"hanging", self.folder, b"fuse", 0, options), "mount")
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def die(self):
        """As a server that is killed: the mount stays, and says ENOTCONN."""
        held = os.open(self.folder, os.O_PATH)  # else the force would unmount it
        libc.umount2(self.folder, MNT_FORCE)
        os.close(held)

    def end(self):
        """Cuts the connection; twice is the same as once."""
        libc.umount2(self.folder, MNT_FORCE | MNT_DETACH)  # the force cuts it
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __exit__(self, *_):
        self.end()

    def serve(self):
        fd = self.fd
        while self.fd == fd:
            try:
                request = os.read(fd, MAX_WRITE + 4096)
            except OSError as problem:
                if problem.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, op, unique, node = struct.unpack_from("<IIQQ", request)
            self.answer(fd, op, unique, node, request[40:])

    def answer(self, fd, op, unique, node, body):
        if op in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        is_late = op == READ and struct.unpack_from("<QQ", body)[1] >= self.late_from
        hangs = NAMES.get(op) in self.hangs or (is_late and "late_read" in self.hangs)
        if hangs and node not in self.spared:
            with self.change:
                self.hung.append(NAMES[op])
                if op == READ:
                    self.late.append((unique, struct.unpack_from("<QQI", body)[2]))
                self.change.notify_all()
            return
        data, error = (b"", self.late_error) if is_late and self.late_error else self.handle(op, node, body)
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(data), -error, unique) + data)
        except OSError:
            pass  # the asker is gone

    def handle(self, op, node, body):
        if op == INIT:
            return struct.pack("<IIIIHHII7I", 7, 31, MAX_WRITE, 0, 12, 9, MAX_WRITE, 1, *[0] * 7) + bytes(4), 0
        if op == STATFS:
            return struct.pack("<5Q10I", 1, 1, 1, 1, 1, 4096, 255, 4096, *[0] * 7), 0
        handler = getattr(self, "do_" + NAMES.get(op, ""), None)
        if handler:
            return handler(node, body)
        return b"", errno.ENOSYS

    def attributes(self, node):
        data = self.nodes[node]
        mode = (stat.S_IFDIR | 0o755 if data is None else stat.S_IFLNK | 0o777 if isinstance(data, str) else
                stat.S_IFREG | 0o644)
        return struct.pack("<6Q10I", node, len(data or b""), 1, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    # Nothing may be cached: every question reaches us.
    def do_lookup(self, node, body):
        child = self.children[node].get(os.fsdecode(body.rstrip(b"\0")))
        if not child:
            return b"", errno.ENOENT
        return struct.pack("<QQQQII", child, 0, 0, 0, 0, 0) + self.attributes(child), 0

    def do_getattr(self, node, _):
        return struct.pack("<QII", 0, 0, 0) + self.attributes(node), 0

    def do_readlink(self, node, _):
        return os.fsencode(self.nodes[node]), 0

    def do_open(self, node, _):
        return struct.pack("<QII", node, 0, 0), 0

    do_opendir = do_open

    def do_read(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        return self.nodes[node][offset:offset + size], 0

    def do_readdir(self, node, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        entries = b""
        for number, (name, child) in enumerate(self.children[node].items(), 1):
            raw = os.fsencode(name)
            entry = struct.pack("<QQII", child, number, len(raw), 4 if self.nodes[child] is None else 8) + raw
            entry += bytes(-len(entry) % 8)
            if number > offset and len(entries) + len(entry) <= size:
                entries += entry
        return entries, 0

    def do_release(self, *_):
        return b"", 0

    do_releasedir = do_flush = do_release

    def answer_late(self, byte):
        with self.change:
            late, self.late = self.late, []
        for unique, size in late:
            os.write(self.fd, struct.pack("<IiQ", 16 + size, 0, unique) + byte * size)

    def wait_for(self, what, seconds=30):
        with self.change:
            return self.change.wait_for(lambda: what in self.hung, seconds)


class Padded:
    """`start` and then zeros."""

    def __init__(self, start, size):
        self.start, self.size = start, size

    def __len__(self):
        return self.size

    def __getitem__(self, part):
        first, end, _ = part.indices(self.size)
        return self.start[first:end].ljust(max(0, end - first), b"\0")


class HungFiles(HangingFiles):
    """Reads behind the first ones and everything in `silent` are never answered. No signal ends them, not even SIGKILL."""
    late_from = 1

    def __init__(self, start, size, silent=("read",)):
        folder = tempfile.mkdtemp(prefix="tc8-fuse-")
        super().__init__(folder, {"model.safetensors": Padded(start, size)})
        self.path = os.path.join(folder, "model.safetensors")
        self.hangs = {"late_read", *silent} - {"read"}

    def __exit__(self, *exception):
        super().__exit__(*exception)
        os.rmdir(self.folder)
