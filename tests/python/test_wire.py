"""The codec against the real protobuf library: what one writes the other reads, for every message we speak."""
import random

import numpy as np
import pytest

import reference
from tensorcast_client import activation_messages, messages, wire
from tensorcast_client.wire import DecodeError, Table

U64 = (1 << 64) - 1
TABLES = {name: table for module in (messages, activation_messages) for name, table in vars(module).items() if isinstance(table, Table)}
OURS = [name for name in TABLES if name in reference.message_names()]


def random_value(rng, field):
    if field.message_type:
        return None
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        text = "".join(rng.choice(["a", "layer.0", "\n", "2", "\x00", "ü", "\u6f22", "\U0001f600", "x" * 130])
                       for _ in range(rng.randrange(5)))
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.type == field.TYPE_BOOL:
        return rng.random() < .5
    if field.type == field.TYPE_DOUBLE:
        return rng.choice([0.0, -1.5, 1e300, 0.25])
    bits = {field.TYPE_UINT32: 32, field.TYPE_ENUM: 3}.get(field.type, 64)
    value = rng.getrandbits(rng.randrange(1, bits + 1))
    if field.type in (field.TYPE_INT64, field.TYPE_SINT64):
        value -= (value >> 63) << 64
        value = rng.choice([value, -1, -(1 << 63), (1 << 63) - 1])
    return value


def fill(rng, message, depth=0):
    """Random content for a message of the real library; oneofs keep one member."""
    for field in message.DESCRIPTOR.fields:
        count = rng.choice([0, 1, 3, 200]) if field.is_repeated and not field.message_type else rng.randrange(4)
        if field.is_repeated and field.message_type:
            for _ in range(count):
                fill(rng, getattr(message, field.name).add(), depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).extend(random_value(rng, field) for _ in range(count))
        elif field.message_type:
            if rng.random() < .7:
                fill(rng, getattr(message, field.name), depth + 1)
                getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, random_value(rng, field))
    return message


def plain(theirs):
    """A message of the real library as what Table.encode takes."""
    values = {}
    for field, value in theirs.ListFields():
        if field.message_type:
            value = [plain(item) for item in value] if field.is_repeated else plain(value)
        elif field.is_repeated:
            value = list(value)
        values[field.name] = value
    return values


def same(ours, theirs, table):
    for name, (_, kind, *nested) in table.fields.items():
        mine, other = getattr(ours, name), getattr(theirs, name)
        if kind == "messages":
            assert len(mine) == len(other)
            for a, b in zip(mine, other):
                same(a, b, nested[0])
        elif nested:
            assert (mine is not None) == theirs.HasField(name)
            if mine is not None:
                same(nested[0].decode(mine) if kind == "unread" else mine, other, nested[0])
        elif isinstance(mine, np.ndarray):
            assert mine.tolist() == list(other), name
        else:
            assert mine == (list(other) if kind in ("strings", "blobs") else other), name


@pytest.mark.parametrize("name", OURS)
def test_what_protobuf_writes_we_read(name):
    rng = random.Random(name)
    for _ in range(60):
        theirs = fill(rng, reference.message(name)())
        same(TABLES[name].decode(theirs.SerializeToString()), theirs, TABLES[name])


@pytest.mark.parametrize("name", OURS)
def test_what_we_write_protobuf_reads(name):
    rng = random.Random(name)
    for _ in range(60):
        theirs = fill(rng, reference.message(name)())
        known = {key: value for key, value in plain(theirs).items()}
        assert reference.message(name).FromString(TABLES[name].encode(**drop_unknown(known, name))) == strip(theirs, name)


def drop_unknown(values, name):
    """Without the fields that our table leaves out on purpose."""
    return {key: value for key, value in values.items() if key in TABLES[name].fields}


def strip(theirs, name):
    for field in theirs.DESCRIPTOR.fields:
        if field.name not in TABLES[name].fields:
            theirs.ClearField(field.name)
    return theirs


def test_every_field_of_a_table_exists_in_the_proto_and_no_message_is_forgotten():
    assert len(OURS) >= 18
    for name in OURS:
        fields = reference.message(name).DESCRIPTOR.fields_by_name
        assert set(TABLES[name].fields) <= set(fields), name
    left_out = {"ResolveResponse": {"source_index_json", "canonical_index_json"}}
    for name in OURS:
        missing = set(reference.message(name).DESCRIPTOR.fields_by_name) - set(TABLES[name].fields)
        assert missing == left_out.get(name, set()), name


@pytest.mark.parametrize("values", [[], [0], [127], [128], [1 << 63], [U64], list(range(1000)),
                                    [1 << k for k in range(64)] + [(1 << k) - 1 for k in range(1, 65)]])
def test_packed_columns_survive(values):
    data = wire.pack(values)
    assert data == b"".join(wire.varint(value) for value in values)
    assert wire.unpack(data, 0, len(data)).tolist() == values


def test_signed_columns_survive():
    values = [0, -1, 1, -2, 2, (1 << 63) - 1, -(1 << 63)]
    zigzag = [0, 1, 2, 3, 4, U64 - 1, U64]
    assert wire.zigzag(values) == zigzag and wire.zigzag(np.array(values)).tolist() == zigzag
    assert wire.zigzag(values * 100).tolist() == zigzag * 100  # so many by NumPy
    assert wire.unzigzag(wire.zigzag(np.array(values))).tolist() == values


def test_a_column_may_come_unpacked_and_in_pieces():
    layout = messages.Layout
    data = b"\x20\x05" + b"\x22\x02\x81\x01" + b"\x20\xff\x01"  # dims = 5; [129]; 255
    assert layout.decode(data).dims.tolist() == [5, 129, 255]


def test_strings_may_be_interrupted_by_other_fields():
    data = b"\x0a\x01a" + b"\x28\x07" + b"\x0a\x02\xc3\xbc" + b"\x0a\x00"
    view = messages.View.decode(data)
    assert view.names == ["a", "ü", ""] and view.align_bytes == 7


def test_unknown_fields_and_other_wire_types_are_skipped():
    data = b"\xf8\x01\x96\x01" + b"\xfa\x01\x03abc" + b"\xf9\x01" + b"8" * 8 + b"\xfd\x01" + b"4" * 4 + b"\x08\x05" + b"\x0a\x01x"
    assert messages.File.decode(data).name == "x"


def test_the_last_of_several_values_wins():
    assert messages.File.decode(b"\x10\x05\x10\x06").bytes == 6


def test_a_message_within_bytes_is_read_in_place():
    data = b"junk" + messages.File.encode(name="n", bytes=9) + b"junk"
    file = messages.File.decode(data, 4, len(data) - 4)
    assert (file.name, file.bytes, file.identity, file.checksums) == ("n", 9, "", [])


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05abc", b"\x10", b"\x10\xff", b"\x10" + b"\xff" * 10 + b"\x01", b"\x0b",
                                  b"\x0f", b"\x00\x00", b"\x0a\x02\xff\xfe", b"\x80", b"\xf9\x01123",
                                  b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"])
def test_a_broken_message_is_a_decode_error(data):
    with pytest.raises(DecodeError):
        messages.File.decode(data)
    with pytest.raises(Exception):
        reference.message("File").FromString(data)


@pytest.mark.parametrize("column", [b"\x80", b"\x01\xff", b"\xff" * 10 + b"\x01"])
def test_a_broken_column_is_a_decode_error(column):
    with pytest.raises(DecodeError):
        messages.Layout.decode(b"\x22" + bytes([len(column)]) + column)


def test_no_cut_of_a_message_is_mistaken_for_the_whole():
    theirs = fill(random.Random(5), reference.message("LoadResult")())
    data = theirs.SerializeToString()
    for length in range(0, len(data), 7):
        try:
            ours = messages.LoadResult.decode(data[:length])
        except DecodeError:
            continue
        same(ours, reference.message("LoadResult").FromString(data[:length]), messages.LoadResult)


def test_random_bytes_never_raise_anything_but_a_decode_error():
    rng = random.Random(6)
    whole = fill(rng, reference.message("LoadResult")()).SerializeToString()
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            messages.LoadResult.decode(bytes(data))
        except DecodeError:
            pass


def test_the_status_of_google_rpc_is_read():
    theirs = reference.message("Status")(code=5, message="gone")
    info = reference.message("ErrorInfo")(reason="WHY", domain="d", metadata={"a": "1", "b": "ü"})
    theirs.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
    status = messages.Status.decode(theirs.SerializeToString())
    got = messages.ErrorInfo.decode(status.details[0].value)
    assert (status.code, got.reason, {e.key: e.value for e in got.metadata}) == (5, "WHY", {"a": "1", "b": "ü"})
