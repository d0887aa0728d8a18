"""Memory stays inside its budgets, and a request with 100,000 tensors is an ordinary one."""
import json
import threading
import time

import numpy as np
import pytest

from checkpoints import blob, digest, read_back, write
from stage import MiB, soon


@pytest.mark.plain
@pytest.mark.parametrize("executor", ["generic", "local"])
def test_the_peak_of_a_load_is_its_view_and_the_staging_budget(start, models, executor):
    rows = np.frombuffer(blob(1, 192 * MiB), np.uint8).reshape(12288, 16384)
    write(models / "m", {"w": rows})
    daemon = start(memory={"staging_budget": "32MiB"})
    daemon.cli.ok("inspect", f"disk:{models}/m")
    before = daemon.resident()
    daemon.reset_peak()
    report = daemon.cli.json("load", f"disk:{models}/m", "--slice", "w[:, 4096:8192]", "--executor", executor, "--digest")
    assert report["tensors"][0]["sha256"] == digest(rows[:, 4096:8192])
    assert daemon.resident("VmHWM") - before < (48 + 32 + 32) * MiB


@pytest.mark.plain
def test_rows_longer_than_the_staging_budget_still_fit_in_it(start, models):
    rows = np.frombuffer(blob(2, 64 * MiB), np.uint8).reshape(4, 16 * MiB)
    write(models / "m", {"w": rows})
    daemon = start(memory={"staging_budget": "1MiB"})
    before = daemon.resident()
    daemon.reset_peak()
    report = daemon.cli.json("load", f"disk:{models}/m", "--slice", f"w[:, {5 * MiB}:{7 * MiB + 3}]", "--executor", "local", "--digest")
    assert report["tensors"][0]["sha256"] == digest(rows[:, 5 * MiB:7 * MiB + 3])
    assert daemon.resident("VmHWM") - before < 48 * MiB


def test_explain_says_what_no_load_can_ever_hold(start, models):
    write(models / "m", {"w": np.frombuffer(blob(3, 24 * MiB), np.uint8).reshape(24, MiB)})
    daemon = start(memory={"host_budget": "16MiB", "staging_budget": "1MiB"})
    never = "24.0 MiB, more than all of the budget, 16.0 MiB: this view can never be loaded"
    assert never in daemon.cli.ok("explain", f"{models}/m").out
    assert "never" not in daemon.cli.ok("explain", f"{models}/m", "--slice", "w[:15, :]").out
    assert daemon.cli.run("load", f"{models}/m", "--memory", "copied").status == "RESOURCE_EXHAUSTED"


def test_loads_that_do_not_fit_are_refused_with_numbers_and_leave_room_for_others(start, models):
    for name in "abc":
        write(models / name, {"w": blob(ord(name), 40 * MiB)})
    daemon = start(memory={"host_budget": "100MiB"})
    holders = [daemon.cli.spawn("load", f"disk:{models}/{name}", "--hold", "60") for name in "ab"]
    assert soon(lambda: daemon.status()["leases"] == 2)
    outcome = daemon.cli.run("load", f"disk:{models}/c")
    assert outcome.failed and outcome.status == "RESOURCE_EXHAUSTED" and any(c.isdigit() for c in outcome.err), outcome
    for holder in holders:
        holder.kill()
        holder.communicate()
    assert soon(lambda: daemon.cli.run("load", f"disk:{models}/c").code == 0)
    assert daemon.status()["memory"]["used_bytes"] <= 100 * MiB


@pytest.mark.plain
def test_a_hundred_loads_leave_the_daemon_as_small_as_it_was(daemon, models):
    write(models / "m", {f"t{i}": blob(i, 64 * 1024) for i in range(50)})
    for i in range(50):
        daemon.cli.ok("load", f"disk:{models}/m", "--tensor", f"t{i}")
    daemon.cli.ok("release", "--all")
    before, open_before = daemon.resident(), daemon.descriptors()
    for i in range(50):
        daemon.cli.ok("load", f"disk:{models}/m", "--tensor", f"t{i}", "--slice", f"t{(i + 1) % 50}[{i}:]")
    daemon.cli.ok("release", "--all")
    assert soon(lambda: daemon.descriptors() <= open_before + 1)
    assert daemon.resident() - before < 16 * MiB


@pytest.fixture(scope="module")
def hundred_thousand(tmp_path_factory):
    """One U8 tensor of [4, 4, 4, 4] each, so that four slices can be given."""
    folder, n = tmp_path_factory.mktemp("many").resolve(), 100_000
    data = blob(9, n * 256).reshape(n, 4, 4, 4, 4)
    header = {f"layers.{i // 100}.experts.{i % 100}.w": {"dtype": "U8", "shape": [4, 4, 4, 4], "data_offsets": [256 * i, 256 * i + 256]}
              for i in range(n)}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data.tobytes())
    return folder, list(header), data


def test_a_request_of_a_hundred_thousand_sliced_tensors_arrives_whole(start, hundred_thousand, tmp_path):
    folder, names, data = hundred_thousand
    daemon = start(sources={"disk": {"trusted_roots": [str(folder)]}})
    slices = [[1, 3], [None, -1], [0, 4], [2, None]]
    (tmp_path / "view").write_text(json.dumps({"tensors": [{"name": n, "slices": slices} for n in reversed(names)]}))
    daemon.cli.ok("load", f"disk:{folder}", "--view", tmp_path / "view", "--out", tmp_path / "out", timeout=300)
    kept = np.ascontiguousarray(data[::-1, 1:3, :-1, 0:4, 2:])
    with open(tmp_path / "out", "rb") as file:
        file.seek(int.from_bytes(file.read(8), "little"), 1)
        assert file.read() == kept.tobytes()
    some = dict(zip(reversed(names), kept))
    for name, value in read_back(tmp_path / "out").items():
        assert np.array_equal(value, some[name])


@pytest.mark.alone
def test_a_request_of_a_hundred_thousand_tensors_does_not_stall_other_clients(start, hundred_thousand, models):
    folder, names, _ = hundred_thousand
    daemon = start(sources={"disk": {"trusted_roots": [str(folder), str(models)]}})
    daemon.cli.ok("inspect", f"disk:{folder}", "--json")
    stop, slowest = threading.Event(), [0.0]

    def ask():
        while not stop.is_set():
            begin = time.monotonic()
            assert daemon.serving()
            slowest[0] = max(slowest[0], time.monotonic() - begin)

    asker = threading.Thread(target=ask)
    asker.start()
    view = json.dumps({"tensors": [{"name": n, "slices": [[0, 2], None, [1, 3], None]} for n in names]})
    outcome = daemon.cli.run("load", f"disk:{folder}", "--view", "-", "--json", stdin=view, timeout=300)
    stop.set()
    asker.join()
    assert outcome.code == 0 and len(outcome.report["tensors"]) == len(names)
    assert slowest[0] < 2.0, f"a health check took {slowest[0]:.2f} s"
