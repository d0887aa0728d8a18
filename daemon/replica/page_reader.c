/* Happy path: start -> read_pages, on a helper -> on_read -> done. Its holder ends it, before or after that; the memory goes
 * when both have happened, on a helper where pages are locked, since unlocking takes as long as locking. Failure modes: a file
 * that cannot be mapped, or pages that may not be locked (RLIMIT_MEMLOCK), which are read all the same. */
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
#include "base/parallel.h"
#include "observe/log.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

enum {
    WINDOW_BYTES = 4 << 20, /* and at multiples of that: two huge pages, what a fault has the kernel read */
    N_THREADS = 8,          /* as many windows at once */
};

struct locked_piece {
    void *address; /* NULL = it is not locked */
    size_t bytes;
};

struct page_reader {
    struct loop_work work; /* first */
    struct page_reading reading;
    bool is_reading, is_ended; /* the loop's */
    _Atomic bool is_cancelled;
    _Atomic uint64_t done_bytes;
    uint64_t started_ns;
    struct quota_charge charge; /* of all of it ... */
    bool may_lock;              /* ... if it may be locked */
    _Atomic uint64_t locked_bytes;
    bool has_failed;
    struct error error; /* when it has */
    struct page_range *windows;
    size_t n_windows;
    struct locked_piece *pieces; /* of each window, if it may lock */
};

/* --- on a helper ------------------------------------------------------------------------------------------------------ */

static int cut_windows(struct page_reader *reader, struct error *error)
{
    const struct page_ranges *ranges = &reader->reading.ranges;
    /* more than the host has would only push out what was read first */
    uint64_t memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t left = reader->reading.is_awaited ? memory_bytes : memory_bytes / 2;
    uint64_t most = ranges->bytes < left ? ranges->bytes : left;
    size_t room = most / WINDOW_BYTES + 2 * ranges->n;
    reader->windows = metadata_array(room, sizeof *reader->windows, error);
    if (reader->windows && reader->may_lock)
        reader->pieces = metadata_array(room, sizeof *reader->pieces, error);
    if (!reader->windows || (reader->may_lock && !reader->pieces))
        return -1;
    for (size_t i = 0; i < ranges->n; i++) {
        const struct page_range *range = &ranges->list[i];
        uint64_t end = range->offset + range->bytes, at = range->offset, next;
        for (; at < end && left > 0; at = next) {
            next = (at / WINDOW_BYTES + 1) * WINDOW_BYTES;
            next = next < end ? next : end;
            reader->windows[reader->n_windows++] = (struct page_range){at, next - at, range->file};
            left -= next - at < left ? next - at : left;
        }
    }
    return 0;
}

static bool lock_piece(struct page_reader *reader, size_t i, void *address, size_t bytes)
{
    if (mlock2(address, bytes, 0) == 0) { /* the same as mlock(), which sanitizers leave out */
        reader->pieces[i] = (struct locked_piece){address, bytes};
        reader->locked_bytes += reader->windows[i].bytes;
        return true;
    }
    log_at_of(LOG_WARN, "pages_not_locked", reader->reading.uid, LOG_TEXT("artifact", reader->reading.artifact->reference),
              LOG_TEXT("error", strerror(errno)), LOG_TEXT("hint", "LimitMEMLOCK= of the unit, or ulimit -l"));
    return false;
}

/* The pages are mapped until they are there; no thread touches them, so a file that is cut raises no SIGBUS. What is asked for
 * in a mapping for huge pages comes in 2 MiB where the file system can: it takes a fifth of the CPU of readahead(), which
 * makes 4 KiB pages, and later touches cause fewer faults. */
static int read_window(void *data, size_t i, struct error *error)
{
    struct page_reader *reader = data;
    const struct page_range *window = &reader->windows[i];
    struct source *source = reader->reading.artifact->source;
    uint64_t bytes;
    (void)error;
    if (reader->is_cancelled)
        return 0;
    bool is_there = source_resident_bytes(source, window->file, window->offset, window->bytes) >= window->bytes;
    void *address =
        is_there && !reader->may_lock ? NULL : source_map(source, window->file, window->offset, window->bytes, &bytes);
    if (address) {
        madvise(address, bytes, MADV_HUGEPAGE);
        madvise(address, bytes, MADV_POPULATE_READ);
        if (!reader->may_lock || !lock_piece(reader, i, address, bytes))
            munmap(address, bytes);
    }
    reader->done_bytes += window->bytes;
    return 0;
}

static void read_pages(struct loop_work *work)
{
    struct page_reader *reader = (struct page_reader *)work;
    const struct page_reading *reading = &reader->reading;
    struct error none;
    struct metadata_account before = metadata_enter((struct metadata_account){.quota = reading->quota, .uid = reading->uid});
    reader->has_failed = cut_windows(reader, &reader->error) != 0;
    metadata_enter(before);
    if (!reader->has_failed)
        parallel_run(reader->n_windows, N_THREADS, read_window, reader, &none);
}

static void unlock_pages(struct loop_work *work)
{
    struct page_reader *reader = (struct page_reader *)work;
    for (size_t i = 0; i < reader->n_windows; i++)
        if (reader->pieces[i].address)
            munmap(reader->pieces[i].address, reader->pieces[i].bytes);
}

/* --- on the loop ------------------------------------------------------------------------------------------------------ */

static void free_reader(struct loop_work *work)
{
    struct page_reader *reader = (struct page_reader *)work;
    quota_charge_end(&reader->charge);
    artifact_unref(reader->reading.artifact);
    metadata_free(reader->reading.ranges.list);
    metadata_free(reader->windows);
    metadata_free(reader->pieces);
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
    if (!reader->locked_bytes) {
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
        reader->reading.done(reader->reading.data, reader->has_failed ? &reader->error : NULL);
}

/* If no memory may be locked there is nothing to tell. */
static bool set_aside(struct page_reader *reader)
{
    const struct page_reading *reading = &reader->reading;
    struct error error;
    reader->charge = (struct quota_charge){.quota = reading->quota, .kind = QUOTA_LOCKED, .uid = reading->uid};
    if (!reading->quota || !reading->ranges.bytes || quota_limit(reading->quota, QUOTA_LOCKED) == 0)
        return false;
    if (quota_charge_add(&reader->charge, reading->ranges.bytes, &error) == 0)
        return true;
    log_at_of(LOG_INFO, "pages_not_locked", reading->uid, LOG_TEXT("artifact", reading->artifact->reference),
              LOG_TEXT("error", error.message));
    return false;
}

struct page_reader *page_reader_start(const struct page_reading *reading, struct error *error)
{
    struct page_reader *reader = memory_alloc(sizeof *reader);
    reader->reading = *reading;
    reader->started_ns = clock_now_ns();
    artifact_ref(reading->artifact);
    reader->may_lock = reading->is_awaited && set_aside(reader);
    place_work(reader, read_pages, on_read);
    if (loop_submit(reading->loop, &reader->work, error) == 0) {
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
