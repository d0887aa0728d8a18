"""A daemon of one's own: without root, without a configuration file, found by clients, closed to others."""
import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checkpoints import blob, write
from stage import CLI, DAEMON, for_everybody, soon


@pytest.fixture
def own(tmp_path):
    """Starts `tensorcastd --user` in an environment of its own; env, a client that is told no socket, its log."""
    home, runtime = tmp_path / "home", tmp_path / "run"
    home.mkdir()
    runtime.mkdir(mode=0o700)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "HF_HUB_CACHE": str(tmp_path / "hub"),
           "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "")}
    made = []

    class Own:
        pass

    own = Own()
    own.env, own.home, own.runtime, own.log = env, home, runtime, tmp_path / "log"
    own.run = lambda program, *args, **more: subprocess.run([program, *map(str, args)], env={**env, **more}, capture_output=True, text=True)

    def start(*args):
        with open(own.log, "a") as log:
            made.append(subprocess.Popen([DAEMON, "--user", *args], env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        assert soon(lambda: own.run(CLI, "status").returncode == 0 or made[-1].poll() is not None), own.log.read_text()
        return made[-1]

    own.start = start
    yield own
    for process in made:
        process.kill()
        process.wait()


@pytest.fixture
def alone():
    """No other run of these tests uses this user's folder in /tmp meanwhile."""
    with open(f"/tmp/.tensorcast-test-{os.geteuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_without_a_session_the_sockets_lie_in_a_folder_of_the_users_own(own, alone):
    """Containers, su and cron have no XDG_RUNTIME_DIR; any user may make a folder in /tmp."""
    session, folder = Path(f"/run/user/{os.geteuid()}"), Path(f"/tmp/tensorcast-{os.geteuid()}")
    if session.exists() or folder.exists():
        pytest.skip("this user has a session, or a daemon")
    del own.env["XDG_RUNTIME_DIR"]
    process = own.start()
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "daemon.sock").is_socket()
    ask = [sys.executable, "-c", "import tensorcast_client as tc; print(tc.connect().status()['pid'])"]
    assert own.run(*ask, PYTHONPATH=os.environ.get("PYTHONPATH", "")).stdout.strip() == str(process.pid)
    folder.chmod(0o777)
    for client in ([CLI, "status"], ask):
        refused = own.run(*client, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
        assert refused.returncode != 0 and "/run/tensorcast/daemon.sock" in refused.stderr, refused
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    folder.rmdir()


def test_it_serves_home_from_folders_of_its_own(own):
    write(own.home / "m", {"w": blob(1, 4096)})
    process = own.start()
    done = own.run(CLI, "load", own.home / "m", "--json")
    assert done.returncode == 0 and own.run(CLI, "load", "disk:/etc").returncode == 1, done
    folder = own.runtime / "tensorcast"
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "daemon.sock").stat().st_mode & 0o777 == 0o600
    assert any((own.home / ".local/state/tensorcast").iterdir())
    assert soon(lambda: re.search(f"event=trusted_root_missing .*{own.env['HF_HUB_CACHE']}", own.log.read_text())), own.log.read_text()
    refused = own.run(CLI, "load", "disk:/etc").stderr
    assert "PERMISSION_DENIED" in refused and str(own.home) in refused, refused
    if os.geteuid() == 0:
        other = subprocess.run([for_everybody(CLI), "--socket", folder / "daemon.sock", "status"], user="nobody", capture_output=True, cwd="/")
        assert other.returncode != 0
    process.send_signal(signal.SIGHUP)  # there is no file to read: what counted counts on
    assert soon(lambda: "event=config_file_missing" in own.log.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0 and not (folder / "daemon.sock").exists()
    assert "config_reloaded" not in own.log.read_text() and "config_changed" not in own.log.read_text()


def test_it_appends_below_home_and_nowhere_else_without_a_configuration(own, tmp_path):
    own.start()
    code = ("import sys, numpy as np, tensorcast_client as tc\n"
            "with tc.connect().activation_store(sys.argv[1], host=3) as store: store.append(0, {1: np.zeros(5, np.float32)})")
    for place, reason in ((own.home / "runs/acts", None), (tmp_path / "acts", "activations.roots")):
        done = own.run(sys.executable, "-c", code, place, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
        assert (done.returncode == 0) == (reason is None) and (reason or "") in done.stderr, done
    assert own.run(CLI, "activations", "status", own.home / "runs/acts").stdout.startswith("host_003  1 samples")
    told = yaml.safe_load(own.run(DAEMON, "--user", "--print-config").stdout)
    assert told["activations"]["roots"] == [str(own.home)]


OPEN = ("import sys, numpy as np, tensorcast_client as tc\n"
        "with tc.connect('/nowhere.sock').activation_store(sys.argv[1], host=int(sys.argv[2]), own_daemon=True) as store:\n"
        "    store.append(0, {1: np.zeros(5, np.float32)})\n"
        "(number, layers), = tc.connect('/nowhere.sock').activation_store(sys.argv[1] + f'/host_00{sys.argv[2]}', own_daemon=True).samples()\n"
        "print(tc.connect().status()['pid'], number)")


def test_a_program_that_appends_starts_it_where_it_does_not_run_and_it_stays(own, tmp_path):
    """Below a folder beside the home, and for processes that come together."""
    env = {**own.env, "PATH": f"{DAEMON.parent}:{own.env['PATH']}", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    words = [sys.executable, "-c", OPEN, f"disk:{tmp_path}/scratch/acts"]
    pid = None
    try:
        both = [subprocess.Popen([*words, str(host)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for host in (1, 2)]
        told = [process.communicate(timeout=60) for process in both]
        assert all(process.returncode == 0 for process in both), told
        pid = int(told[0][0].split()[0])
        assert {out for out, _ in told} == {f"{pid} 0\n"}
        last = subprocess.run([*words, "3"], env=env, capture_output=True, text=True)
        assert last.stdout == f"{pid} 0\n", last
        assert soon(lambda: "event=ready" in (own.home / ".local/state/tensorcast/daemon.log").read_text())
    finally:
        if pid:
            os.kill(pid, signal.SIGTERM)
    assert soon(lambda: not Path(f"/proc/{pid}").exists())


def test_a_daemon_that_cannot_be_started_says_why(own, tmp_path):
    env = {**own.env, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    words = [sys.executable, "-c", OPEN, f"disk:{tmp_path}/acts", "1"]
    missing = subprocess.run(words, env={**env, "PATH": str(tmp_path)}, capture_output=True, text=True)
    assert missing.returncode != 0 and "tensorcastd is not in PATH" in missing.stderr, missing
    file = own.home / ".config/tensorcast/store_daemon_config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("memory: {host_budget: much}\n")
    broken = subprocess.run(words, env={**env, "PATH": f"{DAEMON.parent}:{env['PATH']}"}, capture_output=True, text=True)
    log = own.home / ".local/state/tensorcast/daemon.log"
    assert broken.returncode != 0 and f"see {log}" in broken.stderr and "memory.host_budget" in log.read_text(), broken


def test_what_a_file_says_wins(own, tmp_path):
    file = own.home / ".config/tensorcast/store_daemon_config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(f"memory: {{host_budget: 64MiB}}\nsources: {{disk: {{trusted_roots: [{tmp_path}/models]}}}}\n")
    told = yaml.safe_load(own.run(DAEMON, "--user", "--print-config").stdout)
    assert told["memory"]["host_budget"] == "64MiB" and told["sources"]["disk"]["trusted_roots"] == [f"{tmp_path}/models"]
    assert told["server"]["socket_path"] == f"{own.runtime}/tensorcast/daemon.sock" and told["server"]["socket_mode"] == "0600"
    assert told["server"]["handoff_socket_path"] == f"{own.runtime}/tensorcast/daemon.handoff"
    checked = own.run(DAEMON, "--user", "--check-config")
    assert checked.returncode == 0 and f"{tmp_path}/models" in checked.stderr and str(file) in checked.stdout, checked
    (tmp_path / "other.yaml").write_text("memory: {host_budget: 8MiB}\n")
    other = own.run(DAEMON, "-c", tmp_path / "other.yaml", "--user", "--print-config")
    assert yaml.safe_load(other.stdout)["memory"]["host_budget"] == "8MiB"


def test_what_is_missing_or_wrong_on_the_line_is_named(own, tmp_path):
    done = own.run(DAEMON, "--user", XDG_RUNTIME_DIR="relative")
    assert done.returncode == os.EX_CONFIG and "XDG_RUNTIME_DIR" in done.stderr, done
    done = own.run(DAEMON, tmp_path / "c.yaml")
    assert done.returncode == 2 and f"unexpected argument '{tmp_path}/c.yaml'" in done.stderr and "-c FILE" in done.stderr, done
    (own.runtime / "tensorcast").symlink_to(own.home)
    done = own.run(DAEMON, "--user")
    assert done.returncode == 1 and "tensorcast is no folder" in done.stderr, done


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files to another user")
def test_what_another_user_could_change_is_not_believed(own):
    """As with `sudo -E`: HOME is another user's, and so is what lies there."""
    file, state = own.home / ".config/tensorcast/store_daemon_config.yaml", own.home / ".local/state/tensorcast"
    for folder in (file.parent, state):
        folder.mkdir(parents=True)
    file.write_text("server: {socket_mode: '0666'}\n")
    for path, why in ((file, "FOREIGN_CONFIG"), (state, "FOREIGN_STATE_DIR"), (state.parent, "FOREIGN_STATE_DIR")):
        os.chown(path, 70001, 70001)
        done = own.run(DAEMON, "--user")
        assert done.returncode in (1, os.EX_CONFIG) and str(path) in done.stderr and "user 70001" in done.stderr, (why, done)
        os.chown(path, 0, 0)
    file.chmod(0o666)
    assert own.run(DAEMON, "--user").returncode == os.EX_CONFIG
    assert own.run(DAEMON, "--user", "--print-config", "-c", file).returncode == 0
    file.chmod(0o644)
    own.start()


def test_home_within_the_hubs_cache_is_one_root(own):
    told = yaml.safe_load(own.run(DAEMON, "--user", "--print-config", HF_HUB_CACHE=str(own.home.parent)).stdout)
    assert told["sources"]["disk"]["trusted_roots"] == [str(own.home.parent)]
    told = yaml.safe_load(own.run(DAEMON, "--user", "--print-config", HF_HUB_CACHE="").stdout)
    assert told["sources"]["disk"]["trusted_roots"] == [str(own.home)]


def test_a_file_that_comes_later_is_read_at_the_next_reload(own):
    process = own.start()
    file = own.home / ".config/tensorcast/store_daemon_config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("memory: {host_budget: 72MiB}\nsources: {disk: {trusted_roots: [~/models, '~/more']}}\n")
    process.send_signal(signal.SIGHUP)
    assert soon(lambda: f"config_reloaded file={file}" in own.log.read_text()), own.log.read_text()
    assert "config_changed key=memory.host_budget from=auto to=72MiB" in own.log.read_text()
    assert f'to="[{own.home}/models, {own.home}/more]"' in own.log.read_text()
    file.write_text("memory: {host_bugdet: 72MiB}\n")
    process.send_signal(signal.SIGHUP)
    assert soon(lambda: f"{file.name}:1:10" in own.log.read_text()), own.log.read_text()
    file.unlink()
    process.send_signal(signal.SIGHUP)
    assert soon(lambda: "config_changed key=memory.host_budget from=72MiB to=auto" in own.log.read_text()), own.log.read_text()


def test_roots_of_the_command_line_are_trusted_beside_the_others(own, tmp_path):
    for place in ("data/a", "srv/b", "home/c"):
        write(tmp_path / place, {"w": blob(1, 64)})

    def roots(*args, cwd=tmp_path):
        done = subprocess.run([DAEMON, "--user", *args, "--print-config"], env=own.env, cwd=cwd, capture_output=True, check=True)
        told = yaml.safe_load(done.stdout)
        read, written = told["sources"]["disk"]["trusted_roots"], told["activations"]["roots"]
        assert written == [root for root in read if root != own.env["HF_HUB_CACHE"]] or "-c" in args
        return read

    usual = [str(own.home), own.env["HF_HUB_CACHE"]]
    assert roots("--root", "data", "--root", f"{tmp_path}/srv/") == [*usual, f"{tmp_path}/data", f"{tmp_path}/srv"]
    assert roots("--root", "home/c", "--root", "data/a", "--root", "./data") == [*usual, f"{tmp_path}/data"]
    assert roots("--root", "../srv", cwd=tmp_path / "data") == [*usual, f"{tmp_path}/srv"]
    assert roots("--root", "/") == ["/"]
    (tmp_path / "file.yaml").write_text(f"sources: {{disk: {{trusted_roots: [{tmp_path}/srv]}}}}\n")
    assert roots("--root", "data", "-c", "file.yaml") == [f"{tmp_path}/srv", f"{tmp_path}/data"]
    own.start("--root", tmp_path / "data")
    assert own.run(CLI, "load", tmp_path / "data/a").returncode == 0 and own.run(CLI, "load", tmp_path / "srv/b").returncode == 1
    own_root = ("--user", "--root")
    for wrong, why in (((*own_root, "nowhere"), "--root nowhere"), (("--root", "data"), "--user"), ((*own_root, "file.yaml"), "no folder")):
        done = subprocess.run([DAEMON, *wrong], env=own.env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode in (2, os.EX_CONFIG) and why in done.stderr, done


def test_a_tilde_is_the_home_in_the_users_own_file_alone(own, tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("server: {socket_path: ~/d.sock, state_dir: '~/s'}\nlogging: {file: ~/log}\nprewarm: [{artifact: ~/m}]\n")
    told = yaml.safe_load(own.run(DAEMON, "--user", "-c", file, "--print-config").stdout)
    assert (told["server"]["socket_path"], told["server"]["state_dir"]) == (f"{own.home}/d.sock", f"{own.home}/s")
    assert told["logging"]["file"] == f"{own.home}/log"
    assert told["prewarm"] == [{"artifact": f"disk:{own.home}/m"}]
    done = own.run(DAEMON, "-c", file, "--check-config")
    assert done.returncode == os.EX_CONFIG and "absolute path" in done.stderr and '"~/d.sock"' in done.stderr, done


@pytest.mark.parametrize("what", ["missing", "below a file", "another user's"])
def test_a_runtime_folder_that_is_left_over_is_as_good_as_none(own, alone, tmp_path, what):
    session, folder = Path(f"/run/user/{os.geteuid()}"), Path(f"/tmp/tensorcast-{os.geteuid()}")
    if session.exists() or folder.exists():
        pytest.skip("this user has a session, or a daemon")
    runtime = tmp_path / "gone/run"
    if what == "below a file":
        runtime.parent.write_text("")
    elif what != "missing":
        if os.geteuid() != 0:
            pytest.skip("needs root to give folders to another user")
        runtime.mkdir(parents=True)
        os.chown(runtime, 70001, 70001)
    own.env["XDG_RUNTIME_DIR"] = str(runtime)
    process = own.start()
    try:
        assert (folder / "daemon.sock").is_socket()
        ask = [sys.executable, "-c", "import tensorcast_client as tc; print(tc.connect().status()['pid'])"]
        assert own.run(*ask, PYTHONPATH=os.environ.get("PYTHONPATH", "")).stdout.strip() == str(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        folder.rmdir()


@pytest.mark.parametrize("home", ["/dev/null", "/proc/self", None])
def test_a_home_that_cannot_be_written_is_no_obstacle(own, home):
    own.env.pop("HOME")
    if home:
        own.env["HOME"] = home
    else:
        own.env["XDG_STATE_HOME"] = "/dev/null/state"
    own.start()
    assert soon(lambda: re.search(f"event=state_dir_moved .*to={own.runtime}/tensorcast/state", own.log.read_text())), own.log.read_text()
    assert (own.runtime / "tensorcast/state").stat().st_mode & 0o777 == 0o700
