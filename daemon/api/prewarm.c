#include "api/prewarm.h"

#include "replica/user_pins.h"

static void on_resolved(void *data)
{
    const struct prewarm *prewarm = data;
    if (prewarm->call)
        rpc_call_drop_request(prewarm->call);
}

/* A ticket's pin is let go only after the user's is there. */
static void end_prewarm(struct prewarm *prewarm, const struct error *error)
{
    struct error problem;
    struct ticket *ticket = prewarm->ticket;
    const struct load_result *result = ticket_result(ticket);
    if (!error && prewarm->pin && user_pins_add(result->replica, prewarm->uid, prewarm->label, &problem) != 0)
        error = &problem;
    prewarm->ended(prewarm, result, error);
    ticket_destroy(ticket);
}

static void on_warm(void *data, const struct error *error)
{
    end_prewarm(data, error);
}

/* Files that nobody takes: their pages are brought into the page cache, and locked there if the budget has room. Returns
 * whether there is something to wait for, -1 when that cannot be. */
static int warm_pages(struct prewarm *prewarm, struct replica *replica, struct error *error)
{
    struct mapped_files *files = replica->files;
    const struct load_services *services = &prewarm->api->services;
    const struct page_reading reading = {.loop = services->loop,
                                         .artifact = replica->mapping->artifact,
                                         .ranges = files->ranges,
                                         .uid = prewarm->uid,
                                         .is_awaited = true,
                                         .quota = services->quota,
                                         .done = on_warm,
                                         .data = prewarm};
    mapped_files_sent(files, files->view->n_files);
    if ((prewarm->call && rpc_call_is_left(prewarm->call)) || !files->ranges.n ||
        replica_has_pages(replica->table, &replica->key))
        return 0;
    files->ranges = (struct page_ranges){0};
    replica->reader = page_reader_start(&reading, error);
    return replica->reader ? 1 : -1;
}

static void on_done(void *data, const struct load_result *result, const struct error *error)
{
    struct prewarm *prewarm = data;
    struct error problem;
    int waits = !error && result->origin == LOAD_MAPPED ? warm_pages(prewarm, result->replica, &problem) : 0;
    if (waits <= 0)
        end_prewarm(prewarm, waits < 0 ? &problem : error);
}

void prewarm_run(struct prewarm *prewarm, struct ticket *ticket)
{
    static const struct ticket_events events = {.resolved = on_resolved, .done = on_done};
    prewarm->ticket = ticket;
    ticket_submit(ticket, GOAL_REPLICA, &events, prewarm);
}

/* Of pages that are being read the reader ends with the replica, which ends with the ticket. */
void prewarm_cancel(struct prewarm *prewarm)
{
    struct error error;
    if (ticket_state(prewarm->ticket) != TICKET_DONE) {
        ticket_cancel(prewarm->ticket);
        return;
    }
    fail(&error, ERROR_CANCELLED, "CLIENT_LEFT", "the client cancelled, disconnected or passed its deadline");
    end_prewarm(prewarm, &error);
}
