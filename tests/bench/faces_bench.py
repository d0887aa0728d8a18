#!/usr/bin/env python3
"""Programs that load models, as they are: the time from_pretrained() takes with the libraries imported, by the original, through
the daemon (`python -m tensorcast_client run`), and by reference (tensorcast_client.transformers).

    bash tests/bench/run.sh build --faces [--quick] [--rounds N] [--size BYTES] [--write FILE]

hot: the files are in the page cache, the daemon holds nothing. resident: the daemon holds the model, as at a second start. Two
tensor-parallel ranks cold: nothing is anywhere, and what the disk gave is counted. A model counts as loaded when a byte of each of
its pages was looked at: the original returns before it has read anything.

safetensors' own calls, by the official package and through the daemon: load_file of every file, the second half of each matrix by
safe_open (as one of two ranks would), and names and shapes alone; cold, hot and resident.
"""
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import checkpoints
import machine
from command import arguments, packages, publish
from contest import Service
from report import Goals, spread

HERE = Path(__file__).resolve().parent
ORIGINAL, PATCHED, REFERENCE = "original", "run", "by reference"
WAYS = {ORIGINAL: ([], "path"), PATCHED: (["-m", "tensorcast_client", "run"], "path"), REFERENCE: ([], "reference")}


def configure(folder):
    """What transformers has to know of checkpoints.llama()."""
    shape, n_layers = {}, 0
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shape.update({name: entry["shape"] for name, entry in header.items() if name != "__metadata__"})
    n_layers = 1 + max(int(name.split(".")[2]) for name in shape if ".layers." in name)
    first = "model.layers.0."
    vocabulary, hidden = shape["lm_head.weight"]
    heads = max(4, hidden // 128)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "vocab_size": vocabulary, "hidden_size": hidden,
              "intermediate_size": shape[first + "mlp.gate_proj.weight"][0], "num_hidden_layers": n_layers, "num_attention_heads": heads,
              "num_key_value_heads": heads * shape[first + "self_attn.k_proj.weight"][0] // hidden, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config))


def make_cold(files):
    """Only the checkpoint: the libraries of the ranks are in the page cache, too."""
    os.sync()
    for path in files:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if machine.cached_share(files):
        raise RuntimeError("something keeps the checkpoint in the page cache; is it mapped?")


CALLS = ("load_file", "slices", "keys")
STATES = ("cold", "hot", "resident")


def cases():
    """{case: (ranks, state, call of safetensors or None, ways)}"""
    whole = {"one process, hot": (1, "hot"), "one process, resident": (1, "resident"), "two ranks, cold": (2, "cold")}
    found = {case: (*how, None, list(WAYS)) for case, how in whole.items()}
    for call in CALLS:
        for state in STATES:
            found[f"safetensors {call}, {state}"] = (1, state, call, [ORIGINAL, PATCHED])
    return found


def run(options, folder, way, n_ranks, state, call=None):
    """What one way of loading took: the slowest rank's seconds, and what the disk gave."""
    files = sorted(folder.glob("*.safetensors"))
    service = None if way == ORIGINAL else Service(SimpleNamespace(data=options.data, build=options.build))
    before, word = WAYS[way]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks, backed = [], machine.Backed(options.build / "bench" / "native")
    try:
        with tempfile.TemporaryDirectory() as cache:
            for rank in range(n_ranks):
                env = {**os.environ, "XDG_CACHE_HOME": cache, "HF_HUB_OFFLINE": "1", "TENSORCAST_REQUIRED": "1", "OMP_NUM_THREADS": "1"}
                env.update({"TENSORCAST_SOCKET": str(service.socket)} if service else {})
                env.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(n_ranks), "MASTER_ADDR": "127.0.0.1",
                            "MASTER_PORT": str(port)} if n_ranks > 1 else {})
                command = [sys.executable, *before, HERE / ("safetensors_worker.py" if call else "faces_worker.py"), folder,
                           call or word, options.tiny]
                ranks.append(subprocess.Popen(list(map(str, command)), env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                              stderr=subprocess.DEVNULL))
            for rank in ranks:
                if rank.stdout.readline() != "ready\n":
                    return {"failed": f"exit {rank.wait()}"}
            make_cold(files) if state == "cold" else machine.make_hot(files)
            if state == "resident" and service:
                for reference in files if call else [folder]:  # a handle of safetensors is one file
                    service.call("prewarm", reference)
            backed.take(sum(path.stat().st_size for path in files) * 5 // 4)  # else the first touch of new memory counts, for some
            backed.give()
            pids = [rank.pid for rank in ranks] + ([service.process.pid] if service else [])
            disk, asked = machine.disk_bytes_read(pids), machine.bytes_asked(pids[n_ranks:])
            for rank in ranks:
                rank.stdin.write("go\n")
                rank.stdin.flush()
            lines = [rank.stdout.readline() for rank in ranks]
            if not all(lines):
                return {"failed": "a rank ended"}
            told = [json.loads(line) for line in lines]
            return {"touched_s": max(t["touched_s"] for t in told), "returned_s": max(t["returned_s"] for t in told),
                    "bytes": sum(t["bytes"] for t in told), "disk_bytes": machine.disk_bytes_read(pids) - disk,
                    "asked_bytes": machine.bytes_asked(pids[n_ranks:]) - asked}
    finally:
        backed.give()
        for rank in ranks:
            rank.communicate()  # ends its wait
        if service:
            service.end()


def table(found, size):
    lines = ["| case | way | loaded s | returned s | of the original | disk / checkpoint | daemon asked / checkpoint |",
             "|---|---|---|---|---|---|---|"]
    for case in dict.fromkeys(record["case"] for record in found):
        for way in WAYS:
            mine = [r for r in found if (r["case"], r["way"]) == (case, way) and "failed" not in r]
            if not mine:
                continue
            seconds, share = [r["touched_s"] for r in mine], median(ratios(found, case, way) or [0])
            lines.append(f"| {case} | {way} | {spread(seconds, 3)} | "
                         f"{median(r['returned_s'] for r in mine):.3f} | {share:.2f} | {median(r['disk_bytes'] for r in mine) / size:.2f} | "
                         f"{median(r['asked_bytes'] for r in mine) / size:.2f} |")
    return "\n".join(lines)


def ratios(found, case, way):
    of = {(r["way"], r["round"]): r["touched_s"] for r in found if r["case"] == case and "failed" not in r}
    rounds = {at for _, at in of}
    return [of[way, at] / of[ORIGINAL, at] for at in sorted(rounds) if {(way, at), (ORIGINAL, at)} <= set(of)]


def goals(found, size):
    g = Goals()
    for way in (PATCHED, REFERENCE):
        cold = [r for r in found if (r["case"], r["way"]) == ("two ranks, cold", way) and "failed" not in r]
        g.at_most(f"two ranks, cold, {way}: bytes the daemon read / checkpoint", 1.02, [r["asked_bytes"] / size for r in cold], "x")
    return g


def main():
    options = arguments(__doc__, "0.25 GB", 3, (256 << 20, 2_000_000_000))
    machine.take_over("faces_bench")
    folder = checkpoints.llama(options.data / f"llama-{options.size}", options.size)
    options.tiny = checkpoints.llama(options.data / "tiny-llama", 1 << 20, 1)
    configure(folder)
    configure(options.tiny)
    size, found, order = sum(f.stat().st_size for f in folder.glob("*.safetensors")), [], random.Random(options.rounds)
    with machine.free_page_reporting():
        for at in range(options.rounds):
            for case, (n_ranks, state, call, ways) in cases().items():
                for way in order.sample(ways, len(ways)):
                    found.append({"case": case, "way": way, "round": at, **run(options, folder, way, n_ranks, state, call)})
                    print(found[-1], file=sys.stderr)
    (options.build / "bench" / "faces.json").write_text(json.dumps({"bytes": size, "found": found}))
    body = (f"Measured on {time.strftime('%Y-%m-%d')}: {machine.describe()}; {packages()}. {options.rounds} rounds "
            f"of {size / 1e9:.1f} GB.\n\n{goals(found, size).table()}\n{table(found, size)}\n")
    publish(options, "faces", body)
    sys.exit(any("failed" in r for r in found))


if __name__ == "__main__":
    main()
