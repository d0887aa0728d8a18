"""Filling parameters: which are adopted as they are, which are copied, and that no parameter is left with old memory."""
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from scene import Model, counting, load  # noqa: E402


def fused(model, name, tensor):
    """As vLLM does it: query and key below each other in one parameter."""
    first, rows = {"k": (8, 4), "q": (0, 8)}[name]
    model.p[first:first + rows].copy_(tensor[:rows])


QK = {"q": counting(16, 16), "k": counting(8, 16) + 1000}


def test_pieces_of_a_fused_parameter_become_neighbours_and_are_adopted():
    outcome = load(lambda: Model(fused, {"p": (12, 16)}), QK)
    assert outcome.filled == (0, 12 * 16 * 4) and list(outcome.plan.requests[0]) == ["q", "k"]


def test_adoption_can_be_switched_off():
    assert load(lambda: Model(fused, {"p": (12, 16)}), QK, adopt=False).filled == (12 * 16 * 4, 0)


def adopted(take, shape=(4, 16), dtype=torch.float32, prepare=None):
    def make():
        model = Model(take, {"p": shape}, dtype)
        if prepare:
            prepare(model)
        return model

    return load(make, {"x": counting(8, 16)}).filled.adopted_bytes


def test_a_column_slice_is_adopted_since_the_daemon_packs_it():
    assert adopted(lambda model, name, x: model.p.copy_(x[:, 4:8]), (8, 4))


def test_a_parameter_of_another_type_is_copied():
    assert not adopted(lambda model, name, x: model.p.copy_(x[:4]), dtype=torch.float16)


def test_a_transposed_parameter_is_copied():
    assert not adopted(lambda model, name, x: model.p.copy_(x.t()), (16, 8))


def test_a_parameter_with_padding_is_copied():
    assert not adopted(lambda model, name, x: (model.p[:4].copy_(x[:4]), model.p[4:].zero_()), (5, 16))


def test_a_parameter_whose_padding_is_empty_is_adopted():
    assert adopted(lambda model, name, x: (model.p[:4].copy_(x[:4]), model.p[4:].zero_()), (4, 16))


def test_a_parameter_that_is_filled_in_part_is_copied():
    assert not adopted(lambda model, name, x: model.p[:4].copy_(x[:4]), (5, 16))


def test_a_parameter_that_an_operation_makes_is_copied():
    assert not adopted(lambda model, name, x: model.p.copy_(x[:4] + 1))


def test_a_parameter_with_a_view_elsewhere_is_copied():
    def prepare(model):
        model.elsewhere = [model.p.data[1:]]

    assert not adopted(lambda model, name, x: model.p.copy_(x[:4]), prepare=prepare)


def test_parameters_that_share_memory_go_on_sharing_it():
    def make():
        model = Model(lambda model, name, x: model.p.copy_(x[:4]), {"p": (4, 16)})
        model.tied = torch.nn.Parameter(model.p.data, requires_grad=False)
        return model

    outcome = load(make, {"x": counting(8, 16)})
    assert not outcome.filled.adopted_bytes and outcome.model.tied.data_ptr() == outcome.model.p.data_ptr()


def test_one_parameter_under_two_names_is_adopted_once():
    def make():
        model = Model(lambda model, name, x: model.p.copy_(x[:4]), {"p": (4, 16)})
        model.tied = model.p
        return model

    outcome = load(make, {"x": counting(8, 16)})
    assert outcome.filled.adopted_bytes == 4 * 16 * 4 and outcome.model.tied.data_ptr() == outcome.model.p.data_ptr()
