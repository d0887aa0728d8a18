"""Activation stores on a machine that loses its power: what is committed is there once, whatever was not synced is gone.

State and store lie on an ext4 of their own, in an image behind a loop device. EXT4_IOC_SHUTDOWN without a flush of the journal stops
it at once: no dirty page and no transaction that was not written gets to the device any more, and the next mount finds what the
device had. What the device itself would lose, writes that it had taken but not flushed, is not lost here: a missing flush behind
bytes that the kernel has sent already goes unseen.

TENSORCAST_POWER_CUTS is how many at random moments (`make long`: 1000); one of each step comes beside them."""
import fcntl
import os
import random
import signal
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
import tensorcast_client as tc

from activation_scene import same, stored
from activation_steps import STEPS, UPLOAD_STEPS, Stops, Writer, is_settled, is_stopped, sample
from stage import soon
from store_scene import settings
from test_activation_steps import count, whole
from test_activation_uploads import bucket, entries, manifest, uploads

CUTS = int(os.environ.get("TENSORCAST_POWER_CUTS", "8"))
EXT4_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = struct.pack("I", 2)


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
        """Not before the one that was cut off is gone: another name space may have a copy of that, and gets the next one, too."""
        assert soon(lambda: not self.has_device(), 60), "the file system that was cut off does not go: another mount namespace has it"
        self.run("mount", "-o", "loop", self.image, self.point)
        self.is_mounted = True

    def has_device(self):
        return subprocess.run(["losetup", "-j", self.image], capture_output=True, check=True).stdout != b""

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


def on_disk(start, disk, **sections):
    """A daemon, not started, whose state lies there, too."""
    (disk.point / "state").mkdir()
    os.sync()
    daemon = start(running=False, activations={"roots": [str(disk.point)]}, **sections)
    daemon.tree["server"]["state_dir"] = str(disk.point / "state")
    daemon.configure(daemon.tree)
    return daemon


def after_cut(daemon, disk, environment=()):
    """The same machine with power again."""
    daemon.kill()
    disk.unmount()
    disk.mount()
    daemon.start(environment=environment)


def test_a_machine_without_power_loses_nothing_committed_and_doubles_nothing(disk, start):
    dice, committed, daemon = random.Random(os.urandom(8)), -1, on_disk(start, disk).start()
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
        assert soon(lambda: is_settled(acts / "host_003"), 60), list((acts / "host_003").iterdir())
        found = stored(acts / "host_003") if (acts / "host_003/manifest.json").exists() else {}
        assert sorted(found) == list(range(len(found)))
        assert committed < len(found) <= appended + 2  # and perhaps one that was not answered any more
        assert all(same(found[i], sample(i)) for i in found)
        committed = len(found) - 1  # they are sealed


def test_a_machine_that_loses_its_power_at_any_step_loses_nothing_committed(disk, start, tmp_path):
    dice, committed, acts, stops = random.Random(os.urandom(8)), -1, disk.point / "acts", Stops(tmp_path)
    daemon = on_disk(start, disk).start(environment=stops.environment)
    for name, step in STEPS.items():
        stops.at(step, signal.SIGSTOP, dice.randrange(4))
        writer = Writer(daemon.socket, f"disk:{acts}")
        assert soon(lambda writer=writer: not writer.read(0.01) or is_stopped(daemon)) and stops.reached(), (name, writer.kill())
        writer.read()
        disk.cut()
        told = writer.kill()
        after_cut(daemon, disk, stops.environment)
        assert told["resume"] in (None, committed), (name, told, committed)
        assert soon(lambda: is_settled(acts / "host_003")), (name, list((acts / "host_003").iterdir()), daemon.log()[-1500:], is_stopped(daemon))
        found = stored(acts / "host_003") if (acts / "host_003/manifest.json").exists() else {}
        assert sorted(found) == list(range(len(found))), name
        assert max(committed, told["committed"]) < len(found) <= max(told["appended"], committed) + 2, (name, told, len(found))
        assert all(same(found[i], sample(i)) for i in found), name
        committed = len(found) - 1


def test_a_machine_that_loses_its_power_at_any_step_of_an_upload_has_every_sample_here_or_there_once(disk, start, fake, bare, aws_keys, tmp_path):
    dice, committed, acts, stops = random.Random(os.urandom(8)), -1, disk.point / "acts", Stops(tmp_path)
    fake.world.bucket("gcs", "b")
    daemon = on_disk(start, disk, sources=settings(fake, http={"max_tries": 1})).start(environment=stops.environment)
    for name, step in UPLOAD_STEPS.items():
        stops.at(step, signal.SIGSTOP, dice.randrange(2))
        writer = Writer(daemon.socket, f"disk:{acts}", most=30, upload="gs://b/acts", keep_local=False)
        assert soon(lambda writer=writer: stops.reached() or not writer.read(0.01)) and stops.reached(), (name, writer.kill())
        assert soon(lambda: is_stopped(daemon)), name
        disk.cut()
        told = writer.kill()
        after_cut(daemon, disk, stops.environment)
        assert told["resume"] in (None, committed), (name, told, committed)
        least, most = max(committed, told["committed"]) + 1, max(told["appended"], committed) + 2
        assert soon(lambda: is_settled(acts / "host_003")), (name, daemon.log()[-1500:])
        committed = count(fake, acts, least, most) - 1
    assert soon(lambda: uploads(daemon, acts)["pending"] == 0 and not list((acts / "host_003").glob("*.safetensors"))), uploads(daemon, acts)
    assert whole(fake, acts) == committed + 1 > 0
    assert soon(lambda: entries(bucket(fake)["acts/host_003/manifest.json"]) == manifest(acts))
