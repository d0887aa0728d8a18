"""Servers as they are: without ranges, without sizes, with pages for people in place of files, mirrors of half an API."""
import re

import pytest

import checkpoints
from stage import MiB, standalone

PAGE = {"status": 200, "body": "\n<HTML><body>Welcome</body></HTML>", "headers": {"Content-Type": "text/html; charset=utf-8"}}


@pytest.fixture
def alone(fake, tmp_path):
    """The command without a daemon; `hf://` leads to the fake hub."""
    return standalone(HF_ENDPOINT=fake.url("hub"), HF_HOME=str(tmp_path / "home"))


def placed(fake, tmp_path, listener, name, *parts):
    tensors = checkpoints.write(tmp_path / "made", *parts)
    fake.world.preload(listener, name, tmp_path / "made")
    return tensors


def assert_loads(cli, reference, tensors):
    report = cli.json("load", reference, "--digest")
    assert checkpoints.digests(report) == {name: checkpoints.digest(array) for name, array in tensors.items()}


def assert_refused(cli, reference, code, words):
    outcome = cli.run("load", reference)
    assert outcome.status == code and outcome.code == 1 and re.search(words, outcome.err), outcome
    return outcome.err


def test_small_files_of_a_server_without_ranges_are_read_whole_each_time(daemon, alone, fake, tmp_path):
    fake.web.ranges = False
    tensors = placed(fake, tmp_path, "web", "m", {"a": checkpoints.blob(1, 70_000), "b": checkpoints.blob(2, 3)}, {"c": checkpoints.blob(3, 900)})
    reference = f"{fake.url('web')}/m"
    assert_loads(alone, reference, tensors)
    for _ in range(2):
        assert_loads(daemon.cli, reference, tensors)
        daemon.cli.ok("release", "--all")
    assert daemon.cli.json("load", reference, "--tensor", "b", "--digest")


def test_a_large_file_of_a_server_without_ranges_is_no_reason_to_try_again(alone, fake, tmp_path):
    fake.web.ranges = False
    placed(fake, tmp_path, "web", "m", {"a": checkpoints.blob(1, MiB)})
    assert_refused(alone, f"{fake.url('web')}/m/model.safetensors", "FAILED_PRECONDITION", "ignores Range")


@pytest.mark.parametrize("bytes_", [5_000, MiB])
@pytest.mark.parametrize("listener", ["web", "hub"])
def test_a_server_that_hides_how_large_a_file_is_is_no_reason_to_try_again(alone, fake, tmp_path, listener, bytes_):
    placed(fake, tmp_path, listener, "org/m", {"a": checkpoints.blob(1, bytes_)})
    fake.fault({"content_range": "bytes 0-17/*"}, match={"range": "."}, times=0)
    reference = f"{fake.url('web')}/org/m" if listener == "web" else "hf://org/m"
    assert_refused(alone, reference, "FAILED_PRECONDITION", "how large")


@pytest.mark.parametrize("listener", ["web", "hub"])
def test_a_document_that_comes_whole_is_read(alone, fake, tmp_path, listener):
    tensors = placed(fake, tmp_path, listener, "org/m", {"a": checkpoints.blob(1, MiB)}, {"b": checkpoints.blob(2, MiB)})
    rule = fake.fault({"whole": True}, match={"path": "index.json$", "range": "."}, times=0)
    assert_loads(alone, f"{fake.url('web')}/org/m" if listener == "web" else "hf://org/m", tensors)
    assert rule.acted


def test_a_document_that_came_whole_and_is_another_than_the_listed_one_is_refused(alone, fake, tmp_path):
    placed(fake, tmp_path, "hub", "org/m", {"a": checkpoints.blob(1, MiB)}, {"b": checkpoints.blob(2, MiB)})
    fake.fault({"status": 200, "body": "{}"}, match={"path": "index.json$"}, times=0)
    assert_refused(alone, "hf://org/m", "FAILED_PRECONDITION", "it has 2 bytes now")


@pytest.mark.parametrize("what", ["", "/m", "/m/model.safetensors", "/m/other.safetensors"])
def test_a_page_for_everything_is_called_a_page(alone, fake, what):
    fake.fault(PAGE, times=0)
    text = assert_refused(alone, f"{fake.url('web')}{what}", "NOT_FOUND", "web page")
    assert "topology" not in text


def test_an_application_that_answers_pages_for_what_it_lacks_still_serves_what_it_has(alone, fake, tmp_path):
    tensors = placed(fake, tmp_path, "web", "m", {"a": checkpoints.blob(1, MiB)})
    fake.fault(PAGE, match={"path": "json"}, times=0)
    assert_loads(alone, f"{fake.url('web')}/m", tensors)


def test_a_portal_in_place_of_the_hub_is_called_a_page(alone, fake):
    fake.fault(PAGE, times=0)
    assert_refused(alone, "hf://org/m", "FAILED_PRECONDITION", "web page.*HF_ENDPOINT")


def test_a_mirror_without_the_tree_is_not_told_to_need_a_token(alone, fake, tmp_path):
    placed(fake, tmp_path, "hub", "org/m", {"a": checkpoints.blob(1, MiB)})
    fake.fault({"status": 404, "body": "no such page"}, match={"path": "/tree/"}, times=0)
    assert "token" not in assert_refused(alone, "hf://org/m", "FAILED_PRECONDITION", "does not list its files.*/tree/")
