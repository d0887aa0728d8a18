#!/usr/bin/env python3
"""Measures hosts that share what they read: several daemons of this machine, a real etcd, and a store with limited rates.

    bash tests/bench/run.sh build --hosts [--quick] [--rounds N] [--only WORD] [--size BYTES] [--write FILE]

Sections (--only takes those with the word in their name): eight hosts, four hosts, transfer, simulation. A run has fresh daemons, which
have resolved the checkpoint before the clock starts. It ends when the last load has returned; then all bytes are compared with the
files. Contenders take turns, in a new order each round. Records go to BUILD/bench/hosts.json, and a section that is not measured again
keeps its records there, so that the table may be made in parts. Runs of several hosts begin with one that is not measured.
"""
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import checkpoints
import hosts_report
import machine
from command import arguments, publish
from host_cluster import Failed, Hosts, Store, busy_cores, soon
import host_transfer
from hosts_report import ALONE, DEAD, FOUR, GROUP, SLICES, SLOW, THREE, UNGROUPED

from etcd import Etcd

CONNECTION_RATE, ALL_RATE, LATENCY_MS = 100_000_000, 200_000_000, 10
GROUPED = {"engine": {"materialization_strategy": {"enable_owner_file_collective": True, "owner_file_collective_min_dedup_saving_bytes": "0B"}}}


class Scene:
    """What all runs share."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.llama = checkpoints.llama(folder / "llama", options.size)
        self.bytes = sum(path.stat().st_size for path in self.llama.glob("*.safetensors"))
        self.etcd = Etcd(folder).start()
        (folder / "key").write_bytes(os.urandom(32))
        (folder / "key").chmod(0o600)
        self.expected = {}

    def expect(self, *view):
        """Digests of a view of the files themselves, by a process of its own."""
        if view not in self.expected:
            command = [self.options.build / "tensorcast", "load", f"disk:{self.llama}", "--standalone", "--json", "--digest", *map(str, view)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            self.expected[view] = {tensor["name"]: tensor["sha256"] for tensor in json.loads(done.stdout)["tensors"]}
        return self.expected[view]

    def run(self, n, shares=True, members=None, rank=lambda i: (), view=lambda i: (), during=None, **settings):
        """One run; `rank` is the part of the options that belongs to a group, `view` what each host wants."""
        members = range(n) if members is None else members
        memory = {"host_budget": f"{2 * self.bytes >> 20}MiB"}  # with room for what a host owns
        store = Store(self.options.build, self.folder, LATENCY_MS, CONNECTION_RATE, ALL_RATE)
        hosts = None
        try:
            hosts, reference = Hosts(n, self.etcd if shares else None, memory=memory, **settings), f"{store.url}/llama"
            for daemon in hosts.daemons:
                daemon.cli.ok("explain", reference)
            others = busy_cores()
            store.sent("reset")
            cpu = sum(map(hosts.cpu_seconds, range(n)))
            with during(hosts, store, self.bytes) if during else contextlib.nullcontext():
                seconds, reports = hosts.load(reference, members=members, rank=lambda i: [*rank(i), *view(i)])
            sent = store.sent()
            cpu = sum(hosts.cpu_seconds(i) for i in range(n) if hosts.daemons[i].process.poll() is None) - cpu
            found = [hosts.digests(reference, *view(i), members=[i])[0] for i in members]
            return {"seconds": seconds, "sent": sent / self.bytes, "hedged": sum(r["hosts"]["hedged_bytes"] for r in reports) / self.bytes,
                    "peer": sum(r["bytes"]["peer"] for r in reports) / self.bytes, "cpu_s": cpu, "others": others,
                    "executors": sorted({r["executor"] for r in reports}), "equal": found == [self.expect(*view(i)) for i in members]}
        except Failed as failed:
            return {"failed": str(failed)}
        finally:
            if hosts:
                hosts.end()
            store.end()


@contextlib.contextmanager
def slow_owner(hosts, *_):
    """The last host."""
    with hosts.slow(len(hosts.daemons) - 1):
        yield


@contextlib.contextmanager
def dead_owner(hosts, store, size):
    """The last host loads, too, and is killed when a quarter of the bytes have left the store."""
    def kill():
        soon(lambda: store.sent() > size / 4, 60)
        hosts.daemons[-1].kill()
    load, killer = hosts.daemons[-1].cli.spawn("load", f"{store.url}/llama", "--json"), threading.Thread(target=kill)
    killer.start()
    try:
        yield
    finally:
        killer.join()
        load.communicate(timeout=60)


def ways(scene, section):
    """{name: function} of a section."""
    def group(i):
        return ["--group", "bench", "--rank", i, "--world-size", 8, "--source-locality", "shared_source", "--source-sharing-domain", "bench"]

    def slices(i):
        return ["--tp-size", 8, "--tp-rank", i]
    if section == "eight hosts":
        return {UNGROUPED: lambda: scene.run(8), GROUP: lambda: scene.run(8, rank=group, **GROUPED), SLICES: lambda: scene.run(8, view=slices)}
    return {FOUR: lambda: scene.run(4), ALONE: lambda: scene.run(4, shares=False), THREE: lambda: scene.run(4, members=range(3)),
            SLOW: lambda: scene.run(4, members=range(3), during=slow_owner), DEAD: lambda: scene.run(4, members=range(3), during=dead_owner)}


def take_turns(turns, rounds):
    found, order = [], random.Random(rounds)
    for at in range(rounds):
        for name in order.sample(list(turns), len(turns)):
            found.append({"name": name, "round": at, **turns[name]()})
            print(time.strftime("%H:%M:%S"), found[-1], file=sys.stderr, flush=True)
    return found


def simulate(build):
    subprocess.run(["make", f"B={build}", f"{build}/tests/bench/hosts_model"], check=True, capture_output=True)
    lines = subprocess.run([build / "tests/bench/hosts_model"], check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def measure(scene, section):
    if section == "simulation":
        return simulate(scene.options.build)
    if section == "transfer":
        with host_transfer.Scene(scene.options, scene.folder, scene.etcd) as transfer:
            return take_turns(transfer.ways(), scene.options.rounds)
    turns = ways(scene, section)
    next(iter(turns.values()))()  # not measured: memory that a virtual machine has not touched costs five times the CPU
    return take_turns(turns, scene.options.rounds)


def main():
    options = arguments(__doc__, "0.1 GB", 3, (100_000_000, 1_000_000_000), "bytes of the checkpoint; twelve times as much memory is needed", None,
                        {"--only": {"default": ""}})
    machine.take_over("hosts_bench")
    kept = options.build / "bench" / "hosts.json"
    records, failed = json.loads(kept.read_text()) if kept.exists() else {}, False
    with tempfile.TemporaryDirectory(prefix="tcb-hosts-", dir="/dev/shm") as folder, machine.free_page_reporting():
        scene = Scene(options, Path(folder))
        try:
            for section in [name for name in hosts_report.SECTIONS if options.only in name]:
                found = measure(scene, section)
                failed = failed or any("failed" in r or r.get("equal") is False for r in found)
                records[section] = {"date": time.strftime("%Y-%m-%d"), "rounds": options.rounds, "size": scene.bytes, "found": found}
                kept.write_text(json.dumps(records))
        finally:
            scene.etcd.kill()
    publish(options, "hosts", hosts_report.text(json.loads(json.dumps(records)), options.build))
    sys.exit(failed)


if __name__ == "__main__":
    main()
