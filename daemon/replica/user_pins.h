/* Replicas that users want to stay: neither idle time nor pressure nor a release of everything drops them.
 *
 * A user pins a replica at most once by request, and once more by the configuration (whose pins are the daemon's own user's).
 * While it is pinned the memory counts as held by that user, under the rule of base/quota.h. Pins end by being removed, and with
 * their replica: when its source has changed, and with the daemon. Loop thread only. */
#ifndef REPLICA_USER_PINS_H
#define REPLICA_USER_PINS_H

#include <stdbool.h>
#include <stdint.h>

#include "replica/replica.h"

enum { USER_PINS_MAX = 1024 }; /* of one user in one table; each costs mapping and plan of its replica */

/* label: of an entry of the configuration; NULL = asked for by a client. Does nothing when there is such a pin already. The
 * user holds another pin (replica_pin()) meanwhile. RESOURCE_EXHAUSTED: too many, or more than the user's share;
 * FAILED_PRECONDITION: nobody would find the replica. */
int user_pins_add(struct replica *replica, uid_t uid, const char *label, struct error *error);
bool user_pins_any(const struct replica *replica);
uint32_t user_pins_count(const struct replica *replica);
void user_pins_free(struct replica *replica); /* its owner is about to free it */

struct user_pins_removed {
    uint64_t replicas, bytes, of_others; /* of_others: pinned by other users, and left */
};
/* reference NULL = all. Of this user; of everybody when root or the daemon's own user asks. Replicas may go. */
struct user_pins_removed user_pins_remove(struct replica_table *table, uid_t uid, const char *reference);
/* Those with labels that nobody wants any more. */
void user_pins_remove_labels(struct replica_table *table, bool (*is_wanted)(const void *data, const char *label),
                             const void *data);

#endif
