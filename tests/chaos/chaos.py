"""Chaos: clients of several users do everything at once, files are replaced under them, the store misbehaves, the
configuration is read again and again; mostly for a daemon that is built with sanitizers.

usage: TENSORCAST_BUILD=build/asan python tests/chaos/chaos.py SECONDS [SEED]        as root: clients run as four users
Fails on a wrong byte, an answer that is never right (INTERNAL, UNKNOWN), a sanitizer's report, a daemon that does not come to
rest, or an exit status that is not 0. The same seed gives the same deeds, not the same order.
"""
import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "fake"), str(HERE)]
import versions  # noqa: E402
from stage import Daemon, soon  # noqa: E402
from stores import Stores  # noqa: E402

USERS = (0, 65534, 30001, 30002) if os.geteuid() == 0 else (os.geteuid(),)
CLIENTS_PER_USER = 2
FAULTS = ({"status": 503, "headers": {"Retry-After": "0"}}, {"truncate": 70000}, {"garbage": "hello"}, {"short": 1000}, {"shift": 1},
          {"close": "before"}, {"whole": True}, {"chunked": True}, {"stall": {"after": 1000, "seconds": 0.3}}, {"extra": 9})


def settings(rng):
    return {"server": {"socket_mode": "0666"},
            "memory": {"host_budget": f"{rng.choice([24, 64, 200])}MiB", "replica_idle_ttl": rng.choice(["0s", "100ms", "10m"])},
            "sources": {"http": {"request_size": "1MiB", "stall_timeout": "1s", "max_tries": 4}},
            "engine": {"materialization_strategy": {"enable_owner_file_collective": True,
                                                    "owner_file_collective_min_dedup_saving_bytes": "0",
                                                    "owner_file_collective_group_assemble_timeout": "2s"}}}


def reconfigure(daemon, rng):
    tree = json.loads(json.dumps(daemon.tree))
    for section, keys in settings(rng).items():
        if section == "memory":
            tree[section] = {**tree.get(section, {}), **keys}
    daemon.configure(tree)
    daemon.process.send_signal(signal.SIGHUP)


def stir(daemon, folder, fake, clients, rng):
    """Until the clients have ended."""
    version = 10
    while any(client.poll() is None for client in clients):
        version = version % 250 + 1
        versions.publish(folder, rng.randrange(versions.N_MODELS), version)
        if rng.random() < 0.3:
            fake.world.put("web", f"models/{versions.name_of(rng.randrange(versions.N_MODELS))}", versions.file_bytes(version))
        if rng.random() < 0.5:
            fake.fault(rng.choice(FAULTS), {"listener": "web", "path": r"\.safetensors"}, times=rng.randint(1, 3))
        if rng.random() < 0.2:
            reconfigure(daemon, rng)
        if daemon.process.poll() is not None:
            return
        time.sleep(rng.random() * 0.2)


def main():
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="tc8-chaos-")).resolve()
    folder.chmod(0o755)
    fake = Stores()
    for model in range(versions.N_MODELS):
        versions.publish(folder, model, model + 1)
        fake.world.put("web", f"models/{versions.name_of(model)}", versions.file_bytes(model + 1))
    tree = settings(rng)
    tree["sources"]["disk"] = {"trusted_roots": [str(folder)]}
    daemon = Daemon([folder], tree, {})
    daemon.folder.chmod(0o755)
    daemon.start()
    clients = [subprocess.Popen([sys.executable, str(HERE / "client.py"), str(USERS[i % len(USERS)]), str(seed * 1000 + i),
                                 str(seconds), str(daemon.socket), str(daemon.handoff), str(folder), fake.url("web")],
                                stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
               for i in range(CLIENTS_PER_USER * len(USERS))]
    stir(daemon, folder, fake, clients, rng)
    problems, counts = [], collections.Counter()
    for client in clients:
        out = client.communicate(timeout=120)[0]
        if client.returncode:
            problems.append(f"client: {out or 'died'}")
        else:
            counts.update(json.loads(out))
    if daemon.process.poll() is not None:
        problems.append(f"the daemon ended with {daemon.process.returncode}:\n{daemon.log()[-3000:]}")
    else:
        if not soon(daemon.at_rest, 60):
            problems.append(f"not at rest: {daemon.status()}")
        code = daemon.stop(60)
        if code:
            problems.append(f"exit status {code}:\n{daemon.log()[-3000:]}")
    complaint = daemon.remove()
    problems += [complaint] if complaint else []
    fake.close()
    shutil.rmtree(folder, ignore_errors=True)
    for name, count in sorted(counts.items()):
        print(f"{count:7} {name}")
    for problem in problems:
        print("PROBLEM", problem)
    print(f"chaos: {sum(counts.values())} deeds of {len(clients)} clients and {len(USERS)} users in {seconds:g} s, seed {seed}, "
          f"{len(problems)} problems")
    sys.exit(bool(problems))


main()
