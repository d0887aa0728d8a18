"""What programs are told of a failure: an object on standard output, an exit status that tells a retry from a refusal."""
import json
import subprocess

import grpc
import pytest

import checkpoints
from stage import CLI, Tensorcast
from store_scene import *  # noqa: F401,F403  (fixtures)
from store_scene import one


@pytest.fixture
def small(models):
    return checkpoints.write(models / "m", {"w": checkpoints.blob(1, 24), "other": checkpoints.blob(2, 8)})


def error_of(outcome):
    """The error object, which agrees with the line on standard error and with the exit status."""
    report = outcome.report
    error = report["error"]
    assert set(error) == {"code", "reason", "message", "metadata"} and error["reason"].replace("_", "").isupper(), outcome
    assert outcome.failed and outcome.status == error["code"] and error["message"] in outcome.err, outcome
    assert isinstance(error["metadata"], dict)
    return error if set(report) == {"error"} else {**error, "beside": report}


FAILURES = {"no such artifact": (["load", "{m}x"], "NOT_FOUND"), "no such tensor": (["load", "{m}", "--slice", "nobody[:]"], "TENSOR_NOT_FOUND"),
            "outside": (["inspect", "/etc"], "PERMISSION_DENIED"), "bad slice": (["load", "{m}", "--slice", "w[:, :]"], "INVALID_ARGUMENT"),
            "no reference": (["load", "gcs://b/m"], "BAD_REFERENCE"), "no such glob": (["inspect", "{m}", "--tensor", "x*"], ""),
            "bad view": (["load", "{m}", "--view", "/dev/null"], ""), "no folder": (["load", "{m}", "--out", "/nowhere/o"], "")}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_one_object_on_standard_output(daemon, models, small, what):
    words, known = FAILURES[what]
    words = [word.format(m=models / "m") for word in words]
    error = error_of(daemon.cli.run(*words, "--json"))
    assert "beside" not in error and (not known or known in (error["code"], error["reason"]))
    plain = daemon.cli.run(*words)
    assert plain.out == "" and plain.failed
    if words[0] == "load":
        here = error_of(daemon.cli.run(*words, "--json", "--standalone"))
        assert here["code"] == error["code"]


def test_the_object_names_what_the_message_names(daemon, models, small):
    error = error_of(daemon.cli.run("load", f"{models}/m", "--view", "-", "--json", stdin='{"tensors": [{"name": "wx"}]}'))
    assert error["reason"] == "TENSOR_NOT_FOUND" and error["metadata"].get("tensor") == "wx", error


def test_what_is_worth_a_retry_has_an_exit_status_of_its_own():
    alone = Tensorcast("/tmp/tc8-no-daemon-here.sock")
    error = error_of(alone.run("status", "--json"))
    assert (error["code"], error["reason"]) == ("UNAVAILABLE", "DAEMON_UNREACHABLE")
    assert alone.run("status").code == 3


@pytest.mark.parametrize("words, stands_alone", [(["status"], False), (["prewarm", "/m"], False), (["load", "/m"], True), (["fetch", "/m"], True)])
def test_without_a_daemon_every_socket_is_named_and_what_to_do(tmp_path, words, stands_alone):
    alone = Tensorcast("")
    outcome = alone.run(*words, env={**alone.environment, "XDG_RUNTIME_DIR": str(tmp_path)})
    assert outcome.code == 3 and "/run/tensorcast/daemon.sock" in outcome.err and f"{tmp_path}/tensorcast/daemon.sock" in outcome.err
    assert "tensorcastd --user &" in outcome.err and ("--standalone" in outcome.err) == stands_alone


def test_a_user_who_may_not_open_the_socket_is_not_sent_to_try_again(daemon):
    daemon.folder.chmod(0o711)
    error = error_of(daemon.cli.run("status", "--json", user=4711, group=4711, extra_groups=[]))
    assert (error["code"], error["reason"]) == ("PERMISSION_DENIED", "SOCKET_FORBIDDEN")
    assert "user 4711" in error["message"] and f"{daemon.socket} (0660 " in error["message"]


@pytest.mark.parametrize("command", ["load", "inspect"])
def test_one_socket_without_the_other_is_told_only_to_what_needs_both(daemon, models, small, command):
    daemon.handoff.rename(daemon.folder / "elsewhere")
    outcome = daemon.cli.run(command, f"{models}/m", "--json")
    if command == "inspect":
        assert outcome.code == 0
    else:
        error = error_of(outcome)
        assert (error["code"], error["reason"]) == ("FAILED_PRECONDITION", "HANDOFF_NOT_MOUNTED")
        assert f"the folder of both sockets ({daemon.folder})" in error["message"]


def test_wrong_usage_is_text_without_json(daemon):
    outcome = daemon.cli.run("load")
    assert (outcome.code, outcome.out) == (2, "") and "needs an artifact" in outcome.err


def test_a_damaged_artifact_is_told_beside_what_was_checked(daemon, models, small):
    daemon.cli.ok("manifest", f"{models}/m", "--out", models / "m" / "model.manifest.json")
    path = models / "m" / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    error = error_of(daemon.cli.run("verify", f"{models}/m", "--json"))
    assert error["code"] == "DATA_LOSS" and error["beside"]["checked"][0]["status"] == "damaged"


def test_nothing_but_the_file_goes_to_standard_output(daemon, models, small, tmp_path):
    outcome = daemon.cli.run("load", f"{models}/mx", "--out", "-", "--json")
    assert outcome.out == "" and outcome.code == 1 and json.loads(outcome.err.splitlines()[0])["error"]["code"] == "NOT_FOUND"
    for more in [[], ["--json"]]:
        outcome = daemon.cli.ok("manifest", f"{models}/m", "--out", "-", *more)
        assert "files" in json.loads(outcome.out) and "model.manifest.json" in outcome.err
    assert json.loads(outcome.err)["manifest"] == "-"


@pytest.mark.parametrize("where", ["daemon", "standalone"])
def test_a_load_ends_when_no_process_reads_its_result(store_daemon, fake, where):
    placed = one(fake, "http")
    daemon = store_daemon()
    fake.limit("web", bytes_per_s=100_000)  # minutes
    process = subprocess.Popen([CLI, "load", placed.reference, "--out", "-", *(["--standalone"] if where == "standalone" else [])],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=daemon.cli.environment)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(30) == 1 and "the reader of standard output has left" in err, err


@pytest.mark.parametrize("method", ["Resolve", "Explain", "Materialize", "Prewarm", "FetchSidecars", "Verify", "MakeFolder", "Blame"])
def test_an_empty_request_is_refused_and_harms_nothing(daemon, method):
    with daemon.channel() as channel:
        try:
            list(channel.unary_stream(f"/tensorcast.daemon.v1.StoreDaemon/{method}")(b"", timeout=60))
        except grpc.RpcError as error:
            assert error.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND), error
    assert daemon.status()["pid"] == daemon.process.pid
