"""export, fuse, reshard against independent software: the safetensors package, NumPy, and PyTorch's distributed checkpoint."""
import json
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import checkpoints
from chain import randperms
from stage import MiB

FORMATS = ["hf", "topology", "dcp"]


def official(path, arrays, metadata=None):
    save_file({k: np.ascontiguousarray(v).reshape(v.shape) for k, v in arrays.items()}, path, metadata)
    return path.read_bytes()


def header(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def whole(folder):
    """Every tensor of a folder that an export wrote, put together without us: {name: array}."""
    document = folder / "topology.json"
    topology = json.loads(document.read_text())["tensors"] if document.exists() else {}
    pieces = {}
    for index, path in enumerate(sorted(folder.glob("*.safetensors"), key=lambda p: (len(p.name), p.name))):
        offsets = json.loads(header(path).get("__metadata__", {}).get("DCP_SHARDING_INFO", "{}"))
        for name, array in checkpoints.read_back(path).items():
            chunks = topology.get(name, {}).get("chunks")
            at = (next(c["offsets"] for c in chunks if c["filename_index"] == index) if chunks
                  else offsets.get(name, {}).get("saved_offsets", [0] * array.ndim))
            pieces.setdefault(name, []).append((at, array))
    result = {}
    for name, parts in pieces.items():
        shape = [max(a[d] + p.shape[d] for a, p in parts) for d in range(parts[0][1].ndim)]
        result[name] = np.zeros(shape, parts[0][1].dtype)
        for at, part in parts:
            result[name][tuple(slice(a, a + n) for a, n in zip(at, part.shape))] = part
    return result


def same(found, arrays):
    assert sorted(found) == sorted(arrays)
    for name, array in arrays.items():
        assert found[name].shape == array.shape and found[name].dtype == array.dtype, name
        assert checkpoints.digest(found[name]) == checkpoints.digest(array), name


def random_arrays(rng, n):
    types = [t for t in checkpoints.TYPES if np.dtype(t) not in (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2))]
    shapes = [tuple(int(x) for x in rng.integers(1, 9, rng.integers(0, 5))) for _ in range(n)]
    names = [str(rng.choice(["a.q_proj.weight", "b.o_proj.weight", "norm", "emb", "x.bias", "mlp.down_proj.weight"])) for _ in shapes]
    return {f"{name}.{i}": checkpoints.random_array(rng, rng.choice(types), shape) for i, (name, shape) in enumerate(zip(names, shapes))}


def random_options(rng, arrays):
    form = str(rng.choice(FORMATS))
    options = ["--format", form]
    if form == "hf":
        return options + (["--max-file-size", f"{rng.integers(1, 2000)}"] if rng.random() < .5 else [])
    options += ["--world-size", int(rng.integers(1, 10)), "--uneven", str(rng.choice(["ceil", "share"]))]
    for name, array in arrays.items():
        if rng.random() < .8:
            rule = int(rng.integers(-array.ndim, array.ndim)) if array.ndim and rng.random() < .8 else "replicate"
            options += ["--tp-rule", f"{name}={rule}"]
    return options


@pytest.mark.parametrize("seed", range(6))
def test_any_chain_of_formats_world_sizes_and_rules_keeps_every_tensor(alone, models, tmp_path, seed):
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, 12)
    names = list(arrays)
    checkpoints.write(models / "m", *[{n: arrays[n] for n in part} for part in np.array_split(names, 3)])
    at = models / "m"
    for step in range(8):
        options = random_options(rng, arrays)
        report = alone.json("export", f"disk:{at}", "--out", tmp_path / f"{step}", "--memory", "16MiB", *options)
        at = tmp_path / f"{step}"
        assert report["tensors"] == len(arrays)
        same(whole(at), arrays)
        for path in at.glob("*.safetensors"):  # the official order and header, in every file
            found = checkpoints.read_back(path)
            assert "dcp" in options or path.read_bytes() == official(
                tmp_path / "theirs", found, header(path).get("__metadata__"))
    alone.ok("fuse", "--input-dir", at, "-o", tmp_path / "one")
    one = tmp_path / "one/model.safetensors"
    assert one.read_bytes() == official(tmp_path / "theirs", arrays, header(one).get("__metadata__"))


def test_names_that_terminals_would_show_otherwise_are_written_as_the_official_writer_does(alone, models, tmp_path):
    names = ["\x7f", "\x9b31m", "\u202egnp", "\u2028", "\xad", "\ufeff", "ä", "😀", 'q"q', "b\\s", "\b\f\n\r\t\x01\x1f", "a/b", ""]
    arrays = {name: np.full(2, i, np.uint8) for i, name in enumerate(names)}
    (models / "m").mkdir()
    theirs = official(models / "m/model.safetensors", arrays, {"a\x7f\u2066": "b\x85\u2029"})
    alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "out")
    assert (tmp_path / "out/model.safetensors").read_bytes() == theirs


def test_a_split_that_reshard_cannot_make_is_said_with_what_can(alone, models, tmp_path):
    checkpoints.write(models / "m", {"w": np.ones((7, 2))})
    done = alone.run("reshard", "--input-dir", models / "m", "-o", tmp_path / "out", "-t", "2")
    assert done.status == "INVALID_ARGUMENT" and "--uneven ceil" in done.err and "'export' with --tp-rule 'w=DIM'" in done.err, done


def test_world_sizes_from_one_to_nine_and_back_by_the_older_tools_rules(alone, models, tmp_path):
    rng = np.random.default_rng(7)
    arrays = {name: checkpoints.random_array(rng, np.float32, shape) for name, shape in
              {"h.0.attn.c_attn.weight": (7, 13), "h.0.mlp.c_proj.weight": (11, 5), "h.0.mlp.c_proj.bias": (10,), "ln_f.norm": (6,),
               "x.up_proj.bias": (3,), "gate": (4,), "other": (3, 2, 5), "step": ()}.items()}
    checkpoints.write(models / "m", arrays)
    at = models / "m"
    for n in [1, 4, 2, 9, 3, 8, 5, 6, 7, 1]:
        alone.ok("reshard", "--input-dir", at, "--output-dir", tmp_path / "r", "--target-world-size", n, "--uneven", "ceil", "--force")
        same(whole(tmp_path / "r"), arrays)
        kinds = {k: (v["type"], [d for d in range(len(v["shape"])) if any(c["offsets"][d] for c in v.get("chunks", []))])
                 for k, v in json.loads((tmp_path / "r/topology.json").read_text())["tensors"].items()}
        if n == 2:
            assert kinds == {"h.0.attn.c_attn.weight": ("Distributed", [1]), "h.0.mlp.c_proj.weight": ("Distributed", [0]),
                             "h.0.mlp.c_proj.bias": ("Distributed", [0]), "ln_f.norm": ("Shared", []), "x.up_proj.bias": ("Shared", []),
                             "gate": ("Shared", []), "other": ("Distributed", [0]), "step": ("Shared", [])}
        at = tmp_path / f"at{n}"
        alone.ok("export", f"disk:{tmp_path}/r", "--out", at, "--format", "dcp", "--world-size", 3, "--uneven", "ceil", "--force")
    # one that does not divide ends cleanly
    refused = alone.run("reshard", "--input-dir", at, "-o", tmp_path / "no", "-t", "4")
    assert refused.status == "INVALID_ARGUMENT" and "c_attn" in refused.err and not (tmp_path / "no").exists()


@pytest.mark.parametrize("world", [1, 2, 4])
def test_pytorch_reads_dcp_output_of_any_split(alone, models, tmp_path, world):
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load
    rng = np.random.default_rng(world)
    arrays = {"rows": rng.standard_normal((7, 4)), "columns": rng.standard_normal((3, 9)), "both": rng.standard_normal((2, 3, 5)),
              "step": np.array(4.5), "few": rng.standard_normal((1, 2)), "ids": np.arange(11)}
    arrays = {k: v.astype(np.int64 if k == "ids" else np.float32) for k, v in arrays.items()}
    checkpoints.write(models / "m", arrays)
    alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "dcp", "--format", "dcp", "--world-size", world, "--uneven", "ceil",
             "--tp-rule", "columns=1", "--tp-rule", "both=-1", "--tp-rule", "step=replicate", "--tp-rule", "*=0")
    target = {k: torch.zeros(v.shape, dtype=torch.int64 if k == "ids" else torch.float32) for k, v in arrays.items()}
    load(target, storage_reader=HuggingFaceStorageReader(str(tmp_path / "dcp")))
    for name, array in arrays.items():
        assert np.array_equal(target[name].numpy(), array), name


def test_a_view_of_a_view_file_and_of_a_mesh_are_exported(alone, models, tmp_path):
    rng = np.random.default_rng(8)
    arrays = checkpoints.write(models / "m", {"w": rng.standard_normal((8, 6)).astype(np.float32), "v": np.arange(5.0)})
    (tmp_path / "view.json").write_text(json.dumps({"tensors": [{"name": "w", "slices": [[1, -1], [None, 3]]}, {"name": "v"}]}))
    alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "a", "--view", tmp_path / "view.json")
    same(whole(tmp_path / "a"), {"w": arrays["w"][1:-1, :3], "v": arrays["v"]})
    alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "b", "--mesh", "x=4", "--mesh-rank", 2, "--spec", "w=x,-", "--spec", "*=-")
    same(whole(tmp_path / "b"), {"w": arrays["w"][4:6], "v": arrays["v"]})
    alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "c", "--slice", "w[2:6, :]", "--tensor", "v", "--format", "topology",
             "--world-size", 2, "--tp-rule", "w=1")
    same(whole(tmp_path / "c"), {"w": arrays["w"][2:6], "v": arrays["v"]})
    for view in [{"tensors": [{"name": "nope"}]}, {"tensors": [{"name": "w", "slices": [None]}]}]:
        (tmp_path / "view.json").write_text(json.dumps(view))
        refused = alone.run("export", f"disk:{models}/m", "--out", tmp_path / "d", "--view", tmp_path / "view.json")
        assert refused.status in ("NOT_FOUND", "INVALID_ARGUMENT") and not (tmp_path / "d").exists()


def test_metadata_is_merged_and_a_contradiction_is_told(alone, models, tmp_path):
    (models / "m").mkdir()
    official(models / "m/1.safetensors", {"a": np.ones(2)}, {"format": "pt", "run": "one"})
    official(models / "m/2.safetensors", {"b": np.ones(2)}, {"format": "pt", "run": "two", "x": "y"})
    told = alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "out", "--format", "topology", "--world-size", "2")
    assert "'run'" in told.err and "'two'" in told.err and "'format'" not in told.err
    for rank in range(2):
        assert header(tmp_path / f"out/rank{rank}.safetensors")["__metadata__"] == {"format": "pt", "run": "one", "x": "y"}


def test_of_a_key_that_a_file_has_twice_the_last_value_counts_however_many_there_are(alone, models, tmp_path):
    pairs = ",".join(f'"k{i}":"{i}"' for i in range(100_000))
    head = f'{{"__metadata__":{{"step":"1",{pairs},"step":"2"}},"a":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}}'.encode()
    (models / "m").mkdir()
    (models / "m/model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"x")
    told = alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "out", timeout=30)
    assert "__metadata__" not in told.err
    assert header(tmp_path / "out/model.safetensors") == json.loads(head)


def test_the_target_may_be_written_as_a_reference_and_be_a_link_to_an_empty_folder(alone, models, tmp_path):
    arrays = checkpoints.write(models / "m", {"w": np.ones((3, 2))})
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for out, folder in [(f"disk:{tmp_path}/a", "a"), (f"file://{tmp_path}/b%20c", "b c"), (f"{tmp_path}/link/", "real")]:
        assert alone.json("export", models / "m", "--out", out)["out"] == out
        same(whole(tmp_path / folder), arrays)
    alone.ok("export", models / "m", "--out", "disk:d", cwd=tmp_path)
    for out, why in [("hf://org/model", "gs:// or s3://"), ("https://host/x", "gs:// or s3://"), ("gcs://bucket/x", "gs://bucket/x"),
                     ("mem:policy", "gs:// or s3://")]:
        refused = alone.run("export", models / "m", "--out", out, cwd=tmp_path)
        assert refused.status == "INVALID_ARGUMENT" and why in refused.err, refused
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b c", "d", "link", "real"]


def test_progress_lines_end_with_everything_done(alone, models, tmp_path):
    checkpoints.write(models / "m", {"w": checkpoints.blob(1, 48 * MiB)})
    told = alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "out", "--progress", "json", "--verify", "--json")
    lines = [json.loads(line) for line in told.err.splitlines()]
    assert all(set(line) == {"stage", "done_bytes", "total_bytes", "bytes_per_second", "eta_s"} for line in lines)
    for stage in ("export", "verify"):
        last = [line for line in lines if line["stage"] == stage][-1]
        assert last["done_bytes"] == last["total_bytes"] == 48 * MiB
    assert json.loads(told.out)["bytes"]["written"] == 48 * MiB
    quiet = alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "out2", "--progress", "json", "--quiet")
    assert quiet.out == quiet.err == ""


def test_a_manifest_of_the_source_is_not_taken_for_one_of_the_output(alone, models, tmp_path):
    arrays = checkpoints.write(models / "m", {"w": np.arange(6.0)})
    alone.ok("manifest", f"disk:{models}/m", "--out", models / "m/model.manifest.json", "--standalone")
    (models / "m/config.json").write_text("{}")
    report = alone.json("export", f"disk:{models}/m", "--out", tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"] == sorted(
        f["name"] for f in report["files"])
    same(whole(tmp_path / "out"), arrays)


@pytest.mark.parametrize("force", [False, True])
def test_the_source_is_never_the_target(alone, models, force):
    arrays = checkpoints.write(models / "m", {"w": np.arange(6.0)})
    for target in [models / "m", models]:
        refused = alone.run("export", f"disk:{models}/m", "--out", target, *(["--force"] if force else []))
        assert refused.status == "FAILED_PRECONDITION", refused
    same(whole(models / "m"), arrays)


def test_a_mount_point_is_refused_before_anything_is_written_and_a_folder_below_it_is_not(alone, models, tmp_path):
    arrays = checkpoints.write(models / "m", {"w": np.arange(6.0)})
    volume = tmp_path / "volume"
    volume.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", volume], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        for force in [[], ["--force"]]:
            done = alone.run("export", f"disk:{models}/m", "--out", volume, *force)
            assert done.status == "FAILED_PRECONDITION" and "mounted on" in done.err and str(volume) in done.err, done
        assert [path.name for path in tmp_path.iterdir()] == ["volume"]
        alone.ok("export", f"disk:{models}/m", "--out", volume / "m")
        same(whole(volume / "m"), arrays)
    finally:
        subprocess.run(["umount", volume], check=True)


def test_an_artifact_without_tensors_or_with_empty_ones_is_exported(alone, models, tmp_path):
    for name, arrays in [("none", {}), ("empty", {"e": np.zeros((0, 4)), "f": np.zeros((4, 0), np.float16)})]:
        checkpoints.write(models / name, arrays)
        for form in [[], ["--format", "topology", "--world-size", "2", "--tp-rule", "*=0"], ["--format", "dcp", "--world-size", "2"]]:
            out = tmp_path / f"{name}{len(form)}"
            alone.ok("export", f"disk:{models}/{name}", "--out", out, *form, "--verify")
            same(whole(out), arrays)


@pytest.mark.plain
@pytest.mark.parametrize("memory", [16, 256])
def test_memory_is_bounded_however_large_and_however_cut(alone, models, tmp_path, memory):
    """Columns of one tensor that is larger than that to eight files and back."""
    checkpoints.write(models / "m", {"w": checkpoints.blob(4, max(96, 5 * memory // 4) * MiB).reshape(8192, -1)})
    bounds = ["--memory", f"{memory}MiB"]
    report = alone.json("export", f"disk:{models}/m", "--out", tmp_path / "r", "--format", "topology", "--world-size", 8, "--tp-rule",
                        "w=1", *bounds)
    back = alone.json("fuse", "--input-dir", tmp_path / "r", "-o", tmp_path / "one", "--verify", *bounds)
    assert max(report["peak_memory_bytes"], back["peak_memory_bytes"]) <= max(memory, 40) * MiB
    assert subprocess.run(["cmp", models / "m/model.safetensors", tmp_path / "one/model.safetensors"], check=False).returncode == 0


@pytest.mark.plain
@pytest.mark.parametrize("memory", [64, 256])
def test_memory_is_bounded_where_single_elements_change_places(alone, models, tmp_path, memory):
    """Shuffled columns: what says where they go is larger than they are."""
    hidden, inner, experts = 14336, 1792, 64
    w2 = np.random.default_rng(11).integers(0, 65536, (256, hidden), np.uint16)
    checkpoints.write(models / "m", {"moe.experts.w2": w2, "moe.experts.w1": np.ascontiguousarray(w2.T)})
    settings = [word for key, value in [("experts", experts), ("inter_dim", inner), ("shuffle_seed", 42)] for word in ("--set", f"{key}={value}")]
    report = alone.json("export", f"disk:{models}/m", "--out", tmp_path / "out", "--variant", "moe-upcycle", *settings, "--memory", f"{memory}MiB")
    assert report["peak_memory_bytes"] <= memory * MiB
    made, groups = whole(tmp_path / "out"), hidden // inner
    orders = [np.arange(hidden), *randperms(42, hidden, experts // groups - 1)]
    for expert in (0, groups, experts - 1):
        rows = orders[expert // groups][expert % groups * inner:][:inner]
        assert (made["moe.experts.w2"][expert] == w2[:, rows]).all() and (made["moe.experts.w1"][expert] == w2.T[rows]).all()


@pytest.mark.plain
def test_an_export_leaves_the_page_cache_as_it_was(alone, models, tmp_path):
    checkpoints.write(models / "m", {"w": checkpoints.blob(5, 256 * MiB)})
    alone.ok("export", f"disk:{models}/m", "--out", tmp_path / "out")
    cached = subprocess.run(["fincore", "-b", "-n", "-o", "RES", tmp_path / "out/model.safetensors"], capture_output=True, text=True,
                            check=True)
    assert int(cached.stdout) <= 32 * MiB


def test_a_mapping_names_the_file_of_every_tensor(alone, models, tmp_path):
    arrays = {name: np.arange(n, dtype=np.float32) for n, name in enumerate("abc", 1)}
    (models / "m").mkdir()
    save_file(arrays, models / "m/model.safetensors")
    files = {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"}
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps({"weight_map": files}))
    alone.ok("export", models / "m", "--out", tmp_path / "out", "--mapping", mapping)
    for name in set(files.values()):
        assert {k: v.tolist() for k, v in checkpoints.read_back(tmp_path / "out" / name).items()} == \
            {k: arrays[k].tolist() for k in files if files[k] == name}
    assert json.loads((tmp_path / "out/model.safetensors.index.json").read_text())["weight_map"] == files
    mapping.write_text(json.dumps({"weight_map": {**files, "d": "one.safetensors"}}))
    failed = alone.run("export", models / "m", "--out", tmp_path / "no", "--mapping", mapping)
    assert failed.status == "INVALID_ARGUMENT" and "'d'" in failed.err and not (tmp_path / "no").exists(), failed


@pytest.mark.parametrize("more", [0, 1])
def test_a_mapping_of_256_mib_is_read_and_one_byte_more_is_refused(alone, models, tmp_path, more):
    save_file({"a": np.zeros(1, np.float32)}, models / "model.safetensors")
    with open(tmp_path / "mapping.json", "wb") as file:
        file.truncate((256 << 20) + more)  # zeros, which are no JSON
    failed = alone.run("export", models / "model.safetensors", "--out", tmp_path / "out", "--mapping", tmp_path / "mapping.json")
    assert ("mapping.json is longer than 256 MiB" in failed.err) == bool(more) and failed.code == 1, failed


def test_a_mapping_of_no_tensor_makes_no_unreadable_index(alone, models, tmp_path):
    (models / "m").mkdir()
    save_file({}, models / "m/model.safetensors")
    (tmp_path / "mapping.json").write_text('{"weight_map": {}}')
    failed = alone.run("export", models / "m", "--out", tmp_path / "out", "--mapping", tmp_path / "mapping.json")
    assert failed.code == 1 and "INVALID_ARGUMENT" in failed.err and "no tensor to name" in failed.err and not (tmp_path / "out").exists()
