"""Checkpoints put into real servers by official clients, loaded by a daemon and by the command line alone, and compared with
what the safetensors package reads from the same files."""
import json
import os
from pathlib import Path

import boto3
import numpy as np
import pytest
from botocore.config import Config
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

import servers as real
from checkpoints import blob, digest, digests, read_back, write
from stage import MiB, soon

PREFIX = "models/a b+c=ü"  # what a signer or an encoder gets wrong first


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A folder with two part files, an index and a sidecar; {tensor: digest} as safetensors reads them."""
    folder = tmp_path_factory.mktemp("checkpoint")
    rng = np.random.default_rng(5)
    write(folder, {"w": blob(1, 5 * MiB + 17), "rows": rng.standard_normal((300, 200)).astype(np.float32)},
          {"v": blob(2, 9 * MiB), "empty": blob(3, 0)})
    (folder / "config.json").write_text('{"model_type": "real"}')
    expected = {}
    for path in sorted(folder.glob("*.safetensors")):
        expected.update({name: digest(array) for name, array in read_back(path).items()})
    return folder, expected


def both_ways(daemon, reference, expected, **environment):
    """The daemon and --standalone deliver what is expected, whole and sliced."""
    alone = {**os.environ, **environment}
    for options in ({}, {"env": alone}):
        how = ["--standalone"] if options else []
        report = daemon.cli.json("load", reference, "--digest", *how, **options)
        assert digests(report) == expected
        part = daemon.cli.json("load", reference, "--digest", "--slice", "w[1000000:2000000]", *how, **options)
        assert digests(part) == {"w": digest(blob(1, 5 * MiB + 17)[1000000:2000000])}
    assert daemon.cli.json("inspect", reference)["total_bytes"] == 5 * MiB + 17 + 9 * MiB + 300 * 200 * 4
    return report


# --- Google's API, by the Go server ---


@pytest.fixture
def google(servers, checkpoint, monkeypatch):
    server = servers(real.fake_gcs)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.urls["gcs"])
    client = storage.Client(project="p", credentials=AnonymousCredentials())
    if client.lookup_bucket("real") is None:
        client.create_bucket("real")
        for path in checkpoint[0].iterdir():
            client.bucket("real").blob(f"{PREFIX}/{path.name}").upload_from_filename(str(path))
    return client


def test_fake_gcs_server_is_read(google, daemon_for, checkpoint):
    daemon = daemon_for()
    report = both_ways(daemon, f"gs://real/{PREFIX}", checkpoint[1])
    assert report["bytes"]["view"] > 0
    missing = daemon.cli.run("load", "gs://real/absent")
    assert missing.code == 1 and missing.status == "NOT_FOUND", missing


def test_fake_gcs_server_with_an_object_that_is_replaced(google, daemon_for, tmp_path):
    for seed in (1, 2):
        write(tmp_path, {"w": blob(seed, MiB)})
        google.bucket("real").blob("swap/model.safetensors").upload_from_filename(str(tmp_path / "model.safetensors"))
        if seed == 1:
            daemon = daemon_for()
        assert digests(daemon.cli.json("load", "gs://real/swap", "--digest")) == {"w": digest(blob(seed, MiB))}


# --- S3 by three servers that check signatures ---


def client_of(server, region="us-east-1"):
    return boto3.client("s3", endpoint_url=server.urls["s3"], aws_access_key_id=server.keys[0], aws_secret_access_key=server.keys[1],
                        region_name=region, config=Config(s3={"addressing_style": "path"}))


def s3_environment(monkeypatch, server, **more):
    for name, value in {"AWS_ENDPOINT_URL": server.urls["s3"], "AWS_ACCESS_KEY_ID": server.keys[0],
                        "AWS_SECRET_ACCESS_KEY": server.keys[1], "AWS_REGION": "us-east-1", **more}.items():
        monkeypatch.setenv(name, value)


def upload(server, checkpoint):
    client = client_of(server)
    try:
        client.head_bucket(Bucket="real")
    except client.exceptions.ClientError:
        client.create_bucket(Bucket="real")
        for path in checkpoint[0].iterdir():
            client.upload_file(str(path), "real", f"{PREFIX}/{path.name}")
    return client


def s3_works(server, checkpoint, daemon_for, monkeypatch, refusal=("SignatureDoesNotMatch",)):
    """Reads with the right keys; with a wrong secret the refusal is final and shows no secret."""
    upload(server, checkpoint)
    s3_environment(monkeypatch, server)
    both_ways(daemon_for(), f"s3://real/{PREFIX}", checkpoint[1])
    wrong = daemon_for(environment={"AWS_SECRET_ACCESS_KEY": "wrong-secret-of-this-test"})
    outcome = wrong.cli.run("load", f"s3://real/{PREFIX}")
    assert outcome.failed and outcome.status in ("PERMISSION_DENIED", "UNAUTHENTICATED"), outcome
    assert any(word in outcome.err for word in refusal), outcome
    assert "wrong-secret-of-this-test" not in outcome.err + wrong.log()


def test_seaweedfs_is_read(servers, checkpoint, daemon_for, monkeypatch):
    s3_works(servers(real.seaweedfs), checkpoint, daemon_for, monkeypatch)


def test_seaweedfs_gives_checksums_and_they_are_verified(servers, checkpoint, daemon_for, monkeypatch, tmp_path):
    server = servers(real.seaweedfs)
    client = upload(server, checkpoint)
    write(tmp_path, {"w": blob(7, 2 * MiB)})
    data = (tmp_path / "model.safetensors").read_bytes()
    client.put_object(Bucket="real", Key="summed/model.safetensors", Body=data, ChecksumAlgorithm="CRC32")
    s3_environment(monkeypatch, server)
    report = daemon_for(verify="required").cli.json("load", "s3://real/summed", "--digest")
    assert digests(report) == {"w": digest(blob(7, 2 * MiB))}


def versions_are_read_on(server, daemon_for, monkeypatch, tmp_path):
    """An object that is replaced in mid-load is read to its end in the version that was begun."""
    client, size = client_of(server), 48 * MiB
    client.create_bucket(Bucket="kept")
    client.put_bucket_versioning(Bucket="kept", VersioningConfiguration={"Status": "Enabled"})
    write(tmp_path / "old", {"w": blob(8, size)})
    write(tmp_path / "new", {"w": blob(9, size)})
    client.upload_file(str(tmp_path / "old" / "model.safetensors"), "kept", "m/model.safetensors")
    s3_environment(monkeypatch, server)
    daemon = daemon_for(http={"max_host_connections": 1, "request_size": "1MiB"})
    loading = daemon.cli.spawn("load", "s3://kept/m", "--digest", "--json")
    soon(lambda: daemon.status()["loads"] or loading.poll() is not None)
    client.upload_file(str(tmp_path / "new" / "model.safetensors"), "kept", "m/model.safetensors")
    out, err = loading.communicate(timeout=100)
    assert loading.returncode == 0, err
    assert digests(json.loads(out)) == {"w": digest(blob(8, size))}
    assert digests(daemon.cli.json("load", "s3://kept/m", "--digest")) == {"w": digest(blob(9, size))}


def test_seaweedfs_reads_on_in_the_version_that_was_begun(servers, daemon_for, monkeypatch, tmp_path):
    versions_are_read_on(servers(real.seaweedfs), daemon_for, monkeypatch, tmp_path)


@pytest.mark.long
def test_swift_is_read(servers, checkpoint, daemon_for, monkeypatch):
    s3_works(servers(real.swift), checkpoint, daemon_for, monkeypatch)


@pytest.mark.long
def test_swift_checks_the_region_and_the_right_one_is_found(servers, checkpoint, daemon_for, monkeypatch):
    server = servers(real.swift)
    upload(server, checkpoint)
    s3_environment(monkeypatch, server, AWS_REGION="eu-central-1")
    report = daemon_for().cli.json("load", f"s3://real/{PREFIX}", "--digest")
    assert digests(report) == checkpoint[1]


@pytest.mark.long
@pytest.mark.parametrize("tokens", [False, True])
def test_ceph_is_read(servers, checkpoint, daemon_for, monkeypatch, tokens):
    server = servers(real.ceph, tokens)
    s3_works(server, checkpoint, daemon_for, monkeypatch, ("AccessDenied",) if tokens else ("SignatureDoesNotMatch",))


@pytest.mark.long
def test_ceph_reads_on_in_the_version_that_was_begun(servers, daemon_for, monkeypatch, tmp_path):
    versions_are_read_on(servers(real.ceph, False), daemon_for, monkeypatch, tmp_path)


ROLE = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["arn:aws:iam:::user/t"]},"Action":["sts:AssumeRole"]}]}'
POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:*"],"Resource":"arn:aws:s3:::*"}]}'


@pytest.mark.long
def test_ceph_takes_session_tokens_and_refuses_changed_ones(servers, checkpoint, daemon_for, monkeypatch):
    server = servers(real.ceph, True)
    upload(server, checkpoint)
    server.call(*server.admin, "role", "create", "--role-name", "r1", f"--assume-role-policy-doc={ROLE}")
    server.call(*server.admin, "role-policy", "put", "--role-name", "r1", "--policy-name", "p1", f"--policy-doc={POLICY}")
    sts = boto3.client("sts", endpoint_url=server.urls["s3"], aws_access_key_id=server.keys[0], aws_secret_access_key=server.keys[1],
                       region_name="us-east-1")
    keys = sts.assume_role(RoleArn="arn:aws:iam:::role/r1", RoleSessionName="session", DurationSeconds=900)["Credentials"]
    s3_environment(monkeypatch, server, AWS_ACCESS_KEY_ID=keys["AccessKeyId"], AWS_SECRET_ACCESS_KEY=keys["SecretAccessKey"],
                   AWS_SESSION_TOKEN=keys["SessionToken"])
    assert digests(daemon_for().cli.json("load", f"s3://real/{PREFIX}", "--digest")) == checkpoint[1]
    for token in ("", keys["SessionToken"][:-8] + "AAAAAAA="):
        daemon = daemon_for(environment={"AWS_SESSION_TOKEN": token})
        outcome = daemon.cli.run("load", f"s3://real/{PREFIX}")
        assert outcome.failed and outcome.status in ("PERMISSION_DENIED", "UNAUTHENTICATED", "INVALID_ARGUMENT"), outcome
        assert keys["SecretAccessKey"] not in outcome.err + daemon.log()


# --- plain files by nginx ---


@pytest.fixture
def web(servers, checkpoint, authority):
    return servers(real.nginx, checkpoint[0], authority)


def test_nginx_is_read(web, checkpoint, daemon_for):
    both_ways(daemon_for(), web.urls["http"], checkpoint[1])
    one = f"{web.urls['http']}/model-00002-of-00002.safetensors"
    assert digests(daemon_for().cli.json("load", one, "--digest")) == {n: checkpoint[1][n] for n in ("v", "empty")}


def test_nginx_over_tls_with_a_private_authority(web, checkpoint, daemon_for):
    both_ways(daemon_for(http={"ca_file": str(web.ca)}), web.urls["https"], checkpoint[1], REQUESTS_CA_BUNDLE=str(web.ca))
    both_ways(daemon_for(environment={"REQUESTS_CA_BUNDLE": str(web.ca)}), web.urls["https"], checkpoint[1], REQUESTS_CA_BUNDLE=str(web.ca))


def test_nginx_with_an_unknown_authority_is_refused(web, daemon_for):
    outcome = daemon_for().cli.run("load", web.urls["https"])
    assert outcome.failed and "certificate" in outcome.err.lower(), outcome


def test_nginx_without_ranges_is_refused_by_name(web, daemon_for):
    outcome = daemon_for(http={"max_tries": 2}).cli.run("load", f"{web.urls['http']}/no-ranges")
    assert outcome.failed and "range" in outcome.err.lower(), outcome


def test_nginx_serving_a_replaced_file(web, checkpoint, daemon_for):
    folder = Path(checkpoint[0]) / "swap"
    daemon = daemon_for()
    for seed in (1, 2):
        write(folder, {"w": blob(seed, MiB + seed)})
        assert digests(daemon.cli.json("load", f"{web.urls['http']}/swap", "--digest")) == {"w": digest(blob(seed, MiB + seed))}
