"""hf:// as a source: revisions, pages, redirects to the content network, tokens, gated repositories and the local cache."""
import os

import pytest

import checkpoints
import tensorcast_client as tc
from stage import MiB, standalone
from tensorcast_client import model_files

TOKEN = "hf_very_secret_token"


@pytest.fixture
def weights(fake, tmp_path):
    parts = checkpoints.write(tmp_path / "m", {"a": checkpoints.blob(1, 3 * MiB)}, {"b": checkpoints.blob(2, MiB)})
    (tmp_path / "m" / "config.json").write_text("{}")
    fake.world.preload("hub", "org/model", tmp_path / "m")
    return parts


@pytest.fixture
def settings(fake, tmp_path):
    """Environment: our hub, an empty home."""
    return {"HF_ENDPOINT": fake.url("hub"), "HF_HOME": str(tmp_path / "home")}


@pytest.fixture(params=["daemon", "standalone"])
def serve(request, settings):
    """serve(**environment) -> a command line that loads with these settings."""
    start = request.getfixturevalue("start")

    def make(**more):
        environment = {**settings, **more}
        if request.param == "daemon":
            daemon = start(running=False)
            daemon.start(environment=environment)
            daemon.cli.daemon = daemon
            return daemon.cli
        alone = standalone(**environment)
        alone.daemon = None
        return alone

    return make


@pytest.fixture
def daemon_of_hub(start, settings):
    daemon = start(running=False)
    daemon.start(environment=settings)
    return daemon.cli


def same(report, weights):
    assert checkpoints.digests(report) == {name: checkpoints.digest(array) for name, array in weights.items()}


def load(cli, reference):
    return cli.json("load", reference, "--digest")


def cache_of(fake, tmp_path, without=()):
    """The hub's cache on this host as its own client leaves it."""
    repository = fake.world.repository("org/model")
    folder = tmp_path / "home" / "hub" / "models--org--model"
    for path, made in repository.files.items():
        if path in without:
            continue
        blob = folder / "blobs" / (repository.sha256(path) if repository.is_large(path) else repository.git_id(path))
        link = folder / "snapshots" / repository.commit / path
        for place in (blob, link):
            place.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(bytes(made.data))
        link.symlink_to(os.path.relpath(blob, link.parent))
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(repository.commit)
    return folder


def test_a_repository_a_commit_and_one_file_of_it_arrive(serve, fake, weights):
    cli = serve()
    commit = fake.world.repository("org/model").commit
    same(load(cli, "hf://org/model"), weights)
    same(load(cli, f"hf://org/model@{commit}"), weights)
    report = load(cli, "hf://org/model@main/model-00002-of-00002.safetensors")
    assert checkpoints.digests(report) == {"b": checkpoints.digest(weights["b"])}


@pytest.mark.parametrize("revision, shown", [("v1.0", "v1.0"), ("refs/pr/3", "refs/pr/3"), ("refs%2Fpr%2F3", "refs/pr/3"),
                                             ("feature%2fx", "feature/x")])
def test_a_revision_is_a_tag_a_branch_or_a_pull_request(serve, fake, weights, revision, shown):
    fake.world.repository("org/model").refs.add(shown)
    cli = serve()
    same(load(cli, f"hf://org/model@{revision}"), weights)
    report = load(cli, f"hf://org/model@{revision}/model-00002-of-00002.safetensors")
    assert checkpoints.digests(report) == {"b": checkpoints.digest(weights["b"])}


def test_a_folder_of_a_repository_is_an_artifact(serve, fake, weights, tmp_path):
    fake.world.preload("hub", "org/model/sub/dir", tmp_path / "m")
    cli = serve()
    fake.world.repository("org/model").put("sub/dir/model-00003-of-00003.safetensors", b"not in the index")
    same(load(cli, "hf://org/model@main/sub/dir"), weights)


def test_the_commit_is_in_every_url_after_the_first(serve, fake, weights):
    load(serve(), "hf://org/model")
    asked = [entry["path"] for entry in fake.requests("hub")]
    commit = fake.world.repository("org/model").commit
    assert asked[0] == "/api/models/org/model/revision/main"
    assert asked[1:] and all(commit in path for path in asked[1:]), asked


def test_before_data_a_part_costs_two_requests_and_the_repository_two(serve, fake, weights):
    serve().json("inspect", "hf://org/model")
    assert len(fake.requests("hub", method="GET")) == 3  # commit, tree, index
    assert len(fake.requests("hub", method="HEAD")) == 3  # where index and parts are
    assert len(fake.requests("cdn")) == 2


def test_a_commit_is_asked_about_once(daemon_of_hub, fake, weights):
    commit = fake.world.repository("org/model").commit
    same(load(daemon_of_hub, "hf://org/model"), weights)
    fake.journal.clear()
    same(load(daemon_of_hub, "hf://org/model"), weights)
    assert [entry["path"] for entry in fake.requests()] == ["/api/models/org/model/revision/main"]
    fake.journal.clear()
    same(load(daemon_of_hub, f"hf://org/model@{commit}"), weights)
    assert not fake.requests()


def test_the_token_goes_to_the_hub_alone(serve, fake, weights):
    fake.world.tokens[TOKEN] = None
    cli = serve(HF_TOKEN=TOKEN)
    same(load(cli, "hf://org/model"), weights)
    assert all(entry["authorization"] for entry in fake.requests("hub"))
    assert fake.requests("cdn") and not any(entry["authorization"] for entry in fake.requests("cdn"))
    if cli.daemon:
        assert TOKEN not in cli.daemon.whole_log()
        assert cli.daemon.logged("event=store_credentials scheme=hf", "credentials=HF_TOKEN")


def test_a_token_file_is_read_from_where_the_hub_s_own_client_keeps_it(serve, fake, weights, tmp_path):
    fake.world.tokens[TOKEN] = None
    repository = fake.world.repository("org/model")
    repository.private, repository.readers = True, {TOKEN}
    cli = serve()
    done = cli.run("load", "hf://org/model")
    assert (done.code, done.status) == (1, "NOT_FOUND") and "without a token" in done.err, done
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text(TOKEN + "\n")
    same(load(cli, "hf://org/model"), weights)


def test_a_token_file_of_4096_bytes_is_read_and_of_a_longer_one_nothing_is_sent(serve, fake, weights, tmp_path):
    fake.world.tokens[TOKEN] = None
    (tmp_path / "home").mkdir()
    token, cli = tmp_path / "home" / "token", serve()
    token.write_text(TOKEN.ljust(4097))
    same(load(cli, "hf://org/model"), weights)
    assert fake.requests("hub") and not any(entry["authorization"] for entry in fake.requests("hub"))
    token.write_text(TOKEN.ljust(4096))
    fake.journal.clear()
    load(cli, "hf://org/model")
    assert fake.requests("hub") and all(entry["authorization"] for entry in fake.requests("hub"))


def test_a_name_has_at_most_96_characters(serve, fake, weights):
    cli = serve()
    assert cli.run("load", "hf://org/" + "m" * 96).status == "NOT_FOUND"
    asked = len(fake.requests("hub"))
    assert cli.run("load", "hf://org/" + "m" * 97).status == "INVALID_ARGUMENT" and len(fake.requests("hub")) == asked


def test_a_gated_repository_says_what_to_do(serve, fake, weights):
    fake.world.tokens[TOKEN] = None
    fake.world.repository("org/model").gated = "auto"
    for cli in (serve(), serve(HF_TOKEN=TOKEN)):
        done = cli.run("load", "hf://org/model")
        assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
        assert "accept its licence at" in done.err and TOKEN not in done.err


def test_what_does_not_exist_is_not_found(serve, fake, weights):
    cli = serve()
    for reference in ("hf://org/nobody", "hf://org/model@nothing", "hf://org/model@main/no/folder"):
        done = cli.run("load", reference)
        assert (done.code, done.status) == (1, "NOT_FOUND"), done
    assert "org/model@main has no such file or folder" in done.err, done
    for reference in ("hf://", "hf:org/model", "hf://org/mo del", "hf://../model", "hf://org/model@main/../x", "hf://org/model@",
                      "hf://org/model@/model.safetensors", "hf://org/model@..", "hf://org/model@main//x"):
        done = cli.run("load", reference)
        assert (done.code, done.status) == (1, "INVALID_ARGUMENT"), done


def test_a_refused_link_is_asked_for_again_once_for_all_ranges(serve, fake, weights):
    fake.fault({"status": 403}, {"listener": "cdn", "range": "^bytes=[1-9]"}, nth=1, times=1)
    same(load(serve(), "hf://org/model"), weights)
    assert len(fake.requests("hub", method="HEAD")) == 4


def test_links_that_are_always_refused_fail_the_load(serve, fake, weights):
    fake.fault({"status": 403}, {"listener": "cdn"}, times=0)
    done = serve().run("load", "hf://org/model")
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done
    assert "X-Amz-Signature" not in done.err or "X-Amz-Signature=..." in done.err


def test_a_whole_cache_is_read_instead_of_the_hub_s_files(serve, fake, weights, tmp_path):
    cache_of(fake, tmp_path)
    cli = serve()
    same(load(cli, "hf://org/model"), weights)
    assert [entry["path"] for entry in fake.requests("hub")] == ["/api/models/org/model/revision/main"]
    assert not fake.requests("cdn")


def test_offline_asks_nothing_of_the_hub(serve, fake, weights, tmp_path):
    cli = serve(HF_HUB_OFFLINE="1")
    done = cli.run("load", "hf://org/model")
    assert (done.code, done.status) == (1, "FAILED_PRECONDITION") and "HF_HUB_OFFLINE" in done.err, done
    cache_of(fake, tmp_path)
    same(load(cli, "hf://org/model"), weights)
    assert not fake.requests("hub")


def test_without_a_network_a_whole_cache_is_used_and_a_part_of_one_is_not(start, fake, weights, tmp_path):
    folder, daemon = cache_of(fake, tmp_path), start(running=False, sources={"http": {"max_tries": 1}})
    daemon.start(environment={"HF_ENDPOINT": "http://127.0.0.1:1", "HF_HOME": str(tmp_path / "home")})
    same(load(daemon.cli, "hf://org/model"), weights)
    assert daemon.logged("hub_unreachable")
    assert daemon.cli.run("load", "hf://org/other").status == "UNAVAILABLE"
    (folder / "snapshots" / fake.world.repository("org/model").commit / "model-00002-of-00002.safetensors").unlink()
    assert daemon.cli.run("load", "hf://org/model").status == "UNAVAILABLE"


def test_a_cache_without_a_part_or_of_another_commit_is_not_used(serve, fake, weights, tmp_path):
    cache_of(fake, tmp_path, without=("model-00002-of-00002.safetensors",))
    same(load(serve(), "hf://org/model"), weights)
    assert fake.requests("cdn")


def test_an_index_of_a_hundred_million_bytes_in_a_cache_is_believed_and_a_longer_one_is_not(serve, fake, weights, tmp_path):
    folder, cli = cache_of(fake, tmp_path), serve()
    index = folder / "snapshots" / fake.world.repository("org/model").commit / "model.safetensors.index.json"
    document = index.read_bytes()
    index.write_bytes(document.ljust(100_000_000))
    same(load(cli, "hf://org/model"), weights)
    assert not fake.requests("cdn")
    index.write_bytes(document.ljust(100_000_001))
    same(load(cli, "hf://org/model"), weights)
    assert fake.requests("hub")


def test_sidecars_do_not_come_from_a_cache_of_the_tensors_alone(serve, fake, weights, tmp_path):
    folder, cli = cache_of(fake, tmp_path, without=("config.json",)), serve()
    fetched = cli.run("fetch", "hf://org/model", "--sidecars", tmp_path / "out", "--json")
    assert fetched.code == 0 and [file["name"] for file in fetched.report["sidecars"]] == ["config.json"], fetched
    (folder / "snapshots" / fake.world.repository("org/model").commit / "config.json").write_text("{}")
    fake.journal.clear()
    assert cli.run("fetch", "hf://org/model", "--sidecars", tmp_path / "out").code == 0
    assert [entry["path"] for entry in fake.requests()] == ["/api/models/org/model/revision/main"]


def test_a_long_header_is_summed_in_few_requests(serve, fake, tmp_path):
    checkpoints.write(tmp_path / "n", {"a" * 60 + str(i): checkpoints.blob(i, 0) for i in range(5000)} | {"w": checkpoints.blob(1, 100)})
    fake.world.preload("hub", "org/long", tmp_path / "n")
    report = load(serve(), "hf://org/long")
    assert report["verified"]["by"] == "sha256"
    asked = fake.requests("cdn")  # the header's two, the tensors', and the header for the sum
    assert (tmp_path / "n" / "model.safetensors").stat().st_size > MiB // 2 and len(asked) == 4, asked


def test_a_cache_link_that_leads_out_of_the_repository_is_refused(serve, fake, weights, tmp_path):
    folder = cache_of(fake, tmp_path)
    commit = fake.world.repository("org/model").commit
    link = folder / "snapshots" / commit / "model-00001-of-00002.safetensors"
    secret = tmp_path / "secret.safetensors"
    secret.write_bytes(link.read_bytes())
    link.unlink()
    link.symlink_to(secret)
    done = serve().run("load", "hf://org/model")
    assert (done.code, done.status) == (1, "PERMISSION_DENIED"), done


def test_a_new_commit_is_another_artifact(serve, fake, weights, tmp_path):
    cli = serve()
    same(load(cli, "hf://org/model"), weights)
    fresh = checkpoints.write(tmp_path / "n", {"a": checkpoints.blob(5, MiB)}, {"b": checkpoints.blob(6, MiB)})
    fake.world.preload("hub", "org/model", tmp_path / "n")
    fake.world.repository("org/model").new_commit()
    same(load(cli, "hf://org/model"), fresh)


def test_a_hub_that_could_not_be_reached_is_not_asked_again_at_once(start, fake, weights, settings, tmp_path):
    cache_of(fake, tmp_path)
    daemon = start(running=False, sources={"http": {"max_tries": 8}})
    daemon.start(environment=settings)
    fake.fault({"close": "before"}, {"listener": "hub"}, times=0)
    same(load(daemon.cli, "hf://org/model"), weights)
    asked = len(fake.requests("hub"))
    assert 2 <= asked <= 6 and daemon.logged("event=hub_unreachable")  # three tries, each perhaps on a second connection
    for _ in range(3):
        same(load(daemon.cli, "hf://org/model"), weights)
    assert len(fake.requests("hub")) == asked
    missing = daemon.cli.run("load", "hf://org/other")  # not in the cache: only the hub can tell
    assert missing.status == "UNAVAILABLE" and len(fake.requests("hub")) > asked, missing
    fake.faults.clear()
    same(load(daemon.cli, "hf://org/model"), weights)


def test_a_setting_that_only_the_client_has_is_named_where_the_daemon_lacks_it(start, fake, settings, tmp_path):
    daemon = start(running=False, sources={"http": {"max_tries": 1}})
    daemon.start(environment=settings)
    cli = daemon.cli
    assert "your environment" not in cli.run("inspect", "hf://org/none").err
    cli.environment = {**cli.environment, "HF_TOKEN": "hf_mine", "HF_HUB_OFFLINE": "1"}
    refused = cli.run("inspect", "hf://org/none")
    assert "HF_TOKEN is set in your environment" in refused.err and "hf_mine" not in refused.err, refused
    fake.fault({"close": "before"}, {"listener": "hub"}, times=0)
    assert "HF_HUB_OFFLINE is set in your environment" in cli.run("inspect", "hf://org/none").err


@pytest.mark.parametrize("network", ["online", "offline", "away"])
@pytest.mark.parametrize("single", [False, True])
def test_what_transformers_takes_of_a_repository_is_found_out_without_a_network(start, fake, weights, settings, tmp_path, network, single):
    if single:
        (part,) = checkpoints.write(tmp_path / "s", {"c": checkpoints.blob(3, MiB)})
        (path,) = (tmp_path / "s").glob("*.safetensors")
        fake.world.repository("org/model").put("model.safetensors", path.read_bytes())
    if network != "online":
        cache_of(fake, tmp_path)
    more = {"offline": {"HF_HUB_OFFLINE": "1"}, "away": {"HF_ENDPOINT": "http://127.0.0.1:1"}}
    daemon = start(running=False, sources={"http": {"max_tries": 1}})
    daemon.start(environment={**settings, **more.get(network, {})})
    with tc.connect(str(daemon.socket)) as client:
        art = client.artifact("hf://org/model")
        ((name, taken),) = model_files.taken(art, None, {file.name for file in art.sidecars()}).artifacts.items()
        assert name == "model.safetensors" and taken.tensor_names == (["c"] if single else list(weights))
