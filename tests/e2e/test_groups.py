"""Ranks that load as a group: what they share is read once, and nobody hurts or waits for another for long."""
import json
import re
import signal
import subprocess
import time

import ml_dtypes
import numpy as np
import pytest

from checkpoints import digest, digests, random_array, write
from stage import CLI, ROOT, SANITIZED, MiB, soon

COUNTERS = ("unique_source_bytes", "peer_transfer_bytes", "peak_temporary_bytes", "batch_count", "dedup_saving_bytes")
ROWS, COLUMNS, WORLD = 1024, 2048, 4


def strategy(**changes):
    keys = {"enable_owner_file_collective": True, "owner_file_collective_min_dedup_saving_bytes": "1KiB",
            "owner_file_collective_batch_bytes": "4MiB", "owner_file_collective_group_assemble_timeout": "2s", **changes}
    return {"engine": {"materialization_strategy": keys}, "logging": {"level": "debug"}}


@pytest.fixture
def arrays(models):
    rng = np.random.default_rng(4)
    parts = [{f"l{i}.row": random_array(rng, ml_dtypes.bfloat16, (ROWS, COLUMNS)),
              f"l{i}.column": random_array(rng, ml_dtypes.bfloat16, (ROWS, COLUMNS)),
              f"l{i}.norm": random_array(rng, np.float32, (COLUMNS,))} for i in range(4)]
    return write(models / "m", *parts)


def group(rank, *more, name="g", world=WORLD, locality="shared_source"):
    return ["--group", name, "--rank", rank, "--world-size", world, "--source-locality", locality, *more]


def slices(rank):
    """A norm whole, a quarter of the rows, a quarter of the columns; of every layer."""
    rows, columns = ROWS // WORLD, COLUMNS // WORLD
    per_layer = [["--tensor", f"l{i}.norm", "--slice", f"l{i}.row[{rank * rows}:{(rank + 1) * rows}, :]",
                  "--slice", f"l{i}.column[:, {rank * columns}:{(rank + 1) * columns}]"] for i in range(4)]
    return sum(per_layer, [])


def expected(arrays, rank):
    rows, columns = ROWS // WORLD, COLUMNS // WORLD
    cut = {"row": lambda a: a[rank * rows:(rank + 1) * rows], "column": lambda a: a[:, rank * columns:(rank + 1) * columns],
           "norm": lambda a: a}
    return {name: digest(cut[name.split(".")[1]](array)) for name, array in arrays.items()}


class Load:
    """A `tensorcast load` in the background."""

    def __init__(self, daemon, models, *arguments, command="load"):
        digests = ["--digest"] if command == "load" else []
        self.process = daemon.cli.spawn(command, f"disk:{models}/m", *arguments, "--json", *digests)
        self.started = time.monotonic()

    def end(self, timeout=60):
        out, err = self.process.communicate(timeout=timeout)
        self.seconds = time.monotonic() - self.started
        self.code, self.err = self.process.returncode, err
        self.status = (re.search(r"^tensorcast: ([A-Z_]+): ", err, re.M) or [None, None])[1]
        self.report = json.loads(out) if self.code == 0 else None
        return self

    def report_ok(self):
        assert self.end().code == 0, self.err
        return self.report


def load_all(daemon, models, arguments):
    return [load.report_ok() for load in [Load(daemon, models, *a) for a in arguments]]


def joined(daemon, count):
    return soon(lambda: daemon.log().count("action=join") >= count)


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
    for word in ("action=join", "action=launching", "action=timings", "action=finished"):
        assert word in daemon.log(), word


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


def test_a_missing_rank_makes_the_others_load_alone_after_one_timeout(start, models, arrays):
    daemon = start(**strategy())
    loads = [Load(daemon, models, *group(r, *slices(r))) for r in (0, 2)]
    assert joined(daemon, 2)
    time.sleep(1)
    loads.append(Load(daemon, models, *group(3, *slices(3))))
    for rank, load in zip((0, 2, 3), loads):
        report = load.report_ok()
        assert report["executor"] != "owner_file_collective" and digests(report) == expected(arrays, rank)
        assert report["collective"]["skip_reason"] == "group_assemble_timeout:missing=1"
    assert loads[2].seconds < 1.9, "the timer runs from the first join, not from everybody's own"
    late = Load(daemon, models, *group(1, *slices(1)))
    report = late.report_ok()
    assert late.seconds < 1 and report["collective"]["skip_reason"] == "group_assemble_timeout:missing=1"
    assert digests(report) == expected(arrays, 1)


def test_a_required_collective_fails_when_a_rank_is_missing(start, models, arrays):
    daemon = start(**strategy())
    load = Load(daemon, models, *group(0, "--collective", "required", world=2)).end()
    assert load.status == "FAILED_PRECONDITION" and "missing=1" in load.err
    late = Load(daemon, models, *group(1, "--collective", "required", world=2)).end()
    assert late.status == "FAILED_PRECONDITION" and late.seconds < 1


def test_a_second_claim_to_a_rank_is_refused_and_the_group_completes(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="20s"))
    first = Load(daemon, models, *group(0, world=2))
    assert joined(daemon, 1)
    second = Load(daemon, models, *group(0, world=2)).end()
    assert second.status == "ALREADY_EXISTS" and "rank 0" in second.err
    other = Load(daemon, models, *group(1, world=2))
    for load in (first, other):
        assert load.report_ok()["executor"] == "owner_file_collective"
        assert digests(load.report) == {n: digest(a) for n, a in arrays.items()}


@pytest.mark.parametrize("field, odd", [
    ("world size", dict(world=3)), ("policy", dict(more=["--collective", "required"])),
    ("policy", dict(more=["--source-sharing-domain", "elsewhere"])), ("artifact", dict(artifact="other"))])
def test_the_odd_rank_is_refused_with_what_differs_and_the_others_go_on(start, models, arrays, field, odd):
    write(models / "other", {"w": np.arange(10)})
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="20s"))
    first = Load(daemon, models, *group(0, world=2))
    assert joined(daemon, 1)
    arguments = group(1, *odd.get("more", []), world=odd.get("world", 2))
    refused = daemon.cli.run("load", f"disk:{models}/{odd.get('artifact', 'm')}", *arguments)
    assert refused.status == "INVALID_ARGUMENT" and f"its {field} is" in refused.err, refused
    other = Load(daemon, models, *group(1, world=2))
    assert [load.report_ok()["executor"] for load in (first, other)] == ["owner_file_collective"] * 2


def test_a_killed_client_frees_its_rank_and_hurts_nobody(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="20s"))
    doomed = Load(daemon, models, *group(0, world=2))
    assert joined(daemon, 1)
    doomed.process.send_signal(signal.SIGKILL)
    doomed.process.wait()
    assert soon(lambda: "action=left" in daemon.log())
    reports = load_all(daemon, models, [group(r, *slices(r), world=2) for r in range(2)])
    assert [r["executor"] for r in reports] == ["owner_file_collective"] * 2
    assert [digests(r) for r in reports] == [expected(arrays, r) for r in range(2)]


def test_clients_killed_at_any_moment_leave_the_others_whole(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="1s"))
    for attempt in range(6):
        loads = [Load(daemon, models, *group(r, *slices(r), name=f"k{attempt}")) for r in range(WORLD)]
        time.sleep(0.01 * attempt)
        loads[attempt % WORLD].process.kill()
        for rank, load in enumerate(loads):
            if rank != attempt % WORLD:
                assert digests(load.report_ok()) == expected(arrays, rank)
        daemon.cli.ok("release", "--all")
    assert soon(daemon.at_rest)


def test_a_group_id_may_be_used_again(start, models, arrays):
    daemon = start(**strategy())
    for attempt in range(2):
        reports = load_all(daemon, models, [group(r, *slices(r), world=2) for r in range(2)])
        assert [r["executor"] for r in reports] == ["owner_file_collective"] * 2
        assert soon(daemon.at_rest)
        daemon.cli.ok("release", "--all")


def test_a_rank_without_memory_fails_and_the_others_load_alone(start, models, arrays):
    small = sum(a.nbytes for n, a in arrays.items() if n.endswith("norm"))
    daemon = start(memory={"host_budget": f"{small + 8 * MiB}"}, **strategy())
    few = Load(daemon, models, *group(0, "--tensor", "*.norm", world=2))
    many = Load(daemon, models, *group(1, world=2)).end()
    assert many.status == "RESOURCE_EXHAUSTED"
    report = few.report_ok()
    assert report["collective"]["skip_reason"] == "group_member_failed:rank=1:HOST_BUDGET_EXCEEDED"


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
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="30s", **changes))
    load = Load(daemon, models, "--group", "g", "--rank", 0, "--world-size", 2, *more)
    assert load.report_ok()["collective"]["skip_reason"] == reason and load.seconds < 5


def test_a_file_that_changes_while_ranks_wait_fails_all_of_them(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="20s"))
    first = Load(daemon, models, *group(0, *slices(0), world=2))
    assert joined(daemon, 1)
    (part,) = models.glob("m/*-00001-*")
    part.write_bytes(part.read_bytes())
    second = Load(daemon, models, *group(1, *slices(1), world=2)).end()
    assert second.status == "INVALID_ARGUMENT", "another version is another artifact"
    first.process.kill()
    first.process.communicate()


def test_explain_of_every_rank_shows_the_whole_group(start, models, arrays):
    daemon = start(**strategy())
    texts = [daemon.cli.spawn("explain", f"disk:{models}/m", *map(str, group(r, *slices(r)))) for r in range(WORLD)]
    texts = [process.communicate(timeout=30)[0] for process in texts]
    for rank, text in enumerate(texts):
        assert f"group     g: rank {rank} of 4" in text and "skew" in text, text
    tables = [text[text.index("\n  owner"):] for text in texts]
    assert all(table == tables[0] for table in tables) and "to peers" in tables[0]
    alone = daemon.cli.ok("explain", f"disk:{models}/m", *group(0, *slices(0))).out
    assert "the ranks did not meet" in alone and "group_assemble_timeout:missing=1,2,3" in alone


def test_the_example_loads_four_ranks_as_a_group(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="30s"))
    done = subprocess.run(["bash", str(ROOT / "examples/group_load.sh"), f"disk:{models}/m"], capture_output=True, text=True,
                          timeout=60, env={**daemon.cli.environment, "TENSORCAST": str(CLI)})
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    total = sum(a.nbytes for a in arrays.values())
    assert [line.split(":")[0] for line in lines] == [f"rank {r}" for r in range(4)]
    for line in lines:
        assert "executor=owner_file_collective" in line and f"collective_unique_source_bytes={total}" in line, line


def test_a_drain_ends_ranks_that_wait(start, models, arrays):
    daemon = start(server={"shutdown_grace": "500ms"}, **strategy(owner_file_collective_group_assemble_timeout="60s"))
    load = Load(daemon, models, *group(0, world=2))
    assert joined(daemon, 1)
    assert daemon.stop() == 0
    assert load.end().code != 0
