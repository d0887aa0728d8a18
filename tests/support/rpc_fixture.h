/* A running gRPC server on a temporary socket with its loop in a thread. For unit tests of the server and of libtensorcast.
 * Test thread, unless said otherwise. */
#ifndef TESTS_SUPPORT_RPC_FIXTURE_H
#define TESTS_SUPPORT_RPC_FIXTURE_H

#include <pthread.h>
#include <semaphore.h>

#include "base/loop.h"
#include "rpc/rpc.h"

struct rpc_fixture {
    struct rpc_options options; /* set what differs from the defaults between prepare and start */
    struct loop *loop;
    struct quota *quota; /* options.quota, at most 64 connections of a user */
    struct rpc_server *server;
    pthread_t thread;
    sem_t drained;
    char folder[64], socket[96];
};

void rpc_fixture_prepare(struct rpc_fixture *fixture, const struct rpc_method *methods, size_t n_methods, void *context);
int rpc_fixture_start(struct rpc_fixture *fixture, struct error *error); /* not yet ready */
void rpc_fixture_ready(struct rpc_fixture *fixture);
/* Runs fn on the loop thread and waits for it. */
void rpc_fixture_on_loop(struct rpc_fixture *fixture, void (*fn)(struct rpc_fixture *fixture, void *data), void *data);
void rpc_fixture_drain(struct rpc_fixture *fixture, uint64_t grace_ms);      /* starts it */
void rpc_fixture_drain_here(struct rpc_fixture *fixture, uint64_t grace_ms); /* the same, on the loop thread */
void rpc_fixture_wait_drained(struct rpc_fixture *fixture);
void rpc_fixture_finish(struct rpc_fixture *fixture); /* after wait_drained, or at a failed start */
void rpc_fixture_stop(struct rpc_fixture *fixture);   /* drain without grace, wait, finish */

/* Ends the test with a message when condition(data) does not come true within 20 s: hangs become failures. */
void rpc_fixture_await(bool (*condition)(void *data), void *data, const char *what);

#endif
