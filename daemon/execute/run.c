/* The end of a run has one place, run_settle(), and its stage one setter; see run.h. */
#include "execute/run.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/state.h"
#include "execute/collective_private.h"
#include "execute/engine_private.h"
#include "execute/io_device.h"
#include "execute/remote_pool.h"
#include "execute/turns.h"

static const struct state_row stages[RUN_N_STAGES] = {
    [RUN_NEW] = {"new", STATE_BIT(RUN_SETUP) | STATE_BIT(RUN_ENDING) | STATE_BIT(RUN_FINISHED)},
    [RUN_SETUP] = {"setup", STATE_BIT(RUN_GATHERED) | STATE_BIT(RUN_ACTIVE)},
    [RUN_GATHERED] = {"gathered", STATE_BIT(RUN_ACTIVE) | STATE_BIT(RUN_ENDING) | STATE_BIT(RUN_FINISHED)},
    [RUN_ACTIVE] = {"active", STATE_BIT(RUN_ENDING) | STATE_BIT(RUN_FINISHED)},
    [RUN_ENDING] = {"ending", STATE_BIT(RUN_FINISHED)},
    [RUN_FINISHED] = {"finished", 0},
};
static const struct state_machine stage_machine = {"run", stages, RUN_N_STAGES};

void run_set_stage(struct run *run, enum run_stage stage)
{
    state_check(&stage_machine, run->stage, stage);
    run->stage = stage;
}

bool run_is_over(const struct run *run)
{
    return run->n_taken == 0 && (run->has_failed || (run->stage >= RUN_GATHERED && run->needs.n_pending == 0));
}

bool run_wants_ending(const struct run *run)
{
    const struct destination *destination = run->destination;
    bool has_way = run->has_failed ? destination->ops->abandon != NULL : destination->ops->finish != NULL;
    return destination->has_ending && has_way && run->stage < RUN_ENDING && run_is_over(run);
}

/* Every byte of the view was placed once, wherever it went. */
static void check_account(struct run *run)
{
    uint64_t placed = run->account.placed_bytes, wanted = run->options.mapping->view_bytes;
    if (!run->has_failed && placed != wanted)
        run->has_failed =
            fail(&run->error, ERROR_INTERNAL, "BYTES_UNACCOUNTED",
                 "%" PRIu64 " of %" PRIu64 " bytes are in place: the plan does not cover the view", placed, wanted) != 0;
}

void run_settle(struct run *run)
{
    if (run->stage == RUN_FINISHED || !run_is_over(run))
        return;
    check_account(run);
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

void run_fail(struct run *run, const struct error *error)
{
    if (run->stage == RUN_FINISHED || run->has_failed)
        return;
    run->error = *error;
    run->has_failed = true;
    if (run->options.collective)
        collective_lose(run);
    if (run->origin)
        remote_pool_interrupt(run->engine);
    else
        crew_interrupt(&run->engine->crew); /* reads that another process makes can be given up, see source/disk */
    run_settle(run);
}

void run_add_report(struct run *run, const struct run_report *part, uint64_t placed_bytes)
{
    struct run_report *sum = &run->account.report;
    sum->read_bytes += part->read_bytes;
    sum->requests += part->requests;
    sum->cached_bytes += part->cached_bytes;
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
}

void run_finish_need(struct run *run, size_t need)
{
    set_need_state(&run->needs.list[need], NEED_DONE);
}
