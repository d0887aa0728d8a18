"""Ports for servers that are told their port. Between the choice and the bind no other process takes one: they are below those that the
kernel gives to connections, and two test runs do not choose the same one, as each holds a name for it in this network until it ends."""
import random
import socket

FIRST, LAST, ABOVE = 10000, 22000, 10000
_held = []


def _takes(number):
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0tensorcast-test-port-{number}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", number))
    except OSError:
        name.close()
        return False
    _held.append(name)
    return True


def free_port(pair=False):
    """pair: the port ABOVE it is free, too."""
    for _ in range(1000):
        number = random.SystemRandom().randrange(FIRST, LAST)
        if _takes(number) and (not pair or _takes(number + ABOVE)):
            return number
    raise AssertionError("no free port")
