"""One timed load from a store: the same starts, touched bytes and checks as contest.py, and what the store had to send."""
import hashlib
import json
import os
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import contest
import machine
from contest import Case, Failed, Rank, Service
from loaders import Job

CONNECTIONS, QUIET_S = 16, 1


@dataclass(frozen=True)
class StoreCase(Case):
    """A folder that a store serves, too: below `url`, under the folder's own name."""
    url: str = ""
    ca_file: str = ""
    sources: tuple = ()

    def title(self):
        return self.name

    def reference(self):
        return f"{self.url}/{self.folder.name}"


class Download(Rank):
    """Plain libcurl, as a worker."""

    def __init__(self, bench, contender, case):
        objects = [text for path in case.files() for text in (f"{case.reference()}/{path.name}", path.stat().st_size)]
        command = [bench.build / "bench" / "download", contender.loader.split()[1], CONNECTIONS, case.ca_file or "-", *objects]
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)


class Watched:
    """A server's processes: what they have written to clients, `factor` bytes for each that a client gets (some servers pass
    bytes between their own parts), and the CPU they have used."""

    def __init__(self, pids, factor=1.0):
        self.pids, self.factor = pids, factor

    def sent_bytes(self):
        lines = [line for pid in self.pids for line in Path(f"/proc/{pid}/io").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("wchar")) / self.factor

    def cpu_seconds(self):
        return sum(machine.cpu_seconds(pid) for pid in self.pids)


def with_children(pid):
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def run(bench, case, contender, check, server):
    with machine.shared_huge_pages(contender.pages):
        if contender.loader == "standalone":
            return run_standalone(bench, case, check, server)
        service = None
        try:
            if contender.has_daemon():
                service = Service(bench, pool_bytes=5 * case.bytes() // 4 if contender.pool else 0, sources=case.sources)
                if contender.pool:
                    contest.fill_pool(bench, service, case, contender)
            return run_ranks(bench, case, contender, service, check, server)
        finally:
            if service:
                service.end()


def jobs_of(case, service):
    return [Job(str(case.folder), r, case.ranks, str(service.socket) if service else "", case.reference()) for r in range(case.ranks)]


def run_ranks(bench, case, contender, service, check, server):
    jobs, ranks = jobs_of(case, service), []
    try:
        for job in jobs:
            ranks.append(Download(bench, contender, case) if contender.loader.startswith("download") else Rank(bench, contender, job))
        for rank in ranks:
            rank.hear()
        contest.prepare_machine(bench, case, QUIET_S)
        record = measure(ranks, service, server)
        record["equal"] = all_equal(contender, bench, case, jobs, ranks) if check else None
        return record
    finally:
        for rank in ranks:
            rank.end()


def measure(ranks, service, server):
    pid = service.process.pid if service else None
    resident = service.reset_peak() if service else 0
    daemon_cpu, busy = machine.cpu_seconds(pid) if pid else 0.0, machine.machine_busy_seconds()
    sent, server_cpu, start = server.sent_bytes(), server.cpu_seconds(), time.monotonic()
    for rank in ranks:
        rank.say("")
    answers = [json.loads(rank.hear()) for rank in ranks]
    daemon_cpu = machine.cpu_seconds(pid) - daemon_cpu if pid else 0.0
    server_cpu, busy = server.cpu_seconds() - server_cpu, machine.machine_busy_seconds() - busy
    calibration = service.json("status")["stores"] if service else {}
    took, reports = max(a["touched"] for a in answers) - start, [a["report"] for a in answers if a["report"]]
    return {"touched_s": took, "loaded_s": max(a["loaded"] for a in answers) - start,
            "cpu_s": sum(a["loaded_cpu"] for a in answers) + daemon_cpu, "server_s": server_cpu,
            "others": max(0.0, busy - server_cpu - daemon_cpu - sum(a["cpu"] for a in answers)) / took,
            "sent_bytes": server.sent_bytes() - sent, "learned": calibration, "sum": sum(a.get("sum", 0) for a in answers),
            "peak_bytes": machine.resident_peak(pid) - resident if pid else None,
            "view_bytes": sum(r["bytes"]["view"] for r in reports), "read_bytes": sum(r["bytes"]["read"] for r in reports),
            "memory": "/".join(sorted({r["memory"] for r in reports})),
            "verified": "/".join(sorted({r.get("verified", {}).get("status", "") for r in reports}))}


def all_equal(contender, bench, case, jobs, ranks):
    if not contender.loader.startswith("download"):
        return contest.all_equal(contender, bench, jobs, ranks)
    ranks[0].say("check")
    return json.loads(ranks[0].hear()) == [hashlib.sha256(path.read_bytes()).hexdigest() for path in case.files()]


def run_standalone(bench, case, check, server):
    """A whole process: its start and its end are in the time."""
    contest.prepare_machine(bench, case, QUIET_S)
    command = [bench.build / "tensorcast", "load", case.reference(), "--standalone", "--json", "--timeout", "120s"]
    environment = {**os.environ, **(dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), case.ca_file) if case.ca_file else {})}
    before, busy = resource.getrusage(resource.RUSAGE_CHILDREN), machine.machine_busy_seconds()
    server_cpu, start = server.cpu_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    took, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, server_cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, server.cpu_seconds() - server_cpu
    busy = machine.machine_busy_seconds() - busy
    if done.returncode:
        raise Failed(done.stderr[-300:])
    report = json.loads(done.stdout)
    record = {"touched_s": took, "loaded_s": took, "verified": report["verified"]["status"], "memory": report["memory"],
              "cpu_s": cpu, "server_s": server_cpu, "others": max(0.0, busy - server_cpu - cpu) / took, "read_bytes": report["bytes"]["read"],
              "view_bytes": report["bytes"]["view"], "equal": None}
    if check:
        again = subprocess.run([*command, "--digest"], capture_output=True, text=True, env=environment, check=True)
        digests = {t["name"]: t["sha256"] for t in json.loads(again.stdout)["tensors"]}
        record["equal"] = digests == contest.expected_digests(bench, Job(str(case.folder)))
    return record
