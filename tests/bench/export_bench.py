#!/usr/bin/env python3
"""Measures export, fuse and reshard beside cp of as many bytes and beside torch's consolidation.

    bash tests/bench/run.sh build --export [--quick] [--rounds N] [--size BYTES] [--data FOLDER] [--write FILE]

The source is the shards that eight ranks saved with torch.distributed.checkpoint: every other tensor is cut by rows, the others by
columns; all of it is in the page cache. An export is durable when it returns, so there are two rows for cp: as it is, and until
sync has returned. Contenders take turns, in a new order each round. Raw records go to BUILD/bench/export.json.
"""
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from statistics import median

import checkpoints
import machine
from command import arguments, packages, publish
from report import Goals, spread

CP, SYNCED, TORCH = "cp", "cp and sync", "torch consolidate_safetensors_files_on_every_rank"
ONE, FUSE, RESHARD, DCP = "export to one file", "fuse", "reshard -t 4", "export --format dcp, 8 ranks"
CONSOLIDATE = """
import json, sys
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files_on_every_rank as consolidate
source, out, names = sys.argv[1:]
consolidate(source, out, {name: 1 for name in json.load(open(names))})
"""


def commands(options, plain, shards, out):
    """{contender: commands, one after the other}"""
    tensorcast = str(options.build / "tensorcast")
    bounds = ["--json", "--memory", "256MiB"]
    names = options.data / "export-names.json"
    names.write_text(json.dumps([name for path in plain.glob("*.safetensors") for name in header(path) if name != "__metadata__"]))
    return {
        CP: [["cp", "-r", shards, out]],
        SYNCED: [["cp", "-r", shards, out], ["sync", "-f", out]],
        ONE: [[tensorcast, "export", f"disk:{shards}", "--out", out, "--max-file-size", "1TB", *bounds]],
        FUSE: [[tensorcast, "fuse", "--input-dir", shards, "-o", out, *bounds]],
        RESHARD: [[tensorcast, "reshard", "--input-dir", shards, "-o", out, "-t", "4", "--uneven", "ceil", *bounds]],
        DCP: [[tensorcast, "export", f"disk:{plain}", "--out", out, "--format", "dcp", "--world-size", "8", "--uneven", "ceil",
               *bounds]],
        TORCH: [["mkdir", out], [sys.executable, "-c", CONSOLIDATE, shards, out, names]],
    }


def header(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def run(words, out, sources):
    """A record of one run, from an empty disk cache of the target."""
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    for folder in sources:
        machine.make_hot(sorted(folder.glob("*.safetensors")))
    before, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in words:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": done.stderr[-500:]}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    record = {"seconds": time.monotonic() - before, "cpu_s": after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime}
    if done.stdout.startswith("{"):
        record["peak_mib"] = json.loads(done.stdout)["peak_memory_bytes"] / (1 << 20)
    shutil.rmtree(out)
    return record


def ratios(found, numerator, denominator):
    """By round; empty when either is missing."""
    rounds = {}
    for record in found:
        if "seconds" in record:
            rounds.setdefault(record["round"], {})[record["contender"]] = record["seconds"]
    return [r[numerator] / r[denominator] for r in rounds.values() if numerator in r and denominator in r]


def table(found, size):
    lines = ["| contender | seconds | GB/s | processor seconds | peak memory |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(r["contender"] for r in found):
        mine = [r for r in found if r["contender"] == name and "seconds" in r]
        if not mine:
            lines.append(f"| {name} | failed | | | |")
            continue
        seconds = [r["seconds"] for r in mine]
        peak = max((r.get("peak_mib", 0) for r in mine))
        lines.append(f"| {name} | {spread(seconds)} | {size / median(seconds) / 1e9:.2f} | "
                     f"{median(r['cpu_s'] for r in mine):.2f} | {f'{peak:.0f} MiB' if peak else ''} |")
    return "\n".join(lines)


def goals(found):
    g = Goals()
    for name in (ONE, FUSE, RESHARD):
        g.at_least(f"{name}, to cp", 0.9, ratios(found, CP, name))
        g.at_least(f"{name}, to cp and sync", 0.9, ratios(found, SYNCED, name))
    g.at_least(f"{ONE}, to torch's consolidation", 3, ratios(found, TORCH, ONE))
    g.at_most("peak memory", 256, [r["peak_mib"] for r in found if "peak_mib" in r], " MiB")
    return g


def main():
    options = arguments(__doc__, "0.5 GB", 5, (500_000_000, 4_000_000_000),
                        "bytes of the checkpoint; four times as much room is needed", "room for source and target")
    machine.take_over("export_bench")
    plain = checkpoints.llama(options.data / f"llama-{options.size}", options.size)
    shards = checkpoints.shards(options.data / f"shards-{options.size}", plain)
    (shards / "complete").replace(options.data / f"shards-{options.size}.complete")  # it is no part of a checkpoint
    out, found = options.data / "export-out", []
    try:
        words, order = commands(options, plain, shards, out), random.Random(options.rounds)
        for at in range(options.rounds):
            for name in order.sample(list(words), len(words)):
                found.append({"contender": name, "round": at, **run(words[name], out, [plain if name == DCP else shards])})
                print(found[-1], file=sys.stderr)
    finally:
        (options.data / f"shards-{options.size}.complete").replace(shards / "complete")
        shutil.rmtree(out, ignore_errors=True)
    size = sum(f.stat().st_size for f in plain.glob("*.safetensors"))
    record = {"date": time.strftime("%Y-%m-%d"), "rounds": options.rounds, "bytes": size, "found": found}
    (options.build / "bench" / "export.json").write_text(json.dumps(record))
    body = (f"Measured on {record['date']}: {machine.describe()}; {packages()}. {options.rounds} "
            f"rounds of {size / 1e9:.1f} GB.\n\n{goals(found).table()}\n{table(found, size)}\n")
    publish(options, "export", body)
    sys.exit(any("failed" in r for r in found))


if __name__ == "__main__":
    main()
