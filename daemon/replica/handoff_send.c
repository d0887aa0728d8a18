#include "replica/handoff_send.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/handoff_wire.h"
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
