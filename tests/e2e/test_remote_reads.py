"""Reading from a store: explain says which requests there will be, ranks share them, status tells what was learned."""
import os
import pty
import re
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import checkpoints
from checkpoints import blob
from stage import MiB, soon
from store_scene import place


@pytest.fixture
def weights(fake, tmp_path):
    rng = np.random.default_rng(5)
    matrix = checkpoints.random_array(rng, np.uint8, (3000, 16384))
    parts = checkpoints.write(tmp_path / "m", {"w": matrix, "b": checkpoints.blob(2, 40 * MiB + 5)}, {"c": checkpoints.blob(3, 1000)})
    fake.world.preload("web", "m", tmp_path / "m")
    return parts


def data_requests(fake):
    """Ranges of tensors' bytes: the others begin with the file."""
    return [e for e in fake.requests("web") if e["status"] == 206 and not e["range"].startswith("bytes=0-")]


def range_bytes(entry):
    first, last = entry["range"].removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


def candidate(report):
    return next(c for c in report["candidates"] if c["executor"] == "generic_byte_range")


@pytest.mark.parametrize("fine", [False, True])
def test_a_load_asks_for_what_explain_says(start, fake, weights, fine):
    daemon = start(engine={"materialization_strategy": {"remote_fine_slices": fine}},
                   sources={"http": {"hedge_percent": 0}})  # a request that a busy machine answers late is not made twice
    # one file: to resolve it takes few requests, so that the load knows no more of the server's speed than explain did
    reference = f"{fake.url('web')}/m/model-00001-of-00002.safetensors"
    view = ["--slice", "w[5:40, 100:300]"] if fine else ["--slice", "w[:, 100:300]", "--tensor", "b"]
    plan = candidate(daemon.cli.json("explain", reference, *view))
    fake.journal.clear()
    report = daemon.cli.json("load", reference, *view, "--digest")
    asked = data_requests(fake)
    assert len(asked) == plan["requests"] == report["requests"] == (35 if fine else plan["requests"])
    assert sum(range_bytes(e) for e in asked) == plan["read_bytes"]
    if not fine:
        assert len(asked) <= 3000 * 16384 // (16 * MiB) + 40 // 16 + 2 and max(range_bytes(e) for e in asked) == 16 * MiB
    want = {"w": weights["w"][5:40, 100:300] if fine else weights["w"][:, 100:300]}
    got = checkpoints.digests(report)
    assert all(got[name] == checkpoints.digest(array) for name, array in want.items())


def test_ranks_share_requests(start, fake, weights):
    daemon, gate = start(sources={"http": {"hedge_percent": 0}}), threading.Event()
    reference = f"{fake.url('web')}/m"
    daemon.cli.json("inspect", reference)
    fake.journal.clear()
    fake.fault({"call": lambda: gate.wait(60)}, {"listener": "web", "range": "^bytes=[1-9]"}, times=0)  # until all of them are there
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(daemon.cli.json, "load", reference, "--slice", f"w[:, {r * 4096}:{(r + 1) * 4096}]", "--digest") for r in range(4)]
        are_there = soon(lambda: [one["stage"] for one in daemon.status()["loads"]] == ["read"] * 4)
        gate.set()
        reports = [one.result() for one in running]
    assert are_there
    for r, report in enumerate(reports):
        assert checkpoints.digests(report)["w"] == checkpoints.digest(weights["w"][:, r * 4096:(r + 1) * 4096])
    read = sum(range_bytes(e) for e in data_requests(fake))
    assert 3000 * 16384 - 4 * 16384 <= read <= 3000 * 16384 + 16384


def test_status_tells_what_was_learned(daemon, fake, weights):
    for _ in range(5):  # a few requests are no statistics
        daemon.cli.json("load", f"{fake.url('web')}/m")
        daemon.cli.ok("release", "--all")
    store = daemon.cli.json("status")["stores"][fake.url("web")]
    assert store["requests"] >= 30 and store["received_bytes"] >= 85 * MiB
    assert store["parallel_requests"] >= 1 and store["in_flight"] == 0
    assert store["latency_us"] > 0 and store["connection_gbps"] > 0 and store["total_gbps"] > 0
    assert fake.url("web") in daemon.cli.ok("status").out


@pytest.fixture
def held(store_daemon, fake):
    """A reference whose tensor, three requests of 16 MiB, stops after 1 MiB of each request, and its daemon."""
    placed = place(fake, "http", {"w": blob(7, 40 * MiB)})
    placed.fault({"stall": {"after": MiB, "seconds": 0}}, times=0, match={"range": r"^bytes=[1-9]"})
    return store_daemon(http={"request_size": "16MiB", "stall_timeout": "10m"}), placed.reference


def test_progress_counts_bytes_that_have_come_before_any_request_is_whole(held):
    daemon, reference = held
    command = daemon.cli.spawn("load", reference)
    assert soon(lambda: [one["done_bytes"] >= 2 * MiB for one in daemon.status()["loads"]] == [True]), daemon.status()["loads"]
    (running,) = daemon.status()["loads"]
    assert running["stage"] == "read" and running["done_bytes"] < 8 * MiB and running["total_bytes"] == 40 * MiB
    command.kill()
    command.communicate()
    assert soon(daemon.at_rest)


def test_what_is_kept_of_a_store_for_other_ranks_is_told_beside_the_staging_memory(store_daemon, fake):
    """While one request of a rank's columns stops, the others' blocks are kept for ranks that want the other columns."""
    placed = place(fake, "http", {"w": blob(7, 64 * MiB).reshape(4096, 16384)})
    placed.fault({"stall": {"after": MiB, "seconds": 0}}, times=0, match={"range": r"^bytes=[3-9]\d{7}"})
    daemon = store_daemon(http={"request_size": "4MiB", "stall_timeout": "10m"}, memory={"staging_budget": "16MiB", "extent_cache": "64MiB"})
    command = daemon.cli.spawn("load", placed.reference, "--slice", "w[:, 0:4096]")
    seen = []

    def look():
        memory = daemon.cli.json("status")["memory"]
        seen.append((memory["extent_bytes"], memory["staging_bytes"]))
        return memory["extent_bytes"] >= 4 * MiB

    assert soon(look), seen
    assert all(extents <= 64 * MiB and staging <= 16 * MiB for extents, staging in seen), seen
    assert re.search(r"staging  +[1-9]\S* MiB extents", daemon.cli.ok("status").out)
    command.kill()
    command.communicate()


def read_until(terminal, pattern, seconds=60):
    """What was drawn until the pattern came, or for so long."""
    shown, end = b"", time.monotonic() + seconds
    while not re.search(pattern, shown) and time.monotonic() < end and select.select([terminal], [], [], 1)[0]:
        shown += os.read(terminal, 4096)
    return shown


@pytest.mark.parametrize("words", [["load", "{}"], ["manifest", "{}", "--out", "-"]], ids=lambda words: words[0])
def test_the_bar_moves_with_what_comes(held, words):
    daemon, reference = held
    main, child = pty.openpty()
    words = [word.format(reference) for word in words]
    command = daemon.cli.spawn(*words, stderr=child, env={**daemon.cli.environment, "TERM": "xterm"})
    os.close(child)
    shown = read_until(main, rb"[1-9]\S* MiB of 40")
    whole = rb"read +\[#?\.+\] +[1-9]%  [1-9]\S* MiB of 40\S* MiB  \S+ [KMG]iB/s  \d+ s"
    assert re.search(whole if words[0] == "load" else rb"[1-9]\S* MiB of 40", shown), shown
    command.kill()
    command.communicate()
    os.close(main)


def test_a_passed_time_limit_tells_how_far_the_load_was(held):
    daemon, reference = held
    outcome = daemon.cli.run("load", reference, "--timeout", "8s")
    assert outcome.status == "DEADLINE_EXCEEDED", outcome
    assert re.search(r"not done within .*; (read|waiting for more bytes from \S+): [1-9]\S* MiB of 40\S* MiB\n", outcome.err), outcome


def test_tensors_without_number_are_read_in_windows_of_65536_at_most(daemon, fake, tmp_path):
    """Each worker has lists of what lies in a window, which a file of a byte per tensor would make a gigabyte long."""
    arrays = checkpoints.write(tmp_path / "many", {f"t{i:05d}": np.full(3, i % 251, np.uint8) for i in range(70_000)})
    fake.world.preload("web", "many", tmp_path / "many")
    report = daemon.cli.json("load", f"{fake.url('web')}/many", "--placement", "packed", "--digest")
    assert checkpoints.digests(report) == {name: checkpoints.digest(array) for name, array in arrays.items()}
    header_end = 8 + int.from_bytes((tmp_path / "many" / "model.safetensors").read_bytes()[:8], "little")
    asked = [e for e in data_requests(fake) if int(e["range"].removeprefix("bytes=").split("-")[0]) >= header_end]
    assert len(asked) >= 2 and max(range_bytes(e) for e in asked) <= 3 * 65_536
