/* See hosts.h. The plugin's thread posts what etcd tells; the loop keeps the table; helpers ask other hosts who they are. */
#include "hosts/hosts.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/arena.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/memory.h"
#include "base/plugin_file.h"
#include "base/state.h"
#include "base/text.h"
#include "base/version.h"
#include "hosts/block_cache.h"
#include "hosts/block_server.h"
#include "hosts/data_port.h"
#include "hosts/host_entry.h"
#include "hosts/host_settings.h"
#include "hosts/membership.h"
#include "hosts/peers.h"
#include "hosts/proof.h"
#include "observe/log.h"
#include "source/http/http.h"

enum {
    LEASE_S = 10,
    TICK_MS = 1000,
    ASK_MS = 5000,
    FIRST_RETRY_MS = 1000,
    MAX_RETRY_MS = 15000,
    FORGET_GONE_S = 600,
    KEEP_BLOCKS_S = 120,  /* that nothing asks for any more */
    PEER_CONNECTIONS = 8, /* to each host, one at first; an owner has a thread for each */
    PEER_CONNECT_MS = 3000,
    PEER_FIRST_BYTE_MS = 8000, /* an owner that reads says so after a second: this one is stopped or cut off */
    PEER_STALL_MS = 4000,
    AWAY_LOG_MS = 30000,
    HOSTS_MAX = 4096, /* entries beyond them are left out */
    ANSWER_MAX_BYTES = 4096,
    /* Lanes of helpers (base/loop.h), by numbers of no mount. Hosts that are silent keep a helper for seconds each: they hold up
     * neither other work of the daemon's nor the first question to another host. */
    NEW_HOSTS_LANE = 0x686f7374,     /* "host" */
    REFUSED_HOSTS_LANE = 0x72656675, /* "refu" */
};

static const struct state_row states[] = {
    [HOST_NEW] = {"new", STATE_BIT(HOST_ALIVE) | STATE_BIT(HOST_REFUSED)},
    [HOST_ALIVE] = {"alive", STATE_BIT(HOST_REFUSED) | STATE_BIT(HOST_GONE)},
    [HOST_REFUSED] = {"refused", STATE_BIT(HOST_ALIVE)},
    [HOST_GONE] = {"gone", 0},
};
static const struct state_machine host_machine = {"host", states, sizeof states / sizeof states[0]};

struct host {
    STAILQ_ENTRY(host) next;
    char *key; /* below the prefix: hosts/NAME/INCARNATION */
    struct host_entry entry;
    enum host_state state;
    char problem[ERROR_MESSAGE_CHARS]; /* why it is refused */
    enum error_kind problem_kind;      /* an operator wants one line for one problem, whatever its numbers are */
    bool is_self, is_in_snapshot;
    bool is_doubted;           /* it was alive, and gave no answer to a load */
    struct question *question; /* that is under way */
    uint64_t ask_at_ns, retry_ms, gone_ns;
    struct peer_traffic traffic; /* without what peers.c counts while it is alive */
};

struct event { /* of the plugin's thread, on its way to the loop */
    struct loop_task task;
    struct hosts *hosts;
    enum { EVENT_STATE, EVENT_SNAPSHOT_BEGIN, EVENT_SNAPSHOT_END, EVENT_CHANGE } kind;
    bool is_connected;
    char *key, *text; /* text: value or reason; NULL = deleted */
};

struct hosts {
    struct loop *loop;
    const struct config_hosts *config; /* lives longer */
    struct host_settings settings;
    struct data_port_identity identity;
    char incarnation[PROOF_NONCE_CHARS];
    char *own_key;
    struct data_port *port;
    struct http_engine *http;
    struct block_cache *cache;
    struct block_server *server;
    struct peers *peers;
    const struct membership_plugin *plugin;
    struct membership *membership;
    struct loop_timer *timer;
    STAILQ_HEAD(, host) list;
    size_t n;
    uint64_t next_away_ns; /* when another reason of etcd's absence is logged again */
    bool is_connected, is_announced;
    uint64_t away_ns; /* since when it is not */
    bool is_ending;   /* atomic: the loop sets it, helpers ask */
    char etcd_problem[ERROR_MESSAGE_CHARS];
    struct hosts_watcher watcher; /* prefix NULL = none */
};

static void set_host_state(struct host *host, enum host_state state)
{
    state_check(&host_machine, host->state, state);
    host->state = state;
}

/* --- asking a host who it is -------------------------------------------------------------------------------------------- */

struct question { /* on a helper */
    struct loop_work work;
    struct hosts *hosts;
    struct host *host; /* NULL: it went meanwhile */
    char *address, *name, *incarnation;
    bool is_proven;
    char problem[ERROR_MESSAGE_CHARS];
    enum error_kind problem_kind;
};

/* What the answer has to be signed with, and whether it is. */
static int check_answer(const struct question *question, const char *request_proof, const struct http_reply *reply,
                        struct error *error)
{
    const struct hosts *hosts = question->hosts;
    const char *time = http_head_find(&reply->head, PROOF_TIME_HEADER);
    uint64_t now_ms = proof_now_ms(), its_ms = time ? strtoull(time, NULL, 10) : now_ms;
    uint64_t apart_ms = its_ms > now_ms ? its_ms - now_ms : now_ms - its_ms;
    if (reply->head.status == 401 && apart_ms > PROOF_WINDOW_MS)
        return fail(error, ERROR_PERMISSION_DENIED, REASON(PEER_CLOCK),
                    "its clock is %llu s away from this host's: requests are valid for %d s; synchronize the clocks",
                    (unsigned long long)apart_ms / 1000, PROOF_WINDOW_MS / 1000);
    if (reply->head.status == 401)
        return fail(error, ERROR_PERMISSION_DENIED, REASON(PEER_REFUSED),
                    "it refuses this host's proof: its cluster key is another one, or another host has its address now");
    if (reply->head.status != 200)
        return fail(error, ERROR_UNAVAILABLE, REASON(PEER_STATUS), "it answers with status %d", reply->head.status);
    struct body_sum sum;
    char body_sum[BODY_SUM_CHARS];
    body_sum_begin(&sum, &hosts->settings, request_proof);
    body_sum_add(&sum, reply->body, reply->body_bytes);
    body_sum_finish(&sum, body_sum);
    const struct proof_answer answer = {request_proof, reply->head.status, "", "", body_sum};
    if (!proof_holds(&hosts->settings, &answer, http_head_find(&reply->head, PROOF_HEADER),
                     http_head_find(&reply->head, BODY_SUM_HEADER)))
        return fail(error, ERROR_PERMISSION_DENIED, REASON(PEER_UNPROVEN),
                    "its answer is not signed with this cluster's key");
    struct json json;
    struct arena arena;
    char *name = NULL, *incarnation = NULL;
    const struct json_field fields[] = {{"name", &name, NULL}, {"incarnation", &incarnation, NULL}};
    arena_init(&arena, 0);
    json_init(&json, reply->body, reply->body_bytes, &arena);
    bool is_it = json_take_fields(&json, fields, 2) && json_end(&json) && name && incarnation &&
                 strcmp(name, question->name) == 0 && strcmp(incarnation, question->incarnation) == 0;
    free(name);
    free(incarnation);
    arena_fini(&arena);
    return is_it ? 0
                 : fail(error, ERROR_PERMISSION_DENIED, REASON(PEER_IS_ANOTHER), "another host answers at %s",
                        question->address);
}

/* After any change of the table: loads ask those who are alive. */
static void tell_peers(const struct hosts *hosts)
{
    struct peer_host *alive = memory_alloc_array(hosts->n + 1, sizeof *alive);
    const struct host *host;
    size_t n = 0;
    STAILQ_FOREACH (host, &hosts->list, next)
        if (host->state == HOST_ALIVE && !host->is_self && strcmp(host->entry.domain, hosts->settings.domain) == 0)
            alive[n++] = (struct peer_host){host->entry.name, host->entry.incarnation, host->entry.address};
    peers_set(hosts->peers, alive, n);
    free(alive);
}

static bool is_ending(void *data)
{
    return __atomic_load_n(&((struct hosts *)data)->is_ending, __ATOMIC_RELAXED);
}

static void ask_host(struct loop_work *work)
{
    struct question *question = (struct question *)work;
    struct hosts *hosts = question->hosts;
    const struct cancel cancel = {is_ending, hosts};
    char nonce[PROOF_NONCE_CHARS], proof[PROOF_CHARS] = "", time[24];
    struct error error = {0};
    const struct proof_request request = {.method = "GET",
                                          .path = "/v1/host",
                                          .range = "",
                                          .to = question->incarnation,
                                          .time_ms = proof_now_ms(),
                                          .nonce = nonce};
    proof_make_nonce(nonce);
    proof_of_request(hosts->settings.key, &request, proof);
    snprintf(time, sizeof time, "%llu", (unsigned long long)request.time_ms);
    const struct http_header headers[] = {{PROOF_HEADER, proof}, {PROOF_NONCE_HEADER, nonce}, {PROOF_TIME_HEADER, time}};
    char *url = memory_print("%s://%s/v1/host", *hosts->settings.certificate ? "https" : "http", question->address);
    const struct http_call call = {.url = url,
                                   .headers = headers,
                                   .n_headers = hosts->settings.has_key ? 3 : 0,
                                   .max_reply_bytes = ANSWER_MAX_BYTES,
                                   .accept_any_status = true,
                                   .timeout_ms = ASK_MS,
                                   .cancel = &cancel,
                                   .max_tries = 1};
    struct http_reply reply = {0};
    question->is_proven =
        http_fetch(hosts->http, &call, &reply, &error) == 0 && check_answer(question, proof, &reply, &error) == 0;
    http_reply_clear(&reply);
    free(url);
    if (question->is_proven)
        return;
    proof_has_ended(hosts->settings.certificate, "hosts.tls.cert_file", &error);
    memcpy(question->problem, error.message, sizeof question->problem);
    question->problem_kind = error.kind;
}

static void forget_question(struct host *host)
{
    if (host->question)
        host->question->host = NULL;
    host->question = NULL;
    host->is_doubted = false;
}

static void remove_host(struct hosts *hosts, struct host *host)
{
    forget_question(host);
    STAILQ_REMOVE(&hosts->list, host, host, next);
    hosts->n--;
    free(host->key);
    host_entry_fini(&host->entry);
    free(host);
}

/* Once a host has proven itself, other entries with its address, and earlier ones with its name, belong to daemons that ended; only
 * their leases go on. A host that has proven nothing replaces none. */
static void remove_replaced(struct hosts *hosts, const struct host *proven)
{
    struct host *host, *following;
    for (host = STAILQ_FIRST(&hosts->list); host && (following = STAILQ_NEXT(host, next), true); host = following) {
        bool is_name = strcmp(host->entry.name, proven->entry.name) == 0;
        bool is_earlier = host->state == HOST_GONE || host->entry.started_ms <= proven->entry.started_ms;
        if (host != proven && !host->is_self &&
            ((is_name && is_earlier) || strcmp(host->entry.address, proven->entry.address) == 0))
            remove_host(hosts, host);
    }
}

/* peers.c knows of hosts that are alive; the table keeps what was before. */
static struct peer_traffic traffic_of(const struct hosts *hosts, const struct host *host)
{
    struct peer_traffic sum = host->traffic;
    if (host->state == HOST_ALIVE) {
        const struct peer_traffic now = peers_traffic(hosts->peers, host->entry.incarnation);
        sum.in_bytes += now.in_bytes;
        sum.out_bytes += now.out_bytes;
        sum.late += now.late;
        sum.wrong += now.wrong;
    }
    return sum;
}

/* What makes a host that has proven itself one that is refused: a clock that was set, or a certificate that ended. A host without any
 * answer stays alive as long as etcd has its entry: loads pass it over meanwhile. */
static bool is_refusal_of_alive(enum error_kind kind)
{
    return kind == ERROR_KIND_PEER_CLOCK || kind == ERROR_KIND_CERTIFICATE_EXPIRED || kind == ERROR_KIND_TLS_FAILED;
}

static void note_answer(struct host *host, const struct question *question)
{
    struct hosts *hosts = question->hosts;
    enum host_state before = host->state, state = question->is_proven ? HOST_ALIVE : HOST_REFUSED;
    host->question = NULL;
    host->is_doubted = false;
    host->ask_at_ns = clock_now_ns() + host->retry_ms * NS_PER_MS;
    host->retry_ms = question->is_proven                 ? FIRST_RETRY_MS
                     : 2 * host->retry_ms < MAX_RETRY_MS ? 2 * host->retry_ms
                                                         : MAX_RETRY_MS;
    if (before == HOST_ALIVE && (question->is_proven || !is_refusal_of_alive(question->problem_kind)))
        return;
    bool is_news = before != state || host->problem_kind != question->problem_kind;
    memcpy(host->problem, question->problem, sizeof host->problem);
    host->problem_kind = question->problem_kind;
    if (before != state) {
        host->traffic = traffic_of(hosts, host);
        set_host_state(host, state);
    }
    if (is_news && state == HOST_ALIVE) {
        remove_replaced(hosts, host);
        log_at_of(LOG_INFO, "peer_joined", 0, LOG_TEXT("host", host->entry.name), LOG_TEXT("address", host->entry.address),
                  LOG_TEXT("domain", host->entry.domain), LOG_TEXT("version", host->entry.version));
    } else if (is_news) {
        log_at_of(LOG_WARN, "peer_refused", 0, LOG_TEXT("host", host->entry.name), LOG_TEXT("address", host->entry.address),
                  LOG_TEXT("reason", host->problem));
    }
    if (before != state) {
        tell_peers(hosts);
        if (hosts->watcher.prefix)
            hosts->watcher.hosts_changed(hosts->watcher.data);
    }
}

static void on_asked(struct loop_work *work)
{
    struct question *question = (struct question *)work;
    if (question->host && !is_ending(question->hosts)) /* else it was cancelled */
        note_answer(question->host, question);
    else if (question->host)
        question->host->question = NULL;
    free(question->address);
    free(question->name);
    free(question->incarnation);
    free(question);
}

static void submit_question(struct hosts *hosts, struct host *host)
{
    struct question *question = memory_alloc(sizeof *question);
    uint64_t lane = loop_lane_of(host->state == HOST_NEW ? NEW_HOSTS_LANE : REFUSED_HOSTS_LANE);
    *question = (struct question){.work = {.do_work = ask_host, .done = on_asked, .pool = LOOP_REMOTE, .lane = lane},
                                  .hosts = hosts,
                                  .host = host,
                                  .address = memory_copy_text(host->entry.address),
                                  .name = memory_copy_text(host->entry.name),
                                  .incarnation = memory_copy_text(host->entry.incarnation)};
    host->question = question;
    loop_continue(hosts->loop, &question->work);
}

/* --- the table ------------------------------------------------------------------------------------------------------------ */

static void host_has_gone(struct hosts *hosts, struct host *host)
{
    if (host->is_self || host->state == HOST_GONE)
        return;
    if (host->state != HOST_ALIVE) {
        remove_host(hosts, host);
        return;
    }
    log_at_of(LOG_INFO, "peer_left", 0, LOG_TEXT("host", host->entry.name), LOG_TEXT("address", host->entry.address));
    forget_question(host);
    host->traffic = traffic_of(hosts, host);
    set_host_state(host, HOST_GONE);
    host->gone_ns = clock_now_ns();
    tell_peers(hosts);
}

/* Whether an entry is of the daemon before this one: it has ended, and its lease goes on. */
static bool is_earlier_self(const struct hosts *hosts, const struct host_entry *entry)
{
    const struct host *host;
    STAILQ_FOREACH (host, &hosts->list, next)
        if (host->is_self)
            return strcmp(host->entry.name, entry->name) == 0 && strcmp(host->entry.address, entry->address) == 0 &&
                   entry->started_ms < host->entry.started_ms;
    return false;
}

static void put_host(struct hosts *hosts, const char *key, const char *value)
{
    struct host *host, *fresh;
    STAILQ_FOREACH (host, &hosts->list, next)
        if (strcmp(host->key, key) == 0 && host->state != HOST_GONE) {
            host->is_in_snapshot = true;
            return;
        }
    fresh = memory_alloc(sizeof *fresh);
    bool is_entry = hosts->n < HOSTS_MAX && host_entry_parse(key, value, &fresh->entry);
    if (!is_entry || is_earlier_self(hosts, &fresh->entry)) {
        host_entry_fini(&fresh->entry);
        free(fresh);
        return;
    }
    fresh->key = memory_copy_text(key);
    fresh->is_self = strcmp(key, hosts->own_key) == 0;
    fresh->is_in_snapshot = true;
    if (fresh->is_self)
        set_host_state(fresh, HOST_ALIVE);
    fresh->retry_ms = FIRST_RETRY_MS;
    STAILQ_INSERT_TAIL(&hosts->list, fresh, next);
    hosts->n++;
    if (!fresh->is_self && !hosts->is_ending)
        submit_question(hosts, fresh);
}

/* The address of this host that packets to ADDRESS:PORT leave with. None is sent. */
static bool find_source(const char *to, bool allow_v6, struct address *found)
{
    struct tcp_address way;
    if (!tcp_address_parse(to, &way))
        return false;
    int fd = socket(way.socket.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_found = fd >= 0 && connect(fd, (struct sockaddr *)&way.socket, way.bytes) == 0;
    way.bytes = sizeof way.socket;
    is_found = is_found && getsockname(fd, (struct sockaddr *)&way.socket, &way.bytes) == 0 &&
               address_of_socket((struct sockaddr *)&way.socket, found) && address_kind(found) == ADDRESS_ANY;
    if (fd >= 0)
        close(fd);
    return is_found && (allow_v6 || address_is_mapped(found));
}

/* Finds the address by which other hosts reach the data port. A port that listens on one address has that one. A port that listens
 * on all has the address from which packets leave to etcd. If etcd has a name or is on the loopback, packets of the default route
 * decide. False, and the loopback: there is no network yet. getifaddrs() needs netlink, which the unit forbids. */
static bool find_address(const struct hosts *hosts, struct address *found)
{
    static const char *const outside[] = {"192.0.2.1:9", "[2001:db8::1]:9"}; /* of no host: RFC 5737, RFC 3849 */
    const struct sockaddr *own = (const struct sockaddr *)&hosts->settings.listen.socket;
    if (address_of_socket(own, found) && address_kind(found) != ADDRESS_RESERVED)
        return true;
    bool allow_v6 = own->sa_family == AF_INET6;
    char to[TCP_ADDRESS_CHARS];
    for (size_t i = 0; i < hosts->config->etcd.endpoints.n_items; i++) {
        const char *member = strstr(hosts->config->etcd.endpoints.items[i], "//") + 2;
        snprintf(to, sizeof to, "%.*s", (int)strcspn(member, "/"), member);
        if (find_source(to, allow_v6, found))
            return true;
    }
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        if (find_source(outside[i], allow_v6, found))
            return true;
    address_parse("127.0.0.1", strlen("127.0.0.1"), found);
    return false;
}

/* Puts this host into the table at once. Puts it into etcd once it has an address, at the latest when etcd answers: a daemon may
 * start before its network. */
static void announce(struct hosts *hosts)
{
    char shown[ADDRESS_CHARS], text[TCP_ADDRESS_CHARS], version[HOST_NAME_CHARS];
    struct address address;
    struct host *host, *following;
    if (hosts->is_announced || !hosts->membership || hosts->is_ending)
        return;
    hosts->is_announced = find_address(hosts, &address) || hosts->is_connected;
    address_print(&address, shown);
    bool is_v6 = strchr(shown, ':') != NULL;
    snprintf(text, sizeof text, "%s%s%s:%u", is_v6 ? "[" : "", shown, is_v6 ? "]" : "", data_port_number(hosts->port));
    snprintf(version, sizeof version, "%s", version_text());
    const struct host_entry own_entry = {.name = hosts->settings.name,
                                         .domain = hosts->settings.domain,
                                         .address = text,
                                         .incarnation = hosts->incarnation,
                                         .version = version,
                                         .started_ms = proof_now_ms()};
    char *entry = host_entry_write(&own_entry);
    for (host = STAILQ_FIRST(&hosts->list); host && (following = STAILQ_NEXT(host, next), true); host = following)
        if (host->is_self)
            remove_host(hosts, host);
    put_host(hosts, hosts->own_key, entry);
    if (hosts->is_announced)
        hosts->plugin->set(hosts->membership, hosts->own_key, entry);
    free(entry);
}

/* After the table of hosts, so that the watcher finds it up to date. */
static void tell_watcher(const struct event *event)
{
    const struct hosts_watcher *watcher = &event->hosts->watcher;
    if (!watcher->prefix)
        return;
    if (event->kind == EVENT_SNAPSHOT_BEGIN || event->kind == EVENT_SNAPSHOT_END)
        watcher->snapshot(watcher->data, event->kind == EVENT_SNAPSHOT_BEGIN);
    else if (event->kind == EVENT_CHANGE && strncmp(event->key, watcher->prefix, strlen(watcher->prefix)) == 0)
        watcher->change(watcher->data, event->key, event->text);
    else
        watcher->hosts_changed(watcher->data);
}

static void on_event(struct loop_task *task)
{
    struct event *event = (struct event *)task;
    struct hosts *hosts = event->hosts;
    struct host *host, *following;
    switch (event->kind) {
    case EVENT_STATE:
        if (event->is_connected != hosts->is_connected && event->is_connected)
            log_at_of(LOG_INFO, "etcd_connected", 0, LOG_TEXT("key", hosts->own_key));
        else if (!event->is_connected && (hosts->is_connected || clock_now_ns() >= hosts->next_away_ns) &&
                 strcmp(event->text, hosts->etcd_problem) != 0) {
            hosts->next_away_ns =
                clock_now_ns() + (uint64_t)AWAY_LOG_MS * NS_PER_MS; /* members fail in turns, each with its own words */
            log_at_of(LOG_WARN, "etcd_away", 0, LOG_TEXT("reason", event->text),
                      LOG_TEXT("effect", "loads read their sources"));
        }
        if (hosts->is_connected && !event->is_connected)
            hosts->away_ns = clock_now_ns();
        hosts->is_connected = event->is_connected;
        snprintf(hosts->etcd_problem, sizeof hosts->etcd_problem, "%s", event->text);
        if (hosts->is_connected)
            announce(hosts);
        break;
    case EVENT_SNAPSHOT_BEGIN:
        STAILQ_FOREACH (host, &hosts->list, next)
            host->is_in_snapshot = false;
        break;
    case EVENT_SNAPSHOT_END:
        for (host = STAILQ_FIRST(&hosts->list); host && (following = STAILQ_NEXT(host, next), true); host = following)
            if (!host->is_in_snapshot)
                host_has_gone(hosts, host);
        break;
    case EVENT_CHANGE:
        if (event->text && strncmp(event->key, "hosts/", 6) == 0)
            put_host(hosts, event->key, event->text);
        for (host = STAILQ_FIRST(&hosts->list); host && (following = STAILQ_NEXT(host, next), true); host = following)
            if (!event->text && strcmp(host->key, event->key) == 0)
                host_has_gone(hosts, host);
    }
    tell_watcher(event);
    free(event->key);
    free(event->text);
    free(event);
}

static void post_event(struct hosts *hosts, int kind, bool is_connected, const char *key, const char *text)
{
    struct event *event = memory_alloc(sizeof *event);
    *event = (struct event){.task.run = on_event,
                            .hosts = hosts,
                            .kind = kind,
                            .is_connected = is_connected,
                            .key = key ? memory_copy_text(key) : NULL,
                            .text = text ? memory_copy_text(text) : NULL};
    loop_post(hosts->loop, &event->task);
}

static void tell_state(void *data, bool is_connected, const char *reason)
{
    struct error error;
    if (!is_connected && proof_has_ended(((struct hosts *)data)->settings.etcd_certificate, "hosts.etcd.cert_file", &error))
        reason = error.message;
    post_event(data, EVENT_STATE, is_connected, NULL, reason);
}

static void tell_snapshot_begin(void *data)
{
    post_event(data, EVENT_SNAPSHOT_BEGIN, false, NULL, NULL);
}

static void tell_snapshot_end(void *data)
{
    post_event(data, EVENT_SNAPSHOT_END, false, NULL, NULL);
}

static void tell_change(void *data, const char *key, const char *value)
{
    post_event(data, EVENT_CHANGE, false, key, value);
}

/* Loads know only that an answer did not come or did not hold; the host's data port tells why. */
static void doubt_unanswered(const struct hosts *hosts)
{
    char incarnation[PROOF_NONCE_CHARS];
    struct host *host;
    while (peers_take_unanswered(hosts->peers, incarnation))
        STAILQ_FOREACH (host, &hosts->list, next)
            if (host->state == HOST_ALIVE && strcmp(host->entry.incarnation, incarnation) == 0)
                host->is_doubted = true;
}

static void on_tick(void *data)
{
    struct hosts *hosts = data;
    struct host *host, *following;
    uint64_t now_ns = clock_now_ns();
    data_port_reap(hosts->port);
    block_server_trim(hosts->server);
    block_cache_trim(hosts->cache, (uint64_t)KEEP_BLOCKS_S * 1000 * NS_PER_MS);
    doubt_unanswered(hosts);
    for (host = STAILQ_FIRST(&hosts->list); host && (following = STAILQ_NEXT(host, next), true); host = following) {
        if (host->state == HOST_GONE && now_ns - host->gone_ns > (uint64_t)FORGET_GONE_S * 1000 * NS_PER_MS)
            remove_host(hosts, host);
        else if ((host->state == HOST_REFUSED || host->is_doubted) && !host->question && now_ns >= host->ask_at_ns &&
                 !hosts->is_ending)
            submit_question(hosts, host);
    }
}

/* --- joining and leaving ---------------------------------------------------------------------------------------------------- */

int hosts_check_plugin(const struct config *config, struct error *error)
{
    char path[PATH_MAX];
    if (plugin_file_find(config->devices.plugin_folder, MEMBERSHIP_FILE, path, error) == 0)
        return 0;
    return error_prefix(error, "hosts.etcd.endpoints needs the package tensorcast-etcd");
}

static int open_plugin(struct hosts *hosts, const struct config *config, struct error *error)
{
    const struct membership_plugin own = {MEMBERSHIP_HEADER};
    if (hosts_check_plugin(config, error) != 0)
        return -1;
    hosts->plugin = plugin_file_open(config->devices.plugin_folder, MEMBERSHIP_FILE, MEMBERSHIP_SYMBOL, error);
    if (!hosts->plugin)
        return -1;
    if (hosts->plugin->abi != own.abi || hosts->plugin->error_bytes != own.error_bytes ||
        hosts->plugin->settings_bytes != own.settings_bytes)
        return fail(error, ERROR_INTERNAL, "PLUGIN_ABI", MEMBERSHIP_FILE " was built from other sources than this daemon");
    return 0;
}

static int join(struct hosts *hosts, struct error *error)
{
    static const struct membership_events events = {tell_state, tell_snapshot_begin, tell_snapshot_end, tell_change};
    const struct config_hosts *own = hosts->config;
    size_t length = strlen(own->etcd.prefix);
    char *prefix = memory_print("%s%s", own->etcd.prefix, own->etcd.prefix[length - 1] == '/' ? "" : "/");
    const struct membership_settings settings = {.endpoints = own->etcd.endpoints.items,
                                                 .n_endpoints = own->etcd.endpoints.n_items,
                                                 .prefix = prefix,
                                                 .username = own->etcd.username,
                                                 .password = hosts->settings.password,
                                                 .ca = hosts->settings.etcd_ca,
                                                 .certificate = hosts->settings.etcd_certificate,
                                                 .key = hosts->settings.etcd_private_key,
                                                 .lease_s = LEASE_S,
                                                 .events = &events,
                                                 .data = hosts};
    hosts->membership = hosts->plugin->open(&settings, error);
    free(prefix);
    if (!hosts->membership)
        return -1;
    announce(hosts);
    return 0;
}

static void count_out(void *data, const char *incarnation, uint64_t bytes)
{
    peers_count_out(((struct hosts *)data)->peers, incarnation, bytes);
}

int hosts_create(struct loop *loop, const struct hosts_options *given, struct hosts **made, struct error *error)
{
    const struct config *config = given->config;
    *made = NULL;
    if (!hosts_are_configured(config))
        return 0;
    struct hosts *hosts = memory_alloc(sizeof *hosts);
    hosts->loop = loop;
    hosts->config = &config->hosts;
    STAILQ_INIT(&hosts->list);
    proof_make_nonce(hosts->incarnation);
    snprintf(hosts->etcd_problem, sizeof hosts->etcd_problem, "it has not been reached yet");
    *made = hosts;
    if (host_settings_read(&config->hosts, &hosts->settings, error) || open_plugin(hosts, config, error))
        return -1;
    hosts->own_key = memory_print("hosts/%s/%s", hosts->settings.name, hosts->incarnation);
    hosts->identity = (struct data_port_identity){hosts->settings.name, hosts->incarnation, version_text()};
    const struct http_engine_options options = {.connect_timeout_ms = PEER_CONNECT_MS,
                                                .first_byte_timeout_ms = PEER_FIRST_BYTE_MS,
                                                .stall_timeout_ms = PEER_STALL_MS,
                                                .max_connections = 256,
                                                .max_host_connections = PEER_CONNECTIONS,
                                                .new_host_connections = 1,
                                                .max_tries = 1, /* another host, or the source, is next */
                                                .hedge_percent = 101,
                                                .turn_ms = 600000, /* an answer is proven as a whole */
                                                .is_uncounted = true,
                                                .ca_file = *config->hosts.tls.ca_file ? config->hosts.tls.ca_file : NULL,
                                                .certificate_file =
                                                    *config->hosts.tls.cert_file ? config->hosts.tls.cert_file : NULL,
                                                .private_key_file = config->hosts.tls.key_file,
                                                .fence = {.allow_plain = true, .no_proxies = true}};
    if (http_engine_create(&options, &hosts->http, error))
        return -1;
    hosts->cache = block_cache_create(given->cache_room, given->room_data);
    hosts->server = block_server_create(&(struct block_server_options){
        .loop = loop, .cache = hosts->cache, .source_options = given->source_options, .data = given->data});
    hosts->peers = peers_create(&hosts->settings, hosts->incarnation, hosts->http, hosts->cache);
    if (data_port_open(&hosts->settings, &hosts->identity,
                       &(struct data_port_blocks){.server = hosts->server, .count_out = count_out, .data = hosts},
                       &hosts->port, error))
        return -1;
    hosts->timer = loop_timer_create(loop, on_tick, hosts);
    loop_timer_start(hosts->timer, TICK_MS, TICK_MS);
    return join(hosts, error);
}

void hosts_leave(struct hosts *hosts)
{
    if (hosts && hosts->membership && !hosts->is_ending)
        hosts->plugin->unset(hosts->membership, hosts->own_key);
    if (hosts)
        __atomic_store_n(&hosts->is_ending, true, __ATOMIC_RELAXED);
    block_server_stop(hosts ? hosts->server : NULL); /* its reads would keep the daemon from ending, ... */
    peers_stop(hosts ? hosts->peers : NULL);         /* ... like those ahead: no host will ask for them */
}

void hosts_stop(struct hosts *hosts)
{
    if (!hosts)
        return;
    loop_timer_destroy(hosts->timer);
    if (hosts->membership)
        hosts->plugin->close(hosts->membership);
    hosts->membership = NULL;
    hosts->watcher.prefix = NULL;
    block_server_stop(hosts->server);
    data_port_close(hosts->port);
    block_server_destroy(hosts->server);
}

void hosts_destroy(struct hosts *hosts)
{
    if (!hosts)
        return;
    peers_destroy(hosts->peers);
    block_cache_destroy(hosts->cache);
    http_engine_destroy(hosts->http);
    while (!STAILQ_EMPTY(&hosts->list))
        remove_host(hosts, STAILQ_FIRST(&hosts->list));
    host_settings_fini(&hosts->settings);
    free(hosts->own_key);
    free(hosts);
}

void hosts_watch(struct hosts *hosts, const struct hosts_watcher *watcher)
{
    hosts->watcher = *watcher;
}

void hosts_set(struct hosts *hosts, const char *key, const char *value)
{
    if (hosts->membership)
        hosts->plugin->set(hosts->membership, key, value);
}

void hosts_unset(struct hosts *hosts, const char *key)
{
    if (hosts->membership)
        hosts->plugin->unset(hosts->membership, key);
}

bool hosts_is_alive(const struct hosts *hosts, const char *incarnation)
{
    const struct host *host;
    STAILQ_FOREACH (host, &hosts->list, next)
        if (host->state == HOST_ALIVE && strcmp(host->entry.incarnation, incarnation) == 0)
            return strcmp(host->entry.domain, hosts->settings.domain) == 0;
    return false;
}

/* What was known of others holds as long as the lease that they know this host by: then it is gone for them. */
static bool knows_others(const struct hosts *hosts)
{
    return hosts->is_connected || clock_now_ns() - hosts->away_ns < (uint64_t)LEASE_S * 1000 * NS_PER_MS;
}

struct hosts_summary hosts_summary(const struct hosts *hosts)
{
    return (struct hosts_summary){.name = hosts->settings.name,
                                  .incarnation = hosts->incarnation,
                                  .domain = hosts->settings.domain,
                                  .is_connected = hosts->is_connected,
                                  .etcd_reason = hosts->is_connected ? "" : hosts->etcd_problem,
                                  .knows_others = knows_others(hosts)};
}

struct peers *hosts_peers(struct hosts *hosts)
{
    return hosts ? hosts->peers : NULL;
}

const char *host_state_name(enum host_state state)
{
    return states[state].name;
}

void hosts_each(const struct hosts *hosts, void (*row)(void *data, const struct host_row *host), void *data)
{
    const struct host *host;
    STAILQ_FOREACH (host, &hosts->list, next) {
        bool is_unknown = host->state == HOST_ALIVE && !host->is_self && !knows_others(hosts);
        const struct host_row shown = {.name = host->entry.name,
                                       .domain = host->entry.domain,
                                       .address = host->entry.address,
                                       .incarnation = host->entry.incarnation,
                                       .version = host->entry.version,
                                       .state = is_unknown                ? HOST_GONE
                                                : host->state == HOST_NEW ? HOST_REFUSED
                                                                          : host->state,
                                       .reason = host->state == HOST_NEW ? "it is being asked for its proof"
                                                 : is_unknown            ? "etcd is away: what became of it is not known"
                                                                         : host->problem,
                                       .is_self = host->is_self,
                                       .traffic = traffic_of(hosts, host)};
        row(data, &shown);
    }
}
