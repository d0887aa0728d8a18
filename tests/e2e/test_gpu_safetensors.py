"""load_file and safe_open with device="cuda:N": into memory that torch has on the GPU, which here is the fake CUDA's; torch sees none."""
import json
import os
import subprocess
import sys

import pytest

from fake_gpu import ALLOCATE, FAKE, arrays, digest, environment, needs_plugin  # noqa: F401
from stage import ROOT

pytestmark = needs_plugin

# `room` stands for torch.empty(device="cuda:0"); what went by host memory has been moved by torch's to(). torch brings its own runtime, before
# the fake's is loaded.
CLIENT = ALLOCATE + """
import hashlib
import torch
from tensorcast_client.dtypes import of_numpy
from tensorcast_client.safetensors import frameworks, on_gpu, safe_open
from tensorcast_client.safetensors.torch import load_file
path, made, by_host = sys.argv[2], [], []
def room(self, shape, number):
    dtype = np.dtype(of_numpy(number))
    array = allocation(max(1, dtype.itemsize * int(np.prod(shape))))[:dtype.itemsize * int(np.prod(shape))].view(dtype).reshape(shape)
    tensor = OnGpu(array)
    tensor.array, tensor.to = array, lambda device: tensor
    made.append(tensor)
    return tensor
def to(self, device):
    by_host.append(str(device))
    return OnHost(self)
class OnHost:
    def __init__(self, tensor):
        self.array = tensor.numpy()
frameworks.ForTorch._room, torch.Tensor.to = room, to
on_gpu.WORTH_A_LOAD_BYTES = MiB
def told(**tensors):
    return {name: hashlib.sha256(np.ascontiguousarray(tensor.array).tobytes()).hexdigest() for name, tensor in tensors.items()}
def replicas():
    return len(tc.connect().status()["replicas"])
def say(**tensors):
    print(json.dumps({**told(**tensors), "made": len(made), "by host": by_host, "replicas": replicas()}))
"""
ALL = 'say(**load_file(path, device="cuda:0"))'
BY_NAME = """
with safe_open(path, "pt", device="cuda") as file:
    say(**{name: file.get_tensor(name) for name in file.keys()}, rows=file.get_slice("odd")[:-7], columns=file.get_slice("a")[5:, 100:4000],
        small=file.get_slice("a")[:3], steps=file.get_slice("b")[::2])
"""


# Forks for each script, as importing torch takes longer than what they do.
WARM = """
import json, os, sys
import grpc, torch
import tensorcast_client.safetensors.torch
for line in sys.stdin:
    job = json.loads(line)
    if os.fork() == 0:
        for number, name in (1, "out"), (2, "err"):
            os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT), number)
        os.environ.update(job["environment"])
        sys.argv[1:] = job["arguments"]
        exec(job["script"], {})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""

pytest.importorskip("torch", reason="torch was left out of this environment")


@pytest.fixture
def gpus(start):
    return lambda **fake: start(running=False).start(environment=environment(**fake))


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """torch needs the real runtime, so of the fakes it has the driver."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libcuda.so.1").symlink_to(FAKE / "libcuda.so.1")
    env = {**os.environ, **environment(), "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT / "client" / "python")}
    with subprocess.Popen([sys.executable, "-c", WARM], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def ask(models, tmp_path, warm):
    """Runs a script on a daemon: (what it said of tensors, [the rest])."""
    def ask(daemon, script):
        out, err = tmp_path / "out", tmp_path / "err"
        job = {"script": CLIENT + script, "arguments": [f"disk:{models}/m", str(models / "m" / "model.safetensors")], "out": str(out),
               "err": str(err), "environment": {"TENSORCAST_SOCKET": str(daemon.socket)}}
        print(json.dumps(job), file=warm.stdin, flush=True)
        assert warm.stdout.readline() == "0\n", err.read_text()
        said = json.loads(out.read_text().splitlines()[-1])
        return said, [said.pop(name) for name in ("made", "by host", "replicas")]

    return ask


def digests(arrays, **more):
    return {name: digest(array) for name, array in {**arrays, **more}.items()}


def test_a_file_is_loaded_into_gpu_memory_without_a_byte_of_host_memory(gpus, ask, arrays):
    got, (made, by_host, replicas) = ask(gpus(), ALL)
    assert got == digests(arrays) and (made, by_host, replicas) == (3, [], 0)


def test_large_tensors_and_slices_go_straight_and_small_ones_by_host_memory(gpus, ask, arrays):
    got, (made, by_host, _) = ask(gpus(), BY_NAME)
    assert got == digests(arrays, rows=arrays["odd"][:-7], columns=arrays["a"][5:, 100:4000], small=arrays["a"][:3], steps=arrays["b"][::2])
    assert made == 4 and by_host == ["cuda:0"] * 3  # of `cuda` the first, as the official package has it


@pytest.mark.parametrize("script", [ALL, BY_NAME], ids=["whole", "by name"])
def test_a_daemon_without_gpus_serves_by_host_memory_and_is_not_asked_again(start, ask, arrays, script):
    got, (made, by_host, _) = ask(start(), f"load_file(path, device='cuda:0'); by_host.clear()\n{script}")
    assert got.items() >= digests(arrays).items() and made == 3 and set(by_host) == {"cuda:0"} and len(by_host) >= 3


def test_a_gpu_that_fails_in_the_middle_costs_nothing_but_time(gpus, ask, arrays):
    got, (made, by_host, _) = ask(gpus(fail="stream:1:719:sticky"), ALL)
    assert got == digests(arrays) and made == 3 and len(by_host) == 3


def test_a_file_that_is_replaced_is_never_given_for_the_one_that_was_opened(gpus, ask, arrays):
    script = """
import shutil
from safetensors import SafetensorError
os.environ["TENSORCAST_REQUIRED"] = "1"
file = safe_open(path, "pt", device="cuda:0")
shutil.copy(path, path + ".new")
os.replace(path + ".new", path)
try:
    file.get_tensor("odd")
except SafetensorError as error:
    print(json.dumps({"error": str(error), "made": 0, "by host": by_host, "replicas": 0}))
"""
    got, _ = ask(gpus(), script)
    assert "replaced" in got["error"]
