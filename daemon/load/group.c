/* One slot per rank; see group.h for the states. The list of groups is short, so it is walked.
 *
 * A dissolved group stays as a memory of who was missing: those ranks would otherwise wait for the others in vain. */
#include "load/group.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "base/text.h"
#include "observe/log.h"

enum group_state { ASSEMBLING, RUNNING, DISSOLVED, GROUP_STATES };
static const struct state_row group_states[GROUP_STATES] = {
    [ASSEMBLING] = {"assembling", STATE_BIT(RUNNING) | STATE_BIT(DISSOLVED)},
    [RUNNING] = {"running", STATE_BIT(DISSOLVED)},
    [DISSOLVED] = {"dissolved", 0},
};
const struct state_machine group_machine = {"group", group_states, GROUP_STATES};

enum slot_state { SLOT_MISSING, SLOT_ELSEWHERE, SLOT_PRESENT, SLOT_EXCUSED, SLOT_GONE, SLOT_ENDED, SLOT_STATES };
static const struct state_row slot_states[SLOT_STATES] = {
    [SLOT_MISSING] = {"missing",
                      STATE_BIT(SLOT_ELSEWHERE) | STATE_BIT(SLOT_PRESENT) | STATE_BIT(SLOT_EXCUSED) | STATE_BIT(SLOT_ENDED)},
    [SLOT_ELSEWHERE] = {"elsewhere", STATE_BIT(SLOT_MISSING)}, /* on another host */
    [SLOT_PRESENT] = {"present", STATE_BIT(SLOT_MISSING) | STATE_BIT(SLOT_GONE) | STATE_BIT(SLOT_ENDED)},
    [SLOT_EXCUSED] = {"excused", STATE_BIT(SLOT_PRESENT) | STATE_BIT(SLOT_EXCUSED) | STATE_BIT(SLOT_ENDED)},
    [SLOT_GONE] = {"gone", STATE_BIT(SLOT_ENDED)}, /* it left while the group ran, and has not been told that it is late */
    [SLOT_ENDED] = {"ended", 0},
};
const struct state_machine group_slot_machine = {"slot of a group", slot_states, SLOT_STATES};

enum { MISSING_CHARS = 128 }; /* of a list of ranks */

struct slot {
    enum slot_state state;
    struct group_member *member; /* while PRESENT */
};

struct group {
    struct group_table *table;
    struct group *next;
    enum group_state state;
    struct arena arena;
    struct group_terms terms; /* of the first rank */
    struct rank_entry entry;  /* of a group that may span hosts: what its ranks' entries have in common; else empty */
    struct quota_charge charge;
    struct slot *slots;
    uint32_t n_here, n_present, n_elsewhere; /* neither missing nor elsewhere; with a member; on other hosts */
    struct loop_timer *timer;
    uint64_t since_ns, away_ns; /* away: since when the registry is, 0 = it is not */
    unsigned n_reviews;
    struct reason problem; /* what it dissolved for */
};

struct group_table {
    struct loop *loop;
    struct quota *quota;
    const struct group_events *events;
    void *data;
    struct group *groups;
    struct rank_registry *registry; /* NULL: no group spans hosts */
    unsigned n_reviews;
};

struct group_table *group_table_create(struct loop *loop, struct quota *quota, const struct group_events *events, void *data)
{
    struct group_table *table = memory_alloc(sizeof *table);
    *table = (struct group_table){.loop = loop, .quota = quota, .events = events, .data = data};
    return table;
}

/* --- a group's beginning and end ------------------------------------------------------------------------------------ */

static void set_group_state(struct group *group, enum group_state state)
{
    state_check(&group_machine, group->state, state);
    group->state = state;
}

static bool spans_hosts(const struct group *group)
{
    return group->entry.group[0] != '\0';
}

static bool is_here(enum slot_state state)
{
    return state != SLOT_MISSING && state != SLOT_ELSEWHERE;
}

/* What other hosts are to know of. */
static bool is_claimed(enum slot_state state)
{
    return state == SLOT_PRESENT || state == SLOT_EXCUSED;
}

static void release_rank(const struct group *group, uint32_t rank)
{
    if (spans_hosts(group))
        rank_registry_release(group->table->registry, group->entry.group, rank);
}

/* Also tells the members which ranks come and go, and counts them. */
static void set_slot(struct group *group, uint32_t rank, enum slot_state state, struct group_member *member)
{
    struct slot *slot = &group->slots[rank];
    state_check(&group_slot_machine, slot->state, state);
    if (slot->member)
        slot->member->group = NULL;
    if (member)
        member->group = group;
    if (is_claimed(slot->state) && !is_claimed(state))
        release_rank(group, rank);
    group->n_here += (uint32_t)is_here(state) - (uint32_t)is_here(slot->state);
    group->n_elsewhere += (uint32_t)(state == SLOT_ELSEWHERE) - (uint32_t)(slot->state == SLOT_ELSEWHERE);
    group->n_present += (uint32_t)(member != NULL) - (uint32_t)(slot->member != NULL);
    *slot = (struct slot){state, member};
}

static void remove_group(struct group *group)
{
    struct group **link = &group->table->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    for (uint32_t rank = 0; rank < group->terms.world_size; rank++)
        if (is_claimed(group->slots[rank].state))
            release_rank(group, rank);
    loop_timer_destroy(group->timer);
    quota_charge_end(&group->charge);
    metadata_free(group->slots);
    arena_fini(&group->arena);
    free(group);
}

void group_table_destroy(struct group_table *table)
{
    if (!table)
        return;
    while (table->groups) {
        assert(table->groups->n_present == 0);
        remove_group(table->groups);
    }
    free(table);
}

static void log_event(const struct group *group, const char *action, const char *reason)
{
    log_work_of("owner_file_collective", group->terms.owner, LOG_TEXT("action", action),
                LOG_TEXT("group_id", group->terms.id), LOG_TEXT("purpose", group->terms.purpose),
                LOG_U64("joined", group->n_here + group->n_elsewhere), LOG_U64("world_size", group->terms.world_size),
                LOG_TEXT("reason", reason), LOG_MS("waited_ms", clock_now_ns() - group->since_ns));
}

/* Every rank that waits is told; then the group only remembers which were missing. The caller may be told last, so it must not
 * look at the group afterwards. */
static void dissolve_group(struct group *group, const char *action, const struct reason *problem)
{
    struct group_table *table = group->table;
    set_group_state(group, DISSOLVED);
    group->problem = *problem;
    loop_timer_start(group->timer, group->terms.timeout_ms + 1, 0);
    log_event(group, action, problem->text);
    for (uint32_t rank = 0; rank < group->terms.world_size; rank++) {
        struct group_member *member = group->slots[rank].member;
        if (!member && group->slots[rank].state == SLOT_EXCUSED)
            release_rank(group, rank);
        if (!member)
            continue;
        set_slot(group, rank, SLOT_ENDED, NULL);
        table->events->dissolved(table->data, member, problem);
    }
    if (group->n_here + group->n_elsewhere == group->terms.world_size)
        remove_group(group);
}

/* A claim that the registry does not have yet, or never gets: another host has the rank, or etcd is away. */
static bool is_told(const struct group *group, uint32_t rank)
{
    return rank_registry_is_told(group->table->registry, group->entry.group, rank);
}

static bool has_terms(const struct group *group, const struct group_terms *terms)
{
    return terms->world_size == group->terms.world_size && strcmp(terms->artifact, group->terms.artifact) == 0 &&
           strcmp(terms->policy, group->terms.policy) == 0;
}

static void on_timer(void *data)
{
    struct group *group = data;
    if (group->state == DISSOLVED || group->n_present == 0) {
        remove_group(group);
        return;
    }
    char list[MISSING_CHARS] = "";
    size_t used = 0;
    for (uint32_t rank = 0; rank < group->terms.world_size; rank++) {
        enum slot_state state = group->slots[rank].state;
        bool is_untold = group->n_elsewhere && !group->away_ns && is_claimed(state) && !is_told(group, rank);
        if (state != SLOT_MISSING && !is_untold)
            continue;
        if (used + 16 > sizeof list) {
            snprintf(list + used, sizeof list - used, ",...");
            break;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%" PRIu32, used ? "," : "", rank);
    }
    struct reason problem =
        reason_with(group->away_ns ? REASON_GROUP_HOSTS_AWAY : REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=%s", list);
    dissolve_group(group, "timeout", &problem);
}

/* Until the timeout, or not that long while the registry is away. */
static void start_timer(struct group *group)
{
    uint64_t now_ns = clock_now_ns(), end_ns = group->since_ns + group->terms.timeout_ms * NS_PER_MS;
    bool is_away = spans_hosts(group) && rank_registry_is_away(group->table->registry);
    group->away_ns = !is_away ? 0 : group->away_ns ? group->away_ns : now_ns;
    uint64_t away_end_ns = group->away_ns + (uint64_t)GROUP_AWAY_MS * NS_PER_MS;
    if (is_away && away_end_ns < end_ns)
        end_ns = away_end_ns;
    loop_timer_start(group->timer, end_ns > now_ns ? (end_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS : 0, 0);
}

/* What all ranks of a group that may span hosts have in their entries. */
static void make_entry(struct group *group)
{
    const struct group_terms *terms = &group->terms;
    struct rank_entry *entry = &group->entry;
    char owner[16];
    snprintf(owner, sizeof owner, "%" PRIu32, (uint32_t)terms->owner);
    entry->world_size = terms->world_size;
    rank_entry_digest((const char *[]){terms->domain, owner, terms->id, terms->purpose}, 4, entry->group);
    rank_entry_digest(&terms->reference, 1, entry->reference);
    rank_entry_digest(&terms->shared_version, 1, entry->artifact);
    rank_entry_digest(&terms->policy, 1, entry->policy);
}

/* --- ranks on other hosts -------------------------------------------------------------------------------------------- */

static bool is_of_group(const struct group *group, const struct rank_entry *other)
{
    return other->world_size == group->terms.world_size && strcmp(other->artifact, group->entry.artifact) == 0 &&
           strcmp(other->policy, group->entry.policy) == 0;
}

static void update_slot(struct group *group, uint32_t rank)
{
    const struct rank_entry *other = rank_registry_find(group->table->registry, group->entry.group, rank);
    bool is_there = other && !other->is_used && is_of_group(group, other);
    enum slot_state state = group->slots[rank].state;
    if (state == SLOT_MISSING && is_there)
        set_slot(group, rank, SLOT_ELSEWHERE, NULL);
    else if (state == SLOT_ELSEWHERE && !is_there)
        set_slot(group, rank, SLOT_MISSING, NULL);
}

/* NULL when the user may have no more groups, or no more metadata. */
static struct group *create_group(struct group_table *table, const struct group_terms *terms, struct error *error)
{
    struct quota_charge charge = {.quota = table->quota, .kind = QUOTA_GROUPS, .uid = terms->uid};
    if (quota_charge_add(&charge, 1, error) != 0)
        return NULL;
    /* as many as the ranks are said to be */
    struct metadata_account before = metadata_enter((struct metadata_account){.quota = table->quota, .uid = terms->uid});
    struct slot *slots = metadata_array(terms->world_size, sizeof *slots, error);
    metadata_enter(before);
    if (!slots) {
        quota_charge_end(&charge);
        return NULL;
    }
    struct group *group = memory_alloc(sizeof *group);
    *group = (struct group){.table = table,
                            .next = table->groups,
                            .terms = *terms,
                            .charge = charge,
                            .slots = slots,
                            .timer = loop_timer_create(table->loop, on_timer, group),
                            .since_ns = clock_now_ns()};
    arena_init(&group->arena, 0);
    const char **texts[] = {&group->terms.id,       &group->terms.purpose, &group->terms.reference,
                            &group->terms.artifact, &group->terms.files,   &group->terms.policy};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = arena_text(&group->arena, *texts[i], strlen(*texts[i]));
    if (table->registry && terms->domain)
        make_entry(group);
    group->terms.domain = group->terms.shared_version = NULL; /* they are in the entry */
    table->groups = group;
    start_timer(group);
    for (uint32_t rank = 0; spans_hosts(group) && rank < terms->world_size; rank++)
        update_slot(group, rank);
    return group;
}

/* --- finding the group a rank belongs to ---------------------------------------------------------------------------- */

static bool is_named(const struct group *group, const struct group_terms *terms)
{
    return group->terms.owner == terms->owner && strcmp(group->terms.id, terms->id) == 0 &&
           strcmp(group->terms.purpose, terms->purpose) == 0;
}

static struct group *find_group(const struct group_table *table, const struct group_terms *terms, enum group_state state)
{
    for (struct group *group = table->groups; group; group = group->next)
        if (group->state == state && is_named(group, terms))
            return group;
    return NULL;
}

/* The one that assembles; not one of ranks that are all excused and would have meant another. Ranks that were excused since
 * they were handed the files may have let go of them, and the version with that: then it is the newcomer's. */
static struct group *find_assembling(const struct group_table *table, const struct group_terms *terms)
{
    struct group *group = find_group(table, terms, ASSEMBLING);
    if (!group || group->n_present > 0 || has_terms(group, terms))
        return group;
    if (strcmp(terms->files, group->terms.files) == 0) {
        group->terms.artifact = arena_text(&group->arena, terms->artifact, strlen(terms->artifact));
        if (has_terms(group, terms))
            return group;
    }
    remove_group(group);
    return NULL;
}

static enum slot_state slot_state(const struct group *group, uint32_t rank)
{
    return rank < group->terms.world_size ? group->slots[rank].state : SLOT_ENDED;
}

/* A group that is over for this rank although it never heard so. */
static struct group *find_missed(const struct group_table *table, const struct group_terms *terms, uint32_t rank)
{
    for (struct group *group = table->groups; group; group = group->next) {
        bool missed = (group->state == DISSOLVED && slot_state(group, rank) == SLOT_MISSING) ||
                      (group->state == RUNNING && slot_state(group, rank) == SLOT_GONE);
        if (missed && is_named(group, terms))
            return group;
    }
    return NULL;
}

static struct reason tell_late(struct group *group, uint32_t rank)
{
    bool runs = group->state == RUNNING;
    struct reason problem =
        runs ? reason_of(REASON_GROUP_RUNS_ALREADY) : reason_with(REASON_GROUP_CLOSED, "%s", group->problem.text);
    set_slot(group, rank, SLOT_ENDED, NULL);
    if (!runs && group->n_here == group->terms.world_size)
        remove_group(group);
    return problem;
}

/* --- refusing ------------------------------------------------------------------------------------------------------- */

static int note_rank(const struct group *group, uint32_t rank, struct error *error)
{
    error_note(error, "group_id", "%s", group->terms.id);
    return error_note(error, "rank", "%" PRIu32, rank);
}

static int refuse_mismatch(const struct group *group, uint32_t rank, const char *field, const char *own, const char *theirs,
                           struct error *error)
{
    char id[TEXT_NAME_CHARS], a[TEXT_NAME_CHARS], b[TEXT_NAME_CHARS];
    fail(error, ERROR_INVALID_ARGUMENT, "GROUP_MISMATCH",
         "rank %u does not fit into group %s: its %s is %s, the group's is %s; give all ranks of a group the same, or "
         "another group id",
         rank, text_escape(group->terms.id, strlen(group->terms.id), id), field, text_escape(own, strlen(own), a),
         text_escape(theirs, strlen(theirs), b));
    error_note(error, "field", "%s", field);
    return note_rank(group, rank, error);
}

static int check_terms(const struct group *group, const struct group_terms *terms, uint32_t rank, struct error *error)
{
    char own[16], theirs[16], id[TEXT_NAME_CHARS], reference[TEXT_NAME_CHARS];
    snprintf(own, sizeof own, "%" PRIu32, terms->world_size);
    snprintf(theirs, sizeof theirs, "%" PRIu32, group->terms.world_size);
    if (has_terms(group, terms))
        return 0;
    if (terms->world_size != group->terms.world_size)
        return refuse_mismatch(group, rank, "world size", own, theirs, error);
    if (strcmp(terms->artifact, group->terms.artifact) == 0)
        return refuse_mismatch(group, rank, "policy", terms->policy, group->terms.policy, error);
    if (strcmp(terms->reference, group->terms.reference) != 0)
        return refuse_mismatch(group, rank, "artifact", terms->reference, group->terms.reference, error);
    fail(error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
         "%s has changed while group %s assembled: rank %u resolved version %.12s, those who wait %.12s; load it again on "
         "all ranks",
         text_escape(terms->reference, strlen(terms->reference), reference),
         text_escape(group->terms.id, strlen(group->terms.id), id), rank, terms->artifact, group->terms.artifact);
    return note_rank(group, rank, error);
}

static bool is_again(const struct slot *slot, const struct group_member *member)
{
    return slot->state == SLOT_PRESENT && slot->member->attempt && member->attempt &&
           strcmp(slot->member->attempt, member->attempt) == 0;
}

/* GROUP_JOINED: the rank is free. */
static enum group_answer check_slot(const struct group *group, struct group_member *member, struct error *error)
{
    const struct slot *slot = &group->slots[member->rank];
    char id[TEXT_NAME_CHARS];
    if (slot->state != SLOT_PRESENT)
        return GROUP_JOINED;
    if (is_again(slot, member)) {
        member->first = slot->member;
        return GROUP_AGAIN;
    }
    fail(error, ERROR_ALREADY_EXISTS, "GROUP_RANK_TAKEN",
         "rank %u of group %s is taken: load %s has it and is %s; give every rank its own number and every load that runs "
         "at the same time its own group id",
         member->rank, text_escape(group->terms.id, strlen(group->terms.id), id), slot->member->holder,
         group->state == ASSEMBLING ? "waiting for the other ranks" : "running");
    error_note(error, "holder", "%s", slot->member->holder);
    note_rank(group, member->rank, error);
    return GROUP_REFUSED;
}

/* Another host has the rank, or those that were there first want something else. */
static int refuse_other(const struct group *group, uint32_t rank, const struct rank_entry *other, struct error *error)
{
    char id[TEXT_NAME_CHARS], host[TEXT_NAME_CHARS], own[16], theirs[TEXT_NAME_CHARS + 32];
    text_escape(other->host, strlen(other->host), host);
    text_escape(group->terms.id, strlen(group->terms.id), id);
    if (other->rank == rank) {
        fail(error, ERROR_ALREADY_EXISTS, "GROUP_RANK_TAKEN",
             "rank %u of group %s is taken: load %s on host %s has it; give every rank its own number and every load that "
             "runs at the same time its own group id",
             rank, id, other->load, host);
        error_note(error, "host", "%s", host);
        return note_rank(group, rank, error);
    }
    snprintf(own, sizeof own, "%" PRIu32, group->terms.world_size);
    snprintf(theirs, sizeof theirs, "%" PRIu32 ", on host %s", other->world_size, host);
    if (other->world_size != group->terms.world_size)
        return refuse_mismatch(group, rank, "world size", own, theirs, error);
    snprintf(theirs, sizeof theirs, "another one, on host %s", host);
    if (strcmp(other->artifact, group->entry.artifact) == 0)
        return refuse_mismatch(group, rank, "policy", group->terms.policy, theirs, error);
    if (strcmp(other->reference, group->entry.reference) != 0)
        return refuse_mismatch(group, rank, "artifact", group->terms.reference, theirs, error);
    char reference[TEXT_NAME_CHARS];
    fail(
        error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED),
        "%s has changed while group %s assembled: rank %u resolved another version than host %s; load it again on all ranks",
        text_escape(group->terms.reference, strlen(group->terms.reference), reference), id, rank, host);
    return note_rank(group, rank, error);
}

/* Whether ranks on other hosts allow this rank here. */
static int check_others(struct group *group, uint32_t rank, struct error *error)
{
    const struct rank_registry *registry = group->table->registry;
    const struct rank_entry *other = NULL;
    bool has_company = group->n_elsewhere > 0; /* it does not differ from all that were there before */
    if (!spans_hosts(group))
        return 0;
    update_slot(group, rank);
    if ((other = rank_registry_find(registry, group->entry.group, rank)))
        return refuse_other(group, rank, other, error);
    for (uint32_t i = 0; i < group->terms.world_size && !has_company; i++)
        has_company = is_claimed(group->slots[i].state) && is_told(group, i);
    while (!has_company && (other = rank_registry_next(registry, group->entry.group, other)))
        if (!is_of_group(group, other))
            return refuse_other(group, rank, other, error);
    return 0;
}

/* --- joining -------------------------------------------------------------------------------------------------------- */

static void claim_rank(struct group *group, const struct group_member *member, const char *needs)
{
    struct rank_entry entry = group->entry;
    if (!spans_hosts(group))
        return;
    entry.rank = member->rank;
    entry.needs = needs ? memory_copy_text(needs) : NULL;
    snprintf(entry.load, sizeof entry.load, "%s", member->holder);
    rank_registry_claim(group->table->registry, &entry);
    free(entry.needs);
}

/* Ranks on other hosts count once all hosts can know of each other. */
static bool is_full(const struct group *group)
{
    if (group->n_here + group->n_elsewhere < group->terms.world_size)
        return false;
    for (uint32_t rank = 0; group->n_elsewhere && rank < group->terms.world_size; rank++)
        if (is_claimed(group->slots[rank].state) && !is_told(group, rank))
            return false;
    return true;
}

static void complete_when_full(struct group *group)
{
    struct group_table *table = group->table;
    if (!is_full(group))
        return;
    loop_timer_stop(group->timer);
    if (spans_hosts(group))
        rank_registry_use(table->registry, group->entry.group);
    if (group->n_present == 0) {
        remove_group(group);
        return;
    }
    set_group_state(group, RUNNING);
    log_event(group, "launching", "complete");
    table->events->complete(table->data, group);
}

enum group_answer group_join(struct group_table *table, const struct group_terms *terms, struct group_member *member,
                             struct reason *problem, struct error *error)
{
    struct group *running = find_group(table, terms, RUNNING), *group = find_assembling(table, terms);
    enum group_answer answer = GROUP_JOINED;
    assert(!member->group && member->rank < terms->world_size);
    if (running && member->rank < running->terms.world_size)
        answer = check_slot(running, member, error);
    if (answer != GROUP_JOINED)
        return answer;
    struct group *missed = group ? NULL : find_missed(table, terms, member->rank);
    if (missed) {
        *problem = tell_late(missed, member->rank);
        return GROUP_LATE;
    }
    if (!group)
        group = create_group(table, terms, error);
    if (!group)
        return GROUP_REFUSED;
    if (check_terms(group, terms, member->rank, error) != 0) {
        if (error->kind != ERROR_KIND_SOURCE_CHANGED)
            return GROUP_REFUSED;
        /* those who wait have an old version, or the odd rank has: they cannot load together */
        const struct reason changed = reason_with(REASON_SOURCE_CHANGED, "rank=%" PRIu32, member->rank);
        if (slot_state(group, member->rank) == SLOT_MISSING) /* it has been told */
            set_slot(group, member->rank, SLOT_ENDED, NULL);
        dissolve_group(group, "dissolved", &changed);
        return GROUP_REFUSED;
    }
    answer = check_slot(group, member, error);
    if (answer == GROUP_JOINED && check_others(group, member->rank, error) != 0) {
        if (group->n_here == 0) /* it was made for this rank */
            remove_group(group);
        answer = GROUP_REFUSED;
    }
    if (answer != GROUP_JOINED)
        return answer;
    set_slot(group, member->rank, SLOT_PRESENT, member);
    claim_rank(group, member, member->needs);
    log_event(group, "join", member->holder);
    complete_when_full(group);
    return GROUP_JOINED;
}

/* Where a rank that does not join is counted as here. NULL: nowhere, it has been told of a group that is over for it, or it
 * fits into none. */
static struct group *group_to_count_in(struct group_table *table, const struct group_terms *terms, uint32_t rank)
{
    struct group *group = find_assembling(table, terms), *missed = group ? NULL : find_missed(table, terms, rank);
    struct error error;
    if (missed) {
        tell_late(missed, rank);
        return NULL;
    }
    if (!group)
        group = create_group(table, terms, &error);
    if (!group || check_terms(group, terms, rank, &error) != 0 || group->slots[rank].state == SLOT_PRESENT)
        return NULL;
    if (check_others(group, rank, &error) == 0)
        return group;
    if (group->n_here == 0)
        remove_group(group);
    return NULL;
}

void group_excuse(struct group_table *table, const struct group_terms *terms, const struct group_member *member)
{
    uint32_t rank = member->rank;
    struct group *running = find_group(table, terms, RUNNING), *group;
    if (running && rank < running->terms.world_size && is_again(&running->slots[rank], member))
        return; /* a retry is no rank of the next group */
    group = group_to_count_in(table, terms, rank);
    if (!group)
        return; /* it has what it wants whatever the others do */
    set_slot(group, rank, SLOT_EXCUSED, NULL);
    claim_rank(group, member, NULL);
    complete_when_full(group);
}

void group_decline(struct group_table *table, const struct group_terms *terms, uint32_t rank, const char *why)
{
    bool is_remembered = !find_assembling(table, terms) && !find_missed(table, terms, rank) &&
                         find_group(table, terms, DISSOLVED); /* by a group that others will be told of */
    struct group *group = is_remembered ? NULL : group_to_count_in(table, terms, rank);
    if (!group)
        return;
    set_slot(group, rank, SLOT_ENDED, NULL);
    struct reason problem = reason_with(REASON_GROUP_MEMBER_DECLINED, "rank=%" PRIu32 ":%s", rank, why);
    dissolve_group(group, "dissolved", &problem);
}

/* --- news of other hosts --------------------------------------------------------------------------------------------- */

/* Of a group that assembles. Ranks that the registry does not have yet came later than what it tells. The group may be gone
 * afterwards. */
static void review_rank(struct group *group, uint32_t rank)
{
    const struct group_table *table = group->table;
    struct error error;
    for (uint32_t i = 0; i < group->terms.world_size; i++) {
        struct group_member *member = group->slots[i].member;
        if (!member || is_told(group, i) || check_others(group, i, &error) == 0)
            continue;
        log_event(group, "refused", member->holder);
        set_slot(group, i, SLOT_MISSING, NULL);
        table->events->refused(table->data, member, &error);
    }
    if (rank < group->terms.world_size)
        update_slot(group, rank);
    if (group->n_here == 0)
        remove_group(group);
    else
        complete_when_full(group);
}

static void on_rank_changed(void *data, const char *id, uint32_t rank)
{
    const struct group_table *table = data;
    struct group *group = table->groups;
    while (group && (group->state != ASSEMBLING || strcmp(group->entry.group, id) != 0))
        group = group->next;
    if (group)
        review_rank(group, rank);
}

/* Groups go and come meanwhile, so each turn begins anew. */
static void on_hosts_changed(void *data)
{
    struct group_table *table = data;
    struct group *group;
    table->n_reviews++;
    do {
        group = table->groups;
        while (group && (group->state != ASSEMBLING || !spans_hosts(group) || group->n_reviews == table->n_reviews))
            group = group->next;
        if (!group)
            return;
        group->n_reviews = table->n_reviews;
        start_timer(group);
        for (uint32_t rank = 0; rank + 1 < group->terms.world_size; rank++)
            update_slot(group, rank);
        review_rank(group, group->terms.world_size - 1);
    } while (group);
}

void group_table_join_hosts(struct group_table *table, struct rank_registry *registry)
{
    static const struct rank_registry_events events = {.changed = on_rank_changed, .hosts_changed = on_hosts_changed};
    table->registry = registry;
    rank_registry_listen(registry, &events, table);
}

/* --- leaving -------------------------------------------------------------------------------------------------------- */

/* A rank that leaves while others are awaited is missing again. */
static void leave_slot(struct group_member *member, enum slot_state state)
{
    struct group *group = member->group;
    set_slot(group, member->rank, group->state == ASSEMBLING ? SLOT_MISSING : state, NULL);
    if (group->n_present == 0 && (group->state != ASSEMBLING || group->n_here == 0))
        remove_group(group);
}

void group_leave(struct group_member *member)
{
    if (!member->group)
        return;
    log_event(member->group, "left", member->holder);
    leave_slot(member, SLOT_GONE);
}

void group_end(struct group_member *member)
{
    if (!member->group)
        return;
    if (member->group->n_present == 1)
        log_event(member->group, "finished", "all_ranks_ended");
    leave_slot(member, SLOT_ENDED);
}

void group_dissolve(struct group *group, struct group_member *except, const struct reason *problem)
{
    assert(group->state == RUNNING);
    if (except)
        set_slot(group, except->rank, SLOT_ENDED, NULL);
    dissolve_group(group, "dissolved", problem);
}

struct group_member *group_find(const struct group *group, uint32_t rank)
{
    return group->slots[rank].member;
}

bool group_is_elsewhere(const struct group *group, uint32_t rank)
{
    return group->slots[rank].state == SLOT_ELSEWHERE;
}

const char *group_needs_elsewhere(const struct group *group, uint32_t rank)
{
    const struct rank_entry *other =
        group_is_elsewhere(group, rank) ? rank_registry_find(group->table->registry, group->entry.group, rank) : NULL;
    return other ? other->needs : NULL;
}

const struct group_terms *group_terms(const struct group *group)
{
    return &group->terms;
}
