"""Shards of pickled arrays, plain or gzipped: {layer: [{"sample_idx", "activation", "shape", "text_preview"}]}.

Nothing that a shard says is executed: the instructions and globals that pickles of such dictionaries have are known here, and build
numbers, texts and views of the shard's own bytes. Everything else is refused by its name.
"""
from __future__ import annotations

import gzip
import hashlib
import io
import math
import mmap
import pickle
import re
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from grpc import StatusCode

from . import errors
from .activation_arrays import MAX_LAYER, MAX_SAMPLE

MAX_BYTES = 64 << 30  # of a shard that is unpacked, into a file without a name in $TMPDIR
_ROOM = 1 << 30  # what a pickle may build beside its arrays; each instruction reads, and takes some
_READ_BYTES, _ENTRY_BYTES, _MAX_FIELDS, _MAX_RANK = 64, 16, 64, 64
_LAYER = re.compile(r"layer_([0-9]{1,20})")
_CODES = frozenset("b1 i1 u1 i2 u2 f2 i4 u4 f4 c8 f8 i8 u8".split())


class Entry(NamedTuple):
    sample: int
    layer: int
    array: Any
    text: str


class _RefusedError(Exception):
    def __init__(self, message, code=StatusCode.DATA_LOSS, reason="BAD_PICKLE"):
        super().__init__(message)
        self.message, self.code, self.reason = message, code, reason


class _Summed(io.RawIOBase):
    """A file that is read once, and its SHA-256."""

    def __init__(self, file):
        super().__init__()
        self._file, self.digest = file, hashlib.sha256()

    def readable(self):
        return True

    def readinto(self, room):
        n = self._file.readinto(room)
        self.digest.update(memoryview(room)[:n])
        return n


def unpack(file: BinaryIO, name: str) -> tuple[mmap.mmap, str]:
    """What is in a shard, and the SHA-256 of its file. DATA_LOSS when it is no whole archive; RESOURCE_EXHAUSTED beyond MAX_BYTES."""
    summed, size = _Summed(file), 0
    source = io.BufferedReader(summed, 1 << 18)
    text = gzip.GzipFile(fileobj=source) if source.peek(2)[:2] == b"\x1f\x8b" else source
    with tempfile.TemporaryFile() as out:
        try:
            while piece := text.read(1 << 20):
                size += len(piece)
                if size > MAX_BYTES:
                    raise errors.make(StatusCode.RESOURCE_EXHAUSTED, f"{name} holds more than {MAX_BYTES >> 30} GiB", "SHARD_TOO_LARGE")
                out.write(piece)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise errors.make(StatusCode.DATA_LOSS, f"{name} is damaged: {error}", "BAD_ARCHIVE") from None
        if not size:
            raise errors.make(StatusCode.DATA_LOSS, f"{name} is damaged: there is nothing in it", "BAD_ARCHIVE")
        out.flush()
        return mmap.mmap(out.fileno(), 0, access=mmap.ACCESS_READ), summed.digest.hexdigest()


class _Text:
    """The bytes of a pickle, in the order in which it is read."""

    def __init__(self, text):
        self._text, self.at, self._room = memoryview(text), 0, _ROOM

    def view(self, n):
        begin, self.at = self.at, self.at + n
        if self.at > len(self._text):
            self.at = begin
            raise _RefusedError("it ends too early")
        return self._text[begin:self.at]

    def read(self, n):
        view = self.view(n)
        self._room -= _READ_BYTES + n
        if self._room < 0:
            raise _RefusedError("it builds too much beside its arrays", StatusCode.RESOURCE_EXHAUSTED, "PICKLE_TOO_LARGE")
        return bytes(view)

    def readline(self):  # the base class asks for it; no instruction that is known reads lines
        raise _RefusedError("it has lines")

    def end(self):
        if self.at != len(self._text):
            raise _RefusedError("it goes on behind its end")
        return len(self._text)


class _Global:
    __slots__ = ()


_RECONSTRUCT, _FROMBUFFER, _NDARRAY, _DTYPE = (_Global() for _ in range(4))
_GLOBALS = {(module.format(core), name): found for core in ("core", "_core") for module, name, found in (
    ("numpy.{}.multiarray", "_reconstruct", _RECONSTRUCT), ("numpy.{}.numeric", "_frombuffer", _FROMBUFFER),
    ("numpy", "ndarray", _NDARRAY), ("numpy", "dtype", _DTYPE))}


class _Holder:
    """A dtype, or an array that has its state or is still to get it."""

    __slots__ = ("array", "dtype")

    def __init__(self, dtype=None, array=None):
        self.dtype, self.array = dtype, array


class _Instructions(dict):
    def __missing__(self, opcode):
        raise _RefusedError(f"it has the instruction {bytes([opcode])!r}, which is no part of a shard of arrays; nothing of it was executed",
                            StatusCode.INVALID_ARGUMENT, "FORBIDDEN_OPCODE")


def _string(width, make):
    def load(self):
        self.append(make(self.text, int.from_bytes(self.text.read(width), "little")))
    return load


_decoded = lambda text, n: str(text.read(n), "utf-8")  # noqa: E731
_PLAIN = """MARK EMPTY_DICT EMPTY_LIST EMPTY_TUPLE APPEND APPENDS TUPLE TUPLE1 TUPLE2 TUPLE3 NONE NEWTRUE NEWFALSE BININT BININT1 BININT2
            LONG1 MEMOIZE BINGET LONG_BINGET STOP""".split()


class _Unpickler(pickle._Unpickler):
    """Of the class of the standard library that is written in Python, as its instructions can be replaced."""

    def __init__(self, text):
        super().__init__(text)
        self.text = text

    def load_frame(self):
        self.text.read(8)  # it only says how much to read at once

    def load_setitem(self):
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key, value])

    def load_setitems(self):
        self._put(self.pop_mark())

    def _put(self, items):
        target, keys = self.stack[-1], items[::2]
        if type(target) is not dict or len(items) % 2 or not all(type(key) in (int, str) for key in keys):
            raise _RefusedError("something is put where it cannot be")
        target.update(zip(keys, items[1::2]))

    def load_stack_global(self):
        name, module = self.stack.pop(), self.stack.pop()
        named = type(name) is str and type(module) is str
        found = _GLOBALS.get((module, name)) if named else None
        if found is None:
            what = f"{module}.{name}"[:200] if named else "something without a name"
            raise _RefusedError(f"it asks for '{what}', which is no part of a shard of arrays; nothing of it was executed",
                                StatusCode.INVALID_ARGUMENT, "FORBIDDEN_GLOBAL")
        self.append(found)

    def load_reduce(self):
        given, called = self.stack.pop(), self.stack.pop()
        if type(given) is not tuple or called not in (_RECONSTRUCT, _FROMBUFFER, _DTYPE):
            raise _RefusedError("something is called that cannot be")
        if called is _DTYPE:
            self.append(_Holder(_plain_dtype(*given)))
        elif called is _FROMBUFFER:
            self.append(_Holder(array=_from_buffer(*given)))
        elif len(given) == 3 and given[0] is _NDARRAY:
            self.append(_Holder())
        else:
            raise _RefusedError("an array is made of something else")

    def load_build(self):
        state, target = self.stack.pop(), self.stack[-1]
        if type(state) is not tuple or type(target) is not _Holder or target.array is not None:
            raise _RefusedError("something is given a state that has none")
        if target.dtype is not None:
            order = state[1] if len(state) > 1 else None
            if type(order) is not str or order not in ("<", ">", "|", "="):
                raise _RefusedError("an array has none of the byte orders <>|=", StatusCode.UNIMPLEMENTED, "BAD_BYTE_ORDER")
            target.dtype = target.dtype.newbyteorder(order)
            return
        _, shape, dtype, is_fortran, content = state
        target.array = _array(content, dtype, shape, "F" if is_fortran is True else "C")

    dispatch = _Instructions({getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _PLAIN})
    dispatch.update({
        pickle.FRAME[0]: load_frame, pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems,
        pickle.STACK_GLOBAL[0]: load_stack_global, pickle.REDUCE[0]: load_reduce, pickle.BUILD[0]: load_build,
        pickle.BINUNICODE[0]: _string(4, _decoded), pickle.SHORT_BINUNICODE[0]: _string(1, _decoded),
        pickle.BINBYTES[0]: _string(4, _Text.view), pickle.SHORT_BINBYTES[0]: _string(1, _Text.view),
        pickle.BINBYTES8[0]: _string(8, _Text.view), pickle.BYTEARRAY8[0]: _string(8, _Text.view)})


def _plain_dtype(code, *_):
    if type(code) is not str or code not in _CODES:
        raise _RefusedError("an array has elements that are no plain numbers", StatusCode.UNIMPLEMENTED, "BAD_DTYPE")
    return np.dtype(code).newbyteorder("<")


def _array(content, dtype, shape, order):
    kind = dtype.dtype if type(dtype) is _Holder else None
    is_good = kind is not None and type(content) is memoryview and type(shape) is tuple and len(shape) <= _MAX_RANK
    if not is_good or not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) * kind.itemsize != len(content):
        raise _RefusedError("an array's shape and its bytes do not fit together")
    return np.frombuffer(content, kind).reshape(shape, order=order) if len(content) else np.zeros(shape, kind)


def _from_buffer(content, dtype, shape, order, axes=None):
    if order in ("C", "F") and type(order) is str:
        return _array(content, dtype, shape, order)
    if order != "K" or type(axes) is not tuple or not all(type(axis) is int for axis in axes) or sorted(axes) != list(range(len(shape))):
        raise _RefusedError("an array's dimensions have an order that is none")
    return _array(content, dtype, shape, "C").transpose(axes)  # since NumPy 2.4


def entries(text: Any, name: str) -> Iterator[Entry]:
    """Of a pickle; their arrays are views of its bytes. The error names the shard `name`."""
    reader = _Text(text)
    try:
        if reader.read(1) != pickle.PROTO or reader.read(1)[0] not in (4, 5):
            raise _RefusedError("it is no pickle of protocol 4 or 5", StatusCode.INVALID_ARGUMENT, "BAD_PROTOCOL")
        unpickler = _Unpickler(reader)
        shard, n_bytes = unpickler.load(), reader.end()
        if unpickler.metastack or type(shard) is not dict:
            raise _RefusedError("it is no dictionary of layers")
        found = [(_layer(key), items) for key, items in shard.items()]
        if not all(type(items) is list for _, items in found):
            raise _RefusedError("it is no dictionary of layers and lists")
        if sum(len(items) for _, items in found) > n_bytes // _ENTRY_BYTES:  # one list may be there under many layers
            raise _RefusedError("it repeats its entries")
        yield from (_entry(layer, item) for layer, items in found for item in items)
    except _RefusedError as error:
        raise errors.make(error.code, f"{name}: the pickle is refused at byte {reader.at}: {error.message}", error.reason) from None
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError, EOFError, pickle.UnpicklingError) as error:
        raise errors.make(StatusCode.DATA_LOSS, f"{name}: the pickle is damaged at byte {reader.at}: {error}", "BAD_PICKLE") from None


def _layer(key):
    spelled = _LAYER.fullmatch(key) if type(key) is str else None
    number = int(spelled[1]) if spelled else key
    if type(number) is not int or not 0 <= number <= MAX_LAYER:
        raise _RefusedError("it is no dictionary of layers")
    return number


def _entry(layer, item):
    if type(item) is not dict or len(item) > _MAX_FIELDS:
        raise _RefusedError("an entry of a layer is no small dictionary")
    sample, holder, text = item.get("sample_idx"), item.get("activation"), item.get("text_preview")
    if type(sample) is not int or not 0 <= sample <= MAX_SAMPLE:
        raise _RefusedError(f"an entry has no sample_idx from 0 to {MAX_SAMPLE}")
    array = holder.array if type(holder) is _Holder else None
    if array is None:
        raise _RefusedError("an entry has no array")
    shape = item.get("shape", array.shape)
    if type(shape) is not tuple or not all(type(n) is int for n in shape) or shape != array.shape:
        raise _RefusedError("an entry says another shape than its array has")
    return Entry(sample, layer, array, text if type(text) is str else "")


class _Pickler(pickle._Pickler):
    """Names NumPy's module as every version of NumPy finds it, and remembers nothing: each array's bytes go when they are written."""

    def __init__(self, file):
        super().__init__(file, 4)
        self.fast = True

    def save_global(self, obj, name=None):
        if obj is not _reconstruct:
            super().save_global(obj, name)
            return
        self.save("numpy.core.multiarray")
        self.save("_reconstruct")
        self.write(pickle.STACK_GLOBAL)


_reconstruct = np.zeros(0).__reduce__()[0]
_Pickler.dispatch = {**pickle._Pickler.dispatch, type(_reconstruct): _Pickler.save_global}


def write(file: BinaryIO, layers: dict[int, list[dict[str, Any]]]) -> None:
    """A gzipped shard. Floats hardly get smaller, and the quickest way is ten times as quick."""
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=1, mtime=0) as packed:
        _Pickler(packed).dump(layers)


def plain(array: Any, name: str) -> Any:
    """An array of one's own as NumPy itself has them: those of BF16 become what they are the upper halves of."""
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.str[1:] not in _CODES:
        raise errors.make(StatusCode.UNIMPLEMENTED, f"{name} is {array.dtype.name}, for which NumPy has no type", "BAD_DTYPE")
    return array.copy()
