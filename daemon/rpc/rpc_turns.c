/* Requests are read, decoded and handled on the loop, and some take long there: status lists everything. A user who has had
 * more than TURN_NS of a turn of the loop waits for the next one, so that whoever asks for much at once holds up the others
 * for that and one handler. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "rpc/rpc_internal.h"

enum { TURN_NS = 2000000 };

static bool may_run(const struct rpc_server *server, struct rpc_line *line)
{
    if (line->turn != server->turns.turn)
        line->spent_ns = 0;
    line->turn = server->turns.turn;
    return line->spent_ns <= TURN_NS;
}

bool rpc_turns_begin(const struct rpc_connection *connection, struct rpc_spell *spell)
{
    struct rpc_line *line = &connection->user->line;
    *spell = (struct rpc_spell){.line = line, .began_ns = clock_now_ns()};
    bool may_read = may_run(connection->server, line);
    spell->before_ns = line->spent_ns;
    return may_read;
}

/* What handlers have counted meanwhile is a part of it. */
void rpc_turns_end(const struct rpc_spell *spell)
{
    spell->line->spent_ns = spell->before_ns + clock_now_ns() - spell->began_ns;
}

static void run_handler(struct rpc_line *line, struct rpc_call *call)
{
    uint64_t began_ns = clock_now_ns();
    rpc_call_handle(call);
    line->spent_ns += clock_now_ns() - began_ns;
}

void rpc_turns_add(struct rpc_call *call)
{
    struct rpc_line *line = &call->connection->user->line;
    if (!line->first && may_run(call->server, line)) {
        run_handler(line, call);
        return;
    }
    call->place = (struct rpc_place){.line = line, .link = line->last};
    *line->last = call;
    line->last = &call->place.next;
    if (call->server->turns.n_waiting++ == 0)
        rpc_turns_again(call->server);
    rpc_call_wait(call);
}

void rpc_turns_remove(struct rpc_call *call)
{
    struct rpc_place *place = &call->place;
    if (!place->line)
        return;
    *place->link = place->next;
    *(place->next ? &place->next->place.link : &place->line->last) = place->link;
    place->line = NULL;
    call->server->turns.n_waiting--;
}

static void run_line(struct rpc_server *server, struct rpc_line *line)
{
    while (line->first && may_run(server, line)) {
        struct rpc_call *call = line->first;
        rpc_turns_remove(call);
        run_handler(line, call);
    }
}

static void on_turn(void *data)
{
    struct rpc_server *server = data;
    server->turns.turn++;
    if (!server->turns.n_waiting)
        return;
    for (struct rpc_user *user = server->admission.users; user; user = user->next)
        run_line(server, &user->line);
    rpc_turns_again(server); /* for those that wait on, and for what these have to say */
}

static void on_again(struct loop_task *task)
{
    free(task);
}

void rpc_turns_again(struct rpc_server *server)
{
    struct loop_task *again = memory_alloc(sizeof *again);
    again->run = on_again;
    loop_post(server->options.loop, again);
}

void rpc_turns_init(struct rpc_server *server)
{
    server->turns.next = loop_turn_create(server->options.loop, on_turn, server);
}

void rpc_turns_fini(struct rpc_server *server)
{
    loop_turn_destroy(server->turns.next);
}
