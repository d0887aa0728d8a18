/* A pin is a node of the replica's list, and a pin of its holding, which does the counting. Removing one may drop its replica, and
 * with it others that are due: walks over the table begin anew after each. */
#include "replica/user_pins.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/quota.h"
#include "base/text.h"

struct user_pin {
    struct user_pin *next;
    uid_t uid;
    char *label; /* NULL = a client's */
};

static bool is_same_label(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static struct user_pin **find_pin(struct replica *replica, uid_t uid, const char *label)
{
    struct user_pin **link = &replica->user_pins;
    while (*link && !((*link)->uid == uid && is_same_label((*link)->label, label)))
        link = &(*link)->next;
    return link;
}

bool user_pins_any(const struct replica *replica)
{
    return replica->user_pins != NULL;
}

uint32_t user_pins_count(const struct replica *replica)
{
    uint32_t n = 0;
    for (const struct user_pin *pin = replica->user_pins; pin; pin = pin->next)
        n++;
    return n;
}

static size_t count_of_user(struct replica_table *table, uid_t uid)
{
    size_t n = 0;
    for (const struct replica *replica = replica_oldest(table); replica; replica = replica->newer)
        for (const struct user_pin *pin = replica->user_pins; pin; pin = pin->next)
            n += pin->uid == uid;
    return n;
}

int user_pins_add(struct replica *replica, uid_t uid, const char *label, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    const char *reference = replica->mapping->artifact->reference;
    if (*find_pin(replica, uid, label))
        return 0;
    text_escape(reference, strlen(reference), shown);
    if (replica_is_private(replica))
        return fail(error, ERROR_FAILED_PRECONDITION, "CANNOT_PIN", "%s cannot be pinned: %s", shown,
                    replica->files ? "it is handed out as pages of its files, of which none are locked; leave out mapped "
                                     "memory, or raise memory.locked_pages_budget"
                                   : "its files were written a moment ago, or its memory is a client's; try again later");
    if (count_of_user(replica->table, uid) >= USER_PINS_MAX)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_PINS", "user %u has pinned %d replicas already; unpin some",
                    (unsigned)uid, USER_PINS_MAX);
    if (replica_check_share(replica, uid, error) != 0)
        return error_prefix(error, "%s is loaded but not pinned", shown);
    struct user_pin *pin = memory_alloc(sizeof *pin);
    *pin = (struct user_pin){.next = replica->user_pins, .uid = uid, .label = label ? memory_copy_text(label) : NULL};
    replica->user_pins = pin;
    replica_pin(replica, uid);
    return 0;
}

static void free_pin(struct user_pin **link)
{
    struct user_pin *pin = *link;
    *link = pin->next;
    free(pin->label);
    free(pin);
}

void user_pins_free(struct replica *replica)
{
    while (replica->user_pins) {
        holding_unpin(&replica->holding, replica->user_pins->uid);
        free_pin(&replica->user_pins);
    }
}

/* --- removing ------------------------------------------------------------------------------------------------------- */

struct wish { /* which pins */
    uid_t uid;
    bool is_everybodys;
    const char *reference;                                  /* NULL = all */
    bool (*is_wanted)(const void *data, const char *label); /* not NULL: those of which it says no, whoever's they are */
    const void *data;
};

static bool is_meant(const struct wish *wish, const struct replica *replica, const struct user_pin *pin)
{
    if (wish->is_wanted)
        return pin->label && !wish->is_wanted(wish->data, pin->label);
    return (wish->is_everybodys || pin->uid == wish->uid) &&
           (!wish->reference || strcmp(replica->mapping->artifact->reference, wish->reference) == 0);
}

/* NULL: there is none. */
static struct user_pin **find_meant(struct replica *replica, const struct wish *wish)
{
    struct user_pin **link = &replica->user_pins;
    while (*link && !is_meant(wish, replica, *link))
        link = &(*link)->next;
    return *link ? link : NULL;
}

static struct replica *find_replica(struct replica_table *table, const struct wish *wish)
{
    struct replica *replica = replica_oldest(table);
    while (replica && !find_meant(replica, wish))
        replica = replica->newer;
    return replica;
}

/* The replica may be gone with the last of them. */
static void remove_meant(struct replica *replica, const struct wish *wish)
{
    struct user_pin **link = find_meant(replica, wish);
    while (link) {
        uid_t uid = (*link)->uid;
        free_pin(link);
        link = find_meant(replica, wish);
        replica_unpin(replica, uid);
    }
}

static struct user_pins_removed remove_all_meant(struct replica_table *table, const struct wish *wish)
{
    struct user_pins_removed removed = {0};
    struct replica *replica;
    while ((replica = find_replica(table, wish))) {
        removed.replicas++;
        removed.bytes += replica_held_bytes(replica);
        remove_meant(replica, wish);
    }
    return removed;
}

struct user_pins_removed user_pins_remove(struct replica_table *table, uid_t uid, const char *reference)
{
    const struct wish own = {.uid = uid, .is_everybodys = quota_is_privileged(uid), .reference = reference};
    const struct wish any = {.is_everybodys = true, .reference = reference};
    struct user_pins_removed removed = remove_all_meant(table, &own);
    for (struct replica *replica = replica_oldest(table); replica; replica = replica->newer)
        removed.of_others += find_meant(replica, &any) != NULL;
    return removed;
}

void user_pins_remove_labels(struct replica_table *table, bool (*is_wanted)(const void *data, const char *label),
                             const void *data)
{
    const struct wish wish = {.is_wanted = is_wanted, .data = data};
    remove_all_meant(table, &wish);
}
