"""The messages of proto/tensorcast/daemon/v1/store_daemon.proto that this client speaks, as tables for wire.py.

tests/python/test_wire.py compares every table with the .proto file through the real protobuf library.
"""
from .wire import Table

SERVICE = "tensorcast.daemon.v1.StoreDaemon"
OPEN_END = (1 << 63) - 1  # a slice bound that means "to the end"

File = Table(name=(1, "string"), bytes=(2, "uint"), identity=(3, "string"), pin=(4, "string"), checksums=(5, "strings"))

ResolveRequest = Table(artifact=(1, "string"), fresh=(2, "bool"), include_indexes=(3, "bool"),
                       known_identity=(4, "string"), variant=(5, "bytes"), allow_missing_shards=(6, "bool"),
                       allow_absent_files=(7, "bool"))
ResolveResponse = Table(artifact=(1, "string"), identity=(2, "string"), files=(3, "messages", File),
                        total_bytes=(4, "uint"), unchanged=(5, "bool"), names=(6, "strings"), dtypes=(7, "uints"),
                        ranks=(8, "uints"), file_indexes=(9, "uints"), sizes=(10, "uints"), dims=(11, "uints"),
                        layout=(14, "string"), world_size=(15, "uint"), missing_shards=(16, "uints"),
                        missing_files=(17, "uints"), piece_counts=(18, "uints"), piece_files=(19, "uints"),
                        piece_boxes=(20, "uints"), copies=(21, "uints"), metadata_keys=(22, "blobs"),
                        metadata_values=(23, "blobs"), metadata_left_out_bytes=(24, "uint"), has_metadata=(25, "bool"),
                        notes=(26, "strings"), absent_files=(27, "strings"), absent_tensors=(28, "strings"),
                        absent_file_indexes=(29, "uints"))

View = Table(names=(1, "strings"), n_slices=(2, "uints"), starts=(3, "sints"), stops=(4, "sints"),
             align_bytes=(5, "uint"), placement=(6, "uint"), whole=(7, "bool"), leading=(8, "bool"))
RetrievalPolicy = Table(executor=(1, "uint"), collective=(2, "uint"))
CollectiveLoadGroup = Table(id=(1, "string"), rank=(2, "int"), world_size=(3, "int"), attempt=(4, "string"))
ExecutionTopology = Table(group=(1, "message", CollectiveLoadGroup), source_locality=(2, "uint"),
                          source_sharing_domain=(3, "string"))
Targets = Table(regions=(1, "blobs"), fill_names=(2, "strings"), fill_values=(3, "blobs"), cover_names=(4, "strings"),
                dtypes=(5, "uints"), ranks=(6, "uints"), dims=(7, "uints"), region_indexes=(8, "uints"), offsets=(9, "uints"),
                strides=(10, "sints"))
FileSet = Table(names=(1, "strings"), identity=(2, "string"))
LoadRequest = Table(artifact=(1, "string"), view=(2, "message", View), policy=(3, "message", RetrievalPolicy),
                    topology=(4, "message", ExecutionTopology), device=(5, "string"), region=(6, "bytes"),
                    variant=(7, "bytes"), allow_missing_shards=(8, "bool"), targets=(9, "message", Targets),
                    memory=(10, "uint"), resident_only=(35, "bool"), files=(40, "message", FileSet))
ExplainRequest = Table(load=(1, "message", LoadRequest))
MaterializeRequest = Table(load=(1, "message", LoadRequest))
PrewarmRequest = Table(load=(1, "message", LoadRequest), pin=(2, "bool"), detach=(3, "bool"))

Candidate = Table(executor=(1, "string"), eligible=(2, "bool"), reason=(3, "string"), requested_bytes=(4, "uint"),
                  unique_source_bytes=(5, "uint"), read_bytes=(6, "uint"), requests=(7, "uint"),
                  peak_temporary_bytes=(8, "uint"), estimated_ms=(9, "double"))
CollectiveNumbers = Table(unique_source_bytes=(1, "uint"), peer_transfer_bytes=(2, "uint"),
                          peak_temporary_bytes=(3, "uint"), batch_count=(4, "uint"), dedup_saving_bytes=(5, "uint"))
CollectiveReport = Table(group_id=(1, "string"), rank=(2, "int"), world_size=(3, "int"), transport=(4, "string"),
                         skip_reason=(5, "string"), assemble_ms=(6, "double"), measured=(7, "message", CollectiveNumbers),
                         estimated=(8, "message", CollectiveNumbers))
Verification = Table(status=(1, "string"), by=(2, "string"), bytes=(3, "uint"), reason=(4, "string"),
                     healed=(5, "uint"))
ChangeDetection = Table(by=(1, "string"), reason=(2, "string"))
MappedFacts = Table(possible=(1, "bool"), proof=(2, "string"), reason=(3, "string"))
HostsCandidate = Table(name=(1, "string"), estimated_ms=(2, "double"), reason=(3, "string"))
HostBytes = Table(host=(1, "string"), bytes=(2, "uint"))
HostsReport = Table(choice=(1, "string"), reason=(2, "string"), alive=(3, "uint"),
                    candidates=(4, "messages", HostsCandidate), from_hosts=(5, "messages", HostBytes), hedged_bytes=(6, "uint"))
IntoReport = Table(collective_handled=(1, "bool"), direct_write_supported=(2, "bool"), source_ordered=(3, "bool"),
                   dominant_executor=(4, "string"), committed_bytes=(5, "uint"), fallback_bytes=(6, "uint"))
LoadReport = Table(load_id=(1, "string"), artifact=(2, "string"), identity=(3, "string"), executor=(4, "string"),
                   selection_reason=(5, "string"), candidates=(6, "messages", Candidate), view_bytes=(7, "uint"),
                   unique_source_bytes=(8, "uint"), read_bytes=(9, "uint"), copied_bytes=(10, "uint"),
                   residual_bytes=(11, "uint"), from_replica=(12, "bool"), memory=(13, "string"),
                   resolve_ms=(14, "double"), plan_ms=(15, "double"), execute_ms=(16, "double"),
                   total_ms=(17, "double"), shared_bytes=(18, "uint"), cached_bytes=(19, "uint"),
                   requests=(20, "uint"), peak_temporary_bytes=(21, "uint"), joined=(22, "bool"),
                   collective=(23, "message", CollectiveReport), verified=(30, "message", Verification),
                   device=(31, "string"), change_detection=(40, "message", ChangeDetection), target_bytes=(50, "uint"),
                   into=(51, "message", IntoReport), mapped=(52, "message", MappedFacts),
                   hosts=(53, "message", HostsReport), peer_bytes=(54, "uint"))
ExplainResponse = Table(report=(1, "message", LoadReport), text=(2, "string"))
PrewarmResponse = Table(report=(1, "message", LoadReport))
UnpinRequest = Table(artifact=(1, "string"), all=(2, "bool"))
UnpinResponse = Table(replicas=(1, "uint"), bytes=(2, "uint"))

Accepted = Table(plan=(1, "message", LoadReport))
Progress = Table(stage=(1, "string"), done_bytes=(2, "uint"), total_bytes=(3, "uint"), eta_ms=(4, "double"),
                 waiting_for=(20, "string"))
Layout = Table(names=(1, "strings"), dtypes=(2, "uints"), ranks=(3, "uints"), dims=(4, "uints"),
               offsets=(5, "uints"), sizes=(6, "uints"), file_indexes=(7, "uints"), strides=(8, "uints"))
MappedFile = Table(name=(1, "string"), bytes=(2, "uint"))
LoadResult = Table(report=(1, "message", LoadReport), layout=(2, "unread", Layout),
                   handoff_token=(3, "bytes"), handoff_socket=(4, "string"), memory_bytes=(5, "uint"),
                   device=(10, "string"), files=(11, "messages", MappedFile))
MaterializeEvent = Table(accepted=(1, "message", Accepted), progress=(2, "message", Progress),
                         result=(3, "message", LoadResult))

ReleaseRequest = Table(artifact=(1, "string"), all=(2, "bool"), folder=(3, "string"), folder_is_gone=(4, "bool"))
FolderStatus = Table(path=(1, "string"), artifact=(2, "string"), bytes=(3, "uint"), uid=(4, "uint"),
                     stamp_ns=(7, "uint"))
ReleaseResponse = Table(released_replicas=(1, "uint"), released_bytes=(2, "uint"), leased_replicas=(3, "uint"),
                        leased_bytes=(4, "uint"), replicas_of_others=(5, "uint"), pinned_replicas=(9, "uint"),
                        pinned_bytes=(10, "uint"), folder=(6, "message", FolderStatus))

StatusRequest = Table(own_requests_only=(1, "bool"))
LeaseStatus = Table(pid=(1, "uint"), uid=(2, "uint"), command=(3, "string"), since_s=(4, "double"), cgroup=(5, "string"))
ReplicaStatus = Table(artifact=(1, "string"), view_digest=(2, "string"), bytes=(3, "uint"), leases=(4, "uint"),
                      memory=(5, "string"), idle_s=(6, "double"), identity=(7, "string"), device=(8, "string"),
                      held_by=(9, "messages", LeaseStatus), pinned=(10, "bool"), view_tensors=(11, "uint"),
                      view_bytes=(12, "uint"), artifact_tensors=(13, "uint"), artifact_bytes=(14, "uint"))
PrewarmStatus = Table(artifact=(1, "string"), uid=(2, "uint"), state=(3, "string"), message=(4, "string"),
                      age_s=(5, "double"), pin=(6, "bool"), configured=(7, "bool"))
TotalsStatus = Table(loads=(1, "uint"), resident=(2, "uint"), failed=(3, "uint"), delivered_bytes=(4, "uint"),
                     read_bytes=(5, "uint"), cancelled=(6, "uint"), refused=(7, "uint"))
LoadStatus = Table(load_id=(1, "string"), artifact=(2, "string"), stage=(3, "string"), done_bytes=(4, "uint"),
                   total_bytes=(5, "uint"), clients=(6, "uint"), age_s=(7, "double"), rank=(50, "uint"), world_size=(51, "uint"),
                   waited_for=(52, "string"), waiting_for=(53, "string"), uid=(54, "uint"), pid=(55, "uint"))
CalibrationStatus = Table(device=(1, "string"), cached_request_us=(2, "double"), cached_gbps=(3, "double"),
                          uncached_request_us=(4, "double"), uncached_gbps=(5, "double"), copy_gbps=(6, "double"),
                          fresh_gbps=(7, "double"), samples=(8, "uint"))
DeviceStatus = Table(device=(1, "string"), model=(2, "string"), state=(3, "string"), problem=(4, "string"),
                     memory_bytes=(5, "uint"), budget_bytes=(6, "uint"), used_bytes=(7, "uint"))
StoreStatus = Table(origin=(1, "string"), latency_us=(2, "uint"), connection_gbps=(3, "double"), total_gbps=(4, "double"),
                    parallel_requests=(5, "uint"), in_flight=(6, "uint"), requests=(7, "uint"), retries=(8, "uint"),
                    hedges=(9, "uint"), throttled=(10, "uint"), received_bytes=(11, "uint"))
UserStatus = Table(uid=(1, "uint"), connections=(2, "uint"), calls=(3, "uint"), leases=(4, "uint"), descriptors=(5, "uint"),
                   groups=(6, "uint"), metadata_bytes=(7, "uint"), held_bytes=(8, "uint"), kept_bytes=(9, "uint"),
                   loading_bytes=(10, "uint"), uploads=(11, "uint"), locked_bytes=(12, "uint"))
QuotaStatus = Table(resource=(1, "string"), taken=(2, "uint"), limit=(3, "uint"))
UploadsStatus = Table(pending=(1, "uint"), failed=(2, "uint"), pending_bytes=(3, "uint"))
RequestStatus = Table(method=(1, "string"), artifact=(2, "string"), stage=(3, "string"), waiting_for=(4, "string"),
                      done_bytes=(5, "uint"), total_bytes=(6, "uint"), age_s=(7, "double"), uid=(8, "uint"), pid=(9, "uint"))
HostStatus = Table(name=(1, "string"), self=(2, "bool"), domain=(3, "string"), state=(4, "string"), reason=(5, "string"),
                   address=(6, "string"), incarnation=(7, "string"), version=(8, "string"), in_bytes=(9, "uint"), out_bytes=(10, "uint"),
                   late_answers=(11, "uint"), wrong_answers=(12, "uint"))
HostsStatus = Table(name=(1, "string"), domain=(2, "string"), etcd_state=(3, "string"), etcd_reason=(4, "string"),
                    hosts=(5, "messages", HostStatus))
StatusResponse = Table(version=(1, "string"), pid=(2, "uint"), uptime_s=(3, "double"), host_budget_bytes=(4, "uint"),
                       used_bytes=(5, "uint"), staging_bytes=(6, "uint"), pool_bytes=(7, "uint"),
                       replicas=(8, "messages", ReplicaStatus), loads=(9, "messages", LoadStatus), leases=(10, "uint"),
                       connections=(11, "uint"), calibration=(12, "messages", CalibrationStatus),
                       cached_headers_bytes=(13, "uint"), state=(14, "string"), devices=(21, "messages", DeviceStatus),
                       devices_problem=(22, "string"), stores=(20, "messages", StoreStatus), handoff_socket=(23, "string"),
                       extent_bytes=(24, "uint"), users=(25, "messages", UserStatus), kept_bytes=(26, "uint"),
                       quotas=(27, "messages", QuotaStatus), prewarms=(28, "messages", PrewarmStatus),
                       totals=(29, "message", TotalsStatus), folders=(32, "messages", FolderStatus),
                       uploads=(38, "message", UploadsStatus), requests=(50, "messages", RequestStatus),
                       hosts=(51, "message", HostsStatus), metrics_address=(52, "string"))

FetchSidecarsRequest = Table(artifact=(1, "string"), names=(2, "strings"), list_only=(3, "bool"),
                             kind=(4, "uint"), allow_missing_shards=(6, "bool"), variant=(7, "bytes"))
SidecarList = Table(files=(1, "messages", File), identity=(2, "string"), notes=(3, "strings"))
SidecarChunk = Table(file=(1, "uint"), offset=(2, "uint"), data=(3, "bytes"))
SidecarEvent = Table(list=(1, "message", SidecarList), chunk=(2, "message", SidecarChunk))

# google/rpc/status.proto and error_details.proto, as far as the daemon uses them
MapEntry = Table(key=(1, "string"), value=(2, "string"))
ErrorInfo = Table(reason=(1, "string"), domain=(2, "string"), metadata=(3, "messages", MapEntry))
Any = Table(type_url=(1, "string"), value=(2, "bytes"))
Status = Table(code=(1, "int"), message=(2, "string"), details=(3, "messages", Any))
