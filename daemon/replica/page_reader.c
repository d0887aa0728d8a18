/* Happy path: start -> read_pages, on a helper -> on_read -> done. Whoever holds it ends it, before or after that; the memory goes
 * when both have happened, on a helper where pages are locked, since unlocking takes as long as locking. Failure modes: a file that
 * cannot be mapped, or pages that may not be locked (RLIMIT_MEMLOCK), which are read all the same. */
#include "replica/page_reader.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/metadata.h"
#include "observe/log.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

enum {
    REQUEST_BYTES = 8 << 20, /* the device is asked for so much at once; measured: more is no quicker */
    AHEAD_BYTES = 64 << 20,  /* of what is waited for */
};

struct locked_piece {
    void *address;
    size_t bytes;
};

struct page_reader {
    struct loop_work work; /* first */
    struct page_reading reading;
    bool is_reading, is_ended; /* the loop's */
    _Atomic bool is_cancelled;
    _Atomic uint64_t done_bytes;
    uint64_t started_ns;
    bool may_lock; /* its bytes are set aside in `locked_bytes` */
    uint64_t locked_bytes;
    struct locked_piece *pieces;
    size_t n_pieces, piece_room;
};

static _Atomic uint64_t locked_bytes; /* of all readers */

static bool set_aside(uint64_t bytes, uint64_t budget_bytes)
{
    uint64_t before = atomic_load(&locked_bytes);
    do
        if (bytes > budget_bytes || before > budget_bytes - bytes)
            return false;
    while (!atomic_compare_exchange_weak(&locked_bytes, &before, before + bytes));
    return true;
}

/* --- on a helper ------------------------------------------------------------------------------------------------------ */

static uint64_t most_ahead_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
}

static void ask_device(struct page_reader *reader, const struct page_range *range, uint64_t from, uint64_t to)
{
    struct source *source = reader->reading.artifact->source;
    for (uint64_t at = from; at < to && !reader->is_cancelled; at += REQUEST_BYTES) {
        uint64_t bytes = to - at < REQUEST_BYTES ? to - at : REQUEST_BYTES;
        if (source_resident_bytes(source, range->file, range->offset + at, bytes) < bytes)
            source_read_ahead(source, range->file, range->offset + at, bytes);
    }
}

/* Until the pages are there: they are mapped, which a signal or a file that is cut cannot hurt, since nobody touches them. */
static void await_pages(struct page_reader *reader, const struct page_range *range, uint64_t at, uint64_t bytes)
{
    uint64_t mapped_bytes;
    void *address = source_map(reader->reading.artifact->source, range->file, range->offset + at, bytes, &mapped_bytes);
    if (!address)
        return;
    if (reader->may_lock && mlock2(address, mapped_bytes, 0) == 0) { /* the same as mlock(), which sanitizers leave out */
        ARRAY_RESERVE(reader->pieces, reader->n_pieces, reader->piece_room);
        reader->pieces[reader->n_pieces++] = (struct locked_piece){address, mapped_bytes};
        reader->locked_bytes += bytes;
        return;
    }
    if (reader->may_lock && !reader->is_cancelled && log_allows(LOG_WARN, "pages_not_locked", LOG_NOBODY))
        log_warn("pages_not_locked", LOG_TEXT("artifact", reader->reading.artifact->reference),
                 LOG_TEXT("error", strerror(errno)), LOG_TEXT("hint", "LimitMEMLOCK= of the unit, or ulimit -l"));
    madvise(address, mapped_bytes, MADV_POPULATE_READ);
    munmap(address, mapped_bytes);
}

static void await_range(struct page_reader *reader, const struct page_range *range)
{
    uint64_t asked = 0;
    for (uint64_t at = 0; at < range->bytes && !reader->is_cancelled; at += REQUEST_BYTES) {
        uint64_t bytes = range->bytes - at < REQUEST_BYTES ? range->bytes - at : REQUEST_BYTES;
        uint64_t until = at + AHEAD_BYTES < range->bytes ? at + AHEAD_BYTES : range->bytes;
        ask_device(reader, range, asked, until);
        asked = until;
        await_pages(reader, range, at, bytes);
        reader->done_bytes += bytes;
    }
}

static void read_pages(struct loop_work *work)
{
    struct page_reader *reader = (struct page_reader *)work;
    const struct page_ranges *ranges = &reader->reading.ranges;
    uint64_t left = reader->reading.is_awaited ? UINT64_MAX : most_ahead_bytes();
    for (size_t i = 0; i < ranges->n && left && !reader->is_cancelled; i++) {
        const struct page_range *range = &ranges->list[i];
        uint64_t bytes = range->bytes < left ? range->bytes : left;
        if (reader->reading.is_awaited) {
            await_range(reader, range);
        } else {
            ask_device(reader, range, 0, bytes);
            reader->done_bytes += bytes;
        }
        left -= bytes;
    }
}

static void unlock_pages(struct loop_work *work)
{
    struct page_reader *reader = (struct page_reader *)work;
    for (size_t i = 0; i < reader->n_pieces; i++)
        munmap(reader->pieces[i].address, reader->pieces[i].bytes);
}

/* --- on the loop ------------------------------------------------------------------------------------------------------ */

static void free_reader(struct loop_work *work)
{
    struct page_reader *reader = (struct page_reader *)work;
    if (reader->may_lock)
        atomic_fetch_sub(&locked_bytes, reader->reading.ranges.bytes);
    artifact_unref(reader->reading.artifact);
    metadata_free(reader->reading.ranges.list);
    free(reader->pieces);
    free(reader);
}

static void place_work(struct page_reader *reader, void (*do_work)(struct loop_work *), void (*done)(struct loop_work *))
{
    reader->work = (struct loop_work){.do_work = do_work, .done = done, .uid = reader->reading.uid};
    source_place_work(reader->reading.artifact->reference, &reader->work);
    reader->work.pool = LOOP_VERIFY;
}

static void give_back(struct page_reader *reader)
{
    if (!reader->n_pieces) {
        free_reader(&reader->work);
        return;
    }
    place_work(reader, unlock_pages, free_reader);
    reader->work.pool = LOOP_LOCAL; /* it asks no device */
    loop_continue(reader->reading.loop, &reader->work);
}

static void on_read(struct loop_work *work)
{
    struct page_reader *reader = (struct page_reader *)work;
    reader->is_reading = false;
    if (reader->is_ended)
        give_back(reader);
    else if (reader->reading.done)
        reader->reading.done(reader->reading.data);
}

struct page_reader *page_reader_start(const struct page_reading *reading)
{
    struct page_reader *reader = memory_alloc(sizeof *reader);
    struct error error;
    reader->reading = *reading;
    reader->started_ns = clock_now_ns();
    artifact_ref(reading->artifact);
    reader->may_lock =
        reading->is_awaited && reading->ranges.bytes && set_aside(reading->ranges.bytes, reading->lock_budget_bytes);
    place_work(reader, read_pages, on_read);
    if (loop_submit(reading->loop, &reader->work, &error) == 0) {
        reader->is_reading = true;
        return reader;
    }
    free_reader(&reader->work);
    return NULL;
}

void page_reader_end(struct page_reader *reader)
{
    if (!reader)
        return;
    reader->is_ended = true;
    reader->is_cancelled = true;
    if (reader->is_reading)
        loop_cancel(reader->reading.loop, &reader->work);
    else
        give_back(reader);
}

bool page_reader_is_reading(const struct page_reader *reader)
{
    return reader->is_reading;
}

uint64_t page_reader_done_bytes(const struct page_reader *reader)
{
    return reader->done_bytes;
}

uint64_t page_reader_started_ns(const struct page_reader *reader)
{
    return reader->started_ns;
}

uint64_t page_reader_total_bytes(const struct page_reader *reader)
{
    return reader->reading.ranges.bytes;
}

uint64_t page_reader_locked_bytes(const struct page_reader *reader)
{
    return reader->is_reading ? 0 : reader->locked_bytes;
}
