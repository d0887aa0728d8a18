"""Tensors straight into GPU memory that torch allocates: the daemon fills it, and no byte passes through this process.

The daemon's own GPU memory would be quicker for a second process, but each process that has it may write to it. Users of the official
package get memory of their own. If the daemon cannot fill memory of this process (no GPU or driver on either side, memory of an
allocator that cannot be shared), tensors go through host memory.
"""
from __future__ import annotations

import time

from .. import errors
from ..dtypes import BITS

WORTH_A_LOAD_BYTES = 32 << 20  # of a tensor that is asked for alone; smaller ones come along with others, by host memory
_TRY_AGAIN_S = 60.0  # after it could not be done
_STILL_IN_USE = "REGION_IN_USE"

_not_before: dict[str, float] = {}  # {socket: when to try again}
_given_up: list[dict] = []  # memory that a daemon has not let go of: never to be used again


def may_fill(client, numbers):
    """Whether it is worth trying, with tensors of these dtype numbers."""
    return time.monotonic() >= _not_before.get(client.socket_path, 0) and all(BITS[number] >= 8 for number in numbers)


def fill(view, facts, room, options):
    """{name: tensor} of a view, each made by room(shape, dtype number); None when they have to go by host memory."""
    try:
        tensors = {name: room(shape, facts.dtype_number(name)) for name, shape in view.shapes().items()}
        identity = view.load_into(tensors, options=options)["identity"]
    except errors.TensorcastError as error:
        if error.reason == _STILL_IN_USE:
            _given_up.append(tensors)
        _not_before[view.client.socket_path] = time.monotonic() + _TRY_AGAIN_S
        return None
    return tensors if identity == facts.identity else None  # it was replaced: the other way has the error for that
