#!/usr/bin/env python3
"""Measures what operators' numbers cost loads: counters, traces, the page, and scrapes of a daemon with 5,000 replicas.

    bash tests/bench/run.sh build --operators [--quick] [--rounds N] [--write FILE]

Loads are of a resident replica, one behind the other, from C. Daemons and ways take turns, in a new order each round; ratios are formed
within a round. Counters cannot be switched off, so the calls that count are timed by themselves, by operators_cost.c, and held against
the load. Processor time of the daemon's loop is that of its first thread.
"""
import contextlib
import http.client
import http.server
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import machine
from command import arguments, publish
from host_cluster import busy_cores
from report import Goals, spread

from stage import Daemon

REPLICAS, LOADS, IDLE_S = 5000, 2000, 2
NOTHING, WATCHED, TRACED = "nothing on", "a scrape a second, and the page open", "the same, and traces to a collector"
COUNTING = "the calls that count"
IDLE, METRICS, STATUS = "no scrapes", "/metrics, one after the other", "/status.json, one after the other"


class Collector(http.server.ThreadingHTTPServer):
    """Takes traces."""

    class RequestHandlerClass(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    def __init__(self):
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Watched:
    """A daemon and a client of it."""

    def __init__(self, options, folder, **settings):
        self.daemon = Daemon([folder], {"logging": {"level": "warn"}, **settings}, {})
        self.daemon.start()
        self.port = int((self.daemon.status()["metrics_address"] or ":0").rsplit(":", 1)[1])
        self.client = subprocess.Popen([options.build / "bench" / "resident", self.daemon.socket, f"disk:{folder}/m"], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def load(self, what, n):
        self.client.stdin.write(f"{what} {n}\n")
        self.client.stdin.flush()
        return json.loads(self.client.stdout.readline())

    def cpu_ns(self, thread="*"):
        return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{self.daemon.process.pid}/task").glob(f"{thread}/schedstat"))

    def get(self, path, until=None):
        """One answer; of a stream, what comes until that is set."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            while until and not until.is_set():
                answer.readline()
            return answer.status if until else answer.read()

    @contextlib.contextmanager
    def asked(self, path, every_s=0):
        """Meanwhile, that path is asked; gives the list of answers' sizes."""
        done, sizes = threading.Event(), []

        def ask():
            while not done.is_set():
                sizes.append(len(self.get(path)))
                done.wait(every_s)
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield sizes
        finally:
            done.set()
            thread.join()

    @contextlib.contextmanager
    def page(self):
        done = threading.Event()
        thread = threading.Thread(target=self.get, args=("/events", done))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def end(self):
        self.client.stdin.close()
        self.client.wait()
        self.daemon.remove()


def loads_of(watched):
    """One turn of loads; what a daemon shows to operators is asked for meanwhile."""
    with contextlib.ExitStack() as stack:
        if watched.port:
            stack.enter_context(watched.asked("/metrics", 1))
            stack.enter_context(watched.page())
        before = watched.cpu_ns()
        return {**watched.load("loads", LOADS), "cpu": (watched.cpu_ns() - before) / LOADS}


def scrapes_of(watched, path):
    """What an answer costs the loop, without loads; then what loads feel."""
    loop = str(watched.daemon.process.pid)
    with watched.asked(path) if path else contextlib.nullcontext([]) as sizes:
        before, began = watched.cpu_ns(loop), time.monotonic()
        n_before = len(sizes)
        time.sleep(IDLE_S)
        cpu, n = watched.cpu_ns(loop) - before, len(sizes) - n_before
        alone = {"loop_ns_s": cpu / (time.monotonic() - began), "answers_s": n / IDLE_S}
        return {**alone, "bytes": max(sizes, default=0), **watched.load("loads", LOADS // 2)}


def in_turns(ways, rounds):
    found, order = {name: [] for name in ways}, random.Random(rounds)
    for at in range(rounds):
        for name in order.sample(list(ways), len(ways)):
            found[name].append(ways[name]())
            print(time.strftime("%H:%M:%S"), at, name, found[name][-1], file=sys.stderr, flush=True)
    return found


def costs_of(options, n_replicas):
    """What operators_cost.c says: one number of counting and of a trace, many of lists."""
    done = subprocess.run([options.build / "tests/bench/operators_cost", str(n_replicas)], check=True, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {record["what"]: record["ns"] for record in found}, [record for record in found if record["what"] == "list"]


def measure(options, folder):
    subprocess.run(["make", f"B={options.build}", f"{options.build}/tests/bench/operators_cost"], check=True, capture_output=True)
    collector, metrics = Collector(), {"server": {"metrics_address": "127.0.0.1:0"}}
    daemons = {NOTHING: Watched(options, folder), WATCHED: Watched(options, folder, **metrics),
               TRACED: Watched(options, folder, **metrics, tracing={"otlp_endpoint": f"http://127.0.0.1:{collector.server_port}"})}
    try:
        for watched in daemons.values():
            watched.load("loads", 100)
        turns = {name: lambda watched=watched: loads_of(watched) for name, watched in daemons.items()}
        loads = in_turns({**turns, COUNTING: lambda: costs_of(options, 1)[0]}, options.rounds)
        many = daemons[WATCHED]
        many.load("replicas", REPLICAS)
        paths = {IDLE: None, METRICS: "/metrics", STATUS: "/status.json"}
        scrapes = in_turns({name: lambda path=path: scrapes_of(many, path) for name, path in paths.items()}, options.rounds)
    finally:
        for watched in daemons.values():
            watched.end()
        collector.shutdown()
    return loads, loads.pop(COUNTING), scrapes, costs_of(options, REPLICAS)[1]


def cells(found, first):
    """A load's median, and its ratio to that of the first within each round; then the 99th percentile, which is noise on a busy machine."""
    us, slowest = (spread([r[key] / 1e3 for r in found], 0) for key in ("p50", "p99"))
    return f"{us} | {spread([r['p50'] / base['p50'] for r, base in zip(found, first)])} | {slowest}"


def text(options, loads, counting, scrapes, lists):
    version = subprocess.run([options.build / "tensorcast", "--version"], capture_output=True, text=True).stdout.strip()
    share = {what: [100 * r[what] / base["p50"] for r, base in zip(counting, loads[NOTHING])] for what in ("counting", "trace")}
    longest = [r["longest_ns"] / 1e6 for r in lists]
    each_ms = {name: [(r["loop_ns_s"] - base["loop_ns_s"]) / max(r["answers_s"], 1e-9) / 1e6 for r, base in zip(found, scrapes[IDLE])]
               for name, found in scrapes.items()}
    g = Goals()
    g.at_most("counting, of a resident load", 0.5, share["counting"], " %")
    g.at_most("a scrape of 5,000 replicas, of the loop", 20, each_ms[METRICS], " ms")
    g.at_most("a list of 5,000 replicas: longest turn", 2, longest, " ms")
    lines = [f"{machine.describe()}; {version}. {time.strftime('%Y-%m-%d')}, {options.rounds} rounds. Other work took "
             f"{options.others:.1f} of the cores. Ratios are within a round.", "", g.table(), "### Loads of a resident replica", "",
             "| daemon | load us | of the first | 99th percentile us | daemon's CPU us | of the first |", "|---|---|---|---|---|---|"]
    for name, found in loads.items():
        cpu = [r["cpu"] / base["cpu"] for r, base in zip(found, loads[NOTHING])]
        lines.append(f"| {name} | {cells(found, loads[NOTHING])} | {spread([r['cpu'] / 1e3 for r in found], 0)} | {spread(cpu)} |")
    lines += ["", "| always on | us of the loop for a load | % of a load |", "|---|---|---|"]
    lines += [f"| {name} | {spread([r[what] / 1e3 for r in counting])} | {spread(share[what])} |"
              for what, name in (("counting", "counters"), ("trace", "the trace that `blame` reads"))]
    lines += ["", "### Scrapes of 5,000 replicas", "",
              "| | answers a second | KB | loop ms for each | load us | of the first | 99th percentile us |",
              "|---|---|---|---|---|---|---|"]
    lines += [f"| {name} | {spread([r['answers_s'] for r in found], 0)} | {max(r['bytes'] for r in found) / 1e3:.0f} | "
              f"{spread(each_ms[name]) if name != IDLE else '-'} | {cells(found, scrapes[IDLE])} |" for name, found in scrapes.items()]
    lines += ["", f"The list of replicas comes in {spread([r['turns'] for r in lists], 0)} turns of the loop, "
              f"{spread([r['ns'] / 1e6 for r in lists], 1)} ms in all; the longest takes {spread(longest, 1)} ms."]
    return "\n".join(lines) + "\n"


def main():
    options = arguments(__doc__, f"{LOADS} loads a turn", 10, data=None)
    machine.take_over("operators_bench")
    options.others = busy_cores(2)
    with tempfile.TemporaryDirectory(prefix="tcb-operators-", dir="/dev/shm") as folder:
        for i in range(REPLICAS):
            (Path(folder) / f"m{i}").mkdir()
            save_file({"w": np.full(64, i % 251, np.uint8)}, Path(folder) / f"m{i}/model.safetensors")
        publish(options, "operators", text(options, *measure(options, folder)))


if __name__ == "__main__":
    main()
