"""What the tests of GPUs stand on: environments in which daemon and clients find the fakes of tests/fake/cuda and nccl."""
import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from checkpoints import write
from stage import BUILD, ROOT, MiB

FAKE = BUILD / "fake" / "cuda"
FAKE_NCCL = BUILD / "fake" / "nccl"
PLUGIN = BUILD / "plugins" / "tensorcast-cuda.so"
ALL_UUIDS = [f"GPU-fa4e0000-0000-0000-0000-{number:012d}" for number in range(8)]
UUIDS = ALL_UUIDS[:2]

# Allocations of the fake's memory, which is this process's own, and arrays in them as NumPy and CUDA see them.
ALLOCATE = """
import ctypes, glob, json, os, sys
import numpy as np
import tensorcast_client as tc
MiB = 1 << 20
fake = os.path.dirname(os.path.realpath(os.environ["LD_LIBRARY_PATH"].split(":")[0] + "/libcuda.so.1"))
runtime = ctypes.CDLL(next(path for path in glob.glob(fake + "/libcudart.so.*") if not path.endswith(".map")))
def allocation(size):
    address = ctypes.c_uint64()
    assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address.value))
    memory[:] = 0xA5
    return memory
class OnGpu:
    def __init__(self, array):
        self.__cuda_array_interface__ = {"shape": array.shape, "typestr": array.dtype.str, "strides": array.strides, "version": 3,
                                         "data": (array.__array_interface__["data"][0], False)}
"""

needs_plugin = pytest.mark.skipif(not PLUGIN.exists() or not FAKE.exists(),
                                  reason="the plugin is not built: no CUDA runtime of 12.5 or later to build against")
needs_nccl = pytest.mark.skipif(not (FAKE_NCCL / "libnccl.so.2").exists(),
                                reason="the plugin is built without NCCL: no nccl.h of 2.19 or later to build against")


def environment(**settings):
    """settings: fail="FUNCTION:NTH:CODE[:sticky]", devices=2, memory=bytes, delay_us=0, nccl_fail="FUNCTION:NTH:CODE"."""
    names = {name: name if name.startswith("nccl_") else f"cuda_{name}" for name in settings}
    return {"LD_LIBRARY_PATH": f"{FAKE}:{FAKE_NCCL}", "TENSORCAST_TEST_FAKE_CUDA": "1", "TENSORCAST_TEST_FAKE_NCCL": "1",
            **{f"TENSORCAST_TEST_FAKE_{names[name].upper()}": str(value) for name, value in settings.items()}}


def see_gpus(cli, **settings):
    """From now on this command line's processes have fake GPUs, too."""
    cli.environment.update(environment(**settings))
    return cli


def spawn_python(script, socket, *arguments, **settings):
    """A Python client with fake GPUs."""
    package = ROOT / "client" / "python"
    return subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, **environment(**settings), "TENSORCAST_SOCKET": str(socket),
                                 "PYTHONPATH": str(package)})


def python(script, socket, *arguments, **settings):
    """Output of one that ends well."""
    client = spawn_python(script, socket, *arguments, **settings)
    out, told = client.communicate(timeout=120)
    assert client.returncode == 0, f"exit {client.returncode}\n{out}\n{told}"
    return out.strip()


@pytest.fixture
def arrays(models):
    """What the checkpoint `models`/m holds."""
    rng = np.random.default_rng(5)
    return write(models / "m", {"a": rng.integers(0, 255, (300, 5000)).astype(np.uint8), "b": rng.random((64, 33)).astype("f4"),
                                "odd": rng.integers(0, 255, (3 * MiB + 5,)).astype(np.uint8)})


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
