/* The fetch runs outside of the lock, so that those who can use the old value do not wait for a slow server. */
#include "source/renewal.h"

#include <time.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/waiting.h"

enum { PAUSE_S = 30, WAIT_MS = 50 };

static int64_t clock_time(void)
{
    return (int64_t)time(NULL);
}

void renewal_init(struct renewal *renewal, const struct renewal_rules *rules, void *owner, int64_t (*now)(void))
{
    *renewal = (struct renewal){.rules = rules, .owner = owner, .now = now ? now : clock_time};
    pthread_mutex_init(&renewal->lock, NULL);
    condition_init(&renewal->changed);
}

void renewal_fini(struct renewal *renewal)
{
    if (renewal->value)
        renewal->rules->destroy(renewal->value);
    pthread_cond_destroy(&renewal->changed);
    pthread_mutex_destroy(&renewal->lock);
}

/* All below up to get: under the lock. */

static bool usable(const struct renewal *renewal, int64_t now)
{
    return renewal->value && !renewal->refused && (!renewal->expires || now < renewal->expires);
}

static int take_value(struct renewal *renewal, void *value, int64_t expires, struct error *error)
{
    int64_t now = renewal->now();
    if (expires && expires <= now) {
        renewal->rules->destroy(value);
        return fail(error, ERROR_PERMISSION_DENIED, "CREDENTIALS_EXPIRED",
                    "the %s have expired already when they are handed out; check the clock of this machine",
                    renewal->rules->what);
    }
    if (renewal->value)
        renewal->rules->destroy(renewal->value);
    renewal->value = value;
    renewal->expires = expires;
    renewal->refused = false;
    int64_t quarter = (expires - now) / 4, before_s = renewal->rules->before_s;
    renewal->renew_at = expires ? expires - (quarter < before_s ? quarter : before_s) : 0;
    renewal->generation++;
    return 0;
}

static int renew(struct renewal *renewal, const struct cancel *cancel, struct error *error)
{
    void *value = NULL;
    int64_t expires = 0;
    renewal->renewing = true;
    pthread_mutex_unlock(&renewal->lock);
    waiting_begin(waiting_current(), renewal->rules->what, 0);
    int failed = renewal->rules->fetch(renewal->owner, cancel, &value, &expires, error);
    waiting_end(waiting_current());
    pthread_mutex_lock(&renewal->lock);
    renewal->renewing = false;
    pthread_cond_broadcast(&renewal->changed);
    if (!failed)
        failed = take_value(renewal, value, expires, error);
    if (!failed || !usable(renewal, renewal->now()))
        return failed;
    renewal->renew_at = renewal->now() + PAUSE_S;
    return 0;
}

int renewal_get(struct renewal *renewal, const struct cancel *cancel, void *out, uint64_t *generation, struct error *error)
{
    int failed = 0;
    pthread_mutex_lock(&renewal->lock);
    while (!failed && renewal->renewing && !usable(renewal, renewal->now())) {
        if (cancel_is_set(cancel))
            failed = fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while waiting for %s", renewal->rules->what);
        else
            condition_wait_until(&renewal->changed, &renewal->lock, clock_now_ns() + (uint64_t)WAIT_MS * NS_PER_MS);
    }
    int64_t now = renewal->now();
    bool is_due = !usable(renewal, now) || (renewal->renew_at && now >= renewal->renew_at);
    if (!failed && is_due && !renewal->renewing)
        failed = renew(renewal, cancel, error);
    if (!failed) {
        renewal->rules->copy(renewal->value, out);
        *generation = renewal->generation;
    }
    pthread_mutex_unlock(&renewal->lock);
    return failed;
}

void renewal_refuse(struct renewal *renewal, uint64_t generation)
{
    pthread_mutex_lock(&renewal->lock);
    if (renewal->generation == generation)
        renewal->refused = true;
    pthread_mutex_unlock(&renewal->lock);
}
