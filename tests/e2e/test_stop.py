"""SIGTERM ends the daemon when server.shutdown_grace is over, whatever its threads wait for, and tells who loses what by it."""
import os
import signal
import struct
import subprocess
import sys
import time

import pytest

from checkpoints import blob, write
from stage import DAEMON, QUIET_TSAN, ROOT, MiB, soon
from test_log import lines

sys.path.append(str(ROOT / "tests" / "fake"))
from fuse import HungFiles, have_mounts_of_our_own  # noqa: E402

SIZE = 64 * MiB
GRACE_S, SLACK_S = 1, 30


def header():
    text = b'{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (SIZE, SIZE)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


class Mount:
    """A hung file system in a mount name space of its own, served by another process."""

    def __init__(self):
        self.server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.path = self.server.stdout.readline().strip()

    def start(self, daemon):
        tree = daemon.tree
        tree["sources"]["disk"]["trusted_roots"].append(os.path.dirname(self.path))
        daemon.configure(tree)
        with open(daemon.log_path, "a") as log:
            daemon.process = subprocess.Popen(["nsenter", "-m", "-r", "-w", "-t", str(self.server.pid), "--", str(DAEMON),
                                               "--config", str(daemon.config)],
                                              stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                              env={**os.environ, "TSAN_OPTIONS": QUIET_TSAN})
        assert soon(daemon.serving), daemon.log()

    def end(self):
        """A process that hangs gets an error."""
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()


@pytest.fixture
def hung(start):
    mount = Mount()
    daemon = start(running=False, server={"shutdown_grace": f"{GRACE_S}s"})
    mount.start(daemon)
    yield daemon, mount
    mount.end()


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")


@needs_root
def test_a_hung_read_does_not_outlast_the_grace(hung):
    daemon, mount = hung
    client = daemon.cli.spawn("load", f"disk:{mount.path}")
    assert soon(lambda: daemon.status()["loads"])
    daemon.process.send_signal(signal.SIGTERM)
    _, err = client.communicate(timeout=60)
    assert "UNAVAILABLE" in err and "the daemon is stopping; the load did not end within server.shutdown_grace 1 s" in err
    assert daemon.process.wait(GRACE_S + SLACK_S) == 0  # the server has not answered yet
    assert lines(daemon, "drain_incomplete")[0]["loads"] == "1"
    failed, = lines(daemon, "load_failed")
    assert (failed["code"], failed["reason"]) == ("UNAVAILABLE", "DAEMON_STOPPING")
    assert lines(daemon, "stopped") and not lines(daemon, "stop_forced")
    mount.end()


@needs_root
def test_a_read_that_no_signal_ends_keeps_neither_sockets_nor_leases(hung, models, start):
    """The kernel keeps what is left of the process that makes it until the file system answers. A new daemon does not care."""
    daemon, mount = hung
    write(models / "m", {"w": blob(1, 4096)})
    holder = daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "60")
    assert soon(lambda: daemon.status()["leases"] == 1)
    client = daemon.cli.spawn("load", f"disk:{mount.path}")
    assert soon(lambda: daemon.status()["loads"])
    daemon.process.send_signal(signal.SIGTERM)
    _, err = client.communicate(timeout=60)
    assert "the daemon is stopping" in err
    assert daemon.process.wait(GRACE_S + SLACK_S) == 0
    assert not daemon.socket.exists() and not daemon.handoff.exists()
    successor = start(running=False)
    successor.configure({**successor.tree, "server": daemon.tree["server"]})
    successor.socket, successor.cli = daemon.socket, daemon.cli
    successor.start()
    successor.cli.ok("load", f"disk:{models}/m")
    holder.kill()
    holder.communicate()
    mount.end()


@pytest.mark.plain
def test_a_hung_helper_does_not_outlast_the_stop(start):
    """It reads a configuration that is a FIFO, as it might lie on a dead mount."""
    daemon = start(server={"shutdown_grace": "10s"})
    daemon.config.unlink()
    os.mkfifo(daemon.config)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.cli.ok("status")
    started = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(60) == 1
    assert time.monotonic() - started < SLACK_S
    assert lines(daemon, "stop_forced")


def test_signals_that_come_while_it_ends_do_not_make_it_fail(start):
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon = start()
        daemon.process.send_signal(signal.SIGTERM)
        while daemon.process.poll() is None:
            daemon.process.send_signal(number)
        assert daemon.process.returncode == 0, daemon.log()


if __name__ == "__main__":
    have_mounts_of_our_own()
    with HungFiles(header(), len(header()) + SIZE) as files:
        print(files.path, flush=True)
        sys.stdin.read()
