"""The messages of proto/tensorcast/daemon/v1/activation_store.proto, as tables for wire.py; tests/python/test_wire.py compares."""
from .wire import Table

SERVICE = "tensorcast.daemon.v1.ActivationStore"

OpenActivationsRequest = Table(store=(1, "string"), host=(2, "uint"), memory=(3, "bytes"), segment_bytes=(4, "uint"),
                               upload=(5, "string"), drop_local=(6, "bool"), overlapped=(7, "bool"))
ActivationsResume = Table(has_samples=(1, "bool"), last_sample=(2, "uint"), next_segment=(3, "uint"), samples=(4, "uint"),
                          segments=(5, "uint"), bytes=(6, "uint"))
OpenActivationsResponse = Table(writer=(1, "bytes"), resume=(2, "message", ActivationsResume))
AppendActivationsRequest = Table(writer=(1, "bytes"), sample=(2, "uint"), layers=(3, "uints"), dtypes=(4, "uints"),
                                 ranks=(5, "uints"), dims=(6, "uints"), narrowed=(7, "uints"), info=(8, "string"),
                                 offset=(9, "uint"), memory_offset=(10, "uint"), bytes=(11, "uint"))
AppendActivationsResponse = Table(block_offset=(1, "uint"))
CommitActivationsRequest = Table(writer=(1, "bytes"))
CloseActivationsRequest = Table(writer=(1, "bytes"))
DescribeActivationsRequest = Table(store=(1, "string"), hosts_only=(2, "bool"))
ActivationUploads = Table(pending=(1, "uint"), failed=(3, "uint"), error=(4, "string"))
ActivationHost = Table(host=(1, "uint"), is_open=(3, "bool"), uploads=(4, "message", ActivationUploads))
DescribeActivationsResponse = Table(hosts=(1, "messages", ActivationHost))
