"""Files that another process writes while they are loaded. A load gives the old bytes or the new ones or an error, and what a file
no longer holds is not served from memory. Each way of writing, on each file system that can be had here."""
import ctypes
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from checkpoints import blob, digest, digests, write
from stage import CLI, MiB, Daemon, for_everybody, soon

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="makes file systems and acts as two users, which root can")
BYTES = 24 * MiB
OLD, NEW = (np.full(BYTES, value, np.uint8) for value in (65, 66))
DATA_AT = 4096  # so that O_DIRECT can write the data alone


def run(*command):
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]} here")
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{command[0]}: {done.stderr.strip()}")


def on_ext4(folder):
    image = folder / "image"
    with open(image, "wb") as file:
        file.truncate(160 * MiB)
    run("mkfs.ext4", "-q", image)
    run("mount", "-o", "loop", image, folder / "mnt")


def on_tmpfs(folder):
    run("mount", "-t", "tmpfs", "tensorcast-test", folder / "mnt")


def on_overlay(folder):
    for name in ("lower", "upper", "work"):
        (folder / name).mkdir()
    run("mount", "-t", "overlay", "tensorcast-test", "-o",
        f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work", folder / "mnt")


@pytest.fixture(params=[None, on_ext4, on_tmpfs, on_overlay], ids=["tmp", "ext4", "tmpfs", "overlay"])
def place(request):
    """A folder on one kind of file system."""
    if request.param and os.geteuid() != 0:
        pytest.skip("only root can mount")
    with tempfile.TemporaryDirectory(prefix="tc8-place-") as folder:
        folder = Path(folder).resolve()
        folder.chmod(0o755)
        (folder / "mnt").mkdir()
        if request.param:
            request.param(folder)
        try:
            (folder / "mnt").chmod(0o755)
            yield folder / "mnt"
        finally:
            if request.param:
                assert soon(lambda: subprocess.run(["umount", folder / "mnt"], capture_output=True).returncode == 0)


@pytest.fixture
def here(place):
    """A daemon that may read there, into memory that is prepared: so it copies from mappings of leased files."""
    daemon = Daemon([place], {"memory": {"host_budget": "256MiB", "pool_budget": "64MiB"}}, {}).start()
    yield daemon
    complaint = daemon.remove()
    assert not complaint, complaint


def header(shape):
    text = json.dumps({"w": {"dtype": "U8", "shape": shape, "data_offsets": [0, BYTES]}}).encode()
    return (DATA_AT - 8).to_bytes(8, "little") + text.ljust(DATA_AT - 8)


def write_model(folder):
    path = folder / "x.safetensors"
    path.write_bytes(header([BYTES]) + OLD.tobytes())
    return path


def outcome(daemon, path):
    """"old", "new", or the reason of a refusal. Anything else is a mixture."""
    done = daemon.cli.run("load", f"disk:{path}", "--digest", "--json")
    if done.code == 0:
        return {digest(OLD): "old", digest(NEW): "new"}.get(digests(done.report)["w"], "a mixture")
    refused = [reason for reason in ("is open for writing", "is being written", "opened for writing", "was changed", "replaced")
               if reason in done.err]
    assert path.name in done.err and done.status == "FAILED_PRECONDITION", done
    return refused[0] if refused else done.err


class Writer:
    """Makes a file new, or old again, piece by piece. With `halfway`, a thread of its own that stops in the middle."""

    def __init__(self, path):
        self.path, self.thread = path, None
        self.halfway, self.go_on = threading.Event(), threading.Event()

    def overwrite(self, value, pause=lambda: None):
        self.open()
        for at in range(0, BYTES, MiB):
            if at == BYTES // 2:
                pause()
            self.write(at, value)
        self.close()

    def open(self):
        self.fd = os.open(self.path, os.O_RDWR)

    def close(self):
        os.close(self.fd)

    def pause(self):
        self.halfway.set()
        assert self.go_on.wait(60)

    def __enter__(self):
        self.thread = threading.Thread(target=self.overwrite, args=(66, self.pause))
        self.thread.start()
        assert self.halfway.wait(60)

    def __exit__(self, *_):
        self.go_on.set()
        self.thread.join()


class Pwritev(Writer):
    def write(self, at, value):
        os.pwritev(self.fd, [bytes([value]) * (MiB // 2)] * 2, DATA_AT + at)


class Direct(Writer):
    def open(self):
        try:
            self.fd = os.open(self.path, os.O_RDWR | os.O_DIRECT)
        except OSError as error:
            pytest.skip(f"no O_DIRECT here: {error}")
        self.buffer = mmap.mmap(-1, MiB)

    def write(self, at, value):
        self.buffer[:] = bytes([value]) * MiB
        os.pwritev(self.fd, [self.buffer], DATA_AT + at)


class OverMapping(Writer):
    """As torch.from_file(shared=True) does: the descriptor is closed, the mapping stays."""

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def open(self):
        super().open()
        both = mmap.PROT_READ | mmap.PROT_WRITE
        self.address = self.libc.mmap(None, DATA_AT + BYTES, both, mmap.MAP_SHARED, self.fd, 0)
        super().close()
        ctypes.string_at(self.address, DATA_AT + BYTES)  # pages that are there are written without a fault, where that is possible

    def write(self, at, value):
        ctypes.memset(self.address + DATA_AT + at, value, MiB)

    def close(self):
        self.libc.munmap(self.address, DATA_AT + BYTES)


WRITERS = [Pwritev, Direct, OverMapping]


def can_be_seen(kind, place):
    kind_of_place = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True).stdout
    if kind is OverMapping and kind_of_place.startswith("overlay"):
        pytest.skip("an overlay knows nothing of mappings whose descriptor was closed (docs/changing-files.md)")
    if kind is Direct:
        path = write_model(place)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
        except OSError as error:
            pytest.skip(f"no O_DIRECT here: {error}")


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_is_being_written_is_refused_and_loads_anew_when_that_is_over(here, place, kind):
    can_be_seen(kind, place)
    path = write_model(place)
    assert outcome(here, path) == "old"
    with kind(path):
        assert outcome(here, path) == "is open for writing"
        assert outcome(here, path) == "is open for writing"
    assert path.read_bytes()[DATA_AT:] == NEW.tobytes()
    assert outcome(here, path) == "new"


@pytest.mark.parametrize("kind", WRITERS)
def test_loads_beside_a_writer_are_never_a_mixture(here, place, kind):
    can_be_seen(kind, place)
    path = write_model(place)
    stop, writes = threading.Event(), [0]

    def work():
        while not stop.is_set():
            kind(path).overwrite(65 if writes[0] % 2 else 66)
            writes[0] += 1
            time.sleep(0.05 * (writes[0] % 3))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        outcomes = [outcome(here, path) for _ in range(12)]
    finally:
        stop.set()
        worker.join()
    assert "a mixture" not in outcomes and writes[0] > 0, (outcomes, writes)
    assert outcome(here, path) == ("new" if writes[0] % 2 else "old")


def test_a_file_that_is_cut_off_and_written_anew_during_loads_ends_neither_of_them(here, place):
    path, stop, cuts = write_model(place), threading.Event(), [0]

    def cut():
        while not stop.is_set():
            time.sleep(0.01 * (cuts[0] % 4))
            os.truncate(path, DATA_AT + BYTES // (2 + cuts[0] % 3))
            path.write_bytes(header([BYTES]) + OLD.tobytes())
            cuts[0] += 1
            time.sleep(0.05)

    worker = threading.Thread(target=cut)
    worker.start()
    try:
        answers = [here.cli.run("load", f"disk:{path}", "--digest", "--json") for _ in range(5)]
    finally:
        stop.set()
        worker.join()
    assert cuts[0] > 0 and all(digests(answer.report)["w"] == digest(OLD) for answer in answers if answer.code == 0)
    assert all(path.name in answer.err for answer in answers if answer.code), answers
    assert outcome(here, path) == "old"


def test_a_change_through_a_mapping_after_the_load_is_seen_by_the_next(here, place):
    path = write_model(place)
    assert outcome(here, path) == "old"
    times = os.stat(path)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[DATA_AT:] = NEW.tobytes()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert outcome(here, path) == "new"


def test_a_replica_that_a_client_still_holds_gives_nothing_to_loads_after_a_change(here, place):
    """Neither whole nor block by block."""
    path = write_model(place)
    holder = here.cli.spawn("load", f"disk:{path}", "--hold", "60")
    try:
        assert soon(lambda: here.status()["leases"] == 1)
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
            mapping[DATA_AT:] = NEW.tobytes()
        assert outcome(here, path) == "new"
        view = here.cli.json("load", f"disk:{path}", "--slice", f"w[{MiB}:]", "--digest")
        assert digests(view)["w"] == digest(NEW[MiB:])
    finally:
        holder.kill()
        holder.communicate()


def test_a_header_that_is_being_written_is_neither_shown_nor_kept(here, place):
    path = write_model(place)
    assert here.cli.json("inspect", f"disk:{path}")["tensors"][0]["shape"] == [BYTES]
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        mapping[:DATA_AT] = header([BYTES // 4, 4])
        refused = here.cli.run("inspect", f"disk:{path}")
        assert refused.status == "FAILED_PRECONDITION" and "open for writing" in refused.err, refused
    assert here.cli.json("inspect", f"disk:{path}")["tensors"][0]["shape"] == [BYTES // 4, 4]


def test_who_opens_a_file_for_writing_does_not_wait_for_the_daemon(here, place):
    """The daemon has it open and leased as long as a replica of it is kept. The kernel lets a writer in after 45 s."""
    path = write_model(place)
    assert outcome(here, path) == "old" and len(here.status()["replicas"]) == 1
    start = time.monotonic()
    os.close(os.open(path, os.O_RDWR))
    assert time.monotonic() - start < 40


@pytest.fixture
def checkpoint(models):
    """Two parts, an index, a sidecar, and a manifest beside them."""
    write(models / "m", {"a": blob(1, MiB)}, {"b": blob(2, MiB)})
    (models / "m" / "config.json").write_text("{}")
    return models / "m"


@pytest.mark.parametrize("name", ["model-00002-of-00002.safetensors", "model.safetensors.index.json"])
@pytest.mark.parametrize("command", ["load", "inspect", "explain", "verify"])
@pytest.mark.parametrize("standalone", [[], ["--standalone"]])
def test_whatever_file_is_open_for_writing_is_named(daemon, checkpoint, name, command, standalone):
    reference = f"disk:{checkpoint}"
    daemon.cli.ok(command, reference, *standalone)
    with open(checkpoint / name, "r+b"):
        refused = daemon.cli.run(command, reference, *standalone)
    assert refused.status == "FAILED_PRECONDITION", refused
    assert refused.err.count(f"{name} is open for writing by another process") == 1, refused
    daemon.cli.ok(command, reference, *standalone)


def test_a_sidecar_that_is_being_written_is_refused(daemon, checkpoint, tmp_path):
    with open(checkpoint / "config.json", "a"):
        refused = daemon.cli.run("fetch", f"disk:{checkpoint}", "--sidecars", tmp_path / "out")
    assert refused.status == "FAILED_PRECONDITION" and "config.json is open for writing" in refused.err, refused
    daemon.cli.ok("fetch", f"disk:{checkpoint}", "--sidecars", tmp_path / "out")


def test_a_manifest_that_is_being_written_is_not_taken_for_none(start, checkpoint):
    daemon = start(sources={"verify": "required"})
    manifest = checkpoint / "model.manifest.json"
    daemon.cli.ok("manifest", f"disk:{checkpoint}", "--out", manifest)
    with open(manifest, "r+b"):
        refused = daemon.cli.run("load", f"disk:{checkpoint}")
    assert refused.status == "FAILED_PRECONDITION" and "model.manifest.json is open for writing" in refused.err, refused
    daemon.cli.ok("load", f"disk:{checkpoint}")


def test_a_hub_s_cache_is_leased_too(start, models):
    """hf:// from the folder that huggingface_hub keeps."""
    commit = "0" * 40
    folder = models / "models--org--model"
    write(folder / "snapshots" / commit, {"w": blob(1, MiB)})
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    daemon = start(sources={"hf": {"cache_dir": str(models), "offline": True}})
    daemon.cli.ok("load", "hf://org/model")
    with open(folder / "snapshots" / commit / "model.safetensors", "r+b"):
        refused = daemon.cli.run("load", "hf://org/model")
    assert refused.status == "FAILED_PRECONDITION" and "open for writing" in refused.err, refused


def test_touching_a_file_that_is_in_use_works(daemon, checkpoint):
    """touch opens with O_NONBLOCK."""
    daemon.cli.ok("load", f"disk:{checkpoint}")
    subprocess.run(["touch", checkpoint / "model-00001-of-00002.safetensors"], check=True)
    daemon.cli.ok("load", f"disk:{checkpoint}")


def test_explain_and_the_log_tell_how_a_change_would_be_noticed(here, place):
    path = write_model(place)
    assert here.cli.json("explain", f"disk:{path}")["change_detection"] == {"by": "lease", "reason": ""}
    assert "noticed by lease" in here.cli.ok("explain", f"disk:{path}").out
    assert here.cli.json("load", f"disk:{path}")["change_detection"]["by"] == "lease"
    assert soon(lambda: "change_detection=lease" in here.log())


# A daemon that neither owns the files nor has CAP_LEASE has their timestamps only.


@pytest.fixture
def stranger(start):
    return start(running=False).start(user="nobody")


@AS_ROOT
@pytest.mark.parametrize("capabilities,by", [("-all,+lease", "lease"), ("-all", "racy")])
def test_the_capability_of_the_unit_is_what_leases_of_strangers_files_need(models, capabilities, by):
    path = write_model(models)
    command = ["setpriv", "--reuid=nobody", "--clear-groups", f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}",
               "--no-new-privs", for_everybody(CLI), "explain", f"disk:{path}", "--standalone", "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True, cwd="/").stdout)
    assert report["change_detection"]["by"] == by


@AS_ROOT
def test_without_a_lease_a_file_that_is_being_written_is_refused(stranger, models):
    path = write_model(models)
    with Pwritev(path):
        writing = threading.Event()

        def touch():
            while not writing.wait(0.2):
                os.utime(path)

        toucher = threading.Thread(target=touch)
        toucher.start()
        try:
            assert outcome(stranger, path) == "is being written"
        finally:
            writing.set()
            toucher.join()


@AS_ROOT
def test_what_was_read_of_a_racy_file_is_not_used_again(stranger, models):
    path = write_model(models)
    report = stranger.cli.json("load", f"disk:{path}", "--digest")
    assert digests(report)["w"] == digest(OLD) and report["change_detection"]["by"] == "racy", report
    assert "60 s" in report["change_detection"]["reason"]
    again = stranger.cli.json("load", f"disk:{path}", "--digest")
    assert not again["from_replica"] and stranger.status()["replicas"] == []
    assert "racy timestamps" in stranger.cli.ok("explain", f"disk:{path}").out


@AS_ROOT
def test_one_write_call_that_is_under_way_leaves_no_mixture_behind_without_a_lease(stranger, models):
    """Its times are those of its beginning, so the file looks the same before and after."""
    path = write_model(models)
    source = models / "source"
    source.write_bytes(NEW.tobytes())
    writer = subprocess.Popen([sys.executable, "-c", SLOW_WRITE, source, path, str(DATA_AT)], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"go\n"
    outcome(stranger, path)  # what it gives depends on how long the call takes
    assert writer.wait(60) == 0
    assert outcome(stranger, path) == "new"


SLOW_WRITE = """
import mmap, os, sys
source = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(source)
os.posix_fadvise(source, 0, 0, os.POSIX_FADV_DONTNEED)
pages = mmap.mmap(source, 0, prot=mmap.PROT_READ)
pages.madvise(mmap.MADV_RANDOM)
fd = os.open(sys.argv[2], os.O_RDWR)
print("go", flush=True)
os.pwrite(fd, pages, int(sys.argv[3]))
"""


@AS_ROOT
def test_tmpfs_without_a_lease_is_always_racy(start):
    with tempfile.TemporaryDirectory(prefix="tc8-shm-", dir="/dev/shm") as folder:
        Path(folder).chmod(0o755)
        path = write_model(Path(folder))
        daemon = start(running=False, sources={"disk": {"trusted_roots": [folder]}}).start(user="nobody")
        assert outcome(daemon, path) == "old"
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
            assert mapping[DATA_AT] == 65
            mapping[DATA_AT:] = NEW.tobytes()
        assert outcome(daemon, path) == "new"
