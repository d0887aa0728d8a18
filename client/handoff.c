/* Connects, sends the token, takes one descriptor or those of files, maps them; see handoff_wire.h for the protocol.
 * The daemon is trusted with the content but not with being well: everything it says about the memory is checked against
 * the descriptor, since a mapping that is too long would be a SIGBUS later. */
#include "handoff.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/memory.h"
#include "dtype_name.h"
#include "tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"
#include "unreachable.h"

enum { ALIGN_BYTES = 2 << 20 };

static const _Alignas(64) unsigned char nothing[64]; /* what an empty load points to */

struct answer {
    struct handoff_answer wire;
    int fds[HANDOFF_MESSAGE_FDS];
    size_t n_fds;
};

const char *handoff_find(const char *daemon_socket, const char *path, struct arena *arena)
{
    const char *folder_end = strrchr(daemon_socket, '/'), *name = strrchr(path, '/');
    if (access(path, F_OK) == 0 || !folder_end || !name)
        return path;
    size_t folder_bytes = (size_t)(folder_end - daemon_socket), name_bytes = strlen(name);
    char *beside = arena_alloc(arena, folder_bytes + name_bytes + 1);
    memcpy(beside, daemon_socket, folder_bytes);
    memcpy(beside + folder_bytes, name, name_bytes);
    return beside;
}

/* -1 on error. */
static int connect_handoff(const char *path, const struct wait *wait, struct error *error)
{
    int fd = unix_connect(path, SOCK_SEQPACKET, wait);
    int failed = errno;
    if (fd >= 0)
        return fd;
    if (failed == EAGAIN)
        return wait_check(wait, error);
    return fail(error, failed == EACCES ? ERROR_PERMISSION_DENIED : ERROR_UNAVAILABLE, "HANDOFF_UNREACHABLE",
                "cannot connect to the hand-off socket %s: %s", path, strerror(failed));
}

static void take_descriptors(struct msghdr *message, struct answer *answer)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (answer->n_fds < HANDOFF_MESSAGE_FDS)
                answer->fds[answer->n_fds++] = fd;
            else
                close(fd);
        }
    }
}

static int check_answer(const struct answer *answer, ssize_t received, int flags, struct error *error)
{
    const struct handoff_answer *wire = &answer->wire;
    if (flags & (MSG_CTRUNC | MSG_TRUNC))
        return fail(error, ERROR_INTERNAL, "BAD_HANDOFF", "the hand-off's answer was cut off%s",
                    flags & MSG_CTRUNC ? "; this process may be out of file descriptors" : "");
    if (received != sizeof *wire || memcmp(wire->magic, HANDOFF_MAGIC, sizeof wire->magic) != 0)
        return fail(error, ERROR_INTERNAL, "BAD_HANDOFF", "the hand-off's answer of %zd bytes is not one", received);
    if (le32toh(wire->version) != HANDOFF_VERSION)
        return fail(error, ERROR_UNIMPLEMENTED, "HANDOFF_VERSION",
                    "the daemon hands off with version %u, this client knows %d", le32toh(wire->version), HANDOFF_VERSION);
    if (le32toh(wire->n_fds) != answer->n_fds || (answer->n_fds == 0 && wire->memory_bytes))
        return fail(error, ERROR_INTERNAL, "BAD_HANDOFF",
                    "the hand-off brought %zu descriptors for %llu bytes, announced %u", answer->n_fds,
                    (unsigned long long)le64toh(wire->memory_bytes), le32toh(wire->n_fds));
    return 0;
}

static int receive_answer(int fd, const char *path, struct answer *answer, struct error *error)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * HANDOFF_MESSAGE_FDS)];
        struct cmsghdr aligned;
    } control;
    struct iovec place = {&answer->wire, sizeof answer->wire};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control};
    ssize_t received;
    do
        received = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received <= 0)
        return fail(error, ERROR_UNAVAILABLE, "HANDOFF_REFUSED",
                    "the daemon closed %s without handing out the memory: it is shutting down, or the token had expired",
                    path);
    take_descriptors(&message, answer);
    return check_answer(answer, received, message.msg_flags, error);
}

/* The whole of [0, bytes) of fd, read-only, at a 2 MiB boundary, so that huge pages stay huge. NULL on error. */
static void *map_aligned(int fd, uint64_t bytes, uint64_t *mapped_bytes, struct error *error)
{
    struct stat info;
    uint64_t length;
    if (fstat(fd, &info)) {
        fail_errno(error, errno, "cannot look at the memory that was handed off");
        return NULL;
    }
    if (!S_ISREG(info.st_mode) || info.st_size < 0 || (uint64_t)info.st_size < bytes) {
        fail(error, ERROR_INTERNAL, "BAD_HANDOFF", "the daemon announced %llu bytes but handed off %lld",
             (unsigned long long)bytes, (long long)info.st_size);
        return NULL;
    }
    if (!checked_align(bytes, ALIGN_BYTES, &length) || length > SIZE_MAX / 2) {
        fail(error, ERROR_INTERNAL, "BAD_HANDOFF", "%llu bytes cannot be mapped", (unsigned long long)bytes);
        return NULL;
    }
    char *reserved = mmap(NULL, length + ALIGN_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) {
        fail_errno(error, errno, "cannot reserve %llu bytes of address space", (unsigned long long)length);
        return NULL;
    }
    char *start = (char *)(((uintptr_t)reserved + ALIGN_BYTES - 1) & ~((uintptr_t)ALIGN_BYTES - 1));
    size_t before = (size_t)(start - reserved);
    if (before)
        munmap(reserved, before);
    munmap(start + length, ALIGN_BYTES - before);
    if (mmap(start, length, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int failed = errno;
        munmap(start, length);
        fail_errno(error, failed, "cannot map the %llu bytes that were handed off", (unsigned long long)bytes);
        return NULL;
    }
    *mapped_bytes = length;
    return start;
}

/* A connection that has sent the token, -1 on error: the lease. */
static int present_token(const char *socket_path, const uint8_t token[HANDOFF_TOKEN_BYTES], const struct wait *wait,
                         struct error *error)
{
    int fd = connect_handoff(socket_path, wait, error);
    if (fd < 0 || send(fd, token, HANDOFF_TOKEN_BYTES, MSG_NOSIGNAL) == HANDOFF_TOKEN_BYTES)
        return fd;
    fail(error, ERROR_UNAVAILABLE, "HANDOFF_REFUSED", "cannot send the token to %s: %s", socket_path, strerror(errno));
    close(fd);
    return -1;
}

static void close_descriptors(const struct answer *answer)
{
    for (size_t i = 0; i < answer->n_fds; i++)
        close(answer->fds[i]); /* a mapping keeps what it shows */
}

static int take_memory(const struct answer *answer, struct handoff *handoff, struct error *error)
{
    handoff->bytes = le64toh(answer->wire.memory_bytes);
    if (answer->n_fds > 1 || le32toh(answer->wire.page_kind) == HANDOFF_FILES)
        return fail(error, ERROR_INTERNAL, "BAD_HANDOFF", "the hand-off brought %zu descriptors where memory was announced",
                    answer->n_fds);
    if (!handoff->bytes)
        return 0;
    if (handoff->cuda)
        return cuda_memory_map(handoff->cuda, answer->fds[0], handoff->bytes, &handoff->data, error);
    handoff->mapping = map_aligned(answer->fds[0], handoff->bytes, &handoff->mapped_bytes, error);
    handoff->data = handoff->mapping;
    return handoff->mapping ? 0 : -1;
}

int handoff_receive(const char *socket_path, const uint8_t token[HANDOFF_TOKEN_BYTES], const struct wait *wait,
                    struct cuda_memory *cuda, struct handoff *handoff, struct error *error)
{
    struct answer answer = {0};
    *handoff = (struct handoff){.data = nothing, .lease = present_token(socket_path, token, wait, error), .cuda = cuda};
    int failed = handoff->lease < 0 || wait_readable(wait, handoff->lease, error) ||
                 receive_answer(handoff->lease, socket_path, &answer, error) || take_memory(&answer, handoff, error);
    close_descriptors(&answer);
    if (failed)
        handoff_release(handoff);
    return failed ? -1 : 0;
}

void handoff_receive_nothing(struct handoff *handoff)
{
    *handoff = (struct handoff){.data = nothing, .lease = -1};
}

/* The files of one message. */
static int take_files(const struct answer *answer, const uint64_t *file_bytes, size_t n_missing, struct handoff *handoff,
                      struct error *error)
{
    uint64_t together = 0;
    for (size_t i = 0; i < answer->n_fds && i < n_missing; i++)
        together += file_bytes[i];
    if (le32toh(answer->wire.page_kind) != HANDOFF_FILES || !answer->n_fds || answer->n_fds > n_missing ||
        le64toh(answer->wire.memory_bytes) != together)
        return fail(error, ERROR_INTERNAL, "BAD_HANDOFF",
                    "the hand-off brought %zu descriptors of %llu bytes and kind %u, where %zu files were missing",
                    answer->n_fds, (unsigned long long)le64toh(answer->wire.memory_bytes), le32toh(answer->wire.page_kind),
                    n_missing);
    for (size_t i = 0; i < answer->n_fds; i++) {
        struct handoff_file *file = &handoff->files[handoff->n_files];
        file->data = map_aligned(answer->fds[i], file_bytes[i], &file->mapped_bytes, error);
        if (!file->data)
            return -1;
        file->bytes = file_bytes[i];
        handoff->n_files++;
    }
    return 0;
}

int handoff_receive_files(const char *socket_path, const uint8_t token[HANDOFF_TOKEN_BYTES], const struct wait *wait,
                          const uint64_t *file_bytes, size_t n_files, struct handoff *handoff, struct error *error)
{
    *handoff = (struct handoff){.data = nothing, .lease = present_token(socket_path, token, wait, error)};
    handoff->files = memory_alloc_array(n_files, sizeof *handoff->files);
    int failed = handoff->lease < 0;
    while (!failed && handoff->n_files < n_files) {
        struct answer answer = {0};
        failed = wait_readable(wait, handoff->lease, error) || receive_answer(handoff->lease, socket_path, &answer, error) ||
                 take_files(&answer, file_bytes + handoff->n_files, n_files - handoff->n_files, handoff, error);
        close_descriptors(&answer); /* before more come: a process has room for few */
    }
    if (failed)
        handoff_release(handoff);
    return failed ? -1 : 0;
}

void handoff_release(struct handoff *handoff)
{
    if (handoff->mapping)
        munmap(handoff->mapping, handoff->mapped_bytes);
    for (size_t i = 0; i < handoff->n_files; i++)
        munmap(handoff->files[i].data, handoff->files[i].mapped_bytes);
    free(handoff->files);
    cuda_memory_close(handoff->cuda);
    if (handoff->lease >= 0)
        close(handoff->lease);
    *handoff = (struct handoff){.lease = -1};
}

/* --- layout --- */

/* Strides of one tensor, and whether shape, dtype and size agree. */
static bool measure_tensor(const uint64_t *dims, size_t rank, uint64_t bits, uint64_t bytes, uint64_t *strides)
{
    uint64_t elements = 1, n_bits;
    bool empty = false;
    for (size_t k = rank; k-- > 0;) {
        strides[k] = elements;
        empty |= dims[k] == 0;
        if (!checked_mul(elements, dims[k] ? dims[k] : 1, &elements))
            return false;
    }
    return empty ? bytes == 0 : checked_mul(elements, bits, &n_bits) && bytes == n_bits / 8 + (n_bits % 8 != 0);
}

static bool has_columns(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors)
{
    return columns->n_dtypes == n_tensors && columns->n_ranks == n_tensors && columns->n_offsets == n_tensors &&
           columns->n_sizes == n_tensors;
}

/* A column without entries is NULL, to which nothing may be added, not even 0. */
static const uint64_t *entries_at(const uint64_t *column, size_t at)
{
    return at ? column + at : column;
}

int layout_build(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, uint64_t memory_bytes, struct arena *arena,
                 struct layout *layout, struct error *error)
{
    uint64_t bits, end;
    size_t n_dims = 0;
    bool sound = has_columns(columns, n_tensors);
    layout->n_tensors = n_tensors;
    layout->first_dim = arena_array(arena, n_tensors + 1, sizeof *layout->first_dim);
    layout->strides = arena_array(arena, columns->n_dims + 1, sizeof *layout->strides);
    for (size_t i = 0; sound && i < n_tensors; i++) {
        size_t rank = columns->ranks[i];
        layout->first_dim[i] = n_dims;
        sound = rank <= TC_MAX_RANK && rank <= columns->n_dims - n_dims && dtype_name_of((int)columns->dtypes[i], &bits) &&
                checked_add(columns->offsets[i], columns->sizes[i], &end) && end <= memory_bytes &&
                measure_tensor(entries_at(columns->dims, n_dims), rank, bits, columns->sizes[i], layout->strides + n_dims);
        n_dims += rank;
    }
    if (sound && n_dims == columns->n_dims)
        return 0;
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER",
                "the daemon's layout of %zu tensors does not fit the %llu bytes handed off", n_tensors,
                (unsigned long long)memory_bytes);
}

/* Bytes from a tensor's first to behind its last, and the strides in elements. */
static bool measure_strided(const uint64_t *dims, const uint64_t *bytes_apart, size_t rank, uint64_t element_bytes,
                            uint64_t *strides, uint64_t *span)
{
    *span = element_bytes;
    for (size_t k = 0; k < rank; k++) {
        uint64_t reach;
        if (bytes_apart[k] % element_bytes || !checked_mul(dims[k] - 1, bytes_apart[k], &reach) ||
            !checked_add(*span, reach, span))
            return false;
        strides[k] = bytes_apart[k] / element_bytes;
    }
    return true;
}

int layout_build_files(const Tensorcast__Daemon__V1__Layout *columns, size_t n_tensors, const uint64_t *file_bytes,
                       size_t n_files, struct arena *arena, struct layout *layout, struct error *error)
{
    uint64_t bits, end, span;
    size_t n_dims = 0;
    bool sound =
        has_columns(columns, n_tensors) && columns->n_file_indexes == n_tensors && columns->n_strides == columns->n_dims;
    layout->n_tensors = n_tensors;
    layout->first_dim = arena_array(arena, n_tensors + 1, sizeof *layout->first_dim);
    layout->strides = arena_array(arena, columns->n_dims + 1, sizeof *layout->strides);
    for (size_t i = 0; sound && i < n_tensors; i++) {
        size_t rank = columns->ranks[i];
        uint64_t *strides = layout->strides + n_dims;
        layout->first_dim[i] = n_dims;
        span = columns->sizes[i];
        sound = rank <= TC_MAX_RANK && rank <= columns->n_dims - n_dims && dtype_name_of((int)columns->dtypes[i], &bits) &&
                measure_tensor(entries_at(columns->dims, n_dims), rank, bits, span, strides);
        if (sound && columns->sizes[i])
            sound = (bits % 8 || measure_strided(entries_at(columns->dims, n_dims), entries_at(columns->strides, n_dims),
                                                 rank, bits / 8, strides, &span)) &&
                    columns->file_indexes[i] < n_files && checked_add(columns->offsets[i], span, &end) &&
                    end <= file_bytes[columns->file_indexes[i]];
        n_dims += rank;
    }
    if (sound && n_dims == columns->n_dims)
        return 0;
    return fail(error, ERROR_INTERNAL, "BAD_ANSWER",
                "the daemon's layout of %zu tensors does not fit the %zu files handed off", n_tensors, n_files);
}

/* --- region --- */

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
    const Tensorcast__Daemon__V1__StatusResponse *status = rpc_client_get(
        client->rpc, "Status", &request.base, &tensorcast__daemon__v1__status_response__descriptor, wait, arena, error);
    return status ? client_handoff(client, status->handoff_socket, wait, arena, error) : NULL;
}

int region_offer(const char *socket, const struct handoff_region *offer, int memory_fd, const struct wait *wait,
                 struct region *region, struct error *error)
{
    region->lease = connect_handoff(socket, wait, error);
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
