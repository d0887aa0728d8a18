/* Which users may connect and call: their shares of connections, descriptors and calls; connections that are too many and are told
 * so; those that are not used. And whose handler runs when: requests are read, decoded and handled on the loop, and some take long
 * there: status lists everything. A user who has had more than TURN_NS of a turn of the loop waits for the next one, so that a
 * user with many requests holds up the others for that time and one handler. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/foreign_fd.h"
#include "base/memory.h"
#include "observe/log.h"
#include "rpc/rpc_internal.h"

enum {
    TURN_NS = 2000000,
    WARNING_INTERVAL_NS = 1000000000,
    SURPLUS_PER_USER = 2,
    SURPLUS_PER_PRIVILEGED_USER = 8,
    MOST_SURPLUS = 32, /* of all users who are not privileged: their descriptors are in no quota */
    SURPLUS_MS = 5000,
    SWEEP_MS = 250,
    PRESSED_IDLE_MS = 10000,  /* idle for so long, as no token lives, a connection goes when others are refused */
    PRESSED_SILENT_MS = 1000, /* the same for one that has never had a call */
    EVICTION_INTERVAL_MS = 100,
    EVICTED_AT_ONCE = 64,
    MAX_IDLE_MS = 10 * 60 * 1000, /* without a call */
    MAX_REQUEST_MS = 60 * 1000,   /* from its headers to its whole message; a bidi call may think longer */
    KEEPALIVE_MS = 10000,         /* only while calls are running: a stopped client's calls are cancelled in 20 s */
    KEEPALIVE_TIMEOUT_MS = 10000,
};

static bool is_past(uint64_t since_ns, uint64_t ms)
{
    return clock_now_ns() - since_ns >= ms * NS_PER_MS;
}

/* --- users ----------------------------------------------------------------------------------------------------------- */

static struct rpc_user *get_user(struct rpc_server *server, uid_t uid)
{
    struct rpc_user *user = server->admission.users;
    struct quota *quota = server->options.quota;
    while (user && user->uid != uid)
        user = user->next;
    if (user)
        return user;
    user = memory_alloc(sizeof *user);
    user->uid = uid;
    TAILQ_INIT(&user->line.calls);
    user->connections = (struct quota_charge){.quota = quota, .kind = QUOTA_CONNECTIONS, .uid = uid};
    user->descriptors = (struct quota_charge){.quota = quota, .kind = QUOTA_DESCRIPTORS, .uid = uid};
    user->next = server->admission.users;
    server->admission.users = user;
    return user;
}

static int charge_connection(struct rpc_user *user, struct error *error)
{
    if (quota_charge_add(&user->connections, 1, error) != 0)
        return -1;
    if (quota_charge_add(&user->descriptors, 1, error) == 0)
        return 0;
    quota_charge_subtract(&user->connections, 1);
    return -1;
}

static void count_surplus(struct rpc_server *server, struct rpc_user *user, int change)
{
    user->n_surplus += (uint64_t)change;
    if (!quota_is_privileged(user->uid))
        server->admission.n_surplus += (uint64_t)change;
}

void rpc_admission_ended(struct rpc_server *server, struct rpc_user *user, bool is_surplus)
{
    if (is_surplus) {
        count_surplus(server, user, -1);
    } else {
        user->n_connections--;
        quota_charge_subtract(&user->connections, 1);
        quota_charge_subtract(&user->descriptors, 1);
    }
    if (user->n_connections || user->n_surplus)
        return;
    struct rpc_user **link = &server->admission.users;
    while (*link != user)
        link = &(*link)->next;
    *link = user->next;
    free(user);
    rpc_server_trim_later(server);
}

/* --- connections ----------------------------------------------------------------------------------------------------- */

static void warn_of_refusal(struct rpc_server *server, const struct rpc_user *user, const char *message)
{
    struct rpc_admission *admission = &server->admission;
    uint64_t now_ns = clock_now_ns();
    admission->n_refused++;
    if (admission->warned_ns && now_ns - admission->warned_ns < WARNING_INTERVAL_NS)
        return;
    log_at_of(LOG_WARN, "connection_refused", user->uid, LOG_U64("connections", user->n_connections),
              LOG_U64("refused", admission->n_refused), LOG_TEXT("message", message));
    admission->warned_ns = now_ns;
    admission->n_refused = 0;
}

/* Users who have more may have some that they do not use. They are made again when they are. */
static void make_room(struct rpc_server *server, const struct rpc_user *user)
{
    struct rpc_admission *admission = &server->admission;
    size_t n_ended = 0;
    if (admission->evicted_ns && !is_past(admission->evicted_ns, EVICTION_INTERVAL_MS))
        return;
    admission->evicted_ns = clock_now_ns();
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &server->connections, in_server) {
        bool is_idle = !connection->is_surplus && connection->n_calls == 0 &&
                       is_past(connection->used_ns, connection->was_used ? PRESSED_IDLE_MS : PRESSED_SILENT_MS);
        if (is_idle && n_ended < EVICTED_AT_ONCE && connection->user->n_connections > user->n_connections) {
            rpc_connection_end(connection);
            n_ended++;
        }
    }
}

void rpc_admission_accept(void *context, int fd, const struct ucred *peer)
{
    struct rpc_server *server = context;
    struct rpc_user *user = get_user(server, peer->uid);
    bool is_surplus = charge_connection(user, &user->refusal) != 0;
    if (is_surplus) {
        warn_of_refusal(server, user, user->refusal.message);
        make_room(server, user);
        bool may_be_told = quota_is_privileged(user->uid)
                               ? user->n_surplus < SURPLUS_PER_PRIVILEGED_USER
                               : user->n_surplus < SURPLUS_PER_USER && server->admission.n_surplus < MOST_SURPLUS;
        if (!may_be_told) {
            foreign_fd_close_socket(fd, peer->uid, foreign_fd_is_refused(fd));
            return;
        }
        count_surplus(server, user, 1);
    } else {
        user->n_connections++;
    }
    struct rpc_connection *connection = rpc_connection_create(server, fd, peer);
    if (!connection) {
        warn_of_refusal(server, user, "too many open files");
        rpc_admission_ended(server, user, is_surplus);
        return;
    }
    connection->user = user;
    connection->is_surplus = is_surplus;
    if (!is_surplus)
        rpc_connection_greet(connection);
    if (!server->admission.is_sweeping)
        loop_timer_start(server->admission.sweep, SWEEP_MS, SWEEP_MS);
    server->admission.is_sweeping = true;
}

/* --- calls ----------------------------------------------------------------------------------------------------------- */

/* A surplus connection becomes an ordinary one when there is room for it. Root and the daemon's own user can always look and act. */
int rpc_admission_admit(struct rpc_call *call, struct error *error)
{
    struct rpc_connection *connection = call->connection;
    struct rpc_user *user = connection->user;
    bool is_owed = call->head.route && call->head.route->is_essential && quota_is_privileged(call->uid);
    if (quota_charge_add(&call->charge, 1, error) != 0 && !is_owed)
        return -1;
    if (!connection->is_surplus)
        return 0;
    if (charge_connection(user, &user->refusal) == 0) {
        connection->is_surplus = false;
        user->n_connections++;
        count_surplus(connection->server, user, -1);
        return 0;
    }
    *error = user->refusal;
    return is_owed ? 0 : -1;
}

/* --- what takes too long --------------------------------------------------------------------------------------------- */

static struct rpc_call *find_slow_request(const struct rpc_connection *connection)
{
    struct rpc_call *call;
    LIST_FOREACH (call, &connection->calls, in_connection)
        if (call->state == RPC_CALL_RECEIVING && call->head.route && call->head.route->kind != RPC_BIDI &&
            is_past(call->made_ns, MAX_REQUEST_MS))
            return call;
    return NULL;
}

static void sweep_connection(struct rpc_connection *connection)
{
    struct rpc_call *slow;
    struct error error;
    bool is_old =
        connection->is_surplus && is_past(connection->made_ns, connection->was_used ? SURPLUS_MS : PRESSED_SILENT_MS);
    while ((slow = find_slow_request(connection))) {
        fail(&error, ERROR_DEADLINE_EXCEEDED, "REQUEST_TOO_SLOW", "the request's message did not arrive within %d s",
             MAX_REQUEST_MS / 1000);
        rpc_call_fail(slow, &error);
    }
    if (is_old || (connection->n_calls == 0 && is_past(connection->used_ns, MAX_IDLE_MS)) ||
        (connection->n_calls > 0 && is_past(connection->heard_ns, KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS)))
        rpc_connection_end(connection);
    else if (connection->n_calls > 0 && !connection->is_pinged && is_past(connection->heard_ns, KEEPALIVE_MS))
        rpc_connection_ping(connection);
}

/* Runs while there are connections. */
static void on_sweep(void *data)
{
    struct rpc_server *server = data;
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &server->connections, in_server)
        sweep_connection(connection);
    server->admission.is_sweeping = !LIST_EMPTY(&server->connections);
    if (LIST_EMPTY(&server->connections))
        loop_timer_stop(server->admission.sweep);
}

/* --- turns ----------------------------------------------------------------------------------------------------------- */

static bool may_run(const struct rpc_server *server, struct rpc_line *line)
{
    if (line->turn != server->turns.turn)
        line->spent_ns = 0;
    line->turn = server->turns.turn;
    return line->spent_ns <= TURN_NS;
}

bool rpc_admission_begin_spell(const struct rpc_connection *connection, struct rpc_spell *spell)
{
    struct rpc_line *line = &connection->user->line;
    *spell = (struct rpc_spell){.line = line, .began_ns = clock_now_ns()};
    bool may_read = may_run(connection->server, line);
    spell->before_ns = line->spent_ns;
    return may_read;
}

/* What handlers have counted meanwhile is a part of it. */
void rpc_admission_end_spell(const struct rpc_spell *spell)
{
    spell->line->spent_ns = spell->before_ns + clock_now_ns() - spell->began_ns;
}

static void run_handler(struct rpc_line *line, struct rpc_call *call)
{
    uint64_t began_ns = clock_now_ns();
    rpc_call_handle(call);
    line->spent_ns += clock_now_ns() - began_ns;
}

void rpc_admission_run(struct rpc_call *call)
{
    struct rpc_line *line = &call->connection->user->line;
    if (TAILQ_EMPTY(&line->calls) && may_run(call->server, line)) {
        run_handler(line, call);
        return;
    }
    TAILQ_INSERT_TAIL(&line->calls, call, in_line);
    call->line = line;
    if (call->server->turns.n_waiting++ == 0)
        rpc_admission_next_turn(call->server);
    rpc_call_wait(call);
}

void rpc_admission_remove(struct rpc_call *call)
{
    if (!call->line)
        return;
    TAILQ_REMOVE(&call->line->calls, call, in_line);
    call->line = NULL;
    call->server->turns.n_waiting--;
}

static void on_turn(void *data)
{
    struct rpc_server *server = data;
    server->turns.turn++;
    if (!server->turns.n_waiting)
        return;
    for (struct rpc_user *user = server->admission.users; user; user = user->next)
        while (!TAILQ_EMPTY(&user->line.calls) && may_run(server, &user->line)) {
            struct rpc_call *call = TAILQ_FIRST(&user->line.calls);
            rpc_admission_remove(call);
            run_handler(&user->line, call);
        }
    rpc_admission_next_turn(server); /* for those that wait on, and for what these have to say */
}

static void on_again(struct loop_task *task)
{
    free(task);
}

void rpc_admission_next_turn(struct rpc_server *server)
{
    struct loop_task *again = memory_alloc(sizeof *again);
    again->run = on_again;
    loop_post(server->options.loop, again);
}

void rpc_admission_init(struct rpc_server *server)
{
    server->admission.sweep = loop_timer_create(server->options.loop, on_sweep, server);
    server->turns.next = loop_turn_create(server->options.loop, on_turn, server);
}

void rpc_admission_fini(struct rpc_server *server)
{
    loop_timer_destroy(server->admission.sweep);
    server->admission.sweep = NULL;
    loop_turn_destroy(server->turns.next);
}
