/* See handoff_stage.h. */
#include "tests/support/handoff_stage.h"

#include "base/foreign_fd.h"
#include "replica/handoff.h"
#include "tests/support/source_memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <poll.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h> /* last: it has a macro called fail */

static void run_request(struct loop_task *task)
{
    struct handoff_question *request = (struct handoff_question *)task;
    request->ask(request);
    pthread_mutex_lock(&request->lock);
    request->is_answered = true;
    pthread_cond_signal(&request->answered);
    pthread_mutex_unlock(&request->lock);
}

void handoff_stage_ask(struct handoff_stage *stage, struct handoff_question *request,
                       void (*question)(struct handoff_question *request))
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

void handoff_stage_grant(struct handoff_question *request)
{
    struct error error;
    assert_int_equal(handoff_grant(request->stage->handoff, request->stage->replica, request->uid, request->connection,
                                   request->token, &error),
                     0);
}

static void handoff_stage_count_leases(struct handoff_question *request)
{
    request->number = replica_leases(request->stage->replicas);
}

static void stop(struct handoff_question *request)
{
    loop_stop(request->stage->loop);
}

uint64_t handoff_stage_leases(struct handoff_stage *stage)
{
    struct handoff_question request = {0};
    handoff_stage_ask(stage, &request, handoff_stage_count_leases);
    return request.number;
}

void handoff_stage_await_leases(struct handoff_stage *stage, uint64_t expected)
{
    for (int i = 0; i < ANSWER_MS && handoff_stage_leases(stage) != expected; i++)
        usleep(1000);
    assert_int_equal(handoff_stage_leases(stage), expected);
}

static void *run_loop(void *data)
{
    loop_run(((struct handoff_stage *)data)->loop);
    return NULL;
}

void make_replica(struct handoff_stage *stage)
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

int handoff_stage_open(void **state)
{
    struct handoff_stage *stage = calloc(1, sizeof *stage);
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

int handoff_stage_close(void **state)
{
    struct handoff_stage *stage = *state;
    struct handoff_question request = {0};
    handoff_stage_ask(stage, &request, stop);
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

int handoff_stage_connect(const struct handoff_stage *stage)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, stage->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

int handoff_stage_receive(int fd, struct handoff_answer *answer)
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

struct handoff_question handoff_stage_token(struct handoff_stage *stage, uint64_t connection, uid_t uid)
{
    struct handoff_question request = {.connection = connection, .uid = uid};
    handoff_stage_ask(stage, &request, handoff_stage_grant);
    return request;
}

struct handoff_region handoff_stage_offer(uint32_t kind)
{
    struct handoff_region offer = {
        .version = HANDOFF_VERSION, .kind = kind, .allocation_bytes = 4096, .offset = 64, .bytes = 1000, .ipc = {7, 8, 9}};
    memcpy(offer.magic, HANDOFF_REGION_MAGIC, sizeof offer.magic);
    return offer;
}

int handoff_stage_send(const struct handoff_stage *stage, const void *text, size_t bytes, const int *fds, size_t n_fds)
{
    union {
        char bytes[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)text, bytes};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    int fd = handoff_stage_connect(stage);
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

ssize_t handoff_stage_next_message(int fd, void *to, size_t bytes)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, ANSWER_MS), 1);
    return recv(fd, to, bytes, 0);
}

void handoff_stage_await_closing(void)
{
    for (int i = 0; i < ANSWER_MS && foreign_fd_open(getuid()); i++)
        usleep(1000);
}
