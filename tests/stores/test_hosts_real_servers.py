"""Two daemons that share what a real server gives: they meet through a real etcd, and each byte of the data leaves the server once."""
import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

import etcd as etcd_scene
import servers as real
from checkpoints import blob, digest, digests, write
from etcd import Etcd
from group_scene import Load
from stage import Daemon, MiB
from test_hosts import Cluster
from test_real_servers import client_of, s3_environment

pytestmark = pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
PARTS, PART, HEADER, NAME = 24, 4 * MiB, 1 * MiB, "shared/m"  # blocks enough that each host owns some of them


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder, {tensor: digest}, and the size of its data."""
    folder = tmp_path_factory.mktemp("checkpoint")
    arrays = write(folder / NAME, {f"w{i}": blob(i, PART) for i in range(PARTS)})
    size = (folder / NAME / "model.safetensors").stat().st_size
    return folder, {name: digest(array) for name, array in arrays.items()}, size


def on_seaweedfs(servers, checkpoint, monkeypatch, authority):
    server = servers(real.seaweedfs)
    client = client_of(server)
    client.create_bucket(Bucket="hosts")
    client.upload_file(str(checkpoint[0] / NAME / "model.safetensors"), "hosts", f"{NAME}/model.safetensors")
    s3_environment(monkeypatch, server)
    return f"s3://hosts/{NAME}", {}


def on_fake_gcs(servers, checkpoint, monkeypatch, authority):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", servers(real.fake_gcs).urls["gcs"])
    client = storage.Client(project="p", credentials=AnonymousCredentials())
    client.create_bucket("hosts").blob(f"{NAME}/model.safetensors").upload_from_filename(str(checkpoint[0] / NAME / "model.safetensors"))
    return f"gs://hosts/{NAME}", {}


def on_nginx(servers, checkpoint, monkeypatch, authority):
    server = servers(real.nginx, checkpoint[0], authority)
    return f"{server.urls['https']}/{NAME}", {"http": {"ca_file": str(server.ca)}}


@pytest.fixture
def pair(tmp_path):
    """pair(sources): two hosts that know each other."""
    made, etcd = [], Etcd(tmp_path)

    def start(wait, sources, **settings):
        made.append(Daemon([], {"sources": {"disk": {"trusted_roots": []}, **sources}, **settings}, {}))
        return made[-1].start(wait)

    def meet(sources):
        cluster = Cluster(start, etcd.start(), tmp_path)
        for _ in range(2):
            cluster.add(settings={"sources": sources})
        assert cluster.meet("h0", "h1"), [cluster.told(i) for i in range(2)]
        return cluster.hosts

    yield meet
    complaints = [text for text in (daemon.remove() for daemon in made) if text]
    etcd.kill()
    assert not complaints, complaints[0]


def received(daemon):
    """Bytes from stores, also for other hosts."""
    return sum(store["received_bytes"] for store in daemon.status()["stores"].values())


@pytest.mark.parametrize("server", [on_seaweedfs, on_fake_gcs, on_nginx])
def test_two_hosts_share_what_a_real_server_gives(servers, checkpoint, pair, monkeypatch, authority, server):
    reference, sources = server(servers, checkpoint, monkeypatch, authority)
    _, expected, size = checkpoint
    hosts = pair(sources)
    reports = [load.report_ok() for load in [Load(daemon, reference) for daemon in hosts]]
    assert [digests(report) for report in reports] == [expected, expected]
    told = [(report["hosts"], report["bytes"]) for report in reports]
    assert all(report["hosts"]["choice"] == "owner_peers" and report["bytes"]["peer"] > 0 for report in reports), told
    hedged = sum(report["hosts"]["hedged_bytes"] for report in reports)
    # the reports have no read for the other host alone, as of one whose load is ahead
    assert sum(report["bytes"]["read"] for report in reports) <= size + hedged, told
    came = sum(map(received, hosts))
    assert size <= came <= size + 2 * HEADER + hedged, (came, size, told)
