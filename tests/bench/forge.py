"""Ranks that come from one process which has imported torch: a rank of its own takes seconds of two cores for that, before any clock
starts, and a run has four. Each is a fork of a process that has one thread and has loaded nothing.

    with Forge() as forge:
        process = forge.start(["worker.py", ...])    # as a subprocess.Popen with pipes: pid, stdin, stdout, wait(), kill()
"""
import json
import os
import select
import signal
import socket
import subprocess
import sys


class Forked:
    def __init__(self, pid, stdin, stdout):
        self.pid, self.stdin, self.stdout = pid, open(stdin, "wb"), open(stdout, "rb")
        self.ended = os.pidfd_open(pid)

    def wait(self, timeout=None):
        if not select.select([self.ended], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a rank", timeout)

    def kill(self):
        signal.pidfd_send_signal(self.ended, signal.SIGKILL)


class Forge:
    def __enter__(self):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                                            env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.ours.recv(1)
        return self

    def __exit__(self, *_):
        self.ours.close()
        self.process.wait()

    def start(self, arguments, errors):
        stdin, stdout = os.pipe(), os.pipe()
        socket.send_fds(self.ours, [json.dumps(list(map(str, arguments))).encode()], [stdin[0], stdout[1], errors.fileno()])
        pid = int(self.ours.recv(64))
        os.close(stdin[0])
        os.close(stdout[1])
        return Forked(pid, stdin[1], stdout[0])


def become(arguments, fds):
    import worker
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    sys.argv = arguments
    status = 1
    try:
        worker.main()
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # the forge's own end is not a rank's


def main():
    import torch.distributed.checkpoint  # noqa: F401

    import worker  # noqa: F401
    asked = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no code waits for a rank by its number
    asked.send(b"!")
    while True:
        message, fds, _, _ = socket.recv_fds(asked, 1 << 16, 3)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            asked.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            become(json.loads(message), fds)
        for fd in fds:
            os.close(fd)
        asked.send(str(pid).encode())


if __name__ == "__main__":
    main()
