/* The agenda lists the blocks of the joint plan, batch by batch; see collective.h.
 *
 *   blocks  | batch 0 ......... | batch 1 ...... | batch 2 ...
 *             done  taken  pending                              taken only from [open batch, open batch + in flight)
 *
 * A block on the border of two pieces belongs to the first one's batch: it is read once, for both. Blocks that no run needs
 * any more, because their ranks left or another load's read served them, are passed over. */
#include "execute/collective.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/state.h"
#include "execute/collective_private.h"
#include "execute/engine_private.h"

/* Of the transport's waits: far more than a batch takes on any link, little enough that a client is told. */
static const uint64_t transport_deadline_ns = 30 * (uint64_t)1000 * NS_PER_MS;

enum block_state { BLOCK_PENDING, BLOCK_TAKEN, BLOCK_DONE };

struct joint_block {
    uint64_t block, turn; /* turn: of block_place; 0 = this host reads it */
    uint32_t file, batch;
    enum block_state state; /* set_block_state() */
};

struct agenda { /* the blocks of the joint plan, by batch; metadata */
    uint64_t block_bytes;
    struct joint_block *blocks;
    size_t n_blocks, cursor; /* nothing before the cursor is pending */
    size_t *batch_left;      /* blocks that are not done */
    size_t open_batch;       /* all before it are done */
    bool is_arranged;  /* by a holder: blocks of other hosts come last in their batch, in an order of this host's own */
    size_t n_taken[2]; /* near, far */
};

struct roll {          /* who takes part */
    struct run **runs; /* NULL where one is gone */
    size_t n_runs, n_expected, n_ready, n_done, n_destroyed;
    bool has_begun;
};

struct deliveries {
    size_t n_delivered, n_flushed; /* blocks with deliveries: so many were read, so many of these are in place */
    uint64_t staging_bytes;        /* the transport's, as far as they are counted */
    pthread_mutex_t releasing;     /* the transport; taken before the engine's lock */
    bool has_lost_transport;       /* atomic */
};

struct collective {
    struct engine *engine;
    struct collective_plan *plan;
    struct transport *transport;
    struct metadata_account account; /* who created it pays for what is made later, too */
    pthread_mutex_t preparing;       /* the agenda; taken before the engine's lock */
    struct agenda agenda;            /* changed under both locks */
    struct roll roll;
    struct deliveries deliveries;
    uint64_t begun_ns;
    uint64_t temporary_bytes, needed_bytes; /* the former atomic */
    struct collective_counters counters;
};

/* --- the agenda ----------------------------------------------------------------------------------------------------- */

static void set_block_state(struct joint_block *block, enum block_state state)
{
    static const struct state_row states[] = {
        [BLOCK_PENDING] = {"pending", STATE_BIT(BLOCK_TAKEN) | STATE_BIT(BLOCK_DONE)}, /* done: no run needs it any more */
        [BLOCK_TAKEN] = {"taken", STATE_BIT(BLOCK_DONE)},
        [BLOCK_DONE] = {"done", 0}};
    static const struct state_machine machine = {"joint block", states, 3};
    state_check(&machine, block->state, state);
    block->state = state;
}

static int add_blocks(struct agenda *agenda, const struct collective_piece *piece, size_t *room, struct error *error)
{
    uint64_t width = piece->hi - piece->lo - (piece->count - 1) * piece->stride;
    struct rows rows = {piece->lo, width, piece->count, piece->stride};
    for (uint64_t at = piece->lo; at != UINT64_MAX;) {
        uint64_t block = at / agenda->block_bytes;
        const struct joint_block *last = agenda->n_blocks ? &agenda->blocks[agenda->n_blocks - 1] : NULL;
        if (!last || last->file != piece->file || last->block != block) {
            if (METADATA_RESERVE(agenda->blocks, agenda->n_blocks, *room, error) != 0)
                return -1;
            agenda->blocks[agenda->n_blocks++] =
                (struct joint_block){.block = block, .file = piece->file, .batch = piece->batch};
            agenda->batch_left[piece->batch]++;
        }
        at = rows_next(&rows, (block + 1) * agenda->block_bytes);
    }
    return 0;
}

/* From the order of the source to that of the batches. */
static int sort_blocks(struct agenda *agenda, size_t n_batches, struct error *error)
{
    size_t *next = metadata_array(n_batches + 1, sizeof *next, error);
    struct joint_block *sorted = next ? metadata_array(agenda->n_blocks, sizeof *sorted, error) : NULL;
    for (size_t batch = 0; sorted && batch < n_batches; batch++)
        next[batch + 1] = next[batch] + agenda->batch_left[batch];
    for (size_t i = 0; sorted && i < agenda->n_blocks; i++)
        sorted[next[agenda->blocks[i].batch]++] = agenda->blocks[i];
    metadata_free(next);
    if (!sorted)
        return -1;
    metadata_free(agenda->blocks);
    agenda->blocks = sorted;
    return 0;
}

static int compare_blocks(const void *a, const void *b)
{
    const struct joint_block *x = a, *y = b;
    if (x->batch != y->batch)
        return x->batch < y->batch ? -1 : 1;
    if (x->turn != y->turn)
        return x->turn < y->turn ? -1 : 1;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

/* Without memory for it they stay in the order of the source. */
static void arrange_agenda(struct agenda *agenda, const struct run *run)
{
    struct block_holder *holder = run->options.holders;
    struct block_place *places = holder->arrange ? memory_try(agenda->n_blocks * sizeof *places) : NULL;
    agenda->is_arranged = true;
    if (!places)
        return;
    for (size_t i = 0; i < agenda->n_blocks; i++)
        places[i] =
            (struct block_place){.file = agenda->blocks[i].file, .offset = agenda->blocks[i].block * agenda->block_bytes};
    holder->arrange(holder, run->options.mapping->artifact->source, places, agenda->n_blocks);
    for (size_t i = 0; i < agenda->n_blocks; i++)
        agenda->blocks[i].turn = places[i].turn;
    qsort(agenda->blocks, agenda->n_blocks, sizeof *agenda->blocks, compare_blocks);
    free(places);
}

static void free_agenda(const struct agenda *agenda)
{
    metadata_free(agenda->blocks);
    metadata_free(agenda->batch_left);
}

static int make_agenda(struct agenda *agenda, const struct collective_plan *plan, uint64_t block_bytes, struct error *error)
{
    size_t room = 0;
    *agenda = (struct agenda){.block_bytes = block_bytes};
    agenda->batch_left = metadata_array(plan->n_batches, sizeof *agenda->batch_left, error);
    int failed = agenda->batch_left ? 0 : -1;
    for (size_t i = 0; !failed && i < plan->n_pieces; i++)
        failed = add_blocks(agenda, &plan->pieces[i], &room, error);
    if (!failed && sort_blocks(agenda, plan->n_batches, error) == 0)
        return 0;
    free_agenda(agenda);
    return -1;
}

/* --- from creation to destruction ----------------------------------------------------------------------------------- */

struct collective *collective_create(struct engine *engine, struct collective_plan *plan, struct error *error)
{
    struct agenda agenda;
    if (make_agenda(&agenda, plan, engine->block_bytes, error) != 0)
        return NULL;
    struct collective *collective = memory_alloc(sizeof *collective);
    *collective = (struct collective){
        .engine = engine, .plan = collective_plan_ref(plan), .account = metadata_current(), .agenda = agenda};
    pthread_mutex_init(&collective->preparing, NULL);
    pthread_mutex_init(&collective->deliveries.releasing, NULL);
    return collective;
}

int collective_connect(struct collective *collective, const struct transport_choice *transport,
                       struct device *const *devices, struct error *error)
{
    const struct transport_options options = {collective->plan->world_size, devices, transport_deadline_ns,
                                              transport->staging_bytes};
    return transport_open(transport->ops, &options, &collective->transport, error);
}

void collective_expect(struct collective *collective, size_t n_runs)
{
    collective->roll.n_expected = n_runs;
    collective->roll.runs = memory_alloc_array(n_runs, sizeof(struct run *));
}

void collective_destroy(struct collective *collective)
{
    if (!collective)
        return;
    transport_close(collective->transport);
    pthread_mutex_destroy(&collective->preparing);
    pthread_mutex_destroy(&collective->deliveries.releasing);
    collective_plan_unref(collective->plan);
    free_agenda(&collective->agenda);
    free(collective->roll.runs);
    free(collective);
}

void run_release_transport(struct run *run)
{
    struct collective *collective = run->options.collective;
    if (!collective)
        return;
    pthread_mutex_lock(&collective->deliveries.releasing);
    pthread_mutex_lock(&collective->engine->lock);
    bool is_over = collective->roll.n_done == collective->roll.n_runs;
    pthread_mutex_unlock(&collective->engine->lock);
    if (is_over) {
        transport_close(collective->transport);
        collective->transport = NULL;
    }
    pthread_mutex_unlock(&collective->deliveries.releasing);
}

bool run_has_lost_transport(const struct run *run)
{
    const struct collective *collective = run->options.collective;
    return collective && __atomic_load_n(&collective->deliveries.has_lost_transport, __ATOMIC_ACQUIRE);
}

const struct collective_counters *run_collective_counters(const struct run *run)
{
    return run->options.collective ? &run->options.collective->counters : NULL;
}

/* --- the runs ------------------------------------------------------------------------------------------------------- */

void collective_attach(struct run *run)
{
    struct roll *roll = &run->options.collective->roll;
    roll->runs[roll->n_runs++] = run;
}

static void begin_when_ready(struct collective *collective)
{
    struct roll *roll = &collective->roll;
    if (roll->has_begun || roll->n_ready < roll->n_expected)
        return;
    roll->has_begun = true;
    collective->begun_ns = clock_now_ns();
    for (size_t i = 0; i < roll->n_runs; i++)
        if (roll->runs[i] && roll->runs[i]->stage == RUN_GATHERED)
            run_set_stage(roll->runs[i], RUN_ACTIVE);
    engine_wake(collective->engine);
}

/* Under `preparing` alone: a worker that would read the agenda waits until every run is set up. */
static int remake_agenda(struct collective *collective, const struct run *run, struct error *error)
{
    struct agenda fresh;
    if (make_agenda(&fresh, collective->plan, run->block_bytes, error) != 0)
        return -1;
    if (run->options.holders)
        arrange_agenda(&fresh, run);
    pthread_mutex_lock(&collective->engine->lock);
    if (!collective->roll.has_begun) {
        struct agenda old = collective->agenda;
        collective->agenda = fresh;
        fresh = old;
    }
    pthread_mutex_unlock(&collective->engine->lock);
    free_agenda(&fresh);
    return 0;
}

int collective_prepare(struct run *run, struct error *error)
{
    struct collective *collective = run->options.collective;
    struct metadata_account before = metadata_enter(collective->account);
    pthread_mutex_lock(&collective->preparing);
    int failed = 0;
    if (collective->agenda.block_bytes != run->block_bytes || (run->options.holders && !collective->agenda.is_arranged))
        failed = remake_agenda(collective, run, error);
    pthread_mutex_unlock(&collective->preparing);
    metadata_enter(before);
    return failed;
}

void collective_gather(struct run *run)
{
    struct collective *collective = run->options.collective;
    run_set_stage(run, RUN_GATHERED);
    run->has_gathered = true;
    collective->roll.n_ready++;
    begin_when_ready(collective);
}

void collective_lose(struct run *run)
{
    const struct roll *roll = &run->options.collective->roll;
    bool is_unwanted = roll->has_begun;
    for (size_t i = 0; i < roll->n_runs && is_unwanted; i++) {
        const struct run *other = roll->runs[i];
        is_unwanted = !other || other->has_failed || other->stage == RUN_FINISHED;
    }
    if (is_unwanted)
        __atomic_store_n(&run->options.collective->transport->is_unwanted, true, __ATOMIC_RELAXED);
}

void collective_part_with(struct run *run)
{
    struct collective *collective = run->options.collective;
    collective->roll.n_done++;
    if (run->has_gathered)
        return;
    run->has_gathered = true;
    collective->roll.n_expected--;
    begin_when_ready(collective);
}

struct collective *collective_detach(struct run *run)
{
    struct roll *roll = &run->options.collective->roll;
    for (size_t i = 0; i < roll->n_runs; i++)
        if (roll->runs[i] == run)
            roll->runs[i] = NULL;
    return ++roll->n_destroyed == roll->n_runs && roll->has_begun ? run->options.collective : NULL;
}

/* --- taking and completing blocks ----------------------------------------------------------------------------------- */

static void finish_block(struct collective *collective, size_t i)
{
    struct agenda *agenda = &collective->agenda;
    const size_t before = agenda->open_batch;
    agenda->n_taken[agenda->blocks[i].turn > 0] -= agenda->blocks[i].state == BLOCK_TAKEN;
    set_block_state(&agenda->blocks[i], BLOCK_DONE);
    agenda->batch_left[agenda->blocks[i].batch]--;
    while (agenda->open_batch < collective->plan->n_batches && agenda->batch_left[agenda->open_batch] == 0)
        agenda->open_batch++;
    collective->counters.batch_count = agenda->open_batch;
    if (agenda->open_batch > before)
        engine_wake(collective->engine);
}

static size_t pending_need(const struct run *run, const struct joint_block *block)
{
    if (!run || run->stage != RUN_ACTIVE || run->has_failed)
        return SIZE_MAX;
    size_t need = scan_find_need(run, block->file, block->block);
    return need != SIZE_MAX && run->needs.list[need].state == NEED_PENDING ? need : SIZE_MAX;
}

/* A run that still needs the block, its owner's if that one does. */
static struct run *find_reader(const struct collective *collective, const struct joint_block *block, size_t *need)
{
    struct run *found = NULL;
    uint32_t leader = collective->plan->leaders[collective->plan->batches[block->batch].owner];
    for (size_t i = 0; i < collective->roll.n_runs; i++) {
        struct run *run = collective->roll.runs[i];
        size_t own = pending_need(run, block);
        if (own == SIZE_MAX || (found && run->options.rank != leader))
            continue;
        found = run;
        *need = own;
        if (found->options.rank == leader)
            break;
    }
    return found;
}

static bool take_block(struct collective *collective, size_t i, struct item *item)
{
    size_t need = SIZE_MAX;
    struct run *run = find_reader(collective, &collective->agenda.blocks[i], &need);
    if (!run) {
        finish_block(collective, i);
        return false;
    }
    if (!scan_is_takeable(run, need)) /* another load is at it: its bytes will be there to copy */
        return false;
    set_block_state(&collective->agenda.blocks[i], BLOCK_TAKEN);
    collective->agenda.n_taken[collective->agenda.blocks[i].turn > 0]++;
    scan_take_need(run, need, item);
    item->collective = collective;
    item->collective_block = i;
    const struct collective_plan *plan = collective->plan;
    uint32_t owner = plan->leaders[plan->batches[collective->agenda.blocks[i].batch].owner];
    for (size_t p = 0; p < item->n_parts; p++) {
        struct part *part = &item->parts[p];
        bool is_peer = part->run->options.collective == collective && part->run->options.rank != owner;
        part->transport = is_peer ? collective->transport : NULL;
        part->owner = owner;
    }
    return true;
}

static bool is_open(const struct collective *collective, size_t i)
{
    const struct agenda *agenda = &collective->agenda;
    return agenda->blocks[i].batch < agenda->open_batch + collective->plan->max_inflight_batches;
}

bool collective_take(struct collective *collective, struct item *item)
{
    struct agenda *agenda = &collective->agenda;
    while (agenda->cursor < agenda->n_blocks && agenda->blocks[agenda->cursor].state != BLOCK_PENDING)
        agenda->cursor++;
    /* of the kind that fewer workers are at, as scan_take() does */
    bool is_far = agenda->is_arranged && agenda->n_taken[false] > agenda->n_taken[true];
    for (int kind = 0; kind < 1 + agenda->is_arranged; kind++, is_far = !is_far)
        for (size_t i = agenda->cursor; i < agenda->n_blocks && is_open(collective, i); i++)
            if (agenda->blocks[i].state == BLOCK_PENDING && (agenda->blocks[i].turn > 0) == is_far &&
                take_block(collective, i, item))
                return true;
    return false;
}

bool collective_is_exhausted(const struct collective *collective)
{
    const struct agenda *agenda = &collective->agenda;
    size_t i = agenda->cursor;
    while (i < agenda->n_blocks && agenda->blocks[i].state != BLOCK_PENDING)
        i++;
    return i == agenda->n_blocks;
}

/* --- flushing ------------------------------------------------------------------------------------------------------- */

static bool has_unflushed(const struct collective *collective)
{
    const struct deliveries *deliveries = &collective->deliveries;
    return deliveries->n_flushed < deliveries->n_delivered && collective->transport->ops->flush;
}

/* Whose deliveries are to be flushed: the item is the last of its batch, or the last thing that a run waits for. */
static struct collective *find_to_flush(const struct item *item)
{
    struct collective *collective = item->collective;
    if (collective && has_unflushed(collective)) {
        const struct agenda *agenda = &collective->agenda;
        if (agenda->batch_left[agenda->blocks[item->collective_block].batch] == 1)
            return collective;
    }
    for (size_t i = 0; i < item->n_parts; i++) {
        const struct run *run = item->parts[i].run;
        bool ends_run = run->n_taken == 1 && run->needs.n_pending == 0 && !run->has_failed;
        if (ends_run && run->options.collective && has_unflushed(run->options.collective))
            return run->options.collective;
    }
    return NULL;
}

static void flush_deliveries(struct collective *collective, void (*fail_run)(struct run *run, const struct error *error))
{
    struct deliveries *deliveries = &collective->deliveries;
    pthread_mutex_t *lock = &collective->engine->lock;
    size_t n_delivered = deliveries->n_delivered;
    struct error error;
    pthread_mutex_unlock(lock);
    int result = transport_flush(collective->transport, &error);
    pthread_mutex_lock(lock);
    uint64_t staging_bytes = __atomic_load_n(&collective->transport->staging_bytes, __ATOMIC_RELAXED);
    collective_use_temporary(collective, staging_bytes - deliveries->staging_bytes, true);
    deliveries->staging_bytes = staging_bytes;
    if (deliveries->n_flushed < n_delivered)
        deliveries->n_flushed = n_delivered;
    if (result == 0)
        return;
    __atomic_store_n(&deliveries->has_lost_transport, true, __ATOMIC_RELEASE);
    for (size_t i = 0; i < collective->roll.n_runs; i++)
        if (collective->roll.runs[i])
            fail_run(collective->roll.runs[i], &error);
}

void collective_settle(struct item *item, void (*fail_run)(struct run *run, const struct error *error))
{
    struct collective *collective = item->collective;
    for (size_t i = 0; collective && i < item->n_parts; i++)
        if (item->parts[i].transport) {
            collective->deliveries.n_delivered++;
            break;
        }
    while ((collective = find_to_flush(item)))
        flush_deliveries(collective, fail_run);
}

void collective_complete(struct item *item)
{
    if (item->collective)
        finish_block(item->collective, item->collective_block);
    item->collective = NULL;
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
    double placed_bytes = (double)part->placed_bytes * part->run->account.source_share;
    collective->needed_bytes += (uint64_t)(placed_bytes + 0.5) * options->n_sharers;
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
