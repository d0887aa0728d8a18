"""Many connections, many loads at once, clients that do not read what they asked for."""
import os
import resource
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from checkpoints import blob, digest, digests, random_array, write
from stage import MiB, soon, waits_on_a_socket
from wire import Wire

MANY = 4096


@pytest.fixture
def many_files():
    """This process, too, needs a descriptor for each of its connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MANY, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.plain
def test_a_thousand_idle_connections_cost_little_and_keep_no_client_out(start, models, many_files):
    write(models / "m", {"w": blob(1, MiB)})
    daemon = start(limits={"nofile": (2 * MANY, 2 * MANY)}, server={"max_connections_per_uid": 2000})
    daemon.cli.ok("status")
    before = daemon.resident()
    idle = []
    for _ in range(1000):
        idle.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        idle[-1].connect(str(daemon.socket))
    assert soon(lambda: daemon.status()["connections"] >= 1000)
    assert daemon.resident() - before < 96 * MiB
    assert daemon.cli.json("load", f"disk:{models}/m", "--digest")["tensors"][0]["sha256"] == digest(blob(1, MiB))
    for connection in idle:
        connection.close()
    assert soon(lambda: daemon.status()["connections"] < 10), daemon.status()["connections"]


def test_sixty_four_loads_of_different_views_are_all_right(daemon, models):
    rng = np.random.default_rng(2)
    arrays = write(models / "m", {f"t{i}": random_array(rng, np.float32, (128, 96)) for i in range(4)},
                   {f"u{i}": random_array(rng, np.int16, (64, 33, 5)) for i in range(4)})

    def one(i):
        name, rows = f"t{i % 4}", (i // 4, 64 + i)
        other = f"u{i % 4}"
        report = daemon.cli.json("load", f"disk:{models}/m", "--slice", f"{name}[{rows[0]}:{rows[1]}, {i % 90}:]",
                                 "--slice", f"{other}[:, {i % 30}:, 1:4]", "--digest")
        want = {name: digest(arrays[name][rows[0]:rows[1], i % 90:]), other: digest(arrays[other][:, i % 30:, 1:4])}
        return digests(report) == want

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(one, range(64)))
    assert soon(daemon.at_rest), daemon.status()


def test_sixty_four_clients_of_one_view_cost_one_load(daemon, models):
    write(models / "m", {"w": blob(3, 64 * MiB)})
    before = daemon.bytes_asked()
    with ThreadPoolExecutor(64) as pool:
        reports = list(pool.map(lambda _: daemon.cli.json("load", f"disk:{models}/m"), range(64)))
    assert daemon.bytes_asked() - before < 2 * 64 * MiB, "the bytes were read more than once"
    assert len(daemon.status()["replicas"]) == 1 and len(reports) == 64
    assert soon(daemon.at_rest), daemon.status()


def forget(path):
    """Puts the file out of the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_ranks_that_load_together_fetch_common_bytes_from_disk_once(daemon, models):
    common, split = blob(4, 96 * MiB), np.frombuffer(blob(5, 32 * MiB), np.uint8).reshape(4096, 8192)
    write(models / "m", {"model.norm.weight": common, "model.layers.0.mlp.down_proj.weight": split})
    daemon.cli.ok("inspect", f"disk:{models}/m")
    for file in (models / "m").glob("*.safetensors"):
        forget(file)
    before = daemon.bytes_from_disk()
    daemon.process.send_signal(signal.SIGSTOP)  # until all of them ask it
    ranks = [daemon.cli.spawn("load", f"disk:{models}/m", "--tp-size", 4, "--tp-rank", r, "--digest", "--json") for r in range(4)]
    assert soon(lambda: all(map(waits_on_a_socket, ranks)))
    daemon.process.send_signal(signal.SIGCONT)
    for rank, client in enumerate(ranks):
        out, err = client.communicate(timeout=120)
        assert client.returncode == 0, err
        assert digest(split[:, rank * 2048:(rank + 1) * 2048]) in out and digest(common) in out
    # Nothing shared would be 4 * (96 + 32) MiB. A rank that comes when the others are done reads the rows of its columns.
    fetched = (daemon.bytes_from_disk() - before) / MiB
    assert fetched < 96 + 4 * 32 + 16, daemon.log()


def test_a_client_that_never_reads_its_progress_stops_no_other(daemon, models):
    expected = {f"w{i}": blob(10 + i, 32 * MiB) for i in range(4)}
    write(models / "m", expected)
    with daemon.channel(("grpc.http2.lookahead_bytes", 1024)) as channel:
        wire = Wire(channel)
        unread = [wire.call("Materialize", wire.message("MaterializeRequest", load=wire.load_request(f"disk:{models}/m", [name])))
                  for name in expected]
        report = daemon.cli.json("load", f"disk:{models}/m", "--digest")
        assert digests(report) == {name: digest(value) for name, value in expected.items()}
        for call in unread:
            call.cancel()
    assert soon(daemon.at_rest), daemon.status()


@pytest.mark.plain
def test_a_slow_reader_of_a_big_answer_does_not_grow_the_daemon(daemon, models):
    write(models / "m", {f"model.layers.{i}.a.tensor.with.a.long.name": np.zeros(1, np.uint8) for i in range(20_000)})
    with daemon.channel() as channel:
        wire = Wire(channel)
        load = wire.message("MaterializeRequest", load=wire.load_request(f"disk:{models}/m"))
        list(wire.call("Materialize", load))
        before = daemon.resident()
        calls = [wire.call("Materialize", load) for _ in range(24)]
        assert daemon.serving()
        assert daemon.resident() - before < 160 * MiB
        assert all(any(event.WhichOneof("event") == "result" for event in call) for call in calls)
    assert soon(daemon.at_rest), daemon.status()


def test_who_guesses_tokens_does_not_fill_the_log(daemon):
    started = time.monotonic()
    for _ in range(300):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(daemon.handoff))
            peer.send(bytes(32))
            assert peer.recv(1) == b""
    assert daemon.logged("handoff_refused")
    lines = daemon.log().count("handoff_refused")
    assert lines <= time.monotonic() - started + 2


def test_a_stream_without_a_hand_off_loses_its_token_with_the_call(daemon, models):
    write(models / "m", {"w": blob(20, MiB)})
    with daemon.channel() as channel:
        wire = Wire(channel)
        events = list(wire.call("Materialize", wire.message("MaterializeRequest", load=wire.load_request(f"disk:{models}/m"))))
        result = events[-1].result
        assert len(result.handoff_token) == 32 and events[0].WhichOneof("event") == "accepted"
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(5)
    assert soon(lambda: daemon.status()["connections"] <= 1)
    peer.connect(result.handoff_socket)
    try:
        peer.send(result.handoff_token)
        data, descriptors, _, _ = socket.recv_fds(peer, 4096, 4)
    except OSError:
        descriptors = []
    assert not descriptors, "a token outlived the connection of its call"
    assert soon(daemon.at_rest), daemon.status()


def test_a_deadline_in_the_middle_of_a_load_frees_everything(daemon, models):
    write(models / "m", {"w": blob(30, 128 * MiB)})
    for milliseconds in (1, 5, 20, 60):
        outcome = daemon.cli.run("--timeout", f"{milliseconds}ms", "load", f"disk:{models}/m")
        assert outcome.code == 0 or outcome.status == "DEADLINE_EXCEEDED", outcome
        assert soon(daemon.at_rest), daemon.status()
        daemon.cli.ok("release", "--all")
    assert soon(lambda: daemon.status()["memory"]["used_bytes"] == 0), daemon.status()["memory"]


def test_an_unknown_method_and_a_foreign_service_are_refused_at_once(daemon):
    with daemon.channel() as channel:
        for path in ("/tensorcast.daemon.v1.StoreDaemon/Nothing", "/some.other.Service/Method"):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(path)(b"", timeout=10)
            assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
