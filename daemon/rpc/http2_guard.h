/* What one HTTP/2 connection may ask of gRPC. gRPC's own limits come too late: it collects a header block of any length, and
 * looks at a message's size when it has all of it. The guard sees every frame before gRPC does:
 *   - a header block has at most HTTP2_MAX_BLOCK_BYTES in HTTP2_MAX_BLOCK_FRAMES frames;
 *   - frames that cost the sender nothing (RST_STREAM, PING, SETTINGS, empty DATA, unknown ones) have rates;
 *   - bytes of messages are charged to the user (QUOTA_METADATA) until their stream ends or the call has its message; a
 * stream whose message cannot be charged is answered RESOURCE_EXHAUSTED, the connection goes on. PING needs no rate: who
 * does not read the answers is not read from (rpc/rpc_relay.h).
 *
 * Pure but for the quota: no I/O, no clock. One thread at a time. */
#ifndef RPC_HTTP2_GUARD_H
#define RPC_HTTP2_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/metadata.h"

enum {
    HTTP2_MAX_BLOCK_BYTES = 64 << 10, /* four times what gRPC takes as metadata */
    HTTP2_MAX_BLOCK_FRAMES = 32,
    HTTP2_MAX_STREAMS = 4096,    /* gRPC allows 128; a client learns that only when it has begun */
    HTTP2_FREE_BYTES = 64 << 10, /* of messages per connection, charged to nobody: gRPC's window is as large */
    HTTP2_RESETS_BURST = 500,    /* and 200 a second: a call that is cancelled at once still costs some KiB for a moment */
    HTTP2_PINGS_BURST = 20,      /* and 2 a second, while the server sends no HEADERS or DATA; gRPC allows fewer, but late */
    HTTP2_ODD_FRAMES_BURST = 1000, /* SETTINGS, empty DATA, PRIORITY, unknown; and 100 a second */
};

struct http2_guard;

struct http2_guard *http2_guard_create(struct metadata_account account);
void http2_guard_destroy(struct http2_guard *guard); /* accepts NULL */

/* How much more may come out of http2_guard_from_client() than went in: a frame's head that was held back, resets. */
enum { HTTP2_GUARD_EXTRA_BYTES = 9 + 13 * HTTP2_MAX_STREAMS };
/* Copies to `out` what the server is to have, returns its length, or -1 when the connection is to be ended:
 * http2_guard_complaint() says why. */
long http2_guard_from_client(struct http2_guard *guard, const unsigned char *bytes, size_t count, uint64_t now_ns,
                             unsigned char *out);
const char *http2_guard_complaint(const struct http2_guard *guard);

/* Sees what the server answers. Returns the last place in `bytes` where something may be put between two frames; count + 1:
 * there is none. */
size_t http2_guard_from_server(struct http2_guard *guard, const unsigned char *bytes, size_t count);
bool http2_guard_between_frames(const struct http2_guard *guard); /* of the server */
/* What the guard itself has to tell the client; *bytes stays good until the next call. It counts as told. */
size_t http2_guard_take_answer(struct http2_guard *guard, const unsigned char **bytes);
bool http2_guard_has_answer(const struct http2_guard *guard);

/* A call has its message of so many bytes, and counts them itself from now on. */
void http2_guard_taken(struct http2_guard *guard, uint64_t message_bytes);

#endif
