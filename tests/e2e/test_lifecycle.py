"""Life under a service manager: socket activation, readiness notes, reload, and what a stop leaves behind."""
import fcntl
import os
import re
import resource
import signal
import socket
import subprocess
import sys

import pytest
import yaml

from checkpoints import blob, digest, digests, write
from stage import BUILD, CLI, DAEMON, ROOT, MiB, soon


class Notes:
    """What the daemon tells its service manager."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)
        self.lines = []

    def has(self, line):
        while True:
            try:
                self.lines += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return line in self.lines


@pytest.fixture
def notes(tmp_path):
    notes = Notes(tmp_path / "notify")
    yield notes
    notes.socket.close()


def test_the_service_manager_hears_when_it_is_ready_and_when_it_stops(start, notes):
    daemon = start(running=False)
    daemon.start(environment={"NOTIFY_SOCKET": notes.path})
    assert soon(lambda: notes.has("READY=1")), notes.lines
    assert not notes.has("STOPPING=1")
    assert daemon.stop() == 0
    assert soon(lambda: notes.has("STOPPING=1")), notes.lines


def test_the_state_cannot_be_read_by_other_users(start, tmp_path):
    state = tmp_path / "var" / "lib" / "state"
    start(server={"state_dir": str(state)})
    assert state.stat().st_mode & 0o777 == 0o700
    assert state.parent.stat().st_mode & 0o700 == 0o700  # the rest is the umask's


def test_an_abstract_notify_socket_is_heard_too(start):
    daemon = start(running=False)
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(f"\0tc8-notify-{os.getpid()}")
    manager.settimeout(60)
    daemon.start(environment={"NOTIFY_SOCKET": f"@tc8-notify-{os.getpid()}"})
    assert "READY=1" in manager.recv(4096).decode()


@pytest.fixture
def activated(start):
    """Starts the daemon as systemd does: listening sockets as descriptors 3, 4, LISTEN_PID its own."""
    held = []

    def activate(kinds, names=None, backlog=64, before=lambda daemon: None):
        daemon = start(running=False)
        for path, kind in zip((daemon.socket, daemon.handoff), kinds):
            listener = socket.socket(socket.AF_UNIX, kind)
            listener.bind(str(path))
            listener.listen(backlog)
            held.append(fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD, 100))
            listener.close()
        passed = held[-len(kinds):]
        places = " ".join(f"{3 + i}<&{fd}" for i, fd in enumerate(passed))
        before(daemon)
        environment = {**os.environ, "LISTEN_FDS": str(len(passed)), **({"LISTEN_FDNAMES": names} if names else {})}
        with open(daemon.log_path, "a") as log:
            daemon.process = subprocess.Popen(
                ["bash", "-c", f'export LISTEN_PID=$$; exec "$0" --config "$1" {places}', DAEMON, daemon.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, pass_fds=passed)
        assert soon(daemon.serving), daemon.log()
        return daemon

    yield activate
    for descriptor in held:
        os.close(descriptor)


def test_sockets_of_the_service_manager_are_served_and_left_in_place(activated, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon = activated([socket.SOCK_STREAM])
    assert digests(daemon.cli.json("load", f"disk:{models}/m", "--digest")) == {"w": digest(blob(1, MiB))}
    assert daemon.stop() == 0
    assert daemon.socket.is_socket(), "the socket belongs to the service manager"


def test_a_request_sent_before_the_daemon_runs_is_answered(activated):
    daemon = activated([socket.SOCK_STREAM])
    assert daemon.status()["pid"] == daemon.process.pid


def test_a_client_waits_for_room_in_a_full_backlog(activated):
    waiting = []

    def fill(daemon):
        for _ in range(2):
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            for crowd in waiting:
                crowd.connect(str(daemon.socket))
        late = daemon.cli.run("status", "--timeout", "200ms")
        assert (late.code, late.status) == (124, "DEADLINE_EXCEEDED"), late
        waiting.append(daemon.cli.spawn("status"))
        ask = f"import tensorcast_client as tc; print(tc.connect('unix:{daemon.socket}').status()['pid'] > 0)"
        waiting.append(subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        with pytest.raises(subprocess.TimeoutExpired):
            waiting[-1].wait(1)  # longer than gRPC tries by itself
        assert waiting[-2].poll() is None

    activated([socket.SOCK_STREAM], backlog=0, before=fill)
    for _ in range(2):
        client = waiting.pop()
        out, err = client.communicate(timeout=60)
        assert client.returncode == 0, out + err
    for crowd in waiting:
        crowd.close()


def test_both_sockets_may_come_from_the_service_manager(activated, models):
    write(models / "m", {"w": blob(2, MiB)})
    daemon = activated([socket.SOCK_STREAM, socket.SOCK_SEQPACKET], "tensorcastd.socket:tensorcastd.socket")  # one unit, one name
    assert digests(daemon.cli.json("load", f"disk:{models}/m", "--digest")) == {"w": digest(blob(2, MiB))}
    assert daemon.stop() == 0


def test_descriptors_meant_for_another_process_are_ignored(start):
    daemon = start(running=False)
    daemon.start(environment={"LISTEN_PID": "1", "LISTEN_FDS": "1"})
    assert daemon.serving() and daemon.stop() == 0
    assert not daemon.socket.exists()


def test_a_mistyped_path_makes_no_tree_of_folders(start, tmp_path):
    daemon = start(running=False, server={"socket_path": str(tmp_path / "nonexistent/dir/d.sock")})
    done = subprocess.run([DAEMON, "--config", daemon.config], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and not (tmp_path / "nonexistent").exists()
    assert f"server.socket_path: the folder above {tmp_path}/nonexistent/dir does not exist" in done.stderr, done.stderr
    daemon = start(server={"socket_path": str(tmp_path / "one/d.sock")}, running=False)
    daemon.socket = tmp_path / "one/d.sock"
    assert daemon.start().serving(), "the last folder is made"


def test_the_last_event_is_that_it_has_stopped(daemon, models):
    write(models / "m", {"w": blob(1, MiB)})
    daemon.cli.ok("load", f"disk:{models}/m")
    assert daemon.stop() == 0
    events = [line.split("event=")[1].split()[0] for line in daemon.log().splitlines() if "event=" in line]
    assert "replica_dropped" in events and events[-1] == "stopped", events


def test_trace_tells_of_every_request(start):
    daemon = start(logging={"level": "trace"})
    daemon.cli.ok("status")
    assert soon(lambda: f"level=trace event=request uid={os.getuid()} method=Status pid=" in daemon.log()), daemon.log()


def test_it_takes_as_many_descriptors_as_it_may_have(start):
    daemon = start(limits={"nofile": (128, 4000)})
    assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE) == (4000, 4000)


@pytest.mark.parametrize("action", ["--print-config", "--check-config"])
def test_a_configuration_that_cannot_be_printed_is_an_error(start, action):
    with open("/dev/full", "w") as full:
        done = subprocess.run([DAEMON, "--config", start(running=False).config, action], stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=20)
    assert done.returncode == 1 and "standard output" in done.stderr


def test_a_reload_takes_what_can_change_and_names_what_cannot(start, models):
    daemon = start()
    tree = {**daemon.tree, "logging": {"level": "debug"}}
    tree["server"] = {**tree["server"], "state_dir": str(daemon.folder / "elsewhere"), "handoff_socket_path": str(daemon.folder / "other")}
    daemon.configure(tree)
    daemon.process.send_signal(signal.SIGHUP)
    assert daemon.logged("config_needs_restart key=server.state_dir", "config_needs_restart key=server.handoff_socket_path"), daemon.log()
    write(models / "m", {"w": blob(3, MiB)})
    assert digests(daemon.cli.json("load", f"disk:{models}/m", "--digest")) == {"w": digest(blob(3, MiB))}
    assert soon(lambda: "level=debug" in daemon.log()), daemon.log()


def test_a_reload_trusts_other_roots_and_fits_a_smaller_budget(start, models, tmp_path):
    for i in range(3):
        write(models / f"m{i}", {"w": blob(i, 4 * MiB)})
    daemon = start()
    for i in range(3):
        daemon.cli.ok("load", f"disk:{models}/m{i}")
    assert daemon.cli.run("inspect", f"disk:{tmp_path}").status == "PERMISSION_DENIED"
    daemon.configure({**daemon.tree, "memory": {"host_budget": "9MiB"},
                      "sources": {"disk": {"trusted_roots": [str(models), str(tmp_path)]}}})
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: "config_reloaded" in daemon.log()), daemon.log()
    assert daemon.cli.run("inspect", f"disk:{tmp_path}").status == "NOT_FOUND"
    memory = daemon.status()["memory"]
    assert memory["host_budget_bytes"] == 9 * MiB and memory["used_bytes"] <= 9 * MiB
    assert [replica["artifact"] for replica in daemon.status()["replicas"]] == [f"disk:{models}/m{i}" for i in (1, 2)]


def test_a_bad_file_at_a_reload_keeps_the_old_values_and_the_daemon(start):
    daemon = start()
    daemon.config.write_text("server:\n  socket_pth: /x\n")
    daemon.process.send_signal(signal.SIGHUP)
    assert soon(lambda: "socket_pth" in daemon.log()), daemon.log()
    assert daemon.serving() and daemon.status()["pid"] == daemon.process.pid


@pytest.mark.parametrize("action", [(), ("--check-config",), ("--print-config",)])
def test_a_wrong_configuration_has_an_exit_status_of_its_own(start, action):
    """So that a supervisor does not try it again: RestartPreventExitStatus=78 (EX_CONFIG)."""
    daemon = start(running=False)
    for wrong in ("memory: {staging_budgets: 1MiB}\n", "server: [\n", None):
        if wrong:
            daemon.config.write_text(wrong)
        else:
            daemon.config.unlink()
        done = subprocess.run([DAEMON, "--config", daemon.config, *action], capture_output=True, text=True, timeout=20)
        assert done.returncode == os.EX_CONFIG and str(daemon.config) in done.stderr, done


def test_the_check_looks_at_what_the_file_names(start, tmp_path):
    (tmp_path / "ca.pem").write_text("")
    daemon = start(running=False)
    own = yaml.safe_load(daemon.config.read_text())

    def check(section, **keys):
        daemon.config.write_text(yaml.safe_dump({section: keys}))
        done = subprocess.run([DAEMON, "--config", daemon.config, "--check-config"], capture_output=True, text=True, timeout=20)
        return done.returncode, done.stderr

    for section, keys, key in (("server", {"socket_group": "no-such-group"}, "server.socket_group"),
                               ("logging", {"file": f"{tmp_path}/no/log"}, "logging.file"),
                               ("logging", {"file": f"{tmp_path}"}, "logging.file"),
                               ("tracing", {"otlp_endpoint": "http://user:word@127.0.0.1:4318"}, "tracing.otlp_endpoint"),
                               ("sources", {"http": {"ca_file": f"{tmp_path}/no.pem"}}, "sources.http.ca_file")):
        status, said = check(section, **keys)
        assert status == os.EX_CONFIG and re.search(rf"{daemon.config}:\d+:\d+: {key}: ", said), (key, said)
        daemon.config.write_text(yaml.safe_dump({**own, section: {**own.get(section, {}), **keys}}))
        started = subprocess.run([DAEMON, "--config", daemon.config], capture_output=True, text=True, timeout=20)
        assert started.returncode == os.EX_CONFIG and key in started.stderr and str(daemon.config) in started.stderr, (key, started)
    for section, keys, key in (("limits", {"shared_group": "no-such-group"}, "limits.shared_group"),
                               ("sources", {"gcs": {"credentials_file": f"{tmp_path}/no.json"}}, "sources.gcs.credentials_file"),
                               ("sources", {"hf": {"token_file": f"{tmp_path}/no"}}, "sources.hf.token_file"),
                               ("activations", {"roots": [f"{tmp_path}/no"]}, "activations.roots")):
        status, said = check(section, **keys)
        assert status == 0 and f"warning: {key}: " in said, (key, said)
    assert check("logging", file=f"{tmp_path}/log")[0] == 0 and not (tmp_path / "log").exists()
    assert check("sources", http={"ca_file": f"{tmp_path}/ca.pem"}, disk={"trusted_roots": [str(tmp_path)]}) == (0, "")


def test_the_printed_configuration_starts_a_daemon_again(start):
    daemon = start(running=False)
    printed = subprocess.run([DAEMON, "--config", daemon.config, "--print-config"], capture_output=True, text=True, check=True).stdout
    assert yaml.safe_load(printed)["server"]["socket_path"] == str(daemon.socket)
    daemon.config.write_text(printed)
    assert daemon.start().serving()


def test_the_version_names_the_commit_and_is_the_same_everywhere(daemon):
    version = daemon.status()["version"]
    assert re.fullmatch(re.escape((ROOT / "VERSION").read_text().strip()) + r"(\+[0-9a-f]{7,12})?", version)
    built = re.search('"(.*)"', (BUILD / "gen/commit.h").read_text())[1]
    assert version.endswith(built)
    for program in (DAEMON, CLI):
        assert subprocess.check_output([program, "--version"], text=True).split()[1] == version
    assert daemon.logged(f"version={version} ")


def test_the_shipped_sample_configuration_is_accepted():
    done = subprocess.run([DAEMON, "--config", ROOT / "config/store_daemon_config.yaml", "--check-config"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
