"""Random messages of the protocol: every method of both services with fields that make sense, nearly make sense, or none, and the
hand-off socket with descriptors of all kinds; by several users at once. One more user asks nothing but what is right.

usage: TENSORCAST_BUILD=build/asan python tests/chaos/messages.py SECONDS [SEED [UID ...]]       as root: by default users 30001, 30002
Fails on INTERNAL or UNKNOWN, on a right request that is refused or gets other bytes, a sanitizer's report, a daemon that does not
come to rest, and on an exit status that is not 0.
"""
import collections
import contextlib
import fcntl
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import grpc

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE)]
import checkpoints  # noqa: E402
from stage import Daemon, MiB, soon  # noqa: E402
from wire import Wire  # noqa: E402

ACTIVATIONS = "tensorcast.daemon.v1.ActivationStore"
NEVER = ("INTERNAL", "UNKNOWN")
PATIENCE_S = 60
RIGHT_EACH_S = 0.5


class Sender:
    """One client; what it learns (tokens, writers, identities) it sends again where it does not belong."""

    def __init__(self, seed, socket_path, handoff_path, folder):
        self.rng, self.counts = random.Random(seed), collections.Counter()
        self.socket_path, self.handoff_path, self.held = socket_path, handoff_path, collections.deque(maxlen=8)
        self.artifacts = [f"disk:{folder}/{name}" for name in ("m", "n", "m/model.safetensors", "none", "acts/s", "link")]
        self.texts = collections.deque(["", "a", "b", "w", str(folder), f"{folder}/acts/s", f"/dev/shm/{os.getuid()}", "cpu",
                                        "config.json", "../m", "é" * 300, "x" * 5000, "\x1b[2J", "http://127.0.0.1:1/x",
                                        "gs://b/k", "s3://b/k", "hf:///", "disk:/etc", "{}"], maxlen=60)
        self.tokens = collections.deque([b"", b"\0" * 32, b'{"version":1,"steps":[{"rename":{"a":"z"}}]}', b"[]",
                                         b'[{"cast":{"tensors":["*"],"dtype":"F16"}}]'], maxlen=20)
        self.offers, self.writers = collections.deque(maxlen=4), collections.deque([b"w"], maxlen=4)
        self.store, self.samples = f"disk:{folder}/acts/s{os.getuid()}-{seed}", 0
        self.connect()

    def connect(self):
        self.channel = grpc.insecure_channel(f"unix:{self.socket_path}", options=[("grpc.use_local_subchannel_pool", 1)])
        grpc.channel_ready_future(self.channel).result(timeout=PATIENCE_S)
        self.wires = [Wire(self.channel), Wire(self.channel, ACTIVATIONS)]

    # --- fields ---

    def number(self, bits, is_signed):
        near = self.rng.choice([0, 1, 2, 3, 7, 64, 4096, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63,
                                (1 << 64) - 1, self.rng.getrandbits(bits)]) % (1 << bits)
        return near - (1 << bits) if is_signed and near >= 1 << (bits - 1) else near

    def value(self, field):
        kind = field.cpp_type
        if kind == field.CPPTYPE_STRING and field.type == field.TYPE_BYTES:
            return self.rng.choice([*self.tokens, self.rng.randbytes(self.rng.choice([1, 31, 32, 33, 500]))])
        if kind == field.CPPTYPE_STRING:
            return self.rng.choice(self.artifacts if field.name in ("artifact", "store") and self.rng.random() < 0.8 else self.texts)
        if kind == field.CPPTYPE_ENUM:
            return self.rng.choice([v.number for v in field.enum_type.values] * 4 + [77])
        if kind == field.CPPTYPE_BOOL:
            return self.rng.random() < 0.3
        if kind in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            return self.rng.choice([0.0, -1.0, 1e308, float("nan")])
        bits = 64 if kind in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64) else 32
        return self.number(bits, kind in (field.CPPTYPE_INT64, field.CPPTYPE_INT32)) if self.rng.random() < 0.6 else self.rng.randrange(4)

    def fill(self, message, share):
        for field in message.DESCRIPTOR.fields:
            is_needed = share >= 0.05 and field.name in ("artifact", "store", "load")
            if self.rng.random() >= share and not is_needed:
                continue
            is_many = hasattr(getattr(message, field.name), "append")
            for _ in range(self.rng.choice([1, 1, 2, 3, 40]) if is_many else 1):
                if field.message_type:
                    within = getattr(message, field.name).add() if is_many else getattr(message, field.name)
                    within.SetInParent()
                    self.fill(within, share * 0.7)
                elif is_many:
                    getattr(message, field.name).append(self.value(field))
                else:
                    setattr(message, field.name, self.value(field))

    # --- messages that are right except for a field or none ---

    def opens(self, request):
        request.store, request.host, request.memory = self.store, self.rng.randrange(3), self.offers.pop()

    def appends(self, request):
        self.samples += 1
        request.writer, request.sample, request.bytes = self.rng.choice(self.writers), self.samples, 24
        for column, values in (("layers", [1, 4]), ("dtypes", [17, 17]), ("ranks", [1, 2]), ("dims", [2, 2, 2])):
            getattr(request, column).extend(values)

    def closes(self, request):
        request.writer = self.rng.choice(self.writers)

    def loads(self, request):
        load, targets = request.load, request.load.targets
        load.artifact = self.artifacts[0]
        load.view.names.extend(["b", "w"])
        if self.rng.random() < 0.5:
            targets.regions.append(self.offers.pop())
            for column, values in (("dtypes", [5, 5]), ("ranks", [2, 1]), ("dims", [64, 64, 70000]), ("region_indexes", [0, 0]),
                                   ("offsets", [self.rng.choice([0, 64]), 8192]), ("strides", [self.rng.choice([64, 65, -64]), 1, 1])):
                getattr(targets, column).extend(values)
        load.memory = self.rng.randrange(4)

    RIGHT = {"Open": opens, "Append": appends, "Commit": closes, "Close": closes, "Materialize": loads}

    def make(self, request, name):
        share = self.rng.choice([0.05, 0.15, 0.5])
        if name in self.RIGHT and self.rng.random() < 0.7:
            with contextlib.suppress(IndexError):  # no memory was offered
                self.RIGHT[name](self, request)
                share = self.rng.choice([0, 0, 0.02])
        self.fill(request, share)

    # --- deeds ---

    def learn(self, answer):
        for field, value in answer.ListFields():
            if field.name == "writer":
                self.writers.append(value)
            if field.type == field.TYPE_BYTES and not hasattr(value, "append"):
                self.tokens.append(value)
            elif field.type == field.TYPE_STRING and not hasattr(value, "append") and self.rng.random() < 0.1:
                self.texts.append(value[:5000])
            elif field.message_type and not hasattr(value, "append"):
                self.learn(value)

    def ask(self):
        wire = self.rng.choices(self.wires, [4, 1])[0]
        method = self.rng.choice(wire.service.methods)
        self.doing = method.name
        request = wire.message(method.input_type.name)
        self.make(request, method.name)
        answer = wire.call(method.name, request, timeout=self.rng.choice([0.02, 0.3, 3]))
        for part in answer if method.server_streaming else [answer]:
            self.learn(part)
            if self.rng.random() < 0.05:
                break
        if method.server_streaming and self.rng.random() < 0.3:
            answer.cancel()

    def descriptor(self):
        make = self.rng.choice(["memfd", "sealed", "sealed", "sealed", "file", "pipe", "socket", "folder"])
        if make in ("memfd", "sealed"):
            fd = os.memfd_create("m", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, self.rng.choice([0, 1, 4096, MiB, MiB, MiB, 1 << 40]))
            if make == "sealed":
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, self.rng.choice([2, 2, 2, 2, 2, 6, 8]))
            return [fd]
        if make == "pipe":
            return list(os.pipe())
        if make == "socket":
            return [one.detach() for one in socket.socketpair()]
        return [os.open("/dev/shm" if make == "folder" else "/proc/self/status", os.O_RDONLY)]

    def hand_off(self):
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.settimeout(2)
        peer.connect(self.handoff_path)
        size = self.number(64, False)
        offer = struct.pack("<4sIIIQQQ64s", self.rng.choice([b"TCRG"] * 9 + [b"TCHO"]), 1, self.rng.choice([3, 3, 3, 1, 2, 9]), 0, size,
                            self.rng.choice([0, 0, size]), self.rng.choice([4096, MiB, size]), b"")
        fds = self.descriptor() if self.rng.random() < 0.8 else []
        try:
            message = self.rng.choice([offer, offer, offer[:-1], self.rng.choice(self.tokens) or b"x", self.rng.randbytes(32)])
            socket.send_fds(peer, [message], fds)
            got, received, _, _ = socket.recv_fds(peer, 4096, 64)
            for fd in received:
                os.close(fd)
            self.tokens.append(got[:32])
            if message == offer and len(got) == 32 and not received:
                self.offers.append(got)
        finally:
            for fd in fds:
                os.close(fd)
        if self.rng.random() < 0.1:
            peer.send(b"more")
        self.held.append(peer)  # the lease, for a while

    def attempt(self):
        self.doing, code = "hand-off", "OK"
        try:
            self.hand_off() if self.rng.random() < 0.25 else self.ask()
            if self.rng.random() < 0.005:
                self.channel.close()
                self.connect()
        except grpc.RpcError as error:
            code = error.code().name
            if code in NEVER:
                raise SystemExit(f"{self.doing}: {code}: {error.details()}") from error
        except OSError:
            code = "socket"
        self.counts[f"{self.doing} {code}"] += 1


def send(uid, seed, seconds, socket_path, handoff_path, folder):
    grpc.insecure_channel("unix:/nowhere").close()  # imports the rest of it, while the packages can be read
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    sender, end = Sender(seed, socket_path, handoff_path, folder), time.monotonic() + seconds
    while time.monotonic() < end:
        sender.attempt()
    print(json.dumps(sender.counts))


def watch(daemon, artifact, clients, problems):
    """What is right is answered, whatever the others ask; the daemon's user is not who asks. Returns how many times."""
    expected, n = None, 0
    while any(client.poll() is None for client in clients) and not problems:
        if daemon.process.poll() is not None:
            problems.append(f"the daemon ended with {daemon.process.returncode}:\n{daemon.log()[-3000:]}")
            break
        who = {"user": 30099, "group": 30099, "extra_groups": []} if os.geteuid() == 0 else {}
        seen = daemon.cli.run("load", artifact, "--digest", "--json", "--timeout", f"{PATIENCE_S}s", **who)
        digests = checkpoints.digests(seen.report) if seen.code == 0 else None
        expected = expected or digests
        if digests != expected or not digests:
            problems.append(f"a right request: {seen}")
        n += 1
        time.sleep(RIGHT_EACH_S)
    return n


def main():
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    users = [int(uid) for uid in sys.argv[3:]] or ([30001, 30002] if os.geteuid() == 0 else [os.geteuid()])
    folder = Path(tempfile.mkdtemp(prefix="tc8-messages-")).resolve()
    folder.chmod(0o755)
    for i, name in enumerate(("m", "n", "right")):
        checkpoints.write(folder / name, {"a": checkpoints.blob(i, MiB), "b": checkpoints.blob(i + 9, 4096).reshape(64, 64)},
                          {"w": checkpoints.blob(i + 20, 70000)})
        (folder / name / "config.json").write_text("{}")
    (folder / "acts").mkdir()
    (folder / "link").symlink_to("/etc")
    daemon = Daemon([folder], {"server": {"socket_mode": "0666"}, "memory": {"host_budget": "64MiB"},
                               "activations": {"roots": [str(folder / "acts")]},
                               "sources": {"http": {"stall_timeout": "1s", "max_tries": 2}}}, {})
    daemon.folder.chmod(0o755)
    daemon.start()
    clients = [subprocess.Popen([sys.executable, __file__, "--send", str(uid), str(seed * 1000 + i), str(seconds),
                                 str(daemon.socket), str(daemon.handoff), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}) for i, uid in enumerate(users * 2)]
    problems, counts = [], collections.Counter()
    n_right = watch(daemon, f"disk:{folder}/right", clients, problems)
    for client in clients:
        out, complaint = client.communicate(timeout=120)
        if client.returncode:
            problems.append(f"client: {complaint[-2000:] or 'died'}")
        else:
            counts.update(json.loads(out))
    if daemon.process.poll() is None:
        if not soon(daemon.at_rest, 30):
            problems.append(f"not at rest: {daemon.status()}")
        code = daemon.stop(60)
        if code:
            problems.append(f"exit status {code}:\n{daemon.log()[-3000:]}")
    complaint = daemon.remove()
    problems += [complaint] if complaint else []
    shutil.rmtree(folder, ignore_errors=True)
    for name, count in sorted(counts.items()):
        print(f"{count:7} {name}")
    for problem in problems:
        print("PROBLEM", problem)
    print(f"chaos: {sum(counts.values())} random messages of {len(clients)} clients of users {users} in {seconds:g} s, seed {seed}, "
          f"{n_right} right requests, {len(problems)} problems")
    sys.exit(bool(problems))


if sys.argv[1] == "--send":
    send(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), *sys.argv[5:8])
else:
    main()
