"""Loads into memory of the caller: the real daemon with the Python client, the C library and torch, checked with NumPy."""
import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client import host_region

from checkpoints import random_array, write
from fake_gpu import environment, needs_plugin, python
from fake_gpu import arrays as gpu_arrays  # noqa: F401
from stage import BUILD, ROOT, soon
from test_examples import run

KiB = 1024


@pytest.fixture
def client(daemon):
    return tc.connect(daemon.socket)


def test_a_view_of_nothing_but_empty_tensors_is_loaded_into_arrays_of_any_memory(client, models):
    write(models / "m", {"w": np.ones((3, 4), np.float32), "none": np.ones((0, 4), np.float32)})
    view = client.artifact(f"disk:{models}/m").view({"w": (1, slice(2, 2))})
    report = view.load_into({"w": np.empty((3, 0), np.float32), "none": np.empty((0, 4), np.float32)})
    assert report["bytes"]["target"] == report["bytes"]["read"] == 0 and len(report["tensors"]) == 2


def test_a_module_is_filled_again_where_it_is_from_weights_that_are_resident(daemon, client, models):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from tensorcast_client.torch import empty_like_region, load_state_dict
    rng = np.random.default_rng(3)
    made = write(models / "m", {"weight": random_array(rng, np.uint8, (512, 4096)).view(np.float32), "bias": random_array(rng, np.float32, (512,))})
    art = client.artifact(f"disk:{models}/m")
    module = empty_like_region(torch.nn.Linear(1024, 512))
    art.prewarm()
    places = [parameter.data_ptr() for parameter in module.parameters()]
    for _ in range(2):
        with torch.no_grad():
            module.weight.zero_()
        load_state_dict(module, art)
        for name, parameter in module.named_parameters():
            assert parameter.detach().numpy().tobytes() == made[name].tobytes()
    assert places == [parameter.data_ptr() for parameter in module.parameters()]
    assert soon(lambda: daemon.status()["leases"] == 0)


def test_two_names_of_one_memfd_cannot_hide_an_overlap(client, models):
    write(models / "m", {"a": np.ones(64, np.uint8), "b": np.ones(64, np.uint8)})
    region = tc.HostRegion(4096)
    target = region.array(np.uint8, 64, 32)
    fd = host_region.snapshot()(target.ctypes.data, target.ctypes.data + 1).fd
    twin = tc.HostRegion(fd=fd).array(np.uint8, 64, 95)
    with pytest.raises(ValueError, match="a.*b|b.*a"):
        client.artifact(f"disk:{models}/m").load_into({"a": target, "b": twin})
    assert not region.array(np.uint8, 4096).any()


def test_every_report_tells_of_mapping(client, models):
    write(models / "m", {"w": np.ones(64, np.uint8)})
    view, target = client.artifact(f"disk:{models}/m").view(), tc.HostRegion(64).array(np.uint8, 64)
    told = view.load_into({"w": target})["mapped"], view.tensor_dict(framework="numpy").diagnostics["mapped"]
    assert [(one["possible"], one["proof"]) for one in told] == [(False, None)] * 2
    assert told[0]["reason"] == "the bytes go into memory of the client" and "model.safetensors can change" in told[1]["reason"]


def test_the_c_example_fuses_tensors(daemon, models):
    rng = np.random.default_rng(4)
    made = {name: random_array(rng, np.float32, (rows, 6)) for name, rows in {"q": 8, "k": 2, "v": 3}.items()}
    write(models / "m", made, {"w": np.zeros((2, 5), np.uint8)})
    program = BUILD / "examples/load_into"
    out = run(program, f"disk:{models}/m", "k", "q", "v", env=daemon.cli.environment)
    assert f"3 tensors, 13 rows of F32, {13 * 24} bytes: {made['k'].tobytes()[:16].hex(' ')}" in out
    for names, why in [(["q", "w"], "w does not fit"), (["q", "nobody"], "nobody"), (["q", "q"], "twice")]:
        done = subprocess.run([program, f"disk:{models}/m", *names], capture_output=True, text=True, env=daemon.cli.environment)
        assert done.returncode == 1 and why in done.stderr and done.stdout == "", done


def test_the_python_example_fuses_and_pads(daemon, models):
    rng = np.random.default_rng(5)
    write(models / "m", {name: random_array(rng, ml_dtypes.bfloat16, (rows, 16)) for name, rows in {"q": 8, "k": 2, "v": 3}.items()})
    environment = {**daemon.cli.environment, "PYTHONPATH": str(ROOT / "client/python")}
    out = run(sys.executable, ROOT / "examples/load_into.py", f"disk:{models}/m", "q", "k", "v", "--pad", "3", env=environment)
    assert "[16, 16] of bfloat16" in out and "every byte is where it belongs" in out


GPU_CLIENT = """
import ctypes, glob, json, os, struct, sys
import numpy as np
import tensorcast_client as tc
from hashlib import sha256
MiB = 1 << 20
fake = os.environ["LD_LIBRARY_PATH"].split(":")[0]
driver = ctypes.CDLL(fake + "/libcuda.so.1")
runtime = ctypes.CDLL(next(path for path in glob.glob(fake + "/libcudart.so.*") if not path.endswith(".map")))
def good(code):
    assert code == 0, code
def allocate(size, device=0):
    address = ctypes.c_uint64()
    good(runtime.cudaSetDevice(device))
    good(runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)))
    ctypes.memset(address.value, 0xA5, size)
    return address.value
class Array:  # of the fake's memory, which is this process's own
    def __init__(self, address, shape, typestr, strides=None):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, False), "strides": strides, "version": 3}
def content(address, size):
    return np.frombuffer(ctypes.string_at(address, size), np.uint8)
view = tc.connect().artifact(sys.argv[1])
def code(targets, **how):
    try:
        view.subset([name for name in targets if name not in how.get("fills", {})]).load_into(targets, **how)
    except tc.TensorcastError as error:
        return [error.code.name, error.reason, str(error)]
"""


@needs_plugin
def test_gpu_targets_that_cannot_be_are_refused_by_name(start, models, gpu_arrays):
    daemon = start(running=False).start(environment=environment())
    got = python(GPU_CLIENT + """
one, other = allocate(4 * MiB), allocate(4 * MiB, 1)
b = Array(one, (64, 33), "<f4")
host = tc.HostRegion(4 * MiB).array(np.uint8, (300, 5000))
print(json.dumps([code({"b": Array(1 << 44, (64, 33), "<f4")}), code({"b": Array(one + 4 * MiB - 8, (64, 33), "<f4")}), code({"b": b, "a": host}),
                  code({"b": b, "a": Array(other, (300, 5000), "|u1")}), code({"b": b, "a": Array(one + 100, (300, 5000), "|u1")}),
                  bool((content(one, 4 * MiB) == 0xA5).all())]))
""", daemon.socket, f"disk:{models}/m")
    wild, beyond, mixed, two, overlap, untouched = json.loads(got)
    assert wild[1] == "CUDA_FAILED" and beyond[1] == "NOT_DEVICE_MEMORY" and "target b" in wild[2] and "target b" in beyond[2]
    assert mixed[0] == "UNIMPLEMENTED" and "a" in mixed[2] and "b" in mixed[2]
    assert two[1] == "NOT_DEVICE_MEMORY" and "target a" in two[2] and overlap[0] == "INVALID_ARGUMENT" and untouched
