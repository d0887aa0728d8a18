/* One epoll, one thread, one lock that is held while the sockets of one link are served. What cannot be written waits, and
 * then its source is not read. Events carry the link's serial number, because a descriptor may be another's by the time its
 * event is looked at. */
#include "rpc/rpc_relay.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "observe/log.h"
#include "rpc/http2_guard.h"

enum {
    READ_BYTES = 64 << 10, /* at once; then it is the next link's turn */
    MAX_EVENTS = 64,
    NUMBER_BITS = 20,
    COMPLAINT_INTERVAL_NS = 1000000000,
};

enum side { CLIENT, SERVER };

struct pending { /* what `side` did not take yet */
    unsigned char *bytes;
    size_t at, count;
};

struct end {
    int fd;
    bool at_eof;     /* nothing more comes from it */
    bool is_watched; /* in the epoll */
    uint32_t events;
    struct pending pending; /* for it */
};

struct link {
    struct rpc_link what;
    uint64_t serial;
    struct end ends[2];
    struct http2_guard *guard;
};

struct rpc_relay {
    int epoll, wake;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below, and of every link */
    bool stops;
    int n_numbers;
    uint64_t last_serial, complained_ns, n_unsaid;
    struct link **links; /* by number */
    unsigned char in[READ_BYTES], out[READ_BYTES + HTTP2_GUARD_EXTRA_BYTES];
};

/* --- epoll -------------------------------------------------------------------------------------------------------- */

static uint64_t key_of(const struct link *link, enum side side)
{
    return (link->serial << NUMBER_BITS | (uint64_t)link->what.number) << 1 | (uint64_t)side;
}

static struct link *find_link(const struct rpc_relay *relay, uint64_t key)
{
    struct link *link = relay->links[key >> 1 & ((1u << NUMBER_BITS) - 1)];
    return link && link->serial == key >> 1 >> NUMBER_BITS ? link : NULL;
}

static void unwatch(struct rpc_relay *relay, struct end *end)
{
    if (end->is_watched)
        epoll_ctl(relay->epoll, EPOLL_CTL_DEL, end->fd, NULL);
    end->is_watched = false;
}

static int watch(struct rpc_relay *relay, struct link *link, enum side side, uint32_t events)
{
    struct end *end = &link->ends[side];
    struct epoll_event event = {.events = events, .data.u64 = key_of(link, side)};
    if (end->is_watched && end->events == events)
        return 0;
    end->events = events;
    int failed = epoll_ctl(relay->epoll, end->is_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, end->fd, &event);
    end->is_watched = end->is_watched || !failed;
    return failed;
}

/* An end of which nothing is wanted leaves the epoll, which would tell of its hang-up for ever. */
static void watch_end(struct rpc_relay *relay, struct link *link, enum side side)
{
    struct end *end = &link->ends[side];
    bool client_waits = link->ends[CLIENT].pending.count > 0, server_waits = link->ends[SERVER].pending.count > 0;
    bool may_read = !end->at_eof && !client_waits && (side == SERVER || !server_waits);
    uint32_t events = (may_read ? EPOLLIN : 0) | (end->pending.count ? EPOLLOUT : 0);
    if (events)
        watch(relay, link, side, events);
    else
        unwatch(relay, end);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void drop_pending(struct end *end)
{
    free(end->pending.bytes);
    end->pending = (struct pending){0};
}

/* The other side is gone or is to go: nothing is passed on any more. */
static void close_link(struct rpc_relay *relay, struct link *link)
{
    for (int side = CLIENT; side <= SERVER; side++) {
        unwatch(relay, &link->ends[side]);
        drop_pending(&link->ends[side]);
        link->ends[side].at_eof = true;
        shutdown(link->ends[side].fd, SHUT_RDWR);
    }
}

static size_t send_some(struct end *end, const unsigned char *bytes, size_t count, bool *failed)
{
    ssize_t n;
    do
        n = send(end->fd, bytes, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    *failed = n < 0 && errno != EAGAIN;
    return n < 0 ? 0 : (size_t)n;
}

static bool flush(struct end *end)
{
    struct pending *pending = &end->pending;
    bool failed = false;
    if (pending->count) {
        size_t n = send_some(end, pending->bytes + pending->at, pending->count, &failed);
        pending->at += n;
        pending->count -= n;
    }
    if (!pending->count)
        drop_pending(end);
    return !failed;
}

static bool pass(struct end *end, const unsigned char *bytes, size_t count)
{
    struct pending *pending = &end->pending;
    bool failed = false;
    size_t n = pending->count || !count ? 0 : send_some(end, bytes, count, &failed);
    if (failed || n == count)
        return !failed;
    unsigned char *all = memory_alloc(pending->count + count - n);
    if (pending->count)
        memcpy(all, pending->bytes + pending->at, pending->count);
    memcpy(all + pending->count, bytes + n, count - n);
    free(pending->bytes);
    *pending = (struct pending){.bytes = all, .count = pending->count + count - n};
    return true;
}

static bool pass_answer(struct link *link)
{
    const unsigned char *answer;
    size_t count = http2_guard_take_answer(link->guard, &answer);
    return pass(&link->ends[CLIENT], answer, count);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* At most one warning a second: whoever floods must not fill the log instead. */
static void complain(struct rpc_relay *relay, const struct link *link)
{
    uint64_t now_ns = clock_now_ns();
    if (relay->complained_ns && now_ns - relay->complained_ns < COMPLAINT_INTERVAL_NS) {
        relay->n_unsaid++;
        return;
    }
    log_warn("connection_ended", LOG_U64("uid", link->what.account.uid), LOG_U64("pid", (uint64_t)link->what.pid),
             LOG_TEXT("reason", http2_guard_complaint(link->guard)), LOG_U64("others", relay->n_unsaid));
    relay->complained_ns = now_ns;
    relay->n_unsaid = 0;
}

static bool take_from_client(struct rpc_relay *relay, struct link *link, size_t count)
{
    long n = http2_guard_from_client(link->guard, relay->in, count, clock_now_ns(), relay->out);
    if (n < 0) {
        complain(relay, link);
        return false;
    }
    if (http2_guard_has_answer(link->guard) && http2_guard_between_frames(link->guard) && !pass_answer(link))
        return false;
    return pass(&link->ends[SERVER], relay->out, (size_t)n);
}

static bool take_from_server(struct rpc_relay *relay, struct link *link, size_t count)
{
    struct end *client = &link->ends[CLIENT];
    size_t between = http2_guard_from_server(link->guard, relay->in, count);
    if (!http2_guard_has_answer(link->guard) || between > count)
        return pass(client, relay->in, count);
    return pass(client, relay->in, between) && pass_answer(link) && pass(client, relay->in + between, count - between);
}

/* False: the link is to be closed. */
static bool read_end(struct rpc_relay *relay, struct link *link, enum side side)
{
    struct end *end = &link->ends[side];
    ssize_t n = recv(end->fd, relay->in, READ_BYTES, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n > 0)
        return side == CLIENT ? take_from_client(relay, link, (size_t)n) : take_from_server(relay, link, (size_t)n);
    end->at_eof = true;
    if (side == CLIENT)
        shutdown(link->ends[SERVER].fd, SHUT_WR);
    return true;
}

static bool serve_end(struct rpc_relay *relay, struct link *link, enum side side)
{
    struct end *end = &link->ends[side];
    if (!flush(end))
        return false;
    if (end->events & EPOLLIN && !end->at_eof && !read_end(relay, link, side))
        return false;
    return !link->ends[SERVER].at_eof || link->ends[CLIENT].pending.count; /* gRPC has closed and all was given */
}

static void serve(struct rpc_relay *relay, struct link *link, enum side side)
{
    if (!serve_end(relay, link, side)) {
        close_link(relay, link);
        return;
    }
    watch_end(relay, link, CLIENT);
    watch_end(relay, link, SERVER);
}

static void *run(void *data)
{
    struct rpc_relay *relay = data;
    struct epoll_event events[MAX_EVENTS];
    for (bool stops = false; !stops;) {
        int n = epoll_wait(relay->epoll, events, MAX_EVENTS, -1);
        for (int i = 0; i < n; i++) {
            pthread_mutex_lock(&relay->lock);
            struct link *link = find_link(relay, events[i].data.u64);
            if (link)
                serve(relay, link, (enum side)(events[i].data.u64 & 1));
            stops = relay->stops;
            pthread_mutex_unlock(&relay->lock);
        }
    }
    return NULL;
}

/* --- links -------------------------------------------------------------------------------------------------------- */

struct rpc_relay *rpc_relay_create(int n_numbers)
{
    struct rpc_relay *relay = memory_alloc(sizeof *relay);
    struct epoll_event wake = {.events = EPOLLIN}; /* number 0 of serial 0: no link */
    sigset_t all, old;
    relay->n_numbers = n_numbers;
    relay->links = memory_alloc_array((size_t)n_numbers + 1, sizeof *relay->links);
    pthread_mutex_init(&relay->lock, NULL);
    relay->epoll = epoll_create1(EPOLL_CLOEXEC);
    relay->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool failed = relay->epoll < 0 || relay->wake < 0 || epoll_ctl(relay->epoll, EPOLL_CTL_ADD, relay->wake, &wake) ||
                  pthread_create(&relay->thread, NULL, run, relay);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed)
        abort(); /* at the start of the daemon */
    return relay;
}

void rpc_relay_destroy(struct rpc_relay *relay)
{
    if (!relay)
        return;
    pthread_mutex_lock(&relay->lock);
    relay->stops = true;
    pthread_mutex_unlock(&relay->lock);
    eventfd_write(relay->wake, 1);
    pthread_join(relay->thread, NULL);
    close(relay->wake);
    close(relay->epoll);
    pthread_mutex_destroy(&relay->lock);
    free(relay->links);
    free(relay);
}

static void destroy_link(struct rpc_relay *relay, struct link *link)
{
    for (int side = CLIENT; side <= SERVER; side++) {
        unwatch(relay, &link->ends[side]);
        drop_pending(&link->ends[side]);
    }
    close(link->what.server);
    http2_guard_destroy(link->guard);
    free(link);
}

int rpc_relay_add(struct rpc_relay *relay, const struct rpc_link *what)
{
    struct link *link = memory_alloc(sizeof *link);
    *link = (struct link){.what = *what, .guard = http2_guard_create(what->account)};
    link->ends[CLIENT].fd = what->client;
    link->ends[SERVER].fd = what->server;
    pthread_mutex_lock(&relay->lock);
    link->serial = ++relay->last_serial;
    int failed = watch(relay, link, CLIENT, EPOLLIN) || watch(relay, link, SERVER, EPOLLIN);
    if (failed)
        destroy_link(relay, link);
    else
        relay->links[what->number] = link;
    pthread_mutex_unlock(&relay->lock);
    return failed ? -1 : 0;
}

void rpc_relay_remove(struct rpc_relay *relay, int number)
{
    pthread_mutex_lock(&relay->lock);
    struct link *link = relay->links[number];
    relay->links[number] = NULL;
    if (link)
        destroy_link(relay, link);
    pthread_mutex_unlock(&relay->lock);
}

void rpc_relay_taken(struct rpc_relay *relay, int number, uint64_t message_bytes)
{
    if (number < 0 || number >= relay->n_numbers)
        return;
    pthread_mutex_lock(&relay->lock);
    struct link *link = relay->links[number];
    if (link)
        http2_guard_taken(link->guard, message_bytes);
    pthread_mutex_unlock(&relay->lock);
}
