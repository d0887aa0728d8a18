"""What Resolve says about an artifact: names, dtypes, shapes, files. Immutable, shared by handles of one client."""
from __future__ import annotations

import functools

import numpy as np

from . import errors, words
from .dtypes import NAMES
from .layout import Shapes


class Facts:
    """The answer to one Resolve."""

    def __init__(self, answer):
        n = len(answer.names)
        columns = {len(answer.dtypes), len(answer.ranks), len(answer.file_indexes), len(answer.sizes)}
        if columns != {n}:
            raise errors.bad_answer(f"columns of {sorted(columns)} entries for {n} tensors")
        if n and (int(answer.dtypes.max()) >= len(NAMES) or int(answer.file_indexes.max()) >= len(answer.files)):
            raise errors.bad_answer("a tensor of an unknown dtype or file; is this client too old?")
        self.artifact, self.identity, self.present = answer.artifact, answer.identity, answer.names
        if len(answer.absent_tensors) != len(answer.absent_file_indexes) or any(
                int(at) >= len(answer.absent_files) for at in answer.absent_file_indexes):
            raise errors.bad_answer("tensors of files that are not there, without their files")
        self._absent_files = answer.absent_files
        self._absent = {name: answer.absent_files[int(at)] for name, at in zip(answer.absent_tensors, answer.absent_file_indexes)}
        self.notes = answer.notes
        self.total_bytes, self.shapes = answer.total_bytes, Shapes(answer.ranks, answer.dims)
        self._files, self._dtypes = answer.files, answer.dtypes.astype(np.int64)
        self._file_indexes, self._sizes = answer.file_indexes.astype(np.int64), answer.sizes
        self.layout, self.world_size = answer.layout or "plain", answer.world_size
        self._missing = {"missing_shards": answer.missing_shards, "missing_files": answer.missing_files}
        self._copies = answer.copies
        self._pieces = Pieces(answer) if len(answer.piece_counts) else None
        if len(self._copies) not in (0, n):
            raise errors.bad_answer(f"{len(self._copies)} numbers of copies for {n} tensors")
        if len(answer.metadata_keys) != len(answer.metadata_values):
            raise errors.bad_answer(f"{len(answer.metadata_keys)} keys of metadata for {len(answer.metadata_values)} values")
        self._metadata = dict(zip(answer.metadata_keys, answer.metadata_values))
        self._left_out_bytes = answer.metadata_left_out_bytes
        self.has_metadata = answer.has_metadata or bool(self._metadata)  # older daemons do not say of an empty one

    @property
    def names(self):
        """Of all tensors. NOT_FOUND if some lie in files that are not there, so that the rest is not taken for all; see
        `present`."""
        if self._absent_files:
            raise errors.file_missing(self._absent_files[0])
        return self.present

    @property
    def known(self):
        """All names, those in files that are not there last: a load of one of those says so."""
        return self.present if self.is_whole else [*self.present, *self._absent]

    @property
    def is_whole(self):
        return not self._absent_files

    @functools.cached_property
    def index(self):
        """{name: position}"""
        return dict(zip(self.present, range(len(self.present))))

    def has(self, name):
        if name in self._absent:
            raise errors.file_missing(self._absent[name], name)
        return name in self.index

    def _position(self, name):
        if not self.has(name):
            raise errors.tensor_not_found(name, self.artifact, self.present)
        return self.index[name]

    def shape(self, name):
        return self.shapes[self._position(name)]

    def shapes_of(self, names):
        """{name: shape} of tensors that are there; a column at a time where they are many."""
        if self.is_whole and 4 * len(names) > len(self.present):
            return dict(zip(self.present, self._all_shapes))
        return {name: self.shape(name) for name in names}

    @functools.cached_property
    def _all_shapes(self):
        return self.shapes.tolist()

    def dtype_number(self, name):
        """The proto number of a tensor's dtype; see dtypes.py."""
        return int(self._dtypes[self._position(name)])

    def whole_in(self, file):
        """{name: (dtype number, shape)} of the tensors that lie whole, and once, in the file of that name."""
        number = next((at for at, one in enumerate(self._files) if one.name == file), None)
        if self.layout != "plain" or number is None:
            return {}
        several = set(self._pieces.indexes() if self._pieces else ()) | set(np.flatnonzero(self._copies > 1).tolist())
        return {self.present[at]: (int(self._dtypes[at]), tuple(self.shapes[at])) for at in np.flatnonzero(self._file_indexes == number).tolist()
                if at not in several}

    @functools.cached_property
    def summary(self):
        """Such as "291 tensors, 15.0 GiB, BF16"."""
        kinds = words.dtypes(zip((NAMES[number] for number in self._dtypes.tolist()), self._sizes.tolist()))
        return ", ".join(filter(None, [words.tensors(len(self.present)), words.size_of(self.total_bytes), kinds]))

    @functools.cached_property
    def metadata(self):
        """__metadata__ of the first file as a dict of texts."""
        if self._left_out_bytes:
            raise errors.metadata_too_large(self.artifact, self._left_out_bytes)
        try:
            return {bytes(key).decode(): bytes(value).decode() for key, value in self._metadata.items()}
        except UnicodeDecodeError as error:
            raise errors.bad_answer(f"metadata that is no UTF-8: {error}") from None

    def describe(self):
        """The object of `tensorcast inspect --json`."""
        files = [file.name for file in self._files]
        columns = zip(self.present, self._dtypes.tolist(), self._all_shapes, self._file_indexes.tolist(),
                      self._sizes.tolist())
        tensors = [{"name": name, "dtype": NAMES[number], "shape": list(shape), "file": files[file], "bytes": size}
                   for name, number, shape, file, size in columns]
        for index in self._pieces.indexes() if self._pieces else ():
            tensors[index]["pieces"] = self._pieces.describe(index, files)
        for index in np.flatnonzero(self._copies > 1).tolist():
            tensors[index]["copies"] = int(self._copies[index])
        return {
            "artifact": self.artifact,
            "identity": self.identity,
            "files": [{"name": file.name, "bytes": file.bytes} for file in self._files],
            "layout": self.layout,
            **({"world_size": self.world_size} if self.world_size else {}),
            **{key: numbers.tolist() for key, numbers in self._missing.items() if len(numbers)},
            **{key: list(texts) for key, texts in (("notes", self.notes), ("absent_files", self._absent_files)) if texts},
            "metadata": {} if self._left_out_bytes else dict(self.metadata),
            **({"metadata_left_out_bytes": self._left_out_bytes} if self._left_out_bytes else {}),
            "tensors": tensors,
            "total_bytes": self.total_bytes,
        }


class Pieces:
    """Which tensors lie in several boxes, and where."""

    def __init__(self, answer):
        counts, ranks = answer.piece_counts.astype(np.int64), answer.ranks.astype(np.int64)
        if len(counts) != len(ranks):
            raise errors.bad_answer(f"{len(counts)} numbers of pieces for {len(ranks)} tensors")
        self._counts, self._ranks = np.where(counts == 1, 0, counts), ranks
        self._first = np.cumsum(self._counts) - self._counts
        numbers = 2 * ranks * self._counts
        self._first_number = np.cumsum(numbers) - numbers
        self._files, self._boxes = answer.piece_files, answer.piece_boxes
        if int(self._counts.sum()) != len(self._files) or int(numbers.sum()) != len(self._boxes):
            raise errors.bad_answer(f"{len(self._files)} pieces that do not belong to their tensors")
        if len(self._files) and int(self._files.max()) >= len(answer.files):
            raise errors.bad_answer("a piece in a file that there is not")

    def indexes(self):
        return np.flatnonzero(self._counts).tolist()

    def describe(self, index, files):
        rank, n, first, number = (int(column[index]) for column in
                                  (self._ranks, self._counts, self._first, self._first_number))
        boxes = self._boxes[number:number + 2 * rank * n].reshape(n, 2, rank).tolist()
        return [{"file": files[file], "offsets": offsets, "shape": shape}
                for file, (offsets, shape) in zip(self._files[first:first + n].tolist(), boxes)]
