"""Sandboxes that refuse openat2(): RestrictSUIDSGID= of systemd and gVisor (ENOSYS), old container runtimes (EPERM)."""
import errno
import os
import platform
import subprocess
import sys

import numpy as np
import pytest
import tensorcast_client as tc

from checkpoints import blob, write
from stage import CLI

# A filter of system calls for the program in the arguments: number 437 fails with that errno, everything else is allowed.
REFUSE = """import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, 0x50000 | int(sys.argv[1])), (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[2], sys.argv[2:])"""

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="the number of the system call is another")


def refusing(error):
    return ["/usr/bin/env", sys.executable, "-I", "-c", REFUSE, str(error)]


@pytest.fixture(params=[errno.ENOSYS, errno.EPERM], ids=["ENOSYS", "EPERM"])
def sandboxed(start, models, tmp_path, request):
    (tmp_path / "acts").mkdir()
    daemon = start(running=False, activations={"roots": [str(tmp_path / "acts")]})
    return daemon.start(through=refusing(request.param))


def test_paths_lead_through_links_inside_the_roots_and_nowhere_else(sandboxed, models, tmp_path):
    write(models / "blobs", {"w": blob(1, 3000)})
    write(tmp_path / "outside", {"w": blob(2, 3000)})
    (models / "snapshot").mkdir()
    os.symlink("../blobs/model.safetensors", models / "snapshot/model.safetensors")
    os.symlink(tmp_path / "outside", models / "out")
    assert sandboxed.cli.json("load", models / "snapshot", "--digest")["tensors"][0]["name"] == "w"
    for path in [models / "out", models / "out/model.safetensors", models / "out/missing", tmp_path / "outside"]:
        assert sandboxed.cli.run("load", path).status == "PERMISSION_DENIED"
    assert sandboxed.cli.run("load", models / "missing").status == "NOT_FOUND"
    assert sandboxed.logged("event=openat2_refused") and sandboxed.whole_log().count("event=openat2_refused") == 1


def test_stores_of_activations_are_written(sandboxed, tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "acts/link")
    with tc.connect(str(sandboxed.socket)) as client:
        with client.activation_store(f"disk:{tmp_path}/acts/run", host=0) as store:
            store.append(1, {3: np.arange(12, dtype=np.float32)})
        with pytest.raises(tc.TensorcastError, match="link"), client.activation_store(f"disk:{tmp_path}/acts/link", host=0) as store:
            store.append(1, {3: np.arange(12, dtype=np.float32)})
    assert [path.name for path in (tmp_path / "acts/run/host_000").glob("*.safetensors")] == ["segment_000001.safetensors"]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's folder needs root")
def test_a_root_of_activations_that_the_daemon_cannot_write_to_is_told_at_the_start(start, models, tmp_path):
    (models / "roots").mkdir()
    (models / "mine").mkdir()
    daemon = start(running=False, activations={"roots": [str(models / "mine"), str(models / "roots"), str(models / "missing")]})
    os.chown(models / "mine", 65534, 65534)
    daemon.start(user="nobody")
    assert daemon.logged(f"root={models}/roots error=EACCES", f"root={models}/missing error=ENOENT")
    assert daemon.log().count("event=activation_root_not_writable") == 2


def test_a_folder_on_tmpfs_is_made_and_none_behind_a_link(sandboxed, models):
    write(models / "m", {"w": blob(1, 3000)})
    place = f"/dev/shm/tc8-{os.getpid()}"
    os.mkdir(place)
    os.symlink(place, f"{place}-link")

    def folder(path):
        return subprocess.run([*refusing(errno.ENOSYS), str(CLI), "folder", str(models / "m"), path], capture_output=True, text=True,
                              env=sandboxed.cli.environment)

    try:
        assert folder(f"{place}/m").returncode == 0 and os.path.exists(f"{place}/m/model.safetensors")
        assert "symbolic link" in folder(f"{place}-link/m").stderr
        sandboxed.cli.ok("release", f"{place}/m")
    finally:
        os.unlink(f"{place}-link")
        subprocess.run(["rm", "-rf", place], check=True)
