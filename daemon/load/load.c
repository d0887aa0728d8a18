/* In the order of a load's life. Whatever fails puts its error into load->error; end_load() then undoes reservation, memory
 * and run. */
#include "load/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "execute/calibration.h"
#include "load/load_log.h"
#include "observe/counters.h"

/* --- states --------------------------------------------------------------------------------------------------------- */

static const struct state_row load_states[LOAD_STATES] = {
    [LOAD_PREPARED] = {"prepared", STATE_BIT(LOAD_RUNNING)},
    [LOAD_RUNNING] = {"running", STATE_BIT(LOAD_PARKED) | STATE_BIT(LOAD_COMMITTING) | STATE_BIT(LOAD_ABANDONED)},
    [LOAD_PARKED] = {"parked", STATE_BIT(LOAD_COMMITTING) | STATE_BIT(LOAD_ABANDONED)},
    [LOAD_COMMITTING] = {"committing", STATE_BIT(LOAD_DISCARDING) | STATE_BIT(LOAD_ENDED)},
    [LOAD_ABANDONED] = {"abandoned", STATE_BIT(LOAD_DISCARDING)},
    [LOAD_DISCARDING] = {"discarding", STATE_BIT(LOAD_ENDED)},
    [LOAD_ENDED] = {"ended", 0},
};
const struct state_machine load_machine = {"load", load_states, LOAD_STATES};

static void set_load_state(struct load *load, enum load_state state)
{
    state_check(&load_machine, load->state, state);
    load->state = state;
}

/* --- memory --------------------------------------------------------------------------------------------------------- */

/* The budget is charged before memory is asked for; page rounding is only known afterwards. A client's memory is not ours to
 * count. */
static int take_memory(struct load *load, struct device_region *region, struct error *error)
{
    struct replica *parts = &load->parts;
    struct replica_table *replicas = load->target.replicas;
    uint64_t bytes = parts->mapping->replica_bytes;
    if (region)
        return device_adopt(load->target.device, bytes, region, &parts->segment, error);
    parts->descriptors =
        (struct quota_charge){.quota = load->table->services->quota, .kind = QUOTA_DESCRIPTORS, .uid = parts->uid};
    if (quota_charge_add(&parts->descriptors, 1, error) != 0 || replica_reserve(replicas, parts->uid, bytes, error) != 0)
        return -1;
    parts->charged_bytes = bytes;
    if (device_allocate(load->target.device, bytes, &parts->segment, error) != 0)
        return -1;
    uint64_t rounding = parts->segment->allocated_bytes - bytes;
    if (replica_reserve(replicas, parts->uid, rounding, error) != 0)
        return -1;
    parts->charged_bytes += rounding;
    return 0;
}

struct load *load_create(struct load_table *table, struct preparation *prep, struct error *error)
{
    struct device_region *region = prep->region;
    if (prep->is_lent && !region) {
        fail(error, ERROR_ABORTED, "REGION_LOST",
             "the client's memory was closed by a load that failed before; the content is undefined, ask again");
        return NULL;
    }
    struct load *load = memory_alloc(sizeof *load);
    *load = (struct load){
        .table = table,
        .uid = prep->uid,
        .lane = prep->resolved.lane,
        .target = prep->resolved.target,
        .parts = {.uid = prep->uid, .key = prepare_key(prep), .mapping = prep->resolved.mapping, .plan = prep->planned.plan},
        .verify = prep->config->sources.verify,
        .is_of_group = prepare_is_of_group(prep),
        .lanes = lanes_create(),
        .started_ns = clock_now_ns()};
    memcpy(load->id, prep->member.holder, sizeof load->id);
    prep->resolved.mapping = NULL;
    prep->planned.plan = NULL;
    prep->region = NULL;
    if (take_memory(load, region, error) == 0)
        return load;
    load_give_back(load, prep);
    return NULL;
}

static void drop_memory(struct load *load)
{
    segment_unref(load->parts.segment);
    quota_charge_end(&load->parts.descriptors);
    replica_unreserve(load->target.replicas, load->parts.uid, load->parts.charged_bytes);
}

bool load_give_back_region(struct load *load, struct preparation *prep)
{
    if (!prep->is_lent)
        return true;
    prep->region = load->parts.segment ? segment_disown(load->parts.segment) : NULL;
    load->parts.segment = NULL;
    return prep->region != NULL;
}

void load_give_back(struct load *load, struct preparation *prep)
{
    prep->resolved.mapping = load->parts.mapping;
    prep->planned.plan = load->parts.plan;
    load_give_back_region(load, prep);
    drop_memory(load);
    lanes_unref(load->lanes);
    free(load);
}

/* --- who waits ------------------------------------------------------------------------------------------------------ */

struct load *load_find(const struct load_table *table, const struct preparation *prep)
{
    struct replica_key key = prepare_key(prep);
    bool is_alone = prep->is_lent || prep->resolved.spec.memory == MEMORY_MAPPED;
    for (struct load *load = table->loads; load && !is_alone; load = load->next) {
        bool is_wanted = load->state != LOAD_ABANDONED && load->state != LOAD_DISCARDING;
        if (is_wanted && !segment_is_lent(load->parts.segment) && replica_key_equal(&load->parts.key, &key))
            return load;
    }
    return NULL;
}

void load_join(struct load *load, struct load_waiter *waiter)
{
    waiter->load = load;
    waiter->next = load->waiters;
    load->waiters = waiter;
}

void load_leave(struct load_waiter *waiter)
{
    struct load *load = waiter->load;
    struct load_waiter **at = &load->waiters, *heir;
    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    waiter->load = NULL;
    for (heir = load->waiters; heir && heir->uid != load->parts.uid; heir = heir->next)
        ;
    if (load->waiters && !heir) { /* its user has left: the memory is charged to a user that still waits for it */
        replica_hand_on(load->target.replicas, load->parts.uid, load->waiters->uid, load->parts.charged_bytes);
        load->parts.uid = load->waiters->uid;
    }
    if (load->waiters)
        return;
    set_load_state(load, load->state == LOAD_COMMITTING ? LOAD_DISCARDING : LOAD_ABANDONED);
    if (load->state == LOAD_ABANDONED)
        run_cancel(load->parts.run);
}

void load_say_why_cancelled(const struct load_table *table, struct error *error)
{
    if (table->services->cut_off)
        *error = *table->services->cut_off;
    else
        fail(error, ERROR_CANCELLED, "CLIENT_LEFT", "the client cancelled, disconnected or passed its deadline");
}

/* --- the run -------------------------------------------------------------------------------------------------------- */

static bool asks_hosts(const struct load *load)
{
    return load->parts.plan->hosts.way == HOSTS_OWNER_PEERS;
}

static void on_run_done(struct run *run, void *data, const struct error *error)
{
    struct load *load = data;
    const struct load_services *services = load->table->services;
    load->at.done_ns = clock_now_ns();
    const struct source_caps *source = &load->parts.mapping->artifact->source->caps;
    bool is_of_host = load->target.device == services->targets->list[LOAD_TARGET_HOST].device;
    if (error) {
        load->error = *error;
        load->has_lost_transport = run_has_lost_transport(run);
    } else if (is_of_host && !load->shared_the_host && !asks_hosts(load) && !source->tells_speed) {
        calibration_learn(services->calibration, source->device_id, run_report(run));
    }
    if (load->team_events)
        load->team_events->run_done(load->team, load);
    else
        load_commit(load);
}

void load_start(struct load *load, struct collective *collective, uint32_t rank, uint32_t n_sharers)
{
    struct load_table *table = load->table;
    struct run_options options = {.mapping = load->parts.mapping,
                                  .plan = load->parts.plan,
                                  .segment = load->parts.segment,
                                  .done = on_run_done,
                                  .data = load,
                                  .holders = asks_hosts(load) ? table->services->hosts.holder : NULL,
                                  .lanes = load->lanes,
                                  .uid = load->uid,
                                  .is_unverified = load->verify == VERIFY_NONE,
                                  .is_of_group = load->is_of_group,
                                  .collective = collective,
                                  .rank = rank,
                                  .n_sharers = n_sharers};
    load->shared_the_host = table->loads != NULL;
    for (struct load *other = table->loads; other; other = other->next)
        other->shared_the_host = true;
    load->next = table->loads;
    table->loads = load;
    set_load_state(load, LOAD_RUNNING);
    load->at.running_ns = clock_now_ns();
    load->parts.run = run_start(table->services->engine, &options);
}

void load_park(struct load *load)
{
    if (load->state == LOAD_RUNNING)
        set_load_state(load, LOAD_PARKED);
}

struct load_info load_describe(const struct load *load)
{
    struct run_spent spent;
    enum cause largest = 0;
    bool is_committed = load->state == LOAD_COMMITTING || load->state == LOAD_DISCARDING;
    struct load_info info = {.id = load->id,
                             .artifact = load->parts.mapping->artifact->reference,
                             .stage = is_committed ? "commit" : "read",
                             .uid = load->uid,
                             .done_bytes = run_done_bytes(load->parts.run),
                             .total_bytes = load->parts.mapping->view_bytes,
                             .age_ns = clock_now_ns() - load->started_ns};
    for (const struct load_waiter *waiter = load->waiters; waiter; waiter = waiter->next) {
        info.n_tickets++;
        info.uid = waiter->uid;
        info.pid = waiter->pid;
        info.rank = waiter->world_size ? waiter->rank : info.rank;
        info.world_size = waiter->world_size ? waiter->world_size : info.world_size;
    }
    run_waits_for(load->parts.run, info.waiting_for);
    run_spent(load->parts.run, &spent);
    for (enum cause cause = 0; cause < CAUSES; cause++)
        largest = spent.ns[cause] > spent.ns[largest] ? cause : largest;
    info.waited_for = cause_names[largest];
    return info;
}

void load_trace(const struct load *load, struct trace *trace)
{
    const struct load_times_of_run *at = &load->at;
    struct run_spent spent;
    if (!load->parts.run)
        return;
    run_spent(load->parts.run, &spent);
    trace_add_run(trace, &spent, load->lanes);
    trace_enter(trace, TRACE_EXECUTE, at->running_ns);
    if (at->done_ns && load->team_events)
        trace_enter(trace, TRACE_GROUP, at->done_ns); /* until the others were done */
    if (at->commit_ns)
        trace_enter(trace, TRACE_QUEUE, at->commit_ns);
    if (at->committing_ns)
        trace_enter(trace, TRACE_COMMIT, at->committing_ns);
}

/* --- commit --------------------------------------------------------------------------------------------------------- */

static bool is_discarded(void *data)
{
    return ((const struct load *)data)->state == LOAD_DISCARDING;
}

static void commit_on_helper(struct loop_work *work)
{
    struct load *load = (struct load *)work;
    struct replica *parts = &load->parts;
    const struct cancel cancel = {is_discarded, load};
    const struct verify_options options = {.mapping = parts->mapping,
                                           .segment = parts->segment,
                                           .run = parts->run,
                                           .holders = asks_hosts(load) ? load->table->services->hosts.holder : NULL,
                                           .policy = load->verify,
                                           .cancel = &cancel,
                                           .uid = load->uid,
                                           .load_id = load->id};
    bool has_failed = load->error.code != ERROR_OK;
    bool was_given_up = load->error.code == ERROR_CANCELLED || load->error.code == ERROR_UNAVAILABLE;
    struct error error;
    load->at.committing_ns = clock_now_ns();
    run_release_transport(parts->run); /* before a client is given the memory */
    if (was_given_up)
        return; /* perhaps since the files' server does not answer */
    /* what was changed is told also instead of what that made of the read */
    if (artifact_check_unchanged(parts->mapping->artifact, &error) != 0)
        load->error = error;
    else if (!has_failed &&
             (verify_load(&options, &parts->verdict, &error) != 0 || device_seal(parts->segment, &error) != 0))
        load->error = error;
}

/* Publishes or undoes, then ends all waits. The table's pin from replica_add() outlives them. */
static void end_load(struct load *load)
{
    const struct error *error = load->error.code == ERROR_OK ? NULL : &load->error;
    struct replica *replica = NULL;
    struct load **at = &load->table->loads;
    set_load_state(load, LOAD_ENDED);
    while (*at != load)
        at = &(*at)->next;
    *at = load->next;
    load_log_run(load->id, &load->parts, error);
    if (!error) {
        counters_add(counters_find(COUNTER_RUNS, executor_names[load->parts.plan->executor]), 1);
        counters_add(counters_find(COUNTER_VERDICTS, verified_name(load->parts.verdict.status)), 1);
        counters_add(COUNTER_HEALED, load->parts.verdict.healed);
        replica = replica_add(load->target.replicas, &load->parts);
    }
    while (load->waiters) {
        struct load_waiter *waiter = load->waiters;
        load->waiters = waiter->next;
        waiter->load = NULL;
        waiter->ended(waiter, load, replica);
    }
    if (replica) {
        replica_unpin(replica, replica->uid);
    } else {
        run_destroy(load->parts.run);
        plan_destroy(load->parts.plan);
        mapping_destroy(load->parts.mapping);
        drop_memory(load);
    }
    if (load->team_events)
        load->team_events->ended(load->team);
    lanes_unref(load->lanes);
    free(load);
}

/* A load whose last client left while it was sealed publishes nothing, either. */
static void on_committed(struct loop_work *work)
{
    struct load *load = (struct load *)work;
    if (load->state == LOAD_DISCARDING && load->error.code == ERROR_OK)
        load_say_why_cancelled(load->table, &load->error);
    end_load(load);
}

void load_commit(struct load *load)
{
    set_load_state(load, load->state == LOAD_ABANDONED ? LOAD_DISCARDING : LOAD_COMMITTING);
    load->work = (struct loop_work){.do_work = commit_on_helper, .done = on_committed, .uid = load->uid};
    load->at.commit_ns = clock_now_ns();
    source_place_work(load->parts.mapping->artifact->reference, &load->work);
    load->work.lane |= load->lane;
    loop_continue(load->table->services->loop, &load->work);
}
