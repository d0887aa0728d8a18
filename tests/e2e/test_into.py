"""Loads into memory of the caller: the real daemon with the Python client, the C library and torch, checked with NumPy."""
import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client import host_region

from checkpoints import TYPES, digest, random_array, write
from fake_gpu import UUIDS, environment, needs_plugin, python
from fake_gpu import arrays as gpu_arrays  # noqa: F401
from stage import BUILD, ROOT, soon
from test_examples import run

KiB = 1024


@pytest.fixture
def client(daemon):
    return tc.connect(daemon.socket)


def spread(rng, region, dtype, shape, offset):
    """An array of that shape in a region behind `offset`, with random order of axes, steps, directions and gaps; and its end."""
    order, steps = rng.permutation(len(shape)), rng.integers(1, 4, len(shape))
    room = [max(1, shape[dim] * int(steps[dim]) + int(rng.integers(0, 3))) for dim in order]
    base = region(dtype, tuple(room), offset).transpose(np.argsort(order))
    part = base[(*(slice(0, size * int(step), int(step)) for size, step in zip(shape, steps)), ...)]
    part = part[(*(slice(None, None, int(rng.choice([1, -1]))) for _ in shape), ...)]
    return part, offset + int(np.prod(room)) * dtype.itemsize


@pytest.mark.parametrize("executor", ["auto", "generic", "local"])
def test_random_targets_in_random_regions_hold_what_numpy_puts_there(client, models, executor):
    for seed in range(6):
        rng = np.random.default_rng(100 + seed)
        parts = [{}, {}]
        for i in range(8):
            shape = tuple(int(size) for size in rng.choice([0, 1, 2, 3, 7, 20], rng.integers(0, 4)))
            parts[i % 2][f"t{i}"] = random_array(rng, TYPES[rng.integers(len(TYPES))], shape)
        made = write(models / f"m{seed}", *parts)
        regions, shadows = [tc.HostRegion(256 * KiB) for _ in range(3)], [np.zeros(256 * KiB, np.uint8) for _ in range(3)]
        ends, targets = [1, 2, 3], {}
        for name in rng.permutation(list(made)).tolist():
            which, how, value = int(rng.integers(3)), int(rng.integers(1 << 30)), made[name]
            place = value.dtype, value.shape, ends[which]
            targets[name], ends[which] = spread(np.random.default_rng(how), regions[which].array, *place)
            twin, _ = spread(np.random.default_rng(how), lambda d, s, o: np.ndarray(s, d, shadows[which], o), *place)
            twin[...] = value
        view = client.artifact(f"disk:{models}/m{seed}").subset(list(targets))
        report = view.load_into(targets, options=tc.Options(executor=executor))
        assert report["bytes"]["target"] == sum(value.nbytes for value in made.values())
        for region, shadow in zip(regions, shadows):
            np.testing.assert_array_equal(region.array(np.uint8, len(region)), shadow)


def test_a_view_of_nothing_but_empty_tensors_is_loaded_into_arrays_of_any_memory(client, models):
    write(models / "m", {"w": np.ones((3, 4), np.float32), "none": np.ones((0, 4), np.float32)})
    view = client.artifact(f"disk:{models}/m").view({"w": (1, slice(2, 2))})
    report = view.load_into({"w": np.empty((3, 0), np.float32), "none": np.empty((0, 4), np.float32)})
    assert report["bytes"]["target"] == report["bytes"]["read"] == 0 and len(report["tensors"]) == 2


def test_a_variant_lands_in_strided_targets_as_it_would_in_memory_of_the_daemon(client, models):
    rng = np.random.default_rng(2)
    write(models / "m", {"q": random_array(rng, np.float32, (6, 8)), "k": random_array(rng, np.float32, (2, 8))})
    recipe = {"version": 1, "steps": [{"cast": {"tensors": ["*"], "dtype": "BF16"}}]}
    art = client.artifact(f"disk:{models}/m").variant(recipe)
    fused = tc.HostRegion(4096).array(ml_dtypes.bfloat16, (8, 16), 6)
    art.load_into({"q": fused[:6, ::2], "k": fused[6:, ::2]})
    want = dict(art.tensor_dict(framework="numpy"))
    np.testing.assert_array_equal(fused[:, ::2].view(np.uint16), np.concatenate([want["q"], want["k"]]).view(np.uint16))
    assert not fused[:, 1::2].view(np.uint16).any()


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
def test_arrays_on_a_gpu_in_several_allocations_are_filled_with_strides_and_constants(start, models, gpu_arrays):  # noqa: F811
    daemon = start(running=False).start(environment=environment())
    got = python(GPU_CLIENT + """
one, two = allocate(4 * MiB), allocate(4 * MiB)
report = view.subset(["a", "b"]).load_into({
    "a": Array(one + 64, (300, 5000), "|u1", (5100, 1)), "b": Array(two + 8, (64, 33), "<f4"),
    "pad": Array(one + 64 + 5000, (300, 100), "|u1", (5100, 1))}, fills={"pad": 7},
    cover={"all": Array(one + 64, (300, 5100), "|u1")})
a = content(one, 4 * MiB)
rows = a[64:64 + 300 * 5100].reshape(300, 5100)
b = content(two, 4 * MiB)
outside = [a[:64], a[64 + 300 * 5100:], b[:8], b[8 + 64 * 33 * 4:]]
print(json.dumps([sha256(rows[:, :5000].tobytes()).hexdigest(), bool((rows[:, 5000:] == 7).all()), sha256(b[8:8 + 64 * 33 * 4].tobytes()).hexdigest(),
                  all(bool((part == 0xA5).all()) for part in outside), report["bytes"]["target"], report["device"]]))
""", daemon.socket, f"disk:{models}/m")
    assert json.loads(got) == [digest(gpu_arrays["a"]), True, digest(gpu_arrays["b"]), True, 300 * 5100 + 64 * 33 * 4, UUIDS[0]]


@needs_plugin
def test_gpu_targets_that_cannot_be_are_refused_by_name(start, models, gpu_arrays):  # noqa: F811
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
