"""Fixtures: `models` is a trusted folder of one test, `start` makes daemons, `daemon` is one with the defaults, `alone` is the command
without one, `either` both. Those of the fake stores are in store_scene.py and stores_fixture.py."""
import contextlib
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from stage import SANITIZED, Daemon, Tensorcast, standalone
from store_scene import SCHEMES, aws_keys, bare, store_daemon  # noqa: F401
from stores_fixture import authority, fake, secure_fake  # noqa: F401


LONGEST = ("test_host_network.py", "test_sharing.py", "test_sharing_clusters.py", "test_other_versions.py", "test_host_groups.py",
           "test_hosts.py", "test_users.py")


def pytest_configure(config):
    config.addinivalue_line("markers", "plain: measures memory, so it says nothing under a sanitizer")
    config.addinivalue_line("markers", "alone: measures time, so it runs alone, and never under a sanitizer")
    # A shell starts background jobs with SIGINT ignored, and every command that a test interrupts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path.name not in LONGEST)  # begun last, one of them would run alone at the end
    if SANITIZED:
        kept = [item for item in items if not item.get_closest_marker("plain") and not item.get_closest_marker("alone")]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.fixture
def models():
    folder = Path(tempfile.mkdtemp(prefix="tc8-models-")).resolve()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start(models):
    made = []

    def make(wait=True, limits=None, running=True, **settings):
        made.append(Daemon([models], settings, limits or {}))
        return made[-1].start(wait) if running else made[-1]

    yield make
    complaints = [text for text in (daemon.remove() for daemon in made) if text]
    assert not complaints, complaints[0]


@pytest.fixture
def daemon(start):
    return start()


@pytest.fixture
def small_disk():
    """small_disk(bytes): a file system of that size."""
    with contextlib.ExitStack() as made:
        def mount(size):
            folder = Path(tempfile.mkdtemp(prefix="tc8-small-"))
            made.callback(folder.rmdir)
            if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tc8", folder], stderr=subprocess.DEVNULL).returncode:
                pytest.skip("no tmpfs can be mounted here")
            made.callback(subprocess.run, ["umount", "-l", folder], check=True)
            return folder

        yield mount


@pytest.fixture
def alone():
    return Tensorcast("/tmp/tc8-no-daemon-here.sock")


@pytest.fixture(params=["daemon", "standalone"])
def either(request):
    """The command, with a daemon and without one."""
    return standalone() if request.param == "standalone" else request.getfixturevalue("daemon").cli


@pytest.fixture(params=SCHEMES)
def scheme(request):
    return request.param


@pytest.fixture
def acts(models):
    return models / "acts"
