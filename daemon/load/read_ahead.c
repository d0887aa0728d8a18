/* See read_ahead.h. Each reader takes a block, reads it on a helper, and comes back for the next one, so that a pool's other work has
 * its turns. */
#include "load/read_ahead.h"

#include <stdlib.h>

#include "base/memory.h"
#include "hosts/shared_block.h"

/* As many as the engine's workers that read this host's blocks (half of 32), which is what one lane of helpers runs at once. So they have
 * a lane beside the source's, and what other hosts ask for waits for none of them. */
enum { READERS = 16, LANE = 0x61686561 /* "ahea": the number of no mount */ };

struct ahead_block {
    uint64_t number;
    uint32_t file;
    uint16_t pieces; /* a bit each */
};

struct reader {
    struct loop_work work; /* first */
    struct read_ahead *of;
};

struct read_ahead {
    struct block_holder *holder;
    struct artifact *artifact;
    struct loop *loop;
    struct cancel cancel;
    uid_t uid;
    struct ahead_block *blocks;
    size_t n_blocks, n_taken; /* taken: atomic; nothing more is to be read when it is at least n_blocks */
    bool is_cancelled;        /* atomic */
    bool is_stopped;          /* loop thread, like ... */
    size_t n_readers;         /* ... those that are not done */
    struct reader readers[READERS];
};

static bool is_cancelled(void *data)
{
    return __atomic_load_n(&((const struct read_ahead *)data)->is_cancelled, __ATOMIC_RELAXED);
}

static void take_no_more(struct read_ahead *ahead)
{
    __atomic_store_n(&ahead->n_taken, ahead->n_blocks, __ATOMIC_RELAXED);
}

/* --- which blocks --------------------------------------------------------------------------------------------------------- */

static void list_blocks(struct read_ahead *ahead, struct block_place *places, const struct rank_needs *others,
                        const struct rank_needs *own)
{
    size_t n = 0, n_kept = 0;
    for (uint32_t file = 0; file < others->n_files; file++)
        for (uint64_t block = others->first[file]; block < others->first[file + 1]; block++) {
            uint16_t pieces = others->pieces[block] & (uint16_t)~own->pieces[block];
            if (!pieces)
                continue;
            ahead->blocks[n] = (struct ahead_block){block - others->first[file], file, pieces};
            places[n] = (struct block_place){.file = file, .offset = ahead->blocks[n].number * SHARED_BLOCK_BYTES};
            n++;
        }
    ahead->holder->arrange(ahead->holder, ahead->artifact->source, places, n);
    for (size_t i = 0; i < n; i++)
        if (places[i].turn == 0)
            ahead->blocks[n_kept++] = ahead->blocks[i];
    ahead->n_blocks = n_kept;
}

static void destroy_ahead(struct read_ahead *ahead)
{
    artifact_unref(ahead->artifact);
    free(ahead->blocks);
    free(ahead);
}

struct read_ahead *read_ahead_build(struct block_holder *holder, struct artifact *artifact, const struct rank_needs *others,
                                    const struct rank_needs *own)
{
    struct read_ahead *ahead = memory_alloc(sizeof *ahead);
    *ahead = (struct read_ahead){.holder = holder, .artifact = artifact_ref(artifact), .cancel = {is_cancelled, ahead}};
    ahead->blocks = memory_try(others->n_blocks * sizeof *ahead->blocks);
    struct block_place *places = memory_try(others->n_blocks * sizeof *places);
    if (ahead->blocks && places)
        list_blocks(ahead, places, others, own);
    free(places);
    if (ahead->n_blocks > 0)
        return ahead;
    destroy_ahead(ahead);
    return NULL;
}

/* --- reading -------------------------------------------------------------------------------------------------------------- */

static bool read_block(const struct read_ahead *ahead, const struct ahead_block *block)
{
    uint64_t lo = block->number * SHARED_BLOCK_BYTES, end = ahead->artifact->source->files[block->file].size_bytes;
    bool goes_on = true;
    for (uint32_t pieces = block->pieces; pieces && goes_on;) {
        uint32_t first = (uint32_t)__builtin_ctz(pieces), n = (uint32_t)__builtin_ctz(~(pieces >> first));
        uint64_t at = lo + (uint64_t)first * SHARED_PIECE_BYTES, bytes = (uint64_t)n * SHARED_PIECE_BYTES;
        const struct block_want want = {
            .source = ahead->artifact->source,
            .read = {.file = block->file, .offset = at, .cancel = &ahead->cancel, .uid = ahead->uid}};
        if (at < end)
            goes_on = ahead->holder->read_ahead(ahead->holder, &want, bytes < end - at ? bytes : end - at);
        pieces &= ~(((1u << n) - 1) << first);
    }
    return goes_on;
}

static void read_on_helper(struct loop_work *work)
{
    struct read_ahead *ahead = ((struct reader *)work)->of;
    size_t next = __atomic_fetch_add(&ahead->n_taken, 1, __ATOMIC_RELAXED);
    if (next < ahead->n_blocks && !read_block(ahead, &ahead->blocks[next]))
        take_no_more(ahead);
}

static void on_read(struct loop_work *work)
{
    struct read_ahead *ahead = ((struct reader *)work)->of;
    if (__atomic_load_n(&ahead->n_taken, __ATOMIC_RELAXED) < ahead->n_blocks)
        loop_continue(ahead->loop, work);
    else if (--ahead->n_readers == 0 && ahead->is_stopped)
        destroy_ahead(ahead);
}

void read_ahead_start(struct read_ahead *ahead, struct loop *loop, uid_t uid, uint64_t lane)
{
    struct error error; /* too much waits there already */
    ahead->loop = loop;
    ahead->uid = uid;
    for (size_t i = 0; i < READERS && i < ahead->n_blocks; i++) {
        struct reader *reader = &ahead->readers[i];
        *reader = (struct reader){.work = {.do_work = read_on_helper, .done = on_read, .uid = uid}, .of = ahead};
        source_place_work(ahead->artifact->reference, &reader->work);
        reader->work.lane |= lane | loop_lane_of(LANE);
        if (loop_submit(loop, &reader->work, &error) == 0)
            ahead->n_readers++;
    }
}

void read_ahead_stop(struct read_ahead *ahead, bool cancels)
{
    if (!ahead)
        return;
    take_no_more(ahead);
    __atomic_store_n(&ahead->is_cancelled, cancels, __ATOMIC_RELAXED);
    ahead->is_stopped = true;
    if (ahead->n_readers == 0)
        destroy_ahead(ahead);
}
