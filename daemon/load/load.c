/* Loads in flight: tickets and their stages, drawn in load.h.
 *
 * Happy path: ticket_submit -> resolve_ticket (helper) -> ticket_resolved -> plan_ticket (helper) -> ticket_planned ->
 * start_load -> the engine -> run_done -> commit_load (helper) -> load_committed -> every ticket is served.
 * Failure: whatever fails carries an error to finish_load() or load_finish_ticket(), which undo reservation, memory and run.
 */
#include "load/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "execute/collective.h"
#include "calibration/residency.h"
#include "load/load_group.h"
#include "load/load_log.h"
#include "load/load_private.h"
#include "load/load_team.h"
#include "observe/log.h"

enum { PROGRESS_MS = 100 };

static void random_id(char id[LOAD_ID_CHARS])
{
    unsigned char bytes[(LOAD_ID_CHARS - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        abort();
    digest_hex(bytes, sizeof bytes, id);
}

/* --- the end of a ticket ------------------------------------------------------------------------------------------ */

static void serve(struct ticket_internal *internal, struct replica *replica);
static void go_on(struct ticket_internal *internal);

/* Who sent the same request again gets the same; if nobody waits for the first one any more, the next takes its place. */
static void settle_echoes(struct ticket_internal *internal, const struct error *error)
{
    struct ticket_internal *echo;
    while ((echo = load_group_take_echo(internal))) {
        if (internal->cancelled)
            go_on(echo);
        else if (internal->ticket->replica)
            serve(echo, internal->ticket->replica);
        else
            load_finish_ticket(echo, error);
    }
}

static void say_why_cancelled(const struct load_table *table, struct error *error)
{
    if (table->services->cut_off)
        *error = *table->services->cut_off;
    else
        fail(error, ERROR_CANCELLED, "CLIENT_LEFT", "the client cancelled, disconnected or passed its deadline");
}

void load_finish_ticket(struct ticket_internal *internal, const struct error *error)
{
    struct ticket *ticket = internal->ticket;
    struct error cancelled;
    load_group_release(internal);
    settle_echoes(internal, error);
    internal->state = TICKET_DONE;
    ticket->total_ns = clock_now_ns() - internal->submitted_ns;
    if (internal->cancelled) {
        say_why_cancelled(internal->table, &cancelled);
        error = &cancelled;
    }
    load_log_ticket(ticket, internal->goal == GOAL_PLAN, error);
    internal->events->done(internal->data, ticket, error);
}

static void serve(struct ticket_internal *internal, struct replica *replica)
{
    struct ticket *ticket = internal->ticket;
    replica_pin(replica, ticket->uid);
    ticket->replica = replica;
    ticket->mapping = replica->mapping;
    ticket->plan = replica->plan;
    load_finish_ticket(internal, NULL);
}

/* --- the end of a load -------------------------------------------------------------------------------------------- */

static void unlink_load(struct load *load)
{
    struct load **at = &load->table->loads;
    while (*at != load)
        at = &(*at)->next;
    *at = load->next;
    if (!load->table->loads)
        loop_timer_stop(load->table->progress_timer);
}

static void drop_parts(struct load *load)
{
    run_destroy(load->parts.run);
    segment_unref(load->parts.segment);
    quota_charge_end(&load->parts.descriptors);
    plan_destroy(load->parts.plan);
    mapping_destroy(load->parts.mapping);
    replica_unreserve(load->target.replicas, load->parts.uid, load->parts.charged_bytes);
}

/* Nothing of a client's own memory can be undone. */
static void tell_region_is_lost(struct error *error)
{
    size_t length = strlen(error->message);
    snprintf(error->message + length, sizeof error->message - length, "; the content of the client's memory is undefined");
}

/* Publishes or undoes, then lets every ticket go. The table's pin from replica_add() outlives them. */
static void finish_load(struct load *load)
{
    struct replica_table *replicas = load->target.replicas;
    struct replica *replica = NULL;
    unlink_load(load);
    load_log_run(load->id, &load->parts, load->failed ? &load->error : NULL);
    if (!load->failed)
        replica = replica_add(replicas, &load->parts);
    else if (load->parts.segment->region)
        tell_region_is_lost(&load->error);
    while (load->tickets) {
        struct ticket_internal *internal = load->tickets;
        load->tickets = internal->next;
        internal->load = NULL;
        if (replica)
            serve(internal, replica);
        else if (!load_team_go_without(load, internal))
            load_finish_ticket(internal, &load->error);
    }
    if (replica)
        replica_unpin(replica, replica->uid);
    else
        drop_parts(load);
    if (load->team)
        load_team_load_finished(load->team);
    free(load);
}

static bool is_abandoned(void *data)
{
    const struct load *load = data;
    return __atomic_load_n(&load->abandoned, __ATOMIC_RELAXED);
}

static int verify(struct load *load)
{
    const struct cancel cancel = {is_abandoned, load};
    const struct verify_options options = {.mapping = load->parts.mapping,
                                           .segment = load->parts.segment,
                                           .run = load->parts.run,
                                           .policy = load->verify,
                                           .cancel = &cancel,
                                           .uid = load->uid,
                                           .load_id = load->id};
    return verify_load(&options, &load->parts.verdict, &load->error);
}

static void commit_load(struct loop_work *work)
{
    struct load *load = (struct load *)work;
    struct error changed;
    run_release_transport(load->parts.run); /* before anybody is given the memory */
    if (artifact_check_unchanged(load->parts.mapping->artifact, &changed) != 0) {
        load->failed = true; /* also instead of what the change made of the read */
        load->error = changed;
    }
    if (!load->failed && (verify(load) != 0 || device_seal(load->parts.segment, &load->error) != 0))
        load->failed = true;
}

/* A load whose last client left while it was sealed publishes nothing, either. */
static void load_committed(struct loop_work *work)
{
    struct load *load = (struct load *)work;
    if (!load->failed && load->abandoned) {
        load->failed = true;
        say_why_cancelled(load->table, &load->error);
    }
    finish_load(load);
}

static void run_done(struct run *run, void *data, const struct error *error)
{
    struct load *load = data;
    struct load_table *table = load->table;
    if (error) {
        load->failed = true;
        load->error = *error;
    } else if (!load->shared_the_host && load->target.device == table->services->targets->list[LOAD_TARGET_HOST].device &&
               !load->parts.mapping->artifact->source->caps.tells_speed) {
        calibration_learn(table->services->calibration, load->parts.mapping->artifact->source->caps.device_id,
                          run_report(run));
    }
    if (load->team)
        load_team_run_done(load);
    else
        load_commit(load);
}

void load_commit(struct load *load)
{
    load->state = LOAD_COMMITTING;
    source_place_work(load->parts.mapping->artifact->reference, &load->work);
    load->work.lane |= load->lane;
    loop_continue(load->table->services->loop, &load->work);
}

/* --- the start of a load ------------------------------------------------------------------------------------------ */

void load_join(struct ticket_internal *internal, struct load *load)
{
    struct ticket *ticket = internal->ticket;
    internal->state = TICKET_WAITING;
    internal->load = load;
    internal->next = load->tickets;
    load->tickets = internal;
    ticket->mapping = load->parts.mapping;
    ticket->plan = load->parts.plan;
    if (internal->events->planned)
        internal->events->planned(internal->data, ticket);
    struct ticket_internal *echo;
    while ((echo = load_group_take_echo(internal))) {
        echo->ticket->joined = true;
        load_join(echo, load);
    }
}

/* The budget is charged before memory is asked for; page rounding is only known afterwards. A client's memory is not ours to
 * count. */
static int take_memory(struct load *load, struct device_region **region, struct error *error)
{
    uint64_t bytes = load->parts.mapping->replica_bytes;
    struct device_region *taken = *region;
    *region = NULL;
    if (taken)
        return device_adopt(load->target.device, bytes, taken, &load->parts.segment, error);
    load->parts.descriptors =
        (struct quota_charge){.quota = load->table->services->quota, .kind = QUOTA_DESCRIPTORS, .uid = load->parts.uid};
    if (quota_charge_add(&load->parts.descriptors, 1, error) != 0)
        return -1;
    if (replica_reserve(load->target.replicas, load->parts.uid, bytes, error) != 0)
        return -1;
    load->parts.charged_bytes = bytes;
    if (device_allocate(load->target.device, bytes, &load->parts.segment, error) != 0)
        return -1;
    uint64_t rounding = load->parts.segment->allocated_bytes - bytes;
    if (replica_reserve(load->target.replicas, load->parts.uid, rounding, error) != 0)
        return -1;
    load->parts.charged_bytes += rounding;
    return 0;
}

void load_publish(struct load *load)
{
    struct load_table *table = load->table;
    if (!table->loads)
        loop_timer_start(table->progress_timer, PROGRESS_MS, PROGRESS_MS);
    load->shared_the_host = table->loads != NULL;
    for (struct load *other = table->loads; other; other = other->next)
        other->shared_the_host = true;
    load->next = table->loads;
    table->loads = load;
}

static bool is_of_group(const struct ticket_internal *internal)
{
    const struct execution_topology *topology = &internal->ticket->spec.topology;
    return topology->has_group && topology->world_size > 1;
}

struct load *load_prepare(struct ticket_internal *internal, struct error *error)
{
    struct load *load = memory_alloc(sizeof *load);
    load->work = (struct loop_work){.do_work = commit_load, .done = load_committed, .uid = internal->ticket->uid};
    load->table = internal->table;
    memcpy(load->id, internal->ticket->id, sizeof load->id);
    load->uid = internal->ticket->uid;
    load->lane = internal->lane;
    load->target = internal->target;
    load->key = load->parts.key = replica_key_of(internal->mapping, internal->target.device);
    load->parts.uid = internal->ticket->uid;
    load->parts.mapping = internal->mapping;
    load->parts.plan = internal->plan;
    internal->mapping = NULL;
    internal->plan = NULL;
    load->verify = internal->config->verify;
    load->is_of_group = is_of_group(internal);
    load->started_ns = clock_now_ns();
    if (take_memory(load, &internal->ticket->region, error) == 0)
        return load;
    load_unprepare(load, internal);
    return NULL;
}

void load_unprepare(struct load *load, struct ticket_internal *internal)
{
    internal->mapping = load->parts.mapping;
    internal->plan = load->parts.plan;
    segment_unref(load->parts.segment);
    quota_charge_end(&load->parts.descriptors);
    replica_unreserve(load->target.replicas, load->parts.uid, load->parts.charged_bytes);
    free(load);
}

void load_run(struct load *load, struct collective *collective, uint32_t rank, uint32_t n_sharers)
{
    load->parts.run =
        run_start(load->table->services->engine, &(struct run_options){.mapping = load->parts.mapping,
                                                                       .plan = load->parts.plan,
                                                                       .segment = load->parts.segment,
                                                                       .done = run_done,
                                                                       .data = load,
                                                                       .uid = load->uid,
                                                                       .is_unverified = load->verify == VERIFY_NONE,
                                                                       .is_of_group = load->is_of_group,
                                                                       .collective = collective,
                                                                       .rank = rank,
                                                                       .n_sharers = n_sharers});
}

/* Replicas that nobody holds make room for what the error says is short. True: try again. */
static bool find_room(struct ticket_internal *internal, const struct error *error)
{
    return !internal->cancelled &&
           replica_make_room(internal->target.replicas, internal->ticket->uid, error, &internal->n_to_evict);
}

void load_start_alone(struct ticket_internal *internal)
{
    struct error error;
    struct load *load;
    do
        load = load_prepare(internal, &error);
    while (!load && find_room(internal, &error));
    if (!load) {
        load_finish_ticket(internal, &error);
        return;
    }
    load_publish(load);
    load_join(internal, load);
    load_run(load, NULL, 0, 1);
}

static struct load *find_load(struct load_table *table, const struct replica_key *key)
{
    for (struct load *load = table->loads; load; load = load->next) {
        if (!load->abandoned && !load->parts.segment->region && replica_key_equal(&load->key, key))
            return load;
    }
    return NULL;
}

/* One that was loaded before verification was required may not do. */
static struct replica *find_replica(const struct ticket_internal *internal, const struct replica_key *key)
{
    struct replica *replica = replica_find(internal->target.replicas, key);
    bool will_do = replica && (internal->config->verify != VERIFY_REQUIRED || replica->verdict.status == VERIFIED_ALL);
    return will_do ? replica : NULL;
}

bool load_exists(const struct ticket_internal *internal)
{
    if (internal->ticket->region)
        return false;
    struct replica_key key = replica_key_of(internal->mapping, internal->target.device);
    return find_replica(internal, &key) || find_load(internal->table, &key);
}

bool load_take_existing(struct ticket_internal *internal)
{
    struct load_table *table = internal->table;
    struct replica_key key = replica_key_of(internal->mapping, internal->target.device);
    if (internal->ticket->region)
        return false;
    struct replica *replica = find_replica(internal, &key);
    if (replica) {
        internal->ticket->from_replica = true;
        serve(internal, replica);
        return true;
    }
    struct load *load = find_load(table, &key);
    if (load) {
        internal->ticket->joined = true;
        load_join(internal, load);
    }
    return load != NULL;
}

/* --- resolve and plan: helper threads ----------------------------------------------------------------------------- */

struct plan_facts ticket_facts(const struct ticket *ticket)
{
    const struct config *config = ticket->internal->config;
    const struct load_services *services = ticket->internal->table->services;
    struct transport_supply transports = {.wish = config->engine.collective_transport};
    transports.n = transport_list(&transports.list);
    return (struct plan_facts){.strategy = &config->engine.strategy,
                               .costs = &ticket->costs,
                               .source = ticket->mapping->artifact->source->caps,
                               .device = ticket->internal->target.device->caps,
                               .speed = engine_source_speed(services->engine, ticket->mapping->artifact->source),
                               .staging_budget_bytes = config->memory.staging_budget_bytes,
                               .extent_cache_bytes =
                                   engine_extent_cache_bytes(services->engine, !is_of_group(ticket->internal)),
                               .cached_share = ticket->cached_share,
                               .transports = transports,
                               .group_problem = ticket->internal->group_problem};
}

static struct metadata_account account_of(const struct ticket_internal *internal)
{
    return (struct metadata_account){.quota = internal->table->services->quota, .uid = internal->ticket->uid};
}

static void plan_ticket(struct loop_work *work)
{
    struct ticket_internal *internal = (struct ticket_internal *)work;
    struct ticket *ticket = internal->ticket;
    struct metadata_account before = metadata_enter(account_of(internal));
    uint64_t start = clock_now_ns();
    ticket->cached_share = residency_cached_share(internal->mapping);
    struct plan_facts facts = ticket_facts(ticket);
    internal->plan = plan_build(internal->mapping, &ticket->spec, &facts, &internal->error);
    internal->failed = internal->plan == NULL;
    ticket->plan_ns += clock_now_ns() - start;
    metadata_enter(before);
}

/* It has a plan. */
static void go_on(struct ticket_internal *internal)
{
    if (load_group_enter(internal))
        return;
    if (internal->goal == GOAL_PLAN)
        load_finish_ticket(internal, NULL);
    else if (!load_take_existing(internal))
        load_start_alone(internal);
}

static void submit_plan(struct ticket_internal *internal);

static void ticket_planned(struct loop_work *work)
{
    struct ticket_internal *internal = (struct ticket_internal *)work;
    if (internal->failed && find_room(internal, &internal->error)) {
        submit_plan(internal);
        return;
    }
    if (internal->failed || internal->cancelled) {
        load_finish_ticket(internal, &internal->error);
        return;
    }
    internal->ticket->plan = internal->plan;
    load_log_plan(internal->ticket);
    go_on(internal);
}

/* Asks a file system what is cached; for others it only computes. */
static void submit_plan(struct ticket_internal *internal)
{
    const struct artifact *artifact = internal->mapping->artifact;
    internal->state = TICKET_PLANNING;
    internal->work = (struct loop_work){.do_work = plan_ticket, .done = ticket_planned, .uid = internal->ticket->uid};
    if (artifact->source->caps.residency) {
        source_place_work(artifact->reference, &internal->work);
        internal->work.lane |= internal->lane;
    }
    loop_continue(internal->table->services->loop, &internal->work);
}

void load_plan_again(struct ticket_internal *internal)
{
    plan_destroy(internal->plan);
    internal->plan = NULL;
    internal->ticket->plan = NULL;
    submit_plan(internal);
}

static int check_region(const struct ticket *ticket, struct error *error)
{
    if (!ticket->region)
        return 0;
    if (!ticket->spec.device)
        return fail(error, ERROR_INVALID_ARGUMENT, "REGION_WITHOUT_DEVICE",
                    "the request offers memory to be filled but names no GPU that it is on");
    if (ticket->spec.topology.has_group)
        return fail(error, ERROR_UNIMPLEMENTED, "REGION_IN_GROUP",
                    "memory of a client is filled by a load of its own; leave out the group");
    return 0;
}

static bool is_cancelled(void *data)
{
    return ((const struct ticket_internal *)data)->cancelled;
}

static void resolve_ticket(struct loop_work *work)
{
    struct ticket_internal *internal = (struct ticket_internal *)work;
    const struct load_services *services = internal->table->services;
    struct ticket *ticket = internal->ticket;
    const struct config *config = internal->config;
    const struct cancel cancel = {is_cancelled, internal};
    struct metadata_account before = metadata_enter(account_of(internal));
    const struct source_options options = load_services_source_options(services, config, ticket->uid, &cancel);
    uint64_t start = clock_now_ns();
    internal->failed =
        load_spec_build(&ticket->request, &config->engine.strategy, &ticket->arena, &ticket->spec, &internal->error) != 0 ||
        check_region(ticket, &internal->error) != 0 ||
        load_targets_find(services->targets, ticket->spec.device, &internal->target, &internal->error) != 0 ||
        artifact_resolve(ticket->spec.artifact, &options, services->headers, false, &internal->artifact, &internal->error) !=
            0 ||
        (internal->mapping = mapping_build(&ticket->spec.view, internal->artifact, &internal->error)) == NULL;
    ticket->resolve_ns = clock_now_ns() - start;
    metadata_enter(before);
}

static void place_resolve(struct ticket_internal *internal);

/* The mapping says all that the view said. */
static void forget_request(struct ticket_internal *internal)
{
    struct ticket *ticket = internal->ticket;
    ticket->request = (struct load_request){.artifact = ticket->spec.artifact};
    ticket->spec.view = (struct view_spec){.whole = ticket->spec.view.whole, .align_bytes = ticket->spec.view.align_bytes};
    arena_fini(&ticket->request_arena);
    if (internal->events->resolved)
        internal->events->resolved(internal->data);
}

static void ticket_resolved(struct loop_work *work)
{
    struct ticket_internal *internal = (struct ticket_internal *)work;
    struct ticket *ticket = internal->ticket;
    const struct load_services *services = internal->table->services;
    if (internal->failed && find_room(internal, &internal->error)) {
        place_resolve(internal);
        loop_continue(services->loop, &internal->work);
        return;
    }
    if (internal->failed || internal->cancelled) {
        load_finish_ticket(internal, &internal->error);
        return;
    }
    ticket->mapping = internal->mapping;
    internal->lane = internal->work.lane;
    forget_request(internal);
    replica_drop_stale(internal->target.replicas, internal->artifact);
    bool must_plan = internal->goal == GOAL_PLAN || ticket->spec.policy.collective == COLLECTIVE_REQUIRED ||
                     load_group_is_wanted(internal);
    if (!must_plan && load_take_existing(internal))
        return;
    ticket->costs = calibration_get(services->calibration, internal->artifact->source->caps.device_id);
    submit_plan(internal);
}

static void place_resolve(struct ticket_internal *internal)
{
    const char *artifact = internal->ticket->request.artifact;
    internal->state = TICKET_RESOLVING;
    internal->work = (struct loop_work){.do_work = resolve_ticket, .done = ticket_resolved, .uid = internal->ticket->uid};
    source_place_work(artifact ? artifact : "", &internal->work);
}

/* --- tickets ------------------------------------------------------------------------------------------------------ */

struct ticket *ticket_create(struct load_table *table, uid_t uid)
{
    struct ticket *ticket = memory_alloc(sizeof *ticket);
    ticket->uid = uid;
    ticket->internal = memory_alloc(sizeof *ticket->internal);
    ticket->internal->ticket = ticket;
    ticket->internal->table = table;
    arena_init(&ticket->arena, 0);
    random_id(ticket->id);
    ticket->internal->member.holder = ticket->id;
    return ticket;
}

void ticket_submit(struct ticket *ticket, enum ticket_goal goal, const struct ticket_events *events, void *data)
{
    struct ticket_internal *internal = ticket->internal;
    internal->goal = goal;
    internal->events = events;
    internal->data = data;
    internal->config = internal->table->services->config;
    internal->target = internal->table->services->targets->list[LOAD_TARGET_HOST];
    internal->submitted_ns = clock_now_ns();
    place_resolve(internal);
    if (loop_submit(internal->table->services->loop, &internal->work, &internal->error) != 0)
        load_finish_ticket(internal, &internal->error);
}

/* When its user has left, the memory of a load is charged to one who still waits for it. */
static void hand_on(struct load *load)
{
    uid_t heir = load->tickets ? load->tickets->ticket->uid : load->parts.uid;
    for (const struct ticket_internal *internal = load->tickets; internal; internal = internal->next)
        if (internal->ticket->uid == load->parts.uid)
            return;
    replica_hand_on(load->target.replicas, load->parts.uid, heir, load->parts.charged_bytes);
    load->parts.uid = heir;
}

static void leave_load(struct ticket_internal *internal)
{
    struct load *load = internal->load;
    struct ticket_internal **at = &load->tickets;
    while (*at != internal)
        at = &(*at)->next;
    *at = internal->next;
    internal->load = NULL;
    hand_on(load);
    if (!load->tickets) {
        __atomic_store_n(&load->abandoned, true, __ATOMIC_RELAXED);
        if (load->state == LOAD_RUNNING)
            run_cancel(load->parts.run);
    }
}

void ticket_cancel(struct ticket *ticket)
{
    struct ticket_internal *internal = ticket->internal;
    internal->cancelled = true;
    if (internal->state == TICKET_WAITING) {
        leave_load(internal);
        load_finish_ticket(internal, NULL);
    } else if (internal->state == TICKET_ASSEMBLING || internal->state == TICKET_ECHO) {
        load_group_drop_echo(internal);
        load_finish_ticket(internal, NULL);
    } else { /* a stage that a helper has begun ends first */
        loop_cancel(internal->table->services->loop, &internal->work);
    }
}

void ticket_destroy(struct ticket *ticket)
{
    if (!ticket)
        return;
    struct ticket_internal *internal = ticket->internal;
    if (ticket->replica)
        replica_unpin(ticket->replica, ticket->uid);
    device_region_close(ticket->region);
    plan_destroy(internal->plan);
    mapping_destroy(internal->mapping);
    artifact_unref(internal->artifact);
    arena_fini(&ticket->arena);
    arena_fini(&ticket->request_arena);
    free(internal);
    free(ticket);
}
