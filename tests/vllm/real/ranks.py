"""Loads checkpoints in one process per rank of a tensor-parallel group, with vLLM's default loader and with ours, and
compares every parameter and buffer. No engine: what is compared is what load_weights leaves behind.

    python ranks.py '{"size": 2, "rendezvous": "/new/file", "cases": {"llama": {"folder": "/llama", "options": {}}}}'

prints one JSON object per rank and line: for each case what differed, the boxes that were asked for, and the bytes, or the
errors of both loaders. "pipeline": 2 in the job makes so many stages, of `size` ranks each. In a case, "wrong": "k_proj" makes
the boxes of such tensors begin one row too early, to see that the comparison notices; "engine" has more arguments for the
engine's configuration; with a "speculative_config" among them the draft model is loaded in place of the model itself; "ours"
is the folder that our loader gets in place of "folder".
"""
import glob
import json
import multiprocessing
import os
import queue
import sys
import traceback
from pathlib import Path

POISON = 0xA5


def config_of(job, case, load_format, options):
    from vllm.engine.arg_utils import EngineArgs
    folder = case.get("ours", case["folder"]) if load_format == "tensorcast" else case["folder"]
    return EngineArgs(model=folder, tensor_parallel_size=job["size"], pipeline_parallel_size=job.get("pipeline", 1),
                      load_format=load_format, enforce_eager=True, skip_tokenizer_init=True,
                      model_loader_extra_config=options, **case.get("engine", {})).create_engine_config()


def _of_the_draft(config):
    """The configuration that vLLM makes for a draft model."""
    from vllm.config import replace
    draft = config.speculative_config
    return replace(config, quant_config=None, parallel_config=draft.draft_parallel_config,
                   model_config=draft.draft_model_config)


def load(config):
    """A model as load_weights leaves it; parameters are poisoned before, so that what is not written shows."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.utils.torch_utils import set_default_torch_dtype
    config = _of_the_draft(config) if config.speculative_config else config
    model_config = config.model_config
    with set_current_vllm_config(config):
        loader = get_model_loader(config.load_config)
        with set_default_torch_dtype(model_config.dtype), torch.device("cpu"):
            model = loader.create_model(vllm_config=config, model_config=model_config)
        for parameter in model.parameters():
            parameter.data.contiguous().reshape(-1).view(torch.uint8).fill_(POISON)
        with set_default_torch_dtype(model_config.dtype):
            loader.load_weights(model, model_config)
    return model


def _watch_plans(plans, case):
    """Keeps each Plan that the loader makes and how it was filled, and spoils it where the case asks for it."""
    from tensorcast_vllm import loader

    class Watched(loader.Plan):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            plans.append(self)

        def slices(self, request):
            slices = super().slices(request)
            for name in [name for name in slices if case.get("wrong", name + "!") in name]:
                (dim, part), *more = slices[name]
                if part.start:
                    slices[name] = [(dim, slice(part.start - 1, part.stop - 1)), *more]
            return slices

    fill = loader.fill

    def watched(model, plan, *more):
        plan.filled = fill(model, plan, *more)
        return plan.filled

    loader.Plan, loader.fill = Watched, watched


def state_of(model):
    from tensorcast_vllm import attempts
    return attempts.state_of(model)


def _compare(job, case, plans):
    from tensorcast_vllm.checkpoint import bytes_equal
    states, errors = {}, {}
    plans.clear()
    for load_format, options in (("safetensors", {}), ("tensorcast", case["options"])):
        try:
            states[load_format] = dict(state_of(load(config_of(job, case, load_format, options))))
        except Exception as error:
            errors[load_format] = f"{type(error).__name__}: {error}"
    if errors:
        return {"errors": errors}
    theirs, ours = states.values()
    differ = sorted(name for name in theirs.keys() | ours.keys()
                    if name not in theirs or name not in ours or not bytes_equal(theirs[name], ours[name]))
    report = {"differ": differ, "compared": len(ours)}
    if plans:
        plan = plans.pop()
        boxes = [(name, [box.start, box.stop]) for request in plan.requests for name, box in request.items()]
        report.update(bytes=plan.bytes, real=plan.real, requests=len(plan.requests), boxes=boxes,
                      **plan.filled._asdict())
    return report


def _world(job):
    return job["size"] * job.get("pipeline", 1)


def _rank(rank, job, results):
    world, stages = _world(job), job.get("pipeline", 1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    report = {"rank": rank, "cases": {}}
    try:
        from vllm.config import set_current_vllm_config
        from vllm.distributed import (destroy_model_parallel, init_distributed_environment, initialize_model_parallel)
        from vllm.engine import arg_utils  # noqa: F401  as code that starts an engine has
        from vllm.plugins import load_general_plugins
        load_general_plugins()
        from reloads import compare_reloads
        plans, current = [], {}
        _watch_plans(plans, current)
        for name, case in job["cases"].items():
            current.clear()
            current.update(case)
            with set_current_vllm_config(config_of(job, case, "safetensors", {})):
                if not report["cases"]:
                    init_distributed_environment(world, rank, f"file://{job['rendezvous']}", rank, "gloo")
                initialize_model_parallel(job["size"], stages)
                report["cases"][name] = compare_reloads(job, case) if "reload" in case else _compare(job, case, plans)
                destroy_model_parallel()
    except BaseException:  # whatever it is, the parent has to hear of it
        report["error"] = traceback.format_exc()
    results.put(report)


def _next(results, ranks):
    while True:
        try:
            return results.get(timeout=1)
        except queue.Empty:
            if died := [process.exitcode for process in ranks if process.exitcode]:
                raise RuntimeError(f"ranks died: {died}") from None


def _remove_shared_memory():
    """What ranks that load together leave behind in vLLM's own communication: 8 MiB of each group."""
    for path in Path("/dev/shm").glob(glob.escape(os.environ["VLLM_DIST_IDENT"]) + "-*"):
        path.unlink(missing_ok=True)


def main():
    job = json.loads(sys.argv[1])
    os.environ.setdefault("VLLM_DIST_IDENT", f"ranks-{os.getpid()}")
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    ranks = [spawn.Process(target=_rank, args=(rank, job, results)) for rank in range(_world(job))]
    for process in ranks:
        process.start()
    try:
        reports = [_next(results, ranks) for _ in ranks]
    finally:
        _remove_shared_memory()
    for process in ranks:
        process.join()
    for report in sorted(reports, key=lambda report: report["rank"]):
        print(json.dumps(report))


if __name__ == "__main__":
    main()
