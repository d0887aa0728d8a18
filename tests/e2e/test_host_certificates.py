"""Certificates that examples/host_certificates.sh makes: hosts and an etcd use them, and openssl agrees."""
import os
import subprocess
import time

import pytest
import yaml

import etcd as etcd_scene
from checkpoints import blob
from etcd import Etcd
from stage import DAEMON, ROOT, SANITIZED, MiB, soon
from store_scene import place, settings
from test_hosts import PLAIN, Cluster, ShiftedClock, large_model


def make(folder, *hosts, days=365):
    return subprocess.run(["bash", ROOT / "examples/host_certificates.sh", folder, *hosts], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "DAYS": str(days)})


def verified(folder, name, *how):
    command = ["openssl", "verify", "-CAfile", folder / "ca.crt", *how, folder / f"{name}.crt"]
    return subprocess.run(command, capture_output=True, timeout=30).returncode == 0


def test_a_certificate_is_for_both_sides_and_for_the_addresses_that_are_named(tmp_path):
    folder = tmp_path / "with a blank"
    assert make(folder, "h0=10.0.0.2", "h1=10.0.0.3,fd00::3,h1.example").returncode == 0
    for purpose in ("sslserver", "sslclient"):
        assert all(verified(folder, "h1", "-purpose", purpose, "-verify_ip", address) for address in ("fd00::3", "10.0.0.3"))
    assert verified(folder, "h1", "-verify_hostname", "h1.example") and not verified(folder, "h1", "-verify_ip", "10.0.0.2")
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
        f"{name}.{end}": 0o600 if end == "key" else 0o644 for name in ("ca", "h0", "h1") for end in ("key", "crt")}


def test_the_same_call_renews_hosts_and_keeps_the_authority(tmp_path):
    assert make(tmp_path, "h0=10.0.0.2", "h1=10.0.0.3").returncode == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert make(tmp_path, "h0=10.0.0.2").returncode == 0 and verified(tmp_path, "h0")
    assert {name for name, data in before.items() if data != (tmp_path / name).read_bytes()} == {"h0.crt", "h0.key"}


@pytest.mark.parametrize("hosts", [[], ["h0"], ["h0="], ["h0=10.0.0.2,"], ["ca=10.0.0.2"], ["../x=10.0.0.2"], ["h0=10.0.0.2.5"],
                                   ["h0=10.0.0.2\nkeyUsage=x"]])
def test_what_names_no_host_is_refused_and_leaves_no_certificate(tmp_path, hosts):
    done = make(tmp_path / "c", *hosts)
    assert done.returncode != 0 and done.stderr
    assert not [path.name for path in (tmp_path / "c").glob("*") if not path.name.startswith("ca.")] and not (tmp_path / "x.crt").exists()


class Scripted:
    """As etcd.Authority."""

    def __init__(self, folder, *hosts):
        self.folder, self.file = folder, folder / "ca.crt"
        done = make(folder, *hosts)
        assert done.returncode == 0, done.stderr

    def issue(self, name):
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def settings(self, name):
        crt, key = self.issue(name)
        return {"cert_file": str(crt), "key_file": str(key), "ca_file": str(self.file)}


@pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
def test_hosts_and_etcd_with_these_certificates_share_a_load(start, fake, bare, tmp_path):
    authority = Scripted(tmp_path, *(f"{name}=127.0.0.1" for name in ("server", "control", "h0", "h1", "h2")))
    etcd = Etcd(tmp_path, authority=authority).start()
    try:
        cluster, placed = Cluster(start, etcd, tmp_path), place(fake, "http", {"w": blob(1, 24 * MiB)})
        for name in ("h0", "h1", "h2"):
            cluster.add(tls=authority.settings(name), etcd=authority.settings(name), settings={"sources": settings(fake)})
        assert cluster.meet("h0", "h1", "h2"), cluster.told()
        reports = [host.cli.json("load", placed.reference, "--digest") for host in cluster.hosts]
        assert all(placed.same(report) for report in reports)
        assert sum(report["bytes"]["peer"] for report in reports) >= 24 * MiB, "each block has one owner, and two others want it"
        assert soon(lambda: {row["name"] for row in cluster.told()["hosts"] if any(row["bytes"].values())} == {"h1", "h2"}), cluster.told()
    finally:
        etcd.kill()


def test_the_example_for_kubernetes_has_a_configuration_that_a_daemon_takes(tmp_path):
    parts = {(part["kind"], part["metadata"]["name"]): part for part in yaml.safe_load_all((ROOT / "examples/hosts.kubernetes.yaml").read_text())}
    pod = parts["DaemonSet", "tensorcastd"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    fill_in, start = container["command"][-1].split(" && ")
    (tmp_path / "cluster.key").write_bytes(bytes(32))
    (tmp_path / "cluster.key").chmod(pod["volumes"][1]["secret"]["defaultMode"])
    (tmp_path / "daemon.yaml").write_text(parts["ConfigMap", "daemon"]["data"]["daemon.yaml"].replace("/secret", str(tmp_path)))
    command = fill_in.replace("/config/", f"{tmp_path}/").replace("/tmp/daemon.yaml", f"{tmp_path}/made.yaml")
    subprocess.run(["sh", "-c", command], env={"ADDRESS": "10.0.0.2", "NODE": "node-1"}, check=True)
    assert start.startswith("exec tensorcastd --config ")
    hosts = yaml.safe_load((tmp_path / "made.yaml").read_text())["hosts"]
    assert (hosts["name"], hosts["listen"]) == ("node-1", "10.0.0.2:7070")
    checked = subprocess.run([DAEMON, "--config", tmp_path / "made.yaml", "--check-config"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    service = parts["Service", "etcd"]["spec"]
    assert service["selector"] == parts["StatefulSet", "etcd"]["spec"]["selector"]["matchLabels"]
    assert hosts["etcd"]["endpoints"] == [f"http://etcd.tensorcast.svc:{service['ports'][0]['port']}"]


@pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
def test_a_host_says_that_its_own_certificate_has_ended(start, tmp_path):
    """The other side only ends the connection."""
    authority = Scripted(tmp_path, *(f"{name}=127.0.0.1" for name in ("server", "control", "h0")))
    assert make(tmp_path, "old=127.0.0.1", days=-1).returncode == 0
    etcd = Etcd(tmp_path, authority=authority).start()
    try:
        cluster, good, old = Cluster(start, etcd, tmp_path), authority.settings("h0"), authority.settings("old")
        cluster.add(tls=good, etcd=good), cluster.add(tls=old, etcd=good), cluster.add(tls=good, etcd=old)
        assert soon(lambda: cluster.is_refused("h0", "own certificate, hosts.tls.cert_file, ended on", 1)), cluster.told(1)
        assert soon(lambda: cluster.is_refused("h1", "expired")), cluster.told()
        assert soon(lambda: "own certificate, hosts.etcd.cert_file, ended on" in cluster.told(2)["etcd"]["reason"]), cluster.told(2)
    finally:
        etcd.kill()


@pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))
@pytest.mark.skipif(SANITIZED, reason="a sanitizer has to come before what is preloaded")
def test_a_certificate_that_ends_while_the_daemons_run_is_told(start, tmp_path, fake, models):
    """Connections that are open go on: they end after 20 s without a request."""
    authority, clock = Scripted(tmp_path, "h0=127.0.0.1", "h1=127.0.0.1"), ShiftedClock(start, tmp_path)
    etcd = Etcd(tmp_path).start()
    try:
        cluster, loads = Cluster(clock.start, etcd, tmp_path), [large_model(fake, models, f"m{i}", i) for i in range(2)]
        for name in ("h0", "h1"):
            cluster.add(tls=authority.settings(name), settings=PLAIN)
        assert cluster.meet("h0", "h1") and loads[0](cluster.hosts[0])
        clock.set(400 * 24 * 3600)
        time.sleep(22)
        assert not loads[1](cluster.hosts[0])
        assert soon(lambda: cluster.is_refused("h1", "own certificate, hosts.tls.cert_file, ended on")), cluster.told()
        clock.set(0)
        assert cluster.meet("h0", "h1"), cluster.told()
    finally:
        etcd.kill()
