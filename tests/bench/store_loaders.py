"""The contenders that read object stores from Python: the Run:ai streamer, gcsfs and s3fs. One class each, as in loaders.py.

A program that uses fsspec cuts tensors itself: one process takes whole objects (`cat`), ranks ask for the header and then for
the rows that they want (`cat_ranges`); of a tensor that is split on its inner dimension they take all and keep a part.
"""
import json
import os
import warnings

from loaders import WholeThenNarrow

DTYPES = {"BF16": "bfloat16", "F32": "float32", "F16": "float16", "U8": "uint8"}
HEADER_GUESS = 1 << 20


class StoreStreamer(WholeThenNarrow):
    """Every rank streams all objects and keeps its part; one process keeps what it gets."""

    def prepare(self):
        super().prepare()
        from runai_model_streamer import SafetensorsStreamer
        self.streamer = SafetensorsStreamer

    def load(self, job):
        with self.streamer() as streamer:
            streamer.stream_files([f"{job.reference}/{path.name}" for path in job.files()])
            return {name: self.keep(job, name, whole) for name, whole in streamer.get_tensors()}


class Fsspec(WholeThenNarrow):
    def prepare(self):
        super().prepare()
        self.fs = self.filesystem()

    def tensor(self, raw, entry, shape):
        """Nothing is copied: a view of what the file system returned."""
        dtype = getattr(self.torch, DTYPES[entry["dtype"]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the memory is read-only
            return self.torch.frombuffer(raw, dtype=dtype).view(shape)

    def load(self, job):
        paths = [f"{job.reference}/{path.name}" for path in job.files()]
        return self.load_whole(paths) if job.ranks == 1 else self.load_parts(job, paths)

    def load_whole(self, paths):
        tensors = {}
        for raw in self.fs.cat(paths).values():
            begin = 8 + int.from_bytes(raw[:8], "little")
            data = memoryview(raw)
            for name, entry in entries_of(raw[8:begin]):
                start, stop = entry["data_offsets"]
                tensors[name] = self.tensor(data[begin + start:begin + stop], entry, entry["shape"])
        return tensors

    def load_parts(self, job, paths):
        wanted = []
        for path, head in zip(paths, self.fs.cat_ranges(paths, [0] * len(paths), [HEADER_GUESS] * len(paths), on_error="raise")):
            begin = 8 + int.from_bytes(head[:8], "little")
            wanted += [(path, begin, name, entry) for name, entry in entries_of(head[8:begin])]
        ranges = [self.range_of(job, *item) for item in wanted]
        data = self.fs.cat_ranges([r[0] for r in ranges], [r[1] for r in ranges], [r[2] for r in ranges], on_error="raise")
        tensors = {}
        for (_, _, name, entry), (_, _, _, shape), raw in zip(wanted, ranges, data):
            cut, part = job.cut(name, entry["shape"]), self.tensor(raw, entry, shape)
            tensors[name] = part if not cut or cut[0] == 0 else part[:, cut[1]:cut[2]].contiguous()
        return tensors

    @staticmethod
    def range_of(job, path, begin, name, entry):
        """(path, start, stop, shape) of what has to be asked for."""
        start, stop = (begin + at for at in entry["data_offsets"])
        shape, cut = list(entry["shape"]), job.cut(name, entry["shape"])
        if cut and cut[0] == 0:
            row = (stop - start) // shape[0]
            start, stop, shape[0] = start + cut[1] * row, start + cut[2] * row, cut[2] - cut[1]
        return path, start, stop, shape


class Gcsfs(Fsspec):
    def filesystem(self):
        import gcsfs
        return gcsfs.GCSFileSystem(token="anon", endpoint_url=os.environ["STORAGE_EMULATOR_HOST"])


class S3fs(Fsspec):
    def filesystem(self):
        import s3fs
        return s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])


def entries_of(header):
    return [(name, entry) for name, entry in json.loads(bytes(header)).items() if name != "__metadata__"]


STORE_LOADERS = {"Run:ai streamer, store": StoreStreamer, "gcsfs": Gcsfs, "s3fs": S3fs}
