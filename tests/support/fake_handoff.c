/* poll() over the listener and the connections; see fake_handoff.h. */
#include "tests/support/fake_handoff.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_CONNECTIONS = 64 };

static void answer(struct fake_handoff *fake, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * 80)];
        struct cmsghdr aligned;
    } control = {0};
    size_t bytes = fake->mood == FAKE_CUTS_SHORT ? sizeof fake->answer - 1 : sizeof fake->answer;
    struct iovec part = {&fake->answer, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fake->n_descriptors) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fake->n_descriptors);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){CMSG_LEN(sizeof(int) * fake->n_descriptors), SOL_SOCKET, SCM_RIGHTS};
        for (size_t i = 0; i < fake->n_descriptors; i++)
            memcpy(CMSG_DATA(header) + i * sizeof(int), &fake->memory_fd, sizeof(int));
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        perror("sendmsg");
}

/* False when the connection is over. */
static bool serve(struct fake_handoff *fake, int fd)
{
    unsigned char token[HANDOFF_TOKEN_BYTES];
    if (recv(fd, token, sizeof token, 0) != sizeof token || fake->mood == FAKE_CLOSES)
        return false;
    if (memcmp(token, HANDOFF_REGION_MAGIC, 4) == 0) { /* the beginning of an offer of memory; its descriptor is dropped */
        memset(token, 0xb6, sizeof token);
        token[0] = (unsigned char)fake->n_offers++;
        return send(fd, token, sizeof token, MSG_NOSIGNAL) == sizeof token;
    }
    memcpy(fake->token, token, sizeof token);
    struct fake_handoff script = {.mood = fake->mood, /* the test may change it once it has the first message */
                                  .answer = fake->answer,
                                  .n_descriptors = fake->n_descriptors,
                                  .n_messages = fake->n_messages,
                                  .memory_fd = fake->memory_fd};
    for (size_t i = 0; script.mood != FAKE_STAYS_SILENT && i < script.n_messages; i++)
        answer(&script, fd);
    return true;
}

static void *run(void *data)
{
    struct fake_handoff *fake = data;
    struct pollfd polled[2 + MOST_CONNECTIONS] = {{.fd = fake->stop_pipe[0], .events = POLLIN},
                                                  {.fd = fake->listen_fd, .events = POLLIN}};
    nfds_t n = 2;
    while (poll(polled, n, -1) >= 0 && !polled[0].revents) {
        for (nfds_t i = n; i-- > 2;) {
            if (!polled[i].revents || serve(fake, polled[i].fd))
                continue;
            close(polled[i].fd);
            polled[i] = polled[--n];
            fake->leases--;
        }
        if (polled[1].revents && n < sizeof polled / sizeof polled[0]) {
            polled[n++] = (struct pollfd){.fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC), .events = POLLIN};
            fake->leases++;
        }
    }
    for (nfds_t i = 2; i < n; i++)
        close(polled[i].fd);
    return NULL;
}

void fake_handoff_start(struct fake_handoff *fake, const char *folder, const void *content, size_t bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *fake = (struct fake_handoff){.n_descriptors = 1, .n_messages = 1, .memory_fd = memfd_create("fake", MFD_CLOEXEC)};
    snprintf(fake->path, sizeof fake->path, "%s/daemon.handoff", folder);
    memcpy(address.sun_path, fake->path, sizeof fake->path);
    fake->answer = (struct handoff_answer){.version = HANDOFF_VERSION, .memory_bytes = bytes, .page_kind = 2, .n_fds = 1};
    memcpy(fake->answer.magic, HANDOFF_MAGIC, sizeof fake->answer.magic);
    fake->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (write(fake->memory_fd, content, bytes) != (ssize_t)bytes || pipe(fake->stop_pipe) ||
        bind(fake->listen_fd, (struct sockaddr *)&address, sizeof address) || listen(fake->listen_fd, 64) ||
        pthread_create(&fake->thread, NULL, run, fake))
        abort();
}

void fake_handoff_stop(struct fake_handoff *fake)
{
    if (write(fake->stop_pipe[1], "x", 1) != 1)
        abort();
    pthread_join(fake->thread, NULL);
    close(fake->stop_pipe[0]);
    close(fake->stop_pipe[1]);
    close(fake->listen_fd);
    close(fake->memory_fd);
    unlink(fake->path);
}
