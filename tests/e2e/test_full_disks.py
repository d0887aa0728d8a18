"""File systems without room: what is written is whole or not there, the error says what is full, and a daemon goes on without
its log and state. Each is a small tmpfs, so these tests run as root."""
import os

import pytest

import checkpoints
from stage import MiB, fill_disk, soon

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")


def visible(folder):
    return {str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)}


COMMANDS = {"fetch": lambda model, to: ["fetch", model, to / "copy", "--all"],
            "export": lambda model, to: ["export", model, "--out", to / "copy"],
            "load": lambda model, to: ["load", model, "--out", to / "copy.safetensors"],
            "put": lambda model, to: ["put", model.removeprefix("disk:"), f"disk:{to}/copy"],
            "manifest": lambda model, to: ["manifest", model, "--out", to / "manifest.json"]}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_onto_a_full_disk_says_so_and_leaves_nothing_that_looks_whole(daemon, models, small_disk, command):
    parts = [{f"w{i}": checkpoints.blob(i, 3 * MiB)} for i in range(4)]
    checkpoints.write(models / "m", *parts)
    sizes = {path.stat().st_size for path in (models / "m").iterdir()}
    full = small_disk(4 * MiB)
    if command == "manifest":
        fill_disk(full)
    outcome = daemon.cli.run(*COMMANDS[command](f"disk:{models}/m", full))
    assert outcome.status == "RESOURCE_EXHAUSTED" and outcome.code == 1 and str(full) in outcome.err, outcome
    left = {name: size for name, size in visible(full).items() if name != "filler"}
    assert set(left.values()) <= sizes, left  # whole files of a fetch or a put may stay, for the next try
    assert command != "load" or not list(full.iterdir()), "not even a hidden file"


def test_loads_go_on_with_a_full_state_folder_and_a_full_log(start, models, small_disk):
    checkpoints.write(models / "m", {"w": checkpoints.blob(1, MiB)})
    state, logs = small_disk(1 * MiB), small_disk(64 << 10)
    daemon = start(running=False, server={"state_dir": str(state)}, logging={"file": str(logs / "log"), "level": "trace"}).start()
    fillers = [fill_disk(state), fill_disk(logs)]
    for _ in range(30):
        daemon.cli.ok("load", f"disk:{models}/m", "--memory", "copied")
        daemon.cli.ok("release", "--all")
    for filler in fillers:
        filler.unlink()
    before = (logs / "log").stat().st_size
    daemon.cli.ok("load", f"disk:{models}/m", "--memory", "copied")
    assert soon(lambda: (logs / "log").stat().st_size > before) and daemon.process.poll() is None
