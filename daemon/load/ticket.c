/* In the order of a request's way; README.md has the names. Whatever fails carries an error to ticket_finish(). */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/memory.h"
#include "calibration/calibration.h"
#include "load/group.h"
#include "load/load_log.h"
#include "load/ticket_private.h"
#include "observe/log.h"

static struct ticket *ticket_of_waiter(struct load_waiter *waiter)
{
    return (struct ticket *)((char *)waiter - offsetof(struct ticket, waiter));
}

/* What a request does next, in the order in which it may come to that. */
static void resolve_on_helper(struct loop_work *work);
static void on_resolved(struct loop_work *work);
static bool refuse_reading(struct ticket *ticket);
static void load_alone(struct ticket *ticket);
static void serve_ticket(struct ticket *ticket, struct replica *replica, enum load_origin origin);
static void serve_files(struct ticket *ticket);
static void tell_progress(struct pending *pending);
static const struct load_waiter_events waiter_events;

/* --- states --------------------------------------------------------------------------------------------------------- */

enum { ENDS = STATE_BIT(TICKET_LEAVING) | STATE_BIT(TICKET_DONE), PLANNED_ALONE = STATE_BIT(TICKET_PLANNING_ALONE) };

static const struct state_row ticket_states[TICKET_STATES] = {
    [TICKET_CREATED] = {"created", STATE_BIT(TICKET_RESOLVING)},
    [TICKET_RESOLVING] = {"resolving", STATE_BIT(TICKET_PLANNING) | STATE_BIT(TICKET_WAITING) | ENDS},
    [TICKET_PLANNING] = {"planning", STATE_BIT(TICKET_ASSEMBLING) | STATE_BIT(TICKET_WAITING) | ENDS},
    [TICKET_ASSEMBLING] = {"assembling", STATE_BIT(TICKET_ECHO) | STATE_BIT(TICKET_PLANNING_JOINTLY) | PLANNED_ALONE | ENDS},
    [TICKET_ECHO] = {"echo", STATE_BIT(TICKET_ASSEMBLING) | PLANNED_ALONE | STATE_BIT(TICKET_WAITING) | ENDS},
    [TICKET_PLANNING_JOINTLY] = {"planning jointly", PLANNED_ALONE | STATE_BIT(TICKET_WAITING) | ENDS},
    [TICKET_PLANNING_ALONE] = {"planning alone", STATE_BIT(TICKET_WAITING) | ENDS},
    [TICKET_WAITING] = {"waiting", PLANNED_ALONE | ENDS},
    [TICKET_LEAVING] = {"leaving", STATE_BIT(TICKET_DONE)},
    [TICKET_DONE] = {"done", 0},
};
const struct state_machine ticket_machine = {"ticket", ticket_states, TICKET_STATES};

void ticket_set_state(struct ticket *ticket, enum ticket_state state)
{
    state_check(&ticket_machine, ticket->state, state);
    ticket->state = state;
}

enum ticket_state ticket_state(const struct ticket *ticket)
{
    return ticket->state;
}

/* --- submitting ----------------------------------------------------------------------------------------------------- */

static void random_id(char id[LOAD_ID_CHARS])
{
    unsigned char bytes[(LOAD_ID_CHARS - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        abort();
    digest_hex(bytes, sizeof bytes, id);
}

struct ticket *ticket_create(struct load_table *table, const struct ticket_input *input)
{
    struct ticket *ticket = memory_alloc(sizeof *ticket);
    struct preparation *prep = &ticket->prep;
    struct load_target host = table->services->targets->list[LOAD_TARGET_HOST];
    ticket->table = table;
    ticket->input = *input;
    ticket->waiter = (struct load_waiter){.events = &waiter_events, .uid = input->uid};
    ticket->result = (struct load_result){
        .uid = input->uid, .pid = input->pid, .artifact = input->request.artifact, .spec = &prep->resolved.spec};
    random_id(ticket->result.load_id);
    pending_init(&ticket->pending, tell_progress);
    helper_step_init(&ticket->step, table->services, &ticket->work, &ticket->pending.waiting);
    *prep = (struct preparation){.services = table->services,
                                 .config = table->services->config,
                                 .uid = input->uid,
                                 .member.holder = ticket->result.load_id,
                                 .is_lent = input->region != NULL,
                                 .region = input->region,
                                 .host_budget_bytes = replica_budget_bytes(host.replicas),
                                 .resolved.target = host};
    arena_init(&prep->resolved.arena, 0);
    return ticket;
}

void ticket_submit(struct ticket *ticket, enum load_goal goal, const struct ticket_events *events, void *data)
{
    const char *artifact = ticket->input.request.artifact;
    struct error error;
    ticket->prep.goal = goal;
    ticket->events = events;
    ticket->data = data;
    ticket->submitted_ns = clock_now_ns();
    ticket_set_state(ticket, TICKET_RESOLVING);
    pending_add(ticket->table, &ticket->pending);
    ticket->work = (struct loop_work){.do_work = resolve_on_helper, .done = on_resolved, .uid = ticket->input.uid};
    source_place_work(artifact ? artifact : "", &ticket->work);
    if (helper_step_submit(&ticket->step, &error) != 0)
        ticket_finish(ticket, &error);
}

/* --- resolving ------------------------------------------------------------------------------------------------------ */

static bool is_leaving(void *data)
{
    return ((const struct ticket *)data)->state == TICKET_LEAVING;
}

static struct waiting *enter_note(struct ticket *ticket)
{
    waiting_end(&ticket->pending.waiting);
    return waiting_enter(&ticket->pending.waiting);
}

static void resolve_on_helper(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    const struct cancel cancel = {is_leaving, ticket};
    struct waiting *before = enter_note(ticket);
    prepare_resolve(&ticket->prep, &ticket->input.request, ticket->input.artifact, &cancel, &ticket->prep.resolved);
    waiting_enter(before);
}

/* Pieces of files come into memory that nobody but the fetching client itself knows of. */
static bool has_memory_to_tell_of(const struct ticket *ticket)
{
    return ticket->prep.is_lent && !ticket->input.request.files;
}

/* Who is told that a file keeps changing is told the same of its memory whether this load had begun to write or not: it has
 * to load again, and what lies there is no version of the file. */
static void finish_unprepared(struct ticket *ticket, struct error *error)
{
    if (has_memory_to_tell_of(ticket) && source_has_changed(error))
        error_append(error, "; treat the content of the client's memory as undefined");
    ticket_finish(ticket, error);
}

static void on_resolved(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    struct preparation *prep = &ticket->prep;
    struct resolved *resolved = &prep->resolved;
    ticket->result.times.resolve_ns = resolved->ns;
    if (!resolved->mapping && ticket->state != TICKET_LEAVING &&
        helper_step_again_or_wait(&ticket->step, resolved->target.replicas, &resolved->error))
        return;
    helper_step_end(&ticket->step);
    if (!resolved->mapping || ticket->state == TICKET_LEAVING) {
        finish_unprepared(ticket, &resolved->error);
        return;
    }
    const struct artifact *artifact = resolved->mapping->artifact;
    ticket->result.mapping = resolved->mapping;
    ticket->result.device = resolved->target.device;
    resolved->lane = work->lane;
    ticket->result.artifact = resolved->spec.artifact;
    arena_fini(&ticket->input.arena);
    if (ticket->events->resolved)
        ticket->events->resolved(ticket->data);
    replica_drop_stale(resolved->target.replicas, artifact);
    bool must_plan = prep->goal == GOAL_PLAN || resolved->spec.memory == MEMORY_MAPPED ||
                     resolved->spec.policy.collective == COLLECTIVE_REQUIRED || prepare_wants_group(prep);
    if (!must_plan && (ticket_use_existing(ticket) || (!prepare_may_find_pages(prep) && refuse_reading(ticket))))
        return;
    prep->costs = calibration_get(ticket->table->services->calibration, artifact->source->caps.device_id);
    ticket_set_state(ticket, TICKET_PLANNING);
    ticket_place_plan(ticket);
}

/* --- planning ------------------------------------------------------------------------------------------------------- */

static void plan_ticket_on_helper(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    const struct cancel cancel = {is_leaving, ticket};
    struct waiting *before = enter_note(ticket);
    prepare_plan(&ticket->prep, &cancel, &ticket->prep.planned);
    waiting_enter(before);
}

bool ticket_accept_plan(struct ticket *ticket, uint64_t plan_ns)
{
    ticket->result.plan = ticket->prep.planned.plan;
    ticket->result.times.plan_ns += plan_ns;
    if (!ticket->prep.planned.plan || ticket->state == TICKET_LEAVING) {
        finish_unprepared(ticket, &ticket->prep.planned.error);
        return false;
    }
    load_log_plan(&ticket->result, ticket->prep.planned.cached_share);
    return true;
}

static void on_planned(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    struct preparation *prep = &ticket->prep;
    if (!prep->planned.plan && ticket->state != TICKET_LEAVING &&
        helper_step_again(&ticket->step, prep->resolved.target.replicas, &prep->planned.error))
        return;
    if (ticket_accept_plan(ticket, prep->planned.ns))
        ticket_go_on(ticket);
}

/* Asks a file system what is cached, and any store for scales; else it only computes. */
void ticket_place_plan(struct ticket *ticket)
{
    const struct artifact *artifact = ticket->prep.resolved.mapping->artifact;
    ticket->work = (struct loop_work){.do_work = plan_ticket_on_helper, .done = on_planned, .uid = ticket->input.uid};
    if (artifact->source->caps.residency || ticket->prep.resolved.mapping->scales.bytes) {
        source_place_work(artifact->reference, &ticket->work);
        ticket->work.lane |= ticket->prep.resolved.lane;
    }
    helper_step_run(&ticket->step);
}

/* It has a plan. Only who has not been in its group, or waited there for somebody else, enters it. */
void ticket_go_on(struct ticket *ticket)
{
    bool may_enter = ticket->state == TICKET_PLANNING || ticket->state == TICKET_ECHO;
    if (may_enter && ticket_enter_group(ticket))
        return;
    if (ticket->prep.goal == GOAL_PLAN)
        ticket_finish(ticket, NULL);
    else if (!ticket_use_existing(ticket) && !refuse_reading(ticket))
        load_alone(ticket);
}

/* --- a replica or a load -------------------------------------------------------------------------------------------- */

/* One that was loaded before verification was required may not do. */
static struct replica *find_replica(const struct preparation *prep)
{
    struct replica_key key = prepare_key(prep);
    bool is_alone = prep->is_lent || prep->resolved.spec.memory == MEMORY_MAPPED;
    struct replica *replica = is_alone ? NULL : replica_find(prep->resolved.target.replicas, &key);
    bool will_do = replica && (prep->config->sources.verify != VERIFY_REQUIRED || replica->verdict.status == VERIFIED_ALL);
    return will_do ? replica : NULL;
}

bool ticket_is_there(const struct ticket *ticket)
{
    return ticket->prep.planned.files || find_replica(&ticket->prep) || load_find(ticket->table, &ticket->prep);
}

bool ticket_use_existing(struct ticket *ticket)
{
    if (ticket->prep.planned.files) {
        serve_files(ticket);
        return true;
    }
    struct replica *replica = find_replica(&ticket->prep);
    struct load *load = replica ? NULL : load_find(ticket->table, &ticket->prep);
    if (replica)
        serve_ticket(ticket, replica, LOAD_FROM_REPLICA);
    else if (load)
        ticket_wait_for_load(ticket, load, LOAD_JOINED);
    return replica || load;
}

/* Ends a ticket of somebody who wants only what is there. */
static bool refuse_reading(struct ticket *ticket)
{
    struct error error;
    if (!ticket->prep.resolved.spec.resident_only)
        return false;
    prepare_refuse_reading(&ticket->prep, &error);
    ticket_finish(ticket, &error);
    return true;
}

void ticket_wait_for_load(struct ticket *ticket, struct load *load, enum load_origin origin)
{
    const struct execution_topology *topology = &ticket->prep.resolved.spec.topology;
    struct ticket *echo;
    ticket_set_state(ticket, TICKET_WAITING);
    if (topology->has_group) {
        ticket->waiter.rank = topology->rank;
        ticket->waiter.world_size = topology->world_size;
    }
    load_join(load, &ticket->waiter);
    ticket->result.mapping = load->parts.mapping;
    ticket->result.plan = load->parts.plan;
    ticket->result.origin = origin;
    if (ticket->events->planned)
        ticket->events->planned(ticket->data, &ticket->result);
    while ((echo = ticket_take_echo(ticket)))
        ticket_wait_for_load(echo, load, LOAD_JOINED);
}

static void load_alone(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct load *load;
    struct error error;
    do
        load = load_create(ticket->table, prep, &error);
    while (!load && !prep->is_lent &&
           replica_make_room(prep->resolved.target.replicas, prep->uid, &error, &ticket->step.n_to_evict));
    if (!load) {
        ticket_finish(ticket, &error);
        return;
    }
    ticket_wait_for_load(ticket, load, LOAD_OWN);
    load_start(load, NULL, 0, 1);
}

/* A failed load may have lost nothing but what was on its way between the ranks: the source still has the bytes, unless it
 * has changed. Then a ticket that does not insist on its group is planned again without. */
static void on_load_ended(struct load_waiter *waiter, struct load *load, struct replica *replica)
{
    struct ticket *ticket = ticket_of_waiter(waiter);
    struct preparation *prep = &ticket->prep;
    if (replica) {
        serve_ticket(ticket, replica, ticket->result.origin);
        return;
    }
    if (!load->has_lost_transport || source_has_changed(&load->error) ||
        prep->resolved.spec.policy.collective == COLLECTIVE_REQUIRED || !load_give_back_region(load, prep)) {
        if (has_memory_to_tell_of(ticket))
            error_append(&load->error,
                         "; the content of the client's memory is undefined"); /* nothing of it can be undone */
        ticket_finish(ticket, &load->error);
        return;
    }
    const struct reason problem =
        reason_with(REASON_TRANSPORT_FAILED, "%s:%s", load->parts.plan->transport.ops->name, load->error.reason);
    if (!prep->resolved.mapping) { /* the load is made of this ticket's */
        prep->resolved.mapping = load->parts.mapping;
        load->parts.mapping = NULL;
    }
    ticket->result.mapping = prep->resolved.mapping;
    ticket_go_without_group(ticket, &problem);
}

static const struct load_waiter_events waiter_events = {.ended = on_load_ended};

/* --- how far it is -------------------------------------------------------------------------------------------------- */

struct load_info ticket_describe(struct ticket *ticket)
{
    static const char *const stages[TICKET_STATES] = {
        [TICKET_RESOLVING] = "resolve", [TICKET_PLANNING] = "plan",         [TICKET_ASSEMBLING] = "group",
        [TICKET_ECHO] = "group",        [TICKET_PLANNING_JOINTLY] = "plan", [TICKET_PLANNING_ALONE] = "plan"};
    if (ticket->state == TICKET_WAITING && ticket->waiter.load)
        return load_describe(ticket->waiter.load);
    struct load_info info = {.id = ticket->result.load_id,
                             .artifact = ticket->result.artifact,
                             .stage = stages[ticket->state] ? stages[ticket->state] : "",
                             .age_ns = clock_now_ns() - ticket->submitted_ns};
    if (ticket->state == TICKET_ASSEMBLING || ticket->state == TICKET_ECHO)
        snprintf(info.waiting_for, sizeof info.waiting_for, "the other ranks of its group of %u",
                 (unsigned)ticket->prep.resolved.spec.topology.world_size);
    else
        waiting_read(&ticket->pending.waiting, info.waiting_for);
    return info;
}

/* Before its load there is only something to tell when it waits. */
static void tell_progress(struct pending *pending)
{
    struct ticket *ticket = (struct ticket *)((char *)pending - offsetof(struct ticket, pending));
    if (ticket->state == TICKET_LEAVING)
        return;
    const struct load_info info = ticket_describe(ticket);
    pending_log(pending, &info, &ticket->result);
    if (ticket->events->progress && (info.waiting_for[0] || ticket->state == TICKET_WAITING))
        ticket->events->progress(ticket->data, &info);
}

/* --- the end -------------------------------------------------------------------------------------------------------- */

static void serve_ticket(struct ticket *ticket, struct replica *replica, enum load_origin origin)
{
    replica_pin(replica, ticket->input.uid);
    ticket->result.replica = replica;
    ticket->result.mapping = replica->mapping;
    ticket->result.plan = replica->plan;
    ticket->result.origin = origin;
    ticket_finish(ticket, NULL);
}

/* Nothing is loaded: what the client is given is in no budget, for nobody else, and goes with its lease. */
static void serve_files(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct replica parts = {
        .uid = prep->uid,
        .key = prepare_key(prep),
        .mapping = prep->resolved.mapping,
        .plan = prep->planned.plan,
        .files = prep->planned.files,
        .verdict = {.status = prep->config->sources.verify == VERIFY_NONE ? VERIFIED_OFF : VERIFIED_NOTHING}};
    snprintf(parts.verdict.reason, sizeof parts.verdict.reason,
             "mapped: pages of the files are handed out before they are read");
    struct replica *replica = replica_add(prep->resolved.target.replicas, &parts);
    prep->resolved.mapping = NULL;
    prep->planned.plan = NULL;
    prep->planned.files = NULL;
    serve_ticket(ticket, replica, LOAD_MAPPED);
    replica_unpin(replica, parts.uid);
}

/* Who sent the same request again gets the same; if nobody waits for the first one any more, the next takes its place. */
static void settle_echoes(struct ticket *ticket, const struct error *error)
{
    struct replica *replica = ticket->result.replica;
    enum load_origin origin = ticket->result.origin == LOAD_OWN ? LOAD_JOINED : ticket->result.origin;
    struct ticket *echo;
    while ((echo = ticket_take_echo(ticket))) {
        if (ticket->state == TICKET_LEAVING)
            ticket_go_on(echo);
        else if (replica)
            serve_ticket(echo, replica, origin);
        else
            ticket_finish(echo, error);
    }
}

void ticket_finish(struct ticket *ticket, const struct error *error)
{
    struct group_member *member = &ticket->prep.member;
    struct error cancelled;
    if (ticket->state == TICKET_LEAVING) {
        group_leave(member);
        load_say_why_cancelled(ticket->table, &cancelled);
        error = &cancelled;
    } else {
        group_end(member);
    }
    settle_echoes(ticket, error);
    ticket_set_state(ticket, TICKET_DONE);
    pending_remove(ticket->table, &ticket->pending);
    ticket->result.times.total_ns = clock_now_ns() - ticket->submitted_ns;
    if (ticket->prep.goal == GOAL_REPLICA)
        load_table_count(ticket->table, &ticket->result, error);
    if (!ticket->table->services->of_one_user)
        load_log_result(&ticket->result, ticket->prep.goal == GOAL_PLAN, error);
    ticket->events->done(ticket->data, &ticket->result, error);
}

void ticket_cancel(struct ticket *ticket)
{
    enum ticket_state was = ticket->state;
    if (was == TICKET_LEAVING || was == TICKET_DONE)
        return;
    ticket_set_state(ticket, TICKET_LEAVING);
    if (was == TICKET_WAITING)
        load_leave(&ticket->waiter);
    else if (was == TICKET_ECHO)
        ticket_remove_echo(ticket);
    bool was_queued = helper_step_end(&ticket->step);
    if (was == TICKET_WAITING || was == TICKET_ECHO || was == TICKET_ASSEMBLING || was_queued)
        ticket_finish(ticket, NULL);
    else /* a stage that a helper has begun ends first */
        loop_cancel(ticket->table->services->loop, &ticket->work);
}

void ticket_destroy(struct ticket *ticket)
{
    if (!ticket)
        return;
    if (ticket->result.replica)
        replica_unpin(ticket->result.replica, ticket->input.uid);
    prepare_fini(&ticket->prep);
    arena_fini(&ticket->input.arena);
    pending_fini(&ticket->pending);
    free(ticket);
}

const struct load_result *ticket_result(const struct ticket *ticket)
{
    return &ticket->result;
}

struct plan_facts ticket_facts(const struct ticket *ticket)
{
    return prepare_facts(&ticket->prep, &ticket->prep.planned);
}
