"""Chaos among hosts: daemons and etcd are killed, stopped and started again at random, links are cut, the store fails and its objects are
replaced, while loads run on every host and their bytes are compared.

usage: TENSORCAST_BUILD=build/asan python tests/chaos/hosts.py SECONDS [SEED]        as root: hosts have networks of their own
Fails on a wrong byte, a load that hangs, a load that fails although nothing happened to its host and its object, INTERNAL or UNKNOWN,
hosts that do not find each other again, a sanitizer's report, or an exit status that is not 0. The same seed gives the same deeds.
"""
import collections
import contextlib
import functools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from safetensors.numpy import save

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "fake"), str(HERE)]
import store_scene  # noqa: E402
from checkpoints import blob, digest, digests  # noqa: E402
from etcd import Etcd  # noqa: E402
from group_scene import Load  # noqa: E402
from host_network import Network  # noqa: E402
from stage import Daemon, MiB, soon  # noqa: E402
from stores import Stores  # noqa: E402

N_HOSTS, N_MODELS, COLUMNS = 4, 3, 4096
ROWS = 18 * MiB // COLUMNS
HANGS_S = 150  # of a load; a host that says nothing costs 8 s, and three of them may
DISTURBED = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED", "FAILED_PRECONDITION", "DATA_LOSS", "RESOURCE_EXHAUSTED")
FAULTS = ({"status": 503, "headers": {"Retry-After": "0"}}, {"truncate": 70000}, {"close": "before"}, {"stall": {"after": 1000, "seconds": 0.5}})


@functools.lru_cache(64)
def array(model, version):
    return blob(1000 * model + version, ROWS * COLUMNS).reshape(ROWS, COLUMNS)


@functools.lru_cache(4096)
def sum_of(model, version, rows):
    return digest(array(model, version)[slice(*rows)])


class Away:
    """When something was not as it should be, by name of what it was."""

    def __init__(self):
        self.lock, self.spans = threading.Lock(), collections.defaultdict(list)

    @contextlib.contextmanager
    def during(self, *names):
        spans = [[time.monotonic(), float("inf")] for _ in names]
        with self.lock:
            for name, span in zip(names, spans):
                self.spans[name].append(span)
        try:
            yield
        finally:
            for span in spans:
                span[1] = time.monotonic()

    def was(self, name, since):
        with self.lock:
            return any(end >= since for _, end in self.spans[name])


class Chaos:
    def __init__(self, folder, net):
        self.folder, self.net, self.away = folder, net, Away()
        self.problems, self.counts, self.is_over = [], collections.Counter(), threading.Event()
        self.oldest, self.newest = [1] * N_MODELS, [1] * N_MODELS  # versions of the objects that the store may answer with now
        here = Network.HERE if net else "127.0.0.1"
        self.fake, self.etcd = Stores(host=here), Etcd(folder, address=here)
        for model in range(N_MODELS):
            self.put(model)
        self.etcd.start()
        (folder / "key").write_bytes(os.urandom(32))
        (folder / "key").chmod(0o600)
        self.hosts = [self.make_host(i) for i in range(N_HOSTS)]

    def make_host(self, i):
        sources = store_scene.settings(self.fake, http={"first_byte_timeout": "5s", "max_tries": 8})
        listen = f"{Network.address(i) if self.net else '127.0.0.1'}:0"
        daemon = Daemon([self.folder], {"sources": sources, "memory": {"host_budget": f"{(64, 200)[i % 2]}MiB"}, "hosts": {
            "etcd": {"endpoints": self.etcd.endpoints}, "name": f"h{i}", "listen": listen, "domain": "d",
            "cluster_key_file": str(self.folder / "key")}}, {})
        return daemon.start(through=self.through(i))

    def through(self, i):
        return self.net.through(i) if self.net else ()

    def put(self, model):
        self.fake.world.put("web", f"m{model}/model.safetensors", save({"w": array(model, self.newest[model])}))
        self.oldest[model] = self.newest[model]

    def problem(self, text):
        self.problems.append(text)
        self.is_over.set()

    # --- loads ---

    def load(self, i, rng):
        """One load; right, or excused by what happened meanwhile. How it ended."""
        model, start = rng.randrange(N_MODELS), time.monotonic()
        rows = (0, ROWS) if rng.random() < 0.4 else tuple(sorted(rng.sample(range(ROWS + 1), 2)))
        first = self.oldest[model]
        load = Load(self.hosts[i], f"{self.fake.url('web')}/m{model}", "--slice", f"w[{rows[0]}:{rows[1]}, :]")
        try:
            load.end(HANGS_S)
        except subprocess.TimeoutExpired:
            load.process.kill()
            self.problem(f"a load on h{i} hangs")
            return "hangs"
        if load.code == 0:
            right = {sum_of(model, version, rows) for version in range(first, self.newest[model] + 1)}
            if digests(load.report)["w"] not in right:
                self.problem(f"wrong bytes of m{model}, rows {rows}, on h{i}: {load.report}")
            self.counts["bytes of loads"] += load.report["bytes"]["view"]
            self.counts["bytes from other hosts"] += load.report["bytes"]["peer"]
        elif load.status not in DISTURBED:
            self.problem(f"a load on h{i} fails with {load.status}: {load.err}")
        elif not any(self.away.was(name, start) for name in (f"h{i}", "store")) and first == self.newest[model]:
            self.problem(f"a load on h{i} fails though nothing happened to it: {load.err}")
        self.counts[f"load {load.status or 'OK'}"] += 1
        return load.status or "OK"

    def keep_loading(self, i, seed):
        rng = random.Random(seed)
        while not self.is_over.is_set():
            if rng.random() < 0.5 and not self.away.was(f"h{i}", time.monotonic()):
                self.hosts[i].cli.run("release", "--all", timeout=HANGS_S)
            if self.load(i, rng) != "OK":
                self.wait(rng, 1)

    # --- deeds ---

    def kill(self, rng, i):
        with self.away.during(f"h{i}"):
            self.hosts[i].kill()
            self.wait(rng, 5)
            self.hosts[i].start(through=self.through(i))

    def end(self, rng, i):
        with self.away.during(f"h{i}"):
            code = self.hosts[i].stop(60)
            if code:
                self.problem(f"h{i} ended with {code}: {self.hosts[i].log()[-3000:]}")
            self.wait(rng, 3)
            self.hosts[i].start(through=self.through(i))

    def stop(self, rng, i):
        with self.away.during(f"h{i}"):
            self.hosts[i].process.send_signal(signal.SIGSTOP)
            self.wait(rng, 12)
            self.hosts[i].process.send_signal(signal.SIGCONT)

    def cut(self, rng, i):
        with self.away.during(f"h{i}"):
            self.net.cut(i)
            self.wait(rng, 15)
            self.net.mend(i)

    def take_address(self, rng, i):
        with self.away.during(f"h{i}"):
            self.net.take_address(i)
            self.wait(rng, 10)
            self.net.give_address(i)

    def kill_etcd(self, rng, _):
        self.etcd.kill()
        self.wait(rng, 15)
        self.etcd.start()

    def stop_etcd(self, rng, _):
        self.etcd.send(signal.SIGSTOP)
        self.wait(rng, 12)
        self.etcd.send(signal.SIGCONT)

    def publish(self, rng, _):
        model = rng.randrange(N_MODELS)
        self.newest[model] += 1
        self.put(model)

    def disturb_store(self, rng, _):
        with self.away.during("store"):
            self.fake.fault(rng.choice(FAULTS), {"listener": "web", "method": "GET", "range": "bytes"}, times=rng.randint(1, 4))
            self.fake.limit("web", bytes_per_s=rng.choice([0, 1 << 20, 4 << 20]))
            self.wait(rng, 3)
            self.fake.faults.clear()
            self.fake.limit("web", bytes_per_s=0)

    def wait(self, rng, most):
        self.is_over.wait(rng.random() ** 2 * most)

    def stir(self, seconds, seed, hosts, deeds):
        """One deed after the other, each to one of these hosts."""
        rng, end = random.Random(seed), time.monotonic() + seconds
        while time.monotonic() < end and not self.is_over.is_set():
            (deed,) = rng.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])
            deed(rng, rng.choice(hosts))
            self.counts[f"deed {deed.__name__}"] += 1
            self.wait(rng, 2)

    def thread(self, function, *arguments):
        def run():
            try:
                function(*arguments)
            except Exception as error:  # of a helper of the tests, such as a daemon that does not start
                self.problem(repr(error))
        return threading.Thread(target=run)

    def run(self, seconds, seed):
        """Two hosts may be away at a time, and etcd and the store."""
        ways = [(self.kill, 3), (self.end, 1), (self.stop, 3), *([(self.cut, 3), (self.take_address, 1)] if self.net else [])]
        stirs = [([0, 1], ways), ([2, 3], ways), ([0], [(self.kill_etcd, 1), (self.stop_etcd, 1)]),
                 ([0], [(self.publish, 1), (self.disturb_store, 1)])]
        stirrers = [self.thread(self.stir, seconds, 100 * seed + n, *what) for n, what in enumerate(stirs)]
        loaders = [self.thread(self.keep_loading, i % N_HOSTS, 1000 * seed + i) for i in range(2 * N_HOSTS)]
        for thread in stirrers + loaders:
            thread.start()
        for thread in stirrers:
            thread.join()
        self.is_over.set()
        for thread in loaders:
            thread.join()

    # --- the end ---

    def alive(self, i):
        return sorted(row["name"] for row in self.hosts[i].cli.json("hosts")["hosts"] if row["state"] == "alive")

    def settle(self):
        """All is well again: hosts meet, share, and come to rest."""
        names = [f"h{i}" for i in range(N_HOSTS)]
        for i in range(N_HOSTS):
            if not soon(lambda: self.alive(i) == names, 60):  # noqa: B023
                self.problems.append(f"h{i} sees {self.hosts[i].cli.json('hosts')}")
        rng = random.Random(0)
        self.away = Away()
        for i in range(N_HOSTS):
            self.load(i, rng)
        for i, host in enumerate(self.hosts):
            host.cli.run("release", "--all")
            if not soon(host.at_rest, 60):
                self.problems.append(f"h{i} is not at rest: {host.status()}")

    def close(self):
        for i, host in enumerate(self.hosts):
            code = host.stop(60) if host.process.poll() is None else None
            if code:
                self.problems.append(f"h{i} ended with {code}:\n{host.log()[-3000:]}")
            complaint = host.remove()
            self.problems += [complaint] if complaint else []
        self.etcd.kill()
        self.fake.close()


def main():
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    folder, net = Path(tempfile.mkdtemp(prefix="tc8-chaos-")).resolve(), None
    # LeakSanitizer stops all threads at the end; it has died itself when one of gRPC's ended meanwhile
    os.environ["ASAN_OPTIONS"] = f"{os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
    try:
        net = Network(N_HOSTS)
    except OSError as error:
        print(f"links are not cut: {error}")
    chaos = Chaos(folder, net)
    chaos.run(seconds, seed)
    if not chaos.problems:
        chaos.settle()
    chaos.close()
    if net:
        net.close()
    shutil.rmtree(folder, ignore_errors=True)
    for name, count in sorted(chaos.counts.items()):
        print(f"{count:12} {name}")
    for problem in chaos.problems:
        print("PROBLEM", problem)
    loads = sum(count for name, count in chaos.counts.items() if name.startswith("load "))
    print(f"chaos: {loads} loads on {N_HOSTS} hosts in {seconds:g} s, seed {seed}, {len(chaos.problems)} problems")
    sys.exit(bool(chaos.problems))


main()
