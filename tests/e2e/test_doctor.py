"""`tensorcast doctor`: each check when it finds something, and bundles: complete, in time, of this user alone, and without secrets."""
import json
import os
import re
import signal
import subprocess
import time

import pytest
import yaml

from checkpoints import blob, write
from stage import MiB, fill_disk, soon, waits_on_a_socket
from store_scene import place
from test_dead_mounts import HangingFiles, why_not

NAMES = {"configuration", "socket", "kernel", "huge_pages", "limits", "permissions", "trusted_roots", "credentials", "plugins", "disk_speed",
         "memory_speed"}


def checks(cli, *arguments):
    """By name; what the exit status says is so, and every problem has advice."""
    done = cli.run("doctor", "--json", *arguments)
    found = {check["name"]: check for check in done.report["checks"]}
    assert done.code == any(check["state"] == "failed" for check in found.values()), done
    assert all(check["message"] and (check["advice"] or check["state"] in ("ok", "skipped")) for check in found.values()), found
    return found


def config(tmp_path, **sections):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def test_a_daemon_that_is_well(daemon, models):
    write(models / "m", {"w": blob(1, 4 * MiB)})
    found = checks(daemon.cli, "--config", daemon.config)
    assert set(found) == NAMES and not [check for check in found.values() if check["state"] == "failed"], found
    assert str(daemon.socket) in found["socket"]["message"] and "serving" in found["socket"]["message"]
    assert found["disk_speed"]["state"] != "skipped" and f"{models}/m/model.safetensors" in found["disk_speed"]["message"]
    shown = daemon.cli.run("doctor", "--config", daemon.config).out
    assert re.search(r"^ok +configuration", shown, re.M) and len(shown.splitlines()) >= len(NAMES)


def test_it_changes_nothing(alone, models, tmp_path):
    path = config(tmp_path, server={"socket_path": f"{tmp_path}/no/d.sock", "state_dir": f"{tmp_path}/state"},
                  sources={"disk": {"trusted_roots": [str(models)]}}, logging={"file": f"{tmp_path}/log"})
    checks(alone, "--config", path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["c.yaml"] and not list(models.iterdir())


@pytest.mark.parametrize("sections,name,state,words", [
    ({"memory": {"host_bugdet": "1GiB"}}, "configuration", "failed", "did you mean memory.host_budget"),
    ({"memory": {"host_budget": "900TiB"}}, "limits", "failed", "900"),
    ({"server": {"socket_mode": "0666"}}, "permissions", "warning", "every user may connect"),
    ({"server": {"socket_group": "no-such-group"}}, "permissions", "failed", "no-such-group"),
    ({"sources": {"disk": {"trusted_roots": ["/no/such", "/etc/passwd"]}}}, "trusted_roots", "warning", "/etc/passwd is no folder"),
    ({"sources": {"hf": {"token_file": "/no/such/token"}}}, "credentials", "failed", "/no/such/token"),
    ({"devices": {"plugin_folder": "/no/such"}}, "plugins", "failed", "/no/such/tensorcast-cuda.so"),
])
def test_what_is_wrong_is_found(alone, tmp_path, sections, name, state, words):
    found = checks(alone, "--config", config(tmp_path, **sections))
    assert found[name]["state"] == state and words in found[name]["message"], found[name]


def test_a_configuration_that_is_no_regular_file_is_refused_at_once(alone, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero"):
        found = checks(alone, "--config", path)["configuration"]
        assert found["state"] == "failed" and found["message"] == f"the configuration {path} is no regular file", found
        assert found["advice"] == "name a regular file"


def test_modes_of_files_are_looked_at(alone, tmp_path):
    (tmp_path / "token").write_text("hf_x")
    (tmp_path / "token").chmod(0o644)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    path = config(tmp_path, server={"state_dir": f"{tmp_path}/open"},
                  sources={"hf": {"token_file": f"{tmp_path}/token"}, "disk": {"trusted_roots": [f"{tmp_path}/open"]}})
    path.chmod(0o666)
    found = checks(alone, "--config", path)
    assert found["permissions"]["state"] == "failed" and "others may write to" in found["permissions"]["message"]
    assert "every user may write" in found["permissions"]["message"] and "others may read" in found["credentials"]["message"]
    assert "replace models" in found["trusted_roots"]["message"] and "hf_x" not in str(found)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_is_told_what_the_user_of_the_daemon_may_not_read(alone, models, tmp_path):
    for name, mode, owner in (("state", 0o700, 4711), ("closed", 0o700, 0), ("open", 0o755, 0)):
        (models / name).mkdir(mode)
        os.chown(models / name, owner, owner)
    path = config(tmp_path, server={"state_dir": f"{models}/state"}, sources={"disk": {"trusted_roots": [f"{models}/closed", f"{models}/open"]}})
    root = checks(alone, "--config", path)["trusted_roots"]
    assert root["state"] == "warning" and root["message"] == f"{models}/closed cannot be read by uid 4711; {models}/open", root


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_is_found(alone, small_disk, tmp_path):
    full = small_disk(4 * MiB)
    path = config(tmp_path, server={"state_dir": str(full)})
    assert str(full) not in checks(alone, "--config", path)["limits"]["message"]
    fill_disk(full)
    limits = checks(alone, "--config", path)["limits"]
    assert limits["state"] == "failed" and f"0 B left for {full}" in limits["message"], limits


def test_credentials_of_the_unit_are_no_mistake_outside_it(alone, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("sources: {hf: {token_file: $CREDENTIALS_DIRECTORY/hf}}\n")
    found = checks(alone, "--config", path)
    assert found["configuration"]["state"] == "ok" == found["credentials"]["state"], found
    assert "sources.hf.token_file comes from systemd" in found["credentials"]["message"]


def test_an_artifact_is_read(alone, fake, models):
    write(models / "m", {"w": blob(1, 4 * MiB)})
    assert "1 tensors" in checks(alone, f"{models}/m")["reference"]["message"]
    assert f"{models}/m/" in checks(alone, f"{models}/m")["disk_speed"]["message"]
    missing = checks(alone, f"{models}/none")["reference"]
    assert missing["state"] == "failed" and "NO_SUCH_FILE" in missing["message"]
    placed = place(fake, "http", {"w": blob(2, 3000)})
    assert checks(alone, placed.reference)["reference"]["state"] == "ok"


@pytest.mark.skipif(why_not() != "", reason=why_not() or "-")
def test_a_root_that_hangs_fails_its_check_alone(alone, models, tmp_path):
    (models / "net").mkdir()
    with HangingFiles(models / "net", {"x/y": b""}) as files:
        path = config(tmp_path, sources={"disk": {"trusted_roots": [f"{models}/net/x"]}})
        files.hangs = {"lookup", "getattr"}
        begun = time.monotonic()
        found = checks(alone, "--config", path)
        assert found["trusted_roots"]["state"] == "failed" and "no answer" in found["trusted_roots"]["message"]
        assert found["memory_speed"]["state"] in ("ok", "warning") and time.monotonic() - begun < 90


# --- bundles ---

def unpacked(path, folder):
    folder.mkdir()
    subprocess.run(["tar", "--zstd", "-xf", path, "-C", folder], check=True)
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


def test_a_bundle_holds_what_a_ticket_needs(daemon, models, tmp_path):
    write(models / "m", {"w": blob(1, 100_000)})
    load_id = daemon.cli.json("load", f"{models}/m")["load_id"]
    assert daemon.logged("event=load_done")
    daemon.configure({**daemon.tree, "logging": {"file": str(daemon.log_path)}})
    told = daemon.cli.json("doctor", "--config", daemon.config, "--bundle", tmp_path / "b.tar.zst")
    files = unpacked(tmp_path / "b.tar.zst", tmp_path / "x")
    assert told["bundle_bytes"] == (tmp_path / "b.tar.zst").stat().st_size and {check["name"] for check in told["checks"]} == NAMES
    assert {"README.txt", "doctor.json", "versions.txt", "config.yaml", "config-in-force.yaml", "environment.txt", "status.json", "blame.json",
            "log.txt", "meminfo.txt", "mounts.txt", "daemon-limits.txt"} <= set(files)
    assert json.loads(files["status.json"])["pid"] == daemon.process.pid and load_id.encode() in files["blame.json"]
    assert b"event=load_done" in files["log.txt"] and b"trusted_roots" in files["config.yaml"] and b"host_budget" in files["config-in-force.yaml"]
    assert json.loads(files["doctor.json"])["checks"][0]["name"] == "configuration"
    for name in ("config.yaml", "config-in-force.yaml"):
        yaml.safe_load(files[name])


def test_of_a_long_log_the_end_is_packed(alone, tmp_path):
    with open(tmp_path / "log", "w") as log:
        for i in range(100_000):
            log.write(f"level=info event=line number={i:09} {'x' * 40}\n")
    alone.ok("doctor", "--config", config(tmp_path, logging={"file": f"{tmp_path}/log"}), "--bundle", tmp_path / "b")
    kept = unpacked(tmp_path / "b", tmp_path / "x")["log.txt"]
    assert len(kept) == 4 * MiB and kept.endswith(b"number=000099999 " + b"x" * 40 + b"\n")


def test_a_daemon_that_hangs_does_not_hold_up_its_bundle(daemon, tmp_path):
    daemon.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    daemon.cli.ok("doctor", "--config", daemon.config, "--bundle", tmp_path / "b.tar.zst")
    daemon.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - begun < 90
    files = unpacked(tmp_path / "b.tar.zst", tmp_path / "x")
    assert b"DEADLINE_EXCEEDED" in files["status.json"] and b"missing: the daemon's status" in files["README.txt"]


def test_a_bundle_has_no_secret_of_the_daemon_or_of_its_caller(start, models, tmp_path):
    secrets = {"AWS_SECRET_ACCESS_KEY": "Aws/Secret+Of_Daemon", "HF_TOKEN": "hf_TokenOfDaemon", "OTEL_EXPORTER_OTLP_HEADERS": "api=Header-Of-Daemon1"}
    (tmp_path / "creds").write_text("[default]\naws_secret_access_key = Secret/In/A.File+1\n")
    daemon = start(running=False, logging={"file": str(tmp_path / "log")}).start(environment=secrets)
    with open(tmp_path / "log", "a") as log:
        log.write("level=debug event=x sent=\"Authorization: Bearer Bearer.Of.A-Request\" url=https://u:UrlPassword@h/a?sig=Signature1 "
                  "hf_TokenOfDaemon Secret/In/A.File+1\n")
    with open(daemon.config, "a") as file:
        file.write("# etcd password: Password-In-A-Comment1\n")
    daemon.cli.environment.update({"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "creds"), "GITHUB_TOKEN": "Token-Of-Another-Tool1",
                                   "HTTPS_PROXY": "http://joe:ProxyPassword1@127.0.0.1:1"})
    daemon.cli.ok("doctor", "--config", daemon.config, "--bundle", tmp_path / "b.tar.zst")
    files = unpacked(tmp_path / "b.tar.zst", tmp_path / "x")
    found = {secret: [name for name, text in files.items() if secret.encode() in text] for secret in
             [*secrets.values(), "Secret/In/A.File+1", "Bearer.Of.A-Request", "UrlPassword", "Signature1", "Password-In-A-Comment1",
              "Token-Of-Another-Tool1", "GITHUB_TOKEN", "ProxyPassword1", "Header-Of-Daemon1"]}
    assert not any(found.values()), found
    environment = files["environment.txt"].decode()
    assert "HTTPS_PROXY=http://" in environment and f"AWS_SHARED_CREDENTIALS_FILE={tmp_path}/creds" in environment
    if os.geteuid() == 0: # who may look into the daemon
        assert "# of the daemon" in environment and "AWS_SECRET_ACCESS_KEY= (hidden)" in environment


def test_a_bundle_is_of_this_user_alone_and_replaces_nothing(alone, tmp_path):
    (tmp_path / "there").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        refused = alone.run("doctor", "--bundle", tmp_path / name)
        assert refused.code == 1 and refused.status == "ALREADY_EXISTS", refused
    assert alone.run("doctor", "--bundle", tmp_path / "no/b").code == 1 and (tmp_path / "there").read_text() == "mine"
    old = os.umask(0)
    try:
        assert alone.run("doctor", "--bundle", tmp_path / "b").code == 0, "what was found is in it"
    finally:
        os.umask(old)
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o600
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b", "link", "there"]


def test_a_bundle_that_is_interrupted_leaves_nothing(daemon, tmp_path):
    daemon.process.send_signal(signal.SIGSTOP)
    process = daemon.cli.spawn("doctor", "--bundle", tmp_path / "b")
    assert soon(lambda: waits_on_a_socket(process)) and not list(tmp_path.iterdir())
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and not list(tmp_path.iterdir())
    daemon.process.send_signal(signal.SIGCONT)
