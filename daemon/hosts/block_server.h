/* Serves other hosts ranges of blocks that this host owns, or has. It opens a reference as this host's roots, trusted URLs and
 * credentials allow, and serves only the version that the asker names.
 *
 *     206  the bytes                                  502  its source failed, or it stops
 *     400  the range is beyond the file               503  too much is asked for at once: ask again, less
 *     403  this host may not read the reference       504  it is being opened or read: ask again
 *     404  what is here was asked for, and it is not  507  no memory to keep it
 *     412  the reference has another version here
 *
 * An ask waits for WAIT_MS at most; helpers of the loop open and read, in the lane of the store or file system. A read never waits
 * for another host, so hosts cannot deadlock. */
#ifndef HOSTS_BLOCK_SERVER_H
#define HOSTS_BLOCK_SERVER_H

#include "hosts/block_cache.h"
#include "hosts/block_query.h"

struct block_server;
struct block_server_options {
    struct loop *loop;
    struct block_cache *cache;
    /* How this host opens references: its trust, stores and format, and for which user it reads. Any thread; a reload that
     * changes the trusted roots gives another array of them. */
    void (*source_options)(void *data, struct source_options *options);
    void *data;
};
struct block_server *block_server_create(const struct block_server_options *options); /* borrows all of it */
/* From here on all asks are answered 502, and reads are cancelled. Any thread; accepts NULL. */
void block_server_stop(struct block_server *server);
/* After the last ask; waits for its helpers. Before the stores, the cache and the loop are destroyed. Accepts NULL. */
void block_server_destroy(struct block_server *server);
/* Once a second: closes files that no ask named for a minute. Any thread. */
void block_server_trim(struct block_server *server);

struct block_reply {
    int status;
    const unsigned char *bytes; /* of a 206: of the query's range, until block_reply_end() */
    uint64_t file_bytes;
    uint64_t read_bytes;              /* that the source was asked for */
    char reason[ERROR_MESSAGE_CHARS]; /* of all others */
    struct cached_block *pin;
};
/* Any thread; blocks it for at most WAIT_MS. cancel ends the wait, not the read. The reply goes to block_reply_end() in any
 * case. */
void block_server_get(struct block_server *server, const struct block_query *query, const struct cancel *cancel,
                      struct block_reply *reply);
void block_reply_end(struct block_server *server, struct block_reply *reply);

#endif
