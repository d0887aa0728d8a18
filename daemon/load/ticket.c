/* In the order of a request's way; README.md has the names. Whatever fails carries an error to finish_ticket(). */
#include "load/ticket.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/memory.h"
#include "calibration/calibration.h"
#include "load/group.h"
#include "load/group_terms.h"
#include "load/load.h"
#include "load/load_log.h"
#include "load/pending.h"
#include "load/prepare.h"
#include "load/team.h"
#include "observe/log.h"

/* One request. `prep` is what it will load, `result` what it has got so far, `rank` its place among tickets of the same rank,
 * `waiter` its place among those who wait for one load. The loop thread's; a helper that runs `work` has `prep` meanwhile. */
struct ticket {
    struct loop_work work; /* first */
    struct load_table *table;
    _Atomic enum ticket_state state; /* helpers look whether it is LEAVING */
    const struct ticket_events *events;
    void *data;
    struct pending pending;
    struct ticket_input input;
    struct preparation prep;
    struct {                  /* of its group */
        uint64_t since_ns;    /* when it began to wait */
        struct ticket *first; /* while ECHO: whose result it gets */
        struct ticket *echoes, *next_echo;
    } rank;
    struct load_waiter waiter;
    struct load_result result;
    uint64_t submitted_ns;
};

static struct ticket *ticket_of(struct preparation *prep)
{
    return (struct ticket *)((char *)prep - offsetof(struct ticket, prep));
}

static struct ticket *ticket_of_member(struct group_member *member)
{
    return (struct ticket *)((char *)member - offsetof(struct ticket, prep.member));
}

static struct ticket *ticket_of_waiter(struct load_waiter *waiter)
{
    return (struct ticket *)((char *)waiter - offsetof(struct ticket, waiter));
}

/* What a request does next, in the order in which it may come to that. */
static void place_resolve(struct ticket *ticket);
static void place_plan(struct ticket *ticket);
static void go_on(struct ticket *ticket);
static bool enter_group(struct ticket *ticket);
static bool is_there(const struct ticket *ticket);
static bool use_existing(struct ticket *ticket);
static bool refuse_reading(struct ticket *ticket);
static void load_alone(struct ticket *ticket);
static void wait_for_load(struct ticket *ticket, struct load *load, enum load_origin origin);
static void serve_ticket(struct ticket *ticket, struct replica *replica, enum load_origin origin);
static void serve_files(struct ticket *ticket);
static void finish_ticket(struct ticket *ticket, const struct error *error);
static void tell_progress(struct pending *pending);
static const struct team_events team_events;
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

static void set_ticket_state(struct ticket *ticket, enum ticket_state state)
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
    ticket->result =
        (struct load_result){.uid = input->uid, .pid = input->pid, .artifact = input->request.artifact, .spec = &prep->spec};
    random_id(ticket->result.load_id);
    pending_init(&ticket->pending, tell_progress);
    *prep = (struct preparation){.services = table->services,
                                 .config = table->services->config,
                                 .uid = input->uid,
                                 .member.holder = ticket->result.load_id,
                                 .is_lent = input->region != NULL,
                                 .region = input->region,
                                 .host_budget_bytes = replica_budget_bytes(host.replicas),
                                 .target = host};
    arena_init(&prep->arena, 0);
    return ticket;
}

void ticket_submit(struct ticket *ticket, enum load_goal goal, const struct ticket_events *events, void *data)
{
    struct error error;
    ticket->prep.goal = goal;
    ticket->events = events;
    ticket->data = data;
    ticket->submitted_ns = clock_now_ns();
    set_ticket_state(ticket, TICKET_RESOLVING);
    pending_add(ticket->table, &ticket->pending);
    place_resolve(ticket);
    if (loop_submit(ticket->table->services->loop, &ticket->work, &error) != 0)
        finish_ticket(ticket, &error);
}

/* --- resolving ------------------------------------------------------------------------------------------------------ */

static bool is_leaving(void *data)
{
    return ((const struct ticket *)data)->state == TICKET_LEAVING;
}

/* While it waits for a helper. */
static void wait_for_helper(struct ticket *ticket)
{
    waiting_begin(&ticket->pending.waiting, "its turn: other requests are being looked at", 0);
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
    prepare_resolve(&ticket->prep, &ticket->input.request, ticket->input.artifact, &cancel);
    waiting_enter(before);
}

/* Who is told that a file keeps changing is told the same of its memory whether this load had begun to write or not: it has
 * to load again, and what lies there is no version of the file. */
static void finish_unprepared(struct ticket *ticket)
{
    struct error *error = &ticket->prep.error;
    if (ticket->prep.is_lent && source_has_changed(error))
        error_append(error, "; treat the content of the client's memory as undefined");
    finish_ticket(ticket, error);
}

static void on_resolved(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    struct preparation *prep = &ticket->prep;
    ticket->result.times.resolve_ns = prep->resolve_ns;
    if (!prep->mapping && ticket->state != TICKET_LEAVING && prepare_find_room(prep, &prep->error)) {
        place_resolve(ticket);
        loop_continue(ticket->table->services->loop, &ticket->work);
        return;
    }
    if (!prep->mapping || ticket->state == TICKET_LEAVING) {
        finish_unprepared(ticket);
        return;
    }
    const struct artifact *artifact = prep->mapping->artifact;
    ticket->result.mapping = prep->mapping;
    ticket->result.device = prep->target.device;
    prep->lane = work->lane;
    ticket->result.artifact = prep->spec.artifact; /* the mapping says all that the view said */
    prep->spec.view = (struct view_spec){.whole = prep->spec.view.whole, .align_bytes = prep->spec.view.align_bytes};
    arena_fini(&ticket->input.arena);
    if (ticket->events->resolved)
        ticket->events->resolved(ticket->data);
    replica_drop_stale(prep->target.replicas, artifact);
    bool must_plan = prep->goal == GOAL_PLAN || prep->spec.memory == MEMORY_MAPPED ||
                     prep->spec.policy.collective == COLLECTIVE_REQUIRED || prepare_wants_group(prep);
    if (!must_plan && (use_existing(ticket) || refuse_reading(ticket)))
        return;
    prep->costs = calibration_get(ticket->table->services->calibration, artifact->source->caps.device_id);
    set_ticket_state(ticket, TICKET_PLANNING);
    place_plan(ticket);
}

static void place_resolve(struct ticket *ticket)
{
    const char *artifact = ticket->input.request.artifact;
    ticket->work = (struct loop_work){.do_work = resolve_on_helper, .done = on_resolved, .uid = ticket->input.uid};
    source_place_work(artifact ? artifact : "", &ticket->work);
    wait_for_helper(ticket);
}

/* --- planning ------------------------------------------------------------------------------------------------------- */

static void plan_ticket_on_helper(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    const struct cancel cancel = {is_leaving, ticket};
    struct waiting *before = enter_note(ticket);
    prepare_plan(&ticket->prep, &cancel);
    waiting_enter(before);
}

/* False: there is no plan, or nobody wants it any more; then the ticket is done. */
static bool accept_plan(struct ticket *ticket, uint64_t plan_ns)
{
    ticket->result.plan = ticket->prep.plan;
    ticket->result.times.plan_ns += plan_ns;
    if (!ticket->prep.plan || ticket->state == TICKET_LEAVING) {
        finish_unprepared(ticket);
        return false;
    }
    load_log_plan(&ticket->result, ticket->prep.cached_share);
    return true;
}

static void on_planned(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    struct preparation *prep = &ticket->prep;
    if (!prep->plan && ticket->state != TICKET_LEAVING && prepare_find_room(prep, &prep->error))
        place_plan(ticket);
    else if (accept_plan(ticket, prep->plan_ns))
        go_on(ticket);
}

/* Asks a file system what is cached, and any store for scales; else it only computes. */
static void place_plan(struct ticket *ticket)
{
    const struct artifact *artifact = ticket->prep.mapping->artifact;
    ticket->work = (struct loop_work){.do_work = plan_ticket_on_helper, .done = on_planned, .uid = ticket->input.uid};
    if (artifact->source->caps.residency || ticket->prep.mapping->scales.bytes) {
        source_place_work(artifact->reference, &ticket->work);
        ticket->work.lane |= ticket->prep.lane;
    }
    wait_for_helper(ticket);
    loop_continue(ticket->table->services->loop, &ticket->work);
}

/* It has a plan. Only who has not been in its group, or waited there for somebody else, enters it. */
static void go_on(struct ticket *ticket)
{
    bool may_enter = ticket->state == TICKET_PLANNING || ticket->state == TICKET_ECHO;
    if (may_enter && enter_group(ticket))
        return;
    if (ticket->prep.goal == GOAL_PLAN)
        finish_ticket(ticket, NULL);
    else if (!use_existing(ticket) && !refuse_reading(ticket))
        load_alone(ticket);
}

/* --- its group ------------------------------------------------------------------------------------------------------ */

static void add_echo(struct ticket *first, struct ticket *echo)
{
    log_at_of(LOG_INFO, "collective_disk_load", echo->input.uid, LOG_TEXT("load_id", echo->result.load_id),
              LOG_TEXT("action", "joined_again"), LOG_TEXT("group_id", echo->prep.spec.topology.group_id),
              LOG_U64("rank", echo->prep.member.rank), LOG_TEXT("reason", first->result.load_id));
    set_ticket_state(echo, TICKET_ECHO);
    echo->rank.first = first;
    echo->rank.next_echo = first->rank.echoes;
    first->rank.echoes = echo;
}

static void remove_echo(struct ticket *echo)
{
    struct ticket **at = &echo->rank.first->rank.echoes;
    while (*at != echo)
        at = &(*at)->rank.next_echo;
    *at = echo->rank.next_echo;
    echo->rank.first = NULL;
}

static struct ticket *take_echo(struct ticket *first)
{
    struct ticket *echo = first->rank.echoes;
    if (echo)
        remove_echo(echo);
    return echo;
}

/* It is planned again, as one rank alone; so are its echoes. */
static void go_without_group(struct ticket *ticket, const struct reason *problem)
{
    struct preparation *prep = &ticket->prep;
    const struct execution_topology *topology = &prep->spec.topology;
    struct ticket *echo;
    while ((echo = take_echo(ticket)))
        go_without_group(echo, problem);
    prep->group_problem = *problem;
    log_at_of(LOG_INFO, "collective_disk_load", ticket->input.uid, LOG_TEXT("load_id", ticket->result.load_id),
              LOG_TEXT("action", "skipped"), LOG_TEXT("group_id", topology->group_id), LOG_U64("rank", topology->rank),
              LOG_TEXT("reason", problem->text));
    ticket->result.plan = NULL;
    set_ticket_state(ticket, TICKET_PLANNING_ALONE);
    place_plan(ticket);
}

static void join_group(struct ticket *ticket, const struct group_terms *terms)
{
    struct group_member *member = &ticket->prep.member;
    struct reason problem;
    struct error error;
    set_ticket_state(ticket, TICKET_ASSEMBLING);
    ticket->rank.since_ns = clock_now_ns();
    switch (group_join(ticket->table->groups, terms, member, &problem, &error)) {
    case GROUP_JOINED:
        break;
    case GROUP_LATE:
        go_without_group(ticket, &problem);
        break;
    case GROUP_REFUSED:
        finish_ticket(ticket, &error);
        break;
    case GROUP_AGAIN:
        add_echo(ticket_of_member(member->first), ticket);
        break;
    }
}

/* False: it goes on alone. */
static bool enter_group(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct group_table *groups = ticket->table->groups;
    struct group_member *member = &prep->member;
    uid_t owner = ticket->input.shares_groups ? GROUP_OWNER_SHARED : ticket->input.uid;
    if (!prepare_wants_group(prep))
        return false;
    struct group_terms terms = group_terms_of(prep, ticket->input.uid, owner);
    member->rank = prep->spec.topology.rank;
    member->attempt = group_attempt_of(prep, &terms);
    if (prep->plan->executor != EXECUTOR_OWNER_FILE_COLLECTIVE) {
        bool could = prep->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].eligible;
        group_decline(groups, &terms, member->rank,
                      could ? reason_rows[REASON_PREFERS_OTHER_EXECUTOR].name : "not_eligible");
        return false;
    }
    if (ticket->prep.goal == GOAL_REPLICA && is_there(ticket)) {
        group_excuse(groups, &terms, member);
        use_existing(ticket);
    } else {
        join_group(ticket, &terms);
    }
    return true;
}

static void on_group_complete(void *data, struct group *group)
{
    for (uint32_t rank = 0; rank < group_terms(group)->world_size; rank++) {
        struct group_member *member = group_find(group, rank);
        if (!member)
            continue;
        struct ticket *ticket = ticket_of_member(member);
        ticket->result.times.assemble_ns = clock_now_ns() - ticket->rank.since_ns;
        set_ticket_state(ticket, TICKET_PLANNING_JOINTLY);
    }
    team_gather(data, group, &team_events);
}

static void on_group_dissolved(void *data, struct group_member *member, const struct reason *problem)
{
    struct ticket *ticket = ticket_of_member(member);
    (void)data;
    ticket->result.times.assemble_ns = clock_now_ns() - ticket->rank.since_ns;
    go_without_group(ticket, problem);
}

const struct group_events ticket_group_events = {.complete = on_group_complete, .dissolved = on_group_dissolved};

static bool on_jointly_planned(struct preparation *rank, uint64_t plan_ns, const struct reason *problem)
{
    struct ticket *ticket = ticket_of(rank);
    if (!accept_plan(ticket, plan_ns))
        return false;
    bool runs = rank->goal == GOAL_REPLICA && rank->plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE;
    if (runs && !problem && !is_there(ticket))
        return true;
    group_end(&rank->member);
    if (runs && problem)
        go_without_group(ticket, problem);
    else
        go_on(ticket);
    return false;
}

static void on_team_failed(struct preparation *rank, const struct error *error)
{
    finish_ticket(ticket_of(rank), error);
}

static void on_team_joined(struct preparation *rank, struct load *load, enum load_origin origin)
{
    wait_for_load(ticket_of(rank), load, origin);
}

static const struct team_events team_events = {
    .planned = on_jointly_planned, .failed = on_team_failed, .joined = on_team_joined};

/* --- a replica or a load -------------------------------------------------------------------------------------------- */

/* One that was loaded before verification was required may not do. */
static struct replica *find_replica(const struct preparation *prep)
{
    struct replica_key key = replica_key_of(prep->mapping, prep->target.device);
    bool is_alone = prep->is_lent || prep->spec.memory == MEMORY_MAPPED;
    struct replica *replica = is_alone ? NULL : replica_find(prep->target.replicas, &key);
    bool will_do = replica && (prep->config->verify != VERIFY_REQUIRED || replica->verdict.status == VERIFIED_ALL);
    return will_do ? replica : NULL;
}

static bool is_there(const struct ticket *ticket)
{
    return ticket->prep.files || find_replica(&ticket->prep) || load_find(ticket->table, &ticket->prep);
}

static bool use_existing(struct ticket *ticket)
{
    if (ticket->prep.files) {
        serve_files(ticket);
        return true;
    }
    struct replica *replica = find_replica(&ticket->prep);
    struct load *load = replica ? NULL : load_find(ticket->table, &ticket->prep);
    if (replica)
        serve_ticket(ticket, replica, LOAD_FROM_REPLICA);
    else if (load)
        wait_for_load(ticket, load, LOAD_JOINED);
    return replica || load;
}

/* Ends a ticket of somebody who wants only what is there. */
static bool refuse_reading(struct ticket *ticket)
{
    if (!ticket->prep.spec.resident_only)
        return false;
    fail(&ticket->prep.error, ERROR_FAILED_PRECONDITION, REASON(NOT_RESIDENT), "%s is not in memory",
         ticket->result.artifact);
    finish_ticket(ticket, &ticket->prep.error);
    return true;
}

static void wait_for_load(struct ticket *ticket, struct load *load, enum load_origin origin)
{
    struct ticket *echo;
    set_ticket_state(ticket, TICKET_WAITING);
    if (ticket->prep.spec.topology.has_group) {
        ticket->waiter.rank = ticket->prep.spec.topology.rank;
        ticket->waiter.world_size = ticket->prep.spec.topology.world_size;
    }
    load_join(load, &ticket->waiter);
    ticket->result.mapping = load->parts.mapping;
    ticket->result.plan = load->parts.plan;
    ticket->result.origin = origin;
    if (ticket->events->planned)
        ticket->events->planned(ticket->data, &ticket->result);
    while ((echo = take_echo(ticket)))
        wait_for_load(echo, load, LOAD_JOINED);
}

static void load_alone(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct load *load;
    struct error error;
    do
        load = load_create(ticket->table, prep, &error);
    while (!load && !prep->is_lent && prepare_find_room(prep, &error));
    if (!load) {
        finish_ticket(ticket, &error);
        return;
    }
    wait_for_load(ticket, load, LOAD_OWN);
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
        prep->spec.policy.collective == COLLECTIVE_REQUIRED || !load_give_back_region(load, prep)) {
        finish_ticket(ticket, &load->error);
        return;
    }
    const struct reason problem =
        reason_with(REASON_TRANSPORT_FAILED, "%s:%s", load->parts.plan->transport.ops->name, load->error.reason);
    if (!prep->mapping) { /* the load is made of this ticket's */
        prep->mapping = load->parts.mapping;
        load->parts.mapping = NULL;
    }
    ticket->result.mapping = prep->mapping;
    go_without_group(ticket, &problem);
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
    if (strcmp(info.stage, "group") == 0)
        snprintf(info.waiting_for, sizeof info.waiting_for, "the other ranks of its group of %u",
                 (unsigned)ticket->prep.spec.topology.world_size);
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
    finish_ticket(ticket, NULL);
}

/* Nothing is loaded: what the client is given is in no budget, for nobody else, and goes with its lease. */
static void serve_files(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct replica parts = {.uid = prep->uid,
                            .key = replica_key_of(prep->mapping, prep->target.device),
                            .mapping = prep->mapping,
                            .plan = prep->plan,
                            .files = prep->files,
                            .verdict = {.status = prep->config->verify == VERIFY_NONE ? VERIFIED_OFF : VERIFIED_NOTHING}};
    snprintf(parts.verdict.reason, sizeof parts.verdict.reason,
             "mapped: pages of the files are handed out before anybody has read them");
    struct replica *replica = replica_add(prep->target.replicas, &parts);
    prep->mapping = NULL;
    prep->plan = NULL;
    prep->files = NULL;
    serve_ticket(ticket, replica, LOAD_MAPPED);
    replica_unpin(replica, parts.uid);
}

/* Who sent the same request again gets the same; if nobody waits for the first one any more, the next takes its place. */
static void settle_echoes(struct ticket *ticket, const struct error *error)
{
    struct replica *replica = ticket->result.replica;
    enum load_origin origin = ticket->result.origin == LOAD_OWN ? LOAD_JOINED : ticket->result.origin;
    struct ticket *echo;
    while ((echo = take_echo(ticket))) {
        if (ticket->state == TICKET_LEAVING)
            go_on(echo);
        else if (replica)
            serve_ticket(echo, replica, origin);
        else
            finish_ticket(echo, error);
    }
}

static void finish_ticket(struct ticket *ticket, const struct error *error)
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
    set_ticket_state(ticket, TICKET_DONE);
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
    set_ticket_state(ticket, TICKET_LEAVING);
    if (was == TICKET_WAITING)
        load_leave(&ticket->waiter);
    else if (was == TICKET_ECHO)
        remove_echo(ticket);
    if (was == TICKET_WAITING || was == TICKET_ECHO || was == TICKET_ASSEMBLING)
        finish_ticket(ticket, NULL);
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
    return prepare_facts(&ticket->prep);
}
