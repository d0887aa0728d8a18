#!/usr/bin/env python3
"""Activations of a model, from the data set to a probe that is trained on them, on one machine.

    python examples/activations.py --dir DIR [--upload gs://bucket/acts] [--samples 120] [--numpy] [SOCKET]

Four processes stand for four hosts. Each claims one, takes that host's part of the data set, runs a tiny model on it, and appends what
two layers compute to the store. One is killed in the middle of it, as preemptible machines are; another one goes on where it was.
With --upload sealed segments go to the bucket, and from the disk when they are there. Then the hosts are merged and counted, and a
linear probe learns from `samples()` to tell what was in the input.

DIR/acts must not be there; DIR has to lie below `activations.roots` and `sources.disk.trusted_roots` of the daemon's configuration.
Without torch, or with --numpy, the model is one of NumPy.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import tensorcast_client as tc

HOSTS, WIDTH, LAYERS, UNIT = 4, 32, (1, 3), 8


def make_dataset(path, n):
    """Lines of tokens; what the probe is to find out is whether there is a 7 among them."""
    rng = np.random.default_rng(1)
    with open(path, "w") as file:
        for line in range(n):
            tokens = rng.integers(0, 7, 12)
            if line % 2:
                tokens[rng.integers(0, 12)] = 7
            file.write(json.dumps({"tokens": tokens.tolist()}) + "\n")


def find_torch():
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)  # four processes on one machine
    return torch


def make_model(is_numpy):
    """tokens -> {layer: what that layer computes, [tokens, WIDTH]}"""
    rng = np.random.default_rng(2)
    embedding = rng.standard_normal((8, WIDTH), np.float32)
    weights = [rng.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(WIDTH) ** .5 for _ in range(4)]
    torch = None if is_numpy else find_torch()
    if torch is None:
        def run(tokens):
            state, kept = embedding[tokens], {}
            for layer, weight in enumerate(weights):
                state = np.maximum(state @ weight, 0)
                if layer in LAYERS:
                    kept[layer] = state
            return kept
        return run
    blocks = []
    for weight in weights:
        block = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        block.weight.data = torch.from_numpy(weight.T.copy())
        blocks += [block, torch.nn.ReLU()]
    model, kept = torch.nn.Sequential(*blocks), {}
    for layer in LAYERS:
        model[2 * layer + 1].register_forward_hook(lambda _module, _inputs, output, layer=layer: kept.__setitem__(layer, output.detach().clone()))

    def run_torch(tokens):
        with torch.no_grad():
            model(torch.from_numpy(embedding[tokens]))
        return dict(kept)
    return run_torch


def connect(options):
    return tc.connect(options.socket) if options.socket else tc.connect()


def command(socket, *words):
    """`tensorcast activations ...`, as an object."""
    told = subprocess.run(["tensorcast", *(["--socket", socket] if socket else []), "activations", *map(str, words), "--json"],
                          stdout=subprocess.PIPE, check=True)
    return json.loads(told.stdout) if told.stdout.strip() else None


def extract(options, dataset, host, run):
    """One host's part of the data set. What it has stored is not computed again, whatever has killed it before."""
    mine = tc.partition(dataset, hosts=HOSTS, host=host)
    with connect(options).activation_store(f"disk:{options.store}", host=host, upload=options.upload, keep_local=not options.upload,
                                           segment_bytes="32KiB", narrow="auto") as store:
        last = store.resume["last_sample"]
        print(f"host {host} begins" if last is None else f"host {host} goes on behind {last}", flush=True)
        for n, (number, line) in enumerate(one for one in mine if last is None or one[0] > last):
            store.append(number, run(np.array(json.loads(line)["tokens"])), info={"line": number})
            if n % 8 == 7:
                store.commit()
                if options.preempted:
                    os.kill(os.getpid(), signal.SIGKILL)


def work(options, dataset):
    """Takes hosts that no worker works for, until all are done: also one whose worker was killed, when its lease has passed."""
    run, owner, store = make_model(options.numpy), f"worker-{os.getpid()}", f"disk:{options.store}"
    while sum(json.loads(claim.read_text())["done"] for claim in (options.store / "claims").glob("unit_*")) < HOSTS:
        host = command(None, "claim", store, "--units", HOSTS, "--owner", owner, "--lease", "1s")["unit"]
        if host is None:
            time.sleep(.2)
            continue
        try:
            extract(options, dataset, host, run)
            command(None, "claim", store, "--owner", owner, "--done", host)
        except tc.TensorcastError as error:  # the lease of a worker that lives has passed: it goes on
            if error.reason != "WRITER_EXISTS":
                raise
        except subprocess.CalledProcessError:
            print(f"another process has taken host {host} over", flush=True)


def start_worker(options, *more):
    words = ["--worker", "--dir", options.dir, *more, *(["--numpy"] if options.numpy else [])]
    words += [*(["--upload", options.upload] if options.upload else []), *([options.socket] if options.socket else [])]
    return subprocess.Popen([sys.executable, __file__, *map(str, words)])


def work_on_all_hosts(options):
    if start_worker(options, "--preempted").wait() != -signal.SIGKILL:
        sys.exit("the worker that is to be preempted has failed")
    print("a worker was preempted: another one goes on when its lease has passed", flush=True)
    workers = [start_worker(options) for _ in range(HOSTS)]
    if any([worker.wait() for worker in workers]):
        sys.exit("a worker has failed")


def wait_for_uploads(socket, store):
    """What status says of each host, when nothing is to come any more."""
    while True:
        hosts = command(socket, "status", store)["hosts"]
        uploads = [host["uploads"] for host in hosts]
        failed = [told["error"] for told in uploads if told["failed"]]
        if failed:
            sys.exit(f"not uploaded: {failed[0]}")
        if not any(told["pending"] for told in uploads):
            return hosts
        time.sleep(.1)


def train_probe(samples, dataset):
    """Is there a 7 among the tokens? Least squares on the mean and the greatest activation of a layer; the share that is right of
    samples that were not learned from."""
    lines = Path(dataset).read_text().splitlines()
    features, labels = [], []
    for line, layers in samples:
        features.append(np.concatenate([layers[LAYERS[0]].mean(0), layers[LAYERS[0]].max(0), [1]]))
        labels.append(7 in json.loads(lines[line])["tokens"])
    x, y = np.array(features, np.float64), np.where(labels, 1., -1.)
    half = len(y) * 3 // 4
    weights = np.linalg.solve(x[:half].T @ x[:half] + np.eye(x.shape[1]), x[:half].T @ y[:half])
    return float(np.mean((x[half:] @ weights > 0) == (y[half:] > 0)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upload", help="gs://bucket/prefix or s3://bucket/prefix")
    parser.add_argument("--samples", type=int, default=120)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--numpy", action="store_true", help="not torch")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--preempted", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("socket", nargs="?", default=os.environ.get("TENSORCAST_SOCKET"))
    options = parser.parse_args()
    options.store, dataset = options.dir / "acts", options.dir / "dataset.jsonl"
    if options.worker:
        work(options, dataset)
        return
    (options.store / "claims").mkdir(parents=True)
    make_dataset(dataset, options.samples)
    told = command(None, "estimate", "--layers", len(LAYERS), "--seq", 12, "--hidden", WIDTH, "--dtype", "F32", "--samples", options.samples)
    print(f"{options.samples} samples will take {told['bytes']} bytes", flush=True)
    work_on_all_hosts(options)
    store = f"disk:{options.store}"
    for host in wait_for_uploads(options.socket, store):
        print(f"host {host['host']}: {host['samples']} samples in {host['segments']} segments, {host['bytes']} bytes here, "
              f"{host['uploads']['done']} segments in the bucket")
    merged = command(options.socket, "merge", store)
    command(options.socket, "verify", store)
    samples = sorted(connect(options).activation_store(store).samples(), key=lambda sample: sample[0])
    if merged["samples"] != options.samples or [line for line, _ in samples] != list(range(options.samples)):
        sys.exit(f"not each sample once: {merged}")
    print(f"{merged['samples']} samples of {merged['hosts']} hosts, each once; the probe is right about {train_probe(samples, dataset):.0%} "
          "of what it has not seen")


if __name__ == "__main__":
    main()
