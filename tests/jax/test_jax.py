"""jax.load with 1, 4 and 8 devices forced on this host's CPU, each in a process of its own (a process has its devices for
good), and with two processes that own four devices each. Needs build/tensorcastd and jax: setup/setup.sh jax."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from layouts import write as write_layout  # noqa: E402
ROOT = HERE.parents[1]
BUILD = ROOT / os.environ.get("TENSORCAST_BUILD", "build")

np.float8_e4m3fn, np.float8_e5m2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2  # where safetensors looks for them
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn,
         "e5m2": ml_dtypes.float8_e5m2, "i32": np.int32, "u8": np.uint8, "i8": np.int8, "u16": np.uint16}
SHAPES = {"matrix": (16, 48), "tall": (64, 8), "cube": (4, 8, 6), "vector": (24,), "odd": (3, 5), "scalar": (), "none": (0, 8)}


def random_bits(rng, dtype, shape):
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(shape)


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """Of a process that can load: a daemon's socket and the folder of models."""
    folder = tmp_path_factory.mktemp("jax")
    rng = np.random.default_rng(7)
    small = {f"{shape}.{dtype}": random_bits(rng, TYPES[dtype], SHAPES[shape]) for shape in SHAPES for dtype in TYPES}
    (folder / "models/small").mkdir(parents=True)
    (folder / "models/wide").mkdir()
    save_file(small, folder / "models/small/model.safetensors")
    for layout in ("topology", "dcp"):
        write_layout(folder / "models" / layout, layout, small)
    save_file({"i64": random_bits(rng, np.int64, (8, 4)), "f32": random_bits(rng, np.float32, (8, 4))},
              folder / "models/wide/model.safetensors")
    (folder / "models/frozen").mkdir()
    frozen = (folder / "models/small/model.safetensors").read_bytes()
    header = int.from_bytes(frozen[:8], "little")
    for name, pad in (("a", -(8 + header) % 64), ("b", 1 - (8 + header) % 2)):  # data 64-byte aligned, and at an odd byte
        whole = (header + pad).to_bytes(8, "little") + frozen[8:8 + header] + b" " * pad + frozen[8 + header:]
        (folder / f"models/frozen/{name}.safetensors").write_bytes(whole)
    socket = folder / "d.sock"
    (folder / "config.yaml").write_text(json.dumps({
        "server": {"socket_path": str(socket), "state_dir": str(folder / "state")},
        "sources": {"disk": {"trusted_roots": [str(folder / "models")], "immutable_roots": [str(folder / "models/frozen")]}}}))
    with open(folder / "log", "w") as log:
        daemon = subprocess.Popen([BUILD / "tensorcastd", "--config", folder / "config.yaml"], stderr=log)
    end = time.monotonic() + 60
    while not socket.exists():
        assert daemon.poll() is None and time.monotonic() < end, (folder / "log").read_text()
        time.sleep(0.02)
    path = os.pathsep.join([str(ROOT / "client/python"), os.environ.get("PYTHONPATH", "")])
    yield {**os.environ, "TENSORCAST_SOCKET": str(socket), "JAX_MODELS": str(folder / "models"), "JAX_PLATFORMS": "cpu",
           "PYTHONPATH": path}
    daemon.terminate()
    assert daemon.wait(20) == 0


def forced(count):
    return {"XLA_FLAGS": f"--xla_force_host_platform_device_count={count}"}


@pytest.mark.parametrize("count", [1, 4, 8])
def test_jax_arrays_are_right_with_so_many_devices(environment, count):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "on_devices.py"], text=True,
                          capture_output=True, timeout=400, env={**environment, **forced(count), "JAX_COUNT": str(count)})
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "failed" not in done.stdout and "skipped" not in done.stdout, done.stdout


def test_two_processes_load_what_their_own_devices_have(environment, tmp_path):
    script, address = HERE / "two_processes.py", f"unix:{tmp_path}/coordinator"
    processes = [subprocess.Popen([sys.executable, script, address, str(rank)], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env={**environment, **forced(4)}) for rank in (0, 1)]
    for process in processes:
        out, _ = process.communicate(timeout=200)
        assert process.returncode == 0 and "all blocks are right" in out, out[-4000:]


def test_the_example_runs(environment):
    done = subprocess.run([sys.executable, ROOT / "examples/load_jax.py", f"disk:{environment['JAX_MODELS']}/small"], text=True,
                          capture_output=True, timeout=200, env={**environment, **forced(4)})
    assert done.returncode == 0 and "is the same as without jax" in done.stdout, done.stdout + done.stderr
    assert "matrix.bf16: bfloat16[16, 48] in 4 part(s) on 4 device(s)" in done.stdout
