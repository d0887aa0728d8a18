"""What status and release say of those who hold memory."""
import contextlib
import fcntl
import json
import os
import pty
import pwd
import re
import signal
import struct
import subprocess
import tempfile
import termios
from pathlib import Path

import pytest

from checkpoints import blob, write
from stage import CLI, MiB, soon


@pytest.fixture
def holders(daemon, models):
    """Two commands that hold all of disk:MODELS/m."""
    write(models / "m", {"w": blob(1, 2 * MiB)})
    commands = [daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "600") for _ in range(2)]
    assert soon(lambda: daemon.status()["leases"] == 2)
    yield commands
    for command in commands:
        command.kill()
        command.communicate()


def held_by(daemon):
    (replica,) = daemon.status()["replicas"]
    return {lease["pid"]: lease for lease in replica["held_by"]}


def test_status_lists_who_holds_memory(daemon, holders):
    held = held_by(daemon)
    assert held.keys() == {command.pid for command in holders}
    for pid, lease in held.items():
        assert lease["uid"] == os.getuid() and lease["command"] == "tensorcast" and 0 <= lease["since_s"] < 600
        assert f"0::{lease['cgroup']}\n" in Path(f"/proc/{pid}/cgroup").read_text() or not lease["cgroup"]
    page = daemon.cli.ok("status").out
    for command in holders:
        assert f"{command.pid} tensorcast ({pwd.getpwuid(os.getuid()).pw_name})" in page, page
    assert re.search(r"MiB +2 leases +\S+ +held +all .*\n +held by \d", page), page
    holders[0].kill()
    holders[0].wait()
    assert soon(lambda: held_by(daemon).keys() == {holders[1].pid})
    page = daemon.cli.ok("status").out
    assert "  1 lease  " in page and "1 leases" not in page and "1 connections" not in page, page


def test_a_holder_may_call_itself_what_it_likes(daemon, models):
    write(models / "m", {"w": blob(1, MiB)})
    name = models / "a\033[2Jb (c)"
    name.symlink_to(CLI)
    command = subprocess.Popen([name, "load", f"disk:{models}/m", "--hold", "600"], env=daemon.cli.environment,
                               stdout=subprocess.DEVNULL)
    assert soon(lambda: daemon.status()["leases"] == 1)
    page, (lease,) = daemon.cli.ok("status").out, daemon.status()["replicas"][0]["held_by"]
    assert "\033" not in page and lease["command"] == name.name, lease
    command.kill()
    command.wait()


def test_many_holders_are_counted(daemon, models):
    write(models / "m", {"w": blob(1, MiB)})
    commands = [daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "600") for _ in range(7)]
    assert soon(lambda: daemon.status()["leases"] == 7)
    assert len(held_by(daemon)) == 7 and re.search(r"held by (\d+ tensorcast \(\S+\)(, )?){4} and 3 more\n", daemon.cli.ok("status").out)
    for command in commands:
        command.kill()
        command.communicate()


def test_an_idle_replica_has_no_holders(daemon, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon.cli.ok("load", f"disk:{models}/m")
    assert soon(lambda: daemon.status()["replicas"][0]["held_by"] == [])
    page = daemon.cli.ok("status").out
    assert re.search(r" 0 leases +\S+ +idle +\d+ s ", page) and "held" not in page


def test_a_held_replica_is_not_called_idle(daemon, models):
    """"1 lease ... idle 0 s" was what it said. Also of one that was idle before, and by whatever width."""
    write(models / "m", {"w": blob(1, MiB)})
    daemon.cli.ok("load", f"disk:{models}/m")
    assert soon(lambda: daemon.status()["replicas"][0]["idle_s"] > 0)
    holder = daemon.cli.spawn("load", f"disk:{models}/m", "--hold", "600")
    assert soon(lambda: daemon.status()["leases"] == 1)
    for page in (daemon.cli.ok("status").out, *(on_terminal(daemon, columns, "status")[1] for columns in (60, 80, 132))):
        assert re.search(r"MiB +1 lease +(\S+ +)?held +all 1 tensor ", page) and "idle" not in page, page
    assert daemon.status()["replicas"][0]["idle_s"] == 0
    holder.kill()
    holder.communicate()
    assert soon(lambda: daemon.status()["replicas"][0]["idle_s"] > 0)
    assert re.search(r"MiB +0 leases +\S+ +idle \d+ s ", daemon.cli.ok("status").out)


def test_release_tells_what_is_in_use(daemon, models, holders):
    said = daemon.cli.ok("release", "--all").out
    assert re.fullmatch(r"released 0 replicas, 0 B; 1 is in use \(2(\.0+)? MiB\), 'tensorcast status' lists by whom\n", said), said
    told = daemon.cli.json("release", "--all")
    assert told == {"released_replicas": 0, "released_bytes": 0, "leased_replicas": 1, "leased_bytes": told["leased_bytes"],
                    "replicas_of_others": 0, "pinned_replicas": 0, "pinned_bytes": 0}
    assert told["leased_bytes"] >= 2 * MiB
    for command in holders:
        command.kill()
        command.wait()
    assert soon(lambda: daemon.status()["leases"] == 0)
    assert "in use" not in daemon.cli.ok("release", "--all").out


def on_terminal(daemon, columns, *arguments, until="\x1b[2J", times=2):
    """What the command shows on a terminal of that width. With --watch it is interrupted when `until` came so many times."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen([CLI, "--socket", daemon.socket, *arguments], stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 1 << 16):
            shown += piece
            if "--watch" in arguments and shown.count(until.encode()) >= times:
                process.send_signal(signal.SIGINT)
    os.close(ours)
    return process.wait(60), shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 100, 160])
def test_inspect_and_explain_fit_the_terminal(daemon, models, columns):
    write(models / "m", *({f"model.layers.{i}.{part}.projection.of.some.length.weight": blob(i, 1 << 16).reshape(64, 4, -1)
                           for part in ("attention", "mlp")} for i in range(3)))
    for command in (["inspect"], ["explain"]):
        code, page = on_terminal(daemon, columns, *command, f"{models}/m")
        lines = page.splitlines()
        assert code == 0 and max(map(len, lines)) <= columns, page
        assert all(any(f"0000{i}-o" in line for line in lines) for i in (1, 2, 3)), page
        whole = daemon.cli.ok(*command, f"{models}/m").out
        assert "model-00003-of-00003.safetensors" in whole
        assert command == ["explain"] or "model.layers.1.mlp.projection.of.some.length.weight" in whole


def test_a_page_fits_the_terminal_largest_first_and_the_rest_is_counted(daemon, models):
    name = "with-a-name-that-is-far-too-long-for-any-row-of-a-table-" * 2
    for i in range(24):
        write(models / f"{name}{i}", {"w": blob(i, 4096 * (i + 1))})
    daemon.cli.ok("prewarm", *[f"disk:{models}/{name}{i}" for i in range(24)])
    for columns in (80, 100, 132):
        code, page = on_terminal(daemon, columns, "status")
        rows = [line for line in page.splitlines() if "disk:" in line]
        assert code == 0 and max(map(len, page.splitlines())) <= columns, page
        assert len(rows) == 19 and "..." in rows[0] and "  ... and 5 more (" in page, page
        assert rows[0].endswith("-23") and rows[1].endswith("-22") and "all 1 tensor " in rows[0], page
    whole = daemon.cli.ok("status").out  # a pipe gets all of it
    assert whole.count("disk:") == 24 and "so far  24 loads (0 resident), 0 failed" in whole


def test_long_folders_fit_the_terminal_too(daemon, models):
    name = "with-a-name-that-is-far-too-long-for-any-row-of-a-table-"
    write(models / name, {"w": blob(1, 4096)})
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        daemon.cli.ok("folder", f"{models}/{name}", f"{folder}/{name}")
        for columns in (80, 100, 132):
            code, page = on_terminal(daemon, columns, "status")
            assert code == 0 and max(map(len, page.splitlines())) <= columns and "/dev/shm/" in page, page
        assert f"{folder}/{name}  disk:{models}/{name}" in daemon.cli.ok("status").out
        daemon.cli.ok("release", f"{folder}/{name}")


def test_parts_of_an_artifact_are_told_in_words(daemon, models):
    write(models / "m", {"a": blob(1, 4096), "b": blob(2, 4096)})
    daemon.cli.ok("prewarm", f"disk:{models}/m", "--tensor", "a", "--pin")
    daemon.cli.ok("prewarm", f"disk:{models}/m", "--slice", "a[0:1024]", "--tensor", "b")
    page = daemon.cli.ok("status").out
    assert re.search(r"pinned +1 of 2 tensors ", page) and re.search(r"idle \d+ s +2 tensors, 62.5 % ", page), page


def test_status_is_watched_until_an_interrupt(daemon):
    code, shown = on_terminal(daemon, 80, "status", "--watch", "0.05")
    assert code == 130 and shown.count("tensorcastd ") >= 2
    process = daemon.cli.spawn("status", "--watch", "50ms", "--json")
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and {line["pid"] for line in lines} == {daemon.process.pid}
    for wrong in ("0", "soon", "-1"):
        assert daemon.cli.run("status", "--watch", wrong).code == 2
