"""Every call that an export makes about its files fails, or the process dies in it: the target is absent, old, or complete, and
--resume makes it complete."""
import os
import shutil
import signal
import subprocess
import threading

import numpy as np
import pytest

import checkpoints
from stage import ROOT, SANITIZED, MiB, soon

pytestmark = pytest.mark.skipif(SANITIZED, reason="a library is preloaded before the sanitizer's own")
OPTIONS = ["--format", "topology", "--world-size", "2", "--tp-rule", "*=0", "--uneven", "ceil", "--memory", "16MiB"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "export_faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, ROOT / "tests/fault/export_faults.c", "-ldl"], check=True)
    return path


@pytest.fixture
def source(models):
    rng = np.random.default_rng(3)
    arrays = {f"t{i}": checkpoints.random_array(rng, np.uint16, (128 + i, 512)) for i in range(8)}
    checkpoints.write(models / "m", arrays)
    (models / "m/config.json").write_text("{}")
    return f"disk:{models}/m"


def content(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


class Faulty:
    """Exports with something going wrong."""

    def __init__(self, alone, library, source, folder):
        self.alone, self.library, self.source, self.folder = alone, library, source, folder
        self.out, self.calls = folder / "out", folder.parent / "calls"

    def line(self, at, kind, *more):
        """(words, environment) of the command in which it happens."""
        environment = {**self.alone.environment, "LD_PRELOAD": str(self.library), "EXPORT_FAULT_FOLDER": str(self.folder),
                       "EXPORT_FAULT_AT": str(at), "EXPORT_FAULT_KIND": kind, "EXPORT_FAULT_CALLS": str(self.calls)}
        return ["export", self.source, "--out", self.out, *OPTIONS, *more], environment

    def run(self, at, kind, *more):
        words, environment = self.line(at, kind, *more)
        outcome = self.alone.run(*words, env=environment)
        return outcome, int(self.calls.read_text()) if self.calls.exists() else 0


@pytest.fixture
def faulty(alone, library, source, tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    return Faulty(alone, library, source, folder)


@pytest.fixture
def good(faulty):
    outcome, n_calls = faulty.run(0, "none")
    assert outcome.code == 0, outcome
    assert os.listdir(faulty.folder) == ["out"] and n_calls > 20
    made = content(faulty.out)
    shutil.rmtree(faulty.out)
    return made, n_calls


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "kill", "short"])
def test_whatever_goes_wrong_the_target_is_absent_or_complete_and_can_be_resumed(faulty, good, kind):
    made, n_calls = good
    for at in range(1, n_calls + 1):
        outcome, _ = faulty.run(at, kind)
        assert kind != "short" or outcome.code == 0, (at, outcome)  # a short write is continued
        if kind == "kill" and outcome.code == -signal.SIGKILL or outcome.failed:
            assert kind == "kill" or outcome.status in ("INTERNAL", "RESOURCE_EXHAUSTED", "DATA_LOSS"), (at, outcome)
        else:
            assert outcome.code == 0, (at, outcome)  # there was another way
        if not faulty.out.exists():
            assert outcome.code != 0, (at, outcome)
            faulty.alone.ok("export", faulty.source, "--out", faulty.out, *OPTIONS, "--resume")
            assert os.listdir(faulty.folder) == ["out"], at
        assert content(faulty.out) == made, (at, outcome)
        for left in faulty.folder.iterdir():
            shutil.rmtree(left)


@pytest.mark.parametrize("kind", ["EIO", "kill"])
def test_a_target_that_is_replaced_is_the_old_or_the_new_one(faulty, good, kind):
    made, n_calls = good
    old = {"old.txt": b"old"}
    for at in range(1, n_calls + 5):
        faulty.out.mkdir()
        (faulty.out / "old.txt").write_bytes(b"old")
        outcome, _ = faulty.run(at, kind, "--force")
        assert content(faulty.out) in ((old, made) if outcome.code else (made,)), (at, outcome)
        faulty.alone.ok("export", faulty.source, "--out", faulty.out, *OPTIONS, "--force", "--resume")
        assert content(faulty.out) == made and os.listdir(faulty.folder) == ["out"], at
        shutil.rmtree(faulty.out)


def test_a_wrong_byte_on_the_disk_is_found_by_verify(faulty, good):
    made, n_calls = good
    n_wrong = 0
    for at in range(1, n_calls + 1):
        outcome, _ = faulty.run(at, "flip")
        is_wrong = content(faulty.out) != made
        shutil.rmtree(faulty.out)
        verified, _ = faulty.run(at, "flip", "--verify")
        n_wrong += is_wrong
        if is_wrong:
            assert verified.status == "DATA_LOSS" and "does not hold what was written" in verified.err, (at, verified)
            assert not faulty.out.exists()
        if is_wrong and n_wrong % 8 == 1:  # what is wrong is written again
            faulty.alone.ok("export", faulty.source, "--out", faulty.out, *OPTIONS, "--verify", "--resume")
            assert content(faulty.out) == made, at
        for left in faulty.folder.iterdir():
            shutil.rmtree(left)
    assert n_wrong > 5


def test_what_a_failed_run_has_written_is_not_written_again(faulty, good):
    made, n_calls = good
    resumed = []
    for at in range(n_calls * 2 // 3, n_calls):
        outcome, _ = faulty.run(at, "ENOSPC")
        if outcome.code == 0:
            shutil.rmtree(faulty.out)
            continue
        assert "out" in outcome.err and (outcome.status != "RESOURCE_EXHAUSTED" or "available" in outcome.err), outcome
        if not faulty.out.exists():
            report = faulty.alone.json("export", faulty.source, "--out", faulty.out, *OPTIONS, "--resume")
            assert report["bytes"]["resumed"] + report["bytes"]["read"] >= 8 * 128 * 1024
            resumed.append(report["bytes"]["resumed"])
            assert content(faulty.out) == made
        shutil.rmtree(faulty.out)
    assert max(resumed) > 0


def test_another_command_line_or_source_starts_over(faulty, good, models):
    made, n_calls = good
    n_tried = 0
    for at in range(n_calls - 12, n_calls - 4):
        outcome, _ = faulty.run(at, "EIO")
        if outcome.code != 0 and not faulty.out.exists():
            n_tried += 1
            report = faulty.alone.json("export", faulty.source, "--out", faulty.out, *OPTIONS[:-2], "--no-sidecars",
                                       "--memory", "64MiB", "--resume")
            assert report["bytes"]["resumed"] == 0
            assert {**content(faulty.out), "config.json": b"{}"} == made and os.listdir(faulty.folder) == ["out"]
        shutil.rmtree(faulty.out)
    assert n_tried
    outcome, _ = faulty.run(n_calls * 2 // 3, "kill")
    os.utime(models / "m/model.safetensors")
    report = faulty.alone.json("export", faulty.source, "--out", faulty.out, *OPTIONS, "--resume")
    assert report["bytes"]["resumed"] == 0 and content(faulty.out) == made


def test_a_source_that_changes_meanwhile_leaves_nothing_since_nothing_of_it_can_be_resumed(faulty, good, models):
    made, n_calls = good
    words, environment = faulty.line(n_calls * 2 // 3, "stop")
    process = faulty.alone.spawn(*words, env=environment)
    assert os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT).si_status == signal.SIGSTOP
    os.utime(models / "m/model.safetensors")
    assert os.listdir(faulty.folder) == [".out.exporting"]
    process.send_signal(signal.SIGCONT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 1 and "FAILED_PRECONDITION: " in err and "model.safetensors" in err, err
    assert os.listdir(faulty.folder) == []


def test_a_watcher_of_a_target_that_is_replaced_never_sees_a_gap(alone, source, tmp_path):
    out, seen, stop = tmp_path / "out", [], threading.Event()
    alone.ok("export", source, "--out", out)

    def watch():
        while not stop.is_set():
            seen.append((out / "model.safetensors").exists())

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(5):
        alone.ok("export", source, "--out", out, "--force")
    stop.set()
    thread.join()
    assert seen and all(seen)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_what_resume_needs_and_nothing_else(alone, models, tmp_path, number):
    arrays = {f"t{i}": checkpoints.blob(i, 24 * MiB) for i in range(8)}
    checkpoints.write(models / "big", arrays)
    out, work = tmp_path / "out", tmp_path / ".out.exporting"
    process = alone.spawn("export", f"disk:{models}/big", "--out", out)
    assert soon(lambda: (work / "content/model.safetensors").exists())
    process.send_signal(number)
    err = process.communicate()[1]
    if process.returncode == 130 and not out.exists():
        assert os.listdir(tmp_path) in ([".out.exporting"], [])  # nothing was durable yet
        assert ("--resume" in err) == bool(os.listdir(tmp_path)), err
    else:
        assert process.returncode in (0, 130) and out.exists()  # it was quicker
        shutil.rmtree(out)
    alone.ok("export", f"disk:{models}/big", "--out", out, "--resume")
    assert os.listdir(tmp_path) == ["out"]
    assert {n: checkpoints.digest(a) for n, a in checkpoints.read_back(out / "model.safetensors").items()} == {
        n: checkpoints.digest(a) for n, a in arrays.items()}


def test_a_limit_of_the_size_of_files_is_an_error_that_leaves_nothing(alone, source, tmp_path):
    done = subprocess.run(["prlimit", "--fsize=100000", "--", str(ROOT / "build/tensorcast"), "export", source, "--out",
                           str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "RESOURCE_EXHAUSTED" in done.stderr and "out" in done.stderr
    assert os.listdir(tmp_path) == []
