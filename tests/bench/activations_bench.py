#!/usr/bin/env python3
"""Measures activation stores: appending beside the disk's own rate and beside gzipped pickles, and how fast a large store resumes.

    bash tests/bench/run.sh build --activations [--quick] [--rounds N] [--size BYTES] [--data FOLDER] [--write FILE]

Samples have four layers of 512 x 2304 float32. "random" ones have all their bits; "narrow" ones were BF16 and are appended with
narrow="auto". A round appends and commits --size bytes of each, lets fio write as many sequentially (O_DIRECT, 1 MiB, fsync at the
end), and pickles and gzips (protocol 4, level 9, a file per 64 samples, no fsync) as many samples as a few seconds allow. Seconds
end with commit(); processor seconds end when all is sealed and summed. Raw records go to BUILD/bench/activations.json.
"""
import contextlib
import gzip
import json
import os
import pickle
import random
import resource
import shutil
import subprocess
import sys
import time
from statistics import median

import machine
import numpy as np
from command import arguments, publish
from report import Goals, spread

import tensorcast_client as tc

LAYERS, SHAPE, GB = 4, (512, 2304), 1e9
SAMPLE_BYTES = LAYERS * SHAPE[0] * SHAPE[1] * 4
FIO, PICKLE, APPEND, RESUME = "fio, sequential write", "pickle and gzip", "append and commit", "resume"
SHA = "SHA-256 alone"


class Service:
    """A daemon whose stores lie in options.data/activations."""

    def __init__(self, options):
        self.root = options.data / "activations"
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        self.program, self.socket = options.build / "tensorcastd", self.root / "d.sock"
        self.config = self.root / "c.yaml"
        self.config.write_text(json.dumps({"server": {"socket_path": str(self.socket), "state_dir": str(self.root / "state")},
                                           "activations": {"roots": [str(self.root)]}}))
        self.start()

    def start(self):
        with open(self.root / "log", "a") as log:
            self.process = subprocess.Popen([self.program, "--config", self.config], stdout=log, stderr=log)
        for _ in range(500):
            with contextlib.suppress(tc.TensorcastError):
                self.client = tc.connect(self.socket)
                self.client.status()
                return
            time.sleep(0.02)
        sys.exit(f"no daemon: {(self.root / 'log').read_text()[-500:]}")

    def cpu_s(self):
        return machine.cpu_seconds(self.process.pid)

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def sample(kind):
    planes = {layer: np.random.default_rng(layer).standard_normal(SHAPE, np.float32) for layer in range(LAYERS)}
    if kind == "narrow":
        for plane in planes.values():
            plane.view(np.uint32)[...] &= 0xFFFF0000
    return planes


def folder_bytes(folder):
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def own_cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def append(service, options, kind):
    planes, count, store = sample(kind), max(1, options.size // SAMPLE_BYTES), service.root / "store"
    os.sync()
    own, daemon, began = own_cpu_s(), service.cpu_s(), time.monotonic()
    with service.client.activation_store(f"disk:{store}", host=0, segment_bytes="1GiB", narrow="auto" if kind == "narrow" else None) as opened:
        for i in range(count):
            opened.append(i, planes)
        opened.commit()
        seconds = time.monotonic() - began
    record = {"bytes": count * SAMPLE_BYTES, "seconds": seconds, "client_cpu_s": own_cpu_s() - own,
              "daemon_cpu_s": service.cpu_s() - daemon, "stored_bytes": folder_bytes(store)}
    shutil.rmtree(store)
    return record


def gzip_pickles(service, options, kind):
    planes, count, out = sample(kind), 1 if options.quick else 4, service.root / "pickles"
    out.mkdir()
    own, began = own_cpu_s(), time.monotonic()
    shard = {layer: [{"sample_idx": i, "activation": plane, "shape": plane.shape, "text_preview": ""} for i in range(count)]
             for layer, plane in planes.items()}
    with gzip.open(out / "shard_0001.pkl.gz", "wb", compresslevel=9) as file:
        # an array that comes twice is pickled once
        pickle.dump({layer: [{**entry, "activation": entry["activation"].copy()} for entry in entries] for layer, entries in shard.items()},
                    file, protocol=4)
    record = {"bytes": count * SAMPLE_BYTES, "seconds": time.monotonic() - began, "client_cpu_s": own_cpu_s() - own,
              "stored_bytes": folder_bytes(out)}
    shutil.rmtree(out)
    return record


def fio(service, options):
    path = service.root / "fio"
    command = ["fio", "--name=ceiling", f"--filename={path}", "--rw=write", "--direct=1", "--bs=1M", "--iodepth=16", "--ioengine=libaio",
               f"--size={options.size}", "--end_fsync=1", "--output-format=json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    path.unlink(missing_ok=True)
    if done.returncode:
        return {"failed": done.stderr[-300:]}
    write = json.loads(done.stdout)["jobs"][0]["write"]
    return {"bytes": write["io_bytes"], "seconds": write["io_bytes"] / write["bw_bytes"]}


def sha256(options):
    import hashlib
    block, digest, began = os.urandom(1 << 20), hashlib.sha256(), own_cpu_s()
    for _ in range(200 if options.quick else 1000):
        digest.update(block)
    used = own_cpu_s() - began
    return {"bytes": (200 if options.quick else 1000) << 20, "seconds": used, "client_cpu_s": used}


def resume(service, options):
    """The time of opening a store of many segments, by a daemon that has just been started."""
    store = service.root / "many"
    if not store.exists():
        with service.client.activation_store(f"disk:{store}", host=0, segment_bytes="8KiB") as opened:
            for i in range(options.segments):
                opened.append(i, {layer: np.full((8, 64), i, np.float32) for layer in range(LAYERS)})
    service.end()
    service.start()
    time.sleep(1)  # what was left is made whole beside the start
    daemon, began = service.cpu_s(), time.monotonic()
    opened = service.client.activation_store(f"disk:{store}", host=0)
    record = {"seconds": time.monotonic() - began, "daemon_cpu_s": service.cpu_s() - daemon}
    if opened.resume["samples"] != options.segments:
        record = {"failed": f"{opened.resume}"}
    opened.close()
    return record


def of(found, name, key):
    return [r[key] for r in found if r["name"] == name and key in r]


def per_round(found, numerator, denominator, key="seconds"):
    """[numerator / denominator] by round, of what each takes per byte."""
    value = {(r["round"], r["name"]): r[key] / r["bytes"] for r in found if key in r and "bytes" in r}
    return [value[at, numerator] / value[at, denominator] for at in sorted({r["round"] for r in found})
            if (at, numerator) in value and (at, denominator) in value]


def cpu_per_gb(found, name):
    return [(r.get("client_cpu_s", 0) + r.get("daemon_cpu_s", 0)) / (r["bytes"] / GB) for r in found
            if r["name"] == name and "client_cpu_s" in r]


def goals(found):
    g = Goals()
    g.at_least(f"{APPEND}, random, to fio", 0.85, per_round(found, FIO, f"{APPEND}, random"))
    g.at_most(f"{APPEND}, random: processor", 0.15, cpu_per_gb(found, f"{APPEND}, random"), " s/GB")
    for kind in ("random", "narrow"):
        g.at_least(f"{APPEND}, {kind}, to {PICKLE}", 50, per_round(found, f"{PICKLE}, {kind}", f"{APPEND}, {kind}"))
    g.at_most(RESUME, 1, of(found, RESUME, "seconds"), " s")
    return g


def table(found):
    lines = ["| way | seconds | GB/s | client CPU s/GB | daemon CPU s/GB | stored / given |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(r["name"] for r in found):
        mine = [r for r in found if r["name"] == name and "seconds" in r]
        if not mine:
            lines.append(f"| {name} | failed | | | | |")
            continue

        def cell(key, mine=mine):
            values = [r[key] / (r["bytes"] / GB) for r in mine if key in r and "bytes" in r]
            return f"{median(values):.2f}" if values else ""

        rate = [r["bytes"] / GB / r["seconds"] for r in mine if "bytes" in r]
        size = [r["stored_bytes"] / r["bytes"] for r in mine if "stored_bytes" in r]
        lines.append(f"| {name} | {spread([r['seconds'] for r in mine])} | {f'{median(rate):.3f}' if rate else ''} | {cell('client_cpu_s')} | "
                     f"{cell('daemon_cpu_s')} | {f'{median(size):.2f}' if size else ''} |")
    return "\n".join(lines)


def main():
    options = arguments(__doc__, "0.3 GB, 100 segments", 5, (300_000_000, 8_000_000_000), "bytes of the samples of one run",
                        "room for --size bytes on the disk to measure", {"--segments": {"type": int, "help": "of the store that is resumed"}})
    options.segments = options.segments or (100 if options.quick else 1000)
    machine.take_over("activations_bench")
    service, found = Service(options), []
    turns = {FIO: lambda: fio(service, options), RESUME: lambda: resume(service, options), SHA: lambda: sha256(options)}
    for kind in ("random", "narrow"):
        turns[f"{APPEND}, {kind}"] = lambda kind=kind: append(service, options, kind)
        turns[f"{PICKLE}, {kind}"] = lambda kind=kind: gzip_pickles(service, options, kind)
    order = random.Random(options.rounds)
    try:
        with machine.free_page_reporting():
            for at in range(options.rounds):
                for name in order.sample(list(turns), len(turns)):
                    found.append({"name": name, "round": at, **turns[name]()})
                    print(found[-1], file=sys.stderr)
    finally:
        service.end()
        shutil.rmtree(service.root, ignore_errors=True)
    record = {"date": time.strftime("%Y-%m-%d"), "rounds": options.rounds, "bytes": options.size, "found": found}
    (options.build / "bench" / "activations.json").write_text(json.dumps(record))
    body = (f"Measured on {record['date']}: {machine.describe()}; numpy {np.__version__}. {options.rounds} rounds of "
            f"{options.size / GB:.1f} GB; a store of {options.segments} segments is resumed.\n\n{goals(found).table()}\n{table(found)}\n")
    publish(options, "activations", body)
    sys.exit(any("failed" in r for r in found))


if __name__ == "__main__":
    main()
