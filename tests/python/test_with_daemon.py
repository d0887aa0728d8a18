"""The client against the real daemon, and the examples. Needs build/tensorcastd."""
import gc
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tensorcast_client as tc
from conftest import ROOT
from tensorcast_client import answers

BUILD = ROOT / os.environ.get("TENSORCAST_BUILD", "build")
TENSORCASTD, TENSORCAST = BUILD / "tensorcastd", BUILD / "tensorcast"
pytestmark = pytest.mark.skipif(not TENSORCASTD.exists(), reason=f"{TENSORCASTD} is not built")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """(socket, folder of models) of a running daemon."""
    folder = tmp_path_factory.mktemp("a daemon")
    models, socket = folder / "models", folder / "d.sock"
    models.mkdir()
    (folder / "config.yaml").write_text(json.dumps({
        "server": {"socket_path": str(socket), "state_dir": str(folder / "state")},
        "sources": {"disk": {"trusted_roots": [str(models)]}}}))
    with open(folder / "log", "w") as log:
        process = subprocess.Popen([TENSORCASTD, "--config", folder / "config.yaml"], stderr=log, stdout=log)
    end = time.monotonic() + 60
    while subprocess.run([TENSORCAST, "--socket", socket, "health"], capture_output=True).returncode:
        assert process.poll() is None and time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.02)
    yield socket, models
    process.terminate()
    assert process.wait(60) == 0


def write(folder, tensors):
    """{name: (dtype, array of unsigned integers)} as a safetensors file."""
    header, data = {}, b""
    for name, (dtype, bits) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(bits.shape), "data_offsets": [len(data), len(data) + bits.nbytes]}
        data += bits.tobytes()
    text = json.dumps(header).encode()
    folder.mkdir(exist_ok=True)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return f"disk:{folder}"


@pytest.fixture(scope="module")
def llama(daemon):
    rng = np.random.default_rng(1)
    shapes = {"model.embed_tokens.weight": (32, 8), "model.layers.0.self_attn.q_proj.weight": (8, 8),
              "model.layers.0.mlp.down_proj.weight": (8, 16), "model.norm.weight": (8,), "scale": (), "none": (0, 4)}
    tensors = {name: ("F32", rng.integers(0, 1 << 23, shape, np.uint32)) for name, shape in shapes.items()}
    return write(daemon[1] / "llama", tensors), {name: bits for name, (_, bits) in tensors.items()}


@pytest.fixture
def client(daemon):
    with tc.connect(daemon[0]) as client:
        yield client


def leases(daemon):
    return json.loads(subprocess.check_output([TENSORCAST, "--socket", daemon[0], "status", "--json"]))["leases"]


def is_at_rest(client):
    """The leases of tests before have ended: the daemon hears of that later than they."""
    gc.collect()
    return wait_for(lambda: client.status()["leases"] == 0)


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_every_tensor_arrives(client, llama, framework):
    if framework == "torch":
        pytest.importorskip("torch", reason="torch is not installed")
    reference, want = llama
    with client.artifact(reference).tensor_dict(framework=framework) as got:
        assert set(got) == set(want)
        for name, tensor in got.items():
            assert tuple(tensor.shape) == want[name].shape and bytes(np.asarray(tensor)) == want[name].tobytes()


def test_random_slices_are_numpys(client, llama):
    reference, want = llama
    rng = np.random.default_rng(2)
    known = client.artifact(reference)
    known.tensor_names
    for art in [known, client.artifact(reference)] * 15:  # with the artifact's shapes, and without them where that will do
        names = [str(name) for name in rng.permutation([n for n, bits in want.items() if bits.ndim])[:3]]
        slices, chosen = {}, {}
        for name in names:
            dims = [int(d) for d in range(want[name].ndim) if rng.random() < .7]
            parts = {d: slice(*(None if rng.random() < .3 else int(rng.integers(-20, 20)) for _ in "ab")) for d in dims}
            slices[name] = list(parts.items())
            chosen[name] = want[name][tuple(parts.get(d, slice(None)) for d in range(want[name].ndim))]
        with art.subset(names).view(slices).tensor_dict(framework="numpy") as got:
            for name in names:
                np.testing.assert_array_equal(got[name].view(np.uint32), chosen[name])


def test_what_is_told_is_what_the_command_prints(daemon, client, llama):
    def command(*args):
        return json.loads(subprocess.check_output([TENSORCAST, "--socket", daemon[0], *args, llama[0], "--json"]))

    art = client.artifact(llama[0])
    assert art.describe() == command("inspect")
    plan, printed = art.view().explain(), command("explain")
    assert set(plan) - {"text"} == set(printed) - {"text"} and plan["candidates"][0].keys() == printed["candidates"][0].keys()
    with art.tensor_dict(framework="numpy") as got:
        told, printed = got.diagnostics, command("load")
    assert set(told) == set(printed) and told["tensors"] == printed["tensors"] and set(told["bytes"]) == set(printed["bytes"])


def test_errors_repeat_their_values_for_programs(client, llama):
    art = client.artifact(llama[0])
    with pytest.raises(tc.TensorcastError) as caught:
        art.subset(["nobody é"]).tensor_dict(framework="numpy")
    assert caught.value.metadata == {"tensor": "nobody é"}
    with pytest.raises(tc.TensorcastError) as caught:
        art.subset(["model.norm.weight"] * 2).tensor_dict(framework="numpy")
    assert caught.value.metadata == {"tensor": "model.norm.weight"}


@pytest.mark.parametrize("seconds", [float("inf"), 1e300])
def test_an_endless_deadline_is_none(daemon, llama, seconds):
    view = tc.connect(daemon[0], timeout=seconds).artifact(llama[0]).subset(["model.norm.weight"])
    assert len(view.tensor_dict(framework="numpy", options=tc.Options(deadline=seconds))) == 1


def test_status_is_what_the_command_prints(daemon, client, llama):
    assert is_at_rest(client)
    client.release()
    with client.artifact(llama[0]).tensor_dict(framework="numpy"):
        printed = json.loads(subprocess.check_output([TENSORCAST, "--socket", daemon[0], "status", "--json"]))
        told = client.status()
    assert told.keys() == printed.keys() and told["memory"].keys() == printed["memory"].keys()
    assert [replica["artifact"] for replica in told["replicas"]] == [llama[0]] and told["leases"] == 1
    assert told["replicas"][0].keys() == printed["replicas"][0].keys()
    assert told["quotas"].keys() == printed["quotas"].keys() and all(told["quotas"][one].keys() == {"taken", "limit"} for one in told["quotas"])
    assert [user.keys() for user in told["users"]] == [user.keys() for user in printed["users"]]
    (lease,) = told["replicas"][0]["held_by"]
    assert lease["pid"] == os.getpid() and lease.keys() == printed["replicas"][0]["held_by"][0].keys()
    for device, costs in told["calibration"].items():
        assert costs.keys() == printed["calibration"][device].keys()


def test_prewarm_makes_a_replica_and_release_drops_it(client, llama):
    assert is_at_rest(client)
    client.release()
    art = client.artifact(llama[0])
    view = art.subset(["model.norm.weight"])
    made = view.prewarm()
    assert made["bytes"]["view"] == llama[1]["model.norm.weight"].nbytes and not made["from_replica"]
    with view.tensor_dict(framework="numpy") as tensors:
        assert tensors.diagnostics["from_replica"]
        assert art.release() == {"released_replicas": 0, "released_bytes": 0, "leased_replicas": 1, "leased_bytes": 4096,
                                 "replicas_of_others": 0, "pinned_replicas": 0, "pinned_bytes": 0}
    del tensors
    assert wait_for(lambda: client.status()["leases"] == 0)
    art.prewarm()
    assert art.release()["released_replicas"] == 2 and client.status()["replicas"] == []


def test_sidecars_arrive_in_a_folder(daemon, client, llama, tmp_path):
    folder = daemon[1] / "llama"
    files = {"config.json": b"{}", "empty.txt": b"", "tokenizer.json": os.urandom((3 << 20) + 5)}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    art, out = client.artifact(llama[0]), tmp_path / "a" / "b"
    assert art.sidecars() == [(name, len(files[name])) for name in sorted(files)]
    assert art.fetch_sidecars(out) == art.sidecars()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == files
    assert art.fetch_sidecars(tmp_path / "one", ["config.json"]) == [("config.json", 2)]
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["config.json"]
    with pytest.raises(FileNotFoundError, match="no sidecar nobody.json"):
        art.fetch_sidecars(tmp_path / "one", ["nobody.json"])
    with pytest.raises(PermissionError):
        client.artifact("disk:/etc").sidecars()


def test_the_lease_is_the_arrays(daemon, client, llama):
    assert is_at_rest(client)
    got = client.artifact(llama[0]).tensor_dict(framework="numpy")
    kept = got["model.norm.weight"][2:]
    del got
    gc.collect()
    assert leases(daemon) == 1 and kept.size == 6
    del kept
    assert wait_for(lambda: leases(daemon) == 0)


def test_errors_of_the_daemon_are_python_exceptions(client, llama, daemon, tmp_path):
    art = client.artifact(llama[0])
    with pytest.raises(KeyError, match="nobody"):
        art.subset(["nobody"]).tensor_dict(framework="numpy")
    with pytest.raises(ValueError):
        art.subset(["scale", "scale"]).tensor_dict(framework="numpy")
    with pytest.raises(FileNotFoundError):
        client.artifact(f"disk:{daemon[1]}/nothing").tensor_names
    with pytest.raises(PermissionError):
        client.artifact(f"disk:{tmp_path}").tensor_names
    with pytest.raises(TimeoutError):
        art.subset(["scale"]).tensor_dict(framework="numpy", options=tc.Options(deadline=1e-9))


def test_a_changed_checkpoint_is_seen_by_an_old_handle(daemon, client):
    reference = write(daemon[1] / "changing", {"a": ("U8", np.arange(4, dtype=np.uint8))})
    art = client.artifact(reference)
    assert art.tensor_names == ["a"]
    write(daemon[1] / "changing", {"a": ("U8", np.arange(9, dtype=np.uint8)), "b": ("U8", np.zeros(1, np.uint8))})
    with art.subset(["a"]).view({"a": slice(-2, None)}).tensor_dict(framework="numpy") as got:
        assert got["a"].tolist() == [7, 8]


@pytest.mark.parametrize("args", [["load_tensors.py"], ["load_tensors.py", "--tensor", "model.norm.weight", "--rows", "2:"],
                                  ["load_torch.py", "--tp-size", "4", "--tp-rank", "3"]])
def test_the_examples_run(daemon, llama, args):
    if "torch" in args[0]:
        pytest.importorskip("torch", reason="torch is not installed")
    script, *options = args
    done = subprocess.run([sys.executable, ROOT / "examples" / script, llama[0], "--socket", daemon[0], *options],
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "tensors, " in done.stdout, done
    assert "24 bytes" in done.stdout if "--rows" in args else True
    lost = subprocess.run([sys.executable, ROOT / "examples" / script, "disk:/nowhere", "--socket", daemon[0]],
                          capture_output=True, text=True, timeout=100)
    assert lost.returncode == 1 and "PERMISSION_DENIED" in lost.stderr and "Traceback" not in lost.stderr


def test_the_notebook_runs_from_its_first_cell_to_its_last(daemon, llama):
    """As Jupyter does, each cell in the names of those before; it would show what the last line of a cell is."""
    cells = json.loads((ROOT / "examples/quickstart.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    shown = "\nassert '<table>' in art._repr_html_() and len(tensors) == len(art)"
    done = subprocess.run([sys.executable, "-c", source + shown], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "MODEL": llama[0].removeprefix("disk:"), "TENSORCAST_SOCKET": str(daemon[0]),
                               "TENSORCAST_REQUIRED": "1"})
    assert done.returncode == 0 and done.stdout.startswith("["), done


def test_answers_have_the_keys_that_type_checkers_are_told(client, llama):
    art = client.artifact(llama[0])
    with art.tensor_dict(framework="numpy") as tensors:
        told = {answers.LoadReport: tensors.diagnostics, answers.LoadedTensor: tensors.diagnostics["tensors"][0],
                answers.Bytes: tensors.diagnostics["bytes"], answers.Milliseconds: tensors.diagnostics["ms"],
                answers.Candidate: tensors.diagnostics["candidates"][0]}
        status = client.status()
        (held,) = [replica for replica in status["replicas"] if replica["artifact"] == llama[0] and replica["held_by"]][:1]
    explained, described = art.view().explain(), art.describe()
    told.update({answers.Plan: explained, answers.PlannedBytes: explained["bytes"], answers.PlannedMilliseconds: explained["ms"],
                 answers.Description: described, answers.TensorEntry: described["tensors"][0],
                 answers.Prewarmed: art.prewarm(), answers.Status: status, answers.Memory: status["memory"],
                 answers.Replica: held, answers.Holder: held["held_by"][0], answers.Released: art.release()})
    for kind, answer in told.items():
        assert kind.__required_keys__ <= set(answer), (kind, kind.__required_keys__ - set(answer))


@pytest.mark.parametrize("dtype", ["float16", "F16", np.float16, np.dtype("float16")])
def test_a_load_converts_to_the_type_that_is_asked_for(daemon, monkeypatch, dtype):
    monkeypatch.setenv("TENSORCAST_SOCKET", str(daemon[0]))
    values = np.array([[1.5, -2.25, 65504.0], [0.0, 3.0, 1e-3]], np.float32)
    ref = write(daemon[1] / "numbers", {"w": ("F32", values.view(np.uint32)), "n": ("I32", np.arange(3, dtype=np.uint32))})
    art, want = tc.artifact(ref), values.astype(np.float16)
    for got in (tc.load_file(ref, framework="numpy", dtype=dtype), art.tensor_dict(framework="numpy", dtype=dtype),
                art.subset(["w", "n"]).tensor_dict(framework="numpy", dtype=dtype)):
        assert got["w"].dtype == np.float16 and got["w"].tobytes() == want.tobytes() and got["n"].dtype == np.int32
    part = art.view({"w": (1, slice(1, 3))}).tensor_dict(framework="numpy", dtype=dtype)
    assert part["w"].tobytes() == want[:, 1:].tobytes()
    assert art["w"].load(np.s_[1, ::2], framework="numpy", dtype=dtype).tobytes() == want[1, ::2].tobytes()
    assert art["w"].load(framework="numpy").dtype == np.float32, "a handle stays what it is"


def test_a_lazy_tensor_that_is_converted_is_still_of_its_version(daemon, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", str(daemon[0]))
    ref = write(daemon[1] / "replaced", {"w": ("F32", np.arange(4, dtype=np.uint32))})
    lazy = tc.artifact(ref)["w"]
    write(daemon[1] / "replaced", {"w": ("F32", np.arange(8, dtype=np.uint32))})
    with pytest.raises(tc.TensorcastError) as caught:
        lazy.load(framework="numpy", dtype="BF16")
    assert caught.value.reason == "SOURCE_CHANGED"


def test_a_type_that_there_is_not_is_refused_with_the_nearest(daemon, monkeypatch):
    monkeypatch.setenv("TENSORCAST_SOCKET", str(daemon[0]))
    with pytest.raises(ValueError, match=r"did you mean F16\?"):
        tc.load_file(str(daemon[1] / "numbers"), framework="numpy", dtype="flaot16")
