"""The client of the functions that take none: one for each daemon's socket, made at first use and kept."""
from __future__ import annotations

from .client import Client, connect

_clients: dict[str, Client] = {}  # by socket path; no lock, which a fork could leave locked: setdefault() is one step


def default_client() -> Client:
    """The client of the daemon that connect() finds now, the same for all threads. In a forked child it connects anew."""
    found = connect()
    return _clients.setdefault(found.socket_path, found)
