/* The hand-off socket, spoken to by hand: tokens, leases, and peers that do not behave. The loop runs in its own thread;
 * what belongs to it is asked for by posted tasks. */
#include "base/foreign_fd.h"
#include "load/load_result.h"
#include "observe/log.h"
#include "replica/handoff.h"
#include "source/source_memory.h"
#include "tests/support/hanging_close.h"
#include "tests/support/lingering.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h> /* last: it has a macro called fail */

enum { SILENT_CAP = 4, ANSWER_MS = 2000 };

struct stage {
    char folder[32], path[64];
    struct loop *loop;
    struct device *device;
    struct replica_table *replicas;
    struct replica *replica;
    struct handoff *handoff;
    struct quota *quota;
    pthread_t thread;
};

struct request { /* one question to the loop thread */
    struct loop_task task;
    struct stage *stage;
    void (*ask)(struct request *request);
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool is_answered;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    uint64_t connection, number, last_ns;
    bool is_sorted;
    uid_t uid;
    struct device_region *region; /* taken; NULL = there is none, for this reason */
    char reason[sizeof((struct error *)NULL)->reason];
};

static void run_request(struct loop_task *task)
{
    struct request *request = (struct request *)task;
    request->ask(request);
    pthread_mutex_lock(&request->lock);
    request->is_answered = true;
    pthread_cond_signal(&request->answered);
    pthread_mutex_unlock(&request->lock);
}

static void ask(struct stage *stage, struct request *request, void (*question)(struct request *request))
{
    request->task.run = run_request;
    request->stage = stage;
    request->ask = question;
    request->is_answered = false;
    pthread_mutex_init(&request->lock, NULL);
    pthread_cond_init(&request->answered, NULL);
    loop_post(stage->loop, &request->task);
    pthread_mutex_lock(&request->lock);
    while (!request->is_answered)
        pthread_cond_wait(&request->answered, &request->lock);
    pthread_mutex_unlock(&request->lock);
}

static void grant(struct request *request)
{
    struct error error;
    assert_int_equal(handoff_grant(request->stage->handoff, request->stage->replica, request->uid, request->connection,
                                   request->token, &error),
                     0);
}

static void revoke_connection(struct request *request)
{
    handoff_revoke(request->stage->handoff, request->connection);
}

static void count_leases(struct request *request)
{
    request->number = replica_leases(request->stage->replicas);
}

static void count_pending(struct request *request)
{
    request->number = handoff_pending(request->stage->handoff);
}

static void take_region(struct request *request)
{
    struct error error;
    if (handoff_take_region(request->stage->handoff, request->token, sizeof request->token, request->uid, &request->region,
                            &error))
        memcpy(request->reason, error.reason, sizeof request->reason);
}

/* Of the stage's replica: how many, and whether they come newest first. */
static void list_lease(void *data, const struct handoff_lease *lease)
{
    struct request *request = data;
    request->is_sorted = request->is_sorted && lease->since_ns <= request->last_ns;
    request->last_ns = lease->since_ns;
    request->number++;
}

static void list_leases(struct request *request)
{
    request->number = 0;
    request->is_sorted = true;
    request->last_ns = UINT64_MAX;
    handoff_each_lease(request->stage->replica, list_lease, request);
}

static void stop(struct request *request)
{
    loop_stop(request->stage->loop);
}

static uint64_t leases_of(struct stage *stage)
{
    struct request request = {0};
    ask(stage, &request, count_leases);
    return request.number;
}

/* Leases change when the loop sees the hang-up: waits for it, but not for ever. */
static void assert_leases_become(struct stage *stage, uint64_t expected)
{
    for (int i = 0; i < ANSWER_MS && leases_of(stage) != expected; i++)
        usleep(1000);
    assert_int_equal(leases_of(stage), expected);
}

static void *run_loop(void *data)
{
    loop_run(((struct stage *)data)->loop);
    return NULL;
}

/* A replica without a load: one page that begins with "weights". */
static void make_replica(struct stage *stage)
{
    static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
    unsigned char file[8 + sizeof header - 1 + 8] = {sizeof header - 1};
    struct artifact *artifact;
    struct error error;
    struct replica parts = {0};
    memcpy(file + 8, header, sizeof header - 1);
    source_memory_put("m", "model.safetensors", file, sizeof file);
    assert_int_equal(artifact_resolve("memory:m", &(struct source_options){0}, NULL, false, &artifact, &error), 0);
    parts.mapping = mapping_build(&(struct view_spec){.whole = true, .align_bytes = 64}, artifact, &error);
    assert_non_null(parts.mapping);
    artifact_unref(artifact);
    assert_int_equal(device_allocate(stage->device, 8, &parts.segment, &error), 0);
    memcpy(parts.segment->host_address, "weights", 8);
    assert_int_equal(device_seal(parts.segment, &error), 0);
    stage->replica = replica_add(stage->replicas, &parts);
}

static int open_stage(void **state)
{
    struct stage *stage = calloc(1, sizeof *stage);
    struct error error;
    strcpy(stage->folder, "/tmp/tc-handoff-XXXXXX");
    assert_non_null(mkdtemp(stage->folder));
    snprintf(stage->path, sizeof stage->path, "%s/h", stage->folder);
    stage->loop = loop_create();
    stage->quota = quota_create();
    stage->device = device_host_create(0);
    stage->replicas = replica_table_create(stage->loop, REPLICA_MEMORY_HOST, &(struct replica_limits){1 << 20, 60000, 10});
    make_replica(stage);
    struct handoff_options options = {.loop = stage->loop,
                                      .socket_path = stage->path,
                                      .socket_mode = 0600,
                                      .socket_group = "",
                                      .max_connections_per_uid = SILENT_CAP,
                                      .quota = stage->quota,
                                      .listen_fd = -1};
    assert_int_equal(handoff_create(&options, &stage->handoff, &error), 0);
    assert_int_equal(pthread_create(&stage->thread, NULL, run_loop, stage), 0);
    *state = stage;
    return 0;
}

static int close_stage(void **state)
{
    struct stage *stage = *state;
    struct request request = {0};
    ask(stage, &request, stop);
    pthread_join(stage->thread, NULL);
    handoff_destroy(stage->handoff);
    assert_int_equal(access(stage->path, F_OK), -1);
    replica_unpin(stage->replica, stage->replica->uid);
    replica_table_destroy(stage->replicas);
    device_destroy(stage->device);
    loop_destroy(stage->loop);
    assert_int_equal(quota_taken(stage->quota, QUOTA_LEASES) + quota_taken(stage->quota, QUOTA_DESCRIPTORS), 0);
    quota_destroy(stage->quota);
    source_memory_clear();
    rmdir(stage->folder);
    free(stage);
    return 0;
}

static int connect_to(const struct stage *stage)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, stage->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* Receives one answer; returns the descriptor, or -1 when the connection was closed instead. */
static int receive(int fd, struct handoff_answer *answer)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {answer, sizeof *answer};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int memory_fd = -1;
    assert_int_equal(poll(&wait, 1, ANSWER_MS), 1);
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return -1;
    assert_int_equal(got, sizeof *answer);
    assert_non_null(CMSG_FIRSTHDR(&message));
    memcpy(&memory_fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof memory_fd);
    return memory_fd;
}

static int redeem(const struct stage *stage, const void *token, size_t bytes, int *connection)
{
    struct handoff_answer answer;
    *connection = connect_to(stage);
    assert_int_equal(send(*connection, token, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
    return receive(*connection, &answer);
}

static struct request new_token(struct stage *stage, uint64_t connection, uid_t uid)
{
    struct request request = {.connection = connection, .uid = uid};
    ask(stage, &request, grant);
    return request;
}

static void a_token_buys_the_memory_and_the_connection_is_the_lease(void **state)
{
    struct stage *stage = *state;
    struct handoff_answer answer;
    struct stat size;
    struct request request = new_token(stage, 1, getuid());
    int fd = connect_to(stage);
    assert_int_equal(send(fd, request.token, sizeof request.token, 0), HANDOFF_TOKEN_BYTES);
    int memory_fd = receive(fd, &answer);
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
    assert_int_equal(leases_of(stage), 1);
    close(fd);
    assert_leases_become(stage, 0);
    assert_string_equal(memory, "weights"); /* the mapping outlives the lease */
    munmap(memory, answer.memory_bytes);
    close(memory_fd);
}

static void grant_fails(struct request *request)
{
    struct error error;
    assert_int_equal(handoff_grant(request->stage->handoff, request->stage->replica, request->uid, request->connection,
                                   request->token, &error),
                     -1);
    assert_int_equal(error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(error.reason, "LEASES_EXCEEDED");
}

static void a_user_has_no_more_leases_than_its_share_tokens_included(void **state)
{
    struct stage *stage = *state;
    struct request refused = {.uid = getuid()}, other = {.uid = 12345};
    int fds[4], connections[4];
    quota_set_limits(stage->quota, QUOTA_LEASES, 100, 4);
    struct request first = new_token(stage, 1, getuid());
    for (int i = 1; i < 4; i++) {
        struct request request = new_token(stage, 1, getuid());
        fds[i] = redeem(stage, request.token, sizeof request.token, &connections[i]);
        assert_true(fds[i] >= 0);
    }
    ask(stage, &refused, grant_fails);
    ask(stage, &other, grant);                                                /* of another user's share */
    fds[0] = redeem(stage, first.token, sizeof first.token, &connections[0]); /* its token has its place */
    assert_true(fds[0] >= 0);
    assert_int_equal(quota_taken(stage->quota, QUOTA_LEASES), 5);
    ask(stage, &refused, grant_fails);
    int silent = connect_to(stage); /* no token: there is no place for it */
    struct handoff_answer answer;
    assert_int_equal(receive(silent, &answer), -1);
    close(silent);
    for (int i = 0; i < 4; i++) {
        close(fds[i]);
        close(connections[i]);
    }
    assert_leases_become(stage, 0);
    assert_int_equal(quota_taken(stage->quota, QUOTA_LEASES), 1);
    assert_int_equal(quota_taken(stage->quota, QUOTA_DESCRIPTORS), 1);
}

static void add_replica(struct request *request)
{
    make_replica(request->stage);
}

static void list_often(struct request *request)
{
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < 200000; i++)
        list_leases(request);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    request->number = (uint64_t)((to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000);
}

/* Listing those of every replica must not take replicas x leases. */
static void leases_are_listed_by_replica_without_a_walk_over_others(void **state)
{
    enum { LEASES = 600 };
    struct stage *stage = *state;
    struct replica *replicas[3] = {stage->replica};
    struct request request = {0};
    int fds[LEASES];
    for (int i = 1; i < 3; i++) {
        ask(stage, &request, add_replica);
        replicas[i] = stage->replica;
    }
    for (int i = 0; i < LEASES; i++) { /* the third has none */
        stage->replica = replicas[i % 2];
        struct request token = new_token(stage, 1, getuid());
        close(redeem(stage, token.token, sizeof token.token, &fds[i]));
    }
    for (int i = 0; i < LEASES; i += 3)
        close(fds[i]);
    for (int i = 0; i < 3; i++) {
        stage->replica = replicas[i];
        for (int ms = 0; ms < ANSWER_MS; ms++) {
            ask(stage, &request, list_leases);
            if (request.number == (i < 2 ? LEASES / 3 : 0))
                break;
            usleep(1000);
        }
        assert_int_equal(request.number, i < 2 ? LEASES / 3 : 0);
        assert_true(request.is_sorted);
    }
    ask(stage, &request, list_often);
    assert_in_range(request.number, 0, 100); /* ms of the loop; a walk over all took 500 */
    for (int i = 0; i < LEASES; i++)
        if (i % 3)
            close(fds[i]);
    stage->replica = replicas[0];
    assert_leases_become(stage, 0);
}

static void a_token_works_once(void **state)
{
    struct stage *stage = *state;
    struct request request = new_token(stage, 1, getuid());
    int first, second;
    int memory_fd = redeem(stage, request.token, sizeof request.token, &first);
    assert_true(memory_fd >= 0);
    assert_int_equal(redeem(stage, request.token, sizeof request.token, &second), -1);
    assert_int_equal(leases_of(stage), 1);
    close(memory_fd);
    close(first);
    close(second);
}

static void wrong_short_and_long_tokens_are_closed_on(void **state)
{
    struct stage *stage = *state;
    struct request request = new_token(stage, 1, getuid());
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
    assert_int_equal(leases_of(stage), 0);
}

static void somebody_elses_token_is_refused_and_stays_good_for_its_owner(void **state)
{
    struct stage *stage = *state;
    struct request request = new_token(stage, 1, getuid() + 1);
    int fd;
    assert_int_equal(redeem(stage, request.token, sizeof request.token, &fd), -1);
    close(fd);
    struct request pending = {0};
    ask(stage, &pending, count_pending);
    assert_int_equal(pending.number, 1);
}

static void a_token_dies_with_its_rpc_connection(void **state)
{
    struct stage *stage = *state;
    struct request kept = new_token(stage, 1, getuid()), lost = new_token(stage, 2, getuid());
    int fd;
    struct request gone = {.connection = 2};
    ask(stage, &gone, revoke_connection);
    assert_int_equal(redeem(stage, lost.token, sizeof lost.token, &fd), -1);
    close(fd);
    int memory_fd = redeem(stage, kept.token, sizeof kept.token, &fd);
    assert_true(memory_fd >= 0);
    close(memory_fd);
    close(fd);
}

static void a_leaseholder_that_talks_on_loses_its_lease(void **state)
{
    struct stage *stage = *state;
    struct request request = new_token(stage, 1, getuid());
    int fd;
    int memory_fd = redeem(stage, request.token, sizeof request.token, &fd);
    assert_int_equal(send(fd, "more", 4, MSG_NOSIGNAL), 4);
    assert_leases_become(stage, 0);
    close(memory_fd);
    close(fd);
}

static void silent_peers_are_capped_and_leaseholders_do_not_count(void **state)
{
    struct stage *stage = *state;
    int leases[SILENT_CAP], silent[SILENT_CAP + 1];
    struct handoff_answer answer;
    for (int i = 0; i < SILENT_CAP; i++) {
        struct request request = new_token(stage, 1, getuid());
        int memory_fd = redeem(stage, request.token, sizeof request.token, &leases[i]);
        assert_true(memory_fd >= 0);
        close(memory_fd);
    }
    for (int i = 0; i <= SILENT_CAP; i++)
        silent[i] = connect_to(stage);
    assert_int_equal(receive(silent[SILENT_CAP], &answer), -1); /* the surplus one */
    assert_int_equal(recv(silent[0], &answer, sizeof answer, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    for (int i = 0; i <= SILENT_CAP; i++)
        close(silent[i]);
    for (int i = 0; i < SILENT_CAP; i++)
        close(leases[i]);
    assert_leases_become(stage, 0);
}

/* --- memory that a client offers --------------------------------------------------------------------------------------- */

static struct handoff_region good_offer(uint32_t kind)
{
    struct handoff_region offer = {
        .version = HANDOFF_VERSION, .kind = kind, .allocation_bytes = 4096, .offset = 64, .bytes = 1000, .ipc = {7, 8, 9}};
    memcpy(offer.magic, HANDOFF_REGION_MAGIC, sizeof offer.magic);
    return offer;
}

/* On a new connection, with that many copies of a descriptor. */
static int send_first(const struct stage *stage, const void *text, size_t bytes, const int *fds, size_t n_fds)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)text, bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    int fd = connect_to(stage);
    if (n_fds) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header =
            (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n_fds * sizeof(int))};
        memcpy(CMSG_DATA(header), fds, n_fds * sizeof *fds);
    }
    assert_int_equal(sendmsg(fd, &message, MSG_NOSIGNAL), (ssize_t)bytes);
    return fd;
}

static int offer_memory(const struct stage *stage, const void *offer, size_t bytes, int memory_fd, size_t n_fds)
{
    const int fds[4] = {memory_fd, memory_fd, memory_fd, memory_fd};
    return send_first(stage, offer, bytes, fds, n_fds);
}

/* What comes next on the connection: 0 = it was closed. */
static ssize_t next_message(int fd, void *to, size_t bytes)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, ANSWER_MS), 1);
    return recv(fd, to, bytes, 0);
}

static struct device_region *take(struct stage *stage, const unsigned char *token, uid_t uid)
{
    struct request request = {.uid = uid};
    memcpy(request.token, token, sizeof request.token);
    ask(stage, &request, take_region);
    if (!request.region)
        assert_string_equal(request.reason, "REGION_UNKNOWN");
    return request.region;
}

static void an_offer_buys_a_token_and_ends_with_the_regions_end(void **state)
{
    struct stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES + 1];
    for (uint32_t kind = HANDOFF_REGION_FD; kind <= HANDOFF_REGION_IPC; kind++) {
        struct handoff_region offer = good_offer(kind);
        int fd = offer_memory(stage, &offer, sizeof offer, fileno(stderr), kind == HANDOFF_REGION_FD);
        assert_int_equal(next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
        struct device_region *region = take(stage, token, getuid());
        assert_non_null(region);
        assert_int_equal(region->kind, kind == HANDOFF_REGION_FD ? DEVICE_REGION_FD : DEVICE_REGION_IPC);
        assert_int_equal(region->memory_fd >= 0, kind == HANDOFF_REGION_FD);
        assert_int_equal(region->allocation_bytes, 4096);
        assert_int_equal(region->offset, 64);
        assert_int_equal(region->bytes, 1000);
        assert_memory_equal(region->ipc, offer.ipc, sizeof offer.ipc);
        assert_null(take(stage, token, getuid())); /* once */
        assert_int_equal(recv(fd, token, sizeof token, MSG_DONTWAIT), -1);
        device_region_close(region);
        assert_int_equal(next_message(fd, token, sizeof token), 0);
        close(fd);
    }
}

static int sealed_memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void the_size_of_an_offered_memfd_is_its_own_and_its_identity_is_kept(void **state)
{
    struct stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = good_offer(HANDOFF_REGION_HOST);
    struct device_region *regions[2];
    int memory = sealed_memfd(12345, F_SEAL_SHRINK), fds[2];
    for (size_t i = 0; i < 2; i++) {
        fds[i] = offer_memory(stage, &offer, sizeof offer, memory, 1);
        assert_int_equal(next_message(fds[i], token, sizeof token), HANDOFF_TOKEN_BYTES);
        regions[i] = take(stage, token, getuid());
        assert_non_null(regions[i]);
        assert_int_equal(regions[i]->kind, DEVICE_REGION_HOST);
        assert_int_equal(regions[i]->bytes, 12345);
        assert_int_equal(regions[i]->offset, 0);
    }
    assert_int_not_equal(regions[0]->memory_inode, 0);
    assert_int_equal(regions[0]->memory_inode, regions[1]->memory_inode);
    assert_int_equal(regions[0]->memory_device, regions[1]->memory_device);
    regions[0]->next = regions[1];
    device_region_close(regions[0]); /* and what is behind it */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(next_message(fds[i], token, sizeof token), 0);
        close(fds[i]);
    }
    close(memory);
}

static void an_offered_descriptor_that_cannot_be_filled_is_refused_and_its_connection_closed(void **state)
{
    struct stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = good_offer(HANDOFF_REGION_HOST);
    int bad[] = {sealed_memfd(4096, 0), sealed_memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE), sealed_memfd(0, F_SEAL_SHRINK),
                 open("/dev/null", O_RDWR | O_CLOEXEC)};
    static const char *const reasons[] = {"REGION_CAN_SHRINK", "REGION_IS_SEALED", "REGION_EMPTY", "REGION_NOT_MEMFD"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = offer_memory(stage, &offer, sizeof offer, bad[i], 1);
        assert_int_equal(next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
        struct request request = {.uid = getuid()};
        memcpy(request.token, token, sizeof request.token);
        ask(stage, &request, take_region);
        assert_null(request.region);
        assert_string_equal(request.reason, reasons[i]);
        assert_int_equal(next_message(fd, token, sizeof token), 0);
        close(fd);
        close(bad[i]);
    }
}

static void somebody_elses_region_is_not_given(void **state)
{
    struct stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = good_offer(HANDOFF_REGION_IPC);
    int fd = offer_memory(stage, &offer, sizeof offer, -1, 0);
    assert_int_equal(next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
    assert_null(take(stage, token, getuid() + 1));
    token[0] ^= 1;
    assert_null(take(stage, token, getuid()));
    token[0] ^= 1;
    struct device_region *region = take(stage, token, getuid());
    assert_non_null(region);
    device_region_close(region);
    close(fd);
}

static void an_offer_dies_with_its_connection_or_by_talking_on(void **state)
{
    struct stage *stage = *state;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region offer = good_offer(HANDOFF_REGION_IPC);
    for (int i = 0; i < 2; i++) {
        int fd = offer_memory(stage, &offer, sizeof offer, -1, 0);
        assert_int_equal(next_message(fd, token, sizeof token), HANDOFF_TOKEN_BYTES);
        if (i == 0)
            shutdown(fd, SHUT_WR);
        else
            assert_int_equal(send(fd, "more", 4, MSG_NOSIGNAL), 4);
        assert_true(next_message(fd, token, sizeof token) <= 0); /* unread words make it a reset */
        assert_null(take(stage, token, getuid()));
        close(fd);
    }
}

static void count_replica(void *count, const struct replica *replica)
{
    (void)replica;
    ++*(uint64_t *)count;
}

static void add_lent_replica(struct request *request)
{
    struct stage *stage = request->stage;
    struct replica parts = {.key = stage->replica->key};
    struct error error;
    parts.key.view_digest[0] = 'x';
    parts.mapping = mapping_build(&(struct view_spec){.whole = true, .align_bytes = 64},
                                  (struct artifact *)stage->replica->mapping->artifact, &error);
    assert_int_equal(device_allocate(stage->device, 8, &parts.segment, &error), 0);
    parts.segment->region = calloc(1, sizeof *parts.segment->region);
    parts.segment->region->memory_fd = parts.segment->region->lease_fd = -1;
    struct replica *replica = replica_add(stage->replicas, &parts);
    assert_null(replica_find(stage->replicas, &parts.key));
    replica_unpin(replica, replica->uid);
    replica_each(stage->replicas, count_replica, &request->number);
}

static void a_replica_in_a_clients_memory_is_not_found_and_goes_with_its_last_pin(void **state)
{
    struct stage *stage = *state;
    struct request request = {0};
    ask(stage, &request, add_lent_replica);
    assert_int_equal(request.number, 1); /* the stage's own */
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Descriptors of clients are closed on other threads, those of the test before this one, too. */
static void wait_for_closing(void)
{
    for (int i = 0; i < ANSWER_MS && foreign_fd_open(getuid()); i++)
        usleep(1000);
}

static void malformed_offers_are_closed_on_and_leave_no_descriptor(void **state)
{
    struct stage *stage = *state;
    struct handoff_region offers[6];
    unsigned char longer[sizeof offers[0] + 1] = {0}, token[HANDOFF_TOKEN_BYTES];
    for (size_t i = 0; i < 6; i++)
        offers[i] = good_offer(i == 4 ? HANDOFF_REGION_IPC : HANDOFF_REGION_FD);
    offers[0].magic[0] = 'X';
    offers[1].version++;
    offers[2].kind = 4;
    offers[3].reserved = 1; /* 4: a handle, and a descriptor all the same; 5: good, with none or too many of them */
    wait_for_closing();
    size_t before = count_descriptors();
    for (size_t i = 0; i < 5; i++) {
        int fd = offer_memory(stage, &offers[i], sizeof offers[i], fileno(stderr), 1);
        assert_int_equal(next_message(fd, token, sizeof token), 0);
        close(fd);
    }
    int without = offer_memory(stage, &offers[5], sizeof offers[5], -1, 0);
    assert_int_equal(next_message(without, token, sizeof token), 0);
    close(without);
    int with_many = offer_memory(stage, &offers[5], sizeof offers[5], fileno(stderr), 4);
    assert_true(next_message(with_many, token, sizeof token) <= 0); /* a reset, since it was not read */
    close(with_many);
    memcpy(longer, &offers[5], sizeof offers[5]);
    for (size_t bytes = sizeof longer; bytes > sizeof longer - 3; bytes -= 2) {
        int fd = offer_memory(stage, longer, bytes, fileno(stderr), 1);
        assert_int_equal(next_message(fd, token, sizeof token), 0);
        close(fd);
    }
    struct request request = new_token(stage, 1, getuid());
    int lease = offer_memory(stage, request.token, sizeof request.token, fileno(stderr), 1);
    struct handoff_answer answer;
    close(receive(lease, &answer)); /* a descriptor beside a token is dropped */
    close(lease);
    assert_leases_become(stage, 0);
    wait_for_closing();
    assert_true(count_descriptors() <= before);
}

#define STAGED(test) cmocka_unit_test_setup_teardown(test, open_stage, close_stage)

/* Who drops a second one closes it, perhaps as the last. */
static void a_second_descriptor_is_not_closed_by_the_loop(void **state)
{
    struct stage *stage = *state;
    struct handoff_region offer = good_offer(HANDOFF_REGION_FD);
    struct request request = new_token(stage, 1, getuid()), late;
    int other_sides[2], fds[2] = {fileno(stderr)}, connection;
    fds[1] = lingering(&other_sides[0]);
    int with_offer = send_first(stage, &offer, sizeof offer, fds, 2);
    foreign_fd_close(fds[1], getuid() + 1);
    fds[1] = lingering(&other_sides[1]);
    int with_token = send_first(stage, request.token, sizeof request.token, fds, 2);
    foreign_fd_close(fds[1], getuid() + 1);
    assert_true(next_message(with_offer, &offer, sizeof offer) <= 0);
    assert_true(next_message(with_token, &offer, sizeof offer) <= 0);
    late = new_token(stage, 2, getuid());
    int fd = redeem(stage, late.token, sizeof late.token, &connection);
    assert_true(fd >= 0);
    close(fd);
    close(connection);
    close(with_offer);
    close(with_token);
    reset(other_sides[0]);
    reset(other_sides[1]);
    wait_for_closing();
    ask(stage, &request, revoke_connection);
}

static void grant_is_too_many(struct request *request)
{
    struct error error;
    assert_int_equal(handoff_grant(request->stage->handoff, request->stage->replica, request->uid, request->connection,
                                   request->token, &error),
                     -1);
    assert_string_equal(error.reason, "TOO_MANY_TOKENS");
}

static void a_user_has_4096_tokens_and_not_one_more(void **state)
{
    struct stage *stage = *state;
    struct request one_more = {.uid = 12345, .connection = 1};
    for (int i = 0; i < 4096; i++)
        new_token(stage, 1, 12345);
    ask(stage, &one_more, grant_is_too_many);
    new_token(stage, 2, 12346); /* another user has room */
    ask(stage, &one_more, revoke_connection);
    new_token(stage, 1, 12345);
    for (one_more.connection = 1; one_more.connection <= 2; one_more.connection++)
        ask(stage, &one_more, revoke_connection);
}

/* The thread's user, which the socket tells of its peer; the loop's thread stays who it is. */
static int connect_as(const struct stage *stage, uid_t uid)
{
    assert_int_equal(chmod(stage->folder, 0755) | chmod(stage->path, 0666), 0);
    assert_int_equal(syscall(SYS_setresuid, -1, uid, -1), 0);
    int fd = connect_to(stage);
    assert_int_equal(syscall(SYS_setresuid, -1, 0, -1), 0);
    return fd;
}

static bool is_answered_within(int fd, int ms)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms) == 1;
}

/* Four threads close for one user at most: the others wait for them. */
static void a_user_whose_descriptors_do_not_close_is_held_until_they_do(void **state)
{
    enum { UNCLOSED = 64, HANGING = 4, MALLORY = 70001, ALICE = 70002, SHORT_MS = 100 };
    struct stage *stage = *state;
    struct handoff_answer answer;
    int hanging[HANGING], fd;
    if (geteuid() != 0)
        skip();
    for (int i = 0; i < UNCLOSED; i++)
        foreign_fd_close(i < HANGING ? hanging[i] = hanging_fd() : dup(STDIN_FILENO), MALLORY);
    assert_int_equal(foreign_fd_open(MALLORY), UNCLOSED);
    struct request request = new_token(stage, 1, MALLORY), other = new_token(stage, 1, ALICE);
    int held = connect_as(stage, MALLORY), leaving = connect_as(stage, MALLORY), free = connect_as(stage, ALICE);
    assert_int_equal(send(held, request.token, sizeof request.token, MSG_NOSIGNAL), sizeof request.token);
    assert_int_equal(send(free, other.token, sizeof other.token, MSG_NOSIGNAL), sizeof other.token);
    assert_true((fd = receive(free, &answer)) >= 0);
    close(fd);
    close(leaving);
    assert_false(is_answered_within(held, SHORT_MS));
    for (int i = 0; i < HANGING; i++)
        release_fd(hanging[i]);
    assert_true((fd = receive(held, &answer)) >= 0);
    close(fd);
    close(held);
    close(free);
    for (int i = 0; i < ANSWER_MS && foreign_fd_open(MALLORY); i++)
        usleep(1000);
    assert_int_equal(foreign_fd_open(MALLORY), 0);
}

static void root_and_the_daemons_user_are_not_held(void **state)
{
    enum { UNCLOSED = 80, HANGING = 4 };
    struct stage *stage = *state;
    int hanging[HANGING], connection;
    for (int i = 0; i < UNCLOSED; i++)
        foreign_fd_close(i < HANGING ? hanging[i] = hanging_fd() : dup(STDIN_FILENO), getuid());
    struct request request = new_token(stage, 1, getuid());
    int fd = redeem(stage, request.token, sizeof request.token, &connection);
    assert_true(fd >= 0);
    close(fd);
    close(connection);
    for (int i = 0; i < HANGING; i++)
        release_fd(hanging[i]);
    for (int i = 0; i < ANSWER_MS && foreign_fd_open(getuid()); i++)
        usleep(1000);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        STAGED(a_token_buys_the_memory_and_the_connection_is_the_lease),
        STAGED(a_user_has_no_more_leases_than_its_share_tokens_included),
        STAGED(a_user_has_4096_tokens_and_not_one_more),
        STAGED(a_user_whose_descriptors_do_not_close_is_held_until_they_do),
        STAGED(root_and_the_daemons_user_are_not_held),
        STAGED(a_second_descriptor_is_not_closed_by_the_loop),
        STAGED(leases_are_listed_by_replica_without_a_walk_over_others),
        STAGED(a_token_works_once),
        STAGED(wrong_short_and_long_tokens_are_closed_on),
        STAGED(somebody_elses_token_is_refused_and_stays_good_for_its_owner),
        STAGED(a_token_dies_with_its_rpc_connection),
        STAGED(a_leaseholder_that_talks_on_loses_its_lease),
        STAGED(silent_peers_are_capped_and_leaseholders_do_not_count),
        STAGED(an_offer_buys_a_token_and_ends_with_the_regions_end),
        STAGED(the_size_of_an_offered_memfd_is_its_own_and_its_identity_is_kept),
        STAGED(an_offered_descriptor_that_cannot_be_filled_is_refused_and_its_connection_closed),
        STAGED(somebody_elses_region_is_not_given),
        STAGED(an_offer_dies_with_its_connection_or_by_talking_on),
        STAGED(a_replica_in_a_clients_memory_is_not_found_and_goes_with_its_last_pin),
        STAGED(malformed_offers_are_closed_on_and_leave_no_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
