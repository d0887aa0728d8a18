"""Adapters as folders in memory: which references a request may name, and one copy for all. Needs no vLLM."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from safetensors.torch import load_file, save_file  # noqa: E402
from stage import DAEMON, Daemon  # noqa: E402
from tensorcast_vllm import lora  # noqa: E402

import tensorcast_client as tc  # noqa: E402

ROOTS = ["gs://b/adapters/", "disk:/a"]


@pytest.mark.parametrize("name, meant", [
    ("one", ["gs://b/adapters/one", "disk:/a/one"]), ("team/one.v2", ["gs://b/adapters/team/one.v2", "disk:/a/team/one.v2"]),
    ("disk:/a/x/y", ["disk:/a/x/y"]), ("disk:/a", []), ("disk:/a/../etc", []), ("disk:/abc", []), ("../x", []), ("/etc", []), ("", []),
    ("x/../y", []), ("x//y", []), ("x?y", []), (".hidden", []), ("x" * 513, []), ("gs://other/one", [])])
def test_a_request_names_what_is_below_a_root(name, meant):
    assert lora.candidates(name, ROOTS) == meant


@pytest.fixture
def adapters(tmp_path, monkeypatch):
    monkeypatch.setenv(lora.FOLDER, str(tmp_path / "memory"))
    monkeypatch.setattr(lora, "_held", {})
    monkeypatch.setattr(lora, "_held_bytes", 0)
    folder = tmp_path / "adapters"
    for name, kind in (("one", "LORA"), ("other", "IA3")):
        (folder / name).mkdir(parents=True)
        tensors = {"q.lora_A.weight": torch.arange(12.).reshape(3, 4).bfloat16(), "f8": torch.ones(3).to(torch.float8_e4m3fn)}
        save_file({**tensors, "empty": torch.zeros(0)},
                  folder / name / "adapter_model.safetensors")
        (folder / name / "adapter_config.json").write_text(json.dumps({"peft_type": kind, "r": 3}))
    yield folder
    for handle in lora._held.values():
        os.close(handle)


@pytest.fixture
def daemon(tmp_path):
    if not DAEMON.exists():
        pytest.skip(f"{DAEMON} is not built")
    daemon = Daemon([tmp_path], {}, {}).start()
    yield daemon
    complaint = daemon.remove()
    assert not complaint, complaint


def test_adapters_in_memory_have_a_bound_and_those_that_are_there_stay(daemon, adapters, monkeypatch):
    size = tc.connect(daemon.socket).artifact(f"disk:{adapters}/one").describe()["total_bytes"]
    (adapters / "two").mkdir()
    for path in (adapters / "one").iterdir():
        (adapters / "two" / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv(lora.BUDGET, str(size))
    folder = lora.resolve("one", [f"disk:{adapters}"], daemon.socket)
    with pytest.raises(MemoryError, match=lora.BUDGET):
        lora.resolve("two", [f"disk:{adapters}"], daemon.socket)
    assert lora.resolve("one", [f"disk:{adapters}"], daemon.socket) == folder and len(os.listdir(os.path.dirname(folder))) == 1
    monkeypatch.setenv(lora.BUDGET, str(2 * size))
    assert lora.resolve("two", [f"disk:{adapters}"], daemon.socket) not in (None, folder)


USE = """
import sys, torch
from tensorcast_vllm import lora
print(lora.resolve("one", [sys.argv[1]], sys.argv[2]), flush=True)
sys.stdin.read()
"""


def test_processes_share_a_folder_until_the_last_one_ends(adapters, daemon, tmp_path):
    def other():
        process = subprocess.Popen([sys.executable, "-c", USE, f"disk:{adapters}", str(daemon.socket)], text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        return process, process.stdout.readline().strip()

    process, folder = other()
    mine = lora.resolve("one", [f"disk:{adapters}"], daemon.socket)
    assert mine == folder and sorted(os.listdir(tmp_path / "memory")) == [Path(folder).name]
    theirs, ours = load_file(adapters / "one/adapter_model.safetensors"), load_file(Path(folder) / "adapter_model.safetensors")
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8)) for name, tensor in theirs.items())
    process.communicate("")
    save_file({"q.lora_A.weight": torch.ones(3, 4)}, adapters / "one/new")
    os.replace(adapters / "one/new", adapters / "one/adapter_model.safetensors")
    newer = lora.resolve("one", [f"disk:{adapters}"], daemon.socket)
    assert newer != folder and os.path.isdir(folder), "this process has the old one"


def test_what_is_not_used_any_more_goes_with_the_next_one(adapters, daemon, tmp_path):
    first = lora.resolve("one", [f"disk:{adapters}"], daemon.socket)
    os.close(lora._held.pop(first))
    (adapters / "one/adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 3, "alpha": 1}))
    save_file({"q.lora_A.weight": torch.ones(3, 4)}, adapters / "one/new")
    os.replace(adapters / "one/new", adapters / "one/adapter_model.safetensors")
    second = lora.resolve("one", [f"disk:{adapters}"], daemon.socket)
    assert os.listdir(tmp_path / "memory") == [Path(second).name] and second != first


def test_what_is_no_adapter_is_refused_and_leaves_nothing(adapters, daemon, tmp_path):
    assert lora.resolve("nowhere", [f"disk:{adapters}"], daemon.socket) is None
    with pytest.raises(ValueError, match="is no LoRA adapter: the peft_type"):
        lora.resolve("other", [f"disk:{adapters}"], daemon.socket)
    (tmp_path / "memory").chmod(0o777)
    assert os.listdir(tmp_path / "memory") == []
    with pytest.raises(PermissionError, match="only this user writes to"):
        lora.resolve("one", [f"disk:{adapters}"], daemon.socket)
