"""Where the programs are looked for."""
import pytest
from tensorcast_client import programs


@pytest.fixture
def make(tmp_path, monkeypatch):
    def make(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        return tmp_path

    monkeypatch.delenv("TENSORCAST_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return make


def test_the_daemon_is_found_beside_the_command_that_is_named_and_before_that_of_path(make, monkeypatch):
    folder = make("named/tensorcast", "named/tensorcastd", "path/tensorcast", "path/tensorcastd")
    assert programs.find("tensorcastd") == f"{folder}/path/tensorcastd"
    monkeypatch.setenv("TENSORCAST_BIN", f"{folder}/named/tensorcast")
    assert [programs.find(name) for name in ("tensorcast", "tensorcastd")] == [f"{folder}/named/tensorcast", f"{folder}/named/tensorcastd"]


def test_a_command_of_another_name_counts_and_a_daemon_that_is_not_beside_it_is_that_of_path(make, monkeypatch):
    folder = make("named/mine", "path/tensorcastd")
    monkeypatch.setenv("TENSORCAST_BIN", f"{folder}/named/mine")
    assert (programs.find("tensorcast"), programs.find("tensorcastd")) == (f"{folder}/named/mine", f"{folder}/path/tensorcastd")


def test_what_is_nowhere_is_none(make):
    make()
    assert programs.find("tensorcastd") is None
