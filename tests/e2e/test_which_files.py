"""Which files of a folder are a checkpoint: indexes that are stale, half there or lead below, numbered files, variants; on disk and in
every store. The table of docs/layouts.md."""
import json

import numpy as np
import pytest
import tensorcast_client as tc
from safetensors.numpy import save_file

from checkpoints import digest, digests
from stage import Tensorcast, soon
from store_scene import DATA, SCHEMES
from store_scene import place as place_parts

INDEX = "model.safetensors.index.json"


def arrays(*names, dtype=np.float32):
    return {name: np.arange(i, i + 12, dtype=dtype).reshape(3, 4) for i, name in enumerate(names)}


def put(folder, files, index=None, index_name=INDEX):
    """files: {file name: {tensor: array}}."""
    for name, tensors in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / name)
    if index is not None:
        (folder / index_name).write_text(json.dumps({"metadata": {}, "weight_map": index}))


def loads(cli, reference, wanted, *args):
    assert digests(cli.json("load", reference, "--digest", *args)) == {name: digest(value) for name, value in wanted.items()}


@pytest.fixture
def stored(fake, store_daemon):
    """stored(scheme, folder) -> (daemon, reference) of the same files in that store."""

    def make(scheme, folder):
        placed = place_parts(fake, scheme, {"other": np.zeros(1, np.uint8)}, name=folder.name)
        fake.world.remove(placed.listener, placed.prefix + DATA)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            placed.put(str(path.relative_to(folder)), path.read_bytes())
        return store_daemon(), placed.reference

    return make


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_index_in_a_store_may_lead_below_and_lack_files(stored, tmp_path, scheme):
    first, deep = arrays("a", "b"), arrays("c")
    put(tmp_path / "m", {"x.safetensors": first, "deep/er/y.safetensors": deep},
        {"a": "x.safetensors", "b": "x.safetensors", "c": "deep/er/y.safetensors", "d": "deep/er/gone.safetensors", "e": "no/gone.safetensors"})
    daemon, reference = stored(scheme, tmp_path / "m")
    loads(daemon.cli, reference, {**deep, "a": first["a"]}, "--tensor", "c", "--tensor", "a")
    told = daemon.cli.json("inspect", reference)
    assert told["absent_files"] == ["deep/er/gone.safetensors", "no/gone.safetensors"] and len(told["notes"]) == 1
    assert [file["name"] for file in told["files"]] == ["deep/er/y.safetensors", "x.safetensors"]
    for args in ((), ("--tensor", "d"), ("--tensor", "[abd]"), ("--slice", "d[0:1]")):
        refused = daemon.cli.run("load", reference, *args)
        assert refused.status == "NOT_FOUND" and "deep/er/gone.safetensors" in refused.err, refused


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_stale_index_in_a_store_is_passed_over(stored, tmp_path, scheme):
    put(tmp_path / "m", {"model.safetensors": arrays("a", "b")}, {"a": "old-1.safetensors", "b": "old-2.safetensors"})
    daemon, reference = stored(scheme, tmp_path / "m")
    loads(daemon.cli, reference, arrays("a", "b"))
    assert INDEX in daemon.cli.ok("inspect", reference).out
    assert daemon.logged("artifact_notes")


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "http"])
def test_numbered_files_in_a_store_are_counted(stored, tmp_path, scheme):
    put(tmp_path / "m", {f"part-{i}-of-3.safetensors": arrays(f"t{i}") for i in (1, 2)})
    daemon, reference = stored(scheme, tmp_path / "m")
    for command in (["load"], ["inspect"], ["verify"], ["fetch", tmp_path / "out", "--all"]):
        refused = daemon.cli.run(command[0], reference, *command[1:])
        assert refused.status == "NOT_FOUND" and "part-3-of-3.safetensors" in refused.err, refused
    loads(daemon.cli, f"{reference}/part-1-of-3.safetensors", arrays("t1"))


@pytest.fixture(params=["daemon", "standalone"])
def cli(request):
    """(command, arguments behind it)"""
    if request.param == "standalone":
        return Tensorcast("/tmp/tc8-no-daemon-here.sock"), ["--standalone"]
    return request.getfixturevalue("daemon").cli, []


def test_a_file_that_comes_later_is_there(daemon, models):
    put(models / "m", {"x.safetensors": arrays("a")}, {"a": "x.safetensors", "b": "y.safetensors"})
    assert daemon.cli.run("load", models / "m").status == "NOT_FOUND"
    put(models / "m", {"y.safetensors": arrays("b")})
    loads(daemon.cli, models / "m", {**arrays("a"), **arrays("b")})
    (models / "m/y.safetensors").unlink()
    assert daemon.cli.run("load", models / "m").status == "NOT_FOUND"
    loads(daemon.cli, models / "m", arrays("a"), "--tensor", "a")


def test_a_whole_of_what_is_only_partly_there_is_refused_everywhere(cli, models, tmp_path):
    command, how = cli
    put(models / "m", {"x.safetensors": arrays("a")}, {"a": "x.safetensors", "b": "y.safetensors"})
    for words in (["load"], ["load", "--tp-size", "2", "--tp-rank", "0"], ["explain"], ["verify"], ["fetch", tmp_path / "out", "--all"],
                  ["inspect", "--names"], ["inspect", "--index", "source"], ["load", "--tensor", "*"]):
        refused = command.run(words[0], models / "m", *words[1:], *how)
        assert refused.status == "NOT_FOUND" and "y.safetensors" in refused.err, (words, refused)
    assert "y.safetensors" in command.ok("inspect", models / "m", "--summary", *how).out


def test_python_names_the_file_that_is_missing(daemon, models):
    put(models / "m", {"x.safetensors": arrays("a")}, {"a": "x.safetensors", "b": "y.safetensors"})
    artifact = tc.connect(f"unix:{daemon.socket}").artifact(models / "m")
    assert np.asarray(artifact["a"][1:2, 1:]).tolist() == arrays("a")["a"][1:2, 1:].tolist()
    assert list(artifact.subset("[ax]*").tensor_dict(framework="numpy")) == ["a"]
    assert artifact.describe()["absent_files"] == ["y.safetensors"]
    for ask in (lambda: artifact["b"].shape, lambda: artifact.tensor_names, lambda: dict(artifact), lambda: len(artifact), lambda: "b" in artifact,
                lambda: artifact.tensor_dict(framework="numpy"), lambda: artifact.subset("*").tensor_dict(framework="numpy"),
                lambda: artifact.subset(["a", "b"]).tensor_dict(framework="numpy"),
                lambda: artifact.view({"a": slice(0, 1)}).tensor_dict(framework="numpy")):
        with pytest.raises(tc.TensorcastError, match=r"y\.safetensors") as refused:
            ask()
        assert refused.value.reason == "FILE_MISSING"


def test_an_index_decides_over_every_copy(cli, models):
    command, how = cli
    put(models / "m", {"x.safetensors": {**arrays("a"), "b": np.zeros(5, np.int8)}, "y.safetensors": {**arrays("b"), "c": np.ones(2)},
                       "stray.safetensors": arrays("a")}, {"a": "x.safetensors", "b": "y.safetensors"})
    loads(command, models / "m", {**arrays("a"), **arrays("b")}, *how)
    notes = "\n".join(command.json("inspect", models / "m", *how)["notes"])
    assert "c of y.safetensors" in notes and "b in x.safetensors" in notes and "stray" not in notes


def test_what_lies_around_a_model_is_no_part_of_it(cli, models, tmp_path):
    command, how = cli
    put(models / "m", {"unet-1-of-2.safetensors": arrays("a"), "unet-2-of-2.safetensors": arrays("b"),
                       "unet.bf16.safetensors": arrays("a", "b", dtype=np.float16), "unet.fp16-1-of-2.safetensors": arrays("a", dtype=np.float16)})
    (models / "m/old.safetensors").mkdir()
    (models / "m/link.safetensors").symlink_to("nowhere")
    loads(command, models / "m", {**arrays("a"), **arrays("b")}, *how)
    notes = "\n".join(command.json("inspect", models / "m", *how)["notes"])
    assert "unet.bf16.safetensors" in notes and "link.safetensors" in notes and "old" not in notes
    loads(command, models / "m/unet.bf16.safetensors", arrays("a", "b", dtype=np.float16), *how)


@pytest.mark.parametrize("command", [["fetch", "--sidecars"], ["fetch", "--all"], ["export"]], ids=" ".join)
def test_a_sidecar_whose_link_is_dead_is_a_warning(cli, models, tmp_path, command):
    tool, how = cli
    how = [] if command[0] == "export" else how  # which works without a daemon anyway
    put(models / "m", {"model.safetensors": arrays("a")})
    (models / "m/tokenizer.json").symlink_to("../blobs/gone")
    (models / "m/config.json").write_text("{}")
    where = [tmp_path / "out"] if command[0] == "fetch" else ["--out", tmp_path / "out"]
    done = tool.run(command[0], models / "m", *where, *command[1:], *how)
    assert done.code == 0 and "warning: tokenizer.json leads to no file" in done.err, done
    assert (tmp_path / "out/config.json").exists() and not (tmp_path / "out/tokenizer.json").exists()


def test_files_below_are_fetched_into_folders_of_their_own(cli, models, tmp_path):
    command, how = cli
    put(models / "m", {"model.safetensors": arrays("a"), "vision/tower/t.safetensors": arrays("b")},
        {"a": "model.safetensors", "b": "vision/tower/t.safetensors"})
    command.ok("fetch", models / "m", tmp_path / "out", "--all", *how)
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()) == [
        "model.safetensors", INDEX, "vision/tower/t.safetensors"]
    loads(command, tmp_path / "out", {**arrays("a"), **arrays("b")}, "--standalone")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "again").mkdir()
    (tmp_path / "again/vision").symlink_to(tmp_path / "elsewhere")
    refused = command.run("fetch", models / "m", tmp_path / "again", "--all", *how)
    assert refused.code == 1 and not list((tmp_path / "elsewhere").iterdir()), refused


def test_a_manifest_covers_files_below(daemon, models):
    put(models / "m", {"model.safetensors": arrays("a"), "vision/t.safetensors": arrays("b")},
        {"a": "model.safetensors", "b": "vision/t.safetensors"})
    daemon.cli.ok("manifest", models / "m", "--out", models / "m/model.manifest.json")
    assert "vision/t.safetensors" in daemon.cli.ok("verify", models / "m").out
    content = bytearray((models / "m/vision/t.safetensors").read_bytes())
    content[-1] ^= 1
    (models / "m/vision/t.safetensors").write_bytes(content)
    refused = daemon.cli.run("load", models / "m")
    assert refused.status == "DATA_LOSS" and "vision/t.safetensors" in refused.err, refused


@pytest.mark.parametrize("scheme", SCHEMES)
def test_files_with_tensors_that_are_left_out_are_still_verified(stored, tmp_path, scheme):
    big = {name: np.arange(i, i + 300_000, dtype=np.float32) for i, name in enumerate("abc")}
    put(tmp_path / "m", {"x.safetensors": big, "y.safetensors": {"b": np.zeros(3)}}, {"a": "x.safetensors", "c": "x.safetensors"})
    daemon, reference = stored(scheme, tmp_path / "m")
    wanted = {name: big[name] for name in "ac"}
    loads(daemon.cli, reference, wanted)
    loads(daemon.cli, reference, wanted)
    assert daemon.cli.run("verify", reference).code == 0
    assert [file["name"] for file in daemon.cli.json("inspect", reference)["files"]] == ["x.safetensors"]


def test_a_manifest_of_files_with_tensors_that_are_left_out_is_good(daemon, models):
    put(models / "m", {"x.safetensors": arrays("a", "b", "c")}, {"a": "x.safetensors", "c": "x.safetensors"})
    daemon.cli.ok("manifest", models / "m", "--out", models / "m/model.manifest.json")
    both = {name: value for name, value in arrays("a", "b", "c").items() if name != "b"}
    loads(daemon.cli, models / "m", both)
    assert daemon.cli.json("load", models / "m")["verified"]["status"] == "verified"
    assert daemon.cli.run("verify", models / "m").code == 0


def test_what_is_kept_warm_needs_its_own_files_only(start, models):
    put(models / "m", {"x.safetensors": arrays("a")}, {"a": "x.safetensors", "b": "y.safetensors"})
    daemon = start(prewarm=[{"artifact": f"{models}/m", "tensors": [pattern]} for pattern in ("a*", "[ab]")])
    assert soon(lambda: "failed" in [row["state"] for row in daemon.cli.json("status")["prewarms"]]
                and len(daemon.cli.json("status")["replicas"]) == 1), daemon.cli.json("status")
    assert daemon.logged("y.safetensors")
