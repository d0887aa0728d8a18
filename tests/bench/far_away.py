"""Loads of one large matrix from slow_store: how near the engine comes to what latency and rates allow, and how much memory
the daemon takes. The matrix is a hole in a file on a tmpfs, so every byte that arrives must be zero."""
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import machine
from contest import Contender, Failed, Rank, Service
from loaders import Job
from store_contest import QUIET_S, Watched, measure

MIB, COLUMNS = 1 << 20, 32768
LATENCY_MS, CONNECTION_RATE, REQUEST_BYTES = 50, 100_000_000, 16 * MIB
ALONE_S = LATENCY_MS / 1e3 + REQUEST_BYTES / CONNECTION_RATE
LINKS = (0, 1_000_000_000, 500_000_000)
LOAD_BYTES = 6144 * MIB
STAGING_MIB = 64
OURS = Contender("tensorcast C", "C", pages="advise")


class FarAway:
    """A server with one matrix of zeros."""

    def __init__(self, build, matrix_bytes, latency_ms, connection_rate, link_rate):
        self.folder = Path(tempfile.mkdtemp(prefix="tcb-far-", dir="/dev/shm"))
        header = json.dumps({"w": {"dtype": "U8", "shape": [matrix_bytes // COLUMNS, COLUMNS], "data_offsets": [0, matrix_bytes]}}).encode()
        with open(self.folder / "model.safetensors", "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.truncate(8 + len(header) + matrix_bytes)
        self.process = subprocess.Popen([build / "bench" / "slow_store", self.folder, str(latency_ms), str(connection_rate), str(link_rate)],
                                        stdout=subprocess.PIPE, text=True)
        self.origin = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def statistics(self, what="statistics"):
        with urllib.request.urlopen(f"{self.origin}/{what}", timeout=10) as reply:
            return json.load(reply)

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def load(bench, store, view_lines, view_bytes, memory=()):
    """One load by the C client from a fresh daemon; its record with what the server counted and the daemon has learned."""
    service = Service(bench, staging=f"{STAGING_MIB}MiB", memory=memory)
    rank = None
    try:
        job = Job(str(store.folder), 0, 1, str(service.socket), f"{store.origin}/model.safetensors", view_lines)
        rank = Rank(bench, OURS, job)
        rank.hear()
        machine.wait_until_quiet(QUIET_S)
        bench.backed.take(view_bytes + (1 << 30))
        bench.backed.give()
        store.statistics("reset")
        with machine.shared_huge_pages(OURS.pages):
            record = measure([rank], service, Watched([store.process.pid]))
        record["server"] = store.statistics()
        record["learned"] = record["learned"].get(store.origin, {})
        if record["sum"] or record["view_bytes"] != view_bytes:
            raise Failed("other bytes than the server's")
        return record
    finally:
        if rank:
            rank.end()
        service.end()


def run_rates(bench, options):
    records = []
    for number in range(options.rounds):
        for link in LINKS:
            store = FarAway(bench.build, LOAD_BYTES, LATENCY_MS, CONNECTION_RATE, link)
            try:
                record = {"link": link, "round": number, **load(bench, store, None, LOAD_BYTES)}
            finally:
                store.end()
            records.append(record)
            print(f"{time.strftime('%H:%M:%S')} far away, link {link}: {record['loaded_s']:.3f} s, {record['server']}, {record['learned']}",
                  file=sys.stderr, flush=True)
    return records


def run_memory(bench, options):
    """An object of eight times the staging budget: all of it, and half of its columns, which needs staging."""
    records, size = [], 8 * STAGING_MIB * MIB
    views = {"whole": (None, size), "half the columns": ([f"w 1 0 {COLUMNS // 2} 2\n"], size // 2)}
    for number in range(options.rounds):
        for name, (lines, view_bytes) in views.items():
            for cache in ("auto", "4KiB"):
                store = FarAway(bench.build, size, 0, 0, 0)
                try:
                    record = {"view": name, "extent_cache": cache, "round": number,
                              **load(bench, store, lines, view_bytes, memory=(("extent_cache", cache),))}
                finally:
                    store.end()
                records.append(record)
                over = (record["peak_bytes"] - record["view_bytes"]) / MIB - STAGING_MIB
                print(f"{time.strftime('%H:%M:%S')} memory, {name}, extent cache {cache}: {over:.0f} MiB over view and staging",
                      file=sys.stderr, flush=True)
    return records
