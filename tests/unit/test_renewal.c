/* Which thread waits for what another one is fetching. What is fetched, used and renewed in time is tested with the
 * credentials. */
#include "tests/support/unit.h"

#include <pthread.h>

#include "source/renewal.h"
#include "tests/support/clock_ahead.h"

static struct {
    bool is_fetching, may_end, is_cancelled; /* atomic */
    int n_asked;                             /* atomic: how often the waiting one looked at its cancel */
} scene;

static void sleep_a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int fetch(void *owner, const struct cancel *cancel, void **value, int64_t *expires, struct error *error)
{
    (void)owner;
    (void)cancel;
    (void)error;
    __atomic_store_n(&scene.is_fetching, true, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&scene.may_end, __ATOMIC_RELAXED))
        sleep_a_moment();
    *value = strdup("token");
    *expires = 0;
    return 0;
}

static void copy(const void *value, void *out)
{
    strcpy(out, value);
}

static const struct renewal_rules rules = {.what = "a token", .before_s = 60, .fetch = fetch, .copy = copy, .destroy = free};

struct client {
    pthread_t thread;
    struct renewal *renewal;
    const struct cancel *cancel;
    char token[16];
    int result;
    struct error error;
};

static void *get(void *data)
{
    struct client *client = data;
    uint64_t generation;
    client->result = renewal_get(client->renewal, client->cancel, client->token, &generation, &client->error);
    return NULL;
}

static void begin(struct client *client)
{
    assert_int_equal(pthread_create(&client->thread, NULL, get, client), 0);
}

static bool is_cancelled(void *data)
{
    (void)data;
    __atomic_add_fetch(&scene.n_asked, 1, __ATOMIC_RELAXED);
    return __atomic_load_n(&scene.is_cancelled, __ATOMIC_RELAXED);
}

TEST(who_waits_for_another_s_fetch_can_give_up_also_when_the_clock_is_set_back)
{
    const struct cancel cancel = {is_cancelled, NULL};
    struct renewal renewal;
    struct client first = {.renewal = &renewal}, second = {.renewal = &renewal, .cancel = &cancel};
    clock_ahead_begin();
    renewal_init(&renewal, &rules, NULL, NULL);
    begin(&first);
    while (!__atomic_load_n(&scene.is_fetching, __ATOMIC_RELAXED))
        sleep_a_moment();
    begin(&second);
    while (!__atomic_load_n(&scene.n_asked, __ATOMIC_RELAXED))
        sleep_a_moment();
    __atomic_store_n(&scene.is_cancelled, true, __ATOMIC_RELAXED);
    pthread_join(second.thread, NULL);
    assert_int_equal(second.result, -1);
    assert_int_equal(second.error.code, ERROR_CANCELLED);
    __atomic_store_n(&scene.may_end, true, __ATOMIC_RELAXED);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.result, 0);
    assert_string_equal(first.token, "token");
    renewal_fini(&renewal);
    alarm(0);
}
