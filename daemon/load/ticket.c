/* In the order of a request's way; README.md has the names. The same request of one rank, sent again, is an echo of the first.
 * Whatever fails carries an error to finish_ticket(). */
#include "load/ticket.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/redact.h"
#include "execute/calibration.h"
#include "load/group.h"
#include "load/helper_step.h"
#include "load/load.h"
#include "load/load_count.h"
#include "load/load_log.h"
#include "load/prepare.h"
#include "load/team.h"
#include "observe/log.h"

enum { PROGRESS_MS = 100, WAIT_LOGGED_AFTER_MS = 2000 };

/* One request. `prep` is what it will load, `result` what it has got so far, `rank` its place among tickets of the same rank,
 * `waiter` its place among those who wait for one load. The loop thread's; a helper that runs `work` has `prep` meanwhile. */
struct ticket {
    struct loop_work work; /* first */
    struct load_table *table;
    _Atomic enum ticket_state state; /* helpers look whether it is LEAVING */
    const struct ticket_events *events;
    void *data;
    LIST_ENTRY(ticket) in_table; /* of those in flight */
    struct waiting waiting;      /* of what is done for this request alone: resolving, planning, its group */
    uint64_t waits_since_ns;     /* 0 = it does not */
    bool is_wait_logged;
    struct ticket_input input;
    struct preparation prep;
    struct {                  /* of its group */
        uint64_t since_ns;    /* when it began to wait */
        struct ticket *first; /* while ECHO: whose result it gets */
        struct ticket *echoes, *next_echo;
    } rank;
    struct load_waiter waiter;
    struct helper_step step;
    struct trace *trace;
    bool is_kept;      /* its trace stays when it goes */
    uint64_t begun_ns; /* when a helper began with the step at hand */
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

/* What a request does next, in the order in which it may come to that. */
static void resolve_on_helper(struct loop_work *work);
static void on_resolved(struct loop_work *work);
static void place_plan(struct ticket *ticket);
static void load_alone(struct ticket *ticket);
static void serve_ticket(struct ticket *ticket, struct replica *replica, enum load_origin origin);
static void serve_files(struct ticket *ticket);
static void go_on(struct ticket *ticket);
static bool enter_group(struct ticket *ticket);
static void go_without_group(struct ticket *ticket, const struct reason *problem);
static struct ticket *take_echo(struct ticket *first);
static void remove_echo(struct ticket *echo);
static void finish_ticket(struct ticket *ticket, const struct error *error);
static void on_load_ended(struct load_waiter *waiter, struct load *load, struct replica *replica);

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

struct ticket *ticket_create(struct load_table *table, const struct ticket_input *input)
{
    struct ticket *ticket = memory_alloc(sizeof *ticket);
    struct preparation *prep = &ticket->prep;
    struct load_target host = table->services->targets->list[LOAD_TARGET_HOST];
    ticket->table = table;
    ticket->input = *input;
    ticket->waiter = (struct load_waiter){.ended = on_load_ended, .uid = input->uid, .pid = input->pid};
    ticket->result = (struct load_result){
        .uid = input->uid, .pid = input->pid, .artifact = input->request.artifact, .spec = &prep->resolved.spec};
    unsigned char bytes[(LOAD_ID_CHARS - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        abort();
    digest_hex(bytes, sizeof bytes, ticket->result.load_id);
    waiting_init(&ticket->waiting);
    ticket->trace = trace_create();
    ticket->trace->parent = input->parent;
    ticket->result.trace = ticket->trace;
    helper_step_init(&ticket->step, table->services, &ticket->work, &ticket->waiting);
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
    trace_enter(ticket->trace, TRACE_QUEUE, ticket->submitted_ns);
    set_ticket_state(ticket, TICKET_RESOLVING);
    if (LIST_EMPTY(&ticket->table->tickets))
        loop_timer_start(ticket->table->progress_timer, PROGRESS_MS, PROGRESS_MS);
    LIST_INSERT_HEAD(&ticket->table->tickets, ticket, in_table);
    ticket->work = (struct loop_work){.do_work = resolve_on_helper, .done = on_resolved, .uid = ticket->input.uid};
    source_place_work(artifact ? artifact : "", &ticket->work);
    if (helper_step_submit(&ticket->step, &error) != 0)
        finish_ticket(ticket, &error);
}

/* --- what is there already ------------------------------------------------------------------------------------------ */

static void wait_for_load(struct ticket *ticket, struct load *load, enum load_origin origin)
{
    const struct execution_topology *topology = &ticket->prep.resolved.spec.topology;
    struct ticket *echo;
    trace_enter(ticket->trace, TRACE_QUEUE, clock_now_ns());
    set_ticket_state(ticket, TICKET_WAITING);
    if (topology->has_group) {
        ticket->waiter.rank = topology->rank;
        ticket->waiter.world_size = topology->world_size;
    }
    load_join(load, &ticket->waiter);
    ticket->result.mapping = load->parts.mapping;
    ticket->result.plan = load->parts.plan;
    ticket->result.executor = load->parts.plan->executor;
    ticket->result.has_executor = true;
    ticket->result.origin = origin;
    if (ticket->events->planned)
        ticket->events->planned(ticket->data, &ticket->result);
    while ((echo = take_echo(ticket)))
        wait_for_load(echo, load, LOAD_JOINED);
}

/* What will do instead of a load of its own: the files themselves, a replica, or a load in flight (single-flight). */
struct existing {
    struct mapped_files *files;
    struct replica *replica;
    struct load *load;
};

static bool find_existing(const struct ticket *ticket, struct existing *found)
{
    const struct preparation *prep = &ticket->prep;
    struct replica_key key = prepare_key(prep);
    *found = (struct existing){.files = prep->planned.files};
    if (!found->files && !prep->is_lent && prep->resolved.spec.memory != MEMORY_MAPPED)
        found->replica = replica_find(prep->resolved.target.replicas, &key);
    if (found->replica && prep->config->sources.verify == VERIFY_REQUIRED && found->replica->verdict.status != VERIFIED_ALL)
        found->replica = NULL; /* it was loaded before verification was required */
    if (!found->files && !found->replica)
        found->load = load_find(ticket->table, &ticket->prep);
    return found->files || found->replica || found->load;
}

static void use_existing(struct ticket *ticket, const struct existing *found)
{
    if (found->files)
        serve_files(ticket);
    else if (found->replica)
        serve_ticket(ticket, found->replica, LOAD_FROM_REPLICA);
    else
        wait_for_load(ticket, found->load, LOAD_JOINED);
}

/* Ends a ticket that wants only resident memory. */
static bool refuse_reading(struct ticket *ticket)
{
    struct error error;
    if (!ticket->prep.resolved.spec.resident_only)
        return false;
    prepare_refuse_reading(&ticket->prep, &error);
    finish_ticket(ticket, &error);
    return true;
}

/* --- resolving ------------------------------------------------------------------------------------------------------ */

static bool is_leaving(void *data)
{
    return ((const struct ticket *)data)->state == TICKET_LEAVING;
}

static struct waiting *enter_note(struct ticket *ticket)
{
    ticket->begun_ns = clock_now_ns();
    waiting_end(&ticket->waiting);
    return waiting_enter(&ticket->waiting);
}

static void resolve_on_helper(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    const struct cancel cancel = {is_leaving, ticket};
    struct waiting *before = enter_note(ticket);
    prepare_resolve(&ticket->prep, &ticket->input.request, ticket->input.artifact, &cancel, &ticket->prep.resolved);
    waiting_enter(before);
}

/* Pieces of files come into memory that only the fetching client knows of. */
static bool has_memory_to_tell_of(const struct ticket *ticket)
{
    return ticket->prep.is_lent && !ticket->input.request.files;
}

/* If a file keeps changing, a client with memory of its own gets the same error whether this load had begun to write or not: it
 * must load again, and its memory holds no version of the file. */
static void finish_unprepared(struct ticket *ticket, struct error *error)
{
    if (has_memory_to_tell_of(ticket) && source_has_changed(error))
        error_append(error, "; treat the content of the client's memory as undefined");
    finish_ticket(ticket, error);
}

/* A helper had the ticket for that; what comes next waits for its turn. */
static void trace_step(struct ticket *ticket, enum trace_kind kind)
{
    if (ticket->begun_ns)
        trace_enter(ticket->trace, kind, ticket->begun_ns);
    trace_enter(ticket->trace, TRACE_QUEUE, clock_now_ns());
    ticket->begun_ns = 0;
}

static void on_resolved(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    trace_step(ticket, TRACE_RESOLVE);
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
    struct existing found;
    bool may_use = !must_plan && find_existing(ticket, &found);
    if (may_use)
        use_existing(ticket, &found);
    if (may_use || (!must_plan && !prepare_may_find_pages(prep) && refuse_reading(ticket)))
        return;
    const struct load_services *services = ticket->table->services;
    prep->costs = calibration_get(services->calibration, artifact->source->caps.device_id);
    if (services->hosts.look)
        services->hosts.look(services->hosts.data, &prep->hosts);
    set_ticket_state(ticket, TICKET_PLANNING);
    place_plan(ticket);
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

static bool accept_plan(struct ticket *ticket, uint64_t plan_ns)
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
    trace_step(ticket, TRACE_PLAN);
    if (!prep->planned.plan && ticket->state != TICKET_LEAVING &&
        helper_step_again(&ticket->step, prep->resolved.target.replicas, &prep->planned.error))
        return;
    if (accept_plan(ticket, prep->planned.ns))
        go_on(ticket);
}

/* Asks a file system what is cached, and any store for scales; else it only computes. */
static void place_plan(struct ticket *ticket)
{
    const struct artifact *artifact = ticket->prep.resolved.mapping->artifact;
    ticket->work = (struct loop_work){.do_work = plan_ticket_on_helper, .done = on_planned, .uid = ticket->input.uid};
    if (artifact->source->caps.residency || ticket->prep.resolved.mapping->scales.bytes) {
        source_place_work(artifact->reference, &ticket->work);
        ticket->work.lane |= ticket->prep.resolved.lane;
    }
    helper_step_run(&ticket->step);
}

/* It has a plan. Only a rank that has not been in its group, or waited there for another one, enters it. */
static void go_on(struct ticket *ticket)
{
    bool may_enter = ticket->state == TICKET_PLANNING || ticket->state == TICKET_ECHO;
    struct existing found;
    if (may_enter && enter_group(ticket))
        return;
    if (ticket->prep.goal == GOAL_PLAN)
        finish_ticket(ticket, NULL);
    else if (find_existing(ticket, &found)) /* perhaps since it was planned */
        use_existing(ticket, &found);
    else if (!refuse_reading(ticket))
        load_alone(ticket);
}

/* --- a load of its own ---------------------------------------------------------------------------------------------- */

static void load_alone(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct load *load;
    struct error error;
    trace_enter(ticket->trace, TRACE_ALLOCATE, clock_now_ns());
    do
        load = load_create(ticket->table, prep, &error);
    while (!load && !prep->is_lent &&
           replica_make_room(prep->resolved.target.replicas, prep->uid, &error, &ticket->step.n_to_evict));
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
    struct ticket *ticket = (struct ticket *)((char *)waiter - offsetof(struct ticket, waiter));
    struct preparation *prep = &ticket->prep;
    load_trace(load, ticket->trace);
    if (replica) {
        serve_ticket(ticket, replica, ticket->result.origin);
        return;
    }
    if (!load->has_lost_transport || source_has_changed(&load->error) ||
        prep->resolved.spec.policy.collective == COLLECTIVE_REQUIRED || !load_give_back_region(load, prep)) {
        if (has_memory_to_tell_of(ticket))
            error_append(&load->error,
                         "; the content of the client's memory is undefined"); /* nothing of it can be undone */
        finish_ticket(ticket, &load->error);
        return;
    }
    const struct reason problem =
        reason_with(REASON_TRANSPORT_FAILED, "%s:%s", load->parts.plan->transport.ops->name, load->error.reason);
    if (!prep->resolved.mapping) { /* the load is made of this ticket's */
        prep->resolved.mapping = load->parts.mapping;
        load->parts.mapping = NULL;
    }
    ticket->result.mapping = prep->resolved.mapping;
    go_without_group(ticket, &problem);
}

/* --- its group ------------------------------------------------------------------------------------------------------- */

static const struct team_events team_events;

static void add_echo(struct ticket *first, struct ticket *echo)
{
    log_work_of("owner_file_collective", echo->input.uid, LOG_TEXT("load_id", echo->result.load_id),
                LOG_TEXT("action", "joined_again"), LOG_TEXT("group_id", echo->prep.resolved.spec.topology.group_id),
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
    const struct execution_topology *topology = &prep->resolved.spec.topology;
    struct ticket *echo;
    while ((echo = take_echo(ticket)))
        go_without_group(echo, problem);
    prep->group_problem = *problem;
    log_work_of("owner_file_collective", ticket->input.uid, LOG_TEXT("load_id", ticket->result.load_id),
                LOG_TEXT("action", "skipped"), LOG_TEXT("group_id", topology->group_id), LOG_U64("rank", topology->rank),
                LOG_TEXT("reason", problem->text));
    ticket->result.plan = NULL;
    trace_enter(ticket->trace, TRACE_QUEUE, clock_now_ns());
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
    trace_enter(ticket->trace, TRACE_GROUP, ticket->rank.since_ns);
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

static bool enter_group(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct group_table *groups = ticket->table->groups;
    struct group_member *member = &prep->member;
    uid_t owner = ticket->input.shares_groups ? GROUP_OWNER_SHARED : ticket->input.uid;
    if (!prepare_wants_group(prep))
        return false;
    struct group_terms terms =
        prepare_group_terms(prep, ticket->input.uid, owner, rank_registry_domain(ticket->table->ranks));
    member->rank = prep->resolved.spec.topology.rank;
    member->attempt = prepare_group_attempt(prep, &terms);
    member->needs = prep->planned.needs;
    if (prep->planned.plan->executor != EXECUTOR_OWNER_FILE_COLLECTIVE) {
        bool could = prep->planned.plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].eligible;
        group_decline(groups, &terms, member->rank,
                      could ? reason_rows[REASON_PREFERS_OTHER_EXECUTOR].name : "not_eligible");
        return false;
    }
    struct existing found;
    if (ticket->prep.goal == GOAL_REPLICA && find_existing(ticket, &found)) {
        group_excuse(groups, &terms, member);
        use_existing(ticket, &found);
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
        trace_enter(ticket->trace, TRACE_PLAN, clock_now_ns());
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

static void on_group_refused(void *data, struct group_member *member, const struct error *error)
{
    (void)data;
    finish_ticket(ticket_of_member(member), error);
}

static const struct group_events group_events = {
    .complete = on_group_complete, .dissolved = on_group_dissolved, .refused = on_group_refused};

static bool on_jointly_planned(struct preparation *rank, uint64_t plan_ns, const struct reason *problem)
{
    struct ticket *ticket = ticket_of(rank);
    struct existing found;
    if (problem && problem->kind == REASON_JOINT_PLAN_MEMORY && ticket->state != TICKET_LEAVING) {
        ticket->result.times.plan_ns += plan_ns;
        group_end(&rank->member);
        go_without_group(ticket, problem);
        return false;
    }
    if (!accept_plan(ticket, plan_ns))
        return false;
    bool runs = rank->goal == GOAL_REPLICA && rank->planned.plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE;
    if (runs && !problem && !find_existing(ticket, &found))
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
        waiting_read(&ticket->waiting, info.waiting_for);
    return info;
}

/* Once, in a line of its own, when it has waited for long. */
static void log_long_wait(struct ticket *ticket, const struct load_info *info)
{
    uint64_t now_ns = clock_now_ns();
    if (!info->waiting_for[0]) {
        ticket->waits_since_ns = 0;
        return;
    }
    if (!ticket->waits_since_ns)
        ticket->waits_since_ns = now_ns;
    if (ticket->is_wait_logged || now_ns - ticket->waits_since_ns < WAIT_LOGGED_AFTER_MS * (uint64_t)NS_PER_MS)
        return;
    ticket->is_wait_logged = true;
    char *artifact = redact_copy(info->artifact ? info->artifact : "");
    log_at_of(LOG_INFO, "load_waiting", ticket->result.uid, LOG_TEXT("load_id", ticket->result.load_id),
              LOG_TEXT("artifact", artifact), LOG_TEXT("stage", info->stage), LOG_TEXT("waiting_for", info->waiting_for),
              LOG_U64("done_bytes", info->done_bytes), LOG_U64("total_bytes", info->total_bytes));
    free(artifact);
}

/* --- the end -------------------------------------------------------------------------------------------------------- */

static void serve_ticket(struct ticket *ticket, struct replica *replica, enum load_origin origin)
{
    replica_pin(replica, ticket->input.uid);
    ticket->result.replica = replica;
    ticket->result.mapping = replica->mapping;
    ticket->result.plan = replica->plan;
    ticket->result.executor = replica->plan->executor;
    ticket->result.has_executor = true;
    ticket->result.origin = origin;
    finish_ticket(ticket, NULL);
}

/* Nothing is loaded: what the client is given is in no budget, for no other client, and goes with its lease. */
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
    /* the same request, sent again, gets the same; if the first one was cancelled, the next one takes its place */
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
    set_ticket_state(ticket, TICKET_DONE);
    LIST_REMOVE(ticket, in_table);
    if (LIST_EMPTY(&ticket->table->tickets))
        loop_timer_stop(ticket->table->progress_timer);
    ticket->result.times.total_ns = clock_now_ns() - ticket->submitted_ns;
    ticket->trace->facts.pool_budget_bytes = ticket->prep.config->memory.pool_budget_bytes;
    trace_finish(ticket->trace, &ticket->result, error);
    ticket->is_kept = ticket->prep.goal == GOAL_REPLICA && !(error && error->kind == ERROR_KIND_NOT_RESIDENT);
    if (ticket->prep.goal == GOAL_REPLICA)
        load_count_result(&ticket->result, error);
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
    if (was == TICKET_WAITING) {
        load_trace(ticket->waiter.load, ticket->trace);
        load_leave(&ticket->waiter);
    } else if (was == TICKET_ECHO)
        remove_echo(ticket);
    bool was_queued = helper_step_end(&ticket->step);
    if (was == TICKET_WAITING || was == TICKET_ECHO || was == TICKET_ASSEMBLING || was_queued)
        finish_ticket(ticket, NULL);
    else /* a stage that a helper has begun ends first */
        loop_cancel(ticket->table->services->loop, &ticket->work);
}

void ticket_hand_off(struct ticket *ticket)
{
    trace_hand_off(ticket->trace);
}

void ticket_destroy(struct ticket *ticket)
{
    if (!ticket)
        return;
    if (ticket->result.replica)
        replica_unpin(ticket->result.replica, ticket->input.uid);
    prepare_fini(&ticket->prep);
    arena_fini(&ticket->input.arena);
    waiting_fini(&ticket->waiting);
    struct trace_sink *sink = ticket->table->services->trace_sink;
    if (ticket->is_kept && sink)
        sink->take(sink, ticket->trace);
    if (ticket->is_kept)
        traces_keep(&ticket->table->traces, ticket->trace);
    else
        trace_destroy(ticket->trace);
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

/* --- the table of all ----------------------------------------------------------------------------------------------- */

static void tell_all(void *data)
{
    struct load_table *table = data;
    for (struct ticket *ticket = LIST_FIRST(&table->tickets), *next; ticket; ticket = next) {
        next = LIST_NEXT(
            ticket,
            in_table); /* it may leave, but no other; before its load there is only something to tell when it waits */
        if (ticket->state != TICKET_LEAVING) {
            const struct load_info info = ticket_describe(ticket);
            log_long_wait(ticket, &info);
            if (ticket->events->progress && (info.waiting_for[0] || ticket->state == TICKET_WAITING))
                ticket->events->progress(ticket->data, &info);
        }
    }
}

struct load_table *load_table_create(const struct load_services *services)
{
    struct load_table *table = memory_alloc(sizeof *table);
    table->services = services;
    table->progress_timer = loop_timer_create(services->loop, tell_all, table);
    table->groups = group_table_create(services->loop, services->quota, &group_events, table);
    table->joint_plans = joint_plans_create();
    return table;
}

void load_table_join_hosts(struct load_table *table, struct rank_registry *ranks)
{
    table->ranks = ranks;
    group_table_join_hosts(table->groups, ranks);
}

void load_table_destroy(struct load_table *table)
{
    if (!table)
        return;
    loop_timer_destroy(table->progress_timer);
    group_table_destroy(table->groups);
    joint_plans_destroy(table->joint_plans);
    traces_fini(&table->traces);
    free(table);
}

void load_table_each(const struct load_table *table, void (*fn)(void *data, const struct load_info *info), void *data)
{
    for (const struct load *load = table->loads; load; load = load->next) {
        struct load_info info = load_describe(load);
        fn(data, &info);
    }
}

const struct traces *load_table_traces(const struct load_table *table)
{
    return &table->traces;
}

bool load_table_forget_plan(struct load_table *table)
{
    return joint_plans_shrink(table->joint_plans);
}

uint64_t load_table_n_waiting_ranks(const struct load_table *table)
{
    const struct ticket *ticket;
    uint64_t n = 0;
    LIST_FOREACH (ticket, &table->tickets, in_table)
        n += ticket->state == TICKET_ASSEMBLING;
    return n;
}

bool load_table_awaits_ranks(const struct load_table *table)
{
    const struct ticket *ticket;
    LIST_FOREACH (ticket, &table->tickets, in_table)
        if (ticket->input.request.has_group && ticket->input.request.world_size > 1 && ticket->state <= TICKET_ASSEMBLING)
            return true;
    return false;
}

bool load_table_idle(const struct load_table *table)
{
    return table->loads == NULL;
}
