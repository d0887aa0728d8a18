"""Tests of the Python client. `fake` is a stand-in for the daemon inside this process; `daemon` in test_with_daemon.py is
the real one. The package is taken from client/python, installed or not."""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client/python"))
os.environ["PYTHONPATH"] = str(ROOT / "client/python")
os.environ.pop("TENSORCAST_SOCKET", None)

import tensorcast_client as tc  # noqa: E402
from fake_daemon import FakeDaemon  # noqa: E402


@pytest.fixture
def fake():
    folder = tempfile.mkdtemp(prefix="tc fake %")  # a folder with a blank and a per cent sign
    daemon = FakeDaemon(folder)
    yield daemon
    daemon.stop()
    shutil.rmtree(folder)


@pytest.fixture
def client(fake):
    with tc.connect(fake.socket) as client:
        yield client


@pytest.fixture
def python(fake):
    """Runs a script in a process of its own, with the fake daemon's socket in the environment; returns its output."""

    def run(script, *args, timeout=240, **env):
        done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", script, *map(str, args)], text=True,
                              capture_output=True, timeout=timeout,
                              env={**os.environ, "TENSORCAST_SOCKET": fake.socket, **env})
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    return run
