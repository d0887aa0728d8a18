"""Several daemons of this machine as hosts, the etcd that they meet by, and the far away store that they load from."""
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

sys.path += [str(Path(__file__).resolve().parents[1] / folder) for folder in ("e2e", "stores", "fake")]

from etcd import Authority  # noqa: E402
from stage import Daemon, soon  # noqa: E402

import machine  # noqa: E402

STOPPED_S, RUNNING_S = 0.45, 0.05  # of a host at a tenth of its speed
LOAD_S = 300


class Failed(Exception):
    pass


def busy_cores(seconds=0.5):
    """What other work takes now."""
    before = machine.machine_busy_seconds()
    time.sleep(seconds)
    return (machine.machine_busy_seconds() - before) / seconds


class Store:
    """slow_store for one folder, which counts what it sends."""

    def __init__(self, build, folder, latency_ms, connection_rate, all_rate):
        words = [build / "bench" / "slow_store", folder, latency_ms, connection_rate, all_rate]
        self.process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def sent(self, what="statistics"):
        with urllib.request.urlopen(f"{self.url}/{what}", timeout=10) as reply:
            return json.load(reply)["bytes"]

    def end(self):
        self.process.kill()
        self.process.wait()


class Hosts:
    """`n` fresh daemons. With an etcd they know each other, and prove it by a key, by certificates of a folder, or not; else each is alone."""

    def __init__(self, n, etcd=None, authority=None, proven=True, **settings):
        self.daemons, prefix = [], f"/bench/{time.monotonic_ns()}"
        for i in range(n):
            hosts = {}
            if etcd:
                hosts = {"etcd": {"endpoints": etcd.endpoints, "prefix": prefix}, "name": f"h{i}", "domain": "bench", "listen": "127.0.0.1:0"}
                if proven:
                    hosts |= {"tls": certificate(authority)} if authority else {"cluster_key_file": str(etcd.folder / "key")}
            self.daemons.append(Daemon([], {"logging": {"level": "warn"}, "hosts": hosts, **settings}, {}))
            self.daemons[-1].start(wait=False)
        try:
            if not all(soon(daemon.serving, 60) for daemon in self.daemons):
                raise Failed("a daemon does not start")
            if etcd and not all(soon(lambda: self.alive(i) == n, 60) for i in range(n)):  # noqa: B023
                raise Failed("hosts do not find each other")
        except BaseException:
            self.end()
            raise

    def alive(self, i):
        return sum(row["state"] == "alive" for row in self.daemons[i].cli.json("hosts")["hosts"])

    def load(self, reference, *more, members=None, rank=lambda i: ()):
        """Loads that begin at once on all members: seconds until the last is ready, and their reports."""
        members = range(len(self.daemons)) if members is None else members
        start = time.monotonic()
        loads = [self.daemons[i].cli.spawn("load", reference, "--json", "--timeout", f"{LOAD_S}s", *more, *rank(i)) for i in members]
        reports = []
        for load in loads:
            out, err = load.communicate(timeout=LOAD_S + 30)
            if load.returncode:
                raise Failed(err[-300:])
            reports.append(json.loads(out))
        return time.monotonic() - start, reports

    def digests(self, reference, *more, members=None, rank=lambda i: ()):
        """Of what each has in memory by now."""
        members = range(len(self.daemons)) if members is None else members
        found = [self.daemons[i].cli.json("load", reference, "--digest", *more, *rank(i)) for i in members]
        return [{tensor["name"]: tensor["sha256"] for tensor in report["tensors"]} for report in found]

    def release(self):
        for daemon in self.daemons:
            daemon.cli.ok("release", "--all")

    def cpu_seconds(self, i):
        return machine.cpu_seconds(self.daemons[i].process.pid)

    @contextlib.contextmanager
    def slow(self, i):
        """At a tenth of the speed meanwhile: it stands still nine tenths of the time."""
        process, is_over = self.daemons[i].process, threading.Event()

        def stop_and_go():
            while not is_over.is_set():
                process.send_signal(signal.SIGSTOP)
                is_over.wait(STOPPED_S)
                process.send_signal(signal.SIGCONT)
                is_over.wait(RUNNING_S)
        thread = threading.Thread(target=stop_and_go)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def end(self):
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.process.kill()
            daemon.remove()


def certificate(folder):
    """The settings of hosts.tls; one certificate serves all hosts, as they have one address."""
    if not (folder / "host.crt").exists():
        Authority(folder).issue("host")
    return {"cert_file": str(folder / "host.crt"), "key_file": str(folder / "host.key"), "ca_file": str(folder / "ca.crt")}
