"""What is named for an import, before anything is read; the rest is e2e/test_activation_shards.py's."""
import os

import pytest
import tensorcast_client as tc
from tensorcast_client import activation_shards


def test_as_many_shards_as_the_bound_are_taken_and_one_more_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(activation_shards, "_MAX_SHARDS", 3)
    for n in range(3):
        (tmp_path / f"shard_{n}.pkl").touch()
    (tmp_path / "shard_9.txt").touch()
    folder = activation_shards._folder_of(str(tmp_path))
    assert [os.path.basename(shard.path) for shard in activation_shards._Import([folder]).shards] == ["shard_0.pkl", "shard_1.pkl", "shard_2.pkl"]
    with pytest.raises(tc.TensorcastError, match="more than 3 shards") as caught:
        activation_shards._Import([folder, folder])
    assert caught.value.reason == "TOO_MANY_SHARDS"
    (tmp_path / "shard_3.pkl.gz").touch()
    with pytest.raises(tc.TensorcastError, match="more than 3 shards"):
        activation_shards._folder_of(str(tmp_path))


def test_a_shard_that_is_replaced_after_it_was_found_and_one_that_is_no_file_are_refused(tmp_path):
    path = tmp_path / "shard_0.pkl"
    path.touch()
    (shard,) = activation_shards._folder_of(str(tmp_path)).shards
    shard.open().close()
    (tmp_path / "other").touch()
    (tmp_path / "other").rename(path)
    with pytest.raises(tc.TensorcastError, match="was replaced") as caught:
        shard.open()
    assert caught.value.code.name == "ABORTED"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="no regular file"):
        activation_shards._File(str(tmp_path / "pipe")).open()


def test_what_other_programs_say_steers_no_terminal(capsys):
    assert activation_shards._fail(tc.TensorcastError("a\x1b[2Jb\nc"), True) == 1
    out, err = capsys.readouterr()
    assert err == "tensorcast: INTERNAL: a [2Jb\n  c\n" and '"reason": "INTERNAL"' in out


@pytest.mark.parametrize("error, code", [
    (FileNotFoundError(2, "no such file", "/x"), "NOT_FOUND"), (PermissionError(13, "denied", "/x"), "PERMISSION_DENIED"),
    (OSError(28, "no space"), "RESOURCE_EXHAUSTED"), (MemoryError(), "RESOURCE_EXHAUSTED"), (OSError("odd"), "INTERNAL")])
def test_errors_of_the_system_have_the_codes_of_the_command(error, code):
    assert activation_shards._as_error(error).code.name == code
