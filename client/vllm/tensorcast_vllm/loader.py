"""The loader that vLLM knows as --load-format tensorcast: trace, ask, fill, check, tell; again for new weights."""
from __future__ import annotations

import copy
import dataclasses
import functools
import time

import tensorcast_client as tc
import torch
from tensorcast_client.redact import shown
from tensorcast_client.reference import parse as parse_reference
from tensorcast_client.words import size_of
from vllm.config import get_current_vllm_config_or_none
from vllm.distributed import (get_pp_group, get_tensor_model_parallel_rank, get_tensor_model_parallel_world_size,
                              get_tp_group)
from vllm.logger import init_logger
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from . import last_trace, prewarm, reload
from . import options as loader_options
from .attempts import state_of, trace
from .checkpoint import Checkpoint, bytes_equal, unavailable
from .fill import device_of, fill
from .in_place import fill_in_place
from .model_folder import Origin, config_of, origin_of, with_variant
from .plan import Plan
from .references import LOAD_FORMAT, is_reference
from .topology import Place, client_options, file_system_of, hint
from .trace import key_of

logger = init_logger("vllm.tensorcast")  # below vLLM's own logger, so that its settings apply

_MAX_NAMED = 10


class TensorcastLoader(BaseModelLoader):
    """Loads what this rank needs of a checkpoint through the daemon of this host."""

    def __init__(self, load_config):
        super().__init__(load_config)
        self._options = loader_options.parse(load_config.model_loader_extra_config)
        reload.install(LOAD_FORMAT)  # here, as code that makes a loader has imported what it runs models with

    def download_model(self, model_config):
        """Nothing is left to be downloaded: the configuration was fetched before vLLM read it (see references.py), and the
        tensors come when they are loaded."""
        origin_of(model_config.model)

    def load_weights(self, model, model_config):
        origin = origin_of(model_config.model)
        _refuse_what_is_not_supported(model)
        if reload.is_processed(model):
            self.reload_model(model, model_config)
            return
        try:
            self._load(model, model_config, origin)
        except tc.TensorcastError as error:
            if not (unavailable(error) and self._options.fallback == "if_unavailable"):
                raise _failed(origin, error) from error
            here = _on_this_host(model_config, origin, "fallback")
            logger.warning("NO TENSORCAST DAEMON, falling back to vLLM's default loader: %s", error)
            self._default_loader("auto").load_weights(model, here)
            return
        if self._options.verify:
            self._verify(model, _on_this_host(model_config, origin, "verify"))

    def reload_model(self, model, model_config):
        """Loads a model that serves anew, from what model_config.model says: a folder or a reference. When it fails before the
        processing of the new weights has begun, the model is what it was. Raises reload.NotAtOnce where only vLLM's own
        reload can do it."""
        origin = _origin_of_new(model_config)
        _refuse_what_is_not_supported(model)

        try:
            reload.reload_on_host(model, model_config, lambda check: self._load(model, model_config, origin, check))
        except tc.TensorcastError as error:
            raise _failed(origin, error) from error

    def get_all_weights(self, model_config, model):
        """What vLLM's own reload goes by: an iterator over (name, tensor) of the checkpoint, all of which is loaded before this returns.
        The tensors may be written to."""
        origin = _origin_of_new(model_config)
        _refuse_what_is_not_supported(model)
        try:
            with tc.connect(self._options.socket) as client:
                place = _place()
                checkpoint = Checkpoint(with_variant(client.artifact(origin.artifact), self._options if _is_main(model_config) else None),
                                        lambda request: client_options(self._options, place, origin.artifact, False), logger.info)
                sources = checkpoint.sources()
                _check_like_loaded(model, sources, config_of(client, origin))
                tensors = checkpoint.whole()
        except tc.TensorcastError as error:
            raise _failed(origin, error) from error
        return iter([(source.name, tensors[source.name]) for source in sources])

    def _load(self, model, model_config, origin, check_reload=None):
        """check_reload(plan): for a model that was loaded before; comes before the plan is carried out."""
        start, (place, hinted) = time.monotonic(), self._together(origin)

        def options_of(request):
            # only the first request is one that every rank has
            return client_options(self._options, place, origin.artifact, hinted and request == 0)

        def tell(text, say=logger.debug):
            say("tensorcast rank %d of %d: %s", place.rank, place.size, text)

        with tc.connect(self._options.socket) as client:
            artifact = with_variant(client.artifact(origin.artifact), self._options if _is_main(model_config) else None)
            checkpoint = Checkpoint(artifact, options_of, functools.partial(tell, say=logger.info))
            sources, config = checkpoint.sources(), config_of(client, origin)
            origin.check(checkpoint.identity)
            if check_reload:
                _check_like_loaded(model, sources, config)
            plan = _plan(model, checkpoint, sources, tell)
            self._check(model, model_config, plan)
            if check_reload:
                check_reload(plan)
            else:
                shapes = {source.name: source.shape for source in sources}
                filled = reload.filled_by(model, plan)
                reload.remember(model, reload.Loaded(model_config.model, shapes, filled, config, reload.views_in(model),
                                                          reload.attributes_of(model)))
            self._carry_out(model, plan, checkpoint, place, tell, start)
            if not check_reload and self._options.prewarm == "auto":
                self._record(origin, plan)
        logger.info("Loading weights took %.2f seconds", time.monotonic() - start)

    def _record(self, origin, plan):
        """For the next engine of this kind; see prewarm.py."""
        layout, rank = _layout()
        placement = "packed" if self._options.adopt == "auto" else None
        requests = [last_trace.Request(tuple(plan.requests[request]), plan.slices(request), placement)
                    for request in range(len(plan.requests))]
        try:
            folder = last_trace.folder_of(origin.artifact, prewarm.variant_key(self._options), layout)
            last_trace.record(folder, rank, origin.artifact, requests)
        except OSError as error:
            logger.info("tensorcast: the request is not kept for the next start's prewarm: %s", error)

    def _carry_out(self, model, plan, checkpoint, place, tell, start):
        left, reports, written = plan, [], 0
        device = device_of(model)
        if device.type == "cuda" and self._options.gpu_handoff == "auto":
            left, reports, written = fill_in_place(model, plan, checkpoint, device, functools.partial(tell, say=logger.warning))
        loaded = checkpoint.load(left, self._options.adopt == "auto")
        reports, filling = reports + [tensors.diagnostics for tensors in loaded], time.monotonic()
        filled = self._fill(model, left, loaded)
        now = time.monotonic()
        logger.info("tensorcast: %s", _done(place, reports, filled, checkpoint.whole_bytes, now - start))
        tell(_summary(reports, filled, written, checkpoint.whole_bytes, now - filling, now - start))

    def _together(self, origin):
        """(this worker's Place, whether the daemon is told of the ranks that load with it)"""
        place = _place()
        kind = file_system_of(origin.folder) if origin.folder else origin.artifact.partition(":")[0]
        hinted, why = hint(self._options, place, kind)
        say = logger.info if hinted else logger.debug
        say("tensorcast rank %d of %d: %s, %s collective hint (%s)", place.rank, place.size, shown(origin.artifact),
                    "a" if hinted else "no", why)
        if hinted:  # workers that something else than vLLM has started do not agree on the engine's name
            place = place._replace(engine=get_tp_group().broadcast_object(place.engine))
        return place, hinted

    def _fill(self, model, plan, loaded):
        # a change to reserved huge pages would need another one, and kills the process where there is none
        adopt = self._options.adopt == "auto" and all(tensors.diagnostics.get("memory") != "hugetlb" for tensors in loaded)
        filled = fill(model, plan, loaded, adopt)
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()  # the copies
        return filled

    def _check(self, model, model_config, plan):
        """Fails where vLLM's own loader would, by its own rule."""
        if not plan.steps and not plan.written:
            raise ValueError(f"{model_config.model} has nothing that this model takes")
        quantized = model_config.quantization is not None
        if plan.loaded is not None and not quantized:
            self._default_loader("safetensors").track_weights_loading(model, plan.loaded, quantized=quantized)
        gaps = plan.gaps({key_of(tensor): (name, tensor.numel()) for name, tensor in model.named_parameters()})
        if gaps:
            logger.warning("the checkpoint fills %d parameters only in part: %s", len(gaps), _some(gaps))

    def _default_loader(self, load_format):
        config = dataclasses.replace(self.load_config, load_format=load_format, model_loader_extra_config={})
        return DefaultModelLoader(config)

    def _verify(self, model, model_config):
        """Loads once more with vLLM's own loader, and compares. Takes its time, and twice the memory."""
        ours = {name: tensor.detach().clone() for name, tensor in state_of(model)}
        self._default_loader("safetensors").load_weights(model, model_config)
        wrong = [name for name, tensor in state_of(model) if not bytes_equal(tensor, ours[name])]
        if wrong:
            raise RuntimeError(f"verify: {len(wrong)} parameters differ from those of vLLM's default loader: "
                               f"{_some(wrong)}; please report this model")
        logger.info("tensorcast: verified, all %d parameters and buffers equal those of vLLM's default loader", len(ours))


def _failed(origin, error):
    return RuntimeError(f"cannot load {shown(origin.artifact)} through the tensorcast daemon: {error}")


def _origin_of_new(model_config):
    """Where new weights are. What they were at the last start is of no interest."""
    if is_reference(model_config.model):
        return Origin(parse_reference(model_config.model), None)
    return origin_of(model_config.model)._replace(identity=None)


def _check_like_loaded(model, sources, config):
    """Fails when a checkpoint is not one of the model that was loaded: a start with it would make another one."""
    loaded = reload.loaded_of(model)
    if loaded is None:
        return
    shapes = {source.name: source.shape for source in sources}
    if missing := loaded.shapes.keys() - shapes.keys():
        raise ValueError(f"the checkpoint lacks tensors that {loaded.model} has: {_some(missing)}; start again with it")
    if more := shapes.keys() - loaded.shapes.keys():
        raise ValueError(f"the checkpoint has tensors that {loaded.model} has not: {_some(more)}; start again with it")
    if other := [f"{name} ({list(shape)}, was {list(loaded.shapes[name])})" for name, shape in shapes.items() if shape != loaded.shapes[name]]:
        raise ValueError(f"the checkpoint has other shapes than {loaded.model}: {_some(other)}; start again with it")
    if config is not None and loaded.config is not None and config != loaded.config:
        keys = [key for key in config.keys() | loaded.config.keys() if config.get(key) != loaded.config.get(key)]
        raise ValueError(f"the checkpoint's config.json differs from that of {loaded.model}: {_some(keys)}; start again with it")


def _plan(model, checkpoint, sources, tell):
    start = time.monotonic()
    plan = Plan(trace(model, sources, checkpoint.fetch), sources)
    tell(_plan_text(plan, len(sources), time.monotonic() - start))
    return plan


def _on_this_host(model_config, origin, option):
    """The model_config for vLLM's own loader, which wants the tensors in the model's folder."""
    if not origin.folder:
        raise ValueError(f"{option} is of no use for {shown(origin.artifact)}: vLLM's own loader cannot read it")
    config = copy.copy(model_config)
    config.model = origin.folder
    return config


def _refuse_what_is_not_supported(model):
    for attribute in ("secondary_weights", "allow_patterns_overrides"):
        if getattr(model, attribute, None):
            raise ValueError(f"{type(model).__name__} names files of its own ({attribute}), which --load-format tensorcast "
                             "does not support yet; use --load-format auto")


def _place():
    config, pipeline = get_current_vllm_config_or_none(), get_pp_group()
    engine = config.instance_id if config else ""
    parallel = config.parallel_config.data_parallel_rank if config else 0
    return Place(engine, f"dp {parallel} pp {pipeline.rank_in_group}", get_tensor_model_parallel_rank(),
                 get_tensor_model_parallel_world_size())


def _layout():
    """(Layout of the engine, this worker's number in it)"""
    config, pipeline = get_current_vllm_config_or_none(), get_pp_group()
    parallel = config.parallel_config if config else None
    layout = last_trace.Layout(get_tensor_model_parallel_world_size(), pipeline.world_size, parallel.data_parallel_size if parallel else 1,
                               bool(parallel and parallel.enable_expert_parallel))
    of_data = parallel.data_parallel_rank if parallel else 0
    return layout, (of_data * layout.pipeline + pipeline.rank_in_group) * layout.tensor + get_tensor_model_parallel_rank()


def _is_main(model_config):
    """Whether this is the engine's model, rather than a draft, which is loaded with the same options."""
    config = get_current_vllm_config_or_none()
    return config is None or config.model_config is None or config.model_config.model == model_config.model


def _some(names):
    names = sorted(names)
    return ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")


def _plan_text(plan, n_sources, seconds):
    names = {name for request in plan.requests for name in request}
    text = (f"traced {n_sources} tensors in {seconds * 1e3:.0f} ms; needs {len(names)} of them, {plan.bytes / 1e9:.3f} GB "
            f"in {len(plan.requests)} request(s), the most that is held beside the parameters in host memory")
    if plan.real:
        some = "; ".join(f"{name} ({why})" for name, why in list(plan.real.items())[:_MAX_NAMED])
        text += f"; {len(plan.real)} were loaded whole, the model needs them as they are: {some}"
    return text


def _done(place, reports, filled, whole_bytes, seconds):
    """Such as "6 MiB in 0.06 s (rank 0 of 2): read 3 MiB, shared 3 MiB with other loads, copied nothing"."""
    total = {what: sum(report["bytes"][what] for report in reports) for what in ("view", "read", "shared")}
    parts = [f"read {size_of(total['read'])}"]
    if reports and all(report["from_replica"] for report in reports):
        parts = ["was in memory already"]
    elif total["shared"]:
        parts.append(f"shared {size_of(total['shared'])} with other loads")
    if whole_bytes:
        parts.append(f"loaded {size_of(whole_bytes)} whole")
    parts.append(f"copied {size_of(filled.copied_bytes) if filled.copied_bytes else 'nothing'}")
    return f"{size_of(total['view'] + whole_bytes)} in {seconds:.2f} s (rank {place.rank} of {place.size}): {', '.join(parts)}"


def _summary(reports, filled, written, whole_bytes, fill_seconds, seconds):
    total = {what: sum(report["bytes"][what] for report in reports) for what in ("view", "read", "shared")}
    replica = all(report["from_replica"] for report in reports)
    return (f"needed {total['view'] / 1e9:.3f} GB, read {total['read'] / 1e9:.3f} GB, {total['shared'] / 1e9:.3f} GB shared "
            f"with other loads, {'all of it' if replica and reports else 'not'} from a replica, "
            f"{whole_bytes / 1e9:.3f} GB whole; written in place {written / 1e9:.3f} GB, adopted {filled.adopted_bytes / 1e9:.3f} GB, "
            f"copied {filled.copied_bytes / 1e9:.3f} GB in {fill_seconds:.2f} s; "
            f"{seconds:.2f} s, {(total['view'] + whole_bytes) / 1e9 / max(seconds, 1e-9):.2f} GB/s")
