"""JSON that comes in pieces is what json.loads() makes of the whole, or refused as there."""
import json
import random

import pytest
from tensorcast_client.json_pieces import JsonPieces

DOCUMENT = {"format": "acts", "version": 12, "segments": [{"file": f"s\u00fc{i}", "samples": list(range(i)), "info": {"1": [1.5e3, None, "]}\\\""]}}
                                                          for i in range(12)], "empty": {}, "last": -1.5}


def read(text, size):
    document = JsonPieces(text[i:i + size] for i in range(0, len(text), size))
    found = {key: list(document.items()) if key == "segments" else document.value() for key in document.members()}
    document.end()
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 1 << 20])
@pytest.mark.parametrize("how", [{}, {"ensure_ascii": False}, {"indent": 3}])
def test_pieces_of_any_size_are_put_together(size, how):
    assert read(json.dumps(DOCUMENT, **how).encode(), size) == DOCUMENT
    assert read(b" { } ", size) == {}


def test_what_json_refuses_is_refused():
    chance = random.Random(17)
    for _ in range(1500):
        text = bytearray(json.dumps(DOCUMENT, ensure_ascii=False).encode())
        if chance.random() < .5:
            del text[chance.randrange(len(text)):]
        else:
            text[chance.randrange(len(text))] = chance.randrange(256)
        try:
            expected = json.loads(text.decode())
        except ValueError:
            with pytest.raises(ValueError):
                read(bytes(text), chance.choice((1, 5, 50, 4000)))
        else:
            assert list(expected) != list(DOCUMENT) or read(bytes(text), chance.choice((1, 5, 50, 4000))) == expected


def test_nesting_without_an_end_is_an_error_and_pieces_behind_a_value_are_not_asked_for():
    with pytest.raises(RecursionError):
        read(b'{"segments": [' + b"[" * 200_000, 4096)
    asked = []
    pieces = (asked.append(i) or b'"v": 1, ' if i else b"{" for i in range(1000))
    members = JsonPieces(pieces).members()
    assert next(members) == "v" and len(asked) < 4
