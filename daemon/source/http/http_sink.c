/* Bytes into the caller's memory; see http_sink.h. */
#include "source/http/http_sink.h"

#include "base/checked.h"
#include "base/copy.h"
#include "base/crc.h"

struct http_sink http_sink_of(const struct iovec *iov, int n_iov, enum checksum_kind checksum)
{
    struct http_sink sink = {.iov = iov, .n_iov = n_iov, .checksum = checksum};
    for (int i = 0; i < n_iov; i++)
        if (!checked_add(sink.left_bytes, iov[i].iov_len, &sink.left_bytes))
            sink.left_bytes = UINT64_MAX;
    return sink;
}

bool http_sink_sums(const struct http_sink *sink)
{
    return sink->checksum == CHECKSUM_CRC32C || sink->checksum == CHECKSUM_CRC32 || sink->checksum == CHECKSUM_CRC64NVME;
}

static void sum_bytes(struct http_sink *sink, const char *bytes, size_t count)
{
    if (http_sink_sums(sink))
        sink->checksum_value = crc_update(sink->checksum, sink->checksum_value, bytes, count);
}

static void move_on(struct http_sink *sink, size_t count)
{
    sink->left_bytes -= count;
    sink->used += count;
    while (sink->index < sink->n_iov && sink->used == sink->iov[sink->index].iov_len) {
        sink->index++;
        sink->used = 0;
    }
}

char *http_sink_place(const struct http_sink *sink, size_t *room)
{
    *room = 0;
    if (sink->index == sink->n_iov)
        return NULL;
    const struct iovec *target = &sink->iov[sink->index];
    *room = target->iov_len - sink->used;
    return target->iov_base ? (char *)target->iov_base + sink->used : NULL;
}

void http_sink_advance(struct http_sink *sink, size_t count)
{
    size_t room;
    sum_bytes(sink, http_sink_place(sink, &room), count);
    move_on(sink, count);
    arrival_tell(sink->arrival, count);
}

bool http_sink_write(struct http_sink *sink, const char *bytes, size_t count)
{
    if (count > sink->left_bytes)
        return false;
    sum_bytes(sink, bytes, count);
    arrival_tell(sink->arrival, count);
    while (count > 0) {
        size_t room;
        char *place = http_sink_place(sink, &room);
        size_t part = count < room ? count : room;
        if (place)
            copy_streaming(place, bytes, part);
        move_on(sink, part);
        bytes += part;
        count -= part;
    }
    return true;
}
