/* Blocks of shared files that this host has read as their owner: a single-flight LRU cache. The first ask for bytes reads them.
 * Later ones get the same memory, until block_cache_trim() drops it.
 *
 *     ask for [lo, hi) --> pieces that are here | another ask reads them: wait | absent: read, in one request a gap
 *
 * A read that fails, is cancelled, or finds a changed file leaves its pieces absent. An ask that has waited for them then reads
 * them itself. An ask reads before it waits, so two asks never wait for each other. A block is pinned while it is asked for,
 * copied or sent. Any thread; reads run on the thread that asks. Blocks that were read ahead, and that no ask has named yet, are
 * evicted last. */
#ifndef HOSTS_BLOCK_CACHE_H
#define HOSTS_BLOCK_CACHE_H

#include "hosts/shared_block.h"

struct block_cache;
struct cached_block;

/* room: bytes that it may have now. Any thread; must not block, nor call the cache. */
struct block_cache *block_cache_create(uint64_t (*room)(void *data), void *data);
void block_cache_destroy(struct block_cache *cache); /* nothing is pinned; accepts NULL */
/* Evicts unpinned blocks: those beyond its room, least recently used first, and those that no ask named for keep_ns. */
void block_cache_trim(struct block_cache *cache, uint64_t keep_ns);

enum block_answer {
    BLOCK_HERE,    /* *bytes is byte lo, until block_cache_unpin() */
    BLOCK_ABSENT,  /* the ask has no source, and some of it is not here */
    BLOCK_READING, /* another ask reads it still, and wait_until_ns came first */
    BLOCK_NO_ROOM, /* pinned blocks fill the room, or there is no memory: the caller reads for itself */
    BLOCK_FAILED,  /* with the error of this ask's own read, or CANCELLED */
};
struct block_ask {
    struct shared_file file;
    uint64_t lo, hi;       /* of the file, within one block; not empty */
    struct source *source; /* to read from; NULL = only what is here, or comes by a read that is under way */
    size_t source_file;    /* index there */
    uid_t uid;             /* on whose behalf */
    const struct cancel *cancel;
    uint64_t wait_until_ns; /* for reads of other asks; as clock_now_ns(), 0 = as long as they take */
    bool is_ahead;          /* before any host asks: it takes only free room, and half of all room at most */
    uint64_t read_bytes;    /* out: asked of the source for this ask; whole pieces */
};
/* Blocks the thread until it has an answer. Sets pin and bytes for BLOCK_HERE alone, the error for BLOCK_FAILED alone. */
enum block_answer block_cache_get(struct block_cache *cache, struct block_ask *ask, const unsigned char **bytes,
                                  struct cached_block **pin, struct error *error);
void block_cache_unpin(struct block_cache *cache, struct cached_block *pin);
/* The same, and no ask from now on gets the block. */
void block_cache_discard(struct block_cache *cache, struct cached_block *pin);

/* The cost of a block: the longest recent read of a whole one (a maximum that decays), or the age of the oldest read under way if
 * that is more. 0 = not known yet. */
uint64_t block_cache_read_ns(struct block_cache *cache);

#endif
