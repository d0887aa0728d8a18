/* Clients that flood the gRPC server, do not read, ask for more than their turns, or send descriptors: they
 * are ended or wait, and no other client is held up. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/foreign_fd.h"
#include "rpc/rpc_internal.h"
#include "tests/support/hanging_close.h"
#include "tests/support/http2_client.h"
#include "tests/support/lingering.h"
#include "tests/support/rpc_scene.h"

/* --- floods ---------------------------------------------------------------------------------------------------------- */

static void send_frames(uint8_t type, uint8_t flags, uint32_t stream, const char *payload, size_t count, int times)
{
    uint8_t frame[64] = {0, 0, (uint8_t)count, type, flags, 0, 0, (uint8_t)(stream >> 8), (uint8_t)stream};
    memcpy(frame + 9, payload, count);
    for (int i = 0; i < times && !http2_client.is_closed; i++)
        http2_client_send(frame, 9 + count);
}

TEST_IN(a_flood_ends_the_connection, http2_client_connect, http2_client_disconnect)
{
    send_frames(NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\1", 4, RPC_DRIBBLES_BURST);
    http2_client_is_served(); /* which forgives */
    send_frames(NGHTTP2_WINDOW_UPDATE, 0, 0, "\0\0\0\1", 4, RPC_DRIBBLES_BURST + 200);
    http2_client_await(http2_client_is_closed);
    rpc_scene_assert_serves();
}

static bool last_is_reset(void)
{
    return http2_client.is_closed || http2_client_answer(http2_client.last_stream)->reset;
}

/* Every window overflows, so the server resets every stream. */
TEST_IN(requests_that_break_the_rules_again_and_again_end_the_connection, http2_client_connect, http2_client_disconnect)
{
    for (int i = 0; i < RPC_RESETS_BURST - 10; i++) {
        http2_client_ask((struct http2_request){.stays_open = true});
        send_frames(NGHTTP2_WINDOW_UPDATE, 0, (uint32_t)http2_client.last_stream, "\x7f\xff\xff\xff", 4, 1);
        http2_client_await(last_is_reset);
        assert_int_equal(http2_client_answer(http2_client.last_stream)->reset, NGHTTP2_FLOW_CONTROL_ERROR + 1);
    }
    http2_client_is_served();
    for (int i = 0; i < 3000 && !http2_client.is_closed; i++) {
        http2_client_ask((struct http2_request){.stays_open = true});
        send_frames(NGHTTP2_WINDOW_UPDATE, 0, (uint32_t)http2_client.last_stream, "\x7f\xff\xff\xff", 4, 1);
        if (i % 100 == 99)
            http2_client_await(last_is_reset);
    }
    http2_client_await(http2_client_is_closed);
    rpc_scene_assert_serves();
}

/* --- refusals -------------------------------------------------------------------------------------------------------- */

static void take_little(struct rpc_fixture *of, void *unused)
{
    int least = 1;
    (void)unused;
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &of->server->connections, in_server)
        setsockopt(connection->fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
}

static void no_question(struct rpc_fixture *of, void *unused)
{
    (void)of, (void)unused;
}

/* The loop has begun another turn since: what a turn begins with has been done, and what came before was read. */
static void has_turned(void)
{
    rpc_fixture_on_loop(&rpc_scene.fixture, no_question, NULL);
    rpc_fixture_on_loop(&rpc_scene.fixture, no_question, NULL);
}

/* So many requests that no quota has room for, of a http2_client that does not read meanwhile. Each is answered before the
 * next one comes: a socket counts what it sends by pieces, and answers that go in few of them would all fit. */
static void ask_for_refusals(int n)
{
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CALLS, 0, 0);
    rpc_fixture_on_loop(&rpc_scene.fixture, take_little, NULL);
    for (int i = 0; i < n; i++) {
        http2_client_ask((struct http2_request){HTTP2_EMPTY, .path = SERVICE "Explain"});
        has_turned();
    }
}

/* It seems to live meanwhile: it answers pings. */
static bool is_hung_up_on(void *data)
{
    static const uint8_t pong[17] = {0, 0, 8, NGHTTP2_PING, NGHTTP2_FLAG_ACK};
    struct pollfd end = {.fd = http2_client.fd, .events = POLLOUT};
    (void)data;
    send(http2_client.fd, pong, sizeof pong, MSG_NOSIGNAL | MSG_DONTWAIT);
    return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

TEST_IN(sixteen_refusals_wait_for_who_does_not_read_and_more_end_the_connection, http2_client_connect,
        http2_client_disconnect)
{
    http2_client_is_served();
    ask_for_refusals(16);
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(http2_client_answer(http2_client.last_stream)->grpc_status, "8");
    ask_for_refusals(100);
    rpc_fixture_await(is_hung_up_on, NULL, "the connection is ended");
}

/* --- turns ----------------------------------------------------------------------------------------------------------- */

enum { BUSY_CALLS = 40, BUSY_MS = 3 };

static struct turns { /* of the loop */
    struct loop_task hold, count;
    _Atomic bool may_go, is_over;
    int n; /* while the calls were handled */
} turns;

static void hold_loop(struct loop_task *task)
{
    (void)task;
    while (!turns.may_go)
        usleep(1000);
}

static void count_turn(struct loop_task *task)
{
    int handled = rpc_scene.handled;
    turns.n += handled > 0 && handled < BUSY_CALLS;
    if (!turns.is_over)
        loop_post(rpc_scene.fixture.loop, task);
}

static bool all_were_handled(void *unused)
{
    (void)unused;
    return rpc_scene.handled >= BUSY_CALLS;
}

/* They are all there at once. Between two of them all others are served. */
TEST_IN(a_user_whose_handlers_take_long_has_one_in_each_turn_of_the_loop, http2_client_connect, http2_client_disconnect)
{
    struct raw_bytes packed = rpc_scene_load_message("busy 3", NULL);
    uint8_t bytes[64];
    http2_client_is_served();
    grpc_wire_write_prefix(bytes, packed.count);
    memcpy(bytes + GRPC_WIRE_PREFIX_BYTES, packed.data, packed.count);
    turns = (struct turns){.hold.run = hold_loop, .count.run = count_turn};
    int already = rpc_scene.handled;
    assert_int_equal(already, 0);
    loop_post(rpc_scene.fixture.loop, &turns.hold);
    loop_post(rpc_scene.fixture.loop, &turns.count);
    for (int i = 0; i < BUSY_CALLS; i++)
        http2_client_ask((struct http2_request){
            .path = SERVICE "Explain", .bytes = bytes, .count = GRPC_WIRE_PREFIX_BYTES + packed.count});
    turns.may_go = true;
    rpc_fixture_await(all_were_handled, NULL, "all are handled");
    http2_client_await(http2_client_last_is_over);
    assert_string_equal(http2_client_answer(http2_client.last_stream)->message, "busy 3");
    turns.is_over = true;
    rpc_fixture_on_loop(&rpc_scene.fixture, no_question, NULL);
    assert_true(turns.n >= BUSY_CALLS / 2);
    free(packed.data);
}

static struct loop_turn *starving;
static _Atomic int starved; /* turns */

/* Comes before the server's own. */
static void starve(void *data)
{
    struct rpc_server *server = data;
    for (struct rpc_user *user = server->admission.users; user; user = user->next) {
        user->line.turn = server->turns.turn + 1;
        user->line.spent_ns = UINT64_MAX / 2;
    }
    starved++;
}

static void begin_starving(struct rpc_fixture *of, void *unused)
{
    (void)unused;
    starved = 0;
    starving = loop_turn_create(of->loop, starve, of->server);
}

static void end_starving(struct rpc_fixture *of, void *unused)
{
    (void)of, (void)unused;
    loop_turn_destroy(starving);
}

static bool were_many(void *unused)
{
    (void)unused;
    return starved >= 1000; /* what lies in the socket keeps the loop turning */
}

TEST_IN(who_has_had_his_time_of_a_turn_is_not_read_from_in_it, http2_client_connect, http2_client_disconnect)
{
    http2_client_is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, begin_starving, NULL);
    has_turned(); /* else what the http2_client still had to say would let its request in, too */
    http2_client_ask((struct http2_request){HTTP2_EMPTY, .path = SERVICE "Explain"});
    rpc_fixture_await(were_many, NULL, "turns of the loop");
    assert_int_equal(rpc_scene.handled, 0);
    rpc_fixture_on_loop(&rpc_scene.fixture, end_starving, NULL);
    http2_client_await(http2_client_last_is_over);
    assert_int_equal(rpc_scene.handled, 1);
}

/* Those that wait for their turn end with it. */
TEST_IN(a_client_that_leaves_takes_its_waiting_requests_along, http2_client_connect, http2_client_disconnect)
{
    struct raw_bytes packed = rpc_scene_load_message("busy 3", NULL);
    uint8_t bytes[64];
    http2_client_is_served();
    grpc_wire_write_prefix(bytes, packed.count);
    memcpy(bytes + GRPC_WIRE_PREFIX_BYTES, packed.data, packed.count);
    turns = (struct turns){.hold.run = hold_loop};
    loop_post(rpc_scene.fixture.loop, &turns.hold);
    for (int i = 0; i < BUSY_CALLS; i++) {
        int32_t stream = http2_client_ask((struct http2_request){
            .path = SERVICE "Explain", .bytes = bytes, .count = GRPC_WIRE_PREFIX_BYTES + packed.count});
        if (i % 3 == 2) { /* of some it takes back just this one */
            nghttp2_submit_rst_stream(http2_client.session, 0, stream, NGHTTP2_CANCEL);
            http2_client_flush();
        }
    }
    http2_client_end();
    turns.may_go = true;
    http2_client_begin();
    http2_client_is_served();
    assert_true(rpc_scene.handled < BUSY_CALLS / 2);
    free(packed.data);
}

/* --- descriptors ----------------------------------------------------------------------------------------------------- */

/* As on a kernel before Linux 6.16. */
static void let_descriptors_in(struct rpc_fixture *of, void *unused)
{
    int on = 1;
    (void)unused;
    struct rpc_connection *connection;
    LIST_FOREACH (connection, &of->server->connections, in_server) {
        connection->refuses_descriptors = false;
        setsockopt(connection->fd, SOL_SOCKET, 83 /* SO_PASSRIGHTS */, &on, sizeof on);
    }
}

static bool pipe_is_closed(void *data)
{
    struct pollfd end = {.fd = *(int *)data, .events = POLLIN};
    return poll(&end, 1, 0) == 1 && end.revents & POLLHUP;
}

enum { MANY = 100 };

/* Copies of one, with a byte. */
static ssize_t send_copies(int socket, int fd, size_t n)
{
    union {
        char bytes[CMSG_SPACE(MANY * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec place = {(void *)http2_empty_message, 1};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    for (size_t i = 0; i < n; i++)
        memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(int));
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

TEST_IN(who_sends_descriptors_is_hung_up_on, http2_client_connect, http2_client_disconnect)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    http2_client_is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, let_descriptors_in, NULL);
    assert_int_equal(send_copies(http2_client.fd, ends[1], 1), 1);
    close(ends[1]);
    http2_client_await(http2_client_is_closed);
    rpc_fixture_await(pipe_is_closed, &ends[0], "the descriptor is closed");
    close(ends[0]);
}

static bool none_is_open(void *data)
{
    (void)data;
    return foreign_fd_open(getuid()) == 0;
}

/* The thread that closes for this user hangs: what comes waits for it, and takes places that others need. */
TEST_IN(a_hundred_descriptors_of_a_message_cost_one_of_ours, http2_client_connect, http2_client_disconnect)
{
    int hanging = hanging_fd();
    foreign_fd_close(hanging, getuid());
    http2_client_is_served();
    rpc_fixture_on_loop(&rpc_scene.fixture, let_descriptors_in, NULL);
    assert_int_equal(send_copies(http2_client.fd, fileno(stderr), MANY), 1);
    http2_client_await(http2_client_is_closed);
    assert_true(foreign_fd_open(getuid()) <= 2);
    release_fd(hanging);
    rpc_fixture_await(none_is_open, NULL, "all are closed");
}

struct surplus {
    int fds[8];
    size_t n;
};

static void accept_all(struct rpc_fixture *of, void *data)
{
    const struct surplus *surplus = data;
    const struct ucred peer = {getpid(), 12345, 12345};
    for (size_t i = 0; i < surplus->n; i++)
        rpc_admission_accept(of->server, surplus->fds[i], &peer);
}

/* The last copy of what it has sent may take an hour to be closed. */
TEST_IN(who_has_too_many_connections_holds_nobody_up_with_what_it_sends, http2_client_connect, http2_client_disconnect)
{
    struct surplus surplus = {.n = 8};
    int clients[8], other_sides[8];
    http2_client_is_served();
    quota_set_limits(rpc_scene.fixture.quota, QUOTA_CONNECTIONS, 1000, 1);
    for (size_t i = 0; i < surplus.n; i++) {
        int pair[2], sent = lingering(&other_sides[i]);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
        clients[i] = pair[0];
        surplus.fds[i] = pair[1];
        assert_int_equal(send_copies(clients[i], sent, 1), 1);
        close(sent);
    }
    rpc_fixture_on_loop(&rpc_scene.fixture, accept_all, &surplus);
    for (size_t i = 0; i < surplus.n; i++) {
        struct pollfd end = {.fd = clients[i], .events = POLLIN};
        assert_int_equal(poll(&end, 1, PATIENCE_MS), 1);
        http2_client_is_served();
        close(clients[i]);
        reset(other_sides[i]);
    }
}

static bool all_are_told(void *count)
{
    return rpc_scene.cancels == *(int *)count;
}

static bool has_sent_more(void *sent)
{
    return rpc_scene.sent > *(int *)sent;
}

/* Its last message is written to a socket that no client has any more, or is still waiting for its turn. */
TEST_IN(who_waits_for_a_message_to_be_written_is_told_that_the_client_is_gone, http2_client_connect, http2_client_disconnect)
{
    Tensorcast__Daemon__V1__FetchSidecarsRequest request = TENSORCAST__DAEMON__V1__FETCH_SIDECARS_REQUEST__INIT;
    request.artifact = "1000000000 small";
    struct raw_bytes packed = rpc_scene_pack(&request.base);
    for (int count = 1; count <= 30; count++) {
        int sent = rpc_scene.sent;
        uint8_t bytes[64];
        grpc_wire_write_prefix(bytes, packed.count);
        memcpy(bytes + GRPC_WIRE_PREFIX_BYTES, packed.data, packed.count);
        http2_client_ask((struct http2_request){
            .path = SERVICE "FetchSidecars", .bytes = bytes, .count = GRPC_WIRE_PREFIX_BYTES + packed.count});
        rpc_fixture_await(has_sent_more, &sent, "it is running");
        http2_client_end();
        rpc_fixture_await(all_are_told, &count, "the handler is told");
        http2_client_begin();
    }
    free(packed.data);
}
