/* In the order of a team's life. Runs that are done early are parked: a rank's bytes are only surely in place when the whole
 * collective has ended, and no rank gets another version of the source than the others. */
#include "load/team.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/parallel.h"
#include "device/plugin.h"
#include "execute/collective.h"
#include "load/helper_step.h"
#include "load/load_log.h"
#include "load/read_ahead.h"
#include "observe/log.h"
#include "device/transport.h"

enum { RANK_CHARS = 12, MEMORY_KEY_CHARS = DIGEST_HEX_CHARS + DEVICE_NAME_CHARS + RANK_CHARS + 3 };

struct team_memory { /* of the ranks that want the same view on the same device; of one that brought its own */
    struct replica_table *budget;
    struct load *load;
    size_t first;      /* the first of them that takes part: the load is made for it */
    uint32_t n_takers; /* who take part */
};

struct team_joint {                /* the joint plan */
    struct collective_rank *wants; /* by memory */
    unsigned char key[DIGEST_BYTES];
    struct collective_plan *plan;
    bool is_new;        /* no group before has had it */
    struct error error; /* code not ERROR_OK: there is no memory for it, or for what its ranks have of it at work */
    uint64_t plan_ns;
};

struct team_link { /* how bytes get from rank to rank */
    struct transport_demand demand;
    struct transport_choice choice;
    struct collective *collective; /* NULL: no rank runs it, or `error` says why it could not be opened */
    struct error error;
};

struct team_loads {                 /* that were started */
    size_t n_running, n_unfinished; /* their runs; they themselves */
    struct load *parked;
    struct error change; /* of the source, as one of them saw it; code ERROR_OK: none did */
};

/* The ranks of one complete group until the last of their loads has ended. Its helper has all but the state while it plans;
 * the ranks' preparations are lent by their tickets until `planned` has told them. */
struct team {
    struct loop_work work; /* first */
    struct helper_step step;
    struct load_table *table;
    struct group *group; /* until the runs start */
    const struct team_events *events;
    enum team_state state;
    struct arena arena; /* of all arrays */
    const char *group_id;
    uint32_t world_size;
    uid_t uid;                  /* of the first rank: pays for what lies between the ranks */
    struct preparation **ranks; /* in the order of ranks; NULL: takes no part any more. Borrowed by the helper */
    size_t n_ranks;
    struct team_memory *memories;
    size_t n_memories;
    struct team_memory **memory_of; /* by index in ranks */
    bool *elsewhere;                /* by rank: on another host ... */
    char **needs;                   /* ... and what it will read there, as it says; NULL = it does not */
    struct read_ahead *ahead;       /* of that; NULL = nothing, or its time is over */
    uint32_t *leaders;              /* by rank: the first one with the same memory ... */
    struct device **devices;        /* ... and where it will be; NULL for the others */
    struct team_joint joint;
    struct team_link link;
    struct team_loads loads;
};

/* --- joint plans, kept for the next load of the same group --------------------------------------------------------- */

struct joint_plan {
    struct joint_plan *next; /* used longer ago */
    unsigned char key[DIGEST_BYTES];
    struct collective_plan *plan; /* charged to the user who had it made: it goes when requests need the room */
};

struct joint_plans {
    pthread_mutex_t lock;
    struct joint_plan *newest;
};

struct joint_plans *joint_plans_create(void)
{
    struct joint_plans *plans = memory_alloc(sizeof *plans);
    pthread_mutex_init(&plans->lock, NULL);
    return plans;
}

/* All but the first n. A reload may have changed how many are kept. */
static bool forget_old(struct joint_plans *plans, uint64_t n_kept)
{
    struct joint_plan **end = &plans->newest, *old;
    for (uint64_t i = 0; *end && i < n_kept; i++)
        end = &(*end)->next;
    bool has_any = *end != NULL;
    while ((old = *end)) {
        *end = old->next;
        collective_plan_unref(old->plan);
        free(old);
    }
    return has_any;
}

void joint_plans_destroy(struct joint_plans *plans)
{
    if (!plans)
        return;
    forget_old(plans, 0);
    pthread_mutex_destroy(&plans->lock);
    free(plans);
}

struct collective_plan *joint_plans_find(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], uint64_t n_kept)
{
    pthread_mutex_lock(&plans->lock);
    forget_old(plans, n_kept);
    struct joint_plan **at = &plans->newest, *found;
    while ((found = *at) && memcmp(found->key, key, DIGEST_BYTES) != 0)
        at = &found->next;
    if (found) {
        *at = found->next;
        found->next = plans->newest;
        plans->newest = found;
    }
    struct collective_plan *plan = found ? collective_plan_ref(found->plan) : NULL;
    pthread_mutex_unlock(&plans->lock);
    return plan;
}

void joint_plans_add(struct joint_plans *plans, const unsigned char key[DIGEST_BYTES], struct collective_plan *plan,
                     uint64_t n_kept)
{
    struct joint_plan *added = memory_alloc(sizeof *added);
    memcpy(added->key, key, DIGEST_BYTES);
    added->plan = collective_plan_ref(plan);
    pthread_mutex_lock(&plans->lock);
    added->next = plans->newest;
    plans->newest = added;
    forget_old(plans, n_kept);
    pthread_mutex_unlock(&plans->lock);
}

bool joint_plans_shrink(struct joint_plans *plans)
{
    uint64_t n = 0;
    pthread_mutex_lock(&plans->lock);
    for (const struct joint_plan *plan = plans->newest; plan; plan = plan->next)
        n++;
    bool has_any = forget_old(plans, n ? n - 1 : 0);
    pthread_mutex_unlock(&plans->lock);
    return has_any;
}

/* --- states --------------------------------------------------------------------------------------------------------- */

static const struct state_row team_states[TEAM_STATES] = {
    [TEAM_PLANNING] = {"planning", STATE_BIT(TEAM_RUNNING) | STATE_BIT(TEAM_ENDED)},
    [TEAM_RUNNING] = {"running", STATE_BIT(TEAM_COMMITTING)},
    [TEAM_COMMITTING] = {"committing", STATE_BIT(TEAM_ENDED)},
    [TEAM_ENDED] = {"ended", 0},
};
const struct state_machine team_machine = {"team", team_states, TEAM_STATES};

static void set_team_state(struct team *team, enum team_state state)
{
    state_check(&team_machine, team->state, state);
    team->state = state;
}

static void end_team(struct team *team)
{
    set_team_state(team, TEAM_ENDED);
    collective_plan_unref(team->joint.plan);
    arena_fini(&team->arena);
    free(team);
}

/* --- gathering: who is here, and what they need --------------------------------------------------------------------- */

static struct collective_facts facts_of(const struct team *team)
{
    const struct config *config = team->ranks[0]->config;
    return (struct collective_facts){.strategy = &config->engine.strategy,
                                     .group_id = team->group_id,
                                     .world_size = team->world_size,
                                     .leaders = team->leaders,
                                     .elsewhere = team->elsewhere,
                                     .staging_budget_bytes = config->memory.staging_budget_bytes};
}

/* One more memory. Host memory is one device, however many ranks use it. What the budget of its device has for staging is
 * what is left when the rank's own memory is taken. */
static void count_memory(struct transport_demand *demand, const struct preparation *prep, const struct device *seen[])
{
    const struct device *device = prep->resolved.target.device;
    uint64_t own = prep->is_lent ? 0 : prep->resolved.mapping->replica_bytes,
             available = replica_available_bytes(prep->resolved.target.replicas, prep->uid);
    uint64_t room = available > own ? available - own : 0;
    demand->n_memories++;
    if (room < demand->device_room_bytes)
        demand->device_room_bytes = room;
    if (device->caps.direct_segments)
        return;
    demand->n_on_devices++;
    for (size_t i = 0; i < demand->n_devices; i++)
        if (seen[i] == device)
            return;
    seen[demand->n_devices++] = device;
}

/* Ranks that want the same view on the same device get the same memory, unless they brought their own. */
static void find_memories(struct team *team)
{
    struct map seen;
    const struct device *devices[DEVICE_PLUGIN_MAX_DEVICES];
    map_init(&seen, team->n_ranks);
    team->link.demand.device_room_bytes = UINT64_MAX;
    for (uint32_t rank = 0; rank < team->world_size; rank++)
        team->leaders[rank] = rank;
    for (size_t i = 0; i < team->n_ranks; i++) {
        const struct preparation *prep = team->ranks[i];
        struct device *device = prep->resolved.target.device;
        uint32_t rank = team->ranks[i]->member.rank;
        char *key = arena_alloc(&team->arena, MEMORY_KEY_CHARS); /* the map borrows it */
        if (prep->is_lent)
            snprintf(key, MEMORY_KEY_CHARS, "%s@%s#%" PRIu32, prep->resolved.mapping->view_digest, device->caps.name, rank);
        else
            snprintf(key, MEMORY_KEY_CHARS, "%s@%s", prep->resolved.mapping->view_digest, device->caps.name);
        uint32_t known = map_add(&seen, key, strlen(key), (uint32_t)team->n_memories);
        if (known != MAP_NONE) {
            team->memory_of[i] = &team->memories[known];
            team->joint.wants[known].n_sharers++;
            team->leaders[rank] = team->joint.wants[known].rank;
            continue;
        }
        team->joint.wants[team->n_memories] = (struct collective_rank){prep->resolved.mapping, rank, 1};
        team->memory_of[i] = &team->memories[team->n_memories++];
        team->memory_of[i]->budget = prep->resolved.target.replicas;
        team->devices[rank] = device;
        count_memory(&team->link.demand, prep, devices);
    }
    map_fini(&seen);
}

/* Everything the joint plan follows from. */
static void digest_team(struct team *team)
{
    const struct collective_facts facts = facts_of(team);
    const struct materialization_strategy *strategy = facts.strategy;
    struct digest *digest = digest_create();
    double skew = strategy->owner_file_collective_max_owner_skew_ratio;
    digest_add_text(digest, team->ranks[0]->resolved.mapping->artifact->identity);
    digest_add_text(digest, team->group_id);
    digest_add_u64(digest, team->world_size);
    digest_add_u64(digest, facts.staging_budget_bytes);
    digest_add_u64(digest, strategy->owner_file_collective_batch_bytes);
    digest_add_u64(digest, strategy->owner_file_collective_dim1_staging_bytes);
    digest_add_u64(digest, strategy->owner_file_collective_max_inflight_batches);
    digest_add(digest, &skew, sizeof skew);
    digest_add(digest, team->elsewhere, team->world_size * sizeof *team->elsewhere);
    for (size_t i = 0; i < team->n_memories; i++) {
        const struct collective_rank *rank = &team->joint.wants[i];
        digest_add_text(digest, rank->mapping->view_digest);
        digest_add_u64(digest, rank->rank);
        digest_add_u64(digest, rank->n_sharers);
    }
    digest_finish(digest, team->joint.key);
}

static uint64_t kept_plans(const struct load_table *table)
{
    return table->services->config->engine.strategy.owner_file_collective_planner_cache_entries;
}

static void plan_team_on_helper(struct loop_work *work);
static void on_team_planned(struct loop_work *work);

/* The user of the group's first rank pays for the tables. */
static int call_ranks(struct team *team, const struct group_terms *terms)
{
    struct metadata_account before =
        metadata_enter((struct metadata_account){.quota = team->table->services->quota, .uid = terms->uid});
    struct arena *arena = &team->arena;
    struct error *error = &team->joint.error;
    size_t n = team->world_size;
    bool is_made = (team->ranks = arena_try_array(arena, n, sizeof(struct preparation *), error)) &&
                   (team->elsewhere = arena_try_array(arena, n, sizeof *team->elsewhere, error)) &&
                   (team->needs = arena_try_array(arena, n, sizeof(char *), error)) &&
                   (team->leaders = arena_try_array(arena, n, sizeof *team->leaders, error)) &&
                   (team->devices = arena_try_array(arena, n, sizeof(struct device *), error)) &&
                   (team->memories = arena_try_array(arena, n, sizeof *team->memories, error)) &&
                   (team->memory_of = arena_try_array(arena, n, sizeof(struct team_memory *), error)) &&
                   (team->joint.wants = arena_try_array(arena, n, sizeof *team->joint.wants, error));
    int failed = is_made ? 0 : -1;
    metadata_enter(before);
    for (uint32_t rank = 0; !failed && rank < team->world_size; rank++) {
        struct group_member *member = group_find(team->group, rank);
        const char *needs = group_needs_elsewhere(team->group, rank);
        team->needs[rank] = needs ? arena_text(&team->arena, needs, strlen(needs)) : NULL;
        team->elsewhere[rank] = group_is_elsewhere(team->group, rank);
        if (member)
            team->ranks[team->n_ranks++] = (struct preparation *)((char *)member - offsetof(struct preparation, member));
    }
    if (failed)
        return -1;
    team->group_id = arena_text(&team->arena, terms->id, strlen(terms->id));
    team->uid = team->work.uid = team->ranks[0]->uid;
    return 0;
}

void team_gather(struct load_table *table, struct group *group, const struct team_events *events)
{
    struct team *team = memory_alloc(sizeof *team);
    struct arena *arena = &team->arena;
    const struct group_terms *terms = group_terms(group);
    uint32_t world_size = terms->world_size;
    *team = (struct team){.work = {.do_work = plan_team_on_helper, .done = on_team_planned},
                          .table = table,
                          .group = group,
                          .events = events,
                          .world_size = world_size};
    arena_init(arena, 0);
    helper_step_init(&team->step, table->services, &team->work, NULL);
    if (call_ranks(team, terms) != 0) {
        const struct reason problem = reason_with(REASON_JOINT_PLAN_MEMORY, "%s", team->joint.error.reason);
        arena_fini(arena);
        free(team);
        group_dissolve(group, NULL, &problem);
        return;
    }
    find_memories(team);
    digest_team(team);
    team->joint.plan = joint_plans_find(table->joint_plans, team->joint.key, kept_plans(table));
    helper_step_run(&team->step);
}

/* --- planning: helper threads --------------------------------------------------------------------------------------- */

/* One choice for all ranks, of the first n transports: of the source's bytes, so many are cached as their views say on
 * average. */
static void choose_transport(struct team *team, size_t n)
{
    const struct collective_plan *plan = team->joint.plan;
    struct plan_facts facts = prepare_facts(team->ranks[0], &team->ranks[0]->planned);
    struct transport_demand *demand = &team->link.demand;
    double bytes = 0, cached = 0;
    for (size_t i = 0; i < team->n_ranks; i++) {
        const struct preparation *prep = team->ranks[i];
        double own = (double)prep->resolved.mapping->view_bytes;
        bytes += own;
        cached += own * prep->planned.cached_share;
    }
    facts.transports.n = n < facts.transports.n ? n : facts.transports.n;
    facts.cached_share = bytes > 0 ? cached / bytes : 0;
    demand->unique_bytes = plan->numbers.unique_source_bytes + plan->numbers.residual_bytes;
    demand->landed_bytes = plan->numbers.landed_bytes;
    demand->staged_bytes = plan->numbers.staged_bytes;
    demand->host_staging_bytes = plan->numbers.peak_temporary_bytes;
    demand->peak_budget_bytes = facts.strategy->owner_file_collective_peak_bytes_budget;
    struct transport_rates rates = transport_choice_rates(&facts);
    team->link.choice = transport_choice_make(&facts.transports, demand, &rates);
}

/* Whatever becomes of it is for its ticket to tell. */
static int plan_rank(void *data, size_t i, struct error *error)
{
    struct team *team = data;
    struct preparation *prep = team->ranks[i];
    struct plan_facts facts = prepare_facts(prep, &prep->planned);
    (void)error;
    facts.group = team->joint.plan;
    facts.transport = &team->link.choice;
    prepare_plan_with(prep, &facts, &prep->planned);
    return 0;
}

/* 0, or -1 when there is no memory for it, or (link.error) no transport. */
static int open_collective(struct team *team)
{
    struct team_link *link = &team->link;
    link->collective = collective_create(team->table->services->engine, team->joint.plan, &team->joint.error);
    if (!link->collective)
        return -1;
    if (collective_connect(link->collective, &link->choice, team->devices, &link->error) == 0)
        return 0;
    collective_destroy(link->collective);
    link->collective = NULL;
    return -1;
}

/* The plans of all ranks, and the collective when one of them runs. False when its transport cannot be opened. */
static bool plan_ranks(struct team *team, size_t n_transports)
{
    struct error nothing;
    bool runs = false;
    choose_transport(team, n_transports);
    parallel_run(team->n_ranks, (size_t)sysconf(_SC_NPROCESSORS_ONLN), plan_rank, team, &nothing);
    for (size_t i = 0; i < team->n_ranks; i++) {
        const struct plan *plan = team->ranks[i]->planned.plan;
        runs |= team->ranks[i]->goal == GOAL_REPLICA && plan && plan->executor == EXECUTOR_OWNER_FILE_COLLECTIVE;
    }
    return !runs || open_collective(team) == 0 || team->joint.error.code != ERROR_OK;
}

static void plan_jointly(struct team *team)
{
    const struct collective_facts facts = facts_of(team);
    team->joint.error.code = ERROR_OK;
    if (!team->joint.plan) {
        team->joint.is_new = true;
        team->joint.plan = collective_plan_build(team->joint.wants, team->n_memories, &facts, &team->joint.error);
        if (!team->joint.plan)
            return;
    }
    if (!plan_ranks(team, TRANSPORT_MAX) && !team->link.choice.is_forced) {
        log_at_of(LOG_WARN, "transport_failed", team->uid, LOG_TEXT("group_id", team->group_id),
                  LOG_TEXT("transport", team->link.choice.ops->name), LOG_TEXT("message", team->link.error.message),
                  LOG_TEXT("effect", "the group uses loopback"));
        plan_ranks(team, 1); /* the first one is loopback */
    }
}

/* Once: what ranks on other hosts need of this host, and its own do not. */
static void plan_ahead(struct team *team)
{
    struct block_holder *holder = team->table->services->hosts.holder;
    struct artifact *artifact = team->ranks[0]->resolved.mapping->artifact;
    struct rank_needs others, own = {0};
    if (rank_needs_init(&others, artifact->source) && rank_needs_init(&own, artifact->source)) {
        for (uint32_t rank = 0; rank < team->world_size; rank++)
            if (team->needs[rank])
                rank_needs_add_text(&others, team->needs[rank]);
        for (size_t i = 0; i < team->n_ranks; i++)
            rank_needs_add(&own, team->ranks[i]->resolved.mapping);
        team->ahead = read_ahead_build(holder, artifact, &others, &own);
    }
    rank_needs_fini(&others);
    rank_needs_fini(&own);
}

static bool may_read_ahead(const struct team *team)
{
    const struct plan *plan = team->ranks[0]->planned.plan;
    bool has_needs = false;
    for (uint32_t rank = 0; rank < team->world_size && !has_needs; rank++)
        has_needs = team->needs[rank];
    return has_needs && !team->ahead && team->link.collective && plan && plan->hosts.way == HOSTS_OWNER_PEERS;
}

static void plan_team_on_helper(struct loop_work *work)
{
    struct team *team = (struct team *)work;
    uint64_t start_ns = clock_now_ns();
    struct metadata_account before =
        metadata_enter((struct metadata_account){.quota = team->table->services->quota, .uid = team->uid});
    plan_jointly(team);
    metadata_enter(before);
    if (may_read_ahead(team))
        plan_ahead(team);
    team->joint.plan_ns += clock_now_ns() - start_ns;
}

/* --- the start ------------------------------------------------------------------------------------------------------ */

static void release_staging(struct team *team, size_t n_memories)
{
    for (size_t m = 0; m < n_memories; m++)
        replica_unreserve(team->memories[m].budget, team->uid, team->link.choice.staging_bytes);
}

/* What there was room for when the transport was chosen may be another load's by now. */
static int reserve_staging(struct team *team)
{
    struct error error;
    for (size_t m = 0; m < team->n_memories; m++) {
        if (replica_reserve(team->memories[m].budget, team->uid, team->link.choice.staging_bytes, &error) != 0) {
            release_staging(team, m);
            return -1;
        }
    }
    return 0;
}

/* Loads for all who take part. Returns the rank that there is no memory for, NULL if there is for all. */
static struct preparation *create_loads(struct team *team, struct error *error)
{
    for (size_t i = 0; i < team->n_ranks; i++) {
        struct team_memory *memory = team->memory_of[i];
        if (!team->ranks[i] || memory->n_takers++ > 0)
            continue;
        memory->first = i;
        memory->load = load_create(team->table, team->ranks[i], error);
        if (!memory->load)
            return team->ranks[i];
        team->loads.n_running++;
    }
    team->loads.n_unfinished = team->loads.n_running;
    return NULL;
}

/* Memory for every rank and for what lies between them, or for none: then the rank without has got the error, and the others
 * are told. True: there is something to run. */
static bool prepare_loads(struct team *team)
{
    struct reason problem;
    struct error error;
    struct preparation *failed = create_loads(team, &error);
    if (!failed && (team->loads.n_running == 0 || reserve_staging(team) == 0))
        return team->loads.n_running > 0;
    for (const struct team_memory *memory = team->memories; memory < team->memories + team->n_memories; memory++)
        if (memory->load)
            load_give_back(memory->load, team->ranks[memory->first]);
    if (failed)
        problem = reason_with(REASON_GROUP_MEMBER_FAILED, "rank=%u:%s", failed->member.rank, error.reason);
    else
        problem = reason_with(REASON_TRANSPORT_DEVICE_BUDGET, "%s", team->link.choice.ops->name);
    group_dissolve(team->group, failed ? &failed->member : NULL, &problem);
    if (failed)
        team->events->failed(failed, &error);
    return false;
}

static void on_rank_run_done(void *data, struct load *load);
static void on_rank_load_ended(void *data);

static void start_loads(struct team *team)
{
    static const struct load_team_events events = {.run_done = on_rank_run_done, .ended = on_rank_load_ended};
    uint64_t lane = 0;
    collective_expect(team->link.collective, team->loads.n_running);
    for (size_t i = 0; i < team->n_ranks; i++) {
        const struct team_memory *memory = team->memory_of[i];
        if (team->ranks[i])
            team->events->joined(team->ranks[i], memory->load, memory->first == i ? LOAD_OWN : LOAD_JOINED);
    }
    for (const struct team_memory *memory = team->memories; memory < team->memories + team->n_memories; memory++) {
        if (!memory->load)
            continue;
        memory->load->team_events = &events;
        memory->load->team = team;
        lane |= memory->load->lane;
        load_start(memory->load, team->link.collective, team->ranks[memory->first]->member.rank, memory->n_takers);
    }
    if (team->ahead)
        read_ahead_start(team->ahead, team->table->services->loop, team->uid, lane);
}

static void on_team_planned(struct loop_work *work)
{
    struct team *team = (struct team *)work;
    struct team_joint *joint = &team->joint;
    if (joint->error.code != ERROR_OK &&
        helper_step_again(&team->step, team->ranks[0]->resolved.target.replicas, &joint->error))
        return;
    const struct transport_ops *transport = team->link.choice.ops;
    const struct reason failed =
        joint->error.code != ERROR_OK
            ? reason_with(REASON_JOINT_PLAN_MEMORY, "%s", joint->error.reason)
            : reason_with(REASON_TRANSPORT_FAILED, "%s:%s", transport ? transport->name : "", team->link.error.reason);
    const struct reason *problem = team->link.collective ? NULL : &failed;
    if (joint->plan && joint->is_new)
        joint_plans_add(team->table->joint_plans, joint->key, joint->plan, kept_plans(team->table));
    for (size_t i = 0; i < team->n_ranks; i++)
        if (!team->events->planned(team->ranks[i], joint->plan_ns, problem))
            team->ranks[i] = NULL;
    if (prepare_loads(team)) {
        set_team_state(team, TEAM_RUNNING);
        start_loads(team);
    } else {
        collective_destroy(team->link.collective);
        read_ahead_stop(team->ahead, true);
        end_team(team);
    }
}

/* --- the end -------------------------------------------------------------------------------------------------------- */

static void on_rank_run_done(void *data, struct load *load)
{
    struct team *team = data;
    bool has_failed = load->error.code != ERROR_OK;
    if (has_failed && source_has_changed(&load->error))
        team->loads.change = load->error;
    if (--team->loads.n_running == 0) {
        read_ahead_stop(team->ahead, has_failed);
        load_log_collective(team->group_id, team->uid, load->parts.plan, run_collective_counters(load->parts.run));
        set_team_state(team, TEAM_COMMITTING);
    }
    if (has_failed) { /* nothing to wait for */
        load_commit(load);
    } else {
        load_park(load);
        load->next_parked = team->loads.parked;
        team->loads.parked = load;
    }
    while (team->state == TEAM_COMMITTING && team->loads.parked) {
        struct load *parked = team->loads.parked;
        team->loads.parked = parked->next_parked;
        if (team->loads.change.code != ERROR_OK) /* whole, but not of the version that the others will load next */
            parked->error = team->loads.change;
        load_commit(parked);
    }
}

/* The transport is closed when the last load is. */
static void on_rank_load_ended(void *data)
{
    struct team *team = data;
    if (--team->loads.n_unfinished > 0)
        return;
    release_staging(team, team->n_memories);
    end_team(team);
}
