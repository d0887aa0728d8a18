"""What the daemon's log tells of its clients, and that it never holds up the daemon."""
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest
import tensorcast_client as tc

from checkpoints import blob, write
from stage import DAEMON, QUIET_TSAN, MiB, soon
from wire import Wire


def lines(daemon, event):
    """The lines of one event, each as its fields."""
    found = [line for line in daemon.log().splitlines() if f" event={event} " in line]
    return [dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)) for line in found]


def test_a_start_without_stores_and_devices_is_two_lines(start, tmp_path):
    daemon = start(running=False)
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "HF_", "GOOGLE_")):
                patch.delenv(name)
        patch.setenv("HOME", str(tmp_path))
        daemon.start()
    assert soon(lambda: lines(daemon, "ready")), daemon.log()
    assert re.findall(r" level=info event=(\w+)", daemon.log()) == ["sandbox", "ready"], daemon.log()
    assert daemon.stop() == 0
    daemon.configure({**daemon.tree, "sources": {**daemon.tree["sources"], "s3": {"region": "eu-west-9"}}})
    daemon.start()
    assert soon(lambda: [line["scheme"] for line in lines(daemon, "store_credentials")] == ["s3"]), daemon.log()


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
    assert (line["level"], line["method"], line["code"]) == ("info", "Resolve", "PERMISSION_DENIED")
    assert (line["uid"], line["pid"]) == (str(os.getuid()), str(client.pid))


def test_only_what_an_operator_can_mend_is_a_warning(start, models):
    write(models / "m", {"w": blob(1, 3 * MiB)})
    write(models / "damaged", {"w": blob(1, 64)})
    (models / "damaged/model.safetensors").write_bytes((models / "damaged/model.safetensors").read_bytes()[:-1])
    daemon = start(memory={"host_budget": "1MiB"})
    for arguments in (("m/no",), ("damaged",), ("m", "--memory", "copied")):
        assert daemon.cli.run("load", f"disk:{models}/{arguments[0]}", *arguments[1:]).code
    assert daemon.cli.run("load", "disk:/etc").code
    assert soon(lambda: len(lines(daemon, "load_failed")) == 4), daemon.log()
    assert [(line["level"], line["code"]) for line in lines(daemon, "load_failed")] == [
        ("info", "NOT_FOUND"), ("error", "DATA_LOSS"), ("warn", "RESOURCE_EXHAUSTED"), ("info", "PERMISSION_DENIED")]
    totals = daemon.status()["totals"]
    assert (totals["failed"], totals["refused"], totals.get("cancelled", 0)) == (4, 3, 0)
    assert "0 loads (0 resident), 1 failed, 3 refused, " in daemon.cli.ok("status").out


def test_what_is_not_there_is_logged_at_debug_only(daemon, models):
    assert daemon.cli.run("inspect", f"disk:{models}/nothing").status == "NOT_FOUND"
    assert daemon.cli.run("inspect", "disk:/etc").status == "PERMISSION_DENIED"
    assert soon(lambda: len(lines(daemon, "request_failed")) == 1)


def flood(daemon, count):
    """So many loads that are refused, each with a long name."""
    with daemon.channel() as channel:
        wire = Wire(channel)
        prewarm = channel.unary_unary("/tensorcast.daemon.v1.StoreDaemon/Prewarm")
        request = wire.message("PrewarmRequest", load=wire.load_request("disk:/" + "x" * 3000)).SerializeToString()
        for call in [prewarm.future(request, timeout=60) for _ in range(count)]:
            assert call.code().name in ("PERMISSION_DENIED", "RESOURCE_EXHAUSTED")


def test_a_log_that_is_not_read_stops_nothing(start, models):
    write(models / "m", {"w": blob(1, 4096)})
    daemon = start(running=False)
    reader, writer = os.pipe()
    daemon.process = subprocess.Popen([str(DAEMON), "--config", str(daemon.config)], stdin=subprocess.DEVNULL, stdout=writer,
                                      stderr=writer, env={**os.environ, "TSAN_OPTIONS": QUIET_TSAN})
    os.close(writer)
    try:
        assert soon(daemon.serving)
        flood(daemon, 64)  # more than a pipe holds
        daemon.cli.ok("load", f"disk:{models}/m", timeout=20)
        assert daemon.stop() == 0
    finally:
        os.close(reader)


def test_a_failing_client_cannot_fill_the_disk(daemon):
    flood(daemon, 2000)
    assert soon(lambda: lines(daemon, "log_suppressed"))
    assert len(lines(daemon, "load_failed")) < 500
    line = lines(daemon, "log_suppressed")[0]
    assert line["of"] in ("load_failed", "request_failed") and line["uid"] == str(os.getuid())


def test_a_user_who_opens_stores_without_end_cannot_fill_the_log(start, tmp_path):
    daemon = start(activations={"roots": [str(tmp_path)]})
    began = time.monotonic()
    client = tc.connect(daemon.socket)
    for _ in range(200):
        client.activation_store(f"disk:{tmp_path}/store", host=3).close()
    assert soon(lambda: lines(daemon, "log_suppressed"))
    for event in ("activations_opened", "activations_closed"):
        assert soon(lambda: len(lines(daemon, event)) >= 50), event  # noqa: B023
        assert len(lines(daemon, event)) <= 51 + 5 * (time.monotonic() - began), event


def test_a_log_file_that_is_a_fifo_without_a_reader_is_refused_on_reload(daemon, models):
    fifo = daemon.folder / "fifo"
    os.mkfifo(fifo)
    daemon.configure({**daemon.tree, "logging": {"file": str(fifo)}})
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: lines(daemon, "config_reload_refused"))
    assert daemon.logged("no process reads")
    assert daemon.serving()


def test_a_configuration_that_cannot_be_read_yet_does_not_stop_the_daemon(daemon):
    """A file on a mount that does not answer; here a FIFO."""
    text = daemon.config.read_text()
    daemon.config.unlink()
    os.mkfifo(daemon.config)
    daemon.process.send_signal(signal.SIGHUP)
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.serving() and daemon.status()
    assert "event=config_reloaded" not in daemon.whole_log()
    daemon.config.write_text(text)
    assert soon(lambda: lines(daemon, "config_reloaded"))


def test_in_the_journal_lines_have_priorities_and_a_failed_start_as_well(start):
    """The journal is a stream that JOURNAL_STREAM names; here a file stands for it."""
    daemon = start(running=False)
    daemon.log_path.touch()
    about = daemon.log_path.stat()
    journal = {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}
    daemon.start(environment=journal)
    daemon.cli.run("load", "disk:/etc")
    assert daemon.logged("<6>level=info event=ready ", "load_failed")
    assert daemon.stop() == 0 and all(re.match(r"<[3467]>level=", line) for line in daemon.log().splitlines()), daemon.log()
    daemon.config.write_text("server: {socket_pth: /x}\n")
    daemon.start(wait=False, environment=journal)
    assert daemon.process.wait(20) == os.EX_CONFIG and daemon.log().splitlines()[-1].startswith("<3>tensorcastd: INVALID_ARGUMENT: ")


# Runs a command whose standard error is a stream to the journal: folder, then the command.
IN_THE_JOURNAL = """
import os, socket, sys
stream = socket.socket(socket.AF_UNIX)
stream.connect(sys.argv[1] + "/stdout")
os.dup2(stream.fileno(), 2)
about = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{about.st_dev}:{about.st_ino}"
script = 'mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind "$0" /run/systemd/journal && exec "$@"'
os.execvp("unshare", ["unshare", "--mount", "sh", "-c", script, *sys.argv[1:]])
"""


def fields_of(entry):
    """{name: value} of an entry in the journal's native protocol."""
    found = {}
    while entry:
        head, entry = entry.split(b"\n", 1)
        name, is_line, value = head.partition(b"=")
        if not is_line:
            size, = struct.unpack_from("<Q", entry)
            value, entry = entry[8:8 + size], entry[8 + size + 1:]
        found[name.decode()] = value.decode()
    return found


@pytest.mark.skipif(subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode, reason="no mount namespace can be made here")
def test_the_journal_gets_entries_with_the_fields_of_each_event(start, models, tmp_path):
    write(models / "m\nPRIORITY=0", {"w": blob(1, MiB)})
    with socket.socket(socket.AF_UNIX) as lines, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as entries:
        lines.bind(str(tmp_path / "stdout"))
        lines.listen()
        entries.bind(str(tmp_path / "socket"))
        entries.settimeout(60)
        daemon = start(running=False)
        daemon.start(through=[sys.executable, "-c", IN_THE_JOURNAL, tmp_path])

        def entry(event):
            while (fields := fields_of(entries.recv(1 << 20)))["TENSORCAST_EVENT"] != event:
                pass
            return fields

        assert entry("ready")["SYSLOG_IDENTIFIER"] == "tensorcastd"
        report = daemon.cli.ok("load", f"disk:{models}/m\nPRIORITY=0", "--json").report
        done = entry("load_done")
        assert (done["TENSORCAST_LOAD_ID"], done["TENSORCAST_ARTIFACT"]) == (report["load_id"], f"disk:{models}/m\nPRIORITY=0")
        assert done["PRIORITY"] == "6" and done["MESSAGE"].startswith("level=info event=load_done ") and "TENSORCAST_TIME" not in done
        assert float(done["TENSORCAST_TOTAL_MS"]) > 0
        entries.close()  # a journal that is gone: the stream gets the line
        stream, _ = lines.accept()
        stream.settimeout(60)
        assert daemon.cli.run("load", "disk:/etc").code
        with stream, stream.makefile() as file:
            assert next(line for line in file if "event=load_failed" in line).startswith("<6>level=info event=load_failed ")
        assert daemon.stop() == 0
