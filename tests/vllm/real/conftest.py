"""A daemon, checkpoints on disk and in a fake store, and a real vLLM in processes of its own."""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import checkpoints
import pytest

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("TENSORCAST_BUILD") or HERE.parents[2] / "build")
# else it binds the host's own address, looks for models in the net, takes all memory and cores, and compiles a few helpers,
# for which it needs a C++ compiler and Python's headers
VLLM = {"VLLM_HOST_IP": "127.0.0.1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "TORCHDYNAMO_DISABLE": "1"}
if not Path("/sys/devices/system/cpu").exists():
    VLLM["PATH"] = f"{HERE / 'without_sys'}:{os.environ['PATH']}"


@pytest.fixture(scope="session")
def folder():
    with tempfile.TemporaryDirectory(prefix="tensorcast-vllm-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def models(folder):
    """{family: (folder, tensors)}; "broken" is a llama without its last norm."""
    written = {family: checkpoints.write(folder / "models" / family, family) for family in checkpoints.FAMILIES}
    written["broken"] = checkpoints.write(folder / "models" / "broken", "llama", without=["model.norm.weight"])
    return written


@pytest.fixture(scope="session")
def store(folder, models):
    """Where gs://models/FAMILY is."""
    fake = subprocess.Popen([sys.executable, str(HERE.parents[1] / "fake/stores.py"), "--gcs", f"models={folder}/models"],
                            stdout=subprocess.PIPE, text=True)
    yield json.loads(fake.stdout.readline())["gcs"]
    fake.kill()
    fake.wait()


@pytest.fixture(scope="session")
def socket(folder, store):
    path = folder / "daemon.sock"
    (folder / "daemon.yaml").write_text(json.dumps({  # which is YAML, too
        "server": {"socket_path": str(path), "state_dir": f"{folder}/state"},
        "sources": {"disk": {"trusted_roots": [f"{folder}/models"]}, "http": {"allow_plain": True},
                    "gcs": {"endpoint": store, "anonymous": True}},
        "engine": {"materialization_strategy": {"enable_owner_file_collective": True,
                                                "owner_file_collective_min_dedup_saving_bytes": "1"}}}))
    with open(folder / "daemon.log", "w") as log:
        daemon = subprocess.Popen([BUILD / "tensorcastd", "--config", folder / "daemon.yaml"], stderr=log)
    while not path.exists():
        assert daemon.poll() is None, (folder / "daemon.log").read_text()
        time.sleep(0.05)
    yield path
    daemon.terminate()
    assert daemon.wait(30) == 0, (folder / "daemon.log").read_text()


@pytest.fixture(scope="session")
def python(socket, folder):
    """Runs a script of this folder with a JSON argument; (the JSON objects that it prints, what it logs)."""

    def run(script, job, timeout=900):
        done = subprocess.run([sys.executable, str(HERE / script), json.dumps(job)], text=True, timeout=timeout,
                              capture_output=True, env={**os.environ, **VLLM, "TENSORCAST_SOCKET": str(socket),
                                                        "XDG_CACHE_HOME": f"{folder}/cache"})
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        causes = [line for line in (done.stdout + done.stderr).splitlines() if "Error" in line][:10]
        assert done.returncode == 0 and said, "\n".join([f"exit {done.returncode}", *causes, done.stdout[-3000:], done.stderr[-6000:]])
        return said, done.stdout + done.stderr

    return run
