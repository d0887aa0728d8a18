/* See rpc_fixture.h. */
#include "tests/support/rpc_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void rpc_fixture_prepare(struct rpc_fixture *fixture, const struct rpc_method *methods, size_t n_methods, void *context)
{
    *fixture = (struct rpc_fixture){0};
    snprintf(fixture->folder, sizeof fixture->folder, "/tmp/rpc-test-XXXXXX");
    if (!mkdtemp(fixture->folder) || sem_init(&fixture->drained, 0, 0))
        abort();
    snprintf(fixture->socket, sizeof fixture->socket, "%s/daemon.sock", fixture->folder);
    fixture->loop = loop_create();
    fixture->quota = quota_create();
    quota_set_limits(fixture->quota, QUOTA_CONNECTIONS, 100000, 64);
    fixture->options = (struct rpc_options){.loop = fixture->loop,
                                            .socket_path = fixture->socket,
                                            .socket_mode = 0600,
                                            .socket_group = "",
                                            .quota = fixture->quota,
                                            .max_message_bytes = 4 << 20,
                                            .listen_fd = -1,
                                            .methods = methods,
                                            .n_methods = n_methods,
                                            .context = context};
}

static void *run_loop(void *data)
{
    loop_run(data);
    return NULL;
}

int rpc_fixture_start(struct rpc_fixture *fixture, struct error *error)
{
    if (rpc_server_create(&fixture->options, &fixture->server, error))
        return -1;
    return pthread_create(&fixture->thread, NULL, run_loop, fixture->loop);
}

struct errand {
    struct loop_task task;
    struct rpc_fixture *fixture;
    void (*fn)(struct rpc_fixture *fixture, void *data);
    void *data;
    sem_t done;
};

static void run_errand(struct loop_task *task)
{
    struct errand *errand = (struct errand *)task;
    errand->fn(errand->fixture, errand->data);
    sem_post(&errand->done);
}

void rpc_fixture_on_loop(struct rpc_fixture *fixture, void (*fn)(struct rpc_fixture *fixture, void *data), void *data)
{
    struct errand errand = {.task.run = run_errand, .fixture = fixture, .fn = fn, .data = data};
    sem_init(&errand.done, 0, 0);
    loop_post(fixture->loop, &errand.task);
    sem_wait(&errand.done);
    sem_destroy(&errand.done);
}

static void make_ready(struct rpc_fixture *fixture, void *data)
{
    (void)data;
    rpc_server_ready(fixture->server);
}

void rpc_fixture_ready(struct rpc_fixture *fixture)
{
    rpc_fixture_on_loop(fixture, make_ready, NULL);
}

static struct rpc_fixture *draining; /* the context of `drained` is the handlers' */

static void on_drained(void *context)
{
    (void)context;
    sem_post(&draining->drained);
}

void rpc_fixture_drain_here(struct rpc_fixture *fixture, uint64_t grace_ms)
{
    draining = fixture;
    rpc_server_drain(fixture->server, grace_ms, on_drained);
}

static void drain(struct rpc_fixture *fixture, void *grace_ms)
{
    rpc_fixture_drain_here(fixture, *(uint64_t *)grace_ms);
}

void rpc_fixture_drain(struct rpc_fixture *fixture, uint64_t grace_ms)
{
    rpc_fixture_on_loop(fixture, drain, &grace_ms);
}

void rpc_fixture_wait_drained(struct rpc_fixture *fixture)
{
    sem_wait(&fixture->drained);
}

static void destroy(struct rpc_fixture *fixture, void *data)
{
    (void)data;
    rpc_server_destroy(fixture->server);
    loop_stop(fixture->loop);
}

void rpc_fixture_finish(struct rpc_fixture *fixture)
{
    if (fixture->server) {
        rpc_fixture_on_loop(fixture, destroy, NULL);
        pthread_join(fixture->thread, NULL);
    }
    loop_destroy(fixture->loop);
    quota_destroy(fixture->quota);
    unlink(fixture->socket);
    rmdir(fixture->folder);
    sem_destroy(&fixture->drained);
}

void rpc_fixture_stop(struct rpc_fixture *fixture)
{
    rpc_fixture_drain(fixture, 0);
    rpc_fixture_wait_drained(fixture);
    rpc_fixture_finish(fixture);
}

void rpc_fixture_await(bool (*condition)(void *data), void *data, const char *what)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; i < 10000; i++) {
        if (condition(data))
            return;
        nanosleep(&pause, NULL);
    }
    fprintf(stderr, "waited in vain: %s\n", what);
    abort();
}
