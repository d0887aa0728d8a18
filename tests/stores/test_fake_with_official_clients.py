"""The fake is what the official clients take for the real thing: google-cloud-storage, gcsfs, boto3, huggingface_hub."""
import datetime
import hashlib
import importlib
import json
import os
import random

import boto3
import botocore.session
import google.auth
import google.auth.compute_engine._metadata
import google.auth.transport.requests
import google_crc32c
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from google.api_core.exceptions import BadRequest, NotFound, PreconditionFailed
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage
from google.oauth2.credentials import Credentials

import certificates
import checksums

KEYS = ["plain", "a b", "a+b", "a=b&c", "ümlaut/日本", "p%2Fq", "q?x#y", "(x)!*'", "dir/sub/file.safetensors", "a//b", "x@y:z,w;v"]


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def test_checksums_have_their_published_values_and_equal_googles():
    assert checksums.slow_crc32c(b"123456789").hex() == "e3069283"
    assert checksums.crc64nvme(b"123456789").hex() == "ae8b14860a799888"
    for size in (0, 1, 2, 3, 1000, 70001):
        assert int.from_bytes(checksums.slow_crc32c(noise(size)), "big") == google_crc32c.value(noise(size))


# --- google-cloud-storage, gcsfs ---


@pytest.fixture
def gcs(fake, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", fake.url("gcs"))
    client = storage.Client(project="p", credentials=AnonymousCredentials())
    client.create_bucket("b")
    return client


def test_gcs_keys_of_every_kind_come_back_with_their_checksums(gcs):
    for number, key in enumerate(KEYS):
        data = noise(1000 + number, number)
        gcs.bucket("b").blob(key).upload_from_string(data, content_type="application/octet-stream", checksum="crc32c")
        blob = gcs.bucket("b").get_blob(key)
        assert blob.size == len(data) and blob.crc32c == checksums.text(google_crc32c.value(data).to_bytes(4, "big"))
        assert blob.md5_hash == checksums.text(hashlib.md5(data).digest())
        assert blob.download_as_bytes(checksum="crc32c") == data
        assert blob.download_as_bytes(start=100, end=299, checksum=None) == data[100:300]
    assert sorted(blob.name for blob in gcs.list_blobs("b")) == sorted(KEYS)


def test_gcs_lists_in_pages_even_when_one_is_empty(gcs, fake):
    for number in range(25):
        fake.world.put("gcs", f"b/L/{number:02d}", b"x")
    fake.gcs.list_page, fake.gcs.empty_pages = 7, 2
    assert [blob.name for blob in gcs.list_blobs("b", prefix="L/")] == [f"L/{number:02d}" for number in range(25)]
    assert len(fake.requests("gcs", method="GET")) == 2 + 4


def test_gcs_generations_pin_and_preconditions_refuse(gcs, fake):
    old = fake.world.bucket("gcs", "b").put("k", b"old")
    assert gcs.bucket("b").blob("k", generation=old.generation).download_as_bytes() == b"old"
    new = fake.world.bucket("gcs", "b").put("k", b"new")
    with pytest.raises(NotFound):
        gcs.bucket("b").blob("k", generation=old.generation).download_as_bytes()
    with pytest.raises(PreconditionFailed):
        gcs.bucket("b").blob("k").download_as_bytes(if_generation_match=old.generation)
    assert gcs.bucket("b").blob("k").download_as_bytes(if_generation_match=new.generation) == b"new"
    with pytest.raises(PreconditionFailed):
        gcs.bucket("b").blob("k").upload_from_string(b"x", if_generation_match=0)
    fake.world.bucket("gcs", "v", versioned=True).put("k", b"first")
    first = fake.world.get("gcs", "v/k").generation
    fake.world.put("gcs", "v/k", b"second")
    assert gcs.bucket("v").blob("k", generation=first).download_as_bytes() == b"first"


def test_gcs_resumable_uploads_arrive_whole(gcs):
    data = noise(3 << 20)
    blob = gcs.bucket("b").blob("big", chunk_size=1 << 20)
    with blob.open("wb", chunk_size=1 << 20) as file:
        file.write(data)
    assert gcs.bucket("b").blob("big").download_as_bytes() == data


def test_gcs_transcodes_gzip_objects_as_google_does(gcs, fake):
    import gzip
    fake.world.put("gcs", "b/z", gzip.compress(b"hello " * 1000), content_encoding="gzip", content_type="text/plain")
    assert gcs.bucket("b").blob("z").download_as_bytes() == b"hello " * 1000
    assert gcs.bucket("b").blob("z").download_as_bytes(raw_download=True)[:2] == b"\x1f\x8b"


def test_gcs_requester_pays_wants_a_project(gcs, fake):
    fake.world.bucket("gcs", "paid", requester_pays=True).put("k", b"x")
    with pytest.raises(BadRequest):
        gcs.bucket("paid").blob("k").download_as_bytes()
    assert gcs.bucket("paid", user_project="me").blob("k").download_as_bytes() == b"x"


def test_gcsfs_reads_and_lists(fake):
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    import gcsfs
    data = noise(6 << 20)
    fake.world.put("gcs", "b/dir/a b.bin", data)
    fake.world.put("gcs", "b/dir/c.bin", b"c")
    files = gcsfs.GCSFileSystem(endpoint_url=fake.url("gcs"), token="anon", skip_instance_cache=True)
    assert files.ls("b/dir") == ["b/dir/a b.bin", "b/dir/c.bin"] and files.ls("b") == ["b/dir"]
    assert files.cat_file("b/dir/a b.bin", start=10, end=3000) == data[10:3000] and files.cat_file("b/dir/a b.bin") == data


@pytest.fixture
def token_only(fake):
    fake.gcs.needs_token = True
    fake.world.put("gcs", "b/k", b"data")
    return lambda credentials: storage.Client(project="p", credentials=credentials, client_options={
        "api_endpoint": fake.url("gcs")}).bucket("b").blob("k").download_as_bytes(retry=None)


def test_google_service_accounts_sign_what_the_token_endpoint_accepts(fake, token_only, tmp_path, monkeypatch):
    tree, modulus = certificates.service_account(tmp_path, "robot@fake.iam", fake.url("identity") + "/token")
    fake.identity.service_accounts["robot@fake.iam"] = modulus
    (tmp_path / "key.json").write_text(json.dumps(tree))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    scopes = ["https://www.googleapis.com/auth/devstorage.read_only"]
    assert token_only(google.auth.default(scopes=scopes)[0]) == b"data"
    fake.identity.service_accounts["robot@fake.iam"] = modulus + 2
    with pytest.raises(google.auth.exceptions.RefreshError):
        token_only(google.auth.default(scopes=scopes)[0])


def test_google_users_refresh_and_bad_tokens_are_refused(fake, token_only):
    fake.identity.clients["id"] = ("client secret", "refresh")
    good = Credentials(None, refresh_token="refresh", token_uri=fake.url("identity") + "/token", client_id="id",
                       client_secret="client secret")
    assert token_only(good) == b"data"
    with pytest.raises(Exception, match="refresh"):  # it takes the 401 for an expired token, as it should
        token_only(Credentials("made up"))
    answered = {entry["status"] for entry in fake.requests("gcs")} - {0}  # its threads may have asked for more meanwhile
    assert answered == {200, 401}


def test_google_metadata_gives_tokens(fake, token_only, monkeypatch, tmp_path):
    fake.identity.google_metadata = True
    monkeypatch.setenv("GCE_METADATA_HOST", fake.url("identity").removeprefix("http://"))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_MTLS_MODE", "none")
    importlib.reload(google.auth.compute_engine._metadata)  # it looks at the environment only then
    assert token_only(google.auth.compute_engine.Credentials()) == b"data"


# --- boto3 ---


@pytest.fixture
def s3(fake):
    fake.world.aws["AKFAKE"] = {"secret": "fakesecret"}

    def client(access="AKFAKE", secret="fakesecret", session=None, region="us-east-1", style="path", url=None):
        return boto3.client("s3", endpoint_url=url or fake.url("s3"), aws_access_key_id=access, aws_secret_access_key=secret,
                            aws_session_token=session, region_name=region,
                            config=Config(s3={"addressing_style": style}, retries={"max_attempts": 1}))

    client().create_bucket(Bucket="b")
    return client


def code(call):
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response["Error"]["Code"]


def test_s3_keys_of_every_kind_come_back(s3):
    client = s3()
    for number, key in enumerate(KEYS):
        data = noise(1000 + number, number)
        client.put_object(Bucket="b", Key=key, Body=data)
        got = client.get_object(Bucket="b", Key=key)
        assert got["Body"].read() == data and got["ETag"].strip('"') == hashlib.md5(data).hexdigest()
        assert client.get_object(Bucket="b", Key=key, Range="bytes=100-299")["Body"].read() == data[100:300]
        assert client.head_object(Bucket="b", Key=key)["ContentLength"] == len(data)
    assert [x["Key"] for x in client.list_objects_v2(Bucket="b")["Contents"]] == sorted(KEYS)


def test_s3_lists_in_pages_with_tokens_that_need_encoding(s3, fake):
    for number in range(25):
        fake.world.put("s3", f"b/L/{number:02d} +", b"x")
    fake.s3.list_page, fake.s3.empty_pages = 7, 1
    pages = s3().get_paginator("list_objects_v2").paginate(Bucket="b", Prefix="L/")
    assert [x["Key"] for page in pages for x in page.get("Contents", [])] == [f"L/{number:02d} +" for number in range(25)]


def test_s3_checksums_are_checked_kept_and_given_back(s3, fake):
    client, data = s3(), noise(5000)
    for algorithm in ("CRC32", "CRC32C", "CRC64NVME", "SHA256"):
        value = checksums.text(checksums.KINDS[algorithm.lower()](data))  # botocore makes CRC32C only with its C library
        client.put_object(Bucket="b", Key=algorithm, Body=data, **{f"Checksum{algorithm}": value})
        head = client.head_object(Bucket="b", Key=algorithm, ChecksumMode="ENABLED")
        assert head[f"Checksum{algorithm}"] == value and head["ChecksumType"] == "FULL_OBJECT"
    assert client.get_object(Bucket="b", Key="CRC32C", Range="bytes=1-9", ChecksumMode="ENABLED")["Body"].read() == data[1:10]
    assert code(lambda: client.put_object(Bucket="b", Key="x", Body=data, ChecksumCRC32="AAAAAA==")) == "BadDigest"
    fake.fault({"flip": 0}, {"path": "CRC32$", "method": "GET"})
    with pytest.raises(Exception, match="(?i)checksum"):
        client.get_object(Bucket="b", Key="CRC32", ChecksumMode="ENABLED")["Body"].read()


def test_s3_uploads_in_parts(s3, tmp_path):
    data = noise(13 << 20)
    (tmp_path / "f").write_bytes(data)
    s3().upload_file(str(tmp_path / "f"), "b", "parts")
    head = s3().head_object(Bucket="b", Key="parts")
    assert head["ETag"].endswith('-2"') and head["ContentLength"] == len(data)
    (tmp_path / "g").touch()
    s3().download_file("b", "parts", str(tmp_path / "g"))
    assert (tmp_path / "g").read_bytes() == data


def test_s3_refuses_what_the_real_one_refuses(s3, fake):
    fake.world.put("s3", "b/k", b"data")
    get = lambda **how: lambda: s3(**how).get_object(Bucket="b", Key="k")  # noqa: E731
    assert code(get(secret="wrong")) == "SignatureDoesNotMatch"
    assert code(get(access="AKOTHER")) == "InvalidAccessKeyId"
    access, keys = fake.world.issue_keys()
    assert s3(access, keys["secret"], keys["session"]).get_object(Bucket="b", Key="k")["Body"].read() == b"data"
    assert code(get(access=access, secret=keys["secret"])) == "InvalidToken"
    assert code(get(access=access, secret=keys["secret"], session="bogus")) == "InvalidToken"
    keys["expires"] = 0
    assert code(get(access=access, secret=keys["secret"], session=keys["session"])) == "ExpiredToken"
    assert code(lambda: s3().get_object(Bucket="b", Key="absent")) == "NoSuchKey"
    assert code(lambda: s3().get_object(Bucket="nobucket", Key="k")) == "NoSuchBucket"
    assert code(lambda: s3().get_object(Bucket="b", Key="k", IfMatch='"x"')) == "PreconditionFailed"
    assert code(lambda: s3().get_object(Bucket="b", Key="k", Range="bytes=10-20")) == "InvalidRange"
    fake.world.clock_skew_s = 1200
    assert code(lambda: s3().get_object(Bucket="b", Key="k")) == "RequestTimeTooSkewed"


def statuses(fake):
    return {entry["status"] for entry in fake.requests("s3")}


def test_s3_buckets_of_other_regions_redirect_boto3(s3, fake):
    fake.world.bucket("s3", "far", region="eu-west-9").put("k", b"far data")
    for fake.s3.redirect_regions in (False, True):
        fake.journal.clear()
        assert s3(region="us-east-1").get_object(Bucket="far", Key="k")["Body"].read() == b"far data"
        assert 301 in statuses(fake) if fake.s3.redirect_regions else 400 in statuses(fake)


def test_s3_versions_and_virtual_hosts(s3, fake):
    fake.world.bucket("s3", "vv", versioned=True).put("k", b"one")
    first = s3().head_object(Bucket="vv", Key="k")["VersionId"]
    fake.world.put("s3", "vv/k", b"two")
    assert s3().get_object(Bucket="vv", Key="k", VersionId=first)["Body"].read() == b"one"
    assert s3().get_object(Bucket="vv", Key="k")["Body"].read() == b"two"
    assert code(lambda: s3().get_object(Bucket="vv", Key="k", VersionId="v1")) == "NoSuchVersion"


# --- AWS credentials ---


@pytest.fixture
def bare_aws(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def read_as_found(fake):
    """Reads with what botocore's own chain finds; returns the method's name."""
    fake.world.put("s3", "b/k", b"data")
    session = botocore.session.Session()
    found = session.get_credentials()
    client = session.create_client("s3", region_name="us-east-1", endpoint_url=fake.url("s3"))
    assert client.get_object(Bucket="b", Key="k")["Body"].read() == b"data"
    return found.method


def test_instance_metadata_version_two_gives_credentials(fake, bare_aws, monkeypatch):
    fake.identity.ec2_metadata = True
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", fake.url("identity"))
    assert read_as_found(fake) == "iam-role"


def test_container_credentials_are_found(fake, bare_aws, monkeypatch):
    fake.identity.container_token = "Bearer pod"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", fake.url("identity") + "/v2/credentials/x")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer pod")
    assert read_as_found(fake) == "container-role"


def test_a_web_identity_gives_credentials(fake, bare_aws, monkeypatch, tmp_path):
    fake.identity.web_identity, fake.identity.role_arn = "a.jwt.token", "arn:aws:iam::1:role/r"
    (tmp_path / "token").write_text("a.jwt.token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", fake.url("identity"))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert read_as_found(fake) == "assume-role-with-web-identity"


# --- huggingface_hub ---


@pytest.fixture
def hub(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    import huggingface_hub
    files = {"config.json": b'{"a": 1}', "model-00001-of-00002.safetensors": noise(5000), "sub/x y+z.safetensors": noise(6000, 2)}
    for path, data in files.items():
        fake.world.put("hub", f"org/m/{path}", data)
    fake.hub.page = 2
    return huggingface_hub, files


def test_hub_snapshots_are_whole_and_tokens_stay_with_the_hub(fake, hub, tmp_path):
    huggingface_hub, files = hub
    fake.world.repository("org/m").readers.add("hf_token")
    fake.world.repository("org/m").private = True
    fake.world.tokens["hf_token"] = None
    folder = huggingface_hub.snapshot_download("org/m", cache_dir=tmp_path / "cache", endpoint=fake.url("hub"), token="hf_token")
    for path, data in files.items():
        with open(os.path.join(folder, path), "rb") as file:
            assert file.read() == data
    assert os.path.basename(folder) == fake.world.repository("org/m").commit
    assert all(entry["authorization"] for entry in fake.requests("hub"))
    assert fake.requests("cdn") and not any(entry["authorization"] for entry in fake.requests("cdn"))


def test_hub_listing_carries_sizes_and_digests(fake, hub):
    huggingface_hub, files = hub
    api = huggingface_hub.HfApi(endpoint=fake.url("hub"))
    tree = {entry.path: entry for entry in api.list_repo_tree("org/m", recursive=True) if hasattr(entry, "size")}
    assert {path: entry.size for path, entry in tree.items()} == {path: len(data) for path, data in files.items()}
    assert tree["sub/x y+z.safetensors"].lfs.sha256 == hashlib.sha256(files["sub/x y+z.safetensors"]).hexdigest()
    assert tree["config.json"].lfs is None
    assert {info.path for info in api.get_paths_info("org/m", ["config.json", "absent"])} == {"config.json"}


def test_hub_refusals_are_the_ones_the_client_knows(fake, hub, tmp_path):
    huggingface_hub, _ = hub
    from huggingface_hub import errors
    get = lambda name="org/m", file="config.json", **more: huggingface_hub.hf_hub_download(  # noqa: E731
        name, file, endpoint=fake.url("hub"), cache_dir=tmp_path / "c", **more)
    for error, how in ((errors.EntryNotFoundError, {"file": "absent"}), (errors.RevisionNotFoundError, {"revision": "nope"}),
                       (errors.RepositoryNotFoundError, {"name": "org/other"})):
        with pytest.raises(error):
            get(**how)
    fake.world.repository("org/m").gated = "auto"
    with pytest.raises(errors.GatedRepoError):
        get(token=False)


def test_hub_links_end(fake, hub, tmp_path):
    huggingface_hub, files = hub
    fake.hub.link_life_s = -1
    with pytest.raises(Exception):
        huggingface_hub.hf_hub_download("org/m", "model-00001-of-00002.safetensors", endpoint=fake.url("hub"), cache_dir=tmp_path / "c")
    assert {entry["status"] for entry in fake.requests("cdn")} == {403}
    assert datetime.datetime.now().year >= 2020  # a wrong clock would make every link look old


# --- what a client does with a fault shows that the fault is real ---


def test_flipped_bytes_and_short_answers_reach_the_client(gcs, fake):
    fake.world.put("gcs", "b/k", noise(1000))
    fake.fault({"flip": 500}, {"path": "alt=media"})
    with pytest.raises(Exception, match="(?i)checksum"):
        gcs.bucket("b").blob("k").download_as_bytes(checksum="crc32c")
    fake.fault({"truncate": 10}, {"path": "alt=media"}, times=0)
    with pytest.raises(Exception):
        gcs.bucket("b").blob("k").download_as_bytes(retry=None, timeout=5)
    fake.faults.clear()
    fake.fault({"status": 503}, {"path": "alt=media"}, times=2)
    assert gcs.bucket("b").blob("k").download_as_bytes() == noise(1000)
