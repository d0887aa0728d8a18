"""Pickles of arrays are read; everything else is refused by name, in bounded memory, and nothing of it is executed."""
import gzip
import io
import os
import pickle
import pickletools
import struct

import numpy as np
import pytest
import tensorcast_client as tc
from tensorcast_client import pickle_shards


def entry(array=None, **more):
    return {"sample_idx": 7, "activation": np.arange(2, dtype=np.int16) if array is None else array, "text_preview": "a", **more}


def read(text):
    return list(pickle_shards.entries(text, "shard_0001.pkl"))


def refused(text):
    with pytest.raises(tc.TensorcastError, match="shard_0001.pkl") as caught:
        read(text)
    return caught.value.reason


class Runs:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [4, 5])
def test_arrays_are_views_of_the_pickle_with_their_types_orders_and_shapes(protocol):
    cube = np.arange(24.0).reshape(2, 3, 4)
    arrays = [cube, np.asfortranarray(cube), cube.transpose(1, 2, 0), cube.astype(">f4"), np.array(2.5), np.zeros((0, 3), np.int8), cube > 5]
    text = pickle.dumps({10: [entry(a, sample_idx=i) for i, a in enumerate(arrays)], "layer_04": [entry()]}, protocol)
    *got, last = read(text)
    for found, array in zip(got, arrays):
        assert found.layer == 10 and found.array.dtype == array.dtype and found.array.shape == array.shape and (found.array == array).all()
    assert (last.sample, last.layer, last.text, last.array.tolist()) == (7, 4, "a", [0, 1])
    assert not got[0].array.flags.owndata and not got[0].array.flags.writeable
    assert read(pickle.dumps({}, protocol)) == []


def test_a_shard_that_is_cut_anywhere_or_goes_on_is_refused():
    text = pickle.dumps({10: [entry()]}, 4)
    for size in range(len(text)):
        refused(text[:size])
    assert refused(text + b".") == refused(text + text) == "BAD_PICKLE"


DTYPE = b"\x8c\x05numpy\x8c\x05dtype\x93"
ARRAY = b"\x8c\x16numpy._core.multiarray\x8c\x0c_reconstruct\x93\x8c\x05numpy\x8c\x07ndarray\x93K\0\x85C\x01b\x87R"
REFUSED = {
    "a function": (b"\x8c\x05posix\x8c\x06system\x93\x8c\x01x\x85R.", "FORBIDDEN_GLOBAL"),
    "a function of NumPy": (b"\x8c\x05numpy\x8c\x04load\x93\x8c\x01x\x85R.", "FORBIDDEN_GLOBAL"),
    "a global whose name is no text": (b"K\1K\1\x93.", "FORBIDDEN_GLOBAL"),
    "another instruction": (b"cposix\nsystem\n.", "FORBIDDEN_OPCODE"),
    "an object": (b")\x81.", "FORBIDDEN_OPCODE"),
    "a persistent one": (b"K\1Q.", "FORBIDDEN_OPCODE"),
    "an extension": (b"\x82\1.", "FORBIDDEN_OPCODE"),
    "no dictionary": (b"].", "BAD_PICKLE"),
    "no list": (b"}K\x0aK\x01s.", "BAD_PICKLE"),
    "no array": (b"}K\x0a]}(\x8c\x0asample_idxK\x07uas.", "BAD_PICKLE"),
    "an array without its state": (b"}K\x0a]}(\x8c\x0asample_idxK\x07\x8c\x0aactivation" + ARRAY + b"uas.", "BAD_PICKLE"),
    "no memory of it": (b"h\x07.", "BAD_PICKLE"),
    "marks": (b"(((.", "BAD_PICKLE"),
    "a mark that is left over": (b"(}.", "BAD_PICKLE"),
    "nothing to take": (b"0a.", "FORBIDDEN_OPCODE"),
    "bytes without end": (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.", "BAD_PICKLE"),
    "more bytes than numbers have": (b"\x8e" + b"\xff" * 8 + b"x.", "BAD_PICKLE"),
    "a bytearray without end": (b"\x96\xff\xff\xff\xff\xff\xff\x00\x00x.", "BAD_PICKLE"),
    "a text without end": (b"X\xff\xff\xff\x7fx.", "BAD_PICKLE"),
    "a text that is none": (b"\x8c\1\xff.", "BAD_PICKLE"),
    "elements that are objects": (DTYPE + b"\x8c\x02O8\x89\x88\x87R.", "BAD_DTYPE"),
    "elements with fields": (DTYPE + b"\x8c\x05V4,f4\x89\x88\x87R.", "BAD_DTYPE"),
    "no byte order": (DTYPE + b"\x8c\x02f4\x89\x88\x87R(K\x03\x8c\x01?tb.", "BAD_BYTE_ORDER"),
    "a class that is called": (b"\x8c\x05numpy\x8c\x07ndarray\x93)R.", "BAD_PICKLE"),
    "a class that is given a state": (b"\x8c\x05numpy\x8c\x07ndarray\x93}b.", "BAD_PICKLE"),
    "a list that is given a state": (b"]}b.", "BAD_PICKLE"),
    "a key that is a tuple": (b"})K\1s.", "BAD_PICKLE"),
    "a boolean for a number": (b"}K\x0a]}(\x8c\x0asample_idx\x88uas.", "BAD_PICKLE"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_shard_of_arrays_is_refused(what):
    text, reason = REFUSED[what]
    assert refused(b"\x80\x04" + text) == reason
    assert refused(b"\x80\x02" + text) == refused(b"(" + text) == "BAD_PROTOCOL"


@pytest.mark.parametrize("call", [(os.system, ("touch {}",)), (eval, ("open({!r}, 'w')",)), (exec, ("open({!r}, 'w')",))])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_what_a_pickle_would_call_is_not_called(tmp_path, call, protocol):
    function, (words,) = call
    runs = Runs(function, (words.format(str(tmp_path / "ran")),))
    for shard in ({10: [entry(runs)]}, {10: [entry(np.array([runs], object))]}, runs, {10: [entry(text_preview=runs)]}):
        refused(pickle.dumps(shard, protocol))
    assert not (tmp_path / "ran").exists()


def test_every_instruction_that_such_shards_do_not_have_is_refused():
    known = set(pickle_shards._Unpickler.dispatch)
    assert len(known) == 33 and not known & set(b"cioqrGISVLFTUPQ012pgld\x81\x82\x83\x84\x92\x8b\x97\x98\x8f\x90\x91\x8d")
    for opcode in {ord(op.code) for op in pickletools.opcodes} - known:
        assert refused(b"\x80\x04}}" + bytes([opcode]) + b"\0" * 64) == "FORBIDDEN_OPCODE"


LYING = {"larger": (3,), "smaller": (1,), "negative": (-2,), "of a boolean": (True, 2), "of 65 dimensions": (1,) * 64 + (2,),
         "beyond all numbers": (1 << 62, 1 << 62)}


@pytest.mark.parametrize("what", LYING)
def test_a_shape_that_does_not_fit_its_bytes_is_refused(what):
    class Lying:
        def __reduce__(self):
            return (*np.zeros(2, np.int16).__reduce__()[:2], (1, LYING[what], np.dtype("i2"), False, b"abcd"))
    assert refused(pickle.dumps({10: [entry(Lying())]}, 4)) == "BAD_PICKLE"
    assert refused(pickle.dumps({10: [entry(shape=(3,))]}, 4)) == "BAD_PICKLE"


@pytest.mark.parametrize("axes", [(1, 2, 1), (1, 2, 3), (1, 2, -1), (1, 2, None), (1, 2), None])
def test_an_order_of_dimensions_that_is_none_is_refused(axes):
    from numpy._core.numeric import _frombuffer

    class Ordered:
        def __init__(self, axes):
            self.axes = axes

        def __reduce__(self):
            return _frombuffer, (b"abcdef", np.dtype("i1"), (2, 1, 3), "K", self.axes)
    assert refused(pickle.dumps({10: [entry(Ordered(axes))]}, 5)) == "BAD_PICKLE"
    (found,) = read(pickle.dumps({10: [entry(Ordered((1, 2, 0)))]}, 5))
    assert found.array.shape == (1, 3, 2)


def test_memos_that_double_and_nest_are_refused_in_bounded_memory(monkeypatch):
    doubling = b"\x80\x04}K\x0a]\x94(" + b"]\x94(" * 40 + b"".join(b"h%c" % n * 2 + b"e" for n in range(40, -1, -1))
    refused(doubling + b"s.")
    same = b"\x80\x04}]\x94" + b"".join(struct.pack("<BIc", ord("J"), n, b"h") + b"\0s" for n in range(2000))
    items = b"\x80\x04}(K\0]\x94(" + b"}" * 1000 + b"e" + b"".join(b"J" + struct.pack("<I", n) + b"h\0" for n in range(1, 1000)) + b"u."
    assert refused(items) == refused(same + b".") == "BAD_PICKLE"
    nested = b"\x80\x04" + b"]" * 300_000 + b"a" * 299_999 + b"."
    assert refused(nested) == refused(b"\x80\x04" + b")" + b"\x85" * 300_000 + b".") == "BAD_PICKLE"
    assert refused(b"\x80\x04})" + b"\x85" * 300_000 + b"K\1s.") == "BAD_PICKLE"  # as a key, which would be hashed
    monkeypatch.setattr(pickle_shards, "_ROOM", 1 << 16)
    assert refused(b"\x80\x04" + b"]" * 1100 + b".") == "PICKLE_TOO_LARGE"
    assert len(read(pickle.dumps({1: [entry(np.zeros(1 << 20))]}, 4))) == 1, "bytes of arrays count for nothing"


def unpacked(raw):
    text, digest = pickle_shards.unpack(io.BytesIO(raw), "shard_0001.pkl.gz")
    return bytes(text), digest


def test_a_shard_is_unpacked_plain_or_gzipped_also_in_members():
    import hashlib
    for raw in (b"plain", gzip.compress(b"plain"), gzip.compress(b"pl") + gzip.compress(b"ain")):
        assert unpacked(raw) == (b"plain", hashlib.sha256(raw).hexdigest())


@pytest.mark.parametrize("damage", [lambda raw: raw[:-9], lambda raw: raw[:20], lambda raw: raw + b"more", lambda raw: b"",
                                    lambda raw: raw[:-8] + bytes([raw[-8] ^ 1]) + raw[-7:], lambda raw: gzip.compress(b"")])
def test_an_archive_that_is_cut_or_damaged_or_empty_is_refused(damage):
    with pytest.raises(tc.TensorcastError, match="shard_0001.pkl.gz is damaged") as caught:
        unpacked(damage(gzip.compress(os.urandom(1000))))
    assert (caught.value.code.name, caught.value.reason) == ("DATA_LOSS", "BAD_ARCHIVE")


def test_what_unpacks_to_more_than_the_bound_is_refused(monkeypatch):
    monkeypatch.setattr(pickle_shards, "MAX_BYTES", 4 << 20)
    assert len(unpacked(gzip.compress(bytes(4 << 20)))[0]) == 4 << 20
    with pytest.raises(tc.TensorcastError, match="shard_0001.pkl.gz holds more than") as caught:
        unpacked(gzip.compress(bytes((4 << 20) + 1)))
    assert (caught.value.code.name, caught.value.reason) == ("RESOURCE_EXHAUSTED", "SHARD_TOO_LARGE")


def test_what_is_written_is_a_pickle_of_every_numpy_and_is_read_back():
    out, arrays = io.BytesIO(), {3: np.arange(6.0).reshape(2, 3), (1 << 32) - 1: np.array(True)}
    pickle_shards.write(out, {layer: [entry(a, shape=a.shape)] for layer, a in arrays.items()})
    text = gzip.decompress(out.getvalue())
    assert b"numpy.core.multiarray" in text and b"numpy._core" not in text and text[:2] == b"\x80\x04"
    assert all((pickle.loads(text)[layer][0]["activation"] == a).all() for layer, a in arrays.items())
    assert {found.layer: found.array.tolist() for found in read(text)} == {layer: a.tolist() for layer, a in arrays.items()}
