/* Prewarms that no client waits for: detached ones, and those of the configuration. Bounded in number, and what became of the
 * newest is remembered for Status. Loop thread only. */
#ifndef API_PREWARMS_H
#define API_PREWARMS_H

#include "api/api.h"
#include "api/api_job.h"

enum {
    PREWARMS_MAX_RUNNING = 256,
    PREWARMS_MAX_OF_A_USER = 64,
    PREWARMS_REMEMBERED = 32
}; /* the first two: limits of QUOTA_PREWARMS */

struct prewarms;

struct prewarms *prewarms_create(const struct api *api); /* borrows */
void prewarms_destroy(struct prewarms *prewarms);        /* none may be running; accepts NULL */
/* Cancels all, and takes no more. */
void prewarms_stop(struct prewarms *prewarms);
bool prewarms_are_idle(const struct prewarms *prewarms);

/* For the call's user; copies the request at the user's cost. RESOURCE_EXHAUSTED: too many are running. */
int prewarms_detach(struct prewarms *prewarms, struct rpc_call *call, const Tensorcast__Daemon__V1__LoadRequest *load,
                    bool pin, struct error *error);
/* Does what the configuration lists, again as well; what it lists no longer is unpinned. What fails is logged. The
 * configuration lives as long as this. */
void prewarms_configure(struct prewarms *prewarms, const struct config *config);
/* Prewarms in flight for this artifact (NULL = all) will not pin. Of this user; for root and the daemon's own user, of all users.
 * Returns their number. */
uint64_t prewarms_unpin(struct prewarms *prewarms, uid_t uid, const char *reference);

struct prewarms_row {
    const char *artifact, *state, *message;
    uid_t uid;
    uint64_t asked_ns;
    bool pin, is_configured;
};
/* Running ones first, then the newest. */
void prewarms_each(const struct prewarms *prewarms, void (*fn)(void *data, const struct prewarms_row *row), void *data);

/* One prewarm: a load whose result is left in memory for the next request, and is pinned if its user wants that. Embedded by
 * its owner, which is a call (method_prewarm.c) or the list of detached ones.
 *
 *   prewarm_run -> ticket -> (mapped files: their pages are read) -> (pinned) -> ended, exactly once */
struct prewarm {
    const struct api *api;
    uid_t uid;
    bool pin;
    const char *label;     /* of an entry of the configuration; NULL = none. See replica/user_pins.h */
    struct rpc_call *call; /* that waits for it; NULL = none does */
    /* The result is valid until it returns; the owner may free the prewarm. */
    void (*ended)(struct prewarm *prewarm, const struct load_result *result, const struct error *error);
    struct ticket *ticket; /* its own */
    struct open_call open; /* of the call */
};

void prewarm_run(struct prewarm *prewarm, struct ticket *ticket); /* takes the ticket; may end before it returns */
void prewarm_cancel(struct prewarm *prewarm);                     /* it ends, now or soon */

#endif
