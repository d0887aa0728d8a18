"""Activation stores upload to real servers: whole, once, and without sending finished parts again, whatever goes wrong."""
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorcast_client as tc
from stage import CLI, ROOT, Daemon, soon
from test_uploads import ceph, gs, s3, store, swift  # noqa: F401
from upload_proxy import FAULTS


@pytest.fixture
def daemon(store):  # noqa: F811
    """After the store: it finds that by the environment."""
    made = []
    with tempfile.TemporaryDirectory(prefix="tc8-acts-") as folder:
        os.chmod(folder, 0o755)
        tree = {"sources": {"disk": {"trusted_roots": [folder]}, "http": {"max_tries": 1}}, "activations": {"roots": [folder]}}

        def start():
            made.append(Daemon([folder], tree, {}).start())
            made[-1].acts = Path(folder) / f"acts{len(made)}"
            return made[-1]

        yield start
        complaints = [text for text in (one.remove() for one in made) if text]
    assert not complaints, complaints[0]


def make(i, n):
    return {1: np.random.default_rng(i).integers(0, 255, n, np.uint8)}


def fill(daemon, url, ids, n=3000, segment_bytes="8KiB", **options):
    client = tc.connect(daemon.socket)
    with client.activation_store(f"disk:{daemon.acts}", host=3, upload=f"{url}/a b", segment_bytes=segment_bytes, **options) as acts:
        for i in ids:
            acts.append(i, make(i, n))


def uploads(daemon):
    return daemon.cli.json("activations", "status", f"disk:{daemon.acts}")["hosts"][0]["uploads"]


def names(daemon):
    return {f"a b/host_003/{path.name}" for path in (daemon.acts / "host_003").iterdir() if path.name[0] != "."}  # .writer says who has it


def files(daemon):
    """Of a store whose uploads are done."""
    return {name: (daemon.acts / name.removeprefix("a b/")).read_bytes() for name in names(daemon)}


def arrived(store, one):  # noqa: F811
    """Also the last of several manifests, which are not `pending`."""
    return lambda: names(one) == store.names() and not uploads(one)["pending"] and \
        all(store.get(name) == data for name, data in files(one).items())


def test_segments_arrive_whole_and_go_from_here_through_every_fault(store, daemon):  # noqa: F811
    one = daemon()
    store.proxy.fault = lambda n, *_: FAULTS[n // 2 % len(FAULTS)] if n % 2 and n < 4 * len(FAULTS) else None
    fill(one, store.url, range(8), keep_local=False)
    sealed = {f"a b/host_003/{segment['file']}" for segment in json.loads((one.acts / "host_003/manifest.json").read_text())["segments"]}
    assert soon(lambda: names(one) == {"a b/host_003/manifest.json"}, 60), uploads(one)
    there = "a b/host_003/manifest.json"
    assert soon(lambda: store.names() == sealed | names(one) and store.get(there) == files(one)[there], 30)
    done = {"pending": 0, "done": len(sealed), "failed": 0, "error": ""}  # the manifest is sent again until it was answered
    assert soon(lambda: uploads(one) == done, 30), uploads(one)
    got = dict(tc.connect(one.socket).activation_store(f"disk:{one.acts}").samples())
    assert sorted(got) == list(range(8)) and all((got[i][1] == make(i, 3000)[1]).all() for i in got)


def test_a_daemon_that_was_killed_in_the_middle_sends_no_finished_part_again(store, daemon):  # noqa: F811
    one, size = daemon(), 36 << 20
    large = lambda: [sent for method, _, sent in store.proxy.seen if method == "PUT" and sent > 1 << 20]  # noqa: E731
    store.proxy.fault = lambda n, method, path, sent: "503" if sent > 1 << 20 and len(large()) > 2 else None
    fill(one, store.url, [1], size, "1GiB")
    assert soon(lambda: len(large()) > 4 and sum(sent > 1 << 20 for *_, sent in store.proxy.passed) == 2, 30)
    one.kill()
    assert not any("segment" in name for name in store.names())
    store.proxy.fresh()
    one.start()
    assert soon(arrived(store, one), 60), uploads(one)
    assert not store.unfinished()
    assert sum(large()) <= size - (8 << 20), large()


def test_of_two_stores_with_one_place_each_object_is_of_one_and_nothing_is_lost(store, daemon):  # noqa: F811
    one, other = daemon(), daemon()
    fill(one, store.url, range(6))
    assert soon(arrived(store, one), 30), uploads(one)
    before = {name: store.get(name) for name in store.names()}
    fill(other, store.url, range(10, 16), keep_local=False)
    assert soon(lambda: uploads(other)["failed"] == len(before) - 1, 30), uploads(other)
    assert not uploads(other)["pending"]
    assert {name: store.get(name) for name in store.names()} == before and len(files(other)) == len(before)
    assert "is there already" in uploads(other)["error"]


THEIRS = (b'{"format": "tensorcast-activations", "version": 1, "host": 3, "segments": [{"file": "segment_000077.safetensors", "bytes": 9, '
          b'"sha256": "", "crc32c": "00000000", "samples": [1], "layers": [1]}]}')


@pytest.mark.parametrize("has_one", [False, True])
def test_a_manifest_that_another_store_writes_in_the_same_moment_is_not_overwritten(store, daemon, has_one):  # noqa: F811
    if store.name == "swift":
        pytest.skip("knows no conditions of writes")
    one, there = daemon(), "a b/host_003/manifest.json"
    fill(one, store.url, range(2 * has_one))
    assert not has_one or soon(arrived(store, one), 30), uploads(one)

    def between(n, method, path, sent):
        if method in ("PUT", "POST") and "manifest.json" in path and between.left:
            between.left = False
            store.put(there, THEIRS)

    between.left = True
    store.proxy.fault = between
    fill(one, store.url, range(10, 14), keep_local=False)
    assert soon(lambda: uploads(one)["failed"] == 1 and not uploads(one)["pending"], 30), uploads(one)
    assert not between.left and store.get(there) == THEIRS and "segment_000077" in uploads(one)["error"]
    dropped = [s["file"] for s in json.loads((one.acts / "host_003/manifest.json").read_text())["segments"] if s.get("local") is False]
    assert dropped in ([], ["segment_000001.safetensors"][:has_one]), dropped  # that one the manifest before has listed
    assert len(names(one)) - 1 + len(dropped) == uploads(one)["done"] == len(store.names()) - 1


def activations(*words):
    done = subprocess.run([CLI, "activations", *map(str, words), "--json"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_each_unit_is_claimed_by_one_of_many_also_when_answers_are_lost(store):  # noqa: F811
    place = f"{store.url}/acts"
    if store.name == "swift":  # it says that it knows no conditions
        done = subprocess.run([CLI, "activations", "claim", place, "--owner", "w", "--units", "1"], capture_output=True, text=True)
        assert done.returncode == 1 and "UNIMPLEMENTED" in done.stderr and not store.names()
        return
    store.proxy.fault = lambda n, method, path, sent: "answer lost" if n % 7 == 3 and method in ("PUT", "POST") else None
    with ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda k: activations("claim", place, "--owner", f"w{k}", "--units", 8, "--lease", "1h")["unit"], range(16)))
    assert sorted(unit for unit in got if unit is not None) == list(range(8)) and got.count(None) == 8, got
    owner = got.index(3)
    assert json.loads(store.get("acts/claims/unit_00000003"))["owner"] == f"w{owner}"
    assert activations("claim", place, "--owner", f"w{owner}", "--done", 3)["unit"] == 3
    assert activations("claim", place, "--owner", "late", "--units", 9, "--lease", "1ms")["unit"] == 8
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda k: activations("claim", place, "--owner", f"t{k}", "--units", 9, "--lease", "1h")["unit"], range(8)))
    assert sorted(got, key=str) == [8, *[None] * 7], got


def test_what_was_uploaded_is_verified_merged_and_told(store, daemon):  # noqa: F811
    one, place = daemon(), f"{store.url}/a b"
    fill(one, store.url, range(8))
    assert soon(arrived(store, one), 30), uploads(one)
    n = len(names(one)) - 1
    told = activations("status", place)["hosts"]
    assert [(h["host"], h["samples"], h["segments"]) for h in told] == [(3, 8, n)]
    assert activations("verify", place)["segments"] == n and activations("merge", place) == {"hosts": 1, "samples": 8}
    assert activations("merge", place)["samples"] == 8 and json.loads(store.get("a b/manifest.json"))["samples"] == 8
    got = dict(tc.connect(one.socket).activation_store(place).samples())
    assert sorted(got) == list(range(8)) and all((got[i][1] == make(i, 3000)[1]).all() for i in got)


@pytest.mark.parametrize("store", ["gs"], indirect=True)
def test_the_example_runs_from_the_data_set_to_the_probe(gs, daemon):  # noqa: F811
    one = daemon()
    environment = {**one.cli.environment, "PATH": f"{Path(CLI).parent}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, ROOT / "examples/activations.py", "--numpy", "--samples", "60", "--dir", one.acts.parent, "--upload",
                           f"{gs.url}/acts"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "was preempted" in done.stdout and "60 samples of 4 hosts, each once" in done.stdout and "goes on behind" in done.stdout
    assert {name for name in gs.names() if name.endswith("manifest.json")} == {f"acts/host_{host:03}/manifest.json" for host in range(4)}
