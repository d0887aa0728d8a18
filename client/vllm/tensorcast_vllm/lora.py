"""LoRA adapters from any reference: a resolver for vLLM's runtime adapters (plugin tensorcast_lora).

vLLM's workers open an adapter by path. So it is made a folder in memory (tmpfs), once for all engines of a user on this host: named
by reference and identity, complete or not there, and used for as long as a process that resolved it lives. Which adapters a request
may name is said by TENSORCAST_LORA; a request that could name any reference would read any file of the daemon's.
"""
from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time

import tensorcast_client as tc
from tensorcast_client.reference import parse as parse_reference

ROOTS = "TENSORCAST_LORA"  # references below which adapters are, separated by blanks
FOLDER = "TENSORCAST_LORA_FOLDER"  # where they are kept, if not in /dev/shm
BUDGET = "TENSORCAST_LORA_BUDGET"  # how many bytes of them one engine keeps
_DEFAULT_BUDGET = 8 << 30
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_CONFIG, _TENSORS, _COMPLETE = "adapter_config.json", "adapter_model.safetensors", "in-use"
_MAX_NAME = 512
_MAX_TRIES, _PAUSE_S, _ABANDONED_S = 100, 0.05, 3600

_held = {}  # folder -> descriptor of the lock that keeps it
_held_bytes = 0


def register():
    """Makes the resolver known to this process's vLLM, if TENSORCAST_LORA says where adapters are."""
    roots = os.environ.get(ROOTS, "").split()
    if not roots:
        return
    from vllm.lora.request import LoRARequest
    from vllm.lora.resolver import LoRAResolver, LoRAResolverRegistry

    class TensorcastResolver(LoRAResolver):
        async def resolve_lora(self, base_model_name, lora_name):
            folder = await asyncio.to_thread(resolve, lora_name, roots)
            return folder and LoRARequest(lora_name=lora_name, lora_int_id=1 + abs(hash(lora_name)), lora_path=folder)

    if "tensorcast" not in LoRAResolverRegistry.get_supported_resolvers():
        LoRAResolverRegistry.register_resolver("tensorcast", TensorcastResolver())


def candidates(name, roots):
    """The references that a name of a request may mean: below each root, or one itself that is below a root."""
    if len(name) > _MAX_NAME:
        return []
    roots = [root.rstrip("/") for root in roots]
    below = [name[len(root) + 1:] for root in roots if name.startswith(root + "/")]
    if below:
        return [name] if _NAME.fullmatch(below[0]) else []
    return [f"{root}/{name}" for root in roots] if _NAME.fullmatch(name) else []


def resolve(name, roots, socket=None):
    """The folder of an adapter, None when no root has it."""
    with tc.connect(socket) as client:
        for reference in candidates(name, roots):
            try:
                return folder_of(client.artifact(parse_reference(reference)))
            except tc.ArtifactNotFoundError:
                continue
            except tc.TensorcastError as error:
                raise RuntimeError(f"cannot load the adapter {name} through the tensorcast daemon: {error}") from error
    return None


def folder_of(artifact):
    """A folder with the adapter, for as long as this process lives."""
    described, base = artifact.describe(), _base()
    key = hashlib.sha256(f"{artifact.reference}\0{described['identity']}".encode()).hexdigest()[:32]
    folder = os.path.join(base, key)
    for _ in range(_MAX_TRIES):
        if folder in _held:
            return folder
        try:
            _hold(folder, lambda: _locked(folder, fcntl.LOCK_SH), described["total_bytes"])
        except FileNotFoundError:
            _drop_unused(base)
            _hold(folder, lambda: _made(artifact, described, base, folder), described["total_bytes"])
        except BlockingIOError:
            time.sleep(_PAUSE_S)  # another process is removing it
    raise RuntimeError(f"{folder} is made and removed by others again and again")


def _hold(folder, make, n_bytes):
    """Keeps what make() locks. vLLM opens an adapter's folder again whenever it likes, so none goes while the engine lives; and
    requests name adapters, so what they name has a bound."""
    global _held_bytes
    budget = int(os.environ.get(BUDGET) or _DEFAULT_BUDGET)
    if _held_bytes + n_bytes > budget:
        raise MemoryError(f"the adapters in memory have {_held_bytes} bytes and this one has {n_bytes}; {BUDGET} allows {budget}: "
                          "raise it, or start the engine again")
    handle = make()
    if handle is not None:
        _held[folder] = handle
        _held_bytes += n_bytes


def _base():
    """The folder of all adapters, of this user alone."""
    path = os.environ.get(FOLDER) or f"/dev/shm/tensorcast-lora-{os.geteuid()}"
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{path} is not a folder that only this user writes to; {FOLDER} may name another")
    return path


def _locked(folder, how):
    handle = os.open(os.path.join(folder, _COMPLETE), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
        os.stat(os.path.join(folder, _COMPLETE))  # it was not removed in between
        return handle
    except BaseException:
        os.close(handle)
        raise


def _made(artifact, described, base, folder):
    """Makes the folder, all of it at once, and returns the lock that keeps it; None when another process was faster."""
    temporary, handle = tempfile.mkdtemp(prefix=".tensorcast-", dir=base), None
    try:
        artifact.fetch_sidecars(temporary, [_CONFIG])
        with open(os.path.join(temporary, _CONFIG), encoding="utf-8") as file:
            kind = json.load(file).get("peft_type")
        if kind != "LORA":
            raise ValueError(f"{artifact.reference} is no LoRA adapter: the peft_type of its {_CONFIG} is {kind!r}")
        _write_tensors(artifact, described, os.path.join(temporary, _TENSORS))
        open(os.path.join(temporary, _COMPLETE), "x").close()
        handle = _locked(temporary, fcntl.LOCK_SH)
        os.rename(temporary, folder)
        return handle
    except BaseException as error:
        if handle is not None:
            os.close(handle)
        if isinstance(error, OSError) and os.path.isdir(folder):
            return None
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_tensors(artifact, described, path):
    import torch
    entries, end = {"__metadata__": {"format": "pt"}}, 0
    for tensor in described["tensors"]:
        entries[tensor["name"]] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [end, end + tensor["bytes"]]}
        end += tensor["bytes"]
    header = json.dumps(entries).encode()
    with artifact.tensor_dict(framework="torch") as tensors, open(path, "xb") as file:
        if tensors.diagnostics["identity"] != described["identity"]:
            raise RuntimeError(f"{artifact.reference} was changed while it was loaded; load again")
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in described["tensors"]:
            file.write(tensors[tensor["name"]].contiguous().reshape(-1).view(torch.uint8).numpy())


def _drop_unused(base):
    """Removes what no living process uses."""
    for name in os.listdir(base):
        folder = os.path.join(base, name)
        if name.startswith(".") and time.time() - os.lstat(folder).st_mtime > _ABANDONED_S:
            shutil.rmtree(folder, ignore_errors=True)  # of a process that was killed while it made one
        if folder in _held or name.startswith("."):
            continue
        try:
            handle = _locked(folder, fcntl.LOCK_EX)
        except OSError:
            continue
        try:
            os.unlink(os.path.join(folder, _COMPLETE))
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
