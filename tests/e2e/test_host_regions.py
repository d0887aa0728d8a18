"""Loads into memfds of the client, spoken on the wire: the view packed into one region."""
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from checkpoints import blob, write
from host_regions import F_SEAL_GROW, F_SEAL_WRITE, Region, materialize, memfd, offer, wire
from stage import MiB, soon
from wire import code_of


FILES = 2  # of models, that the daemon keeps open


@pytest.fixture
def daemon(start):
    return start()


@pytest.fixture
def model(models):
    rng = np.random.default_rng(1)
    return write(models / "m", {"a": rng.integers(0, 256, (33, 7), np.uint8), "b": blob(2, 5 * MiB + 11)})


def load(daemon, models, region, names=("b", "a"), **fields):
    token, peer = offer(daemon, region.fd)
    with wire(daemon) as spoken:
        request = spoken.load_request(f"disk:{models}/m", names)
        request.region = token
        for key, value in fields.items():
            setattr(request, key, value)
        result = materialize(spoken, request)
    assert peer.recv(1) == b""  # nothing of the daemon touches the memory any more
    peer.close()
    return result


def nothing_is_left(daemon):
    status = daemon.status()
    return (status["loads"], status["replicas"], status["leases"], status["memory"]["used_bytes"]) == ([], [], 0, 0)


def test_a_memfd_is_filled_with_the_packed_view_and_nothing_behind_it(daemon, models, model):
    before = daemon.descriptors()
    region = Region(8 * MiB + 5)
    for _ in range(2):
        result = load(daemon, models, region)
        places = dict(zip(["b", "a"], result.layout.offsets))
        end = places["a"] + 33 * 7
        for name, place in places.items():
            np.testing.assert_array_equal(region.bytes[place:place + model[name].nbytes], model[name].ravel())
        assert not region.bytes[model["b"].nbytes:places["a"]].any()  # padding between them
        assert (region.bytes[end:] == 0xEE).all()
        assert result.handoff_token == b"" and result.memory_bytes == 0 and not result.report.from_replica
        region.bytes[:] = 0xEE
    assert nothing_is_left(daemon) and soon(lambda: daemon.descriptors() <= before + FILES)


REFUSED = {"REGION_CAN_SHRINK": lambda: memfd(8 * MiB, 0), "REGION_IS_SEALED": lambda: memfd(8 * MiB, 2 | F_SEAL_WRITE),
           "REGION_EMPTY": lambda: memfd(0), "REGION_NOT_MEMFD": lambda: os.open("/dev/zero", os.O_RDWR),
           "REGION_TOO_SMALL": lambda: memfd(5 * MiB, 2 | F_SEAL_GROW),
           "REGION_READ_ONLY": lambda: os.open(f"/proc/self/fd/{memfd(8 * MiB)}", os.O_RDONLY)}


@pytest.mark.parametrize("reason", REFUSED)
def test_memory_that_cannot_be_filled_is_refused(daemon, models, model, reason):
    token, peer = offer(daemon, REFUSED[reason]())
    with wire(daemon) as spoken:
        request = spoken.load_request(f"disk:{models}/m")
        request.region = token
        with pytest.raises(grpc.RpcError) as caught:
            materialize(spoken, request)
        assert code_of(caught.value) == grpc.StatusCode.INVALID_ARGUMENT and reason in str(caught.value.trailing_metadata())
        with pytest.raises(grpc.RpcError) as caught:  # and its token is worth nothing any more
            materialize(spoken, request)
    assert code_of(caught.value) == grpc.StatusCode.ABORTED
    assert peer.recv(1) == b"" and nothing_is_left(daemon)


def test_bytes_in_a_clients_memory_are_given_to_no_other_client(daemon, models, model):
    """What the client writes over them is not what the next load gets, and neither finds the other's memory."""
    region = Region(8 * MiB)
    load(daemon, models, region)
    region.bytes[:] = 0x55
    out = daemon.cli.json("load", f"disk:{models}/m")
    assert not out["from_replica"] and out["bytes"]["shared"] == 0
    load(daemon, models, region)
    np.testing.assert_array_equal(region.bytes[:model["b"].nbytes], model["b"])


def test_holes_and_growth_and_sealing_harm_the_client_alone(daemon, models):
    large = blob(3, 48 * MiB)
    write(models / "m", {"w": large})
    region = Region(64 * MiB)
    script = """if 1:
        import ctypes, os, sys, time
        libc, fd, end = ctypes.CDLL(None), int(sys.argv[1]), time.monotonic() + 20
        print("go", flush=True)
        while time.monotonic() < end:
            libc.fallocate(fd, 3, ctypes.c_long(0), ctypes.c_long(64 << 20))
            os.ftruncate(fd, os.fstat(fd).st_size + 1)
    """
    child = subprocess.Popen([sys.executable, "-c", script, str(region.fd)], pass_fds=[region.fd], stdout=-1)
    try:
        assert child.stdout.readline() == b"go\n"
        for _ in range(3):
            try:
                load(daemon, models, region, ["w"])
            except grpc.RpcError as error:  # the load met a hole
                assert error.code() is grpc.StatusCode.FAILED_PRECONDITION and "undefined" in error.details()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    region.bytes[:] = 1
    load(daemon, models, region, ["w"])
    np.testing.assert_array_equal(region.bytes[:large.nbytes], large)
    assert daemon.process.poll() is None and nothing_is_left(daemon)


def test_memory_with_a_hole_is_refused_and_the_daemon_makes_no_page_for_it(daemon, models):
    write(models / "m", {"w": blob(3, 24 * MiB)})
    region = Region(24 * MiB, fill=None)
    region.bytes[:8 * MiB] = 1
    with pytest.raises(grpc.RpcError) as refused:
        load(daemon, models, region, ["w"])
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION and "MADV_POPULATE_WRITE" in refused.value.details()
    assert os.fstat(region.fd).st_blocks * 512 == 8 * MiB and nothing_is_left(daemon)
    region.bytes[:] = 1
    load(daemon, models, region, ["w"])


def test_a_client_that_dies_in_mid_load_takes_its_request_with_it(daemon, models):
    write(models / "m", {"w": blob(4, 96 * MiB)})
    script = """if 1:
        import sys
        sys.path.insert(0, sys.argv[1])
        from types import SimpleNamespace
        import grpc
        from host_regions import Region, materialize, offer
        from wire import Wire
        region = Region(96 << 20, fill=0)
        spoken = Wire(grpc.insecure_channel("unix:" + sys.argv[2]))
        print("go", flush=True)
        while True:
            request = spoken.load_request(sys.argv[4], ["w"])
            request.region, peer = offer(SimpleNamespace(handoff=sys.argv[3]), region.fd)
            materialize(spoken, request)
    """
    before = daemon.descriptors()
    for wait in (0.0, 0.05, 0.1):
        child = subprocess.Popen([sys.executable, "-c", script, os.path.dirname(__file__), str(daemon.socket), str(daemon.handoff),
                                  f"disk:{models}/m"], stdout=-1)
        assert child.stdout.readline() == b"go\n"
        soon(lambda: daemon.status()["loads"] != [], 5)
        soon(lambda: False, wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert soon(lambda: nothing_is_left(daemon) and daemon.descriptors() <= before + FILES)
    assert daemon.cli.run("load", f"disk:{models}/m").code == 0


COLLECTIVE = {"enable_owner_file_collective": True, "owner_file_collective_min_dedup_saving_bytes": 0}


@pytest.fixture
def collective(start):
    return start(engine={"materialization_strategy": COLLECTIVE})


def rank(daemon, models, rank, size, region=None, collective=0):
    """The result of one rank, or the error; collective 0 = auto, 1 = required."""
    token, peer = offer(daemon, region.fd) if region else (b"", None)
    with wire(daemon) as spoken:
        request = spoken.load_request(f"disk:{models}/m", ["b", "a"])
        request.region = token
        request.topology.group.id, request.topology.group.rank, request.topology.group.world_size = "g", rank, size
        request.topology.source_locality = 2
        request.policy.collective = collective
        try:
            result = materialize(spoken, request)
        except grpc.RpcError as error:
            return error.details()
        finally:
            assert peer is None or peer.recv(1) == b""
    return result


def together(*calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def test_ranks_of_a_group_fill_memory_of_their_own(collective, models, model):
    regions = [Region(8 * MiB) for _ in range(3)]
    results = together(*[lambda r=r: rank(collective, models, r, 3, regions[r], collective=1) for r in range(3)])
    for region, result in zip(regions, results):
        assert result.report.executor == "owner_file_collective" and not result.report.joined
        np.testing.assert_array_equal(region.bytes[:model["b"].nbytes], model["b"])
    assert nothing_is_left(collective)


def test_some_ranks_of_a_group_have_memory_and_others_get_it(collective, models, model):
    region = Region(8 * MiB)
    mine, theirs, same = together(lambda: rank(collective, models, 0, 3, region, collective=1),
                                  lambda: rank(collective, models, 1, 3, collective=1),
                                  lambda: rank(collective, models, 2, 3, collective=1))
    assert mine.handoff_token == b"" and len(theirs.handoff_token) == len(same.handoff_token) == 32
    np.testing.assert_array_equal(region.bytes[:model["b"].nbytes], model["b"])


def test_a_rank_whose_memory_is_too_small_leaves_the_others_theirs(collective, models, model):
    small, good = Region(MiB), Region(8 * MiB)
    failed, result = together(lambda: rank(collective, models, 0, 2, small),
                              lambda: rank(collective, models, 1, 2, good))
    assert "has 1048576" in failed and "undefined" not in failed
    assert result.report.executor != "owner_file_collective" and result.handoff_token == b""
    np.testing.assert_array_equal(good.bytes[:model["b"].nbytes], model["b"])
    assert (small.bytes == 0xEE).all() and nothing_is_left(collective)
