"""The loader of --load-format tensorcast: SGLang's default one, whose tensors are the daemon's memory instead of files."""
from __future__ import annotations

import dataclasses
import logging

import tensorcast_client as tc
from sglang.srt.configs.load_config import LoadFormat
from sglang.srt.model_loader.loader import DefaultModelLoader
from tensorcast_client.redact import shown
from tensorcast_client.reference import parse as parse_reference
from tensorcast_client.words import size_of
from tensorcast_vllm.model_folder import Origin, origin_of
from tensorcast_vllm.references import is_reference

logger = logging.getLogger(__name__)

_MAX_NAMED = 5
_SHAPES = "tensorcast_shapes"  # of a ModelConfig: what the checkpoint had that its model was loaded from


class TensorcastLoader(DefaultModelLoader):
    """Also for update_weights_from_disk, which takes subclasses of SGLang's default loader only."""

    def __init__(self, load_config):
        extra = dict(load_config.model_loader_extra_config or {})
        self._socket = extra.pop("socket", None)
        super().__init__(dataclasses.replace(load_config, load_format=LoadFormat.SAFETENSORS, model_loader_extra_config=extra))

    def download_model(self, model_config):
        """Nothing is left to be downloaded."""

    def _get_weights_iterator(self, source, **_kwargs):
        """An iterator over (name, tensor) of a checkpoint. All of it is loaded, and known to be one for this model, when this
        returns, so what fails has touched no parameter. The tensors may be written to; no other process sees it."""
        if source.allow_patterns_overrides:
            raise ValueError("this model reads files of its own (allow_patterns_overrides), which --load-format tensorcast does not know; "
                             "use --load-format auto")
        origin = _origin_of(source, first=not hasattr(source.model_config, _SHAPES))
        try:
            with tc.connect(self._socket) as client:
                artifact = client.artifact(origin.artifact)
                described = artifact.describe()
                origin.check(described["identity"])
                shapes = {tensor["name"]: tuple(tensor["shape"]) for tensor in described["tensors"]}
                if source.model_config is not None and not source.prefix:
                    _check_like_loaded(source.model_config, shapes)
                tensors = artifact.tensor_dict(framework="torch", writable=True)
        except tc.TensorcastError as error:
            raise RuntimeError(f"cannot load {shown(origin.artifact)} through the tensorcast daemon: {error}") from error
        if tensors.diagnostics["identity"] != described["identity"]:
            raise RuntimeError(f"{shown(origin.artifact)} was changed while it was loaded; load again")
        logger.info("tensorcast: %s: %s, of which %s were read", shown(origin.artifact),
                    *(size_of(tensors.diagnostics["bytes"][what]) for what in ("view", "read")))
        return iter([(source.prefix + name, tensors[name]) for name in sorted(shapes)])


def _origin_of(source, first):
    """Where the tensors are. A start wants those that the folder's configuration belongs to, an update those that are there now."""
    model = str(source.model_or_path)
    if is_reference(model):
        return Origin(parse_reference(model), None)
    origin = origin_of(model)
    return origin if first else origin._replace(identity=None)


def _check_like_loaded(model_config, shapes):
    """Fails when a checkpoint is not one of the model that was loaded."""
    known = getattr(model_config, _SHAPES, None)
    if known is None:
        setattr(model_config, _SHAPES, shapes)
        return
    other = sorted(name for name in known.keys() | shapes.keys() if known.get(name) != shapes.get(name))
    if other:
        raise ValueError(f"the checkpoint has other tensors or shapes than the one that is loaded: {', '.join(other[:_MAX_NAMED])}"
                         + (f" and {len(other) - _MAX_NAMED} more" if len(other) > _MAX_NAMED else "") + "; start again with it")
