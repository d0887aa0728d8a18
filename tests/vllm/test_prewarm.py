"""What an engine asked for the last time: kept, checked, and read by the daemon before the next one asks. Needs no vLLM."""
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

import numpy as np  # noqa: E402
import tensorcast_client as tc  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from stage import DAEMON, Daemon  # noqa: E402
from tensorcast_vllm import last_trace, prewarm  # noqa: E402
from tensorcast_vllm.last_trace import Layout, Request  # noqa: E402
from tensorcast_vllm.options import LoaderOptions  # noqa: E402

REQUESTS = [Request(("b", "a"), {"a": [(0, slice(0, 64)), (1, slice(2, 4))]}, "packed"), Request(("b",), {}, None)]


@pytest.fixture
def folder(tmp_path):
    return Path(last_trace.folder_of("disk:/m", None, Layout(2), tmp_path))


def test_what_was_asked_for_is_read_again(folder):
    last_trace.record(folder, 1, "disk:/m", REQUESTS)
    last_trace.record(folder, 0, "disk:/m", REQUESTS[1:])
    assert last_trace.read(folder, "disk:/m") == [*REQUESTS[1:], *REQUESTS]
    assert last_trace.read(folder, "disk:/other") == [] == last_trace.read(folder.parent / "nowhere", "disk:/m")


def test_each_layout_and_variant_of_a_model_has_its_own(tmp_path):
    layouts = [Layout(), Layout(2), Layout(1, 2), Layout(1, 1, 2), Layout(1, 1, 1, True)]
    folders = {last_trace.folder_of(model, variant, layout, tmp_path) for layout in layouts for model in ("disk:/m", "disk:/n")
               for variant in (None, b"[]")}
    assert len(folders) == 4 * len(layouts)


def test_only_the_last_models_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(last_trace, "MAX_MODELS", 2)
    folders = [Path(last_trace.folder_of(f"disk:/{name}", None, Layout(), tmp_path)) for name in "abc"]
    for at, folder in enumerate(folders):
        last_trace.record(folder, 0, "disk:/x", REQUESTS)
        os.utime(folder, (at, at)) if at < 2 else None
    assert [folder.exists() for folder in folders] == [False, True, True]


def spoil(content, **change):
    return json.dumps({**json.loads(content), **change})


def with_request(content, **change):
    said = json.loads(content)
    return json.dumps({**said, "requests": [{**said["requests"][0], **change}]})


@pytest.mark.parametrize("damage", [
    lambda content: content[:-3], lambda content: "[" * 100000, lambda content: "[]", lambda content: "",
    lambda content: spoil(content, version=2), lambda content: spoil(content, artifact="disk:/other"), lambda content: spoil(content, requests=1),
    lambda content: with_request(content, names=[]), lambda content: with_request(content, names=[1]),
    lambda content: with_request(content, names=["a", "a"]), lambda content: with_request(content, slices={"c": []}),
    lambda content: with_request(content, slices={"a": [[0, 2, 1]]}), lambda content: with_request(content, slices={"a": [[0, -1, 1]]}),
    lambda content: with_request(content, slices={"a": [[True, 0, 1]]}), lambda content: with_request(content, slices={"a": [[0, 0, 1 << 80]]}),
    lambda content: with_request(content, placement="source!")])
def test_a_damaged_file_is_no_hint(folder, damage):
    last_trace.record(folder, 0, "disk:/m", REQUESTS)
    file = folder / "0.json"
    file.write_text(damage(file.read_text()))
    assert last_trace.read(folder, "disk:/m") == []


def test_links_pipes_and_large_files_are_no_hints(folder, monkeypatch):
    last_trace.record(folder, 0, "disk:/m", REQUESTS)
    (folder / "0.json").rename(folder / "kept")
    (folder / "0.json").symlink_to("kept")
    os.mkfifo(folder / "1.json")
    assert last_trace.read(folder, "disk:/m") == []
    (folder / "2.json").write_text((folder / "kept").read_text())
    assert last_trace.read(folder, "disk:/m") == REQUESTS
    monkeypatch.setattr(last_trace, "MAX_BYTES", 10)
    assert last_trace.read(folder, "disk:/m") == []


@pytest.mark.parametrize("words, asked", [
    ("vllm serve /m --load-format tensorcast", ("/m", LoaderOptions(), Layout())),
    ("vllm serve /m --load_format=tensorcast -tp 2 --pipeline-parallel-size=3 -dp 4 --enable-expert-parallel --port 80",
     ("/m", LoaderOptions(), Layout(2, 3, 4, True))),
    ("python -m vllm.entrypoints.openai.api_server --model gs://b/m --load-format tensorcast --model-loader-extra-config {\"socket\":\"/s\"}",
     ("gs://b/m", LoaderOptions(socket="/s"), Layout())),
    ("vllm serve /m --load-format auto", None), ("vllm serve /m", None), ("vllm serve --load-format tensorcast", None),
    ("vllm serve /m --load-format tensorcast -tp two", None), ("vllm serve /m --load-format tensorcast --model-loader-extra-config {", None),
    ("true", None)])
def test_a_command_line_says_what_it_will_load(words, asked):
    assert prewarm.of_command(words.split()) == asked


PROBE = """
import sys, time, os, tensorcast_client as tc
with tc.connect(sys.argv[1]) as client:
    for _ in range(300):
        if client.status()["replicas"] or sys.argv[2] == "no":
            break
        time.sleep(0.1)
    print(len(client.status()["replicas"]), os.environ.get("TENSORCAST_VLLM_PREWARMED"), sys.argv[3:])
"""


@pytest.mark.skipif(not DAEMON.exists(), reason=f"{DAEMON} is not built")
def test_a_program_that_is_run_finds_its_slices_in_the_daemon(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    save_file({"a": np.arange(1 << 16, dtype=np.float32).reshape(1024, 64), "b": np.ones(9, np.int8)}, model / "model.safetensors")
    daemon = Daemon([tmp_path], {}, {}).start()
    artifact, cache = f"disk:{model}", tmp_path / "cache"
    last_trace.record(last_trace.folder_of(artifact, None, Layout(2), cache / "tensorcast"), 0, artifact, REQUESTS[:1])

    def run(*words, wait="yes"):
        program = [sys.executable, "-c", PROBE, str(daemon.socket), wait, *words]
        done = subprocess.run([sys.executable, "-m", "tensorcast_vllm", "run", "--", *program], text=True, capture_output=True, timeout=240, env={
            **os.environ, "XDG_CACHE_HOME": str(cache), "TENSORCAST_SOCKET": str(daemon.socket),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "client/vllm"), *sys.path])})
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    engine = ["serve", str(model), "--load-format", "tensorcast", "-tp"]
    assert run(*engine, "1", wait="no") == f"0 1 {[*engine, '1']}", "another layout"
    assert run("serve", wait="no") == "0 None ['serve']"
    assert run(*engine, "2") == f"1 1 {[*engine, '2']}"
    with tc.connect(daemon.socket) as client:
        view = client.artifact(artifact).subset(["b", "a"]).view(REQUESTS[0].slices, placement="packed")
        with view.tensor_dict(framework="numpy", writable=True, options=tc.Options(memory="copied")) as tensors:
            assert tensors.diagnostics["from_replica"] and tensors["a"].shape == (64, 2)
    complaint = daemon.remove()
    assert not complaint, complaint


LOADS = "import sys, tensorcast_client as tc; print(tc.connect().status()['pid'], sorted(tc.load_file(sys.argv[2], framework='numpy')))"


@pytest.mark.skipif(not DAEMON.exists(), reason=f"{DAEMON} is not built")
def test_an_engine_can_have_a_daemon_of_its_user_started_that_may_read_its_model_and_stays(tmp_path):
    model, home = tmp_path / "models/m", tmp_path / "home"
    model.mkdir(parents=True)
    home.mkdir(mode=0o700)
    save_file({"a": np.ones(9, np.int8)}, model / "model.safetensors")
    env = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "PATH": f"{DAEMON.parent}:{os.environ['PATH']}",
           "PYTHONPATH": os.pathsep.join([str(ROOT / "client/vllm"), *sys.path])}

    def run(*words):
        return subprocess.run([sys.executable, "-m", "tensorcast_vllm", "run", "--daemon", "--", sys.executable, "-c", LOADS, *words],
                              text=True, capture_output=True, timeout=240, env=env)

    pid = None
    try:
        told = [run("serve", str(model), "--load-format", "tensorcast") for _ in range(2)]
        pid = int(told[0].stdout.split()[0])
        assert told[0].stdout == told[1].stdout == f"{pid} ['a']\n", told
        other = run("serve", str(model))
        assert other.returncode == 2 and "--load-format tensorcast" in other.stderr, other
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)


def test_run_without_a_program_is_usage_and_one_that_cannot_be_started_fails_as_in_a_shell():
    nested = ["vllm", "--load-format", "tensorcast", "--model-loader-extra-config", "[" * 100_000]
    for words, status, said in ((["run"], 2, "a program is missing"), (["run", "--"], 2, "a program is missing"),
                                (["run", "--", "/nowhere/vllm"], 127, "/nowhere/vllm: No such"),
                                (["run", "--", "/etc"], 126, "/etc: Permission denied"), (["run", "--", "/bin/false", *nested], 1, "")):
        done = subprocess.run([sys.executable, "-m", "tensorcast_vllm", *words], text=True, capture_output=True, timeout=240,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "client/vllm"), *sys.path])})
        assert done.returncode == status and said in done.stderr and "Traceback" not in done.stderr, done
