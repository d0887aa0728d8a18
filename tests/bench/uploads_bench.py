#!/usr/bin/env python3
"""Measures uploads to nginx on loopback beside plain libcurl that sends the same parts.

    bash tests/bench/run.sh build --uploads [--quick] [--rounds N] [--size BYTES] [--write FILE]

nginx takes each part by PUT into a tmpfs and answers what an S3 server would to the other requests of a multipart upload, the right
checksum of the whole at the end included: as Amazon S3, which compares the CRC-32C of parts and whole, and as stores that know MD5
and ETags alone. `put` is the whole command, from exec to exit; it reads the file and makes the CRC-32C of each part, and its MD5
where the store wants that. The yardstick makes no checksum. Raw records go to BUILD/bench/uploads.json.
"""
import base64
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import machine
from command import arguments, publish
from report import Goals, spread

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "stores"))
import servers  # noqa: E402

GB, PART_BYTES, CONNECTIONS = 1e9, 8 << 20, 8
PLAIN, PUT, PUT_MD5, MD5 = "plain libcurl", "tensorcast put", "tensorcast put, MD5", "MD5 alone"
CONFIG = """daemon off; worker_processes 2; user {user}; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{ map $request_uri $algorithm {{ default ""; "~^/crc/" CRC32C; }} map $request_uri $type {{ default ""; "~^/crc/" FULL_OBJECT; }}
 map $request_uri $whole_crc {{ default ""; "~^/crc/" "{crc}"; }}
 access_log off; keepalive_requests 100000; client_max_body_size 0; client_body_temp_path {folder}/b; client_body_buffer_size 256k;
 proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
 server {{ listen 127.0.0.1:{port}; root {folder};
  location / {{
   if ($arg_partNumber) {{ rewrite ^ /parts/$arg_partNumber last; }}
   if ($args = "uploads=") {{
    add_header x-amz-checksum-algorithm $algorithm; add_header x-amz-checksum-type $type;
    return 200 "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"; }}
   if ($arg_uploadId) {{ return 200 "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>"; }}
   if (!-f {folder}/parts/1) {{ return 404; }}
   rewrite ^ /whole last; }}
  location /parts/ {{ internal; dav_methods PUT; add_header ETag '"part"' always; }}
  location /whole {{ internal; etag off; add_header ETag '"{etag}"'; add_header x-amz-checksum-crc32c $whole_crc;
   add_header x-amz-checksum-type $type; }} }} }}
"""


def nginx(folder, size, etag, crc):
    folder = Path(tempfile.mkdtemp(dir=folder))
    server = servers.Server(folder, "nginx")
    (port,) = servers.free_ports(1)
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    (server.folder / "parts").mkdir()
    with open(server.folder / "whole", "wb") as whole:
        whole.truncate(size)
    (server.folder / "nginx.conf").write_text(CONFIG.format(user=user, folder=server.folder, port=port, etag=etag, crc=crc))
    server.urls["s3"] = f"http://127.0.0.1:{port}"
    server.spawn(shutil.which("nginx") or "/usr/sbin/nginx", "-p", server.folder, "-c", server.folder / "nginx.conf")
    return server.ready(server.urls["s3"] + "/", statuses=(404,))


def etag_of(path):
    sums = []
    with open(path, "rb") as file:
        while part := file.read(PART_BYTES):
            sums.append(hashlib.md5(part).digest())
    return f"{hashlib.md5(b''.join(sums)).hexdigest()}-{len(sums)}"


def timed(command, environment=None):
    """Of a process, from exec to exit."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})})
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return {"failed": (done.stderr or done.stdout)[-300:]}
    return {"seconds": seconds, "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, "said": json.loads(done.stdout)}


def clear(server):
    for part in (server.folder / "parts").iterdir():
        part.unlink()


def whole(server, size):
    return sum(part.stat().st_size for part in (server.folder / "parts").iterdir()) == size


def contenders(options, server, file):
    url = server.urls["s3"]
    environment = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url,
                   "AWS_EC2_METADATA_DISABLED": "true"}

    def plain():
        record = timed([options.build / "bench" / "upload", CONNECTIONS, PART_BYTES, file, f"{url}/b/file"])
        return record if "failed" in record else {"seconds": record["said"]["seconds"], "cpu_s": record["said"]["cpu_seconds"]}

    def put(bucket, proof):
        record = timed([options.build / "tensorcast", "put", file, f"s3://{bucket}/file", "--force", "--json"], environment)
        if "failed" not in record and record["said"]["files"][0]["proof"] != proof:
            return {"failed": "it was read back"}
        return record

    return {PLAIN: plain, PUT: lambda: put("crc", "crc32c"), PUT_MD5: lambda: put("b", "etag")}


def crc_of(options, folder, file, etag):
    """As the command tells it of an upload that is not measured: what the stand-in answers, so that nothing is read back."""
    server = nginx(folder, options.size, etag, "")
    try:
        record = contenders(options, server, file)[PUT_MD5]()
        if "failed" in record:
            sys.exit(record["failed"])
        return base64.b64encode(bytes.fromhex(record["said"]["files"][0]["crc32c"])).decode()
    finally:
        server.stop()


def md5():
    block, began = bytes(1 << 20), time.process_time()
    for _ in range(200):
        hashlib.md5(block)
    return (time.process_time() - began) / (200 << 20) * GB


def per_round(found, numerator, denominator, key):
    value = {(r["round"], r["name"]): r[key] for r in found if key in r}
    return [value[at, numerator] / value[at, denominator] for at in sorted({r["round"] for r in found})
            if (at, numerator) in value and (at, denominator) in value]


def table(found, size):
    lines = ["| way | seconds | GB/s | CPU s/GB |", "|---|---|---|---|"]
    for name in dict.fromkeys(r["name"] for r in found):
        mine = [r for r in found if r["name"] == name and "seconds" in r]
        lines.append(f"| {name} | {spread([r['seconds'] for r in mine], 3)} | {size / GB / median([r['seconds'] for r in mine]):.2f} | "
                     f"{median([r['cpu_s'] for r in mine]) / (size / GB):.2f} |" if mine else f"| {name} | failed | | |")
    return "\n".join(lines)


def main():
    options = arguments(__doc__, "0.2 GB", 7, (200_000_000, 2_000_000_000), "bytes of the file", None)
    machine.take_over("uploads_bench")
    found, order = [], random.Random(options.rounds)
    with tempfile.TemporaryDirectory(prefix="tcb-upload-", dir="/dev/shm") as folder:
        file = Path(folder) / "file"
        with open(file, "wb") as out:
            for i in range(0, options.size, 1 << 20):
                out.write(random.Random(i).randbytes(min(1 << 20, options.size - i)))
        etag = etag_of(file)
        server = nginx(folder, options.size, etag, crc_of(options, folder, file, etag))
        try:
            ways = contenders(options, server, file)
            for at in range(options.rounds):
                for name in order.sample(list(ways), len(ways)):
                    record = ways[name]()
                    if "failed" not in record and not whole(server, options.size):
                        record = {"failed": "not all parts are there"}
                    clear(server)
                    record.pop("said", None)
                    found.append({"name": name, "round": at, **record})
                    print(found[-1], file=sys.stderr)
        finally:
            server.stop()
    g, md5_s = Goals(), md5()
    g.at_least(f"{PUT} to {PLAIN}", 0.9, per_round(found, PLAIN, PUT, "seconds"))
    g.at_least(f"{PUT_MD5} to {PLAIN}", 0.9, per_round(found, PLAIN, PUT_MD5, "seconds"))
    record = {"date": time.strftime("%Y-%m-%d"), "rounds": options.rounds, "bytes": options.size, "md5_s_per_gb": md5_s, "found": found}
    (options.build / "bench" / "uploads.json").write_text(json.dumps(record))
    body = (f"Measured on {record['date']}: {machine.describe()}. "
            f"{options.rounds} rounds of {options.size / GB:.1f} GB in parts of 8 MiB, {CONNECTIONS} at a "
            "time, from tmpfs to tmpfs, nginx on the same processors. "
            f"{MD5} takes {md5_s:.2f} s of CPU per GB.\n\n"
            f"{g.table()}\n{table(found, options.size)}\n")
    publish(options, "uploads", body)
    sys.exit(any("failed" in r for r in found))


if __name__ == "__main__":
    main()
