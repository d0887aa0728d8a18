"""A fetch that was cut off goes on where it was, with the same content only."""
import os
import signal

import pytest

import checkpoints
from stage import MiB, Tensorcast, soon

SIZE = 96 * MiB
WAYS = pytest.mark.parametrize("how", [[], ["--standalone"]], ids=["daemon", "standalone"])


@pytest.fixture
def model(fake, tmp_path):
    checkpoints.write(tmp_path / "m", {"w": checkpoints.blob(1, SIZE)})
    fake.world.preload("web", "m", tmp_path / "m")
    return (tmp_path / "m/model.safetensors").read_bytes()


def hidden(folder):
    return [path for path in folder.glob(".*") if path.is_file()] if folder.exists() else []


def cut_off(cli, fake, reference, out, how, sign=signal.SIGINT, folder=None):
    """Fetches until the last part of the file is asked for, which does not come, and the rest is on the disk."""
    fake.fault({"delay": 3600}, match={"covers": SIZE - 1}, times=0)
    process = cli.spawn("fetch", reference, *([out] if folder is None else folder), "--all", *how)
    assert soon(lambda: sum(path.stat().st_size for path in hidden(out)) >= 32 * MiB, 60), hidden(out)
    process.send_signal(sign)
    _, told = process.communicate(timeout=60)
    assert sign == signal.SIGKILL or "the same command goes on with it" in told
    assert process.returncode != 0 and not (out / "model.safetensors").exists()
    fake.faults.clear()
    (left,) = hidden(out)
    assert left.stat().st_mode & 0o777 == 0o600
    return left


def sent(fake):
    return sum(entry["sent"] for entry in fake.requests("web"))


@WAYS
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_fetch_that_was_cut_off_goes_on(daemon, fake, model, tmp_path, how, sign):
    out = tmp_path / "out"
    had = cut_off(daemon.cli, fake, f"{fake.url('web')}/m", out, how, sign).stat().st_size
    fake.journal.clear()
    report = daemon.cli.json("fetch", f"{fake.url('web')}/m", out, "--all", *how)
    assert (out / "model.safetensors").read_bytes() == model and not hidden(out)
    assert report["fetched_bytes"] == len(model) - had and sent(fake) < len(model) - had + 33 * MiB
    assert (out / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~os.umask(os.umask(0o022))


@pytest.mark.parametrize("what", ["content", "readable", "foreign", "link"])
def test_what_others_may_have_written_or_is_of_another_content_is_fetched_anew(daemon, fake, model, tmp_path, what):
    out = tmp_path / "out"
    left = cut_off(daemon.cli, fake, f"{fake.url('web')}/m", out, ["--standalone"])
    if what == "content":
        checkpoints.write(tmp_path / "m", {"w": checkpoints.blob(2, SIZE)})
        fake.world.preload("web", "m", tmp_path / "m")
        model = (tmp_path / "m/model.safetensors").read_bytes()
    elif what == "readable":
        left.chmod(0o644)
    elif what == "foreign":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        os.chown(left, 70001, 70001)
    else:
        left.rename(tmp_path / "moved")
        left.symlink_to(tmp_path / "moved")
    report = daemon.cli.json("fetch", f"{fake.url('web')}/m", out, "--all", "--standalone")
    assert (out / "model.safetensors").read_bytes() == model and report["fetched_bytes"] == len(model)
    assert bool(hidden(out)) == (what != "content")


def test_a_damaged_beginning_is_found_by_the_stores_sum_and_not_gone_on_with_again(fake, tmp_path, monkeypatch):
    checkpoints.write(tmp_path / "m", {"w": checkpoints.blob(1, SIZE)})
    data = (tmp_path / "m/model.safetensors").read_bytes()
    fake.world.put("gcs", "b/m/model.safetensors", data)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url("gcs"))
    cli, out = Tensorcast("/tmp/tc-no-daemon.sock"), tmp_path / "out"
    left = cut_off(cli, fake, "gs://b/m", out, ["--standalone"])
    with open(left, "r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    assert cli.run("fetch", "gs://b/m", out, "--all", "--standalone").status == "DATA_LOSS" and not hidden(out)
    cli.ok("fetch", "gs://b/m", out, "--all", "--standalone")
    assert (out / "model.safetensors").read_bytes() == data


@WAYS
def test_a_fetch_that_fails_or_is_cut_off_early_leaves_no_folder(daemon, fake, model, tmp_path, how):
    fake.fault({"status": 403}, match={"range": "bytes=[1-9]"}, times=0)
    assert daemon.cli.run("fetch", f"{fake.url('web')}/m", tmp_path / "out", "--all", *how).code == 1
    assert not (tmp_path / "out").exists()
    fake.faults.clear()
    rule = fake.fault({"delay": 3600}, match={"range": "bytes=[1-9]"}, times=0)
    process = daemon.cli.spawn("fetch", f"{fake.url('web')}/m", tmp_path / "out", "--all", *how)
    assert soon(lambda: rule.matched)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130 and not (tmp_path / "out").exists()


def test_the_same_command_goes_on_also_where_it_names_no_folder(fake, model, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    cli = Tensorcast("/tmp/tc-no-daemon.sock")
    reference = f"{fake.url('web')}/m"
    left = cut_off(cli, fake, reference, tmp_path / "here/m", ["--standalone"], folder=[])
    had = left.stat().st_size
    done = cli.ok("fetch", reference, "--all", "--standalone").out
    assert (tmp_path / "here/m/model.safetensors").read_bytes() == model and "had come before" in done and had
    assert cli.run("fetch", reference, "--all", "--standalone").status == "ALREADY_EXISTS"
