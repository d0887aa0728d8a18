/* What a client of the gRPC socket sends, from the first byte: the first byte of the input is the size of the pieces (0: all
 * at once; 128 and more: without HTTP/2's greeting before it). The server has health and reflection, so calls with one
 * answer, with many, and with questions are there. However a connection goes, nothing of it stays: no call, no byte that is
 * charged to its user. Reaches rpc_connection.c, rpc_call.c, rpc_reply.c, rpc_message.c and libnghttp2. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "observe/log.h"
#include "rpc/rpc_internal.h"

extern const unsigned char _binary_descriptor_set_binpb_start[], _binary_descriptor_set_binpb_end[];
static const uint8_t greeting[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
enum { GREETING_BYTES = sizeof greeting - 1, MAX_TURNS = 1000, USER = 12345 };

static struct loop *loop;
static struct quota *quota;
static struct rpc_server *server;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

static void start(void)
{
    struct error error;
    char folder[] = "/tmp/fuzz-rpc-XXXXXX", path[64];
    check(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/s", folder);
    loop = loop_create();
    quota = quota_create();
    quota_set_limits(quota, QUOTA_METADATA, 100000, 0);
    quota_set_limits(quota, QUOTA_CALLS, 1000, 20);
    const struct rpc_options options = {.loop = loop,
                                        .socket_path = path,
                                        .socket_mode = 0600,
                                        .socket_group = "",
                                        .max_message_bytes = 60000,
                                        .quota = quota,
                                        .listen_fd = -1,
                                        .descriptor_set = _binary_descriptor_set_binpb_start,
                                        .descriptor_set_bytes =
                                            (size_t)(_binary_descriptor_set_binpb_end - _binary_descriptor_set_binpb_start)};
    check(rpc_server_create(&options, &server, &error) == 0);
    rpc_server_ready(server);
    log_set_level(LOG_ERROR);
    unlink(path);
    rmdir(folder);
}

static void stop_loop(struct loop_task *task)
{
    (void)task;
    loop_stop(loop);
}

/* What is ready now, and what that leads to. */
static void turn(void)
{
    struct loop_task task = {.run = stop_loop};
    loop_post(loop, &task);
    loop_run(loop);
}

static void discard(int fd)
{
    static uint8_t bytes[64 << 10];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static void say(int fd, const uint8_t *bytes, size_t count, size_t piece)
{
    for (size_t at = 0; at < count; at += piece) {
        size_t n = count - at < piece ? count - at : piece;
        if (send(fd, bytes + at, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n)
            return;
        turn();
        discard(fd);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct ucred peer = {.pid = 1, .uid = USER, .gid = USER};
    int ends[2];
    if (!server)
        start();
    if (size < 1)
        return 0;
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    rpc_admission_accept(server, ends[0], &peer);
    if (data[0] < 128)
        say(ends[1], greeting, GREETING_BYTES, GREETING_BYTES);
    size_t piece = data[0] % 128;
    say(ends[1], data + 1, size - 1, piece ? piece : size);
    turn();
    close(ends[1]);
    for (int i = 0; i < MAX_TURNS && (server->n_connections || server->n_calls); i++)
        turn();
    check(server->n_connections == 0 && server->n_calls == 0);
    check(quota_taken(quota, QUOTA_METADATA) == 0 && quota_taken(quota, QUOTA_CALLS) == 0);
    check(quota_taken(quota, QUOTA_CONNECTIONS) == 0 && quota_taken(quota, QUOTA_DESCRIPTORS) == 0);
    return 0;
}
