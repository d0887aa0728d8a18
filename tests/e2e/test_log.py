"""What the daemon's log tells of its clients, and that it never holds up the daemon."""
import os
import re

from checkpoints import blob, write
from stage import soon


def lines(daemon, event):
    """The lines of one event, each as its fields."""
    found = [line for line in daemon.log().splitlines() if f" event={event} " in line]
    return [dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)) for line in found]


def test_every_load_is_logged_with_who_asked(daemon, models):
    write(models / "m", {"w": blob(1, 4096)})
    client = daemon.cli.spawn("load", f"disk:{models}/m")
    assert client.wait() == 0
    assert soon(lambda: lines(daemon, "load_done"))
    line, = lines(daemon, "load_done")
    assert (line["uid"], line["pid"]) == (str(os.getuid()), str(client.pid))
    client = daemon.cli.spawn("load", "disk:/etc")
    assert client.wait() == 1
    assert soon(lambda: lines(daemon, "load_failed"))
    line, = lines(daemon, "load_failed")
    assert (line["code"], line["pid"]) == ("PERMISSION_DENIED", str(client.pid))


def test_a_refused_inspect_is_logged_with_who_asked(daemon, models):
    client = daemon.cli.spawn("inspect", "disk:/etc")
    assert client.wait() == 1
    assert soon(lambda: lines(daemon, "request_failed"))
    line, = lines(daemon, "request_failed")
    assert (line["level"], line["method"], line["code"]) == ("warn", "Resolve", "PERMISSION_DENIED")
    assert (line["uid"], line["pid"]) == (str(os.getuid()), str(client.pid))


def test_what_is_not_there_is_logged_at_debug_only(daemon, models):
    assert daemon.cli.run("inspect", f"disk:{models}/nothing").status == "NOT_FOUND"
    assert daemon.cli.run("inspect", "disk:/etc").status == "PERMISSION_DENIED"
    assert soon(lambda: len(lines(daemon, "request_failed")) == 1)
