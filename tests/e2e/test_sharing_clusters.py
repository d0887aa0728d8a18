"""Hosts that share, in clusters of their own: of two domains, with a wire that changes bytes, with a full disk, and with a host that joins
in mid-load."""

import pytest

import etcd as etcd_scene
import store_scene
from checkpoints import blob
from group_scene import Load
from stage import MiB
from test_hosts import cluster, etcd, key_of, shared  # noqa: F401
from test_sharing import HEADER, times_read

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
