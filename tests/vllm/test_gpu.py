"""Models on a GPU, as far as a host without one can tell: daemon, plugin and client are real, the CUDA below them is the fake
of tests/fake/cuda, and its memory is announced to torch as the host memory it is. What a GPU does is not tested."""
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from fake_gpu import environment, needs_plugin, python  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from scene import counting  # noqa: E402
from stage import Daemon  # noqa: E402
from tensorcast_vllm.fill import device_of  # noqa: E402

MANY = 80  # parameters with an allocation of their own, as a caching allocator makes them of large ones

SCRIPT = """
import ctypes, glob, json, os, sys
sys.path[:0] = sys.argv[1:3]
import tensorcast_client as tc, torch
from scene import Model, counting
from tensorcast_client import targets
from tensorcast_vllm.attempts import state_of, trace
from tensorcast_vllm.checkpoint import Checkpoint
from tensorcast_vllm.fill import fill
from tensorcast_vllm.in_place import fill_in_place
from tensorcast_vllm.plan import Plan

fake = os.environ["LD_LIBRARY_PATH"].split(":")[0]
runtime = ctypes.CDLL(next(path for path in glob.glob(fake + "/libcudart.so.*") if not path.endswith(".map")))
assert runtime.cudaSetDevice(0) == 0
made = targets._made  # torch sees memory of the fake as that of the host
targets._made = lambda name, number, size, shape, strides, first, on_gpu, owner: made(name, number, size, shape, strides, first, True, owner)

def on_gpu(tensor):
    address, size = ctypes.c_uint64(), tensor.nbytes + 512
    assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    memory = torch.frombuffer((ctypes.c_ubyte * size).from_address(address.value), dtype=torch.uint8)
    return memory[256:256 + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)

def take(model, name, x):
    if name == "w":
        model.p[:, :8].copy_(x[16:48, :8])
        model.p[:, 8:].copy_(x[16:48, 8:])
    elif name == "u":
        model.q[:3].copy_(x.t())
        model.q[3:].zero_()
    elif name.startswith("many"):
        getattr(model, name).copy_(x)
    else:
        model.c.copy_((x[:8] + 1).to(torch.bfloat16))

said, host = [], torch.device("cpu")
model = Model(take, {"p": (32, 16), "q": (5, 4), "c": (8, 4), **{f"many{i}": (4, 4) for i in range(int(sys.argv[5]))}})
for parameter in model.parameters():
    parameter.data = on_gpu(parameter.data)
places = [parameter.data_ptr() for parameter in model.parameters()]
for folder in sys.argv[3:5]:
    with tc.connect() as client:
        checkpoint = Checkpoint(client.artifact(folder), lambda request: tc.Options(), lambda text: None)
        sources = checkpoint.sources()
        plan = Plan(trace(model, sources, checkpoint.fetch), sources)
        left, reports, written = fill_in_place(model, plan, checkpoint, host, said.append)
        loaded = checkpoint.load(left, True)
        filled = fill(model, left, loaded, False)
        status = client.status()
    plus = 1000 * (folder != sys.argv[3])
    w, u, v = counting(64, 16) + plus, counting(4, 3) + plus, counting(9, 4) + plus
    right = (torch.equal(model.p, w[16:48]) and torch.equal(model.q, torch.cat([u.t(), torch.zeros(2, 4)]))
             and all(torch.equal(getattr(model, f"many{i}"), counting(4, 4) + i + plus) for i in range(int(sys.argv[5])))
             and torch.equal(model.c, (v[:8] + 1).to(torch.bfloat16).float()))
    assert places == [parameter.data_ptr() for parameter in model.parameters()]
    print(json.dumps({"right": right, "said": said, "requests": len(reports), "written": written, "copied": filled.copied_bytes,
                      "targets": sum(report["bytes"].get("target", 0) for report in reports),
                      "devices": [device["used_bytes"] for device in status["devices"]]}))
"""


@pytest.fixture
def start(tmp_path):
    made, folders = [], [tmp_path / f"models/{name}" for name in ("m", "new")]
    for plus, folder in zip((0, 1000), folders):
        folder.mkdir(parents=True)
        many = {f"many{i}": counting(4, 4) + i + plus for i in range(MANY)}
        save_file({"w": counting(64, 16) + plus, "u": counting(4, 3) + plus, "v": counting(9, 4) + plus, **many}, folder / "model.safetensors")

    def make(gpus, **settings):
        made.append(Daemon([tmp_path / "models"], settings, {}).start(environment=environment(memory=4096) if gpus else {}))
        made[-1].references = [f"disk:{folder}" for folder in folders]
        return made[-1]

    yield make
    for daemon in made:
        complaint = daemon.remove()
        assert not complaint, complaint


def load(daemon):
    """What became of the first weights, and of the new ones."""
    out = python(SCRIPT, daemon.socket, ROOT / "client/vllm", ROOT / "tests/vllm", *daemon.references, MANY)
    return [json.loads(line) for line in out.splitlines()[-2:]]


@needs_plugin
def test_parameters_are_filled_where_they_are_and_filled_again_without_room_for_a_second_copy(start):
    written = 32 * 16 * 4 + 12 * 4 + MANY * 64
    for report in load(start(gpus=True, devices={"memory_budget": "4KiB"})):
        assert report == {"right": True, "said": [], "requests": 1, "written": written, "copied": 8 * 4 * 4, "targets": written,
                          "devices": [0, 0]}


@needs_plugin
def test_where_the_daemon_cannot_tensors_go_through_host_memory_with_a_warning(start):
    first, second = load(start(gpus=False))
    assert first["right"] and second["right"] and first["written"] == 0 and first["copied"] == 32 * 16 * 4 + 12 * 4 + 8 * 4 * 4 + MANY * 64
    (said,) = first["said"]
    assert "THE DAEMON CANNOT WRITE TO THE PARAMETERS" in said and "no GPU" in said


def model_on(*devices):
    tensors = [("p", SimpleNamespace(device=torch.device(device))) for device in devices]
    return SimpleNamespace(named_parameters=lambda remove_duplicate: tensors, named_buffers=lambda remove_duplicate: [])


@pytest.mark.parametrize("devices, near", [(["cpu"], "cpu"), (["meta", "cpu"], "cpu"), (["cuda:1"], "cuda:1"),
                                           (["cpu", "cuda:1", "meta"], "cuda:1"), (["cuda:0", "cuda:1"], "cpu"), (["xpu:0"], "cpu")])
def test_pieces_are_loaded_where_the_model_is_if_that_is_one_gpu(devices, near):
    assert device_of(model_on(*devices)) == torch.device(near)
