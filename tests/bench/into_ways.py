"""Loads into memory of the caller: fused and padded targets beside the plain load, and a refill from a resident replica beside
memcpy. One client, in this process; ways_bench.py calls it."""
import subprocess
import time

import ml_dtypes
import numpy as np
import tensorcast_client as tc

import machine
from contest import GIB, Case, Failed, Service, headers
from report import GB, Goals, spread

PADDING_ROWS, FUSED = 64, {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
PLAIN, INTO, REFILL, COPY = "plain load, prepared memory", "into fused and padded targets", "refill from a resident replica", "2-thread memcpy"
SETTLED = 10


class Targets:
    """Parameters as an engine has them: projections of a layer fused by their rows, the vocabulary padded with zeros."""

    def __init__(self, folder):
        self.shapes = {name: tuple(entry["shape"]) for _, _, entries in headers(folder) for name, entry in entries.items()}
        self.rows, self.width, self.place = {}, {}, {}  # of each parameter; name: (parameter, first row)
        for name, shape in self.shapes.items():
            parameter = self.parameter_of(name)
            self.place[name] = parameter, self.rows.get(parameter, 0)
            self.rows[parameter] = self.rows.get(parameter, 0) + (shape[0] if len(shape) == 2 else 1)
            self.width[parameter] = shape[-1]
        self.padded = [name for name in self.shapes if "embed_tokens" in name or "lm_head" in name]
        for name in self.padded:
            self.rows[name] += PADDING_ROWS
        self.bytes = sum(2 * self.rows[p] * self.width[p] for p in self.rows)
        region, offset = tc.HostRegion(self.bytes), 0
        self.parameters = {}
        for parameter, rows in self.rows.items():
            self.parameters[parameter] = region.array(ml_dtypes.bfloat16, (rows, self.width[parameter]), offset)
            offset += 2 * rows * self.width[parameter]
        self.everything = region.array(np.uint8, (self.bytes,))
        self.tensors = {name: self.rows_of(name) for name in self.shapes}
        self.fills = {f"{name}.padding": self.parameters[name][-PADDING_ROWS:] for name in self.padded}

    @staticmethod
    def parameter_of(name):
        part = next((part for part in FUSED if part in name), None)
        return name.replace(part, FUSED[part]) if part else name

    def rows_of(self, name):
        (parameter, first), shape = self.place[name], self.shapes[name]
        rows = self.parameters[parameter][first:first + (shape[0] if len(shape) == 2 else 1)]
        return rows if len(shape) == 2 else rows[0]

    def load(self, view):
        return view.load_into({**self.tensors, **self.fills}, fills=dict.fromkeys(self.fills, 0), cover=self.parameters,
                              options=tc.Options(memory="copied"))

    def spoil(self):
        self.everything[:] = 0xA5

    def differences(self, folder):
        wrong = [name for name, rows in self.fills.items() if rows.view(np.uint16).any()]
        for path, begin, entries in headers(folder):
            raw = np.memmap(path, np.uint8, "r")
            for name, entry in entries.items():
                start, stop = entry["data_offsets"]
                if not np.array_equal(raw[begin + start:begin + stop], self.tensors[name].reshape(-1).view(np.uint8)):
                    wrong.append(name)
        return wrong


def timed(work):
    start = time.monotonic()
    result = work()
    return time.monotonic() - start, result


def settle(service, wants_empty=True):
    """Until nothing is left of the last load and the pool is as full as it gets."""
    before = []
    for _ in range(600):
        status = service.json("status")
        before = [status["memory"]["pool_bytes"], *before[:SETTLED - 1]]
        if not (wants_empty and status["replicas"]) and before == SETTLED * before[:1]:
            return
        time.sleep(0.05)
    raise Failed("the daemon does not come to rest")


def plain(service, view, _targets, _case):
    settle(service)

    def load():
        return view.tensor_dict(options=tc.Options(memory="copied"))
    took, tensors = timed(load)
    with tensors:
        return {"s": took, "report": dict(tensors.diagnostics, tensors=None)}


def into(service, view, targets, case):
    settle(service)
    machine.make_hot(case.files())
    targets.spoil()
    before = service.reset_peak()
    took, report = timed(lambda: targets.load(view))
    return {"s": took, "peak_over_targets": machine.resident_peak(service.process.pid) - before - targets.bytes,
            "temporary": report["peak_temporary_bytes"], "report": {k: v for k, v in report.items() if k != "tensors"}}


def refill(service, view, targets, case):
    with view.tensor_dict(options=tc.Options(memory="copied")):
        settle(service, wants_empty=False)
        machine.make_cold(case.files())  # what is in the page cache is read there
        targets.spoil()
        took, report = timed(lambda: targets.load(view))
        if report["bytes"]["read"]:
            raise Failed(f"{report['bytes']['read']} bytes were read although a replica has them all")
    return {"s": took}


def copy(bench, targets):
    out = subprocess.run([bench.native, "copy", str(targets.bytes), "2"], check=True, capture_output=True, text=True).stdout
    return {"s": float(out)}


def measure(bench, folder, rounds, rng):
    """See ways_bench.measure_loads()."""
    case, ok = Case("into", folder, 1, "hot"), True
    ways = {PLAIN: plain, INTO: into, REFILL: refill, COPY: None}
    records = {name: [] for name in ways}
    with machine.shared_huge_pages("advise"):
        targets = Targets(folder)
        targets.spoil()  # an engine has used them before
        service = Service(bench, pool_bytes=5 * case.bytes() // 4)
        try:
            with tc.connect(f"unix:{service.socket}", timeout=60.0) as client:
                view = client.artifact(f"disk:{folder}").view()
                bench.backed.take(3 * case.bytes() + GIB)
                bench.backed.give()
                for number in range(-1, rounds):  # the first reads the headers and fills the pool
                    for name in rng.sample(list(ways), len(ways)):
                        machine.make_hot(case.files())
                        record = ways[name](service, view, targets, case) if ways[name] else copy(bench, targets)
                        if name in (INTO, REFILL) and number <= 0:
                            wrong = targets.differences(folder)
                            ok = ok and not wrong
                            record["wrong"] = wrong[:5]
                        if number >= 0:
                            records[name].append(record)
                            print(f"{time.strftime('%H:%M:%S')} #{number + 1} {name}: {record['s']:.3f} s", flush=True)
        finally:
            service.end()
    return text(targets, records, ok), records, ok


def ratios(records, mine, other):
    return [a["s"] / b["s"] for a, b in zip(records[mine], records[other])]


def text(targets, records, ok):
    g = Goals()
    g.at_most("into fused and padded targets, hot: time of the plain load", 1.05, ratios(records, INTO, PLAIN), "x")
    g.at_most("into: peak memory of the daemon over the targets and 64 MiB of staging", 32,
              [record["peak_over_targets"] / 1048576 - 64 for record in records[INTO]], " MiB")
    g.at_most("refill of a loaded model from resident weights: time of memcpy", 1.3, ratios(records, REFILL, COPY), "x")
    lines = [g.table(), f"| {targets.bytes / GB:.2f} GB, hot | s | GB/s |", "|---|---|---|"]
    for name, runs in records.items():
        seconds = sorted(record["s"] for record in runs)
        lines.append(f"| {name} | {spread(seconds, 3)} | {targets.bytes / GB / seconds[len(seconds) // 2]:.2f} |")
    lines += [] if ok else ["", "The bytes are WRONG."]
    return "\n".join(lines) + "\n"
