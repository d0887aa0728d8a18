"""Puts safe_open in place of the official package's for a whole program.

The official load_file, load_model and the other frameworks' functions open files with the safe_open of their module, so that
replacing this one name, wherever a module holds it, reaches all of them. What is put there is a subclass of ours made for that:
modules that imported ours themselves keep it when the original comes back.
"""
from __future__ import annotations

import sys
from types import TracebackType

_depth = 0  # contexts that are entered
_n_calls = 0
_calls: set[int] = set()  # those that did not become a context: they last until unpatch()
_stand_in = None  # what modules hold instead of the official class while it is replaced


class Patch:
    """What patch() returns: undoes it when it is left as a context, if it is the outermost and no call patched for good."""

    def __init__(self, call: int):
        self._call = call

    def __enter__(self) -> Patch:
        global _depth
        _calls.discard(self._call)
        _depth += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        global _depth
        _depth = max(0, _depth - 1)
        if not _depth and not _calls:
            unpatch()

    def __repr__(self) -> str:
        return f"<Patch: safetensors is {'replaced' if _stand_in else 'the original'}>"


def patch() -> Patch:
    """Puts tensorcast_client.safetensors in place of the safetensors package, in this process and until unpatch().

    Modules that hold the official safe_open, or functions that use it, use the daemon from now on; copies in closures, default
    arguments and instances stay what they are. As a context (`with tc.patch():`) it ends with the block, unless patch() was
    called without one."""
    global _stand_in, _n_calls
    if _stand_in is None:
        from .safetensors.handle import safe_open
        from .safetensors.official import official
        _stand_in = type(safe_open)("safe_open", (safe_open,), {"__doc__": safe_open.__doc__, "__module__": "safetensors"})
        _replace(official.safe_open, _stand_in)
    _n_calls += 1
    _calls.add(_n_calls)
    return Patch(_n_calls)


def unpatch() -> None:
    """Puts the official package back, however often patch() was called. Files that are open stay open."""
    global _stand_in, _depth
    replaced, _stand_in, _depth = _stand_in, None, 0
    _calls.clear()
    if replaced is not None:
        from .safetensors.official import official
        _replace(replaced, official.safe_open)


def _replace(old, new):
    """In every module, except for this package's."""
    for name, module in list(sys.modules.items()):
        attributes = getattr(module, "__dict__", None)
        if isinstance(attributes, dict) and name.split(".", 1)[0] != "tensorcast_client":
            for attribute in [attribute for attribute, value in list(attributes.items()) if value is old]:
                attributes[attribute] = new
