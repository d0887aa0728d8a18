#!/usr/bin/env python3
"""Measures loads of variants beside plain loads of the same files: names and rotary pairs, casts, FP8 blocks, experts.

    bash tests/bench/run.sh build --variants [--quick] [--rounds N] [--size BYTES] [--data FOLDER] [--write FILE]

One daemon for each pair, the two in a new order each round, everything in the page cache, memory from a pool and fresh. What
counts is the daemon's own time for a load, and what it reads. Raw records go to BUILD/bench/variants.json.
"""
import json
import random
import sys
import time
from statistics import median

import checkpoints
import machine
from command import arguments, publish
from contest import GIB, Bench, Service
from report import GB, Goals, spread

EXPERTS, REPLICAS = 64, 8


def pairs(options):
    """{what: (folder, arguments of the variant)}"""
    llama = checkpoints.llama(options.data / f"llama-{options.size}", options.size)
    config = json.loads((llama / "config.json").read_text()) if (llama / "config.json").exists() else {}
    heads = ["--set", f"num_attention_heads={config.get('num_attention_heads', 8)}",
             "--set", f"num_key_value_heads={config.get('num_key_value_heads', 8)}"]
    recipe = options.data / "to-bf16.json"
    recipe.write_text(json.dumps({"version": 1, "steps": [{"cast": {"tensors": ["*"], "dtype": "BF16"}}]}))
    return {"names and rotary pairs": (llama, ["--variant", "hf-llama-to-torchtitan", *heads]),
            "F32 to BF16": (checkpoints.matrices(options.data / f"f32-{options.size}", options.size, "F32"), ["--variant", recipe]),
            "FP8 blocks to BF16": (checkpoints.matrices(options.data / f"fp8-{options.size}", options.size, "F8_E4M3"),
                                   ["--variant", "fp8-block-to-bf16"])}


def load(service, folder, how):
    report = service.json("load", f"disk:{folder}", *how)
    while service.json("status")["replicas"]:  # with a pool they go there by themselves, and must
        time.sleep(0.02)
        if not service.has_pool:
            service.call("release", "--all")
    return {"ms": report["ms"]["total"], "read": report["bytes"]["read"], "view": report["bytes"]["view"]}


def measure(bench, folder, how, pool, rounds, rng):
    """{"plain": [record], "variant": [record]}, by round."""
    files = sorted(folder.glob("*.safetensors"))
    found = {"plain": [], "variant": []}
    service = Service(bench, pool_bytes=4 * GIB + 3 * sum(file.stat().st_size for file in files) if pool else 0)
    service.has_pool = pool
    try:
        for number in range(-1, rounds):  # the first fills the pool and reads the headers
            for name in rng.sample(list(found), 2):
                machine.make_hot(files)
                record = load(service, folder, how if name == "variant" else [])
                if number >= 0:
                    found[name].append(record)
                    print(f"{time.strftime('%H:%M:%S')} {folder.name} {'pool' if pool else 'fresh'} #{number + 1} {name}: {record['ms']:.0f} ms",
                          file=sys.stderr, flush=True)
    finally:
        service.end()
    return found


def one_expert(bench, options):
    """{name: bytes read / bytes of the expert} of one of many experts that are copies and shuffles of a dense layer."""
    folder, shares = checkpoints.dense(options.data / "dense", 16384, 2048), {}
    inter_dim = 16384 * REPLICAS // EXPERTS
    how = ["--variant", "moe-upcycle", "--set", f"experts={EXPERTS}", "--set", f"inter_dim={inter_dim}", "--set", "shuffle_seed=42"]
    service = Service(bench)
    try:
        for name, expert, executor in (("w1", EXPERTS - 3, "generic"), ("w1", EXPERTS - 3, "auto"), ("w2", EXPERTS - 3, "auto"),
                                       ("w1", 2, "auto")):
            report = service.json("load", f"disk:{folder}", *how, "--executor", executor, "--slice",
                                  f"l.0.moe.experts.{name}[{expert}:{expert + 1}, :, :]")
            service.call("release", "--all")
            which = "shuffled" if expert >= EXPERTS // REPLICAS else "the first replica"
            shares[f"{name}, {which}, executor {executor}"] = report["bytes"]["read"] / report["bytes"]["view"]
    finally:
        service.end()
    return shares


def ratios(found):
    """Bytes of the source per second of the variant, of those of the plain load, by round."""
    return [variant["read"] / variant["ms"] / (plain["read"] / plain["ms"]) for plain, variant in zip(found["plain"], found["variant"])]


def goals(measured, shares):
    g = Goals()
    for memory in ("pool", "fresh"):
        for what, goal in (("names and rotary pairs", None), ("F32 to BF16", 0.7), ("FP8 blocks to BF16", 0.5)):
            found = measured[f"{what}, {memory}"]
            if goal is None:
                g.at_most(f"{what}, {memory}: time of the plain load", 1.1,
                          [variant["ms"] / plain["ms"] for plain, variant in zip(found["plain"], found["variant"])], "x")
            else:
                g.at_least(f"{what}, {memory}: GB/s of source bytes, of the plain load's", goal, ratios(found))
    for name, share in shares.items():
        g.at_most(f"one expert of {EXPERTS}, {name}: bytes read / its bytes", 1.1, [share], "x")
    return g


def text(options, measured, shares):
    lines = [f"Measured on {time.strftime('%Y-%m-%d')}: {machine.describe()}; {options.rounds} rounds.", "",
             goals(measured, shares).table(), "| load | plain ms | variant ms | GB read | GB of the variant | plain GB/s | variant GB/s |",
             "|---|---|---|---|---|---|---|"]
    for title, found in measured.items():
        plain, variant = ([record["ms"] for record in found[name]] for name in ("plain", "variant"))
        record = found["variant"][0]
        lines.append(f"| {title} | {spread(plain, 0)} | {spread(variant, 0)} | {record['read'] / GB:.2f} | {record['view'] / GB:.2f} | "
                     f"{found['plain'][0]['read'] / 1e6 / median(plain):.2f} | {record['read'] / 1e6 / median(variant):.2f} |")
    return "\n".join(lines) + "\n"


def main():
    options = arguments(__doc__, "0.25 GB", 7, (250_000_000, 2_000_000_000),
                        "bytes of each checkpoint; three of them are written, and four times as much memory is needed", "room for them")
    machine.take_over("variants_bench")
    options.data.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.build, options.data, None)
    rng, measured = random.Random(options.rounds), {}
    with machine.free_page_reporting(), machine.shared_huge_pages("advise"):
        for what, (folder, how) in pairs(options).items():
            for memory in ("pool", "fresh"):
                measured[f"{what}, {memory}"] = measure(bench, folder, how, memory == "pool", options.rounds, rng)
        shares = one_expert(bench, options)
    (options.build / "bench" / "variants.json").write_text(json.dumps({"loads": measured, "experts": shares}))
    body = text(options, measured, shares)
    publish(options, "variants", body)


if __name__ == "__main__":
    main()
