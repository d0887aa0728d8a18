"""New weights for a model that serves: what worker.reload_weights() comes to with --load-format tensorcast.

vLLM's own reload makes each layer's parameters anew in checkpoint format, one layer after the other, and copies what
quantization or packing makes of them into the tensors that the model computes with. Whatever fails in the middle leaves a
model of two checkpoints. Here, on a CPU, all layers are opened first: they get tensors in checkpoint format, whose memory is
only taken when it is written, and are loaded like at a start (trace, ask, fill or adopt). Until all of that is done, and found to
fill what the first load filled, every layer can be closed again as it was. Only then each is processed by its own quantization
method, and the model's tensors become the new ones.

On a GPU, which has no room for a second copy, and where vLLM quantizes while loading, vLLM's reload does it with whole tensors
from the daemon (TensorcastLoader.get_all_weights): they are all there, and known to have the names and shapes that the first
load had, before it begins.
"""
from __future__ import annotations

import functools
import sys
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from vllm.logger import init_logger
from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.utils.torch_utils import set_default_torch_dtype

from .attempts import state_of
from .trace import is_held_elsewhere, key_of

logger = init_logger("vllm.tensorcast")

_RUNNERS = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.model_runner")
_KNOWN = "0.32"  # the vLLM whose parts are used below
_MAX_NAMED = 5
_loaded: WeakKeyDictionary = WeakKeyDictionary()  # model -> Loaded


class NotAtOnce(Exception):
    """This model can only be reloaded layer by layer."""


class Loaded(NamedTuple):
    """What is known of a model that was loaded."""

    model: str  # what its model_config called it
    shapes: dict  # {checkpoint tensor: shape}
    filled: frozenset  # parameters and buffers that the load wrote to, as in checkpoint format
    config: object  # of the checkpoint, None when there was none
    views: dict  # {name: the parameter whose bytes it was when they were loaded}, such as a convolution's weights in another shape
    attributes: dict  # {name of a layer: names of what it had when its weights were loaded and not processed}


def remember(model, loaded):
    _loaded[model] = loaded


def attributes_of(model):
    """Loaded.attributes of a model that was loaded and not processed yet."""
    return {name: frozenset(vars(layer)) for name, layer in _with_method(model)}


def _with_method(model):
    """[(name, layer)] of the layers whose weights vLLM processes when they are loaded."""
    return [(name, layer) for name, layer in model.named_modules() if isinstance(getattr(layer, "quant_method", None), QuantizeMethodBase)]


def loaded_of(model):
    """The Loaded of a model, None for one that another loader has loaded."""
    return _loaded.get(model)


def filled_by(model, plan):
    """Names of the parameters and buffers that a plan writes to."""
    keys = set(plan.steps) | {key for key, _ in plan.written}
    return frozenset(_plain(name) for name, tensor in state_of(model) if key_of(tensor) in keys)


def views_in(model):
    """Loaded.views of a model that was loaded and not processed yet."""
    owners, views = {}, {}
    for name, tensor in state_of(model):
        owner, of = owners.setdefault((key_of(tensor), tensor.storage_offset(), tensor.numel(), tensor.dtype), (_plain(name), tensor))
        if of is not tensor and tensor.numel() and tensor.is_contiguous():
            views[_plain(name)] = owner
    return views


def install(load_format):
    """Has this process's model runners reload models of a load format here. Where they have no such function, vLLM's own reload
    is what there is."""
    for name in _RUNNERS:
        runner = sys.modules.get(name)
        original = getattr(runner, "reload_weights", None)
        if original is not None and not hasattr(original, "of_tensorcast"):
            runner.reload_weights = _replacing(original, load_format)


def _replacing(original, load_format):
    @functools.wraps(original)
    def reload_weights(vllm_config, model, weights_iterator, weights_path, is_checkpoint_format):
        from vllm.model_executor.model_loader import get_model_loader
        ours = str(vllm_config.load_config.load_format).lower() == load_format
        if not ours or weights_iterator is not None or not is_checkpoint_format:
            return original(vllm_config, model, weights_iterator, weights_path, is_checkpoint_format)
        model_config = vllm_config.model_config
        before = model_config.model, model_config.model_weights, model_config.revision
        try:
            if weights_path is not None:
                model_config.model, model_config.model_weights, model_config.revision = weights_path, "", None
            try:
                get_model_loader(vllm_config.load_config).reload_model(model, model_config)
            except NotAtOnce as why:
                if _is_spoiled_by_vllm(model):
                    raise RuntimeError(f"cannot reload this model on a CPU: {why}; start again") from why
                logger.info("tensorcast: reloading layer by layer: %s", why)
                absent = _absent(model)
                with set_default_torch_dtype(model_config.dtype):  # some kernels are made for it, and overflow their output in another
                    original(vllm_config, model, None, None, True)
                _put_back(absent)
                _pack_shared_again(model)
        except BaseException:
            model_config.model, model_config.model_weights, model_config.revision = before
            raise

    reload_weights.of_tensorcast = True
    return reload_weights


def _is_spoiled_by_vllm(model):
    """Whether vLLM 0.32's own reload makes another model of this one, on a CPU: quantized kernels keep the address of scales whose
    memory it frees, experts are packed at the first time only, and a buffer that was a view of what is packed keeps the old values."""
    known = loaded_of(model)
    return (_is_on_host(model)
            and (bool(known and known.views) or
                 any(_is_quantized(layer) or hasattr(getattr(layer, "quant_method", None), "moe_kernel") for layer in model.modules())))


def _is_on_host(model):
    return all(tensor.device.type == "cpu" for _, tensor in state_of(model))


def _is_quantized(layer):
    method = getattr(layer, "quant_method", None)
    return isinstance(method, QuantizeMethodBase) and not type(method).__name__.startswith("Unquantized")


def _absent(model):
    """Parameters that a layer has as None, such as weights that were packed and given back: [(layer, name)]. vLLM's functions remove
    them, and layers ask for them all the same."""
    return [(layer, name) for layer in model.modules() for name, tensor in layer._parameters.items() if tensor is None]


def _put_back(absent):
    for layer, name in absent:
        if not hasattr(layer, name):
            layer.register_parameter(name, None)


def _pack_shared_again(model):
    """vLLM's own reload leaves an output layer alone that is the input embedding; what it has packed of that are the old values."""
    layers = [layer for layer in model.modules() if isinstance(getattr(layer, "quant_method", None), UnquantizedEmbeddingMethod)]
    weights = [id(layer.weight) for layer in layers]
    for layer in layers:
        if weights.count(id(layer.weight)) > 1:
            layer.quant_method.process_weights_after_loading(layer)


def is_processed(model):
    """Whether what follows a load has changed parameters, so that a checkpoint does not fit any more, or has made something of them
    that layers compute with, as a CPU's packed output layer, which shows only in what a layer has."""
    parts, known = _parts(), loaded_of(model)
    if parts is None or known is None:
        return False
    if _is_on_host(model) and any(frozenset(vars(layer)) != known.attributes.get(name) for name, layer in _with_method(model)):
        return True
    for layer in model.modules():
        restored = parts.get_layerwise_info(layer).restore_metadata[0]
        now = dict(layer.named_parameters(recurse=False))
        if any(name not in now or now[name].shape != tensor.shape for name, tensor in restored.items()):
            return True
    return False


class _Parts(NamedTuple):
    """The functions of vLLM's layerwise reload that take a layer apart and put it together again."""

    get_layerwise_info: object
    initialize_layerwise_reload: object
    materialize_layer: object
    get_original_loader: object
    place_kernel_tensors: object
    is_deferred_attention_layer: object
    skip_modules: set


@functools.lru_cache(maxsize=None)
def _parts():
    """The _Parts, None when this vLLM has others."""
    try:
        from vllm.model_executor.layers.attention import is_deferred_attention_layer
        from vllm.model_executor.model_loader.reload import layerwise, meta
        return _Parts(layerwise.get_layerwise_info, layerwise.initialize_layerwise_reload, meta.materialize_layer,
                      layerwise._get_original_loader, layerwise._place_kernel_tensors, is_deferred_attention_layer, meta.SKIP_MODULES)
    except (ImportError, AttributeError) as error:
        logger.warning("tensorcast: this vLLM reloads otherwise than vLLM %s, which is known here (%s): its own reload does it", _KNOWN, error)
        return None


class Opened:
    """A model on the host whose layers are in checkpoint format, to be loaded and committed, or closed as they were."""

    def __init__(self, model):
        self._model, self._parts = model, _parts()
        self._refuse(model)
        self._layers, self._written = {}, {}  # layer -> LayerReloadingInfo; layer -> names of its tensors that a plan writes to
        self._first, self._none = _first_names(model), _absent(model)
        known = loaded_of(model)
        self._views = known.views if known else {}
        self._parts.initialize_layerwise_reload(model)
        try:
            for layer in model.modules():
                self._open(layer)
        except BaseException:
            self.close()
            raise

    def _refuse(self, model):
        if self._parts is None:
            raise NotAtOnce("this vLLM is not known")
        if not _is_on_host(model):
            raise NotAtOnce("the model is not in host memory")
        if any(getattr(getattr(layer, "quant_method", None), "uses_meta_device", False) for layer in model.modules()):
            raise NotAtOnce("it is quantized while it is loaded")
        if hasattr(model, "process_weights_after_loading"):
            raise RuntimeError(f"{type(model).__name__} finishes its weights in a way that a reload does not repeat; start again")

    def _open(self, layer):
        info = self._parts.get_layerwise_info(layer)
        self._layers[layer] = info
        if type(layer).__name__ not in self._parts.skip_modules:
            kept = {id(tensor) for tensors in info.kernel_tensors for tensor in tensors.values()}
            self._parts.materialize_layer(layer, info)
            for name, tensor in _tensors_of(layer).items():
                if id(tensor) in kept:  # biases stay what they were, and would be written to
                    setattr(layer, name, _twin(tensor))
        for tensor in _tensors_of(layer).values():
            tensor.weight_loader = self._parts.get_original_loader(tensor)

    def close(self):
        """Puts everything back as it was."""
        for layer in self._model.modules():
            info = self._parts.get_layerwise_info(layer)
            if info.can_load():
                self._parts.place_kernel_tensors(layer, info)
                info.reset()
        _put_back(self._none)
        self._layers.clear()

    def check(self, plan):
        """Fails when a Plan does not fill what makes this model the one of another checkpoint. Before it is carried out."""
        keys = set(plan.steps) | {key for key, _ in plan.written}
        for layer in self._layers:
            tensors = _tensors_of(layer)
            written = self._written[layer] = {name for name, tensor in tensors.items() if key_of(tensor) in keys}
            if written and self._parts.is_deferred_attention_layer(layer):
                raise NotAtOnce(f"{type(layer).__name__} has scales in the checkpoint")
            left = sorted(name for name in tensors.keys() - written if written and not self._is_known(layer, name, tensors[name]))
            if left:
                raise RuntimeError(f"{type(layer).__name__} has {', '.join(left[:_MAX_NAMED])}, which the checkpoint does not fill and "
                                   "of which only the processed value is left; start again")
        known = loaded_of(self._model)
        before, now = ({self._views.get(name, self._first.get(name, name)) for name in names}
                       for names in (known.filled if known else (), filled_by(self._model, plan)))
        if known and before != now:
            other = sorted(before ^ now)
            raise ValueError(f"the checkpoint fills other parameters than the one that is loaded: {', '.join(other[:_MAX_NAMED])}"
                             + (f" and {len(other) - _MAX_NAMED} more" if len(other) > _MAX_NAMED else ""))

    def _is_known(self, layer, name, tensor):
        """Whether a tensor that is not loaded has its first value still: nothing has processed it."""
        kernel = self._kernel(layer).get(name)
        return kernel is None or not _is_quantized(layer) and kernel.shape == tensor.shape and kernel.dtype == tensor.dtype

    def _kernel(self, layer):
        """{name: the tensor that the model computes with}"""
        parameters, buffers = self._layers[layer].kernel_tensors
        return {**parameters, **buffers}

    def commit(self, model_config):
        """Makes the loaded values the model's. What was checked has been carried out, which may have given tensors other memory."""
        written = self._written
        self._check_shared(written)
        changed, attention, views = set(), [], self._new_views()
        try:
            for layer, names in written.items():
                if self._parts.is_deferred_attention_layer(layer):
                    attention.append(layer)
                elif names:
                    changed |= self._take(layer, names)
            for layer, info in self._layers.items():
                self._parts.place_kernel_tensors(layer, info)
                info.reset()
            _put_back(self._none)
            for (layer, name), value in views:
                _tensors_of(layer)[name].data.copy_(value)
            for layer, names in written.items():
                if not names and changed & {id(tensor) for tensor in _tensors_of(layer).values()}:
                    layer.quant_method.process_weights_after_loading(layer)  # a tied output layer has packed the old ones
            for layer in attention:
                layer.process_weights_after_loading(model_config.dtype)
        except BaseException as error:
            raise RuntimeError(f"the new weights were loaded, but not processed ({type(error).__name__}: {error}); the model is of no "
                               "use now: start again") from error

    def _new_views(self):
        """[((layer, name of its tensor), value)] of the tensors that are others' bytes: as those were loaded, since what is made of
        them may have left the view behind."""
        places = {_plain(f"{prefix}.{name}" if prefix else name): (layer, name)
                  for prefix, layer in self._model.named_modules() for name in self._kernel(layer)}
        views = [(places[view], places[owner]) for view, owner in self._views.items() if view in places and owner in places]
        return [((layer, name), getattr(*owner).detach().clone().view(self._kernel(layer)[name].shape))
                for (layer, name), owner in views if owner[1] in self._written.get(owner[0], ())]

    def _check_shared(self, written):
        """Tensors that share their memory in the model have to have one value, and what was made of them has to be renewable."""
        values = {}  # id of a tensor that the model computes with -> (layer, its new value)
        for layer, names in written.items():
            for name, tensor in self._kernel(layer).items():
                if name in names and id(tensor) in values and not torch.equal(getattr(layer, name), values[id(tensor)][1]):
                    raise ValueError(f"{type(layer).__name__} shares its {name} with {type(values[id(tensor)][0]).__name__}, and the "
                                     "checkpoint has two values for it; start again")
                if name in names:
                    values[id(tensor)] = layer, getattr(layer, name)
        self._check_lent(written)
        for layer, names in written.items():
            shares = not names and any(id(tensor) in values for tensor in self._kernel(layer).values())
            method = getattr(layer, "quant_method", None)
            if shares and isinstance(method, QuantizeMethodBase) and not isinstance(method, UnquantizedEmbeddingMethod):
                raise ValueError(f"{type(layer).__name__} shares parameters with another layer, and cannot be processed again; start again")

    def _check_lent(self, written):
        """Layers that a draft has taken from its model, which was loaded before, keep that one's values."""
        for other, loaded in list(_loaded.items()):
            if other is self._model:
                return
            lent = set(other.modules())
            for layer in lent & written.keys():
                for name in written[layer]:
                    had, new = self._kernel(layer)[name], getattr(layer, name)
                    if had.shape != new.shape or not torch.equal(had, new):
                        raise ValueError(f"{type(layer).__name__} is that of {loaded.model}, which has another {name}; reload that model "
                                         "first, or start again")

    def _take(self, layer, names):
        """Processes a loaded layer, and gives the tensors that the model computes with the new values. Returns their ids."""
        kernel, (parameters, buffers) = self._kernel(layer), self._layers[layer].kernel_tensors
        for name, tensor in _tensors_of(layer).items():
            if name not in names and name in kernel:
                tensor.data.copy_(kernel[name])
        method = getattr(layer, "quant_method", None)
        if hasattr(layer, "_already_called_process_weights_after_loading"):
            del layer._already_called_process_weights_after_loading
        if isinstance(method, QuantizeMethodBase):
            _process_as_the_first_time(method, layer)
            if hasattr(layer, "update_param_tp_status"):
                layer.update_param_tp_status()
        fixed = self._layers[layer].kernel_non_persistent_buffers - names
        taken = [*parameters, *(name for name in buffers if name in layer._buffers and name not in fixed)]
        for name in taken:
            _become(kernel[name], getattr(layer, name), f"{type(layer).__name__}.{name}")
        return {id(kernel[name]) for name in taken}


def reload_on_host(model, model_config, load):
    """Reloads a model in host memory: load(check) traces and fills it; check(plan) comes between the two."""
    with torch.no_grad(), set_default_torch_dtype(model_config.dtype):
        opened = Opened(model)
        try:
            load(opened.check)
        except BaseException:
            opened.close()
            raise
        try:
            opened.commit(model_config)
        except ValueError:
            opened.close()
            raise


def _process_as_the_first_time(method, layer):
    kernel = getattr(method, "moe_kernel", None)
    if kernel is not None:
        method.moe_kernel = None  # else the experts are taken for packed
    method.process_weights_after_loading(layer)
    if kernel is not None and method.moe_kernel is None:
        method.moe_kernel = kernel


def _become(kernel, new, name):
    """Gives a tensor of the model the value of another, which is its own from now on."""
    if kernel is new:
        return
    if kernel.shape != new.shape or kernel.dtype != new.dtype:
        raise RuntimeError(f"{name} was {kernel.dtype} {list(kernel.shape)} and is {new.dtype} {list(new.shape)} now")
    if kernel.stride() == new.stride() and not is_held_elsewhere(kernel):
        kernel.data = new.data
    else:
        kernel.data.copy_(new)
        kernel.made_of = new  # kernels in C++ may have its address, and no reference


def _first_names(model):
    """{name: the first name of the same tensor} of everything in a model."""
    first = {}
    return {_plain(name): first.setdefault(id(tensor), _plain(name)) for name, tensor in state_of(model)}


def _tensors_of(layer):
    return {name: tensor for name, tensor in (*layer._parameters.items(), *layer._buffers.items()) if tensor is not None}


def _twin(tensor):
    """Another tensor of the same value, class and attributes."""
    twin = tensor.data.clone()
    twin.__class__, twin.__dict__ = tensor.__class__, dict(tensor.__dict__)
    return twin


def _plain(name):
    return name.replace(".base_layer.", ".")
