"""The names of the safetensors package, served: against the official package slice by slice, and its own tests run on ours."""
import contextlib
import copy
import gc
import importlib.util
import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from stage import ROOT, MiB, soon
from test_safetensors_run import run
import tensorcast_client as tc
from tensorcast_client import view as view_module
from tensorcast_client.safetensors import SafetensorError, read_ahead, safe_open
from tensorcast_client.safetensors import opened as opened_module
from tensorcast_client.safetensors import official as originals
from tensorcast_client.safetensors.numpy import load_file

official = safetensors.safe_open
ACCIDENTS = (OverflowError, SystemError, MemoryError)  # where the official package stumbles


@pytest.fixture
def served(daemon, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", str(daemon.socket))
    monkeypatch.setenv("TENSORCAST_REQUIRED", "1")
    read_ahead._habits.clear()
    return daemon


def save(path, arrays, metadata=None):
    safetensors.numpy.save_file(arrays, path, metadata)
    return arrays


def by_hand(path, **tensors):
    """{name: (dtype, shape, bytes)}, also what no writer would write."""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    return path


def many(path, n=1000, n_bytes=32 << 10):
    return save(path, {f"layers.{i}.w": np.full(n_bytes, i % 251, np.uint8) for i in range(n)})


def outcome(call):
    try:
        value = call()
    except Exception as error:  # noqa: BLE001
        return error, None
    array = np.asarray(value)
    return None, (type(value), str(array.dtype), array.shape, array.tobytes())


def alike(mine, theirs, what):
    (error, got), (wanted_error, wanted) = outcome(mine), outcome(theirs)
    if isinstance(wanted_error, ACCIDENTS):
        return
    assert got == wanted and isinstance(error, type(wanted_error)), (what, error, wanted_error)


def random_index(rng, shape):
    def some(extent):  # no stop before the start, of which the official package panics
        start, stop = rng.choice([None, *range(extent + 2)]), rng.choice([None, *range(extent + 2)])
        return slice(start, stop if stop is None or stop >= (start or 0) else None, rng.choice([None, 1, 2, 3]))

    parts = [rng.choice([some(extent), rng.randrange(-extent - 1, extent + 1)]) for extent in shape]
    parts = parts[:rng.randrange(len(parts) + 1)]
    if rng.random() < 0.3:
        parts.insert(rng.randrange(len(parts) + 1), ...)
    return parts[0] if len(parts) == 1 and rng.random() < 0.5 else tuple(parts)


@pytest.mark.parametrize("framework", ["np", "pt"])
def test_random_slices_are_those_of_the_official_package(served, models, framework):
    if framework == "pt":
        pytest.importorskip("torch", reason="torch was left out of this environment")
    rng, path = random.Random(framework), models / "x.safetensors"
    arrays = save(path, {"v": np.arange(7, dtype=np.int16), "m": np.arange(30, dtype=np.float32).reshape(5, 6),
                         "c": np.arange(120, dtype=np.float64).reshape(4, 5, 6), "s": np.array(3, np.int64)})
    mine, theirs = safe_open(path, framework), official(path, framework)
    for _ in range(150):
        name = rng.choice(list(arrays))
        index = random_index(rng, arrays[name].shape)
        alike(lambda: mine.get_slice(name)[index], lambda: theirs.get_slice(name)[index], (name, index))


def test_a_thousand_tensors_one_by_one_are_a_few_loads(served, models):
    path = models / "x.safetensors"
    arrays = many(path)
    asked = served.bytes_asked()
    with safe_open(path, "np") as file:
        held = {name: file.get_tensor(name) for name in file.keys()[:500]}
        leases, read = served.status()["leases"], served.bytes_asked() - asked
    assert leases <= 50 and 500 * (32 << 10) <= read <= 600 * (32 << 10)
    assert all(array.tobytes() == arrays[name].tobytes() for name, array in held.items())


def test_who_opens_a_file_for_each_tensor_reads_nothing_else(served, models):
    arrays, before = many(models / "f.safetensors", n=50), served.bytes_asked()
    for name in arrays:
        with safe_open(models / "f.safetensors", "np") as file:
            assert file.get_tensor(name).tobytes() == arrays[name].tobytes()
    assert served.bytes_asked() - before <= sum(array.nbytes for array in arrays.values()) + MiB // 4  # headers


def test_slices_are_never_read_ahead_of_and_their_leases_have_a_bound(served, models):
    path = models / "x.safetensors"
    many(path, n=200, n_bytes=64 << 10)
    asked = served.bytes_asked()
    with safe_open(path, "np") as file:
        held = [file.get_slice(name)[:32 << 10] for name in file.keys()]
    assert served.bytes_asked() - asked <= 200 * (32 << 10) + (1 << 20)
    assert served.status()["leases"] <= 66 and len(held) == 200


def test_a_file_that_is_in_memory_is_taken_whole_and_not_read(served, models):
    path = models / "x.safetensors"
    arrays = many(path, n=300)
    kept = load_file(path)
    asked = served.bytes_asked()
    with safe_open(path, "np") as file:
        held = {name: file.get_slice(name)[:20 << 10] for name in file.keys()}
        assert served.status()["leases"] == 2 and served.bytes_asked() - asked < 1 << 20
        again = file.get_tensor("layers.7.w")
        again[:] = 0
        assert file.get_tensor("layers.7.w").tobytes() == arrays["layers.7.w"].tobytes()
    assert held["layers.7.w"].tobytes() == arrays["layers.7.w"][:20 << 10].tobytes() and len(kept) == 300


def test_a_file_that_was_replaced_gives_its_bytes_or_an_error(served, models):
    path = models / "x.safetensors"
    old = save(path, {"w": np.arange(40000, dtype=np.float32), "x": np.ones(9000)})["w"]
    file = safe_open(path, "np")
    part = file.get_slice("w")
    for other in ({"w": np.zeros(40000, np.float32), "x": np.ones(9000)}, {"y": np.zeros(5)}):
        save(models / "next", other)
        os.replace(models / "next", path)
        for call in (lambda: part[:20000], lambda: file.get_tensor("w")[:20000]):
            with contextlib.suppress(SafetensorError):
                assert call().tobytes() == old[:20000].tobytes()


def test_a_daemon_that_ends_in_the_middle_of_a_file_is_warned_of_once(start, models, monkeypatch):
    daemon, path = start(), models / "x.safetensors"
    arrays = many(path, n=20)
    monkeypatch.setenv("TENSORCAST_SOCKET", str(daemon.socket))
    monkeypatch.setattr(tc.safetensors.fallback, "_said", set())
    file, gone = safe_open(path, "np"), safe_open(path, "np")
    first, part = file.get_tensor("layers.0.w"), file.get_slice("layers.3.w")
    refused = safe_open(f"disk:{path}", "np")
    daemon.kill()
    with pytest.warns(tc.TensorcastFallbackWarning, match="no daemon answers") as said:
        for name in list(arrays):
            assert file.get_tensor(name).tobytes() == arrays[name].tobytes()
        assert part[5:9].tobytes() == arrays["layers.3.w"][5:9].tobytes() and first[0] == 0
        assert load_file(path)["layers.1.w"].tobytes() == arrays["layers.1.w"].tobytes()
    assert len(said) == 1 and said[0].filename == __file__
    with pytest.raises(tc.TensorcastError, match="UNAVAILABLE"):
        refused.get_tensor("layers.0.w")
    save(models / "next", {"layers.0.w": np.zeros(5)})
    os.replace(models / "next", path)
    assert gone.get_tensor("layers.0.w").tobytes() == arrays["layers.0.w"].tobytes(), "of the file as it was opened"


HAPPENS = {"removed": os.unlink, "moved": lambda path: os.rename(path.parent, f"{path.parent}-moved"),
           "replaced": lambda path: os.replace(save_beside(path), path),
           "written to": lambda path: path.write_bytes(path.read_bytes()[:-5] + b"other")}


def save_beside(path):
    save(path.parent / "next", {"w": np.zeros(50_000, np.uint8), "x": np.ones(9)})
    return path.parent / "next"


@pytest.mark.parametrize("what", HAPPENS)
@pytest.mark.parametrize("asked", ["before", "after"])
def test_an_open_file_is_the_file_that_was_opened_whatever_becomes_of_its_name(served, models, monkeypatch, what, asked):
    (models / "m").mkdir()
    path = models / "m" / "x.safetensors"
    arrays = save(path, {"w": np.arange(50_000) % 251, "x": np.full(60_000, 7)})
    monkeypatch.setattr(tc.safetensors.fallback, "_said", set())
    strict, file = safe_open(path, "np"), safe_open(path, "np")
    part, descriptors = file.get_slice("x"), len(os.listdir("/proc/self/fd"))
    if asked == "before":
        strict.get_tensor("w"), file.get_tensor("w")
    HAPPENS[what](path)
    with pytest.raises(SafetensorError, match="replaced or removed"):
        strict.get_tensor("x")
    monkeypatch.delenv("TENSORCAST_REQUIRED")
    if what == "written to":
        with pytest.raises(SafetensorError, match="replaced or removed"):
            file.get_tensor("x")
    else:
        with pytest.warns(tc.TensorcastFallbackWarning) as said:
            assert all(file.get_tensor(name).tobytes() == array.tobytes() for name, array in arrays.items())
            assert part[3:9].tobytes() == arrays["x"][3:9].tobytes()
        assert len(said) == 1
    del strict, file, part
    assert len(os.listdir("/proc/self/fd")) <= descriptors - 2


def test_isinstance_holds_before_during_and_after(served, models):
    path = models / "x.safetensors"
    many(path, n=1)
    before = safetensors.safe_open(path, "np")
    with tc.patch(), tc.patch():
        during = safetensors.safe_open(path, "np")
        assert isinstance(before, safetensors.safe_open) and isinstance(during, safetensors.safe_open)
        assert type(safetensors.numpy.load_file(path)["layers.0.w"]) is np.ndarray and not isinstance(path, safetensors.safe_open)
    assert safetensors.safe_open is official and isinstance(during, safe_open)
    with tc.patch():
        tc.unpatch()
        assert safetensors.safe_open is official


def test_the_example_reads_a_file(served, models):
    save(models / "x.safetensors", {"w": np.arange(12, dtype=np.float32).reshape(4, 3)})
    done = run(served, ROOT / "examples/safetensors_drop_in.py", models / "x.safetensors")
    assert done.stdout.splitlines() == ["1 tensors; w: F32 [4, 3]", "its first row: 12 bytes loaded", "all of it: 48 bytes"], done


SHIM = '''import os
def get_requires_for_build_wheel(settings=None): return []
def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "safetensors-%s.dist-info" % os.environ["SAFETENSORS_VERSION"]
    os.makedirs(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: safetensors\\nVersion: %s\\n" % os.environ["SAFETENSORS_VERSION"])
    return name
'''


def test_the_official_packages_own_tests_pass(daemon, models, tmp_path):
    pytest.importorskip("torch", reason="torch was left out of this environment")
    (tmp_path / "maturin.py").write_text(SHIM)  # pip wants metadata from the build backend; nothing is built
    version = safetensors.__version__
    got = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:",
                          "--no-build-isolation", f"safetensors=={version}", "-d", str(models)], capture_output=True, text=True, timeout=120,
                         env={**os.environ, "PYTHONPATH": str(tmp_path), "SAFETENSORS_VERSION": version})
    if got.returncode:
        pytest.skip(f"the source distribution of safetensors {version} cannot be fetched: {got.stderr.strip()[-200:]}")
    with tarfile.open(next(models.glob("*.tar.gz"))) as archive:
        archive.extractall(models, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (tests,) = models.glob("*/bindings/python/tests")
    names = ["simple", "pt_comparison", "pt_model", "pread_backend", "multithreaded"]
    done = run(daemon, "-m", "tensorcast_client", "run", "-m", "pytest", "-p", "no:cacheprovider", "-q", *[f"tests/test_{name}.py" for name in names],
               cwd=tests.parent, environment={"TMPDIR": str(models)})
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]


def test_the_second_file_of_a_folder_that_is_read_whole_is_one_load(served, models):
    for number in (1, 2):
        many(models / f"{number}.safetensors", n=100)
    for number in (1, 2):
        held = None
        with safe_open(models / f"{number}.safetensors", "np") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}
            leases = served.status()["leases"]
    assert len(held) == 100 and leases <= 3
    before = len(served.status()["replicas"])
    with safe_open(models / "2.safetensors", "np") as file:  # now it is in memory as a whole
        asked = served.bytes_asked()
        again = {name: file.get_tensor(name) for name in file.keys()}
        assert len(served.status()["replicas"]) == before and served.bytes_asked() - asked < 1 << 16 and len(again) == 100
    with safe_open(models / "2.safetensors", "np") as file:
        assert file.get_slice("layers.5.w")[:7].tobytes() == b"\5" * 7 and served.bytes_asked() - asked < 1 << 20


def sharded(folder, n=100):
    """A folder of two part files and their index; {file: arrays}."""
    parts, weights = {}, {}
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        arrays = {f"layers.{number}.{i}.w": np.full(32 << 10, number * i % 251, np.uint8) for i in range(n)}
        parts[folder / name] = save(folder / name, arrays)
        weights.update(dict.fromkeys(arrays, name))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    return parts


def test_part_files_are_served_from_the_memory_of_their_folder(served, models):
    parts = sharded(models)
    served.cli.ok("prewarm", f"disk:{models}")
    asked, (replica,) = served.bytes_asked(), served.status()["replicas"]
    for path, arrays in parts.items():
        with safe_open(path, "np") as file:
            first, *names = file.keys()
            part = file.get_slice(first)[5:9]
            taken = {name: file.get_tensor(name) for name in names}
        assert soon(lambda: served.status()["leases"] == 1)
        whole = load_file(path)
        assert part.tobytes() == arrays[first][5:9].tobytes() and whole.keys() == arrays.keys()
        for name, array in arrays.items():
            assert taken.get(name, array).tobytes() == whole[name].tobytes() == array.tobytes()
        taken[name][:] = 255  # is this process's own
        assert load_file(path)[name].tobytes() == arrays[name].tobytes()
        del taken, whole
    assert len(served.status()["replicas"]) == 1 and served.bytes_asked() - asked < 1 << 20
    assert served.status()["replicas"][0]["artifact"] == replica["artifact"]


@pytest.fixture
def loads(monkeypatch):
    """References of the loads that were asked for."""
    asked, load = [], view_module.materialize

    def noted(channel, request, *more):
        asked.append(request["artifact"])
        return load(channel, request, *more)

    monkeypatch.setattr(view_module, "materialize", noted)
    return asked


@pytest.mark.parametrize("is_resident", [True, False])
def test_the_files_of_a_folder_that_are_open_look_for_its_memory_once(served, models, loads, is_resident, monkeypatch):
    monkeypatch.setattr(opened_module, "_NOT_THERE_S", 1e9)
    parts = sharded(models)
    if is_resident:
        served.cli.ok("prewarm", f"disk:{models}")
    files = {path: safe_open(path, "np") for path in parts}
    with ThreadPoolExecutor(2) as threads:  # the second begins when the first knows
        names = {path: sorted(arrays) for path, arrays in parts.items()}
        first = {path: files[path].get_tensor(names[path][0]) for path in parts}
        rest = {path: list(threads.map(files[path].get_tensor, names[path][1:])) for path in parts}
    for path, arrays in parts.items():
        assert first[path].tobytes() == arrays[names[path][0]].tobytes()
        assert all(array.tobytes() == arrays[name].tobytes() for name, array in zip(names[path][1:], rest[path]))
    assert loads.count(f"disk:{models}") == 1
    if is_resident:
        assert len(loads) == 2 and soon(lambda: served.status()["leases"] == 1)  # the other is of the first file alone, which is looked for first
        for file in files.values():
            file.__exit__(None, None, None)
        del first, rest, file
        gc.collect()
        assert soon(lambda: served.status()["leases"] == 0)


def test_what_was_told_of_a_folder_is_for_one_handle_of_a_file(served, models):
    (one, arrays), (other, others) = sharded(models).items()
    served.cli.ok("prewarm", f"disk:{models}")
    files = [safe_open(path, "np") for path in (one, one, other, other, other)]
    for name, again in zip(arrays, others):
        for file, wanted in zip(files, (name, name, again, again, again)):
            array = file.get_tensor(wanted)
            assert array.tobytes() == {**arrays, **others}[wanted].tobytes(), "another caller has written to it"
            array[:] = 255


def test_what_a_file_was_told_of_its_folder_does_not_outlive_a_change(served, models):
    (one, arrays), (other, others) = sharded(models).items()
    served.cli.ok("prewarm", f"disk:{models}")
    with safe_open(one, "np") as file, safe_open(other, "np") as changed:
        name, asked = next(iter(others)), next(iter(arrays))
        assert file.get_tensor(asked).tobytes() == arrays[asked].tobytes()  # and `changed` is told
        others = save(other, {name: array ^ 1 for name, array in others.items()})
        with pytest.raises(SafetensorError, match="replaced"):
            changed.get_tensor(name)
        with safe_open(other, "np") as again:
            assert again.get_tensor(name).tobytes() == others[name].tobytes()


FORKED = """
import os, sys
from tensorcast_client.safetensors import safe_open
one, other = [safe_open(path, "np") for path in sys.argv[1:]]
one.get_tensor(one.keys()[0])  # and `other` is told of the folder
child = os.fork()
print(child == 0, sum(int(other.get_tensor(name).sum(dtype=int)) for name in other.keys()), flush=True)
if child:
    os.waitpid(child, 0)
"""


def test_a_forked_child_has_what_its_parent_was_told_for_itself(served, models):
    parts = sharded(models)
    served.cli.ok("prewarm", f"disk:{models}")
    done = run(served, "-c", FORKED, *parts)
    total = sum(int(array.sum(dtype=int)) for array in list(parts.values())[1].values())
    assert sorted(done.stdout.splitlines()) == [f"False {total}", f"True {total}"], done.stderr


@pytest.mark.parametrize("how", ["replaced", "other list", "twice"])
def test_memory_of_a_folder_that_is_not_the_files_is_not_handed_out(served, models, how):
    parts = sharded(models)
    path, arrays = next(iter(parts.items()))
    if how == "other list":  # which names the file for half of its tensors, and another one for the rest
        index = models / "model.safetensors.index.json"
        listed = json.loads(index.read_text())
        for name in list(arrays)[:50]:
            del listed["weight_map"][name]
        index.write_text(json.dumps(listed))
    if how == "twice":  # a tensor of the same name lies in the other file, and that is the folder's
        name, other = next(iter(arrays)), list(parts)[1]
        save(other, {**parts[other], name: np.full(32 << 10, 99, np.uint8)})
        index = models / "model.safetensors.index.json"
        listed = json.loads(index.read_text())
        listed["weight_map"][name] = other.name
        index.write_text(json.dumps(listed))
    served.cli.run("prewarm", f"disk:{models}")
    with safe_open(path, "np") as file:
        if how == "replaced":
            arrays = save(path, {name: array[::-1] ^ 77 for name, array in arrays.items()})
            with pytest.raises(SafetensorError, match="replaced"):
                file.get_tensor(next(iter(arrays)))
        else:
            assert all(file.get_tensor(name).tobytes() == array.tobytes() for name, array in arrays.items())
    assert all(array.tobytes() == arrays[name].tobytes() for name, array in load_file(path).items())


def test_what_a_newer_official_package_has_is_that_packages_own(served, models, monkeypatch):
    class Newer:
        """A handle with a method that ours has not."""

        def __init__(self, *given, **how):
            self._handle = official(*given, **how)

        def __getattr__(self, name):
            return getattr(self._handle, name)

        def prefetch(self):
            return sorted(self._handle.keys())

    save(models / "x.safetensors", {"w": np.arange(4)})
    handle = safe_open(models / "x.safetensors", "np")
    with pytest.raises(AttributeError, match="prefetch"):
        handle.prefetch()
    monkeypatch.setattr(originals, "safe_open", Newer)
    with pytest.raises(tc.TensorcastError, match="newer than safetensors 0"):
        handle.prefetch()
    monkeypatch.delenv("TENSORCAST_REQUIRED")
    with pytest.warns(tc.TensorcastFallbackWarning, match="prefetch"):
        assert handle.prefetch() == ["w"]
    assert handle.get_tensor("w").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("metadata", [None, {}, {"": ""}, {"a": "1", "\u2028": "\0"}], ids=["none", "empty", "blank", "odd"])
def test_metadata_is_that_of_the_file_also_when_it_is_empty(served, models, metadata):
    save(models / "x.safetensors", {"w": np.zeros(2)}, metadata)
    assert safe_open(models / "x.safetensors", "np").metadata() == official(models / "x.safetensors", "np").metadata() == metadata
    header = b'{"__metadata__": null}'
    (models / "null.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert safe_open(models / "null.safetensors", "np").metadata() is official(models / "null.safetensors", "np").metadata() is None


ROWS = np.s_[:, 2:4], np.s_[0, 0], np.s_[:, ::2], np.s_[:, [0]], np.s_[..., 1]


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3"])
def test_elements_that_share_bytes_are_never_taken_for_whole_ones(served, models, dtype):
    made = np.arange(16 if dtype == "F4" else 24, dtype=np.uint8)
    path = by_hand(models / "x.safetensors", m=(dtype, [4, 8], made.tobytes()), v=(dtype, [8], bytes(made.nbytes // 4)), z=(dtype, [0], b""))
    for framework in ("np", "pt"):
        if framework == "pt":
            torch = pytest.importorskip("torch", reason="torch was left out of this environment")
        file = safe_open(path, framework)
        for name, index in [("v", 0), ("v", slice(1, 2)), ("v", [1]), *(("m", index) for index in ROWS)]:
            with pytest.raises((SafetensorError, IndexError)):  # what lies there is another element
                file.get_slice(name)[index]
        if dtype != "F4":
            with pytest.raises(SafetensorError, match="Dtype not understood"):
                file.get_tensor("m")
        elif framework == "np":
            assert file.get_tensor("m").tobytes() == file.get_slice("m")[:].tobytes() == made.tobytes()
        elif hasattr(torch, "float4_e2m1fn_x2"):
            assert file.get_tensor("z").dtype == official(path, "pt").get_tensor("z").dtype == torch.float4_e2m1fn_x2
            assert file.get_slice("m")[1:3].view(torch.uint8).tolist() == made.reshape(4, 4)[1:3].tolist()
            assert file.get_slice("m")[-1].view(torch.uint8).tolist() == made.reshape(4, 4)[3].tolist()


@pytest.mark.parametrize("what", ["name", "rank", "path"])
def test_what_the_daemon_cannot_do_is_done_by_the_official_package(served, models, monkeypatch, what):
    path = models / "x.safetensors" if what != "path" else os.fsdecode(os.fsencode(models) + b"/\xff.safetensors")
    name, shape = "w\0" if what == "name" else "w", [1] * 70 if what == "rank" else [4]
    by_hand(path, **{name: ("U8", shape, b"1" if what == "rank" else b"1234")})
    with pytest.raises(SafetensorError, match="UNIMPLEMENTED"):
        safe_open(path, "np")
    monkeypatch.delenv("TENSORCAST_REQUIRED")
    monkeypatch.setattr(tc.safetensors.fallback, "_said", set())
    with pytest.warns(tc.TensorcastFallbackWarning, match="UNIMPLEMENTED"):
        file = safe_open(path, "np")
    assert file.get_slice(name).get_shape() == shape
    with pytest.raises(tc.TensorcastError, match="not UTF-8"):
        tc.artifact("disk:/models/\udcff").facts()


def test_a_path_that_means_a_file_of_this_process_is_not_one_of_the_daemons(served, models):
    arrays = save(models / "x.safetensors", {"w": np.arange(4)})
    with open(models / "x.safetensors", "rb") as file:
        for path in (f"/proc/self/fd/{file.fileno()}", f"/dev/fd/{file.fileno()}"):
            assert load_file(path)["w"].tobytes() == arrays["w"].tobytes()


def test_handles_cannot_be_copied_and_modules_have_all_the_official_names(served, models):
    save(models / "x.safetensors", {"w": np.arange(4)})
    file = safe_open(models / "x.safetensors", "np")
    for one in (file, file.get_slice("w")):
        for take in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="cannot pickle '(safe_open|PySafeSlice)' object"):
                take(one)
    modules = ["numpy", *(["torch"] if importlib.util.find_spec("torch") else [])]
    for name in modules:
        mine, theirs = importlib.import_module(f"tensorcast_client.safetensors.{name}"), importlib.import_module(f"safetensors.{name}")
        assert not [name for name in vars(theirs) if not hasattr(mine, name)] and mine.load_file is not theirs.load_file
        with pytest.raises(AttributeError):
            mine.nothing_of_the_kind


def test_odd_requests_have_the_official_packages_outcome(served, models):
    path, empty = models / "x.safetensors", models / "empty.safetensors"
    arrays = save(path, {"w": np.arange(24, dtype=np.float32).reshape(2, 3, 4)})
    save(empty, {})
    assert load_file(empty) == {} and safe_open(empty, "pt").get_tensors() == {}
    assert safe_open(path, "pt").get_slice("w")[..., ...].tolist() == arrays["w"].tolist()  # torch takes two
    for framework in ("flax", "tf", "mlx"):  # installed or not: nothing is made before a tensor is asked for
        assert safe_open(path, framework).keys() == ["w"]
    for device in ("cuda", "cuda:1", True, 1, "xpu", "mps"):
        texts = {str(pytest.raises(SafetensorError, opened, path, "np", device=device).value) for opened in (official, safe_open)}
        assert len(texts) == 1, texts
    for opened in (official, safe_open):
        with pytest.raises(FileNotFoundError):
            opened("\0", "np")
        with pytest.raises((RuntimeError, AssertionError)):  # cuda:1, of which there is none; not elements of type bool
            opened(path, "pt", device=True).get_tensor("w")
