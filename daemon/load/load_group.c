/* The meeting of tickets (group.h); drawn in load_group.h. What they do when all of them are here is load_team.c's. */
#include "load/load_group.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "load/load_private.h"
#include "load/load_team.h"
#include "observe/log.h"

enum {
    MAX_POLICY_CHARS = 512,
    EXPLAIN_WAIT_MS = 500, /* for ranks that are explained at the same time; nobody waits 15 s for a plan */
};

/* --- what has to be alike ------------------------------------------------------------------------------------------- */

bool load_group_is_wanted(const struct ticket_internal *internal)
{
    const struct load_spec *spec = &internal->ticket->spec;
    return spec->topology.has_group && spec->policy.collective != COLLECTIVE_DISABLED &&
           internal->config->engine.strategy.enable_owner_file_collective;
}

static struct group_terms terms_of(const struct ticket_internal *internal, char policy[MAX_POLICY_CHARS])
{
    static const char *const collective[] = {"auto", "required", "disabled"};
    static const char *const locality[] = {"auto", "host_local", "shared_source"};
    const struct load_spec *spec = &internal->ticket->spec;
    const struct execution_topology *topology = &spec->topology;
    uint64_t timeout_ms = internal->config->engine.strategy.owner_file_collective_group_assemble_timeout_ms;
    if (internal->goal == GOAL_PLAN && timeout_ms > EXPLAIN_WAIT_MS)
        timeout_ms = EXPLAIN_WAIT_MS;
    snprintf(policy, MAX_POLICY_CHARS, "collective=%s executor=%s source_locality=%s source_sharing_domain=%s",
             collective[spec->policy.collective], executor_preference_names[spec->policy.executor],
             locality[topology->source_locality], topology->source_sharing_domain ? topology->source_sharing_domain : "");
    return (struct group_terms){.uid = internal->ticket->uid,
                                .owner = internal->ticket->shares_groups ? GROUP_OWNER_SHARED : internal->ticket->uid,
                                .id = topology->group_id,
                                .purpose = internal->goal == GOAL_PLAN ? "explain" : "load",
                                .world_size = topology->world_size,
                                .reference = internal->mapping->artifact->reference,
                                .artifact = internal->mapping->artifact->source_key,
                                .policy = policy,
                                .timeout_ms = timeout_ms};
}

/* --- assembling ----------------------------------------------------------------------------------------------------- */

struct ticket_internal *load_group_take_echo(struct ticket_internal *internal)
{
    struct ticket_internal *echo = internal->echoes;
    if (echo) {
        internal->echoes = echo->next;
        echo->echo_of = NULL;
    }
    return echo;
}

void load_group_drop_echo(struct ticket_internal *internal)
{
    if (!internal->echo_of)
        return;
    struct ticket_internal **at = &internal->echo_of->echoes;
    while (*at != internal)
        at = &(*at)->next;
    *at = internal->next;
    internal->echo_of = NULL;
}

static void add_echo(struct ticket_internal *first, struct ticket_internal *echo)
{
    log_at_of(LOG_INFO, "collective_disk_load", echo->ticket->uid, LOG_TEXT("load_id", echo->ticket->id),
              LOG_TEXT("action", "joined_again"), LOG_TEXT("group_id", echo->ticket->spec.topology.group_id),
              LOG_U64("rank", echo->member.rank), LOG_TEXT("reason", first->ticket->id));
    echo->state = TICKET_ECHO;
    echo->echo_of = first;
    echo->next = first->echoes;
    first->echoes = echo;
}

static void echoes_go_without(struct ticket_internal *internal, const struct reason *problem)
{
    struct ticket_internal *echo;
    while ((echo = load_group_take_echo(internal)))
        load_group_go_without(echo, problem);
}

void load_group_go_without(struct ticket_internal *internal, const struct reason *problem)
{
    echoes_go_without(internal, problem);
    internal->group_problem = *problem;
    log_at_of(LOG_INFO, "collective_disk_load", internal->ticket->uid, LOG_TEXT("load_id", internal->ticket->id),
              LOG_TEXT("action", "skipped"), LOG_TEXT("group_id", internal->ticket->spec.topology.group_id),
              LOG_U64("rank", internal->ticket->spec.topology.rank), LOG_TEXT("reason", problem->text));
    load_plan_again(internal);
}

/* A retry repeats all of it. */
static void name_attempt(struct ticket_internal *internal, const struct group_terms *terms)
{
    unsigned char bytes[DIGEST_BYTES];
    const char *attempt = internal->ticket->spec.topology.attempt;
    if (!attempt || internal->goal == GOAL_PLAN)
        return;
    struct digest *digest = digest_create();
    digest_add_text(digest, attempt);
    digest_add_text(digest, terms->artifact);
    digest_add_text(digest, terms->policy);
    digest_add_text(digest, internal->mapping->view_digest);
    digest_add_text(digest, internal->target.device->caps.name);
    digest_finish(digest, bytes);
    digest_hex(bytes, sizeof bytes, internal->attempt);
    internal->member.attempt = internal->attempt;
}

static void join_group(struct ticket_internal *internal, const struct group_terms *terms)
{
    struct reason problem;
    struct error error;
    internal->state = TICKET_ASSEMBLING;
    internal->assembling_ns = clock_now_ns();
    switch (group_join(internal->table->groups, terms, &internal->member, &problem, &error)) {
    case GROUP_JOINED:
        break;
    case GROUP_LATE:
        load_group_go_without(internal, &problem);
        break;
    case GROUP_REFUSED:
        load_finish_ticket(internal, &error);
        break;
    case GROUP_AGAIN:
        add_echo(load_group_ticket(internal->member.first), internal);
        break;
    }
}

bool load_group_enter(struct ticket_internal *internal)
{
    char policy[MAX_POLICY_CHARS];
    if (!load_group_is_wanted(internal) || internal->group_problem.kind != REASON_ELIGIBLE)
        return false;
    struct group_terms terms = terms_of(internal, policy);
    uint32_t rank = internal->member.rank = internal->ticket->spec.topology.rank;
    name_attempt(internal, &terms);
    if (internal->plan->executor != EXECUTOR_OWNER_FILE_COLLECTIVE) {
        group_decline(internal->table->groups, &terms, rank,
                      internal->plan->candidates[EXECUTOR_OWNER_FILE_COLLECTIVE].eligible
                          ? reason_rows[REASON_PREFERS_OTHER_EXECUTOR].name
                          : "not_eligible");
        return false;
    }
    if (internal->goal == GOAL_REPLICA && load_exists(internal)) {
        group_excuse(internal->table->groups, &terms, &internal->member);
        load_take_existing(internal);
        return true;
    }
    join_group(internal, &terms);
    return true;
}

void load_group_release(struct ticket_internal *internal)
{
    if (internal->cancelled)
        group_leave(internal->table->groups, &internal->member);
    else
        group_end(internal->table->groups, &internal->member);
}

static void on_dissolved(void *data, struct group_member *member, const struct reason *problem)
{
    struct ticket_internal *internal = load_group_ticket(member);
    (void)data;
    internal->ticket->assemble_ns = clock_now_ns() - internal->assembling_ns;
    if (internal->cancelled) { /* while its group was planning */
        echoes_go_without(internal, problem);
        load_finish_ticket(internal, NULL);
    } else {
        load_group_go_without(internal, problem);
    }
}

/* --- the table ------------------------------------------------------------------------------------------------------ */

static void on_complete(void *data, struct group *group)
{
    load_team_gather(data, group);
}

void load_group_create_table(struct load_table *table)
{
    static const struct group_events events = {.complete = on_complete, .dissolved = on_dissolved};
    table->groups = group_table_create(table->services->loop, table->services->quota, &events, table);
}

void load_group_destroy_table(struct load_table *table)
{
    group_table_destroy(table->groups);
    lru_destroy(table->group_plans);
}
