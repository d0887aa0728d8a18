"""Activation stores: appended through shared memory, committed, sealed, read back; and killed at every moment."""
import errno
import json
import os
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client import activation_samples, activation_writer, host_region, region
from tensorcast_client.activation_messages import SERVICE, AppendActivationsRequest, OpenActivationsRequest
from tensorcast_client.load import Clock

from activation_scene import holds, same, sample, stored
from activation_steps import Stops, Writer
from stage import soon


@pytest.fixture
def daemon(start, models):
    return start(activations={"roots": [str(models)]})


@pytest.fixture
def client(daemon):
    return tc.connect(daemon.socket)


def fill(client, acts, ids, host=3, make=sample, **options):
    with client.activation_store(f"disk:{acts}", host=host, **options) as store:
        for i in ids:
            store.append(i, make(i), info={"n": i})


def test_samples_of_several_hosts_are_one_artifact_and_come_back_in_order(client, daemon, acts):
    fill(client, acts, range(30), host=0, segment_bytes="8KiB")
    fill(client, acts, range(100, 110), host=1)
    holds(acts / "host_000", range(30))
    names = {t["name"] for t in daemon.cli.json("inspect", f"disk:{acts}")["tensors"]}
    assert names == {f"layer_{layer}/sample_{i:08}" for i in [*range(30), *range(100, 110)] for layer in (4, 7)}
    got = list(client.activation_store(str(acts)).samples())
    assert [i for i, _ in got] == [*range(30), *range(100, 110)] and all(same(layers, sample(i)) for i, layers in got)
    assert all(list(layers) == [7] for _, layers in client.activation_store(str(acts)).samples(layers=[7]))


@pytest.mark.parametrize("memory_bytes", [4096, 8192, 40960])
def test_a_sample_larger_than_the_shared_memory_goes_through_it_in_parts(client, acts, monkeypatch, memory_bytes):
    """Small ones by the page cache; large ones past it, and answered before they are written."""
    torch = pytest.importorskip("torch")
    original = activation_writer.ActivationWriter.__init__
    monkeypatch.setattr(activation_writer.ActivationWriter, "__init__", lambda self, *a: original(self, *a[:-1], memory_bytes))

    def large(i):
        dice, rows = np.random.default_rng(i), 700 + i % 3
        whole = dice.integers(0, 1 << 30, (rows, 100), np.int32)
        return {1: dice.standard_normal((rows, 9)).T, 2: np.arange(5000, dtype=np.int16), 3: np.zeros((0, 3), np.int8), 4: whole,
                5: torch.from_numpy(whole)[::2, ::3], 6: whole.astype(">f4"), 7: np.arange(i, dtype=np.int8), 8: np.float64(i)}

    def native(i):
        return {layer: np.asarray(array).astype(np.asarray(array).dtype.newbyteorder("=")) for layer, array in large(i).items()}

    n = 2 if memory_bytes == 4096 else 5  # each of many requests, and of two segments
    fill(client, acts, range(n), make=large, segment_bytes="1800KiB")
    found = stored(acts / "host_003")
    assert all(same(found[i], native(i)) for i in range(n))


def test_a_write_that_fails_after_its_append_fails_all_that_follows_and_keeps_what_was_durable(start, models, acts, tmp_path):
    stops = Stops(tmp_path)
    daemon = start(running=False, activations={"roots": [str(models)]}).start(environment=stops.environment)

    def make(i):
        return {1: np.full(1 << 20, i, np.uint8)}

    store = tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3)
    for i in range(2):
        store.append(i, make(i))
    store.commit()
    stops.at(("pwrite", ".open"), -errno.EIO, 1)
    with pytest.raises(tc.TensorcastError, match="sample [2-5] was not written") as caught:
        for i in range(2, 30):
            store.append(i, make(i))
    for ask in (lambda: store.append(50, make(0)), store.commit, store.close):
        with pytest.raises(tc.TensorcastError) as again:
            ask()
        assert str(again.value) == str(caught.value)
    stops.off()
    with tc.connect(daemon.socket).activation_store(f"disk:{acts}", host=3) as store:
        first = store.resume["last_sample"] + 1
        assert first >= 2
        for i in range(first, 8):
            store.append(i, make(i))
    holds(acts / "host_003", range(8), make)


def test_narrowed_floats_come_back_as_they_were_and_are_marked_in_the_file(client, acts):
    def make(i):
        upper = np.random.default_rng(i).integers(0, 1 << 16, (6, 5), np.uint32)
        return {1: (upper << np.uint32(16)).view(np.float32), 2: np.random.default_rng(i).standard_normal((6, 5), np.float32)}

    fill(client, acts, range(4), make=make, narrow="auto")
    found = stored(acts / "host_003")
    assert found[0][1].dtype == ml_dtypes.bfloat16 and found[0][2].dtype == np.float32
    assert all(same(layers, make(i)) for i, layers in client.activation_store(str(acts)).samples())
    (acts / "host_003/manifest.json").unlink()  # the marks are in the segments, too
    fill(client, acts, [9], make=make)
    assert all(same(layers, make(i)) for i, layers in client.activation_store(str(acts)).samples())


def test_one_host_has_one_writer_and_is_free_when_that_dies(client, daemon, acts):
    with client.activation_store(f"disk:{acts}", host=3) as first:
        first.append(1, sample(1))
        with pytest.raises(tc.TensorcastError, match="host 3") as caught:
            client.activation_store(f"disk:{acts}", host=3)
        assert caught.value.reason == "WRITER_EXISTS"
    process = Writer(daemon.socket, f"disk:{acts}")
    assert soon(lambda: process.read(0.01) and process.last["committed"] > 0)
    last = process.kill()["committed"]
    began = time.monotonic()
    with client.activation_store(f"disk:{acts}", host=3) as store:
        assert time.monotonic() - began < 60 and store.resume["last_sample"] >= last
    found = stored(acts / "host_003")
    assert sorted(found) == list(range(1, store.resume["last_sample"] + 1))


def test_a_stopped_daemon_seals_what_was_appended(client, daemon, acts):
    store = client.activation_store(f"disk:{acts}", host=3)
    for i in range(5):
        store.append(i, sample(i))
    assert daemon.stop() == 0
    holds(acts / "host_003", range(5))
    with pytest.raises(tc.TensorcastError):
        store.close()


def large(i):
    return {1: np.full((128, 128), i, np.float32)}


@pytest.mark.parametrize("gone", ["host_001", "."])  # a host's folder, a whole store
def test_a_sample_that_waits_for_room_gets_that_of_folders_that_are_removed(start, models, acts, gone):
    daemon = start(activations={"roots": [str(models)], "disk_quota": "512KiB", "quota_timeout": "60s"})
    client, old = tc.connect(daemon.socket), models / "old"
    fill(client, old, range(5), host=1, make=large)
    fill(client, old, range(5, 6), host=2, make=large)
    with client.activation_store(acts, host=3) as store, ThreadPoolExecutor(1) as pool:
        store.append(0, large(0))
        waiting = pool.submit(store.append, 1, large(1))
        with pytest.raises(TimeoutError):
            waiting.result(timeout=.5)
        shutil.rmtree(old / gone)
        waiting.result(timeout=50)
        store.append(2, large(2))
    holds(acts / "host_003", range(3), large)
    if gone == "host_001":
        holds(old / "host_002", [5], large)
        with client.activation_store(old, host=1) as store:  # another one
            assert store.resume["samples"] == 0
            store.append(0, large(0))


@pytest.mark.parametrize("count, segment_bytes", [(16384, "1GiB"), (100, "1GiB"), (16384, "128KiB")])
def test_a_quota_holds_and_is_used_and_a_sample_beyond_it_waits_and_is_refused(start, models, acts, count, segment_bytes):
    """The header of a segment of 1 GiB has room for samples that the quota has not."""
    daemon = start(activations={"roots": [str(models)], "disk_quota": "1MiB", "quota_timeout": "100ms"})
    make, n = lambda i: {1: np.full(count, i, np.float32)}, 0
    with tc.connect(daemon.socket).activation_store(acts, host=3, segment_bytes=segment_bytes) as store:
        with pytest.raises(tc.TensorcastError, match="disk_quota") as caught:
            while True:
                store.append(n, make(n))
                n += 1
        assert caught.value.code.name == "RESOURCE_EXHAUSTED"
        assert sum(path.stat().st_blocks * 512 for path in acts.rglob("*")) <= 1 << 20
    assert n * count * 4 > (600 << 10 if count > 1000 else 200 << 10), n
    holds(acts / "host_003", range(n), make)


@pytest.mark.parametrize("kind, rows, segment_bytes", [("tmpfs", 128, "256KiB"), ("tmpfs", 700, "2MiB"), ("ext4", 700, "2MiB"),
                                                       ("tmpfs", 128, "1GiB")])
def test_a_full_disk_refuses_the_sample_and_keeps_what_was_there(start, models, kind, rows, segment_bytes):
    """Large samples are answered before they are written: that their room is taken is what the answer waits for."""
    def make(i):
        return {1: np.full((rows, 128), i, np.float32)}

    size = 16 * rows * 512
    disk = models / "disk"
    disk.mkdir()
    if kind == "tmpfs":
        assert os.system(f"mount -t tmpfs -o size={size} tensorcast {disk}") == 0
    elif os.system(f"truncate -s {size + (4 << 20)} {models}/img && mkfs.ext4 -q -F {models}/img && mount -o loop {models}/img {disk}"):
        pytest.skip("an ext4 behind a loop device cannot be mounted here")
    try:
        daemon = start(activations={"roots": [str(disk)]})
        n = 0
        with tc.connect(daemon.socket).activation_store(f"disk:{disk}/acts", host=3, segment_bytes=segment_bytes) as store:
            with pytest.raises(tc.TensorcastError) as caught:
                for n in range(40):
                    store.append(n, make(n))
            assert caught.value.code.name == "RESOURCE_EXHAUSTED" and n > 7
            store.commit()
            store.append(99, {1: np.zeros(3, np.float32)})
        found = stored(disk / "acts/host_003")
        assert sorted(found) == [*range(n), 99] and all(same(found[i], make(i)) for i in range(n))
        daemon.stop()
    finally:
        os.system(f"umount {disk}")


def opened(client, acts, **values):
    """(answer, connection, memory) of an Open as no library asks it."""
    memory = host_region.HostRegion(values.pop("memory_bytes", 4096))
    peer, token = region.offered(client, region.of_host(memory.fd, len(memory)), Clock(60))
    values = {"store": f"disk:{acts}", "host": 3, "memory": token, **values}
    return client.channel.call(f"{SERVICE}/Open", OpenActivationsRequest.encode(**values), 10), peer, memory


@pytest.mark.parametrize("values", [{"host": 100_000}, {"store": "disk:rel"}, {"store": "gs://b/a"}, {"store": "disk:/../etc"},
                                    {"segment_bytes": 1023}, {"segment_bytes": (1 << 44) + 1}, {"memory": b"x" * 32}, {"memory": b""},
                                    {"memory_bytes": (4 << 30) + 4096}])
def test_what_makes_no_sense_is_refused_and_harms_no_client(client, acts, values):
    with pytest.raises(tc.TensorcastError) as caught:
        opened(client, acts, **values)
    assert caught.value.code.name == ("ABORTED" if "memory" in values else "INVALID_ARGUMENT")
    fill(client, acts, [1])
    holds(acts / "host_003", [1])


def test_parts_that_do_not_fit_together_are_refused_and_the_next_sample_is_taken(client, acts):
    answer, peer, memory = opened(client, acts)
    identity = activation_writer.OpenActivationsResponse.decode(answer).writer
    good = {"writer": identity, "sample": 1, "layers": [1], "dtypes": [18], "ranks": [1], "dims": [1024], "bytes": 4096}

    def ask(**values):
        return client.channel.call(f"{SERVICE}/Append", AppendActivationsRequest.encode(**{**good, **values}), 10)

    wrong = [{"bytes": 4097}, {"bytes": 0}, {"memory_offset": 1}, {"offset": 8, "bytes": 8}, {"dims": [1025, 1]}, {"ranks": [2]},
             {"dtypes": [0]}, {"dtypes": [99]}, {"layers": [1, 2]}, {"narrowed": [1]}, {"narrowed": [0]}, {"info": "x"}, {"layers": []},
             {"dims": [1 << 62]}, {"ranks": [65], "dims": [1] * 65}, {"sample": 100_000_000}]
    for values in wrong:
        with pytest.raises(tc.InvalidRequestError):
            ask(**values)
    ask(dims=[2048])
    with pytest.raises(tc.InvalidRequestError):
        ask(offset=4096, bytes=4097)
    with pytest.raises(tc.TensorcastError) as caught:
        ask(writer=b"y" * 16)
    assert caught.value.reason == "WRITER_GONE"
    memory.array(np.uint8, (4096,))[:] = 7
    ask()
    peer.close()
    assert soon(lambda: (acts / "host_003/manifest.json").exists())
    assert stored(acts / "host_003")[1][1].tobytes() == b"\7" * 4096


def test_a_client_that_takes_pages_away_harms_no_other(client, daemon, acts):
    answer, peer, memory = opened(client, acts, memory_bytes=1 << 20)
    identity = activation_writer.OpenActivationsResponse.decode(answer).writer
    fallocate = __import__("ctypes").CDLL(None, use_errno=True).fallocate
    for i in range(20):
        memory.array(np.uint8, (1 << 20,))[:] = i + 1
        assert fallocate(memory.fd, 3, 0, __import__("ctypes").c_long(1 << 19)) == 0
        client.channel.call(f"{SERVICE}/Append", AppendActivationsRequest.encode(
            writer=identity, sample=i, layers=[1], dtypes=[5], ranks=[1], dims=[1 << 20], bytes=1 << 20), 10)
    peer.close()
    assert soon(lambda: (acts / "host_003/manifest.json").exists() and len(stored(acts / "host_003")) == 20)
    assert daemon.process.poll() is None


def test_a_hung_up_child_does_not_keep_the_folder(client, acts):
    store = client.activation_store(f"disk:{acts}", host=3)
    store.append(1, sample(1))
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        store.close()
        fill(client, acts, [2])
        holds(acts / "host_003", [1, 2])
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_arrays_without_elements_belong_to_their_samples(client, daemon, acts):
    """They lie where the next one does, so their order in the file is not that of offsets."""
    empty, full = np.zeros((0, 5), np.float32), np.ones(3, np.float32)
    samples = [{1: full, 2: empty}, {1: empty, 2: full}, {4: empty}, {3: empty, 2: empty, 5: empty.astype(np.int8)}, {1: empty}, {2: full, 9: empty}]
    numbers = [40, 7, 30, 2, 25, 1]
    with client.activation_store(acts, host=3) as store:
        for number, layers in zip(numbers, samples):
            store.append(number, layers)
    daemon.cli.ok("activations", "verify", acts)
    manifest = (acts / "host_003/manifest.json").read_bytes()
    got = list(client.activation_store(acts).samples())
    assert [number for number, _ in got] == numbers
    assert all(same(layers, dict(zip(numbers, samples))[number]) for number, layers in got)
    (acts / "host_003/manifest.json").unlink()
    client.activation_store(acts, host=3).close()  # makes it anew
    assert (acts / "host_003/manifest.json").read_bytes() == manifest


def test_a_store_is_read_while_it_is_appended_to_and_its_segments_are_sealed(client, acts):
    ended, failed, most = threading.Event(), [], 0

    def append():
        try:
            with client.activation_store(acts, host=3, segment_bytes="1KiB") as store:
                for i in range(80):
                    store.append(i, sample(i))
        except Exception as error:
            failed.append(error)
        finally:
            ended.set()

    writer = threading.Thread(target=append)
    writer.start()
    assert soon(lambda: (acts / "host_003/manifest.json").exists())
    is_last = False
    while not is_last:
        is_last = ended.is_set()
        numbers = [number for number, _ in client.activation_store(acts).samples()]
        assert numbers == list(range(len(numbers))) and len(numbers) >= most
        most = len(numbers)
    writer.join()
    assert not failed and most == 80


def test_what_is_removed_while_it_is_written_is_not_called_durable(client, acts):
    store = client.activation_store(acts, host=3)
    store.append(1, sample(1))
    store.commit()
    shutil.rmtree(acts)
    store.append(2, sample(2))
    for call in (store.commit, store.close):
        with pytest.raises(tc.TensorcastError, match="segment_000001.open was removed") as caught:
            call()
        assert caught.value.reason == "SEGMENT_GONE"
    fill(client, acts, [1])
    holds(acts / "host_003", [1])


def told_by_child(call):
    """What a forked child's call raises, as text; "" when it returns."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            call()
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        told = said.read()
    os.waitpid(child, 0)
    return told


def test_a_forked_child_neither_appends_to_its_parents_writer_nor_closes_it(client, acts):
    with client.activation_store(acts, host=3) as store:
        store.append(1, sample(1))
        for call in (lambda: store.append(2, sample(2)), store.commit):
            assert re.match("InvalidRequestError: .*forked", told_by_child(call))
        for call in (store.close, lambda: store.__exit__(SystemExit, SystemExit(), None)):
            assert told_by_child(call) == ""
        store.append(3, sample(3))
    holds(acts / "host_003", [1, 3])


def test_threads_take_turns_and_when_the_store_is_closed_are_told_so_and_what_they_appended_is_there(client, acts):
    store, appended, errors = client.activation_store(acts, host=3), [], []

    def append(first):
        try:
            for i in range(first, first + 100_000):
                store.append(i, sample(i % 3))
                appended.append(i)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=append, args=(k * 100_000,)) for k in range(4)]
    for thread in threads:
        thread.start()
    assert soon(lambda: len(appended) > 50)
    store.close()
    for thread in threads:
        thread.join()
    assert len(errors) == 4 and all(error.reason == "NOT_A_WRITER" for error in errors), errors
    holds(acts / "host_003", appended, lambda i: sample(i % 3))


def test_a_store_is_named_as_every_reference_is(client, models, acts, monkeypatch):
    monkeypatch.chdir(models)
    for i, place in enumerate((acts, f"{acts}/", "./acts", f"file://{acts}", f"disk:{acts}")):
        with client.activation_store(place, host=4) as store:
            store.append(i, sample(i))
        assert [n for n, _ in client.activation_store(place).samples() if n == i]
    with pytest.raises(ValueError, match="hf"):
        client.activation_store("hf://a/b", host=1)


def test_samples_that_did_not_fit_beside_those_before_are_read_when_these_are_gone(start, models, acts, monkeypatch):
    monkeypatch.setattr(activation_samples, "_BATCH_BYTES", 1)  # one at a time
    daemon = start(memory={"host_budget": "25MiB"}, activations={"roots": [str(models)]})
    make = lambda i: {1: np.full((10, 1 << 18), i, np.float32)}  # noqa: E731  10 MiB
    fill(tc.connect(daemon.socket), acts, range(4), make=make)
    held, numbers = [], []
    for i, layers in tc.connect(daemon.socket).activation_store(acts).samples():
        held.append(layers)  # two, while the third is being read
        assert (layers[1][:, ::4096] == i).all()
        time.sleep(0.3)
        del held[:-1]
        numbers.append(i)
    assert numbers == [*range(4)]


def test_a_store_whose_hosts_have_sealed_nothing_has_no_samples(client, models, acts):
    client.activation_store(acts, host=3).close()
    assert list(client.activation_store(acts).samples()) == []
    with pytest.raises(FileNotFoundError):
        list(client.activation_store(models / "none").samples())


@pytest.mark.parametrize("options", [{"segment_bytes": "0"}, {"segment_bytes": 0}, {"segment_bytes": "much"}, {"narrow": "yes"}, {"host": -1},
                                     {"host": 100_000}, {"host": "3"}, {"keep_local": False}, {"segment_bytes": 1 << 70}, {"upload": 5}])
def test_options_that_make_no_sense_are_value_errors(client, acts, options):
    with pytest.raises(ValueError):
        client.activation_store(acts, **{"host": 3, **options})


def test_a_text_that_is_no_utf_8_is_refused_and_the_next_sample_is_taken(client, acts):
    with client.activation_store(acts, host=3) as store:
        with pytest.raises(tc.InvalidRequestError, match="sample 1"):
            store.append(1, sample(1), info={"text": "\ud800"})
        with pytest.raises(tc.InvalidRequestError, match="sample 1.* nested too deeply"):
            store.append(1, sample(1), info={"text": json.loads("[" * 200 + "]" * 200)})
        store.append(1, sample(1), info={"text": "\u00e4\u202e"})
    holds(acts / "host_003", [1])


def test_a_with_that_cannot_commit_lets_go_of_the_host(start, models, acts, tmp_path):
    stops = Stops(tmp_path)
    daemon = start(running=False, activations={"roots": [str(models)]}).start(environment=stops.environment)
    client = tc.connect(daemon.socket)
    with pytest.raises(tc.TensorcastError, match="segment_000001"):
        with client.activation_store(acts, host=3) as store:
            store.append(1, sample(1))
            stops.at(("fdatasync", ".open"), -errno.EIO)
    stops.off()
    fill(client, acts, [2])
    assert 2 in stored(acts / "host_003")


def test_after_an_interrupt_no_byte_is_changed_that_the_daemon_may_still_read(client, acts, monkeypatch):
    store = client.activation_store(acts, host=3)
    ask = activation_writer.ActivationWriter._ask

    def interrupted(*args):
        ask(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(activation_writer.ActivationWriter, "_ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.append(1, large(1))
    monkeypatch.undo()
    with pytest.raises(tc.TensorcastError, match="sample 1") as caught:
        store.append(2, large(2))
    assert caught.value.reason == "APPEND_INTERRUPTED"
    store.close()
    with client.activation_store(acts, host=3) as store:
        assert store.resume["last_sample"] == 1
        store.append(2, large(2))
    holds(acts / "host_003", [1, 2], large)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "tensorcast-activations", "version": 1, "segments": [1]}',
                                  '{"format": "tensorcast-activations", "version": 1, "segments": [{"file": 1, "bytes": 2}]}',
                                  '{"format": "tensorcast-activations", "segments": [{"file": "a", "bytes": 2, "local": false}]}'])
def test_a_damaged_manifest_is_data_loss_that_names_it(client, acts, text):
    fill(client, acts, [1])
    (acts / "host_003/manifest.json").write_text(text)
    with pytest.raises(tc.TensorcastError, match="host_003/manifest.json is damaged") as caught:
        list(client.activation_store(acts).samples())
    assert caught.value.code.name == "DATA_LOSS"


@pytest.mark.parametrize("n", [1, 2])
def test_samples_of_a_segment_that_is_gone_are_not_left_out_in_silence(client, acts, n):
    for i in range(n):
        fill(client, acts, [i])
    (acts / "host_003/segment_000001.safetensors").unlink()
    with pytest.raises(tc.TensorcastError, match="host_003/segment_000001.safetensors is gone"):
        list(client.activation_store(acts).samples())
    with pytest.raises(tc.TensorcastError, match="segment_000001"):
        list(client.activation_store(acts / "host_003").samples())
