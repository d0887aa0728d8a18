/* Where files are written to: the counterpart of source/source.h. A sink is one object on its way into a store, or one file on
 * its way into a folder; sink_put() drives it and is what callers see.
 *
 * A file of at most `whole_bytes` goes in one request, a longer one in parts, several at a time where the store takes them in
 * any order. Nothing is seen under the object's name before it is complete. Every part carries a checksum that the store
 * compares; when all is there the store's own checksum of the whole object is compared with what was sent, and an object that
 * differs is removed and sent again. Without `replaces` an object that is there is never touched: a store's condition refuses
 * it (if-none-match, generation 0), and so does a look before, for stores that do not know conditions; `if_version` replaces
 * one that is still what it was, in the same two ways. A caller that lost the answer to a request that succeeded finds its own
 * bytes there and is done.
 *
 * Blocks; any thread but the loop's. Memory: `parallel` parts at once; above eight, where the store compares MD5, eight
 * more. */
#ifndef SINK_SINK_H
#define SINK_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cancel.h"
#include "base/error.h"
#include "source/stores.h"

enum {
    SINK_MAX_PARALLEL = 16,
    SINK_MAX_PARTS = 10000,
    SINK_MAX_SESSION_CHARS = 8192,
    SINK_MAX_KEY_CHARS = 1024,
    SINK_VERSION_CHARS = 128
};

struct sink_upload {
    const char *reference;  /* "gs://bucket/key", "s3://bucket/key", "disk:/path" */
    int fd;                 /* a regular file, read with pread() */
    uint64_t bytes;         /* of it, all that is sent */
    bool is_summed;         /* it is known what it must hold: a file that holds something else is not sent */
    uint32_t crc32c;        /* then */
    bool replaces;          /* also what is there already */
    const char *if_version; /* instead: exactly this version of it, as sink_document_read() told; NULL = not so */
    bool needs_condition;   /* a look before does not do: UNIMPLEMENTED where the store says that it knows no conditions */
    uint32_t parallel;      /* parts at once; 0 = eight */
    uint64_t part_bytes;    /* at least; 0 = 8 MiB. The same for every call that goes on with a session */
    /* What an earlier call has begun, as its `keep` was told; NULL or "" = nothing. A secret: its holder can write. */
    const char *session;
    /* Optional. Told of what is begun, to be kept where only its owner reads it, and "" when there is nothing left to go on with.
     * is_news false: only how far it is has changed, and what was kept before would do, too. Without it everything that is begun is
     * aborted when it fails. One thread at a time. */
    int (*keep)(void *data, const char *session, bool is_news, struct error *error);
    /* Optional. Bytes that the store has so far, with those of earlier calls. Any of the threads that send, one at a time. */
    void (*progress)(void *data, uint64_t done_bytes);
    void *data;
    const struct cancel *cancel; /* may be NULL */
    uid_t uid;                   /* who writes: requests in flight are shared between users */
};

struct sink_result {
    uint64_t sent_bytes, resumed_bytes; /* by this call; of parts that were there */
    uint32_t crc32c;                    /* of the whole */
    bool was_there;                     /* the same bytes, complete, before this call */
    const char *proof;                  /* static: what of the store was compared, "crc32c", "etag", "read back" */
};

/* Reasons: ALREADY_EXISTS (another object has the name), ABORTED (OBJECT_CHANGED: what was to be replaced is another version,
 * or gone), FAILED_PRECONDITION SOURCE_CHANGED (the file is not what it was), PERMISSION_DENIED, NOT_FOUND (no such bucket),
 * UNAVAILABLE and DEADLINE_EXCEEDED (worth another call later, with the session). stores may be NULL for disk:. */
int sink_put(struct stores *stores, const struct sink_upload *upload, struct sink_result *result, struct error *error);

/* Ends what an earlier call has begun and is not wanted any more, as far as the store can. */
void sink_abort(struct stores *stores, const char *reference, const char *session);

/* INVALID_ARGUMENT unless files can be written there at all. Asks no server. */
int sink_check_reference(const char *reference, struct error *error);
/* The reference of a file below a folder: "gs://bucket/a" and "b/c" -> "gs://bucket/a/b/c". Malloced. */
char *sink_join(const char *folder, const char *name);
/* Whether another call may succeed where this one failed. */
bool sink_may_pass(const struct error *error);

#endif
