#!/usr/bin/env python3
"""Measures ranks that load as a group, beside one rank alone and beside the same ranks without a group.

    bash tests/bench/run.sh build --groups [--quick] [--rounds N] [--only WORD] [--size BYTES] [--tensors N] [--data FOLDER] [--write FILE]

Sections (--only takes those with the word in their title): four ranks, disjoint and overlapping; eight ranks, replicated; eight
ranks of many tensors. Contenders take turns, in a new order each round. Raw records go to BUILD/bench/groups.json, and a
section that is not measured again keeps its records there, so that the table may be made in parts.
"""
import json
import random
import subprocess
import sys
import time

import checkpoints
import groups_report
import machine
from command import arguments, packages, publish
from contest import GIB, Bench, Case, Contender, headers, run, take_turns
from groups_report import ALONE, GROUP, SCATTER, UNGROUPED
from loaders import Job

MAIN_SIZE = 4_000_000_000  # the checkpoint of bench.py
C = Contender("C", "C", pages="advise")
C_GROUP = Contender("C", "C", pages="advise", group=True)


def needed_bytes(case):
    """Over all ranks."""
    jobs = [Job(str(case.folder), r, case.ranks, share=case.share, splits_all=case.splits_all) for r in range(case.ranks)]
    total = 0
    for _, _, entries in headers(case.folder):
        for name, entry in entries.items():
            start, stop = entry["data_offsets"]
            for job in jobs:
                cut = job.cut(name, entry["shape"])
                total += (stop - start) * (cut[2] - cut[1]) // entry["shape"][cut[0]] if cut else stop - start
    return total


def run_scatter(bench, size):
    """What a reader that had the unique bytes in memory would still have to copy, into memory that was never touched."""
    bench.backed.take(2 * size + GIB)
    bench.backed.give()
    out = subprocess.run([bench.native, "copy", str(size), "2", "fresh"], check=True, capture_output=True, text=True).stdout
    return {"touched_s": float(out), "loaded_s": float(out)}


def turns_of(bench, case):
    """[(name, function of whether to check)] for one case."""
    alone = Case(case.name, case.folder, 1, case.temperature)
    turns = [(GROUP, lambda check: run(bench, case, C_GROUP, check)), (UNGROUPED, lambda check: run(bench, case, C, check))]
    if not case.splits_all:
        turns.append((ALONE, lambda check: run(bench, alone, C, check)))
    if case.share != 1 and not case.splits_all:
        extra = needed_bytes(case) - needed_bytes(alone)
        turns.append((SCATTER, lambda check: run_scatter(bench, extra)))
    return turns


def plan(options):
    """{kind: cases}"""
    name = "llama" if options.size == MAIN_SIZE else f"llama-{options.size}"
    llama = checkpoints.llama(options.data / name, options.size)
    small = checkpoints.small_tensors(options.data / ("small" if options.tensors == 100_000 else f"small-{options.tensors}"), options.tensors)
    both = ("cold", "hot")
    return {
        "four": [Case(f"four ranks, {views}", llama, 4, t, share=share) for views, share in (("disjoint", 0), ("overlapping", 0.5)) for t in both],
        "replicated": [Case("eight ranks, replicated", llama, 8, t, share=1) for t in both],
        "many": [Case("eight ranks of many tensors, all of them", small, 8, "hot", share=1, is_known=True),
                 Case("eight ranks of many tensors, an eighth of each", small, 8, "hot", splits_all=True, is_known=True)],
    }


def main():
    options = arguments(__doc__, "0.5 GB, 10,000 tensors", 5, (500_000_000, MAIN_SIZE),
                        "bytes of the checkpoint; three times as much memory is needed", "room for both",
                        {"--only": {"default": ""}, "--tensors": {"type": int, "help": "in the checkpoint of many tensors"}})
    options.tensors = options.tensors or (10_000 if options.quick else 100_000)
    machine.take_over("groups_bench")
    cases, kept = plan(options), options.build / "bench" / "groups.json"
    bench = Bench(options.build, options.data, checkpoints.llama(options.data / "tiny", 1 << 20, 2))
    records, failed = json.loads(kept.read_text()) if kept.exists() else {}, False
    with machine.free_page_reporting():
        for kind, case in [(kind, case) for kind, some in cases.items() for case in some if options.only in case.title()]:
            found = take_turns(bench, case.title(), turns_of(bench, case), options.rounds, random.Random(options.rounds))
            failed = failed or any("failed" in r or r.get("equal") is False for r in found)
            records[case.title()] = {"kind": kind, "date": time.strftime("%Y-%m-%d"), "rounds": options.rounds, "found": found,
                                     "unique_bytes": needed_bytes(Case("", case.folder, 1, "hot")), "needed_bytes": needed_bytes(case),
                                     "tensors": sum(len(entries) for _, _, entries in headers(case.folder))}
            kept.write_text(json.dumps(records))
    body = groups_report.text(json.loads(json.dumps(records)), options.build, packages())
    publish(options, "groups", body)
    sys.exit(failed)


if __name__ == "__main__":
    main()
