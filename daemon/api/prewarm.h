/* One prewarm: a load whose result is left in memory for whoever asks next, and is pinned if its user wants that.
 *
 *   prewarm_run -> ticket -> (mapped files: their pages are read) -> (pinned) -> ended, exactly once
 *
 * Embedded by its owner, which is a call (method_prewarm.c) or the list of those that nobody waits for (prewarms.c). */
#ifndef API_PREWARM_H
#define API_PREWARM_H

#include "api/api.h"
#include "api/open_calls.h"

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
