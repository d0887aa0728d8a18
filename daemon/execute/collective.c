/* Items are the blocks of the joint plan, batch by batch; see collective.h.
 *
 *   items   | batch 0 ......... | batch 1 ...... | batch 2 ...
 *             done  taken  pending                              taken only from [open batch, open batch + in flight)
 *
 * A block on the border of two pieces belongs to the first one's batch: it is read once, for both. Items that no run needs
 * any more, because their ranks left or another load's read served them, are passed over. */
#include "execute/collective.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "execute/collective_private.h"
#include "execute/scan.h"
#include "execute/worker.h"

/* Of the transport's waits: far more than a batch takes on any link, little enough that a client is told. */
static const uint64_t transport_deadline_ns = 30 * (uint64_t)1000 * NS_PER_MS;

enum item_state { PENDING, TAKEN, DONE };

struct item {
    uint64_t block;
    uint32_t file, batch;
};

struct collective {
    struct engine *engine;
    struct collective_plan *plan;
    struct transport *transport;
    uint64_t block_bytes; /* of the items */
    struct item *items;
    unsigned char *states;
    size_t n_items, cursor; /* nothing before the cursor is pending */
    size_t *batch_left;     /* items that are not done */
    size_t open_batch;      /* all before it are done */
    struct run **runs;      /* NULL where one is gone */
    size_t n_runs, n_expected, n_ready, n_done, n_destroyed;
    size_t n_delivered, n_flushed;      /* items with deliveries: so many were read, so many of these are in place */
    uint64_t staging_bytes;             /* the transport's, as far as they are counted */
    pthread_mutex_t releasing;          /* the transport; taken before the engine's lock */
    bool has_begun, has_lost_transport; /* the latter atomic */
    uint64_t begun_ns;
    uint64_t temporary_bytes, needed_bytes;
    struct collective_counters counters;
};

/* --- the items ------------------------------------------------------------------------------------------------------ */

static void add_blocks(struct collective *collective, const struct collective_piece *piece, size_t *room)
{
    uint64_t block_bytes = collective->block_bytes, width = piece->hi - piece->lo - (piece->count - 1) * piece->stride;
    struct rows rows = {piece->lo, width, piece->count, piece->stride};
    for (uint64_t at = piece->lo; at != UINT64_MAX;) {
        uint64_t block = at / block_bytes;
        struct item *last = collective->n_items ? &collective->items[collective->n_items - 1] : NULL;
        if (!last || last->file != piece->file || last->block != block) {
            ARRAY_RESERVE(collective->items, collective->n_items, *room);
            collective->items[collective->n_items++] = (struct item){block, piece->file, piece->batch};
            collective->batch_left[piece->batch]++;
        }
        at = rows_next(&rows, (block + 1) * block_bytes);
    }
}

/* From the order of the source to that of the batches. */
static void sort_items(struct collective *collective)
{
    struct item *sorted = memory_alloc_array(collective->n_items, sizeof *sorted);
    size_t n_batches = collective->plan->n_batches, *next = memory_alloc_array(n_batches + 1, sizeof *next);
    for (size_t batch = 0; batch < n_batches; batch++)
        next[batch + 1] = next[batch] + collective->batch_left[batch];
    for (size_t i = 0; i < collective->n_items; i++)
        sorted[next[collective->items[i].batch]++] = collective->items[i];
    free(next);
    free(collective->items);
    collective->items = sorted;
}

static void make_items(struct collective *collective)
{
    const struct collective_plan *plan = collective->plan;
    size_t room = 0;
    collective->batch_left = memory_alloc_array(plan->n_batches, sizeof *collective->batch_left);
    for (size_t i = 0; i < plan->n_pieces; i++)
        add_blocks(collective, &plan->pieces[i], &room);
    sort_items(collective);
    collective->states = memory_alloc_array(collective->n_items, sizeof *collective->states);
}

struct collective *collective_create(struct engine *engine, struct collective_plan *plan,
                                     const struct transport_choice *transport, struct device *const *devices,
                                     struct error *error)
{
    const struct transport_options options = {plan->world_size, devices, transport_deadline_ns, transport->staging_bytes};
    struct collective *collective = memory_alloc(sizeof *collective);
    collective->engine = engine;
    collective->block_bytes = engine->block_bytes;
    collective->plan = collective_plan_ref(plan);
    pthread_mutex_init(&collective->releasing, NULL);
    if (transport_open(transport->ops, &options, &collective->transport, error) != 0) {
        collective_destroy(collective);
        return NULL;
    }
    make_items(collective);
    return collective;
}

void collective_expect(struct collective *collective, size_t n_runs)
{
    collective->n_expected = n_runs;
    collective->runs = memory_alloc_array(n_runs, sizeof(struct run *));
}

void collective_destroy(struct collective *collective)
{
    if (!collective)
        return;
    transport_close(collective->transport);
    pthread_mutex_destroy(&collective->releasing);
    collective_plan_unref(collective->plan);
    free(collective->items);
    free(collective->states);
    free(collective->batch_left);
    free(collective->runs);
    free(collective);
}

void run_release_transport(struct run *run)
{
    struct collective *collective = run->options.collective;
    if (!collective)
        return;
    pthread_mutex_lock(&collective->releasing);
    pthread_mutex_lock(&collective->engine->lock);
    bool is_over = collective->n_done == collective->n_runs;
    pthread_mutex_unlock(&collective->engine->lock);
    if (is_over) {
        transport_close(collective->transport);
        collective->transport = NULL;
    }
    pthread_mutex_unlock(&collective->releasing);
}

bool run_has_lost_transport(const struct run *run)
{
    const struct collective *collective = run->options.collective;
    return collective && __atomic_load_n(&collective->has_lost_transport, __ATOMIC_ACQUIRE);
}

const struct collective_counters *run_collective_counters(const struct run *run)
{
    return run->options.collective ? &run->options.collective->counters : NULL;
}

/* --- the runs ------------------------------------------------------------------------------------------------------- */

void collective_attach(struct run *run)
{
    struct collective *collective = run->options.collective;
    collective->runs[collective->n_runs++] = run;
}

static void begin_when_ready(struct collective *collective)
{
    if (collective->has_begun || collective->n_ready < collective->n_expected)
        return;
    collective->has_begun = true;
    collective->begun_ns = clock_now_ns();
    for (size_t i = 0; i < collective->n_runs; i++)
        if (collective->runs[i] && collective->runs[i]->stage == RUN_GATHERED)
            collective->runs[i]->stage = RUN_ACTIVE;
    engine_wake(collective->engine);
}

/* The blocks of a remote source are others, which nobody knows before there is a run. */
static void fit_items(struct collective *collective, uint64_t block_bytes)
{
    if (collective->block_bytes == block_bytes || collective->has_begun)
        return;
    free(collective->items);
    free(collective->states);
    free(collective->batch_left);
    collective->items = NULL;
    collective->n_items = 0;
    collective->block_bytes = block_bytes;
    make_items(collective);
}

void collective_gather(struct run *run)
{
    struct collective *collective = run->options.collective;
    fit_items(collective, run->block_bytes);
    run->stage = RUN_GATHERED;
    run->has_gathered = true;
    collective->n_ready++;
    begin_when_ready(collective);
}

void collective_lose(struct run *run)
{
    struct collective *collective = run->options.collective;
    bool is_unwanted = collective->has_begun;
    for (size_t i = 0; i < collective->n_runs && is_unwanted; i++) {
        const struct run *other = collective->runs[i];
        is_unwanted = !other || other->has_failed || other->stage == RUN_FINISHED;
    }
    if (is_unwanted)
        __atomic_store_n(&collective->transport->is_unwanted, true, __ATOMIC_RELAXED);
}

void collective_part_with(struct run *run)
{
    struct collective *collective = run->options.collective;
    collective->n_done++;
    if (run->has_gathered)
        return;
    run->has_gathered = true;
    collective->n_expected--;
    begin_when_ready(collective);
}

struct collective *collective_detach(struct run *run)
{
    struct collective *collective = run->options.collective;
    for (size_t i = 0; i < collective->n_runs; i++)
        if (collective->runs[i] == run)
            collective->runs[i] = NULL;
    return ++collective->n_destroyed == collective->n_runs && collective->has_begun ? collective : NULL;
}

/* --- taking and completing items ------------------------------------------------------------------------------------ */

static void finish_item(struct collective *collective, size_t item)
{
    const size_t n_batches = collective->plan->n_batches, before = collective->open_batch;
    collective->states[item] = DONE;
    collective->batch_left[collective->items[item].batch]--;
    while (collective->open_batch < n_batches && collective->batch_left[collective->open_batch] == 0)
        collective->open_batch++;
    collective->counters.batch_count = collective->open_batch;
    if (collective->open_batch > before)
        engine_wake(collective->engine);
}

static size_t pending_need(const struct run *run, const struct item *item)
{
    if (!run || run->stage != RUN_ACTIVE || run->has_failed)
        return SIZE_MAX;
    size_t need = scan_find_need(run, item->file, item->block);
    return need != SIZE_MAX && run->needs[need].state == NEED_PENDING ? need : SIZE_MAX;
}

/* A run that still needs the item, its owner's if that one does. */
static struct run *find_run(const struct collective *collective, const struct item *item, size_t *need)
{
    struct run *found = NULL;
    uint32_t leader = collective->plan->leaders[collective->plan->batches[item->batch].owner];
    for (size_t i = 0; i < collective->n_runs; i++) {
        size_t own = pending_need(collective->runs[i], item);
        if (own == SIZE_MAX || (found && collective->runs[i]->options.rank != leader))
            continue;
        found = collective->runs[i];
        *need = own;
        if (found->options.rank == leader)
            break;
    }
    return found;
}

static void name_deliveries(struct collective *collective, struct worker *worker)
{
    uint32_t owner = collective->plan->leaders[collective->plan->batches[collective->items[worker->item].batch].owner];
    for (size_t i = 0; i < worker->n_parts; i++) {
        struct part *part = &worker->parts[i];
        bool is_peer = part->run->options.collective == collective && part->run->options.rank != owner;
        part->transport = is_peer ? collective->transport : NULL;
        part->owner = owner;
    }
}

static bool take_item(struct collective *collective, struct worker *worker, size_t i)
{
    size_t need = SIZE_MAX;
    struct run *run = find_run(collective, &collective->items[i], &need);
    if (!run) {
        finish_item(collective, i);
        return false;
    }
    if (!scan_is_takeable(run, need)) /* another load is at it: its bytes will be there to copy */
        return false;
    collective->states[i] = TAKEN;
    scan_take_need(run, need, worker);
    worker->collective = collective;
    worker->item = i;
    name_deliveries(collective, worker);
    return true;
}

bool collective_take(struct collective *collective, struct worker *worker)
{
    while (collective->cursor < collective->n_items && collective->states[collective->cursor] != PENDING)
        collective->cursor++;
    for (size_t i = collective->cursor; i < collective->n_items; i++) {
        if (collective->items[i].batch >= collective->open_batch + collective->plan->max_inflight_batches)
            return false;
        if (collective->states[i] == PENDING && take_item(collective, worker, i))
            return true;
    }
    return false;
}

bool collective_is_exhausted(const struct collective *collective)
{
    size_t i = collective->cursor;
    while (i < collective->n_items && collective->states[i] != PENDING)
        i++;
    return i == collective->n_items;
}

/* --- flushing ------------------------------------------------------------------------------------------------------- */

static void note_deliveries(const struct worker *worker)
{
    for (size_t i = 0; worker->collective && i < worker->n_parts; i++)
        if (worker->parts[i].transport) {
            worker->collective->n_delivered++;
            return;
        }
}

static bool has_unflushed(const struct collective *collective)
{
    return collective && collective->n_flushed < collective->n_delivered && collective->transport->ops->flush;
}

static bool ends_batch(const struct worker *worker)
{
    return worker->collective->batch_left[worker->collective->items[worker->item].batch] == 1;
}

/* The worker's item is the last thing that the run waits for. */
static bool ends_run(const struct run *run)
{
    return run->n_taken == 1 && run->n_pending == 0 && !run->wants_padding && !run->has_failed;
}

static struct collective *find_to_flush(const struct worker *worker)
{
    if (has_unflushed(worker->collective) && ends_batch(worker))
        return worker->collective;
    for (size_t i = 0; i < worker->n_parts; i++) {
        const struct run *run = worker->parts[i].run;
        if (has_unflushed(run->options.collective) && ends_run(run))
            return run->options.collective;
    }
    return NULL;
}

static void fail_runs(struct collective *collective, const struct error *error)
{
    for (size_t i = 0; i < collective->n_runs; i++)
        if (collective->runs[i] && collective->runs[i]->stage != RUN_FINISHED)
            worker_fail_run(collective->runs[i], error);
}

static void count_staging(struct collective *collective)
{
    uint64_t bytes = __atomic_load_n(&collective->transport->staging_bytes, __ATOMIC_RELAXED);
    collective_use_temporary(collective, bytes - collective->staging_bytes, true);
    collective->staging_bytes = bytes;
}

static void flush(struct collective *collective)
{
    pthread_mutex_t *lock = &collective->engine->lock;
    size_t n_delivered = collective->n_delivered;
    struct error error;
    pthread_mutex_unlock(lock);
    int result = transport_flush(collective->transport, &error);
    pthread_mutex_lock(lock);
    count_staging(collective);
    if (collective->n_flushed < n_delivered)
        collective->n_flushed = n_delivered;
    if (result == 0)
        return;
    __atomic_store_n(&collective->has_lost_transport, true, __ATOMIC_RELEASE);
    fail_runs(collective, &error);
}

void collective_settle(struct worker *worker)
{
    struct collective *collective;
    note_deliveries(worker);
    while ((collective = find_to_flush(worker)))
        flush(collective);
}

void collective_complete(struct worker *worker)
{
    if (worker->collective)
        finish_item(worker->collective, worker->item);
    worker->collective = NULL;
}

/* --- counting ------------------------------------------------------------------------------------------------------- */

void collective_count(const struct part *part)
{
    const struct run_options *options = &part->run->options;
    struct collective *collective = options->collective;
    if (!collective)
        return;
    struct collective_counters *counters = &collective->counters;
    counters->total_ns = clock_now_ns() - collective->begun_ns;
    counters->unique_source_bytes += part->report.read_bytes;
    if (part->transport)
        counters->peer_transfer_bytes += part->placed_bytes;
    collective->needed_bytes += part->placed_bytes * options->n_sharers;
    counters->dedup_saving_bytes = collective->needed_bytes > counters->unique_source_bytes
                                       ? collective->needed_bytes - counters->unique_source_bytes
                                       : 0;
}

void collective_use_temporary(struct collective *collective, uint64_t bytes, bool begins)
{
    if (!begins) {
        __atomic_sub_fetch(&collective->temporary_bytes, bytes, __ATOMIC_RELAXED);
        return;
    }
    uint64_t now = __atomic_add_fetch(&collective->temporary_bytes, bytes, __ATOMIC_RELAXED);
    uint64_t *peak = &collective->counters.peak_temporary_bytes, seen = __atomic_load_n(peak, __ATOMIC_RELAXED);
    while (now > seen && !__atomic_compare_exchange_n(peak, &seen, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}
