"""One timed run: the machine in a known state, all ranks ready, one start, every byte touched, the result checked."""
import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import machine
from loaders import Job

HERE = Path(__file__).resolve().parent
GIB = 1 << 30
NOISY_CORES = 0.5
GROUPS = {"enable_owner_file_collective": True, "owner_file_collective_min_dedup_saving_bytes": "0B"}  # ranks that share nothing, too


class Failed(Exception):
    pass


@dataclass(frozen=True)
class Case:
    """What is loaded, by how many ranks, from where."""
    name: str
    folder: Path
    ranks: int
    temperature: str  # cold, hot
    read_ahead_kib: int | None = None
    share: float = 0  # as in Job
    splits_all: bool = False
    is_known: bool = False  # the daemon has read the headers before

    def files(self):
        return sorted(self.folder.glob("*.safetensors"))

    def bytes(self):
        return sum(f.stat().st_size for f in self.files())

    def title(self):
        return f"{self.name}, {self.temperature}" + (f", read_ahead_kb {self.read_ahead_kib}" if self.read_ahead_kib else "")


@dataclass(frozen=True)
class Contender:
    """loader: a key of LOADERS, "C", "fio" or "copy". pages: what shmem_enabled is set to for the run."""
    name: str
    loader: str
    pages: str | None = None
    pool: bool = False
    group: bool = False

    def has_daemon(self):
        return self.loader in ("C", "tensorcast Python", "tensorcast mapped")


@dataclass
class Bench:
    """Where things are, and what is shared by all runs."""
    build: Path
    data: Path
    tiny: Path
    expected: dict = field(default_factory=dict)
    forge: object = None  # where ranks in Python come from; None: each is started by itself

    def __post_init__(self):
        self.native, self.library, self.c_worker = (self.build / "bench" / n for n in ("native", "libtouch.so", "worker"))
        self.backed = machine.Backed(self.native)


class Service:
    """A fresh tensorcastd on sockets of its own."""

    def __init__(self, bench, pool_bytes=0, staging="64MiB", sources=(), memory=(), strategy=(), immutable=False):
        self.folder = Path(tempfile.mkdtemp(prefix="tcb-", dir="/tmp"))
        self.socket = self.folder / "d.sock"
        roots = {"trusted_roots": [str(bench.data)], **({"immutable_roots": [str(bench.data)]} if immutable else {})}
        config = {"server": {"socket_path": str(self.socket), "state_dir": str(self.folder / "state")},
                  "memory": {"host_budget": "16GiB", "staging_budget": staging, "pool_budget": pool_bytes,
                             "replica_idle_ttl": "0s" if pool_bytes else "10m", **dict(memory)},
                  "sources": {"disk": roots, **dict(sources)}, "logging": {"level": "warn"},
                  "engine": {"materialization_strategy": dict(strategy)}}
        (self.folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
        self.bench, self.log = bench, open(self.folder / "log", "w+")
        self.process = subprocess.Popen([bench.build / "tensorcastd", "--config", self.folder / "config.yaml"],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        for _ in range(200):
            if self.call("status", "--json", check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise Failed(f"the daemon did not start: {Path(self.log.name).read_text()}")

    def call(self, *arguments, check=True, stdin=None):
        done = subprocess.run([self.bench.build / "tensorcast", "--socket", self.socket, *map(str, arguments)],
                              capture_output=True, text=True, input=stdin)
        if check and done.returncode:
            raise Failed(f"tensorcast {arguments}: {done.stderr}")
        return done

    def json(self, *arguments, **options):
        return json.loads(self.call(*arguments, "--json", **options).stdout)

    def reset_peak(self):
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return machine.resident(self.process.pid)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Rank:
    """One worker process."""

    def __init__(self, bench, contender, job):
        if contender.loader == "C":
            command = [bench.c_worker, job.socket, job.reference or f"disk:{job.folder}", "120000"]
            command += [job.group, job.rank, job.ranks] if job.group else []
        else:
            command = [HERE / "worker.py", contender.loader, json.dumps(vars(job)), bench.library, bench.tiny]
            command = command if bench.forge else [sys.executable, *command]
        environment = {**os.environ, **({"OMP_NUM_THREADS": "1"} if job.ranks > 1 else {})}
        self.errors = tempfile.TemporaryFile("w+")
        if bench.forge and contender.loader != "C":
            self.process = bench.forge.start(command, self.errors)
        else:
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=self.errors, env=environment)
        if contender.loader == "C":
            self.say("".join(job.view_lines if job.view_lines is not None else view_lines(job)))

    def say(self, text):
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()

    def hear(self, seconds=300):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise Failed("a worker says nothing")
        line = self.process.stdout.readline().decode()
        if not line:
            self.errors.seek(0)
            raise Failed(f"a worker died: {self.errors.read()[-500:]}")
        return line

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def headers(folder):
    """(path, position of the data, {name: entry}) of every part file."""
    for path in sorted(Path(folder).glob("*.safetensors")):
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            entries = json.loads(file.read(length))
        entries.pop("__metadata__", None)
        yield path, 8 + length, entries


def view_lines(job):
    if job.is_whole():
        return
    for _, _, entries in headers(job.folder):
        for name, entry in entries.items():
            dimension, start, stop = job.cut(name, entry["shape"]) or (-1, 0, 0)
            yield f"{name} {dimension} {start} {stop} {len(entry['shape'])}\n"


def expected_digests(bench, job):
    """{name: sha256} of what a rank must hold, from the files themselves."""
    key = (job.folder, 0 if job.is_whole() else (job.rank, job.ranks, job.share, job.splits_all))
    if key not in bench.expected:
        digests = {}
        for path, begin, entries in headers(job.folder):
            raw = np.memmap(path, np.uint8, "r")
            for name, entry in entries.items():
                start, stop = entry["data_offsets"]
                value, cut = raw[begin + start:begin + stop], job.cut(name, entry["shape"])
                if cut:
                    rows, width = entry["shape"][0], (stop - start) // int(np.prod(entry["shape"]))
                    value = value.reshape(rows, -1)
                    value = value[cut[1]:cut[2]] if cut[0] == 0 else value[:, cut[1] * width:cut[2] * width]
                digests[name] = hashlib.sha256(np.ascontiguousarray(value)).hexdigest()
        bench.expected[key] = digests
    return bench.expected[key]


def prepare_machine(bench, case, quiet_s=5):
    """Cold or hot, and enough memory that is really there; checked at the last moment."""
    files = case.files()
    if case.temperature == "cold":
        machine.make_cold(files)
    else:
        machine.make_hot(files)
    machine.wait_until_quiet(quiet_s)
    bench.backed.take(int(2.3 * case.bytes()) + GIB)
    if case.temperature == "hot":
        machine.make_hot(files)
    share = machine.cached_share(files)
    bench.backed.give()
    if (share > 0) if case.temperature == "cold" else (share < 0.999):
        raise Failed(f"{share:.3f} of the checkpoint is in the page cache")


def run_copy(bench, case):
    bench.backed.take(int(2.3 * case.bytes()) + GIB)
    bench.backed.give()
    out = subprocess.run([bench.native, "copy", str(case.bytes()), "2"], check=True, capture_output=True, text=True).stdout
    return {"touched_s": float(out), "loaded_s": float(out)}


def run_fio(case):
    names = ":".join(str(f).replace(":", "\\:") for f in case.files())
    command = ["fio", "--name=ceiling", f"--filename={names}", "--rw=read", "--direct=1", "--bs=1M", "--iodepth=16",
               "--ioengine=io_uring", "--iomem=mmaphuge", "--file_service_type=sequential", "--readonly", "--output-format=json"]
    with machine.reserved_huge_pages(64):
        machine.make_cold(case.files())
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"fio: {done.stderr[-300:]}")
    read = json.loads(done.stdout)["jobs"][0]["read"]
    if read["io_bytes"] < 0.99 * case.bytes():
        raise Failed(f"fio read {read['io_bytes']} of {case.bytes()} bytes")
    seconds = case.bytes() / read["bw_bytes"]
    return {"touched_s": seconds, "loaded_s": seconds}


def fill_pool(bench, service, case, contender):
    """Loads the same views once and lets them go, so that the daemon prepares memory of their sizes; returns when it is done."""
    ranks = [Rank(bench, Contender("", "C"), Job(str(case.folder), r, case.ranks, str(service.socket))) for r in range(case.ranks)]
    for rank in ranks:
        rank.hear()
    for rank in ranks:
        rank.say("")
    for rank in ranks:
        rank.hear()
    for rank in ranks:
        rank.end()
    before = []
    for _ in range(600):  # `release` would empty the pool, too; with an idle time of zero nothing has to be released
        status = service.json("status")
        before = [status["memory"]["pool_bytes"], *before[:9]]
        if not status["replicas"] and before[0] >= case.bytes() and before == 10 * before[:1]:
            return
        time.sleep(0.05)
    raise Failed("no memory was prepared in place of the idle replicas")


def take_turns(bench, title, turns, rounds, rng):
    """Records of every round of `turns`, [(name, function of whether to check)], in a new order each; a contender that fails is out."""
    records, alive = [], list(turns)
    for number in range(rounds):
        rng.shuffle(alive)
        for turn in list(alive):
            record = {"name": turn[0], "round": number}
            try:
                record.update(turn[1](number == 0))
                note = f"{record['loaded_s']:.3f} s loaded, {record['touched_s']:.3f} s touched, others used {record.get('others', 0):.2f} cores"
            except (Failed, OSError, RuntimeError, subprocess.CalledProcessError) as error:
                record["failed"] = note = str(error)[-300:]
                alive.remove(turn)
            finally:
                bench.backed.give()
            records.append(record)
            print(f"{time.strftime('%H:%M:%S')} {title} #{number + 1} {turn[0]}: {note}", file=sys.stderr, flush=True)
    return records


def run(bench, case, contender, check):
    """A flat record of one run; once more when other work used more than half a core meanwhile, and the quieter counts."""
    records = [run_once(bench, case, contender, check)]
    if records[0].get("others", 0) > NOISY_CORES:
        records.append(run_once(bench, case, contender, check))
    return min(records, key=lambda r: r.get("others", 0))


def run_once(bench, case, contender, check):
    with machine.read_ahead(case.folder, case.read_ahead_kib), machine.shared_huge_pages(contender.pages):
        if contender.loader == "copy":
            return run_copy(bench, case)
        if contender.loader == "fio":
            return run_fio(case)
        service = None
        try:
            if contender.has_daemon():
                service = Service(bench, pool_bytes=5 * case.bytes() // 4 if contender.pool else 0, strategy=GROUPS if contender.group else (),
                                  immutable=contender.loader == "tensorcast mapped")
                if contender.pool:
                    fill_pool(bench, service, case, contender)
                if case.is_known:
                    service.call("inspect", f"disk:{case.folder}")
            return run_ranks(bench, case, contender, service, check)
        finally:
            if service:
                service.end()


def run_ranks(bench, case, contender, service, check):
    jobs = [Job(str(case.folder), r, case.ranks, str(service.socket) if service else "", share=case.share, splits_all=case.splits_all,
                group="ranks" if contender.group else "") for r in range(case.ranks)]
    ranks = []
    try:
        for job in jobs:
            ranks.append(Rank(bench, contender, job))
        for rank in ranks:
            rank.hear()
        prepare_machine(bench, case)
        record = measure(case, ranks, service)
        record["equal"] = all_equal(contender, bench, jobs, ranks) if check else None
        return record
    finally:
        for rank in ranks:
            rank.end()


def measure(case, ranks, service):
    pid = service.process.pid if service else None
    everyone = [rank.process.pid for rank in ranks] + [pid] * bool(service)
    resident = service.reset_peak() if service else 0
    daemon_cpu, busy = machine.cpu_seconds(pid) if pid else 0.0, machine.machine_busy_seconds()
    asked, disk, start = machine.bytes_asked([pid] * bool(service)), machine.disk_bytes_read(everyone), time.monotonic()
    for rank in ranks:
        rank.say("")
    answers = [json.loads(rank.hear()) for rank in ranks]
    took, until_now = max(a["touched"] for a in answers) - start, time.monotonic() - start
    daemon_cpu = machine.cpu_seconds(pid) - daemon_cpu if pid else 0.0
    cpu = sum(a["cpu"] for a in answers) + daemon_cpu
    reports = [a["report"] for a in answers if a["report"]]
    return {"touched_s": took, "loaded_s": max(a["loaded"] for a in answers) - start, "cpu_s": cpu, "daemon_cpu_s": daemon_cpu,
            "disk_bytes": machine.disk_bytes_read(everyone) - disk, "asked_bytes": machine.bytes_asked([pid] * bool(service)) - asked,
            "others": max(0.0, machine.machine_busy_seconds() - busy - cpu) / until_now,
            "peak_bytes": machine.resident_peak(pid) - resident if pid else None,
            "view_bytes": sum(r["bytes"]["view"] for r in reports), "read_bytes": sum(r["bytes"]["read"] for r in reports),
            "memory": "/".join(sorted({r["memory"] for r in reports})), "execute_ms": [r["ms"]["execute"] for r in reports],
            "reports": reports, "replicas": service.json("status")["replicas"] if service else []}


def all_equal(contender, bench, jobs, ranks):
    answers = []
    for rank in ranks:
        rank.say("check")
        answers.append(json.loads(rank.hear()))
    if contender.loader == "C":
        return all({t["name"]: t["sha256"] for t in report["tensors"]} == expected_digests(bench, job)
                   for job, report in zip(jobs, answers))
    return not any(answers)
