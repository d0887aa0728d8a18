/* See source_remote.h. Bytes are copied first and paid for in time afterwards. */
#include "tests/support/source_remote.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

enum { SLICE_NS = 1000000, LINK_PIECE_BYTES = 1 << 20 };

static void raise_to(uint64_t *most, uint64_t value)
{
    uint64_t seen = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (value > seen && !__atomic_compare_exchange_n(most, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void lower_to(uint64_t *least, uint64_t value)
{
    uint64_t seen = __atomic_load_n(least, __ATOMIC_RELAXED);
    while (value < seen && !__atomic_compare_exchange_n(least, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static int sleep_until(uint64_t until_ns, const struct cancel *cancel, struct error *error)
{
    for (uint64_t now_ns = clock_now_ns(); now_ns < until_ns; now_ns = clock_now_ns()) {
        if (cancel_is_set(cancel))
            return fail(error, ERROR_CANCELLED, "READ_CANCELLED", "nobody waits for this range any more");
        uint64_t rest_ns = until_ns - now_ns < SLICE_NS ? until_ns - now_ns : SLICE_NS;
        nanosleep(&(struct timespec){.tv_nsec = (long)rest_ns}, NULL);
    }
    return 0;
}

/* When the last of so many bytes is through the link, if they enter it now. */
static uint64_t through_link_ns(struct source_remote *remote, uint64_t bytes)
{
    uint64_t now_ns = clock_now_ns();
    if (!remote->link_bytes_per_s)
        return now_ns;
    pthread_mutex_lock(&remote->lock);
    uint64_t from_ns = remote->link_free_ns > now_ns ? remote->link_free_ns : now_ns;
    uint64_t end_ns = remote->link_free_ns = from_ns + bytes * 1000000000 / remote->link_bytes_per_s;
    pthread_mutex_unlock(&remote->lock);
    return end_ns;
}

static int wait_for_release(struct source_remote *remote, const struct cancel *cancel, struct error *error)
{
    __atomic_add_fetch(&remote->n_held, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&remote->is_released, __ATOMIC_RELAXED))
        if (sleep_until(clock_now_ns() + SLICE_NS, cancel, error))
            return -1;
    return 0;
}

static int transfer(struct source_remote *remote, uint64_t started_ns, uint64_t bytes, const struct source_read *read,
                    struct error *error)
{
    for (uint64_t sent = 0; sent < bytes;) {
        uint64_t piece = bytes - sent < LINK_PIECE_BYTES ? bytes - sent : LINK_PIECE_BYTES, until_ns = started_ns;
        sent += piece;
        if (remote->connection_bytes_per_s)
            until_ns += sent * 1000000000 / remote->connection_bytes_per_s;
        uint64_t link_ns = through_link_ns(remote, piece);
        if (sleep_until(until_ns > link_ns ? until_ns : link_ns, read->cancel, error))
            return -1;
        arrival_tell(read->arrival, piece);
        if (sent == remote->holds_after_bytes && wait_for_release(remote, read->cancel, error))
            return -1;
    }
    return 0;
}

static int copy(struct source_remote *remote, const struct source_read *read, struct error *error)
{
    uint64_t offset = read->offset;
    for (int i = 0; i < read->n_iov; i++) {
        const struct iovec *iov = &read->iov[i];
        if (iov->iov_base && remote->invents_bytes)
            memset(iov->iov_base, 7, iov->iov_len);
        else if (iov->iov_base && source_read_bytes(remote->inner, read->file, offset, iov->iov_base, iov->iov_len, error))
            return -1;
        offset += iov->iov_len;
    }
    return 0;
}

static int remote_read(struct source *source, struct source_read *read, struct error *error)
{
    struct source_remote *remote = (struct source_remote *)source;
    uint64_t bytes = 0;
    for (int i = 0; i < read->n_iov; i++)
        bytes += read->iov[i].iov_len;
    __atomic_add_fetch(&remote->n_reads, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&remote->read_bytes, bytes, __ATOMIC_RELAXED);
    raise_to(&remote->longest_read, bytes);
    lower_to(&remote->shortest_read, bytes);
    raise_to(&remote->most_in_flight, __atomic_add_fetch(&remote->in_flight, 1, __ATOMIC_RELAXED));
    int result = sleep_until(clock_now_ns() + remote->latency_ns, read->cancel, error);
    uint64_t started_ns = clock_now_ns();
    if (result == 0)
        result = copy(remote, read, error) || transfer(remote, started_ns, bytes, read, error) ? -1 : 0;
    if (result && error->code == ERROR_CANCELLED)
        __atomic_add_fetch(&remote->n_cancelled, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&remote->in_flight, 1, __ATOMIC_RELAXED);
    return result;
}

static int remote_check_unchanged(struct source *source, size_t file, const struct cancel *cancel, struct error *error)
{
    return source_check_unchanged(((struct source_remote *)source)->inner, file, cancel, error);
}

static void remote_speed(struct source *source, struct source_speed *speed)
{
    struct source_remote *remote = (struct source_remote *)source;
    if (remote->hides_speed)
        return;
    *speed = (struct source_speed){.latency_us = remote->latency_ns / 1000,
                                   .connection_bytes_per_s = remote->connection_bytes_per_s,
                                   .bytes_per_s = remote->link_bytes_per_s,
                                   .parallel_requests = remote->allowed_requests,
                                   .requests = __atomic_load_n(&remote->n_reads, __ATOMIC_RELAXED),
                                   .received_bytes = __atomic_load_n(&remote->read_bytes, __ATOMIC_RELAXED)};
}

static void remote_close(struct source *source)
{
    struct source_remote *remote = (struct source_remote *)source;
    pthread_mutex_destroy(&remote->lock);
    source_unref(remote->inner);
}

static const struct source_ops remote_ops = {
    .name = "remote",
    .source_size = sizeof(struct source_remote),
    .read = remote_read,
    .check_unchanged = remote_check_unchanged,
    .speed = remote_speed,
    .close = remote_close,
};

struct source_remote *source_remote_create(struct source *inner)
{
    struct source_remote *remote = memory_alloc(sizeof *remote);
    remote->base = *inner;
    remote->base.ops = &remote_ops;
    remote->base.references = 1;
    remote->base.reference = memory_copy_text(inner->reference);
    remote->base.files = memory_copy(inner->files, inner->n_files * sizeof *inner->files);
    for (size_t i = 0; i < inner->n_files; i++)
        remote->base.files[i].name = memory_copy_text(inner->files[i].name);
    remote->base.handles = memory_alloc_array(inner->n_files, sizeof *inner->handles);
    remote->base.caps = (struct source_caps){.filesystem = SOURCE_NETWORK,
                                             .filesystem_type = "store",
                                             SOURCE_CAPS_OF_REQUESTS,
                                             .request_bytes = 16 << 20,
                                             .parallel_requests = 32};
    remote->shortest_read = UINT64_MAX;
    remote->inner = inner;
    pthread_mutex_init(&remote->lock, NULL);
    return remote;
}
