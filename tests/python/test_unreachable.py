"""What a program is told when it cannot reach a daemon: why, and what to do; and by which classes it can be caught."""
import errno
import grp
import os
import pickle
import stat
import time
from types import SimpleNamespace

import grpc
import pytest
import tensorcast_client as tc
from tensorcast_client import errors, handoff, unreachable

SOMEBODY = 65534
ASK = """
import os, sys, time
import tensorcast_client as tc
import grpc._channel  # which that user may not read
os.setgroups([]), os.setgid(65534), os.setuid(65534)
start = time.monotonic()
try:
    tc.connect(sys.argv[1] or None).artifact("disk:/m").tensor_names
except PermissionError as error:
    print(type(error).__name__, error.code.name, error.reason, error.errno, time.monotonic() - start < 10, error)
"""


@pytest.fixture
def as_somebody(fake, python):
    if os.geteuid():
        pytest.skip("needs root")
    os.chmod(os.path.dirname(fake.socket), 0o755)
    return lambda: python(ASK, fake.socket, PYTHONDONTWRITEBYTECODE="1")


def test_a_socket_that_the_user_may_not_open_is_a_permission_error_with_the_command_that_helps(fake, as_somebody):
    group = next(entry for entry in grp.getgrall() if entry.gr_gid not in (0, SOMEBODY))
    os.chown(fake.socket, 0, group.gr_gid)
    os.chmod(fake.socket, 0o660)
    told = as_somebody()
    assert told.startswith(f"AccessDeniedError PERMISSION_DENIED SOCKET_FORBIDDEN {errno.EACCES} True")
    assert f"(0660 root:{group.gr_name}); have an administrator run: usermod -aG {group.gr_name} nobody, then log in again" in told


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_where_no_group_lets_users_in_the_configuration_is_named(fake, as_somebody, mode):
    os.chmod(fake.socket, mode)
    told = as_somebody()
    assert "SOCKET_FORBIDDEN" in told and "server.socket_mode" in told and "usermod" not in told


def test_a_closed_folder_is_named_instead_of_the_socket_in_it(fake, as_somebody):
    os.chmod(os.path.dirname(fake.socket), 0o700)
    assert f"which is in {os.path.dirname(fake.socket)} (0700 root:root)" in as_somebody()


@pytest.fixture
def nothing_by_default(monkeypatch, tmp_path):
    """Both default sockets, of which neither is there."""
    monkeypatch.delenv("TENSORCAST_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tensorcast_client.client.DEFAULT_SOCKET", str(tmp_path / "system.sock"))
    return str(tmp_path / "system.sock"), f"{tmp_path}/tensorcast/daemon.sock"


def test_without_a_daemon_every_socket_that_was_tried_is_named_and_what_to_do(nothing_by_default):
    with pytest.raises(ConnectionError) as caught:
        tc.connect().artifact("disk:/m").tensor_names
    told, error = str(caught.value), caught.value
    assert isinstance(error, tc.DaemonUnreachableError) and (error.code.name, error.reason) == ("UNAVAILABLE", "DAEMON_UNREACHABLE")
    assert all(path in told for path in nothing_by_default) and "No such file or directory" in told
    assert told.endswith("; start one of your own (tensorcastd --user &)")
    assert "connect failed" not in told and "addresses" not in told and "unix:" not in told
    assert type(pickle.loads(pickle.dumps(error))) is tc.DaemonUnreachableError
    assert str(pickle.loads(pickle.dumps(tc.connect())).channel.other_socket) == nothing_by_default[1]


def test_of_a_socket_that_was_named_no_other_is_told(tmp_path):
    with pytest.raises(tc.DaemonUnreachableError) as caught:
        tc.connect(str(tmp_path / "named.sock")).status()
    assert f"no daemon answers on {tmp_path}/named.sock" in str(caught.value) and "nor on" not in str(caught.value)


def test_a_socket_without_a_listener_says_so(fake):
    fake.stop()
    assert stat.S_ISSOCK(os.stat(fake.socket).st_mode) if os.path.exists(fake.socket) else True
    with pytest.raises(tc.DaemonUnreachableError, match="Connection refused|No such file"):
        tc.connect(fake.socket).status()


def test_one_socket_without_the_other_names_the_folder_to_mount(fake, client):
    with pytest.raises(tc.TensorcastError) as caught:
        handoff.reachable("/run/loader/second.sock", client.channel)
    assert (caught.value.code.name, caught.value.reason) == ("FAILED_PRECONDITION", "HANDOFF_NOT_MOUNTED")
    assert "mount the folder of both sockets (/run/loader), not the socket alone" in str(caught.value)


def test_a_daemon_that_is_gone_is_not_taken_for_one_socket_without_the_other(tmp_path):
    channel = SimpleNamespace(socket_path=str(tmp_path / "daemon.sock"))
    assert handoff.reachable("/run/loader/daemon.handoff", channel) == str(tmp_path / "daemon.handoff")


def test_a_daemon_without_the_method_is_told_with_both_versions(client, monkeypatch):
    monkeypatch.setattr("tensorcast_client.messages.StatusResponse.decode", lambda data: SimpleNamespace(version="0.0.9"), raising=False)
    told = unreachable.too_old(client.channel)
    assert told.code.name == "UNIMPLEMENTED" and "(version 0.0.9)" in str(told) and f"this client (version {tc.__version__})" in str(told)


@pytest.mark.parametrize("reason", ["HOST_BUDGET_EXCEEDED", "DEVICE_BUDGET_EXCEEDED"])
def test_a_full_budget_is_a_memory_error(reason):
    error = errors.make(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room", reason)
    assert isinstance(error, MemoryError) and isinstance(error, tc.BudgetExceededError)


def test_the_drop_in_names_the_missing_right_and_asks_no_daemon_for_every_file(monkeypatch, tmp_path):
    from tensorcast_client.safetensors import fallback
    client = tc.connect(str(tmp_path / "d.sock"))
    (tmp_path / "d.sock").touch()
    monkeypatch.setattr(unreachable, "attempt", lambda path: errno.EACCES)
    denied = unreachable.error(client.socket_path, None)
    assert denied.reason == "SOCKET_FORBIDDEN"
    fallback.note_unreachable(client, denied)
    start = time.monotonic()
    for _ in range(100):
        with pytest.raises(PermissionError, match="may not open the daemon's socket"):
            fallback.check_reachable(client)
    assert time.monotonic() - start < 10
