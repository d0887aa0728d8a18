/* A thread that asks for what is being resolved waits for that answer. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <time.h>

#include "resolve/artifact.h"
#include "resolve/resolving.h"
#include "tests/support/clock_ahead.h"

enum { N_CLIENTS = 8 };

static struct {
    struct resolving *resolving;
    int n_asked, n_waiting; /* atomic: resolves, and clients that have waited for one */
    bool fails, waits, silent;
} scene;

struct client {
    pthread_t thread;
    const char *reference;
    struct artifact *artifact;
    struct error error;
    int result;
    struct cancel cancel;
    bool has_waited;
    bool is_gone; /* atomic */
};

static __thread bool resolves;

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Until every client resolves or waits for one that does. */
static void wait_for_all(void)
{
    while (__atomic_load_n(&scene.n_asked, __ATOMIC_RELAXED) + __atomic_load_n(&scene.n_waiting, __ATOMIC_RELAXED) <
           N_CLIENTS)
        sleep_ms(1);
}

static int resolve(void *data, const struct cancel *cancel, void **found, struct error *error)
{
    (void)data;
    resolves = true;
    __atomic_add_fetch(&scene.n_asked, 1, __ATOMIC_RELAXED);
    if (scene.silent) {
        while (!cancel_is_set(cancel))
            sleep_ms(1);
        return (fail)(error, ERROR_CANCELLED, "CANCELLED", "cancelled");
    }
    if (scene.waits)
        wait_for_all();
    if (scene.fails)
        return (fail)(error, ERROR_UNAVAILABLE, "BUSY", "the store is busy");
    struct artifact *artifact = calloc(1, sizeof *artifact);
    artifact->references = 1;
    *found = artifact;
    return 0;
}

static void ref(void *artifact)
{
    artifact_ref(artifact);
}

static const struct resolving_ops ops = {resolve, ref};

static void *ask(void *data)
{
    struct client *client = data;
    void *found = NULL;
    client->result =
        resolving_share(scene.resolving, client->reference, &ops, NULL, &client->cancel, &found, &client->error);
    client->artifact = found;
    return NULL;
}

/* Looked at by a thread that waits, as soon as it does. */
static bool is_gone(void *data)
{
    struct client *client = data;
    if (!resolves && !client->has_waited) {
        client->has_waited = true;
        __atomic_add_fetch(&scene.n_waiting, 1, __ATOMIC_RELAXED);
    }
    return __atomic_load_n(&client->is_gone, __ATOMIC_RELAXED);
}

static void begin_all(struct client clients[N_CLIENTS], const char *const *references, size_t n_references)
{
    for (size_t i = 0; i < N_CLIENTS; i++) {
        clients[i] = (struct client){.reference = references[i % n_references], .cancel = {is_gone, &clients[i]}};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, ask, &clients[i]), 0);
    }
}

static void ask_together(struct client clients[N_CLIENTS], const char *const *references, size_t n_references)
{
    begin_all(clients, references, n_references);
    for (size_t i = 0; i < N_CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
}

static int begin(void **state)
{
    (void)state;
    memset(&scene, 0, sizeof scene);
    scene.resolving = resolving_create();
    return 0;
}

static int end(void **state)
{
    (void)state;
    resolving_destroy(scene.resolving);
    return 0;
}

TEST_IN(clients_that_ask_together_share_one_answer, begin, end)
{
    struct client clients[N_CLIENTS];
    scene.waits = true;
    ask_together(clients, (const char *const[]){"gs://b/m"}, 1);
    assert_int_equal(scene.n_asked, 1);
    assert_int_equal(clients[0].artifact->references, N_CLIENTS);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        assert_int_equal(clients[i].result, 0);
        assert_ptr_equal(clients[i].artifact, clients[0].artifact);
    }
    free(clients[0].artifact);
}

TEST_IN(they_share_a_failure_as_well, begin, end)
{
    struct client clients[N_CLIENTS];
    scene.waits = scene.fails = true;
    ask_together(clients, (const char *const[]){"gs://b/m"}, 1);
    assert_int_equal(scene.n_asked, 1);
    for (size_t i = 0; i < N_CLIENTS; i++) {
        assert_int_equal(clients[i].result, -1);
        assert_null(clients[i].artifact);
        assert_string_equal(clients[i].error.reason, "BUSY");
    }
}

TEST_IN(other_references_are_asked_for_at_the_same_time, begin, end)
{
    struct client clients[N_CLIENTS];
    scene.waits = true;
    ask_together(clients, (const char *const[]){"gs://b/m", "gs://b/n"}, 2);
    assert_int_equal(scene.n_asked, 2);
    assert_ptr_not_equal(clients[0].artifact, clients[1].artifact);
    free(clients[0].artifact);
    free(clients[1].artifact);
}

TEST_IN(an_answer_that_is_complete_is_not_given_again, begin, end)
{
    void *artifact;
    struct error error;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(resolving_share(scene.resolving, "gs://b/m", &ops, NULL, NULL, &artifact, &error), 0);
        assert_int_equal(scene.n_asked, i);
        free(artifact);
    }
}

TEST_IN(it_ends_when_nobody_is_left_who_wants_it_also_when_the_clock_is_set_back, begin, end)
{
    struct client clients[N_CLIENTS];
    clock_ahead_begin();
    scene.silent = true;
    begin_all(clients, (const char *const[]){"gs://b/m"}, 1);
    wait_for_all();
    for (size_t i = 0; i < N_CLIENTS; i++) {
        __atomic_store_n(&clients[i].is_gone, true, __ATOMIC_RELAXED);
        sleep_ms(i + 2 < N_CLIENTS ? 0 : 100); /* one is left for a while */
    }
    for (size_t i = 0; i < N_CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        assert_int_equal(clients[i].result, -1);
        assert_int_equal(clients[i].error.code, ERROR_CANCELLED);
    }
    assert_int_equal(scene.n_asked, 1);
    alarm(0);
}
