"""Tensors in the files' own pages, as every client shows them: the command, NumPy, torch and C; and the examples."""
import gc
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
import tensorcast_client as tc
from safetensors import safe_open

from checkpoints import TYPES, digest, random_array, write
from stage import BUILD, ROOT, soon
from test_examples import run

MAPPED = tc.Options(memory="mapped")
CUTS = {"float32": [(0, slice(2, 7)), (1, slice(3, -1))], "uint8": (1, slice(0, 4)), "bfloat16": (0, slice(1, 3))}


@pytest.fixture
def daemon(start, models):
    return start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}})


@pytest.fixture(params=[0, 1, 3], ids=["aligned", "odd", "three"])
def arrays(request, models):
    """A tensor of each type, in a file whose data begin that many bytes behind a multiple of eight."""
    rng = np.random.default_rng(3)
    made = {np.dtype(kind).name: random_array(rng, kind, (8, 9)) for kind in TYPES}
    made.update(scalar=random_array(rng, np.float64, ()), none=random_array(rng, np.int32, (0, 4)))
    write(models / "m", made)
    whole = (models / "m/model.safetensors").read_bytes()
    header = int.from_bytes(whole[:8], "little") + request.param
    data = whole[8:8 + header - request.param] + b" " * request.param + whole[8 + header - request.param:]
    (models / "m/model.safetensors").write_bytes(header.to_bytes(8, "little") + data)
    return made


def load(daemon, framework, **how):
    view = tc.connect(str(daemon.socket)).artifact(f"disk:{next(iter(daemon.tree['sources']['disk']['trusted_roots']))}/m").view(CUTS)
    return view.tensor_dict(framework=framework, options=MAPPED, **how)


def cut(name, array):
    steps = CUTS.get(name, [])
    steps = dict(steps if isinstance(steps, list) else [steps])
    return array[tuple(steps.get(dim, slice(None)) for dim in range(array.ndim))]


def test_every_type_and_slice_is_that_of_the_file_in_numpy_and_torch(daemon, arrays):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensors = load(daemon, "numpy")
    assert tensors.diagnostics["memory"] == "mapped" and set(tensors) == set(arrays)
    for name, array in tensors.items():
        assert array.dtype == arrays[name].dtype and np.ascontiguousarray(array).tobytes() == cut(name, arrays[name]).tobytes(), name
    for writable in (False, True):
        for name, tensor in load(daemon, "torch", writable=writable).items():
            assert tuple(tensor.shape) == cut(name, arrays[name]).shape
            packed = tensor.contiguous().reshape(-1)
            assert not packed.numel() or packed.view(torch.uint8).numpy().tobytes() == cut(name, arrays[name]).tobytes(), name


def test_the_command_digests_and_writes_the_elements_in_their_order(daemon, models, arrays, tmp_path):
    reference = f"disk:{models}/m"
    slices = ["--tensor", "*", "--slice", "float32[2:7, 3:-1]", "--slice", "uint8[:, 0:4]", "--slice", "bfloat16[1:3, :]"]
    report = daemon.cli.json("load", reference, *slices, "--memory", "mapped", "--digest", "--out", tmp_path / "out")
    assert report["memory"] == "mapped" and report["mapped"] == {"possible": True, "proof": "immutable_root", "reason": None}
    assert report["bytes"]["read"] == report["bytes"]["copied"] == 0
    told = {tensor["name"]: tensor for tensor in report["tensors"]}
    assert {name: tensor["sha256"] for name, tensor in told.items()} == {name: digest(cut(name, array)) for name, array in arrays.items()}
    assert told["float32"]["strides"] == [36, 4] and told["float32"]["file"] == "model.safetensors"
    assert "file" not in told["none"] and "strides" not in told["none"]
    with safe_open(tmp_path / "out", "np") as file:
        assert all(np.array_equal(file.get_tensor(name).view(np.uint8), np.ascontiguousarray(cut(name, array)).view(np.uint8))
                   for name, array in arrays.items() if array.ndim and array.size)
    python = tc.connect(str(daemon.socket)).artifact(reference).subset(list(told)).view(CUTS).tensor_dict(framework="numpy", options=MAPPED)
    assert [{k: v for k, v in tensor.items() if k != "sha256"} for tensor in report["tensors"]] == python.diagnostics["tensors"]


def test_a_c_caller_that_says_nothing_gets_packed_memory(daemon, models, arrays):
    out = run(BUILD / "examples/load_tensor", f"disk:{models}/m", "uint8", env=daemon.cli.environment)
    assert arrays["uint8"].tobytes()[:16].hex(" ") in out
    assert [replica["memory"] != "mapped" for replica in daemon.cli.json("status")["replicas"]] == [True]


def test_an_array_keeps_the_lease_and_its_file_beyond_client_and_daemon(daemon, arrays):
    tensors = load(daemon, "numpy")
    column = tensors["float32"][:, 1]
    del tensors
    gc.collect()
    assert daemon.cli.json("status")["leases"] == 1
    daemon.process.kill()
    daemon.process.wait()
    assert column.tobytes() == np.ascontiguousarray(cut("float32", arrays["float32"])[:, 1]).tobytes()


def test_what_is_not_proven_is_refused_by_name_and_copied_by_itself(start, models):
    daemon = start()
    arrays = write(models / "m", {"w": random_array(np.random.default_rng(1), np.float32, (4, 4))})
    outcome = daemon.cli.run("load", f"disk:{models}/m", "--memory", "mapped")
    assert outcome.failed and outcome.status == "FAILED_PRECONDITION" and "model.safetensors" in outcome.err
    artifact = tc.connect(str(daemon.socket)).artifact(f"disk:{models}/m")
    tensors = artifact.tensor_dict(framework="numpy")
    assert tensors.diagnostics["memory"] != "mapped" and tensors["w"].tobytes() == arrays["w"].tobytes()
    told = artifact.view().explain()
    assert told["mapped"]["possible"] is False and told["mapped"]["proof"] is None and "model.safetensors" in told["mapped"]["reason"]
    assert "mapped    not possible" in daemon.cli.ok("explain", f"disk:{models}/m").out


@pytest.mark.parametrize("kind,tool", [("hub-cache", "chattr"), ("squashfs", "mksquashfs"), ("oci", "mkfs.erofs")])
def test_the_example_loads_from_a_place_that_cannot_change(kind, tool):
    if os.geteuid() or not shutil.which(tool):
        pytest.skip(f"needs root and {tool}")
    done = subprocess.run(["bash", ROOT / "examples/mapped.sh", kind], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TENSORCAST_BUILD": str(BUILD)})
    assert done.returncode == 0, done
    assert "memory    mapped" in done.stdout and "8 tensors, equal" in done.stdout
    assert soon(lambda: "/tensorcast-" not in open("/proc/self/mounts").read())


def test_a_client_that_does_not_see_the_files_gets_their_pages(daemon, models, arrays):
    """As in a container: another mount namespace, in which something else lies where the model is."""
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && test -z "$(ls -A "$0")" && exec "$@"', models]
    command = [BUILD / "tensorcast", "load", f"disk:{models}/m", "--memory", "mapped", "--json", "--digest"]
    if os.geteuid() or subprocess.run([*hidden, "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a mount namespace")
    report = json.loads(run(*hidden, *command, env=daemon.cli.environment))
    assert report["memory"] == "mapped"
    assert {tensor["name"]: tensor["sha256"] for tensor in report["tensors"]} == {name: digest(array) for name, array in arrays.items()}
