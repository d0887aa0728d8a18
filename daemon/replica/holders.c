/* Users in a hash table of chains, holders in a list per memory; see holders.h. Every change of a holding ends in settle(),
 * which counts its bytes where they belong now. */
#include "replica/holders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

enum { N_CHAINS = 256 };

struct user {
    struct user *next;
    struct holders_user has;
};

struct holders {
    struct user *chains[N_CHAINS];
};

struct holders *holders_create(void)
{
    return memory_alloc(sizeof(struct holders));
}

void holders_destroy(struct holders *holders)
{
    for (int i = 0; holders && i < N_CHAINS; i++) {
        while (holders->chains[i]) {
            struct user *next = holders->chains[i]->next;
            free(holders->chains[i]);
            holders->chains[i] = next;
        }
    }
    free(holders);
}

static struct user *find_user(const struct holders *holders, uid_t uid)
{
    struct user *user = holders->chains[uid % N_CHAINS];
    while (user && user->has.uid != uid)
        user = user->next;
    return user;
}

static struct holders_user *get_user(struct holders *holders, uid_t uid)
{
    struct user *user = find_user(holders, uid);
    if (!user) {
        user = memory_alloc(sizeof *user);
        *user = (struct user){.next = holders->chains[uid % N_CHAINS], .has.uid = uid};
        holders->chains[uid % N_CHAINS] = user;
    }
    return &user->has;
}

static uint64_t sum_user(const struct holders_user *user)
{
    return user->held_bytes + user->kept_bytes + user->reserved_bytes;
}

/* Users come and go; one who has nothing is not worth a place. */
static void forget_if_empty(struct holders *holders, uid_t uid)
{
    struct user **link = &holders->chains[uid % N_CHAINS];
    while (*link && (*link)->has.uid != uid)
        link = &(*link)->next;
    struct user *user = *link;
    if (!user || sum_user(&user->has) > 0)
        return;
    *link = user->next;
    free(user);
}

void holders_reserve(struct holders *holders, uid_t uid, uint64_t bytes)
{
    if (bytes)
        get_user(holders, uid)->reserved_bytes += bytes;
}

void holders_unreserve(struct holders *holders, uid_t uid, uint64_t bytes)
{
    if (bytes)
        get_user(holders, uid)->reserved_bytes -= bytes;
    forget_if_empty(holders, uid);
}

uint64_t holders_bytes(const struct holders *holders, uid_t uid)
{
    const struct user *user = find_user(holders, uid);
    return user ? sum_user(&user->has) : 0;
}

void holders_each(const struct holders *holders, void (*fn)(void *data, const struct holders_user *user), void *data)
{
    for (int i = 0; i < N_CHAINS; i++)
        for (const struct user *user = holders->chains[i]; user; user = user->next)
            fn(data, &user->has);
}

/* --- one piece of memory -------------------------------------------------------------------------------------------- */

void holding_init(struct holding *holding, struct holders *holders, uint64_t bytes)
{
    *holding = (struct holding){.holders = holders, .bytes = bytes};
}

static uint64_t *sum_of(struct holders_user *user, enum holder_kind kind)
{
    static uint64_t nowhere;
    return kind == HOLDER_PINS ? &user->held_bytes : kind == HOLDER_KEEPS ? &user->kept_bytes : &nowhere;
}

static void count_holder(struct holding *holding, struct holder *holder)
{
    enum holder_kind kind = holder->n_pins                          ? HOLDER_PINS
                            : holding->is_kept && holder->was_given ? HOLDER_KEEPS
                                                                    : HOLDER_OF_NOTHING;
    if (kind == holder->counted || holding->bytes == 0)
        return;
    struct holders_user *user = get_user(holding->holders, holder->uid);
    *sum_of(user, holder->counted) -= holding->bytes;
    *sum_of(user, kind) += holding->bytes;
    holder->counted = kind;
    forget_if_empty(holding->holders, holder->uid);
}

static void settle_holding(struct holding *holding)
{
    for (struct holder **link = &holding->list, *holder; (holder = *link);) {
        count_holder(holding, holder);
        if (holder->n_pins || holder->was_given) {
            link = &holder->next;
            continue;
        }
        *link = holder->next;
        free(holder);
    }
}

void holding_fini(struct holding *holding)
{
    for (struct holder *holder = holding->list; holder; holder = holder->next) {
        holder->n_pins = 0;
        holder->was_given = false;
    }
    holding->n_pins = 0;
    holding->is_kept = false;
    settle_holding(holding);
}

static struct holder *get_holder(struct holding *holding, uid_t uid)
{
    struct holder *holder = holding->list;
    while (holder && holder->uid != uid)
        holder = holder->next;
    if (!holder) {
        holder = memory_alloc(sizeof *holder);
        *holder = (struct holder){.next = holding->list, .uid = uid};
        holding->list = holder;
    }
    return holder;
}

void holding_pin(struct holding *holding, uid_t uid)
{
    get_holder(holding, uid)->n_pins++;
    holding->n_pins++;
    holding->is_kept = false;
    settle_holding(holding);
}

void holding_unpin(struct holding *holding, uid_t uid)
{
    get_holder(holding, uid)->n_pins--;
    holding->n_pins--;
    settle_holding(holding);
}

void holding_give(struct holding *holding, uid_t uid)
{
    get_holder(holding, uid)->was_given = true;
}

void holding_set_kept(struct holding *holding, bool is_kept)
{
    holding->is_kept = is_kept;
    for (struct holder *holder = holding->list; !is_kept && holder; holder = holder->next)
        holder->was_given = false;
    settle_holding(holding);
}

bool holding_was_given(const struct holding *holding)
{
    bool was_given = false;
    for (const struct holder *holder = holding->list; holder; holder = holder->next)
        was_given = was_given || holder->was_given;
    return was_given;
}

/* --- the error of a budget that has no room --------------------------------------------------------------------------- */

enum { MAX_NAMED = 3, NAMED_CHARS = 96 };

struct named { /* the users who have most, most first */
    struct holders_user users[MAX_NAMED];
};

static void name_user(void *data, const struct holders_user *user)
{
    struct named *named = data;
    size_t at = MAX_NAMED;
    while (at > 0 && sum_user(&named->users[at - 1]) < sum_user(user))
        at--;
    if (at == MAX_NAMED)
        return;
    memmove(&named->users[at + 1], &named->users[at], (MAX_NAMED - 1 - at) * sizeof *user);
    named->users[at] = *user;
}

/* A budget of which this user may have so many bytes, as the configuration has it: "1126MiB". */
static uint64_t wanted_mib(const struct budget_numbers *numbers, uint64_t needed_bytes)
{
    unsigned __int128 wanted = (unsigned __int128)needed_bytes * numbers->budget_bytes;
    return (uint64_t)((wanted / numbers->most_bytes) >> 20) + 1;
}

/* The end of other loads gives it no room. */
static int fail_for_good(const struct budget_numbers *numbers, uint64_t needed_bytes, struct error *error)
{
    char need[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS], most[TEXT_SIZE_CHARS], of_user[2 * TEXT_SIZE_CHARS + 64] = "";
    bool is_host = numbers->memory == REPLICA_MEMORY_HOST;
    const char *key = is_host ? "memory.host_budget" : "devices.memory_budget";
    if (numbers->most_bytes < numbers->budget_bytes)
        snprintf(of_user, sizeof of_user, ", of which one user may have %s (limits.kept_for_others)",
                 text_people_bytes(numbers->most_bytes, most));
    return fail(error, ERROR_RESOURCE_EXHAUSTED, is_host ? "HOST_BUDGET_EXCEEDED" : "DEVICE_BUDGET_EXCEEDED",
                "the view needs %llu bytes (%s) of %smemory and can never fit: %s is %s%s; raise it to at least %lluMiB, or "
                "load fewer tensors, or slices of them",
                (unsigned long long)needed_bytes, text_people_bytes(needed_bytes, need), is_host ? "" : "device ", key,
                text_people_bytes(numbers->budget_bytes, budget), of_user,
                (unsigned long long)wanted_mib(numbers, needed_bytes));
}

static int add_notes(const struct budget_numbers *numbers, uid_t uid, uint64_t needed_bytes, struct error *error)
{
    error_note(error, "uid", "%u", (unsigned)uid);
    error_note(error, "needed_bytes", "%llu", (unsigned long long)needed_bytes);
    return error_note(error, "available_bytes", "%llu", (unsigned long long)numbers->available_bytes);
}

int budget_error_fail(const struct budget_numbers *numbers, uid_t uid, uint64_t needed_bytes, struct error *error)
{
    char need[TEXT_SIZE_CHARS], have[TEXT_SIZE_CHARS], budget[TEXT_SIZE_CHARS], held[TEXT_SIZE_CHARS],
        loading[TEXT_SIZE_CHARS], kept[TEXT_SIZE_CHARS], size[TEXT_SIZE_CHARS], pinned[2 * TEXT_SIZE_CHARS] = "",
                                                                                           users[MAX_NAMED * NAMED_CHARS];
    bool is_host = numbers->memory == REPLICA_MEMORY_HOST;
    const char *budget_key = is_host ? "memory.host_budget" : "devices.memory_budget";
    text_people_bytes(needed_bytes, need);
    text_people_bytes(numbers->available_bytes, have);
    if (numbers->memory == REPLICA_MEMORY_OF_A_USER)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "NOT_ENOUGH_MEMORY",
                    "the view needs %s of memory and %s are available; load fewer tensors, or slices of them", need, have);
    if (needed_bytes > numbers->most_bytes && numbers->most_bytes) {
        fail_for_good(numbers, needed_bytes, error);
        return add_notes(numbers, uid, needed_bytes, error);
    }
    /* "user 1000 has 64.0 MiB (64 %), user 0 has 1.0 MiB (1 %)" */
    size_t room = sizeof users;
    struct named named = {0};
    char bytes[TEXT_SIZE_CHARS];
    size_t used = 0;
    holders_each(numbers->holders, name_user, &named);
    users[0] = '\0';
    for (size_t i = 0; i < MAX_NAMED && sum_user(&named.users[i]) && used < room; i++)
        used += (size_t)snprintf(users + used, room - used, "%suser %u has %s (%.0f %%)", i ? ", " : "; ",
                                 (unsigned)named.users[i].uid, text_people_bytes(sum_user(&named.users[i]), bytes),
                                 100.0 * (double)sum_user(&named.users[i]) / (double)numbers->budget_bytes);
    if (numbers->pinned_bytes)
        snprintf(pinned, sizeof pinned, " or pinned (%s pinned)", text_people_bytes(numbers->pinned_bytes, size));
    fail(error, ERROR_RESOURCE_EXHAUSTED, is_host ? "HOST_BUDGET_EXCEEDED" : "DEVICE_BUDGET_EXCEEDED",
         "the view needs %llu bytes (%s) of %smemory but %llu (%s) of %s %s are available%s: %s are held by leased "
         "replicas%s, %s by loads in flight, %s by clients that kept memory beyond their lease%s; end clients that hold "
         "memory, %sor raise %s",
         (unsigned long long)needed_bytes, need, is_host ? "" : "device ", (unsigned long long)numbers->available_bytes,
         have, budget_key, text_people_bytes(numbers->budget_bytes, budget),
         numbers->is_for_others ? " to one user, since limits.kept_for_others keeps the rest for others" : "",
         text_people_bytes(numbers->held_bytes, held), pinned, text_people_bytes(numbers->loading_bytes, loading),
         text_people_bytes(numbers->kept_bytes, kept), users, *pinned ? "unpin replicas, " : "", budget_key);
    return add_notes(numbers, uid, needed_bytes, error);
}
