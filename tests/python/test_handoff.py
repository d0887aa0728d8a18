"""The hand-off socket, and a daemon that misbehaves on it."""
import contextlib
import os
import socket
import struct
import threading
import time

import grpc
import numpy as np
import pytest

import tensorcast_client as tc
from tensorcast_client import handoff

REF = "disk:/models/m"
MiB = 1 << 20


@pytest.fixture
def load(fake, client):
    fake.put(REF, {"w": ("U8", np.arange(200, dtype=np.uint8))})
    return lambda **how: client.artifact(REF).subset(["w"]).tensor_dict(framework="numpy", **how)


def open_fds():
    return len(os.listdir("/proc/self/fd"))


def comes_down_to(count, seconds=30):
    """Descriptors of this process; threads of gRPC may hold one a moment longer."""
    end = time.monotonic() + seconds
    while open_fds() > count and time.monotonic() < end:
        time.sleep(0.01)
    return open_fds() <= count


def header(magic=b"TCHO", version=1, size=4096, kind=2, n_fds=1):
    return struct.pack("<4sIQIIQ", magic, version, size, kind, n_fds, 0)


@pytest.mark.parametrize("answer,code", [
    (lambda peer, head, fd: peer.close(), "ABORTED"),
    (lambda peer, head, fd: socket.send_fds(peer, [header(magic=b"XXXX")], [fd]), "UNIMPLEMENTED"),
    (lambda peer, head, fd: socket.send_fds(peer, [header(version=2)], [fd]), "UNIMPLEMENTED"),
    (lambda peer, head, fd: peer.send(head), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [head], [fd, fd]), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [header(n_fds=2)], [fd, fd]), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [head[:31]], [fd]), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [head + b"x"], [fd]), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [header(size=0)], [fd]), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [header(size=8192)], [fd]), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [header(size=1 << 63)], [fd]), "INTERNAL"),
    (lambda peer, head, fd: socket.send_fds(peer, [head], [fd] * 20), "RESOURCE_EXHAUSTED")],
    ids=["closed", "magic", "version", "no descriptor", "two", "two, announced", "short", "long", "empty", "beyond the file",
         "absurd", "more than there is room for"])
def test_a_hand_off_that_is_not_one_is_an_error_and_leaks_nothing(fake, load, answer, code):
    load().close()
    assert fake.wait_for_leases(0)
    before, fake.answer = open_fds(), answer
    with pytest.raises(tc.TensorcastError) as caught:
        load()
    assert caught.value.code is grpc.StatusCode[code], caught.value
    assert fake.wait_for_leases(0)
    fake.answer = None
    load().close()
    assert fake.wait_for_leases(0) and comes_down_to(before)


def test_a_smaller_memory_than_the_layout_is_refused(fake, load):
    fake.mangle = lambda result: result.layout.offsets.__setitem__(0, 4000)
    with pytest.raises(tc.TensorcastError, match="4096 bytes of memory"):
        load()
    assert fake.wait_for_leases(0)


def test_a_result_whose_socket_is_not_here_is_refused(fake, load, tmp_path):
    fake.mangle = lambda result: setattr(result, "handoff_socket", str(tmp_path / "gone"))
    with pytest.raises(tc.TensorcastError) as caught:
        load()
    assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_the_socket_beside_the_clients_own_is_found_when_the_told_path_is_not_here(fake, load):
    fake.mangle = lambda result: setattr(result, "handoff_socket", "/in/the/container/daemon.handoff")
    assert load()["w"].sum() == np.arange(200).sum()


def test_a_silent_hand_off_ends_with_the_deadline(fake, load):
    fake.answer = lambda peer, head, fd: time.sleep(1)
    with pytest.raises(TimeoutError):
        load(options=tc.Options(deadline=0.3))


def test_nothing_is_inherited_by_programs_that_are_started(fake, load):
    tensors = load()
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "memfd" in os.readlink(f"/proc/self/fd/{fd}") or not os.get_inheritable(int(fd)):
                continue
        except OSError:
            continue
        assert "socket" not in os.readlink(f"/proc/self/fd/{fd}"), "an inheritable socket"
    assert tensors["w"].size == 200


def test_the_mapping_can_not_be_written(load):
    tensors = load()
    address = tensors["w"].ctypes.data
    for line in open("/proc/self/maps"):
        first, last = (int(x, 16) for x in line.split()[0].split("-"))
        if first <= address < last:
            assert line.split()[1] == "r--s"
            break
    assert address % (2 * MiB) == 0


def test_two_hundred_loads_leave_no_mapping_and_no_descriptor(fake, load):
    load().close()
    maps = len(open("/proc/self/maps").readlines())
    fake.wait_for_leases(0)
    fds = open_fds()
    for _ in range(200):
        load().close()
    assert fake.wait_for_leases(0) and open_fds() <= fds + 1
    assert len(open("/proc/self/maps").readlines()) <= maps + 8


def test_a_connection_waits_for_room_in_a_full_backlog(tmp_path):
    path = str(tmp_path / "full.sock")
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listener.bind(path)
        listener.listen(0)
        with pytest.raises(BlockingIOError):
            for _ in range(9):
                crowd = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                crowd.setblocking(False)
                crowd.connect(path)
        late = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        with pytest.raises(BlockingIOError):
            handoff.connect(late, path, 0.05)
        accepting = threading.Timer(0.1, lambda: held.enter_context(listener.accept()[0]))
        accepting.start()
        handoff.connect(late, path, 20)
        accepting.join()
