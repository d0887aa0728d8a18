/* A ticket's way through its group: entering, waiting for the other ranks, the joint plan, and going on without. The same
 * request of one rank, sent again, is an echo of the first. */
#include <stddef.h>

#include "base/clock.h"
#include "load/group.h"
#include "load/group_terms.h"
#include "load/team.h"
#include "load/ticket_private.h"
#include "observe/log.h"

static struct ticket *ticket_of(struct preparation *prep)
{
    return (struct ticket *)((char *)prep - offsetof(struct ticket, prep));
}

static struct ticket *ticket_of_member(struct group_member *member)
{
    return (struct ticket *)((char *)member - offsetof(struct ticket, prep.member));
}

static const struct team_events team_events;

static void add_echo(struct ticket *first, struct ticket *echo)
{
    log_work_of("owner_file_collective", echo->input.uid, LOG_TEXT("load_id", echo->result.load_id),
                LOG_TEXT("action", "joined_again"), LOG_TEXT("group_id", echo->prep.resolved.spec.topology.group_id),
                LOG_U64("rank", echo->prep.member.rank), LOG_TEXT("reason", first->result.load_id));
    ticket_set_state(echo, TICKET_ECHO);
    echo->rank.first = first;
    echo->rank.next_echo = first->rank.echoes;
    first->rank.echoes = echo;
}

void ticket_remove_echo(struct ticket *echo)
{
    struct ticket **at = &echo->rank.first->rank.echoes;
    while (*at != echo)
        at = &(*at)->rank.next_echo;
    *at = echo->rank.next_echo;
    echo->rank.first = NULL;
}

struct ticket *ticket_take_echo(struct ticket *first)
{
    struct ticket *echo = first->rank.echoes;
    if (echo)
        ticket_remove_echo(echo);
    return echo;
}

/* It is planned again, as one rank alone; so are its echoes. */
void ticket_go_without_group(struct ticket *ticket, const struct reason *problem)
{
    struct preparation *prep = &ticket->prep;
    const struct execution_topology *topology = &prep->resolved.spec.topology;
    struct ticket *echo;
    while ((echo = ticket_take_echo(ticket)))
        ticket_go_without_group(echo, problem);
    prep->group_problem = *problem;
    log_work_of("owner_file_collective", ticket->input.uid, LOG_TEXT("load_id", ticket->result.load_id),
                LOG_TEXT("action", "skipped"), LOG_TEXT("group_id", topology->group_id), LOG_U64("rank", topology->rank),
                LOG_TEXT("reason", problem->text));
    ticket->result.plan = NULL;
    ticket_set_state(ticket, TICKET_PLANNING_ALONE);
    ticket_place_plan(ticket);
}

static void join_group(struct ticket *ticket, const struct group_terms *terms)
{
    struct group_member *member = &ticket->prep.member;
    struct reason problem;
    struct error error;
    ticket_set_state(ticket, TICKET_ASSEMBLING);
    ticket->rank.since_ns = clock_now_ns();
    switch (group_join(ticket->table->groups, terms, member, &problem, &error)) {
    case GROUP_JOINED:
        break;
    case GROUP_LATE:
        ticket_go_without_group(ticket, &problem);
        break;
    case GROUP_REFUSED:
        ticket_finish(ticket, &error);
        break;
    case GROUP_AGAIN:
        add_echo(ticket_of_member(member->first), ticket);
        break;
    }
}

bool ticket_enter_group(struct ticket *ticket)
{
    struct preparation *prep = &ticket->prep;
    struct group_table *groups = ticket->table->groups;
    struct group_member *member = &prep->member;
    uid_t owner = ticket->input.shares_groups ? GROUP_OWNER_SHARED : ticket->input.uid;
    if (!prepare_wants_group(prep))
        return false;
    struct group_terms terms = group_terms_of(prep, ticket->input.uid, owner);
    member->rank = prep->resolved.spec.topology.rank;
    member->attempt = group_attempt_of(prep, &terms);
    if (prep->planned.plan->executor != EXECUTOR_OWNER_FILE_COLLECTIVE) {
        bool could = prep->planned.plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].eligible;
        group_decline(groups, &terms, member->rank,
                      could ? reason_rows[REASON_PREFERS_OTHER_EXECUTOR].name : "not_eligible");
        return false;
    }
    if (ticket->prep.goal == GOAL_REPLICA && ticket_is_there(ticket)) {
        group_excuse(groups, &terms, member);
        ticket_use_existing(ticket);
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
        ticket_set_state(ticket, TICKET_PLANNING_JOINTLY);
    }
    team_gather(data, group, &team_events);
}

static void on_group_dissolved(void *data, struct group_member *member, const struct reason *problem)
{
    struct ticket *ticket = ticket_of_member(member);
    (void)data;
    ticket->result.times.assemble_ns = clock_now_ns() - ticket->rank.since_ns;
    ticket_go_without_group(ticket, problem);
}

const struct group_events ticket_group_events = {.complete = on_group_complete, .dissolved = on_group_dissolved};

static bool on_jointly_planned(struct preparation *rank, uint64_t plan_ns, const struct reason *problem)
{
    struct ticket *ticket = ticket_of(rank);
    if (problem && problem->kind == REASON_JOINT_PLAN_MEMORY && ticket->state != TICKET_LEAVING) {
        ticket->result.times.plan_ns += plan_ns;
        group_end(&rank->member);
        ticket_go_without_group(ticket, problem);
        return false;
    }
    if (!ticket_accept_plan(ticket, plan_ns))
        return false;
    bool runs = rank->goal == GOAL_REPLICA && rank->planned.plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE;
    if (runs && !problem && !ticket_is_there(ticket))
        return true;
    group_end(&rank->member);
    if (runs && problem)
        ticket_go_without_group(ticket, problem);
    else
        ticket_go_on(ticket);
    return false;
}

static void on_team_failed(struct preparation *rank, const struct error *error)
{
    ticket_finish(ticket_of(rank), error);
}

static void on_team_joined(struct preparation *rank, struct load *load, enum load_origin origin)
{
    ticket_wait_for_load(ticket_of(rank), load, origin);
}

static const struct team_events team_events = {
    .planned = on_jointly_planned, .failed = on_team_failed, .joined = on_team_joined};
