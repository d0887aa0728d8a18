"""Files of the folder beside the configuration: their order, what --check-config and a reload say of them, and whose they may be."""
import os
import signal
import subprocess

import pytest
import yaml

from stage import DAEMON, soon
from test_log import lines


@pytest.fixture
def folder(start):
    """A daemon that is not started, and its folder of configuration files."""
    daemon = start(running=False)
    folder = daemon.config.with_suffix(".d")
    folder.mkdir()
    return daemon, folder


def ask(daemon, *arguments):
    return subprocess.run([DAEMON, "--config", daemon.config, *arguments], capture_output=True, text=True, timeout=60)


def shown(daemon):
    return yaml.safe_load(ask(daemon, "--print-config").stdout)


def test_files_count_in_the_order_of_their_names(folder):
    daemon, files = folder
    (files / "20-b.yaml").write_text("server: {shutdown_grace: 2s}\nlogging: {level: debug}\n")
    (files / "10-a.yaml").write_text("server: {shutdown_grace: 1s, max_connections_per_uid: 7}\n")
    for name in ("30-c.yml", "40-d.yaml~", ".50-e.yaml", "60-f.yaml.dpkg-old"):
        (files / name).write_text("server: {shutdown_grace: 9s}\n")
    server = shown(daemon)["server"]
    assert (server["shutdown_grace"], server["max_connections_per_uid"], server["socket_path"]) == ("2s", 7, str(daemon.socket))
    done = ask(daemon, "--check-config")
    assert done.stdout.splitlines() == [f"{path}: ok" for path in (daemon.config, files / "10-a.yaml", files / "20-b.yaml")], done
    assert f"shutdown_grace: 2s  # from {files}/20-b.yaml; default 10s" in ask(daemon, "--print-config").stdout


def test_a_mistake_is_told_with_its_file_and_line_and_ends_the_start(folder):
    daemon, files = folder
    (files / "a.yaml").write_text("memory:\n  host_bugdet: 1GiB\n")
    for arguments in (["--check-config"], []):
        done = ask(daemon, *arguments)
        assert done.returncode == 78 and f"{files}/a.yaml:2:3: unknown key memory.host_bugdet" in done.stderr, done


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_regular_file_is_refused_at_once(folder, make):
    daemon, files = folder
    make(files / "a.yaml")
    for arguments in (["--check-config"], ["--print-config"], []):
        done = ask(daemon, *arguments)
        assert done.returncode == 78 and f"the configuration {files}/a.yaml is no regular file: remove it" in done.stderr, done
    found = daemon.cli.run("doctor", "--config", daemon.config, "--json")
    (check,) = [check for check in found.report["checks"] if check["name"] == "configuration"]
    assert check["state"] == "failed" and f"{files}/a.yaml is no regular file" in check["message"], found


def test_a_reload_reads_files_that_were_added_changed_and_taken_away(folder):
    daemon, files = folder
    daemon.start()

    def reload(event):
        n = len(lines(daemon, event))
        daemon.process.send_signal(signal.SIGHUP)
        assert soon(lambda: len(lines(daemon, event)) > n), daemon.log()
        return lines(daemon, event)[-1]
    (files / "a.yaml").write_text("memory: {replica_idle_ttl: 7s}\n")
    assert reload("config_reloaded")["drop_ins"] == "1"
    assert lines(daemon, "config_changed")[-1]["to"] == "7s"
    (files / "a.yaml").write_text("memory: {replica_idle_ttl: x}\n")
    assert f"{files}/a.yaml:1:28:" in reload("config_reload_refused")["message"]
    (files / "a.yaml").unlink()
    assert reload("config_reloaded")["drop_ins"] == "0"
    assert lines(daemon, "config_changed")[-1]["from"] == "7s"


def test_sixty_four_files_are_read_and_one_more_is_refused(folder):
    daemon, files = folder
    for i in range(64):
        (files / f"{i:02}.yaml").write_text(f"server: {{max_connections_per_uid: {i + 1}}}\n")
    assert shown(daemon)["server"]["max_connections_per_uid"] == 64
    (files / "64.yaml").touch()
    done = ask(daemon, "--check-config")
    assert done.returncode == 78 and f"{files} has more than 64 configuration files" in done.stderr, done


@pytest.mark.skipif(os.getuid() != 0, reason="gives files to another user")
def test_a_users_own_daemon_takes_no_file_that_another_user_may_change(tmp_path):
    home = tmp_path / "home"
    files = home / ".config/tensorcast/store_daemon_config.d"
    files.mkdir(parents=True)
    (files / "a.yaml").write_text("memory: {host_budget: 300MiB}\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(tmp_path)}

    def check():
        return subprocess.run([DAEMON, "--user", "--check-config"], capture_output=True, text=True, timeout=60, env=environment)
    done = check()
    assert done.returncode == 0 and f"{files}/a.yaml: ok" in done.stdout, done
    for path in (files / "a.yaml", files):
        os.chown(path, 70001, 70001)
        done = check()
        assert done.returncode == 78 and f"{path} can be changed by another user" in done.stderr, done
        os.chown(path, 0, 0)
