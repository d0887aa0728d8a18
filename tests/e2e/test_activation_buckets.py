"""`tensorcast activations` on stores that lie in a bucket: what their hosts have, whether it is whole, and who does what."""
import gzip
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import tensorcast_client as tc

from activation_scene import holds, sample
from stage import soon
from store_scene import settings


@pytest.fixture(params=["gs", "s3"])
def scheme(request):
    return request.param


class Bucket:
    def __init__(self, fake, scheme):
        self.world, self.listener, self.url = fake.world, {"gs": "gcs", "s3": "s3"}[scheme], f"{scheme}://b/acts"

    def keys(self):
        return {key for key, versions in list(self.world.bucket(self.listener, "b").keys.items()) if versions[-1] is not None}

    def get(self, name):
        return self.world.get(self.listener, f"b/acts/{name}").data

    def put(self, name, data):
        self.world.put(self.listener, f"b/acts/{name}", data)

    def remove(self, name):
        self.world.remove(self.listener, f"b/acts/{name}")


@pytest.fixture
def bucket(fake, bare, aws_keys, scheme, monkeypatch):
    """An empty one, which commands find by the environment."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url("gcs"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", fake.url("s3"))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    made = Bucket(fake, scheme)
    fake.world.bucket(made.listener, "b")
    return made


@pytest.fixture
def daemon(start, models, fake, bucket):
    return start(sources={"disk": {"trusted_roots": [str(models)]}, **settings(fake)}, activations={"roots": [str(models)]})


@pytest.fixture
def filled(daemon, models, bucket):
    """Hosts 0 and 7, uploaded; only their folders here know their segments."""
    for host, ids in ((0, range(9)), (7, range(20, 24))):
        with tc.connect(daemon.socket).activation_store(f"disk:{models}/acts", host=host, upload=bucket.url, segment_bytes="4KiB",
                                                        narrow="auto") as store:
            for i in ids:
                store.append(i, sample(i), info={"n": str(i)})
        here = models / f"acts/host_{host:03}"
        assert soon(lambda: f"acts/host_{host:03}/manifest.json" in bucket.keys() and  # noqa: B023
                    len(json.loads(bucket.get(f"host_{host:03}/manifest.json"))["segments"]) == len(list(here.glob("*.safetensors"))))  # noqa: B023
    return models / "acts"


def test_status_verify_and_merge_tell_what_lies_there(daemon, bucket, filled):
    daemon.stop()  # none is needed
    hosts = daemon.cli.json("activations", "status", bucket.url + "/")["hosts"]
    assert [(h["host"], h["samples"], h["last_sample"]) for h in hosts] == [(0, 9, 8), (7, 4, 23)]
    for told in hosts:
        files = list((filled / f"host_{told['host']:03}").glob("*.safetensors"))
        assert told["segments"] == len(files) and told["bytes"] == sum(path.stat().st_size for path in files)
        assert told["uploads"] == {"pending": 0, "done": len(files), "failed": 0, "error": ""}
    assert daemon.cli.json("activations", "verify", bucket.url) == {
        "hosts": 2, "segments": sum(h["segments"] for h in hosts), "bytes": sum(h["bytes"] for h in hosts)}
    assert "13 samples of 2 hosts" in daemon.cli.ok("activations", "merge", bucket.url).out
    assert daemon.cli.json("activations", "merge", bucket.url) == {"hosts": 2, "samples": 13}
    merged = json.loads(bucket.get("manifest.json"))
    assert merged["samples"] == 13 and {s["host"] for s in merged["segments"]} == {0, 7}
    again = json.loads(bucket.get("host_007/manifest.json"))
    again["host"] = 8
    bucket.put("host_008/manifest.json", json.dumps(again).encode())
    outcome = daemon.cli.run("activations", "merge", bucket.url)
    assert outcome.status == "FAILED_PRECONDITION" and all(word in outcome.err for word in ("20", "host_007", "host_008"))
    assert json.loads(bucket.get("manifest.json")) == merged


def test_verify_names_the_object_that_is_not_as_it_was_sealed(daemon, bucket, filled):
    first, second, stranger, listed = ("host_000/segment_000001.safetensors", "host_000/segment_000002.safetensors",
                                       "host_000/segment_000077.safetensors", "host_000/manifest.json")
    whole, manifest = bucket.get(second), bucket.get(listed)
    flipped = lambda at: whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]  # noqa: E731
    for name, victim, data in ((second, second, flipped(len(whole) // 2)), (second, second, flipped(9)), (second, second, flipped(3)),
                               (second, second, whole[:-1]), (second, second, None), (stranger, stranger, whole),
                               (listed, first, manifest.replace(b'"samples":[0', b'"samples":[99', 1))):
        before = bucket.get(name) if f"acts/{name}" in bucket.keys() else None
        bucket.put(name, data) if data is not None else bucket.remove(name)
        outcome = daemon.cli.run("activations", "verify", bucket.url)
        assert outcome.status == "DATA_LOSS" and victim in outcome.err, outcome
        bucket.put(name, before) if before is not None else bucket.remove(name)
    daemon.cli.ok("activations", "verify", bucket.url)
    bucket.put(listed, manifest[:-3])
    for command in ("status", "verify", "merge"):
        outcome = daemon.cli.run("activations", command, bucket.url)
        assert outcome.status == "DATA_LOSS" and "host_000" in outcome.err, outcome


@pytest.mark.parametrize("scheme, conditions", [("gs", "kept"), ("s3", "kept"), ("s3", "bare")], indirect=["scheme"])
def test_units_are_claimed_once_given_back_by_time_and_done_by_their_owner(daemon, fake, bucket, conditions):
    getattr(fake, bucket.listener).conditions = conditions
    claim = lambda owner, *more: daemon.cli.json("activations", "claim", bucket.url, "--owner", owner, *more)["unit"]  # noqa: E731
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda k: [claim(f"w{k}", "--units", 12, "--lease", "1h") for _ in range(2)], range(8)))
    units = [unit for mine in got for unit in mine]
    assert sorted(unit for unit in units if unit is not None) == list(range(12)) and units.count(None) == 4
    assert claim("late", "--units", 13, "--lease", "1ms") == 12
    with ThreadPoolExecutor(4) as pool:
        thieves = list(pool.map(lambda k: claim(f"thief{k}", "--units", 13, "--lease", "1h"), range(4)))
    assert sorted(thieves, key=str) == [12, None, None, None], "a lease of no time is over, for one"
    thief = f"thief{thieves.index(12)}"
    assert daemon.cli.run("activations", "claim", bucket.url, "--owner", "late", "--done", 12).status == "FAILED_PRECONDITION"
    assert claim(thief, "--done", 12) == 12 == claim(thief, "--done", 12) and claim("x", "--units", 13) is None
    assert daemon.cli.run("activations", "claim", bucket.url, "--owner", "x", "--done", 99).status == "NOT_FOUND"
    assert json.loads(bucket.get("claims/unit_00000012"))["owner"] == thief


@pytest.mark.parametrize("scheme, how", [("gs", "ignored"), ("s3", "ignored"), ("s3", "unknown"), ("s3", "broken")], indirect=["scheme"])
def test_a_store_without_conditions_is_refused_before_anything_is_claimed_and_merged_into_all_the_same(daemon, fake, bucket, filled, how):
    getattr(fake, bucket.listener).conditions = how
    outcome = daemon.cli.run("activations", "claim", bucket.url, "--owner", "w", "--units", 2)
    if how == "broken":  # found out when something is to be replaced
        outcome = daemon.cli.run("activations", "claim", bucket.url, "--owner", "w", "--done", 0)
    assert outcome.status == "UNIMPLEMENTED" and "conditions" in outcome.err, outcome
    assert how == "broken" or not [key for key in bucket.keys() if "unit_" in key]
    for _ in range(2):
        assert daemon.cli.json("activations", "merge", bucket.url)["samples"] == 13


def test_what_works_on_folders_only_says_so(daemon, bucket, filled, tmp_path):
    outcome = daemon.cli.run("activations", "import", bucket.url, tmp_path, "--host", 1)
    assert outcome.status == "UNIMPLEMENTED" and "folders of this host" in outcome.err
    outcome = daemon.cli.run("activations", "export", filled, "--out", bucket.url)
    assert outcome.status == "UNIMPLEMENTED" and "tensorcast put" in outcome.err


def shards(folder):
    """{name of a file below it: what it holds}"""
    return {str(path.relative_to(folder)): gzip.decompress(path.read_bytes()) for path in folder.rglob("*.pkl.gz")}


def test_a_bucket_is_exported_as_its_folder_is_also_where_segments_are_there_alone(daemon, bucket, filled, tmp_path):
    daemon.cli.ok("activations", "export", filled, "--out", tmp_path / "here")
    want = shards(tmp_path / "here")
    assert len(want) == len(list(filled.rglob("*.safetensors"))) > 2
    assert daemon.cli.json("activations", "export", bucket.url, "--out", tmp_path / "there") == {"hosts": 2, "shards": len(want)}
    assert shards(tmp_path / "there") == want
    with tc.connect(daemon.socket).activation_store(f"disk:{filled}", host=0, upload=bucket.url, keep_local=False):
        pass
    assert soon(lambda: not list((filled / "host_000").glob("*.safetensors")))
    daemon.cli.ok("activations", "export", filled, "--out", tmp_path / "both")
    assert shards(tmp_path / "both") == want


def test_loads_from_a_bucket_are_compared_with_the_manifests_there(daemon, bucket, filled):
    part = "/host_007/segment_000001.safetensors"
    for place in ("", "/host_007", part):
        told = daemon.cli.json("load", bucket.url + place, "--tensor", "layer_4/sample_00000021")["verified"]
        assert (told["status"], told["by"]) == ("verified", "manifest crc32c"), (place, told)
    name = f"host_007/{json.loads(bucket.get('host_007/manifest.json'))['segments'][0]['file']}"
    raw = bytearray(bucket.get(name))
    raw[-1] ^= 1
    bucket.put(name, bytes(raw))  # with a checksum of the store's own that is right
    for place in ("", f"/{name}"):
        with pytest.raises(tc.TensorcastError, match=name.rpartition("/")[2]) as caught:
            list(tc.connect(daemon.socket).activation_store(bucket.url + place).samples())
        assert caught.value.code.name == "DATA_LOSS"


def test_a_segment_that_changed_in_its_bucket_is_not_exported(daemon, bucket, filled, tmp_path):
    name = "host_000/segment_000002.safetensors"
    raw = bytearray(bucket.get(name))
    raw[-5] ^= 1
    bucket.put(name, bytes(raw))
    outcome = daemon.cli.run("activations", "export", bucket.url, "--out", tmp_path / "out")
    assert outcome.status == "DATA_LOSS" and "host_000" in outcome.err and "segment_000002" in outcome.err
    assert not (tmp_path / "out/host_000/shard_0002.pkl.gz").exists()
    bucket.remove(name)
    outcome = daemon.cli.run("activations", "export", bucket.url, "--out", tmp_path / "again")
    assert outcome.status == "DATA_LOSS" and f"{bucket.url}/{name} is gone" in outcome.err, outcome


def test_shards_are_imported_from_a_bucket_and_one_that_is_cut_is_refused_before_anything_is(daemon, bucket, filled, models, tmp_path):
    daemon.cli.ok("activations", "export", filled, "--out", tmp_path)
    for path in (tmp_path / "host_000").iterdir():
        bucket.put(f"pickles/{path.name}", path.read_bytes())
    n = len(list((tmp_path / "host_000").glob("shard_*")))
    told = daemon.cli.json("activations", "import", models / "new", bucket.url + "/pickles/", "--host", 5)
    assert told == {"shards": n, "samples": 9, "skipped": 0}
    holds(models / "new/host_005", range(9))
    one = daemon.cli.json("activations", "import", models / "one", f"{bucket.url}/pickles/shard_0001.pkl.gz", tmp_path / "host_007", "--host", 5)
    assert one["shards"] == 1 + len(list((tmp_path / "host_007").glob("shard_*")))
    bucket.put("pickles/metadata.json", b'{"total_shards": 70}')
    assert "tells of 70 shards" in daemon.cli.ok("activations", "import", models / "new", f"{bucket.url}/pickles", "--host", 5).err
    last = f"pickles/shard_{n:04}.pkl.gz"
    bucket.put(last, bucket.get(last)[:-20])
    outcome = daemon.cli.run("activations", "import", models / "cut", f"{bucket.url}/pickles", "--host", 5)
    assert outcome.status == "DATA_LOSS" and last in outcome.err and not list((models / "cut").rglob("*.safetensors"))
    for place in (f"{bucket.url}/nothing", f"{bucket.url}/pickles/shard_0099.pkl"):
        assert daemon.cli.run("activations", "import", models / "cut", place, "--host", 5).status == "NOT_FOUND"


def test_a_place_without_a_store_or_bucket_is_said(daemon, bucket):
    for command in ("status", "verify", "merge"):
        for url in (f"{bucket.url}/nothing", bucket.url.replace("//b/", "//nowhere/")):
            outcome = daemon.cli.run("activations", command, url)
            assert outcome.status == "NOT_FOUND", outcome
    assert "manifest.json" not in str(bucket.keys())
    assert daemon.cli.run("activations", "status", bucket.url, "--timeout", "1ms").code in (1, 124)


def test_no_secret_is_in_what_is_printed(daemon, bucket, filled):
    out = daemon.cli.run("activations", "claim", bucket.url, "--owner", "w", "--units", 1)
    told = out.out + out.err + daemon.cli.run("activations", "verify", bucket.url).err
    assert not re.search("fakesecret|Signature|upload_id", told) and os.environ["AWS_SECRET_ACCESS_KEY"] not in told
