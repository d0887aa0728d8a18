"""These tests have a virtual environment of their own, with the official clients: bash tests/run.sh stores"""
import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "fake"), str(TESTS / "e2e")]

import certificates  # noqa: E402
from stage import Daemon  # noqa: E402
from stores import Stores  # noqa: E402

FORGOTTEN = ("AWS_", "GOOGLE_", "HF_", "GCE_", "STORAGE_EMULATOR", "SSL_CERT", "CURL_CA")


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """No credentials, no proxies, an empty home."""
    for name in [n for n in os.environ if n.startswith(FORGOTTEN) or n.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def fake():
    stores = Stores()
    yield stores
    stores.close()


@pytest.fixture(scope="session")
def servers(tmp_path_factory):
    """start(servers.nginx, ...) starts a server in a folder of its own; all are stopped at the session's end."""
    folder, started = tmp_path_factory.mktemp("servers"), {}

    def start(make, *arguments):
        if (make, arguments) not in started:
            started[make, arguments] = make(folder / str(len(started)), *arguments)
        return started[make, arguments]

    yield start
    for server in reversed(started.values()):
        server.stop()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authority")
    certificates.make(folder)
    return folder


@pytest.fixture
def daemon_for():
    """Starts a daemon in the present environment: daemon_for(s3={...}) sets keys of `sources`."""
    made = []

    def start(environment=(), **sources):
        made.append(Daemon(["/nonexistent"], {"sources": {"disk": {"trusted_roots": []}, **sources}}, {}))
        return made[-1].start(environment=environment)

    yield start
    complaints = [text for text in (daemon.remove() for daemon in made) if text]
    assert not complaints, complaints[0]
