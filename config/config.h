/* The daemon's typed configuration: store_daemon_config.yaml read through one schema table (config/schema.c).
 *
 * `struct config` is const once built and read by every stage; a reload builds a new one. Ownership: config_destroy().
 * Errors name file, line, column, key, what was expected and the nearest known key. Any thread once built. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "config/executor.h"

enum verify_policy { VERIFY_AUTO, VERIFY_REQUIRED, VERIFY_NONE };

enum cost_gate { COST_GATE_TIME, COST_GATE_SOURCE_BYTES };

enum collective_transport { COLLECTIVE_TRANSPORT_AUTO, COLLECTIVE_TRANSPORT_LOOPBACK, COLLECTIVE_TRANSPORT_NCCL };

struct materialization_strategy { /* engine.materialization_strategy */
    bool enable_local_batched_disk_load;
    bool enable_tensor_aware_mapped_executor;
    bool allow_mixed_execution;
    bool enable_owner_file_collective;
    enum executor_preference executor_preference;
    uint64_t owner_file_collective_peak_bytes_budget;
    uint64_t owner_file_collective_batch_bytes;
    uint64_t owner_file_collective_dim1_staging_bytes;
    uint64_t owner_file_collective_max_inflight_batches;
    bool owner_file_collective_shared_fs_only;
    double owner_file_collective_max_owner_skew_ratio;
    uint64_t owner_file_collective_min_dedup_saving_bytes;
    uint64_t owner_file_collective_group_assemble_timeout_ms;
    bool owner_file_collective_allow_mixed_residual;
    uint64_t owner_file_collective_planner_cache_entries;
    enum cost_gate cost_gate;
    bool remote_fine_slices;
};

struct config_prewarm {         /* what is loaded from the start on */
    const char *text;           /* canonical YAML; equal texts mean the same */
    const char *artifact;       /* a reference */
    uint64_t tp_size, tp_rank;  /* tp_size 0 = not split */
    const char *const *tensors; /* patterns; none = all */
    size_t n_tensors;
    bool pin;
};

struct config_list {
    const char *const *items;
    size_t n_items;
};

enum sandbox_mode { SANDBOX_ON, SANDBOX_STRICT, SANDBOX_OFF };

struct config_server {
    const char *socket_path;
    const char *handoff_socket_path; /* "" in the file: derived, here always filled in */
    uint64_t socket_mode;            /* 0660 */
    const char *socket_group;        /* "" = leave */
    const char *state_dir;
    const char *metrics_address; /* ADDRESS:PORT; "" = none */
    uint64_t max_connections_per_uid;
    uint64_t max_message_bytes; /* max_message_size */
    uint64_t sandbox;           /* enum sandbox_mode */
    uint64_t shutdown_grace_ms; /* shutdown_grace */
};

struct config_logging {
    uint64_t level;  /* enum log_level */
    uint64_t format; /* enum log_format */
    const char *file;
};

struct config_memory {
    uint64_t host_budget_bytes; /* 0 = auto: half of what the cgroup or the host has, found at start */
    uint64_t staging_budget_bytes;
    uint64_t extent_cache_bytes; /* 0 = auto, of the host budget */
    uint64_t replica_idle_ttl_ms;
    uint64_t metadata_budget_bytes;     /* 0 = auto: a quarter of the host budget within bounds */
    uint64_t pool_budget_bytes;         /* memory prepared for the next load; default 0 */
    uint64_t locked_pages_budget_bytes; /* of the page cache, kept by prewarm; default 0 */
    bool share_gpu_between_users;
};

struct config_limits {
    uint64_t kept_for_others_percent; /* see base/quota.h */
    const char *shared_group;         /* "" = none */
};

struct config_http { /* of every object store */
    uint64_t max_connections, max_host_connections, request_bytes, max_tries;
    uint64_t connect_timeout_ms, first_byte_timeout_ms, stall_timeout_ms, progress_timeout_ms;
    uint64_t hedge_after_ms, hedge_percent; /* 0 percent = none */
    const char *ca_file;
    bool allow_plain;
};

enum { CONFIG_STORES_BYTES = 1024 };

struct config_sources {
    struct {
        struct config_list trusted_roots, immutable_roots;
    } disk;
    enum verify_policy verify;
    struct config_list trusted_urls; /* none = all */
    struct config_http http;
    _Alignas(max_align_t) char stores[CONFIG_STORES_BYTES]; /* their sections: schema_section() */
};

struct config_activations {
    struct config_list roots;
    uint64_t disk_quota_bytes; /* 0 = none */
    uint64_t quota_timeout_ms;
};

struct config_uploads {
    struct config_list prefixes;
};

struct config_devices {
    const char *plugin_folder;    /* "" = the installation's */
    uint64_t memory_budget_bytes; /* of each GPU; 0 = auto: nine tenths of what it has */
};

struct config_engine {
    uint64_t io_threads;                            /* 0 = auto */
    enum collective_transport collective_transport; /* AUTO: the quickest that there is */
    struct materialization_strategy strategy;
};

struct config_prewarms {
    struct config_list texts; /* each entry as YAML, canonical; what the schema knows of it */
    const struct config_prewarm *entries;
};

struct config_hosts { /* off unless etcd.endpoints has one */
    struct {
        struct config_list endpoints;
        const char *prefix, *username, *password_file, *ca_file, *cert_file, *key_file;
    } etcd;
    const char *name;   /* "" = the host's */
    const char *listen; /* ADDRESS:PORT of the data port */
    struct {
        const char *cert_file, *key_file, *ca_file;
    } tls;
    const char *cluster_key_file;
    const char *domain;
};

struct config_tracing {
    const char *otlp_endpoint; /* "" = nothing is sent */
};

/* Its members are the sections of the file, theirs the keys. */
struct config {
    struct config_server server;
    struct config_logging logging;
    struct config_memory memory;
    struct config_limits limits;
    struct config_sources sources;
    struct config_activations activations;
    struct config_uploads uploads;
    struct config_devices devices;
    struct config_engine engine;
    struct config_hosts hosts;
    struct config_tracing tracing;
    struct config_prewarms prewarm;
    void *internal; /* arena and places */
};

/* Reads, checks and fills in every default. Returns NULL on error. */
struct config *config_parse(const char *text, size_t length, const char *path, struct error *error);
struct config_source {
    const char *path;      /* NULL: there is no file */
    const char *name;      /* stands for it in messages then */
    char *const *drop_ins; /* further files, read behind it in this order: what a later one says of a key counts */
    size_t n_drop_ins;
    const char *home;             /* what ~/ at the beginning of a path means; NULL: nothing */
    const struct config_default { /* another default of a key; a list has several, one behind the other */
        const char *key;
        char *value;
    } * defaults;
    size_t n_defaults;
    char *const *roots; /* further trusted_roots and activations.roots, beside those of the file; absolute */
    size_t n_roots;
};
struct config *config_load(const struct config_source *source, struct error *error);
const char *config_name(const struct config *config); /* of its file, or the source's name where there was none */
struct config_list config_drop_ins(const struct config *config);
struct config_key;
/* The drop-in that the key's value is from, NULL if none says anything of it. */
const char *config_drop_in_of(const struct config *config, const struct config_key *key);
/* Puts FILE:LINE:COLUMN of the key's value before the message, or the file's name where the default stands. Returns -1. */
int config_prefix_place(const struct config *config, const struct config_key *key, struct error *error);
void config_destroy(const struct config *config);

/* Valid YAML with every key, its effective value and, as a comment, where it came from: "default" (equal to it, wherever it
 * was written), "derived", "from the configuration file", or from which drop-in. Read again, it prints the same. Where --user has defaults of its
 * own, these are in `users`; NULL = it has none. */
void config_print(const struct config *config, const struct config *users, FILE *out);
/* Opens the sections of a key's `path` that the key before it was not in. Returns how deep the key lies. */
int config_print_heads(const char *path, const char *before, FILE *out);

struct config_change {
    const char *key;
    const char *from, *to; /* as the file would say it, and fit to be logged */
    bool reloadable;
};
/* Calls changed() for each key whose value differs. */
void config_compare(const struct config *old, const struct config *fresh,
                    void (*changed)(void *data, const struct config_change *change), void *data);
/* Gives `fresh` the old values of all keys that cannot change at run time; it borrows them, so `old` has to outlive it. */
void config_keep_fixed(const struct config *old, struct config *fresh);

/* For a library or command without a file: every default. Never NULL. */
const struct config *config_defaults(void);

/* "auto", "loopback", "nccl" */
const char *collective_transport_name(enum collective_transport transport);

#endif
