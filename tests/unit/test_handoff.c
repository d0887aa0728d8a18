/* The hand-off socket, spoken to by hand: tokens, leases, and peers that do not behave. What belongs to the loop
 * is asked for by posted tasks. */
#include "tests/support/unit.h"

#include "base/foreign_fd.h"
#include "base/memory.h"
#include "client/handoff_wire.h"
#include "observe/log.h"
#include "replica/handoff.h"
#include "tests/support/handoff_stage.h"
#include "tests/support/hanging_close.h"
#include "tests/support/lingering.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void revoke_connection(struct handoff_question *request)
{
    handoff_revoke(request->stage->handoff, request->connection);
}

static void count_pending(struct handoff_question *request)
{
    request->number = handoff_pending(request->stage->handoff);
}

/* Of the stage's replica: how many, and whether they come newest first. */
static void list_lease(void *data, const struct handoff_lease *lease)
{
    struct handoff_question *request = data;
    request->is_sorted = request->is_sorted && lease->since_ns <= request->last_ns;
    request->last_ns = lease->since_ns;
    request->number++;
}

static void list_leases(struct handoff_question *request)
{
    request->number = 0;
    request->is_sorted = true;
    request->last_ns = UINT64_MAX;
    handoff_each_lease(request->stage->replica, list_lease, request);
}

static int redeem(const struct handoff_stage *stage, const void *token, size_t bytes, int *connection)
{
    struct handoff_answer answer;
    *connection = handoff_stage_connect(stage);
    assert_int_equal(send(*connection, token, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    return handoff_stage_receive(*connection, &answer);
}

TEST_IN(a_token_buys_the_memory_and_the_connection_is_the_lease, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_answer answer;
    struct stat size;
    struct handoff_question request = handoff_stage_token(stage, 1, getuid());
    int fd = handoff_stage_connect(stage);
    assert_int_equal(send(fd, request.token, sizeof request.token, 0), HANDOFF_TOKEN_BYTES);
    int memory_fd = handoff_stage_receive(fd, &answer);
    assert_true(memory_fd >= 0);
    assert_memory_equal(answer.magic, HANDOFF_MAGIC, 4);
    assert_int_equal(answer.version, HANDOFF_VERSION);
    assert_int_equal(answer.n_fds, 1);
    assert_int_equal(fstat(memory_fd, &size), 0);
    assert_int_equal((uint64_t)size.st_size, answer.memory_bytes);
    char *memory = mmap(NULL, answer.memory_bytes, PROT_READ, MAP_SHARED, memory_fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_string_equal(memory, "weights");
    assert_ptr_equal(mmap(NULL, answer.memory_bytes, PROT_WRITE, MAP_SHARED, memory_fd, 0), MAP_FAILED);
    assert_int_equal(handoff_stage_leases(stage), 1);
    close(fd);
    handoff_stage_await_leases(stage, 0);
    assert_string_equal(memory, "weights"); /* the mapping outlives the lease */
    munmap(memory, answer.memory_bytes);
    close(memory_fd);
}

static void grant_fails(struct handoff_question *request)
{
    struct error error;
    assert_int_equal(handoff_grant(request->stage->handoff, request->stage->replica, request->uid, request->connection,
                                   request->token, &error),
                     -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "LEASES_EXCEEDED");
}

TEST_IN(a_user_has_no_more_leases_than_its_share_tokens_included, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question refused = {.uid = getuid()}, other = {.uid = 12345};
    int fds[4], connections[4];
    quota_set_limits(stage->quota, QUOTA_LEASES, 100, 4);
    struct handoff_question first = handoff_stage_token(stage, 1, getuid());
    for (int i = 1; i < 4; i++) {
        struct handoff_question request = handoff_stage_token(stage, 1, getuid());
        fds[i] = redeem(stage, request.token, sizeof request.token, &connections[i]);
        assert_true(fds[i] >= 0);
    }
    handoff_stage_ask(stage, &refused, grant_fails);
    handoff_stage_ask(stage, &other, handoff_stage_grant);                    /* of another user's share */
    fds[0] = redeem(stage, first.token, sizeof first.token, &connections[0]); /* its token has its place */
    assert_true(fds[0] >= 0);
    assert_int_equal(quota_taken(stage->quota, QUOTA_LEASES), 5);
    handoff_stage_ask(stage, &refused, grant_fails);
    int silent = handoff_stage_connect(stage); /* no token: there is no place for it */
    struct handoff_answer answer;
    assert_int_equal(handoff_stage_receive(silent, &answer), -1);
    close(silent);
    for (int i = 0; i < 4; i++) {
        close(fds[i]);
        close(connections[i]);
    }
    handoff_stage_await_leases(stage, 0);
    assert_int_equal(quota_taken(stage->quota, QUOTA_LEASES), 1);
    assert_int_equal(quota_taken(stage->quota, QUOTA_DESCRIPTORS), 1);
}

static void add_replica(struct handoff_question *request)
{
    make_replica(request->stage);
}

static void list_often(struct handoff_question *request)
{
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < 200000; i++)
        list_leases(request);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    request->number = (uint64_t)((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
}

/* Listing those of every replica must not take replicas x leases. */
TEST_IN(leases_are_listed_by_replica_without_a_walk_over_others, handoff_stage_open, handoff_stage_close)
{
    enum { LEASES = 600 };
    struct handoff_stage *stage = *state;
    struct replica *replicas[3] = {stage->replica};
    struct handoff_question request = {0};
    int fds[LEASES];
    for (int i = 1; i < 3; i++) {
        handoff_stage_ask(stage, &request, add_replica);
        replicas[i] = stage->replica;
    }
    for (int i = 0; i < LEASES; i++) { /* the third has none */
        stage->replica = replicas[i % 2];
        struct handoff_question token = handoff_stage_token(stage, 1, getuid());
        close(redeem(stage, token.token, sizeof token.token, &fds[i]));
    }
    for (int i = 0; i < LEASES; i += 3)
        close(fds[i]);
    for (int i = 0; i < 3; i++) {
        stage->replica = replicas[i];
        for (int ms = 0; ms < ANSWER_MS; ms++) {
            handoff_stage_ask(stage, &request, list_leases);
            if (request.number == (i < 2 ? LEASES / 3 : 0))
                break;
            usleep(1000);
        }
        assert_int_equal(request.number, i < 2 ? LEASES / 3 : 0);
        assert_true(request.is_sorted);
    }
    handoff_stage_ask(stage, &request, list_often);
    assert_in_range(request.number, 0, 100); /* ms of the loop; a walk over all took 500 */
    for (int i = 0; i < LEASES; i++)
        if (i % 3)
            close(fds[i]);
    stage->replica = replicas[0];
    handoff_stage_await_leases(stage, 0);
}

TEST_IN(a_token_works_once, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question request = handoff_stage_token(stage, 1, getuid());
    int first, second;
    int memory_fd = redeem(stage, request.token, sizeof request.token, &first);
    assert_true(memory_fd >= 0);
    assert_int_equal(redeem(stage, request.token, sizeof request.token, &second), -1);
    assert_int_equal(handoff_stage_leases(stage), 1);
    close(memory_fd);
    close(first);
    close(second);
}

TEST_IN(wrong_short_and_long_tokens_are_closed_on, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question request = handoff_stage_token(stage, 1, getuid());
    unsigned char longer[HANDOFF_TOKEN_BYTES + 1] = {0};
    int fd;
    memcpy(longer, request.token, sizeof request.token);
    assert_int_equal(redeem(stage, longer, sizeof longer, &fd), -1);
    close(fd);
    assert_int_equal(redeem(stage, request.token, HANDOFF_TOKEN_BYTES - 1, &fd), -1);
    close(fd);
    request.token[31] ^= 1;
    assert_int_equal(redeem(stage, request.token, sizeof request.token, &fd), -1);
    close(fd);
    assert_int_equal(handoff_stage_leases(stage), 0);
}

TEST_IN(somebody_elses_token_is_refused_and_stays_good_for_its_owner, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question request = handoff_stage_token(stage, 1, getuid() + 1);
    int fd;
    assert_int_equal(redeem(stage, request.token, sizeof request.token, &fd), -1);
    close(fd);
    struct handoff_question pending = {0};
    handoff_stage_ask(stage, &pending, count_pending);
    assert_int_equal(pending.number, 1);
}

TEST_IN(a_token_dies_with_its_rpc_connection, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question kept = handoff_stage_token(stage, 1, getuid()), lost = handoff_stage_token(stage, 2, getuid());
    int fd;
    struct handoff_question gone = {.connection = 2};
    handoff_stage_ask(stage, &gone, revoke_connection);
    assert_int_equal(redeem(stage, lost.token, sizeof lost.token, &fd), -1);
    close(fd);
    int memory_fd = redeem(stage, kept.token, sizeof kept.token, &fd);
    assert_true(memory_fd >= 0);
    close(memory_fd);
    close(fd);
}

TEST_IN(a_leaseholder_that_talks_on_loses_its_lease, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question request = handoff_stage_token(stage, 1, getuid());
    int fd;
    int memory_fd = redeem(stage, request.token, sizeof request.token, &fd);
    assert_int_equal(send(fd, "more", 4, MSG_NOSIGNAL), 4);
    handoff_stage_await_leases(stage, 0);
    close(memory_fd);
    close(fd);
}

TEST_IN(silent_peers_are_capped_and_leaseholders_do_not_count, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    int leases[SILENT_CAP], silent[SILENT_CAP + 1];
    struct handoff_answer answer;
    for (int i = 0; i < SILENT_CAP; i++) {
        struct handoff_question request = handoff_stage_token(stage, 1, getuid());
        int memory_fd = redeem(stage, request.token, sizeof request.token, &leases[i]);
        assert_true(memory_fd >= 0);
        close(memory_fd);
    }
    for (int i = 0; i <= SILENT_CAP; i++)
        silent[i] = handoff_stage_connect(stage);
    assert_int_equal(handoff_stage_receive(silent[SILENT_CAP], &answer), -1); /* the surplus one */
    assert_int_equal(recv(silent[0], &answer, sizeof answer, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    for (int i = 0; i <= SILENT_CAP; i++)
        close(silent[i]);
    for (int i = 0; i < SILENT_CAP; i++)
        close(leases[i]);
    handoff_stage_await_leases(stage, 0);
}

/* --- memory that a client offers --------------------------------------------------------------------------------------- */

/* A dropped second descriptor is closed, perhaps as the last. */
TEST_IN(a_second_descriptor_is_not_closed_by_the_loop, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_region offer = handoff_stage_offer(HANDOFF_REGION_FD);
    struct handoff_question request = handoff_stage_token(stage, 1, getuid()), late;
    int other_sides[2], fds[2] = {fileno(stderr)}, connection;
    fds[1] = lingering(&other_sides[0]);
    int with_offer = handoff_stage_send(stage, &offer, sizeof offer, fds, 2);
    foreign_fd_close(fds[1], getuid() + 1);
    fds[1] = lingering(&other_sides[1]);
    int with_token = handoff_stage_send(stage, request.token, sizeof request.token, fds, 2);
    foreign_fd_close(fds[1], getuid() + 1);
    assert_true(handoff_stage_next_message(with_offer, &offer, sizeof offer) <= 0);
    assert_true(handoff_stage_next_message(with_token, &offer, sizeof offer) <= 0);
    late = handoff_stage_token(stage, 2, getuid());
    int fd = redeem(stage, late.token, sizeof late.token, &connection);
    assert_true(fd >= 0);
    close(fd);
    close(connection);
    close(with_offer);
    close(with_token);
    reset(other_sides[0]);
    reset(other_sides[1]);
    handoff_stage_await_closing();
    handoff_stage_ask(stage, &request, revoke_connection);
}

static void grant_is_too_many(struct handoff_question *request)
{
    struct error error;
    assert_int_equal(handoff_grant(request->stage->handoff, request->stage->replica, request->uid, request->connection,
                                   request->token, &error),
                     -1);
    assert_string_equal(error.reason, "TOO_MANY_TOKENS");
}

TEST_IN(a_user_has_4096_tokens_and_not_one_more, handoff_stage_open, handoff_stage_close)
{
    struct handoff_stage *stage = *state;
    struct handoff_question one_more = {.uid = 12345, .connection = 1};
    for (int i = 0; i < 4096; i++)
        handoff_stage_token(stage, 1, 12345);
    handoff_stage_ask(stage, &one_more, grant_is_too_many);
    handoff_stage_token(stage, 2, 12346); /* another user has room */
    handoff_stage_ask(stage, &one_more, revoke_connection);
    handoff_stage_token(stage, 1, 12345);
    for (one_more.connection = 1; one_more.connection <= 2; one_more.connection++)
        handoff_stage_ask(stage, &one_more, revoke_connection);
}

/* The thread's user, which the socket tells of its peer; the loop's thread stays who it is. */
static int connect_as(const struct handoff_stage *stage, uid_t uid)
{
    assert_int_equal(chmod(stage->folder, 0755) | chmod(stage->path, 0666), 0);
    assert_int_equal(syscall(SYS_setresuid, -1, uid, -1), 0);
    int fd = handoff_stage_connect(stage);
    assert_int_equal(syscall(SYS_setresuid, -1, 0, -1), 0);
    return fd;
}

static bool is_answered_within(int fd, int ms)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms) == 1;
}

/* Four threads close for one user at most: the others wait for them. */
TEST_IN(a_user_whose_descriptors_do_not_close_is_held_until_they_do, handoff_stage_open, handoff_stage_close)
{
    enum { UNCLOSED = 64, HANGING = 4, MALLORY = 70001, ALICE = 70002, SHORT_MS = 100 };
    struct handoff_stage *stage = *state;
    struct handoff_answer answer;
    int hanging[HANGING], fd;
    if (geteuid() != 0)
        skip();
    for (int i = 0; i < UNCLOSED; i++)
        foreign_fd_close(i < HANGING ? hanging[i] = hanging_fd() : dup(STDIN_FILENO), MALLORY);
    assert_int_equal(foreign_fd_open(MALLORY), UNCLOSED);
    struct handoff_question request = handoff_stage_token(stage, 1, MALLORY), other = handoff_stage_token(stage, 1, ALICE);
    int held = connect_as(stage, MALLORY), leaving = connect_as(stage, MALLORY), free = connect_as(stage, ALICE);
    assert_int_equal(send(held, request.token, sizeof request.token, MSG_NOSIGNAL), sizeof request.token);
    assert_int_equal(send(free, other.token, sizeof other.token, MSG_NOSIGNAL), sizeof other.token);
    assert_true((fd = handoff_stage_receive(free, &answer)) >= 0);
    close(fd);
    close(leaving);
    assert_false(is_answered_within(held, SHORT_MS));
    for (int i = 0; i < HANGING; i++)
        release_fd(hanging[i]);
    assert_true((fd = handoff_stage_receive(held, &answer)) >= 0);
    close(fd);
    close(held);
    close(free);
    for (int i = 0; i < ANSWER_MS && foreign_fd_open(MALLORY); i++)
        usleep(1000);
    assert_int_equal(foreign_fd_open(MALLORY), 0);
}

TEST_IN(root_and_the_daemons_user_are_not_held, handoff_stage_open, handoff_stage_close)
{
    enum { UNCLOSED = 80, HANGING = 4 };
    struct handoff_stage *stage = *state;
    int hanging[HANGING], connection;
    for (int i = 0; i < UNCLOSED; i++)
        foreign_fd_close(i < HANGING ? hanging[i] = hanging_fd() : dup(STDIN_FILENO), getuid());
    struct handoff_question request = handoff_stage_token(stage, 1, getuid());
    int fd = redeem(stage, request.token, sizeof request.token, &connection);
    assert_true(fd >= 0);
    close(fd);
    close(connection);
    for (int i = 0; i < HANGING; i++)
        release_fd(hanging[i]);
    for (int i = 0; i < ANSWER_MS && foreign_fd_open(getuid()); i++)
        usleep(1000);
}

enum { N_FILES = 2 * HANDOFF_MESSAGE_FDS + 22, MANY_FILES = 64 * HANDOFF_MESSAGE_FDS };

struct scene { /* file i has i bytes */
    int ours, theirs;
    struct source source;
    struct artifact artifact;
    struct mapping mapping;
    struct mapped_view view;
    struct mapped_files *files;
    struct replica replica;
};

static void open_scene(struct scene *scene, size_t n)
{
    int ends[2], one = memfd_create("file", 0);
    *scene = (struct scene){.files = memory_alloc(sizeof *scene->files)};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    scene->ours = ends[0];
    scene->theirs = ends[1];
    scene->source.files = test_calloc(n, sizeof *scene->source.files);
    scene->view = (struct mapped_view){.files = test_calloc(n, sizeof *scene->view.files), .n_files = n};
    scene->files->view = &scene->view;
    scene->files->fds = test_calloc(n, sizeof *scene->files->fds);
    for (size_t i = 0; i < n; i++) {
        scene->view.files[i] = (uint32_t)i;
        scene->source.files[i].size_bytes = i;
        scene->files->fds[i] = n == N_FILES ? memfd_create("file", 0) : dup(one);
        assert_true(n != N_FILES || ftruncate(scene->files->fds[i], (off_t)i) == 0);
    }
    close(one);
    scene->artifact.source = &scene->source;
    scene->mapping.artifact = &scene->artifact;
    scene->replica = (struct replica){.mapping = &scene->mapping, .files = scene->files};
}

static void close_scene(struct scene *scene)
{
    test_free(scene->source.files);
    for (size_t i = scene->files->n_sent; i < scene->view.n_files; i++)
        close(scene->files->fds[i]);
    test_free(scene->files->fds);
    test_free(scene->view.files);
    free(scene->files);
    close(scene->ours);
    close(scene->theirs);
}

/* The number of descriptors of the next message, or 0. */
static size_t receive(struct scene *scene, int fds[HANDOFF_MESSAGE_FDS], struct handoff_answer *answer)
{
    union {
        char bytes[CMSG_SPACE(HANDOFF_MESSAGE_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = answer, .iov_len = sizeof *answer};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(scene->theirs, &message, MSG_DONTWAIT) != (ssize_t)sizeof *answer)
        return 0;
    assert_false(message.msg_flags & MSG_CTRUNC);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), n * sizeof(int));
    return n;
}

TEST(files_come_in_their_order_in_as_many_messages_as_it_takes)
{
    static const size_t sizes[] = {HANDOFF_MESSAGE_FDS, HANDOFF_MESSAGE_FDS, 22, 0};
    struct handoff_answer answer;
    struct scene scene;
    int fds[HANDOFF_MESSAGE_FDS];
    size_t file = 0;
    open_scene(&scene, N_FILES);
    assert_int_equal(handoff_send(scene.ours, &scene.replica), HANDOFF_SENT_ALL);
    assert_int_equal(scene.files->n_sent, N_FILES);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t bytes = 0;
        assert_int_equal(receive(&scene, fds, &answer), sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++, file++) {
            struct stat status;
            assert_int_equal(fstat(fds[k], &status), 0);
            assert_int_equal(status.st_size, file);
            bytes += file;
            close(fds[k]);
        }
        assert_true(!sizes[i] || (memcmp(answer.magic, HANDOFF_MAGIC, 4) == 0 && answer.page_kind == HANDOFF_FILES));
        assert_true(!sizes[i] || (answer.n_fds == sizes[i] && answer.memory_bytes == bytes && !answer.reserved));
    }
    close_scene(&scene);
}

TEST(a_full_socket_waits_for_the_client)
{
    struct handoff_answer answer;
    struct scene scene;
    int fds[HANDOFF_MESSAGE_FDS], least = 1;
    size_t n, n_received = 0;
    open_scene(&scene, MANY_FILES);
    setsockopt(scene.ours, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
    assert_int_equal(handoff_send(scene.ours, &scene.replica), HANDOFF_SENT_SOME);
    enum handoff_sent sent = HANDOFF_SENT_SOME;
    while (n_received < MANY_FILES) {
        while ((n = receive(&scene, fds, &answer)) > 0)
            for (n_received += n; n > 0; n--)
                close(fds[n - 1]);
        if (sent == HANDOFF_SENT_SOME)
            sent = handoff_send(scene.ours, &scene.replica);
        assert_int_not_equal(sent, HANDOFF_NOT_SENT);
    }
    assert_int_equal(sent, HANDOFF_SENT_ALL);
    close_scene(&scene);
}

TEST(a_client_that_is_gone_gets_nothing)
{
    struct scene scene;
    open_scene(&scene, N_FILES);
    close(scene.theirs);
    assert_int_equal(handoff_send(scene.ours, &scene.replica), HANDOFF_NOT_SENT);
    assert_int_equal(scene.files->n_sent, 0);
    scene.theirs = -1;
    close_scene(&scene);
}

static int set_up_all_tests(void **state)
{
    log_set_level(LOG_ERROR);
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
