"""The fake object stores in this process, for end-to-end tests: `from stores_fixture import fake` makes the fixture."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fake"))

import certificates  # noqa: E402
import checksums  # noqa: E402
from proxy import Proxy  # noqa: E402
from stores import Stores  # noqa: E402

__all__ = ["Proxy", "Stores", "authority", "certificates", "checksums", "fake", "secure_fake"]


@pytest.fixture
def fake():
    stores = Stores()
    yield stores
    stores.close()


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    """A folder with a private CA (ca.pem) and a certificate for loopback names."""
    folder = tmp_path_factory.mktemp("authority")
    certificates.make(folder)
    return folder


@pytest.fixture
def secure_fake(authority):
    stores = Stores(tls=authority)
    yield stores
    stores.close()
