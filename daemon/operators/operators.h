/* What operators see over HTTP: /metrics, /healthz, /readyz, /status.json, /events, the same once a second, and the page that
 * shows these. docs/monitoring.md is the promise.
 *
 *   port's thread --question--> list --loop_post--> loop: a snapshot, in one short turn --> own thread: text --> port's thread
 *
 * So no answer waits for a load, and the loop neither writes texts nor touches a socket. Replicas, of which there are
 * thousands, are listed in turns of 2 ms. All of it takes at most a twentieth of the loop's time, however many questions there
 * are: those that come meanwhile share the next snapshot. When the loop does not turn, questions are answered with 503 after
 * OPERATORS_PATIENCE_MS.
 *
 * Loop thread. */
#ifndef OPERATORS_OPERATORS_H
#define OPERATORS_OPERATORS_H

#include "api/api.h"
#include "base/error.h"

struct operators;

enum {
    OPERATORS_PATIENCE_MS = 5000,
    OPERATORS_TURN_US =
        750, /* of listing replicas; packing these takes up to half as long again, and more on a busy machine */
};

/* Listens at server.metrics_address and begins to serve; *made stays NULL when that is empty. The loop need not run yet. -1
 * when it cannot listen there; *made is to be stopped and destroyed then, too. */
int operators_open(const struct api *api, struct operators **made, struct error *error);
const char *operators_address(const struct operators *operators); /* ADDRESS:PORT; "" for NULL */
/* No thread is left that asks the loop; before the loop and what snapshots are made of. Accepts NULL. */
void operators_stop(struct operators *operators);
void operators_destroy(struct operators *operators); /* after the loop has run what is posted; accepts NULL */

#endif
