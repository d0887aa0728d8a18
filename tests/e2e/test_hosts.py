"""Hosts find each other through a real etcd and prove themselves to each other, and a host that cannot is named with the reason."""
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest
import tensorcast_client as tc

import etcd as etcd_scene
from checkpoints import digest, digests, random_array, write
from etcd import Authority, Etcd
from stage import BUILD, DAEMON, SANITIZED, free_port, soon

pytestmark = pytest.mark.skipif(etcd_scene.WITHOUT is not None, reason=str(etcd_scene.WITHOUT))


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One for all tests. Each has it running and without entries."""
    made = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield made
    made.kill()


@pytest.fixture
def etcd(shared):
    if not shared.processes[0]:  # a test failed meanwhile
        shared.start()
    shared.control("del", "", "--prefix")
    return shared


class Cluster:
    def __init__(self, start, etcd, folder):
        self.start, self.etcd, self.folder, self.hosts = start, etcd, folder, []
        self.key = folder / "key"
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)

    def add(self, etcd=(), wait=True, settings=(), **hosts):
        proof = {} if "tls" in hosts else {"cluster_key_file": str(self.key)}
        own = {"etcd": {"endpoints": self.etcd.endpoints, **dict(etcd)}, "name": f"h{len(self.hosts)}", "listen": "127.0.0.1:0", "domain": "d"}
        self.hosts.append(self.start(wait=wait, **dict(settings), hosts={**own, **proof, **hosts}))
        return self.hosts[-1]

    def told(self, i=0):
        return self.hosts[i].cli.json("hosts")

    def row(self, name, i=0):
        return next((row for row in self.told(i)["hosts"] if row["name"] == name), None)

    def is_refused(self, name, word, i=0):
        row = self.row(name, i) or {}
        return row.get("state") == "refused" and row["reason"] and "being asked" not in row["reason"] and word in row["reason"]

    def alive(self, i=0):
        return sorted(row["name"] for row in self.told(i)["hosts"] if row["state"] == "alive")

    def meet(self, *names, seconds=60):
        return all(soon(lambda: self.alive(i) == sorted(names), seconds) for i in range(len(self.hosts)) if f"h{i}" in names)  # noqa: B023


@pytest.fixture
def cluster(start, etcd, tmp_path):
    return Cluster(start, etcd, tmp_path)


def test_without_endpoints_there_are_no_hosts_and_nothing_listens(start):
    daemon = start(hosts={"domain": "d", "listen": "127.0.0.1:0"})
    assert daemon.cli.json("hosts") == {"enabled": False, "hosts": []} and daemon.status()["hosts"]["enabled"] is False
    assert "hosts.etcd.endpoints" in daemon.cli.ok("hosts").out
    maps = open(f"/proc/{daemon.process.pid}/maps").read()
    assert "libgrpc" not in maps and "tensorcast-etcd" not in maps


def test_without_hosts_a_plan_shows_the_three_ways_and_why_there_is_no_choice(start, models):
    write(models / "m", {name: random_array(np.random.default_rng(1), np.float32, (8, 8)) for name in "ab"})
    daemon = start()
    for how, choice in [((), "read_all"), (("--tensor", "a"), "local_slices")]:
        told = daemon.cli.json("explain", f"disk:{models}/m", *how)["hosts"]
        assert (told["choice"], told["reason"], told["alive"]) == (choice, "hosts_off", 0)
        ways = {way["name"]: way for way in told["candidates"]}
        assert list(ways) == ["read_all", "local_slices", "owner_peers"] and ways["owner_peers"]["reason"] == "hosts_off"
        assert ways[choice]["estimated_ms"] > 0 and ways[choice]["reason"] == "eligible" and all(way["reason"] for way in ways.values())
        report = daemon.cli.json("load", f"disk:{models}/m", *how)["hosts"]
        assert report == {"choice": choice, "reason": "hosts_off", "alive": 0, "from": {}, "hedged_bytes": 0}
    assert daemon.cli.json("explain", f"disk:{models}/m", "--standalone")["hosts"]["reason"] == "hosts_off"
    with tc.connect(str(daemon.socket)) as client:
        python = client.artifact(f"disk:{models}/m").subset(["a"]).explain()["hosts"]
    for way in python["candidates"] + told["candidates"]:
        assert way.pop("estimated_ms") >= 0
    assert python == told
    assert "owner_peers" not in daemon.cli.ok("explain", f"disk:{models}/m").out, "there is no choice to be shown"


def key_of(row):
    return f"/tensorcast/v1/hosts/{row['name']}/{row['incarnation']}"


def test_hosts_find_each_other_and_leave_at_once(cluster, etcd):
    for _ in range(3):
        cluster.add()
    assert cluster.meet("h0", "h1", "h2"), cluster.hosts[0].log()
    told = cluster.told(1)
    assert told["enabled"] and told["name"] == "h1" and told["domain"] == "d" and told["etcd"] == {"state": "connected", "reason": ""}
    assert [row["name"] for row in told["hosts"] if row["self"]] == ["h1"]
    assert len({row["incarnation"] for row in told["hosts"]}) == len({row["address"] for row in told["hosts"]}) == 3
    told = cluster.hosts[0].cli.ok("hosts").out
    assert told.startswith("hosts  etcd connected\n") and "h2" in told and "\n\n" + told in cluster.hosts[0].cli.ok("status").out
    with etcd.kept_alive(key_of(cluster.row("h2"))):
        assert cluster.hosts[2].stop() == 0
        assert soon(lambda: cluster.alive() == ["h0", "h1"]), cluster.told()
    assert cluster.row("h2")["state"] == "gone" and cluster.hosts[0].logged("event=peer_left")


def test_a_killed_host_is_gone_when_its_lease_ends(cluster):
    cluster.add(), cluster.add()
    assert cluster.meet("h0", "h1")
    cluster.hosts[1].kill()
    assert soon(lambda: cluster.alive() == ["h0"])


def test_a_host_that_restarts_on_its_address_replaces_its_old_entry_at_once(cluster, etcd):
    cluster.add(), cluster.add(listen=f"127.0.0.1:{free_port()}")
    assert cluster.meet("h0", "h1")
    before = cluster.row("h1")

    def is_back():
        rows = [row for row in cluster.told()["hosts"] if row["name"] == "h1" and row["state"] == "alive"]
        return len(rows) == 1 and rows[0]["incarnation"] != before["incarnation"] and rows[0]["address"] == before["address"]
    with etcd.kept_alive(key_of(before)):
        cluster.hosts[1].kill()
        cluster.hosts[1].start()
        assert soon(is_back), cluster.told()


def test_an_entry_that_is_deleted_comes_back(cluster, etcd):
    cluster.add(), cluster.add()
    assert cluster.meet("h0", "h1")
    etcd.control("del", "/tensorcast/v1/hosts/h1/", "--prefix")
    assert soon(lambda: "hosts/h1/" in etcd.control("get", "/tensorcast/v1/", "--prefix", "--keys-only"))
    assert cluster.meet("h0", "h1")


def test_a_daemon_starts_without_etcd_and_joins_when_it_comes(cluster, etcd):
    etcd.kill()
    cluster.add(etcd={"endpoints": [*etcd.endpoints, f"http://127.0.0.1:{free_port()}"]}), cluster.add()
    reasons = set()
    assert soon(lambda: reasons.add(cluster.told()["etcd"]["reason"]) or sum("refused" in reason for reason in reasons) > 1), reasons
    assert cluster.told()["etcd"]["state"] == "away" and cluster.hosts[0].logged("event=etcd_away")
    assert cluster.alive() == ["h0"] and cluster.hosts[0].whole_log().count("event=etcd_away") == 1
    etcd.start()
    assert cluster.meet("h0", "h1") and cluster.hosts[0].logged("event=etcd_connected")


def test_another_cluster_key_is_refused_by_both_and_named(cluster, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(os.urandom(32))
    other.chmod(0o600)
    cluster.add(), cluster.add(), cluster.add(cluster_key_file=str(other))
    for i, name in ((0, "h2"), (2, "h0")):
        assert soon(lambda: cluster.is_refused(name, "key", i)), cluster.told(i)  # noqa: B023
        assert cluster.hosts[i].logged("event=peer_refused", f"host={name}")
    assert cluster.meet("h0", "h1")
    assert all(secret.read_bytes().hex() not in daemon.log() for secret in (other, cluster.key) for daemon in cluster.hosts)


def entry_of(name, incarnation, address, started_ms=1):
    entry = {"name": name, "address": address, "version": "1", "incarnation": incarnation, "started_ms": started_ms}
    return {f"/tensorcast/v1/hosts/{name}/{incarnation}": json.dumps(entry)}


def test_a_daemon_without_the_plugin_says_which_package_it_needs_and_is_not_started_again(cluster, tmp_path):
    (tmp_path / "empty").mkdir()
    host = cluster.add(wait=False, settings={"devices": {"plugin_folder": str(tmp_path / "empty")}})
    assert host.process.wait(60) == os.EX_CONFIG
    checked = subprocess.run([DAEMON, "--config", host.config, "--check-config"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == os.EX_CONFIG and checked.stderr in host.whole_log(), host.whole_log()
    assert ":5: hosts.etcd.endpoints needs the package tensorcast-etcd: there is no " in checked.stderr, checked.stderr


def test_nothing_secret_is_in_etcd_and_odd_entries_are_left_out(cluster, etcd):
    odd = {"hosts/x/1": "{}", "hosts/h9/1": "no json", "hosts/../1": '{"name": ".."}', "elsewhere": "x"}
    etcd.put({f"/tensorcast/v1/{key}": value for key, value in odd.items()})
    etcd.put(entry_of("ghost", "1", f"127.0.0.1:{free_port()}"))
    cluster.add(), cluster.add()
    assert cluster.meet("h0", "h1")
    assert soon(lambda: cluster.is_refused("ghost", ""))
    assert {row["name"] for row in cluster.told()["hosts"]} == {"h0", "h1", "ghost"}
    entry = json.loads(etcd.control("get", "/tensorcast/v1/hosts/h1/", "--prefix", "--print-value-only"))
    assert all(entry[key] == cluster.row("h1")[key] for key in ("name", "address", "version", "incarnation"))
    assert cluster.key.read_bytes().hex() not in etcd.control("get", "", "--from-key")


def test_what_is_left_of_an_earlier_daemon_is_no_host_to_the_one_that_follows(cluster, etcd):
    """As after a crash, until the lease ends."""
    cluster.add()
    etcd.put(entry_of("h0", "earlier", cluster.row("h0")["address"]))
    etcd.put(entry_of("later", "1", f"127.0.0.1:{free_port()}"))
    assert soon(lambda: cluster.row("later"))
    assert sorted(row["name"] for row in cluster.told()["hosts"]) == ["h0", "later"]
    assert "host=h0" not in cluster.hosts[0].whole_log()


def test_an_entry_that_goes_while_its_host_is_asked_is_forgotten(cluster, etcd):
    """A listener that never answers keeps the question open."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        cluster.add()
        entry = entry_of("slow", "1", f"127.0.0.1:{silent.getsockname()[1]}")
        etcd.put(entry)
        asked, _ = silent.accept()
        etcd.control("del", *entry)
        assert soon(lambda: cluster.row("slow") is None)
        asked.close()
        etcd.put(entry)
        silent.accept()[0].close()
        assert soon(lambda: cluster.is_refused("slow", "")), cluster.told()


def test_a_refusal_is_logged_once_however_its_numbers_change_and_again_for_another_reason(cluster, etcd):
    """The numbers: of a clock that runs away, of the milliseconds that an attempt took."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(60)
        cluster.add()
        etcd.put(entry_of("late", "1", f"127.0.0.1:{other.getsockname()[1]}"))

        def answer(status, ahead_s=0):
            asked, _ = other.accept()
            assert asked.recv(1 << 16)
            asked.sendall(f"HTTP/1.1 {status} No\r\nx-tensorcast-time: {(int(time.time()) + ahead_s) * 1000}\r\ncontent-length: 0\r\n"
                          "connection: close\r\n\r\n".encode())
            asked.close()
        for ahead_s in (150, 550, 950):
            answer(401, ahead_s)
        assert soon(lambda: cluster.is_refused("late", "its clock is 9")), cluster.told()
        assert cluster.hosts[0].whole_log().count("event=peer_refused") == 1
        answer(404)
        assert soon(lambda: cluster.is_refused("late", "it answers with status 404")), cluster.told()
        assert cluster.hosts[0].whole_log().count("event=peer_refused") == 2


class ShiftedClock:
    """The wall clock of daemons that start() starts is so many seconds ahead."""
    def __init__(self, start, folder):
        self.folder, self._start = folder, start
        (folder / "clock").write_bytes(bytes(8))
        shutil.copy(BUILD / "tests/shifted_clock.so", folder)  # LD_PRELOAD takes no path with a blank

    def set(self, ahead_s):
        with open(self.folder / "clock", "r+b") as file:
            file.write(ahead_s.to_bytes(8, "little", signed=True))

    def start(self, wait, **settings):
        environment = {"LD_PRELOAD": str(self.folder / "shifted_clock.so"), "CLOCK_FILE": str(self.folder / "clock")}
        return self._start(running=False, **settings).start(wait, environment)


def large_model(fake, models, name, seed):
    """Of so many blocks that each host owns some; what loads it on a host, and whether another host gave bytes."""
    tensors = write(models / name, {"w": random_array(np.random.default_rng(seed), np.uint8, (64, 1 << 20))})
    fake.world.preload("web", name, models / name)

    def load(daemon):
        report = daemon.cli.json("load", f"{fake.url('web')}/{name}", "--digest")
        assert digests(report) == {name: digest(array) for name, array in tensors.items()}
        return bool(report["hosts"]["from"])
    return load


PLAIN = {"sources": {"http": {"allow_plain": True}}}


@pytest.mark.skipif(SANITIZED, reason="a sanitizer has to come before what is preloaded")
@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_a_clock_that_is_set_later_is_told_and_its_host_comes_back_once_it_is_right(start, etcd, fake, models, tmp_path, ahead_s):
    clock, cluster = ShiftedClock(start, tmp_path), Cluster(start, etcd, tmp_path)
    loads = [large_model(fake, models, f"m{i}", i) for i in range(3)]
    cluster.add(settings=PLAIN)
    cluster.start = clock.start
    cluster.add(settings=PLAIN)
    assert cluster.meet("h0", "h1") and loads[0](cluster.hosts[0])
    clock.set(ahead_s)
    loads[1](cluster.hosts[0])  # h1 refuses requests, which seem to be of another time
    assert soon(lambda: cluster.is_refused("h1", "its clock is 3")), cluster.told()
    answers = cluster.row("h1")["answers"]
    assert answers["late"] > 0 and answers["wrong"] == 0
    clock.set(0)
    assert cluster.meet("h0", "h1"), cluster.told()
    assert loads[2](cluster.hosts[0])
    assert cluster.row("h1")["answers"]["late"] >= answers["late"], "counts go on"
    assert cluster.hosts[0].whole_log().count("event=peer_refused") == 1


def test_hosts_that_never_answer_leave_helpers_to_other_work(cluster, etcd):
    """Root and the daemon have 32 for stores: for loads, and for blocks that other hosts ask for."""
    with socket.create_server(("0.0.0.0", 0), backlog=64) as silent:
        silent.setblocking(False)
        cluster.add()
        for i in range(40):
            etcd.put(entry_of(f"silent{i}", "1", f"127.0.1.{i + 1}:{silent.getsockname()[1]}"))
        questions, n_asked = [], 0

        def goes_on(question):
            try:
                return question.recv(65536) and goes_on(question)
            except BlockingIOError:
                return True

        def asks_again():
            nonlocal questions, n_asked
            with contextlib.suppress(BlockingIOError):
                while True:
                    questions.append(silent.accept()[0])
                    questions[-1].setblocking(False)
                    n_asked += 1
            questions = [question for question in questions if goes_on(question)]
            assert len(questions) <= 24
            return n_asked > 32
        assert soon(asks_again)


def test_an_entry_that_proves_nothing_replaces_no_host(cluster, etcd):
    """Neither by a host's name nor by its address, however late it claims to have started."""
    cluster.add(), cluster.add()
    assert cluster.meet("h0", "h1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name, incarnation, address in (("h1", "x", f"127.0.0.1:{silent.getsockname()[1]}"), ("x", "x", cluster.row("h1")["address"]),
                                           ("h0", "y", cluster.row("h0")["address"])):
            etcd.put(entry_of(name, incarnation, address, 1 << 62))
        assert soon(lambda: len(cluster.told()["hosts"]) == 5) and cluster.alive() == ["h0", "h1"]
        assert cluster.hosts[0].stop() == 0, "questions in flight end with the daemon"


@pytest.mark.parametrize("what", ["another authority", "no certificate for it"])
def test_a_certificate_that_proves_nothing_is_refused(cluster, tmp_path, what):
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")

    def tls(name, by=authority):
        crt, key = by.issue(name)
        return {"cert_file": str(crt), "key_file": str(key), "ca_file": str(authority.file)}
    cluster.add(tls=tls("a")), cluster.add(tls=tls("b"))
    assert cluster.meet("h0", "h1"), cluster.told()
    port = int(cluster.row("h0")["address"].rsplit(":", 1)[1])
    if what == "another authority":
        cluster.add(tls=tls("c", other))
        assert soon(lambda: cluster.is_refused("h2", "certificate")), cluster.told()
        assert soon(lambda: cluster.is_refused("h0", "", 2)), cluster.told(2)
        return
    context = ssl.create_default_context(cafile=authority.file)
    context.check_hostname = False
    with pytest.raises((OSError, http.client.HTTPException)):
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        connection.request("GET", "/v1/host")
        connection.getresponse()


def mac(key, *parts):
    """Of numbers and texts, as docs/hosts.md says it."""
    signed = b"".join(len(part).to_bytes(8, "little") + part.encode() if isinstance(part, str) else part.to_bytes(8, "little") for part in parts)
    return hmac.new(key, hashlib.sha256(signed).digest(), hashlib.sha256).hexdigest()


def signed(key, to, path="/v1/host", method="GET", now_ms=None, nonce=None, **headers):
    """The headers of a request."""
    now_ms, nonce = now_ms or int(time.time() * 1000), nonce or os.urandom(16).hex()
    proof = mac(key, "tensorcast request", method, path, headers.get("range", ""), to, now_ms, nonce)
    return {"x-tensorcast-proof": proof, "x-tensorcast-time": str(now_ms), "x-tensorcast-nonce": nonce, **headers}


def is_proven(key, request, answer, body):
    command = ["openssl", "mac", "-cipher", "AES-256-GCM", "-macopt", f"hexkey:{mac(key, 'tensorcast body', request['x-tensorcast-proof'])}",
               "-macopt", "hexiv:" + "00" * 12, "-in", "/dev/stdin", "GMAC"]
    body_sum = "gmac=" + subprocess.run(command, input=body, check=True, capture_output=True).stdout.decode().strip().lower()
    wanted = mac(key, "tensorcast answer", request["x-tensorcast-proof"], answer.status, answer.headers.get("etag", ""),
                 answer.headers.get("content-range", ""), body_sum)
    return answer.headers.get("x-tensorcast-proof") == wanted


def test_the_data_port_answers_a_proven_request_once_and_no_other(cluster):
    cluster.add()
    row, key = cluster.row("h0"), cluster.key.read_bytes()
    port = int(row["address"].rsplit(":", 1)[1])

    def status(headers, path="/v1/host", method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200 or row["incarnation"].encode() not in body
        assert "x-tensorcast-proof" not in answer.headers if answer.status == 401 else is_proven(key, headers, answer, body)
        return answer.status
    headers = signed(key, row["incarnation"])
    assert status(headers) == 200 and status(headers) == 401, "a request is answered once"
    assert status({}) == status({**signed(key, row["incarnation"]), "x-tensorcast-nonce": "0" * 32}) == 401
    assert status(signed(os.urandom(32), row["incarnation"])) == status(signed(key, "another")) == 401
    assert status(signed(key, row["incarnation"], now_ms=int(time.time() * 1000) - 70_000)) == 401
    assert status(signed(key, row["incarnation"], path="/v1/other"), "/v1/other") == 404
    assert status(signed(key, row["incarnation"], method="DELETE"), method="DELETE") == 405
    assert status(signed(key, row["incarnation"], method="HEAD"), method="HEAD") == 200
    assert status(signed(key, row["incarnation"])) == 200


class Peer:
    """Asks a host for blocks as another host would, on one connection."""

    def __init__(self, cluster, own):
        self.row, self.key, self.own = cluster.row("h0"), cluster.key.read_bytes(), own
        self.connection = http.client.HTTPConnection("127.0.0.1", int(self.row["address"].rsplit(":", 1)[1]), timeout=60)

    def ask(self, reference, file_id, lo=0, hi=100, method="GET", more="", file="model.safetensors"):
        query = urllib.parse.urlencode({"reference": reference, "file": file, "id": file_id, "from": self.own}, quote_via=urllib.parse.quote)
        while True:
            headers = signed(self.key, self.row["incarnation"], f"/v1/blocks?{query}{more}", method, range=f"bytes={lo}-{hi - 1}")
            self.connection.request(method, f"/v1/blocks?{query}{more}", headers=headers)
            answer = self.connection.getresponse()
            body = answer.read()
            assert is_proven(self.key, headers, answer, body)
            if answer.status != 504:
                return answer, body

    def status(self, *what, **how):
        return self.ask(*what, **how)[0].status


def id_on_the_web(fake, path):
    """Of a file's version, as each host finds it: made of the source's identity, which is made of URL, ETag and checksums."""
    url, made = f"{fake.url('web')}/{path}", fake.world.get("web", path)
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
        etag = answer.headers["etag"]

    def text(value):
        return len(value).to_bytes(8, "little") + value.encode()
    identity = hashlib.sha256(text(f"{url}\n{etag}\n{'0' * 128}")).digest()
    parts = [identity[:16], len(made.data).to_bytes(8, "little"), identity[16:]]
    return hashlib.sha256(text("tensorcast shared file") + text(path.rsplit("/", 1)[1]) + b"".join(parts)).hexdigest()[:32]


def test_a_host_gives_blocks_of_what_it_may_read_itself(cluster, fake, models):
    data = os.urandom(5 << 20)
    for path in ("m/model.safetensors", "s/model.safetensors"):
        fake.world.put("web", path, data)
    write(models / "m", {"a": random_array(np.random.default_rng(1), np.float32, (8, 8))})
    reference, file_id = f"{fake.url('web')}/m", id_on_the_web(fake, "m/model.safetensors")
    cluster.add(settings={"sources": {"trusted_urls": [reference], "disk": {"trusted_roots": [str(models)]}}}), cluster.add()
    assert cluster.meet("h0", "h1")
    peer = Peer(cluster, cluster.row("h1")["incarnation"])
    fake.journal.clear()
    assert peer.status(reference, file_id, more="&held=1") == 404
    for read in (256 << 10, 0):
        answer, body = peer.ask(reference, file_id, 1000, 200_000)
        assert answer.status == 206 and body == data[1000:200_000] and answer.headers["etag"] == f'"{file_id}"'
        assert answer.headers["content-range"] == f"bytes 1000-199999/{len(data)}" and int(answer.headers["x-tensorcast-read"]) == read
    assert peer.status(reference, file_id, more="&held=1") == peer.status(reference, file_id, method="HEAD") == 206
    assert len([entry for entry in fake.requests("web") if entry["range"]]) == 1
    assert soon(lambda: cluster.row("h1")["bytes"]["out"] == 2 * 199_000 + 100), cluster.row("h1")
    fake.journal.clear()
    assert peer.status(reference, file_id, len(data) - 1, len(data) + 1) == peer.status(reference, file_id, 0, (4 << 20) + 1) == 400
    assert peer.status(reference, "0" * 32) == 412
    assert peer.status(f"{fake.url('web')}/s", id_on_the_web(fake, "s/model.safetensors")) == 403
    assert [entry for entry in fake.requests("web", method="GET") if entry["path"].startswith("/s")] == [], "what is not trusted is not asked for"
    assert peer.status(reference, file_id, file="../s/model.safetensors") == 400
    answer, body = peer.ask(f"disk:{models}/m", file_id)
    assert answer.status == 412 and b"on this host" in body
    assert peer.status("disk:/etc", file_id, file="hostname") == peer.status("disk:etc", file_id, file="hostname") == 403
    fake.world.put("web", "m/model.safetensors", data[::-1])
    fresh = id_on_the_web(fake, "m/model.safetensors")
    assert fresh != file_id and peer.ask(reference, fresh)[1] == data[::-1][:100]
    assert peer.status(reference, file_id) == 412


def test_a_host_that_waits_for_its_source_says_so_and_reads_on(cluster, fake):
    fake.world.put("web", "m/model.safetensors", os.urandom(5 << 20))
    reference, file_id = f"{fake.url('web')}/m", id_on_the_web(fake, "m/model.safetensors")
    cluster.add(settings={"sources": {"http": {"hedge_percent": 0}}})
    peer = Peer(cluster, cluster.row("h0")["incarnation"])
    assert peer.status(reference, file_id, more="&held=1") == 404
    fake.journal.clear()
    fake.fault({"delay": 3}, {"listener": "web"}, times=1)
    started = time.monotonic()
    assert peer.status(reference, file_id, 4 << 20, 5 << 20) == 206 and time.monotonic() - started >= 3
    assert len(fake.requests("web")) == 1, "asked again, it had gone on"


@pytest.mark.plain
def test_connections_that_prove_nothing_end_in_time_and_leave_room(cluster):
    cluster.add()
    row, key = cluster.row("h0"), cluster.key.read_bytes()
    port = int(row["address"].rsplit(":", 1)[1])
    before = cluster.hosts[0].resident()
    silent = [socket.create_connection(("127.0.0.1", port), 60, (f"127.0.0.{2 + n % 12}", 0)) for n in range(1200)]
    for one in silent:
        one.settimeout(60)
    started = time.monotonic()
    assert all(not one.recv(1) for one in silent) and time.monotonic() - started < 60
    assert cluster.hosts[0].resident() - before < 64 << 20

    def is_answered():  # once the server has put the last ones away
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/v1/host", headers=signed(key, row["incarnation"]))
            return connection.getresponse().status == 200
        except OSError:
            return False
    assert soon(is_answered)


def test_settings_that_cannot_work_stop_the_start_with_the_keys_name(cluster, tmp_path):
    short = tmp_path / "short"
    short.write_bytes(b"123")
    short.chmod(0o600)
    for settings, word in (({"listen": "0.0.0.0:0", "cluster_key_file": ""}, "hosts.cluster_key_file"),
                           ({"cluster_key_file": str(short)}, "32 bytes"), ({"listen": "nowhere"}, "hosts.listen"),
                           ({"name": "a/b"}, "hosts.name"), ({"etcd": {"endpoints": ["ftp://x"]}}, "hosts.etcd.endpoints")):
        daemon = cluster.add(wait=False, **settings)
        assert daemon.process.wait(60) == os.EX_CONFIG and word in daemon.log(), daemon.log()


def test_a_stopped_etcd_neither_stops_a_daemon_nor_its_end(cluster, etcd):
    cluster.add()
    assert cluster.meet("h0")
    etcd.send(signal.SIGSTOP)
    try:
        assert soon(lambda: cluster.told()["etcd"]["state"] == "away", 60)
        assert cluster.hosts[0].stop() == 0
    finally:
        etcd.send(signal.SIGCONT)


def test_a_plan_names_the_way_of_hosts_and_what_stands_in_its_way(cluster, etcd, fake, models):
    tensors = write(models / "m", {"w": random_array(np.random.default_rng(2), np.uint8, (4, 3 << 20))})
    fake.world.preload("web", "m", models / "m")
    reference = f"{fake.url('web')}/m"

    def plan(reference=reference, *how):
        return cluster.hosts[0].cli.json("explain", reference, *how)["hosts"]

    def loaded(reference=reference, *how):
        report = cluster.hosts[0].cli.json("load", reference, "--digest", *how)
        assert digests(report) == {name: digest(array) for name, array in tensors.items()}
        return report["hosts"]
    cluster.add()
    assert soon(lambda: plan()["reason"] == "no_other_host", 60), plan()
    cluster.add()
    assert soon(lambda: plan()["reason"] == "hosts_share:alive=2", 60), plan()
    told = plan()
    assert (told["choice"], told["alive"]) == ("owner_peers", 2) and all(way["estimated_ms"] > 0 for way in told["candidates"])
    assert "2 hosts alive" in cluster.hosts[0].cli.ok("explain", reference).out
    local = plan(f"disk:{models}/m")
    assert local["choice"] == "read_all" and local["reason"].startswith(("source_not_shared:", "in_page_cache")), "an overlay may be shared"
    assert plan(reference, "--slice", "w[:1, :]")["candidates"][0]["reason"] == "not_all_is_needed"
    assert loaded()["choice"] == "owner_peers"
    etcd.kill()
    try:
        assert soon(lambda: plan()["reason"].startswith("etcd_away:"), 60), plan()
        assert plan()["choice"] == "read_all" and loaded(f"disk:{models}/m")["reason"].startswith("etcd_away:")
    finally:
        etcd.start()
    assert soon(lambda: plan()["choice"] == "owner_peers", 60), plan()
