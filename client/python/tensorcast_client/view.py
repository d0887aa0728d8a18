"""Views: which tensors, and which parts of them. Immutable; nothing is asked of the daemon before it is needed."""
from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, Tuple, Union, overload

from grpc import StatusCode

from . import cuda, dtypes, errors, html_table, messages, region, report, selection, words
from .answers import LoadReport, Plan
from .dtypes import BITS, NAMES
from .layout import Layout
from .load import Clock, Teller, materialize
from .load_into import load_into
from .mapped import FileLayout, FileTensors
from .options import Options
from .redact import shown
from .sharding import Sharding
from .tensors import Tensors
from .wire import DecodeError

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .artifact import Artifact
    from .client import Client

OneSlice = Tuple[int, slice]  # (dimension, bounds)
Slices = Mapping[str, Union[OneSlice, Sequence[OneSlice], slice]]
Progress = Callable[[str, int, int], None]  # (stage, done bytes, total bytes)
Framework = Literal["torch", "numpy", "dlpack"]
_FOR_THE_PACKAGE = {"has_align", "load_lent"}  # not what users look for
_LAYOUT_NAMES = b"\x0a"  # tag of Layout.names, the message's first field


class View:
    """Tensors of an artifact in a given order, each whole or sliced."""

    def __init__(self, client, artifact, selected):
        self._client, self._artifact, self._selected = client, artifact, selected

    def __dir__(self) -> Iterable[str]:
        return sorted(set(super().__dir__()) - _FOR_THE_PACKAGE)

    def __repr__(self):
        names, n_sliced = self._selected.names, len(self._selected.slices)
        which = "all tensors" if names is None else words.tensors(len(names))
        return f"<View of {which} of {shown(self._artifact.reference)}, {n_sliced} sliced>"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table.of(self, self._rows)

    def _rows(self):
        facts = self._artifact.facts()
        for name, shape in self.shapes().items():
            number = facts.dtype_number(name)
            yield name, NAMES[number], shape, math.prod(shape) * int(BITS[number]) // 8

    @property
    def client(self) -> Client:
        return self._client

    @property
    def artifact(self) -> Artifact:
        return self._artifact

    @property
    def has_align(self) -> bool:
        """Whether an alignment was asked for."""
        return self._selected.align > 0

    @property
    def tensor_names(self) -> list[str]:
        """The names in view order."""
        names = self._selected.names
        return self._artifact.tensor_names if names is None else list(names)

    def view(self, slices: Slices | None = None, align: int | None = None, placement: str | None = None) -> View:
        """This view with slices: {name: (dimension, slice)} or {name: [(dimension, slice), ...]}, step 1, with NumPy's
        meaning of missing and negative bounds. Slices of what is sliced already apply to what is left.

        >>> rows = tc.artifact("disk:/models/tiny").view({"head.weight": [(0, slice(1, 3)), (1, slice(2))]})
        >>> rows.tensor_dict(framework="numpy")["head.weight"]
        array([[3., 4.],
               [6., 7.]], dtype=float32)

        `placement`: where tensors lie in memory. "source", the default: as they do in their files, so that a disk writes
        them where they belong. "packed": one behind the other in view order. `align`: each tensor begins at a multiple of
        so many bytes, a power of two; when nothing is said 64, with "source" the size of its elements."""
        selected = selection.sliced(self._selected, slices)
        if align is not None:
            selected = selected._replace(align=selection.align_of(align))
        if placement is not None:
            selected = selected._replace(placement=selection.placement_of(placement))
        return View(self._client, self._artifact, selected)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """{name: shape} in view order, as the slices leave them.

        >>> tc.artifact("disk:/models/tiny").view({"head.weight": (0, slice(-1, None))}).shapes()
        {'head.weight': (1, 3), 'head.bias': (4,)}
        """
        facts, names = self._artifact.facts(), self.tensor_names
        for name in self._selected.slices.keys() - set(names):
            facts.shape(name)  # there is no such tensor
        return {name: selection.shape_of(self._selected, facts, name) for name in names}

    def shard(self, mesh: Any = None, mesh_rank: int | None = None, spec: Any = None, placements: Any = None,
              best_effort: int | None = None) -> View:
        """This view as one device of a mesh holds it: `--mesh` and the like of the command.

        mesh: "data=4,model=8", {"data": 4, "model": 8}, or a known one such as "v5e-64". mesh_rank: the device, row-major.
        One of spec: {glob: "model,-"}, also JAX's PartitionSpec; placements: {glob: "S(0),R"}, also torch's placements, and
        best_effort: over how many devices. The first glob that matches decides; a tensor that none matches stays whole."""
        sharding = Sharding(mesh, mesh_rank, spec, placements, best_effort)
        slices = {name: sharding.slices(name, shape) for name, shape in self.shapes().items()}
        return self.view({name: steps for name, steps in slices.items() if steps})

    def only(self, names: Iterable[str] | str) -> View:
        """This view without its other tensors, in this order; slices stay. Patterns are those of Artifact.subset().

        >>> tc.artifact("disk:/models/tiny").view().only(["head.bias"]).tensor_names
        ['head.bias']
        """
        names = selection.names_of(names)
        if selection.has_patterns(names):
            names = selection.matched(names, self.tensor_names, f"this view of {shown(self._artifact.reference)}")
        missing = set(names) - set(self.tensor_names)
        if missing:
            raise errors.tensor_not_found(min(missing), f"this view of {shown(self._artifact.reference)}", self.tensor_names)
        kept = set(names)
        slices = {name: steps for name, steps in self._selected.slices.items() if name in kept}
        return View(self._client, self._artifact, self._selected._replace(names=names, slices=slices))

    @overload
    def tensor_dict(self, device: Any = "cpu", *, framework: Literal["torch"], progress: Progress | bool | None = None,
                    options: Options | None = None, writable: bool | None = None, into: Any = None,
                    dtype: Any = None) -> Tensors[torch.Tensor]: ...
    @overload
    def tensor_dict(self, device: Any = "cpu", *, framework: Literal["numpy"], progress: Progress | bool | None = None,
                    options: Options | None = None, writable: bool | None = None, into: Any = None,
                    dtype: Any = None) -> Tensors[np.ndarray[Any, Any]]: ...
    @overload
    def tensor_dict(self, device: Any = "cpu", framework: Framework | None = None, progress: Progress | bool | None = None,
                    options: Options | None = None, writable: bool | None = None, into: Any = None, dtype: Any = None) -> Tensors[Any]: ...
    def tensor_dict(self, device: Any = "cpu", framework: str | None = None, progress: Progress | bool | None = None,
                    options: Options | None = None, writable: bool | None = None, into: Any = None, dtype: Any = None) -> Tensors[Any]:
        """Loads the view and maps it: a Tensors mapping of names to arrays or tensors, without a copy.

        >>> view = tc.artifact("disk:/models/tiny").view({"head.weight": (0, slice(1, 3))})
        >>> with view.tensor_dict(framework="numpy") as tensors:
        ...     tensors["head.weight"].shape, tensors["head.bias"].shape
        ((2, 3), (4,))

        device: "cpu", "cuda:N" as this process counts, or a GPU's UUID. framework: "torch", "numpy", "dlpack" on a GPU for any
        other, or None for torch when it is installed. progress: True for a bar on standard error, or a function (stage,
        done_bytes, total_bytes) that is called on this thread at most ten times a second and once at the end; what it raises ends
        the load. writable: whether tensors may be written to; the pages that are become this process's own, and no other process
        sees the change. None: torch's may, NumPy's may not. into: a contiguous GPU array of this process on `device` (torch,
        CuPy) that the daemon fills instead of memory of its own. The tensors lie in it from its first byte on. After an error
        its content is undefined. dtype: what floating-point tensors are converted to by the daemon, such as "bfloat16" or
        torch.float16."""
        view = self if dtype is None else View(self._client, self._artifact.variant(dtypes.cast_recipe(dtype)), self._selected)
        with Teller(progress) as teller:
            return view._tensor_dict(device, framework, teller, Options.of(options), writable, into)

    def _tensor_dict(self, device, framework, teller, options, writable, into):
        target = cuda.open_device(device) if cuda.is_meant(device) else None
        if into is not None and not target:
            raise errors.invalid("into is GPU memory, and device names no GPU", "BAD_OPTION")
        maker, writable = _device_maker(framework, writable) if target else _maker(framework, writable)
        if target and options.memory == "mapped":
            raise errors.invalid("pages of files are in host memory, and device names a GPU", "BAD_OPTION")
        clock = Clock(options.deadline)
        lend = into is not None and functools.partial(_lent_whole, self._client, target, into, clock)
        with self._artifact.telling_lines():
            result, names, layout, buffer = self._load(options, clock, teller, writable, target, lend)
        if lend:
            buffer = cuda.DeviceMemory(target, *region.span_of(into), [], into)
        if isinstance(buffer, list) or len(layout.file_indexes):
            layout = FileLayout(layout, len(names), result.files)
            made = FileTensors(maker, buffer, layout, writable is not False)
        else:
            layout = Layout(layout, len(names), len(buffer))
            made = maker(buffer, layout)
        tensors = Tensors(names, layout, made, result.report)
        teller.finish(result.report.view_bytes)
        return tensors

    def load_into(self, targets: Mapping[str, Any], fills: Mapping[str, Any] | None = None, cover: Mapping[str, Any] | None = None,
                  progress: Progress | bool | None = None, options: Options | None = None) -> LoadReport:
        """Loads the view into memory of this process, and returns the report of `tensorcast load --json`.

        targets: {name: NumPy array, torch tensor or CUDA array} for every tensor of the view, of its shape and dtype, with any
        strides in which no element comes twice, in memory of HostRegions or of one GPU. fills: {name: number} for further keys of
        targets, whose every element becomes that number. cover: {name: array} of which every element has to be written by this
        call: what is left over is an error that names its box. What cannot be right (targets missing, overlapping, of another
        shape or dtype, read-only, in no region) is a ValueError that names the target, and no memory was touched; after any later
        error the content of the targets is undefined, and the message says so. The memory stays the caller's alone: no lease, no
        budget, nothing shared. progress and options as in tensor_dict(). docs/into.md has examples."""
        return load_into(self, targets, fills, cover, progress, options)

    def explain(self, options: Options | None = None) -> Plan:
        """The plan, as `tensorcast explain --json` prints it, and under "text" as a table for people."""
        options = Options.of(options)
        clock = Clock(options.deadline)
        _, request = self._request(options, clock)
        with self._artifact.telling_lines():
            answer = self._client.ask("Explain", messages.ExplainRequest.encode(load=request), messages.ExplainResponse,
                                      clock.left(self._client.timeout))
        if not answer.report:
            raise errors.bad_answer("an explanation without a plan")
        return {**report.plan(answer.report), "text": answer.text}

    def load_lent(self, names, options, clock, progress, device, lend):
        """For load_into(): the LoadResult of these names, in this order, in memory that lend() lends. See _load."""
        fixed = View(self._client, self._artifact, self._selected._replace(names=tuple(names)))
        with self._artifact.telling_lines():
            result, *_ = fixed._load(options, clock, progress, device=device, lend=lend)
        return result

    def _request(self, options, clock, may_guess=False):
        """(names or None, fields of LoadRequest). may_guess: the daemon may be asked at once where a wrong slice is found by it alone."""
        artifact, selected = self._artifact, self._selected
        facts = artifact.known_facts
        if facts is None and selected.slices and not (may_guess and not selection.needs_facts(selected)):
            facts = artifact.facts(clock, allow_missing_shards=options.allow_missing_shards)
        try:
            names, view = selection.to_wire(selected, facts)
        except (errors.TensorNotFoundError, errors.InvalidRequestError):
            if artifact.facts(clock, True, options.allow_missing_shards) is facts:
                raise
            names, view = selection.to_wire(selected, artifact.known_facts)
        return names, {"artifact": artifact.reference, "view": view, "policy": options.policy(),
                       "topology": options.topology(), "variant": artifact.variant_json(),
                       "allow_missing_shards": options.allow_missing_shards or artifact.allow_missing_shards or None,
                       "memory": options.memory_preference()}

    def prewarm(self, options: Options | None = None, pin: bool = False, detach: bool = False) -> dict[str, Any]:
        """Makes the daemon hold this view in memory, for the next client that loads it. Returns the report of `tensorcast prewarm
        --json`. How long it may take is options.deadline.

        pin: it stays, whatever is idle, short or released, until Client.unpin(), a change of its files or the daemon's end.
        detach: returns at once, with {}; "prewarms" in Client.status() tells what became of it."""
        options = Options.of(options)
        clock = Clock(options.deadline)
        _, request = self._request(options, clock)
        with self._artifact.telling_lines():
            answer = self._client.ask("Prewarm", messages.PrewarmRequest.encode(load=request, pin=pin, detach=detach),
                                      messages.PrewarmResponse, clock.left())
        if detach:
            return {}
        if not answer.report:
            raise errors.bad_answer("a prewarmed view without a report")
        return report.plan(answer.report)

    def _load(self, options, clock, progress, writable=False, device=None, lend=None):
        """(LoadResult, names, Layout message, buffer). lend: makes a context in which memory is lent to the daemon, with the fields
        that the request needs for it.

        A request that was made of facts about an artifact which has changed since, or without knowing any, is made again, once."""
        client, artifact = self._client, self._artifact
        for attempt in (1, 2):
            names, request = self._request(options, clock, may_guess=attempt == 1)
            if device:
                request["device"] = device.uuid
            if device or lend:
                request["memory"] = None
            facts = artifact.known_facts
            is_guess = facts is None and bool(self._selected.slices)
            built_on_facts = facts is not None and (names is None or bool(self._selected.slices))
            try:
                with lend() if lend else nullcontext({}) as fields:
                    result, buffer = materialize(client.channel, {**request, **fields}, clock, progress,
                                                 client.first_answer_timeout, writable, device)
            except errors.InvalidRequestError:
                if attempt == 2 or not (built_on_facts or is_guess) or artifact.facts(clock, True, options.allow_missing_shards) is facts:
                    raise
                continue
            if not built_on_facts or facts.identity == result.report.identity:
                return result, *_layout(result.layout, names, facts), buffer
            artifact.facts(clock, True, options.allow_missing_shards)
        raise errors.make(StatusCode.ABORTED, f"{artifact.reference} keeps changing", "SOURCE_CHANGED")


@contextmanager
def _lent_whole(client, device, buffer, clock):
    """The fields of a request for a load into one GPU array."""
    with region.lent(client, [region.of_gpu(device, *region.span_of(buffer))], clock) as (token,):
        yield {"region": token}


def _layout(data, names, facts):
    """(names in view order, Layout message) of a result. Names that are known already are not decoded again."""
    try:
        if names is None and facts is not None:
            names = facts.names
            if names and names.wire_bytes < len(data) and data.startswith(_LAYOUT_NAMES):
                return names, messages.Layout.decode(data, names.wire_bytes)
        layout = messages.Layout.decode(data)
    except DecodeError as error:
        raise errors.bad_answer(error) from None
    return list(layout.names if names is None else names), layout


def _device_maker(framework, writable):
    """(the class that makes tensors in GPU memory, False)"""
    if writable:
        raise errors.invalid("GPU memory is shared with other clients: writable is for host memory only", "BAD_OPTION")
    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") else "dlpack"
    if framework == "torch":
        from .torch_tensors import TorchTensors
        return TorchTensors, False
    if framework == "dlpack":
        from .dlpack import DlpackTensors
        return DlpackTensors, False
    raise _unknown(framework)


def _unknown(framework):
    hint = "; jax.Arrays are what tensorcast_client.jax.load(view) returns" if framework == "jax" else ""
    return errors.invalid(f'framework is {framework!r}; it is "torch" or "numpy", on a GPU "torch" or "dlpack"{hint}', "BAD_OPTION")


def _maker(framework, writable):
    """(the class that makes arrays or tensors over a buffer, how the buffer is mapped: see memory.map_leased)"""
    if callable(framework):  # for this package: see safetensors/frameworks.py
        return framework, writable
    if framework is None:
        framework = "torch" if importlib.util.find_spec("torch") else "numpy"
    if framework == "numpy":
        from .arrays import NumpyArrays
        return functools.partial(NumpyArrays, writable=bool(writable)), bool(writable)
    if framework == "torch":
        from .torch_tensors import TorchTensors
        return TorchTensors, writable
    raise _unknown(framework)
