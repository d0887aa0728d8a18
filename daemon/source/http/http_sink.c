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

bool http_sink_write(struct http_sink *sink, const char *bytes, size_t count)
{
    if (count > sink->left_bytes)
        return false;
    sink->left_bytes -= count;
    if (http_sink_sums(sink))
        sink->checksum_value = crc_update(sink->checksum, sink->checksum_value, bytes, count);
    while (count > 0) {
        const struct iovec *target = &sink->iov[sink->index];
        size_t room = target->iov_len - sink->used, part = count < room ? count : room;
        if (target->iov_base && part > 0)
            copy_streaming((char *)target->iov_base + sink->used, bytes, part);
        bytes += part;
        count -= part;
        sink->used += part;
        if (sink->used == target->iov_len) {
            sink->index++;
            sink->used = 0;
        }
    }
    return true;
}
