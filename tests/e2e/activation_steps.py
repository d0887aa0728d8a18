"""Ends writers, daemons and machines at steps that have names: the way of a sample from its append to the deletion of its segment.

stop_at_step.c, preloaded into the daemon, stops it before a step; the process that is to die is killed then."""
import ctypes
import multiprocessing
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client.activation_messages import SERVICE, DescribeActivationsRequest, DescribeActivationsResponse

import activation_scene
from stage import SANITIZED

FOLDER = "host_003"

# name: (the call that is about to be made, the end of its path). In their order.
STEPS = {
    "the room of a large sample": ("fallocate", ".open"),
    "data": ("pwrite", ".open"),
    "data to the disk": ("fdatasync", ".open"),
    "a line of the journal": ("pwrite", ".journal"),
    "the journal to the disk": ("fdatasync", ".journal"),
    "the folder of a new segment to the disk": ("fsync", FOLDER),
    "the end of what is kept": ("ftruncate", ".open"),
    "the copy behind its header": ("copy_file_range", ".copy"),
    "the segment to the disk": ("fsync", ".open"),
    "the copy to the disk": ("fsync", ".copy"),
    "the segment's name": ("rename", ".safetensors"),
    "the manifest to the disk": ("fsync", "manifest.json.new"),
    "the manifest's name": ("rename", "manifest.json"),
    "the journal goes": ("unlink", ".journal"),
}

# And what follows where a segment is uploaded and not kept.
UPLOAD_STEPS = {
    "where uploads go": ("rename", ".json"),
    "a line of the queue": ("write", "uploads.log"),
    "the queue to the disk": ("fdatasync", "uploads.log"),
    "the manifest that says where a segment is": ("rename", "manifest.json"),
    "the segment goes": ("unlink", ".safetensors"),
}


class Control(ctypes.Structure):
    """struct control of stop_at_step.c."""

    _fields_ = [("action", ctypes.c_int), ("n_before", ctypes.c_int), ("n_done", ctypes.c_int), ("call", ctypes.c_char * 20),
                ("suffix", ctypes.c_char * 96)]


class Stops:
    """Of a daemon that is started with `environment`."""

    def __init__(self, folder):
        if SANITIZED:
            pytest.skip("the sanitizer's library has to be loaded before all others")
        library, path = Path(folder) / "stop_at_step.so", Path(folder) / "control"
        source = Path(__file__).with_name("stop_at_step.c")
        subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", library, source, "-ldl"], check=True)
        path.write_bytes(bytes(ctypes.sizeof(Control)))
        path.chmod(0o666)
        self.memory = np.memmap(path, np.uint8, "r+")
        self.control = Control.from_buffer(self.memory)
        self.environment = {"LD_PRELOAD": str(library), "STOP_AT_STEP": str(path)}

    def at(self, step, action, n_before=0):
        """The daemon gets the signal `action` before it makes the step, after so many of them; a negative one is the errno
        with which the step fails from then on."""
        self.control.call, self.control.suffix = (word.encode() for word in step)
        self.control.n_done, self.control.n_before = 0, n_before
        self.control.action = action

    def off(self):
        self.control.action = 0

    def reached(self):
        return self.control.n_done > 0


def sample(i):
    """Every sixth one is written past the page cache except for its ends."""
    large = {9: np.arange(i, i + (300 << 10) // 4 + i % 3, dtype=np.int32)} if i % 6 == 0 else {}
    return {**activation_scene.sample(i), **large}


def _append(pipe, socket, reference, most, options):
    with tc.connect(socket).activation_store(reference, host=3, segment_bytes="16KiB", **options) as store:
        last = store.resume["last_sample"]
        pipe.send(("resume", -1 if last is None else last))
        first = i = 0 if last is None else last + 1
        while i < first + most:
            store.append(i, sample(i))
            pipe.send(("appended", i))
            if i % 5 == 4:
                store.commit()
                pipe.send(("committed", i))
            i += 1
        time.sleep(60)


_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["activation_steps", "tensorcast_client"])


class Writer:
    """A process that appends `most` samples, and then waits, until it is killed or its daemon is."""

    def __init__(self, socket, reference, most=10**9, **options):
        self.pipe, other = _processes.Pipe(duplex=False)
        self.process = _processes.Process(target=_append, args=(other, str(socket), reference, most, options), daemon=True)
        self.process.start()
        other.close()
        self.last = {"resume": None, "appended": -1, "committed": -1}  # resume None: it did not get that far

    def read(self, wait_s=0.0):
        """False: it has ended."""
        try:
            while self.pipe.poll(wait_s):
                word, i = self.pipe.recv()
                self.last[word] = i
                wait_s = 0
        except EOFError:
            return False
        return True

    def kill(self):
        self.process.kill()
        self.process.join()
        while self.read(0.01):
            pass
        self.pipe.close()
        self.process.close()
        return self.last


def is_stopped(daemon):
    """Or dead."""
    if daemon.process.poll() is not None:
        return True
    return Path(f"/proc/{daemon.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def is_settled(folder):
    return not folder.exists() or not any(p.suffix in (".open", ".journal", ".copy", ".new") for p in folder.iterdir())


def has_writer(daemon, acts):
    request = DescribeActivationsRequest.encode(store=f"disk:{acts}")
    told = DescribeActivationsResponse.decode(tc.connect(daemon.socket).channel.call(f"{SERVICE}/Describe", request, 10))
    return any(host.is_open for host in told.hosts)
