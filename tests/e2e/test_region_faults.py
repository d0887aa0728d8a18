"""Every call to the kernel about a client's memory may fail once: an error of that load or none, never of the daemon, and memory that
was not written to is said to be as it was."""
import subprocess

import grpc
import numpy as np
import pytest

from checkpoints import write
from host_regions import Region, materialize, offer, wire
from stage import ROOT, SANITIZED, MiB, soon

MOST_CALLS = 60
pytestmark = pytest.mark.skipif(SANITIZED, reason="a library is preloaded before the sanitizer's own")


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    library = tmp_path_factory.mktemp("faults") / "region_faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, ROOT / "tests" / "fault" / "region_faults.c", "-ldl"], check=True)
    return library


def test_every_call_about_a_clients_memory_may_fail_once(start, models, faults, tmp_path):
    made = write(models / "m", {"w": np.random.default_rng(5).integers(0, 256, (5 * MiB + 7,), np.uint8)})["w"]
    control, hit = tmp_path / "control", tmp_path / "control.hit"
    control.write_text("0 0")
    daemon = start(running=False, memory={"pool_budget": "0"}, server={"sandbox": "off"}).start(  # the faults write a file
        environment={"LD_PRELOAD": str(faults), "REGION_FAULTS": str(control)}.items())
    failed = 0
    for at in range(1, MOST_CALLS):
        region = Region(12 * MiB)
        with wire(daemon) as spoken:
            request = spoken.load_request(f"disk:{models}/m", ["w"])
            control.write_text(f"{at} {at}")
            request.region, peer = offer(daemon, region.fd)
            try:
                materialize(spoken, request)
                np.testing.assert_array_equal(region.bytes[:made.nbytes], made)
            except grpc.RpcError as error:
                failed += 1
                assert hit.exists() and ("undefined" in error.details() or (region.bytes == 0xEE).all()), error.details()
            assert peer.recv(1) == b""
        region.close()
        if not hit.exists():
            break
        hit.unlink()
    assert 8 <= failed < at < MOST_CALLS - 1
    assert daemon.process.poll() is None
    status = daemon.status()
    assert (status["loads"], status["replicas"], status["leases"]) == ([], [], 0) and soon(lambda: daemon.descriptors() < 60)
