"""The whole chain against NumPy: random layouts, random variants of them, random slices of those, of every type, loaded by each
executor, by groups of ranks with variants of their own, and into (fake) GPU memory. TEST_SEED repeats a case; a failure prints
it. CHAIN_CASES is how many there are."""
import json
import os
import random
import shutil
import threading

import numpy as np

import tensorcast_client as tc
from chain import LAYOUTS, Recipe, random_checkpoint, random_view
from fake_gpu import environment, needs_plugin, see_gpus
from group_scene import strategy

SEED = int(os.environ.get("TEST_SEED", 0))
N_CASES = int(os.environ.get("CHAIN_CASES", 60))
EXECUTORS = ["generic", "local", "auto"]


def seeds(n):
    return [SEED] if SEED else [random.SystemRandom().randrange(1, 2**32) for _ in range(n)]


class Case:
    """A checkpoint of its own folder, and what a recipe makes of it."""

    def __init__(self, seed, models):
        self.seed, self.rng = seed, np.random.default_rng(seed)
        self.tensors, self.block = random_checkpoint(self.rng)
        self.folder = models / f"m{seed}"
        self.folder.mkdir()
        self.layout = LAYOUTS[self.rng.integers(0, len(LAYOUTS))]
        self.layout(self.rng, self.folder, self.tensors)
        self.reference = f"disk:{self.folder}"

    def recipe(self):
        return Recipe(self.rng, self.tensors, self.block)

    def told(self, recipe, *more):
        return f"TEST_SEED={self.seed} {self.layout.__name__} {json.dumps(recipe.steps)} {more}"

    def remove(self):
        shutil.rmtree(self.folder)


def document(recipe):
    return {"version": 1, "steps": recipe.steps}


def compare(loaded, names, wanted, told):
    assert list(loaded) == names, told
    for name in names:
        want, got = wanted[name], loaded[name]
        assert loaded.dtypes[name] == want.dtype and got.shape == want.shape, (told, name, loaded.dtypes[name], got.shape)
        assert got.tobytes() == want.data(), (told, name)


def test_views_of_variants_of_layouts_are_what_numpy_makes_of_them(daemon, models):
    with tc.connect(daemon.socket) as client:
        for seed in seeds(N_CASES):
            case = Case(seed, models)
            for _ in range(3):
                recipe = case.recipe()
                told = case.told(recipe)
                variant = client.artifact(case.reference).variant(document(recipe))
                assert sorted(variant.tensor_names) == sorted(recipe.tensors), told
                for executor in EXECUTORS:
                    names, slices, wanted = random_view(case.rng, recipe.tensors)
                    align = int(2 ** case.rng.integers(0, 8))
                    view = variant.subset(names).view(slices, align=align)
                    with view.tensor_dict(framework="numpy", options=tc.Options(executor=executor)) as loaded:
                        compare(loaded, names, wanted, (told, executor, align, names, slices))
                client.release()
            case.remove()


class Rank(threading.Thread):
    def __init__(self, socket, reference, recipe, view, group):
        super().__init__(daemon=True)
        self.socket, self.reference, self.recipe, self.view, self.group = socket, reference, recipe, view, group
        self.loaded, self.error = None, None

    def run(self):
        try:
            names, slices, _ = self.view
            with tc.connect(self.socket) as client:
                artifact = client.artifact(self.reference).variant(document(self.recipe))
                options = tc.Options(group=self.group, source_locality="shared_source", deadline=60)
                self.loaded = artifact.subset(names).view(slices).tensor_dict(framework="numpy", options=options)
        except Exception as error:
            self.error = error


def test_ranks_of_a_group_have_variants_and_slices_of_their_own(start, models):
    daemon = start(**strategy(owner_file_collective_min_dedup_saving_bytes="0"))
    together = 0
    with tc.connect(daemon.socket) as client:
        for seed in seeds(max(N_CASES // 4, 1)):
            case = Case(seed, models)
            size, shared = int(case.rng.integers(2, 5)), case.recipe() if case.rng.random() < .5 else None
            ranks = []
            for rank in range(size):
                recipe = shared or case.recipe()
                group = tc.CollectiveLoadGroup(f"g{seed}", rank, size)
                ranks.append(Rank(daemon.socket, case.reference, recipe, random_view(case.rng, recipe.tensors), group))
            for rank in ranks:
                rank.start()
            for rank in ranks:
                rank.join(90)
                told = (case.told(rank.recipe), rank.group, rank.view[:2])
                assert rank.error is None and rank.loaded is not None, (told, rank.error)
                compare(rank.loaded, rank.view[0], rank.view[2], told)
                collective = rank.loaded.diagnostics.get("collective") or {}
                together += not collective.get("skip_reason", "alone")
                rank.loaded.close()
            client.release()
            case.remove()
    assert together or SEED, "no group loaded together"


@needs_plugin
def test_variants_arrive_in_gpu_memory(start, models, tmp_path):
    daemon = start(running=False).start(environment=environment())
    see_gpus(daemon.cli)
    for seed in seeds(max(N_CASES // 10, 1)):
        case = Case(seed, models)
        recipe = case.recipe()
        names, slices, wanted = random_view(case.rng, recipe.tensors)
        (tmp_path / "recipe.json").write_text(json.dumps(document(recipe)))
        view = {"tensors": [{"name": name, **({"slices": [[part.start, part.stop] for _, part in slices[name]]} if name in slices else {})}
                            for name in names]}
        report = daemon.cli.json("load", case.reference, "--variant", tmp_path / "recipe.json", "--device", "cuda:0", "--view", "-", "--out",
                                 tmp_path / "out", stdin=json.dumps(view))
        with open(tmp_path / "out", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        for name in names:
            begin, end = header[name]["data_offsets"]
            assert data[begin:end] == wanted[name].data(), (case.told(recipe), name, slices.get(name))
        assert [tensor["name"] for tensor in report["tensors"]] == names
        case.remove()
