/* Descriptors of files over a socket: in order, in messages of the size that the protocol says, at the client's pace. What is
 * sent of memory is in test_handoff.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "client/handoff_wire.h"
#include "replica/handoff_send.h"

#include <cmocka.h>

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

static void files_come_in_their_order_in_as_many_messages_as_it_takes(void **state)
{
    static const size_t sizes[] = {HANDOFF_MESSAGE_FDS, HANDOFF_MESSAGE_FDS, 22, 0};
    struct handoff_answer answer;
    struct scene scene;
    int fds[HANDOFF_MESSAGE_FDS];
    size_t file = 0;
    (void)state;
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

static void a_full_socket_waits_for_the_client(void **state)
{
    struct handoff_answer answer;
    struct scene scene;
    int fds[HANDOFF_MESSAGE_FDS], least = 1;
    size_t n, n_received = 0;
    (void)state;
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

static void a_client_that_is_gone_gets_nothing(void **state)
{
    struct scene scene;
    (void)state;
    open_scene(&scene, N_FILES);
    close(scene.theirs);
    assert_int_equal(handoff_send(scene.ours, &scene.replica), HANDOFF_NOT_SENT);
    assert_int_equal(scene.files->n_sent, 0);
    scene.theirs = -1;
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_come_in_their_order_in_as_many_messages_as_it_takes),
        cmocka_unit_test(a_full_socket_waits_for_the_client),
        cmocka_unit_test(a_client_that_is_gone_gets_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
