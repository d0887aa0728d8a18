"""A handle of an artifact: cheap to make, asks the daemon when something has to be known, remembers the answer."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from grpc import StatusCode

from . import errors, html_table, selection, sidecars
from . import recipe as recipes
from .answers import Description, LoadReport, Plan, Released
from .errors import TensorcastError
from .lazy import LazyTensor
from .load import Clock
from .options import Options
from .redact import shown
from .sidecars import Sidecar
from .tensors import Tensors
from .view import Framework, Progress, Slices, View

if TYPE_CHECKING:
    import numpy as np
    import torch

    from .client import Client


_FOR_THE_PACKAGE = {"at", "expect", "facts", "known_facts", "telling_lines", "variant_json"}  # not what users look for


class Artifact(Mapping[str, LazyTensor]):
    """An immutable named set of tensors at a source, such as disk:/models/llama, or what a recipe makes of it: a mapping of names
    to lazy tensors, of which nothing is read before one is looked into.

    >>> art = tc.artifact("disk:/models/tiny")
    >>> art.tensor_names
    ['head.weight', 'head.bias']
    >>> art
    <Artifact disk:/models/tiny: 2 tensors, 64 B, F32>
    >>> art["head.weight"]
    <LazyTensor head.weight: F32 [4, 3], 48 B, of disk:/models/tiny>
    >>> {name: tensor.shape for name, tensor in art.items()}
    {'head.weight': (4, 3), 'head.bias': (4,)}
    """

    def __init__(self, client: Client, reference: str, allow_missing_shards: bool = False,
                 made_by: tuple[recipes.Recipe, ...] = ()):
        self._client, self.reference, self.known_facts = client, reference, None
        self.allow_missing_shards = allow_missing_shards
        self._recipes, self._variant = made_by, None

    def __repr__(self) -> str:
        """Asks the daemon for nothing: what it holds is told once it is known."""
        facts = self.known_facts
        of = "".join(f", {recipe.name}" for recipe in self._recipes)
        return f"<Artifact {shown(self.reference)}{of}{': ' + facts.summary if facts else ''}>"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table.of(self, lambda: ((name, lazy.dtype, lazy.shape, lazy.nbytes) for name, lazy in self.items()))

    def _ipython_key_completions_(self) -> list[str]:
        """The names, for art["lm_<TAB>."""
        with contextlib.suppress(TensorcastError):
            return list(self.facts().present)
        return []

    def __getitem__(self, name: str) -> LazyTensor:
        return LazyTensor(self, name)

    def __contains__(self, name: object) -> bool:
        return self.facts().has(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensor_names)

    def __len__(self) -> int:
        return len(self.facts().names)

    def __bool__(self) -> bool:
        return True  # `if artifact:` asks whether there is a handle, not how many tensors the daemon finds

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __dir__(self) -> Iterable[str]:
        return sorted(set(super().__dir__()) - _FOR_THE_PACKAGE)

    def variant(self, recipe: str | os.PathLike[str] | Mapping[str, Any], set: Mapping[str, Any] | None = None) -> Artifact:  # noqa: A002
        """Other tensors made of this artifact's: renamed, cut, joined, permuted, cast. Nothing is written, nothing is computed
        before tensors are loaded, and a slice costs its own bytes. An artifact handle like any other.

        recipe: the path of a YAML or JSON file, {"version": 1, "steps": [...]}, or a built-in one such as "fp8-block-to-bf16".
        set: values for its ${KEY}, before those of the artifact's config.json. docs/variants.md has the steps."""
        return Artifact(self._client, self.reference, self.allow_missing_shards, (*self._recipes, recipes.read(recipe, set)))

    def at(self, reference):
        """The same of another reference, with the recipe and its values of this one. For this package."""
        made = Artifact(self._client, reference, self.allow_missing_shards, self._recipes)
        made._variant = self.variant_json()
        return made

    def variant_json(self):
        """The recipe as it goes to the daemon, None when there is none. For code that sends a request."""
        if self._recipes and self._variant is None:
            self._variant = recipes.to_json(self._recipes, lambda: sidecars.config_of(self._client, self.reference))
        return self._variant

    @contextlib.contextmanager
    def telling_lines(self):
        """Errors about a step of the recipe get its line, once."""
        try:
            yield
        except TensorcastError as error:
            told = error if hasattr(error, "has_line") else recipes.located(self._recipes, error)
            if told is error:
                raise
            told.has_line = True
            raise told from None

    def facts(self, clock=None, fresh=False, allow_missing_shards=False):
        """What the artifact holds (see facts.Facts); asked for once per handle."""
        facts = self.known_facts
        if facts is None or fresh:
            with self.telling_lines():
                facts = self._client.resolve(self.reference, clock or Clock(None),
                                             allow_missing_shards or self.allow_missing_shards, self.variant_json())
                self.known_facts = facts
        return facts

    def expect(self, identity, found):
        """Fails when a load found another version than this object was made of. Later calls ask anew."""
        if identity != found:
            self.facts(fresh=True)
            raise errors.make(StatusCode.ABORTED, f"{shown(self.reference)} was replaced since it was resolved", "SOURCE_CHANGED")

    @property
    def tensor_names(self) -> list[str]:
        """All names, in artifact order."""
        return list(self.facts().names)

    @property
    def metadata(self) -> dict[str, str]:
        """What the file says of itself, its __metadata__, such as {"format": "pt"}; {} when it says nothing. With several
        files that of the first in index order."""
        return dict(self.facts().metadata)

    def describe(self) -> Description:
        """Files, tensors, dtypes, shapes, sizes and identity, as `tensorcast inspect --json` prints them.

        >>> described = tc.artifact("disk:/models/tiny").describe()
        >>> described["total_bytes"], described["tensors"][1]["shape"]
        (64, [4])
        """
        return self.facts().describe()

    def subset(self, names: Iterable[str] | str) -> View:
        """A view of these tensors, in this order. A name with * ? or [a-z] is a pattern, unless a tensor has that name: it stands
        for all tensors that match, in artifact order. One pattern needs no list: art.subset("model.layers.0.*").

        >>> list(tc.artifact("disk:/models/tiny").subset(["head.bias"]).tensor_dict(framework="numpy").items())
        [('head.bias', array([0., 1., 2., 3.], dtype=float32))]
        """
        names = selection.names_of(names)
        if selection.has_patterns(names):
            names = selection.matched(names, self.facts().known, shown(self.reference))
        return View(self._client, self, selection.Selection(names))

    def view(self, slices: Slices | None = None, align: int | None = None, placement: str | None = None) -> View:
        """A view of all tensors; see View.view."""
        return View(self._client, self, selection.Selection()).view(slices, align, placement)

    def shard(self, mesh: Any = None, mesh_rank: int | None = None, spec: Any = None, placements: Any = None,
              best_effort: int | None = None) -> View:
        """A view of all tensors as one device of a mesh holds them; see View.shard."""
        return self.view().shard(mesh, mesh_rank, spec, placements, best_effort)

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
        """Loads all tensors; see View.tensor_dict."""
        return self.view().tensor_dict(device, framework=framework, progress=progress, options=options,  # type: ignore[call-overload]
                                       writable=writable, into=into, dtype=dtype)

    def load_into(self, targets: Mapping[str, Any], fills: Mapping[str, Any] | None = None, cover: Mapping[str, Any] | None = None,
                  progress: Progress | bool | None = None, options: Options | None = None) -> LoadReport:
        """Loads all tensors into memory of this process; see View.load_into."""
        return self.view().load_into(targets, fills, cover, progress, options)

    def explain(self, options: Options | None = None) -> Plan:
        """The plan of a load of all tensors; see View.explain."""
        return self.view().explain(options)

    def prewarm(self, options: Options | None = None, pin: bool = False, detach: bool = False) -> dict[str, Any]:
        """Makes the daemon hold all tensors in memory; see View.prewarm."""
        return self.view().prewarm(options, pin, detach)

    def unpin(self) -> dict[str, int]:
        """Lets the daemon drop again what was prewarmed with pin=True; see Client.unpin."""
        return self._client.unpin(self.reference)

    def release(self) -> Released:
        """Makes the daemon drop this artifact's replicas that no client holds; see Client.release."""
        return self._client.release(self.reference)

    def sidecars(self) -> list[Sidecar]:
        """The small files beside the tensors, such as config.json and the tokenizer: a list of Sidecar(name, bytes)."""
        with self.telling_lines():
            return sidecars.listed(self._client, self.reference, self.variant_json())

    def fetch_sidecars(self, folder: str | os.PathLike[str], names: Iterable[str] | None = None) -> list[Sidecar]:
        """Copies the sidecars, or these, into a folder, which is made when it is missing; returns what was fetched, as
        sidecars() does. Each file appears, or is replaced, when all of it is there. With recipes they are true of the result:
        config.json has its dtype, and no quantization_config when nothing is quantized any more."""
        with self.telling_lines():
            return sidecars.fetch(self._client, self.reference, folder, names, self.variant_json())
