"""Descriptors that clients send to the daemon: the thread that closes the last copy may wait for as long as their owner likes, and that
must not be the daemon's loop. Lingering: a TCP socket with SO_LINGER and bytes that no process reads. Hung: a file of a FUSE server
that does not answer FLUSH."""
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import blob, write
from fake_gpu import environment, needs_plugin
from stage import ROOT

sys.path.append(str(ROOT / "tests" / "fake"))
from fuse import HungFiles, have_mounts_of_our_own  # noqa: E402

OFFER = b"TCRG" + struct.pack("<III", 1, 1, 0) + struct.pack("<QQQ", 4096, 0, 4096) + bytes(64)
JUNK = b"TCRG" + bytes(100)
TOKEN = bytes(32)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
HOUR, MANY, ANSWER_S = 3600, 12, 60
SO_PASSRIGHTS = 83
FORMS = {"a good offer": [OFFER], "junk": [JUNK], "a token": [TOKEN], "behind an offer": [OFFER, b"x"], "empty": [b""],
         "second of an offer": [OFFER], "second of a token": [TOKEN]}


def kernel_can_refuse():
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
            return True
        except OSError:
            return False


def connect(path, kind=socket.SOCK_SEQPACKET):
    client = socket.socket(socket.AF_UNIX, kind)
    client.connect(str(path))
    return client


def send(client, form, descriptor):
    """What a kernel refuses does not arrive, and that is as good."""
    for message in FORMS[form]:
        with contextlib.suppress(PermissionError, BrokenPipeError, ConnectionResetError):
            socket.send_fds(client, [message], [0] * form.startswith("second") + [descriptor])


class Lingering:
    """close() of the last copy takes an hour, unless the other side is reset."""

    def __init__(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        self.socket = socket.create_connection(listener.getsockname())
        self.other, _ = listener.accept()
        listener.close()
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.socket.send(b"x" * 65536)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, HOUR))

    def close(self):
        """Ours, without waiting should it be the last one: a process that is killed does not linger."""
        with subprocess.Popen(["sleep", str(HOUR)], pass_fds=[self.socket.fileno()]) as keeper:
            self.socket.close()
            keeper.kill()

    def reset(self):
        self.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.other.close()


@contextlib.contextmanager
def stopped(daemon):
    """What is sent meanwhile is closed by us before the daemon has looked at it, so that it has the last copy."""
    daemon.process.send_signal(signal.SIGSTOP)
    yield
    daemon.process.send_signal(signal.SIGCONT)


def serves(daemon, models):
    status = daemon.cli.run("status", timeout=ANSWER_S)
    load = daemon.cli.run("load", f"disk:{models}/m", timeout=ANSWER_S)
    return status.code == 0 and load.code == 0


@pytest.fixture(params=["without GPUs", pytest.param("with GPUs", marks=needs_plugin)])
def daemon(request, start, models):
    """With GPUs, clients may offer memory by a descriptor, so descriptors do arrive on the hand-off socket."""
    write(models / "m", {"w": blob(1, 4096)})
    return start() if request.param == "without GPUs" else start(running=False).start(environment=environment())


@pytest.mark.parametrize("form", FORMS)
def test_a_socket_that_lingers_does_not_stop_the_daemon(daemon, models, form):
    lingering = [Lingering() for _ in range(MANY)]
    with stopped(daemon):
        clients = [connect(daemon.handoff) for _ in lingering]
        for client, one in zip(clients, lingering):
            send(client, form, one.socket.fileno())
            one.close()
    assert serves(daemon, models)
    for client in clients:  # an offer's memory is closed with its connection
        client.close()
    assert serves(daemon, models)
    for one in lingering:
        one.reset()


@pytest.mark.skipif(not kernel_can_refuse(), reason="gRPC reads its sockets itself; Linux before 6.16 cannot refuse descriptors")
def test_a_socket_that_lingers_does_not_arrive_by_grpc(daemon, models):
    lingering = [Lingering() for _ in range(MANY)]
    with stopped(daemon):
        clients = [connect(daemon.socket, socket.SOCK_STREAM) for _ in lingering]
        for client, one in zip(clients, lingering):
            with pytest.raises(PermissionError):
                socket.send_fds(client, [PREFACE], [one.socket.fileno()])
            one.close()
    assert serves(daemon, models)
    for client in clients:
        client.close()
    for one in lingering:
        one.reset()


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a file system")
@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_a_hung_file_system_does_not_stop_the_daemon(daemon, models, form):
    with subprocess.Popen([sys.executable, __file__, str(daemon.handoff), form], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as hostile:
        assert hostile.stdout.readline() == "sent\n"
        assert serves(daemon, models)
        hostile.stdin.write("hang up\n")
        hostile.stdin.flush()
        assert hostile.stdout.readline() == "hung up\n"
        assert serves(daemon, models)
        hostile.stdin.close()


def send_hung_file(handoff, form):
    """The process that test starts: the mount is its own."""
    have_mounts_of_our_own()
    with HungFiles(b"", 4096, silent=("flush",)) as files:
        file = os.open(files.path, os.O_RDONLY)
        clients = [connect(handoff) for _ in range(MANY)]
        for client in clients:
            send(client, form, file)
        print("sent", flush=True)
        sys.stdin.readline()
        for client in clients:
            client.close()
        print("hung up", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    send_hung_file(Path(sys.argv[1]), sys.argv[2])
