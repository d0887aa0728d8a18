"""Has the daemon read what an engine will ask for while the engine is still importing: by what it asked for the last time.

start() returns at once. The requests are sent by a process of its own, which is no child of the caller, so that a caller that execs
a program has no zombie, and a program that forks later has no threads of ours.
"""
from __future__ import annotations

import argparse
import json
import os
import sys

from . import last_trace
from .options import parse

DONE = "TENSORCAST_VLLM_PREWARMED"  # set for a program whose prewarming was taken care of
_DEADLINE_S = 3600



def of_command(words):
    """What a command line such as `vllm serve MODEL ...` starts: (model, LoaderOptions, Layout), None when it is no engine that loads
    through the daemon."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--model")
    parser.add_argument("--load-format")
    parser.add_argument("--model-loader-extra-config", type=json.loads, default={})
    parser.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    parser.add_argument("--data-parallel-size", "-dp", type=int, default=1)
    parser.add_argument("--enable-expert-parallel", "-ep", action="store_true")
    try:
        known, rest = parser.parse_known_args([_dashed(word) for word in words])
        if known.load_format != "tensorcast":
            return None
        options = parse(known.model_loader_extra_config)
    except (argparse.ArgumentError, ValueError, RecursionError, SystemExit):
        return None
    after = words[words.index("serve") + 1:] if "serve" in words else []
    model = known.model or (after[0] if after and not after[0].startswith("-") else None)
    layout = last_trace.Layout(known.tensor_parallel_size, known.pipeline_parallel_size, known.data_parallel_size,
                               known.enable_expert_parallel)
    return model and (model, options, layout)


def of_engine(arguments):
    """The same of vLLM's EngineArgs."""
    sizes = [getattr(arguments, f"{kind}_parallel_size", 1) for kind in ("tensor", "pipeline", "data")]
    layout = last_trace.Layout(*sizes, bool(getattr(arguments, "enable_expert_parallel", False)))
    return arguments.model, parse(arguments.model_loader_extra_config), layout


def folder_of_engine(model, options, layout):
    """(artifact, folder with its traces) as the loader records them; ValueError when the model is no artifact."""
    from tensorcast_client.reference import parse as parse_reference

    from .model_folder import origin_of
    from .references import is_reference
    artifact = parse_reference(model) if is_reference(model) else origin_of(model).artifact
    return artifact, last_trace.folder_of(artifact, variant_key(options), layout)


def variant_key(options):
    """What tells the variants of an artifact apart, as JSON; None for none."""
    return None if options.variant is None else json.dumps([options.variant, options.variant_set], sort_keys=True).encode()


def start(asked):
    """Sends the hint for (model, LoaderOptions, Layout), if there is one. True when it is under way."""
    model, options, layout = asked
    try:
        artifact, folder = folder_of_engine(model, options, layout)
    except (ValueError, OSError, RuntimeError):
        return False
    if options.prewarm == "never" or not os.path.isdir(folder):
        return False
    job = json.dumps({"artifact": artifact, "folder": folder, "socket": options.socket, "variant": options.variant,
                      "variant_set": options.variant_set})
    try:
        return _spawn([sys.executable, "-m", "tensorcast_vllm.prewarm", job])
    except OSError:
        return False  # no process to be had: then the engine is not ahead of itself


def _spawn(words):
    """Starts a process that is not a child of this one."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.execv(words[0], words)
    finally:
        os._exit(1)


def send(artifact, requests, deadline_s=_DEADLINE_S):
    """Prewarms each Request of a tc.Artifact, all at once. Returns how many bytes they have, without those that failed."""
    from concurrent.futures import ThreadPoolExecutor

    import tensorcast_client as tc

    def one(request):
        view = artifact.subset(request.names).view(request.slices, placement=request.placement)
        try:
            return view.prewarm(tc.Options(memory="copied", deadline=deadline_s))["bytes"]["view"]
        except tc.TensorcastError:
            return 0  # the checkpoint has changed, or there is no room: then it is read when it is asked for

    artifact.facts()  # once, not by each thread
    with ThreadPoolExecutor(min(len(requests), 16) or 1) as pool:
        return sum(pool.map(one, requests))


def main():
    import tensorcast_client as tc

    from .model_folder import with_variant
    from .options import LoaderOptions
    job = json.loads(sys.argv[1])
    requests = last_trace.read(job["folder"], job["artifact"])
    if requests:
        with tc.connect(job["socket"]) as client:
            options = LoaderOptions(variant=job["variant"], variant_set=job["variant_set"])
            send(with_variant(client.artifact(job["artifact"]), options), requests)


def _dashed(word):
    """vLLM takes underscores in names of options, too."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


if __name__ == "__main__":
    main()
