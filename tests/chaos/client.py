"""One client of a chaos run: does random things, well-behaved and not, until its time is over; run by chaos.py as some user.

usage: client.py USER SEED SECONDS SOCKET HANDOFF FOLDER WEB_URL
Prints a count per outcome as JSON, and on the first wrong byte or forbidden answer what it was, with exit status 1.
"""
import collections
import json
import mmap
import os
import random
import socket
import sys
import threading
import time
from pathlib import Path

import grpc

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "e2e"), str(Path(__file__).resolve().parent)]
import versions  # noqa: E402
from wire import Wire  # noqa: E402

# What a daemon in good order may answer to any of this. Never INTERNAL, UNKNOWN or DATA_LOSS.
ALLOWED = {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "FAILED_PRECONDITION", "NOT_FOUND",
           "INVALID_ARGUMENT", "ABORTED", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNIMPLEMENTED"}
STORE_FAULTS = {"DATA_LOSS"}  # a store that lies is told so


class Wrong(Exception):
    pass


class Client:
    def __init__(self, seed, socket_path, handoff_path, folder, web):
        self.rng, self.counts = random.Random(seed), collections.Counter()
        self.socket_path, self.handoff_path, self.folder, self.web = socket_path, handoff_path, folder, web
        self.kept = []  # mappings whose leases have ended, with what they must still show
        self.connect()

    def connect(self):
        self.channel = grpc.insecure_channel(f"unix:{self.socket_path}", options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(100):
            try:
                self.wire = Wire(self.channel)
                return
            except grpc.RpcError:
                time.sleep(0.2)
        raise Wrong("no daemon answers for 20 s")

    # --- loads ---

    def request(self, view, artifact):
        load = self.wire.message("LoadRequest", artifact=artifact)
        for name, bounds in view:
            load.view.names.append(name)
            load.view.n_slices.append(0 if bounds is None else len(bounds))
            for start, stop in bounds or ():
                load.view.starts.append(start)
                load.view.stops.append(stop)
        return load

    def materialize(self, load, timeout):
        result = None
        for event in self.wire.call("Materialize", self.wire.message("MaterializeRequest", load=load), timeout=timeout):
            if event.WhichOneof("event") == "result":
                result = event.result
        return result

    def redeem(self, result):
        """(lease, memory): the memory as a read-only mapping."""
        lease = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lease.settimeout(30)
        lease.connect(self.handoff_path)
        lease.send(result.handoff_token)
        _, descriptors, _, _ = socket.recv_fds(lease, 64, 1)
        if not descriptors:
            lease.close()
            return None, None
        memory = mmap.mmap(descriptors[0], result.memory_bytes, prot=mmap.PROT_READ)
        os.close(descriptors[0])
        return lease, memory

    def check(self, memory, offsets, view):
        problem = versions.wrong(memory, offsets, view)
        if problem:
            raise Wrong(problem)

    def load(self, artifact=None, timeout=60, **fields):
        view = versions.random_view(self.rng)
        load = self.request(view, artifact or self.artifact())
        for name, value in fields.items():
            getattr(load, name).CopyFrom(value)
        result = self.materialize(load, timeout)
        lease, memory = self.redeem(result)
        if memory is None:
            return
        self.check(memory, result.layout.offsets, view)
        if self.rng.random() < 0.2:
            self.keep(memory, list(result.layout.offsets), view)
        lease.close()

    def keep(self, memory, offsets, view):
        """Bytes that were handed out never change, whatever the daemon does with the rest of its memory."""
        self.kept.append((memory, offsets, view))
        if len(self.kept) > 4:
            self.check(*self.kept.pop(0))

    def artifact(self):
        return f"disk:{self.folder}/{versions.name_of(self.rng.randrange(versions.N_MODELS))}"

    # --- what clients do ---

    def load_from_disk(self):
        self.load()

    def load_from_a_store(self):
        self.load(f"{self.web}/models/{versions.name_of(self.rng.randrange(versions.N_MODELS))}")

    def load_with_a_short_deadline(self):
        self.load(timeout=self.rng.choice([0.002, 0.01, 0.05]))

    def cancel_a_load(self):
        stream = self.wire.call("Materialize", self.wire.message("MaterializeRequest", load=self.request(
            versions.random_view(self.rng), self.artifact())))
        threading.Timer(self.rng.random() * 0.03, stream.cancel).start()
        for _ in stream:
            pass

    def load_as_a_group(self):
        name, size, artifact = f"g{self.rng.randrange(4)}", self.rng.randint(2, 3), self.artifact()
        seeds, failures = [self.rng.random() for _ in range(size)], []

        def rank_of(rank):
            topology = self.wire.message("ExecutionTopology", source_locality=2)
            topology.group.id, topology.group.rank, topology.group.world_size = name, rank, size
            try:
                view = versions.random_view(random.Random(seeds[rank]))
                load = self.request(view, artifact)
                load.topology.CopyFrom(topology)
                result = self.materialize(load, 0.03 if seeds[rank] < 0.1 else 30)
                lease, memory = self.redeem(result)
                if memory is not None:
                    self.check(memory, result.layout.offsets, view)
                    lease.close()
            except Exception as error:  # told apart by attempt(), in the thread that counts
                failures.append(error)

        ranks = [threading.Thread(target=rank_of, args=(rank,)) for rank in range(size)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if failures:
            raise failures[0]

    def ask(self):
        method, name = self.rng.choice([("Status", "StatusRequest"), ("Release", "ReleaseRequest"), ("Resolve", "ResolveRequest"),
                                        ("Explain", "ExplainRequest")])
        request = self.wire.message(name)
        if method == "Resolve":
            request.artifact = self.artifact()
        if method == "Explain":
            request.load.CopyFrom(self.request(versions.random_view(self.rng), self.artifact()))
        self.wire.call(method, request)

    def ask_for_nonsense(self):
        artifact = self.rng.choice(["disk:/etc", "disk:..", "nope:x", "http://127.0.0.1:1/x.safetensors", "hf://", "s3://-/-",
                                    f"disk:{self.folder}/none", "http://u:p@127.0.0.1/x", "\x7f" * 300])
        self.load(artifact, timeout=5)

    def talk_junk_to_grpc(self):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(2)
            peer.connect(self.socket_path)
            preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if self.rng.random() < 0.7 else b""
            peer.send(preface + self.rng.randbytes(self.rng.randrange(4096)))

    def talk_junk_to_the_handoff(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.settimeout(2)
            peer.connect(self.handoff_path)
            ends = os.pipe()
            try:
                if self.rng.random() < 0.5:
                    socket.send_fds(peer, [self.rng.randbytes(self.rng.choice([1, 32, 128]))], list(ends))
                else:
                    peer.send(self.rng.randbytes(self.rng.choice([1, 31, 32, 33, 200])))
            finally:
                for end in ends:
                    os.close(end)

    def reconnect(self):
        self.channel.close()
        self.connect()

    DEEDS = [(load_from_disk, 8), (load_from_a_store, 4), (load_with_a_short_deadline, 3), (cancel_a_load, 3), (load_as_a_group, 2),
             (ask, 3), (ask_for_nonsense, 1), (talk_junk_to_grpc, 1), (talk_junk_to_the_handoff, 1), (reconnect, 1)]

    def attempt(self):
        deed = self.rng.choices([d for d, _ in self.DEEDS], [weight for _, weight in self.DEEDS])[0]
        code = "OK"
        try:
            deed(self)
        except grpc.RpcError as error:
            code = error.code().name
            allowed = ALLOWED | (STORE_FAULTS if deed is Client.load_from_a_store else set())
            if code not in allowed:
                raise Wrong(f"{deed.__name__}: {code}: {error.details()}") from error
        except OSError:
            code = "socket"  # refused or cut off: its right
        self.counts[f"{deed.__name__} {code}"] += 1


def main():
    user, seed, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    grpc.insecure_channel("unix:/nowhere").close()  # imports the rest of it
    if user != os.geteuid():  # only here: another user need not be able to read this Python's packages
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    client = Client(seed, *sys.argv[4:8])
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            client.attempt()
        for kept in client.kept:
            client.check(*kept)
    except Wrong as wrong:
        print(json.dumps({"wrong": str(wrong), "seed": seed}))
        sys.exit(1)
    print(json.dumps(client.counts))


main()
