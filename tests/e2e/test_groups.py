"""Ranks that load as a group: what they share is read once, and no rank hurts or waits for another for long."""
import re
import subprocess
import time

import numpy as np
import pytest

from checkpoints import digest, digests, write
from group_scene import COLUMNS, COUNTERS, ROWS, WORLD, Load, arrays, expected, group, load_all, slices, strategy  # noqa: F401
from stage import CLI, ROOT, SANITIZED, MiB, soon


def test_four_ranks_of_a_model_read_every_byte_once(start, models, arrays):
    daemon = start(**strategy())
    total = sum(a.nbytes for a in arrays.values())
    before = daemon.bytes_asked()
    reports = load_all(daemon, models, [group(r, *slices(r)) for r in range(WORLD)])
    asked = daemon.bytes_asked() - before
    for rank, report in enumerate(reports):
        assert report["executor"] == "owner_file_collective"
        assert report["selection_reason"] == "auto_prefers_owner_file_collective_shared_source"
        assert digests(report) == expected(arrays, rank)
    assert sum(r["bytes"]["read"] for r in reports) == total
    assert total <= asked <= total * 1.01 + 4 * MiB, "the kernel saw more reads than that"
    numbers = [{k: r["collective"][f"collective_{k}"] for k in COUNTERS} for r in reports]
    assert all(n == numbers[0] for n in numbers), "the numbers are the group's"
    norms = 4 * COLUMNS * 4
    assert numbers[0]["unique_source_bytes"] == total
    assert numbers[0]["dedup_saving_bytes"] == (WORLD - 1) * norms
    assert numbers[0]["peak_temporary_bytes"] <= 64 * MiB
    estimated = reports[0]["collective"]["estimated"]
    assert estimated["collective_unique_source_bytes"] == total
    assert estimated["collective_batch_count"] == numbers[0]["batch_count"] >= total / (4 * MiB)
    assert abs(estimated["collective_peer_transfer_bytes"] - numbers[0]["peer_transfer_bytes"]) <= 8 * MiB
    assert daemon.logged("action=join", "action=launching", "action=timings", "action=finished"), daemon.log()
    (timings,) = [line for line in daemon.log().splitlines() if "action=timings group_id=g" in line]
    told = dict(word.split("=", 1) for word in timings.split() if "=" in word)
    for name in COUNTERS:
        assert int(told[f"collective_{name}"]) == numbers[0][name], name
        assert int(told[f"estimated_{name}"]) == estimated[f"collective_{name}"], name
    assert float(told["total_ms"]) > 0 and float(told["estimated_ms"]) > 0


def test_ranks_whose_views_overlap_read_every_byte_once(start, models, arrays):
    """Rank r of three gets the r-th and the next quarter of everything."""
    daemon = start(**strategy())
    total = sum(a.nbytes for n, a in arrays.items() if "norm" not in n)
    cut = {"row": (ROWS // 4, "[{}:{}, :]"), "column": (COLUMNS // 4, "[:, {}:{}]")}
    views = [sum([["--slice", f"l{i}.{kind}" + text.format(r * part, (r + 2) * part)] for i in range(4) for kind, (part, text) in cut.items()], [])
             for r in range(3)]
    before = daemon.bytes_asked()
    reports = load_all(daemon, models, [group(r, *views[r], world=3) for r in range(3)])
    asked = daemon.bytes_asked() - before
    for rank, report in enumerate(reports):
        rows, columns = (slice(rank * part, (rank + 2) * part) for part in (ROWS // 4, COLUMNS // 4))
        assert digests(report) == {n: digest(a[rows] if "row" in n else a[:, columns]) for n, a in arrays.items() if "norm" not in n}
    assert {r["executor"] for r in reports} == {"owner_file_collective"}
    assert {r["collective"]["collective_unique_source_bytes"] for r in reports} == {total}
    assert {r["collective"]["collective_dedup_saving_bytes"] for r in reports} == {total // 2}
    assert total <= asked <= total * 1.01 + 4 * MiB, "the kernel saw more reads than that"


def test_ranks_that_want_the_same_share_one_replica(start, models, arrays):
    """There is not even room for two."""
    total = sum(a.nbytes for a in arrays.values())
    daemon = start(memory={"host_budget": str(total * 3 // 2)}, **strategy())
    before, daemon_before = daemon.bytes_asked(), daemon.resident()
    daemon.reset_peak()
    reports = load_all(daemon, models, [group(r, world=8) for r in range(8)])
    assert all(digests(r) == {n: digest(a) for n, a in arrays.items()} for r in reports)
    assert {r["collective"]["collective_unique_source_bytes"] for r in reports} == {total}
    assert {r["collective"]["collective_dedup_saving_bytes"] for r in reports} == {7 * total}
    assert {r["collective"]["collective_peer_transfer_bytes"] for r in reports} == {0}
    assert len(daemon.status()["replicas"]) == 1
    assert daemon.bytes_asked() - before <= total * 1.01 + 4 * MiB
    if not SANITIZED:
        assert daemon.resident("VmHWM") - daemon_before < 2 * total + 64 * MiB, "memory of one replica and staging"


def test_ranks_that_start_together_read_the_headers_once(start, models):
    write(models / "m", {f"t{i}": np.full(4, i, np.float32) for i in range(20000)})
    daemon = start(**strategy())
    size = sum(f.stat().st_size for f in models.glob("m/*.safetensors"))
    before = daemon.bytes_asked()
    reports = load_all(daemon, models, [group(r, world=8) for r in range(8)])
    assert {r["executor"] for r in reports} == {"owner_file_collective"}
    assert size <= daemon.bytes_asked() - before <= size * 1.2, "most of the file is its header"


def test_a_group_that_saves_too_little_loads_as_each_rank_would(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_min_dedup_saving_bytes="1GiB"))
    reports = load_all(daemon, models, [group(r, *slices(r), world=2) for r in range(2)])
    for rank, report in enumerate(reports):
        assert report["executor"] != "owner_file_collective" and digests(report) == expected(arrays, rank)
        assert report["collective"]["skip_reason"] == "dedup_saving_below_threshold"


@pytest.mark.parametrize("changes, more, reason", [
    ({}, [], "shared_source_unproven"), ({"enable_owner_file_collective": False}, [], "strategy_disabled"),
    ({}, ["--source-locality", "host_local"], "source_locality_host_local"),
    ({}, ["--collective", "disabled"], "collective_policy_disabled")])
def test_a_load_that_may_not_be_collective_does_not_wait(start, models, arrays, changes, more, reason):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="10m", **changes))
    load = Load(daemon, models, "--group", "g", "--rank", 0, "--world-size", 2, *more)
    assert load.skipped() == reason


def test_explain_of_every_rank_shows_the_whole_group(start, models, arrays):
    daemon = start(**strategy())

    def explain():
        """All four at the same time; how far apart they come is up to the host, so that it may take another time."""
        processes = [daemon.cli.spawn("explain", f"disk:{models}/m", *group(r, *slices(r))) for r in range(WORLD)]
        texts.append([process.communicate(timeout=120)[0] for process in processes])
        return all("skew" in text for text in texts[-1])

    texts = []
    assert soon(explain), texts[-1]
    for rank, text in enumerate(texts[-1]):
        assert f"group     g: rank {rank} of 4" in text, text
    tables = [text[text.index("\n  transport"):] for text in texts[-1]]
    assert all(table == tables[0] for table in tables) and "to peers" in tables[0]
    assert re.search(r"^> loopback +[0-9.]+ ms$", tables[0], re.M) and "each byte lands 1.0" in tables[0], tables[0]


def test_explain_of_one_rank_does_not_wait_for_the_others(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="10m"))
    began = time.monotonic()
    alone = daemon.cli.ok("explain", f"disk:{models}/m", *group(0, *slices(0))).out
    assert "group_assemble_timeout:missing=1,2,3; a load waits up to 10m for the others" in alone, alone
    required = daemon.cli.run("explain", f"disk:{models}/m", *group(0, "--collective", "required", name="h"))
    assert required.status == "DEADLINE_EXCEEDED" and "missing=1,2,3" in required.err
    assert time.monotonic() - began < 60


def test_the_configuration_can_force_a_transport_that_is_there(start, models, arrays):
    daemon = start(**strategy(engine={"collective_transport": "loopback"}))
    reports = load_all(daemon, models, [group(r, *slices(r), world=2) for r in range(2)])
    assert [r["collective"]["transport"] for r in reports] == ["loopback"] * 2
    assert [digests(r) for r in reports] == [expected(arrays, r) for r in range(2)]


def test_a_transport_that_is_not_there_is_refused_by_name_and_no_rank_waits(start, models, arrays):
    daemon = start(devices={"plugin_folder": str(models)},
                   **strategy(engine={"collective_transport": "nccl"}, owner_file_collective_group_assemble_timeout="10m"))
    assert daemon.logged("collective_transport_unavailable transport=nccl")
    assert Load(daemon, models, *group(0, world=2)).skipped() == "transport_unavailable:nccl"
    required = Load(daemon, models, *group(1, "--collective", "required", world=2)).end()
    assert required.status == "FAILED_PRECONDITION" and "transport_unavailable:nccl" in required.err


def test_the_example_loads_four_ranks_as_a_group(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="30s"))
    done = subprocess.run(["bash", str(ROOT / "examples/group_load.sh"), f"disk:{models}/m"], capture_output=True, text=True,
                          timeout=120, env={**daemon.cli.environment, "TENSORCAST": str(CLI)})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    total = sum(a.nbytes for a in arrays.values())
    assert [line.split(":")[0] for line in lines] == [f"rank {r}" for r in range(4)]
    for line in lines:
        assert "executor=owner_file_collective" in line and f"collective_unique_source_bytes={total}" in line, line
