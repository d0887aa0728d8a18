"""Sidecars from a stand-in for the daemon: what is written, and that no answer can write anything else."""
import os

import grpc
import pytest

import tensorcast_client as tc
from fake_daemon import Refused

REF = "disk:/models/m"
GOOD = [("list", {"config.json": 5, "empty.txt": 0, "b.json": 2}), ("chunk", 0, 0, b"abc"), ("chunk", 0, 3, b"de"),
        ("chunk", 1, 0, b""), ("chunk", 2, 0, b"{}")]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_list_is_names_and_sizes(fake, client):
    fake.sidecars = GOOD
    assert client.artifact(REF).sidecars() == [tc.Sidecar("config.json", 5), ("empty.txt", 0), ("b.json", 2)]
    assert fake.asked("FetchSidecars")[0].list_only


def test_files_arrive_whole(fake, client, tmp_path):
    fake.sidecars = GOOD
    assert client.artifact(REF).fetch_sidecars(tmp_path / "new") == client.artifact(REF).sidecars()
    assert contents(tmp_path / "new") == {"config.json": b"abcde", "empty.txt": b"", "b.json": b"{}"}


def test_files_are_as_readable_as_any_other_new_file(fake, client, tmp_path):
    fake.sidecars = GOOD
    client.artifact(REF).fetch_sidecars(str(tmp_path))
    (tmp_path / "other").write_text("")
    assert (tmp_path / "config.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_link_in_the_way_is_replaced_and_not_followed(fake, client, tmp_path):
    fake.sidecars = GOOD
    (tmp_path / "victim").write_text("keep")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "b.json").symlink_to("../victim")
    client.artifact(REF).fetch_sidecars(folder)
    assert (folder / "b.json").read_bytes() == b"{}" and (tmp_path / "victim").read_text() == "keep"


def test_an_error_in_the_middle_leaves_whole_files_only(fake, client, tmp_path):
    fake.sidecars, fake.fail = GOOD[:2], Refused(grpc.StatusCode.DATA_LOSS, "half of it", "TORN")
    with pytest.raises(tc.TensorcastError, match="half of it"):
        client.artifact(REF).fetch_sidecars(tmp_path)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("name", ["../config.json", "/tmp/x.json", ".config.json", "a/b.json", "a\\b.json", "", "a\nb.json",
                                  "x" * 251 + ".json"])
def test_a_name_that_is_no_plain_file_name_is_refused(fake, client, tmp_path, name):
    fake.sidecars = [("list", {name: 1}), ("chunk", 0, 0, b"x")]
    with pytest.raises(tc.TensorcastError, match="makes no sense"):
        client.artifact(REF).fetch_sidecars(tmp_path / "out")
    assert contents(tmp_path / "out") == {}


@pytest.mark.parametrize("events", [
    [], [GOOD[1]], [GOOD[0], GOOD[0]], [("list", {"a.json": (64 << 20) + 1})],
    [("list", {f"{i}.json": 0 for i in range(129)})], [("list", {"a.json": 5})],
    *([("list", {"a.json": 5}), chunk] for chunk in [("chunk", 0, 0, b"toolong"), ("chunk", 1, 0, b"x"), ("chunk", 0, 1, b"x"),
                                                    ("chunk", 0, 0, b""), ("chunk", 0, 0, b"half")])])
def test_an_answer_that_contradicts_itself_is_refused(fake, client, tmp_path, events):
    fake.sidecars = events
    with pytest.raises(tc.TensorcastError, match="makes no sense"):
        client.artifact(REF).fetch_sidecars(tmp_path / "out")
    assert contents(tmp_path / "out") == {}


def test_names_select_and_none_of_them_is_none(fake, client, tmp_path):
    fake.sidecars = GOOD
    client.artifact(REF).fetch_sidecars(tmp_path, ["b.json"])
    assert list(fake.asked("FetchSidecars")[0].names) == ["b.json"]
    assert client.artifact(REF).fetch_sidecars(tmp_path / "none", []) == [] and not os.path.exists(tmp_path / "none")
    with pytest.raises(ValueError, match="list of file names"):
        client.artifact(REF).fetch_sidecars(tmp_path, "b.json")
