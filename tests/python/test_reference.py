"""What people write for an artifact: the table of tests/golden, which the C library's test reads as well."""
import os
import re
from pathlib import Path

import pytest
import tensorcast_client as tc
from tensorcast_client.reference import parse

TABLE = (Path(__file__).resolve().parents[1] / "golden" / "references.txt").read_text()


def unescape(text):
    raw = re.sub(rb"\\x(..)", lambda match: bytes([int(match[1], 16)]), text.encode())
    return os.fsdecode(raw)


CASES = [tuple(map(unescape, line.split("\t"))) for line in TABLE.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize("text, expected", CASES, ids=[ascii(text) for text, _ in CASES])
def test_every_line_of_the_table_holds(text, expected):
    if not expected.startswith("!"):
        assert parse(text, folder="/work/here", home="/home/me") == expected
        return
    with pytest.raises(tc.TensorcastError, match=re.escape(expected[1:])) as told:
        parse(text, folder="/work/here", home="/home/me")
    assert (told.value.code.name, told.value.reason) == ("INVALID_ARGUMENT", "BAD_REFERENCE") and "secret" not in str(told.value)
    str(told.value).encode()


def test_paths_of_pathlib_are_taken_as_they_are(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    here = os.getcwd()
    for path in (Path("llama"), Path("./llama"), Path(here) / "llama"):
        assert parse(path) == f"disk:{here}/llama"
    assert parse(Path("disk:/models")) == f"disk:{here}/disk:/models" and parse(Path("~/x")) == f"disk:{here}/~/x"


def test_what_is_neither_text_nor_path_is_refused():
    for wrong in (None, 5, b"/models"):
        with pytest.raises(ValueError, match="is no artifact"):
            parse(wrong)


def test_a_client_takes_paths_wherever_it_takes_references(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    client = tc.connect("/nowhere/daemon.sock")
    assert client.artifact("./llama").reference == client.artifact(Path("llama")).reference == f"disk:{os.getcwd()}/llama"
    with pytest.raises(tc.TensorcastError, match=r"did you mean gs://b/m\?"):
        client.release("gcs://b/m")
