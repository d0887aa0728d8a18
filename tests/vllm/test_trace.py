"""Tracing small models: what is put off, what is asked for, and that the parameters come out as with real tensors."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from scene import POISON, Model, counting, load  # noqa: E402
from tensorcast_vllm.attempts import trace  # noqa: E402
from tensorcast_vllm.trace import Source  # noqa: E402


def boxes(outcome, name):
    """The bounds asked for of a tensor, in each request that has it."""
    return [list(zip(request[name].start, request[name].stop)) for request in outcome.plan.requests if name in request]


def one(take, shape, source, **how):
    """Loads the parameter p of this shape from the tensor x."""
    return load(lambda: Model(lambda model, name, tensor: take(model.p, tensor), {"p": shape}), {"x": source}, **how)


VIEWS = {
    "narrow": (lambda p, x: p.copy_(x.narrow(0, 2, 4)), (4, 6), [(2, 6), (0, 6)]),
    "narrow of a column": (lambda p, x: p.copy_(x.narrow(1, 3, 2)), (8, 2), [(0, 8), (3, 5)]),
    "narrow twice": (lambda p, x: p.copy_(x[2:][1:3]), (2, 6), [(3, 5), (0, 6)]),
    "transpose": (lambda p, x: p.copy_(x.t()[1:3]), (2, 8), [(0, 8), (1, 3)]),
    "select": (lambda p, x: p.copy_(x[5]), (6,), [(5, 6), (0, 6)]),
    "select of a column": (lambda p, x: p.copy_(x[:, 4]), (8,), [(0, 8), (4, 5)]),
    "chunk": (lambda p, x: p.copy_(x.chunk(4)[3]), (2, 6), [(6, 8), (0, 6)]),
    "split": (lambda p, x: p.copy_(x.split([5, 3])[1]), (3, 6), [(5, 8), (0, 6)]),
    "unbind": (lambda p, x: p.copy_(x.unbind(1)[2]), (8,), [(0, 8), (2, 3)]),
    "step": (lambda p, x: p.copy_(x[1::3]), (3, 6), [(1, 8), (0, 6)]),
    "merged dimensions": (lambda p, x: p.copy_(x[2:4].reshape(-1)), (12,), [(2, 4), (0, 6)]),
    "split dimensions": (lambda p, x: p.copy_(x.view(2, 4, 6)[1]), (4, 6), [(4, 8), (0, 6)]),
    "permuted halves": (lambda p, x: p.copy_(x.view(2, 4, 6).permute(1, 0, 2)[1:3]), (2, 2, 6), [(1, 7), (0, 6)]),
    "across rows": (lambda p, x: p.copy_(x.view(-1)[3:15]), (12,), [(0, 3), (0, 6)]),
    "expand": (lambda p, x: p.copy_(x[1, 2]), (3,), [(1, 2), (2, 3)]),
    "into a part": (lambda p, x: p[1:3].copy_(x[:2]), (5, 6), [(0, 2), (0, 6)]),
    "into a transposed part": (lambda p, x: p.t()[:, 2:4].copy_(x[6:8].t()), (5, 6), [(6, 8), (0, 6)]),
    "set item": (lambda p, x: p.data.__setitem__((slice(0, 1), 3), x[0, 0]), (2, 6), [(0, 1), (0, 1)]),
    "fill from an element": (lambda p, x: p.fill_(x[3, 3]), (2, 2), [(3, 4), (3, 4)]),
    "cast at the end": (lambda p, x: p.view(torch.int32).copy_(x[:2]), (2, 6), [(0, 2), (0, 6)]),
}


@pytest.mark.parametrize("what", VIEWS)
def test_a_view_is_asked_for_by_exactly_its_box(what):
    take, shape, expected = VIEWS[what]
    outcome = one(take, shape, counting(8, 6))
    assert boxes(outcome, "x") == [expected] and not outcome.fetched


OPERATIONS = {
    "cast": lambda p, x: p.copy_(x[2:4].to(torch.float16)),
    "clone": lambda p, x: p.copy_(x[2:4].clone()),
    "contiguous transpose": lambda p, x: p.copy_(x.t()[:, 2:4].contiguous().t()),
    "clone of a transposed part": lambda p, x: p.copy_(x[2:4, :].t().clone().t()),
    "arithmetic": lambda p, x: p.copy_(x[2:4] * 2 + 1),
    "to the place of the parameter": lambda p, x: p.copy_(x[2:4].to(p.device)),
    "concatenation": lambda p, x: p.copy_(torch.cat([x[3:4], x[2:3]])),
    "stack": lambda p, x: p.copy_(torch.stack([x[2], x[3]])),
    "repeat": lambda p, x: p.copy_(x[2:4, :3].repeat(1, 2)),
    "view of what was made": lambda p, x: p.copy_((x[2:4].t() + 1).t()),
    "flip": lambda p, x: p.copy_(x[2:4].flip(0)),
}


@pytest.mark.parametrize("what", OPERATIONS)
def test_a_pure_operation_is_done_again_on_the_box_that_it_saw(what):
    outcome = one(OPERATIONS[what], (2, 6), counting(8, 6))
    assert boxes(outcome, "x") == [[(2, 4), (0, 3 if what == "repeat" else 6)]] and not outcome.fetched


REAL = {
    "item": lambda p, x: p.fill_(x[0, 0].item()),
    "comparison": lambda p, x: p.copy_(x[:2] if x.max() > 3 else x[2:4]),
    "mixed with a real tensor": lambda p, x: p.copy_(torch.cat([x[:1], torch.ones(1, 6)])),
    "asked where it lives": lambda p, x: p.copy_(torch.cat([x[:1], torch.zeros(1, 6, device=x.device)])),
    "numpy": lambda p, x: p.copy_(torch.from_numpy(x.numpy()[:2])),
    "changed in place": lambda p, x: p.copy_(x.mul_(2)[:2]),
    "written into something new": lambda p, x: p.copy_(torch.zeros_like(x).copy_(x)[:2]),
    "depends on values": lambda p, x: p.copy_(x[x > 0].view(8, 6)[:2]),
    "by way of another tensor": lambda p, x: p.copy_(torch.empty(2, 6).copy_(x[:2]) + 1),
    "read back": lambda p, x: (p.copy_(x[:2]), p.mul_(2)),
    "overwritten": lambda p, x: (p.copy_(x[:2]), p[0].zero_()),
    "put in place of the parameter": lambda p, x: setattr(p, "data", x[:2]),
    "as other elements": lambda p, x: p.copy_(x.view(torch.int16)[:2, :6]),
    "index put": lambda p, x: p.index_put_((torch.tensor([1, 0]),), x[:2]),
}


@pytest.mark.parametrize("what", REAL)
def test_what_cannot_be_put_off_gets_the_real_tensor(what):
    outcome = one(REAL[what], (2, 6), counting(8, 6))
    assert "x" in outcome.fetched


def test_only_the_tensor_that_needs_it_is_loaded_whole():
    def take(model, name, tensor):
        model.p[int(name[-1])].copy_(tensor.mul_(3)[0] if name == "x1" else tensor[0])

    outcome = load(lambda: Model(take, {"p": (3, 4)}), {f"x{at}": counting(9, 4) + at for at in range(3)})
    assert set(outcome.plan.real) == {"x1"} and [set(request) for request in outcome.plan.requests] == [{"x0", "x2"}]


def test_a_tensor_that_the_model_keeps_is_real():
    def take(model, name, tensor):
        model.kept = tensor
        model.p.copy_(tensor[:2])

    outcome = load(lambda: Model(take, {"p": (2, 3)}), {"x": counting(4, 3)})
    assert torch.equal(outcome.model.kept, counting(4, 3)) and outcome.plan.real == {"x": "the model keeps it"}


def test_a_model_without_memory_gets_all_tensors():
    model = Model(lambda model, name, tensor: None, {"p": (2,)}).to("meta")
    traced = trace(model, [Source("x", (2,), torch.float32)], lambda name: counting(2))
    assert set(traced.real) == {"x"}


def test_an_error_of_the_model_is_the_models_own():
    def take(model, name, tensor):
        raise KeyError(f"no place for {name}")

    with pytest.raises(KeyError, match="no place for x"):
        load(lambda: Model(take, {"p": (2,)}), {"x": counting(2)})


def test_a_parameter_takes_pieces_and_constants():
    def take(model, name, tensor):
        model.p[:5].copy_(tensor.narrow(0, 0, 5))
        model.p[5:].fill_(0)

    outcome = load(lambda: Model(take, {"p": (10,)}, torch.float16), {"x": counting(10, dtype=torch.float16)})
    assert outcome.model.p.tolist() == [1, 2, 3, 4, 5, 0, 0, 0, 0, 0] and boxes(outcome, "x") == [[(0, 5)]]


def test_several_regions_of_one_parameter_are_filled_from_one_element():
    outcome = one(lambda p, x: p[2, 0:3].fill_(x), (4, 5), torch.tensor(7.0))
    assert outcome.model.p[2].tolist() == [7, 7, 7, POISON, POISON]


def test_copies_over_each_other_are_done_in_order():
    outcome = one(lambda p, x: (p.copy_(x[:3]), p[1:].copy_(x[5:7])), (3, 6), counting(8, 6))
    assert torch.equal(outcome.model.p, counting(8, 6)[[0, 5, 6]])


def test_a_tensor_that_is_not_taken_is_not_asked_for():
    def take(model, name, tensor):
        if name == "a":
            model.p.copy_(tensor)

    outcome = load(lambda: Model(take, {"p": (2,)}), {"a": counting(2), "b": counting(9)})
    assert [set(request) for request in outcome.plan.requests] == [{"a"}]


def test_far_apart_parts_are_asked_for_one_by_one():
    outcome = one(lambda p, x: (p[:1].copy_(x[:1]), p[1:].copy_(x[90:91])), (2, 6), counting(100, 6))
    assert boxes(outcome, "x") == [[(0, 1), (0, 6)], [(90, 91), (0, 6)]] and outcome.plan.bytes == 2 * 6 * 4


def test_parts_with_a_small_gap_are_asked_for_together():
    outcome = one(lambda p, x: (p[:4].copy_(x[:4]), p[4:].copy_(x[5:9])), (8, 6), counting(100, 6))
    assert boxes(outcome, "x") == [[(0, 9), (0, 6)]]


def test_very_many_parts_are_asked_for_at_once():
    outcome = one(lambda p, x: [p[row].copy_(x[9 * row]) for row in range(20)], (20, 2), counting(200, 2))
    assert boxes(outcome, "x") == [[(0, 172), (0, 2)]]


def test_a_parameter_that_is_filled_in_part_is_named():
    outcome = one(lambda p, x: p[:2].copy_(x[:2]), (3, 6), counting(8, 6))
    (key,) = outcome.plan.steps
    assert outcome.plan.gaps({key: ("p", 18)}) == ["p"] and outcome.plan.gaps({key: ("p", 12)}) == []


def test_empty_tensors_are_no_trouble():
    outcome = one(lambda p, x: (p.copy_(x[:2]), p[:0].copy_(x[:0]), p[:0].copy_(x[:0] + 1)), (2, 6), counting(8, 6))
    assert torch.equal(outcome.model.p, counting(8, 6)[:2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.float16])
def test_every_type_is_cast_as_the_model_would(dtype):
    one(lambda p, x: p.copy_(x[1:3]), (2, 4), counting(4, 4, dtype=dtype))
