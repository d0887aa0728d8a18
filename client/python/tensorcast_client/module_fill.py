"""Parameters and buffers of a torch module that the daemon can write to directly, because they are in a HostRegion or on a GPU.

What torch would do to a tensor of a state dict on its way into the module (hooks, a module's own way to load) it does to those of
other tensors only: such modules are left to it. The state dict gets the filled tensors themselves, so that missing, unexpected
and misshapen ones are reported as ever; copying one of them to where it is does nothing.
"""
from __future__ import annotations

import collections

import torch

from . import host_region
from .dtensor import is_dtensor
from .dtypes import number_of

_PLAIN_LOADERS = {torch.nn.Module._load_from_state_dict, torch.nn.modules.batchnorm._NormBase._load_from_state_dict,
                  torch.nn.modules.instancenorm._InstanceNorm._load_from_state_dict}


class Filled(torch.Tensor):
    """A tensor whose new values are in place already."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.copy_ and isinstance(args[1], cls) and _place(args[0]) == _place(args[1]):
            return args[0]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))


def fillable(module, wanted, shapes, facts):
    """({name: tensor} of what can be filled in place, {further name: name} of the same memory).

    Of the module's state dict `wanted` it is where a tensor has the shape (`shapes`) and the type (`facts`) that is loaded. Of
    several names of one memory the last has it, as when torch copies one after the other; of tensors that overlap otherwise, or
    one of which torch copies, none. Neither where a hook may change what was loaded before it is loaded under its next name."""
    find, found, copied, hooked = host_region.snapshot(), {}, [], set()
    for name, tensor, loads_plainly, has_hook in _tensors(module):
        here, local = wanted.get(name), _local(tensor)
        if loads_plainly and name not in shapes:
            continue
        same = here is not None and (is_dtensor(here) if local is not tensor else _place(here) == _place(tensor))
        if (loads_plainly and same and _is_reachable(local, find) and tuple(local.shape) == shapes[name]
                and number_of(str(tensor.dtype)[6:]) == facts.dtype_number(name)):
            found[name] = local
            hooked |= {_place(local)} if has_hook else set()
        elif not torch.nn.parameter.is_lazy(tensor) and is_plain(local) and local.numel():
            copied.append(local)
    n_names = collections.Counter(map(_place, found.values())) if hooked else {}
    tied = [name for name, tensor in found.items() if _place(tensor) in hooked and n_names[_place(tensor)] > 1]
    copied += [found.pop(name) for name in tied]
    return _apart(found, copied)


def by_device(tensors):
    """The names of tensors that one load can fill together, in lists."""
    groups = {}
    for name, tensor in tensors.items():
        groups.setdefault(tensor.device, []).append(name)
    return list(groups.values())


def _tensors(module):
    """(name in the state dict, parameter or buffer, whether its module and those around it load as torch.nn.Module does, whether one
    of them has hooks that run when it is loaded)."""
    def walk(module, prefix, loads_plainly, has_hook):
        has_hook |= bool(module._load_state_dict_post_hooks)
        loads_plainly &= type(module)._load_from_state_dict in _PLAIN_LOADERS and not module._load_state_dict_pre_hooks
        kept = {name: buffer for name, buffer in module._buffers.items() if name not in module._non_persistent_buffers_set}
        for name, tensor in {**module._parameters, **kept}.items():
            if tensor is not None:
                yield prefix + name, tensor, loads_plainly, has_hook
        for name, child in module._modules.items():
            if child is not None:
                yield from walk(child, f"{prefix}{name}.", loads_plainly, has_hook)
    return walk(module, "", getattr(module.load_state_dict, "__func__", None) is torch.nn.Module.load_state_dict, False)


def _local(tensor):
    return tensor.detach().to_local() if is_dtensor(tensor) else tensor


def _place(tensor):
    return tensor.data_ptr(), tensor.device, tensor.shape, tensor.stride()


def extent(tensor):
    """(first byte, end) of the memory that the elements of a tensor span."""
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def is_plain(tensor):
    """Whether the memory of a tensor has its values: not one that is conjugated or negated when it is read, quantized, nested, or a
    subclass that wraps other tensors."""
    wraps = type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    return not (wraps or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())


def _is_reachable(tensor, find):
    """Whether the daemon can be lent the memory of a tensor, and no element of it comes twice."""
    kind = type(tensor)
    is_known = kind is torch.Tensor or kind.__torch_function__ is torch._C._disabled_torch_function_impl
    if not is_known or not is_plain(tensor) or not tensor.numel():
        return False
    if any(step == 0 and size > 1 for step, size in zip(tensor.stride(), tensor.shape)):
        return False
    return tensor.is_cuda or (tensor.device.type == "cpu" and find(*extent(tensor)) is not None)


def _apart(tensors, others):
    """(those that share no memory, with `others` neither, {further name: name} of the same memory)."""
    last = {_place(tensor): name for name, tensor in tensors.items()}
    spans = sorted([*((*extent(tensors[name]), name) for name in last.values()), *((*extent(tensor), "") for tensor in others)])
    together, end, of = set(), -1, None
    for low, high, name in spans:
        if low < end:
            together |= {name, of}
        if high > end:
            end, of = high, name
    chosen = {name: tensors[name] for name in last.values() if name not in together}
    return chosen, {name: last[_place(tensor)] for name, tensor in tensors.items() if name not in chosen and last[_place(tensor)] in chosen}


def has_reachable(module):
    """Whether anything of a module can be filled in place, seen without asking the daemon."""
    find = host_region.snapshot()
    return any(loads_plainly and _is_reachable(_local(tensor), find) for _, tensor, loads_plainly, _ in _tensors(module))
