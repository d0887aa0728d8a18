"""Fixtures: `models` is a trusted folder of one test, `start` makes daemons, `daemon` is one with the defaults."""
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from stage import SANITIZED, Daemon


def pytest_configure(config):
    config.addinivalue_line("markers", "plain: measures memory, so it says nothing under a sanitizer")
    config.addinivalue_line("markers", "alone: measures time, so it runs alone, and never under a sanitizer")
    # A shell starts background jobs with SIGINT ignored, and every command that a test interrupts would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
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
