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

SCRIPT = """
import json, sys
sys.path[:0] = sys.argv[1:3]
import tensorcast_client as tc, torch
from scene import Model, counting
from tensorcast_client import cuda
from tensorcast_vllm.attempts import trace
from tensorcast_vllm.checkpoint import Checkpoint
from tensorcast_vllm.fill import fill
from tensorcast_vllm.plan import Plan
cuda.DeviceMemory.__dlpack_device__ = lambda self: (1, 0)

def take(model, name, x):
    if name == "w":
        model.p.copy_(x[16:48])
    else:
        model.c.copy_((x[:8] + 1).to(torch.bfloat16))

said = []
model = Model(take, {"p": (32, 16), "c": (8, 4)})
with tc.connect() as client:
    checkpoint = Checkpoint(client.artifact(sys.argv[3]), lambda request: tc.Options(), lambda text: None)
    sources = checkpoint.sources()
    plan = Plan(trace(model, sources, checkpoint.fetch), sources)
    loaded = checkpoint.load_near(plan, torch.device("cuda:0"), True, said.append)
    memory = [tensors.diagnostics["memory"] for tensors in loaded]
    filled = fill(model, plan, loaded, False)
    if memory == ["device"]:
        checkpoint.free(loaded)
    status = client.status()
right = torch.equal(model.p, counting(64, 16)[16:48]) and torch.equal(model.c, (counting(9, 4)[:8] + 1).to(torch.bfloat16).float())
print(json.dumps({"right": right, "memory": memory, "said": said, "copied": filled.copied_bytes,
                  "devices": [device["used_bytes"] for device in status["devices"]]}))
"""


@pytest.fixture
def start(tmp_path):
    folder = tmp_path / "models/m"
    folder.mkdir(parents=True)
    save_file({"w": counting(64, 16), "v": counting(9, 4)}, folder / "model.safetensors")
    made = []

    def make(gpus, **settings):
        made.append(Daemon([tmp_path / "models"], settings, {}).start(environment=environment() if gpus else {}))
        made[-1].reference = f"disk:{folder}"
        return made[-1]

    yield make
    for daemon in made:
        complaint = daemon.remove()
        assert not complaint, complaint


def load(daemon):
    out = python(SCRIPT, daemon.socket, ROOT / "client/vllm", ROOT / "tests/vllm", daemon.reference)
    return json.loads(out.splitlines()[-1])


@needs_plugin
def test_a_model_on_a_gpu_is_filled_from_its_memory_which_is_given_back(start):
    report = load(start(gpus=True))
    assert report == {"right": True, "memory": ["device"], "said": [], "copied": 32 * 16 * 4 + 8 * 4 * 4, "devices": [0, 0]}


@needs_plugin
@pytest.mark.parametrize("gpus, settings, why", [(False, {}, "this daemon has no GPU"),
                                                 (True, {"devices": {"memory_budget": "4KiB"}}, "RESOURCE_EXHAUSTED")])
def test_where_the_daemon_cannot_tensors_go_through_host_memory_with_a_warning(start, gpus, settings, why):
    report = load(start(gpus, **settings))
    assert report["right"] and report["memory"] != ["device"]
    (said,) = report["said"]
    assert "THE DAEMON CANNOT LOAD INTO cuda:0" in said and why in said


def model_on(*devices):
    tensors = [("p", SimpleNamespace(device=torch.device(device))) for device in devices]
    return SimpleNamespace(named_parameters=lambda remove_duplicate: tensors, named_buffers=lambda remove_duplicate: [])


@pytest.mark.parametrize("devices, near", [(["cpu"], "cpu"), (["meta", "cpu"], "cpu"), (["cuda:1"], "cuda:1"),
                                           (["cpu", "cuda:1", "meta"], "cuda:1"), (["cuda:0", "cuda:1"], "cpu"), (["xpu:0"], "cpu")])
def test_pieces_are_loaded_where_the_model_is_if_that_is_one_gpu(devices, near):
    assert device_of(model_on(*devices)) == torch.device(near)
