"""Whole models in small, without vLLM: layers whose weight loaders cut up checkpoint tensors as vLLM's do, on every rank of tensor
parallelism, pipeline stages, expert parallelism and draft models. Parameters come out as with real tensors (scene.load
compares), and each rank asks for its own part and hardly more."""
import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from scene import POISON, counting, load  # noqa: E402

HIDDEN, HEADS, KV_HEADS, HEAD, MIDDLE, LAYERS, VOCAB, EXPERTS, PADDED = 16, 4, 2, 4, 24, 4, 13, 4, 16
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


class Rank:
    """One of `size` ranks, of one of `stages` pipeline stages; with `together` experts are split and not cut."""

    def __init__(self, rank=0, size=1, stage=0, stages=1, together=False):
        self.rank, self.size, self.stage, self.stages, self.together = rank, size, stage, stages, together

    def part(self, extent):
        return extent // self.size * self.rank, extent // self.size

    @property
    def layers(self):
        per = LAYERS // self.stages
        return range(self.stage * per, (self.stage + 1) * per)

    @property
    def experts(self):
        per = EXPERTS // self.size if self.together else EXPERTS
        return range(self.rank * per, (self.rank + 1) * per) if self.together else range(EXPERTS)


class Decoder(torch.nn.Module):
    """Fused parameters, filled by loaders of the kind that vLLM's layers have."""

    def __init__(self, rank, dtype=BF16, weight=BF16, scales=False, moe=False, tied=False, draft=False):
        super().__init__()
        self.at, self.tied, self.loaders = rank, tied, {}
        first, last = rank.stage == 0, rank.stage == rank.stages - 1
        if first or (last and tied):
            self._put("embed", (PADDED // rank.size, HIDDEN), dtype)
        for layer in rank.layers:
            self._layer(layer, rank, dtype, weight, scales, moe)
        if draft:
            self._put("fc", (HIDDEN, 2 * HIDDEN), dtype)
        if last:
            self._put("norm", (HIDDEN,), dtype)
            if not tied:
                self._put("head", (PADDED // rank.size, HIDDEN), dtype)

    def _put(self, name, shape, dtype):
        self.register_parameter(name, torch.nn.Parameter(torch.full(shape, POISON, dtype=torch.float32).to(dtype), False))

    def _layer(self, layer, rank, dtype, weight, scales, moe):
        share = lambda extent: extent // rank.size  # noqa: E731
        rows = {"qkv": share((HEADS + 2 * KV_HEADS) * HEAD), "o": HIDDEN, "gate_up": 2 * share(MIDDLE), "down": HIDDEN}
        columns = {"qkv": HIDDEN, "o": share(HEADS * HEAD), "gate_up": HIDDEN, "down": share(MIDDLE)}
        for name in ("qkv", "o", *(() if moe else ("gate_up", "down"))):
            self._put(f"{layer}_{name}", (rows[name], columns[name]), weight)
            if scales:
                self._put(f"{layer}_{name}_scale", (rows[name], 1), torch.float32)
        if moe:
            middle = MIDDLE if rank.together else share(MIDDLE)
            self._put(f"{layer}_router", (EXPERTS, HIDDEN), dtype)
            self._put(f"{layer}_w13", (len(rank.experts), 2 * middle, HIDDEN), weight)
            self._put(f"{layer}_w2", (len(rank.experts), HIDDEN, middle), weight)
        self._put(f"{layer}_input_norm", (HIDDEN,), dtype)

    # --- loading ---
    def load_weights(self, weights):
        loaded, parameters = set(), dict(self.named_parameters())
        for name, tensor in weights:
            target = self._load(name, tensor, parameters)
            if target:
                loaded.add(target)
        return loaded

    def _load(self, name, tensor, parameters):
        words = name.split(".")
        if words[0] == "layers":
            layer, rest = int(words[1]), words[2:]
            return self._load_layer(layer, rest, tensor, parameters) if layer in self.at.layers else None
        if words[0] in ("embed", "head"):
            return self._vocabulary(words[0], tensor, parameters)
        if words[0] in parameters:  # norm, fc
            parameters[words[0]].data.copy_(tensor)
            return words[0]
        return None

    def _vocabulary(self, name, tensor, parameters):
        if name not in parameters:
            return None
        first, rows = self.at.part(PADDED)
        rows = max(0, min(first + rows, VOCAB) - first)
        parameters[name].data[:rows].copy_(tensor.narrow(0, first, rows))
        parameters[name].data[rows:].fill_(0)
        return name

    def _load_layer(self, layer, words, tensor, parameters):
        kind, suffix = words[0], "_scale" if words[-1] == "scale" else ""
        if kind in ("q", "k", "v"):
            return self._fused(parameters, f"{layer}_qkv{suffix}", tensor, self._qkv()[kind])
        if kind in ("gate", "up"):
            return self._fused(parameters, f"{layer}_gate_up{suffix}", tensor,
                               (MIDDLE // self.at.size * (kind == "up"), MIDDLE // self.at.size))
        if kind == "qkv":  # fused on disk
            offset = 0
            for which, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
                self._fused(parameters, f"{layer}_qkv", tensor.narrow(0, offset, heads * HEAD), self._qkv()[which])
                offset += heads * HEAD
            return f"{layer}_qkv"
        if kind == "gate_up":
            for at, half in enumerate(tensor.chunk(2)):
                self._fused(parameters, f"{layer}_gate_up", half, (MIDDLE // self.at.size * at, MIDDLE // self.at.size))
            return f"{layer}_gate_up"
        if kind == "experts":
            return self._expert(layer, int(words[1]), words[2], tensor, parameters)
        return self._row_parallel(parameters, f"{layer}_{kind}{suffix}", tensor)

    def _qkv(self):
        q, kv = HEADS * HEAD // self.at.size, KV_HEADS * HEAD // self.at.size
        return {"q": (0, q), "k": (q, kv), "v": (q + kv, kv)}

    def _fused(self, parameters, name, tensor, place):
        offset, rows = place
        tensor = tensor.narrow(0, self.at.rank * rows, rows)
        parameters[name].data.narrow(0, offset, rows).copy_(tensor)
        return name

    def _row_parallel(self, parameters, name, tensor):
        parameter = parameters[name].data
        if tensor.dim() == 2 and parameter.shape[1] != tensor.shape[1]:
            tensor = tensor.narrow(1, self.at.rank * parameter.shape[1], parameter.shape[1])
        parameter.copy_(tensor)
        return name

    def _expert(self, layer, expert, kind, tensor, parameters):
        if expert not in self.at.experts:
            return None
        local = expert - self.at.experts.start
        fused = parameters[f"{layer}_w2" if kind == "w2" else f"{layer}_w13"].data[local]
        middle = fused.shape[1] if kind == "w2" else fused.shape[0] // 2
        first = 0 if self.at.together else self.at.rank * middle
        tensor = tensor.narrow(1 if kind == "w2" else 0, first, middle)
        (fused if kind == "w2" else fused.narrow(0, middle * (kind == "w3"), middle)).copy_(tensor)
        return f"{layer}_w13"


def checkpoint(dtype=BF16, weight=BF16, scales=False, moe=False, tied=False, draft=False, fused=False, layers=LAYERS):
    tensors = {"embed": counting(VOCAB, HIDDEN, dtype=dtype), "norm": counting(HIDDEN, dtype=dtype)}
    if not tied:
        tensors["head"] = counting(VOCAB, HIDDEN, dtype=dtype) + 1
    if draft:
        tensors["fc"] = counting(HIDDEN, 2 * HIDDEN, dtype=dtype)
    for layer in range(layers):
        q, kv = HEADS * HEAD, KV_HEADS * HEAD
        shapes = {"qkv": (q + 2 * kv, HIDDEN)} if fused else {"q": (q, HIDDEN), "k": (kv, HIDDEN), "v": (kv, HIDDEN)}
        shapes["o"] = (HIDDEN, q)
        mlp = {"gate_up": (2 * MIDDLE, HIDDEN)} if fused else {"gate": (MIDDLE, HIDDEN), "up": (MIDDLE, HIDDEN)}
        if moe:
            shapes["router"] = (EXPERTS, HIDDEN)
            for expert in range(EXPERTS):
                shapes.update({f"experts.{expert}.w1": (MIDDLE, HIDDEN), f"experts.{expert}.w3": (MIDDLE, HIDDEN),
                               f"experts.{expert}.w2": (HIDDEN, MIDDLE)})
        else:
            shapes.update(mlp, down=(HIDDEN, MIDDLE))
        for at, (name, shape) in enumerate(shapes.items()):
            tensors[f"layers.{layer}.{name}"] = ((counting(*shape) + 31 * at + 7 * layer) % 101 - 50).to(weight)
            if scales:
                tensors[f"layers.{layer}.{name}.scale"] = counting(shape[0], 1) + at
        tensors[f"layers.{layer}.input_norm"] = counting(HIDDEN, dtype=dtype)
    return tensors


def ranks(size=1, stages=1, **how):
    return [Rank(rank, size, stage, stages, **how) for stage in range(stages) for rank in range(size)]


def outcomes(model, **how):
    """(the checkpoint, its bytes, [(rank, what became of its load)])"""
    tensors = checkpoint(**{**model, **how.pop("disk", {})})
    total = sum(tensor.nbytes for tensor in tensors.values())
    return tensors, total, [(rank, load(lambda: Decoder(rank, **model), tensors)) for rank in ranks(**how)]


def asked(outcome):
    return {name for request in outcome.plan.requests for name in request}


KINDS = {"plain": {}, "tied": {"tied": True}, "int8": {"weight": torch.int8, "scales": True},
         "fp8": {"weight": FP8, "scales": True}, "experts": {"moe": True}, "fp32": {"dtype": torch.float32, "weight": torch.float32}}


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_every_rank_asks_for_its_part_and_nothing_is_loaded_whole(kind, size):
    tensors, total, done = outcomes(KINDS[kind], size=size)
    for rank, outcome in done:
        assert not outcome.fetched and not outcome.plan.real and asked(outcome) == set(tensors)
    replicated = sum(tensor.nbytes for name, tensor in tensors.items()
                     if "norm" in name or "router" in name or name.endswith(("o.scale", "down.scale")))
    assert sum(outcome.plan.bytes for _, outcome in done) == total + (size - 1) * replicated


@pytest.mark.parametrize("size", [1, 2])
def test_what_is_fused_on_disk_is_taken_apart_and_hardly_overread(size):
    _, total, done = outcomes({}, size=size, disk={"fused": True})
    for _, outcome in done:
        assert not outcome.fetched and outcome.plan.bytes <= 1.25 * (total / size + 16 * HIDDEN * 2)


def test_the_end_of_a_padded_vocabulary_is_zero_and_not_asked_for():
    _, _, done = outcomes({}, size=2)
    first, last = (outcome for _, outcome in done)
    (box,) = [box for request in last.plan.requests for name, box in request.items() if name == "embed"]
    assert (box.start[0], box.stop[0]) == (PADDED // 2, VOCAB)
    assert not last.model.embed[VOCAB - PADDED // 2:].any() and first.model.embed.all()


@pytest.mark.parametrize("kind", ["plain", "tied", "experts"])
@pytest.mark.parametrize("size, stages", [(1, 2), (2, 2), (1, 4)])
def test_a_stage_asks_for_its_own_layers(kind, size, stages):
    tensors, _, done = outcomes(KINDS[kind], size=size, stages=stages)
    for rank, outcome in done:
        layers = {int(name.split(".")[1]) for name in asked(outcome) if name.startswith("layers")}
        assert layers == set(rank.layers) and not outcome.fetched
        assert ("norm" in asked(outcome)) == (rank.stage == stages - 1)
        assert ("embed" in asked(outcome)) == (rank.stage == 0 or kind == "tied" and rank.stage == stages - 1)
    assert set().union(*(asked(outcome) for _, outcome in done)) == set(tensors)


def test_a_rank_asks_for_its_own_experts_whole():
    tensors, _, done = outcomes(KINDS["experts"], size=2, together=True)
    for rank, outcome in done:
        experts = {int(name.split(".")[3]) for name in asked(outcome) if ".experts." in name}
        assert experts == set(rank.experts) and not outcome.fetched
        for request in outcome.plan.requests:
            for name, box in request.items():
                assert ".experts." not in name or math.prod(box.shape) == tensors[name].numel()


def test_a_draft_model_takes_its_layer_and_shares_what_the_target_gives_it():
    """As EAGLE: one layer and a projection of its own, no embedding in the checkpoint; the target's is put in its place later."""
    class Draft(Decoder):
        def load_weights(self, weights):
            return super().load_weights((name, tensor) for name, tensor in weights if name != "head")

    tensors = {name: tensor for name, tensor in checkpoint(draft=True, layers=1).items() if name != "embed"}
    rank = Rank(stages=LAYERS)  # of one layer
    outcome = load(lambda: Draft(rank, draft=True), tensors)
    assert asked(outcome) == {name for name in tensors if name.startswith("layers.0")} | {"fc"}
    assert (outcome.model.embed == torch.tensor(float(POISON), dtype=BF16)).all()  # untouched


# --- the fixtures T1 to T4 of the trace ---

class One(torch.nn.Module):
    def __init__(self, take, shape, dtype):
        super().__init__()
        self.take, self.p = take, torch.nn.Parameter(torch.full(shape, POISON, dtype=dtype), False)

    def load_weights(self, weights):
        for _, tensor in weights:
            self.take(self.p.data, tensor)
        return {"p"}


def of_one(take, shape, source, dtype=torch.float16):
    return load(lambda: One(take, shape, dtype), {"x": source})


def test_t1_a_copy_of_a_narrow_and_a_fill_of_the_rest():
    outcome = of_one(lambda p, x: (p[:5].copy_(x.narrow(0, 0, 5)), p[5:].fill_(0)), (10,), torch.arange(10, dtype=torch.float16))
    (request,) = outcome.plan.requests
    assert (request["x"].start, request["x"].stop) == ((0,), (5,))
    assert outcome.model.p.tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 0, 0]
    assert len(outcome.plan.written) == 1


def test_t2_a_scalar_of_the_checkpoint_fills_a_parameter():
    outcome = of_one(lambda p, x: p.fill_(x), (3, 2), torch.tensor(7.0, dtype=torch.float16))
    assert outcome.model.p.unique().tolist() == [7] and not outcome.fetched


def test_t2_a_scalar_that_is_taken_with_item_fills_a_parameter():
    outcome = of_one(lambda p, x: p.fill_(x.item()), (3, 2), torch.tensor(7.0, dtype=torch.float16))
    assert outcome.model.p.unique().tolist() == [7] and outcome.fetched == ["x"]


def test_t3_a_gap_in_what_is_filled_is_found():
    outcome = of_one(lambda p, x: (p[:3].copy_(x[:3]), p[5:].copy_(x[5:])), (10,), torch.arange(10, dtype=torch.float16))
    (key,) = outcome.plan.steps
    assert outcome.plan.gaps({key: ("p", 10)}) == ["p"]
    assert outcome.model.p[3:5].tolist() == [POISON, POISON]


def test_t4_one_scalar_fills_several_ranges():
    outcome = of_one(lambda p, x: p[2, :3].fill_(x), (4, 5), torch.tensor(7.0, dtype=torch.float16))
    expected = torch.full((4, 5), POISON, dtype=torch.float16)
    expected[2, :3] = 7
    assert torch.equal(outcome.model.p, expected)
