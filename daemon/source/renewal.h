/* Something that expires - keys, a token - and is fetched anew in time: who may use the old one, who fetches, who waits.
 *
 *   none/expired/refused --get: one fetches, others wait--> fresh --a while before the end: one fetches, others use--> fresh
 *   A renewal that fails while the old value is valid is tried again after a pause.
 * Thread-safe. */
#ifndef SOURCE_RENEWAL_H
#define SOURCE_RENEWAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/error.h"

struct renewal_rules {
    const char *what; /* "keys for S3", for messages */
    int64_t
        before_s; /* the end it is renewed; what lives shorter than four times as long, in the last quarter of its life */
    /* Makes a new value and says when it expires (unix time, 0 = never). Any caller's thread, one at a time; may block. */
    int (*fetch)(void *owner, const struct cancel *cancel, void **value, int64_t *expires, struct error *error);
    void (*copy)(const void *value, void *out);
    void (*destroy)(void *value);
};

struct renewal { /* embedded; all below is private */
    const struct renewal_rules *rules;
    void *owner;
    int64_t (*now)(void);
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *value;
    int64_t expires, renew_at; /* unix time; 0 = never */
    uint64_t generation;
    bool refused, renewing;
};

void renewal_init(struct renewal *renewal, const struct renewal_rules *rules, void *owner,
                  int64_t (*now)(void)); /* NULL = time */
void renewal_fini(struct renewal *renewal);
/* Copies a valid value into `out` and tells its generation; blocks while there is none. */
int renewal_get(struct renewal *renewal, const struct cancel *cancel, void *out, uint64_t *generation, struct error *error);
/* A server refused the value of this generation: the next get fetches another. A later one stays. */
void renewal_refuse(struct renewal *renewal, uint64_t generation);

#endif
