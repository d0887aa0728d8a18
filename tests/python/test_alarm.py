"""Alarms: many of them on one thread, which comes and goes."""
import threading
import time

import pytest
from tensorcast_client import alarm


@pytest.fixture
def alarms():
    return alarm._Alarms()


def n_threads(alarms):
    return sum(thread._target == alarms._run for thread in threading.enumerate() if hasattr(thread, "_target"))


def soon(condition):
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(.005)
    return condition()


def test_many_alarms_share_a_thread_and_ring_in_the_order_of_their_times(alarms):
    rung = []
    alarms.set(3600, lambda: rung.append("never"))
    for seconds in (.2, .1, .3):
        alarms.set(seconds, lambda seconds=seconds: rung.append(seconds))
    assert n_threads(alarms) == 1
    assert soon(lambda: len(rung) == 3) and rung == [.1, .2, .3]


def test_one_that_is_cancelled_does_not_ring(alarms):
    rung, quiet = [], alarms.set(.5, lambda: rung.append("cancelled"))
    alarms.cancel(quiet)
    alarms.set(.6, lambda: rung.append("rings"))
    assert soon(lambda: rung) and rung == ["rings"]
    alarms.cancel(quiet)  # once more is no error


def test_the_thread_ends_when_there_was_nothing_for_a_while_and_comes_again(alarms, monkeypatch):
    monkeypatch.setattr(alarm, "_IDLE_S", .01)
    rung = []
    for _ in range(3):
        alarms.set(.01, lambda: rung.append(1))
        assert soon(lambda: alarms._sleeps_until is None and n_threads(alarms) == 0)
    assert len(rung) == 3


def test_a_forked_child_has_no_alarms_of_its_parents_and_can_set_its_own(python):
    # in a process of its own: gRPC's threads are at work in this one, and its handlers of a fork may wait for them forever
    assert python("""
import os, threading, time
from tensorcast_client.alarm import alarms
rung = []
alarms.set(.05, lambda: rung.append("parent"))
child = os.fork()
if not child:
    own, n_rung = threading.Event(), len(rung)
    alarms.set(.2, own.set)
    os._exit(0 if own.wait(60) and len(rung) == n_rung else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), end=" ")
end = time.monotonic() + 30
while not rung and time.monotonic() < end:
    time.sleep(.005)
print(*rung)""") == "0 parent"
