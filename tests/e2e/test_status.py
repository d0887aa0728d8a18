"""What status and release say of those who hold memory."""
import os
import pwd
import re
import subprocess
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
    assert re.search(r"MiB +2 leases +\S+ +held +view .*\n +held by \d", page), page
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
