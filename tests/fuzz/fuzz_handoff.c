/* What clients say on the hand-off socket: connections come and go, send tokens, offers of memory and anything else, with
 * and without descriptors, in any order.
 *
 * Memory is given for a granted token and for nothing else, once each; when all clients have left, no lease, no descriptor
 * and no token of an offer is left either.
 *
 * The input: operations of two bytes, which client does what, each followed by what it needs. Reaches handoff.c and
 * foreign_fd.c. */
#include <endian.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/foreign_fd.h"
#include "base/loop.h"
#include "observe/log.h"
#include "replica/handoff.h"
#include "tests/support/source_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CLIENTS = 4, MOST_OPERATIONS = 64, MOST_BYTES = 200, CONNECTION = 7, TURNS = 4, WAIT_MS = 5000 };
enum client_operation {
    CONNECT,
    SEND_RAW,
    SEND_RAW_WITH_FD,
    SEND_TOKEN,
    SEND_OFFER,
    SEND_OFFER_WITH_FD,
    HANG_UP,
    TAKE,
    N_OPERATIONS
};

struct client {
    int fd; /* -1 = not connected */
    bool may_have_memory;
    unsigned char offer_token[HANDOFF_TOKEN_BYTES]; /* as the daemon sent it; all zero = none */
};

static struct stage {
    struct loop *loop;
    struct handoff *handoff;
    struct replica_table *replicas;
    struct replica *replica;
    char path[64];
    int memory_fd;
} stage;

static void demand(bool is_so)
{
    if (!is_so)
        abort();
}

static void make_replica(void)
{
    static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
    unsigned char file[8 + sizeof header - 1 + 8] = {sizeof header - 1};
    struct artifact *artifact;
    struct error error;
    struct replica parts = {.uid = getuid()};
    memcpy(file + 8, header, sizeof header - 1);
    source_memory_put("m", "model.safetensors", file, sizeof file);
    demand(artifact_resolve("memory:m", &(struct source_options){0}, NULL, false, &artifact, &error) == 0);
    parts.mapping = mapping_build(&(struct view_spec){.whole = true, .align_bytes = 64}, artifact, &error);
    artifact_unref(artifact);
    demand(device_allocate(device_host_create(0), 8, &parts.segment, &error) == 0);
    demand(device_seal(parts.segment, &error) == 0);
    stage.replica = replica_add(stage.replicas, &parts);
}

static void open_stage(void)
{
    char folder[] = "/tmp/fuzz-handoff-XXXXXX";
    struct error error;
    log_set_level(LOG_ERROR);
    demand(mkdtemp(folder) != NULL);
    snprintf(stage.path, sizeof stage.path, "%s/h", folder);
    stage.loop = loop_create();
    stage.replicas = replica_table_create(stage.loop, REPLICA_MEMORY_HOST, &(struct replica_limits){1 << 20, 60000, 10});
    make_replica();
    stage.memory_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct handoff_options options = {.loop = stage.loop,
                                      .socket_path = stage.path,
                                      .socket_mode = 0600,
                                      .socket_group = "",
                                      .max_connections_per_uid = CLIENTS,
                                      .listen_fd = -1};
    demand(handoff_create(&options, &stage.handoff, &error) == 0);
}

static void stop(struct loop_task *task)
{
    (void)task;
    loop_stop(stage.loop);
}

static void turn(void)
{
    for (int i = 0; i < TURNS; i++) {
        struct loop_task task = {.run = stop};
        loop_post(stage.loop, &task);
        loop_run(stage.loop);
    }
}

static void hang_up(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    *client = (struct client){.fd = -1};
}

static void connect_to(struct client *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    hang_up(client);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", stage.path);
    client->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    demand(connect(client->fd, (struct sockaddr *)&address, sizeof address) == 0);
}

static void send_to(const struct client *client, const void *bytes, size_t size, bool with_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {(void *)bytes, size};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (with_fd) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(header), &stage.memory_fd, sizeof stage.memory_fd);
    }
    if (client->fd >= 0)
        sendmsg(client->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Takes what the daemon sent: memory, a token for an offer, or the end. */
static void hear(struct client *client)
{
    unsigned char bytes[sizeof(struct handoff_answer) + 1];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {bytes, sizeof bytes};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    ssize_t n = client->fd < 0 ? -1 : recvmsg(client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    demand(n == sizeof(struct handoff_answer) && n == HANDOFF_TOKEN_BYTES);
    if (!header) {
        memcpy(client->offer_token, bytes, HANDOFF_TOKEN_BYTES);
        return;
    }
    int fd;
    demand(client->may_have_memory && memcmp(bytes, HANDOFF_MAGIC, 4) == 0);
    client->may_have_memory = false;
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    close(fd);
}

/* A granted token, in which the input may change bits. */
static void send_token(struct client *client, uint8_t at, uint8_t flip)
{
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct error error;
    demand(handoff_grant(stage.handoff, stage.replica, getuid(), CONNECTION, token, &error) == 0);
    token[at % sizeof token] ^= flip;
    client->may_have_memory |= flip == 0;
    send_to(client, token, sizeof token, false);
}

/* A good one, in which the input may change a byte. */
static void send_offer(const struct client *client, uint8_t at, uint8_t flip, bool with_fd)
{
    struct handoff_region offer = {.version = htole32(HANDOFF_VERSION),
                                   .kind = htole32(with_fd ? HANDOFF_REGION_FD : HANDOFF_REGION_IPC),
                                   .allocation_bytes = htole64(4096),
                                   .bytes = htole64(4096)};
    memcpy(offer.magic, HANDOFF_REGION_MAGIC, sizeof offer.magic);
    ((unsigned char *)&offer)[at % sizeof offer] ^= flip;
    send_to(client, &offer, sizeof offer, with_fd);
}

static void take(const struct client *client)
{
    static const unsigned char none[HANDOFF_TOKEN_BYTES];
    struct device_region *region;
    struct error error;
    bool has_offered = memcmp(client->offer_token, none, sizeof none) != 0;
    if (handoff_take_region(stage.handoff, client->offer_token, HANDOFF_TOKEN_BYTES, getuid(), &region, &error) != 0)
        return;
    demand(has_offered);
    device_region_close(region);
}

/* The number of bytes used. */
static size_t operate(struct client *client, enum client_operation operation, const uint8_t *data, size_t size)
{
    uint8_t at = size > 0 ? data[0] : 0, flip = size > 1 ? data[1] : 0;
    size_t n = at < MOST_BYTES ? at : MOST_BYTES;
    switch (operation) {
    case CONNECT:
        connect_to(client);
        return 0;
    case SEND_RAW:
    case SEND_RAW_WITH_FD:
        n = size > 0 && n > size - 1 ? size - 1 : n;
        send_to(client, size > 0 ? data + 1 : data, size > 0 ? n : 0, operation == SEND_RAW_WITH_FD);
        return size > 0 ? 1 + n : 0;
    case SEND_TOKEN:
        send_token(client, at, flip);
        return size > 2 ? 2 : size;
    case SEND_OFFER:
    case SEND_OFFER_WITH_FD:
        send_offer(client, at, flip, operation == SEND_OFFER_WITH_FD);
        return size > 2 ? 2 : size;
    case HANG_UP:
        hang_up(client);
        return 0;
    default:
        take(client);
        return 0;
    }
}

static int lowest_free(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

static void assert_nothing_is_left(int lowest)
{
    turn();
    handoff_revoke(stage.handoff, CONNECTION);
    demand(replica_leases(stage.replicas) == 0 && handoff_pending(stage.handoff) == 0);
    for (int i = 0; i < WAIT_MS && foreign_fd_open(getuid()); i++)
        usleep(1000);
    demand(foreign_fd_open(getuid()) == 0 && lowest_free() == lowest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct client clients[CLIENTS];
    if (!stage.loop)
        open_stage();
    int lowest = lowest_free();
    for (size_t i = 0; i < CLIENTS; i++)
        clients[i] = (struct client){.fd = -1};
    for (int n = 0; n < MOST_OPERATIONS && size >= 2; n++) {
        struct client *client = &clients[data[0] % CLIENTS];
        enum client_operation operation = data[1] % N_OPERATIONS;
        size_t used = 2 + operate(client, operation, data + 2, size - 2);
        data += used;
        size -= used;
        turn();
        for (size_t i = 0; i < CLIENTS; i++)
            hear(&clients[i]);
    }
    for (size_t i = 0; i < CLIENTS; i++)
        hang_up(&clients[i]);
    assert_nothing_is_left(lowest);
    return 0;
}
