"""The command line itself: the standalone engine, signals, terminals, pipes, full disks, hostile names."""
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import checkpoints
from stage import CLI, MiB, soon


@pytest.fixture
def small(models):
    rng = np.random.default_rng(1)
    return checkpoints.write(models / "m", {"a.w": checkpoints.random_array(rng, np.float32, (6, 4))},
                             {"a.b": checkpoints.random_array(rng, np.float16, (4,)),
                              "scalar": checkpoints.random_array(rng, np.int64, ())})


@pytest.fixture(scope="module")
def big_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("big")
    checkpoints.write(folder, {"w": checkpoints.blob(2, 512 * MiB)})
    yield folder / "model.safetensors"
    shutil.rmtree(folder)


@pytest.fixture
def big(models, big_file):
    """A checkpoint that takes a while to load; written once, 512 MiB."""
    (models / "big").mkdir()
    os.link(big_file, models / "big" / "model.safetensors")


@pytest.mark.parametrize("executor", ["auto", "generic", "local"])
def test_standalone_loads_what_numpy_slices(alone, models, small, tmp_path, executor):
    view = {"tensors": [{"name": "scalar"}, {"name": "a.w", "slices": [[-4, -1], [1, 3]]}, {"name": "a.b"}], "align": 1}
    report = alone.json("load", f"disk:{models}/m", "--standalone", "--view", "-", "--digest", "--out", tmp_path / "o",
                        "--executor", executor, stdin=json.dumps(view))
    want = {"scalar": small["scalar"], "a.w": small["a.w"][-4:-1, 1:3], "a.b": small["a.b"]}
    got = checkpoints.read_back(tmp_path / "o")
    assert list(got) == list(want) and all(got[name].tobytes() == want[name].tobytes() for name in want)
    assert checkpoints.digests(report) == {name: checkpoints.digest(array) for name, array in want.items()}
    assert [t["offset"] for t in report["tensors"]] == [0, 8, 32]


@pytest.mark.parametrize("name", ["m", "m/", "m/model.safetensors", "deep/er/m", "~odd", "a:b/m"])
def test_a_bare_path_is_taken_when_it_is_there(alone, daemon, models, name):
    folder = models / (name.removesuffix("/model.safetensors"))
    checkpoints.write(folder, {"w": checkpoints.blob(1, 64)})
    path = str(models / name).rstrip("/")
    for cli, more in [(alone, ["--standalone"]), (daemon.cli, [])]:
        if name == "a:b/m":  # which is what references of sources look like
            assert cli.run("load", name, *more, cwd=models).code != 0
        else:
            assert cli.json("load", name, *more, cwd=models)["artifact"] == f"disk:{path}"
            outcome = cli.run("load", name, *more, cwd="/")
            assert outcome.status == "INVALID_ARGUMENT" and f"did you mean ./{name}" in outcome.err


def test_standalone_and_the_daemon_tell_the_same(alone, daemon, models, small):
    for command in [["inspect"], ["verify"], ["explain", "--slice", "a.w[1:3, :]"], ["load", "--tensor", "a.*", "--digest"],
                    ["inspect", "--index", "source"], ["inspect", "--index", "canonical"]]:
        here, there = (cli.json(*command, f"disk:{models}/m", *more) for cli, more in [(alone, ["--standalone"]), (daemon.cli, [])])
        assert set(here) == set(there), command
        for key in ["artifact", "identity", "files", "tensors", "total_bytes"]:
            assert here.get(key) == there.get(key), (command, key)
        if command[0] == "inspect":
            assert here == there


def test_a_view_of_256_mib_is_read_and_one_byte_more_is_refused(alone, models, small, tmp_path):
    view = tmp_path / "view.json"
    view.write_text('{"tensors": [{"name": "scalar"}]}')
    with open(view, "r+b") as file:
        for at in range(0, 256 * MiB, 64 * MiB):  # blanks to the end
            file.seek(max(at, 33))
            file.write(b" " * (min(at + 64 * MiB, 256 * MiB) - max(at, 33)))
    load = ["load", f"disk:{models}/m", "--standalone", "--view", view]
    assert alone.run(*load).code == 0
    with open(view, "ab") as file:
        file.write(b" ")
    done = alone.run(*load)
    assert (done.code, done.status) == (1, "RESOURCE_EXHAUSTED") and "longer than 256 MiB" in done.err, done


def test_a_directory_with_blanks_and_a_relative_path_work_standalone(alone, models, small):
    os.rename(models / "m", models / "two words")
    assert alone.json("inspect", "disk:two words", "--standalone", cwd=models)["artifact"] == "disk:two words"


def test_a_plain_path_is_a_reference_for_every_command(alone, daemon, models, small, tmp_path):
    home = {**os.environ, "TENSORCAST_SOCKET": str(daemon.socket), "HOME": str(models)}
    for text in [f"{models}/m", "./m", "~/m", f"file://{models}/%6d"]:
        for command in [["inspect"], ["load"], ["verify"], ["explain"], ["prewarm"], ["release"]]:
            report = daemon.cli.json(*command, text, cwd=models, env=home)
            assert report.get("artifact", f"disk:{models}/m") == f"disk:{models}/m", (command, text)
        assert alone.json("load", text, "--standalone", cwd=models, env=home)["artifact"] == f"disk:{models}/m"
        daemon.cli.ok("fetch", text, "--sidecars", tmp_path / "side", cwd=models, env=home)
    assert alone.json("export", "./m", "--out", tmp_path / "copy", cwd=models)["tensors"] == 3
    for cli, more in [(alone, ["--standalone"]), (alone, ["--socket", "/nowhere.sock"])]:
        outcome = cli.run("load", "gcs://bucket/m", *more)
        assert (outcome.code, outcome.status) == (1, "INVALID_ARGUMENT") and "gs://bucket/m" in outcome.err, outcome


def test_what_only_a_daemon_can_do_has_no_standalone(alone, models, small):
    for command in ["prewarm", "release"]:
        assert alone.run(command, f"disk:{models}/m", "--standalone").code == 2


def test_an_empty_list_of_slices_is_right_for_a_scalar_and_wrong_for_a_matrix(alone, daemon, models, small):
    for cli, more in [(alone, ["--standalone"]), (daemon.cli, [])]:
        load = ["load", f"disk:{models}/m", "--view", "-", *more]
        cli.ok(*load, stdin=json.dumps({"tensors": [{"name": "scalar", "slices": []}]}))
        outcome = cli.run(*load, stdin=json.dumps({"tensors": [{"name": "a.w", "slices": []}]}))
        assert (outcome.code, outcome.status) == (1, "INVALID_ARGUMENT") and "a.w" in outcome.err, outcome


def test_output_is_complete_while_the_memory_is_held(alone, models, small):
    with alone.spawn("load", f"disk:{models}/m", "--standalone", "--json", "--hold", "60") as process:
        report = json.loads(process.stdout.readline())
        assert process.poll() is None and len(report["tensors"]) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert process.stdout.read() == "" and process.stderr.read() == ""


def catches(process, sig):
    """Whether it has a handler of its own for the signal."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    caught = next(line for line in lines if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (sig - 1) & 1


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0.05, 0.2, 0.4])
def test_an_interrupted_load_leaves_no_file(alone, daemon, models, big, tmp_path, sig, delay):
    for cli, more in [(alone, ["--standalone"]), (daemon.cli, [])]:
        process = cli.spawn("load", f"disk:{models}/big", "--out", tmp_path / "o", "--hold", "60", *more)
        time.sleep(delay)
        assert delay == 0.05 or soon(lambda: catches(process, sig))
        finished = (tmp_path / "o").exists()
        process.send_signal(sig)
        assert process.wait(60) == 130 or delay == 0.05  # before main() a signal kills
        assert os.listdir(tmp_path) in ([], ["o"])
        if (tmp_path / "o").exists():
            assert checkpoints.read_back(tmp_path / "o")["w"].nbytes == 512 * MiB
            os.unlink(tmp_path / "o")
        else:
            assert not finished
    assert soon(daemon.at_rest)


def test_a_killed_load_leaves_no_file_beside_the_output(alone, models, big, tmp_path):
    for delay in [0.1, 0.3, 0.5]:
        process = alone.spawn("load", f"disk:{models}/big", "--standalone", "--out", tmp_path / "o")
        time.sleep(delay)
        process.kill()
        process.wait()
        assert os.listdir(tmp_path) in ([], ["o"])
        if (tmp_path / "o").exists():
            assert checkpoints.read_back(tmp_path / "o")["w"].nbytes == 512 * MiB
            os.unlink(tmp_path / "o")


def test_a_timeout_also_ends_a_standalone_load(alone, models, big):
    outcome = alone.run("load", f"disk:{models}/big", "--standalone", "--timeout", "20ms")
    assert (outcome.code, outcome.status) == (124, "DEADLINE_EXCEEDED"), outcome


def test_options_that_contradict_each_other_are_misuse_and_not_failure(daemon, models, small):
    for wrong in (["--slice", "a.w[0:1, :]", "--slice", "a.w[1:2, :]"], ["--index", "none"]):
        assert daemon.cli.run("load" if wrong[0] == "--slice" else "inspect", f"disk:{models}/m", *wrong).code == 2


@pytest.mark.parametrize("line", [["load"], ["status", "word"], ["load", "./m", "--tp-size", "two"], ["no-such-command"],
                                  ["load", "./m", "--no-such-option"], ["plan", "./m"],
                                  ["activations", "claim", "./s"], ["completion", "tcsh"], ["fetch", "./m", "-x"]], ids=" ".join)
def test_misuse_is_told_to_programs_too(daemon, line):
    for words in ([*line, "--json"], ["--json", *line]):
        wrong = daemon.cli.run(*words)
        error = json.loads(wrong.out)["error"]
        assert wrong.code == 2 and (error["code"], error["reason"], error["metadata"]) == ("INVALID_ARGUMENT", "USAGE", {}), wrong
        assert wrong.err.startswith(f"tensorcast: {error['message']}\n") and daemon.cli.run(*line).out == ""
    taken = daemon.cli.run("load", "./m", "--out", "-", "--json", "--group", "g")
    assert taken.code == 2 and taken.out == "" and '"USAGE"' in taken.err


def test_output_into_a_pipe_is_streamed(alone, models, small, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    alone.ok("load", f"disk:{models}/m", "--standalone", "--out", tmp_path / "pipe")
    reader.join(60)
    (tmp_path / "o").write_bytes(got[0])
    assert set(checkpoints.read_back(tmp_path / "o")) == set(small)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("out", ["-", "/dev/stdout", "/proc/self/fd/1"])
@pytest.mark.parametrize("more", [[], ["--json"], ["--digest"], ["--quiet"]], ids=" ".join)
@pytest.mark.parametrize("redirect", ["| cat >", ">"])
def test_tensors_on_standard_output_are_a_whole_file_and_what_is_said_goes_to_standard_error(
        alone, models, small, tmp_path, out, more, redirect):
    command = f'"{CLI}" load "disk:{models}/m" --standalone --out {out} {" ".join(more)} {redirect} got'
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    got = checkpoints.read_back(tmp_path / "got")
    assert {name: tensor.tobytes() for name, tensor in got.items()} == {name: t.tobytes() for name, t in small.items()}
    assert os.listdir(tmp_path) == ["got"], "no file called -"
    assert (done.stderr == "") if more == ["--quiet"] else (str(models) in done.stderr or "a.w" in done.stderr), done


def test_the_file_that_the_shell_redirects_to_may_be_the_output(models, small, tmp_path):
    command = f'"{CLI}" load "disk:{models}/m" --standalone --out got > got'
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert set(checkpoints.read_back(tmp_path / "got")) == set(small)


def test_a_manifest_is_written_straight_to_a_pipe_and_alone_to_standard_output(alone, models, small, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    alone.ok("manifest", f"disk:{models}/m", "--standalone", "--out", tmp_path / "pipe")
    reader.join(60)
    assert (tmp_path / "pipe").is_fifo(), "it is written to, not replaced"
    for out in ["-", "/dev/stdout"]:
        assert alone.ok("manifest", f"disk:{models}/m", "--standalone", "--out", out, cwd=tmp_path).out == got[0]
    assert json.loads(got[0])["files"] and os.listdir(tmp_path) == ["pipe"]


def test_a_manifest_elsewhere_is_told_where_loads_look_for_it(alone, models, small, tmp_path):
    place = models / "m" / "model.manifest.json"
    said = alone.ok("manifest", f"disk:{models}/m", "--standalone", "--out", tmp_path / "m.json").out
    assert f"copy it to {place}, where loads look for it" in said and "loads find it" not in said
    assert "; loads find it there" in alone.ok("manifest", f"disk:{models}/m", "--standalone", "--out", place).out
    file = next((models / "m").glob("*.safetensors"))
    said = alone.ok("manifest", f"disk:{file}", "--standalone", "--out", tmp_path / "m.json").out
    assert f"copy it to {models}/m/{file.stem}.manifest.json, " in said


def test_sidecars_do_not_go_to_standard_output(alone, models, small, tmp_path):
    outcome = alone.run("fetch", f"disk:{models}/m", "--standalone", "--sidecars", "-", cwd=tmp_path)
    assert outcome.code == 2 and "takes a folder" in outcome.err and os.listdir(tmp_path) == []


@pytest.mark.parametrize("arguments", [["inspect", "disk:{models}/m", "--standalone"], ["--help"], ["load", "--help"], ["--version"]],
                         ids=" ".join)
def test_a_full_standard_output_is_an_error(alone, models, small, arguments):
    with open("/dev/full", "w") as full:
        outcome = alone.spawn(*[word.format(models=models) for word in arguments], stdout=full)
        assert outcome.wait(60) == 1 and "standard output" in outcome.stderr.read()


def test_a_long_result_on_a_full_standard_output_is_told_with_its_reason(alone, models):
    checkpoints.write(models / "m", {f"{'long' * 50}.{n}": np.zeros(1, np.uint8) for n in range(200)})
    with open("/dev/full", "w") as full:
        outcome = alone.spawn("inspect", f"{models}/m", "--standalone", "--json", stdout=full)
        assert outcome.wait(60) == 1 and "No space left on device" in outcome.stderr.read()


RENAME = 'version: 1\nsteps:\n- rename: {"a.w": "x"}\n'
ONE_TENSOR = '{"tensors": [{"name": "scalar"}]}'


def test_a_file_that_is_a_dash_is_standard_input(alone, daemon, models, small, tmp_path):
    for cli, more in ((daemon.cli, []), (alone, ["--standalone"])):
        renamed = cli.json("inspect", f"{models}/m", "--variant", "-", "--tensor", "x", *more, stdin=RENAME)
        assert [tensor["name"] for tensor in renamed["tensors"]] == ["x"]
    shutil.copytree(models / "m", models / "n")
    daemon.cli.ok("prewarm", f"{models}/m", f"{models}/n", "--view", "-", stdin=ONE_TENSOR)
    assert {row["view_tensors"] for row in daemon.status()["replicas"]} == {1} and len(daemon.status()["replicas"]) == 2
    wrong = daemon.cli.run("inspect", f"{models}/m", "--variant", "-", stdin=RENAME.replace("rename", "renam"))
    assert wrong.code == 1 and "standard input:3: step 1: there is no step 'renam'" in wrong.err
    both = daemon.cli.run("load", f"{models}/m", "--variant", "-", "--view", "-", stdin=RENAME)
    assert both.code == 2 and "standard input can be one of" in both.err
    names = alone.json("inspect", f"{models}/m", "--standalone")["tensors"]
    mapping = json.dumps({"weight_map": {tensor["name"]: "one.safetensors" for tensor in names}})
    alone.ok("export", f"{models}/m", "--out", tmp_path / "out", "--mapping", "-", stdin=mapping)
    assert (tmp_path / "out/one.safetensors").is_file()
    whole = alone.run("export", f"{models}/m", "--out", "/dev/stdout")
    assert whole.code == 2 and "a folder to write" in whole.err
    put = alone.run("put", "-", "gs://bucket/x", stdin="x")
    assert put.code == 2 and "read again" in put.err


@pytest.mark.parametrize("spelled, lands", [("{}/a/b", "a/b"), ("{}/a/", "a/file"), ("./a/b", "a/b"), ("file://{}/a%20b/", "a b/file"),
                                            ("disk:{}/a/", "a/file")])
def test_what_is_put_into_a_folder_is_named_as_every_reference_is(alone, tmp_path, spelled, lands):
    (tmp_path / "file").write_bytes(b"text")
    alone.ok("put", "file", spelled.format(tmp_path), cwd=tmp_path)
    assert (tmp_path / lands).read_bytes() == b"text"
    refused = alone.run("put", "file", "gcs://bucket/x", cwd=tmp_path)
    assert refused.status == "INVALID_ARGUMENT" and "did you mean gs://bucket/x?" in refused.err


def test_a_link_to_a_folder_is_called_that_by_put(alone, tmp_path):
    (tmp_path / "in/folder").mkdir(parents=True)
    (tmp_path / "in/link").symlink_to("folder")
    refused = alone.run("put", tmp_path / "in", tmp_path / "out")
    assert refused.status == "INVALID_ARGUMENT" and "in/link is a link to a folder" in refused.err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_standard_output_is_an_error_and_nothing_else_gets_what_is_printed(daemon, models, small, tmp_path, closed):
    command = f'"{CLI}" load "disk:{models}/m" --json --out "{tmp_path}/o" {closed}'
    done = subprocess.run(["bash", "-c", command], env=daemon.cli.environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and done.stdout == ""
    assert "Bad file descriptor" in done.stderr or "2>" in closed
    assert set(checkpoints.read_back(tmp_path / "o")) == set(small)


def test_a_part_file_of_any_name_is_shown_and_loaded(alone, daemon, models):
    (models / "m").mkdir()
    checkpoints.write(models / "other", {"w": checkpoints.blob(1, 64)})
    os.rename(models / "other" / "model.safetensors", os.fsencode(models / "m") + b"/p\xff.safetensors")
    for cli in (daemon.cli, alone):
        more = [] if cli is daemon.cli else ["--standalone"]
        (file,) = cli.json("inspect", f"disk:{models}/m", *more)["files"]
        assert file["name"].endswith(".safetensors") and cli.ok("load", f"disk:{models}/m", *more)
    reference = f"disk:{models}/m".encode()
    with daemon.channel() as channel:
        answer = channel.unary_unary("/tensorcast.daemon.v1.StoreDaemon/Resolve")(b"\x0a" + bytes([len(reference)]) + reference)
    assert b"p\\xff.safetensors" in answer


def test_control_characters_of_names_reach_no_terminal(alone, models):
    evil = "w\x1b[2J\nfake: ok\u202e"
    checkpoints.write(models / "m", {evil: np.zeros((2, 2), np.uint8), "n" * 500: np.zeros(3, np.uint8)})
    reference = f"disk:{models}/m"
    for arguments in [["inspect", reference], ["load", reference, "--digest"], ["explain", reference],
                      ["load", reference, "--slice", evil + "[5, :]"], ["load", reference, "--slice", evil + "[:]"],
                      ["load", reference, "--tensor", evil + "x"], ["load", reference, "--tp-size", "3", "--tp-rank", "0",
                                                                    "--tp-rule", "*=0"]]:
        outcome = alone.run(*arguments, "--standalone")
        text = outcome.out + outcome.err
        assert "\x1b" not in text and "\u202e" not in text and "\nfake" not in text, outcome
        assert max(map(len, text.splitlines())) < 700
    assert {t["name"] for t in alone.json("inspect", reference, "--standalone")["tensors"]} == {evil, "n" * 500}


def on_terminal(arguments, environment):
    """Runs with standard error on a terminal; returns what the terminal got."""
    main, child = pty.openpty()
    process = subprocess.Popen([str(CLI), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=child,
                               env={**environment, "TERM": "xterm"})
    os.close(child)
    seen = b""
    while process.poll() is None or select.select([main], [], [], 0.1)[0]:
        if not select.select([main], [], [], 0.1)[0]:
            continue
        try:
            seen += os.read(main, 4096)
        except OSError:
            break
    os.close(main)
    out = process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0, (out, seen)
    return seen.decode()


def test_the_progress_bar_is_for_terminals_and_is_wiped(alone, models, big):
    load = ["load", f"disk:{models}/big", "--standalone", "--json"]
    with open(models / "big" / "model.safetensors", "rb") as file:  # from the page cache it is over before there is a bar
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    seen = on_terminal(load, alone.environment)
    assert "%" in seen and "read" in seen and seen.endswith("\r\x1b[K")
    assert on_terminal([*load, "--quiet"], alone.environment) == ""


def test_progress_for_programs_ends_with_everything_and_quiet_wins(alone, daemon, models, small):
    for cli, more in [(daemon.cli, []), (alone, ["--standalone"])]:
        for command in ["load", "verify"]:
            told = [json.loads(line) for line in cli.ok(command, f"{models}/m", *more, "--progress", "json").err.splitlines()]
            assert told or command == "verify"
            members = {"stage", "done_bytes", "total_bytes", "bytes_per_second", "eta_s"}
            assert all(set(t) - {"waiting_for"} == members for t in told) # a busy machine lets loads wait
            assert not told or told[-1]["done_bytes"] == told[-1]["total_bytes"] == 112
            for quiet in (["--progress", "json", "--quiet"], ["--progress", "plain"], ["--progress", "none"]):
                assert cli.ok(command, f"{models}/m", *more, *quiet).err == ""
    prewarmed = daemon.cli.ok("prewarm", f"{models}/m", "--progress", "json").err.splitlines()
    assert json.loads(prewarmed[-1])["stage"] == "done" and json.loads(prewarmed[-1])["done_bytes"] == 112
    assert "100%" in daemon.cli.ok("load", f"{models}/m", "--progress", "bar").err
    ranked = ["load", f"{models}/m", "--tp-size", "2", "--tp-rank", "1", "--tp-rule", "*=replicate", "--progress"]
    last = json.loads(daemon.cli.ok(*ranked, "json").err.splitlines()[-1])
    assert (last["rank"], last["world_size"]) == (1, 2) and "rank 1 of 2: " in daemon.cli.ok(*ranked, "bar").err
    outcome = daemon.cli.run("load", f"{models}/m", "--progress", "loud")
    assert outcome.code == 2 and "auto, bar, plain, json, none" in outcome.err


def test_an_empty_slice_is_said_and_an_empty_tensor_is_not(alone, daemon, models):
    save_file({"w": np.zeros((6, 4), np.float32), "none": np.zeros((0, 4), np.float32)}, models / "e.safetensors")
    for cli, more in [(daemon.cli, []), (alone, ["--standalone"])]:
        load = ["load", models / "e.safetensors", *more]
        for words in (["--slice", "w[6:9, :]"], ["--view", "-"]):
            told = cli.ok(*load, *words, stdin='{"tensors": [{"name": "w", "slices": [[6, 9], null]}]}')
            assert told.err == "tensorcast: note: w is empty as it is sliced: it has 6 elements in dimension 0\n"
        for words in ([], ["--slice", "w[0:1, :]"], ["--slice", "none[:, 0:1]"], ["--slice", "w[6:9, :]", "--quiet"]):
            assert cli.ok(*load, *words).err == "", words


def test_what_other_tools_call_the_same_is_understood(alone, daemon, models, small):
    for version in ("version", "-V", "--version"):
        assert alone.ok(version).out.startswith("tensorcast ")
    assert json.loads(daemon.cli.ok("ps", "--json").out)["pid"] == daemon.process.pid
    assert len(daemon.cli.json("ls", f"{models}/m")["tensors"]) == 3
    outcome = alone.run("-v")
    assert outcome.code == 2 and "-V" in outcome.err
    assert daemon.cli.ok("status", "-q").err == ""


def test_help_of_every_command_goes_to_standard_output(alone):
    for command in ["inspect", "load", "explain", "status", "prewarm", "release", "verify"]:
        outcome = alone.ok(command, "--help")
        assert f"tensorcast {command}" in outcome.out and outcome.err == ""


def test_inspect_sums_up_filters_and_has_the_metadata_with_and_without_a_daemon(alone, daemon, models):
    rows = {"model.norm.weight": np.zeros((4,), np.float32), "layers.0.q": np.zeros((10, 3), np.float16), "layers.1.k": np.zeros(2, np.int8)}
    (models / "sums").mkdir()
    save_file(rows, models / "sums/model.safetensors", metadata={"format": "pt", "who": "me"})
    reference = f"disk:{models}/sums"
    for cli, how in [(daemon.cli, []), (alone, ["--standalone"])]:
        told = cli.json("inspect", reference, "--summary", *how)
        assert told["parameters"] == 36 and [(t["dtype"], t["bytes"]) for t in told["dtypes"]] == [("F16", 60), ("F32", 16), ("I8", 2)]
        assert cli.json("inspect", reference, *how)["metadata"] == told["metadata"] == {"format": "pt", "who": "me"}
        part = cli.json("inspect", reference, "--tensor", "layers.?.[qv]", "--tensor", "*norm*", *how)
        assert {t["name"] for t in part["tensors"]} == {"layers.0.q", "model.norm.weight"} and part["total_bytes"] == 78
        assert cli.json("inspect", reference, "--summary", "--tensor", "layers.*", *how)["parameters"] == 32
        for command in ("inspect", "load"):
            wrong = cli.run(command, reference, "--tensor", "model.norm.wieght", *how)
            assert wrong.status == "NOT_FOUND" and re.search(r"did you mean '?model\.norm\.weight'?\?", wrong.err), wrong
        assert cli.run("inspect", reference, "--summary", "--index", "source", *how).code == 2


@pytest.mark.parametrize("name, word", [("pytorch_model.bin", "save_pretrained"), ("model-Q4.gguf", "GGUF is not read"),
                                        ("__0_0.distcp", "dcp_to_torch_save")])
def test_a_folder_of_another_format_is_told_what_to_do(alone, daemon, models, name, word):
    (models / "other").mkdir()
    (models / "other" / name).write_bytes(b"x" * 100)
    for cli, how in [(daemon.cli, []), (alone, ["--standalone"])]:
        refused = cli.run("inspect", f"disk:{models}/other", *how)
        assert refused.status == "NOT_FOUND" and name in refused.err and word in refused.err, refused


@pytest.mark.parametrize("where", [[], ["--standalone"]])
def test_what_a_plan_expects_is_not_told_under_the_names_of_what_a_load_measured(start, models, where):
    checkpoints.write(models / "m", {"w": np.zeros(1000, np.float32)})
    cli = start().cli
    plan, report = (cli.json(command, f"disk:{models}/m", *where) for command in ("explain", "load"))
    assert plan["estimated"]["read_bytes"] == report["bytes"]["read"] == 4000 and plan["estimated"]["execute_ms"] > 0
    assert not {"read"} & set(plan["bytes"]) and "execute" not in plan["ms"] and "load_id" not in plan
    assert "estimated" not in report and report["load_id"] and report["ms"]["execute"] > 0
