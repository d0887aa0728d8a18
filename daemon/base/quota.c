/* Users in a hash table of chains; a user who has nothing any more is forgotten. One lock, held for a few additions. */
#include "base/quota.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memory.h"

enum { N_CHAINS = 256, DEFAULT_KEPT_PERCENT = 10 };

struct kind_text {
    const char *name, *reason, *remedy;
    bool has_no_privilege; /* looking and releasing do not need it, so no user may take what is kept for others */
};

static const struct kind_text texts[QUOTA_KINDS] = {
    [QUOTA_CONNECTIONS] = {"connections", "CONNECTIONS_EXCEEDED",
                           "close connections, or raise server.max_connections_per_uid or the daemon's LimitNOFILE"},
    [QUOTA_CALLS] = {"calls", "CALLS_EXCEEDED", "wait for requests to be answered before sending more"},
    [QUOTA_LEASES] = {"leases", "LEASES_EXCEEDED", "end clients that hold memory, or raise the daemon's LimitNOFILE", true},
    [QUOTA_DESCRIPTORS] = {"descriptors", REASON(DESCRIPTORS_EXCEEDED),
                           "end clients that hold memory or connections, or raise the daemon's LimitNOFILE"},
    [QUOTA_METADATA] = {"metadata bytes", REASON(METADATA_EXCEEDED),
                        "send fewer or smaller requests at a time, or raise memory.metadata_budget"},
    [QUOTA_GROUPS] = {"groups", "GROUPS_EXCEEDED", "wait for groups to end before starting more", true},
    [QUOTA_UPLOADS] = {"uploads", "TOO_MANY_UPLOADS",
                       "wait until files are sent, and mend what keeps others from it: tensorcast activations status"},
    [QUOTA_PREWARMS] = {"detached prewarms", "TOO_MANY_PREWARMS",
                        "wait until some of those that run have ended; tensorcast status lists them"},
    [QUOTA_FOLDERS] = {"folders", "TOO_MANY_FOLDERS", "release some: tensorcast release FOLDER"},
    [QUOTA_LOCKED] = {"bytes of locked pages", "LOCKED_PAGES_EXCEEDED", "release some, or raise memory.locked_pages_budget"},
    [QUOTA_LENT] = {"bytes of memory of clients", "TOO_MANY_REGIONS", "fill smaller memory, or less of it at a time"},
};

struct user {
    struct user *next;
    struct quota_user has;
};

struct limits {
    uint64_t taken, limit, reserve, limit_per_user; /* limit_per_user 0 = none */
    uint64_t bulk, spared;
    bool (*reclaim)(void *context); /* NULL = nothing can be given back */
    void *context;
};

struct quota {
    pthread_mutex_t lock; /* for all of it */
    unsigned kept_percent;
    struct limits kinds[QUOTA_KINDS];
    struct user *chains[N_CHAINS];
};

struct quota *quota_create(void)
{
    struct quota *quota = memory_alloc(sizeof *quota);
    pthread_mutex_init(&quota->lock, NULL);
    quota->kept_percent = DEFAULT_KEPT_PERCENT;
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        quota->kinds[kind].limit = UINT64_MAX;
    return quota;
}

void quota_destroy(struct quota *quota)
{
    if (!quota)
        return;
    for (int i = 0; i < N_CHAINS; i++) {
        while (quota->chains[i]) {
            struct user *next = quota->chains[i]->next;
            free(quota->chains[i]);
            quota->chains[i] = next;
        }
    }
    pthread_mutex_destroy(&quota->lock);
    free(quota);
}

void quota_set_limits(struct quota *quota, enum quota_kind kind, uint64_t limit, uint64_t limit_per_user)
{
    pthread_mutex_lock(&quota->lock);
    quota->kinds[kind].limit = limit;
    quota->kinds[kind].limit_per_user = limit_per_user;
    pthread_mutex_unlock(&quota->lock);
}

void quota_set_reserve(struct quota *quota, enum quota_kind kind, uint64_t reserve, uint64_t spared)
{
    pthread_mutex_lock(&quota->lock);
    quota->kinds[kind].reserve = reserve;
    quota->kinds[kind].spared = spared;
    pthread_mutex_unlock(&quota->lock);
}

void quota_set_kept(struct quota *quota, unsigned percent)
{
    pthread_mutex_lock(&quota->lock);
    quota->kept_percent = percent;
    pthread_mutex_unlock(&quota->lock);
}

bool quota_is_privileged(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* own + room <= (limit - taken - room) * (100 - kept) / kept, in 128 bits: limits may be without end. */
uint64_t quota_room(unsigned kept_percent, uint64_t limit, uint64_t taken, uint64_t own)
{
    unsigned __int128 others = (unsigned __int128)own * kept_percent;
    unsigned __int128 left = taken < limit ? (unsigned __int128)(limit - taken) * (100 - kept_percent) : 0;
    return left > others ? (uint64_t)((left - others) / 100) : 0;
}

bool quota_allows(unsigned kept_percent, uint64_t limit, uint64_t taken, uint64_t own, uint64_t amount)
{
    return amount <= quota_room(kept_percent, limit, taken, own);
}

static struct user **find_link(struct quota *quota, uid_t uid)
{
    struct user **link = &quota->chains[uid % N_CHAINS];
    while (*link && (*link)->has.uid != uid)
        link = &(*link)->next;
    return link;
}

/* Under the lock. */
static void count_amount(struct quota *quota, const struct quota_charge *charge, uint64_t amount)
{
    struct user **link = find_link(quota, charge->uid);
    if (!*link) {
        *link = memory_alloc(sizeof **link);
        (*link)->has.uid = charge->uid;
    }
    (*link)->has.amounts[charge->kind] += amount;
    quota->kinds[charge->kind].taken += amount;
    quota->kinds[charge->kind].bulk += charge->is_bulk ? amount : 0;
}

/* Likewise. */
static int take_amount(struct quota *quota, const struct quota_charge *charge, uint64_t amount, struct error *error)
{
    const struct limits *limits = &quota->kinds[charge->kind];
    const struct user *user = *find_link(quota, charge->uid);
    uint64_t own = user ? user->has.amounts[charge->kind] : 0;
    bool is_privileged = quota_is_privileged(charge->uid) && !texts[charge->kind].has_no_privilege;
    unsigned kept_percent = is_privileged ? 0 : quota->kept_percent;
    uint64_t limit = is_privileged || limits->limit < limits->reserve ? limits->limit : limits->limit - limits->reserve;
    if (charge->is_bulk)
        limit = limit > limits->spared ? limit - limits->spared : 0;
    bool is_over = limits->limit_per_user && (own > limits->limit_per_user || amount > limits->limit_per_user - own);
    if (!is_over && quota_allows(kept_percent, limit, limits->taken, own, amount)) {
        count_amount(quota, charge, amount);
        return 0;
    }
    const struct kind_text *text = &texts[charge->kind];
    const char *why = is_over                                                       ? "one user may have no more"
                      : !quota_allows(0, limits->limit, limits->taken, own, amount) ? "no more are left"
                      : charge->is_bulk ? "the rest is kept for other users, and for what is not a file"
                                        : "the rest is kept for other users";
    fail(error, ERROR_RESOURCE_EXHAUSTED, text->reason,
         "user %u has %llu %s and asks for %llu more; all users have %llu of %llu, and %s; %s", (unsigned)charge->uid,
         (unsigned long long)own, text->name, (unsigned long long)amount, (unsigned long long)limits->taken,
         (unsigned long long)limits->limit, why, text->remedy);
    error_note(error, "uid", "%u", (unsigned)charge->uid);
    return error_note(error, "resource", "%s", text->name);
}

void quota_set_reclaim(struct quota *quota, enum quota_kind kind, bool (*reclaim)(void *context), void *context)
{
    pthread_mutex_lock(&quota->lock);
    quota->kinds[kind].context = context;
    quota->kinds[kind].reclaim = reclaim;
    pthread_mutex_unlock(&quota->lock);
}

int quota_charge_add(struct quota_charge *charge, uint64_t amount, struct error *error)
{
    struct quota *quota = charge->quota;
    if (!quota || amount == 0)
        return 0;
    const struct limits *limits = &quota->kinds[charge->kind];
    int failed;
    do {
        pthread_mutex_lock(&quota->lock);
        failed = take_amount(quota, charge, amount, error);
        pthread_mutex_unlock(&quota->lock);
    } while (failed && limits->reclaim && limits->reclaim(limits->context));
    if (!failed)
        charge->amount += amount;
    return failed;
}

void quota_charge_force(struct quota_charge *charge, uint64_t amount)
{
    struct quota *quota = charge->quota;
    if (!quota || amount == 0)
        return;
    pthread_mutex_lock(&quota->lock);
    count_amount(quota, charge, amount);
    pthread_mutex_unlock(&quota->lock);
    charge->amount += amount;
}

void quota_charge_subtract(struct quota_charge *charge, uint64_t amount)
{
    struct quota *quota = charge->quota;
    if (!quota || amount == 0)
        return;
    pthread_mutex_lock(&quota->lock);
    struct user **link = find_link(quota, charge->uid), *user = *link;
    user->has.amounts[charge->kind] -= amount;
    quota->kinds[charge->kind].taken -= amount;
    quota->kinds[charge->kind].bulk -= charge->is_bulk ? amount : 0;
    uint64_t rest = 0;
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        rest |= user->has.amounts[kind];
    if (rest == 0) {
        *link = user->next;
        free(user);
    }
    pthread_mutex_unlock(&quota->lock);
    charge->amount -= amount;
}

void quota_charge_end(struct quota_charge *charge)
{
    quota_charge_subtract(charge, charge->amount);
}

void quota_each(struct quota *quota, void (*fn)(void *data, const struct quota_user *user), void *data)
{
    pthread_mutex_lock(&quota->lock);
    for (int i = 0; i < N_CHAINS; i++)
        for (const struct user *user = quota->chains[i]; user; user = user->next)
            fn(data, &user->has);
    pthread_mutex_unlock(&quota->lock);
}

static uint64_t read_locked(struct quota *quota, const uint64_t *number)
{
    pthread_mutex_lock(&quota->lock);
    uint64_t value = *number;
    pthread_mutex_unlock(&quota->lock);
    return value;
}

uint64_t quota_taken(struct quota *quota, enum quota_kind kind)
{
    return read_locked(quota, &quota->kinds[kind].taken);
}

uint64_t quota_bulk(struct quota *quota, enum quota_kind kind)
{
    return read_locked(quota, &quota->kinds[kind].bulk);
}

uint64_t quota_limit(struct quota *quota, enum quota_kind kind)
{
    return read_locked(quota, &quota->kinds[kind].limit);
}

const char *quota_kind_name(enum quota_kind kind)
{
    return texts[kind].name;
}
