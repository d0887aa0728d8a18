"""What may go wrong with a group, row by row of the failure table of the design notes, and the tests that show what then
happens. Files without a path are those of this folder; no name of a file: this one.

rank missing at assembly      test_a_missing_rank_makes_the_others_load_alone_after_one_timeout, test_a_required_collective_fails_...
client crashes while waiting  test_a_killed_client_frees_its_rank_and_hurts_no_other
client crashes in mid-run     test_a_client_that_dies_in_mid_run_hurts_no_other, test_clients_killed_at_any_moment_leave_the_others_whole
client is stopped             test_a_client_that_is_stopped_holds_up_no_other
daemon dies                   test_a_daemon_that_dies_in_mid_run_is_an_error_that_is_worth_a_retry
daemon is told to stop        test_a_drain_ends_ranks_that_wait, test_a_drain_lets_a_running_group_finish, test_a_drain_without_...
slow owner                    ../unit/test_collective.c: a_slow_owner_is_waited_for_and_nobody_fails
mismatching request           test_the_odd_rank_is_refused_with_what_differs_and_the_others_go_on, test_a_file_that_changes_while_...
duplicate rank                test_a_second_claim_to_a_rank_is_refused_and_the_group_completes
the same rank again           test_a_retry_waits_for_the_same_result; ../unit/test_ticket.c, "the same request again"
two ranks on one device       test_gpu.py: test_two_ranks_on_one_gpu_are_refused_by_nccl_with_a_reason
group id used again           test_a_group_id_may_be_used_again
source changes in mid-run     test_a_file_that_changes_in_mid_run_fails_every_rank, test_an_object_replaced_in_mid_run_fails_every_rank
read error in mid-run         test_a_read_error_fails_the_ranks_that_need_the_bytes_and_no_other
wrong bytes                   test_bytes_that_come_wrong_once_are_read_again, test_bytes_that_stay_wrong_are_data_loss_for_...
no memory for a rank          test_a_rank_without_memory_fails_and_the_others_load_alone
a device fails                ../unit/test_team.c: a_device_that_fails_under_a_running_group_costs_the_others_nothing
transport fails               ../unit/test_collective.c: a_delivery_that_fails_...; ../unit/test_team.c: a_transport_that_cannot_...
Rows and words of rows that are about several hosts, which a group does not have: silent partitions, dead hosts, leases and
etcd; hedged reads, since an owner is no process that could lag behind but a share of the daemon's own reads; epochs in
messages, since nothing is sent; chunk limits and versions, since all ranks ask one daemon. Holders of a rank are named by
their load's id, which the log has with all the rest. A broken GPU is taken out of service in the daemon, not in a child of it.

"In mid-run" is a fact here: the daemon is stopped (SIGSTOP) while it has read some of the bytes and not all of them, or the
fake store acts on the request for a certain byte.
"""
import os
import re
import signal
import threading
import time

import pytest

from checkpoints import blob, digest, digests, write
from group_scene import WORLD, Load, arrays, expected, group, joined, load_all, slices, strategy  # noqa: F401
from stage import MiB, soon
from store_scene import DATA, noise, one
from wire import Wire


def test_a_missing_rank_makes_the_others_load_alone_after_one_timeout(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="8s"))
    loads = [Load(daemon, models, *group(r, *slices(r))) for r in (0, 2)]
    assert joined(daemon, 2)
    time.sleep(0.5)  # what the last one waits less than the first
    loads.append(Load(daemon, models, *group(3, *slices(3))))
    for rank, load in zip((0, 2, 3), loads):
        assert load.skipped() == "group_assemble_timeout:missing=1"
        assert load.report["executor"] != "owner_file_collective" and digests(load.report) == expected(arrays, rank)
    waited = [load.report["collective"]["assemble_ms"] for load in loads]
    assert waited[0] - waited[2] > 450, "the timer runs from the first join, not from everybody's own"
    late = Load(daemon, models, *group(1, *slices(1)))
    assert late.skipped() == "group_closed:group_assemble_timeout:missing=1" and late.report["collective"]["assemble_ms"] == 0
    assert digests(late.report) == expected(arrays, 1)


def test_status_and_top_show_a_rank_that_waits_for_the_others_and_whose_it_is(start, models, arrays):
    daemon = start(**strategy())
    first = Load(daemon, models, *group(0, *slices(0), world=2))
    assert joined(daemon, 1)
    (row,) = daemon.status()["requests"]
    assert (row["method"], row["stage"], row["pid"]) == ("Materialize", "group", first.process.pid) and daemon.status()["loads"] == []
    for command in ("status", "top"):
        page = daemon.cli.ok(command).out
        assert f"pid {first.process.pid}" in page and "waiting for the other ranks of its group of 2" in page, page
    second = Load(daemon, models, *group(1, *slices(1), world=2))
    assert first.report_ok() and second.report_ok() and daemon.status()["requests"] == []


def test_a_required_collective_fails_when_a_rank_is_missing(start, models, arrays):
    daemon = start(**strategy(owner_file_collective_group_assemble_timeout="3s"))
    loads = [Load(daemon, models, *group(rank, "--collective", "required")) for rank in (0, 2)]
    for load in loads:
        assert load.end().status == "DEADLINE_EXCEEDED" and "missing=1,3" in load.err
    late = Load(daemon, models, *group(1, "--collective", "required")).end()
    assert late.status == "FAILED_PRECONDITION" and "group_closed:group_assemble_timeout:missing=1,3" in late.err
    assert daemon.status()["replicas"] == []


def test_a_second_claim_to_a_rank_is_refused_and_the_group_completes(start, models, arrays):
    daemon = start(**strategy())
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
    write(models / "other", {"w": blob(9, 10)})
    daemon = start(**strategy())
    first = Load(daemon, models, *group(0, world=2))
    assert joined(daemon, 1)
    arguments = group(1, *odd.get("more", []), world=odd.get("world", 2))
    refused = daemon.cli.run("load", f"disk:{models}/{odd.get('artifact', 'm')}", *arguments)
    assert refused.status == "INVALID_ARGUMENT" and f"its {field} is" in refused.err, refused
    other = Load(daemon, models, *group(1, world=2))
    assert [load.report_ok()["executor"] for load in (first, other)] == ["owner_file_collective"] * 2


def test_a_killed_client_frees_its_rank_and_hurts_no_other(start, models, arrays):
    daemon = start(**strategy())
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


@pytest.mark.parametrize("policy", ["auto", "required"])
def test_a_rank_without_memory_fails_and_the_others_load_alone(start, models, arrays, policy):
    small = sum(a.nbytes for n, a in arrays.items() if n.endswith("norm"))
    daemon = start(memory={"host_budget": f"{small + 8 * MiB}"}, **strategy())
    few = Load(daemon, models, *group(0, "--tensor", "*.norm", "--collective", policy, world=2))
    many = Load(daemon, models, *group(1, "--collective", policy, world=2)).end()
    assert many.status == "RESOURCE_EXHAUSTED"
    problem = "group_member_failed:rank=1:HOST_BUDGET_EXCEEDED"
    if policy == "auto":
        assert few.skipped() == problem
    else:
        assert few.end().status == "FAILED_PRECONDITION" and problem in few.err
    assert soon(daemon.at_rest)


def test_a_file_that_changes_while_ranks_wait_fails_all_of_them(start, models, arrays):
    daemon = start(**strategy())
    first = Load(daemon, models, *group(0, *slices(0), world=2))
    assert joined(daemon, 1)
    (part,) = models.glob("m/*-00001-*")
    part.write_bytes(part.read_bytes())
    second = Load(daemon, models, *group(1, *slices(1), world=2))
    for load in (first, second):  # no rank is told that the ranks disagree, and none waits for the timeout
        outcome = load.end()
        assert outcome.status == "FAILED_PRECONDITION" and re.search("changed|written|writing", outcome.err), outcome.err
    assert f"disk:{models}/m has changed while group" in second.err and "load it again on all ranks" in second.err, second
    assert daemon.logged("reason=source_changed:rank=1")


def test_a_drain_ends_ranks_that_wait(start, models, arrays):
    daemon = start(server={"shutdown_grace": "500ms"}, **strategy())
    load = Load(daemon, models, *group(0, world=2))
    assert joined(daemon, 1)
    assert daemon.stop() == 0
    assert load.end().code != 0


# --- in the middle of a run, from disk ---

BIG = 192 * MiB


@pytest.fixture
def big(models):
    return write(models / "m", {"w": blob(7, BIG)})["w"]


def view(rank):
    """Every rank leaves out one MiB more of the beginning."""
    return ["--slice", f"w[{rank * MiB}:]"]


def right(load, big, rank):
    return digests(load.report_ok()) == {"w": digest(big[rank * MiB:])}


def caught_in_mid_run(daemon, models, world=3):
    """The loads of a group, with the daemon stopped after it has read some of the bytes and before it has read all."""
    for attempt in range(50):
        before, loads = daemon.bytes_asked(), []
        for rank in range(world):
            loads.append(Load(daemon, models, *group(rank, *view(rank), name=f"c{attempt}", world=world)))
        while daemon.bytes_asked() < before + 4 * MiB and loads[0].process.poll() is None:
            pass
        daemon.process.send_signal(signal.SIGSTOP)
        log = daemon.log()  # of a thread of its own, which may have been stopped before it wrote that the group runs
        assert "action=skipped" not in log
        if 4 * MiB <= daemon.bytes_asked() - before < BIG - 4 * MiB and f"action=launching group_id=c{attempt}" in log:
            return loads
        daemon.process.send_signal(signal.SIGCONT)
        for load in loads:
            load.report_ok()
        daemon.cli.ok("release", "--all")
    raise AssertionError("the group is never caught reading")


@pytest.fixture
def slow(start, big):
    """A daemon with one thread that reads."""
    return start(**strategy(engine={"io_threads": 1}))


def test_a_client_that_dies_in_mid_run_hurts_no_other(slow, models, big):
    for doomed in range(3):
        loads = caught_in_mid_run(slow, models)
        loads[doomed].process.kill()
        loads[doomed].process.communicate()
        slow.process.send_signal(signal.SIGCONT)
        assert all(right(load, big, rank) for rank, load in enumerate(loads) if rank != doomed)
        slow.cli.ok("release", "--all")
    assert soon(slow.at_rest)


def truncate(path):
    os.truncate(path, BIG // 2)


def rewrite(path):
    with open(path, "r+b") as file:
        file.seek(BIG // 2)
        file.write(bytes(MiB))


def exchange(path):
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def waits_for_a_lease(path):
    """Whether a process that opens the file for writing waits until the lease is given up."""
    with open("/proc/locks") as locks:
        return any("BREAKING" in line and f":{path.stat().st_ino} " in line for line in locks)


@pytest.mark.parametrize("change", [truncate, rewrite, exchange])
def test_a_file_that_changes_in_mid_run_fails_every_rank(slow, models, big, change):
    loads = caught_in_mid_run(slow, models)
    path = models / "m" / DATA
    writer = threading.Thread(target=change, args=[path])
    writer.start()
    assert soon(lambda: not writer.is_alive() or waits_for_a_lease(path))  # a daemon that is stopped gives none up
    slow.process.send_signal(signal.SIGCONT)
    writer.join()
    for load in loads:
        assert load.end().status == "FAILED_PRECONDITION" and DATA in load.err, load.err
    assert soon(slow.at_rest) and slow.status()["replicas"] == []


def test_a_daemon_that_dies_in_mid_run_is_an_error_that_is_worth_a_retry(slow, models, big):
    loads = caught_in_mid_run(slow, models)
    slow.kill()
    for load in loads:
        assert load.end().status == "UNAVAILABLE", load.err
    slow.start()
    again = [Load(slow, models, *group(rank, *view(rank), world=3)) for rank in range(3)]
    assert all(right(load, big, rank) for rank, load in enumerate(again))


def test_a_drain_lets_a_running_group_finish(slow, models, big):
    loads = caught_in_mid_run(slow, models)
    slow.process.send_signal(signal.SIGTERM)
    slow.process.send_signal(signal.SIGCONT)
    assert all(right(load, big, rank) for rank, load in enumerate(loads))
    assert slow.process.wait(60) == 0


def test_a_drain_without_grace_ends_every_rank_with_an_error(start, models, big):
    daemon = start(server={"shutdown_grace": "0s"}, **strategy(engine={"io_threads": 1}))
    loads = caught_in_mid_run(daemon, models)
    daemon.process.send_signal(signal.SIGTERM)
    daemon.process.send_signal(signal.SIGCONT)
    for rank, load in enumerate(loads):
        assert load.end().code != 0 or right(load, big, rank)
    assert daemon.process.wait(60) == 0


def test_a_client_that_is_stopped_holds_up_no_other(start, models, arrays):
    daemon = start(**strategy())
    loads = [Load(daemon, models, *group(r, *slices(r), world=3)) for r in range(2)]
    assert joined(daemon, 2)
    loads[1].process.send_signal(signal.SIGSTOP)
    loads.append(Load(daemon, models, *group(2, *slices(2), world=3)))
    for rank in (0, 2):
        assert loads[rank].report_ok()["executor"] == "owner_file_collective"
        assert digests(loads[rank].report) == expected(arrays, rank)
    loads[1].process.send_signal(signal.SIGCONT)
    loads[1].end()  # its connection may have been given up meanwhile
    assert loads[1].code != 0 or digests(loads[1].report) == expected(arrays, 1)


# --- in the middle of a run, from a store ---

MIDDLE = {"covers": 2_500_000}
PARTS = ["w[0:4000000]", "w[1000000:3000000]", "w[3500000:]"]  # the last one does without the middle


@pytest.fixture
def store_group(store_daemon):
    """Loads PARTS as a group from a placed checkpoint, having started a daemon that reads it."""

    def load(placed, **sections):
        daemon = store_daemon(**strategy(owner_file_collective_batch_bytes="64MiB"), **sections)
        loads = [Load(daemon, placed.reference, *group(rank, "--slice", part, world=3)) for rank, part in enumerate(PARTS)]
        loads = [load.end() for load in loads]
        assert daemon.logged("action=launching") and "action=skipped" not in daemon.log(), "not as a group"
        return daemon, loads

    return load


def bounds(part):
    return slice(*(int(bound) if bound else None for bound in part[2:-1].split(":")))


def is_right(load, rank, data):
    assert load.code == 0, load.err
    assert load.report["executor"] == "owner_file_collective"
    return digests(load.report) == {"w": digest(data[bounds(PARTS[rank])])}


def test_a_read_error_fails_the_ranks_that_need_the_bytes_and_no_other(fake, store_group):
    placed = one(fake, "gs")
    placed.fault({"status": 503}, match=MIDDLE, times=0)
    daemon, loads = store_group(placed, http={"max_tries": 2})
    for load in loads[:2]:
        assert load.status == "UNAVAILABLE" and DATA in load.err, load.err
    assert is_right(loads[2], 2, noise(1))
    assert soon(daemon.at_rest) and len(daemon.status()["replicas"]) <= 1
    fake.faults.clear()
    daemon.cli.ok("release", "--all")
    again = [Load(daemon, placed.reference, *group(rank, "--slice", part, world=3)) for rank, part in enumerate(PARTS)]
    assert all(is_right(load.end(), rank, noise(1)) for rank, load in enumerate(again))


@pytest.mark.parametrize("scheme", ["gs", "s3", "http"])
def test_an_object_replaced_in_mid_run_fails_every_rank(fake, store_group, scheme, tmp_path):
    placed = one(fake, scheme)
    write(tmp_path / "other", {"w": noise(2)})
    new = (tmp_path / "other" / DATA).read_bytes()
    rule = placed.fault({"call": lambda: fake.world.put(placed.listener, placed.prefix + DATA, new)}, match=MIDDLE)
    daemon, loads = store_group(placed)
    assert rule.acted == 1
    for load in loads:
        assert load.status == "FAILED_PRECONDITION" and DATA in load.err, load.err
    assert soon(daemon.at_rest) and daemon.status()["replicas"] == []


def test_bytes_that_come_wrong_once_are_read_again(fake, store_group):
    placed = one(fake, "gs")
    rule = placed.fault({"flip": 2_500_001}, match=MIDDLE)
    _, loads = store_group(placed)
    assert rule.acted == 1 and sum(load.report["verified"]["healed"] for load in loads) >= 1
    assert all(is_right(load, rank, noise(1)) for rank, load in enumerate(loads))


def test_bytes_that_stay_wrong_are_data_loss_for_every_rank(fake, store_group):
    placed = one(fake, "gs")  # which has one sum for the whole object: no rank can be told apart
    placed.fault({"flip": 2_500_001}, match=MIDDLE, times=0)
    daemon, loads = store_group(placed)
    for load in loads:
        assert load.status == "DATA_LOSS" and DATA in load.err, load.err
    assert soon(daemon.at_rest) and daemon.status()["replicas"] == []


# --- retries ---


def test_a_retry_waits_for_the_same_result(start, models, arrays):
    daemon = start(**strategy())
    with daemon.channel() as first, daemon.channel() as second:
        wires, events = [Wire(first), Wire(second)], [[], []]

        def materialize(i, attempt="a"):
            load = wires[i].load_request(f"disk:{models}/m")
            load.topology.group.id, load.topology.group.rank, load.topology.group.world_size = "g", 0, 2
            load.topology.group.attempt = attempt
            load.topology.source_locality = 2
            events[i].extend(wires[i].call("Materialize", wires[i].message("MaterializeRequest", load=load)))

        threads = [threading.Thread(target=materialize, args=(0,))]
        threads[0].start()
        assert joined(daemon, 1)
        threads.append(threading.Thread(target=materialize, args=(1,)))
        threads[1].start()
        assert soon(lambda: "action=joined_again" in daemon.log())
        with pytest.raises(Exception, match="rank 0 of group g is taken"):
            materialize(1, "another")
        other = Load(daemon, models, *group(1, *slices(1), world=2))
        assert digests(other.report_ok()) == expected(arrays, 1)
        for thread in threads:
            thread.join(60)
    results = [e[-1].result for e in events]
    assert all(r.report.executor == "owner_file_collective" for r in results)
    assert len({r.report.identity for r in results}) == 1 and len(daemon.status()["replicas"]) == 2
