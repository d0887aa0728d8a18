"""The messages of our .proto files as the real protobuf library knows them, in a descriptor pool of their own."""
import functools
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "tensorcast.daemon.v1"
FILES = ("tensorcast/daemon/v1/store_daemon.proto", "tensorcast/daemon/v1/activation_store.proto")

pytest.importorskip("google.protobuf", reason="the protobuf package is not installed")
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402


# google/rpc/status.proto and error_details.proto, of the same wire format; no package here ships them
RPC_STATUS = """syntax = "proto3"; package tensorcast.daemon.v1;
message Any { string type_url = 1; bytes value = 2; }
message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
"""


@functools.lru_cache(maxsize=None)
def pool():
    made = descriptor_pool.DescriptorPool()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rpc_status.proto").write_text(RPC_STATUS)
        out = Path(folder) / "set"
        subprocess.run(["protoc", f"-I{ROOT / 'proto'}", f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}",
                        *FILES, "rpc_status.proto"], check=True)
        for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
            made.Add(file)
    return made


def message_names():
    """All messages of the daemon's package."""
    return [name for file in FILES for name in pool().FindFileByName(file).message_types_by_name]


@functools.lru_cache(maxsize=None)  # upb crashes now and then when a class is collected and made anew
def message(name):
    return message_factory.GetMessageClass(pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


for _name in message_names():
    message(_name)
