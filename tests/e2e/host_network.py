"""Hosts with a network of their own: the thread of the test moves to a switch, and each host sits behind a port of it.

    10.77.0.254, where etcd and stores are started, as bridge      port I <--veth--> host I with 10.77.0.(I + 1)

Namespaces have no names: they end with this process, however it ends.
"""
import ctypes
import os
import subprocess

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


class Network:
    """For `n` hosts. OSError tells what this machine lacks."""
    HERE = "10.77.0.254"

    def __init__(self, n):
        self.holders, self.home = [], os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            if LIBC.unshare(CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"no network namespace: {os.strerror(ctypes.get_errno())}")
            run("ip", "link", "set", "lo", "up")
            run("ip", "link", "add", "switch", "type", "bridge")
            run("ip", "addr", "add", f"{self.HERE}/24", "dev", "switch")
            run("ip", "link", "set", "switch", "up")
            for i in range(n):
                self._add(i)
        except OSError:
            self.close()
            raise

    def _add(self, i):
        holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.holders.append(holder)
        if holder.stdout.readline() != b"up\n":
            raise OSError("no network namespace for a host")
        run("ip", "link", "add", f"port{i}", "type", "veth", "peer", "name", "host", "netns", holder.pid)
        run("ip", "link", "set", f"port{i}", "master", "switch", "up")
        run(*self.through(i), "ip", "link", "set", "host", "up")
        self.give_address(i)

    @staticmethod
    def address(i):
        return f"10.77.0.{i + 1}"

    def through(self, i):
        """The words of a command that runs another one on host `i`."""
        return ["nsenter", f"--net=/proc/{self.holders[i].pid}/ns/net", "--"]

    def cut(self, i):
        """Packets to and from it are lost, and no one is told."""
        run("ip", "link", "set", f"port{i}", "down")

    def mend(self, i):
        run("ip", "link", "set", f"port{i}", "up")

    def isolate(self, i):
        """It reaches no host that is isolated, too."""
        run("ip", "link", "set", f"port{i}", "type", "bridge_slave", "isolated", "on")

    def take_address(self, i):
        run(*self.through(i), "ip", "addr", "flush", "dev", "host")

    def give_address(self, i):
        run(*self.through(i), "ip", "addr", "add", f"{self.address(i)}/24", "dev", "host")

    def disturb(self, i, *how):
        """netem both ways, such as "delay", "20ms", "loss", "1%". OSError: the kernel has none."""
        run("tc", "qdisc", "add", "dev", f"port{i}", "root", "netem", *how)
        run(*self.through(i), "tc", "qdisc", "add", "dev", "host", "root", "netem", *how)

    def close(self):
        LIBC.setns(self.home, CLONE_NEWNET)
        os.close(self.home)
        for holder in self.holders:
            holder.stdin.close()
            holder.stdout.close()
            holder.wait()
