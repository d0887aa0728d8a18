/* See block_cache.h. One lock, which nothing holds while it reads, maps or unmaps memory: blocks that go are collected in a list
 * and freed without it.
 *
 *     bit of a piece   here 0, reading 0: absent --> reading 1 --> here 1 (the read was good), or absent again
 *
 * A block goes when it is not pinned; asks that read or wait have it pinned. */
#include "hosts/block_cache.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/condition.h"
#include "base/huge_pages.h"
#include "base/memory.h"
#include "blocks/blocks.h"

enum { FIRST_BUCKETS = 64, PAGE_BYTES = 4096, CANCEL_POLL_MS = 100, DECAY_READS = 8 };
_Static_assert(SHARED_BLOCK_BYTES / SHARED_PIECE_BYTES < 32, "a bit a piece");

struct cached_block {
    struct cached_block *next;          /* in its bucket, or in a list of those that go */
    struct cached_block *newer, *older; /* by last use */
    struct shared_file file;
    uint64_t number, bytes; /* of the file: the last block is shorter */
    unsigned char *memory;
    uint64_t memory_bytes;
    uint32_t here, reading; /* a bit a piece */
    uint32_t n_pins;
    bool is_discarded; /* it goes with its last pin */
    bool is_ahead;     /* it was read ahead, and not asked for yet */
    uint64_t used_ns;
};

struct reading { /* on the stack of the thread that reads */
    struct reading *newer, *older;
    uint64_t began_ns;
};

struct block_cache {
    uint64_t (*room)(void *data);
    void *data;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t read;  /* a read has ended */
    struct cached_block **buckets;
    size_t n_buckets; /* a power of two */
    struct cached_block *oldest, *newest;
    struct reading *oldest_read, *newest_read;
    size_t n_blocks;
    uint64_t bytes, pinned_bytes, ahead_bytes; /* memory comes in pages of 4 KiB */
    uint64_t block_read_ns;
};

struct block_cache *block_cache_create(uint64_t (*room)(void *data), void *data)
{
    struct block_cache *cache = memory_alloc(sizeof *cache);
    *cache = (struct block_cache){.room = room, .data = data, .n_buckets = FIRST_BUCKETS};
    cache->buckets = memory_alloc_array(cache->n_buckets, sizeof *cache->buckets);
    pthread_mutex_init(&cache->lock, NULL);
    condition_init(&cache->read);
    return cache;
}

/* --- the table and its order ---------------------------------------------------------------------------------------- */

static struct cached_block **find_bucket(const struct block_cache *cache, const struct shared_file *file, uint64_t number)
{
    uint64_t mixed = (file->hash ^ number) * 0x9e3779b97f4a7c15u; /* 2^64 by the golden ratio */
    return &cache->buckets[mixed >> 32 & (cache->n_buckets - 1)];
}

static struct cached_block *find_cached_block(const struct block_cache *cache, const struct block_ask *ask)
{
    uint64_t number = ask->lo / SHARED_BLOCK_BYTES;
    struct cached_block *block = *find_bucket(cache, &ask->file, number);
    while (block && (block->is_discarded || block->number != number || strcmp(block->file.id, ask->file.id) != 0))
        block = block->next;
    return block;
}

static void grow_buckets(struct block_cache *cache)
{
    free(cache->buckets);
    cache->n_buckets *= 2;
    cache->buckets = memory_alloc_array(cache->n_buckets, sizeof *cache->buckets);
    for (struct cached_block *block = cache->oldest; block; block = block->newer) {
        struct cached_block **bucket = find_bucket(cache, &block->file, block->number);
        block->next = *bucket;
        *bucket = block;
    }
}

static void unlink_block(struct block_cache *cache, struct cached_block *block)
{
    *(block->older ? &block->older->newer : &cache->oldest) = block->newer;
    *(block->newer ? &block->newer->older : &cache->newest) = block->older;
}

static void link_newest(struct block_cache *cache, struct cached_block *block)
{
    block->newer = NULL;
    block->older = cache->newest;
    *(cache->newest ? &cache->newest->newer : &cache->oldest) = block;
    cache->newest = block;
    block->used_ns = clock_now_ns();
}

static void note_ahead(struct block_cache *cache, struct cached_block *block, bool is_ahead)
{
    cache->ahead_bytes += is_ahead ? block->memory_bytes : 0;
    cache->ahead_bytes -= block->is_ahead ? block->memory_bytes : 0;
    block->is_ahead = is_ahead;
}

static void drop_block(struct block_cache *cache, struct cached_block *block, struct cached_block **gone)
{
    note_ahead(cache, block, false);
    struct cached_block **link = find_bucket(cache, &block->file, block->number);
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    unlink_block(cache, block);
    cache->n_blocks--;
    cache->bytes -= block->memory_bytes;
    block->next = *gone;
    *gone = block;
}

/* Until so many bytes more fit, if they can. What was read ahead is to be asked for: it goes last. */
static void evict_blocks(struct block_cache *cache, uint64_t bytes, uint64_t room, struct cached_block **gone)
{
    struct cached_block *newer;
    for (int is_ahead = 0; is_ahead < 2; is_ahead++)
        for (struct cached_block *block = cache->oldest; block && cache->bytes + bytes > room; block = newer) {
            newer = block->newer;
            if (!block->n_pins && block->is_ahead == is_ahead)
                drop_block(cache, block, gone);
        }
}

static bool has_room(const struct block_cache *cache, uint64_t bytes, uint64_t room, bool is_ahead)
{
    if (is_ahead)
        return cache->bytes + bytes <= room && cache->ahead_bytes + bytes <= room / 2;
    return cache->pinned_bytes + bytes <= room;
}

static void pin_block(struct block_cache *cache, struct cached_block *block)
{
    cache->pinned_bytes += block->n_pins++ ? 0 : block->memory_bytes;
}

/* Nothing is lost with a block of which nothing is here. */
static void unpin_block(struct block_cache *cache, struct cached_block *block, struct cached_block **gone)
{
    if (--block->n_pins)
        return;
    cache->pinned_bytes -= block->memory_bytes;
    if (!block->here || block->is_discarded)
        drop_block(cache, block, gone);
}

/* --- blocks --------------------------------------------------------------------------------------------------------- */

static void free_blocks(struct cached_block *gone)
{
    for (struct cached_block *next; gone; gone = next) {
        next = gone->next;
        if (gone->memory)
            munmap(gone->memory, gone->memory_bytes);
        free(gone);
    }
}

/* Without memory if there is none. */
static struct cached_block *make_block(const struct block_ask *ask)
{
    struct cached_block *block = memory_alloc(sizeof *block);
    uint64_t number = ask->lo / SHARED_BLOCK_BYTES;
    uint64_t left = ask->source->files[ask->source_file].size_bytes - number * SHARED_BLOCK_BYTES;
    uint64_t bytes = left < SHARED_BLOCK_BYTES ? left : SHARED_BLOCK_BYTES;
    *block = (struct cached_block){.file = ask->file,
                                   .number = number,
                                   .bytes = bytes,
                                   .memory_bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES};
    block->memory = huge_pages_map(block->memory_bytes);
    return block;
}

/* Adds what the ask is for. Another ask may have been quicker. NULL: there is no room. */
static struct cached_block *add(struct block_cache *cache, const struct block_ask *ask, struct cached_block **gone)
{
    pthread_mutex_unlock(&cache->lock);
    struct cached_block *made = make_block(ask);
    uint64_t room = cache->room(cache->data);
    pthread_mutex_lock(&cache->lock);
    struct cached_block *block = find_cached_block(cache, ask);
    if (block || !made->memory || !has_room(cache, made->memory_bytes, room, ask->is_ahead)) {
        made->next = *gone;
        *gone = made;
        return block;
    }
    evict_blocks(cache, made->memory_bytes, room, gone);
    if (cache->n_blocks++ == cache->n_buckets)
        grow_buckets(cache);
    cache->bytes += made->memory_bytes;
    note_ahead(cache, made, ask->is_ahead);
    struct cached_block **bucket = find_bucket(cache, &made->file, made->number);
    made->next = *bucket;
    *bucket = made;
    link_newest(cache, made);
    return made;
}

/* --- asks ----------------------------------------------------------------------------------------------------------- */

struct pieces {
    uint32_t first, end;
};

static uint32_t bits_of(struct pieces pieces)
{
    return (1u << pieces.end) - (1u << pieces.first);
}

/* The first run of pieces that are neither here nor read. False: there are none. */
static bool find_gap(const struct cached_block *block, struct pieces wanted, struct pieces *gap)
{
    uint32_t taken = block->here | block->reading, at = wanted.first;
    while (at < wanted.end && taken >> at & 1)
        at++;
    gap->first = at;
    while (at < wanted.end && !(taken >> at & 1))
        at++;
    gap->end = at;
    return gap->first < gap->end;
}

static void begin_reading(struct block_cache *cache, struct reading *reading)
{
    *reading = (struct reading){.older = cache->newest_read, .began_ns = clock_now_ns()};
    *(cache->newest_read ? &cache->newest_read->newer : &cache->oldest_read) = reading;
    cache->newest_read = reading;
}

static void end_reading(struct block_cache *cache, const struct reading *reading, uint64_t good_bytes)
{
    uint64_t took_ns = clock_now_ns() - reading->began_ns, most_ns = cache->block_read_ns;
    *(reading->older ? &reading->older->newer : &cache->oldest_read) = reading->newer;
    *(reading->newer ? &reading->newer->older : &cache->newest_read) = reading->older;
    if (good_bytes == SHARED_BLOCK_BYTES)
        cache->block_read_ns = took_ns > most_ns ? took_ns : most_ns - (most_ns - took_ns) / DECAY_READS;
}

/* With the lock, but not while it reads. */
static int read_gap(struct block_cache *cache, struct block_ask *ask, struct cached_block *block, struct pieces gap,
                    struct error *error)
{
    struct reading reading;
    uint64_t lo = (uint64_t)gap.first * SHARED_PIECE_BYTES, hi = (uint64_t)gap.end * SHARED_PIECE_BYTES;
    hi = hi < block->bytes ? hi : block->bytes;
    const struct iovec iov = {block->memory + lo, hi - lo};
    struct block_want want = {.source = ask->source,
                              .read = {.file = ask->source_file,
                                       .offset = block->number * SHARED_BLOCK_BYTES + lo,
                                       .iov = &iov,
                                       .n_iov = 1,
                                       .cancel = ask->cancel,
                                       .uid = ask->uid}};
    block->reading |= bits_of(gap);
    ask->read_bytes += hi - lo;
    begin_reading(cache, &reading);
    pthread_mutex_unlock(&cache->lock);
    int failed = blocks_get(&want, error); /* others get it by its version: the file may have been changed meanwhile */
    failed = failed ? failed : source_check_still(ask->source, ask->source_file, error);
    pthread_mutex_lock(&cache->lock);
    end_reading(cache, &reading, failed ? 0 : hi - lo);
    block->reading &= ~bits_of(gap);
    block->here |= failed ? 0 : bits_of(gap);
    pthread_cond_broadcast(&cache->read);
    return failed;
}

/* Until it is all here. The block is pinned. */
static enum block_answer fill_block(struct block_cache *cache, struct block_ask *ask, struct cached_block *block,
                                    struct error *error)
{
    uint64_t block_lo = block->number * SHARED_BLOCK_BYTES;
    const struct pieces wanted = {(uint32_t)((ask->lo - block_lo) / SHARED_PIECE_BYTES),
                                  (uint32_t)((ask->hi - 1 - block_lo) / SHARED_PIECE_BYTES + 1)};
    struct pieces gap;
    while (~block->here & bits_of(wanted)) {
        if (find_gap(block, wanted, &gap)) {
            if (!ask->source)
                return BLOCK_ABSENT;
            if (read_gap(cache, ask, block, gap, error) != 0)
                return BLOCK_FAILED;
            continue;
        }
        uint64_t now = clock_now_ns(), until = now + (uint64_t)CANCEL_POLL_MS * NS_PER_MS;
        if (cancel_is_set(ask->cancel)) {
            fail(error, ERROR_CANCELLED, "CANCELLED", "cancelled while another request read the bytes");
            return BLOCK_FAILED;
        }
        if (ask->wait_until_ns && now >= ask->wait_until_ns)
            return BLOCK_READING;
        condition_wait_until(&cache->read, &cache->lock,
                             ask->wait_until_ns && ask->wait_until_ns < until ? ask->wait_until_ns : until);
    }
    return BLOCK_HERE;
}

enum block_answer block_cache_get(struct block_cache *cache, struct block_ask *ask, const unsigned char **bytes,
                                  struct cached_block **pin, struct error *error)
{
    struct cached_block *gone = NULL;
    uint64_t offset = ask->lo % SHARED_BLOCK_BYTES;
    enum block_answer answer;
    assert(ask->lo < ask->hi && ask->hi - ask->lo <= SHARED_BLOCK_BYTES - offset);
    ask->read_bytes = 0;
    if (ask->source && ask->hi > ask->source->files[ask->source_file].size_bytes) {
        fail(error, ERROR_DATA_LOSS, "BEYOND_END_OF_FILE",
             "a block that ends at byte %" PRIu64 " of a file of %" PRIu64 " bytes", ask->hi,
             ask->source->files[ask->source_file].size_bytes);
        return BLOCK_FAILED;
    }
    pthread_mutex_lock(&cache->lock);
    struct cached_block *block = find_cached_block(cache, ask);
    if (!block && ask->source)
        block = add(cache, ask, &gone);
    if (!block || offset + (ask->hi - ask->lo) > block->bytes) { /* or the same version has another size elsewhere */
        answer = ask->source ? BLOCK_NO_ROOM : BLOCK_ABSENT;
    } else {
        pin_block(cache, block);
        note_ahead(cache, block, block->is_ahead && ask->is_ahead);
        answer = fill_block(cache, ask, block, error);
        if (answer == BLOCK_HERE) { /* a use is when it is had: a slow read is no reason to drop what it brought */
            unlink_block(cache, block);
            link_newest(cache, block);
        } else {
            unpin_block(cache, block, &gone);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    free_blocks(gone);
    if (answer == BLOCK_HERE) {
        *bytes = block->memory + offset;
        *pin = block;
    }
    return answer;
}

static void unpin(struct block_cache *cache, struct cached_block *pin, bool is_discarded)
{
    struct cached_block *gone = NULL;
    pthread_mutex_lock(&cache->lock);
    pin->is_discarded = pin->is_discarded || is_discarded;
    unpin_block(cache, pin, &gone);
    pthread_mutex_unlock(&cache->lock);
    free_blocks(gone);
}

void block_cache_unpin(struct block_cache *cache, struct cached_block *pin)
{
    unpin(cache, pin, false);
}

void block_cache_discard(struct block_cache *cache, struct cached_block *pin)
{
    unpin(cache, pin, true);
}

void block_cache_trim(struct block_cache *cache, uint64_t keep_ns)
{
    struct cached_block *gone = NULL, *newer;
    uint64_t room = cache->room(cache->data);
    pthread_mutex_lock(&cache->lock);
    uint64_t now = clock_now_ns();
    for (struct cached_block *block = cache->oldest; block && now - block->used_ns >= keep_ns; block = newer) {
        newer = block->newer;
        if (!block->n_pins)
            drop_block(cache, block, &gone);
    }
    evict_blocks(cache, 0, room, &gone);
    pthread_mutex_unlock(&cache->lock);
    free_blocks(gone);
}

void block_cache_destroy(struct block_cache *cache)
{
    if (!cache)
        return;
    assert(!cache->pinned_bytes);
    struct cached_block *gone = NULL;
    evict_blocks(cache, 0, 0, &gone);
    free_blocks(gone);
    free(cache->buckets);
    pthread_cond_destroy(&cache->read);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* --- what it tells -------------------------------------------------------------------------------------------------- */

uint64_t block_cache_read_ns(struct block_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    uint64_t read_ns = cache->block_read_ns;
    uint64_t oldest_ns = cache->oldest_read ? clock_now_ns() - cache->oldest_read->began_ns : 0;
    pthread_mutex_unlock(&cache->lock);
    return oldest_ns > read_ns ? oldest_ns : read_ns;
}
