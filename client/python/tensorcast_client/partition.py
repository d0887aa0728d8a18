"""The lines of a data set that are one host's, as `tensorcast activations partition` prints them."""
from __future__ import annotations

import os
from collections.abc import Iterator

from . import errors
from .activation_arrays import whole_number

_ORDERS = ("nested", "flat")
_MOST = 0xFFFFFFFF


def partition(path: str | os.PathLike[str], *, machines: int = 1, machine: int = 0, hosts: int = 1, host: int = 0,
              order: str = "nested") -> Iterator[tuple[int, bytes]]:
    """(number, line) of every line of a file that belongs to this host; the parts of all hosts are the whole file.

    Lines are numbered from 0 and are as they lie there, with their ends: json.loads(line) takes them. A number is the sample's number
    that no other host uses. `order`: "nested", machine = n % machines and host = n // machines % hosts; or "flat",
    n % (machines * hosts) = machine * hosts + host. The file is read as lines are asked for."""
    counts = [_number_of(name, value) for name, value in (("machines", machines), ("hosts", hosts))]
    places = [_number_of(name, value) for name, value in (("machine", machine), ("host", host))]
    if not all(1 <= count <= _MOST for count in counts):
        raise errors.invalid(f"machines and hosts are 1 to {_MOST}, not {machines} and {hosts}", "BAD_OPTION")
    if not all(0 <= place < count for place, count in zip(places, counts)):
        raise errors.invalid(f"machine {machine} of {machines}, host {host} of {hosts}: they are counted from 0", "BAD_OPTION")
    if order not in _ORDERS:
        raise errors.invalid(f"order is {order!r}; it is 'nested' or 'flat'", "BAD_OPTION")
    return _lines(open(path, "rb"), *counts, *places, order == "flat")  # noqa: SIM115  _lines() closes it


def _number_of(name, value):
    try:
        return whole_number(value)
    except TypeError:
        raise errors.invalid(f"{name} is {value!r}; it is a whole number", "BAD_OPTION") from None


def _lines(file, machines, hosts, machine, host, is_flat):
    first, step = machine * hosts + host if is_flat else machine + machines * host, machines * hosts
    with file:
        for number, line in enumerate(file):
            if number % step == first:
                yield number, line
