/* Where the bytes of a range go: a cursor over the caller's memory that sums what passes. A value; one thread at a time. */
#ifndef SOURCE_HTTP_SINK_H
#define SOURCE_HTTP_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/arrival.h"
#include "base/checksum.h"

struct http_sink {
    const struct iovec *iov;
    int n_iov, index;
    size_t used; /* of iov[index] */
    uint64_t left_bytes;
    enum checksum_kind checksum;
    uint64_t checksum_value;
    struct arrival *arrival; /* told of what passes; NULL unless set */
};

/* UINT64_MAX in left_bytes when the lengths overflow. */
struct http_sink http_sink_of(const struct iovec *iov, int n_iov, enum checksum_kind checksum);
bool http_sink_sums(const struct http_sink *sink);
/* Where the next bytes go and how many of them in one piece; NULL when they are thrown away. */
char *http_sink_place(const struct http_sink *sink, size_t *room);
/* So many bytes, no more than there was room for, have been put there. */
void http_sink_advance(struct http_sink *sink, size_t count);
/* False, and nothing written, when it is more than is left. */
bool http_sink_write(struct http_sink *sink, const char *bytes, size_t count);

#endif
