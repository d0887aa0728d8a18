#!/usr/bin/env python3
"""Measures loads from object stores on loopback: nginx, a store that is far away, fake-gcs-server and SeaweedFS.

    bash tests/bench/run.sh build --stores [--rounds N] [--only WORD] [--size BYTES] [--data FOLDER] [--write FILE]

Sections (--only takes those with the word in their name): nginx plain, nginx tls, far away, gs, s3, memory. Contenders take
turns, in a new order each round; touched bytes and checks are those of bench.py. Records go to BUILD/bench/stores.json, and
a section that is not measured again keeps its records there, so that the table may be made in parts.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[0] / "stores"), str(HERE.parents[0] / "fake")]

import certificates  # noqa: E402
import checkpoints  # noqa: E402
import contest  # noqa: E402
import far_away  # noqa: E402
import machine  # noqa: E402
import servers  # noqa: E402
import store_report  # noqa: E402
from command import arguments, packages, publish  # noqa: E402
from contest import Bench, Contender, Failed  # noqa: E402
from store_contest import StoreCase, Watched, run, with_children  # noqa: E402

OURS = [Contender("tensorcast C, pool", "C", pages="advise", pool=True), Contender("tensorcast C, fresh", "C", pages="advise"),
        Contender("tensorcast C, no privileges", "C", pages="never"), Contender("tensorcast --standalone", "standalone", pages="advise")]
PLAIN = [Contender("plain libcurl, touched memory", "download touched"), Contender("plain libcurl, fresh memory", "download fresh")]
BARE = [Contender("bare sockets, touched memory", "download socket")]  # plain HTTP only
WITH_PEERS = [Contender("tensorcast C", "C", pages="advise"), Contender("tensorcast Python", "tensorcast Python", pages="advise"),
              Contender("Run:ai streamer", "Run:ai streamer, store")]
SECTIONS = ("nginx plain", "nginx tls", "far away", "gs", "s3", "memory")


def prepare_data(options):
    """The checkpoint with a manifest, so that https has something to compare with, and a tiny one to warm up."""
    llama = checkpoints.llama(options.data / f"llama-{options.size}", options.size)
    tiny = checkpoints.llama(options.data / "tiny", 1 << 20, 2)
    if not (llama / "model.manifest.json").exists():
        subprocess.run([options.build / "tensorcast", "manifest", f"disk:{llama}", "--standalone", "--quiet", "--out",
                        llama / "model.manifest.json"], check=True)
    return llama, tiny


def take_turns(bench, case, contenders, options, server):
    turns = [(c.name, lambda check, c=c: run(bench, case, c, check, server)) for c in contenders]
    return contest.take_turns(bench, case.title(), turns, options.rounds, random.Random(options.rounds))


def run_nginx(bench, options, scheme):
    with tempfile.TemporaryDirectory(prefix="tcb-nginx-") as folder:
        os.chmod(folder, 0o755)
        certificates.make(Path(folder) / "authority")
        server = servers.nginx(folder, options.data, Path(folder) / "authority")
        try:
            ca = str(server.ca) if scheme == "https" else ""
            case = StoreCase(f"nginx {scheme}", options.llama, 1, "hot", url=server.urls[scheme], ca_file=ca,
                             sources=(("http", {"ca_file": ca}),))
            return take_turns(bench, case, [*PLAIN, *(BARE if scheme == "http" else []), *OURS], options,
                              Watched(with_children(server.processes[0].pid)))
        finally:
            server.stop()


def with_environment(settings, function, *arguments):
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        return function(*arguments)
    finally:
        os.environ.clear()
        os.environ.update(before)


def upload(filesystem, options, bucket):
    """The checkpoint and the tiny one, without a manifest: these stores have checksums of their own."""
    filesystem.mkdir(bucket)
    for folder in (options.llama, options.tiny):
        for path in sorted(folder.glob("model*")):
            if path.name != "model.manifest.json":
                filesystem.put_file(str(path), f"{bucket}/{folder.name}/{path.name}")


def calibrated(server, filesystem, path, size):
    """The server, with what it writes for a byte that a client gets."""
    watched = Watched([server.processes[0].pid])
    before = watched.sent_bytes()
    if len(filesystem.cat_file(path)) != size:
        raise Failed(f"{path} was not downloaded whole")
    return Watched(watched.pids, (watched.sent_bytes() - before) / size)


def run_peers(bench, options, server, scheme, filesystem, peer):
    upload(filesystem, options, "weights")
    first = sorted(options.llama.glob("*.safetensors"))[0]
    watched = calibrated(server, filesystem, f"weights/{options.llama.name}/{first.name}", first.stat().st_size)
    print(f"{scheme}: the server writes {watched.factor:.3f} bytes for each that a client gets", file=sys.stderr)
    records = {"factor": watched.factor}
    for ranks in (1, 4):
        case = StoreCase(f"{scheme}, {ranks} rank{'s' * (ranks > 1)}", options.llama, ranks, "hot", url=f"{scheme}://weights")
        records[ranks] = take_turns(bench, case, [*WITH_PEERS, peer], options, watched)
    return records


def run_gs(bench, options):
    with tempfile.TemporaryDirectory(prefix="tcb-gs-") as folder:
        server = servers.fake_gcs(folder)
        settings = {"STORAGE_EMULATOR_HOST": server.urls["gcs"], "CLOUD_STORAGE_EMULATOR_ENDPOINT": server.urls["gcs"],
                    "RUNAI_STREAMER_GCS_USE_ANONYMOUS_CREDENTIALS": "true", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}

        def go():
            import gcsfs
            filesystem = gcsfs.GCSFileSystem(token="anon", endpoint_url=server.urls["gcs"], project="p")
            return run_peers(bench, options, server, "gs", filesystem, Contender("gcsfs", "gcsfs"))
        try:
            return with_environment(settings, go)
        finally:
            server.stop()


def run_s3(bench, options):
    with tempfile.TemporaryDirectory(prefix="tcb-s3-") as folder:
        server = servers.seaweedfs(folder)
        settings = {"AWS_ENDPOINT_URL": server.urls["s3"], "AWS_ACCESS_KEY_ID": server.keys[0], "AWS_SECRET_ACCESS_KEY": server.keys[1],
                    "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
                    "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}

        def go():
            import s3fs
            filesystem = s3fs.S3FileSystem(endpoint_url=server.urls["s3"])
            return run_peers(bench, options, server, "s3", filesystem, Contender("s3fs", "s3fs"))
        try:
            return with_environment(settings, go)
        finally:
            server.stop()


def measure(bench, options, section):
    if section.startswith("nginx"):
        return run_nginx(bench, options, "https" if section.endswith("tls") else "http")
    return {"far away": far_away.run_rates, "memory": far_away.run_memory, "gs": run_gs, "s3": run_s3}[section](bench, options)


def main():
    options = arguments(__doc__, None, 3, (0, 1_000_000_000), data="room for it", more={"--only": {"default": ""}})
    machine.take_over("stores_bench")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        os.environ.pop(name, None)
    options.llama, options.tiny = prepare_data(options)
    bench, kept = Bench(options.build, options.data, options.tiny), options.build / "bench" / "stores.json"
    records = json.loads(kept.read_text()) if kept.exists() else {}
    with machine.free_page_reporting():
        for section in [s for s in SECTIONS if options.only in s]:
            found = measure(bench, options, section)
            records[section] = {"date": time.strftime("%Y-%m-%d"), "rounds": options.rounds, "size": bench_bytes(options), "found": found}
            kept.write_text(json.dumps(records, default=str))
    body = store_report.text(json.loads(json.dumps(records)), options.build, packages())
    publish(options, "stores", body)


def bench_bytes(options):
    return sum(path.stat().st_size for path in options.llama.glob("*.safetensors"))


if __name__ == "__main__":
    main()
