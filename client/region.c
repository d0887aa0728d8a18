/* The offer's connection is what the daemon holds while it has the memory open, as the hand-off's connection is what a
 * client holds: when it ends, for whatever reason, the other side has let go. */
#include "region.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "handoff.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

enum { LONGEST_HOLD_MS = 60000 }; /* a copy that does not end takes the device out of service sooner */

static int send_offer(int lease, const struct handoff_region *offer, int memory_fd, struct error *error)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control = {0};
    struct iovec text = memory_iovec(offer, sizeof *offer);
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
    if (memory_fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control;
        struct cmsghdr *part = CMSG_FIRSTHDR(&message);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof memory_fd);
        memcpy(CMSG_DATA(part), &memory_fd, sizeof memory_fd);
    }
    if (sendmsg(lease, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *offer)
        return 0;
    if (errno == EPERM)
        return fail(error, ERROR_FAILED_PRECONDITION, "OFFER_REFUSED",
                    "the daemon takes no memory to be filled: it is older than this client, or serves no GPU");
    return fail(error, ERROR_UNAVAILABLE, "OFFER_FAILED", "cannot offer memory to the daemon: %s", strerror(errno));
}

const char *region_socket(struct tc_client *client, const struct wait *wait, struct arena *arena, struct error *error)
{
    Tensorcast__Daemon__V1__StatusRequest request = TENSORCAST__DAEMON__V1__STATUS_REQUEST__INIT;
    const Tensorcast__Daemon__V1__StatusResponse *status = (const void *)rpc_client_get(
        client->rpc, "Status", &request.base, &tensorcast__daemon__v1__status_response__descriptor, wait, arena, error);
    return status ? client_handoff(client, status->handoff_socket, wait, arena, error) : NULL;
}

int region_offer(const char *socket, const struct handoff_region *offer, int memory_fd, const struct wait *wait,
                 struct region *region, struct error *error)
{
    region->lease = handoff_connect(socket, wait, error);
    if (region->lease < 0)
        return -1;
    int failed = send_offer(region->lease, offer, memory_fd, error) || wait_readable(wait, region->lease, error) ? -1 : 0;
    if (!failed && recv(region->lease, region->token, sizeof region->token, 0) != (ssize_t)sizeof region->token)
        failed =
            fail(error, ERROR_UNAVAILABLE, "OFFER_REFUSED",
                 "the daemon does not take memory: it is shutting down, older than this client, or this user has all the "
                 "leases or descriptors that they may have (handoff_refused in its log says)");
    if (failed) {
        close(region->lease);
        region->lease = -1;
    }
    return failed;
}

/* An offer that no request took ends by our own hang-up. */
int region_end(struct region *region, struct error *error)
{
    struct pollfd end = {.fd = region->lease, .events = POLLIN};
    if (region->lease < 0)
        return 0;
    shutdown(region->lease, SHUT_WR);
    int ready;
    do
        ready = poll(&end, 1, LONGEST_HOLD_MS);
    while (ready < 0 && errno == EINTR);
    close(region->lease);
    region->lease = -1;
    if (ready > 0)
        return 0;
    return fail(
        error, ERROR_INTERNAL, "REGION_IN_USE",
        "the daemon has held the memory to be filled for %d s after the load ended; do not use or free it before the "
        "daemon is gone",
        LONGEST_HOLD_MS / 1000);
}
