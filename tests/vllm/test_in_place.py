"""Which copies of a plan the daemon can make straight into a parameter, and that they and what is left come to the right model."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from scene import Model, counting, loaded_as_pieces  # noqa: E402
from tensorcast_vllm.attempts import state_of, trace  # noqa: E402
from tensorcast_vllm.fill import fill  # noqa: E402
from tensorcast_vllm.in_place import are_apart, fill_in_place  # noqa: E402
from tensorcast_vllm.plan import Plan  # noqa: E402
from tensorcast_vllm.regions import MAX_BOXES, Strided  # noqa: E402
from tensorcast_vllm.trace import Source  # noqa: E402

HOST = torch.device("cpu")


class Writer:
    """In place of the Checkpoint: does what the daemon does."""

    def __init__(self, tensors, refuses=False):
        self.tensors, self.refuses, self.asked = tensors, refuses, []

    def load_into(self, plan, asked, warn):
        if self.refuses:
            warn("refused")
            return None
        for boxes, targets in asked:
            self.asked.append({name: target.numel() for name, target in targets.items()})
            slices = plan.slices_of(boxes)
            for name, target in targets.items():
                part = self.tensors[name][tuple(dict(slices.get(name, [])).get(dim, slice(None)) for dim in range(self.tensors[name].dim()))]
                assert target.shape == part.shape and target.dtype == part.dtype, name
                target.copy_(part)
        return [{"identity": "one"} for _ in asked]


class Outcome:
    def __init__(self, take, parameters, tensors, dtype=torch.float32, refuses=False, model=None):
        def real(name):
            return tensors[name].clone()

        sources = [Source(name, tuple(tensor.shape), tensor.dtype) for name, tensor in sorted(tensors.items())]
        self.model, self.writer, self.said = model or Model(take, parameters, dtype), Writer(tensors, refuses), []
        places = {name: tensor.data_ptr() for name, tensor in state_of(self.model)}
        plan = Plan(trace(self.model, sources, real), sources)
        left, reports, self.written = fill_in_place(self.model, plan, self.writer, HOST, self.said.append)
        self.left = {step.source.base if isinstance(step.source.base, str) else "made" for steps in left.steps.values() for step in steps}
        self.copied = fill(self.model, left, loaded_as_pieces(left, tensors), False).copied_bytes
        assert places == {name: tensor.data_ptr() for name, tensor in state_of(self.model)}
        reference = Model(take, parameters, dtype)
        reference.load_weights((name, tensor.clone()) for name, tensor in sorted(tensors.items()))
        for (name, ours), (_, theirs) in zip(self.model.named_parameters(), reference.named_parameters()):
            assert torch.equal(ours, theirs), f"{name}: {ours} instead of {theirs}"


def test_a_fused_and_padded_parameter_is_written_in_place_in_one_request():
    def take(model, name, x):
        first, rows = {"q": (0, slice(2, 10)), "k": (8, slice(0, 4))}[name]
        model.p[first:first + rows.stop - rows.start].copy_(x[rows])
        model.p[12:].zero_()

    outcome = Outcome(take, {"p": (13, 16)}, {"q": counting(16, 16), "k": counting(8, 16) + 1000})
    assert outcome.writer.asked == [{"q": 8 * 16, "k": 4 * 16}] and not outcome.left and outcome.written == 12 * 16 * 4


@pytest.mark.parametrize("take, shape", [
    (lambda model, name, x: model.p.copy_(x[:, 4:8]), (8, 4)),  # columns, as of a projection out of the layer
    (lambda model, name, x: model.p.copy_(x.t()), (16, 8)),
    (lambda model, name, x: model.p[:, ::2].copy_(x), (8, 32)),  # between the columns of another one
    (lambda model, name, x: model.p.view(8, 16).copy_(x), (128,)),
    (lambda model, name, x: model.p[3].copy_(x[5]), (4, 16)),
    (lambda model, name, x: model.p.copy_(x[2:3, 3:4]), (1, 1)),
    (lambda model, name, x: model.p.copy_(x[2, 3]), ())])
def test_what_only_moves_elements_is_written_in_place(take, shape):
    outcome = Outcome(take, {"p": shape}, {"x": counting(8, 16)})
    assert not outcome.left and not outcome.copied and len(outcome.writer.asked) == 1


@pytest.mark.parametrize("take, shape, dtype", [
    (lambda model, name, x: model.p.copy_(x), (8, 16), torch.bfloat16),  # a cast
    (lambda model, name, x: model.p.copy_(x * 2), (8, 16), torch.float32),
    (lambda model, name, x: model.p.copy_(x[::2]), (4, 16), torch.float32),
    (lambda model, name, x: model.p.copy_(x.view(4, 32)), (4, 32), torch.float32),  # dimensions of another shape
    (lambda model, name, x: model.p.copy_(x[0].expand(8, 16)), (8, 16), torch.float32),
    (lambda model, name, x: (model.p[:6].copy_(x[:6]), model.p[4:].copy_(x[2:6])), (8, 16), torch.float32)])  # the later one counts
def test_what_does_more_goes_through_host_memory(take, shape, dtype):
    outcome = Outcome(take, {"p": shape}, {"x": counting(8, 16)}, dtype)
    assert outcome.left and not outcome.writer.asked and not outcome.written


def test_a_model_may_need_both_ways():
    def take(model, name, x):
        if name == "s":
            model.s.copy_(x.reciprocal())
        else:
            model.p.copy_(x)

    outcome = Outcome(take, {"p": (8, 16), "s": (4,)}, {"x": counting(8, 16), "s": counting(4)})
    assert outcome.left == {"made"} and outcome.written == 8 * 16 * 4 and outcome.copied == 16


def test_experts_that_are_stacked_in_the_checkpoint_become_one_target_for_each_part():
    def take(model, name, x):  # this rank's half of gate and up, of every expert
        for expert in range(x.shape[0]):
            model.w13[expert, :2].copy_(x[expert, 2:4])
            model.w13[expert, 2:].copy_(x[expert, 6:8])

    outcome = Outcome(take, {"w13": (20, 4, 3)}, {"x": counting(20, 8, 3)})
    assert outcome.writer.asked == [{"x": 20 * 2 * 3}, {"x": 20 * 2 * 3}] and not outcome.left


def test_the_experts_of_one_rank_are_joined_only_where_they_continue_each_other_on_both_sides():
    def take(model, name, x):
        for place, expert in enumerate([0, 1, 2, 5, 4]):
            model.w[place].copy_(x[expert])

    outcome = Outcome(take, {"w": (5, 4, 3)}, {"x": counting(8, 4, 3)})
    assert [request["x"] for request in outcome.writer.asked] == [36, 12, 12] and not outcome.left


def test_boxes_beyond_the_most_requests_go_through_host_memory():
    def take(model, name, x):
        for row in range(2 * (MAX_BOXES + 2)):
            model.p[row // 2 if row % 2 else 2 * MAX_BOXES + 3 - row // 2].copy_(x[row])

    outcome = Outcome(take, {"p": (2 * MAX_BOXES + 4, 3)}, {"x": counting(2 * MAX_BOXES + 4, 3)})
    assert len(outcome.writer.asked) == MAX_BOXES and outcome.left == {"x"}


def test_a_box_that_belongs_in_two_places_is_loaded_once():
    def take(model, name, x):
        model.p.copy_(x)
        model.q.copy_(x.t())

    outcome = Outcome(take, {"p": (8, 16), "q": (16, 8)}, {"x": counting(8, 16)})
    assert outcome.writer.asked == [{"x": 128}] and not outcome.left and outcome.written == 2 * 128 * 4


def test_where_the_daemon_cannot_write_all_of_the_plan_is_left_and_a_warning_says_so():
    outcome = Outcome(lambda model, name, x: model.p.copy_(x), {"p": (8, 16)}, {"x": counting(8, 16)}, refuses=True)
    assert outcome.left == {"x"} and outcome.copied == 8 * 16 * 4 and outcome.said == ["refused"]


def test_new_weights_go_into_the_parameters_of_a_loaded_model():
    def take(model, name, x):
        model.p[{"a": 0, "b": 4}[name]:][:4].copy_(x)

    first = Outcome(take, {"p": (8, 16)}, {"a": counting(4, 16), "b": counting(4, 16) + 100})
    second = Outcome(take, {"p": (8, 16)}, {"a": counting(4, 16) + 500, "b": counting(4, 16) + 900}, model=first.model)
    assert second.written == 8 * 16 * 4 and not second.left


def test_parameters_elsewhere_are_left():
    plan_of = Outcome(lambda model, name, x: model.p.copy_(x), {"p": (8, 16)}, {"x": counting(8, 16)})
    sources = [Source("x", (8, 16), torch.float32)]
    plan = Plan(trace(plan_of.model, sources, None), sources)
    left, reports, written = fill_in_place(plan_of.model, plan, plan_of.writer, torch.device("cuda:0"), None)
    assert written == 0 and reports == [] and len(left.steps) == 1


@pytest.mark.parametrize("regions, apart", [
    ([Strided(0, (4,), (1,)), Strided(4, (4,), (1,))], True), ([Strided(0, (5,), (1,)), Strided(4, (4,), (1,))], False),
    ([Strided(0, (4, 2), (4, 1)), Strided(2, (4, 2), (4, 1))], True), ([Strided(0, (4, 3), (4, 1)), Strided(2, (4, 2), (4, 1))], False),
    ([Strided(10, (3,), (1,)), Strided(0, (10,), (1,)), Strided(12, (), ())], False)])
def test_regions_are_apart_when_they_share_no_element(regions, apart):
    assert are_apart(regions) is apart
