"""`tensorcast activations import` and `export`: samples of pickle shards into a store, and a store as such shards.

The command runs this with its own arguments. It reads objects of buckets for this program, by `tensorcast activations cat`."""
from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import PurePath

import numpy as np
from grpc import StatusCode

from . import activation_samples, dtypes, errors, pickle_shards
from .client import connect
from .export import command, error_of

_SHARD, _BUCKET = re.compile(r"shard_.*\.pkl(\.gz)?"), ("gs://", "s3://")
_MAX_SHARDS, _MAX_METADATA_BYTES, _MAX_INFO_BYTES, _MAX_LAYERS = 1 << 20, 256 << 20, 1 << 20, 65536
_INTERRUPTED = 130


# --- what there is to import ---

class _File:
    """A shard, or metadata.json. `found`: as it was in its folder, where what another user has linked there counts."""

    def __init__(self, path, found=None):
        self.path, self._found = path, found

    def open(self):
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        now = os.fstat(fd)
        if not stat.S_ISREG(now.st_mode):
            os.close(fd)
            raise errors.invalid(f"{self.path} is no regular file", "NOT_A_REGULAR_FILE")
        if self._found and not os.path.samestat(self._found, now):
            os.close(fd)
            raise errors.make(StatusCode.ABORTED, f"{self.path} was replaced while it was imported; try again", "FILE_REPLACED")
        return open(fd, "rb", buffering=0)


class _Object:
    """The same in a bucket, fetched each time that it is read: all of them at once may be more than this disk holds."""

    def __init__(self, reference):
        self.path = reference

    def open(self):
        out = tempfile.TemporaryFile(buffering=0)
        done = subprocess.run([command(), "activations", "cat", self.path], stdin=subprocess.DEVNULL, stdout=out,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode:
            out.close()
            raise error_of(b"", done.stderr.decode("utf-8", "replace").splitlines(), done.returncode)
        out.seek(0)
        return out


def _found_in(folder, name):
    """Links of this user and of root are followed; links of other users only to their own files."""
    path = os.path.join(folder, name)
    link, found = os.lstat(path), os.stat(path)
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid(), found.st_uid):
        message = (f"{path} is a link that user {link.st_uid} has made, to a file of another user that they might not be allowed to "
                   "read: put the file itself there, or make the link yourself")
        raise errors.make(StatusCode.PERMISSION_DENIED, message, "FOREIGN_LINK")
    return _File(path, found)


class _Folder:
    """Shards that were named together, and what a metadata.json says of them."""

    def __init__(self, shards, told=None):
        self.shards, self.told = shards, told


def _folder_of(word):
    in_bucket = word.startswith(_BUCKET)
    folder = word.rstrip("/") if in_bucket else word
    if in_bucket and _SHARD.fullmatch(folder.rpartition("/")[2]):
        return _Folder([_Object(folder)])
    if not in_bucket and not stat.S_ISDIR(os.stat(word).st_mode):
        return _Folder([_File(word)])
    if in_bucket:
        with _Object(f"{folder}/").open() as listed:
            names = listed.read().decode().splitlines()
        find = lambda name: _Object(f"{folder}/{name}")  # noqa: E731
    else:
        names = os.listdir(folder)
        find = lambda name: _found_in(folder, name)  # noqa: E731
    shards = sorted(filter(_SHARD.fullmatch, names))
    if not shards:
        raise errors.make(StatusCode.NOT_FOUND, f"{word} holds no shard_*.pkl and no shard_*.pkl.gz", "NO_SHARDS")
    _check_count(len(shards))
    return _Folder([find(name) for name in shards], _metadata(lambda: find("metadata.json")))


def _check_count(n):
    if n > _MAX_SHARDS:
        raise errors.make(StatusCode.RESOURCE_EXHAUSTED, f"there are more than {_MAX_SHARDS} shards; import some at a time", "TOO_MANY_SHARDS")


def _complain(text):
    sys.stderr.write(f"tensorcast: {_shown(text)}\n")


def _metadata(find):
    """What it says is only compared."""
    try:
        with find().open() as file:
            text = file.read(_MAX_METADATA_BYTES + 1)
    except (FileNotFoundError, errors.ArtifactNotFoundError):
        return None
    except errors.DeadlineExceededError:
        raise
    except (errors.TensorcastError, OSError) as error:
        _complain(f"metadata.json is not compared: {getattr(error, 'message', error)}")
        return None
    if len(text) > _MAX_METADATA_BYTES:
        _complain(f"metadata.json is not compared: it is longer than {_MAX_METADATA_BYTES >> 20} MiB")
        return None
    try:
        told = json.loads(text.decode())
        if isinstance(told, dict):
            return told
        complaint = "it is no object"
    except (ValueError, RecursionError) as error:
        complaint = error
    _complain(f"metadata.json is damaged: {complaint}")
    return None


# --- what the host has already ---

class _Stored:
    """Arrays of the host, found by its manifest and the header of the segment that was asked for last: shards have samples in the
    order in which they were appended. Read as files, with this user's rights."""

    def __init__(self, store, host):
        self._folder, self._name, self._segment = os.path.join(store, f"host_{host:03}"), f"host_{host:03}", (None, None, {}, 0)
        self._files = {}  # by sample
        with contextlib.suppress(FileNotFoundError), self._open("manifest.json") as file:
            activation_samples.segments_in(self._name, iter(lambda: file.read(1 << 20), b""), self._add)

    def _open(self, name):
        return open(os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")

    def _add(self, _, segment):
        self._files.update(dict.fromkeys(segment["samples"], segment["file"]))

    def _tensors(self, name):
        """(file, its tensors, where they begin); what cannot be read is for `activations verify` to tell of."""
        if self._segment[0] != name:
            file, tensors, begin = None, None, 0
            with contextlib.suppress(OSError, ValueError):
                file = self._open(os.path.basename(name))
                size = int.from_bytes(file.read(8), "little")
                tensors, begin = json.loads(file.read(min(size, 100 << 20))), 8 + size
            self._segment = name, file, tensors, begin
        return self._segment[1:]

    def compare(self, entry):
        if entry.sample not in self._files:
            return
        file, tensors, begin = self._tensors(self._files[entry.sample])
        if tensors is None:
            return
        told = tensors.get(f"layer_{entry.layer}/sample_{entry.sample:08}")
        kind = dtypes.NAMES[dtypes.number_of(entry.array.dtype.name)]
        if told and (told["dtype"], kind) == ("BF16", "F32"):  # it was narrowed
            return
        if told and told["dtype"] == kind and told["shape"] == list(entry.array.shape):
            first, end = told["data_offsets"]
            array = entry.array.astype(entry.array.dtype.newbyteorder("<"), copy=False)
            if os.pread(file.fileno(), end - first, begin + first) == array.tobytes():
                return
        raise errors.invalid(f"{self._name} has sample {entry.sample} already, and its layer {entry.layer} is "
                             f"{'another array' if told else 'not there'}; samples of another numbering need a host number of their own",
                             "SAMPLE_TWICE")


# --- import ---

class _Import:
    def __init__(self, folders):
        self.folders = folders
        self.shards = [shard for folder in folders for shard in folder.shards]
        _check_count(len(self.shards))
        self.known = {}  # {sample: {layer: index of a shard}}
        self.arrays, self.sums = [0] * len(self.shards), [""] * len(self.shards)
        self.skipped = 0

    def _read(self, index):
        shard = self.shards[index]
        with shard.open() as file:
            text, self.sums[index] = pickle_shards.unpack(file, shard.path)
        return pickle_shards.entries(text, shard.path)

    def look(self, stored):
        """At all of them, before anything is appended."""
        for index, shard in enumerate(self.shards):
            for entry in self._read(index):
                try:
                    self._note(index, entry, stored)
                except errors.TensorcastError as error:
                    raise errors.make(error.code, f"{shard.path}: {error.message}", error.reason, error.metadata) from None
        for sample, layers in self.known.items():
            if len(layers) > _MAX_LAYERS:
                raise errors.invalid(f"sample {sample} has {len(layers)} layers; at most {_MAX_LAYERS} are supported", "TOO_MANY_LAYERS")

    def _note(self, index, entry, stored):
        self.arrays[index] += 1
        layers = self.known.setdefault(entry.sample, {})
        if entry.layer in layers:
            raise errors.invalid(f"sample {entry.sample} has layer {entry.layer} already", "SAMPLE_TWICE")
        layers[entry.layer] = index
        size = len(json.dumps(_info(entry.text), ensure_ascii=False).encode()) if entry.text else 0
        if size > _MAX_INFO_BYTES:
            raise errors.invalid(f"sample {entry.sample}: its text takes {size} bytes in a manifest; at most {_MAX_INFO_BYTES} are kept", "BAD_INFO")
        stored.compare(entry)

    def append(self, store):
        """Each sample when the last shard that has a layer of it is open. Shards are held as long as one of theirs is still to come."""
        complete, needed, held = {}, {}, {}
        for sample in sorted(self.known):
            indices = self.known[sample].values()
            complete.setdefault(max(indices), []).append(sample)
            needed.update((index, max(max(indices), needed.get(index, 0))) for index in indices)
        for index in range(len(self.shards)):
            held[index] = {(entry.sample, entry.layer): entry for entry in self._read(index)}
            for sample in complete.get(index, ()):
                self._append_sample(store, sample, held)
            held = {at: entries for at, entries in held.items() if needed.get(at, 0) > index}

    def _append_sample(self, store, sample, held):
        found = {}
        for layer, index in sorted(self.known[sample].items()):
            found[layer] = held[index].get((sample, layer))
            if found[layer] is None:
                raise errors.make(StatusCode.ABORTED, f"{self.shards[index].path} changed while it was imported", "SHARD_CHANGED")
        text = next((entry.text for entry in found.values() if entry.text), "")
        try:
            store.append(sample, {layer: entry.array for layer, entry in found.items()}, _info(text) if text else None)
        except errors.TensorcastError as error:
            if error.reason != "SAMPLE_TWICE":  # of an import that was interrupted
                raise
            self.skipped += 1

    def tell_contradictions(self):
        first = 0
        for folder in self.folders:
            span = range(first, first + len(folder.shards))
            first = span.stop
            if folder.told is not None:
                self._compare(folder, span)

    def _compare(self, folder, span):
        told = folder.told
        _count("", told.get("total_shards"), "shards", len(span))
        _count("", told.get("total_activations"), "activations", sum(self.arrays[at] for at in span))
        _count("", told.get("total_unique_samples"), "samples", lambda: self._samples(span))
        names = {PurePath(self.shards[at].path).name: at for at in span}
        listed = told.get("shards")
        for one in listed if isinstance(listed, list) else ():
            name = one.get("filename") if isinstance(one, dict) else None
            if not isinstance(name, str):
                continue
            at = names.get(name)
            if at is None:
                _complain(f"metadata.json lists {name}, which is not there")
                continue
            _count(f" in {name}", one.get("total_samples_in_shard"), "activations", self.arrays[at])  # for all its name
            _count(f" in {name}", one.get("num_samples"), "samples", lambda at=at: self._samples((at,)))
            kind, _, digest = str(one.get("checksum")).partition(":")
            if kind == "sha256" and digest.lower() != self.sums[at]:
                _complain(f"metadata.json has another checksum of {name} than the file")

    def _samples(self, span):
        return sum(any(index in span for index in layers.values()) for layers in self.known.values())


def _info(text):
    return {"text_preview": text}


def _count(of, told, what, found):
    if type(told) is not int or told == 0:
        return
    found = found() if callable(found) else found
    if told != found:
        _complain(f"metadata.json tells of {told} {what}{of}, there are {found}")


def _import(client, args):
    work = _Import([_folder_of(word) for word in args.shards])
    work.look(_Stored(args.store.removeprefix("disk:"), args.host))
    work.tell_contradictions()
    try:
        with client.activation_store(args.store, host=args.host) as store:
            work.append(store)
    except errors.TensorcastError as error:
        message = f"{error.message}; the import is not complete: run it again, what is there is left out"
        raise errors.make(error.code, message, error.reason, error.metadata) from None
    n_shards, n_samples = len(work.shards), len(work.known)
    return ({"shards": n_shards, "samples": n_samples, "skipped": work.skipped},
            f"{n_samples} samples of {n_shards} shards, {work.skipped} of which were there already")


# --- export ---

def _add_segment(manifest, segment):
    """As samples() needs it, and what was said about its samples. The manifest is untrusted."""
    before = len(manifest)
    activation_samples.add_segment(manifest, segment)
    if len(manifest) == before:
        return
    number = next(reversed(manifest))
    if segment.get("local") is False and not str(segment.get("uploaded")).startswith(_BUCKET):
        raise ValueError(f"{segment['file']} is said to have been uploaded, but to no bucket")
    texts = {key: said.get("text_preview") for key, said in segment.get("info", {}).items() if isinstance(said, dict)}
    manifest[number]["texts"] = {key: text for key, text in texts.items() if isinstance(text, str)}


class _HostFolder:
    """DIR/host_NNN, made by this: its content can be taken back. Written by descriptors, even if its name leads elsewhere by then."""

    def __init__(self, out_fd, out, host):
        self.name, self.files, self._out_fd = f"host_{host:03}", [], out_fd
        self.path = os.path.join(out, self.name)
        try:
            os.mkdir(self.name, dir_fd=out_fd)
        except FileExistsError:
            raise errors.make(StatusCode.ALREADY_EXISTS, f"{self.path} is there already", "TARGET_EXISTS") from None
        self.fd = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=out_fd)

    def open(self, name, mode):
        self.files.append(name)
        return open(name, mode, opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666, dir_fd=self.fd))

    def remove(self):
        for name in self.files:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.fd)
        with contextlib.suppress(OSError):
            os.rmdir(self.name, dir_fd=self._out_fd)


def _export_host(client, store, host, folder):
    """Returns how many shards it has."""
    source = f"{store}/{folder.name}"
    manifest = activation_samples.manifest_of(client, source, _add_segment)
    texts = {f"segment_{number:06}.safetensors": told["texts"] for number, told in manifest.items()}
    shards, samples, file, segment = [], set(), None, []
    for (name, sample), arrays in activation_samples.placed(client, source, None):
        if name != file and segment:
            shards.append(_write_shard(folder, len(shards) + 1, segment))
            segment = []
        file = name
        plain = {layer: pickle_shards.plain(array, f"{folder.name}: layer {layer} of sample {sample}") for layer, array in arrays.items()}
        segment.append((sample, plain, texts.get(name, {}).get(str(sample), "")))
        samples.add(sample)
    if segment:
        shards.append(_write_shard(folder, len(shards) + 1, segment))
    sizes = [told["bytes"] for told in manifest.values()]
    n_arrays = sum(shard["total_samples_in_shard"] for shard in shards)
    told = {"total_shards": len(shards), "total_activations": n_arrays, "total_unique_samples": len(samples), "upload_to_gcs": False,
            "gcs_bucket": None, "gcs_prefix": None, "version": "1.0", "created_at": np.datetime64("now").item().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "shard_size_gb": max(sizes, default=0) / (1 << 30), "extraction_config": {}, "distributed_config": {"host_id": host},
            "statistics": {"total_samples": len(samples), "total_activations": n_arrays, "total_size_bytes": sum(sizes)}, "shards": shards}
    with folder.open("metadata.json", "x") as out:
        json.dump(told, out, indent=2)
    return len(shards)


def _write_shard(folder, number, segment):
    """One segment, which is here whole, as a shard; returns what metadata.json says of it."""
    name, layers = f"shard_{number:04}.pkl.gz", {}
    for sample, arrays, text in segment:
        for layer, array in arrays.items():
            entry = {"sample_idx": sample, "activation": array, "shape": array.shape, "text_preview": text}
            layers.setdefault(layer, []).append(entry)
    layers = dict(sorted(layers.items()))
    with folder.open(name, "x+b") as out:
        pickle_shards.write(out, layers)
        size, digest = out.tell(), hashlib.sha256()
        out.seek(0)
        while piece := out.read(1 << 20):
            digest.update(piece)
    ids = [sample for sample, _, _ in segment]
    counts = {str(layer): len(items) for layer, items in layers.items()}
    n_bytes = sum(entry["activation"].nbytes for items in layers.values() for entry in items)
    return {"shard_id": number, "filename": name, "local_path": os.path.join(folder.path, name), "gcs_path": None,
            "file_size_mb": size / (1 << 20), "buffer_size_mb": n_bytes / (1 << 20), "layers": list(layers), "samples_per_layer": counts,
            "total_samples_in_shard": sum(counts.values()), "size_bytes": size, "num_samples": len(ids), "sample_id_range": [min(ids), max(ids)],
            "compressed": True, "checksum": f"sha256:{digest.hexdigest()}"}


def _export(client, args):
    hosts = sorted(activation_samples.hosts_of(client, args.store))
    if not hosts:
        raise errors.make(StatusCode.NOT_FOUND, f"{args.store} is no store of activations: it has no folder host_NNN", "NO_HOSTS")
    is_new, made, n_shards = not os.path.lexists(args.out), [], 0
    if is_new:
        os.mkdir(args.out)
    try:
        out_fd = os.open(args.out, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for host in hosts:
            made.append(_HostFolder(out_fd, args.out, host))
            n_shards += _export_host(client, args.store, host, made[-1])
    except BaseException:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for folder in made:
            folder.remove()
        if is_new:
            with contextlib.suppress(OSError):
                os.rmdir(args.out)
        raise
    return {"hosts": len(hosts), "shards": n_shards}, f"{n_shards} shards of {len(hosts)} hosts in {args.out}"


# --- the program ---

def _shown(text):
    """Of other processes and users, too: none of them may steer the terminal, and a further line is no error line of ours."""
    return "\n  ".join(re.sub(r"[\x00-\x1f\x7f]", " ", line) for line in str(text).split("\n"))


_CODES = {errno.ENOENT: "NOT_FOUND", errno.ENOTDIR: "NOT_FOUND", errno.EACCES: "PERMISSION_DENIED", errno.EPERM: "PERMISSION_DENIED",
          errno.EROFS: "PERMISSION_DENIED", errno.EEXIST: "ALREADY_EXISTS", errno.EIO: "DATA_LOSS",
          **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM), "RESOURCE_EXHAUSTED")}


def _as_error(error):
    if isinstance(error, errors.TensorcastError):
        return error
    if isinstance(error, MemoryError):
        return errors.make(StatusCode.RESOURCE_EXHAUSTED, "there is no memory for this", "OUT_OF_MEMORY")
    code = StatusCode[_CODES.get(error.errno, "INTERNAL")]
    return errors.make(code, f"{error.filename}: {error.strerror}" if error.filename else str(error), "SYSTEM_CALL_FAILED")


def _fail(error, as_json):
    if as_json:
        told = {"code": error.code.name, "reason": error.reason, "message": error.message, "metadata": error.metadata}
        sys.stdout.write(json.dumps({"error": told}) + "\n")
    sys.stderr.write(f"tensorcast: {error.code.name}: {_shown(error.message)}\n")
    if error.code is StatusCode.DEADLINE_EXCEEDED:
        return 124
    return 3 if error.code in (StatusCode.UNAVAILABLE, StatusCode.ABORTED) else 1


def _arguments(words):
    parser = argparse.ArgumentParser(prog="tensorcast activations", allow_abbrev=False)
    parser.add_argument("--socket")
    parser.add_argument("--timeout", type=float, help="seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("import")
    one.add_argument("--host", type=int, required=True)
    one.add_argument("store")
    one.add_argument("shards", nargs="+")
    one = commands.add_parser("export")
    one.add_argument("--out", required=True)
    one.add_argument("store")
    return parser.parse_args(words)


def _is_late(*_):
    raise errors.make(StatusCode.DEADLINE_EXCEEDED, "not done within --timeout", "DEADLINE_EXCEEDED")


def main(words: list[str]) -> int:
    """Its exit status."""
    args = _arguments(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if args.timeout is not None:
            signal.signal(signal.SIGALRM, _is_late)
            signal.setitimer(signal.ITIMER_REAL, max(args.timeout, 1e-6), 0.02)  # again, where the exception could not be raised
        result, text = (_import if args.command == "import" else _export)(connect(args.socket), args)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (errors.TensorcastError, OSError, MemoryError) as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return _fail(_as_error(error), args.json)
    if args.json or not args.quiet:
        sys.stdout.write((json.dumps(result) if args.json else text) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
