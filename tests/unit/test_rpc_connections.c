/* Connections by the number that gRPC knows them by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/rpc_connections.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static struct loop *loop;
static struct rpc_connections *connections;
static uint64_t ended;
static void *ended_owner;
static bool ended_surplus;
static int owner_a, owner_b;

static void on_end(void *context, uint64_t id, void *owner, bool is_surplus)
{
    assert_ptr_equal(context, &ended);
    ended = id;
    ended_owner = owner;
    ended_surplus = is_surplus;
    loop_stop(loop);
}

static int start(void **state)
{
    (void)state;
    ended = 0;
    loop = loop_create();
    connections = rpc_connections_create(loop, on_end, &ended);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    rpc_connections_destroy(connections);
    loop_destroy(loop);
    return 0;
}

/* Returns the number; *peer is the other end. */
static bool makes_surplus;

static int connect_one(void *owner, int *peer)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    *peer = ends[1];
    return rpc_connections_add(connections, ends[0], owner, (struct metadata_account){0}, makes_surplus);
}

static void hang_up(int number, int peer)
{
    close(number); /* gRPC's part */
    close(peer);
    loop_run(loop);
}

static void a_connection_is_found_by_number_and_owner_until_it_hangs_up(void **state)
{
    int peer;
    (void)state;
    int number = connect_one(&owner_a, &peer);
    uint64_t id = rpc_connections_find(connections, number, &owner_a);
    assert_true(number >= 0 && id > 0);
    assert_int_equal(rpc_connections_pid(connections, number, &owner_a), getpid());
    assert_int_equal(rpc_connections_pid(connections, number, &owner_b), 0);
    assert_true(fcntl(number, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(rpc_connections_find(connections, number, &owner_b), 0);
    assert_int_equal(rpc_connections_find(connections, number + 1, &owner_a), 0);
    assert_int_equal(rpc_connections_find(connections, -1, &owner_a), 0);
    assert_int_equal(rpc_connections_find(connections, 1 << 30, &owner_a), 0);
    assert_int_equal(rpc_connections_count(connections), 1);
    hang_up(number, peer);
    assert_int_equal(ended, id);
    assert_ptr_equal(ended_owner, &owner_a);
    assert_int_equal(rpc_connections_find(connections, number, &owner_a), 0);
    assert_int_equal(rpc_connections_count(connections), 0);
}

static void numbers_come_back_only_after_a_whole_round(void **state)
{
    int peer, first = connect_one(&owner_a, &peer), last = first;
    (void)state;
    hang_up(first, peer);
    for (int i = 0; i < 50; i++) {
        int number = connect_one(&owner_a, &peer);
        assert_int_equal(number, last + 1); /* although all before it are free again */
        hang_up(number, peer);
        last = number;
    }
}

static void a_full_table_of_descriptors_refuses_and_recovers(void **state)
{
    struct rlimit old, tight;
    int peers[256], numbers[256], n = 0;
    (void)state;
    rpc_connections_destroy(connections);
    getrlimit(RLIMIT_NOFILE, &old);
    tight = (struct rlimit){160, old.rlim_max};
    setrlimit(RLIMIT_NOFILE, &tight);
    connections = rpc_connections_create(loop, on_end, &ended);
    for (;; n++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
            break;
        peers[n] = ends[1];
        numbers[n] = rpc_connections_add(connections, ends[0], &owner_a, (struct metadata_account){0}, false);
        if (numbers[n] < 0) {
            assert_int_equal(fcntl(ends[0], F_GETFD), -1); /* it was closed */
            close(ends[1]);
            break;
        }
    }
    assert_true(n > 20 && n < 160);
    assert_int_equal(rpc_connections_count(connections), n);
    hang_up(numbers[0], peers[0]);
    hang_up(numbers[1], peers[1]);
    int peer, number = connect_one(&owner_b, &peer);
    assert_true(number >= 0);
    setrlimit(RLIMIT_NOFILE, &old);
    for (int i = 2; i < n; i++) {
        close(numbers[i]);
        close(peers[i]);
    }
    close(number);
    close(peer);
}

static bool is_other(const void *data, const void *owner)
{
    return data != owner;
}

static void connections_without_a_call_are_ended_and_busy_ones_are_not(void **state)
{
    int idle_peer, busy_peer;
    (void)state;
    int idle = connect_one(&owner_a, &idle_peer), busy = connect_one(&owner_a, &busy_peer);
    uint64_t idle_id = rpc_connections_find(connections, idle, &owner_a);
    uint64_t busy_id = rpc_connections_call_begins(connections, busy, &owner_a);
    assert_int_equal(busy_id, rpc_connections_find(connections, busy, &owner_a));
    rpc_connections_end_idle(connections, &(struct rpc_idle_rule){.most = 10});
    loop_run(loop);
    assert_int_equal(ended, idle_id);
    assert_int_equal(rpc_connections_count(connections), 1);
    rpc_connections_call_ends(connections, busy, busy_id);
    rpc_connections_end_idle(connections,
                             &(struct rpc_idle_rule){.idle_ns = UINT64_MAX, .most = 10}); /* nothing is idle for that long */
    rpc_connections_end_idle(connections, &(struct rpc_idle_rule){.most = 0});
    rpc_connections_end_idle(connections, &(struct rpc_idle_rule){.most = 10, .may_end = is_other, .data = &owner_a});
    assert_int_equal(rpc_connections_count(connections), 1);
    rpc_connections_end_idle(connections, &(struct rpc_idle_rule){.most = 1});
    loop_run(loop);
    assert_int_equal(ended, busy_id);
    close(idle), close(busy), close(idle_peer), close(busy_peer);
}

static void surplus_connections_are_ended_unless_they_were_promoted(void **state)
{
    int peers[2];
    (void)state;
    makes_surplus = true;
    int kept = connect_one(&owner_a, &peers[0]), number = connect_one(&owner_a, &peers[1]);
    makes_surplus = false;
    uint64_t id = rpc_connections_find(connections, number, &owner_a);
    assert_true(rpc_connections_is_surplus(connections, kept, &owner_a));
    assert_false(rpc_connections_is_surplus(connections, kept, &owner_b));
    rpc_connections_promote(connections, kept, &owner_a);
    assert_false(rpc_connections_is_surplus(connections, kept, &owner_a));
    rpc_connections_end_surplus(connections, UINT64_MAX, UINT64_MAX);
    rpc_connections_end_surplus(connections, UINT64_MAX, 0);
    loop_run(loop);
    assert_int_equal(ended, id);
    assert_true(ended_surplus);
    assert_int_equal(rpc_connections_count(connections), 1);
    close(kept), close(number), close(peers[0]), close(peers[1]);
}

int main(void)
{
#define WITH_TABLE(test) cmocka_unit_test_setup_teardown(test, start, stop)
    const struct CMUnitTest tests[] = {
        WITH_TABLE(a_connection_is_found_by_number_and_owner_until_it_hangs_up),
        WITH_TABLE(numbers_come_back_only_after_a_whole_round),
        WITH_TABLE(connections_without_a_call_are_ended_and_busy_ones_are_not),
        WITH_TABLE(surplus_connections_are_ended_unless_they_were_promoted),
        WITH_TABLE(a_full_table_of_descriptors_refuses_and_recovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
