"""Activation stores on a machine that loses its power: what is committed is there once, whatever was not synced is gone.

State and store lie on an ext4 of their own, in an image behind a loop device. EXT4_IOC_SHUTDOWN without a flush of the journal stops
it at once: no dirty page and no transaction that was not written gets to the device any more, and the next mount finds what the
device had. What the device itself would lose, writes that it had taken but not flushed, is not lost here: a missing flush behind
bytes that the kernel has sent already goes unseen.

TENSORCAST_POWER_CUTS is how many (`make long`: 1000)."""
import fcntl
import os
import random
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorcast_client as tc

import activation_scene
from activation_scene import same, stored
from stage import soon

CUTS = int(os.environ.get("TENSORCAST_POWER_CUTS", "8"))
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)


def sample(i):
    """Every sixth one is written past the page cache but for its end."""
    large = {9: np.arange(i, i + (300 << 10) // 4 + i % 3, dtype=np.int32)} if i % 6 == 0 else {}
    return {**activation_scene.sample(i), **large}


class Disk:
    """A file system that can be cut off."""

    def __init__(self, folder):
        self.image, self.point = folder / "disk.img", folder / "disk"
        self.point.mkdir()
        self.is_mounted = False

    def format(self):
        with open(self.image, "wb") as file:
            file.truncate(1 << 30)  # sparse
        self.run("mkfs.ext4", "-q", "-F", self.image)

    def run(self, *words):
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)

    def mount(self):
        self.run("mount", "-o", "loop", self.image, self.point)
        self.is_mounted = True

    def cut(self):
        fd = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(fd)

    def unmount(self):
        if self.is_mounted:
            self.run("umount", self.point)
            self.is_mounted = False


@pytest.fixture
def disk():
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    with tempfile.TemporaryDirectory(prefix="tc8-cut-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        made = Disk(Path(folder))
        try:
            made.format()
            made.mount()
            made.cut()
            made.unmount()
            made.mount()
        except (AssertionError, OSError) as error:
            made.unmount()
            pytest.skip(f"an ext4 behind a loop device cannot be mounted and cut off here: {error}")
        try:
            yield made
        finally:
            made.unmount()


def append_until_cut(daemon, disk, acts, dice):
    """(first, appended, committed): the sample it began with, and the last ones of which the daemon said so while there was power.
    What it says later no machine would have said: an fsync under way when ext4 is shut down can succeed without having written."""
    wait_s, with_commits, is_cut = dice.random() * 0.06, dice.random() < 0.8, threading.Event()
    power = threading.Thread(target=lambda: (time.sleep(wait_s), is_cut.set(), disk.cut()))
    i = first = committed = None
    try:
        store = tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3, segment_bytes="16KiB")
        last = store.resume["last_sample"]
        first = i = 0 if last is None else last + 1
        committed = first - 1
        power.start()
        while True:
            store.append(i, sample(i))
            i += 1
            if with_commits and dice.random() < 0.2:
                store.commit()
                committed = committed if is_cut.is_set() else i - 1
    except tc.TensorcastError:
        assert first is not None, "the store cannot be opened"
        power.join()
        return first, i - 1, committed


def after_cut(daemon, disk):
    """The same machine with power again."""
    daemon.kill()
    disk.unmount()
    disk.mount()
    daemon.start()


def is_settled(folder):
    return not folder.exists() or not any(p.suffix in (".open", ".journal", ".copy") for p in folder.iterdir())


def test_a_machine_without_power_loses_nothing_committed_and_doubles_nothing(disk, start):
    dice, committed = random.Random(os.urandom(8)), -1
    (disk.point / "state").mkdir()
    os.sync()
    daemon = start(running=False, activations={"roots": [str(disk.point)]})
    daemon.tree["server"]["state_dir"] = str(disk.point / "state")
    daemon.configure(daemon.tree)
    daemon.start()
    for cut in range(CUTS):
        acts = disk.point / f"acts_{cut // 10}"
        if cut % 10 == 0:
            committed = -1
        first, appended, now = append_until_cut(daemon, disk, acts, dice)
        assert first > committed, f"sample {committed} was committed and is gone"
        committed = max(committed, now)
        after_cut(daemon, disk)
        if dice.random() < 0.2:  # what makes the folder whole can be cut off, too
            time.sleep(dice.random() * 0.02)
            disk.cut()
            after_cut(daemon, disk)
        assert soon(lambda: is_settled(acts / "host_003"), 20), list((acts / "host_003").iterdir())
        found = stored(acts / "host_003") if (acts / "host_003/manifest.json").exists() else {}
        assert sorted(found) == list(range(len(found)))
        assert committed < len(found) <= appended + 2  # and perhaps one that was not answered any more
        assert all(same(found[i], sample(i)) for i in found)
        committed = len(found) - 1  # they are sealed
