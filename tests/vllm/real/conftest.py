"""A daemon, checkpoints on disk and in a fake store, and a real vLLM in processes of its own."""
import contextlib
import itertools
import json
import os
import signal
import socket as socket_module
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
    written = {family: checkpoints.write(folder / "models" / family, family) for family in checkpoints.ALL}
    written["broken"] = checkpoints.write(folder / "models" / "broken", "llama", without=["model.norm.weight"])
    return written


def other_value(name, tensor):
    """Of a tensor of the same shape and the same magnitudes; which token or group something belongs to stays."""
    import torch
    if name in ("d2t", "t2d") or name.endswith(".g_idx"):
        return tensor
    return torch.flip(tensor.view(torch.int8) if tensor.element_size() == 1 else tensor, (0,)).view(tensor.dtype)


@pytest.fixture(scope="session")
def new_models(folder, models):
    """{family: folder} of the same models with other values, and what is no other version of "llama"."""
    made = {}

    def write(name, family, **how):
        made[name] = str(checkpoints.write(folder / "models/new" / name, family, **{"of": other_value, **how})[0])

    for family in checkpoints.ALL:
        write(family, family)
    write("other configuration", "llama", rope_theta=20000.0)
    write("incomplete", "llama", without=["model.layers.1.mlp.down_proj.weight"])
    return made


def cases_of(size, models, new_models, folder, elsewhere, stale):
    """All that ranks.py is asked about groups of `size` ranks, in one job, as importing vLLM takes longer than most of it."""
    import test_ranks
    import test_reload
    import test_shapes
    made = test_ranks.cases_of(size, models, folder)
    return {**made, **test_shapes.cases_of(size, models, elsewhere, stale), **test_reload.cases_of(size, models, new_models)}


@pytest.fixture(scope="session")
def reports(models, new_models, python, folder, elsewhere, stale):
    """{size: [report of each rank]}, and what was logged."""
    made = {"log": ""}
    for size in (1, 2):
        cases = cases_of(size, models, new_models, folder, elsewhere, stale)
        made[size], log = python("ranks.py", {"size": size, "rendezvous": str(folder / f"rendezvous-{size}"), "cases": cases})
        made["log"] += log
        for report in made[size]:
            assert "error" not in report, report["error"]
    return made


@pytest.fixture(scope="session")
def elsewhere(models, folder, socket):
    """The folder that `tensorcast-vllm` makes of a model: without any tensor."""
    done = subprocess.run([sys.executable, "-m", "tensorcast_vllm", f"disk:{models['llama'][0]}", "--socket", socket, "--cache",
                           folder / "cache"], text=True, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def stale(elsewhere, folder):
    """That folder, with the identity of other files."""
    made = folder / "stale"
    made.mkdir()
    for name in ("config.json", "tensorcast.json"):
        (made / name).write_bytes((Path(elsewhere) / name).read_bytes())
    note = json.loads((made / "tensorcast.json").read_text())
    (made / "tensorcast.json").write_text(json.dumps({**note, "identity": "0" * 64}))
    return made


@pytest.fixture(scope="session")
def store(folder, models, new_models):
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


class Warm:
    """A warm.py, which runs scripts in processes that need not import vLLM."""

    def __init__(self, folder, environment):
        self._socket, self._count = folder / "warm.sock", itertools.count()
        self._process = subprocess.Popen([sys.executable, HERE / "warm.py", self._socket], stdin=subprocess.PIPE, env=environment,
                                         stdout=subprocess.DEVNULL, stderr=open(folder / "warm.log", "w"))
        self._folder = folder

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(60) == 0, (self._folder / "warm.log").read_text()

    def run(self, script, arguments, environment, timeout):
        """(exit status, standard output, standard error) of a script; it and all its processes are ended after `timeout` seconds."""
        outputs = {kind: self._folder / f"{next(self._count)}.{kind}" for kind in ("stdout", "stderr")}
        with connected(self._socket, self._process) as connection, connection.makefile("rw") as stream:
            connection.settimeout(timeout)
            print(json.dumps({"script": str(script), "arguments": arguments, "environment": environment,
                              **{kind: str(path) for kind, path in outputs.items()}}), file=stream, flush=True)
            group = int(stream.readline())
            try:
                status = int(stream.readline())
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
                raise
        return status, *(path.read_text() for path in outputs.values())


def connected(path, process):
    """A connection to a Unix socket that a process is about to make."""
    connection = socket_module.socket(socket_module.AF_UNIX)
    while True:
        try:
            connection.connect(str(path))
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            assert process.poll() is None, f"{process.args} ended with {process.returncode}"
            time.sleep(0.05)


@pytest.fixture(scope="session")
def environment(folder):
    """Of every process with a vLLM. One thread each, as ranks share the cores, and a forked process has no threads of its parent."""
    return {**os.environ, **VLLM, "XDG_CACHE_HOME": f"{folder}/cache", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session", autouse=True)
def warm(folder, environment):
    made = Warm(folder, environment)
    yield made
    made.close()


@pytest.fixture(scope="session")
def python(socket, folder, warm, environment):
    """Runs a script of this folder with a JSON argument; (the JSON objects that it prints, what it logs)."""

    def run(script, job, timeout=900, anew=False, **more):
        """anew: in a new process, whose processes are new, too, instead of forked from one that has imported vLLM."""
        words, more = [str(HERE / script), json.dumps(job)], {"TENSORCAST_SOCKET": str(socket), **more}
        if anew:
            done = subprocess.run([sys.executable, *words], text=True, timeout=timeout, capture_output=True, env={**environment, **more})
            status, stdout, stderr = done.returncode, done.stdout, done.stderr
        else:
            status, stdout, stderr = warm.run(words[0], words[1:], more, timeout)
        said = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        causes = [line for line in (stdout + stderr).splitlines() if "Error" in line][:10]
        assert status == 0 and said, "\n".join([f"exit {status}", *causes, stdout[-3000:], stderr[-6000:]])
        return said, stdout + stderr

    return run
