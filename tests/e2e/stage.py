"""What the end-to-end tests stand on: the built binaries, daemons on sockets of their own, the command line, /proc.

TENSORCAST_BUILD names the folder with the binaries, so that the same tests run against the sanitizer builds. A daemon is
started with a real configuration file; whatever a sanitizer writes into its log fails the test that started it.
"""
import atexit
import contextlib
import functools
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/support"))
from ports import free_port  # noqa: E402, F401

BUILD = Path(os.environ.get("TENSORCAST_BUILD") or ROOT / "build").resolve()
CLI, DAEMON = BUILD / "tensorcast", BUILD / "tensorcastd"
SANITIZED = BUILD.name in ("asan", "tsan")
MiB = 1 << 20
COMPLAINTS = ("ERROR: AddressSanitizer", "WARNING: ThreadSanitizer", "runtime error:", "ERROR: LeakSanitizer",
              "Assertion ")
# quoted: the clone may lie in a folder whose name has blanks
QUIET_TSAN = f"ignore_noninstrumented_modules=1 atexit_sleep_ms=100 suppressions='{ROOT}/tests/tsan.supp' " + os.environ.get("TSAN_OPTIONS", "")


def soon(condition, seconds=60.0):
    """Whether condition() becomes true within that time (four times as long under a sanitizer)."""
    end = time.monotonic() + seconds * (4 if SANITIZED else 1)
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def fill_disk(folder):
    """To the last page; the file that does it."""
    with contextlib.suppress(OSError), open(folder / "filler", "wb", buffering=0) as file:
        while file.write(bytes(4096)) == 4096:
            pass
    return folder / "filler"


def waits_on_a_socket(process):
    with contextlib.suppress(OSError):  # a descriptor that has been closed meanwhile
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "S" and any(os.readlink(fd).startswith("socket:") for fd in Path(f"/proc/{process.pid}/fd").iterdir())
    return False


@contextlib.contextmanager
def acting_as(uid):
    """Connections that are made meanwhile are that user's. All threads of this process; only connecting and accepting care."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@functools.lru_cache(maxsize=None)
def for_everybody(program):
    """A copy of it that other users can reach: a clone may lie under /root."""
    folder = Path(tempfile.mkdtemp(prefix="tc8-bin-", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    copy = Path(shutil.copy(program, folder))
    copy.chmod(0o755)
    return copy


class Outcome:
    """A finished command."""

    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def __repr__(self):
        return f"tensorcast {self.arguments} -> {self.code}\n{self.out[:1500]}\n{self.err[:3000]}"

    @property
    def status(self):
        """The gRPC code in `tensorcast: CODE: message`."""
        found = re.search(r"^tensorcast: ([A-Z_]+): ", self.err, re.M)
        return found[1] if found else None

    @property
    def failed(self):
        """It ended with an error, and the exit status that belongs to it."""
        return self.status is not None and self.code == {"UNAVAILABLE": 3, "ABORTED": 3, "DEADLINE_EXCEEDED": 124}.get(self.status, 1)

    @property
    def report(self):
        return json.loads(self.out)


class Tensorcast:
    """The command line, pointed at one socket."""

    def __init__(self, socket):
        self.environment = {**os.environ, "TENSORCAST_SOCKET": str(socket), "TSAN_OPTIONS": QUIET_TSAN}

    def spawn(self, *arguments, **options):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
                   "env": self.environment, **options}
        program = for_everybody(CLI) if "user" in options else CLI
        return subprocess.Popen([str(program), *map(str, arguments)], **({"cwd": "/"} if "user" in options else {}), **options)

    def run(self, *arguments, stdin=None, timeout=120, **options):
        process = self.spawn(*arguments, stdin=subprocess.PIPE, **options)
        try:
            out, err = process.communicate(stdin or "", timeout=timeout)
        finally:
            process.kill()
        return Outcome(arguments, process.returncode, out, err)

    def ok(self, *arguments, **options):
        outcome = self.run(*arguments, **options)
        assert outcome.code == 0, outcome
        return outcome

    def json(self, *arguments, **options):
        return self.ok(*arguments, "--json", **options).report


def standalone(**environment):
    """The command that does without a daemon: --standalone stands behind whatever is run."""
    made = Tensorcast("/tmp/tc8-no-daemon-here.sock")
    made.environment.update(environment)
    run = made.run
    made.run = lambda *arguments, **how: run(*arguments, "--standalone", **how)
    return made


class Daemon:
    """One tensorcastd in a folder of its own."""

    def __init__(self, roots, settings, limits):
        self.folder = Path(tempfile.mkdtemp(prefix="tc8-", dir="/tmp"))
        self.socket, self.handoff = self.folder / "d.sock", self.folder / "d.handoff"
        self.state, self.log_path, self.config = self.folder / "state", self.folder / "log", self.folder / "c.yaml"
        self.limits, self.process = limits, None
        tree = {"server": {"socket_path": str(self.socket), "state_dir": str(self.state)},
                "memory": {"host_budget": "1GiB"}, "sources": {"disk": {"trusted_roots": [str(r) for r in roots]}}}
        for section, keys in settings.items():
            tree[section] = {**tree.get(section, {}), **keys} if isinstance(keys, dict) else keys
        self.configure(tree)
        self.cli = Tensorcast(self.socket)

    def configure(self, tree):
        self.tree = tree
        self.config.write_text(yaml.safe_dump(tree))

    def start(self, wait=True, environment=(), pass_fds=(), user=None, through=()):
        """Without preexec_fn: Python code between fork and exec can die in a process that has threads, as gRPC's. So prlimit
        sets the limits. user: the daemon's, where the tests run as root; all else in its folder is its own. through: words of a
        command that runs it."""
        limits = [f"--{name}={soft}:{hard}" for name, (soft, hard) in self.limits.items()]
        if user:
            for path in [self.folder, *self.folder.rglob("*")]:
                shutil.chown(path, user)
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen(
                [*through, *(["prlimit", *limits, "--"] if limits else []), str(for_everybody(DAEMON) if user else DAEMON), "--config",
                 str(self.config)], cwd="/" if user else None, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=pass_fds,
                env={**os.environ, "TSAN_OPTIONS": QUIET_TSAN, **dict(environment)},
                **({"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []} if user else {}))
        if wait:
            assert soon(lambda: self.serving() or self.process.poll() is not None), f"not ready:\n{self.log()}"
            assert self.process.poll() is None, f"exited:\n{self.log()}"
        return self

    def log(self):
        """What is written until now: a thread of the daemon's own writes it, behind what it tells of."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def logged(self, *words):
        """Whether all of them are in the log, now or soon."""
        return soon(lambda: all(word in self.log() for word in words))

    def whole_log(self):
        """With all that it tells of until now, for what must not be there: lines are written in their order, and this makes one more."""
        mark = os.urandom(8).hex()
        if self.process.poll() is None:
            self.cli.run("inspect", f"disk:/none/{mark}")
            assert self.logged(mark), self.log()
        return self.log()

    @contextlib.contextmanager
    def channel(self, *options):
        with grpc.insecure_channel(f"unix:{self.socket}", options=[("grpc.use_local_subchannel_pool", 1), *options]) as channel:
            yield channel

    def serving(self):
        if not os.path.exists(self.socket):
            return False
        try:
            with self.channel() as channel:
                reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=3)
            return reply.status == health_pb2.HealthCheckResponse.SERVING
        except grpc.RpcError:
            return False

    def status(self):
        return self.cli.json("status")

    def at_rest(self):
        """No load is running and no client holds memory."""
        status = self.status()
        return status["loads"] == [] and status["leases"] == 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=60):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def resident(self, field="VmRSS"):
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.M)[1]) * 1024

    def reset_peak(self):
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def bytes_asked(self):
        """Bytes this process has asked the kernel for by read system calls."""
        return int(re.search(r"^rchar: (\d+)", Path(f"/proc/{self.process.pid}/io").read_text(), re.M)[1])

    def bytes_from_disk(self):
        """Bytes that were fetched from storage on its behalf; what the page cache had does not count."""
        return int(re.search(r"^read_bytes: (\d+)", Path(f"/proc/{self.process.pid}/io").read_text(), re.M)[1])

    def remove(self):
        """Ends it and returns what a sanitizer complained about."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        lines = self.log().splitlines()
        shutil.rmtree(self.folder, ignore_errors=True)
        first = next((i for i, line in enumerate(lines) if any(c in line for c in COMPLAINTS)), None)
        return "" if first is None else "\n".join(lines[first:first + 60])
