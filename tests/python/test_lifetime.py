"""How long arrays, leases and clients live: after close, across threads, in forked children, at exit."""
import gc
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import tensorcast_client as tc

REF = "disk:/models/m"


@pytest.fixture(autouse=True)
def tensors(fake):
    fake.put(REF, {"w": ("F32", np.arange(24, dtype=np.uint32).reshape(6, 4)), "b": ("U8", np.arange(9, dtype=np.uint8))})


def load(client, names=("w", "b")):
    return client.artifact(REF).subset(names).tensor_dict(framework="numpy")


def test_an_array_outlives_mapping_and_client(fake):
    client = tc.connect(fake.socket)
    with load(client) as got:
        row = got["w"][2:3]
    del got
    client.close()
    del client
    gc.collect()
    assert fake.leases == 1 and row.view(np.uint32).tolist() == [[8, 9, 10, 11]]
    del row
    assert fake.wait_for_leases(0)


def test_the_mapping_alone_holds_the_lease(fake, client):
    got = load(client)
    gc.collect()
    assert fake.leases == 1
    del got
    assert fake.wait_for_leases(0), "no cycle may keep it for the collector"


def test_leaving_the_context_ends_the_lease_when_no_array_is_kept(fake, client):
    with load(client) as got:
        got["w"].sum()
        assert fake.leases == 1
    assert fake.wait_for_leases(0) and len(got) == 2


def test_a_failed_load_keeps_nothing(fake, client):
    fake.mangle = lambda result: result.layout.sizes.__setitem__(0, 5)
    with pytest.raises(tc.TensorcastError) as caught:
        load(client)
    del caught
    assert fake.wait_for_leases(0)


def test_arrays_stay_when_the_daemon_goes(fake, client):
    got = load(client)
    fake.stop()
    assert got["b"].tolist() == list(range(9))


def test_a_forked_child_loads_with_its_parents_client(python):
    assert python("""
import os, sys, tensorcast_client as tc
client = tc.connect()
art = client.artifact(sys.argv[1])
parent = art.subset(["w"]).tensor_dict(framework="numpy")
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            own = client.artifact(sys.argv[1]).subset(["b", "w"]).tensor_dict(framework="numpy")
            grand = os.fork()
            if grand == 0:
                code = 0 if art.tensor_names == ["w", "b"] else 2
            elif os.waitpid(grand, 0)[1] == 0:
                code = 0 if own["w"].tobytes() == parent["w"].tobytes() else 3
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=" ")
print(art.subset(["b"]).tensor_dict(framework="numpy")["b"].sum())""", REF) == "0 0 0 36"


def test_a_forked_child_that_ends_or_lets_go_leaves_the_parents_lease(fake, python):
    told = python("""
import gc, os, select, socket, sys, tensorcast_client as tc
got = tc.connect().artifact(sys.argv[1]).tensor_dict(framework="numpy")
kept = got["w"]
(lease,) = [int(fd) for fd in os.listdir("/proc/self/fd") if fd.isdigit() and int(fd) > 2
            and os.path.exists(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}").startswith("socket")
            and socket.socket(fileno=os.dup(int(fd))).type == socket.SOCK_SEQPACKET]
for quietly in (True, False):
    pid = os.fork()
    if pid == 0:
        if not quietly:
            del kept, got
            gc.collect()
        os._exit(0)
    print(os.waitpid(pid, 0)[1], end=" ")
    poll = select.poll()
    poll.register(lease, select.POLLRDHUP)
    print(poll.poll(200), end=" ")  # the daemon saw no end, so it did not close its side
print(kept.nbytes)""", REF)
    assert told == "0 [] 0 [] 96"
    assert fake.wait_for_leases(0)


def test_fork_of_a_multiprocessing_pool_works(python):
    assert python("""
import multiprocessing, sys, tensorcast_client as tc
client = tc.connect()
names = client.artifact(sys.argv[1]).tensor_names
def work(name):
    return client.artifact(sys.argv[1]).subset([name]).tensor_dict(framework="numpy")[name].nbytes
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(work, names * 3))""", REF) == "[96, 9, 96, 9, 96, 9]"


def test_when_grpc_came_first_without_fork_support_the_child_says_what_to_do(python):
    assert "import tensorcast_client before grpc" in python("""
import os, sys, grpc, tensorcast_client as tc
client = tc.connect()
client.artifact(sys.argv[1]).tensor_names
read, write = os.pipe()
if os.fork() == 0:
    try:
        client.artifact(sys.argv[1]).tensor_names
    except tc.TensorcastError as error:
        os.write(write, str(error).encode())
    os._exit(0)
os.close(write)
os.wait()
print(os.read(read, 999).decode())""", REF, GRPC_ENABLE_FORK_SUPPORT="")


def test_a_process_that_exits_with_arrays_alive_exits_cleanly(fake, python):
    assert python("""
import sys, threading, time, tensorcast_client as tc
client = tc.connect()
got = client.artifact(sys.argv[1]).tensor_dict(framework="numpy")
w = got["w"]
def read():
    while True: w.sum()
threading.Thread(target=read, daemon=True).start()
time.sleep(.05)
print("bye")""", REF) == "bye"
    assert fake.wait_for_leases(0)


@pytest.mark.parametrize("call", ["art.tensor_names", "art.subset(['w']).tensor_dict(framework='numpy')"])
def test_an_interrupt_ends_a_call_that_waits(fake, call):
    fake.pause = threading.Event()
    # a shell that starts tests in the background has SIGINT ignored, and its children inherit that
    script = (f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
              f"import tensorcast_client as tc; art = tc.connect({fake.socket!r}).artifact({REF!r}); {call}")
    waiting = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    try:
        assert fake.wait_until(lambda: fake.requests)
        waiting.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in waiting.communicate(timeout=60)[1]
    finally:
        waiting.kill()
        fake.pause.set()


def test_changes_to_writable_arrays_stay_in_this_process(fake, client):
    def load_writable():
        return client.artifact(REF).subset(["b"]).tensor_dict(framework="numpy", writable=True)

    first, second = load_writable(), load_writable()
    first["b"][:] = 7
    assert first["b"].tolist() == [7] * 9 and second["b"].tolist() == list(range(9))
    assert load(client)["b"].tolist() == list(range(9))


def test_without_asking_arrays_are_not_writable(client):
    with pytest.raises(ValueError, match="read-only"):
        load(client)["b"][:] = 7
