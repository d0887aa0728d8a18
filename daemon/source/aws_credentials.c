/* The cache of keys: who may use the old ones, who fetches new ones, who waits. Where they come from is aws_chain.c's.
 *
 *   none/expired/refused --get: one fetches, others wait--> fresh --10 min before the end: one fetches, others use--> fresh
 *   A renewal that fails while the old keys are valid is tried again after a pause. */
#include "source/aws_credentials.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "source/aws_chain.h"

enum { RENEW_BEFORE_S = 600, RENEW_PAUSE_S = 30, WAIT_MS = 50 };

struct aws_credentials {
    struct aws_chain chain; /* its texts are ours */
    int64_t (*now)(void);
    bool anonymous;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct aws_keys keys;
    bool have_keys, refused, renewing;
    int64_t renew_at; /* unix time; 0 = never */
};

static int64_t clock_time(void)
{
    return (int64_t)time(NULL);
}

struct aws_credentials *aws_credentials_create(const struct aws_credentials_options *options)
{
    struct aws_credentials *credentials = memory_alloc(sizeof *credentials);
    bool named = options->profile && *options->profile;
    credentials->chain.http = options->http;
    credentials->chain.profile = memory_copy_text(named ? options->profile : "default");
    credentials->chain.region = memory_copy_text(options->region ? options->region : "");
    credentials->chain.use_environment = !named || aws_chain_environment_names(options->profile);
    credentials->anonymous = options->anonymous;
    credentials->now = options->now ? options->now : clock_time;
    pthread_mutex_init(&credentials->lock, NULL);
    pthread_cond_init(&credentials->changed, NULL);
    return credentials;
}

void aws_credentials_destroy(struct aws_credentials *credentials)
{
    if (!credentials)
        return;
    aws_keys_clear(&credentials->keys);
    pthread_cond_destroy(&credentials->changed);
    pthread_mutex_destroy(&credentials->lock);
    free((char *)credentials->chain.profile);
    free((char *)credentials->chain.region);
    free(credentials);
}

/* All below up to get: under the lock. */

static bool usable(const struct aws_credentials *credentials, int64_t now)
{
    return credentials->have_keys && !credentials->refused &&
           (!credentials->keys.expires || now < credentials->keys.expires);
}

static bool renewal_due(const struct aws_credentials *credentials, int64_t now)
{
    return !usable(credentials, now) || (credentials->renew_at && now >= credentials->renew_at);
}

/* Ten minutes before they expire; keys that live shorter, in the last quarter of their life. */
static int64_t time_to_renew(const struct aws_keys *keys, int64_t now)
{
    int64_t left = keys->expires - now, before = left / 4 < RENEW_BEFORE_S ? left / 4 : RENEW_BEFORE_S;
    return keys->expires ? keys->expires - before : 0;
}

static void wait_a_moment(struct aws_credentials *credentials)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&credentials->changed, &credentials->lock, &until);
}

static int take_new(struct aws_credentials *credentials, int failed, struct aws_keys *fresh, struct error *error)
{
    int64_t now = credentials->now();
    credentials->renewing = false;
    pthread_cond_broadcast(&credentials->changed);
    if (failed && usable(credentials, now)) {
        credentials->renew_at = now + RENEW_PAUSE_S;
        return 0;
    }
    if (failed)
        return -1;
    if (fresh->expires && fresh->expires <= now) {
        aws_keys_clear(fresh);
        return fail(error, ERROR_PERMISSION_DENIED, "CREDENTIALS_EXPIRED",
                    "the keys for S3 have expired already when they are handed out; check the clock of this machine");
    }
    fresh->generation = credentials->keys.generation + 1;
    aws_keys_clear(&credentials->keys);
    credentials->keys = *fresh;
    credentials->have_keys = true;
    credentials->refused = false;
    credentials->renew_at = time_to_renew(fresh, now);
    return 0;
}

static int renew(struct aws_credentials *credentials, const struct cancel *cancel, struct error *error)
{
    struct aws_keys fresh = {0};
    credentials->renewing = true;
    pthread_mutex_unlock(&credentials->lock);
    int failed = aws_chain_load(&credentials->chain, cancel, &fresh, error);
    pthread_mutex_lock(&credentials->lock);
    return take_new(credentials, failed, &fresh, error);
}

static int get_locked(struct aws_credentials *credentials, const struct cancel *cancel, struct error *error)
{
    while (credentials->renewing && !usable(credentials, credentials->now())) {
        if (cancel_is_set(cancel))
            return fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while waiting for keys for S3");
        wait_a_moment(credentials);
    }
    if (credentials->renewing || !renewal_due(credentials, credentials->now()))
        return 0;
    return renew(credentials, cancel, error);
}

int aws_credentials_get(struct aws_credentials *credentials, const struct cancel *cancel, struct aws_keys *keys,
                        struct error *error)
{
    *keys = (struct aws_keys){0};
    if (credentials->anonymous)
        return 0;
    pthread_mutex_lock(&credentials->lock);
    int failed = get_locked(credentials, cancel, error);
    if (!failed)
        aws_keys_copy(keys, &credentials->keys);
    pthread_mutex_unlock(&credentials->lock);
    return failed;
}

void aws_credentials_refused(struct aws_credentials *credentials, uint64_t generation)
{
    pthread_mutex_lock(&credentials->lock);
    if (credentials->have_keys && credentials->keys.generation == generation)
        credentials->refused = true;
    pthread_mutex_unlock(&credentials->lock);
}

bool aws_credentials_of_instance(const struct aws_credentials *credentials)
{
    return !credentials->anonymous && aws_chain_of_instance(&credentials->chain);
}

void aws_credentials_describe(struct aws_credentials *credentials, char text[AWS_DESCRIBE_CHARS])
{
    if (credentials->anonymous)
        memcpy(text, "anonymous", sizeof "anonymous");
    else
        aws_chain_describe(&credentials->chain, text, AWS_DESCRIBE_CHARS);
}
