"""`tensorcast fetch`: files of an artifact as they are, into a folder."""
import json
import os

import pytest

import checkpoints
from stage import MiB, Tensorcast


@pytest.fixture
def weights(fake, tmp_path):
    checkpoints.write(tmp_path / "m", {"a": checkpoints.blob(1, 3 * MiB)}, {"b": checkpoints.blob(2, MiB)})
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m" / "empty.txt").write_text("")
    fake.world.preload("hub", "org/model", tmp_path / "m")
    fake.world.preload("hub", "org/model/sub", tmp_path / "m")
    return {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}


@pytest.fixture
def hub(start, fake, tmp_path):
    settings = {"HF_ENDPOINT": fake.url("hub"), "HF_HOME": str(tmp_path / "home")}
    daemon = start(running=False)
    daemon.start(environment={**settings, "HF_HUB_CACHE": str(tmp_path / "none")})
    daemon.cli.environment.update(settings)
    return daemon.cli


@pytest.fixture
def daemon_of_web(daemon):
    return daemon.cli


WAYS = pytest.mark.parametrize("how", [[], ["--standalone"]], ids=["daemon", "standalone"])


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@WAYS
def test_all_files_come_as_they_are_also_the_large_and_the_empty(daemon, models, tmp_path, how):
    model = models / "large"
    checkpoints.write(model, {"a": checkpoints.blob(1, 150 * MiB)}, {"b": checkpoints.blob(2, MiB)})
    (model / "config.json").write_text("{}")
    (model / "empty.txt").write_text("")
    (model / "notes").write_text("nothing of the model")
    report = daemon.cli.json("fetch", f"disk:{model}", tmp_path / "out", "--all", *how)
    (model / "notes").unlink()
    assert contents(tmp_path / "out") == contents(model)
    assert report["total_bytes"] == sum(f["bytes"] for f in report["files"]) == sum(map(len, contents(model).values()))


def test_progress_counts_bytes_as_they_come(daemon, models, tmp_path):
    checkpoints.write(models / "p", {"a": checkpoints.blob(1, 80 * MiB)})
    done = daemon.cli.ok("fetch", f"disk:{models}/p", tmp_path / "out", "--tensors", "--progress", "json")
    steps = [json.loads(line) for line in done.err.splitlines()]
    counts = [step["done_bytes"] for step in steps]
    assert counts == sorted(counts) and counts[-1] == steps[-1]["total_bytes"] == (tmp_path / "out/model.safetensors").stat().st_size


def test_the_time_limit_is_that_of_all_windows_together(daemon_of_web, fake, tmp_path):
    checkpoints.write(tmp_path / "m", *[{f"w{i}": checkpoints.blob(i, MiB)} for i in range(24)])
    fake.world.preload("web", "m", tmp_path / "m")
    fake.fault({"delay": 1.0}, match={"covers": 500_000}, times=0)
    done = daemon_of_web.run("--timeout", "1500ms", "fetch", f"{fake.url('web')}/m", tmp_path / "out", "--tensors")
    assert done.status == "DEADLINE_EXCEEDED" and len(list(tmp_path.glob("out/*"))) < 24, done  # of a slow start there is no folder yet
    assert "undefined" not in done.err, "there is no memory of the caller's"


@WAYS
def test_a_file_that_changes_while_it_is_fetched_gets_no_name(daemon_of_web, fake, tmp_path, how):
    checkpoints.write(tmp_path / "new", {"w": checkpoints.blob(2, 3 * MiB)})
    new = (tmp_path / "new/model.safetensors").read_bytes()
    checkpoints.write(tmp_path / "old", {"w": checkpoints.blob(1, 3 * MiB)})
    fake.world.preload("web", "m", tmp_path / "old")
    rule = fake.fault({"call": lambda: fake.world.put("web", "m/model.safetensors", new)}, match={"covers": 2_500_000})
    done = daemon_of_web.run("fetch", f"{fake.url('web')}/m", tmp_path / "out", "--tensors", *how)
    assert rule.acted == 1 and (done.code, done.status) == (1, "FAILED_PRECONDITION") and "memory" not in done.err, done
    assert not (tmp_path / "out").exists()
    daemon_of_web.ok("fetch", f"{fake.url('web')}/m", tmp_path / "out", "--tensors", *how)
    assert contents(tmp_path / "out") == {"model.safetensors": new}


def test_the_option_of_the_hub_s_cache_names_the_program_that_fills_it(hub):
    done = hub.run("fetch", "hf://org/model", "--tensors", "--hub-cache")
    assert done.code == 2 and "hf download" in done.err, done


def test_a_named_folder_is_not_taken_when_it_is_there_by_chance(hub, weights, tmp_path):
    (tmp_path / "model").mkdir()
    done = hub.run("fetch", "hf://org/model", "--all", cwd=tmp_path)
    assert (done.code, done.status) == (1, "ALREADY_EXISTS") and not os.listdir(tmp_path / "model"), done
    report = json.loads(hub.ok("fetch", "hf://org/model", tmp_path / "model", "--all", "--json").out)
    assert contents(tmp_path / "model") == weights and report["folder"].endswith("/model")


def test_a_fetch_of_nothing_leaves_no_folder_and_says_where_it_looked(daemon, models, tmp_path):
    for _ in range(2):
        outcome = daemon.cli.run("fetch", f"disk:{models}/nobody", cwd=tmp_path)
        assert outcome.failed and outcome.status == "NOT_FOUND" and f"the trusted roots are {models}" in outcome.err, outcome
        assert not list(tmp_path.iterdir())


@WAYS
def test_a_model_without_small_files_is_not_taken_for_fetched(daemon, models, tmp_path, how):
    checkpoints.write(models / "bare", {"a": checkpoints.blob(1, MiB)})
    done = daemon.cli.ok("fetch", f"disk:{models}/bare", tmp_path / "out", *how)
    assert done.out.startswith("0 sidecars") and "--tensors fetches the tensors" in done.err
    (models / "bare/config.json").write_text("{}")
    assert not daemon.cli.ok("fetch", f"disk:{models}/bare", tmp_path / "out", *how).err


def test_what_was_there_already_is_not_told_as_sent(tmp_path):
    (tmp_path / "from").mkdir()
    for name in ("a.bin", "b.bin"):
        (tmp_path / "from" / name).write_bytes(name.encode() * 1000)
    cli = Tensorcast("/tmp/tc-no-daemon.sock")
    assert "there already" not in cli.ok("put", tmp_path / "from", f"disk:{tmp_path}/to").out
    again = cli.ok("put", tmp_path / "from", f"disk:{tmp_path}/to").out
    assert "2 files" in again and "were there already" in again and "/s" not in again, again
    (tmp_path / "from/c.bin").write_bytes(b"new")
    both = cli.ok("put", tmp_path / "from", f"disk:{tmp_path}/to").out.splitlines()
    assert both[0].startswith("1 file, 3 B, to ") and both[1].endswith("were there already"), both
