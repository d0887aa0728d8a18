"""What --model-loader-extra-config may say. Unknown keys and values are refused, with what would be right."""
from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Optional, Union

COLLECTIVE_POLICIES = {"disable_collective": "disabled", "allow_not_eligible_fallback": "auto",
                       "require_collective": "required"}
_CHOICES = {
    "executor": ("auto", "generic_byte_range", "tensor_batched_local", "owner_file_collective", "generic", "local", "collective"),
    "collective_policy": tuple(COLLECTIVE_POLICIES),
    "collective_hint": ("auto", "always", "never"),
    "source_locality": ("auto", "host_local", "shared_source"),
    "adopt": ("auto", "never"),
    "gpu_handoff": ("auto", "never"),
    "fallback": ("never", "if_unavailable"),
    "prewarm": ("auto", "never"),
}


@dataclass(frozen=True)
class LoaderOptions:
    """See docs/vllm.md for what each means."""

    socket: Optional[str] = None
    executor: str = "auto"
    collective_policy: str = "allow_not_eligible_fallback"
    collective_hint: str = "auto"
    source_locality: str = "auto"
    source_sharing_domain: Optional[str] = None
    adopt: str = "auto"
    gpu_handoff: str = "auto"
    fallback: str = "never"
    prewarm: str = "auto"
    verify: bool = False
    variant: Union[None, str, dict] = None
    variant_set: Optional[dict] = None


def parse(extra_config):
    """LoaderOptions of the dict that vLLM passes on."""
    if not isinstance(extra_config, dict):
        raise ValueError(f"--model-loader-extra-config is {extra_config!r}; --load-format tensorcast takes a JSON object")
    known = {field.name for field in fields(LoaderOptions)}
    for key, value in extra_config.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            raise ValueError(f"--model-loader-extra-config has no key {key!r}; "
                             + (f"do you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"))
        _check(key, value)
    options = LoaderOptions(**extra_config)
    if options.collective_policy == "require_collective" and options.collective_hint == "never":
        raise ValueError("--model-loader-extra-config: collective_policy require_collective needs the hint that "
                         "collective_hint never leaves out")
    if options.variant_set is not None and options.variant is None:
        raise ValueError("--model-loader-extra-config: variant_set is of no use without variant")
    if options.variant is not None and (options.verify or options.fallback != "never"):
        raise ValueError("--model-loader-extra-config: verify and fallback need vLLM's own loader, which knows no variant")
    return options


def _check(key, value):
    if key in _CHOICES:
        right, wanted = value in _CHOICES[key] if isinstance(value, str) else False, " or ".join(_CHOICES[key])
    elif key == "verify":
        right, wanted = isinstance(value, bool), "true or false"
    elif key == "variant":
        right, wanted = isinstance(value, (str, dict)) and bool(value), "the path of a recipe, a built-in one, or a recipe"
    elif key == "variant_set":
        right, wanted = isinstance(value, dict), "an object"
    else:
        right, wanted = isinstance(value, str) and bool(value), "a text"
    if not right:
        raise ValueError(f"--model-loader-extra-config: {key} is {value!r}; it is {wanted}")
