"""Modules in a HostRegion: what moves there stays what it was, and load_state_dict fills it where it is."""
import copy
import gc

import numpy as np
import pytest
import tensorcast_client as tc

torch = pytest.importorskip("torch", reason="torch is not installed")

from tensorcast_client import host_region  # noqa: E402
from tensorcast_client.torch import empty_like_region, load_state_dict  # noqa: E402

REF = "disk:/models/m"


def rich():
    """A module with most of what parameters can be."""
    module = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last),
                                 torch.nn.BatchNorm2d(4), torch.nn.LSTM(3, 4))
    module.tied = module[0]
    module[1].transposed = torch.nn.Parameter(module[0].weight.detach().t())
    module.register_buffer("passing", torch.arange(3.), persistent=False)
    module.register_buffer("empty", torch.empty(0, 3))
    module.narrow = torch.nn.Parameter(torch.randn(7, dtype=torch.bfloat16), requires_grad=False)
    return module


def region_of(tensor):
    return host_region.snapshot()(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes)


def test_parameters_that_share_no_memory_have_storages_of_their_own():
    module = empty_like_region(rich())
    seen = {}
    for name, tensor in module.state_dict().items():
        if tensor.numel():
            seen.setdefault((tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()), []).append(name)
    assert [sorted(names) for names in seen.values() if len(names) > 1] == [["0.weight", "1.transposed", "tied.weight"], ["0.bias", "tied.bias"]]
    assert module[0].bias.untyped_storage().nbytes() == module[0].bias.nbytes


def write(fake, **tensors):
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.float64: "F64", torch.complex64: "C64"}

    def bits(tensor):
        raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        return raw.view(f"u{tensor.element_size()}").reshape(tensor.shape)

    fake.put(REF, {name: (names[tensor.dtype], bits(tensor)) for name, tensor in tensors.items()})


def test_a_module_in_a_region_is_the_module_that_it_was():
    module = rich()
    want = copy.deepcopy(module)
    shapes = {name: (p.shape, p.stride(), p.requires_grad, id(p)) for name, p in module.named_parameters()}
    assert empty_like_region(module) is module
    assert shapes == {name: (p.shape, p.stride(), p.requires_grad, id(p)) for name, p in module.named_parameters()}
    for name, value in want.state_dict().items():
        assert torch.equal(value, module.state_dict()[name]), name
    assert module.passing.tolist() == [0, 1, 2] and module[1].transposed.data_ptr() == module[0].weight.data_ptr()
    regions = {region_of(tensor) for tensor in [*module.parameters(), *module.buffers()] if tensor.numel()}
    assert len(regions) == 1 and None not in regions
    module[3](torch.ones(1, 1, 3))[0].sum().backward()
    assert module[3].weight_ih_l0.grad is not None


def test_a_module_of_the_meta_device_comes_to_life_in_a_region():
    with torch.device("meta"):
        module = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.LSTM(3, 4), torch.nn.Linear(5, 3))
    module[2].weight = module[0].weight
    module[0].weight.note, module[0].bias.requires_grad = "kept", False
    empty_like_region(module)
    assert module[0].weight is module[2].weight and module[0].weight.note == "kept" and not module[0].bias.requires_grad
    assert all(not p.is_meta and not p.any() and region_of(p) for p in module.parameters())
    assert module[1]._flat_weights[0] is module[1].weight_ih_l0


def test_what_has_nothing_to_move_is_left_alone_and_a_lazy_module_is_refused():
    assert isinstance(empty_like_region(torch.nn.ReLU()), torch.nn.ReLU)
    assert empty_like_region(torch.nn.Linear(3, 0)).weight.shape == (0, 3)
    with pytest.raises(ValueError, match="no shape yet"):
        empty_like_region(torch.nn.Sequential(torch.nn.LazyLinear(3)))


class Wrapper(torch.Tensor):
    """As quantization libraries make them: no memory of its own."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*(arg.inner if isinstance(arg, cls) else arg for arg in args), **(kwargs or {}))


def test_what_is_not_what_its_memory_says_stays_where_it_is():
    module, angles = torch.nn.Linear(2, 2), torch.tensor([1 + 2j, 3 - 4j])
    module.register_buffer("conjugated", angles.conj())
    module.register_buffer("negated", angles.conj().imag)
    module.register_buffer("wrapped", Wrapper(torch.ones(2)))
    empty_like_region(module)
    assert module.conjugated.tolist() == [1 - 2j, 3 + 4j] and module.negated.tolist() == [-2, 4] and module.wrapped.inner.tolist() == [1, 1]
    assert region_of(module.weight) and not region_of(module.conjugated)


def test_a_parameter_at_an_odd_address_stays_where_it_is_with_its_values():
    module = torch.nn.Module()
    odd = tc.HostRegion(4096).tensor(torch.float32, (3,), 5)
    odd.copy_(torch.tensor([1., 2., 3.]))
    module.odd, module.even = torch.nn.Parameter(odd), torch.nn.Parameter(torch.ones(3))
    empty_like_region(module)
    assert module.odd.tolist() == [1, 2, 3] and module.odd.data_ptr() % 4 and region_of(module.even)


def test_a_conjugated_view_of_a_region_is_loaded_by_torch(fake, client):
    module = empty_like_region(torch.nn.Linear(2, 2, bias=False))
    module.register_buffer("turned", tc.HostRegion(4096).tensor(torch.complex64, (2,)).conj())
    write(fake, weight=torch.ones(2, 2), turned=torch.tensor([1 + 2j, 3 - 4j]))
    load_state_dict(module, client.artifact(REF))
    assert module.turned.tolist() == [1 + 2j, 3 - 4j] and (module.weight == 1).all()


def test_the_region_goes_with_the_last_tensor():
    module = empty_like_region(torch.nn.Linear(5, 3))
    kept, start = module.bias.detach(), region_of(module.bias).start
    del module
    gc.collect()
    assert start in host_region._mapped and kept.shape == (3,)
    del kept
    gc.collect()
    assert start not in host_region._mapped


def test_parameters_in_a_region_are_filled_there_and_by_nothing_else(fake, client):
    module, want = empty_like_region(rich()), rich()
    del module[1].transposed, want[1].transposed
    write(fake, **want.state_dict())
    places = {name: tensor.data_ptr() for name, tensor in module.state_dict().items()}
    result = load_state_dict(module, client.artifact(REF))
    assert not result.missing_keys and not result.unexpected_keys
    for name, value in want.state_dict().items():
        assert torch.equal(module.state_dict()[name], value), name
    assert places == {name: tensor.data_ptr() for name, tensor in module.state_dict().items()}
    loads = [request.load for request in fake.asked("Materialize")]
    assert [list(load.view.names) for load in loads if not load.HasField("targets")] == [["empty"]] and len(loads) == 2


def test_the_values_of_the_last_name_of_a_tied_parameter_stay(fake, client):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    write(fake, **{"0.weight": torch.zeros(2, 2), "1.weight": torch.ones(2, 2)})
    load_state_dict(empty_like_region(module), client.artifact(REF))
    assert (module[0].weight == 1).all()


def test_a_tied_parameter_that_torch_has_to_convert_under_another_name_ends_as_torch_leaves_it(fake, client):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))
    module[1].weight = module[0].weight
    write(fake, **{"0.weight": torch.full((2, 2), 7., dtype=torch.float64), "1.weight": torch.ones(2, 2)})
    load_state_dict(empty_like_region(module), client.artifact(REF))
    assert (module[0].weight == 1).all()


def test_a_module_that_is_only_partly_in_a_region_is_loaded_both_ways(fake, client):
    module = torch.nn.Sequential(empty_like_region(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 4))
    want = {name: torch.randn_like(tensor) for name, tensor in module.state_dict().items()}
    write(fake, **want)
    load_state_dict(module, client.artifact(REF))
    assert all(torch.equal(module.state_dict()[name], value) for name, value in want.items())
    assert [load.load.HasField("targets") for load in fake.asked("Materialize")] == [True, False]


def test_another_dtype_is_converted_and_another_shape_is_torchs_error(fake, client):
    module = empty_like_region(torch.nn.Linear(4, 3))
    write(fake, weight=torch.randn(3, 4, dtype=torch.float64), bias=torch.ones(3))
    load_state_dict(module, client.artifact(REF))
    assert (module.bias == 1).all() and module.weight.dtype == torch.float32
    write(fake, weight=torch.randn(3, 5), bias=torch.full((3,), 2.))
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        load_state_dict(module, client.artifact(REF))
    write(fake, weight=torch.randn(3, 4), more=torch.ones(1))
    with pytest.raises(RuntimeError, match='(?s)Missing key.*"bias".*Unexpected key.*"more"'):
        load_state_dict(module, client.artifact(REF))
    assert load_state_dict(module, client.artifact(REF), strict=False).missing_keys == ["bias"]


def test_a_module_that_loads_in_its_own_way_still_does(fake, client):
    class Doubling(torch.nn.Linear):
        def _load_from_state_dict(self, state_dict, prefix, *rest):
            state_dict[prefix + "weight"] = state_dict[prefix + "weight"] * 2
            super()._load_from_state_dict(state_dict, prefix, *rest)

    module = torch.nn.Sequential(Doubling(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))

    def transposed(_, state, prefix, *rest):
        state[prefix + "weight"] = state[prefix + "weight"].t()

    module[1].register_load_state_dict_pre_hook(transposed)
    write(fake, **{"0.weight": torch.ones(2, 2), "1.weight": torch.tensor([[1., 2.], [3., 4.]])})
    load_state_dict(empty_like_region(module), client.artifact(REF))
    assert (module[0].weight == 2).all() and module[1].weight.tolist() == [[1, 3], [2, 4]]


class TurningOfItsOwn(torch.nn.Sequential):
    def _load_from_state_dict(self, state_dict, prefix, *rest):
        state_dict[prefix + "0.weight"] = state_dict[prefix + "0.weight"].t()


class TurningAtTheTop(torch.nn.Sequential):
    def load_state_dict(self, state_dict, *more, **how):
        return super().load_state_dict({name: tensor.t() for name, tensor in state_dict.items()}, *more, **how)


@pytest.mark.parametrize("kind", [TurningOfItsOwn, TurningAtTheTop])
def test_what_a_module_does_to_the_tensors_of_those_within_is_done(fake, client, kind):
    module = empty_like_region(kind(torch.nn.Linear(2, 2, bias=False)))
    write(fake, **{"0.weight": torch.tensor([[1., 2.], [3., 4.]])})
    load_state_dict(module, client.artifact(REF))
    assert module[0].weight.tolist() == [[1, 3], [2, 4]]


def test_a_tied_parameter_of_a_module_that_loads_in_its_own_way_ends_as_torch_leaves_it(fake, client):
    module = torch.nn.Sequential(TurningOfItsOwn(torch.nn.Linear(2, 2, bias=False)), torch.nn.Linear(2, 2, bias=False))
    module[1].weight = module[0][0].weight
    write(fake, **{"0.0.weight": torch.zeros(2, 2), "1.weight": torch.tensor([[1., 2.], [3., 4.]])})
    load_state_dict(empty_like_region(module), client.artifact(REF))
    assert module[1].weight.tolist() == [[1, 2], [3, 4]]


def test_a_tied_parameter_that_a_hook_changes_once_it_is_loaded_ends_as_torch_leaves_it(fake, client):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.Linear(2, 2, bias=False))

    def double(module, _):
        module.weight.data.mul_(2)

    module[0].register_load_state_dict_post_hook(double)
    module.append(module[0])
    write(fake, **{f"{i}.weight": torch.full((2, 2), i + 1.) for i in range(3)})
    load_state_dict(empty_like_region(module), client.artifact(REF))
    assert (module[0].weight == 6).all() and (module[1].weight == 2).all()


def test_overlapping_parameters_are_copied_by_torch(fake, client):
    whole = torch.zeros(6)
    module = torch.nn.Module()
    module.low, module.high = torch.nn.Parameter(whole[:4]), torch.nn.Parameter(whole[2:])
    write(fake, low=torch.ones(4), high=torch.full((4,), 2.))
    load_state_dict(empty_like_region(module), client.artifact(REF))
    assert module.low.tolist() == [1, 1, 2, 2] and module.high.tolist() == [2, 2, 2, 2]


def test_a_module_in_a_region_can_be_loaded_from_the_files_own_pages(fake, client):
    module = empty_like_region(torch.nn.Linear(2, 2, bias=False))
    write(fake, weight=torch.ones(2, 2))
    fake.file_of = lambda name: 0
    load_state_dict(module, client.artifact(REF), options=tc.Options(memory="mapped"))
    assert region_of(module.weight) and (module.weight == 1).all()


def test_assigned_parameters_leave_the_region(fake, client):
    module = empty_like_region(torch.nn.Linear(2, 2, bias=False))
    write(fake, weight=torch.ones(2, 2))
    load_state_dict(module, client.artifact(REF), assign=True)
    assert region_of(module.weight) is None and (module.weight == 1).all()


def test_ranks_of_a_group_meet_in_one_load(fake, client):
    module = torch.nn.Sequential(empty_like_region(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 4))
    write(fake, **module.state_dict())
    options = tc.Options(group=tc.CollectiveLoadGroup("g", 0, 2))
    load_state_dict(module, client.artifact(REF), options=options)
    load_state_dict(empty_like_region(module), client.artifact(REF), options=options)
    assert [load.load.HasField("targets") for load in fake.asked("Materialize")] == [False, True]


def test_a_column_of_a_view_fills_a_narrower_parameter(fake, client):
    module = empty_like_region(torch.nn.Linear(2, 3, bias=False))
    weight = torch.arange(12.).reshape(3, 4)
    write(fake, weight=weight)
    load_state_dict(module, client.artifact(REF).view({"weight": (1, slice(1, 3))}))
    np.testing.assert_array_equal(module.weight.detach().numpy(), weight[:, 1:3].numpy())
