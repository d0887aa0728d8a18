"""Clients of an earlier build with today's daemon, today's clients with that build's daemon, and one state directory for both.

The earlier one is built from the clone's history: the newest release or, while there is none, a commit that is still in use."""
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from checkpoints import digests, write
from stage import CLI, ROOT, Tensorcast, soon

EARLIER = "22ca331d7050f1cfc9e1387e231cd253f8e83384"
MODEL = {"a.row": np.arange(96, dtype=np.float32).reshape(8, 12), "b.norm": np.arange(12, dtype=np.int16)}
SHA256 = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in MODEL.items()}

PROGRAM = """
import hashlib, json, sys
import numpy as np
import tensorcast_client as tc

reference, acts = sys.argv[1:]
client, told = tc.connect(), {}
art = client.artifact(reference)
with art.tensor_dict() as tensors:
    told["loaded"] = {name: hashlib.sha256(np.ascontiguousarray(tensors[name]).tobytes()).hexdigest() for name in tensors}
told["rows"] = art["a.row"][2:4, 1].tolist()
mine = tc.HostRegion(1 << 20).array("float32", (8, 12))
art.subset(["a.row"]).load_into({"a.row": mine})
told["into"] = hashlib.sha256(mine.tobytes()).hexdigest()
told["explained"] = bool(art.subset(["b.norm"]).explain()["text"])
told["sidecars"] = [sidecar.name for sidecar in art.sidecars()]
with client.activation_store("disk:" + acts, host=0) as store:
    store.append(3, {0: np.arange(4, dtype=np.int32)})
told["samples"] = [(number, layers[0].tolist()) for number, layers in client.activation_store("disk:" + acts).samples()]
told["released"] = client.release()["released_replicas"]
told["version"] = client.status()["version"]
try:
    client.artifact("disk:/nowhere/at/all").tensor_names
except tc.TensorcastError as error:
    told["refused"] = error.reason
print(json.dumps(told))
"""


class Build:
    def __init__(self, folder):
        self.daemon, self.command, self.python = folder / "build/tensorcastd", folder / "build/tensorcast", folder / "client/python"

    def cli(self, daemon):
        cli = Tensorcast(daemon.socket)
        spawn = cli.spawn
        cli.spawn = lambda *arguments, **options: spawn(*arguments, executable=str(self.command), **options)
        return cli

    def start(self, daemon):
        """This build's daemon, with the configuration of today's."""
        return daemon.start(through=["bash", "-c", 'exec "$0" "${@:2}"', str(self.daemon)])


@pytest.fixture(scope="session")
def earlier():
    if subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"{EARLIER}^{{tree}}"], capture_output=True).returncode:
        pytest.skip(f"this clone does not have commit {EARLIER[:8]}; if it is a shallow one: git fetch --unshallow")
    kept = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # between runs, beside the virtual environments
    folder = kept / "tensorcast" / f"earlier-{EARLIER[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "B", "SAN")}
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of another worker of these tests
        if not (folder / "Makefile").exists():
            subprocess.run(f"git -C '{ROOT}' archive {EARLIER} | tar -x -C '{folder}'", shell=True, check=True)
        quickly = ["CFLAGS=-O0", "WERROR=", f"-j{os.cpu_count()}"]  # what it says to others, not how fast it is
        done = subprocess.run(["make", "-C", folder, *quickly, f"COMMIT={EARLIER[:8]}", "build/tensorcastd", "build/tensorcast"],
                              env=environment, capture_output=True, text=True, errors="replace")
        assert done.returncode == 0, done.stderr[-3000:]
    return Build(folder)


@pytest.fixture
def model(models):
    write(models / "m", MODEL)
    (models / "m/config.json").write_text("{}")
    return models / "m"


def commands_work(cli, model, tmp_path):
    reference = f"disk:{model}"
    assert digests(cli.json("load", reference, "--digest")) == SHA256
    assert {tensor["name"] for tensor in cli.json("inspect", reference)["tensors"]} == set(MODEL)
    assert cli.json("explain", reference)["executor"] and cli.ok("verify", reference)
    cli.ok("prewarm", reference, "--pin")
    assert reference in cli.ok("status").out and soon(lambda: cli.json("status")["leases"] == 0)
    cli.ok("unpin", reference)
    cli.ok("release", reference)
    cli.ok("export", reference, "--out", tmp_path / "out")
    outcome = cli.run("load", "disk:/nowhere/at/all")
    assert outcome.failed and outcome.status in ("NOT_FOUND", "PERMISSION_DENIED")


def python_works(daemon, python, model, acts):
    environment = {**os.environ, "PYTHONPATH": str(python), "TENSORCAST_SOCKET": str(daemon.socket)}
    done = subprocess.run([sys.executable, "-c", PROGRAM, f"disk:{model}", str(acts)], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["version"] == daemon.status()["version"]
    return {key: told[key] for key in told if key != "version"} == {
        "loaded": SHA256, "rows": MODEL["a.row"][2:4, 1].tolist(), "into": SHA256["a.row"], "explained": True, "sidecars": ["config.json"],
        "samples": [[3, [0, 1, 2, 3]]], "released": told["released"], "refused": "OUTSIDE_TRUSTED_ROOTS"}, told


def test_earlier_clients_work_with_todays_daemon(earlier, start, models, model, tmp_path):
    daemon = start(activations={"roots": [str(models)]})
    commands_work(earlier.cli(daemon), model, tmp_path)
    works, told = python_works(daemon, earlier.python, model, models / "acts")
    assert works, told


def test_todays_clients_work_with_an_earlier_daemon(earlier, start, models, model, tmp_path):
    daemon = earlier.start(start(running=False, activations={"roots": [str(models)]}))
    assert EARLIER[:8] in daemon.status()["version"]
    commands_work(daemon.cli, model, tmp_path)
    works, told = python_works(daemon, ROOT / "client/python", model, models / "acts")
    assert works, told
    outcome = daemon.cli.run("blame")
    assert outcome.status == "UNIMPLEMENTED" and "has no such method" in outcome.err, outcome


def test_either_daemon_goes_on_with_the_state_of_the_other(earlier, start, model):
    daemon = start(running=False)
    for begin in (earlier.start, lambda one: one.start(), earlier.start):
        begin(daemon)
        assert digests(daemon.cli.json("load", f"disk:{model}", "--digest")) == SHA256
        assert daemon.stop() == 0, daemon.log()
    assert (daemon.state / "format").read_text() == "1\n" and "level=error" not in daemon.log()


def test_the_numbers_that_must_agree_are_printed(daemon):
    said = subprocess.check_output([CLI.with_name("tensorcastd"), "--version"], text=True).splitlines()
    assert said[1].startswith("protocol tensorcast.daemon.v1, hand-off 1, state directory 1, plugins for devices "), said
