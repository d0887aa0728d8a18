"""Folders for models whose tensors are elsewhere: what is fetched, what the loader reads out of them."""
import json
import os
import sys
from pathlib import Path

import pytest

import tensorcast_client as tc
from tensorcast_client import model_folder
from tensorcast_vllm.__main__ import main
from tensorcast_vllm.options import LoaderOptions
from tensorcast_vllm.model_folder import HEADER, NOTE, Origin, origin_of, prepare

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
pytest.importorskip("google.protobuf", reason="the protobuf package is not installed")
from fake_daemon import FakeDaemon  # noqa: E402

REF = "gs://bucket/some/llama"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    daemon = FakeDaemon(tmp_path)
    daemon.put(REF, {})
    send(daemon, {"config.json": b"{}", "tokenizer.json": b"[]"})
    monkeypatch.setenv("TENSORCAST_SOCKET", daemon.socket)
    yield daemon
    daemon.stop()


def send(daemon, files):
    daemon.sidecars = [("list", {name: len(data) for name, data in files.items()}),
                       *(("chunk", at, 0, data) for at, data in enumerate(files.values()))]


def contents(folder):
    return {path.name: path.read_text() for path in Path(folder).iterdir()}


def test_the_folder_has_the_small_files_and_a_note_of_where_the_tensors_are(fake, tmp_path):
    folder = prepare(REF, cache=tmp_path / "cache")
    note = {"artifact": REF, "identity": fake.identity(REF)}
    assert contents(folder) == {"config.json": "{}", "tokenizer.json": "[]", NOTE: json.dumps(note), HEADER: contents(folder)[HEADER]}
    assert Path(folder).name == "llama" and origin_of(folder) == Origin(**note) and origin_of(folder).folder is None


def test_a_second_time_the_same_folder_has_what_the_artifact_has_now(fake, tmp_path):
    folder = prepare(REF, cache=tmp_path / "cache")
    send(fake, {"config.json": b'{"new": 1}'})
    fake.put(REF, {})
    assert prepare(REF, cache=tmp_path / "cache") == folder
    assert set(contents(folder)) == {"config.json", NOTE, HEADER} and contents(folder)["config.json"] == '{"new": 1}'
    assert origin_of(folder).identity == fake.identity(REF) == REF + "#2"


def test_every_file_may_be_read_by_those_whom_the_umask_lets(fake, tmp_path):
    old = os.umask(0o027)
    try:
        folder = prepare(REF, cache=tmp_path / "cache")
    finally:
        os.umask(old)
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in Path(folder).iterdir()} == dict.fromkeys(contents(folder), "0o640")


def test_two_references_have_two_folders(fake, tmp_path):
    other = "gs://other/llama"
    fake.put(other, {})
    assert prepare(REF, cache=tmp_path) != prepare(other, cache=tmp_path)


def test_an_artifact_without_a_configuration_is_refused(fake, tmp_path):
    send(fake, {"tokenizer.json": b"[]"})
    with pytest.raises(ValueError, match="has no config.json"):
        prepare(REF, cache=tmp_path)


def test_an_ordinary_folder_is_its_own_origin(tmp_path):
    assert origin_of(str(tmp_path)) == Origin(f"disk:{tmp_path}", None) and origin_of(str(tmp_path)).folder == str(tmp_path)


def test_what_is_no_folder_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match="no folder meta/llama on this host; a model of the Hugging Face hub is hf://meta/llama"):
        origin_of("meta/llama")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"artifact": 1, "identity": "x"}', '{"artifact": "", "identity": "x"}',
                                  '{"artifact": "gs://b/m", "identity": null}'])
def test_a_damaged_note_is_an_error_that_names_it(tmp_path, text):
    (tmp_path / NOTE).write_text(text)
    with pytest.raises(ValueError, match=f"{NOTE} is damaged"):
        origin_of(str(tmp_path))


def test_the_command_prints_the_folder_and_nothing_else(fake, tmp_path, capsys):
    main([REF, "--cache", str(tmp_path)])
    assert capsys.readouterr().out == prepare(REF, cache=tmp_path) + "\n"


def test_the_command_ends_with_a_message_when_it_cannot(fake, tmp_path):
    with pytest.raises(SystemExit, match="NOT_FOUND: gs://nobody/m does not exist"):
        main(["gs://nobody/m", "--cache", str(tmp_path)])
    with pytest.raises(SystemExit, match="UNAVAILABLE"):
        main([REF, "--socket", str(tmp_path / "none.sock"), "--cache", str(tmp_path)])


def test_the_folder_of_a_variant_is_another_one_and_has_the_variants_header(fake, tmp_path, capsys):
    recipe = {"version": 1, "steps": [{"rename": {"a": "${to}"}}]}
    options = [LoaderOptions(variant=recipe, variant_set={"to": to}) for to in ("b", "c")]
    folders = [prepare(REF, cache=tmp_path, options=each) for each in (None, *options)]
    assert len(set(folders)) == 3 and prepare(REF, cache=tmp_path, options=options[0]) == folders[1]
    assert [request.variant for request in fake.asked("Resolve")][:2] == [b"", b'{"version":1,"steps":[{"rename":{"a":"b"}}]}']
    (tmp_path / "recipe.yaml").write_text("version: 1\nsteps:\n- rename: {a: '${to}'}\n")
    main([REF, "--cache", str(tmp_path), "--variant", str(tmp_path / "recipe.yaml"), "--set", "to=c"])
    assert capsys.readouterr().out == folders[2] + "\n"


def test_the_cache_is_in_the_users_home(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert prepare(REF).startswith(str(tmp_path / "home" / "tensorcast" / "vllm"))
    with tc.connect() as client:
        assert model_folder.path_of(client.artifact("gs://bucket/"), str(tmp_path)).endswith("/bucket")
