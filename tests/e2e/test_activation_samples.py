"""samples(): some segments at a time, however many there are, and whatever becomes of them while it reads."""
import json
import threading
import time

import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client import activation_samples

from activation_scene import same, sample
from stage import soon
from store_scene import settings


def fill(daemon, acts, ids, host=3, segment_bytes="1KiB", make=sample, **options):
    with tc.connect(daemon.socket).activation_store(acts, host=host, segment_bytes=segment_bytes, **options) as store:
        for i in ids:
            store.append(i, make(i))


def numbers(daemon, place, **options):
    got = list(tc.connect(daemon.socket).activation_store(place).samples(**options))
    assert all(same(layers, sample(i)) for i, layers in got)
    return [i for i, _ in got]


def writing(start, models, **options):
    return start(activations={"roots": [str(models)]}, **options)


def test_a_run_of_segments_is_an_artifact_of_a_host_and_of_a_store(start, models, acts):
    daemon = writing(start, models)
    fill(daemon, acts, range(10), host=3)
    fill(daemon, acts, range(20, 24), host=4)

    def files(place):
        return [file["name"] for file in daemon.cli.json("inspect", f"disk:{place}")["files"]]

    assert files(acts / "host_003/segment_000003-000005") == [f"segment_00000{i}.safetensors" for i in (3, 4, 5)]
    assert files(acts / "segment_000004-000009") == [*(f"host_003/segment_00000{i}.safetensors" for i in range(4, 10)),
                                                     "host_004/segment_000004.safetensors"]
    assert files(acts / "host_004/segment_000001-999999") == [f"segment_00000{i}.safetensors" for i in (1, 2, 3, 4)]
    names = tc.connect(daemon.socket).artifact(acts / "host_003/segment_000003-000005").tensor_names
    assert sorted(names) == sorted(f"layer_{layer}/sample_{i:08}" for i in (2, 3, 4) for layer in (4, 7))
    with pytest.raises(tc.TensorcastError, match="host_004 holds no segment from 5 to 6"):
        tc.connect(daemon.socket).artifact(acts / "host_004/segment_000005-000006").describe()
    for wrong in ("segment_000005-000004", "segment_000000-000004", "segment_1-4", "segment_000001-1000000", "segment_000001-000002x"):
        with pytest.raises(FileNotFoundError):
            tc.connect(daemon.socket).artifact(acts / "host_003" / wrong).describe()
    reference = f"disk:{acts}/host_003/segment_000003-000005"
    assert daemon.cli.json("inspect", reference)["artifact"] == reference
    runs = [tc.connect(daemon.socket).artifact(acts / f"host_003/segment_00000{i}-00000{i + 1}") for i in (1, 3)]
    for run in runs:
        run.prewarm(pin=True)
    assert {r["artifact"] for r in tc.connect(daemon.socket).status()["replicas"] if r["pinned"]} == {run.reference for run in runs}
    runs[0].unpin()
    assert [r["artifact"] for r in tc.connect(daemon.socket).status()["replicas"] if r["pinned"]] == [runs[1].reference]
    assert daemon.cli.ok("verify", f"disk:{acts}/host_003/segment_000003-000005")
    daemon.cli.ok("fetch", f"disk:{acts}/host_003/segment_000003-000004", models / "out", "--all")
    assert (models / "out/segment_000004.safetensors").read_bytes() == (acts / "host_003/segment_000004.safetensors").read_bytes()


@pytest.mark.parametrize("page", [{"_PAGE_SEGMENTS": 1}, {"_PAGE_SEGMENTS": 3}, {"_PAGE_ARRAYS": 5}, {"_PAGE_BYTES": 3000}, {"_BATCH_BYTES": 1}])
def test_samples_come_in_the_order_of_hosts_and_segments_some_segments_at_a_time(start, models, acts, monkeypatch, page):
    daemon = writing(start, models)
    ids = {11: [7, 3, *range(30, 40)], 2: range(100, 111), 5: [1]}
    for host, own in ids.items():
        fill(daemon, acts, own, host=host)
    for name, value in page.items():
        monkeypatch.setattr(activation_samples, name, value)
    assert numbers(daemon, acts) == [i for host in sorted(ids) for i in ids[host]]
    assert numbers(daemon, acts / "host_011") == ids[11]


@pytest.mark.plain
def test_a_store_of_more_segments_than_descriptors_allow_is_read_and_holds_none_up(start, models, acts, monkeypatch):
    monkeypatch.setattr(activation_samples, "_PAGE_SEGMENTS", 16)
    daemon = writing(start, models, limits={"nofile": (320, 320)})
    fill(daemon, acts, range(100))
    assert len(list(acts.glob("*/*.safetensors"))) == 100
    with pytest.raises(tc.TensorcastError, match="read some at a time, as .*/acts/segment_000001-000100: .*descriptors"):
        tc.connect(daemon.socket).artifact(acts).describe()
    for place in (acts, acts / "host_003"):
        n = 0
        for i, layers in tc.connect(daemon.socket).activation_store(place).samples():
            assert i == n and same(layers, sample(i))
            n += 1
        assert n == 100


def test_a_sample_of_two_hosts_is_told_and_layers_of_one_may_lie_apart(start, models, acts):
    daemon = writing(start, models)
    parts = {1: {4: np.ones(3)}, 2: {7: np.ones(3)}}
    for host, layers in parts.items():
        fill(daemon, acts, [5], host=host, make=lambda i, layers=layers: layers)
    got = list(tc.connect(daemon.socket).activation_store(acts).samples())
    assert [(i, list(layers)) for i, layers in got] == [(5, [4]), (5, [7])]
    fill(daemon, acts, [5], host=9, make=lambda i: {4: np.ones(3)})
    with pytest.raises(tc.TensorcastError, match="layer_4/sample_00000005 of .*host_009/segment_000001") as caught:
        list(tc.connect(daemon.socket).activation_store(acts).samples())
    assert caught.value.reason == "DUPLICATE_TENSOR"


def test_a_host_whose_manifest_is_larger_than_64_mib_is_read(start, models, acts):
    daemon = writing(start, models)
    fill(daemon, acts, range(40))
    path = acts / "host_003/manifest.json"
    manifest = json.loads(path.read_text())
    for segment in manifest["segments"]:
        segment["info"] = {"0": {"note": "ü" * (1 << 20)}}
    path.write_text(json.dumps(manifest, ensure_ascii=False))
    assert path.stat().st_size > 65 << 20
    assert numbers(daemon, acts) == list(range(40))
    path.write_text(path.read_text()[:-1])
    with pytest.raises(tc.TensorcastError, match="manifest.json is damaged") as caught:
        numbers(daemon, acts)
    assert caught.value.reason == "BAD_MANIFEST"


def test_what_is_no_store_is_told(start, models, acts):
    daemon = writing(start, models)
    acts.mkdir()
    for place in (acts, models / "none", models / "none/host_003"):
        with pytest.raises(FileNotFoundError):
            numbers(daemon, place)
    fill(daemon, models / "real", range(3))
    (models / "real/host_003").rename(models / "of_another_name")
    assert numbers(daemon, models / "of_another_name") == [0, 1, 2]
    (models / "of_another_name/manifest.json").unlink()
    (models / "of_another_name/segment_000001.safetensors").rename(acts / "a.safetensors")
    with pytest.raises(ValueError, match="no activation store"):
        numbers(daemon, acts)


@pytest.mark.parametrize("keep_local", [True, False])
def test_a_reader_that_chases_a_writer_asks_for_each_segment_a_few_times(start, models, acts, fake, bare, aws_keys, keep_local):
    """It looked at every segment again whenever one of them went to the bucket: what it cost grew with the square of their number."""
    fake.world.bucket("gcs", "b")
    daemon = start(sources={"disk": {"trusted_roots": [str(models)]}, **settings(fake, http={"max_tries": 1})}, activations={"roots": [str(models)]})
    ended, failed = threading.Event(), []

    def write():
        try:
            with tc.connect(daemon.socket).activation_store(acts, host=3, upload="gs://b/acts", segment_bytes="4KiB", keep_local=keep_local) as store:
                for i in range(400):
                    store.append(i, sample(i))
                    time.sleep(0.002)
        except Exception as error:
            failed.append(error)
        finally:
            ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert soon(lambda: (acts / "host_003/manifest.json").exists())
    while True:
        is_last, before = ended.is_set(), len(reads(fake))
        got = numbers(daemon, acts)
        n_asked, n_segments = len(reads(fake)) - before, len(told(acts))
        assert got == [*range(len(got))]
        assert n_asked <= 10 * n_segments + 20
        if is_last:
            break
    writer.join()
    assert not failed and len(got) == 400


def test_segments_that_are_sealed_while_a_reader_looks_are_not_called_lost(start, models, acts, monkeypatch):
    """A writer may seal segments faster than a busy reader looks: between the folder's list and the manifest there is always one more."""
    daemon = writing(start, models)
    with tc.connect(daemon.socket).activation_store(acts, host=3, segment_bytes="1KiB") as store:
        manifest, sealed = activation_samples.manifest_of, 0
        store.append(0, sample(0))

        def seal_one():  # by the next sample, which does not fit
            nonlocal sealed
            sealed += 1
            store.append(sealed, sample(sealed))
            assert soon(lambda: (acts / f"host_003/segment_{sealed:06}.safetensors").exists())

        def between(client, folder, *more):
            seal_one()
            told = manifest(client, folder, *more)
            seal_one()
            return told

        seal_one()
        monkeypatch.setattr(activation_samples, "manifest_of", between)
        assert numbers(daemon, acts) == [0, 1, 2]  # the manifest of two segments, the list of three, the manifest of four
        assert sealed == 5
    monkeypatch.undo()
    assert numbers(daemon, acts) == [0, 1, 2, 3, 4, 5]


def reads(fake):
    return [e for e in fake.requests("gcs") if e["method"] == "GET" and "segment" in str(e)]


def told(acts):
    return json.loads((acts / "host_003/manifest.json").read_text())["segments"]
