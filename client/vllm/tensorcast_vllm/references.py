"""Lets vLLM take a reference such as gs://bucket/llama for a model: `vllm serve gs://bucket/llama --load-format tensorcast`.

vLLM asks for a model's configuration long before it asks a loader, and has no hook between. So its EngineArgs get one: when
they are turned into a configuration, references become the folders that model_folder.py makes of them.
"""
from __future__ import annotations

import functools
import os
import re

import tensorcast_client as tc
from tensorcast_client.redact import shown

from . import prewarm
from .model_folder import NOTE, origin_of, prepare, with_variant
from .options import parse

LOAD_FORMAT = "tensorcast"
_prewarmed, _checked = set(), set()  # models
_REFERENCE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|~/")  # other paths are folders to vLLM, too


def is_reference(model):
    return isinstance(model, str) and bool(_REFERENCE.match(model))


def install(engine_args):
    """Makes the class EngineArgs take references. Those of other load formats stay vLLM's business."""
    def wrapped(method):
        @functools.wraps(method)
        def call(self, *args, **kwargs):
            if str(self.load_format).lower() == LOAD_FORMAT:
                _prewarm(self)
                resolve(self)
                _check(self)
            return method(self, *args, **kwargs)

        return call

    # vLLM may come here from the first __post_init__ of all, which then goes on without
    for name in ("__post_init__", "create_engine_config"):
        setattr(engine_args, name, wrapped(getattr(engine_args, name)))


def _prewarm(arguments):
    """Once, and not where `tensorcast-vllm run` has done it: what the last engine of this kind asked for is read from now on."""
    if prewarm.DONE not in os.environ and arguments.model not in _prewarmed:
        _prewarmed.add(arguments.model)
        prewarm.start(prewarm.of_engine(arguments))


def _check(arguments):
    """Once: a model that the daemon cannot load fails here, in one line, and not in an engine that takes half a minute to start."""
    if not isinstance(arguments.model, str) or arguments.model in _checked or not os.path.isdir(arguments.model):
        return
    options = parse(arguments.model_loader_extra_config)
    try:
        with tc.connect(options.socket) as client:
            with_variant(client.artifact(origin_of(arguments.model).artifact), options).tensor_names
    except tc.TensorcastError as error:
        if error.code.name != "UNAVAILABLE" or options.fallback != "if_unavailable":
            raise _refused(arguments.model, error) from None
    _checked.add(arguments.model)


def _refused(model, error):
    advice = ""
    if error.code.name == "UNAVAILABLE" and os.path.isdir(model):
        advice = """; or let vLLM load the files itself: --model-loader-extra-config '{"fallback": "if_unavailable"}'"""
    return ValueError(f"--load-format tensorcast cannot load {shown(model)}: {error}{advice}")


def resolve(arguments):
    """Puts folders in place of the references in EngineArgs: of the model, its tokenizer and a draft model."""
    options = parse(arguments.model_loader_extra_config)

    def folder_of(model, **more):
        try:
            return prepare(model, socket=options.socket, **more)
        except tc.TensorcastError as error:
            raise _refused(model, error) from None

    draft = arguments.speculative_config
    if isinstance(draft, dict) and is_reference(draft.get("model")):
        arguments.speculative_config = {**draft, "model": folder_of(draft["model"])}
    if is_reference(arguments.tokenizer):
        arguments.tokenizer = folder_of(arguments.tokenizer)
    if is_reference(arguments.model) or (options.variant is not None and _is_stored(arguments.model)):
        reference = arguments.model if is_reference(arguments.model) else f"disk:{os.path.abspath(arguments.model)}"
        arguments.served_model_name = arguments.served_model_name or arguments.model
        arguments.model = folder_of(reference, options=options)


def _is_stored(model):
    """Whether it is a folder as it was downloaded, whose config.json is not true of a variant, and none that prepare() made."""
    return isinstance(model, str) and os.path.isdir(model) and not os.path.exists(os.path.join(model, NOTE))
