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
#include "load/load.h"
#include "load/load_log.h"
#include "load/prepare.h"
#include "load/team.h"
#include "observe/log.h"

enum {
    MAX_POLICY_CHARS = 512,
    EXPLAIN_WAIT_MS = 500, /* for ranks that are explained at the same time; nobody waits 15 s for a plan */
};

struct ticket {
    struct loop_work work; /* first */
    struct load_table *table;
    _Atomic enum ticket_state state; /* helpers look whether it is LEAVING */
    enum ticket_goal goal;
    const struct ticket_events *events;
    void *data;
    struct ticket_input input;
    struct preparation preparation;
    struct { /* of its group */
        struct team_member member;
        char attempt[DIGEST_HEX_CHARS + 1]; /* of the member: who sent it, and what it asks for */
        uint64_t since_ns;                  /* when it began to wait */
        struct ticket *first;               /* while ECHO: whose result it gets */
        struct ticket *echoes, *next_echo;
    } rank;
    struct load_waiter waiter;
    struct load_result result;
    uint64_t submitted_ns;
};

static struct ticket *ticket_of_member(struct team_member *member)
{
    return (struct ticket *)((char *)member - offsetof(struct ticket, rank.member));
}

static struct ticket *ticket_of_waiter(struct load_waiter *waiter)
{
    return (struct ticket *)((char *)waiter - offsetof(struct ticket, waiter));
}

/* --- states --------------------------------------------------------------------------------------------------------- */

static const char *const state_names[TICKET_STATES] = {[TICKET_CREATED] = "created",
                                                       [TICKET_RESOLVING] = "resolving",
                                                       [TICKET_PLANNING] = "planning",
                                                       [TICKET_ASSEMBLING] = "assembling",
                                                       [TICKET_ECHO] = "echo",
                                                       [TICKET_PLANNING_JOINTLY] = "planning jointly",
                                                       [TICKET_PLANNING_ALONE] = "planning alone",
                                                       [TICKET_WAITING] = "waiting",
                                                       [TICKET_LEAVING] = "leaving",
                                                       [TICKET_DONE] = "done"};

enum { ENDS = STATE_BIT(TICKET_LEAVING) | STATE_BIT(TICKET_DONE) };

static const uint32_t next_states[TICKET_STATES] = {
    [TICKET_CREATED] = STATE_BIT(TICKET_RESOLVING),
    [TICKET_RESOLVING] = STATE_BIT(TICKET_PLANNING) | STATE_BIT(TICKET_WAITING) | ENDS,
    [TICKET_PLANNING] = STATE_BIT(TICKET_ASSEMBLING) | STATE_BIT(TICKET_WAITING) | ENDS,
    [TICKET_ASSEMBLING] =
        STATE_BIT(TICKET_ECHO) | STATE_BIT(TICKET_PLANNING_JOINTLY) | STATE_BIT(TICKET_PLANNING_ALONE) | ENDS,
    [TICKET_ECHO] = STATE_BIT(TICKET_ASSEMBLING) | STATE_BIT(TICKET_PLANNING_ALONE) | STATE_BIT(TICKET_WAITING) | ENDS,
    [TICKET_PLANNING_JOINTLY] = STATE_BIT(TICKET_PLANNING_ALONE) | STATE_BIT(TICKET_WAITING) | ENDS,
    [TICKET_PLANNING_ALONE] = STATE_BIT(TICKET_WAITING) | ENDS,
    [TICKET_WAITING] = STATE_BIT(TICKET_PLANNING_ALONE) | ENDS,
    [TICKET_LEAVING] = STATE_BIT(TICKET_DONE),
};

const struct state_machine ticket_machine = {"ticket", TICKET_STATES, state_names, next_states};

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

static const struct load_waiter_events waiter_events;

struct ticket *ticket_create(struct load_table *table, const struct ticket_input *input)
{
    struct ticket *ticket = memory_alloc(sizeof *ticket);
    struct preparation *preparation = &ticket->preparation;
    ticket->table = table;
    ticket->input = *input;
    ticket->waiter = (struct load_waiter){.events = &waiter_events, .uid = input->uid};
    ticket->result = (struct load_result){
        .uid = input->uid, .pid = input->pid, .artifact = input->request.artifact, .spec = &preparation->spec};
    random_id(ticket->result.load_id);
    ticket->rank.member = (struct team_member){
        .member.holder = ticket->result.load_id, .preparation = preparation, .load_id = ticket->result.load_id};
    prepare_init(preparation, table->services, input->uid, input->region);
    return ticket;
}

static void place_resolve(struct ticket *ticket);
static void finish_ticket(struct ticket *ticket, const struct error *error);

void ticket_submit(struct ticket *ticket, enum ticket_goal goal, const struct ticket_events *events, void *data)
{
    struct error error;
    ticket->goal = goal;
    ticket->rank.member.only_plans = goal == GOAL_PLAN;
    ticket->events = events;
    ticket->data = data;
    ticket->submitted_ns = clock_now_ns();
    set_ticket_state(ticket, TICKET_RESOLVING);
    place_resolve(ticket);
    if (loop_submit(ticket->table->services->loop, &ticket->work, &error) != 0)
        finish_ticket(ticket, &error);
}

/* --- resolving ------------------------------------------------------------------------------------------------------ */

static bool is_leaving(void *data)
{
    return ((const struct ticket *)data)->state == TICKET_LEAVING;
}

static void resolve_on_helper(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    const struct cancel cancel = {is_leaving, ticket};
    prepare_resolve(&ticket->preparation, &ticket->input.request, ticket->input.artifact, &cancel);
}

/* The mapping says all that the view said. */
static void forget_request(struct ticket *ticket)
{
    struct load_spec *spec = &ticket->preparation.spec;
    ticket->result.artifact = spec->artifact;
    spec->view = (struct view_spec){.whole = spec->view.whole, .align_bytes = spec->view.align_bytes};
    arena_fini(&ticket->input.arena);
    if (ticket->events->resolved)
        ticket->events->resolved(ticket->data);
}

static void place_plan(struct ticket *ticket);
static bool use_existing(struct ticket *ticket);

static void on_resolved(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    struct preparation *preparation = &ticket->preparation;
    ticket->result.times.resolve_ns = preparation->resolve_ns;
    if (!preparation->mapping && ticket->state != TICKET_LEAVING && prepare_find_room(preparation, &preparation->error)) {
        place_resolve(ticket);
        loop_continue(ticket->table->services->loop, &ticket->work);
        return;
    }
    if (!preparation->mapping || ticket->state == TICKET_LEAVING) {
        finish_ticket(ticket, &preparation->error);
        return;
    }
    const struct artifact *artifact = preparation->mapping->artifact;
    ticket->result.mapping = preparation->mapping;
    ticket->result.device = preparation->target.device;
    ticket->rank.member.lane = work->lane;
    forget_request(ticket);
    replica_drop_stale(preparation->target.replicas, artifact);
    bool must_plan = ticket->goal == GOAL_PLAN || preparation->spec.policy.collective == COLLECTIVE_REQUIRED ||
                     prepare_wants_group(preparation);
    if (!must_plan && use_existing(ticket))
        return;
    preparation->costs = calibration_get(ticket->table->services->calibration, artifact->source->caps.device_id);
    set_ticket_state(ticket, TICKET_PLANNING);
    place_plan(ticket);
}

static void place_resolve(struct ticket *ticket)
{
    const char *artifact = ticket->input.request.artifact;
    ticket->work = (struct loop_work){.do_work = resolve_on_helper, .done = on_resolved, .uid = ticket->input.uid};
    source_place_work(artifact ? artifact : "", &ticket->work);
}

/* --- planning ------------------------------------------------------------------------------------------------------- */

static void plan_on_helper(struct loop_work *work)
{
    prepare_plan(&((struct ticket *)work)->preparation);
}

static void go_on(struct ticket *ticket);

static void on_planned(struct loop_work *work)
{
    struct ticket *ticket = (struct ticket *)work;
    struct preparation *preparation = &ticket->preparation;
    ticket->result.plan = preparation->plan;
    ticket->result.times.plan_ns += preparation->plan_ns;
    if (!preparation->plan && ticket->state != TICKET_LEAVING && prepare_find_room(preparation, &preparation->error)) {
        place_plan(ticket);
        return;
    }
    if (!preparation->plan || ticket->state == TICKET_LEAVING) {
        finish_ticket(ticket, &preparation->error);
        return;
    }
    load_log_plan(&ticket->result, preparation->cached_share);
    go_on(ticket);
}

/* Asks a file system what is cached; for others it only computes. */
static void place_plan(struct ticket *ticket)
{
    const struct artifact *artifact = ticket->preparation.mapping->artifact;
    ticket->work = (struct loop_work){.do_work = plan_on_helper, .done = on_planned, .uid = ticket->input.uid};
    if (artifact->source->caps.residency) {
        source_place_work(artifact->reference, &ticket->work);
        ticket->work.lane |= ticket->rank.member.lane;
    }
    loop_continue(ticket->table->services->loop, &ticket->work);
}

static bool enter_group(struct ticket *ticket);
static void load_alone(struct ticket *ticket);

/* It has a plan. */
static void go_on(struct ticket *ticket)
{
    if (ticket->state != TICKET_PLANNING_ALONE && enter_group(ticket))
        return;
    if (ticket->goal == GOAL_PLAN)
        finish_ticket(ticket, NULL);
    else if (!use_existing(ticket))
        load_alone(ticket);
}

/* --- its group ------------------------------------------------------------------------------------------------------ */

static void add_echo(struct ticket *first, struct ticket *echo)
{
    log_at_of(LOG_INFO, "collective_disk_load", echo->input.uid, LOG_TEXT("load_id", echo->result.load_id),
              LOG_TEXT("action", "joined_again"), LOG_TEXT("group_id", echo->preparation.spec.topology.group_id),
              LOG_U64("rank", echo->rank.member.member.rank), LOG_TEXT("reason", first->result.load_id));
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
    struct preparation *preparation = &ticket->preparation;
    const struct execution_topology *topology = &preparation->spec.topology;
    struct ticket *echo;
    while ((echo = take_echo(ticket)))
        go_without_group(echo, problem);
    preparation->group_problem = *problem;
    log_at_of(LOG_INFO, "collective_disk_load", ticket->input.uid, LOG_TEXT("load_id", ticket->result.load_id),
              LOG_TEXT("action", "skipped"), LOG_TEXT("group_id", topology->group_id), LOG_U64("rank", topology->rank),
              LOG_TEXT("reason", problem->text));
    ticket->result.plan = NULL;
    set_ticket_state(ticket, TICKET_PLANNING_ALONE);
    place_plan(ticket);
}

static struct group_terms terms_of(const struct ticket *ticket, char policy[MAX_POLICY_CHARS])
{
    static const char *const collective[] = {"auto", "required", "disabled"};
    static const char *const locality[] = {"auto", "host_local", "shared_source"};
    const struct preparation *preparation = &ticket->preparation;
    const struct load_spec *spec = &preparation->spec;
    const struct execution_topology *topology = &spec->topology;
    uint64_t timeout_ms = preparation->config->engine.strategy.owner_file_collective_group_assemble_timeout_ms;
    if (ticket->goal == GOAL_PLAN && timeout_ms > EXPLAIN_WAIT_MS)
        timeout_ms = EXPLAIN_WAIT_MS;
    snprintf(policy, MAX_POLICY_CHARS, "collective=%s executor=%s source_locality=%s source_sharing_domain=%s",
             collective[spec->policy.collective], executor_preference_names[spec->policy.executor],
             locality[topology->source_locality], topology->source_sharing_domain ? topology->source_sharing_domain : "");
    return (struct group_terms){.uid = ticket->input.uid,
                                .owner = ticket->input.shares_groups ? GROUP_OWNER_SHARED : ticket->input.uid,
                                .id = topology->group_id,
                                .purpose = ticket->goal == GOAL_PLAN ? "explain" : "load",
                                .world_size = topology->world_size,
                                .reference = preparation->mapping->artifact->reference,
                                .artifact = preparation->mapping->artifact->source_key,
                                .policy = policy,
                                .timeout_ms = timeout_ms};
}

/* A retry repeats all of it. */
static void name_attempt(struct ticket *ticket, const struct group_terms *terms)
{
    unsigned char bytes[DIGEST_BYTES];
    const struct preparation *preparation = &ticket->preparation;
    const char *attempt = preparation->spec.topology.attempt;
    if (!attempt || ticket->goal == GOAL_PLAN)
        return;
    struct digest *digest = digest_create();
    digest_add_text(digest, attempt);
    digest_add_text(digest, terms->artifact);
    digest_add_text(digest, terms->policy);
    digest_add_text(digest, preparation->mapping->view_digest);
    digest_add_text(digest, preparation->target.device->caps.name);
    digest_finish(digest, bytes);
    digest_hex(bytes, sizeof bytes, ticket->rank.attempt);
    ticket->rank.member.member.attempt = ticket->rank.attempt;
}

static void join_group(struct ticket *ticket, const struct group_terms *terms)
{
    struct group_member *member = &ticket->rank.member.member;
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
        add_echo(ticket_of_member((struct team_member *)member->first), ticket);
        break;
    }
}

static bool has_existing(const struct ticket *ticket);

/* False: it goes on alone. */
static bool enter_group(struct ticket *ticket)
{
    const struct preparation *preparation = &ticket->preparation;
    struct group_table *groups = ticket->table->groups;
    struct group_member *member = &ticket->rank.member.member;
    char policy[MAX_POLICY_CHARS];
    if (!prepare_wants_group(preparation))
        return false;
    struct group_terms terms = terms_of(ticket, policy);
    member->rank = preparation->spec.topology.rank;
    name_attempt(ticket, &terms);
    if (preparation->plan->executor != EXECUTOR_OWNER_FILE_COLLECTIVE) {
        bool could = preparation->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].eligible;
        group_decline(groups, &terms, member->rank,
                      could ? reason_rows[REASON_PREFERS_OTHER_EXECUTOR].name : "not_eligible");
        return false;
    }
    if (ticket->goal == GOAL_REPLICA && has_existing(ticket)) {
        group_excuse(groups, &terms, member);
        use_existing(ticket);
    } else {
        join_group(ticket, &terms);
    }
    return true;
}

static const struct team_events team_events;

static void on_group_complete(void *data, struct group *group)
{
    for (uint32_t rank = 0; rank < group_world_size(group); rank++) {
        struct group_member *member = group_find(group, rank);
        if (!member)
            continue;
        struct ticket *ticket = ticket_of_member((struct team_member *)member);
        ticket->result.times.assemble_ns = clock_now_ns() - ticket->rank.since_ns;
        set_ticket_state(ticket, TICKET_PLANNING_JOINTLY);
    }
    team_gather(data, group, &team_events);
}

static void on_group_dissolved(void *data, struct group_member *member, const struct reason *problem)
{
    struct ticket *ticket = ticket_of_member((struct team_member *)member);
    (void)data;
    ticket->result.times.assemble_ns = clock_now_ns() - ticket->rank.since_ns;
    go_without_group(ticket, problem);
}

const struct group_events ticket_group_events = {.complete = on_group_complete, .dissolved = on_group_dissolved};

static bool on_team_planned(struct team_member *member, uint64_t plan_ns, const struct reason *problem)
{
    struct ticket *ticket = ticket_of_member(member);
    const struct plan *plan = ticket->preparation.plan;
    ticket->result.plan = plan;
    ticket->result.times.plan_ns += plan_ns;
    if (!plan || ticket->state == TICKET_LEAVING) {
        finish_ticket(ticket, &ticket->preparation.error);
        return false;
    }
    load_log_plan(&ticket->result, ticket->preparation.cached_share);
    if (ticket->goal == GOAL_PLAN) {
        finish_ticket(ticket, NULL);
        return false;
    }
    bool is_collective = plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE;
    if (is_collective && !problem && !has_existing(ticket))
        return true;
    group_end(ticket->table->groups, &member->member);
    if (is_collective && problem)
        go_without_group(ticket, problem);
    else if (!use_existing(ticket))
        load_alone(ticket);
    return false;
}

static void on_team_failed(struct team_member *member, const struct error *error)
{
    finish_ticket(ticket_of_member(member), error);
}

static void wait_for_load(struct ticket *ticket, struct load *load, enum load_origin origin);

static void on_team_joined(struct team_member *member, struct load *load, enum load_origin origin)
{
    wait_for_load(ticket_of_member(member), load, origin);
}

static const struct team_events team_events = {
    .planned = on_team_planned, .failed = on_team_failed, .joined = on_team_joined};

/* --- a replica or a load -------------------------------------------------------------------------------------------- */

struct existing { /* one of them serves the ticket */
    struct replica *replica;
    struct load *load;
};

static struct existing find_existing(const struct ticket *ticket)
{
    const struct preparation *preparation = &ticket->preparation;
    struct existing existing = {0};
    if (preparation->region)
        return existing;
    struct replica_key key = replica_key_of(preparation->mapping, preparation->target.device);
    existing.replica = replica_find(preparation->target.replicas, &key);
    /* one that was loaded before verification was required may not do */
    if (existing.replica && preparation->config->verify == VERIFY_REQUIRED &&
        existing.replica->verdict.status != VERIFIED_ALL)
        existing.replica = NULL;
    if (!existing.replica)
        existing.load = load_find(ticket->table, &key);
    return existing;
}

static bool has_existing(const struct ticket *ticket)
{
    struct existing existing = find_existing(ticket);
    return existing.replica || existing.load;
}

static void serve_ticket(struct ticket *ticket, struct replica *replica, enum load_origin origin);

static bool use_existing(struct ticket *ticket)
{
    struct existing existing = find_existing(ticket);
    if (existing.replica)
        serve_ticket(ticket, existing.replica, LOAD_FROM_REPLICA);
    else if (existing.load)
        wait_for_load(ticket, existing.load, LOAD_JOINED);
    return existing.replica || existing.load;
}

static void wait_for_load(struct ticket *ticket, struct load *load, enum load_origin origin)
{
    struct ticket *echo;
    set_ticket_state(ticket, TICKET_WAITING);
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
    struct preparation *preparation = &ticket->preparation;
    struct load *load;
    struct error error;
    do
        load = load_create(ticket->table, ticket->result.load_id, ticket->rank.member.lane, preparation, &error);
    while (!load && prepare_find_room(preparation, &error));
    if (!load) {
        finish_ticket(ticket, &error);
        return;
    }
    wait_for_load(ticket, load, LOAD_OWN);
    load_start(load, NULL, 0, 1);
}

static void on_load_progress(struct load_waiter *waiter, const struct load_info *info, double eta_ms)
{
    const struct ticket *ticket = ticket_of_waiter(waiter);
    if (ticket->events->progress)
        ticket->events->progress(ticket->data, info->stage, info->done_bytes, info->total_bytes, eta_ms);
}

static void on_load_served(struct load_waiter *waiter, struct replica *replica)
{
    struct ticket *ticket = ticket_of_waiter(waiter);
    serve_ticket(ticket, replica, ticket->result.origin);
}

/* A failed load may have lost nothing but what was on its way between the ranks: the source still has the bytes, unless it
 * has changed. Then a ticket that does not insist on its group is planned again without. */
static void on_load_failed(struct load_waiter *waiter, struct load *load)
{
    struct ticket *ticket = ticket_of_waiter(waiter);
    struct preparation *preparation = &ticket->preparation;
    if (!load->has_lost_transport || source_has_changed(&load->error) ||
        preparation->spec.policy.collective == COLLECTIVE_REQUIRED) {
        finish_ticket(ticket, &load->error);
        return;
    }
    const struct reason problem =
        reason_with(REASON_TRANSPORT_FAILED, "%s:%s", load->parts.plan->transport.ops->name, load->error.reason);
    if (!preparation->mapping) { /* the load is made of this ticket's */
        preparation->mapping = load->parts.mapping;
        load->parts.mapping = NULL;
    }
    ticket->result.mapping = preparation->mapping;
    go_without_group(ticket, &problem);
}

static const struct load_waiter_events waiter_events = {
    .progress = on_load_progress, .served = on_load_served, .failed = on_load_failed};

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
    struct group_table *groups = ticket->table->groups;
    struct group_member *member = &ticket->rank.member.member;
    struct error cancelled;
    if (ticket->state == TICKET_LEAVING) {
        group_leave(groups, member);
        load_say_why_cancelled(ticket->table, &cancelled);
        error = &cancelled;
    } else {
        group_end(groups, member);
    }
    settle_echoes(ticket, error);
    set_ticket_state(ticket, TICKET_DONE);
    ticket->result.times.total_ns = clock_now_ns() - ticket->submitted_ns;
    if (!ticket->table->services->of_one_user)
        load_log_result(&ticket->result, ticket->goal == GOAL_PLAN, error);
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
    prepare_fini(&ticket->preparation);
    arena_fini(&ticket->input.arena);
    free(ticket);
}

const struct load_result *ticket_result(const struct ticket *ticket)
{
    return &ticket->result;
}

struct plan_facts ticket_facts(const struct ticket *ticket)
{
    return prepare_facts(&ticket->preparation);
}
