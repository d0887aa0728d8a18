"""A daemon, tiny random models as the libraries themselves save them, and programs in processes of their own."""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("TENSORCAST_BUILD") or HERE.parents[1] / "build")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ.update(OFFLINE)
sys.path.insert(0, str(HERE))

import models as made  # noqa: E402


@pytest.fixture(scope="session")
def folder():
    with tempfile.TemporaryDirectory(prefix="tensorcast-faces-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def models(folder):
    """made.Models: folders of checkpoints, and what their state dicts have to be."""
    return made.write(folder / "models")


class Daemon:
    def __init__(self, folder):
        self.socket, self.log = folder / "daemon.sock", folder / "daemon.log"
        (folder / "daemon.yaml").write_text(json.dumps({
            "server": {"socket_path": str(self.socket), "state_dir": f"{folder}/state"},
            "sources": {"disk": {"trusted_roots": [f"{folder}/models"]}}}))
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([BUILD / "tensorcastd", "--config", folder / "daemon.yaml"], stderr=log)
        while not self.socket.exists():
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def release(self):
        """Nothing is resident that no client holds."""
        subprocess.run([BUILD / "tensorcast", "--socket", self.socket, "release", "--all"], check=True, capture_output=True)


@pytest.fixture(scope="session")
def daemon(folder, models):
    daemon = Daemon(folder)
    yield daemon
    daemon.process.terminate()
    assert daemon.process.wait(30) == 0, daemon.log.read_text()


@pytest.fixture(scope="session")
def start(daemon, folder):
    """Starts a program of this folder; (process, a function that waits for it and returns the JSON objects it printed)."""

    def start(*words, **env):
        process = subprocess.Popen([sys.executable, *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=HERE,
                                   env={**os.environ, "TENSORCAST_SOCKET": str(daemon.socket), "XDG_CACHE_HOME": f"{folder}/cache",
                                        "TENSORCAST_REQUIRED": "1", **env})

        def finish():
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, f"exit {process.returncode}\n{out[-3000:]}\n{err[-6000:]}"
            return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

        return finish

    return start
