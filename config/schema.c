/* The table itself. Its order is that of --print-config and of the documentation; keys of a section stand together. */
#include "config/schema.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "observe/log.h"

#define FIELD(member) CONFIG_FIELD(config, member)
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
static const char *const transport_names[] = {"auto", "loopback", "nccl", NULL};
static_assert(COLLECTIVE_TRANSPORT_AUTO == 0 && COLLECTIVE_TRANSPORT_LOOPBACK == 1 && COLLECTIVE_TRANSPORT_NCCL == 2,
              "order of transport_names");
static const char *const gate_names[] = {"time", "source_bytes", NULL};
static_assert(COST_GATE_TIME == 0 && COST_GATE_SOURCE_BYTES == 1, "order of gate_names");

static const char *const sandbox_names[] = {"on", "strict", "off", NULL};
static const char *const sandbox_aliases[] = {"true", "strict", "false", NULL};
static_assert(SANDBOX_ON == 0 && SANDBOX_STRICT == 1 && SANDBOX_OFF == 2, "order of sandbox_names");

static const char *const verify_names[] = {"auto", "required", "none", NULL};
static_assert(VERIFY_AUTO == 0 && VERIFY_REQUIRED == 1 && VERIFY_NONE == 2, "order of verify_names");

/* clang-format off */
static const struct config_key keys_before_stores[] = {
    {"server.socket_path", CONFIG_SOCKET_PATH, FIELD(server.socket_path), .fallback = "/run/tensorcast/daemon.sock",
     .help = "Unix socket of the gRPC service. Clients look at their argument, at TENSORCAST_SOCKET, here, then in "
             "$XDG_RUNTIME_DIR/tensorcast (--user)."},
    {"server.handoff_socket_path", CONFIG_SOCKET_PATH, FIELD(server.handoff_socket_path), .fallback = "",
     .may_be_empty = true,
     .help = "Unix socket that hands out file descriptors. Empty: server.socket_path with .handoff instead of .sock."},
    {"server.socket_mode", CONFIG_MODE, FIELD(server.socket_mode), .fallback = "0660", .max = 0777,
     .help = "Permissions of both sockets, in octal. Every user who may connect may read everything below the trusted roots."},
    {"server.socket_group", CONFIG_TEXT, FIELD(server.socket_group), .fallback = "", .may_be_empty = true,
     .help = "Group that owns both sockets. Empty: the daemon's own."},
    {"server.state_dir", CONFIG_PATH, FIELD(server.state_dir), .fallback = "/var/lib/tensorcast",
     .help = "Folder for parsed headers, learned costs and the queue of uploads. Losing it costs time, never data."},
    {"server.metrics_address", CONFIG_TEXT, FIELD(server.metrics_address), .fallback = "", .sample = "\"127.0.0.1:9464\"",
     .may_be_empty = true,
     .help = "ADDRESS:PORT that serves operators over HTTP, without passwords (docs/monitoring.md). Port 0: a free one. Empty: none."},
    {"server.max_connections_per_uid", CONFIG_INTEGER, FIELD(server.max_connections_per_uid), .fallback = "256",
     .min = 1, .max = 65536, .reloadable = true,
     .help = "Connections that one user may have at a time. Two more get an error; further ones are closed at once."},
    {"server.max_message_size", CONFIG_SIZE, FIELD(server.max_message_bytes), .fallback = "32MiB", .min = KIB(4),
     .max = GIB(1),
     .help = "Largest request or answer on the gRPC socket."},
    {"server.sandbox", CONFIG_ENUM, FIELD(server.sandbox), .fallback = "on", .names = sandbox_names, .aliases = sandbox_aliases,
     .help = "What the daemon forbids itself after its start (docs/security.md#sandbox). on: system calls that it does not need, "
             "programs, and writing anywhere but below state_dir, activations.roots, and the folders of log and sockets. "
             "strict: reading anything but roots and named files, too; then a new trusted root needs a restart. true and false "
             "mean on and off."},
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
     .help = "Memory for replicas and loads in flight. auto: half of the host or of a memory cgroup above the daemon (v1 or v2). "
             "A load that cannot fit is refused before it reads a byte."},
    {"memory.staging_budget", CONFIG_SIZE, FIELD(memory.staging_budget_bytes), .fallback = "64MiB", .min = KIB(64),
     .max = LARGEST_SIZE,
     .help = "Temporary memory of all loads together, for reads that cannot land in place."},
    {"memory.extent_cache", CONFIG_SIZE_OR_AUTO, FIELD(memory.extent_cache_bytes), .fallback = "auto", .min = KIB(4),
     .max = LARGEST_SIZE,
     .help = "Memory for bytes from object stores that are wanted only in part, such as the columns of other ranks. They are "
             "kept for two seconds for these ranks. Less than one request (16MiB): they are thrown away. auto: an eighth of the "
             "host budget, at most 1GiB. A single load outside a group may use half the staging budget, up to 32MiB."},
    {"memory.replica_idle_ttl", CONFIG_DURATION, FIELD(memory.replica_idle_ttl_ms), .fallback = "10m",
     .max = HOURS_MS(24 * 365),
     .reloadable = true,
     .help = "How long an unused replica stays while memory is free. 0: it is dropped at once."},
    {"memory.pool_budget", CONFIG_SIZE, FIELD(memory.pool_budget_bytes), .fallback = "0", .max = LARGEST_SIZE,
     .help = "Huge pages to prepare while no load runs, so that the next load need not wait for the kernel to find and clear "
             "them. It comes on top of host_budget, and goes back when the host runs short. 0: none; the page cache keeps that "
             "memory."},
    {"memory.locked_pages_budget", CONFIG_SIZE, FIELD(memory.locked_pages_budget_bytes), .fallback = "0", .max = LARGEST_SIZE,
     .reloadable = true,
     .help = "Pages of files that 'prewarm --memory mapped' may lock in the page cache (docs/mapped.md). They stay until they "
             "are released or idle for replica_idle_ttl. It comes on top of host_budget. Files that do not fit are read and not "
             "locked. 0: none."},
    {"memory.share_gpu_between_users", CONFIG_BOOL, FIELD(memory.share_gpu_between_users), .fallback = "false", .reloadable = true,
     .help = "Whether users share replicas in GPU memory. Clients can write to GPU memory, so with true each user must trust the "
             "others. false: only processes of one user share a replica."},
    {"memory.metadata_budget", CONFIG_SIZE_OR_AUTO, FIELD(memory.metadata_budget_bytes), .fallback = "auto", .min = MIB(16),
     .max = LARGEST_SIZE, .reloadable = true,
     .help = "Memory other than tensors: requests, headers, indexes and plans of all users together. A request that needs more "
             "than is left is refused. auto: a quarter of the host budget, at least 256MiB and at most 1GiB."},

    {"limits.kept_for_others", CONFIG_INTEGER, FIELD(limits.kept_for_others_percent), .fallback = "10", .max = 50,
     .reloadable = true,
     .help = "Per cent of every shared resource (memory, metadata, connections, leases, descriptors, requests to stores) that "
             "one user alone leaves to others. Two users who want all get equal parts. Root and the daemon's own user may take "
             "all. 0: one user may take everything."},
    {"limits.shared_group", CONFIG_TEXT, FIELD(limits.shared_group), .fallback = "", .may_be_empty = true,
     .reloadable = true,
     .help = "Unix group whose members share one name space of group ids, so that they can join each other's load groups. Empty: "
             "no users share."},

    {"sources.disk.trusted_roots", CONFIG_ROOTS, FIELD(sources.disk.trusted_roots), .fallback = "/models", .reloadable = true,
     .help = "Folders that artifacts may be loaded from. Symbolic links cannot lead out of them. None may lie inside another. An "
             "empty list trusts nothing."},
    {"sources.disk.immutable_roots", CONFIG_ROOTS, FIELD(sources.disk.immutable_roots), .fallback = "", .reloadable = true,
     .help = "Folders below which no file is ever changed, cut or written again; you vouch for that. Clients get these files' "
             "own pages where they can take them (docs/mapped.md). If a file changes, the weights of running clients change. If "
             "it is cut, they end by SIGBUS."},

    {"sources.verify", CONFIG_ENUM, FIELD(sources.verify), .fallback = "auto", .names = verify_names, .reloadable = true,
     .help = "Whether bytes are compared with the store's checksums or a manifest before any client sees them "
             "(docs/manifest.md). auto: whenever there is something to compare with. required: a load that cannot be verified in "
             "full fails. none: never."},
    {"sources.trusted_urls", CONFIG_PREFIXES, FIELD(sources.trusted_urls), .fallback = "",
     .help = "Beginnings of references, up to a slash or the end of a name. Nothing else is loaded from object stores, nor from "
             "where https:// servers redirect to. Empty: everything that the daemon's credentials may read."},
    {"sources.http.max_connections", CONFIG_INTEGER, FIELD(sources.http.max_connections), .fallback = "64", .min = 1, .max = 1024,
     .help = "Requests in flight to all object stores together. Users and servers share them fairly; one user alone gets seven "
             "eighths (docs/http.md)."},
    {"sources.http.max_host_connections", CONFIG_INTEGER, FIELD(sources.http.max_host_connections), .fallback = "32", .min = 1,
     .max = 1024,
     .help = "Requests in flight to one server. The daemon learns how many are worth it and stays below."},
    {"sources.http.request_size", CONFIG_SIZE, FIELD(sources.http.request_bytes), .fallback = "16MiB", .min = MIB(1), .max = GIB(1),
     .help = "Size of one request of a large read."},
    {"sources.http.max_tries", CONFIG_INTEGER, FIELD(sources.http.max_tries), .fallback = "8", .min = 1, .max = 100,
     .help = "How often one request is tried before the load fails."},
    {"sources.http.connect_timeout", CONFIG_DURATION, FIELD(sources.http.connect_timeout_ms), .fallback = "5s", .min = 1,
     .max = HOURS_MS(1), .help = "How long connecting to a server may take."},
    {"sources.http.first_byte_timeout", CONFIG_DURATION, FIELD(sources.http.first_byte_timeout_ms), .fallback = "30s", .min = 1,
     .max = HOURS_MS(1), .help = "How long a server may take to begin its answer."},
    {"sources.http.stall_timeout", CONFIG_DURATION, FIELD(sources.http.stall_timeout_ms), .fallback = "5s", .min = 1,
     .max = HOURS_MS(1),
     .help = "How long an answer may pause. Then the rest is requested on another connection."},
    {"sources.http.progress_timeout", CONFIG_DURATION, FIELD(sources.http.progress_timeout_ms), .fallback = "2m", .min = 1,
     .max = HOURS_MS(24),
     .help = "How long a request may go without a byte, over all its tries and waits."},
    {"sources.http.hedge_after", CONFIG_DURATION, FIELD(sources.http.hedge_after_ms), .fallback = "1500ms", .min = 1,
     .max = HOURS_MS(1),
     .help = "A request whose answer has not begun after this time is sent again on another connection. The first good answer "
             "wins."},
    {"sources.http.hedge_percent", CONFIG_INTEGER, FIELD(sources.http.hedge_percent), .fallback = "5", .max = 100,
     .help = "Largest share of requests, in per cent, that are sent twice because they are slow. 0: none."},
    {"sources.http.ca_file", CONFIG_PATH, FIELD(sources.http.ca_file), .fallback = "", .may_be_empty = true,
     .help = "Certificates that servers must be signed by, a file or a folder. Empty: for s3:// AWS_CA_BUNDLE and the profile's "
             "ca_bundle, then for all REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, AWS_CA_BUNDLE, SSL_CERT_FILE, SSL_CERT_DIR, then the "
             "system's."},
    {"sources.http.allow_plain", CONFIG_BOOL, FIELD(sources.http.allow_plain), .fallback = "false",
     .help = "Allows http:// to other hosts than this one. Bytes that arrive that way may have been changed on the way."},
};

static const struct config_key keys_after_stores[] = {
    {"activations.roots", CONFIG_ROOTS, FIELD(activations.roots), .fallback = "", .reloadable = true,
     .help = "Folders below which activation stores may be written (docs/activations.md). Symbolic links cannot lead out of "
             "them. The daemon writes nowhere else, and for its own user and root alone. An empty list: none. With --user: your "
             "home."},
    {"activations.disk_quota", CONFIG_SIZE, FIELD(activations.disk_quota_bytes), .fallback = "0", .max = LARGEST_SIZE,
     .reloadable = true,
     .help = "Disk space for all stores that this daemon has written. A sample without room waits, then it is refused. 0: the "
             "disk is the limit."},
    {"activations.quota_timeout", CONFIG_DURATION, FIELD(activations.quota_timeout_ms), .fallback = "30s", .max = HOURS_MS(24),
     .reloadable = true, .help = "How long a sample waits for room before it is refused."},
    {"uploads.prefixes", CONFIG_PREFIXES, FIELD(uploads.prefixes), .fallback = "", .reloadable = true,
     .help = "Beginnings of gs:// and s3:// references, up to a slash or the end of a name, below which the daemon uploads "
             "(docs/uploads.md). An empty list: wherever sources.trusted_urls and its credentials allow."},

    {"devices.plugin_folder", CONFIG_PATH, FIELD(devices.plugin_folder), .fallback = "", .may_be_empty = true,
     .help = "Folder of tensorcast-cuda.so. Empty: plugins beside tensorcastd, then ../lib/tensorcast/plugins."},
    {"devices.memory_budget", CONFIG_SIZE_OR_AUTO, FIELD(devices.memory_budget_bytes), .fallback = "auto", .min = KIB(4),
     .max = LARGEST_SIZE, .reloadable = true,
     .help = "Memory for replicas and loads in flight on each GPU. auto: nine tenths of what it has."},

    {"engine.io_threads", CONFIG_INTEGER, FIELD(engine.io_threads), .fallback = "0", .max = 64,
     .help = "Threads that read and copy, for each device or mount. 0: two for each core from 4 to 8 threads, beyond that one "
             "for each core, at most 16."},
    {"engine.collective_transport", CONFIG_ENUM, FIELD(engine.collective_transport), .fallback = "auto",
     .names = transport_names, .reloadable = true,
     .help = "How bytes travel between the ranks of a group. auto: the quickest that this build and host have. A transport that "
             "is missing, or cannot serve a group, refuses the collective."},
    {"engine.materialization_strategy.enable_local_batched_disk_load", CONFIG_BOOL, STRATEGY(enable_local_batched_disk_load),
     .fallback = "true", .reloadable = true,
     .help = "Allows the executor tensor_batched_local: whole extents in file order, equal slices read once."},
    {"engine.materialization_strategy.enable_tensor_aware_mapped_executor", CONFIG_BOOL,
     STRATEGY(enable_tensor_aware_mapped_executor), .fallback = "true", .reloadable = true,
     .help = "Accepted without effect: loads into memory of the client (docs/into.md) are planned like all others."},
    {"engine.materialization_strategy.allow_mixed_execution", CONFIG_BOOL, STRATEGY(allow_mixed_execution),
     .fallback = "true",
     .reloadable = true,
     .help = "Allows to split a load between an executor and generic_byte_range, for the bytes that the executor cannot cover."},
    {"engine.materialization_strategy.enable_owner_file_collective", CONFIG_BOOL, STRATEGY(enable_owner_file_collective),
     .fallback = "false", .reloadable = true,
     .help = "Allows the executor owner_file_collective for groups that load together: bytes that several ranks need are read "
             "once (docs/groups.md)."},
    {"engine.materialization_strategy.executor_preference", CONFIG_ENUM, STRATEGY(executor_preference), .fallback = "AUTO",
     .names = executor_preference_names, .aliases = executor_option_names, .names_prefix = "MATERIALIZATION_STRATEGY_EXECUTOR_PREFERENCE_", .reloadable = true,
     .help = "Executor for requests that name none. AUTO: the cheapest that is eligible. TENSOR_AWARE_LOCAL is "
             "tensor_batched_local; both spellings are accepted."},
    {"engine.materialization_strategy.owner_file_collective_peak_bytes_budget", CONFIG_SIZE,
     STRATEGY(owner_file_collective_peak_bytes_budget), .fallback = "8GB", .max = LARGEST_SIZE, .reloadable = true,
     .help = "Temporary memory that a collective load may take at its peak."},
    {"engine.materialization_strategy.owner_file_collective_batch_bytes", CONFIG_SIZE,
     STRATEGY(owner_file_collective_batch_bytes),
     .fallback = "512MB", .max = LARGEST_SIZE, .reloadable = true,
     .help = "Bytes that an owner reads and passes on in one batch. Less than 2MiB counts as 2MiB."},
    {"engine.materialization_strategy.owner_file_collective_dim1_staging_bytes", CONFIG_SIZE,
     STRATEGY(owner_file_collective_dim1_staging_bytes), .fallback = "256MB", .max = LARGEST_SIZE, .reloadable = true,
     .help = "Share of a batch for tensors that are split on an inner dimension. Less than 2MiB counts as 2MiB."},
    {"engine.materialization_strategy.owner_file_collective_max_inflight_batches", CONFIG_INTEGER,
     STRATEGY(owner_file_collective_max_inflight_batches), .fallback = "1", .max = 1024, .reloadable = true,
     .help = "Batches that may be in flight at a time. 0 counts as 1."},
    {"engine.materialization_strategy.owner_file_collective_shared_fs_only", CONFIG_BOOL,
     STRATEGY(owner_file_collective_shared_fs_only), .fallback = "true", .reloadable = true,
     .help = "Refuses the collective for sources that are not proven to be shared. false: only on file systems of one host."},
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
     .help = "Allows a collective to read tensors beside its batches if the patterns that ranks want of them do not line up."},
    {"engine.materialization_strategy.owner_file_collective_planner_cache_entries", CONFIG_INTEGER,
     STRATEGY(owner_file_collective_planner_cache_entries), .fallback = "256", .max = 1000000, .reloadable = true,
     .help = "Collective plans that are kept for the next load of the same group. 0: none."},
    {"engine.materialization_strategy.cost_gate", CONFIG_ENUM, STRATEGY(cost_gate), .fallback = "time", .names = gate_names,
     .reloadable = true,
     .help = "What AUTO compares: the estimated time, or the bytes requested from the source."},
    {"engine.materialization_strategy.remote_fine_slices", CONFIG_BOOL, STRATEGY(remote_fine_slices), .fallback = "false",
     .reloadable = true,
     .help = "Requests every slice from object stores by itself, with one request per row, as old loaders did. For comparison "
             "only."},

    {"hosts.name", CONFIG_TEXT, FIELD(hosts.name), .fallback = "", .may_be_empty = true,
     .help = "Name of this host. Empty: its host name."},
    {"hosts.listen", CONFIG_TEXT, FIELD(hosts.listen), .fallback = "0.0.0.0:0",
     .help = "ADDRESS:PORT of the data port, which others find through etcd. Port 0: a free one."},
    {"hosts.cluster_key_file", CONFIG_PATH, FIELD(hosts.cluster_key_file), .fallback = "", .may_be_empty = true,
     .help = "32 random bytes, the same on all hosts, mode 0600. This or hosts.tls is required unless hosts.listen is loopback."},
    {"hosts.domain", CONFIG_TEXT, FIELD(hosts.domain), .fallback = "", .may_be_empty = true,
     .help = "Hosts of one domain share what they read."},
    {"hosts.etcd.endpoints", CONFIG_PREFIXES, FIELD(hosts.etcd.endpoints), .fallback = "",
     .help = "Members of an etcd by which hosts find each other (docs/hosts.md). An empty list: this host is alone."},
    {"hosts.etcd.prefix", CONFIG_TEXT, FIELD(hosts.etcd.prefix), .fallback = "/tensorcast/v1",
     .help = "Beginning of all keys in etcd."},
    {"hosts.etcd.username", CONFIG_TEXT, FIELD(hosts.etcd.username), .fallback = "", .may_be_empty = true,
     .help = "User of etcd. Empty: none, or the certificate's CommonName."},
    {"hosts.etcd.password_file", CONFIG_PATH, FIELD(hosts.etcd.password_file), .fallback = "", .may_be_empty = true,
     .help = "Its password; mode 0600."},
    {"hosts.etcd.ca_file", CONFIG_PATH, FIELD(hosts.etcd.ca_file), .fallback = "", .may_be_empty = true,
     .help = "Certificates that etcd must be signed by. Empty: gRPC's own."},
    {"hosts.etcd.cert_file", CONFIG_PATH, FIELD(hosts.etcd.cert_file), .fallback = "", .may_be_empty = true,
     .help = "Client certificate for etcd."},
    {"hosts.etcd.key_file", CONFIG_PATH, FIELD(hosts.etcd.key_file), .fallback = "", .may_be_empty = true,
     .help = "Its key."},
    {"hosts.tls.cert_file", CONFIG_PATH, FIELD(hosts.tls.cert_file), .fallback = "", .may_be_empty = true,
     .help = "Certificate of this host, for mutual TLS between hosts."},
    {"hosts.tls.key_file", CONFIG_PATH, FIELD(hosts.tls.key_file), .fallback = "", .may_be_empty = true,
     .help = "Its key."},
    {"hosts.tls.ca_file", CONFIG_PATH, FIELD(hosts.tls.ca_file), .fallback = "", .may_be_empty = true,
     .help = "Certificates that other hosts must be signed by."},

    {"tracing.otlp_endpoint", CONFIG_TEXT, FIELD(tracing.otlp_endpoint), .fallback = "", .may_be_empty = true,
     .help = "Base URL of an OpenTelemetry collector, such as http://127.0.0.1:4318. It gets a trace of each load (OTLP over HTTP, "
             "at /v1/traces). Empty: none is sent."},

    {"prewarm", CONFIG_PREWARMS, FIELD(prewarm.texts), .fallback = "", .reloadable = true,
     .help = "Artifacts to load after the start and after each reload. An entry has an artifact: a reference or an absolute path. "
             "tp_size and tp_rank choose one tensor-parallel rank, tp_size alone all ranks. tensors are names or patterns. pin keeps "
             "it until the entry leaves this list. A failure is logged and stops nothing."},
};
/* clang-format on */

static const struct config_section *no_section(size_t index)
{
    (void)index;
    return NULL;
}

enum { MAX_KEYS = 256 };
static struct config_key keys[MAX_KEYS];
static const struct config_section *(*store_section)(size_t index) = no_section;
const struct config_key *schema_keys = keys;
size_t schema_n_keys;

static void add_keys(const struct config_key *added, size_t n_added, size_t base)
{
    assert(schema_n_keys + n_added <= MAX_KEYS);
    for (size_t i = 0; i < n_added; i++) {
        keys[schema_n_keys] = added[i];
        keys[schema_n_keys++].offset += base;
    }
}

/* Sections lie one behind the other in config->sources.stores. */
static size_t section_base(const struct config_section *section)
{
    const struct config_section *at;
    size_t base = offsetof(struct config, sources.stores);
    for (size_t i = 0; (at = store_section(i)) != section; i++)
        base += (at->bytes + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    return base;
}

const void *schema_section(const struct config *config, const struct config_section *section)
{
    return (const char *)config + section_base(section);
}

__attribute__((constructor)) static void assemble_keys(void)
{
    const struct config_section *section;
    schema_n_keys = 0;
    add_keys(keys_before_stores, sizeof keys_before_stores / sizeof keys_before_stores[0], 0);
    for (size_t i = 0; (section = store_section(i)) != NULL; i++)
        add_keys(section->keys, section->n_keys, section_base(section));
    assert(section_base(NULL) <= offsetof(struct config, sources.stores) + CONFIG_STORES_BYTES);
    add_keys(keys_after_stores, sizeof keys_after_stores / sizeof keys_after_stores[0], 0);
}

void schema_set_sections(const struct config_section *(*section_at)(size_t index))
{
    store_section = section_at;
    assemble_keys();
}

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

bool schema_is_list(const struct config_key *key)
{
    return key->type == CONFIG_ROOTS || key->type == CONFIG_PREFIXES || key->type == CONFIG_PREWARMS;
}

bool schema_is_path(const struct config_key *key)
{
    return key->type == CONFIG_PATH || key->type == CONFIG_SOCKET_PATH || key->type == CONFIG_ROOTS;
}

const char *schema_last_name(const struct config_key *key)
{
    const char *dot = strrchr(key->path, '.');
    return dot ? dot + 1 : key->path;
}
