"""Groups whose ranks are on several hosts: they meet through a real etcd, and each host runs its own."""
import re
import threading

import pytest

import etcd as etcd_scene
import store_scene
from checkpoints import digest, digests
from group_scene import Load, group, joined, strategy
from stage import MiB, soon
from test_hosts import cluster, etcd, shared  # noqa: F401

pytestmark = pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
GROUPS = "/tensorcast/v1/groups/"
SIZE, HEADER = 48 * MiB, "bytes=0-262143"


@pytest.fixture
def placed(fake, bare):
    return store_scene.place(fake, "http", {"w": store_scene.noise(1, 6 * MiB), "v": store_scene.noise(2, MiB)})


@pytest.fixture
def grouped(cluster, fake):
    """grouped(n, timeout): n hosts that know each other, whose groups may span them."""
    def grow(n, timeout="60s"):
        for _ in range(n):
            cluster.add(settings={"sources": store_scene.settings(fake), **strategy(owner_file_collective_group_assemble_timeout=timeout)})
        assert cluster.meet(*(f"h{i}" for i in range(n)))
        return cluster.hosts
    return grow


def assert_spans(load, placed, elsewhere, reason="auto_prefers_owner_file_collective_shared_source"):
    assert load.end().code == 0, load.err
    assert placed.same(load.report) and load.report["executor"] == "owner_file_collective"
    assert load.report["selection_reason"] == f"{reason};on_other_hosts={elsewhere}"


def test_ranks_of_three_hosts_load_as_one_group_and_leave_nothing_in_etcd(grouped, etcd, placed):
    """Two ranks of one host and one on each other; the default threshold of what a group must save does not count what is elsewhere."""
    hosts = grouped(3)
    for name in ("g", "g"):
        loads = [Load(hosts[host], placed.reference, *group(rank, "--collective", "required", name=name)) for rank, host in enumerate((0, 1, 2, 0))]
        for load, elsewhere in zip(loads, (2, 3, 3, 2)):
            assert_spans(load, placed, elsewhere, "collective_required")
        assert soon(lambda: etcd.control("get", GROUPS, "--prefix") == "")
        for host in hosts:
            host.cli.ok("release", "--all")


def test_a_taken_rank_and_an_odd_one_are_refused_across_hosts_and_the_others_go_on(grouped, etcd, fake, placed):
    other = store_scene.place(fake, "http", {"w": store_scene.noise(3, MiB)}, name="other")
    hosts = grouped(2)
    first = Load(hosts[0], placed.reference, *group(0, name="job/../7\n", world=3))
    assert joined(hosts[0], 1) and soon(lambda: etcd.control("get", GROUPS, "--prefix").count(GROUPS) == 1)
    entries = etcd.control("get", GROUPS, "--prefix")
    assert "h0" in entries and "job" not in entries and "http" not in entries
    for reference, rank, world, status, words in ((placed.reference, 0, 3, "ALREADY_EXISTS", "on host h0"),
                                                  (placed.reference, 1, 4, "INVALID_ARGUMENT", "world size"),
                                                  (other.reference, 1, 3, "INVALID_ARGUMENT", "artifact")):
        load = Load(hosts[1], reference, *group(rank, name="job/../7\n", world=world)).end()
        assert load.status == status and words in load.err and "h0" in load.err, load.err
    rest = [Load(hosts[1], placed.reference, *group(rank, "--tensor", "v", "--tensor", "w", name="job/../7\n", world=3)) for rank in (1, 2)]
    assert_spans(first, placed, 2)
    for load in rest:
        assert_spans(load, placed, 1)


def test_a_rank_that_is_missing_on_all_hosts_is_named_or_done_without(grouped, placed):
    hosts = grouped(2, "3s")
    loads = [Load(hosts[i], placed.reference, *group(i, "--collective", "required", world=3)) for i in range(2)]
    for load in loads:
        assert load.end().status == "DEADLINE_EXCEEDED" and "missing=" in load.err and "2" in load.err.split("missing=")[1], load.err
    loads = [Load(hosts[i], placed.reference, *group(i, name="auto", world=3)) for i in range(2)]
    for load in loads:
        assert load.skipped().startswith("group_assemble_timeout:missing=") and placed.same(load.report)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_the_ranks_of_a_host_that_ends_are_missing_again_and_may_come_back(grouped, etcd, placed, end):
    hosts = grouped(2, "10m")
    first, second = (Load(hosts[i], placed.reference, *group(i, world=3)) for i in range(2))
    assert soon(lambda: etcd.control("get", GROUPS, "--prefix", "--keys-only").count("/ranks/") == 2)
    getattr(hosts[1], end)()
    assert second.end().status == "UNAVAILABLE"
    hosts[1].start()
    loads = [Load(hosts[1], placed.reference, *group(rank, world=3)) for rank in (1, 2)]  # waits for the end of the old lease
    assert_spans(first, placed, 2)
    for load in loads:
        assert_spans(load, placed, 1)


def test_without_etcd_no_group_spans_hosts_and_those_of_one_host_load(grouped, cluster, etcd, placed):
    hosts = grouped(2)
    etcd.kill()
    assert soon(lambda: cluster.told()["etcd"]["state"] == "away")
    ways = [Load(hosts[0], placed.reference, *group(0, *more, name=name, world=2)) for name, more in (("a", ()), ("b", ("--collective", "required")))]

    def load_together(name):  # when both come within three seconds
        hosts[0].cli.ok("release", "--all")
        loads = [Load(hosts[0], placed.reference, *group(rank, "--tensor", "v", name=name, world=2)) for rank in range(2)]
        reports = [load.report_ok() for load in loads]
        assert all("on_other_hosts" not in report["selection_reason"] for report in reports)
        return all(report["executor"] == "owner_file_collective" for report in reports)
    assert ways[0].skipped() == "group_hosts_away:missing=1" and placed.same(ways[0].report)
    assert ways[1].end().status == "UNAVAILABLE" and "group_hosts_away:missing=1" in ways[1].err
    assert any(load_together(f"c{i}") for i in range(5))
    hosts[0].cli.ok("release", "--all")
    etcd.start()
    assert cluster.meet("h0", "h1")
    for load in [Load(hosts[i], placed.reference, *group(i, world=2)) for i in range(2)]:
        assert_spans(load, placed, 1)


def test_groups_of_two_domains_do_not_meet(cluster, fake, placed):
    settings = {"sources": store_scene.settings(fake), **strategy(owner_file_collective_group_assemble_timeout="2s")}
    cluster.add(settings=settings), cluster.add(settings=settings, domain="e")
    assert cluster.meet("h0", "h1")
    loads = [Load(cluster.hosts[i], placed.reference, *group(i, "--collective", "required", world=2)) for i in range(2)]
    for load, missing in zip(loads, (1, 0)):
        assert load.end().status == "DEADLINE_EXCEEDED" and f"group_assemble_timeout:missing={missing};" in load.err, load.err


class Halves:
    """A checkpoint of two files, of which each rank needs another one, and what was read of each."""

    def __init__(self, fake):
        self.placed = store_scene.place(fake, "http", {"a": store_scene.noise(1, SIZE)}, {"b": store_scene.noise(2, SIZE)})

    def load(self, host, rank, *more):
        return Load(host, self.placed.reference, "--tensor", "ab"[rank], *more)

    def ranges(self, rank):
        """Reads of tensors, by offset."""
        found = [entry["range"] for entry in self.placed.reads() if f"0000{rank + 1}-of" in entry["path"] and entry["range"] != HEADER]
        return sorted((int(lo), int(hi) + 1) for lo, hi in (re.fullmatch(r"bytes=(\d+)-(\d+)", text).groups() for text in found))

    def read_again(self, rank):
        """How many bytes left the store more than once; all did once."""
        end = again = 0
        for lo, hi in self.ranges(rank):
            assert lo <= end, self.ranges(rank)
            end, again = max(end, hi), again + min(end, hi) - lo
        assert end > SIZE
        return again

    def is_right(self, load, rank):
        assert load.end().code == 0, load.err
        return digests(load.report) == {"ab"[rank]: digest(self.placed.arrays["ab"[rank]])}


@pytest.fixture
def halves(fake, bare):
    return Halves(fake)


def late_bytes(*loads):
    """What a host read for itself as an owner was late, which happens on a busy machine."""
    return sum(load.report["hosts"]["hedged_bytes"] for load in loads)


def test_owners_read_ahead_what_a_rank_on_another_host_needs(grouped, etcd, fake, halves):
    """The rank's entry is put back after its load has gone, so that nothing asks for the blocks until they were read ahead."""
    hosts = grouped(2)
    gone = halves.load(hosts[1], 1, *group(1, world=2))
    assert soon(lambda: etcd.control("get", GROUPS, "--prefix", "--keys-only"))
    key, value = etcd.control("get", GROUPS, "--prefix").splitlines()[:2]
    gone.process.kill()
    gone.end()
    assert soon(lambda: etcd.control("get", GROUPS, "--prefix") == "")
    is_ahead, web = threading.Event(), fake.listeners["web"]
    handle = web.handle

    def wait_for_reads_ahead(request):
        if request.headers.get("range") not in (None, HEADER):
            is_ahead.set() if "00002-of" in request.target else is_ahead.wait(60)
        return handle(request)
    web.handle = wait_for_reads_ahead
    etcd.put({key: value})
    first = halves.load(hosts[0], 0, *group(0, world=2))
    assert halves.is_right(first, 0) and first.report["selection_reason"].endswith(";on_other_hosts=1")
    assert is_ahead.is_set() and halves.ranges(1)
    ahead = sum(hi - lo for lo, hi in halves.ranges(1))
    second = halves.load(hosts[1], 1)
    assert halves.is_right(second, 1)
    late = late_bytes(first, second)
    assert second.report["bytes"]["peer"] + late > ahead - MiB
    assert halves.read_again(0) + halves.read_again(1) <= late, (halves.ranges(0), halves.ranges(1))
    assert first.report["bytes"]["read"] + first.report["bytes"]["peer"] <= SIZE + MiB + late, "what was read ahead is of another load"


def test_each_byte_leaves_the_store_once_where_ranks_on_two_hosts_need_a_half_each(grouped, halves):
    hosts = grouped(2)
    loads = [halves.load(hosts[rank], rank, *group(rank, world=2)) for rank in range(2)]
    assert all(halves.is_right(load, rank) and load.report["executor"] == "owner_file_collective" for rank, load in enumerate(loads))
    late = late_bytes(*loads)
    assert halves.read_again(0) + halves.read_again(1) <= late, (halves.ranges(0), halves.ranges(1))
    assert sum(load.report["bytes"]["read"] + load.report["bytes"]["peer"] for load in loads) <= 2 * SIZE + 2 * MiB + late
