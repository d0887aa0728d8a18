"""Hosts that share, in clusters of their own: of two domains, with a wire that changes bytes, with a full disk, and with a host that joins
in mid-load."""
import contextlib
import itertools
import json
import os
import re
import socket
import threading

import pytest

import etcd as etcd_scene
import store_scene
from checkpoints import blob
from group_scene import Load
from stage import MiB, fill_disk, soon
from test_hosts import cluster, etcd, key_of, shared  # noqa: F401
from test_metrics import total
from test_sharing import HEADER, came_from_hosts, times_read

pytestmark = pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
PARTS = 20  # blocks enough that each of two hosts owns some of them


@pytest.fixture
def placed(fake, bare):
    return store_scene.place(fake, "http", {f"w{i}": blob(i, 4 * MiB) for i in range(PARTS)})


@pytest.fixture
def add(cluster, fake):
    """add(...) of Cluster, for hosts that read the fake store; the other hosts are quicker than that."""
    fake.fault({"delay": 0.05}, {"listener": "web", "range": "bytes"}, times=0)
    return lambda settings=(), **how: cluster.add(settings={"sources": store_scene.settings(fake), **dict(settings)}, **how)


def load(placed, *hosts):
    """At once; the reports."""
    reports = [load.report_ok() for load in [Load(host, placed.reference) for host in hosts]]
    assert all(map(placed.same, reports)), "wrong bytes"
    return reports


def hedged(reports):
    return sum(report["hosts"]["hedged_bytes"] for report in reports)


def test_hosts_of_different_domains_know_each_other_and_share_nothing(cluster, add, placed):
    domains = "aabb"
    hosts = [add(domain=domain) for domain in domains]
    assert cluster.meet("h0", "h1", "h2", "h3"), cluster.told()
    assert [row["domain"] for row in cluster.told()["hosts"]] == list(domains)
    reports = load(placed, *hosts)
    for i, report in enumerate(reports):
        assert report["hosts"]["alive"] == 2 and report["hosts"]["from"].keys() == {f"h{i ^ 1}"}, report["hosts"]
    times = times_read(placed)[HEADER:]
    assert times.min() >= 2 and (times - 2).clip(0).sum() <= hedged(reports), "each domain reads for itself, once"


def test_a_host_that_is_alone_in_its_domain_reads_for_itself(cluster, add, placed):
    hosts = [add(domain=domain) for domain in "ab"]
    assert cluster.meet("h0", "h1"), cluster.told()
    for report in load(placed, *hosts):
        assert report["hosts"]["from"] == {} and report["hosts"]["reason"] == "no_other_host", report["hosts"]
    assert (times_read(placed)[HEADER:] == 2).all()


class Wire(threading.Thread):
    """A proxy in front of a host's data port. It inverts a bit in the middle of each block that the host sends."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.to, self.is_bad, self.n_changed, self.listener = port, True, 0, socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                near, far = self.listener.accept()[0], socket.create_connection(("127.0.0.1", self.to), 60)
                for one, other, carry in ((near, far, self.requests), (far, near, self.answers)):
                    threading.Thread(target=self.carry, args=(one, other, carry), daemon=True).start()

    @staticmethod
    def carry(one, other, carry):
        with contextlib.suppress(OSError):
            carry(one, other)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def requests(near, far):
        while data := near.recv(64 << 10):
            far.sendall(data)

    def answers(self, far, near):
        with far.makefile("rb") as stream:
            while head := b"".join(itertools.takewhile(lambda line: line != b"\r\n", stream)):
                length = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
                body = bytearray(stream.read(int(length[1]) if length else 0))
                if self.is_bad and b" 206 " in head.splitlines()[0]:
                    body[len(body) // 2] ^= 8
                    self.n_changed += 1
                near.sendall(head + b"\r\n" + body)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def test_a_byte_that_is_wrong_on_the_wire_is_noticed_named_and_given_to_no_client(cluster, add, placed, fake, etcd):
    """Others know h0 by the wire's address only."""
    hosts = [add()]
    assert cluster.meet("h0")
    row = cluster.row("h0")
    wire = Wire(int(row["address"].rsplit(":", 1)[1]))
    with contextlib.closing(wire):
        entry = json.loads(etcd.control("get", key_of(row), "--print-value-only"))
        etcd.put({key_of(row): json.dumps({**entry, "address": wire.address})})
        hosts += [add(), add()]
        assert cluster.meet("h0", "h1", "h2") and cluster.row("h0", 1)["address"] == wire.address, cluster.told(1)
        reports = load(placed, hosts[1], hosts[2])
        assert wire.n_changed and not any("h0" in report["hosts"]["from"] for report in reports), [report["hosts"] for report in reports]
        blamed = [line for host in hosts for line in host.whole_log().splitlines() if "event=peer_block_wrong" in line]
        assert blamed and all("host=h0" in line and f"address={wire.address}" in line for line in blamed), blamed
        wire.is_bad, numbers = False, itertools.count()

        def is_asked_again():
            again = store_scene.place(fake, "http", {"w": store_scene.noise(2, 24 * MiB)}, name=f"m{next(numbers)}")
            return "h0" in load(again, hosts[1])[0]["hosts"]["from"]
        assert soon(is_asked_again, 120), "the pause of h0 ends"


def test_counters_of_stores_have_nothing_of_what_other_hosts_send(cluster, add, placed):
    hosts = [add(settings={"server": {"metrics_address": "127.0.0.1:0"}}), add()]
    assert cluster.meet("h0", "h1")
    assert all(map(came_from_hosts, load(placed, *hosts)))
    status = hosts[0].status()
    port = int(status["metrics_address"].rsplit(":", 1)[1])
    for name in ("requests", "received_bytes"):
        assert total(port, f"tensorcast_store_{name}_total") == sum(store[name] for store in status["stores"].values()) > 0, name


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_host_whose_state_disk_is_full_shares_and_loads_right_bytes(cluster, add, placed, small_disk):
    state = small_disk(1 * MiB)
    hosts = [add(settings={"server": {"state_dir": str(state)}}), add()]
    assert cluster.meet("h0", "h1")
    fill_disk(state)
    reports = load(placed, *hosts)
    assert all(map(came_from_hosts, reports)), [report["hosts"] for report in reports]
    times = times_read(placed)[HEADER:]
    assert times.min() == 1 and (times - 1).sum() <= hedged(reports)
    hosts[0].kill()
    hosts[0].start()
    assert cluster.meet("h0", "h1"), "also one that starts with a full disk"
    assert came_from_hosts(load(placed, hosts[0])[0])


def test_a_host_that_is_added_in_mid_load_takes_its_share_and_all_bytes_are_right(cluster, add, placed, fake):
    hosts, has_joined = [add(), add()], threading.Event()
    assert cluster.meet("h0", "h1")
    fake.fault({"call": lambda: has_joined.wait(60)}, {"listener": "web", "range": "bytes"}, nth=12, times=0)
    loads = [Load(host, placed.reference) for host in hosts]
    assert soon(lambda: len(placed.reads()) > 12)
    hosts.append(add())
    assert cluster.meet("h0", "h1", "h2"), cluster.told()
    newcomer = Load(hosts[2], placed.reference)
    assert all(load.process.poll() is None for load in loads), "they are in mid-load"
    has_joined.set()
    reports = [load.report_ok() for load in [*loads, newcomer]]
    assert all(map(placed.same, reports)), "wrong bytes"
    assert came_from_hosts(reports[2]), reports[2]["hosts"]
    again = (times_read(placed)[HEADER:] - 1).clip(0).sum()
    assert again <= PARTS * 4 * MiB + hedged(reports), "what it owns from now on is read once more, at most"
