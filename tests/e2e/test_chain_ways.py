"""The chain of test_chain.py by the other ways that its tensors leave: into strided memory of the caller, as pages of the files,
and written anew in every layout. TEST_SEED repeats a case, CHAIN_CASES says how many there are, as there."""
import json
import shutil

import numpy as np

import tensorcast_client as tc
from chain import BITS, of_floats, random_view, write_file
from test_chain import EXECUTORS, N_CASES, Case, compare, document, seeds


SPREAD = 4  # dimensions with steps and gaps; each takes up to six times the memory


def spread(rng, region, dtype, shape, offset):
    """An array of that shape in a region behind `offset`, with random order of axes, steps, directions and gaps; and its end."""
    order, steps = rng.permutation(len(shape)), rng.integers(1, 4, len(shape))
    steps[SPREAD:] = 1
    room = [max(1, shape[dim] * int(steps[dim]) + int(dim < SPREAD and rng.integers(0, 3))) for dim in order]
    base = region(dtype, tuple(room), offset).transpose(np.argsort(order))
    part = base[(*(slice(0, size * int(step), int(step)) for size, step in zip(shape, steps)), ...)]
    part = part[(*(slice(None, None, int(rng.choice([1, -1]))) for _ in shape), ...)]
    return part, offset + int(np.prod(room)) * dtype.itemsize


def random_targets(rng, dtypes, wanted):
    """{name: a strided array in one of two regions}, with the regions and what they hold when every target is filled."""
    room = 4096 + sum(int(np.prod([*(3 * n + 3 for n in t.shape[:SPREAD]), *(max(n, 1) for n in t.shape[SPREAD:])])) * 8 + 64
                      for t in wanted.values())
    regions, shadows = [tc.HostRegion(room) for _ in range(2)], [np.zeros(room, np.uint8) for _ in range(2)]
    ends, targets = [1, 6], {}
    for name, tensor in wanted.items():
        which, how, bits = int(rng.integers(2)), int(rng.integers(1 << 30)), np.dtype(BITS[tensor.bits.itemsize])
        twin, _ = spread(np.random.default_rng(how), lambda dtype, shape, at: np.ndarray(shape, dtype, shadows[which], at),
                         bits, tensor.shape, ends[which])
        twin[...] = tensor.bits
        targets[name], ends[which] = spread(np.random.default_rng(how), regions[which].array, dtypes[name], tensor.shape, ends[which])
    return targets, regions, shadows


def test_views_of_variants_land_in_strided_memory_of_the_caller(daemon, models):
    with tc.connect(daemon.socket) as client:
        for seed in seeds(max(N_CASES // 8, 1)):
            case = Case(seed, models)
            recipe, executor = case.recipe(), str(case.rng.choice(EXECUTORS))
            names, slices, wanted = random_view(case.rng, recipe.tensors)
            view = client.artifact(case.reference).variant(document(recipe)).subset(names).view(slices)
            with view.tensor_dict(framework="numpy") as like:
                targets, regions, shadows = random_targets(case.rng, {name: like[name].dtype for name in names}, wanted)
            told = case.told(recipe, executor, slices, {name: target.strides for name, target in targets.items()})
            view.load_into(targets, options=tc.Options(executor=executor))
            for region, shadow in zip(regions, shadows):
                np.testing.assert_array_equal(region.array(np.uint8, shadow.shape), shadow, err_msg=told)
            client.release()
            case.remove()


def test_columns_of_one_matrix_go_to_several_regions(daemon, models):
    """Their elements lie side by side in the file, and with much that no target wants between them in memory."""
    made = np.arange(256 * 3, dtype=np.float32).reshape(256, 3)
    write_file(models / "m.safetensors", {"w": of_floats(made, "F32")})
    recipe = {"version": 1, "steps": [{"unstack": {"from": "w", "to": "column.{}", "dim": 1}}]}
    with tc.connect(daemon.socket) as client:
        regions = [tc.HostRegion(8192) for _ in range(3)]
        for executor in EXECUTORS:
            targets = {f"column.{i}": region.array(np.float32, (256,), 8 + 4 * i)[::-1] for i, region in enumerate(regions)}
            client.artifact(f"disk:{models}/m.safetensors").variant(recipe).load_into(targets, options=tc.Options(executor=executor))
            for i, region in enumerate(regions):
                assert (region.array(np.float32, (256,), 8 + 4 * i)[::-1] == made[:, i]).all(), executor
                assert not region.array(np.uint8, (4096,), 4096).any()
                region.array(np.uint8, (8192,))[...] = 0


def test_mapped_views_of_variants_are_what_copies_are(start, models):
    daemon = start(sources={"disk": {"trusted_roots": [str(models)], "immutable_roots": [str(models)]}})
    mapped = 0
    with tc.connect(daemon.socket) as client:
        for seed in seeds(max(N_CASES // 4, 1)):
            case = Case(seed, models)
            recipe = case.recipe()
            for memory in ("mapped", "auto"):
                names, slices, wanted = random_view(case.rng, recipe.tensors)
                view = client.artifact(case.reference).variant(document(recipe)).subset(names).view(slices)
                try:
                    with view.tensor_dict(framework="numpy", options=tc.Options(memory=memory)) as loaded:
                        compare(loaded, names, wanted, case.told(recipe, memory, names, slices))
                        mapped += memory == "mapped"
                except tc.TensorcastError as error:
                    assert memory == "mapped" and error.code.name == "FAILED_PRECONDITION", (case.told(recipe, memory), error)
            client.release()
            case.remove()
    assert mapped or N_CASES < 40, "nothing was mapped"


def export(cli, models, tmp_path, case, recipe):
    """Writes the variant in some layout; returns how it was told to."""
    form = str(case.rng.choice(["hf", "topology", "dcp"]))
    options = ["--format", form, *(["--verify"] if case.rng.random() < .4 else [])]
    if form != "hf":
        options += ["--world-size", int(case.rng.integers(1, 6)), "--uneven", str(case.rng.choice(["ceil", "share"]))]
    elif case.rng.random() < .5:
        options += ["--max-file-size", "64KB"]
    (tmp_path / "recipe.json").write_text(json.dumps(document(recipe)))
    done = cli.run("export", case.reference, "--variant", tmp_path / "recipe.json", "--out", models / "out", *options)
    assert done.code == 0, (case.told(recipe, options), done)
    return options


def test_variants_that_are_exported_are_the_same_in_every_layout(daemon, models, tmp_path):
    with tc.connect(daemon.socket) as client:
        for seed in seeds(max(N_CASES // 6, 1)):
            case = Case(seed, models)
            recipe = case.recipe()
            told = case.told(recipe, export(daemon.cli, models, tmp_path, case, recipe))
            artifact = client.artifact(f"disk:{models}/out")
            assert sorted(artifact.tensor_names) == sorted(recipe.tensors), told
            names, slices, wanted = random_view(case.rng, recipe.tensors)
            with artifact.subset(names).view(slices).tensor_dict(framework="numpy") as loaded:
                compare(loaded, names, wanted, told)
            client.release()
            shutil.rmtree(models / "out")
            case.remove()
