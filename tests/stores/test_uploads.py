"""What is uploaded to real servers arrives whole or not at all, whatever goes wrong with any one of the requests."""
import json
import os
import random
import signal
import subprocess
import time
import urllib.parse
import uuid
from types import SimpleNamespace

import pytest
import servers as real
from stage import CLI
from upload_proxy import FAULTS, UploadProxy

SMALL, LARGE = 300_000, (9 << 20) + 12345  # one request, two parts


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


@pytest.fixture
def gs(servers, monkeypatch):
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage
    server = servers(real.fake_gcs)
    proxy = UploadProxy(urllib.parse.urlsplit(server.urls["gcs"]).port)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.urls["gcs"])
    bucket = storage.Client(project="p", credentials=AnonymousCredentials()).create_bucket(f"b{uuid.uuid4().hex}")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
    yield SimpleNamespace(url=f"gs://{bucket.name}", name=server.name, proxy=proxy, get=lambda key: bucket.blob(key).download_as_bytes(),
                          names=lambda: {blob.name for blob in bucket.list_blobs()}, unfinished=list,
                          put=lambda key, data: bucket.blob(key).upload_from_string(data))
    proxy.close()


def bucket_of(server, monkeypatch):
    import boto3
    from botocore.config import Config
    proxy, bucket = UploadProxy(urllib.parse.urlsplit(server.urls["s3"]).port), f"b{uuid.uuid4().hex}"
    for name, value in {"AWS_ACCESS_KEY_ID": server.keys[0], "AWS_SECRET_ACCESS_KEY": server.keys[1], "AWS_REGION": "us-east-1",
                        "AWS_ENDPOINT_URL": proxy.url}.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=server.urls["s3"], region_name="us-east-1", aws_access_key_id=server.keys[0],
                          aws_secret_access_key=server.keys[1], config=Config(s3={"addressing_style": "path"}))
    client.create_bucket(Bucket=bucket)
    yield SimpleNamespace(url=f"s3://{bucket}", name=server.name, proxy=proxy,
                          get=lambda key: client.get_object(Bucket=bucket, Key=key)["Body"].read(),
                          names=lambda: {entry["Key"] for entry in client.list_objects_v2(Bucket=bucket).get("Contents", [])},
                          unfinished=lambda: client.list_multipart_uploads(Bucket=bucket).get("Uploads", []),
                          put=lambda key, data: client.put_object(Bucket=bucket, Key=key, Body=data))
    proxy.close()


@pytest.fixture
def s3(servers, monkeypatch):
    yield from bucket_of(servers(real.seaweedfs), monkeypatch)


@pytest.fixture
def swift(servers, monkeypatch):
    yield from bucket_of(servers(real.swift), monkeypatch)


@pytest.fixture
def ceph(servers, monkeypatch):
    yield from bucket_of(servers(real.ceph, False), monkeypatch)


@pytest.fixture(params=["gs", "s3", *(pytest.param(name, marks=pytest.mark.long) for name in ("swift", "ceph"))])
def store(request):
    return request.getfixturevalue(request.param)


def put(*words, check=True):
    done = subprocess.run([CLI, "put", *map(str, words), "--json"], capture_output=True, text=True, timeout=60)
    if check:
        assert done.returncode == 0, done.stderr
    return SimpleNamespace(code=done.returncode, err=done.stderr, out=json.loads(done.stdout) if done.stdout else None)


@pytest.mark.parametrize("size", [0, SMALL, LARGE])
def test_a_file_arrives_whole(store, tmp_path, size):
    file, data = tmp_path / "file", noise(size)
    file.write_bytes(data)
    report = put(file, f"{store.url}/a b/ü%2F+.bin").out
    assert store.get("a b/ü%2F+.bin") == data and store.names() == {"a b/ü%2F+.bin"} and not store.unfinished()
    assert report["bytes"] == {"total": size, "sent": size, "resumed": 0} and report["files"][0]["proof"] in ("crc32c", "etag", "read back")


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_fault_in_any_one_request_costs_nothing_but_time(store, tmp_path, size, thorough):
    """Each request and each fault at least once; the long way each fault in each request."""
    file, data = tmp_path / "file", noise(size)
    file.write_bytes(data)
    put(file, f"{store.url}/clean")
    left, requests = 0, len(store.proxy.seen)
    every = [(1 + k % requests, fault) for k, fault in enumerate(FAULTS)]
    if thorough:
        every = [(number, fault) for number in range(1, requests + 1) for fault in FAULTS]
    for number, fault in every:
        store.proxy.fresh(lambda n, *_, number=number: fault if n == number else None)
        put(file, f"{store.url}/{fault} at {number}")
        assert store.get(f"{fault} at {number}") == data, store.proxy.seen
        # whose identifier was never told cannot be aborted: docs/uploads.md
        begun_unknown = fault in ("answer lost", "answer cut") and "uploads=" in store.proxy.seen[number - 1][1]
        assert len(store.unfinished()) <= left + begun_unknown, store.proxy.seen
        left = len(store.unfinished())


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_what_is_there_is_left_alone_unless_it_is_replaced(store, tmp_path, size):
    file = tmp_path / "file"
    file.write_bytes(noise(size))
    store.put("x", b"theirs")
    refused = put(file, f"{store.url}/x", check=False)
    assert refused.code == 1 and "ALREADY_EXISTS" in refused.err and store.get("x") == b"theirs" and not store.unfinished()
    put(file, f"{store.url}/x", "--force")
    assert store.get("x") == noise(size)
    store.proxy.fresh()
    assert put(file, f"{store.url}/x").out["files"][0]["was_there"] and not any(m in ("PUT", "POST") for m, *_ in store.proxy.seen)


def test_a_killed_upload_goes_on_and_sends_no_part_twice(store, tmp_path):
    file, data = tmp_path / "file", noise(4 * LARGE)
    file.write_bytes(data)
    sent = lambda: [size for method, _, size in store.proxy.seen if method == "PUT" and size > 1 << 20]  # noqa: E731
    store.proxy.fault = lambda n, method, path, size: "503" if size > 1 << 20 and len(sent()) > 2 else None
    process = subprocess.Popen([CLI, "put", str(file), f"{store.url}/x"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(3000):
        if len(sent()) > 3 and sum(size > 1 << 20 for *_, size in store.proxy.passed) == 2:
            break
        time.sleep(.01)
    time.sleep(.3)  # so that the answers arrive; when they do not, the parts are found all the same, or Google's is sent again
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = list((tmp_path / ".local/state/tensorcast/uploads").iterdir())
    assert len(kept) == 1 and kept[0].stat().st_mode & 0o777 == 0o600 and store.names() == set()
    store.proxy.fresh()
    report = put(file, f"{store.url}/x", "--resume").out
    assert store.get("x") == data and not store.unfinished() and not list(kept[0].parent.iterdir())
    assert report["bytes"]["resumed"] >= 4 << 20 and report["bytes"]["sent"] + report["bytes"]["resumed"] == len(data)
    assert sum(sent()) <= len(data) - report["bytes"]["resumed"]


def test_what_is_not_gone_on_with_is_aborted(s3, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(noise(LARGE))
    s3.proxy.fault = lambda n, method, path, size: "503" if size > 1 << 20 else None
    process = subprocess.Popen([CLI, "put", str(file), f"{s3.url}/x"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(3000):
        if any(size > 1 << 20 for *_, size in s3.proxy.seen):
            break
        time.sleep(.01)
    process.kill()
    process.wait()
    assert len(s3.unfinished()) == 1
    s3.proxy.fresh()
    put(file, f"{s3.url}/x")
    assert s3.unfinished() == [] and s3.get("x") == noise(LARGE)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_of_two_writers_one_wins_and_nothing_is_mixed(store, tmp_path, size):
    files = [tmp_path / name for name in "ab"]
    for seed, file in enumerate(files):
        file.write_bytes(noise(size, seed))
    writers = [subprocess.Popen([CLI, "put", str(file), f"{store.url}/x"], stderr=subprocess.PIPE, text=True) for file in files]
    errors = [writer.communicate(timeout=60)[1] for writer in writers]
    codes = [writer.returncode for writer in writers]
    assert 0 in codes and store.get("x") in (noise(size, 0), noise(size, 1)) and not store.unfinished()
    assert all(code == 0 or "ALREADY_EXISTS" in error for code, error in zip(codes, errors))


def test_a_bucket_that_is_not_there_is_said(gs, tmp_path):  # SeaweedFS makes it
    for size in (SMALL, LARGE):
        (tmp_path / "file").write_bytes(noise(size))
        refused = put(tmp_path / "file", f"{gs.url}nowhere/x", check=False)
        assert refused.code == 1 and ("NOT_FOUND" in refused.err or "PERMISSION_DENIED" in refused.err), refused.err


def test_a_folder_arrives_with_its_documents_last(store, tmp_path):
    folder = tmp_path / "model"
    (folder / "deep/er").mkdir(parents=True)
    files = {"model.safetensors": noise(SMALL), "config.json": b"{}", "deep/er/x": b"y", "z.bin": b""}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    put(folder, f"{store.url}/m/")
    assert {name: store.get(f"m/{name}") for name in files} == files and store.names() == {f"m/{name}" for name in files}
    written = [path for method, path, _ in store.proxy.seen if method in ("PUT", "POST")]
    assert "config.json" in urllib.parse.unquote(written[-1])


def test_addresses_of_sessions_are_in_no_output(gs, tmp_path):
    (tmp_path / "file").write_bytes(noise(LARGE))
    gs.proxy.fault = lambda n, method, path, size: "flipped" if size > 1 << 20 else None  # to the end
    refused = put(tmp_path / "file", f"{gs.url}/x", check=False)
    assert refused.code == 1 and "upload_id" not in refused.err and "DATA_LOSS" in refused.err and gs.names() == set()


def test_an_export_to_a_store_is_the_export_to_a_folder(store, tmp_path):
    import numpy
    from checkpoints import write
    (tmp_path / "model").mkdir()
    arrays = {f"layer.{k}.weight": numpy.full((512, 1024), k, numpy.float32) for k in range(12)}
    write(tmp_path / "model", arrays)
    (tmp_path / "model/config.json").write_text("{}")
    words = ["--max-file-size", "10MB", "--json"]
    for out in (tmp_path / "there", f"{store.url}/m"):
        done = subprocess.run([CLI, "export", f"disk:{tmp_path}/model", "--out", str(out), *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
    files = {file.name: file.read_bytes() for file in (tmp_path / "there").iterdir()}
    assert {name.removeprefix("m/"): store.get(name) for name in store.names()} == files and len(files) > 3
    report = json.loads(done.stdout)
    assert report["out"] == f"{store.url}/m" and report["upload"]["bytes"]["sent"] == sum(map(len, files.values()))
    assert not list((tmp_path / ".cache/tensorcast/exports").iterdir())
    store.put("m/config.json", b"theirs")
    again = subprocess.run([CLI, "export", f"disk:{tmp_path}/model", "--out", f"{store.url}/m", *words], capture_output=True, text=True, timeout=60)
    assert again.returncode == 1 and "ALREADY_EXISTS" in again.stderr and store.get("m/config.json") == b"theirs"


def test_an_export_that_cannot_be_uploaded_says_where_its_files_are_and_goes_on_with_them(gs, tmp_path):
    import numpy
    from checkpoints import write
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", {"w": numpy.zeros(1000, numpy.float32)})
    (tmp_path / "model/config.json").write_text("{}")
    words = [str(word) for word in (CLI, "export", f"disk:{tmp_path}/model", "--out", f"{gs.url}/m", "--json")]
    gs.put("m/model.safetensors", b"theirs")
    refused = subprocess.run(words, capture_output=True, text=True, timeout=60)
    (kept,) = (tmp_path / ".cache/tensorcast/exports").iterdir()
    assert refused.returncode == 1 and "ALREADY_EXISTS" in refused.stderr and {p.name for p in (kept / "content").iterdir()} == \
        {"model.safetensors", "config.json"}
    assert f"{kept.name[-40:]}/content: go on with --resume" in refused.stderr, refused.stderr  # long paths are cut in the middle
    told = subprocess.run([*words, "--resume", "--force"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and not kept.exists(), told.stderr
    assert json.loads(told.stdout)["bytes"] == {**json.loads(told.stdout)["bytes"], "read": 0, "written": 0, "resumed": 4000}
    assert gs.get("m/model.safetensors")[-4000:] == bytes(4000) and gs.names() == {"m/model.safetensors", "m/config.json"}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_export_that_ends_while_it_is_uploaded_is_not_written_again(s3, tmp_path, end):
    import numpy
    from checkpoints import write
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", {"w": numpy.zeros(3 << 20, numpy.float32)})
    words = [str(word) for word in (CLI, "export", f"disk:{tmp_path}/model", "--out", f"{s3.url}/m", "--json")]
    s3.proxy.fault = lambda n, method, path, size: "503" if size > 1 << 20 else None
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not any(size > 1 << 20 for *_, size in s3.proxy.seen):
        time.sleep(.01)
    process.send_signal(end)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == (130 if end == signal.SIGINT else -end) and ("--resume" in err) == (end == signal.SIGINT)
    s3.proxy.fresh()
    told = subprocess.run([*words, "--resume"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and json.loads(told.stdout)["bytes"]["read"] == 0, told.stderr
    assert s3.get("m/model.safetensors")[-4:] == bytes(4) and s3.unfinished() == [] and not list((tmp_path / ".cache/tensorcast/exports").iterdir())
