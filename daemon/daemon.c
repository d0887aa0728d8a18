/* Start: configuration -> log -> our sockets (the lock settles who serves them) -> state, memory, engine -> ready. Beside
 * another daemon at the same passed sockets: ready -> it stops accepting, and this one does -> it has ended, and the state
 * directory, metrics and the place among other hosts are this one's. Reload (SIGHUP): a new configuration is read aside; a bad
 * one changes nothing. Stop (SIGTERM, SIGINT): no new requests, running ones finish within server.shutdown_grace, granted
 * tokens are redeemed, then everything is freed. */
#include "daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api/prewarms.h"
#include "base/clock.h"
#include "base/foreign_fd.h"
#include "base/host_headroom.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/tcp_listener.h"
#include "base/text.h"
#include "base/unix_listener.h"
#include "base/user_group.h"
#include "base/version.h"
#include "budgets.h"
#include "execute/engine.h"
#include "host_groups.h"
#include "hosts/host_settings.h"
#include "hosts/hosts.h"
#include "hosts/peers.h"
#include "load/artifact_count.h"
#include "load/rank_registry.h"
#include "observe/log.h"
#include "operators/operators.h"
#include "resolve/format.h"
#include "resolve/header_cache.h"
#include "source/environment.h"
#include "source/stores.h"
#include "sandbox.h"
#include "service_note.h"
#include "state_dir.h"
#include "stuck_mounts.h"
#include "supervisor.h"
#include "tracing/otlp.h"
#include "device/transport.h"
#include "upload/upload_queue.h"
#include "watchdog.h"

enum {
    DRAIN_POLL_MS = 10,
    LAST_READS_MS = 4000, /* after the grace, for the reads that workers are at */
    TEAR_DOWN_MS = 5000,  /* then, for everything else */
    CUT_MOUNTS_MS = 3000, /* of either: then FUSE mounts that have not answered are cut off */
    STATE_POLL_MS = 100,
    HANDOFF_PATHS = 9, /* as many daemons at the same passed socket */
};
struct config_version {
    struct config_version *next;
    const struct config *config;
};

static void keep_config(struct daemon *daemon, const struct config *config)
{
    struct config_version *row = memory_alloc(sizeof *row);
    row->config = config;
    row->next = daemon->configs;
    daemon->configs = row;
    __atomic_store_n(&daemon->api.services.config, config, __ATOMIC_RELEASE); /* threads of the data port read it */
}

static void configure_activations(const struct daemon *daemon)
{
    const struct config *config = daemon->api.services.config;
    activations_configure(
        daemon->api.activations,
        &(struct activation_limits){.roots = {config->activations.roots.items, config->activations.roots.n_items},
                                    .disk_quota_bytes = config->activations.disk_quota_bytes,
                                    .quota_timeout_ms = config->activations.quota_timeout_ms});
}

/* --- start -------------------------------------------------------------------------------------------------------- */

/* The last folder of a socket's path. An operator who mistypes a path is told, and gets no tree of folders, which root could
 * make anywhere. */
static int make_folder_of(const char *path, const char *key, struct error *error)
{
    char *folder = memory_copy_text(path), *slash = strrchr(folder, '/');
    int result = 0;
    if (slash && slash != folder) {
        *slash = '\0';
        int failure = mkdir(folder, 0755) == 0 || errno == EEXIST ? 0 : errno;
        if (failure == ENOENT)
            result = fail(error, ERROR_NOT_FOUND, "NO_SUCH_FOLDER",
                          "%s: the folder above %s does not exist, and only the last one of a path is made", key, folder);
        else if (failure)
            result = fail_errno(error, failure, "%s: cannot make the folder %s", key, folder);
    }
    free(folder);
    return result;
}

/* And then the sandbox, which has rules for folders that are there. */
static int make_folders(struct daemon *daemon, struct supervisor_sockets passed, struct error *error)
{
    const struct config *config = daemon->api.services.config;
    if (passed.rpc_fd < 0 && make_folder_of(config->server.socket_path, "server.socket_path", error) != 0)
        return -1;
    bool has_folder = make_folder_of(config->server.handoff_socket_path, "server.handoff_socket_path", error) == 0;
    if (!has_folder && passed.handoff_fd < 0) /* else perhaps it is not needed */
        return -1;
    if (state_dir_make(config->server.state_dir, error) != 0)
        return -1;
    return sandbox_enter(config, daemon->config_origin, passed.rpc_fd < 0, &daemon->sandbox, error);
}

/* Any thread, while there are headers and loads. */
static bool forget_metadata(void *data)
{
    const struct daemon *daemon = data;
    return header_cache_shrink(daemon->api.services.headers) || load_table_forget_plan(daemon->api.loads);
}

/* Without a group, or when it cannot be found, users are apart. */
static void share_out(struct daemon *daemon)
{
    const struct config *config = daemon->api.services.config;
    struct error error;
    daemon->budgets = memory_budgets_of(config, host_headroom_at("").limit_bytes);
    budgets_set_quotas(daemon->api.services.quota, config, &daemon->budgets);
    budgets_set_block_room(&daemon->block_room, &daemon->budgets);
    daemon->api.shared_group = USER_GROUP_NONE;
    if (config->limits.shared_group[0] &&
        user_group_find("limits.shared_group", config->limits.shared_group, &daemon->api.shared_group, &error) != 0)
        log_warn("shared_group_unknown", LOG_TEXT("message", error.message),
                 LOG_TEXT("effect", "users cannot join each other's groups"));
}

static void on_disconnect(void *context, uint64_t connection)
{
    struct daemon *daemon = context;
    if (daemon->api.handoff &&
        !daemon->api.is_draining) /* a drain closes connections itself; their tokens may still be redeemed */
        handoff_revoke(daemon->api.handoff, connection);
}

static void on_grace_over(void *context);

extern const unsigned char _binary_descriptor_set_binpb_start[], _binary_descriptor_set_binpb_end[];

static int open_sockets(struct daemon *daemon, struct supervisor_sockets passed, struct error *error)
{
    const struct config *config = daemon->api.services.config;
    struct rpc_options options = {
        .loop = daemon->api.services.loop,
        .socket_path = config->server.socket_path,
        .socket_mode = (uint32_t)config->server.socket_mode,
        .socket_group = config->server.socket_group,
        .max_message_bytes = config->server.max_message_bytes,
        .quota = daemon->api.services.quota,
        .listen_fd = passed.rpc_fd,
        .methods = api_methods,
        .n_methods = api_n_methods,
        .descriptor_set = _binary_descriptor_set_binpb_start,
        .descriptor_set_bytes = (size_t)(_binary_descriptor_set_binpb_end - _binary_descriptor_set_binpb_start),
        .context = &daemon->api,
        .on_disconnect = on_disconnect,
        .on_grace_over = on_grace_over,
    };
    return rpc_server_create(&options, &daemon->api.rpc, error);
}

static bool is_at(int fd, const char *path)
{
    struct sockaddr_un address = {0};
    socklen_t length = sizeof address;
    struct stat bound, named;
    return getsockname(fd, (struct sockaddr *)&address, &length) == 0 && stat(address.sun_path, &bound) == 0 &&
           stat(path, &named) == 0 && bound.st_dev == named.st_dev && bound.st_ino == named.st_ino;
}

/* Every daemon at the same passed socket has a hand-off socket of its own: only the daemon that gave a token knows it. The
 * first takes the passed one, if that is where the configuration says. Those beside it make their own, which are as it is. */
static int open_handoff(struct daemon *daemon, struct supervisor_sockets passed, struct error *error)
{
    const struct config *config = daemon->api.services.config;
    const char *path = config->server.handoff_socket_path;
    char group[24];
    struct stat given;
    struct handoff_options options = {
        .loop = daemon->api.services.loop,
        .socket_mode = (uint32_t)config->server.socket_mode,
        .socket_group = config->server.socket_group,
        .max_connections_per_uid = config->server.max_connections_per_uid,
        .quota = daemon->api.services.quota,
        .listen_fd = passed.handoff_fd,
    };
    int number = 1;
    bool is_there = passed.handoff_fd >= 0 && is_at(passed.handoff_fd, path);
    if (is_there && !unix_listener_take_turn(passed.handoff_fd)) {
        number = 2;
        if (stat(path, &given) == 0) {
            snprintf(group, sizeof group, "%u", (unsigned)given.st_gid);
            options.socket_mode = given.st_mode & 0777;
            options.socket_group = given.st_gid == getegid() ? "" : group;
        }
    }
    if (passed.handoff_fd >= 0 && (!is_there || number == 2)) {
        close(passed.handoff_fd);
        options.listen_fd = -1;
    }
    for (;; number++) {
        free(daemon->succession.handoff_path);
        daemon->succession.handoff_path = number == 1 ? memory_copy_text(path) : memory_print("%s.%d", path, number);
        daemon->api.handoff_path = options.socket_path = daemon->succession.handoff_path;
        if (handoff_create(&options, &daemon->api.handoff, error) == 0)
            return 0;
        if (passed.rpc_fd < 0 || error->kind != ERROR_KIND_SOCKET_IN_USE || number == HANDOFF_PATHS)
            return -1;
    }
}

static void log_store(void *data, const char *scheme, const struct store_line *line)
{
    (void)data;
    log_at(line->is_configured ? LOG_INFO : LOG_DEBUG, "store_credentials", LOG_TEXT("scheme", scheme),
           LOG_TEXT("endpoint", line->endpoint), LOG_TEXT("credentials", line->credentials));
}

/* Asked by requests on helper threads for which no client waits then; those of loads have a cancel of their own. Set by the
 * loop and not read off the clock: calls must know that they were cut off before what they wait for is cancelled. */
static bool is_grace_over(void *data)
{
    const struct daemon *daemon = data;
    return atomic_load(&daemon->is_grace_over);
}

static void warn_of_transport(const struct config *config)
{
    const char *name = collective_transport_name(config->engine.collective_transport);
    if (config->engine.collective_transport != COLLECTIVE_TRANSPORT_AUTO && !transport_find(name))
        log_warn("collective_transport_unavailable", LOG_TEXT("transport", name),
                 LOG_TEXT("message",
                          "engine.collective_transport asks for what this build or host does not have: groups will "
                          "not load as a group"));
}

static int build_services(struct daemon *daemon, struct error *error)
{
    struct load_services *services = &daemon->api.services;
    const struct config *config = services->config;
    if (state_dir_own(config->server.state_dir, &daemon->succession.state_fd, error) != 0 ||
        header_cache_create(config->server.state_dir, daemon->budgets.header_cache_bytes, &services->headers, error) != 0)
        return -1;
    daemon->ends_requests = (struct cancel){is_grace_over, daemon};
    environment_is_of_daemon();
    if (stores_create(config, &daemon->ends_requests, &services->stores, error) != 0)
        return -1;
    if (config->activations.roots.n_items)
        services->stores->may_write = true;
    stores_describe(services->stores, log_store, NULL);
    const struct load_room room = {.host_budget_bytes = daemon->budgets.host_bytes,
                                   .extent_cache_bytes = daemon->budgets.extent_cache_bytes,
                                   .state_dir = config->server.state_dir};
    if (load_services_open(services, &room, error) != 0)
        return -1;
    load_targets_add_gpus(services->targets, services->loop, config);
    warn_of_transport(config);
    daemon->api.loads = load_table_create(services);
    quota_set_reclaim(services->quota, QUOTA_METADATA, forget_metadata, daemon);
    daemon->api.folders = folders_create(services->loop, services->targets->list[LOAD_TARGET_HOST].replicas, services->quota,
                                         config->server.state_dir);
    const struct upload_options uploads = {.state_dir = config->server.state_dir,
                                           .stores = services->stores,
                                           .quota = services->quota,
                                           .prefixes = config->uploads.prefixes.items,
                                           .n_prefixes = config->uploads.prefixes.n_items};
    daemon->api.uploads = upload_queue_create(&uploads);
    daemon->api.activations = activations_create(services->loop, config->server.state_dir, daemon->api.uploads);
    configure_activations(daemon);
    daemon->api.prewarms = prewarms_create(&daemon->api);
    daemon->api.open_calls = &daemon->open_calls;
    return 0;
}

/* Root's: what one host reads for another is read for the cluster. */
static void fill_source_options(void *data, struct source_options *options)
{
    const struct daemon *daemon = data;
    const struct config *config = __atomic_load_n(&daemon->api.services.config, __ATOMIC_ACQUIRE);
    *options = load_services_source_options(&daemon->api.services, config, 0, NULL);
    options->format =
        &source_format_safetensors; /* as loads: what a store is asked about a file depends on it, and so its id */
}

static void look_at_hosts(void *data, struct hosts_facts *facts)
{
    const struct daemon *daemon = data;
    struct peers *peers = hosts_peers(daemon->api.hosts);
    struct hosts_summary summary = hosts_summary(daemon->api.hosts);
    facts->is_on = true;
    facts->alive = (uint32_t)peers_alive(peers);
    facts->peers = peers_bytes_per_ns(peers);
    snprintf(facts->etcd_problem, sizeof facts->etcd_problem, "%s", summary.knows_others ? "" : summary.etcd_reason);
}

static int open_hosts(struct daemon *daemon, struct error *error)
{
    struct load_services *services = &daemon->api.services;
    daemon->block_room.replicas = services->targets->list[LOAD_TARGET_HOST].replicas;
    const struct hosts_options options = {.config = services->config,
                                          .cache_room = budgets_block_room,
                                          .room_data = &daemon->block_room,
                                          .source_options = fill_source_options,
                                          .data = daemon};
    if (hosts_create(services->loop, &options, &daemon->hosts, error) != 0)
        return -1;
    daemon->api.hosts = daemon->hosts;
    if (!daemon->hosts)
        return 0;
    services->hosts = (struct load_hosts){look_at_hosts, daemon, peers_holder(hosts_peers(daemon->api.hosts))};
    daemon->ranks = host_groups_join(daemon->api.hosts, daemon->api.loads);
    return 0;
}

/* Ports and a name that a daemon before this one had. */
static int open_to_others(struct daemon *daemon, struct error *error)
{
    if (open_hosts(daemon, error) != 0 || operators_open(&daemon->api, &daemon->operators, error) != 0)
        return -1;
    daemon->api.metrics_address = operators_address(daemon->operators);
    return 0;
}

/* What one daemon of a state directory does. */
static int use_state(struct daemon *daemon, struct error *error)
{
    if (upload_queue_open(daemon->api.uploads, error) != 0)
        return -1;
    folders_restore(daemon->api.folders);
    upload_queue_start(daemon->api.uploads);
    activations_recover(daemon->api.activations);
    return 0;
}

/* False, and told once: another program listens there, or the daemon before this one. Its threads may hang in the kernel for
 * long after it has let go of the state directory. */
static bool ports_are_free(struct daemon *daemon)
{
    const struct config *config = daemon->api.services.config;
    const char *const addresses[] = {config->server.metrics_address,
                                     hosts_are_configured(config) ? config->hosts.listen : ""};
    struct tcp_address wanted, bound;
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        int fd = tcp_address_parse(addresses[i], &wanted) ? tcp_listen(&wanted, &bound) : -1;
        bool is_taken = fd < 0 && *addresses[i] && errno == EADDRINUSE;
        if (fd >= 0)
            close(fd);
        if (is_taken && !daemon->succession.has_told_port)
            log_warn("port_in_use", LOG_TEXT("address", addresses[i]),
                     LOG_TEXT("message", "metrics and other hosts wait until the program that listens there has ended"));
        daemon->succession.has_told_port |= is_taken;
        if (is_taken)
            return false;
    }
    return true;
}

static void on_state_timer(void *data)
{
    struct daemon *daemon = data;
    struct succession *succession = &daemon->succession;
    const char *path = daemon->api.services.config->server.state_dir;
    struct error error;
    if (!succession->is_state_settled) {
        int failed = state_dir_own(path, &succession->state_fd, &error);
        if (!failed && succession->state_fd < 0)
            return;
        succession->is_state_settled = true;
        if (!failed)
            log_info("state_dir_taken_over", LOG_TEXT("folder", path));
        if (failed || use_state(daemon, &error) != 0)
            log_error("takeover_failed", LOG_TEXT("message", error.message));
    }
    if (succession->is_successor && !ports_are_free(daemon))
        return;
    loop_timer_stop(succession->state_timer);
    if (succession->is_successor && open_to_others(daemon, &error) != 0)
        log_error("takeover_failed", LOG_TEXT("message", error.message));
}

static void wait_for_state(struct daemon *daemon)
{
    log_warn(
        "state_dir_in_use", LOG_TEXT("folder", daemon->api.services.config->server.state_dir),
        LOG_TEXT("message", daemon->succession.is_successor
                                ? "another daemon serves the passed socket; uploads, activation stores, metrics and other "
                                  "hosts wait until it has ended"
                                : "another daemon uses server.state_dir; uploads and activation stores wait until it has "
                                  "ended"));
    daemon->succession.state_timer = loop_timer_create(daemon->api.services.loop, on_state_timer, daemon);
    loop_timer_start(daemon->succession.state_timer, STATE_POLL_MS, STATE_POLL_MS);
}

/* Only the loop's thread takes them, and only while it turns: one that comes when the handlers have gone with the loop is not
 * to end a process that has stopped well. */
static void mask_signals(int how)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(how, &signals, NULL);
}

static void on_reload(void *data, int signal_number);
static void on_terminate(void *data, int signal_number);

int daemon_start(struct daemon *daemon, const struct config_origin *origin, const struct config *config, struct error *error)
{
    struct supervisor_sockets passed = supervisor_take_sockets();
    char budget[TEXT_SIZE_CHARS];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *daemon = (struct daemon){.config_origin = origin,
                              .succession.state_fd = -1,
                              .succession.has_passed_socket = passed.rpc_fd >= 0,
                              .api.metrics_address = "",
                              .api.started_ns = clock_now_ns(),
                              .api.started_at_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9};
    keep_config(daemon, config);
    signal(SIGPIPE, SIG_IGN);
    mask_signals(SIG_BLOCK); /* of all threads that are made from here on */
    process_allow_descriptors();
    prctl(PR_SET_DUMPABLE, 0); /* only root may write to the daemon's memory through /proc/PID/mem */
    if (log_open(config->logging.file, (enum log_level)config->logging.level, (enum log_format)config->logging.format,
                 error) != 0 ||
        make_folders(daemon, passed, error) != 0)
        return -1;
    log_start();
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && !foreign_fd_refuse(probe)) /* those that come all the same are closed on threads of their own */
        log_warn("descriptors_not_refused",
                 LOG_TEXT("message",
                          "this kernel cannot refuse descriptors that clients send (SO_PASSRIGHTS, Linux 6.16): a "
                          "client can make threads of this daemon wait"));
    if (probe >= 0)
        close(probe);
    if (config_origin_moves_state(origin, config))
        log_warn("state_dir_moved", LOG_TEXT("from", origin->lost_state), LOG_TEXT("to", config->server.state_dir),
                 LOG_TEXT("message", "the usual server.state_dir cannot be written; the other ends with this session"));
    stuck_mounts_check_roots(config);
    daemon->api.services.loop = loop_create();
    daemon->api.services.quota = quota_create();
    share_out(daemon);
    if (open_sockets(daemon, passed, error) != 0 || build_services(daemon, error) != 0 ||
        open_handoff(daemon, passed, error) != 0 || otlp_create(config, &daemon->otlp, error) != 0)
        return -1;
    daemon->api.services.trace_sink = otlp_sink(daemon->otlp);
    daemon->succession.is_successor = rpc_server_waits(daemon->api.rpc);
    bool owns_state = daemon->succession.state_fd >= 0;
    if (!owns_state)
        wait_for_state(daemon);
    if (((owns_state || !daemon->succession.is_successor) && open_to_others(daemon, error) != 0) ||
        (owns_state && use_state(daemon, error) != 0))
        return -1;
    loop_on_signal(daemon->api.services.loop, SIGTERM, on_terminate, daemon);
    loop_on_signal(daemon->api.services.loop, SIGINT, on_terminate, daemon);
    loop_on_signal(daemon->api.services.loop, SIGHUP, on_reload, daemon);
    rpc_server_ready(daemon->api.rpc);
    supervisor_notify("READY=1");
    daemon->note = service_note_create(&daemon->api);
    log_info("ready", LOG_TEXT("version", version_text()), LOG_U64("pid", (uint64_t)getpid()),
             LOG_TEXT("socket", config->server.socket_path), LOG_TEXT("handoff_socket", daemon->succession.handoff_path),
             LOG_TEXT("host_budget", text_people_bytes(daemon->budgets.host_bytes, budget)),
             LOG_MS("start_ms", clock_now_ns() - daemon->api.started_ns));
    prewarms_configure(daemon->api.prewarms, config);
    return 0;
}

/* --- reload ------------------------------------------------------------------------------------------------------- */

struct reload {
    struct loop_work work;
    struct daemon *daemon;
    struct config *fresh; /* NULL = it is no good */
    int log_fd;           /* -1 = its log cannot be opened */
    bool again;           /* another SIGHUP came meanwhile */
    struct error error;
};

static void report_change(void *data, const struct config_change *change)
{
    (void)data;
    if (change->reloadable)
        log_info("config_changed", LOG_TEXT("key", change->key), LOG_TEXT("from", change->from), LOG_TEXT("to", change->to));
    else
        log_warn("config_needs_restart", LOG_TEXT("key", change->key), LOG_TEXT("from", change->from),
                 LOG_TEXT("to", change->to));
}

/* On a helper: the files may lie on a mount that does not answer. */
static void read_config(struct loop_work *work)
{
    struct reload *reload = (struct reload *)work;
    reload->fresh = config_origin_load(reload->daemon->config_origin, &reload->error);
    bool may_log =
        reload->fresh && sandbox_check_log(reload->daemon->sandbox, reload->fresh->logging.file, &reload->error) == 0;
    reload->log_fd = may_log ? log_open_file(reload->fresh->logging.file, &reload->error) : -1;
}

static void apply_config(struct daemon *daemon, struct config *fresh)
{
    size_t n_drop_ins = config_drop_ins(fresh).n_items;
    config_compare(daemon->api.services.config, fresh, report_change, NULL);
    config_keep_fixed(daemon->api.services.config, fresh); /* all of them live until the end */
    sandbox_tell_changes(daemon->sandbox, fresh);
    keep_config(daemon, fresh);
    share_out(daemon);
    configure_activations(daemon);
    upload_queue_set_prefixes(daemon->api.uploads, fresh->uploads.prefixes.items, fresh->uploads.prefixes.n_items);
    handoff_set_limits(daemon->api.handoff, fresh->server.max_connections_per_uid);
    load_targets_configure(daemon->api.services.targets, fresh, daemon->budgets.host_bytes);
    warn_of_transport(fresh);
    if (!daemon->api.is_draining)
        prewarms_configure(daemon->api.prewarms, fresh);
    if (config_origin_has_file(daemon->config_origin, fresh))
        log_info("config_reloaded", LOG_TEXT("file", config_name(fresh)), LOG_U64("drop_ins", n_drop_ins));
    else
        log_info("config_file_missing", LOG_TEXT("file", daemon->config_origin->path),
                 LOG_TEXT("effect",
                          n_drop_ins ? "the files of its folder count, and every other default" : "every default counts"));
}

static void on_config_read(struct loop_work *work)
{
    struct reload *reload = (struct reload *)work;
    struct daemon *daemon = reload->daemon;
    struct config *fresh = reload->fresh;
    bool again = reload->again;
    if (reload->log_fd >= 0) {
        log_use(reload->log_fd, (enum log_level)fresh->logging.level, (enum log_format)fresh->logging.format);
        apply_config(daemon, fresh);
    } else {
        log_error("config_reload_refused", LOG_TEXT("message", reload->error.message));
        config_destroy(fresh);
    }
    daemon->reload = NULL;
    free(reload);
    if (again)
        on_reload(daemon, SIGHUP);
    else if (!daemon->api.is_draining)
        supervisor_notify("READY=1");
}

static void on_reload(void *data, int signal_number)
{
    struct daemon *daemon = data;
    (void)signal_number;
    if (daemon->reload) {
        daemon->reload->again = true;
        return;
    }
    if (!daemon->api.is_draining) {
        char text[64]; /* systemd wants to know since when */
        snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)(clock_now_ns() / 1000));
        supervisor_notify(text);
    }
    daemon->reload = memory_alloc(sizeof *daemon->reload);
    daemon->reload->work =
        (struct loop_work){.do_work = read_config, .done = on_config_read, .pool = LOOP_DISK, .uid = getuid()};
    daemon->reload->daemon = daemon;
    loop_continue(daemon->api.services.loop, &daemon->reload->work);
}

/* --- stop --------------------------------------------------------------------------------------------------------- */

struct lost {
    uint64_t loads, bytes;
};

static void add_lost(void *data, const struct load_info *info)
{
    struct lost *lost = data;
    lost->loads++;
    lost->bytes += info->total_bytes - info->done_bytes;
}

/* Before their requests are cut off: then every load still has a client to tell. */
static void on_grace_over(void *context)
{
    struct daemon *daemon = context;
    struct lost lost = {0};
    double grace_s = (double)daemon->api.services.config->server.shutdown_grace_ms / 1000;
    load_table_each(daemon->api.loads, add_lost, &lost);
    log_warn("drain_incomplete", LOG_U64("loads", lost.loads), LOG_U64("bytes_left", lost.bytes),
             LOG_REAL("grace_s", grace_s));
    fail(&daemon->cut_off, ERROR_UNAVAILABLE, "DAEMON_STOPPING",
         "the daemon is stopping; the load did not end within server.shutdown_grace %g s", grace_s);
    daemon->api.services.cut_off = &daemon->cut_off;
    atomic_store(&daemon->is_grace_over, true);
}

static void stop_when_quiet(void *data)
{
    struct daemon *daemon = data;
    uint64_t now = clock_now_ns();
    struct lost lost = {0};
    load_table_each(daemon->api.loads, add_lost, &lost);
    watchdog_set_lost(daemon->watchdog, lost.loads, lost.bytes);
    bool tokens_left = handoff_pending(daemon->api.handoff) && now < daemon->drain_deadline_ns;
    bool stores_left = !activations_idle(daemon->api.activations) && now < daemon->drain_deadline_ns;
    bool loads_left = (lost.loads || !prewarms_are_idle(daemon->api.prewarms)) &&
                      now < daemon->drain_deadline_ns + (uint64_t)LAST_READS_MS * NS_PER_MS;
    daemon->quiet_ns = loads_left ? now : daemon->quiet_ns;
    uint64_t lane, since_ns = loads_left ? daemon->drain_deadline_ns : daemon->quiet_ns;
    if (!daemon->has_cut_mounts && now >= since_ns + (uint64_t)CUT_MOUNTS_MS * NS_PER_MS) {
        daemon->has_cut_mounts = true;
        stuck_mounts_cut(daemon->api.services.loop, daemon->api.services.engine, 0);
    }
    /* requests of helpers were answered; they end before the objects that they use, except those that hang */
    bool helpers_left = loop_list_lanes(daemon->api.services.loop, &lane, 1) > 0 &&
                        now < daemon->quiet_ns + (uint64_t)LAST_READS_MS * NS_PER_MS;
    if (!loads_left && !tokens_left && !stores_left && !helpers_left)
        loop_stop(daemon->api.services.loop);
}

static void on_drained(void *context)
{
    struct daemon *daemon = context;
    atomic_store(&daemon->is_grace_over, true); /* no client waits any more */
    daemon->quiet_ns = clock_now_ns();
    daemon->drain_timer = loop_timer_create(daemon->api.services.loop, stop_when_quiet, daemon);
    loop_timer_start(daemon->drain_timer, 0, DRAIN_POLL_MS);
}

static void begin_drain(struct daemon *daemon)
{
    uint64_t now_ns = clock_now_ns();
    uint64_t left_ns = daemon->drain_deadline_ns > now_ns ? daemon->drain_deadline_ns - now_ns : 0;
    hosts_leave(daemon->api.hosts);
    prewarms_stop(daemon->api.prewarms);
    activations_drain(daemon->api.activations);
    rpc_server_drain(daemon->api.rpc, (left_ns + NS_PER_MS - 1) / NS_PER_MS, on_drained);
}

/* Ranks that come to the next daemon would not find those that are here. */
static void await_ranks(void *data)
{
    struct daemon *daemon = data;
    if (clock_now_ns() < daemon->succession.ranks_deadline_ns && load_table_awaits_ranks(daemon->api.loads))
        return;
    loop_timer_destroy(daemon->drain_timer);
    daemon->drain_timer = NULL;
    begin_drain(daemon);
}

static void on_terminate(void *data, int signal_number)
{
    struct daemon *daemon = data;
    uint64_t grace_ms = daemon->api.services.config->server.shutdown_grace_ms;
    if (daemon->api.is_draining)
        return;
    daemon->api.is_draining = true;
    loop_timer_destroy(daemon->succession.state_timer);
    daemon->succession.state_timer = NULL;
    daemon->drain_deadline_ns = clock_now_ns() + grace_ms * NS_PER_MS;
    watchdog_exit_at(daemon->watchdog, daemon->drain_deadline_ns + (uint64_t)(LAST_READS_MS + TEAR_DOWN_MS) * NS_PER_MS);
    supervisor_notify("STOPPING=1");
    log_info("draining", LOG_TEXT("signal", strsignal(signal_number)), LOG_U64("grace_ms", grace_ms));
    if (!daemon->succession.has_passed_socket || !load_table_awaits_ranks(daemon->api.loads)) {
        begin_drain(daemon);
        return;
    }
    daemon->succession.ranks_deadline_ns = daemon->drain_deadline_ns - grace_ms * NS_PER_MS / 2;
    daemon->drain_timer = loop_timer_create(daemon->api.services.loop, await_ranks, daemon);
    loop_timer_start(daemon->drain_timer, DRAIN_POLL_MS, DRAIN_POLL_MS);
}

/* Workers or helpers hang in reads and hold on to memory and files, perhaps for as long as this process is listed: what others
 * wait for is given up by hand. */
static _Noreturn void abandon(struct daemon *daemon)
{
    struct load_targets *targets = daemon->api.services.targets;
    handoff_destroy(daemon->api.handoff);
    rpc_server_destroy(daemon->api.rpc);
    load_targets_drop_replicas(targets);
    if (daemon->succession.state_fd >= 0)
        close(daemon->succession.state_fd);
    device_host_wait_freed(targets->list[LOAD_TARGET_HOST].device);
    watchdog_exit(daemon->watchdog);
}

void daemon_run(struct daemon *daemon)
{
    daemon->watchdog = watchdog_create(daemon->api.services.loop);
    mask_signals(SIG_UNBLOCK);
    loop_run(daemon->api.services.loop);
    mask_signals(SIG_BLOCK);
    watchdog_stop_listening(daemon->watchdog);
    watchdog_exit_at(daemon->watchdog, clock_now_ns() + (uint64_t)TEAR_DOWN_MS * NS_PER_MS);
    uint64_t lane;
    if (!load_table_idle(daemon->api.loads) || !prewarms_are_idle(daemon->api.prewarms) ||
        loop_list_lanes(daemon->api.services.loop, &lane, 1) > 0)
        abandon(daemon);
    daemon->has_run = true;
}

void daemon_stop(struct daemon *daemon)
{
    struct load_services *services = &daemon->api.services;
    operators_stop(daemon->operators);
    service_note_destroy(daemon->note);
    loop_finish(services->loop); /* while everything is there that helpers and their ends use */
    handoff_destroy(daemon->api.handoff);
    loop_timer_destroy(daemon->drain_timer);
    loop_timer_destroy(daemon->succession.state_timer);
    if (daemon->api.rpc)
        rpc_server_destroy(daemon->api.rpc);
    folders_stop(daemon->api.folders);
    if (daemon->api.uploads)
        upload_queue_stop(daemon->api.uploads);
    if (daemon->api.activations)
        activations_stop(daemon->api.activations);
    prewarms_destroy(daemon->api.prewarms);
    hosts_stop(daemon->hosts);
    if (services->quota)
        quota_set_reclaim(services->quota, QUOTA_METADATA, NULL, NULL);
    load_table_destroy(daemon->api.loads);
    otlp_destroy(daemon->otlp); /* after the last ticket */
    load_services_close(services);
    if (services->headers)
        header_cache_destroy(services->headers);
    stores_destroy(services->stores);
    if (daemon->has_run) /* the last word, also after those of the replicas */
        log_info("stopped", LOG_MS("uptime_ms", clock_now_ns() - daemon->api.started_ns));
    loop_destroy(services->loop);
    operators_destroy(daemon->operators);
    folders_destroy(daemon->api.folders);
    hosts_destroy(daemon->hosts);
    rank_registry_destroy(daemon->ranks);
    activations_destroy(daemon->api.activations);
    upload_queue_destroy(daemon->api.uploads);
    watchdog_destroy(daemon->watchdog);
    if (daemon->succession.state_fd >= 0)
        close(daemon->succession.state_fd);
    free(daemon->succession.handoff_path);
    quota_destroy(services->quota);
    artifact_count_reset();
    sandbox_destroy(daemon->sandbox);
    while (daemon->configs) {
        struct config_version *next = daemon->configs->next;
        config_destroy(daemon->configs->config);
        free(daemon->configs);
        daemon->configs = next;
    }
    stuck_mounts_cut(NULL, NULL, CUT_MOUNTS_MS); /* files are closed by now, and that may hang, too */
}
