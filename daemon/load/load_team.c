/* What ranks that have met do together; see load_team.h.
 *
 * First they plan on a helper thread, then the runs that are not done are counted. Runs that are done early are parked: a
 * rank's bytes are only surely in place when the whole collective has ended, and no rank gets another version of the source
 * than the others. */
#include "load/load_team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "device/plugin.h"
#include "execute/collective.h"
#include "load/load_group.h"
#include "load/load_log.h"
#include "load/load_private.h"
#include "observe/log.h"
#include "transport/transport.h"

enum { WISH_CHARS = DIGEST_HEX_CHARS + DEVICE_NAME_CHARS + 2 };

struct team {
    struct loop_work work; /* first */
    struct load_table *table;
    struct group *group;
    struct ticket_internal **tickets; /* by rank; borrowed by the helper */
    size_t n_tickets;
    struct collective_rank *ranks; /* distinct views */
    size_t n_ranks;
    uint32_t *leaders;              /* per rank: the first one with the same view ... */
    struct device **devices;        /* ... and where that one's memory will be; NULL for the others */
    uid_t uid;                      /* of the first rank: pays for what lies between the ranks */
    struct replica_table **budgets; /* of these devices: a transport that stages on them is charged there */
    uint32_t world_size;
    char *group_id;
    unsigned char key[DIGEST_BYTES]; /* of the joint plan */
    struct collective_plan *plan;
    struct transport_demand demand;
    struct transport_choice transport;
    struct collective *collective;
    struct error open_error; /* when the transport could not be opened */
    struct load *parked;
    bool has_changed; /* the source, as one rank saw */
    struct error change;
    size_t n_running, n_unfinished; /* loads: their runs; they themselves */
    uint64_t plan_ns;
};

/* --- the joint plan ------------------------------------------------------------------------------------------------- */

static void free_team(struct team *team)
{
    collective_plan_unref(team->plan);
    free(team->group_id);
    free(team->leaders);
    free(team->devices);
    free(team->budgets);
    free(team->ranks);
    free(team->tickets);
    free(team);
}

static struct collective_facts facts_of(const struct team *team)
{
    const struct config *config = team->tickets[0]->config;
    return (struct collective_facts){.strategy = &config->engine.strategy,
                                     .group_id = team->group_id,
                                     .world_size = team->world_size,
                                     .leaders = team->leaders,
                                     .staging_budget_bytes = config->memory.staging_budget_bytes};
}

/* One more memory. Host memory is one device, however many ranks use it. */
static void count_memory(struct team *team, const struct device *device, const struct device *seen[], size_t *n_seen)
{
    team->demand.n_memories++;
    if (device->caps.direct_segments)
        return;
    team->demand.n_on_devices++;
    for (size_t i = 0; i < *n_seen; i++)
        if (seen[i] == device)
            return;
    seen[(*n_seen)++] = device;
    team->demand.n_devices++;
}

/* What the budget of its device has for staging when the rank's own memory is taken. */
static void count_room(struct team *team, const struct ticket_internal *internal)
{
    uint64_t own = internal->mapping->replica_bytes,
             available = replica_available_bytes(internal->target.replicas, internal->ticket->uid);
    uint64_t room = available > own ? available - own : 0;
    team->budgets[internal->member.rank] = internal->target.replicas;
    if (room < team->demand.device_room_bytes)
        team->demand.device_room_bytes = room;
}

/* Ranks that want the same view on the same device get the same memory. */
static void find_distinct(struct team *team)
{
    struct map seen;
    const struct device *devices[DEVICE_PLUGIN_MAX_DEVICES];
    size_t n_devices = 0;
    char *keys = memory_alloc_array(team->n_tickets, WISH_CHARS);
    map_init(&seen, team->n_tickets);
    team->ranks = memory_alloc_array(team->n_tickets, sizeof *team->ranks);
    team->leaders = memory_alloc_array(team->world_size, sizeof *team->leaders);
    team->devices = memory_alloc_array(team->world_size, sizeof(struct device *));
    team->budgets = memory_alloc_array(team->world_size, sizeof(struct replica_table *));
    team->demand.device_room_bytes = UINT64_MAX;
    for (uint32_t rank = 0; rank < team->world_size; rank++)
        team->leaders[rank] = rank;
    for (size_t i = 0; i < team->n_tickets; i++) {
        const struct mapping *mapping = team->tickets[i]->mapping;
        uint32_t rank = team->tickets[i]->member.rank;
        char *wish = keys + i * WISH_CHARS; /* the map borrows it */
        snprintf(wish, WISH_CHARS, "%s@%s", mapping->view_digest, team->tickets[i]->target.device->caps.name);
        uint32_t known = map_add(&seen, wish, strlen(wish), (uint32_t)team->n_ranks);
        if (known == MAP_NONE) {
            team->ranks[team->n_ranks++] = (struct collective_rank){mapping, rank, 1};
            team->devices[rank] = team->tickets[i]->target.device;
            count_memory(team, team->devices[rank], devices, &n_devices);
            count_room(team, team->tickets[i]);
        } else {
            team->ranks[known].n_sharers++;
            team->leaders[rank] = team->ranks[known].rank;
        }
    }
    map_fini(&seen);
    free(keys);
}

/* Everything the joint plan follows from. */
static void digest_team(struct team *team)
{
    const struct collective_facts facts = facts_of(team);
    const struct materialization_strategy *strategy = facts.strategy;
    struct digest *digest = digest_create();
    double skew = strategy->owner_file_collective_max_owner_skew_ratio;
    digest_add_text(digest, team->tickets[0]->mapping->artifact->identity);
    digest_add_text(digest, team->group_id);
    digest_add_u64(digest, team->world_size);
    digest_add_u64(digest, facts.staging_budget_bytes);
    digest_add_u64(digest, strategy->owner_file_collective_batch_bytes);
    digest_add_u64(digest, strategy->owner_file_collective_dim1_staging_bytes);
    digest_add_u64(digest, strategy->owner_file_collective_max_inflight_batches);
    digest_add(digest, &skew, sizeof skew);
    for (size_t i = 0; i < team->n_ranks; i++) {
        digest_add_text(digest, team->ranks[i].mapping->view_digest);
        digest_add_u64(digest, team->ranks[i].rank);
        digest_add_u64(digest, team->ranks[i].n_sharers);
    }
    digest_finish(digest, team->key);
}

static void ref_plan(const void *value)
{
    collective_plan_ref((struct collective_plan *)(uintptr_t)value);
}

static void unref_plan(const void *value)
{
    collective_plan_unref((struct collective_plan *)(uintptr_t)value);
}

static const struct lru_ops plan_ops = {.ref = ref_plan, .unref = unref_plan};

/* A reload may have changed how many plans are kept. */
static struct lru *plan_cache(struct load_table *table)
{
    uint64_t cap = table->services->config->engine.strategy.owner_file_collective_planner_cache_entries;
    if (!table->group_plans || cap != table->group_plans_cap) {
        lru_destroy(table->group_plans);
        table->group_plans = lru_create(cap, &plan_ops);
        table->group_plans_cap = cap;
    }
    return table->group_plans;
}

/* Whatever becomes of it is for the ticket to tell. */
static int plan_ticket(void *data, size_t i, struct error *error)
{
    struct team *team = data;
    struct ticket_internal *internal = team->tickets[i];
    (void)error;
    struct plan_facts facts = ticket_facts(internal->ticket);
    facts.group = team->plan;
    facts.transport = &team->transport;
    plan_destroy(internal->plan);
    internal->plan = plan_build(internal->mapping, &internal->ticket->spec, &facts, &internal->error);
    internal->failed = internal->plan == NULL;
    return 0;
}

static bool is_collective(const struct ticket_internal *internal)
{
    return internal->plan && internal->plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE;
}

/* One choice for all ranks, of the first n transports: of the source's bytes, so many are cached as their views say on
 * average. */
static void choose_transport(struct team *team, size_t n)
{
    struct plan_facts facts = ticket_facts(team->tickets[0]->ticket);
    facts.transports.n = n < facts.transports.n ? n : facts.transports.n;
    struct transport_demand *demand = &team->demand;
    double bytes = 0, cached = 0;
    for (size_t i = 0; i < team->n_tickets; i++) {
        double own = (double)team->tickets[i]->mapping->view_bytes;
        bytes += own;
        cached += own * team->tickets[i]->ticket->cached_share;
    }
    facts.cached_share = bytes > 0 ? cached / bytes : 0;
    demand->unique_bytes = team->plan->unique_source_bytes + team->plan->residual_bytes;
    demand->landed_bytes = team->plan->landed_bytes;
    demand->staged_bytes = team->plan->staged_bytes;
    demand->host_staging_bytes = team->plan->peak_temporary_bytes;
    demand->peak_budget_bytes = facts.strategy->owner_file_collective_peak_bytes_budget;
    struct transport_rates rates = transport_choice_rates(&facts);
    team->transport = transport_choice_make(&facts.transports, demand, &rates);
}

/* The plans of all ranks, and the collective when one of them runs. False when its transport cannot be opened. */
static bool plan_tickets(struct team *team, size_t n_transports)
{
    struct error nothing;
    choose_transport(team, n_transports);
    parallel_run(team->n_tickets, (size_t)sysconf(_SC_NPROCESSORS_ONLN), plan_ticket, team, &nothing);
    bool runs = false;
    for (size_t i = 0; i < team->n_tickets; i++)
        runs = runs || (team->tickets[i]->goal == GOAL_REPLICA && is_collective(team->tickets[i]));
    if (runs)
        team->collective =
            collective_create(team->table->services->engine, team->plan, &team->transport, team->devices, &team->open_error);
    return !runs || team->collective;
}

static void plan_team(struct loop_work *work)
{
    struct team *team = (struct team *)work;
    const struct collective_facts facts = facts_of(team);
    uint64_t start_ns = clock_now_ns();
    if (!team->plan)
        team->plan = collective_plan_build(team->ranks, team->n_ranks, &facts);
    if (!plan_tickets(team, TRANSPORT_MAX) && !team->transport.is_forced) {
        log_warn("transport_failed", LOG_TEXT("group_id", team->group_id), LOG_TEXT("transport", team->transport.ops->name),
                 LOG_TEXT("message", team->open_error.message), LOG_TEXT("effect", "the group uses loopback"));
        plan_tickets(team, 1); /* the first one is loopback */
    }
    team->plan_ns = clock_now_ns() - start_ns;
}

/* --- the start ------------------------------------------------------------------------------------------------------ */

static void go_without_transport(struct team *team, struct ticket_internal *internal)
{
    struct reason problem =
        reason_with(REASON_TRANSPORT_FAILED, "%s:%s", team->transport.ops->name, team->open_error.reason);
    load_group_go_without(internal, &problem);
}

/* What does not take part any more goes its own way. */
static void sort_out(struct team *team, size_t i)
{
    struct ticket_internal *internal = team->tickets[i];
    internal->ticket->plan = internal->plan;
    internal->ticket->plan_ns += team->plan_ns;
    if (!internal->cancelled && !internal->failed)
        load_log_plan(internal->ticket);
    if (internal->cancelled || internal->failed || internal->goal == GOAL_PLAN) {
        team->tickets[i] = NULL;
        load_finish_ticket(internal, internal->failed ? &internal->error : NULL);
        return;
    }
    bool alone = !is_collective(internal) || !team->collective;
    if (!load_exists(internal) && !alone)
        return;
    team->tickets[i] = NULL;
    load_group_release(internal);
    if (alone && is_collective(internal))
        go_without_transport(team, internal);
    else if (!load_take_existing(internal))
        load_start_alone(internal);
}

struct launch { /* the loads of a team, before any of them runs */
    struct load **loads;
    size_t *leaders; /* index into team->tickets */
    size_t n_loads;
};

static struct load *find_prepared(const struct launch *launch, const struct ticket_internal *internal)
{
    struct replica_key key = replica_key_of(internal->mapping, internal->target.device);
    for (size_t i = 0; i < launch->n_loads; i++)
        if (replica_key_equal(&launch->loads[i]->key, &key))
            return launch->loads[i];
    return NULL;
}

static void release_staging(struct team *team, uint32_t n_ranks)
{
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        if (team->budgets[rank])
            replica_unreserve(team->budgets[rank], team->uid, team->transport.staging_bytes);
}

/* What there was room for when the transport was chosen may be somebody else's by now. */
static int reserve_staging(struct team *team)
{
    struct error error;
    for (uint32_t rank = 0; rank < team->world_size; rank++) {
        if (!team->budgets[rank] ||
            replica_reserve(team->budgets[rank], team->uid, team->transport.staging_bytes, &error) == 0)
            continue;
        release_staging(team, rank);
        return -1;
    }
    return 0;
}

static void unprepare_all(struct team *team, struct launch *launch)
{
    for (size_t l = 0; l < launch->n_loads; l++)
        load_unprepare(launch->loads[l], team->tickets[launch->leaders[l]]);
}

/* Memory for every rank and for what lies between them, or for none: then the rank without has got the error, and the others
 * are told. */
static int prepare_all(struct team *team, struct launch *launch)
{
    struct reason problem;
    struct error error;
    for (size_t i = 0; i < team->n_tickets; i++) {
        struct ticket_internal *internal = team->tickets[i];
        if (!internal || find_prepared(launch, internal))
            continue;
        struct load *load = load_prepare(internal, &error);
        if (load) {
            launch->leaders[launch->n_loads] = i;
            launch->loads[launch->n_loads++] = load;
            continue;
        }
        unprepare_all(team, launch);
        problem = reason_with(REASON_GROUP_MEMBER_FAILED, "rank=%u:%s", internal->member.rank, error.reason);
        group_dissolve(team->table->groups, team->group, &internal->member, &problem);
        load_finish_ticket(internal, &error);
        return -1;
    }
    if (launch->n_loads == 0 || reserve_staging(team) == 0)
        return 0;
    unprepare_all(team, launch);
    problem = reason_with(REASON_TRANSPORT_DEVICE_BUDGET, "%s", team->transport.ops->name);
    group_dissolve(team->table->groups, team->group, NULL, &problem);
    return -1;
}

static uint32_t join_sharers(struct team *team, struct load *load)
{
    uint32_t n_sharers = 1;
    for (size_t i = 0; i < team->n_tickets; i++) {
        struct ticket_internal *internal = team->tickets[i];
        if (!internal || !internal->mapping)
            continue;
        struct replica_key key = replica_key_of(internal->mapping, internal->target.device);
        if (!replica_key_equal(&key, &load->key))
            continue;
        internal->ticket->joined = true;
        team->tickets[i] = NULL;
        load_join(internal, load);
        n_sharers++;
    }
    return n_sharers;
}

static void launch_all(struct team *team, struct launch *launch)
{
    collective_expect(team->collective, launch->n_loads);
    team->n_running = team->n_unfinished = launch->n_loads;
    for (size_t l = 0; l < launch->n_loads; l++) {
        launch->loads[l]->team = team;
        load_publish(launch->loads[l]);
    }
    for (size_t l = 0; l < launch->n_loads; l++) {
        struct ticket_internal *leader = team->tickets[launch->leaders[l]];
        uint32_t rank = leader->member.rank;
        team->tickets[launch->leaders[l]] = NULL;
        load_join(leader, launch->loads[l]);
        uint32_t n_sharers = join_sharers(team, launch->loads[l]);
        load_run(launch->loads[l], team->collective, rank, n_sharers);
    }
}

static void team_planned(struct loop_work *work)
{
    struct team *team = (struct team *)work;
    struct load_table *table = team->table;
    lru_add(plan_cache(table), team->key, sizeof team->key, team->plan, 1);
    for (size_t i = 0; i < team->n_tickets; i++)
        sort_out(team, i);
    struct launch launch = {.loads = memory_alloc_array(team->n_tickets, sizeof(struct load *)),
                            .leaders = memory_alloc_array(team->n_tickets, sizeof(size_t))};
    bool runs = prepare_all(team, &launch) == 0 && launch.n_loads > 0;
    if (runs) {
        launch_all(team, &launch);
    } else {
        collective_destroy(team->collective);
        free_team(team);
    }
    free(launch.loads);
    free(launch.leaders);
}

void load_team_gather(struct load_table *table, struct group *group)
{
    struct team *team = memory_alloc(sizeof *team);
    *team = (struct team){.work = {.do_work = plan_team, .done = team_planned}, .table = table, .group = group};
    team->world_size = group_world_size(group);
    team->group_id = memory_copy_text(group_id(group));
    team->tickets = memory_alloc_array(team->world_size, sizeof(struct ticket_internal *));
    for (uint32_t rank = 0; rank < team->world_size; rank++) {
        struct group_member *member = group_find(group, rank);
        if (!member)
            continue;
        struct ticket_internal *internal = load_group_ticket(member);
        internal->state = TICKET_PLANNING;
        internal->ticket->assemble_ns = clock_now_ns() - internal->assembling_ns;
        team->tickets[team->n_tickets++] = internal;
    }
    team->uid = team->tickets[0]->ticket->uid;
    find_distinct(team);
    digest_team(team);
    team->plan = (struct collective_plan *)(uintptr_t)lru_find(plan_cache(table), team->key, sizeof team->key);
    team->work.uid = team->tickets[0]->ticket->uid;
    loop_continue(table->services->loop, &team->work);
}

/* --- the end -------------------------------------------------------------------------------------------------------- */

/* Ranks whose bytes came before the source changed are whole, but not of the version that the others will load next. */
static void commit_parked(struct team *team)
{
    while (team->parked) {
        struct load *load = team->parked;
        team->parked = load->next_parked;
        if (team->has_changed) {
            load->failed = true;
            load->error = team->change;
        }
        load_commit(load);
    }
}

void load_team_run_done(struct load *load)
{
    struct team *team = load->team;
    if (load->failed && source_has_changed(&load->error)) {
        team->has_changed = true;
        team->change = load->error;
    }
    load->has_lost_transport = load->failed && run_has_lost_transport(load->parts.run);
    if (--team->n_running == 0)
        load_log_collective(team->group_id, load->parts.plan, run_collective_counters(load->parts.run));
    if (load->failed) { /* nothing to wait for */
        load_commit(load);
    } else {
        load->next_parked = team->parked;
        team->parked = load;
    }
    if (team->n_running == 0)
        commit_parked(team);
}

/* The source still has the bytes, unless it has changed. */
bool load_team_go_without(struct load *load, struct ticket_internal *internal)
{
    struct reason problem;
    if (!load->has_lost_transport || source_has_changed(&load->error) ||
        internal->ticket->spec.policy.collective == COLLECTIVE_REQUIRED)
        return false;
    problem = reason_with(REASON_TRANSPORT_FAILED, "%s:%s", load->team->transport.ops->name, load->error.reason);
    if (!internal->mapping) { /* the load is made of this ticket's */
        internal->mapping = load->parts.mapping;
        load->parts.mapping = NULL;
    }
    internal->ticket->mapping = internal->mapping;
    load_group_go_without(internal, &problem);
    return true;
}

void load_team_load_finished(struct team *team)
{
    if (--team->n_unfinished > 0)
        return;
    release_staging(team, team->world_size);
    free_team(team);
}
