/* Start: configuration -> log -> our sockets (the lock settles who serves them) -> state, memory, engine -> ready.
 * Reload (SIGHUP): a new configuration is read aside; a bad one changes nothing. Stop (SIGTERM, SIGINT): no new requests,
 * running ones finish within server.shutdown_grace, granted tokens are redeemed, then everything is freed. */
#include "daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/prewarms.h"
#include "base/clock.h"
#include "base/foreign_fd.h"
#include "base/host_headroom.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"
#include "base/user_group.h"
#include "base/version.h"
#include "budgets.h"
#include "execute/engine.h"
#include "observe/log.h"
#include "resolve/header_cache.h"
#include "root_check.h"
#include "source/environment.h"
#include "source/stores.h"
#include "state_dir.h"
#include "stuck_mounts.h"
#include "supervisor.h"
#include "transport/transport.h"
#include "upload/upload_queue.h"
#include "watchdog.h"

enum {
    DRAIN_POLL_MS = 10,
    LAST_READS_MS = 4000, /* after the grace, for the reads that workers are at */
    TEAR_DOWN_MS = 5000,  /* then, for everything else */
    CUT_MOUNTS_MS = 3000, /* of either: then FUSE mounts that have not answered are cut off */
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
    daemon->api.services.config = config;
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

/* The last folder of a socket's path. Whoever mistypes a path is told, and gets no tree of folders, which root could make
 * anywhere. */
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
    daemon->budgets = budgets_of(config, host_headroom_at("").limit_bytes);
    budgets_set_quotas(daemon->api.services.quota, config, &daemon->budgets);
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
    if (passed.rpc_fd < 0 && make_folder_of(config->server.socket_path, "server.socket_path", error) != 0)
        return -1;
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

static int open_handoff(struct daemon *daemon, struct supervisor_sockets passed, struct error *error)
{
    const struct config *config = daemon->api.services.config;
    if (passed.handoff_fd < 0 &&
        make_folder_of(config->server.handoff_socket_path, "server.handoff_socket_path", error) != 0)
        return -1;
    struct handoff_options options = {
        .loop = daemon->api.services.loop,
        .socket_path = config->server.handoff_socket_path,
        .socket_mode = (uint32_t)config->server.socket_mode,
        .socket_group = config->server.socket_group,
        .max_connections_per_uid = config->server.max_connections_per_uid,
        .quota = daemon->api.services.quota,
        .listen_fd = passed.handoff_fd,
    };
    return handoff_create(&options, &daemon->api.handoff, error);
}

static void log_store(void *data, const char *scheme, const struct store_line *line)
{
    (void)data;
    log_at(line->is_configured ? LOG_INFO : LOG_DEBUG, "store_credentials", LOG_TEXT("scheme", scheme),
           LOG_TEXT("endpoint", line->endpoint), LOG_TEXT("credentials", line->credentials));
}

/* Asked by requests on helper threads for which nobody waits then; those of loads have a cancel of their own. Set by the loop
 * and not read off the clock: calls must know that they were cut off before what they wait for is cancelled. */
static bool is_grace_over(void *data)
{
    const struct daemon *daemon = data;
    return atomic_load(&daemon->is_grace_over);
}

static int open_stores(struct daemon *daemon, struct error *error)
{
    const struct config *config = daemon->api.services.config;
    daemon->ends_requests = (struct cancel){is_grace_over, daemon};
    environment_is_of_daemon();
    if (stores_create(config, &daemon->ends_requests, &daemon->api.services.stores, error) != 0)
        return -1;
    if (config->activations.roots.n_items)
        stores_allow_writing(daemon->api.services.stores);
    stores_describe(daemon->api.services.stores, log_store, NULL);
    return 0;
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

static int open_uploads(struct daemon *daemon, struct error *error)
{
    const struct config *config = daemon->api.services.config;
    const struct upload_options options = {.state_dir = config->server.state_dir,
                                           .stores = daemon->api.services.stores,
                                           .quota = daemon->api.services.quota,
                                           .prefixes = config->uploads.prefixes.items,
                                           .n_prefixes = config->uploads.prefixes.n_items};
    return upload_queue_create(&options, &daemon->api.uploads, error);
}

static int build_services(struct daemon *daemon, struct error *error)
{
    struct load_services *services = &daemon->api.services;
    const struct config *config = services->config;
    if (state_dir_make(config->server.state_dir, error) != 0 ||
        header_cache_create(config->server.state_dir, daemon->budgets.header_cache_bytes, &services->headers, error) != 0)
        return -1;
    if (open_stores(daemon, error) != 0)
        return -1;
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
    if (open_uploads(daemon, error) != 0)
        return -1;
    daemon->api.activations = activations_create(services->loop, config->server.state_dir, daemon->api.uploads);
    configure_activations(daemon);
    daemon->api.prewarms = prewarms_create(&daemon->api);
    daemon->api.open_calls = &daemon->open_calls;
    return 0;
}

static void log_ready(const struct daemon *daemon)
{
    const struct config *config = daemon->api.services.config;
    char budget[TEXT_SIZE_CHARS];
    log_info("ready", LOG_TEXT("version", version_text()), LOG_U64("pid", (uint64_t)getpid()),
             LOG_TEXT("socket", config->server.socket_path), LOG_TEXT("handoff_socket", config->server.handoff_socket_path),
             LOG_TEXT("host_budget", text_people_bytes(daemon->budgets.host_bytes, budget)),
             LOG_MS("start_ms", clock_now_ns() - daemon->api.started_ns));
}

/* Descriptors that come all the same are closed on threads of their own, however long that takes. */
static void warn_of_foreign_descriptors(void)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && !foreign_fd_refuse(probe))
        log_warn("descriptors_not_refused",
                 LOG_TEXT("message",
                          "this kernel cannot refuse descriptors that clients send (SO_PASSRIGHTS, Linux 6.16): a "
                          "client can make threads of this daemon wait"));
    if (probe >= 0)
        close(probe);
}

static void warn_of_state(const struct config_origin *origin, const struct config *config)
{
    if (config_origin_moves_state(origin, config))
        log_warn("state_dir_moved", LOG_TEXT("from", origin->lost_state), LOG_TEXT("to", config->server.state_dir),
                 LOG_TEXT("message", "the usual server.state_dir cannot be written; the other ends with this session"));
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
    *daemon = (struct daemon){.config_origin = origin, .api.started_ns = clock_now_ns()};
    keep_config(daemon, config);
    signal(SIGPIPE, SIG_IGN);
    mask_signals(SIG_BLOCK); /* of all threads that are made from here on */
    process_allow_descriptors();
    prctl(PR_SET_DUMPABLE, 0); /* nobody but root may write to our memory through /proc/PID/mem */
    if (log_open(config->logging.file, (enum log_level)config->logging.level, (enum log_format)config->logging.format,
                 error) != 0)
        return -1;
    log_start();
    warn_of_foreign_descriptors();
    warn_of_state(origin, config);
    root_check_start(config);
    daemon->api.services.loop = loop_create();
    daemon->api.services.quota = quota_create();
    share_out(daemon);
    if (open_sockets(daemon, passed, error) != 0 || build_services(daemon, error) != 0 ||
        open_handoff(daemon, passed, error) != 0)
        return -1;
    loop_on_signal(daemon->api.services.loop, SIGTERM, on_terminate, daemon);
    loop_on_signal(daemon->api.services.loop, SIGINT, on_terminate, daemon);
    loop_on_signal(daemon->api.services.loop, SIGHUP, on_reload, daemon);
    upload_queue_start(daemon->api.uploads);
    activations_recover(daemon->api.activations);
    rpc_server_ready(daemon->api.rpc);
    supervisor_notify("READY=1");
    log_ready(daemon);
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
    reload->log_fd = reload->fresh ? log_open_file(reload->fresh->logging.file, &reload->error) : -1;
}

static void apply_config(struct daemon *daemon, struct config *fresh)
{
    config_compare(daemon->api.services.config, fresh, report_change, NULL);
    config_keep_fixed(daemon->api.services.config, fresh); /* all of them live until the end */
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
        log_info("config_reloaded", LOG_TEXT("file", config_name(fresh)));
    else
        log_info("config_file_missing", LOG_TEXT("file", daemon->config_origin->path),
                 LOG_TEXT("effect", "every default counts"));
}

static void on_config_read(struct loop_work *work)
{
    struct reload *reload = (struct reload *)work;
    struct daemon *daemon = reload->daemon;
    struct config *fresh = reload->fresh;
    bool has_stopped = !daemon->api.handoff, again = reload->again && !has_stopped;
    if (reload->log_fd >= 0 && !has_stopped) {
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
}

static void on_reload(void *data, int signal_number)
{
    struct daemon *daemon = data;
    (void)signal_number;
    if (daemon->reload) {
        daemon->reload->again = true;
        return;
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

/* Before their requests are cut off: then every load has somebody to tell. */
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

/* Their requests were answered. They end before the objects that they use, except those that hang. */
static bool have_helpers_work(const struct daemon *daemon, uint64_t now)
{
    uint64_t lane;
    return loop_list_lanes(daemon->api.services.loop, &lane, 1) > 0 &&
           now < daemon->quiet_ns + (uint64_t)LAST_READS_MS * NS_PER_MS;
}

/* Once, a while after the last answer. */
static void cut_mounts(struct daemon *daemon, uint64_t since_ns, uint64_t now)
{
    if (daemon->has_cut_mounts || now < since_ns + (uint64_t)CUT_MOUNTS_MS * NS_PER_MS)
        return;
    daemon->has_cut_mounts = true;
    stuck_mounts_cut(daemon->api.services.loop, daemon->api.services.engine, 0);
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
    cut_mounts(daemon, loads_left ? daemon->drain_deadline_ns : daemon->quiet_ns, now);
    if (!loads_left && !tokens_left && !stores_left && !have_helpers_work(daemon, now))
        loop_stop(daemon->api.services.loop);
}

static void on_drained(void *context)
{
    struct daemon *daemon = context;
    atomic_store(&daemon->is_grace_over, true); /* nobody is left who waits */
    daemon->quiet_ns = clock_now_ns();
    daemon->drain_timer = loop_timer_create(daemon->api.services.loop, stop_when_quiet, daemon);
    loop_timer_start(daemon->drain_timer, 0, DRAIN_POLL_MS);
}

static void on_terminate(void *data, int signal_number)
{
    struct daemon *daemon = data;
    uint64_t grace_ms = daemon->api.services.config->server.shutdown_grace_ms;
    if (daemon->api.is_draining)
        return;
    daemon->api.is_draining = true;
    daemon->drain_deadline_ns = clock_now_ns() + grace_ms * NS_PER_MS;
    watchdog_exit_at(daemon->watchdog, daemon->drain_deadline_ns + (uint64_t)(LAST_READS_MS + TEAR_DOWN_MS) * NS_PER_MS);
    supervisor_notify("STOPPING=1");
    prewarms_stop(daemon->api.prewarms);
    log_info("draining", LOG_TEXT("signal", strsignal(signal_number)), LOG_U64("grace_ms", grace_ms));
    activations_drain(daemon->api.activations);
    rpc_server_drain(daemon->api.rpc, grace_ms, on_drained);
}

/* Workers hang in reads and hold on to memory and files, perhaps for as long as this process is listed: what others wait for
 * is given up by hand. */
static _Noreturn void abandon(struct daemon *daemon)
{
    struct load_targets *targets = daemon->api.services.targets;
    handoff_destroy(daemon->api.handoff);
    rpc_server_destroy(daemon->api.rpc);
    load_targets_drop_replicas(targets);
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
    if (!load_table_idle(daemon->api.loads) || !prewarms_are_idle(daemon->api.prewarms))
        abandon(daemon);
    daemon->has_run = true;
}

void daemon_stop(struct daemon *daemon)
{
    struct load_services *services = &daemon->api.services;
    handoff_destroy(daemon->api.handoff);
    daemon->api.handoff = NULL;
    loop_timer_destroy(daemon->drain_timer);
    if (daemon->api.rpc)
        rpc_server_destroy(daemon->api.rpc);
    folders_stop(daemon->api.folders);
    if (daemon->api.uploads)
        upload_queue_stop(daemon->api.uploads);
    if (daemon->api.activations)
        activations_stop(daemon->api.activations);
    prewarms_destroy(daemon->api.prewarms);
    if (services->quota)
        quota_set_reclaim(services->quota, QUOTA_METADATA, NULL, NULL);
    load_table_destroy(daemon->api.loads);
    load_services_close(services);
    if (services->headers)
        header_cache_destroy(services->headers);
    stores_destroy(services->stores);
    if (daemon->has_run) /* the last word, also after those of the replicas */
        log_info("stopped", LOG_MS("uptime_ms", clock_now_ns() - daemon->api.started_ns));
    loop_destroy(services->loop);
    folders_destroy(daemon->api.folders);
    activations_destroy(daemon->api.activations);
    upload_queue_destroy(daemon->api.uploads);
    watchdog_destroy(daemon->watchdog);
    quota_destroy(services->quota);
    while (daemon->configs) {
        struct config_version *next = daemon->configs->next;
        config_destroy(daemon->configs->config);
        free(daemon->configs);
        daemon->configs = next;
    }
    stuck_mounts_cut(NULL, NULL, CUT_MOUNTS_MS); /* files are closed by now, and that may hang, too */
}
