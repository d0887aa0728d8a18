"""`tensorcast folder`: an artifact as files in memory, complete or absent, charged, listed, shared, released."""
import json
import mmap
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import checkpoints
from stage import BUILD, ROOT, MiB, soon
from wire import Wire

SIDECARS = {"config.json": b"{}", "tokenizer.model": b"words"}
NOBODY = 65534


@pytest.fixture
def shm():
    folder = Path(tempfile.mkdtemp(prefix="tc-folder-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def model(models):
    folder = models / "m"
    checkpoints.write(folder, {"a": checkpoints.blob(1, 3 * MiB)}, {"b": checkpoints.blob(2, MiB)})
    for name, data in SIDECARS.items():
        (folder / name).write_bytes(data)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def folders(daemon):
    return {row["path"]: row for row in daemon.status()["folders"]}


def used(daemon):
    return daemon.status()["memory"]["used_bytes"]


def test_a_folder_has_the_artifact_s_files_and_belongs_to_the_caller(daemon, model, shm):
    report = daemon.cli.json("folder", f"disk:{model}", shm / "x")
    assert contents(shm / "x") == contents(model) and report["folder"] == str(shm / "x") and os.listdir(shm) == ["x"]
    for path in (shm / "x").iterdir():
        assert path.stat().st_mode & 0o7777 == 0o444 and path.stat().st_uid == os.geteuid()
    size = sum(map(len, contents(model).values()))
    row = folders(daemon)[str(shm / "x")]
    assert row["bytes"] == report["total_bytes"] == size <= used(daemon) and row["artifact"] == f"disk:{model}"
    assert str(shm / "x") in daemon.cli.ok("status").out
    with open(shm / "x" / "config.json", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as kept:
        assert daemon.cli.json("release", shm / "x") == {"released_folders": 1, "released_bytes": size}
        assert kept[:] == b"{}"
    assert os.listdir(shm) == [] and not folders(daemon) and used(daemon) == 0


def test_folders_share_memory_until_the_last_is_released(daemon, model, shm):
    daemon.cli.ok("folder", f"disk:{model}", shm / "one")
    before, read = used(daemon), daemon.status()["memory"]["used_bytes"]
    assert "is there" in daemon.cli.ok("folder", f"disk:{model}", shm / "one").out
    daemon.cli.ok("folder", f"disk:{model}", "two", cwd=shm)
    assert used(daemon) == before == read and len(folders(daemon)) == 2
    assert all(os.path.samefile(shm / "one" / name, shm / "two" / name) for name in os.listdir(model))
    daemon.cli.ok("release", "./one", cwd=shm)
    assert contents(shm / "two") == contents(model) and used(daemon) == before
    daemon.cli.ok("release", shm / "two")
    assert used(daemon) == 0


def test_a_folder_is_released_by_the_name_that_made_it(daemon, model, shm):
    (shm / "sub").mkdir()
    for name in ("plain", "sub/dir", "./dot", ".hidden", "sub/../up"):
        daemon.cli.ok("folder", model, name, cwd=shm)
        assert "released" in daemon.cli.ok("release", name, cwd=shm).out
        assert not folders(daemon) and os.listdir(shm) == ["sub"] and os.listdir(shm / "sub") == []
    nothing = daemon.cli.run("release", "nobody", cwd=shm)
    assert nothing.status == "NOT_FOUND" and "nobody" in nothing.err, nothing


def test_many_callers_at_once_make_one_copy(daemon, model, shm):
    clients = [daemon.cli.spawn("folder", f"disk:{model}", shm / f"{i % 3}") for i in range(9)]
    assert [client.wait(60) for client in clients] == [0] * 9, [client.stderr.read() for client in clients]
    assert sorted(os.listdir(shm)) == ["0", "1", "2"] and all(contents(path) == contents(model) for path in shm.iterdir())
    assert len({(path / "config.json").stat().st_ino for path in shm.iterdir()}) == 1
    assert used(daemon) == sum(map(len, contents(model).values()))
    for client in clients:
        client.communicate()


def test_callers_wait_while_another_makes_it_and_go_on_when_that_one_leaves(daemon, model, shm):
    with daemon.channel() as channel:
        wire = Wire(channel)
        making = wire.call("MakeFolder", wire.message("MakeFolderRequest", path=str(shm / "x"), artifact="disk:/x", identity="x"))
        next(making)
        late, stopped, patient = (daemon.cli.spawn("folder", f"disk:{model}", shm / "x", *more) for more in (["--timeout", "1s"], [], []))
        assert late.wait(60) == 124 and stopped.poll() is None and patient.poll() is None
        assert soon(lambda: daemon.status()["connections"] >= 4)  # the two, this one's and that of status
        stopped.send_signal(signal.SIGINT)
        assert stopped.wait(60) == 130 and os.listdir(shm) == []
        making.cancel()
        assert patient.wait(60) == 0 and contents(shm / "x") == contents(model)
        for client in (late, stopped, patient):
            client.communicate()


def test_a_variant_is_a_folder_too(daemon, models, shm, tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    checkpoints.write(models / "v", {"w": values, "b": values[0].copy()})
    (models / "v" / "config.json").write_text("{}")
    (tmp_path / "r.yaml").write_text("version: 1\nsteps:\n  - cast: {tensors: [w], dtype: F16}\n  - rename: {b: bias}\n")
    daemon.cli.ok("folder", f"disk:{models}/v", shm / "v", "--variant", tmp_path / "r.yaml")
    assert sorted(os.listdir(shm / "v")) == ["config.json", "model.safetensors"]
    raw = (shm / "v" / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + length])
    data = {name: raw[8 + length:][slice(*row["data_offsets"])] for name, row in header.items() if name != "__metadata__"}
    assert data == {"w": values.astype(np.float16).tobytes(), "bias": values[0].tobytes()} and header["w"]["dtype"] == "F16"
    plain = daemon.cli.json("folder", f"disk:{models}/v", shm / "plain")
    assert plain["how"] == "made" and contents(shm / "plain") == contents(models / "v")


def test_a_folder_may_be_of_another_type(daemon, models, shm):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    checkpoints.write(models / "f", {"w": values})
    daemon.cli.ok("folder", f"disk:{models}/f", shm / "f", "--dtype", "float16")
    assert (checkpoints.read_back(shm / "f/model.safetensors")["w"] == values.astype(np.float16)).all()


def test_what_changed_is_never_passed_off_as_the_old(daemon, model, shm):
    daemon.cli.ok("folder", f"disk:{model}", shm / "x")
    before = contents(model)
    (model / "config.json").write_text('{"new": 1}')
    done = daemon.cli.run("folder", f"disk:{model}", shm / "x")
    assert (done.code, done.status) == (1, "FAILED_PRECONDITION") and "release" in done.err, done
    daemon.cli.ok("folder", f"disk:{model}", shm / "y")
    assert contents(shm / "x") == before and contents(shm / "y") == contents(model)


def test_a_folder_that_another_process_changed_is_not_handed_on(daemon, model, shm):
    daemon.cli.ok("folder", f"disk:{model}", shm / "x")
    (shm / "x" / "config.json").chmod(0o644)
    (shm / "x" / "config.json").write_text("[]")
    (shm / "x" / "config.json").chmod(0o444)
    done = daemon.cli.run("folder", f"disk:{model}", shm / "x")
    assert (done.code, done.status) == (1, "FAILED_PRECONDITION") and "config.json" in done.err, done
    daemon.cli.ok("folder", f"disk:{model}", shm / "y")
    assert contents(shm / "y") == contents(model)
    done = daemon.cli.run("release", shm / "x")
    assert (done.code, done.status) == (1, "FAILED_PRECONDITION") and "config.json" in done.err, done
    (shm / "x" / "config.json").unlink()  # the folder itself has been changed by that
    daemon.cli.ok("release", shm / "x")
    assert os.listdir(shm) == ["y"]


@pytest.mark.parametrize("why, words", [("disk", "tmpfs"), ("no parent", "no folder"), ("link", "symbolic link"), ("file", "there already")])
def test_where_no_folder_can_be_made_it_is_refused_and_nothing_is_left(daemon, model, shm, tmp_path, why, words):
    (shm / "real").mkdir()
    (shm / "link").symlink_to("real")
    (shm / "file").write_text("mine")
    path = {"disk": tmp_path / "m", "no parent": shm / "none/m", "link": shm / "link/m", "file": shm / "file"}[why]
    done = daemon.cli.run("folder", f"disk:{model}", path)
    assert done.code == 1 and done.status in ("FAILED_PRECONDITION", "ALREADY_EXISTS") and words in done.err, done
    assert not (tmp_path / "m").exists() and sorted(os.listdir(shm)) == ["file", "link", "real"] and not os.listdir(shm / "real")
    assert not folders(daemon) and used(daemon) == 0
    done = daemon.cli.run("release", path)
    assert done.code == 1 and done.status in ("NOT_FOUND", "PERMISSION_DENIED"), done
    assert (shm / "file").read_text() == "mine"


def test_what_a_user_removes_by_himself_is_given_back(daemon, model, shm):
    daemon.cli.ok("folder", f"disk:{model}", shm / "x")
    shutil.rmtree(shm / "x")
    assert soon(lambda: not folders(daemon) and used(daemon) == 0, 60)
    daemon.cli.ok("folder", f"disk:{model}", shm / "x")
    assert contents(shm / "x") == contents(model)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_next_daemon_lists_charges_and_releases(daemon, model, shm, how):
    daemon.cli.ok("folder", f"disk:{model}", shm / "x")
    daemon.cli.ok("folder", f"disk:{model}", shm / "y")
    before = folders(daemon), used(daemon)
    daemon.process.send_signal(how)
    daemon.process.wait(60)
    assert contents(shm / "x") == contents(model)
    daemon.start()
    assert (folders(daemon), used(daemon)) == before
    assert "is there" in daemon.cli.ok("folder", f"disk:{model}", shm / "x").out
    daemon.cli.ok("release", shm / "x")
    daemon.cli.ok("release", shm / "y")
    assert used(daemon) == 0 and os.listdir(shm) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_users_have_copies_of_their_own(start, model, shm):
    daemon = start(server={"socket_mode": "0666"})
    shm.chmod(0o1777)
    daemon.folder.chmod(0o755)
    daemon.cli.ok("folder", f"disk:{model}", shm / "root")
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    daemon.cli.ok("folder", f"disk:{model}", shm / "theirs", **who)
    assert {path.stat().st_uid for path in (shm / "theirs").iterdir()} == {NOBODY}
    assert used(daemon) == 2 * sum(map(len, contents(model).values()))
    daemon.cli.ok("folder", f"disk:{model}", shm / "root", **who)  # root's is as good as one's own
    done = daemon.cli.run("release", shm / "root", **who)
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
    done = daemon.cli.run("folder", f"disk:{model}", shm / "theirs")
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
    daemon.cli.ok("release", shm / "theirs")
    assert os.listdir(shm) == ["root"]


def test_killed_callers_and_daemons_leave_a_folder_complete_or_absent(daemon, model, shm):
    rng = random.Random(1)
    for turn in range(12):
        client = daemon.cli.spawn("folder" if turn % 3 else "release", *([f"disk:{model}"] if turn % 3 else []), shm / "x")
        time.sleep(rng.uniform(0, 0.08))
        if turn % 4 == 3:
            daemon.process.kill()
            daemon.process.wait(60)
        client.kill()
        client.communicate()
        assert set(os.listdir(shm)) <= {"x", ".x.tensorcast"}
        assert not (shm / "x").exists() or contents(shm / "x") == contents(model)
        if turn % 4 == 3:
            daemon.start()
    if not folders(daemon) and (shm / "x").exists():
        assert soon(lambda: folders(daemon)), "it is there and not listed"
    daemon.cli.ok("folder", f"disk:{model}", shm / "x")
    assert os.listdir(shm) == ["x"] and used(daemon) >= sum(map(len, contents(model).values()))
    daemon.cli.ok("release", shm / "x")
    assert soon(lambda: used(daemon) == 0, 60)


def test_what_a_killed_command_left_goes_with_the_next_folder(daemon, model, shm):
    (shm / ".x.tensorcast").mkdir()
    (shm / ".x.tensorcast" / "config.json").write_text("half")
    daemon.cli.ok("folder", f"disk:{model}", shm / "x")
    assert os.listdir(shm) == ["x"] and contents(shm / "x") == contents(model)


def test_the_example_runs_as_it_is():
    done = subprocess.run(["bash", ROOT / "examples/folder.sh"], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "TENSORCAST_BUILD": str(BUILD)})
    assert done.returncode == 0 and "gone" in done.stdout, done
