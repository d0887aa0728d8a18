"""A file system that stops answering, by the FUSE protocol on /dev/fuse: one file, model.safetensors, whose first bytes can be
read. Needs root. NFS without its server behaves alike.

    with HungFiles(header, bytes_in_all, answers={"flush"}) as files: files.path, files.wait_for("read")
"""
import ctypes
import os
import struct
import tempfile
import threading

NAME = b"model.safetensors"
LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 29, 34, 36, 42)
CLONE_NEWNS, MS_PRIVATE, MS_REC, MNT_DETACH, ENOENT, ENOSYS = 0x20000, 1 << 18, 1 << 14, 2, 2, 38
libc = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def have_mounts_of_our_own():
    """For this process and its children: nobody else sees what they mount."""
    checked(libc.unshare(CLONE_NEWNS))
    checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))


class HungFiles:
    """Reads behind the first page and everything in `silent` are never answered. No signal ends them, not even SIGKILL."""

    def __init__(self, start, size, silent=("read",)):
        self.start, self.size, self.silent = start, size, silent
        self.hung, self.change = [], threading.Condition()

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="tc8-fuse-")
        self.path = os.path.join(self.folder, NAME.decode())
        self.fd = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        checked(libc.mount(b"hung", self.folder.encode(), b"fuse", 0, options.encode()))
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *exception):
        libc.umount2(self.folder.encode(), MNT_DETACH)
        os.close(self.fd)  # ends the connection: whoever hangs gets an error
        os.rmdir(self.folder)

    def wait_for(self, what, seconds=30):
        with self.change:
            return self.change.wait_for(lambda: what in self.hung, seconds)

    def hang(self, what):
        with self.change:
            self.hung.append(what)
            self.change.notify_all()

    def attributes(self, node):
        size, mode = (0, 0o40755) if node == 1 else (self.size, 0o100644)
        return struct.pack("<6Q10I", node, size, 1, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, operation, node, body):
        """Bytes, an error number, or None for no answer."""
        if operation == INIT:
            return struct.pack("<IIIIHHIIHH8I", 7, 31, 1 << 17, 0, 12, 9, 1 << 17, 1, 0, 0, *[0] * 8)
        if operation == GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
        if operation == LOOKUP:
            found = body.rstrip(b"\0") == NAME
            return struct.pack("<QQQQII", 2, 0, 0, 0, 0, 0) + self.attributes(2) if found else ENOENT
        if operation in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if operation == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            if offset or "read" not in self.silent:
                return self.hang("read")
            return (self.start + b"\0" * size)[:size]
        if operation == FLUSH and "flush" in self.silent:
            return self.hang("flush")
        if operation == STATFS:
            return struct.pack("<5Q10I", 1, 1, 1, 1, 1, 4096, 255, 4096, *[0] * 7)
        if operation in (FORGET, BATCH_FORGET, INTERRUPT):
            return None
        return b"" if operation in (RELEASE, FLUSH, RELEASEDIR, ACCESS) else ENOSYS

    def serve(self):
        while True:
            try:
                request = os.read(self.fd, 1 << 20)
                _, operation, unique, node = struct.unpack_from("<IIQQ", request)
                given = self.answer(operation, node, request[40:])
                if given is not None:
                    error, data = (-given, b"") if isinstance(given, int) else (0, given)
                    os.write(self.fd, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
            except OSError:
                return
