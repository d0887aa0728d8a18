#!/usr/bin/env python3
"""Measures four tensor-parallel ranks that load from the shards of torch.distributed.checkpoint, beside the same bytes from plain
files and beside torch's own reader.

    bash tests/bench/run.sh build --shards [--quick] [--rounds N] [--size BYTES] [--data FOLDER] [--write FILE]

Eight ranks have saved: every other tensor is cut by rows, the others by columns. Contenders take turns, in a new order each round,
with everything in the page cache and with nothing. Raw records go to BUILD/bench/shards.json.
"""
import json
import random
import sys
import tempfile
import time

import checkpoints
import machine
from command import arguments, packages, publish
from contest import Bench, Case, Contender, Rank, Service, measure, prepare_machine, take_turns
from forge import Forge
from loaders import Job
from report import Goals, case_table, ratio

RANKS = 4
PLAIN, SHARDS = "tensorcast Python, plain files", "tensorcast Python, 8 shards"
OURS, TORCHS = "TensorcastReader, 8 shards", "HuggingFaceStorageReader, 8 shards"


def run(bench, plain, source, loader, check):
    """A record of one run: `source` is what is loaded, `plain` what it has to be."""
    with machine.shared_huge_pages("advise"), tempfile.TemporaryDirectory() as meeting:
        service = Service(bench) if "HuggingFace" not in loader else None
        ranks, sockets = [], str(service.socket) if service else ""
        try:
            jobs = [Job(str(plain.folder), r, RANKS, sockets, reference=f"disk:{source.folder}",
                        group=f"{meeting}/ranks" if "Reader" in loader else "") for r in range(RANKS)]
            ranks += [Rank(bench, Contender("", loader), job) for job in jobs]
            for rank in ranks:
                rank.hear()
            prepare_machine(bench, source)
            record = measure(source, ranks, service)
            if not record["reports"]:  # what the views of a torch reader come to is not told
                record["peak_bytes"] = None
            if check:
                for rank in ranks:
                    rank.say("check")
                record["equal"] = not any([json.loads(rank.hear()) for rank in ranks])
            return record
        finally:
            for rank in ranks:
                rank.end()
            if service:
                service.end()


def goals(measured):
    g = Goals()
    for temperature, found in measured.items():
        g.at_most(f"{temperature}: four ranks from 8 shards, to the same bytes from plain files", 1.15,
                  ratio(found, SHARDS, PLAIN, "loaded_s"), "x")
        g.at_least(f"{temperature}: four ranks from 8 shards, against torch's HuggingFaceStorageReader on gloo", 4, ratio(found, TORCHS, SHARDS))
    return g


def text(record):
    lines = [f"Measured on {record['date']}: {machine.describe()}; {packages()}. {record['rounds']} "
             "rounds.", "", goals(record["measured"]).table()]
    lines += [case_table(f"four ranks, {temperature}", record["bytes"], found, PLAIN) for temperature, found in record["measured"].items()]
    return "\n".join(lines).rstrip() + "\n"


def main():
    options = arguments(__doc__, "0.5 GB", 3, (500_000_000, 2_000_000_000),
                        "bytes of the checkpoint; twice as much room, and five times as much memory is needed", "room for both layouts")
    machine.take_over("shards_bench")
    plain = checkpoints.llama(options.data / f"llama-{options.size}", options.size)
    shards = checkpoints.shards(options.data / f"shards-{options.size}", plain)
    bench = Bench(options.build, options.data, checkpoints.llama(options.data / "tiny", 1 << 20, 2))
    measured, total_bytes = {}, Case("", plain, RANKS, "hot").bytes()
    for temperature in ("hot", "cold"):
        plain_case, shards_case = (Case("four ranks", folder, RANKS, temperature) for folder in (plain, shards))
        turns = [(name, lambda check, source=source, loader=loader, plain=plain_case: run(bench, plain, source, loader, check))
                 for name, source, loader in ((PLAIN, plain_case, "tensorcast Python"), (SHARDS, shards_case, "tensorcast Python"),
                                              (OURS, shards_case, "TensorcastReader"), (TORCHS, shards_case, "HuggingFaceStorageReader"))]
        with machine.free_page_reporting(), Forge() as bench.forge:
            measured[temperature] = take_turns(bench, f"four ranks from shards, {temperature}", turns, options.rounds, random.Random(options.rounds))
    record = {"date": time.strftime("%Y-%m-%d"), "rounds": options.rounds, "bytes": total_bytes, "measured": measured}
    (options.build / "bench" / "shards.json").write_text(json.dumps(record, default=str))
    body = text(record)
    publish(options, "shards", body)
    sys.exit(any("failed" in r or r.get("equal") is False for found in measured.values() for r in found))


if __name__ == "__main__":
    main()
