/* The end of a run has one place, run_settle(), and its stage one setter; see run.h. */
#include "execute/run.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "blocks/blocks.h"
#include "execute/collective_private.h"
#include "execute/engine_private.h"
#include "execute/io_device.h"
#include "execute/remote_pool.h"
#include "execute/turns.h"
#include "observe/counters.h"
#include "plan/rows.h"

static const struct state_row stages[RUN_N_STAGES] = {
    [RUN_NEW] = {"new", STATE_BIT(RUN_SETUP) | STATE_BIT(RUN_ENDING) | STATE_BIT(RUN_FINISHED)},
    [RUN_SETUP] = {"setup", STATE_BIT(RUN_GATHERED) | STATE_BIT(RUN_ACTIVE)},
    [RUN_GATHERED] = {"gathered", STATE_BIT(RUN_ACTIVE) | STATE_BIT(RUN_ENDING) | STATE_BIT(RUN_FINISHED)},
    [RUN_ACTIVE] = {"active", STATE_BIT(RUN_ENDING) | STATE_BIT(RUN_FINISHED)},
    [RUN_ENDING] = {"ending", STATE_BIT(RUN_FINISHED)},
    [RUN_FINISHED] = {"finished", 0},
};
const struct state_machine run_machine = {"run", stages, RUN_N_STAGES};

/* Nothing of it is pending or in flight. */
static bool is_run_over(const struct run *run)
{
    return run->n_taken == 0 && (run->has_failed || (run->stage >= RUN_GATHERED && run->needs.n_pending == 0));
}

bool run_wants_ending(const struct run *run)
{
    const struct destination *destination = run->destination;
    bool has_way = run->has_failed ? destination->ops->abandon != NULL : destination->ops->finish != NULL;
    return destination->has_ending && has_way && run->stage < RUN_ENDING && is_run_over(run);
}

void run_settle(struct run *run)
{
    if (run->stage == RUN_FINISHED || !is_run_over(run))
        return;
    uint64_t placed = run->account.placed_bytes, wanted = run->options.mapping->view_bytes;
    if (!run->has_failed && placed != wanted) /* every byte of the view is placed once, wherever it goes */
        run->has_failed =
            fail(&run->error, ERROR_INTERNAL, "BYTES_UNACCOUNTED",
                 "%" PRIu64 " of %" PRIu64 " bytes are in place: the plan does not cover the view", placed, wanted) != 0;
    if (run_wants_ending(run)) {
        engine_wake(run->engine);
        return;
    }
    turns_remove(run);
    io_device_detach(run);
    run_set_stage(run, RUN_FINISHED);
    if (run->options.collective)
        collective_part_with(run);
    run->account.report.execute_ns = clock_now_ns() - run->account.started_ns;
    loop_post(run->engine->loop, &run->task);
}

/* Tells reads of blocks that no run needs any more to end where they can: a store's, and those that another process makes
 * (source/disk). */
static void interrupt_reads(struct crew *crew)
{
    for (size_t i = 0; i < crew->n; i++) {
        struct item *item = &crew->workers[i].item;
        bool is_needed = item->kind != ITEM_BLOCK;
        for (size_t p = 0; !is_needed && p < item->n_parts; p++)
            is_needed = !item->parts[p].run->has_failed;
        if (!is_needed)
            __atomic_store_n(&item->should_stop, true, __ATOMIC_RELAXED);
    }
}

void run_fail(struct run *run, const struct error *error)
{
    if (run->stage == RUN_FINISHED || run->has_failed)
        return;
    run->error = *error;
    run->has_failed = true;
    if (run->options.collective)
        collective_lose(run);
    interrupt_reads(run->origin ? &run->engine->remote.crew : &run->engine->crew);
    if (run->origin)
        pthread_cond_broadcast(&run->engine->remote.window_free);
    run_settle(run);
}

void run_add_report(struct run *run, const struct run_report *part, uint64_t placed_bytes)
{
    struct run_report *sum = &run->account.report;
    counters_add(counters_find(COUNTER_READ_BYTES, run->options.mapping->artifact->source->ops->name), part->read_bytes);
    counters_add(COUNTER_READ_REQUESTS, part->requests);
    counters_add(COUNTER_CACHED_BYTES, part->cached_bytes);
    counters_add(COUNTER_SHARED_BYTES, part->shared_bytes);
    counters_add(COUNTER_PEER_BYTES, part->peer_bytes);
    counters_add(COUNTER_HEDGED_BYTES, part->hedged_bytes);
    counters_add(COUNTER_DIRECT_BYTES, part->direct_bytes);
    counters_add(COUNTER_COPIED_BYTES, part->copied_bytes);
    sum->read_bytes += part->read_bytes;
    sum->requests += part->requests;
    sum->cached_bytes += part->cached_bytes;
    sum->hedged_bytes += part->hedged_bytes;
    sum->peer_bytes += part->peer_bytes;
    sum->shared_bytes += part->shared_bytes;
    sum->direct_bytes += part->direct_bytes;
    sum->copied_bytes += part->copied_bytes;
    sum->filled_bytes += part->filled_bytes;
    sum->read_ns += part->read_ns;
    sum->copy_ns += part->copy_ns;
    sum->prepare_ns += part->prepare_ns;
    if (part->peak_temporary_bytes > sum->peak_temporary_bytes)
        sum->peak_temporary_bytes = part->peak_temporary_bytes;
    run->account.placed_bytes += placed_bytes;
}

static void set_need_state(struct need *need, enum need_state state)
{
    static const struct state_row states[] = {[NEED_PENDING] = {"pending", STATE_BIT(NEED_TAKEN)},
                                              [NEED_TAKEN] = {"taken", STATE_BIT(NEED_DONE)},
                                              [NEED_DONE] = {"done", 0}};
    static const struct state_machine machine = {"need", states, 3};
    state_check(&machine, need->state, state);
    need->state = state;
}

void run_take_need(struct run *run, size_t need)
{
    set_need_state(&run->needs.list[need], NEED_TAKEN);
    run->needs.n_pending--;
    run->needs.n_taken[run->needs.list[need].is_far]++;
}

void run_finish_need(struct run *run, size_t need)
{
    set_need_state(&run->needs.list[need], NEED_DONE);
}

/* --- the needs of a run: walks the plan's steps block by block, then counts what the mapping wants of each. Only blocks with
 * something to read are listed: files may be sparse and far larger than what is wanted of them --- */

static int add_step(struct run_needs *needs, size_t *room, const struct plan_step *step, uint64_t block_bytes,
                    struct error *error)
{
    struct rows rows = rows_of_step(step);
    for (uint64_t at = rows.offset; at != UINT64_MAX;) {
        uint64_t block = at / block_bytes, end = (block + 1) * block_bytes;
        struct need *last = needs->n ? &needs->list[needs->n - 1] : NULL;
        if (!last || last->file != step->file || last->block != block) {
            if (METADATA_RESERVE(needs->list, needs->n, *room, error) != 0)
                return -1;
            last = &needs->list[needs->n++];
            *last = (struct need){.block = block, .file = step->file};
        }
        last->read_bytes += (uint32_t)rows_within(&rows, at, end);
        at = rows_next(&rows, end);
    }
    return 0;
}

/* Needs and what is to be read are both in file order; a transfer's first block is at or after that of the one before. */
static size_t count_wanted(struct run_needs *needs, const struct transfer *wanted, size_t first, uint64_t block_bytes)
{
    struct need *list = needs->list;
    struct rows rows = rows_of_transfer(wanted);
    uint64_t end = rows_end(&rows);
    while (first < needs->n && (list[first].file < wanted->file ||
                                (list[first].file == wanted->file && (list[first].block + 1) * block_bytes <= rows.offset)))
        first++;
    for (size_t i = first; i < needs->n && list[i].file == wanted->file; i++) {
        uint64_t lo = list[i].block * block_bytes;
        if (lo >= end)
            break;
        list[i].wanted_bytes += (uint32_t)rows_within(&rows, lo, lo + block_bytes);
    }
    return first;
}

int run_build_needs(struct run_needs *needs, const struct plan *plan, const struct mapping *mapping, uint64_t block_bytes,
                    struct error *error)
{
    size_t room = 0, first = 0;
    for (size_t i = 0; i < plan->n_steps; i++)
        if (add_step(needs, &room, &plan->steps[i], block_bytes, error) != 0) {
            needs->n = 0;
            return -1;
        }
    for (size_t file = 0; file < mapping->artifact->source->n_files; file++) {
        struct mapping_reads reads = mapping_reads(mapping, file);
        for (size_t i = 0; i < reads.n; i++)
            first = count_wanted(needs, &reads.list[i], first, block_bytes);
    }
    return 0;
}

struct far_turn {
    uint64_t turn;
    uint32_t need;
};

static int compare_turns(const void *a, const void *b)
{
    const struct far_turn *x = a, *y = b;
    return x->turn != y->turn ? (x->turn > y->turn) - (x->turn < y->turn) : (x->need > y->need) - (x->need < y->need);
}

void run_find_far(struct run *run)
{
    struct run_needs *needs = &run->needs;
    struct block_holder *holder = run->options.holders;
    if (!holder || !holder->arrange || needs->n == 0)
        return;
    struct block_place *places = memory_try(needs->n * sizeof *places);
    struct far_turn *turns = memory_try(needs->n * sizeof *turns);
    needs->far = memory_try(needs->n * sizeof *needs->far);
    for (size_t i = 0; places && i < needs->n; i++)
        places[i] = (struct block_place){.file = needs->list[i].file, .offset = needs->list[i].block * run->block_bytes};
    if (places && turns && needs->far) { /* else they are taken in the order of the file */
        quota_charge_force(&needs->charge, needs->n * sizeof *needs->far);
        holder->arrange(holder, run->options.mapping->artifact->source, places, needs->n);
        for (size_t i = 0; i < needs->n; i++) {
            needs->list[i].is_far = places[i].turn > 0;
            if (places[i].turn > 0)
                turns[needs->n_far++] = (struct far_turn){places[i].turn, (uint32_t)i};
        }
        qsort(turns, needs->n_far, sizeof *turns, compare_turns);
        for (size_t i = 0; i < needs->n_far; i++)
            needs->far[i] = turns[i].need;
    }
    free(turns);
    free(places);
}
