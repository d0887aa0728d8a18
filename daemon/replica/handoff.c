/* The hand-off server: accept, check the peer, take one token, answer with one message and one descriptor, then watch the
 * connection until it ends. A peer that says nothing, says something else or is another user's is closed without a word.
 *
 *     held, while its user's descriptors wait to be closed
 *        v
 *     accepted --token--> lease --hang-up or any further byte--> closed
 *        |  +-----region--> offered --taken by a request--> the connection belongs to the region
 *        |                     | 10 s, hang-up or any further byte
 *        | 10 s, wrong token, wrong uid
 *        +--> closed */
#include "replica/handoff.h"

#include <endian.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/foreign_fd.h"
#include "base/memory.h"
#include "base/unix_listener.h"
#include "client/handoff_wire.h"
#include "device/host_region.h"
#include "observe/log.h"

static enum handoff_sent fail_sending(const char *why)
{
    log_at_of(LOG_ERROR, "handoff_failed", LOG_NOBODY, LOG_TEXT("message", why));
    return HANDOFF_NOT_SENT;
}

/* One message. Fills in what every answer has; n_fds is in it. False with errno. */
static bool send_answer(int fd, struct handoff_answer *answer, const int *fds)
{
    union {
        char bytes[CMSG_SPACE(HANDOFF_MESSAGE_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    size_t bytes = answer->n_fds * sizeof(int);
    struct iovec iov = {.iov_base = answer, .iov_len = sizeof *answer};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    answer->version = HANDOFF_VERSION;
    memcpy(answer->magic, HANDOFF_MAGIC, sizeof answer->magic);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(header), fds, bytes);
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *answer;
}

/* The first message of a connection: there is room. */
static enum handoff_sent send_memory(int fd, struct replica *replica)
{
    struct error error;
    int memory_fd = device_export_fd(replica->segment, &error);
    if (memory_fd < 0)
        return fail_sending(error.message);
    struct handoff_answer answer = {
        .memory_bytes = replica->segment->allocated_bytes, .page_kind = device_page_kind(replica->segment), .n_fds = 1};
    bool is_sent = send_answer(fd, &answer, &memory_fd);
    close(memory_fd);
    return is_sent ? HANDOFF_SENT_ALL : HANDOFF_NOT_SENT;
}

/* A client that is gone is no error of ours; too many descriptors on their way is (ETOOMANYREFS: `ulimit -n`). */
static enum handoff_sent send_files(int fd, struct replica *replica)
{
    struct mapped_files *files = replica->files;
    const struct mapped_view *view = files->view;
    const struct source *source = replica->mapping->artifact->source;
    while (files->n_sent < view->n_files) {
        size_t left = view->n_files - files->n_sent, n = left < HANDOFF_MESSAGE_FDS ? left : HANDOFF_MESSAGE_FDS;
        struct handoff_answer answer = {.page_kind = HANDOFF_FILES, .n_fds = (uint32_t)n};
        for (size_t i = files->n_sent; i < files->n_sent + n; i++)
            answer.memory_bytes += source->files[view->files[i]].size_bytes;
        if (!send_answer(fd, &answer, files->fds + files->n_sent)) {
            bool is_gone = errno == EPIPE || errno == ECONNRESET;
            return errno == EAGAIN ? HANDOFF_SENT_SOME : is_gone ? HANDOFF_NOT_SENT : fail_sending(strerror(errno));
        }
        mapped_files_sent(files, files->n_sent + n);
    }
    return HANDOFF_SENT_ALL;
}

enum handoff_sent handoff_send(int fd, struct replica *replica)
{
    return replica->files ? send_files(fd, replica) : send_memory(fd, replica);
}

enum {
    SWEEP_MS = 1000,
    WARNING_INTERVAL_MS = 1000,
    MAX_UNREDEEMED_PER_UID = 4096,
    MAX_UNCLOSED_PER_UID = 64, /* descriptors that a user sent and that no thread could close yet: with more, it is held */
    HELD_MS = 10,
};

/* What a connection takes of what users share. */
struct seat {
    struct quota_charge lease, descriptors;
};

struct grant {
    struct grant *next;
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct replica *replica;
    uid_t uid;
    struct seat seat; /* of the connection that redeems it */
    uint64_t connection;
    uint64_t expires_ns;
};

struct peer {
    LIST_ENTRY(peer) in_list;
    struct handoff *handoff;
    int fd;
    struct loop_watch *watch;
    uid_t uid;
    pid_t pid;
    struct seat seat;                         /* empty while an unredeemed token of its user has one */
    bool is_held;                             /* what it says is not read yet */
    bool brings_none;                         /* no descriptor of the client's can be in the socket's queue */
    struct replica *lease;                    /* NULL until a token was redeemed */
    uint64_t connected_ns, leased_ns;         /* leased_ns: when it was */
    struct device_region *region;             /* offered and not yet taken; owned */
    unsigned char token[HANDOFF_TOKEN_BYTES]; /* of the offer */
    uint64_t expires_ns;                      /* for a peer without a lease */
};

struct handoff {
    struct loop *loop;
    struct quota *quota;
    uint64_t max_silent_per_uid;
    struct unix_listener *listener;
    struct loop_timer *sweep, *held;
    size_t n_held;
    struct grant *grants;
    LIST_HEAD(, peer) peers, leases; /* leases: those of one replica stand together, so that no walk passes others' */
    uint64_t warned_ns, n_refused;   /* n_refused: since then */
};

static int take_seat(struct handoff *handoff, uid_t uid, struct seat *seat, struct error *error)
{
    *seat = (struct seat){.lease = {.quota = handoff->quota, .kind = QUOTA_LEASES, .uid = uid},
                          .descriptors = {.quota = handoff->quota, .kind = QUOTA_DESCRIPTORS, .uid = uid}};
    if (quota_charge_add(&seat->lease, 1, error) != 0)
        return -1;
    if (quota_charge_add(&seat->descriptors, 1, error) == 0)
        return 0;
    quota_charge_end(&seat->lease);
    return -1;
}

static void leave_seat(struct seat *seat)
{
    quota_charge_end(&seat->lease);
    quota_charge_end(&seat->descriptors);
}

static void destroy_grant(struct grant **at, bool unpin)
{
    struct grant *grant = *at;
    *at = grant->next;
    leave_seat(&grant->seat);
    if (unpin)
        replica_unpin(grant->replica, grant->uid);
    OPENSSL_cleanse(grant, sizeof *grant);
    free(grant);
}

static void unlink_peer(struct peer *peer)
{
    struct replica *replica = peer->lease;
    struct peer *next = LIST_NEXT(peer, in_list);
    if (replica && replica->leases == peer)
        replica->leases = next && next->lease == replica ? next : NULL;
    LIST_REMOVE(peer, in_list);
}

static void free_peer(struct peer *peer)
{
    leave_seat(&peer->seat);
    OPENSSL_cleanse(peer->token, sizeof peer->token);
    free(peer);
}

static void close_peer(struct peer *peer)
{
    peer->handoff->n_held -= peer->is_held;
    unlink_peer(peer);
    loop_watch_destroy(peer->watch);
    foreign_fd_close_socket(peer->fd, peer->uid, peer->brings_none);
    device_region_close(peer->region);
    if (peer->lease) {
        log_debug("lease_ended", LOG_TEXT("artifact", peer->lease->mapping->artifact->reference),
                  LOG_U64("pid", (uint64_t)peer->pid));
        replica_unlend(peer->lease, peer->uid);
    }
    free_peer(peer);
}

static void warn_of_refusal(struct handoff *handoff, const char *reason, uid_t uid, pid_t pid)
{
    uint64_t now = clock_now_ns();
    handoff->n_refused++;
    if (now - handoff->warned_ns < WARNING_INTERVAL_MS * NS_PER_MS)
        return; /* guessed tokens do not fill the log */
    log_at_of(LOG_WARN, "handoff_refused", uid, LOG_TEXT("reason", reason), LOG_U64("pid", (uint64_t)pid),
              LOG_U64("refused", handoff->n_refused));
    handoff->warned_ns = now;
    handoff->n_refused = 0;
}

static void refuse_peer(struct peer *peer, const char *reason)
{
    warn_of_refusal(peer->handoff, reason, peer->uid, peer->pid);
    close_peer(peer);
}

/* The client makes room by receiving. */
static void go_on_sending(struct peer *peer)
{
    enum handoff_sent sent = handoff_send(peer->fd, peer->lease);
    if (sent == HANDOFF_NOT_SENT)
        close_peer(peer);
    else
        loop_watch_change(peer->watch, LOOP_READABLE | LOOP_HANGUP | (sent == HANDOFF_SENT_SOME ? LOOP_WRITABLE : 0));
}

static void redeem(struct peer *peer, const unsigned char token[HANDOFF_TOKEN_BYTES])
{
    /* tokens are compared in constant time; the list is short */
    struct handoff *handoff = peer->handoff;
    struct grant **found = NULL;
    for (struct grant **at = &handoff->grants; *at; at = &(*at)->next)
        if (CRYPTO_memcmp((*at)->token, token, HANDOFF_TOKEN_BYTES) == 0)
            found = at;
    if (!found || (*found)->uid != peer->uid) {
        refuse_peer(peer, found ? "another user's token" : "unknown token");
        return;
    }
    struct replica *replica = (*found)->replica;
    leave_seat(&peer->seat);
    peer->seat = (*found)->seat; /* its seat and its pin are the lease's from here on */
    (*found)->seat = (struct seat){0};
    destroy_grant(found, false);
    unlink_peer(peer);
    peer->lease = replica;
    peer->leased_ns = clock_now_ns();
    if (replica->leases)
        LIST_INSERT_BEFORE(replica->leases, peer, in_list);
    else
        LIST_INSERT_HEAD(&handoff->leases, peer, in_list);
    replica->leases = peer;
    replica_lend(replica, peer->uid);
    go_on_sending(peer);
}

/* --- memory that a client offers --------------------------------------------------------------------------------------- */

union first_message {
    unsigned char token[HANDOFF_TOKEN_BYTES];
    struct handoff_region region;
    unsigned char room[sizeof(struct handoff_region) + 1]; /* a longer one is neither */
};

/* Takes the descriptor when the offer is well-formed. What it says of the memory is checked when that is opened. */
static struct device_region *read_offer(const struct handoff_region *wire, int memory_fd, uid_t owner)
{
    static const enum device_region_kind kinds[] = {[HANDOFF_REGION_FD] = DEVICE_REGION_FD,
                                                    [HANDOFF_REGION_IPC] = DEVICE_REGION_IPC,
                                                    [HANDOFF_REGION_HOST] = DEVICE_REGION_HOST};
    uint32_t kind = le32toh(wire->kind);
    bool is_known = kind >= HANDOFF_REGION_FD && kind <= HANDOFF_REGION_HOST;
    if (!is_known || (memory_fd >= 0) != (kind != HANDOFF_REGION_IPC) ||
        memcmp(wire->magic, HANDOFF_REGION_MAGIC, sizeof wire->magic) != 0 || le32toh(wire->version) != HANDOFF_VERSION ||
        wire->reserved)
        return NULL;
    struct device_region *region = memory_alloc(sizeof *region);
    *region = (struct device_region){.kind = kinds[kind],
                                     .allocation_bytes = le64toh(wire->allocation_bytes),
                                     .offset = le64toh(wire->offset),
                                     .bytes = le64toh(wire->bytes),
                                     .memory_fd = memory_fd,
                                     .lease_fd = -1,
                                     .owner = owner};
    memcpy(region->ipc, wire->ipc, sizeof region->ipc);
    return region;
}

static void accept_offer(struct peer *peer, const struct handoff_region *wire, int memory_fd)
{
    struct error error;
    peer->region = read_offer(wire, memory_fd, peer->uid);
    if (!peer->region) {
        if (memory_fd >= 0)
            foreign_fd_close(memory_fd, peer->uid);
        refuse_peer(peer, "malformed offer of memory");
        return;
    }
    if ((!peer->seat.lease.amount && take_seat(peer->handoff, peer->uid, &peer->seat, &error) != 0) ||
        quota_charge_add(&peer->seat.descriptors, memory_fd >= 0, &error) != 0) {
        refuse_peer(peer, error.message);
        return;
    }
    peer->expires_ns = clock_now_ns() + (uint64_t)HANDOFF_TOKEN_TTL_MS * NS_PER_MS;
    if (getrandom(peer->token, sizeof peer->token, 0) != sizeof peer->token ||
        send(peer->fd, peer->token, sizeof peer->token, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof peer->token)
        close_peer(peer);
}

int handoff_take_region(struct handoff *handoff, const unsigned char *token, size_t token_bytes, uid_t uid,
                        struct device_region **region, struct error *error)
{
    struct peer *peer = NULL, *one;
    LIST_FOREACH (one, &handoff->peers, in_list) /* tokens are compared in constant time */
        if (token_bytes == HANDOFF_TOKEN_BYTES && one->region && CRYPTO_memcmp(one->token, token, token_bytes) == 0)
            peer = one;
    if (!peer || peer->uid != uid)
        return fail(
            error, ERROR_ABORTED, "REGION_UNKNOWN",
            "the request names memory that was not offered on the hand-off socket of this daemon since its start, or "
            "was taken or withdrawn since: offer it again");
    if (peer->region->kind == DEVICE_REGION_HOST && host_region_check(peer->region, error)) {
        close_peer(peer);
        return -1;
    }
    *region = peer->region;
    (*region)->lease_fd = peer->fd;
    (*region)->descriptors = peer->seat.descriptors;
    peer->seat.descriptors = (struct quota_charge){0};
    unlink_peer(peer);
    loop_watch_destroy(peer->watch);
    free_peer(peer);
    return 0;
}

/* --- what a peer says -------------------------------------------------------------------------------------------------- */

/* Takes the first message out of the queue: its length, -1 for nothing yet. A descriptor that came along is the caller's.
 * What has several, or one that there is no room for, is left there (*is_left), and ends with the socket: the kernel closes
 * what it drops in the thread that receives, which may have to wait for that. So a look comes first, and then no descriptor
 * is the last copy. */
static ssize_t receive_first(int fd, union first_message *text, int *memory_fd, bool *is_left)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = text, .iov_len = sizeof *text};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_LEN(sizeof(int))};
    *memory_fd = -1;
    ssize_t got = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *header = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(memory_fd, CMSG_DATA(header), sizeof *memory_fd);
    *is_left = got >= 0 && message.msg_flags & MSG_CTRUNC;
    if (got >= 0 && !*is_left)
        recv(fd, text, sizeof *text, MSG_DONTWAIT);
    return got < 0 && errno != EAGAIN && errno != EINTR ? 0 : got;
}

static void on_first_message(struct peer *peer)
{
    union first_message text;
    int memory_fd;
    bool is_left;
    ssize_t got = receive_first(peer->fd, &text, &memory_fd, &is_left);
    foreign_fd_refuse(peer->fd); /* no further ones: the client has nothing more to say */
    if (!is_left && got == (ssize_t)sizeof text.region) {
        accept_offer(peer, &text.region, memory_fd);
        return;
    }
    if (memory_fd >= 0)
        foreign_fd_close(memory_fd, peer->uid);
    if (is_left)
        refuse_peer(peer, "more descriptors than one, or too many open files");
    else if (got == HANDOFF_TOKEN_BYTES)
        redeem(peer, text.token);
    else if (got > 0)
        refuse_peer(peer, "unknown token");
    else if (got == 0)
        close_peer(peer);
}

static void on_peer(void *data, int events)
{
    struct peer *peer = data;
    if (peer->is_held)
        close_peer(peer); /* it hung up */
    else if (peer->lease && events == LOOP_WRITABLE)
        go_on_sending(peer);
    else if (!peer->lease && !peer->region && !(events & LOOP_HANGUP))
        on_first_message(peer);
    else
        close_peer(peer);
}

/* Each unredeemed token of a user has a seat for one connection, whichever it will be. */
static bool has_free_token(const struct handoff *handoff, uid_t uid)
{
    uint64_t n_tokens = 0, n_waiting = 0;
    for (const struct grant *grant = handoff->grants; grant; grant = grant->next)
        n_tokens += grant->uid == uid;
    for (const struct peer *peer = LIST_FIRST(&handoff->peers); peer && n_tokens; peer = LIST_NEXT(peer, in_list))
        n_waiting += peer->uid == uid && peer->seat.lease.amount == 0;
    return n_tokens > n_waiting;
}

static bool has_many_unclosed(uid_t uid)
{
    return !quota_is_privileged(uid) && foreign_fd_open(uid) >= MAX_UNCLOSED_PER_UID;
}

/* A load into many regions ends with two descriptors for each, and on a busy host it takes a moment until they are closed:
 * that is no reason to turn the next client of the same user away. */
static void release_held(void *data)
{
    struct handoff *handoff = data;
    for (struct peer *peer = LIST_FIRST(&handoff->peers); peer && handoff->n_held; peer = LIST_NEXT(peer, in_list)) {
        if (!peer->is_held || has_many_unclosed(peer->uid))
            continue;
        peer->is_held = false;
        handoff->n_held--;
        loop_watch_change(peer->watch, LOOP_READABLE | LOOP_HANGUP);
    }
    if (!handoff->n_held)
        loop_timer_stop(handoff->held);
}

static void on_accept(void *context, int fd, const struct ucred *credentials)
{
    struct handoff *handoff = context;
    struct seat seat = {0};
    struct error error;
    bool brings_none = foreign_fd_is_refused(fd), must_wait = has_many_unclosed(credentials->uid);
    uint64_t n_silent = 0;
    for (const struct peer *one = LIST_FIRST(&handoff->peers); one; one = LIST_NEXT(one, in_list))
        n_silent += !one->region && one->uid == credentials->uid; /* an offer counts as a lease */
    if (n_silent >= handoff->max_silent_per_uid) {
        foreign_fd_close_socket(fd, credentials->uid, brings_none);
        return;
    }
    if (!has_free_token(handoff, credentials->uid) && take_seat(handoff, credentials->uid, &seat, &error) != 0) {
        warn_of_refusal(handoff, error.message, credentials->uid, credentials->pid);
        foreign_fd_close_socket(fd, credentials->uid, brings_none);
        return;
    }
    struct peer *peer = memory_alloc(sizeof *peer);
    *peer = (struct peer){.handoff = handoff,
                          .fd = fd,
                          .uid = credentials->uid,
                          .pid = credentials->pid,
                          .brings_none = brings_none,
                          .seat = seat,
                          .connected_ns = clock_now_ns(),
                          .expires_ns = clock_now_ns() + (uint64_t)HANDOFF_TOKEN_TTL_MS * NS_PER_MS};
    LIST_INSERT_HEAD(&handoff->peers, peer, in_list);
    peer->watch = loop_watch_create(handoff->loop, fd, LOOP_HANGUP | (must_wait ? 0 : LOOP_READABLE), on_peer, peer);
    if (!peer->watch)
        close_peer(peer);
    else if (must_wait)
        peer->is_held = true;
    if (must_wait && handoff->n_held++ == 0)
        loop_timer_start(handoff->held, HELD_MS, HELD_MS);
}

static void on_shed(void *context, int errno_value)
{
    (void)context;
    log_at_of(LOG_WARN, "accept_failed", LOG_NOBODY, LOG_TEXT("error", strerror(errno_value)),
              LOG_TEXT("socket", "handoff"));
}

static void sweep(void *data)
{
    struct handoff *handoff = data;
    uint64_t now = clock_now_ns();
    for (struct grant **at = &handoff->grants; *at;) {
        if ((*at)->expires_ns <= now)
            destroy_grant(at, true);
        else
            at = &(*at)->next;
    }
    struct peer *next;
    for (struct peer *peer = LIST_FIRST(&handoff->peers); peer; peer = next) {
        next = LIST_NEXT(peer, in_list);
        if (peer->expires_ns <= now && peer->is_held)
            refuse_peer(peer, "descriptors of this user take too long to close");
        else if (peer->expires_ns <= now)
            close_peer(peer);
    }
}

int handoff_create(const struct handoff_options *options, struct handoff **created, struct error *error)
{
    struct handoff *handoff = memory_alloc(sizeof *handoff);
    const struct unix_listener_options listen = {.loop = options->loop,
                                                 .key = "server.handoff_socket_path",
                                                 .type = SOCK_SEQPACKET,
                                                 .path = options->socket_path,
                                                 .mode = options->socket_mode,
                                                 .group = options->socket_group,
                                                 .listen_fd = options->listen_fd,
                                                 .on_accept = on_accept,
                                                 .on_shed = on_shed,
                                                 .context = handoff};
    handoff->loop = options->loop;
    handoff->quota = options->quota;
    handoff->max_silent_per_uid = options->max_connections_per_uid;
    handoff->listener = unix_listener_open(&listen, error);
    if (!handoff->listener) {
        free(handoff);
        return -1;
    }
    handoff->held = loop_timer_create(handoff->loop, release_held, handoff);
    handoff->sweep = loop_timer_create(handoff->loop, sweep, handoff);
    loop_timer_start(handoff->sweep, SWEEP_MS, SWEEP_MS);
    *created = handoff;
    return 0;
}

void handoff_destroy(struct handoff *handoff)
{
    if (!handoff)
        return;
    unix_listener_close(handoff->listener);
    while (!LIST_EMPTY(&handoff->peers))
        close_peer(LIST_FIRST(&handoff->peers));
    while (!LIST_EMPTY(&handoff->leases))
        close_peer(LIST_FIRST(&handoff->leases));
    while (handoff->grants)
        destroy_grant(&handoff->grants, true);
    loop_timer_destroy(handoff->held);
    loop_timer_destroy(handoff->sweep);
    free(handoff);
}

void handoff_set_limits(struct handoff *handoff, uint64_t max_connections_per_uid)
{
    handoff->max_silent_per_uid = max_connections_per_uid;
}

/* Replicas that no client holds make way. */
static int find_seat(struct handoff *handoff, struct replica_table *table, uid_t uid, struct seat *seat, struct error *error)
{
    size_t n_to_evict = 0;
    while (take_seat(handoff, uid, seat, error) != 0)
        if (!replica_make_room(table, uid, error, &n_to_evict))
            return -1;
    return 0;
}

int handoff_grant(struct handoff *handoff, struct replica *replica, uid_t uid, uint64_t connection,
                  unsigned char token[HANDOFF_TOKEN_BYTES], struct error *error)
{
    uint64_t held = 0;
    struct seat seat;
    for (const struct grant *grant = handoff->grants; grant; grant = grant->next)
        held += grant->uid == uid;
    if (held >= MAX_UNREDEEMED_PER_UID)
        return fail(error, ERROR_RESOURCE_EXHAUSTED, "TOO_MANY_TOKENS",
                    "uid %u has %llu hand-off tokens it has not redeemed", uid, (unsigned long long)held);
    if (find_seat(handoff, replica->table, uid, &seat, error) != 0)
        return -1;
    if (getrandom(token, HANDOFF_TOKEN_BYTES, 0) != HANDOFF_TOKEN_BYTES) {
        leave_seat(&seat);
        return fail_errno(error, errno, "getrandom");
    }
    struct grant *grant = memory_alloc(sizeof *grant);
    memcpy(grant->token, token, HANDOFF_TOKEN_BYTES);
    grant->replica = replica;
    grant->uid = uid;
    grant->seat = seat;
    grant->connection = connection;
    grant->expires_ns = clock_now_ns() + (uint64_t)HANDOFF_TOKEN_TTL_MS * NS_PER_MS;
    grant->next = handoff->grants;
    handoff->grants = grant;
    replica_pin(replica, uid);
    return 0;
}

void handoff_revoke(struct handoff *handoff, uint64_t connection)
{
    for (struct grant **at = &handoff->grants; *at;) {
        if ((*at)->connection == connection)
            destroy_grant(at, true);
        else
            at = &(*at)->next;
    }
}

uint64_t handoff_pending(const struct handoff *handoff)
{
    uint64_t pending = 0;
    for (const struct grant *grant = handoff->grants; grant; grant = grant->next)
        pending++;
    return pending;
}

void handoff_each_lease(const struct replica *replica, void (*fn)(void *data, const struct handoff_lease *lease), void *data)
{
    for (const struct peer *peer = replica->leases; peer && peer->lease == replica; peer = LIST_NEXT(peer, in_list))
        fn(data, &(struct handoff_lease){peer->pid, peer->uid, peer->leased_ns, peer->connected_ns});
}
