/* Why an executor may run or may not, and why one was selected: a value that code decides on, and a text that people read.
 *
 * The text is written once, when the reason is made: the row's name, and behind a colon what is particular to this case.
 * The same rows are the tables of docs/planning.md (`make docs`). Plain values, no allocation. Any thread. */
#ifndef PLAN_REASON_H
#define PLAN_REASON_H

/* X(kind, name, what may follow it (for the documentation), whose it is (NULL = a reason of selection), what it means and
 * what to do about it). ELIGIBLE, which is 0, says that nothing speaks against it. */
/* clang-format off */
#define REASONS(X) \
    X(ELIGIBLE, "eligible", "", "all", "it may run; of generic: from a remote source it reads joined extents, not exactly") \
    X(EXACT_GENERIC_FALLBACK, "exact_generic_fallback", "", "generic_byte_range", "always: it may run") \
    X(LOCAL_NO_SEGMENTS, "target_not_gpu:no_direct_segments", "", "tensor_batched_local", \
      "the target's memory has no address that sources can read into. Host memory has one") \
    X(SOURCE_NOT_DISK, "source_not_disk", "", "tensor_batched_local", \
      "the source is an object store: generic reads it in few large requests") \
    X(LOCAL_STRATEGY_DISABLED, "strategy_disabled", "", "tensor_batched_local", "set `enable_local_batched_disk_load: true`") \
    X(LOCAL_PEAK_BUDGET, "peak_budget_exceeded", "", "tensor_batched_local", "less than 64 KiB of staging: raise `memory.staging_budget`") \
    X(LOCAL_TIME, "local_estimated_time_exceeds_generic", "", "tensor_batched_local", \
      "the cost gate `time` is against it; asking for the executor passes the gate") \
    X(LOCAL_SOURCE_BYTES, "local_source_amplification_exceeds_generic", "", "tensor_batched_local", \
      "the cost gate `source_bytes` is against it; asking for the executor passes the gate") \
    X(COLLECTIVE_POLICY_DISABLED, "collective_policy_disabled", "", "owner_file_collective", \
      "the request said `--collective disabled`") \
    X(COLLECTIVE_NO_SEGMENTS, "target_not_gpu:no_direct_segments", "", "owner_file_collective", \
      "as for local: the transport of this build delivers to host addresses") \
    X(COLLECTIVE_STRATEGY_DISABLED, "strategy_disabled", "", "owner_file_collective", "set `enable_owner_file_collective: true`") \
    X(GROUP_MISSING, "collective_group_missing", "", "owner_file_collective", "pass `--group`, `--rank` and `--world-size`") \
    X(LOCALITY_HOST_LOCAL, "source_locality_host_local", "", "owner_file_collective", \
      "the request says that every host has its own copy") \
    X(SHARED_SOURCE_UNPROVEN, "shared_source_unproven", "", "owner_file_collective", \
      "pass `--source-locality shared_source` or `--source-sharing-domain`, or set " \
      "`owner_file_collective_shared_fs_only: false`") \
    X(FILESYSTEM_HOST_LOCAL, "source_locality_host_local", ":ext4", "owner_file_collective", \
      "`shared_fs_only` is off, but the file system is one of a single host (ext2 to ext4, xfs, btrfs, zfs, tmpfs, squashfs, " \
      "erofs): pass the proof") \
    X(COLLECTIVE_PEAK_BUDGET, "peak_budget_exceeded", "", "owner_file_collective", \
      "batches in flight exceed `owner_file_collective_peak_bytes_budget`: lower `_batch_bytes`, " \
      "`_dim1_staging_bytes` or `_max_inflight_batches`") \
    X(OWNER_SKEW, "owner_skew_threshold_exceeded", "", "owner_file_collective", \
      "one tensor or batch is too much for one rank: lower `_batch_bytes` or raise `_max_owner_skew_ratio`") \
    X(DEDUP_SAVING, "dedup_saving_below_threshold", "", "owner_file_collective", \
      "less than `_min_dedup_saving_bytes` would be read once instead of once per rank") \
    X(RESIDUAL, "residual_fallback_requires_generic_executor", "", "owner_file_collective", \
      "ranks want slices of a tensor that do not line up. `owner_file_collective_allow_mixed_residual: true` reads them " \
      "beside the batches") \
    X(GROUP_ASSEMBLE_TIMEOUT, "group_assemble_timeout", ":missing=1,3", "owner_file_collective", \
      "these ranks did not come within `owner_file_collective_group_assemble_timeout` of the first one") \
    X(GROUP_HOSTS_AWAY, "group_hosts_away", ":missing=1,3", "owner_file_collective", \
      "these ranks are not on this host, and etcd is away, so ranks of other hosts are not known: see `tensorcast hosts`") \
    X(SOURCE_CHANGED, "source_changed", ":rank=1", "owner_file_collective", \
      "rank 1 resolved another version of the artifact: it changed while the group assembled. Load it again on all ranks") \
    X(GROUP_CLOSED, "group_closed", ":<why>", "owner_file_collective", \
      "this rank came after its group was dissolved for that reason. Start the ranks together, or raise the timeout") \
    X(GROUP_MEMBER_DECLINED, "group_member_declined", ":rank=1:<why>", "owner_file_collective", \
      "that rank's own plan is not the collective: give all ranks the same options") \
    X(GROUP_MEMBER_FAILED, "group_member_failed", ":rank=1:<reason>", "owner_file_collective", \
      "there was no memory for that rank; it has got the error") \
    X(JOINT_PLAN_MEMORY, "joint_plan_memory_exceeded", ":METADATA_EXCEEDED", "owner_file_collective", \
      "there was no memory for the joint plan, so each rank loads alone. Raise `memory.metadata_budget`") \
    X(GROUP_RUNS_ALREADY, "group_runs_already", "", "owner_file_collective", \
      "this rank left the group (its client died) and came back while the others were loading") \
    X(TRANSPORT_UNAVAILABLE, "transport_unavailable", ":nccl", "owner_file_collective", \
      "this build or host does not have the transport of `engine.collective_transport`. Set `auto`") \
    X(TRANSPORT_NEEDS_GPUS, "transport_needs_gpus", ":nccl", "owner_file_collective", \
      "that transport delivers between GPUs, and a rank loads into host memory") \
    X(TRANSPORT_NEEDS_A_GPU_PER_RANK, "transport_needs_a_gpu_per_rank", ":nccl", "owner_file_collective", \
      "two ranks load into one GPU: `loopback` serves them") \
    X(TRANSPORT_PEAK_BUDGET, "transport_peak_budget_exceeded", ":nccl", "owner_file_collective", \
      "its batches in flight exceed `_peak_bytes_budget`, or a GPU's share of that is less than 64 MiB") \
    X(TRANSPORT_DEVICE_BUDGET, "transport_device_budget_exceeded", ":nccl", "owner_file_collective", \
      "beside what a rank loads, its GPU's budget leaves less than 64 MiB for staging: raise `devices.memory_budget`") \
    X(TRANSPORT_FAILED, "transport_failed", ":nccl:<reason>", "owner_file_collective", \
      "it failed during the run, or could not be opened for this group. With `auto`, the group then uses `loopback`, and the " \
      "log has `transport_failed`") \
    X(PREFERS_OTHER_EXECUTOR, "prefers_other_executor", "", "owner_file_collective", \
      "only as `collective.skip_reason`: it may run, and the selection reason says why another executor did") \
    X(FROM_REPLICA, "from_replica", "", "owner_file_collective", "only as `collective.skip_reason`: the bytes were in memory already") \
    X(FILES_HANDED_OUT, "files_handed_out", "", "owner_file_collective", \
      "only as `collective.skip_reason`: the client got the files' own pages, and nothing was read for it") \
    X(HOSTS_OFF, "hosts_off", "", "owner_peers", "no other host is known: `hosts.etcd.endpoints` is empty") \
    X(NO_OTHER_HOST, "no_other_host", "", "owner_peers", "no other host of this domain is alive: see `tensorcast hosts`") \
    X(ETCD_AWAY, "etcd_away", ":<why>", "owner_peers", \
      "the daemon does not know which hosts are alive while etcd is away; running loads keep their hosts") \
    X(SOURCE_NOT_SHARED, "source_not_shared", ":<why>", "owner_peers", \
      "the files are on this host alone, or have no strong version") \
    X(IN_PAGE_CACHE, "in_page_cache", "", "owner_peers", "all that is needed is in this host's page cache: no source is read") \
    X(OWNER_PEERS_SLOWER, "owner_peers_slower", ":<estimates>", "owner_peers", \
      "by measured rates it takes more than a tenth longer than reading the source") \
    X(HOSTS_SHARE, "hosts_share", ":alive=4", "owner_peers", \
      "only as `hosts.reason`: it was selected for so many hosts") \
    X(ALL_IS_NEEDED, "all_is_needed", "", "local_slices", "this load needs every byte: the same as `read_all`") \
    X(NOT_ALL_IS_NEEDED, "not_all_is_needed", "", "read_all", \
      "this load needs a part; the estimate is for all") \
    X(AUTO_LOCAL, "auto_prefers_local_batched", "", NULL, "nothing; the usual case") \
    X(AUTO_GENERIC, "auto_generic", ":<why not local>,<why not collective>", NULL, \
      "read the two reasons below; the first decided") \
    X(AUTO_COLLECTIVE, "auto_prefers_owner_file_collective_shared_source", "", NULL, \
      "nothing; a group with a proven shared source") \
    X(AUTO_COLLECTIVE_AFTER_LOCAL, "auto_collective_after_local_rejection", ":<why not local>", NULL, \
      "a group whose ranks would otherwise read exactly") \
    X(COLLECTIVE_REQUIRED, "collective_required", "", NULL, "the request insists on it") \
    X(PREFERENCE_COLLECTIVE, "executor_preference_owner_file_collective", "", NULL, \
      "asked for by request or configuration") \
    X(PREFERENCE_GENERIC, "executor_preference_generic", "", NULL, "asked for by request or configuration") \
    X(PREFERENCE_LOCAL, "executor_preference_tensor_aware_local", "", NULL, "asked for; the gate was not consulted") \
    X(LOCAL_UNAVAILABLE, "tensor_aware_local_unavailable", ":<reason>", NULL, \
      "local was asked for and generic runs; see the reason") \
    X(COLLECTIVE_UNAVAILABLE, "owner_file_collective_unavailable", ":<reason>;fallback=local", NULL, \
      "collective was asked for; what AUTO prefers runs instead, local or generic")

#define REASON_ID(id, name, shape, of, advice) REASON_##id,
enum reason_kind { REASONS(REASON_ID) REASON_COUNT };
/* clang-format on */

enum { REASON_CHARS = 192 };

struct reason {
    enum reason_kind kind;
    char text[REASON_CHARS]; /* "group_assemble_timeout:missing=1,3" */
};

struct reason_row {
    const char *name, *shape, *of, *advice;
};

extern const struct reason_row reason_rows[REASON_COUNT];

struct reason reason_of(enum reason_kind kind);
struct reason reason_with(enum reason_kind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
