"""Segments of activation stores reach a bucket once, whole, and go from the disk only then; whatever dies or answers wrongly."""
import hashlib
import json
import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client import activation_samples

from activation_scene import holds, same, sample
from stage import soon
from store_scene import settings


@pytest.fixture
def writing(start, models, fake, bare, aws_keys):
    """Starts a daemon that may write below `models` and finds the fake stores, with an empty bucket b in each."""
    for listener in ("gcs", "s3"):
        fake.world.bucket(listener, "b")

    def make(**more):
        sources = {"disk": {"trusted_roots": [str(models)]}, **settings(fake, http={"max_tries": 1})}
        return start(sources=sources, **{"activations": {"roots": [str(models)]}, **more})

    return make


@pytest.fixture
def daemon(writing):
    return writing()


def fill(daemon, acts, ids, host=3, upload="gs://b/acts", segment_bytes="4KiB", **options):
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=host, upload=upload, segment_bytes=segment_bytes, **options) as store:
        for i in ids:
            store.append(i, sample(i))


def bucket(fake, listener="gcs", name="b"):
    return {key: versions[-1].data for key, versions in list(fake.world.bucket(listener, name).keys.items()) if versions[-1] is not None}


def entries(raw):
    return json.loads(raw)["segments"]


def manifest(acts, host=3):
    return entries((acts / f"host_{host:03}/manifest.json").read_bytes())


def files(acts):
    return {f"acts/{path.parent.name}/{path.name}": path.read_bytes() for path in acts.glob("host_*/*") if path.suffix in (".json", ".safetensors")}


def uploads(daemon, acts, host=3):
    return next(h["uploads"] for h in daemon.cli.json("activations", "status", f"disk:{acts}")["hosts"] if h["host"] == host)


def idle(daemon, acts, host=3):
    return lambda: uploads(daemon, acts, host)["pending"] == 0


@pytest.mark.parametrize("listener, scheme", [("gcs", "gs"), ("s3", "s3")])
def test_what_is_sealed_is_in_the_bucket_byte_for_byte_and_stays_here(daemon, fake, acts, listener, scheme):
    fill(daemon, acts, range(12), upload=f"{scheme}://b/acts/")
    assert soon(lambda: bucket(fake, listener) == files(acts)), bucket(fake, listener).keys()
    n = len(manifest(acts))
    assert n > 2 and soon(lambda: uploads(daemon, acts) == {"pending": 0, "done": n, "failed": 0, "error": ""})
    assert soon(lambda: bucket(fake, listener) == files(acts))
    assert {s["uploaded"] for s in manifest(acts)} == {f"{scheme}://b/acts/host_003/{s['file']}" for s in manifest(acts)}
    before = len(fake.requests(listener))
    daemon.stop()
    daemon.start()
    fill(daemon, acts, [50], upload=f"{scheme}://b/acts")  # nothing is sent or counted twice
    assert soon(lambda: bucket(fake, listener) == files(acts))
    assert soon(lambda: uploads(daemon, acts)["done"] == n + 1 == len(manifest(acts)))
    again = [e["path"] + str(e["query"]) for e in fake.requests(listener)[before:]]
    assert not any("segment_000001" in path for path in again), again
    holds(acts / "host_003", [*range(12), 50])


def test_local_files_go_when_segment_and_manifest_are_there_and_never_before(daemon, fake, acts):
    rule = fake.fault({"status": 503}, {"listener": "gcs", "method": "POST"}, times=0)
    fill(daemon, acts, range(12), keep_local=False)
    names = {s["file"] for s in manifest(acts)}
    assert soon(lambda: rule.acted > 3)
    assert {p.name for p in (acts / "host_003").glob("*.safetensors")} == names and uploads(daemon, acts)["pending"] == len(names)
    assert soon(lambda: "503" in uploads(daemon, acts)["error"])
    waiting = {"pending": len(names), "failed": 0, "pending_bytes": sum(path.stat().st_size for path in (acts / "host_003").glob("*.safetensors"))}
    assert daemon.status()["uploads"] == tc.connect(daemon.socket).status()["uploads"] == waiting
    assert f"uploads  {len(names)} to come" in daemon.cli.run("status").out
    copies = {f"acts/host_003/{name}": (acts / "host_003" / name).read_bytes() for name in names}
    fake.faults.clear()
    assert soon(lambda: not list((acts / "host_003").glob("*.safetensors")), 60)
    assert soon(lambda: bucket(fake) == {**copies, **files(acts)})
    assert all(s["local"] is False for s in manifest(acts)) and {s["file"] for s in manifest(acts)} == names
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3, upload="gs://b/acts", keep_local=False) as store:
        assert store.resume["last_sample"] == 11 and store.resume["samples"] == 12
        with pytest.raises(ValueError):
            store.append(5, sample(5))
    assert soon(lambda: uploads(daemon, acts) == {"pending": 0, "done": len(names), "failed": 0, "error": ""})
    assert daemon.cli.json("activations", "status", f"disk:{acts}")["hosts"][0]["bytes"] == 0


@pytest.mark.parametrize("limit, segment_bytes, n_hosts", [("quota", "1GiB", 1), ("quota", "1GiB", 5), ("disk", "256KiB", 1), ("disk", "1GiB", 1)])
def test_writers_that_fill_the_quota_or_the_disk_wait_for_the_bucket(writing, acts, fake, limit, segment_bytes, n_hosts):
    """Also before their segments are full."""
    acts.mkdir()
    assert limit == "quota" or os.system(f"mount -t tmpfs -o size=2M tensorcast {acts}") == 0
    large = lambda i: {1: np.full((64, 256), i, np.float32)}  # noqa: E731
    try:
        daemon = writing(activations={"roots": [str(acts)], "disk_quota": "1MiB" if limit == "quota" else "1GiB", "quota_timeout": "60s"})

        def write(host):
            with tc.connect(daemon.socket).activation_store(acts / "s", host=host, upload="gs://b/acts", keep_local=False,
                                                            segment_bytes=segment_bytes) as store:
                for i in range(60 // n_hosts):
                    store.append(100 * host + i, large(i))

        with ThreadPoolExecutor(n_hosts) as pool:
            list(pool.map(write, range(n_hosts)))
        assert soon(lambda: not list(acts.glob("s/*/*.safetensors")) and all(idle(daemon, acts / "s", host)() for host in range(n_hosts)))
        got = dict(tc.connect(daemon.socket).activation_store("gs://b/acts").samples())
        assert sorted(got) == [100 * host + i for host in range(n_hosts) for i in range(60 // n_hosts)]
        assert all(same(layers, large(i % 100)) for i, layers in got.items())
        daemon.stop()
    finally:
        if limit == "disk":
            os.system(f"umount -l {acts}")


def test_samples_come_from_the_bucket_where_they_are_not_here(daemon, fake, acts):
    fill(daemon, acts, range(6), host=1, upload=None)
    fill(daemon, acts, range(6, 12), host=3, keep_local=False, narrow="auto")
    assert soon(lambda: not list((acts / "host_003").glob("*.safetensors")))
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3, narrow="auto") as store:
        store.append(20, {4: np.ones((2, 2), np.float32)})  # here again, and nowhere else
    client = tc.connect(daemon.socket)
    for reference, ids in {f"disk:{acts}": [*range(12), 20], f"{acts}/host_003": [*range(6, 12), 20], f"disk:{acts}/host_001": range(6),
                           "gs://b/acts/host_003": range(6, 12)}.items():
        got = list(client.activation_store(reference).samples())
        assert sorted(i for i, _ in got) == list(ids) and all(same(layers, sample(i)) for i, layers in got if i != 20), reference
    key = next(key for key in bucket(fake) if key.endswith("segment_000001.safetensors"))
    fake.world.put("gcs", f"b/{key}", files(acts)["acts/host_001/segment_000001.safetensors"])
    with pytest.raises(tc.TensorcastError, match="DATA_LOSS.*segment_000001"):
        list(client.activation_store(f"disk:{acts}").samples())
    fake.world.remove("gcs", f"b/{key}")
    with pytest.raises(FileNotFoundError, match="segment_000001"):
        list(client.activation_store(f"disk:{acts}").samples())


@pytest.mark.parametrize("reference", ["acts", "acts/host_003"])
@pytest.mark.parametrize("n_first", [0, 1, 4])
def test_segments_that_go_to_their_bucket_while_samples_are_read_are_read_there(daemon, fake, acts, monkeypatch, reference, n_first):
    monkeypatch.setattr("tensorcast_client.activation_samples._BATCH_BYTES", 1)
    load, loads = activation_samples._load, []

    def load_later(*args):  # the last one after all segments went
        loads.append(args)
        if len(loads) == n_first + 1:
            fill(daemon, acts, [20], keep_local=False)
            assert soon(lambda: not list((acts / "host_003").glob("*.safetensors")))
        return load(*args)

    fill(daemon, acts, range(6))
    assert soon(idle(daemon, acts))
    monkeypatch.setattr(activation_samples, "_load", load_later)
    got = list(tc.connect(daemon.socket).activation_store(f"disk:{acts.parent / reference}").samples())
    assert len(loads) > n_first and sorted(i for i, _ in got) == [*range(6), 20]
    assert all(same(layers, sample(i)) for i, layers in got)


@pytest.mark.parametrize("listener, scheme", [("gcs", "gs"), ("s3", "s3")])
def test_a_whole_store_in_a_bucket_is_an_artifact_and_is_read(daemon, fake, acts, listener, scheme):
    url = f"{scheme}://b/acts"
    for host in (3, 12):
        fill(daemon, acts, range(host, host + 8), host=host, upload=url)
    fake.world.put(listener, "b/acts/claims/unit_00000000", b"{}")
    fake.world.put(listener, "b/acts/host_1/segment_000001.safetensors", b"of no host")
    assert soon(lambda: all(bucket(fake, listener).get(name) == data for name, data in files(acts).items()))
    client, names = tc.connect(daemon.socket), {name.removeprefix("acts/") for name in files(acts) if name.endswith(".safetensors")}
    told = client.artifact(url).describe()
    assert {file["name"] for file in told["files"]} == names and len(names) == 4
    before = len(fake.requests(listener))
    got = list(client.activation_store(url).samples(layers=[4]))
    assert [i for i, _ in got] == [*range(3, 11), *range(12, 20)] and all((layers[4] == sample(i)[4]).all() for i, layers in got)
    listings = [e for e in fake.requests(listener)[before:] if "prefix" in str(e["query"])]
    assert len(listings) <= 1 + 4 * 2, listings  # a host costs some, not each file
    missing = client.activation_store(f"{scheme}://b/nothing")
    with pytest.raises(FileNotFoundError):
        list(missing.samples())


@pytest.mark.parametrize("place", ["gs://b", "gs://b/", "s3://b/", "s3://b/a/"])
def test_a_store_in_a_bucket_may_be_named_with_a_slash_behind_it(daemon, acts, place):
    fill(daemon, acts, range(4), upload=place)
    assert soon(idle(daemon, acts))
    for part in (place, f"{place.rstrip('/')}/host_003/", f"{place.rstrip('/')}/host_003"):
        assert soon(lambda: [i for i, _ in tc.connect(daemon.socket).activation_store(part).samples()] == [*range(4)])  # noqa: B023


def test_a_host_that_has_nothing_yet_hides_no_other_and_a_segment_is_read_with_its_manifest_only(daemon, acts, monkeypatch):
    client = tc.connect(daemon.socket)
    fill(daemon, acts, range(4), host=1, upload=None, narrow="auto")
    with client.activation_store(f"disk:{acts}", host=2) as store:
        store.append(9, sample(9))
        assert [i for i, _ in client.activation_store(f"disk:{acts}").samples()] == list(range(4))
    monkeypatch.setattr("tensorcast_client.activation_samples._LAG_S", 0.1)
    (acts / "host_001/manifest.json").write_text('{"format": "tensorcast-activations", "version": 1, "host": 1, "segments": []}')
    with pytest.raises(tc.TensorcastError, match="DATA_LOSS.*host_001.*segment_000001"):
        list(client.activation_store(f"disk:{acts}").samples())


def test_the_manifest_there_lists_what_is_there_and_nothing_else(daemon, fake, acts):
    fake.world.put("gcs", "b/acts/host_003/segment_000002.safetensors", b"theirs")
    fill(daemon, acts, range(12), keep_local=False)
    n = len(manifest(acts))
    assert soon(lambda: uploads(daemon, acts)["failed"] == 1 and uploads(daemon, acts)["done"] == n - 1)
    assert bucket(fake)["acts/host_003/segment_000002.safetensors"] == b"theirs"
    assert uploads(daemon, acts)["error"].count("segment_000002") == 1
    assert soon(lambda: [p.name for p in (acts / "host_003").glob("*.safetensors")] == ["segment_000002.safetensors"])
    assert soon(lambda: len(entries(bucket(fake)["acts/host_003/manifest.json"])) == n - 1)
    assert "segment_000002.safetensors" not in {s["file"] for s in entries(bucket(fake)["acts/host_003/manifest.json"])}
    fake.world.remove("gcs", "b/acts/host_003/segment_000002.safetensors")
    fill(daemon, acts, [], keep_local=False)  # opening tries again
    assert soon(lambda: uploads(daemon, acts) == {"pending": 0, "done": n, "failed": 0, "error": ""})
    assert soon(lambda: len(entries(bucket(fake)["acts/host_003/manifest.json"])) == n)


@pytest.mark.parametrize("listener, scheme", [("gcs", "gs"), ("s3", "s3")])
def test_a_manifest_of_another_store_is_not_replaced_and_what_it_would_list_stays_here(daemon, fake, models, listener, scheme):
    """Two stores with one place and one host number: the segments of the second that have a free name go there, and nothing else."""
    first, second, there = models / "first", models / "second", "acts/host_003/manifest.json"
    fill(daemon, first, range(6), upload=f"{scheme}://b/acts")
    assert soon(lambda: uploads(daemon, first)["done"] == len(manifest(first)) and there in bucket(fake, listener))
    assert soon(lambda: len(entries(bucket(fake, listener)[there])) == len(manifest(first)))
    before = bucket(fake, listener)
    fill(daemon, second, range(20, 34), upload=f"{scheme}://b/acts", keep_local=False)
    n_taken, n = len(manifest(first)), len(manifest(second))
    assert n > n_taken and soon(lambda: uploads(daemon, second)["failed"] == n_taken + 1 and uploads(daemon, second)["pending"] == 0)
    assert {key: data for key, data in bucket(fake, listener).items() if key in before} == before
    assert len(list((second / "host_003").glob("*.safetensors"))) == n and uploads(daemon, second)["done"] == n - n_taken
    assert soon(lambda: re.search(r"event=upload_failed .*reason=MANIFEST_OF_ANOTHER_STORE .*again=false", daemon.log()))
    daemon.kill()
    daemon.start()  # what has failed is told by the next daemon, too
    assert soon(lambda: uploads(daemon, second)["failed"] == n_taken + 1)
    assert f"{scheme}://b/acts/host_003/" in uploads(daemon, second)["error"]
    fill(daemon, first, [50], upload=f"{scheme}://b/acts")  # whose place it is goes on, except for a name that the other one took
    assert soon(lambda: uploads(daemon, first)["failed"] == 1 and uploads(daemon, first)["pending"] == 0)
    fill(daemon, second, [], upload=f"{scheme}://b/other", keep_local=False)
    assert soon(lambda: not list((second / "host_003").glob("*.safetensors")))
    assert len(entries(bucket(fake, listener)["other/host_003/manifest.json"])) == n
    assert soon(lambda: uploads(daemon, second) == {"pending": 0, "done": n, "failed": 0, "error": ""})


@pytest.mark.parametrize("theirs", [b"theirs", b"{}" + b" " * (1 << 16),
                                    b'{"format": "tensorcast-activations", "version": 1, "host": 4, "segments": []}'])
def test_what_is_no_manifest_of_the_host_is_left_alone_until_it_is_moved_away(daemon, fake, acts, theirs):
    fake.world.put("gcs", "b/acts/host_003/manifest.json", theirs)
    fill(daemon, acts, range(3), keep_local=False)
    assert soon(lambda: uploads(daemon, acts)["failed"] == 1 and uploads(daemon, acts)["done"] == len(manifest(acts)))
    assert bucket(fake)["acts/host_003/manifest.json"] == theirs and "manifest.json" in uploads(daemon, acts)["error"]
    assert len(list((acts / "host_003").glob("*.safetensors"))) == len(manifest(acts))
    fake.world.remove("gcs", "b/acts/host_003/manifest.json")
    fill(daemon, acts, [], keep_local=False)
    assert soon(lambda: not list((acts / "host_003").glob("*.safetensors")))
    assert soon(lambda: uploads(daemon, acts) == {"pending": 0, "done": len(manifest(acts)), "failed": 0, "error": ""})


def test_a_store_that_was_filled_without_uploads_is_sent_when_one_is_named_and_moves_with_it(daemon, fake, acts):
    fill(daemon, acts, range(6), upload=None)
    assert uploads(daemon, acts) == {"pending": 0, "done": 0, "failed": 0, "error": ""} and not bucket(fake)
    fake.fault({"status": 503}, {"listener": "gcs", "method": "POST"}, times=0)
    fill(daemon, acts, [10])
    fill(daemon, acts, [11], upload="s3://b/acts", keep_local=False)  # what waits for the other place is given up
    assert soon(lambda: not list((acts / "host_003").glob("*.safetensors")), 60)
    assert soon(lambda: set(bucket(fake, "s3")) == {f"acts/host_003/{s['file']}" for s in manifest(acts)} | {"acts/host_003/manifest.json"})
    assert soon(idle(daemon, acts)) and not bucket(fake) and uploads(daemon, acts)["failed"] == 0


def test_what_was_kept_is_compared_again_before_it_goes(daemon, fake, acts):
    fill(daemon, acts, range(6))
    assert soon(lambda: bucket(fake) == files(acts))
    fake.world.remove("gcs", "b/acts/host_003/segment_000001.safetensors")  # another process did
    copy = (acts / "host_003/segment_000001.safetensors").read_bytes()
    fill(daemon, acts, [9], keep_local=False)
    assert soon(lambda: not list((acts / "host_003").glob("*.safetensors")))
    assert bucket(fake)["acts/host_003/segment_000001.safetensors"] == copy


def test_a_file_that_was_changed_is_not_sent(daemon, fake, acts):
    fill(daemon, acts, range(6), upload=None)
    victim = acts / "host_003/segment_000001.safetensors"
    raw = bytearray(victim.read_bytes())
    raw[-3] ^= 1
    victim.write_bytes(raw)
    fill(daemon, acts, [7], keep_local=False)
    assert soon(lambda: uploads(daemon, acts)["failed"] == 1 and uploads(daemon, acts)["pending"] == 0)
    assert "segment_000001" in uploads(daemon, acts)["error"] and "acts/host_003/segment_000001.safetensors" not in bucket(fake)
    assert soon(lambda: list((acts / "host_003").glob("*.safetensors")) == [victim])


@pytest.mark.parametrize("options", [{"upload": "gs://"}, {"upload": "gs://b/a/../c"}, {"upload": "/data"}, {"upload": "hf://org/model"},
                                     {"upload": "disk:/data"}])
def test_a_place_that_is_none_is_refused_and_nothing_is_made(daemon, acts, options):
    with pytest.raises(ValueError):
        fill(daemon, acts, [1], **options)
    assert not acts.exists()


def readable(fake, acts):
    """Samples by what the manifest says; None while a file that it had listed goes. The manifest denies it first, and only then."""
    segments, there, found = manifest(acts), bucket(fake), []
    for segment in segments:
        try:
            raw = there[f"acts/host_003/{segment['file']}"] if segment.get("local") is False else (acts / "host_003" / segment["file"]).read_bytes()
        except FileNotFoundError:
            assert next(s for s in manifest(acts) if s["file"] == segment["file"])["local"] is False
            return None
        assert hashlib.sha256(raw).hexdigest() == segment["sha256"]
        found += segment["samples"]
    return sorted(found)


def settled(fake, acts, ids):
    """Every sample is readable exactly once: here, or in the bucket."""
    assert soon(lambda: readable(fake, acts) == list(ids))


def crash(daemon, fake, acts, dice, rounds):
    """Kills the daemon at random moments while a store is appended to, sealed, uploaded and emptied."""
    committed, every = [], {"nth": 3, "times": 0, "every": 3}
    fake.fault({"delay": 0.02}, {"listener": "gcs"}, times=0)
    fake.fault({"status": 503}, {"listener": "gcs", "method": "POST"}, **every)
    for _ in range(rounds):
        end = time.monotonic() + dice.random() * .4
        try:
            store = tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3, upload="gs://b/acts", segment_bytes="4KiB", keep_local=False)
            last = store.resume["last_sample"]
            i = 0 if last is None else last + 1
            assert not committed or last >= committed[-1]
            committed = list(range(i))
            while time.monotonic() < end:
                store.append(i, sample(i))
                i += 1
                if dice.random() < .3:
                    store.commit()
                    committed = list(range(i))
            if dice.random() < .5:
                store.close()
                committed = list(range(i))
                time.sleep(dice.random() * .3)
        finally:
            daemon.kill()
        daemon.start()
    fake.faults.clear()
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3, upload="gs://b/acts", keep_local=False) as store:
        samples = store.resume["samples"]
        assert samples >= len(committed) and store.resume["last_sample"] == samples - 1
    settled(fake, acts, range(samples))
    assert soon(lambda: not list((acts / "host_003").glob("*.safetensors"))), uploads(daemon, acts)
    settled(fake, acts, range(samples))
    assert soon(lambda: entries(bucket(fake)["acts/host_003/manifest.json"]) == manifest(acts))
    assert {key for key in bucket(fake)} == {f"acts/host_003/{s['file']}" for s in manifest(acts)} | {"acts/host_003/manifest.json"}


@pytest.mark.parametrize("seed", range(int(os.environ.get("UPLOAD_CRASHES", "1"))))  # tests/long.sh does more
def test_whenever_the_daemon_is_killed_every_committed_sample_is_here_or_there_exactly_once(daemon, fake, acts, seed):
    crash(daemon, fake, acts, random.Random(seed), 3)
