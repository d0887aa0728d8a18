/* See host_simulation.h. Events in a heap by time and number; a delivery to a worker that has given up is dropped by its epoch. */
#include "tests/support/host_simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hosts/election.h"
#include "hosts/shared_block.h"
#include "plan/hosts_choice.h"

enum { TRIES = 4, NO_HOST = -1 };
static const double latency_s = 0.0002, answer_s = 1 /* "it is being read" */, first_byte_s = 2.5;

enum event_kind {
    EVENT_FAULT,
    EVENT_NEXT,
    EVENT_AHEAD,
    EVENT_READ,
    EVENT_READ_AHEAD,
    EVENT_SENT,
    EVENT_DELIVERED,
    EVENT_RESET,
    EVENT_PATIENCE
};
struct event {
    double at_s;
    uint64_t number;
    enum event_kind kind;
    size_t host, worker, block;
    uint64_t epoch;
};

struct worker { /* of a host: one request */
    bool is_busy, is_hedged, is_near, asks_others;
    size_t block;
    int owner;
    uint64_t epoch;
    double began_s;
    size_t tried[TRIES], n_tried;
    struct worker *next_waiter;
    size_t host, number;
};

enum cached { ABSENT, READING, HERE };
struct host {
    double rate; /* of its store link, and of what it sends */
    bool is_dead, is_silent;
    double store_free_s, in_free_s, out_free_s, read_mean_s;
    unsigned char *cached;   /* by block */
    double *read_began_s;    /* by block, while READING */
    struct worker **waiters; /* by block */
    size_t *reads;           /* queue of the blocks being read, in order */
    size_t n_reads, first_read;
    size_t *near, *far, n_near, n_far, next_near, next_far, n_left;
    size_t *ahead, n_ahead, next_ahead; /* blocks that it owns and others need */
    unsigned n_near_busy;
    struct worker *workers;
    struct lateness *late; /* by host */
    double ready_s;
};

struct world {
    const struct simulation *options;
    struct shared_file file;
    size_t n_blocks;
    uint64_t *hashes;
    size_t *owners; /* when no host is out */
    struct host *hosts;
    struct event *heap;
    size_t n_events, room;
    uint64_t n_numbered;
    double now_s, total_free_s;
    struct simulation_result result;
};

static bool is_before(const struct event *a, const struct event *b)
{
    return a->at_s < b->at_s || (a->at_s == b->at_s && a->number < b->number);
}

static void post(struct world *world, struct event event)
{
    if (world->n_events == world->room) {
        world->room = world->room ? 2 * world->room : 1024;
        world->heap = realloc(world->heap, world->room * sizeof *world->heap);
    }
    size_t at = world->n_events++;
    event.number = world->n_numbered++;
    for (; at > 0 && is_before(&event, &world->heap[(at - 1) / 2]); at = (at - 1) / 2)
        world->heap[at] = world->heap[(at - 1) / 2];
    world->heap[at] = event;
}

static struct event take_event(struct world *world)
{
    struct event first = world->heap[0], last = world->heap[--world->n_events];
    size_t at = 0, child;
    for (; (child = 2 * at + 1) < world->n_events; at = child) {
        if (child + 1 < world->n_events && is_before(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!is_before(&world->heap[child], &last))
            break;
        world->heap[at] = world->heap[child];
    }
    world->heap[at] = last;
    return first;
}

static uint64_t to_ns(double s)
{
    return (uint64_t)(s * 1e9);
}

static double max(double a, double b)
{
    return a > b ? a : b;
}

/* --- the owner's side --- */

enum why { ASKED, HEDGED, AHEAD };

static void start_read(struct world *world, size_t owner, size_t block, enum why why)
{
    struct host *host = &world->hosts[owner];
    double bytes = world->options->block_bytes, total = world->options->store_total_bytes_per_s;
    double done_s = max(world->now_s, host->store_free_s) + bytes / (world->options->store_bytes_per_s * host->rate);
    if (total > 0)
        done_s = world->total_free_s = max(done_s, max(world->now_s, world->total_free_s) + bytes / total);
    host->store_free_s = done_s;
    host->cached[block] = READING;
    host->read_began_s[block] = world->now_s;
    host->reads[(host->first_read + host->n_reads++) % world->n_blocks] = block;
    world->result.store_bytes += bytes;
    world->result.hedged_bytes += why == HEDGED ? bytes : 0;
    post(world, (struct event){
                    .at_s = done_s, .kind = why == AHEAD ? EVENT_READ_AHEAD : EVENT_READ, .host = owner, .block = block});
}

/* The next block that no host has asked for yet. */
static void read_ahead(struct world *world, size_t owner)
{
    struct host *host = &world->hosts[owner];
    while (host->next_ahead < host->n_ahead && host->cached[host->ahead[host->next_ahead]] != ABSENT)
        host->next_ahead++;
    if (host->next_ahead < host->n_ahead)
        start_read(world, owner, host->ahead[host->next_ahead++], AHEAD);
}

/* What a block costs this host today: as block_cache_read_ns(). */
static double read_s(const struct world *world, const struct host *host)
{
    double oldest_s = host->n_reads ? world->now_s - host->read_began_s[host->reads[host->first_read]] : 0;
    return max(host->read_mean_s, oldest_s);
}

/* Through the sender's link, then the receiver's: what a slow sender has promised keeps no other block waiting. */
static void deliver(struct world *world, size_t owner, struct worker *worker)
{
    struct host *from = &world->hosts[owner];
    struct event event = {.at_s = world->now_s,
                          .kind = EVENT_DELIVERED,
                          .host = worker->host,
                          .worker = worker->number,
                          .block = worker->block,
                          .epoch = worker->epoch};
    if (owner != worker->host) {
        from->out_free_s = max(world->now_s, from->out_free_s) +
                           world->options->block_bytes / (world->options->fabric_bytes_per_s * from->rate);
        event.at_s = from->out_free_s;
        event.kind = EVENT_SENT;
    }
    post(world, event);
}

static void on_sent(struct world *world, struct host *to, const struct event *event)
{
    struct event delivered = *event;
    delivered.kind = EVENT_DELIVERED;
    to->in_free_s = max(world->now_s, to->in_free_s) + world->options->block_bytes / world->options->fabric_bytes_per_s;
    delivered.at_s = to->in_free_s + latency_s;
    post(world, delivered);
}

/* --- the asker's side --- */

struct election {
    const struct world *world;
    const struct worker *worker;
};

static bool is_out(void *data, size_t host)
{
    const struct election *election = data;
    const struct worker *worker = election->worker;
    bool out = host == worker->host
                   ? worker->asks_others
                   : lateness_is_on(&election->world->hosts[worker->host].late[host], to_ns(election->world->now_s));
    for (size_t i = 0; i < worker->n_tried && !out; i++)
        out = worker->tried[i] == host;
    return out;
}

/* Before a host reads a block of its own that costs it much it asks the next one in line, which may have it. */
static bool find_elsewhere(struct world *world, struct worker *worker)
{
    struct election election = {world, worker};
    struct host *host = &world->hosts[worker->host];
    if (!election_asks_next(to_ns(read_s(world, host))))
        return false;
    worker->asks_others = true;
    size_t n = world->options->n_hosts,
           next = election_winner(&world->file, worker->block, world->hashes, n, is_out, &election);
    worker->asks_others = false;
    if (next == n || world->hosts[next].is_dead || world->hosts[next].is_silent ||
        world->hosts[next].cached[worker->block] != HERE)
        return false;
    worker->owner = (int)next;
    deliver(world, next, worker);
    return true;
}

static void ask(struct world *world, struct worker *worker)
{
    struct election election = {world, worker};
    size_t n = world->options->n_hosts, owner = world->owners[worker->block];
    if (worker->n_tried == TRIES)
        owner = worker->host;
    else if (is_out(&election, owner)) /* else it wins, as before */
        owner = election_winner(&world->file, worker->block, world->hashes, n, is_out, &election);
    struct host *host = &world->hosts[owner];
    struct event event = {.kind = EVENT_PATIENCE, .host = worker->host, .worker = worker->number};
    event.epoch = ++worker->epoch;
    worker->owner = (int)owner;
    worker->began_s = world->now_s;
    if (host->is_dead) {
        event.kind = EVENT_RESET;
        event.at_s = world->now_s + latency_s;
        post(world, event);
        return;
    }
    if (host->is_silent && owner != worker->host) {
        event.at_s = world->now_s + first_byte_s;
        post(world, event);
        return;
    }
    if (owner == worker->host && host->cached[worker->block] == ABSENT && find_elsewhere(world, worker))
        return;
    if (host->cached[worker->block] == HERE) {
        deliver(world, owner, worker);
        return;
    }
    worker->next_waiter = host->waiters[worker->block];
    host->waiters[worker->block] = worker;
    if (host->cached[worker->block] == ABSENT)
        start_read(world, owner, worker->block, worker->is_hedged ? HEDGED : ASKED);
    event.at_s = world->now_s + (double)election_patience_ns(to_ns(read_s(world, &world->hosts[worker->host]))) / 1e9;
    if (owner != worker->host)
        post(world, event);
}

static void stop_waiting(struct host *owner, struct worker *worker)
{
    struct worker **link = &owner->waiters[worker->block];
    while (*link && *link != worker)
        link = &(*link)->next_waiter;
    if (*link)
        *link = worker->next_waiter;
}

/* To the next one in line. */
static void pass_on(struct world *world, struct worker *worker)
{
    size_t owner = (size_t)worker->owner;
    stop_waiting(&world->hosts[owner], worker);
    if (worker->n_tried < TRIES)
        worker->tried[worker->n_tried++] = owner;
    worker->is_hedged = true;
    ask(world, worker);
}

/* What waits for an owner that was found to be late asks the next one. */
static void pass_over(struct world *world, struct host *host, size_t owner)
{
    for (size_t w = 0; w < world->options->workers; w++) {
        struct worker *worker = &host->workers[w];
        if (worker->is_busy && worker->owner == (int)owner)
            pass_on(world, worker);
    }
}

static void try_another(struct world *world, struct worker *worker, bool is_reading)
{
    size_t owner = (size_t)worker->owner;
    struct lateness *late = &world->hosts[worker->host].late[owner];
    bool is_late = is_reading && lateness_add_slow_read(late, to_ns(worker->began_s), to_ns(world->now_s));
    if (!is_reading)
        lateness_mark(late, to_ns(worker->began_s), to_ns(world->now_s));
    pass_on(world, worker);
    if (is_late)
        pass_over(world, &world->hosts[worker->host], owner);
}

static void take_next(struct world *world, struct worker *worker)
{
    struct host *host = &world->hosts[worker->host];
    bool has_near = host->next_near < host->n_near, has_far = host->next_far < host->n_far;
    worker->is_busy = has_near || has_far;
    if (!worker->is_busy || host->is_dead)
        return;
    worker->is_near = has_near && (2 * host->n_near_busy < world->options->workers || !has_far);
    host->n_near_busy += worker->is_near;
    worker->block = worker->is_near ? host->near[host->next_near++] : host->far[host->next_far++];
    worker->n_tried = 0;
    worker->is_hedged = false;
    ask(world, worker);
}

/* --- events --- */

static void on_read(struct world *world, const struct event *event)
{
    struct host *host = &world->hosts[event->host];
    if (host->is_dead)
        return;
    double took_s = world->now_s - host->read_began_s[event->block];
    host->read_mean_s = host->read_mean_s > 0 ? host->read_mean_s * 7 / 8 + took_s / 8 : took_s;
    host->cached[event->block] = HERE;
    host->first_read = (host->first_read + 1) % world->n_blocks;
    host->n_reads--;
    struct worker *worker = host->waiters[event->block];
    host->waiters[event->block] = NULL;
    for (struct worker *next; worker; worker = next) {
        next = worker->next_waiter;
        if (!host->is_silent || worker->host == event->host)
            deliver(world, event->host, worker);
    }
    if (event->kind == EVENT_READ_AHEAD)
        read_ahead(world, event->host);
}

/* As peers.c. */
static uint64_t others_ns(const struct world *world, const struct host *host, size_t owner)
{
    uint64_t sum_ns = 0, n = 0;
    for (size_t i = 0; i < world->options->n_hosts; i++)
        if (i != owner && host->late[i].mean_ns > 0) {
            sum_ns += host->late[i].mean_ns;
            n++;
        }
    return n > 0 ? sum_ns / n : 0;
}

static void on_delivered(struct world *world, struct host *host, struct worker *worker)
{
    size_t owner = (size_t)worker->owner;
    bool is_late = false;
    if (owner != worker->host) {
        uint64_t took_ns = to_ns(world->now_s - worker->began_s), own_ns = to_ns(read_s(world, host));
        uint64_t slow_ns = took_ns > own_ns ? election_slow_ns(own_ns, others_ns(world, host, owner)) : 0;
        is_late = lateness_add_answer(&host->late[owner], took_ns, slow_ns, to_ns(world->now_s));
        world->result.peer_bytes += world->options->block_bytes;
    }
    worker->epoch++;
    host->n_near_busy -= worker->is_near;
    if (--host->n_left == 0)
        host->ready_s = world->now_s;
    take_next(world, worker);
    if (is_late)
        pass_over(world, host, owner);
}

static void on_patience(struct world *world, struct host *host, struct worker *worker, const struct event *event)
{
    const struct host *owner = &world->hosts[worker->owner];
    double until_s = worker->began_s + (double)election_patience_ns(to_ns(read_s(world, host))) / 1e9;
    bool is_answered = !owner->is_silent && !owner->is_dead && owner->cached[worker->block] != HERE;
    if (owner->is_silent || (is_answered && world->now_s >= until_s)) {
        try_another(world, worker, is_answered);
        return;
    }
    struct event again = *event; /* "it is being read", or its bytes are on their way */
    again.at_s = world->now_s + answer_s;
    if (is_answered)
        post(world, again);
}

static void on_fault(struct world *world, const struct simulated_fault *fault)
{
    struct host *host = &world->hosts[fault->host];
    host->is_dead = fault->kind == FAULT_DIES;
    host->is_silent = fault->kind == FAULT_SILENT;
    for (size_t i = 0; i < world->options->n_hosts; i++)
        for (size_t w = 0; w < world->options->workers; w++) {
            struct worker *worker = &world->hosts[i].workers[w];
            bool waits = worker->is_busy && worker->owner == (int)fault->host && i != fault->host;
            if (!waits)
                continue;
            worker->epoch++; /* what is on its way is lost */
            stop_waiting(host, worker);
            post(world, (struct event){.at_s = world->now_s + (host->is_dead ? latency_s : first_byte_s),
                                       .kind = host->is_dead ? EVENT_RESET : EVENT_PATIENCE,
                                       .host = i,
                                       .worker = w,
                                       .epoch = worker->epoch});
        }
}

static void handle(struct world *world, const struct event *event)
{
    struct host *host = &world->hosts[event->host];
    world->now_s = event->at_s;
    if (event->kind == EVENT_FAULT) {
        on_fault(world, &world->options->faults[event->worker]);
    } else if (event->kind == EVENT_AHEAD) {
        read_ahead(world, event->host);
    } else if (event->kind == EVENT_READ || event->kind == EVENT_READ_AHEAD) {
        on_read(world, event);
    } else {
        struct worker *worker = &host->workers[event->worker];
        if (host->is_dead || worker->epoch != event->epoch)
            return;
        if (event->kind == EVENT_NEXT)
            take_next(world, worker);
        else if (event->kind == EVENT_SENT)
            on_sent(world, host, event);
        else if (event->kind == EVENT_DELIVERED)
            on_delivered(world, host, worker);
        else if (event->kind == EVENT_RESET)
            try_another(world, worker, false);
        else
            on_patience(world, host, worker, event);
    }
}

/* --- begin and end --- */

static bool is_none_out(void *data, size_t host)
{
    (void)data, (void)host;
    return false;
}

static int compare_keys(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

static void arrange(struct world *world, struct host *host, size_t number)
{
    size_t n = world->options->n_hosts;
    uint64_t *keys = calloc(host->n_far + 1, 2 * sizeof *keys);
    size_t *counts = calloc(n, sizeof *counts);
    for (size_t i = 0; i < host->n_far; i++) {
        size_t owner = world->owners[host->far[i]];
        keys[2 * i] = election_turn(world->hashes[number], world->hashes[owner], (uint32_t)counts[owner]++);
        keys[2 * i + 1] = host->far[i];
    }
    qsort(keys, host->n_far, 2 * sizeof *keys, compare_keys);
    for (size_t i = 0; i < host->n_far; i++)
        host->far[i] = keys[2 * i + 1];
    free(keys);
    free(counts);
}

static void make_host(struct world *world, size_t number)
{
    const struct simulation *options = world->options;
    struct host *host = &world->hosts[number];
    size_t n = world->n_blocks;
    *host = (struct host){.rate = 1,
                          .cached = calloc(n, 1),
                          .read_began_s = calloc(n, sizeof *host->read_began_s),
                          .waiters = calloc(n, sizeof(struct worker *)),
                          .reads = calloc(n, sizeof *host->reads),
                          .near = calloc(n, sizeof *host->near),
                          .far = calloc(n, sizeof *host->far),
                          .ahead = calloc(n, sizeof *host->ahead),
                          .workers = calloc(options->workers, sizeof *host->workers),
                          .late = calloc(options->n_hosts, sizeof *host->late)};
    for (size_t i = 0; i < n; i++) {
        bool is_own = world->owners[i] == number,
             is_needed = i % options->hosts_per_copy == number % options->hosts_per_copy;
        if (is_needed && is_own)
            host->near[host->n_near++] = i;
        else if (is_needed)
            host->far[host->n_far++] = i;
        else if (is_own)
            host->ahead[host->n_ahead++] = i;
        host->n_left += is_needed;
    }
    arrange(world, host, number);
    for (size_t w = 0; w < options->workers; w++) {
        host->workers[w] = (struct worker){.host = number, .number = w, .owner = NO_HOST};
        post(world, (struct event){.kind = EVENT_NEXT, .host = number, .worker = w});
    }
    for (unsigned i = 0; i < options->ahead; i++)
        post(world, (struct event){.kind = EVENT_AHEAD, .host = number});
}

struct simulation_result simulate_hosts(const struct simulation *options)
{
    size_t n = options->n_hosts;
    struct world world = {.options = options,
                          .file = {.hash = 0x5eed},
                          .n_blocks = (size_t)(options->model_bytes / options->block_bytes),
                          .hashes = calloc(n, sizeof *world.hashes),
                          .hosts = calloc(n, sizeof *world.hosts)};
    world.owners = calloc(world.n_blocks, sizeof *world.owners);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "host-%zu", i);
        world.hashes[i] = shared_host_hash(name);
    }
    for (size_t block = 0; block < world.n_blocks; block++)
        world.owners[block] = election_winner(&world.file, block, world.hashes, n, is_none_out, NULL);
    for (size_t i = 0; i < n; i++)
        make_host(&world, i);
    for (size_t i = 0; i < options->n_faults; i++) {
        const struct simulated_fault *fault = &options->faults[i];
        if (fault->kind == FAULT_SLOW)
            world.hosts[fault->host].rate = fault->factor;
        else
            post(&world, (struct event){.at_s = fault->at_s, .kind = EVENT_FAULT, .worker = i});
    }
    while (world.n_events > 0) {
        struct event event = take_event(&world);
        handle(&world, &event);
    }
    for (size_t i = 0; i < n; i++) {
        struct host *host = &world.hosts[i];
        world.result.n_ready += host->n_left == 0 && !host->is_dead;
        world.result.last_ready_s = max(world.result.last_ready_s, host->ready_s);
        free(host->cached);
        free(host->read_began_s);
        free(host->waiters);
        free(host->reads);
        free(host->near);
        free(host->far);
        free(host->ahead);
        free(host->workers);
        free(host->late);
    }
    free(world.hosts);
    free(world.hashes);
    free(world.owners);
    free(world.heap);
    return world.result;
}

double simulation_formula_s(const struct simulation *options)
{
    double total_s = options->store_total_bytes_per_s > 0 ? options->model_bytes / options->store_total_bytes_per_s : 0;
    const struct hosts_facts facts = {.is_on = true,
                                      .alive = (uint32_t)options->n_hosts,
                                      .artifact_bytes = (uint64_t)options->model_bytes,
                                      .needed_bytes = (uint64_t)(options->model_bytes / (double)options->hosts_per_copy),
                                      .read_bytes = facts.needed_bytes,
                                      .source = options->store_bytes_per_s / 1e9,
                                      .is_source_measured = true,
                                      .peers = options->fabric_bytes_per_s / 1e9};
    const struct hosts_choice choice = hosts_choose(&facts);
    double owners_s = choice.candidates[HOSTS_OWNER_PEERS].estimated_ms / 1e3;
    return choice.way == HOSTS_OWNER_PEERS ? max(owners_s, total_s) : 0;
}
