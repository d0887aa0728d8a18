"""What is not tensors has a budget: requests, headers, indexes, byte runs and HTTP/2 frames cannot make the daemon larger than
that and a constant, from any sender; what does not fit is refused, and the daemon serves on."""
import contextlib
import http.server
import json
import os
import re
import signal
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from checkpoints import blob, write
from stage import MiB, soon
from wire import SERVICE, Wire, code_of

BUDGET = 64 * MiB
BESIDE = 64 * MiB  # what the program itself, its threads and one request's buffers may need on top
SMALL = {"metadata_budget": "64MiB"}


@contextlib.contextmanager
def bounded(daemon, beside=BESIDE):
    """The daemon's largest size meanwhile is what it was, its budget and a constant."""
    daemon.cli.ok("status")
    daemon.reset_peak()
    before = daemon.resident()
    yield
    grown = daemon.resident("VmHWM") - before
    assert grown < BUDGET + beside, f"grew by {grown >> 20} MiB"
    daemon.cli.ok("status")


def reason_of(error):
    """google.rpc.ErrorInfo.reason, found by its shape: the test has no such message."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    found = re.search(rb"[A-Z]{3,}(_[A-Z]+)+", details)
    return found[0].decode() if found else ""


def varint(n):
    out = b""
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def many_names(wire, artifact, n):
    """A MaterializeRequest whose view has n names of 7 bytes."""
    number = lambda message, name: wire.message(message).DESCRIPTOR.fields_by_name[name].number  # noqa: E731
    view = b"".join(field(number("View", "names"), b"%07d" % i) for i in range(n))
    load = field(number("LoadRequest", "artifact"), artifact.encode()) + field(number("LoadRequest", "view"), view)
    return field(number("MaterializeRequest", "load"), load)


@contextlib.contextmanager
def silent_server():
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.plain
def test_requests_that_wait_fit_into_the_budget_and_the_others_are_refused(start):
    daemon = start(memory=SMALL)
    with bounded(daemon), silent_server() as url, daemon.channel() as channel:
        request = many_names(Wire(channel), f"{url}/x.safetensors", 300_000)
        method = channel.unary_stream(f"/{SERVICE}/Materialize")
        calls = [method(request) for _ in range(24)]
        assert soon(lambda: sum(call.done() for call in calls) > 12), "no call was refused"
        refused = [call for call in calls if call.done()]
        assert {code_of(call) for call in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert {reason_of(call) for call in refused} == {"METADATA_EXCEEDED"}
        assert len(refused) < 24, "not even one may wait"
        daemon.cli.ok("status")
        for call in calls:
            call.cancel()


@pytest.mark.plain
def test_one_request_after_the_other_leaves_nothing_behind(start, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon = start(memory=SMALL)
    with bounded(daemon), daemon.channel() as channel:
        request = many_names(Wire(channel), f"disk:{models}/m", 300_000)
        method = channel.unary_stream(f"/{SERVICE}/Materialize")
        for _ in range(20):
            with pytest.raises(grpc.RpcError) as caught:
                list(method(request))
            assert code_of(caught.value) == grpc.StatusCode.NOT_FOUND, caught.value


class Parts(http.server.BaseHTTPRequestHandler):
    """A checkpoint of n parts whose headers are mostly blanks."""
    protocol_version = "HTTP/1.1"
    n, header_bytes = 8, 40 * MiB

    @classmethod
    def part(cls, i):
        header = json.dumps({f"t{i}": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16]}}).encode()
        return struct.pack("<Q", cls.header_bytes) + header.ljust(cls.header_bytes) + bytes(16)

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        found = re.fullmatch(r"p(\d+)\.safetensors", name)
        if name == "model.safetensors.index.json":
            body = json.dumps({"weight_map": {f"t{i}": f"p{i}.safetensors" for i in range(self.n)}}).encode()
        elif found:
            body = self.part(int(found[1]))
        else:
            body = None
        start, end = 0, len(body or b"") - 1
        asked = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and body:
            start, end = int(asked[1]), min(int(asked[2]), end)
        self.send_response(404 if body is None else 206 if asked else 200)
        self.send_header("Content-Length", str(end - start + 1))
        self.send_header("ETag", '"1"')
        if asked and body:
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(body)}")
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write((body or b"")[start:end + 1] if self.command == "GET" else b"")

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def server_of_parts(**settings):
    handler = type("Some", (Parts,), settings)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/m"
        server.shutdown()


@pytest.mark.plain
def test_large_headers_of_many_parts_are_read_within_the_budget(start):
    daemon = start(memory=SMALL)
    with bounded(daemon), server_of_parts(n=6, header_bytes=30 * MiB) as url:
        assert len(daemon.cli.json("inspect", url)["tensors"]) == 6


@pytest.mark.plain
def test_a_header_that_does_not_fit_is_refused_before_it_is_read(start, models):
    daemon = start(memory=SMALL)
    (models / "h").mkdir()
    with open(models / "h" / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 90 * MiB))
        file.truncate(100 * MiB)
    (models / "i").mkdir()
    with open(models / "i" / "model.safetensors.index.json", "wb") as file:
        file.truncate(90 * MiB)
    with bounded(daemon, beside=-BUDGET + 16 * MiB):
        for name in ("h", "i"):
            outcome = daemon.cli.run("inspect", f"disk:{models}/{name}")
            assert outcome.status == "RESOURCE_EXHAUSTED" and "metadata" in outcome.err, outcome


@pytest.mark.plain
def test_runs_of_idle_replicas_make_room_for_new_ones_and_too_many_are_refused(start, models):
    rows = 1_000_000
    write(models / "m", {"w": np.ones((2 * rows, 3, 2), np.uint8)})
    daemon = start(memory=SMALL)
    with bounded(daemon), daemon.channel() as channel:
        wire = Wire(channel)

        def prewarm(n, align):
            load = wire.load_request(f"disk:{models}/m", ["w"])
            load.view.align_bytes = align
            load.view.n_slices.append(3)
            load.view.starts.extend([0, 0, 0])
            load.view.stops.extend([n, 2, 1])
            return wire.call("Prewarm", wire.message("PrewarmRequest", load=load))

        for power in range(5):  # each has 48 MB of runs
            assert prewarm(rows, 1 << power).report.view_bytes == 2 * rows
        with pytest.raises(grpc.RpcError) as caught:
            prewarm(2 * rows, 64)
        assert reason_of(caught.value) == "METADATA_EXCEEDED"


# --- frames ------------------------------------------------------------------------------------------------------------


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(text):
    return (bytes([len(text)]) if len(text) < 127 else b"\x7f" + varint(len(text) - 127)) + text


def header(name, value):
    return b"\0" + literal(name) + literal(value)


REQUEST = b"".join(header(*pair) for pair in (
    (b":method", b"POST"), (b":scheme", b"http"), (b":path", f"/{SERVICE}/Status".encode()), (b":authority", b"x"),
    (b"content-type", b"application/grpc"), (b"te", b"trailers")))


def continuations():
    yield frame(1, 0, 1, REQUEST)
    while True:
        yield frame(9, 0, 1, header(b"k", b"v" * 100) * 150)


def endless_string():
    yield frame(1, 0, 1, REQUEST + b"\0" + literal(b"a") + b"\x7f\x81\xff\xff\xff\x0e")
    while True:
        yield frame(9, 0, 1, b"z" * 16384)


def empty_continuations():
    yield frame(1, 0, 1, REQUEST)
    while True:
        yield frame(9, 0, 1) * 1000


def resets():
    for stream in range(1, 1 << 30, 2):
        yield frame(1, 4, stream, REQUEST) + frame(3, 0, stream, struct.pack(">I", 8))


def settings():
    while True:
        yield frame(4, 0, 0) * 100


def empty_data():
    yield frame(1, 4, 1, REQUEST)
    while True:
        yield frame(0, 0, 1) * 100


def pings():
    while True:
        yield frame(6, 0, 0, b"12345678") * 100


@pytest.mark.plain
@pytest.mark.parametrize("flood",
                         [continuations, endless_string, empty_continuations, resets, settings, empty_data, pings])
def test_a_flood_of_frames_ends_its_connection_and_nothing_else(start, flood):
    daemon = start(memory=SMALL)

    def read(sock):
        with contextlib.suppress(OSError):
            while sock.recv(1 << 16):
                pass

    def drown(_):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(str(daemon.socket))
            threading.Thread(target=read, args=[sock], daemon=True).start()
            sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
            sent = 0
            for piece in flood():
                try:
                    sock.sendall(piece)
                except (ConnectionError, TimeoutError) as error:
                    return not isinstance(error, TimeoutError)
                sent += len(piece)
                if sent > 64 * MiB:
                    return False

    with bounded(daemon, beside=-BUDGET + 32 * MiB), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(drown, range(4))), "the connection was not ended"
    assert soon(lambda: "event=connection_ended" in daemon.log())
    line = next(line for line in daemon.log().splitlines() if "event=connection_ended" in line)
    assert f"uid={os.geteuid()}" in line and f"pid={os.getpid()}" in line, line


@pytest.mark.parametrize("name, value", [(b"te", b"x"), (b":scheme", b"x"), (b"grpclb_client_stats", b"x")])
def test_odd_headers_before_too_many_of_them_do_not_end_the_daemon(start, name, value):
    """CVE-2023-1428: gRPC from 1.51 to 1.53 calls abort() for these three."""
    daemon = start()
    block = REQUEST + header(name, value) + header(b"q", b"v" * 200) * 120
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(daemon.socket))
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 0, 1, block[:16000]) +
                     frame(9, 4, 1, block[16000:]))
        with contextlib.suppress(OSError):
            assert sock.recv(1 << 16)
    daemon.cli.ok("status")
    assert daemon.process.poll() is None


@pytest.mark.plain
def test_answers_that_are_not_read_do_not_pile_up(start):
    daemon = start(memory=SMALL)
    with bounded(daemon, beside=-BUDGET + 24 * MiB), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(daemon.socket))
        sock.settimeout(2)
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
        with contextlib.suppress(OSError):  # time-out, or the end
            for piece, _ in zip(pings(), range(20000)):
                sock.sendall(piece)


# --- a limit of the system ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def memory_cgroup(limit):
    """A cgroup with a memory limit, of either version; its path."""
    first = Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() else Path("/sys/fs/cgroup")
    group = first / f"tensorcast-test-{os.getpid()}"
    try:
        group.mkdir()
        limits = {"memory.limit_in_bytes": limit} if first.name == "memory" else {"memory.max": limit, "memory.swap.max": 0}
        for name, value in limits.items():
            (group / name).write_text(str(value))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no cgroup with a memory limit can be made here: {error}")
    try:
        yield group
    finally:
        assert soon(lambda: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()


@pytest.mark.plain
def test_in_a_memory_limit_requests_fail_and_the_daemon_does_not(start, models):
    rows = 900_000
    write(models / "m", {"w": np.ones((rows, 3, 2), np.uint8)})
    with memory_cgroup(BUDGET + 160 * MiB) as group, silent_server() as url:
        daemon = start(memory={**SMALL, "host_budget": "64MiB", "staging_budget": "16MiB"})
        (group / "cgroup.procs").write_text(str(daemon.process.pid))
        with daemon.channel() as channel:
            wire = Wire(channel)
            requests = [many_names(wire, f"{url}/x.safetensors", 150_000), many_names(wire, f"disk:{models}/m", 400_000)]
            method = channel.unary_stream(f"/{SERVICE}/Materialize")
            for _ in range(6):
                calls = [method(requests[i % 2]) for i in range(24)]
                assert soon(lambda: sum(call.done() for call in calls) >= 12, 60)
                for call in calls:
                    call.cancel()
                load = wire.load_request(f"disk:{models}/m", ["w"])
                load.view.n_slices.append(3)
                load.view.starts.extend([0, 0, 0])
                load.view.stops.extend([rows, 2, 1])
                with contextlib.suppress(grpc.RpcError):
                    wire.call("Prewarm", wire.message("PrewarmRequest", load=load))
        assert daemon.process.poll() is None, "the daemon was killed"
        assert soon(lambda: daemon.cli.run("status").code == 0)
        daemon.kill()


def test_the_automatic_budget_is_half_of_what_the_group_has(start, models):
    write(models / "m", {"w": np.ones((90 * MiB,), np.uint8)})
    daemon = start(memory={"host_budget": "auto"})
    assert daemon.status()["memory"]["host_budget_bytes"] > 160 * MiB
    with memory_cgroup(160 * MiB) as group:
        below = group / "below"
        below.mkdir()
        try:
            (below / "cgroup.procs").write_text(str(daemon.process.pid))
            daemon.process.send_signal(signal.SIGHUP)
            assert soon(lambda: daemon.status()["memory"]["host_budget_bytes"] == 80 * MiB), daemon.log()
            assert daemon.cli.run("load", f"disk:{models}/m", "--memory", "copied").status == "RESOURCE_EXHAUSTED"
            assert daemon.stop() == 0
        finally:
            daemon.kill()
            below.rmdir()
