"""A small protobuf codec: a message is a table of fields, a decoded message is a plain object with every field set.

    Point = Table(x=(1, "uint"), tags=(2, "strings"), weights=(3, "uints"))
    data = Point.encode(x=7, tags=["a", "b"], weights=[1, 2, 300])
    Point.decode(data).tags == ["a", "b"]

Why not the protobuf package: its descriptor pool is global to the process and generated code is bound to runtime
versions, so a second copy of a message breaks programs that have nothing to do with us. And it is slow where it matters
here: columns of 100,000 numbers become NumPy arrays in one step, runs of strings are cut out of one decoded text.

Kinds: string bytes uint int bool double message(table); strings blobs (repeated bytes) messages(table); uints sints
(packed; NumPy arrays); unread(table): a nested message whose bytes are kept, to be decoded when it is known how.
Unknown fields are skipped, repeated scalars are accepted packed and unpacked, and anything malformed is a DecodeError.
"""
from __future__ import annotations

import functools
import struct
from types import SimpleNamespace

import numpy as np

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
U64 = (1 << 64) - 1


class DecodeError(ValueError):
    """The bytes are not a message of this table."""


class Table:
    """The fields of one message: name=(number, kind) or name=(number, kind, table of the nested message)."""

    def __init__(self, /, **fields):
        self.fields = fields
        self._encoders, self._readers, self._columns = {}, {}, []
        self._defaults = {}
        for name, (number, kind, *nested) in fields.items():
            self._encoders[name] = _encoder(kind, number, *nested)
            self._readers.update(_readers(kind, name, number, *nested))
            self._defaults[name] = _DEFAULTS[kind]
            if kind in ("uints", "sints"):
                self._columns.append((name, kind))

    def encode(self, /, **values):
        """Bytes of the message; fields left out, None or equal to their default take no space."""
        parts = []
        for name, value in values.items():
            if value is not None:
                self._encoders[name](parts, value)
        return b"".join(parts)

    def decode(self, data, start=0, stop=None):
        """The message in data[start:stop]. `data` must be bytes."""
        stop = len(data) if stop is None else stop
        message = SimpleNamespace(**self._defaults)
        readers, pos = self._readers, start
        try:
            while pos < stop:
                tag = data[pos]
                pos += 1
                if tag > 0x7F:
                    tag, pos = _varint(data, pos - 1)
                read = readers.get(tag)
                pos = read(message, data, pos, stop) if read else _skip(tag, data, pos)
        except (IndexError, struct.error, UnicodeDecodeError) as error:
            raise DecodeError(f"broken message: {error}") from None
        if pos != stop:
            raise DecodeError(f"a field ends {pos - stop} bytes behind its message")
        for name, kind in self._columns:
            setattr(message, name, _column(kind, getattr(message, name)))
        for name, value in message.__dict__.items():
            if value is _NO_ITEMS:
                setattr(message, name, [])
        return message


# --- numbers ------------------------------------------------------------------------------------------------------

def varint(value):
    """One unsigned number as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data, pos):
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & U64, pos
        shift += 7
        if shift > 63:
            raise DecodeError("a number is longer than ten bytes")


_FEW = 512  # numbers; for more of them NumPy is worth its calls

_varint_of = functools.lru_cache(4096)(varint)  # bounds, ranks and the like are the same again and again


def pack(values):
    """Unsigned numbers as consecutive varints."""
    if len(values) <= _FEW:
        return b"".join(map(_varint_of, values.tolist() if isinstance(values, np.ndarray) else values))
    values = np.asarray(values, np.uint64)
    lengths = np.ones(len(values), np.int64)
    for power in range(7, 64, 7):
        longer = values >= np.uint64(1 << power)
        if not longer.any():
            break
        lengths += longer
    ends = np.cumsum(lengths)
    out = np.empty(int(ends[-1]), np.uint8)
    first = ends - lengths
    for k in range(int(lengths.max())):
        which = lengths > k
        low = (values[which] >> np.uint64(7 * k)).astype(np.uint8) & np.uint8(0x7F)
        out[first[which] + k] = low | ((lengths[which] > k + 1).astype(np.uint8) << np.uint8(7))
    return out.tobytes()


def unpack(data, start, stop):
    """The varints of data[start:stop] as an array of uint64."""
    raw = np.frombuffer(data, np.uint8, stop - start, start)
    final = raw < 0x80
    if not len(raw) or final.all():
        return raw.astype(np.uint64)
    if not final[-1]:
        raise DecodeError("a packed column ends within a number")
    end = final.nonzero()[0] + 1
    first = np.empty_like(end)
    first[0], first[1:] = 0, end[:-1]
    lengths = end - first
    longest = int(lengths.max())
    if longest > 10:
        raise DecodeError("a number is longer than ten bytes")
    low = raw & 0x7F
    values = low[first].astype(np.uint64)
    for k in range(1, longest):
        which = (lengths > k).nonzero()[0]
        values[which] |= low[first[which] + k].astype(np.uint64) << np.uint64(7 * k)
    return values


def zigzag(values):
    """Signed numbers as protobuf's sint64 stores them: small ones stay small whatever their sign."""
    if len(values) <= _FEW and not isinstance(values, np.ndarray):
        return [value << 1 if value >= 0 else ~(value << 1) for value in values]
    values = np.asarray(values, np.int64)
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def unzigzag(values):
    return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)


_NO_NUMBERS = {"uints": np.empty(0, np.uint64), "sints": np.empty(0, np.int64)}


def _column(kind, chunks):
    if not chunks:
        return _NO_NUMBERS[kind]
    values = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    return unzigzag(values) if kind == "sints" else values


# --- encoding -----------------------------------------------------------------------------------------------------

_DOUBLE = struct.Struct("<d")


@functools.lru_cache(64)
def _heads(tag):
    """What stands before a short string, by its length."""
    return [(tag + bytes([size])).decode("latin-1") for size in range(128)]


def _encode_strings(tag, parts, values):
    heads = _heads(tag)
    try:
        text = "".join([heads[len(value)] + value for value in values])
    except IndexError:
        text = None
    if text is not None and text.isascii():  # nearly always, and then lengths in characters are lengths in bytes
        parts.append(text.encode())
        return
    for value in values:
        data = value.encode()
        parts += (tag, varint(len(data)), data)


def _encoder(kind, number, nested=None):
    """encode(parts, value) for one field."""
    tag = {wire: varint(number << 3 | wire) for wire in (VARINT, FIXED64, LENGTH)}

    def span(parts, data):
        parts += (tag[LENGTH], varint(len(data)), data)

    def unless_empty(to_bytes):
        return lambda parts, value: span(parts, to_bytes(value)) if len(value) else None

    def number_unless_zero(parts, value):
        if value:
            parts += (tag[VARINT], varint(int(value) & U64))

    return {
        "uint": number_unless_zero,
        "int": number_unless_zero,
        "bool": number_unless_zero,
        "double": lambda parts, value: parts.extend((tag[FIXED64], _DOUBLE.pack(value))) if value else None,
        "string": unless_empty(str.encode),
        "bytes": unless_empty(bytes),
        "message": lambda parts, value: span(parts, nested.encode(**value)),
        "unread": lambda parts, value: span(parts, nested.encode(**value)),
        "messages": lambda parts, values: [span(parts, nested.encode(**value)) for value in values],
        "strings": lambda parts, values: _encode_strings(tag[LENGTH], parts, values),
        "blobs": lambda parts, values: [span(parts, bytes(value)) for value in values],
        "uints": unless_empty(pack),
        "sints": unless_empty(lambda values: pack(zigzag(values))),
    }[kind]


# --- decoding -----------------------------------------------------------------------------------------------------

_NO_ITEMS = ()
_DEFAULTS = {"uint": 0, "int": 0, "bool": False, "double": 0.0, "string": "", "bytes": b"", "message": None, "unread": None,
             "strings": _NO_ITEMS, "blobs": _NO_ITEMS, "messages": _NO_ITEMS, "uints": _NO_ITEMS, "sints": _NO_ITEMS}


def _span(data, pos, stop):
    """The bounds of a length-delimited field whose length stands at pos."""
    size, first = (data[pos], pos + 1) if data[pos] < 0x80 else _varint(data, pos)
    if first + size > stop:
        raise DecodeError(f"a field of {size} bytes, {stop - first} left")
    return first, first + size


def _skip(tag, data, pos):
    wire = tag & 7
    if tag >> 3 == 0:
        raise DecodeError("field number 0")
    if wire == VARINT:
        return _varint(data, pos)[1]
    if wire == LENGTH:
        return _span(data, pos, len(data))[1]
    if wire in (FIXED32, FIXED64):
        return pos + (4 if wire == FIXED32 else 8)
    raise DecodeError(f"unknown wire type {wire}")


def _append(message, name, value):
    items = getattr(message, name)
    if items is _NO_ITEMS:
        items = []
        setattr(message, name, items)
    items.append(value)


class Strings(list):
    """A repeated string that came in one piece of `wire_bytes` bytes (0: in several)."""

    wire_bytes = 0


class _Window:
    """Bytes that are decoded where they are cut out."""

    def __init__(self, data):
        self._data = data

    def __getitem__(self, cut):
        return self._data[cut].decode("latin-1")


def _read_strings(name, tag):
    """Reads a whole run of strings with the same one-byte tag; one decoded text is cheaper than many small ones. With a longer tag each is
    read by itself."""

    def read(message, data, pos, stop):
        first, found = pos - 1, Strings()
        text = data.decode("latin-1") if tag < 0x80 else _Window(data)
        append = found.append
        while True:
            size, begin = data[pos], pos + 1
            if size > 0x7F:
                size, begin = _varint(data, pos)
            end = begin + size
            append(text[begin:end])
            if tag > 0x7F or end >= stop or data[end] != tag:
                break
            pos = end + 1
        if end > stop:
            raise DecodeError(f"a string ends {end - stop} bytes behind its message")
        if not data[first:end].isascii():
            found = Strings(item if item.isascii() else item.encode("latin-1").decode("utf-8") for item in found)
        found.wire_bytes = end - first
        items = getattr(message, name)
        if items is _NO_ITEMS:
            setattr(message, name, found)
        else:
            items.extend(found)
            items.wire_bytes = 0
        return end

    return read


def _readers(kind, name, number, nested=None):
    """{tag: read(message, data, pos, stop) -> pos} for one field."""

    def read_varint(convert):
        def read(message, data, pos, stop):
            value, pos = _varint(data, pos)
            setattr(message, name, convert(value))
            return pos
        return read

    def read_span(convert, store):
        def read(message, data, pos, stop):
            first, last = _span(data, pos, stop)
            store(message, name, convert(data, first, last))
            return last
        return read

    def read_double(message, data, pos, stop):
        setattr(message, name, _DOUBLE.unpack_from(data, pos)[0])
        return pos + 8

    def read_unpacked(message, data, pos, stop):
        value, pos = _varint(data, pos)
        _append(message, name, np.array([value], np.uint64))
        return pos

    varint_tag, length_tag = number << 3 | VARINT, number << 3 | LENGTH
    if kind == "uint":
        return {varint_tag: read_varint(int)}
    if kind == "int":
        return {varint_tag: read_varint(lambda value: value - (1 << 64) if value >> 63 else value)}
    if kind == "bool":
        return {varint_tag: read_varint(bool)}
    if kind == "double":
        return {number << 3 | FIXED64: read_double}
    if kind == "string":
        return {length_tag: read_span(lambda data, first, last: data[first:last].decode(), setattr)}
    if kind in ("bytes", "unread"):
        return {length_tag: read_span(lambda data, first, last: data[first:last], setattr)}
    if kind == "blobs":
        return {length_tag: read_span(lambda data, first, last: data[first:last], _append)}
    if kind == "message":
        return {length_tag: read_span(nested.decode, setattr)}
    if kind == "messages":
        return {length_tag: read_span(nested.decode, _append)}
    if kind == "strings":
        return {length_tag: _read_strings(name, length_tag)}
    return {length_tag: read_span(unpack, _append), varint_tag: read_unpacked}
