"""Bytes that one host asks of another, beside those that the same client asks of nginx: both from memory, over loopback.

Host h0 owns some blocks of a file and has read them from a slow store (else a plan would not ask it); h1 loads exactly the tensors in
these blocks. A third daemon, which has no hosts, loads the same tensors from nginx.
"""
import contextlib
import functools
import hashlib
import json
import os
import tempfile
import urllib.request
from pathlib import Path

import numpy as np

import machine
from host_cluster import Failed, Hosts, Store, busy_cores
from store_contest import Watched, with_children

import certificates  # where host_cluster looks
import servers

GB, BLOCK = 1e9, 4 << 20
FAMILIES = {"no proof": "http", "key": "http", "TLS": "https"}  # of nginx, by the proof between hosts


def write_blocks(folder, size):
    """A file whose tensors are its blocks: the header fills the first one. {name: digest}"""
    folder.mkdir()
    rng, n = np.random.default_rng(3), size // BLOCK
    names = [f"t{i:04d}" for i in range(n)]
    entries, digests = {}, {}
    for i, name in enumerate(names):
        entries[name] = {"dtype": "U8", "shape": [BLOCK], "data_offsets": [i * BLOCK, (i + 1) * BLOCK]}
    header = json.dumps(entries).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write((BLOCK - 8).to_bytes(8, "little") + header.ljust(BLOCK - 8))
        for name in names:
            data = rng.bytes(BLOCK)
            digests[name] = hashlib.sha256(data).hexdigest()
            file.write(data)
    return digests


def text(value):
    return len(value).to_bytes(8, "little") + value.encode()


def hash_of_file(url, size):
    """As daemon/hosts/shared_block.c makes it of the URL and the ETag."""
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
        identity = hashlib.sha256(text(f"{url}\n{answer.headers['etag']}\n{'0' * 128}")).digest()
    version = text("tensorcast shared file") + text("model.safetensors") + identity[:16] + size.to_bytes(8, "little") + identity[16:]
    return int.from_bytes(hashlib.sha256(version).digest()[:8], "little")


def owner(file_hash, block, hosts):
    def scramble(x):
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 % (1 << 64)
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb % (1 << 64)
        return x ^ (x >> 31)

    def score(host):
        of_host = int.from_bytes(hashlib.sha256(text(host)).digest()[:8], "little")
        return scramble(scramble((file_hash + block * 0x9e3779b97f4a7c15) % (1 << 64)) ^ of_host)
    return max(hosts, key=score)


class Scene:
    """Store, nginx, and for each proof two hosts and a daemon alone."""

    def __init__(self, options, folder, etcd):
        self.build, self.size, self.folder, self.etcd = options.build, 2 * options.size, folder, etcd

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.digests = write_blocks(self.folder / "blocks", self.size)
            authority = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tcb-nginx-")))
            os.chmod(authority, 0o755)
            certificates.make(authority)
            os.chmod(self.folder, 0o755)
            self.nginx = servers.nginx(authority, self.folder, authority)
            stack.callback(self.nginx.stop)
            store = Store(self.build, self.folder, 0, 100_000_000, 200_000_000)
            stack.callback(store.end)
            self.slow = f"{store.url}/blocks"
            self.file_hash = hash_of_file(f"{self.slow}/model.safetensors", BLOCK + self.size // BLOCK * BLOCK)
            settings = {"memory": {"host_budget": f"{2 * self.size}B"}, "sources": {"http": {"ca_file": str(self.nginx.ca)}}}
            self.hosts, self.alone, self.view = {}, {}, {}
            for proof in FAMILIES:
                self.hosts[proof] = Hosts(2, self.etcd, self.folder if proof == "TLS" else None, proven=proof != "no proof", **settings)
                stack.callback(self.hosts[proof].end)
                self.alone[proof] = Hosts(1, **settings)
                stack.callback(self.alone[proof].end)
                self.view[proof] = self.view_of(self.hosts[proof])
            backed = machine.Backed(self.build / "bench" / "native")  # else the first touch of new memory counts, for some
            backed.take(4 * self.size)
            backed.give()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def view_of(self, hosts):
        """Loads of h1 of what h0 owns; h0 has it from then on."""
        view = [word for i, name in enumerate(self.digests) if owner(self.file_hash, i + 1, ("h0", "h1")) == "h0" for word in ("--tensor", name)]
        _, (report,) = hosts.load(self.slow, *view, members=[1])
        if report["bytes"]["peer"] < report["bytes"]["view"]:
            raise Failed(f"h0 does not own what it should: {report['hosts']}")
        return view

    def run(self, proof, reference, daemons, member, server):
        """One load by a daemon; `server` are the processes that it gets the bytes of."""
        view = self.view[proof]
        daemons.release()
        others, cpu, server_cpu = busy_cores(), daemons.cpu_seconds(member), server.cpu_seconds()
        seconds, (report,) = daemons.load(reference, *view, members=[member])
        cpu, server_cpu, size = daemons.cpu_seconds(member) - cpu, server.cpu_seconds() - server_cpu, report["bytes"]["view"] / GB
        found = daemons.digests(reference, *view, members=[member])[0]
        return {"seconds": seconds, "rate": size / seconds, "cpu_s": cpu / size, "server_s": server_cpu / size,
                "peer": report["bytes"]["peer"] / GB / size, "others": others, "equal": found == {name: self.digests[name] for name in found}}

    def ways(self):
        found = {}
        for proof in FAMILIES:
            owner, nginx = Watched([self.hosts[proof].daemons[0].process.pid]), Watched(with_children(self.nginx.processes[0].pid))
            url = f"{self.nginx.urls[FAMILIES[proof]]}/blocks"
            found[f"a host, {proof}"] = functools.partial(self.run, proof, self.slow, self.hosts[proof], 1, owner)
            found[f"nginx, {FAMILIES[proof]}"] = functools.partial(self.run, proof, url, self.alone[proof], 0, nginx)
        return found
