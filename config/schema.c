/* The table itself. Its order is that of --print-config and of the documentation; keys of a section stand together. */
#include "config/schema.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "observe/log.h"

#define FIELD(member) .offset = offsetof(struct config, member), .size = sizeof(((struct config *)NULL)->member)
#define STRATEGY(member) FIELD(engine.strategy.member)
#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)
#define LARGEST_SIZE (1ull << 50) /* 1024 TiB: more than a host has, far from overflow when sizes are added */
#define HOURS_MS(n) ((uint64_t)(n)*3600 * 1000)

static const char *const level_names[] = {"trace", "debug", "info", "warn", "error", NULL};
static_assert(LOG_TRACE == 0 && LOG_DEBUG == 1 && LOG_INFO == 2 && LOG_WARN == 3 && LOG_ERROR == 4, "order of level_names");
static const char *const format_names[] = {"logfmt", "json", NULL};
static_assert(LOG_LOGFMT == 0 && LOG_JSON == 1, "order of format_names");
static const char *const preference_names[] = {"AUTO", "GENERIC_BYTE_RANGE", "TENSOR_AWARE_LOCAL", "OWNER_FILE_COLLECTIVE",
                                               NULL};
static_assert(EXECUTOR_PREFERENCE_AUTO == 0 && EXECUTOR_PREFERENCE_GENERIC_BYTE_RANGE == 1 &&
                  EXECUTOR_PREFERENCE_TENSOR_AWARE_LOCAL == 2 && EXECUTOR_PREFERENCE_OWNER_FILE_COLLECTIVE == 3,
              "order of preference_names");
static const char *const gate_names[] = {"time", "source_bytes", NULL};
static_assert(COST_GATE_TIME == 0 && COST_GATE_SOURCE_BYTES == 1, "order of gate_names");

/* clang-format off */
const struct config_key schema_keys[] = {
    {"server.socket_path", CONFIG_SOCKET_PATH, FIELD(server.socket_path), .fallback = "/run/tensorcast/daemon.sock",
     .help = "Unix socket of the gRPC service. Clients find it by argument, by TENSORCAST_SOCKET, or here."},
    {"server.handoff_socket_path", CONFIG_SOCKET_PATH, FIELD(server.handoff_socket_path), .fallback = "",
     .may_be_empty = true,
     .help = "Unix socket that hands out file descriptors. Empty: server.socket_path with .sock replaced by .handoff."},
    {"server.socket_mode", CONFIG_MODE, FIELD(server.socket_mode), .fallback = "0660", .max = 0777,
     .help = "Permissions of both sockets, in octal. Who may connect may read everything under the trusted roots."},
    {"server.socket_group", CONFIG_TEXT, FIELD(server.socket_group), .fallback = "", .may_be_empty = true,
     .help = "Group that owns both sockets. Empty: the daemon's own."},
    {"server.state_dir", CONFIG_PATH, FIELD(server.state_dir), .fallback = "/var/lib/tensorcast",
     .help = "Folder for parsed headers and calibration. Losing it costs time, never data."},
    {"server.max_connections_per_uid", CONFIG_INTEGER, FIELD(server.max_connections_per_uid), .fallback = "256",
     .min = 1, .max = 65536, .reloadable = true,
     .help = "Connections that one user may hold open at a time; more are closed at once."},
    {"server.max_message_size", CONFIG_SIZE, FIELD(server.max_message_bytes), .fallback = "32MiB", .min = KIB(4),
     .max = GIB(1),
     .help = "Largest request or answer on the gRPC socket."},
    {"server.shutdown_grace", CONFIG_DURATION, FIELD(server.shutdown_grace_ms), .fallback = "10s", .max = HOURS_MS(1),
     .reloadable = true, .help = "How long running loads may go on after SIGTERM before they are cancelled."},

    {"logging.level", CONFIG_ENUM, FIELD(logging.level), .fallback = "info", .names = level_names, .reloadable = true,
     .help = "Lowest level that is logged. info is one line per load."},
    {"logging.format", CONFIG_ENUM, FIELD(logging.format), .fallback = "logfmt", .names = format_names, .reloadable = true,
     .help = "Form of a line: key=value, or one JSON object."},
    {"logging.file", CONFIG_PATH, FIELD(logging.file), .fallback = "", .may_be_empty = true, .reloadable = true,
     .help = "File to append to; opened again on SIGHUP. Empty: standard error."},

    {"memory.host_budget", CONFIG_SIZE_OR_AUTO, FIELD(memory.host_budget_bytes), .fallback = "auto", .min = KIB(4),
     .max = LARGEST_SIZE, .reloadable = true,
     .help = "Memory for replicas and loads in flight. auto: half of what the cgroup or the host has. A load that cannot fit is "
             "refused before it reads a byte."},
    {"memory.staging_budget", CONFIG_SIZE, FIELD(memory.staging_budget_bytes), .fallback = "64MiB", .min = KIB(64),
     .max = LARGEST_SIZE,
     .help = "Temporary memory of all loads together, for reads that cannot land in place."},
    {"memory.replica_idle_ttl", CONFIG_DURATION, FIELD(memory.replica_idle_ttl_ms), .fallback = "10m",
     .max = HOURS_MS(24 * 365),
     .reloadable = true,
     .help = "How long a replica that nobody uses may stay while memory is free. 0: it is dropped at once."},
    {"memory.pool_budget", CONFIG_SIZE, FIELD(memory.pool_budget_bytes), .fallback = "0", .max = LARGEST_SIZE,
     .help = "Memory of dropped replicas that is kept for the next load, whose pages the kernel then need not zero. 0: all is "
             "given back."},

    {"sources.disk.trusted_roots", CONFIG_ROOTS, FIELD(disk), .fallback = "/models",
     .help = "Folders that artifacts may be loaded from; symbolic links cannot lead out of them. None may lie inside another. "
             "An empty list trusts nothing."},

    {"engine.io_threads", CONFIG_INTEGER, FIELD(engine.io_threads), .fallback = "0", .max = 64,
     .help = "Threads that read and copy. 0: as many as the host's cores suggest."},
    {"engine.materialization_strategy.enable_local_batched_disk_load", CONFIG_BOOL, STRATEGY(enable_local_batched_disk_load),
     .fallback = "true", .reloadable = true,
     .help = "Lets the local batched executor be chosen: whole extents in file order, equal slices read once."},
    {"engine.materialization_strategy.enable_tensor_aware_mapped_executor", CONFIG_BOOL,
     STRATEGY(enable_tensor_aware_mapped_executor), .fallback = "true", .reloadable = true,
     .help = "Lets loads into memory of the client use executors that know tensors instead of bytes. This version has no such "
             "loads."},
    {"engine.materialization_strategy.allow_mixed_execution", CONFIG_BOOL, STRATEGY(allow_mixed_execution),
     .fallback = "true",
     .reloadable = true,
     .help = "Lets one load be split between an executor and, for what it cannot cover, the generic byte-range executor."},
    {"engine.materialization_strategy.enable_owner_file_collective", CONFIG_BOOL, STRATEGY(enable_owner_file_collective),
     .fallback = "false", .reloadable = true,
     .help = "Lets the owner-file collective executor be chosen for groups that load together: what several ranks need is read "
             "once."},
    {"engine.materialization_strategy.executor_preference", CONFIG_ENUM, STRATEGY(executor_preference), .fallback = "AUTO",
     .names = preference_names, .names_prefix = "MATERIALIZATION_STRATEGY_EXECUTOR_PREFERENCE_", .reloadable = true,
     .help = "Executor for requests that name none. AUTO: the cheapest that is eligible."},
    {"engine.materialization_strategy.owner_file_collective_peak_bytes_budget", CONFIG_SIZE,
     STRATEGY(owner_file_collective_peak_bytes_budget), .fallback = "8GB", .max = LARGEST_SIZE, .reloadable = true,
     .help = "Temporary memory that a collective load may take at its peak."},
    {"engine.materialization_strategy.owner_file_collective_batch_bytes", CONFIG_SIZE,
     STRATEGY(owner_file_collective_batch_bytes),
     .fallback = "512MB", .max = LARGEST_SIZE, .reloadable = true,
     .help = "Bytes that an owner reads and passes on in one batch. Less than 2MiB counts as 2MiB."},
    {"engine.materialization_strategy.owner_file_collective_dim1_staging_bytes", CONFIG_SIZE,
     STRATEGY(owner_file_collective_dim1_staging_bytes), .fallback = "256MB", .max = LARGEST_SIZE, .reloadable = true,
     .help = "Of a batch, bytes of tensors that are split on an inner dimension. Less than 2MiB counts as 2MiB."},
    {"engine.materialization_strategy.owner_file_collective_max_inflight_batches", CONFIG_INTEGER,
     STRATEGY(owner_file_collective_max_inflight_batches), .fallback = "1", .max = 1024, .reloadable = true,
     .help = "Batches that may be in flight at a time. 0 counts as 1."},
    {"engine.materialization_strategy.owner_file_collective_shared_fs_only", CONFIG_BOOL,
     STRATEGY(owner_file_collective_shared_fs_only), .fallback = "true", .reloadable = true,
     .help = "Refuses the collective for sources that are not proven to be shared."},
    {"engine.materialization_strategy.owner_file_collective_max_owner_skew_ratio", CONFIG_REAL,
     STRATEGY(owner_file_collective_max_owner_skew_ratio), .fallback = "1.5", .max = 1000, .reloadable = true,
     .help = "Largest ratio of the busiest owner's bytes to the average."},
    {"engine.materialization_strategy.owner_file_collective_min_dedup_saving_bytes", CONFIG_SIZE,
     STRATEGY(owner_file_collective_min_dedup_saving_bytes), .fallback = "512MB", .max = LARGEST_SIZE, .reloadable = true,
     .help = "Bytes that a collective must save to be worth its coordination."},
    {"engine.materialization_strategy.owner_file_collective_group_assemble_timeout", CONFIG_DURATION,
     STRATEGY(owner_file_collective_group_assemble_timeout_ms), .fallback = "15s", .max = HOURS_MS(24), .reloadable = true,
     .help = "How long the ranks of a group wait for the others, from the first one on. Then each loads alone, or "
             "fails if it requires the collective."},
    {"engine.materialization_strategy.owner_file_collective_allow_mixed_residual", CONFIG_BOOL,
     STRATEGY(owner_file_collective_allow_mixed_residual), .fallback = "false", .reloadable = true,
     .help = "Lets a collective leave what it cannot put into batches to be read beside them: tensors of which ranks want patterns "
             "that do not line up."},
    {"engine.materialization_strategy.owner_file_collective_planner_cache_entries", CONFIG_INTEGER,
     STRATEGY(owner_file_collective_planner_cache_entries), .fallback = "256", .max = 1000000, .reloadable = true,
     .help = "Collective plans that are kept for the next load of the same group. 0: none."},
    {"engine.materialization_strategy.cost_gate", CONFIG_ENUM, STRATEGY(cost_gate), .fallback = "time", .names = gate_names,
     .reloadable = true,
     .help = "What AUTO compares: the estimated time, or the bytes asked of the source."},
};
/* clang-format on */
const size_t schema_n_keys = sizeof schema_keys / sizeof schema_keys[0];

const struct config_key *schema_find(const char *path)
{
    for (size_t i = 0; i < schema_n_keys; i++) {
        if (strcmp(schema_keys[i].path, path) == 0)
            return &schema_keys[i];
    }
    return NULL;
}

/* What follows "section." in the path of a key, or NULL when the key is elsewhere. */
static const char *below(const char *section, const char *path)
{
    size_t length = strlen(section);
    if (length == 0)
        return path;
    return strncmp(path, section, length) == 0 && path[length] == '.' ? path + length + 1 : NULL;
}

bool schema_is_section(const char *path)
{
    for (size_t i = 0; i < schema_n_keys; i++) {
        if (below(path, schema_keys[i].path))
            return true;
    }
    return false;
}

size_t schema_children(const char *section, char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS])
{
    size_t n = 0;
    for (size_t i = 0; i < schema_n_keys; i++) {
        const char *rest = below(section, schema_keys[i].path);
        if (!rest)
            continue;
        assert(n < CONFIG_MAX_CHILDREN);
        snprintf(names[n], CONFIG_PATH_CHARS, "%.*s", (int)strcspn(rest, "."), rest);
        n += n == 0 || strcmp(names[n], names[n - 1]) != 0; /* keys of a section stand together */
    }
    return n;
}

const char *schema_last_name(const struct config_key *key)
{
    return strrchr(key->path, '.') + 1;
}
