/* libtensorcast beside a daemon that answers what a test wants: the truth, contradictions, errors, nothing. Test thread;
 * whatever a helper needs and does not get ends the program. */
#ifndef TESTS_SUPPORT_CLIENT_SCENE_H
#define TESTS_SUPPORT_CLIENT_SCENE_H

#include <stdatomic.h>

#include "client/tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "tests/support/fake_handoff.h"
#include "tests/support/rpc_fixture.h"

enum { CONTENT_BYTES = 4096 }; /* of the memory that is handed off */
#define SERVED(test) cmocka_unit_test_setup_teardown(test, client_scene_start, client_scene_stop)

/* What the daemon is asked to do, and what it saw. Set before a call, read after it. */
extern struct client_scene {
    struct rpc_fixture fixture;
    struct fake_handoff handoff;
    struct tc_client *client;
    char folder[sizeof((struct rpc_fixture *)0)->folder]; /* of the first fixture */
    struct error error;                                   /* code 0 = answer */
    bool hangs, without_result;
    Tensorcast__Daemon__V1__Layout layout;
    int n_progress;
    size_t n_files;                           /* that are handed out instead of memory, each of CONTENT_BYTES */
    int memory;                               /* as the request had it */
    Tensorcast__Daemon__V1__Targets *targets; /* of the last request, a copy; NULL = it had none */
    char *handoff_socket;                     /* where the daemon says it is */
    size_t n_names, n_starts;
    char first_name[32];
    int64_t first_start, rank;
    char attempt[40];
    bool has_view, is_whole, is_by_source, all;
    struct rpc_call *_Atomic held;
    _Atomic int calls;
} client_scene;

extern const struct tc_view client_scene_view; /* "w" in part, "empty" and "s" whole */

int client_scene_start(void **state);
int client_scene_stop(void **state);
void client_scene_start_at(const char *socket); /* the daemon alone, not yet ready; NULL: at a socket of its own */
/* The test's thread and the daemon's take turns through gRPC, which a race detector cannot see: both pass here on either
 * side of a call. */
void client_scene_meet(void);
struct tc_load *client_scene_load(const struct tc_options *options, struct tc_error *error);

#endif
