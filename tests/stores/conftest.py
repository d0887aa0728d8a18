"""These tests have a virtual environment of their own, with the official clients: bash tests/run.sh stores"""
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "fake"), str(TESTS / "e2e")]

from stores import Stores  # noqa: E402


@pytest.fixture
def fake(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    stores = Stores()
    yield stores
    stores.close()
