"""Several users of one GPU: clients can write into GPU memory, so who shares a replica must trust the others. The daemon has its
real plugin on the fake CUDA, whose memory is that of the descriptor."""
import contextlib
import mmap
import os

import pytest

from fake_gpu import arrays, environment, needs_plugin  # noqa: F401
from test_users import ANN, BOB, OPEN, lease, wire

pytestmark = [needs_plugin, pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act for several users")]
SCRIBBLED = b"\xa7" * 4096


@pytest.fixture
def gpu(start):
    def make(**memory):
        daemon = start(running=False, server=OPEN, memory=memory)
        daemon.folder.chmod(0o755)
        return daemon.start(environment=environment(devices=1))

    return make


@contextlib.contextmanager
def replica(daemon, uid, artifact):
    """(bytes of its memory, from_replica) while this user holds a lease."""
    with wire(daemon, uid) as spoken:
        load = spoken.load_request(artifact)
        load.device = "cuda:0"
        for event in spoken.call("Materialize", spoken.message("MaterializeRequest", load=load)):
            if event.WhichOneof("event") == "result":
                result = event.result
        sock, fd = lease(daemon, uid, result.handoff_token)
        with sock, mmap.mmap(fd, os.fstat(fd).st_size) as memory:
            yield memory, result.report.from_replica
        os.close(fd)


def test_what_a_user_writes_into_gpu_memory_is_in_no_other_users_replica(gpu, models, arrays):
    daemon, artifact = gpu(), f"disk:{models}/m"
    with replica(daemon, ANN, artifact) as (anns, _), replica(daemon, BOB, artifact) as (bobs, is_old):
        before = anns[:]
        bobs[:4096] = SCRIBBLED
        assert not is_old and anns[:] == before
        with replica(daemon, ANN, artifact) as (again, is_old):
            assert is_old and again[:] == before
        with replica(daemon, 0, artifact) as (roots, is_old):
            assert not is_old and roots[:] == before
    assert sorted(row["device"] for row in daemon.status()["replicas"]) == [daemon.status()["devices"][0]["device"]] * 3


def test_users_share_gpu_memory_where_the_configuration_says_that_they_trust_each_other(gpu, models, arrays):
    daemon, artifact = gpu(share_gpu_between_users=True), f"disk:{models}/m"
    with replica(daemon, ANN, artifact) as (anns, _), replica(daemon, BOB, artifact) as (bobs, is_old):
        bobs[:4096] = SCRIBBLED
        assert is_old and anns[:4096] == SCRIBBLED
