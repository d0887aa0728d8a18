#!/usr/bin/env python3
"""Measures tensorcast beside the ceilings of this machine and other loaders, in one interleaved run.

    bash tests/bench/run.sh build [--quick] [--rounds N] [--only WORD] [--data FOLDER] [--write FILE]

Every contender runs once a round, in a new order each round. The clock starts when all processes have imported, connected
and loaded a tiny checkpoint, and stops when every byte has been read by its consumer. --only runs the cases and probes
with that word in their title. Raw records go to BUILD/bench/records.json.
"""
import json
import random
import subprocess
import sys
import time

import checkpoints
import machine
import probes
from command import arguments, packages, publish
from contest import Bench, Case, Contender, run, take_turns
from report import Goals, best_peer, case_table, ratio

PEERS = [Contender("safetensors views", "safetensors views"), Contender("safetensors copies", "safetensors copies"),
         Contender("vLLM default", "vLLM default"), Contender("Run:ai streamer", "Run:ai streamer")]
PEER_NAMES = [p.name for p in PEERS]
FIO, COPY = Contender("fio O_DIRECT", "fio"), Contender("2-thread memcpy", "copy")
C_FRESH = Contender("tensorcast C, fresh", "C", pages="advise")
C_PLAIN = Contender("tensorcast C, no privileges", "C", pages="never")
C_POOL = Contender("tensorcast C, pool", "C", pages="advise", pool=True)
PY_FRESH = Contender("tensorcast Python, fresh", "tensorcast Python", pages="advise")
PY_POOL = Contender("tensorcast Python, pool", "tensorcast Python", pages="advise", pool=True)


def plan(options):
    """[(case, contenders)] and the folders for the probes."""
    quick = options.quick
    llama = checkpoints.llama(options.data / "llama", (256 << 20) if quick else 4_000_000_000)
    small = checkpoints.small_tensors(options.data / "small", 5_000 if quick else 100_000)
    few = checkpoints.few_tensors(options.data / "few", sum(f.stat().st_size for f in small.glob("*.safetensors")))
    wide = checkpoints.wide(options.data / "wide", 2048 if quick else 16384, 16384)
    cases = [
        (Case("whole checkpoint", llama, 1, "cold"), [FIO, C_FRESH, C_PLAIN, PY_FRESH, *PEERS]),
        (Case("whole checkpoint", llama, 1, "hot"), [COPY, C_POOL, C_FRESH, C_PLAIN, PY_FRESH, *PEERS]),
        (Case("four ranks", llama, 4, "cold"), [FIO, C_FRESH, PY_FRESH, *PEERS]),
        (Case("four ranks", llama, 4, "cold", 128), [FIO, C_FRESH, PY_FRESH, PEERS[0], PEERS[2]]),
        (Case("four ranks", llama, 4, "hot"), [COPY, C_POOL, C_FRESH, PY_POOL, PY_FRESH, *PEERS]),
        (Case("small tensors", small, 1, "hot"), [COPY, PY_FRESH, *PEERS]),
    ]
    return cases, {"llama": llama, "small": small, "few": few, "wide": wide}


def run_case(bench, case, contenders, rounds, rng):
    turns = [(c.name, lambda check, c=c: run(bench, case, c, check)) for c in contenders]
    return take_turns(bench, case.title(), turns, rounds, rng)


def run_probes(bench, folders, options):
    results, wanted = {}, lambda title: options.only in title
    if wanted("resident replica"):
        results["resident"] = probes.resident_replica(bench, folders["llama"], 200 if options.quick else 2000)
    if wanted("many tensors"):
        results["many"] = probes.many_tensors(bench, folders["small"], folders["few"], options.rounds)
    for temperature in ("hot", "cold"):
        if wanted(f"inner slices, {temperature}"):
            results[f"slices {temperature}"] = probes.inner_slices(bench, folders["wide"], 16384, options.rounds, temperature)
    return results


def goals(measured, sizes, found):
    """The project's goals against what this run measured."""
    g, get = Goals(), lambda title: measured.get(title, [])
    cold, hot = get("whole checkpoint, cold"), get("whole checkpoint, hot")
    g.at_least("cold, whole, fresh memory: of fio", 0.93, ratio(cold, FIO.name, C_FRESH.name, "loaded_s"))
    g.at_least("cold, whole, without privileges: of fio", 0.88, ratio(cold, FIO.name, C_PLAIN.name, "loaded_s"))
    for title in ("four ranks, cold", "four ranks, cold, read_ahead_kb 128"):
        records = get(title)
        for mine in (C_FRESH.name, PY_FRESH.name):
            g.at_least(f"{title}, {mine}: of fio", 0.90, ratio(records, FIO.name, mine, "loaded_s"))
            g.at_most(f"{title}, {mine}: bytes from disk / bytes of the files", 1.02,
                      [r["disk_bytes"] / sizes[title] for r in records if r["name"] == mine and "disk_bytes" in r], "x")
    g.at_least("hot, whole, pool: of memcpy", 0.90, ratio(hot, COPY.name, C_POOL.name, "loaded_s"))
    g.at_least("hot, whole, fresh: of memcpy", 0.60, ratio(hot, COPY.name, C_FRESH.name, "loaded_s"))
    g.at_least("hot, whole, without privileges: of memcpy", 0.45, ratio(hot, COPY.name, C_PLAIN.name, "loaded_s"))
    ranks = get("four ranks, hot")
    for mine, whole in ((C_POOL.name, 4), (C_FRESH.name, 2.5), (PY_POOL.name, 4), (PY_FRESH.name, 2.5)):
        g.at_least(f"four ranks, hot, {mine}: against vLLM's default way", whole, ratio(ranks, "vLLM default", mine))
    resident, many = found.get("resident", {}), found.get("many", {})
    g.at_most("second client of a resident replica", 5, resident.get("second_client_ms", []), " ms")
    g.at_most("Materialize of a resident replica, p50", 1, [resident["materialize_p50_ms"]] if resident else [], " ms")
    g.at_most("Materialize of a resident replica, p99", 5, [resident["materialize_p99_ms"]] if resident else [], " ms")
    for temperature in ("hot", "cold"):
        for width, times in found.get(f"slices {temperature}", {}).items():
            better = [min(a, b) for a, b in zip(times["generic"], times["local"])]
            g.at_most(f"inner slice of {width} columns, {temperature}: AUTO / better executor", 1.1,
                      [t / b for t, b in zip(times["auto"], better)], "x")
    g.at_most("peak RSS of the daemon over the view and 64 MiB staging", 32,
              [(r["peak_bytes"] - r["view_bytes"]) / 1048576 - 64 for records in measured.values() for r in records
               if r.get("peak_bytes")], " MiB")
    g.at_most("cold, whole, fresh: CPU", 0.15, [r["cpu_s"] / (sizes["whole checkpoint, cold"] / 1e9) for r in cold
                                                if r["name"] == C_FRESH.name and "cpu_s" in r], " s/GB")
    g.at_most("100k tensors: resolve and plan, warm", 50, many.get("resolve_plan_ms", []), " ms")
    g.at_most("100k tensors: headers for the first time", 100, many.get("header_ms", []), " ms")
    g.at_most("100k tensors against 10 of the same bytes, in execute: more", 30,
              [a - b for a, b in zip(many.get("execute_many_ms", []), many.get("execute_few_ms", []))], " ms")
    small = get("small tensors, hot")
    peer = best_peer(small, PEER_NAMES)
    g.at_least(f"100k small tensors into Python, hot: against the fastest peer ({peer})", 2, ratio(small, peer, PY_FRESH.name))
    return g


def slices_table(found):
    lines = []
    for temperature in ("hot", "cold"):
        widths = found.get(f"slices {temperature}", {})
        if widths:
            lines += [f"### Inner-dimension slices of a [16384 wide] BF16 matrix, {temperature}: milliseconds in execute", "",
                      "| columns | auto | generic | local |", "|---|---|---|---|"]
            lines += [f"| {width} | " + " | ".join(f"{sorted(t)[len(t) // 2]:.1f} [{min(t):.1f}..{max(t):.1f}]" for t in times.values()) + " |"
                      for width, times in widths.items()] + [""]
    return "\n".join(lines)


def text(options, measured, cases, found):
    sizes = {case.title(): case.bytes() for case, _ in cases}
    tcd = subprocess.run([options.build / "tensorcast", "--version"], capture_output=True, text=True).stdout.strip()
    parts = [f"Measured on {time.strftime('%Y-%m-%d')}: {machine.describe()}; "
             f"{tcd}; Python {sys.version.split()[0]}, {packages()}. {options.rounds} rounds.", "",
             "## Goals", "", goals(measured, sizes, found).table(), "## Every contender", ""]
    for case, _ in cases:
        if case.title() in measured:
            ceiling = FIO.name if case.temperature == "cold" else COPY.name
            parts += [case_table(case.title(), case.bytes(), measured[case.title()], ceiling)]
    return "\n".join([*parts, slices_table(found)]).rstrip() + "\n"


def main():
    options = arguments(__doc__, "small checkpoints", 5, data="6 GB of room on the disk to measure", more={"--only": {"default": ""}})
    machine.take_over("bench")
    cases, folders = plan(options)
    bench = Bench(options.build, options.data, checkpoints.llama(options.data / "tiny", 1 << 20, 2))
    rng, measured = random.Random(options.rounds), {}
    with machine.free_page_reporting():
        for case, contenders in cases:
            if options.only in case.title():
                measured[case.title()] = run_case(bench, case, contenders, options.rounds, rng)
        found = run_probes(bench, folders, options)
    (options.build / "bench" / "records.json").write_text(json.dumps({"cases": measured, "probes": found}, default=str))
    body = text(options, measured, cases, found)
    publish(options, "", body)
    sys.exit(any("failed" in r or r.get("equal") is False for records in measured.values() for r in records))


if __name__ == "__main__":
    main()
