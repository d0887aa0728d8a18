"""Hosts that share what they read, and what may happen meanwhile. One trio of hosts for all tests, with a real etcd and a store that counts;
each test has models of its own."""
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import etcd as etcd_scene
import fake_gpu
import store_scene
from checkpoints import blob, digest, digests, write
from etcd import Etcd
from group_scene import Load, group, strategy
from host_regions import Region, materialize, offer, wire
from stage import ROOT, Daemon, MiB, soon
from stores_fixture import Stores, certificates
from test_hosts import Cluster, entry_of

pytestmark = pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
HOSTS, HAS_GPUS = 3, fake_gpu.PLUGIN.exists() and fake_gpu.FAKE.exists()
HEADER = 1 * MiB  # of a file: each host reads what tells of its tensors for itself


class Trio:
    def __init__(self, folder):
        (folder / "etcd").mkdir()
        ca = certificates.make(folder / "authority")
        self.root, self.stores, self.secure, self.made = folder, Stores(), Stores(tls=folder / "authority"), []
        self.stores.world.aws[store_scene.ACCESS] = {"secret": store_scene.SECRET}
        self.etcd = Etcd(folder / "etcd").start()
        self.cluster = Cluster(self.start, self.etcd, folder)
        for _ in range(HOSTS):
            self.cluster.add(settings={"sources": store_scene.settings(self.stores, http={"ca_file": str(ca)}), **strategy()})
        self.hosts = self.cluster.hosts
        self.meet()

    def start(self, wait, sources, **settings):
        self.made.append(Daemon([], {"sources": {**sources, "disk": {"trusted_roots": [str(self.root)]}}, **settings}, {}))
        keys = {"AWS_ACCESS_KEY_ID": store_scene.ACCESS, "AWS_SECRET_ACCESS_KEY": store_scene.SECRET, "AWS_EC2_METADATA_DISABLED": "true"}
        self.made[-1].start(wait, environment={**keys, **dict(fake_gpu.environment() if HAS_GPUS else ())})
        fake_gpu.see_gpus(self.made[-1].cli)
        return self.made[-1]

    def meet(self):
        assert self.cluster.meet(*(f"h{i}" for i in range(HOSTS))), [self.cluster.told(i) for i in range(HOSTS)]

    def place(self, name, *parts, scheme="http"):
        return store_scene.place(*((self.secure, "http") if scheme == "https" else (self.stores, scheme)), *parts, name=name)

    def load(self, host, reference, *how):
        return Load(self.hosts[host], reference, *how)

    def close(self):
        complaints = [text for text in (daemon.remove() for daemon in self.made) if text]
        self.etcd.kill()
        self.stores.close()
        self.secure.close()
        assert not complaints, complaints[0]


@pytest.fixture(scope="module")
def shared_trio(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("AWS_", "HF_"))]:
            patch.delenv(name)
        made = Trio(tmp_path_factory.mktemp("trio"))
        yield made
        made.close()


@pytest.fixture
def trio(shared_trio):
    for stores in (shared_trio.stores, shared_trio.secure):
        stores.faults.clear()
        stores.journal.clear()
    for daemon in shared_trio.hosts:
        daemon.cli.ok("release", "--all")
    shared_trio.meet()
    return shared_trio


def model(seed, n=6, size=(512, 8192)):
    """Tensors that many blocks of 4 MiB hold, at borders of none, one empty and one of a byte."""
    arrays = {f"w{i}": blob(seed * 100 + i, size[0] * size[1]).reshape(size) for i in range(n)}
    return {"tiny": blob(seed, 1), **arrays, "empty": np.empty((0, 7), np.uint8)}


def times_read(placed, data=store_scene.DATA):
    """How often the store gave each byte of a file. The hub's content network knows it by its digest."""
    size, name = len(placed.files[data]), hashlib.sha256(placed.files[data]).hexdigest() if placed.scheme == "hf" else data
    counts = np.zeros(size + 1, np.int64)
    for entry in placed.reads():
        if entry["path"].endswith(name) and entry["status"] == 206:
            first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", entry["range"]).groups())
            counts[first] += 1
            counts[min(last + 1, size)] -= 1
    return np.cumsum(counts[:-1])


def came_from_hosts(report):
    return sum(report["hosts"]["from"].values())


def assert_read_once(placed, reports):
    """Each byte left the store once. On a busy machine an owner may be late, and a host may find that others send too slowly."""
    again = (times_read(placed)[HEADER:] - 1).clip(0).sum()
    for_itself = [report["bytes"]["read"] for report in reports if report["hosts"]["choice"] != "owner_peers"]
    if any(report["hosts"]["alive"] < HOSTS for report in reports):  # a lease has ended: hosts do not agree on owners
        return
    assert again <= sum(report["hosts"]["hedged_bytes"] for report in reports) + sum(for_itself), [report["hosts"] for report in reports]


def wrong_blocks(trio):
    """What hosts have blamed others for. A busy machine may make a host late, and no byte wrong."""
    return [line for daemon in trio.hosts for line in daemon.whole_log().splitlines() if "event=peer_block_wrong" in line]


def test_each_byte_leaves_the_store_once_whichever_hosts_want_it(trio):
    placed = trio.place("once", model(1))
    loads = [trio.load(0, placed.reference), trio.load(1, placed.reference, "--slice", "w1[:, 100:5000]", "--slice", "w4[3:400, :]"),
             trio.load(2, placed.reference, "--slice", "w1[:, 4000:8192]", "--tensor", "w5", "--tensor", "empty", "--tensor", "tiny")]
    reports = [load.report_ok() for load in loads]
    arrays = placed.arrays
    wanted = [{name: digest(array) for name, array in arrays.items()},
              {"w1": digest(arrays["w1"][:, 100:5000]), "w4": digest(arrays["w4"][3:400])},
              {"w1": digest(arrays["w1"][:, 4000:]), **{name: digest(arrays[name]) for name in ("w5", "empty", "tiny")}}]
    assert [digests(report) for report in reports] == wanted
    assert all(report["hosts"]["choice"] == "owner_peers" for report in reports) and not wrong_blocks(trio)
    assert_read_once(placed, reports)
    assert sum(map(came_from_hosts, reports)) > 8 * MiB
    for report in reports:
        assert report["bytes"]["peer"] == came_from_hosts(report)


@pytest.mark.parametrize("scheme", ["https", "s3", "gs", "hf"])
def test_hosts_share_what_any_kind_of_store_gives(trio, scheme):
    placed = trio.place("any", model(20, 12), scheme=scheme)
    placed.fault({"delay": 0.05}, times=0)  # so that other hosts are quicker
    reports = [load.report_ok() for load in [trio.load(host, placed.reference) for host in range(HOSTS)]]
    assert all(map(placed.same, reports)) and not wrong_blocks(trio)
    assert {report["hosts"]["choice"] for report in reports} == {"owner_peers"}, [report["hosts"] for report in reports]
    assert all(map(came_from_hosts, reports)) and len({host for report in reports for host in report["hosts"]["from"]}) > 1
    assert times_read(placed).min() > 0
    assert_read_once(placed, reports)


def test_bytes_of_other_hosts_go_wherever_those_of_a_store_do(trio):
    """Into GPU memory, through conversions, and with checksums of the store that are compared."""
    halves = {f"w{i}": np.random.default_rng(i).standard_normal((700, 1501), np.float32) for i in range(4)}
    placed = trio.place("ways", halves, scheme="gs")
    ways = [("--device", "cuda:0") if HAS_GPUS else (), ("--dtype", "float16"), ("--slice", "w2[:, 7:1300]", "--tensor", "w3")]
    loads = [trio.load(host, placed.reference, *how) for host, how in enumerate(ways)]
    reports = whole, converted, sliced = [load.report_ok() for load in loads]
    assert placed.same(whole)
    assert digests(converted) == {name: digest(array.astype(np.float16)) for name, array in halves.items()}
    assert digests(sliced) == {"w2": digest(halves["w2"][:, 7:1300]), "w3": digest(halves["w3"])}
    assert_read_once(placed, reports)
    assert not wrong_blocks(trio)


def test_of_an_inner_slice_hosts_send_what_is_needed_and_no_more(trio):
    """Tensor parallelism: each host needs a part of each row. Also in three dimensions, through a conversion, and for a GPU."""
    cube = np.random.default_rng(5).integers(0, 256, (4, 1500, 1001), np.uint8)
    arrays = {**model(12, 4, (150, 57344)), "cube": cube, "float": np.random.default_rng(6).standard_normal((600, 4001), np.float32)}
    placed, thirds = trio.place("inner", arrays), 57344 // 3
    trio.stores.fault({"delay": 0.05}, {"listener": "web", "range": "bytes"}, times=0)  # so that other hosts are quicker
    reports, sent = [trio.load(host, placed.reference).report_ok() for host in range(HOSTS)], [0] * 4
    for host, daemon in enumerate(trio.hosts):
        daemon.cli.ok("release", "--all")
        cut = slice(host * thirds, (host + 1) * thirds)
        slices = [f"--slice={name}[:, {cut.start}:{cut.stop}]" for name in ("w0", "w1", "w2", "w3")]
        ways = [([*slices], {f"w{i}": arrays[f"w{i}"][:, cut] for i in range(4)}),
                (["--slice=cube[1:3, :, 200:800]"], {"cube": cube[1:3, :, 200:800]}),
                (["--slice=float[:, 1000:3000]", "--dtype=float16"], {"float": arrays["float"][:, 1000:3000].astype(np.float16)})]
        if HAS_GPUS:
            ways.append((["--slice=w1[:, 7:30000]", "--device=cuda:0"], {"w1": arrays["w1"][:, 7:30000]}))
        for way, (how, wanted) in enumerate(ways):
            report = trio.load(host, placed.reference, *how).report_ok()
            needed = sum(array.nbytes for array in wanted.values()) * (2 if "--dtype=float16" in how else 1)
            assert digests(report) == {name: digest(array) for name, array in wanted.items()}
            reports.append(report)
            told = report["bytes"]
            sent[way] += told["peer"]
            assert told["peer"] == came_from_hosts(report)
            assert told["peer"] + told["shared"] <= needed * 1.02, (how, told)  # a small gap is cheaper than a request
    assert all(sent[:len(ways)]) and not wrong_blocks(trio)
    assert_read_once(placed, reports)


def test_a_group_reads_once_across_hosts(trio):
    placed = trio.place("group", model(2))
    loads = [trio.load(rank % HOSTS, placed.reference, *group(rank, name="one")) for rank in range(4)]
    reports = [load.report_ok() for load in loads]
    assert all(map(placed.same, reports))
    assert_read_once(placed, reports)


def test_processes_of_jax_on_several_hosts_load_their_shards_and_each_byte_once(trio, tmp_path):
    """Columns by the best-effort rule, rows by a sharding of all devices, and what every device holds."""
    arrays = {**model(13, 3, (600, 8400)), "rows": blob(7, 3600 * 1500).reshape(3600, 1500), "odd": blob(8, 7 * 5).reshape(7, 5)}
    del arrays["empty"]
    placed = trio.place("jax", arrays)
    python = subprocess.run(["bash", ROOT / "setup/setup.sh", "jax"], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    path = os.pathsep.join([str(ROOT / "client/python"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    program = [python, ROOT / "tests/jax/on_hosts.py", tmp_path / "coordinator", str(HOSTS)]
    processes = [subprocess.Popen([*program, str(rank), placed.reference, "rows"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={**environment, "TENSORCAST_SOCKET": str(daemon.socket)}) for rank, daemon in enumerate(trio.hosts)]
    ended = [(*process.communicate(timeout=600), process.returncode) for process in processes]
    assert not any(code for _, _, code in ended), [err[-2000:] for _, err, _ in ended]
    told = [json.loads(out.splitlines()[-1]) for out, _, _ in ended]
    parts = [shard for of_host in told for shard in of_host["shards"]]
    for name, shape, bounds, found in parts:
        assert tuple(shape) == arrays[name].shape and digest(arrays[name][tuple(slice(*part) for part in bounds)]) == found, (name, bounds)
    for name, array in arrays.items():
        covered = np.zeros(array.shape, bool)
        for of_part, _, bounds, _ in parts:
            if of_part == name:
                covered[tuple(slice(*part) for part in bounds)] = True
        assert covered.all(), name
    reports = [report for of_host in told for report in of_host["reports"]]
    assert sum(report["bytes"]["peer"] for report in reports) > 8 * MiB and not wrong_blocks(trio)
    assert_read_once(placed, reports)


def test_what_replaces_an_object_is_mixed_with_nothing(trio):
    """Before a load, and while one is under way: then it is refused or of one version."""
    placed = trio.place("replaced", model(3))
    assert placed.same(trio.load(0, placed.reference).report_ok())
    for seed, wait in ((4, 0), (5, 0.3)):
        old = digests_of(placed)
        trio.stores.fault({"delay": wait}, {"listener": "web", "range": "bytes"}, times=0)
        loads = [trio.load(host, placed.reference) for host in (1, 2)] if wait else []
        if wait:
            assert soon(lambda: len(placed.reads()) > 3)
            trio.stores.journal.clear()
        placed = trio.place("replaced", model(seed))
        loads = loads or [trio.load(host, placed.reference) for host in (1, 2)]
        for load in loads:
            load.end()
            if wait and load.code != 0:
                assert load.status in ("FAILED_PRECONDITION", "ABORTED") and "replaced" in load.err, load.err
            else:
                assert digests(load.report) in ((old, digests_of(placed)) if wait else (digests_of(placed),))
    assert not wrong_blocks(trio)


def digests_of(placed):
    return {name: digest(array) for name, array in placed.arrays.items()}


def test_bytes_that_a_store_sent_wrong_are_healed_and_given_to_no_host_afterwards(trio):
    placed = trio.place("flipped", model(11), scheme="gs")
    trio.stores.fault({"flip": 9 * MiB}, {"listener": "gcs", "covers": 9 * MiB}, times=1)
    for healed in (1, 0):
        trio.stores.journal.clear()
        loads = [trio.load(host, placed.reference) for host in range(HOSTS)]
        reports = [load.report_ok() for load in loads]
        assert all(placed.same(report) and report["verified"]["status"] == "verified" for report in reports)
        if not healed:
            assert all(report["verified"]["healed"] == 0 for report in reports)
            assert_read_once(placed, reports)
        for daemon in trio.hosts:
            daemon.cli.ok("release", "--all")


def test_a_query_goes_to_no_other_host(trio):
    placed = trio.place("query", model(6, 2))
    loads = [trio.load(host, f"{placed.reference}/{store_scene.DATA}?signature=0secret0") for host in (0, 1)]
    for load in loads:
        report = load.report_ok()
        assert placed.same(report) and report["hosts"]["from"] == {} and "query" in report["hosts"]["reason"], report["hosts"]
    assert {entry["query"] for entry in trio.stores.requests("web")} == {"signature=0secret0"}, "as another host would ask, without it"
    assert not any("0secret0" in daemon.whole_log() for daemon in trio.hosts) and not wrong_blocks(trio)


def test_memory_of_a_client_that_writes_to_it_blames_no_host(trio):
    """What it makes of its own bytes is its own affair."""
    placed = trio.place("region", model(7))
    region, over = Region(32 * MiB), threading.Event()

    def spoil():
        while not over.is_set():
            np.bitwise_xor(region.bytes, 1, out=region.bytes)
    thread = threading.Thread(target=spoil)
    thread.start()
    try:
        token, peer = offer(trio.hosts[0], region.fd)
        with wire(trio.hosts[0]) as spoken:
            request = spoken.load_request(placed.reference)
            request.region = token
            result = materialize(spoken, request)
        assert result.report.peer_bytes > 0
        peer.close()
    finally:
        over.set()
        thread.join()
        region.close()
    assert not wrong_blocks(trio)
    assert placed.same(trio.load(1, placed.reference).report_ok())


@pytest.fixture
def overlay(shared_trio):
    """A folder below the root of all hosts that may be another one tomorrow: an overlay counts as a network's."""
    parts = [Path(tempfile.mkdtemp(dir=shared_trio.root)) for _ in range(4)]
    lower, upper, work, merged = parts
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, merged], capture_output=True).returncode:
        pytest.skip("no overlay can be mounted here")
    yield lower, merged
    subprocess.run(["umount", "-l", merged], check=True)


def forget_pages(folder):
    for path in folder.rglob("*.safetensors"):
        with open(path, "rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_files_of_a_network_file_system_are_shared_too(trio, overlay):
    """Also with a name that has to be encoded, and in slices whose gaps land in one place."""
    lower, merged = overlay
    name = "m &?=#%41\u00fc\n+"
    arrays = write(lower / name, model(8))
    forget_pages(lower)
    report = trio.load(0, f"disk:{merged}/{name}").report_ok()
    assert digests(report) == {name: digest(array) for name, array in arrays.items()}
    if report["hosts"]["choice"] != "owner_peers":
        pytest.skip(f"hosts do not share it: {report['hosts']}")
    with open(next((merged / name).glob("*.safetensors")), "rb") as file:
        file.read(3 * MiB)  # some pages are there again: reads go straight into place
    cut = ["--slice", "w1[:, 0:6000]", "--slice", "w3[:, 100:7000]"]
    for host in (1, 2):
        report = trio.load(host, f"disk:{merged}/{name}", *cut).report_ok()
        assert digests(report) == {"w1": digest(arrays["w1"][:, :6000]), "w3": digest(arrays["w3"][:, 100:7000])}
        assert report["bytes"]["peer"] + report["bytes"]["shared"] <= 512 * (6000 + 6900) * 1.02, report["bytes"]
    assert not wrong_blocks(trio)


def test_an_entry_in_etcd_leads_to_no_place_that_is_forbidden(trio):
    port = trio.cluster.row("h0")["address"].rsplit(":", 1)[1]
    for name, address, word in (("meta", "169.254.169.254:80", ""), ("self", f"127.0.0.1:{port}", "another host"), ("zero", "0.0.0.0:1", "")):
        trio.etcd.put(entry_of(name, "1", address))
        try:
            assert soon(lambda: trio.cluster.is_refused(name, word)), trio.cluster.told()  # noqa: B023
        finally:
            trio.etcd.control("del", *entry_of(name, "1", address))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_loads_of_other_hosts_go_on_when_one_is_lost(trio, end):
    placed, last = trio.place(end, model(9 if end == "stop" else 10)), trio.hosts[HOSTS - 1]
    trio.stores.fault({"delay": 0.2}, {"listener": "web", "range": "bytes"}, times=0)
    loads = [trio.load(host, placed.reference) for host in range(HOSTS)]
    assert soon(lambda: len(placed.reads()) >= 6)
    last.process.send_signal(signal.SIGSTOP if end == "stop" else signal.SIGKILL)
    try:
        for load in loads[:-1]:
            report = load.report_ok()
            assert placed.same(report)
    finally:
        if end == "kill":
            last.process.wait()
            loads[-1].process.kill()
            loads[-1].process.communicate()
            last.start()
        last.process.send_signal(signal.SIGCONT)
    if end == "stop":
        assert placed.same(loads[-1].report_ok())
    assert times_read(placed)[HEADER:].max() <= HOSTS
    trio.meet()
