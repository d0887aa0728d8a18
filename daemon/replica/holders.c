/* Users in a hash table of chains, holders in a list per memory; see holders.h. Every change of a holding ends in settle(),
 * which counts its bytes where they belong now. */
#include "replica/holders.h"

#include <stdlib.h>

#include "base/memory.h"

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

uint64_t holders_sum(const struct holders_user *user)
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
    if (!user || holders_sum(&user->has) > 0)
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
    return user ? holders_sum(&user->has) : 0;
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

void holding_move(struct holding *to, struct holding *from)
{
    *to = *from;
    from->n_pins = 0;
    from->is_kept = false;
    from->list = NULL;
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
