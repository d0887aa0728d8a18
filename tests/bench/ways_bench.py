#!/usr/bin/env python3
"""The ways by which bytes reach their consumer, each beside what bounds it, in one interleaved run.

    bash tests/bench/run.sh build --cold | --hot | --mapped | --into [--quick] [--rounds N] [--data FOLDER] [--write FILE]

--cold: from the disk into prepared and fresh memory of the daemon, beside fio and views of the mapped files. --hot: copied out of the page cache
into prepared and into fresh memory, beside memcpy and the peers that copy. --mapped: the files' own pages, beside safetensors
views. --into: into fused and padded targets of the caller, beside the plain load, and a refill of a loaded model, beside
memcpy. One rank and four where ranks matter. In the first round every byte is compared with the files.
"""
import json
import random
import sys
import time

import checkpoints
import into_ways
import machine
from bench import C_FRESH, C_POOL, COPY, FIO, PEERS, run_case
from command import arguments, publish
from contest import Bench, Case, Contender
from report import GB, Goals, best_peer, by_name, case_table, ratio

VIEWS, COPIES, VLLM = PEERS[:3]  # the streamer reads past the page cache and says so by its times
PY_MAPPED = Contender("tensorcast Python, mapped", "tensorcast mapped")
CASES = {"cold": (("cold",), [FIO, VIEWS, C_POOL, C_FRESH]),
         "hot": (("hot",), [COPY, COPIES, VLLM, C_POOL, C_FRESH]),
         "mapped": (("hot", "cold"), [VIEWS, PY_MAPPED])}


def of_mode():
    modes = {f"--{mode}": {"dest": "mode", "action": "store_const", "const": mode} for mode in (*CASES, "into")}
    options = arguments(__doc__, "0.25 GB", None, (256 << 20, None), "bytes of the checkpoint; three times as much memory is needed", more=modes)
    if not options.mode:
        sys.exit("one of --cold, --hot, --mapped, --into")
    options.rounds = options.rounds or (2 if options.mode in ("cold", "mapped") else 3)
    options.size = options.size or (2_000_000_000 if options.mode in ("hot", "into") else 4_000_000_000)
    return options


def cases(options, llama):
    temperatures, contenders = CASES[options.mode]
    for temperature in temperatures:
        more = [FIO] if options.mode == "mapped" and temperature == "cold" else []
        for name, ranks in (("whole checkpoint", 1), ("four ranks", 4)):
            yield Case(name, llama, ranks, temperature), [*more, *contenders]


def values(records, name, of):
    return [of(record) for record in by_name(records).get(name, {}).values()]


def worst(ratios):
    """Of goals that have to hold in every round."""
    return [min(ratios)] if ratios else []


def cold_goals(g, title, size, records):
    mine = C_FRESH.name
    for memory, name in (("prepared", C_POOL.name), ("fresh", mine)):
        g.at_least(f"{title}, {memory} memory: of fio, ready", 0.95, ratio(records, FIO.name, name, "loaded_s"))
    g.at_least(f"{title}: against views, in every round", 1, worst(ratio(records, VIEWS.name, mine)))
    g.at_most(f"{title}: CPU of the daemon", 0.08, values(records, mine, lambda r: r["daemon_cpu_s"] / (size / GB)), " s/GB")
    g.at_most(f"{title}: bytes copied by a CPU / needed", 0.01,
              values(records, mine, lambda r: sum(told["bytes"]["copied"] for told in r["reports"]) / max(1, r["view_bytes"])), "x")


def hot_goals(g, title, _, records):
    peer = best_peer(records, [COPIES.name, VLLM.name])
    g.at_least(f"{title}, prepared memory: of memcpy, ready", 0.85, ratio(records, COPY.name, C_POOL.name, "loaded_s"))
    g.at_least(f"{title}, fresh memory: against the fastest peer that copies ({peer}), in every round", 1.2,
               worst(ratio(records, peer, C_FRESH.name)))


def mapped_goals(g, title, _, records):
    mine = PY_MAPPED.name
    if title.endswith("cold"):
        g.at_least(f"{title}: of fio, touched", 0.95, ratio(records, FIO.name, mine))
        return
    g.at_most(f"{title}: time of safetensors views, touched", 1.1, ratio(records, mine, VIEWS.name), "x")
    g.at_most(f"{title}: ready", 10, values(records, mine, lambda r: r["loaded_s"] * 1000), " ms")


GOALS = {"cold": cold_goals, "hot": hot_goals, "mapped": mapped_goals}


def measure_loads(options, bench, llama, rng):
    """The Markdown, the raw records, and whether every contender ran and had the right bytes."""
    measured, goals, tables = {}, Goals(), []
    for case, contenders in cases(options, llama):
        records = measured[case.title()] = run_case(bench, case, contenders, options.rounds, rng)
        GOALS[options.mode](goals, case.title(), case.bytes(), records)
        names = {contender.name for contender in contenders}
        ceiling = next(c.name for c in (COPY, FIO, VIEWS) if c.name in names)
        tables.append(case_table(case.title(), case.bytes(), records, ceiling))
    ok = not any("failed" in r or r.get("equal") is False for records in measured.values() for r in records)
    return "\n".join([goals.table(), *tables]).rstrip() + "\n", measured, ok


def main():
    options = of_mode()
    machine.take_over("ways_bench")
    options.data.mkdir(parents=True, exist_ok=True)
    llama = checkpoints.llama(options.data / ("llama" if options.size == 4_000_000_000 else f"llama-{options.size}"), options.size)
    bench, rng = Bench(options.build, options.data, checkpoints.llama(options.data / "tiny", 1 << 20, 2)), random.Random(options.rounds)
    with machine.free_page_reporting():
        if options.mode == "into":
            body, measured, ok = into_ways.measure(bench, llama, options.rounds, rng)
        else:
            body, measured, ok = measure_loads(options, bench, llama, rng)
    (options.build / "bench" / f"{options.mode}.json").write_text(json.dumps(measured, default=str))
    body = f"Measured on {time.strftime('%Y-%m-%d')}: {machine.describe()}; {options.rounds} rounds.\n\n{body}"
    publish(options, options.mode, body)
    sys.exit(not ok)


if __name__ == "__main__":
    main()
