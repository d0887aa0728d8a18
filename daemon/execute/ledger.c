/* An array, sorted when a caller asks: ranges come in nearly any order and far more often than questions; see ledger.h. */
#include "execute/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/memory.h"

void ledger_fini(struct ledger *ledger)
{
    free(ledger->ranges);
    *ledger = (struct ledger){0};
}

struct ledger ledger_copy(const struct ledger *ledger)
{
    struct ledger copy = *ledger;
    copy.room = ledger->n_ranges;
    copy.ranges = ledger->n_ranges ? memory_try(copy.room * sizeof *copy.ranges) : NULL;
    if (copy.ranges)
        memcpy(copy.ranges, ledger->ranges, copy.room * sizeof *copy.ranges);
    else
        copy.room = copy.n_ranges = copy.n_sorted = 0;
    return copy;
}

/* There is one for every read that a client's load takes. */
static bool make_room(struct ledger *ledger)
{
    size_t room = ledger->room ? 2 * ledger->room : 16;
    struct ledger_range *ranges = memory_try(room * sizeof *ranges);
    if (!ranges)
        return false;
    if (ledger->n_ranges)
        memcpy(ranges, ledger->ranges, ledger->n_ranges * sizeof *ranges);
    free(ledger->ranges);
    ledger->ranges = ranges;
    ledger->room = room;
    return true;
}

void ledger_add(struct ledger *ledger, uint64_t offset, uint64_t bytes, uint64_t crc)
{
    if (bytes == 0 || ledger->kind == CHECKSUM_NONE)
        return;
    if (ledger->n_ranges == ledger->room && !make_room(ledger))
        return;
    ledger->ranges[ledger->n_ranges++] = (struct ledger_range){offset, bytes, crc, false};
}

static int compare_ranges(const void *a, const void *b)
{
    const struct ledger_range *left = a, *right = b;
    if (left->offset != right->offset)
        return left->offset < right->offset ? -1 : 1;
    return left->bytes < right->bytes ? -1 : left->bytes > right->bytes;
}

/* Sorts, makes one of equals and looks for overlaps. */
static void settle_block(struct ledger *ledger)
{
    size_t kept = 0;
    uint64_t end = 0;
    if (ledger->n_sorted == ledger->n_ranges)
        return;
    qsort(ledger->ranges, ledger->n_ranges, sizeof *ledger->ranges, compare_ranges);
    for (size_t i = 0; i < ledger->n_ranges; i++) {
        const struct ledger_range *range = &ledger->ranges[i];
        struct ledger_range *last = kept ? &ledger->ranges[kept - 1] : NULL;
        if (last && compare_ranges(last, range) == 0) {
            last->disputed = last->disputed || range->disputed || last->crc != range->crc;
            continue;
        }
        ledger->overlaps = ledger->overlaps || range->offset < end;
        end = range->offset + range->bytes > end ? range->offset + range->bytes : end;
        ledger->ranges[kept++] = *range;
    }
    ledger->n_ranges = ledger->n_sorted = kept;
}

void ledger_correct(struct ledger *ledger, uint64_t offset, uint64_t bytes, uint64_t crc)
{
    const struct ledger_range key = {.offset = offset, .bytes = bytes};
    settle_block(ledger);
    struct ledger_range *range =
        ledger->n_ranges ? bsearch(&key, ledger->ranges, ledger->n_ranges, sizeof key, compare_ranges) : NULL;
    if (!range)
        return;
    range->disputed = range->disputed || range->crc != crc;
    range->crc = crc;
}

struct ledger_sum ledger_sum(struct ledger *ledger, uint64_t prefix_bytes, uint64_t prefix_crc, uint64_t file_bytes)
{
    settle_block(ledger);
    struct ledger_sum sum = {.crc = prefix_crc, .overlaps = ledger->overlaps};
    uint64_t at = prefix_bytes;
    if (ledger->n_ranges && ledger->ranges[0].offset < prefix_bytes) { /* another read had that, too */
        sum.overlaps = sum.overlaps || ledger->ranges[0].offset > 0;
        sum.crc = 0;
        at = 0;
    }
    for (size_t i = 0; i < ledger->n_ranges; i++) {
        const struct ledger_range *range = &ledger->ranges[i];
        sum.missing_bytes += range->offset > at ? range->offset - at : 0;
        sum.crc = crc_combine(ledger->kind, sum.crc, range->crc, range->bytes);
        at = range->offset + range->bytes > at ? range->offset + range->bytes : at;
    }
    sum.missing_bytes += file_bytes > at ? file_bytes - at : 0;
    return sum;
}

/* Index of the first range, in order, that begins at `offset` or behind it. */
static size_t find_range(struct ledger *ledger, uint64_t offset)
{
    settle_block(ledger);
    size_t first = 0, end = ledger->n_ranges;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (ledger->ranges[middle].offset < offset)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

bool ledger_find_gap(struct ledger *ledger, uint64_t from, uint64_t end, uint64_t *lo, uint64_t *hi)
{
    size_t i = find_range(ledger, from);
    const struct ledger_range *before = i ? &ledger->ranges[i - 1] : NULL;
    *lo = before && before->offset + before->bytes > from ? before->offset + before->bytes : from;
    for (; i < ledger->n_ranges && ledger->ranges[i].offset <= *lo; i++)
        if (ledger->ranges[i].offset + ledger->ranges[i].bytes > *lo)
            *lo = ledger->ranges[i].offset + ledger->ranges[i].bytes;
    *hi = i < ledger->n_ranges && ledger->ranges[i].offset < end ? ledger->ranges[i].offset : end;
    return *lo < end;
}

bool ledger_sum_part(struct ledger *ledger, uint64_t lo, uint64_t hi, uint64_t *crc)
{
    size_t first = find_range(ledger, lo);
    *crc = 0;
    for (; lo < hi; first++) {
        const struct ledger_range *range = &ledger->ranges[first];
        if (first == ledger->n_ranges || range->offset != lo || range->bytes > hi - lo || range->disputed)
            return false;
        *crc = crc_combine(ledger->kind, *crc, range->crc, range->bytes);
        lo += range->bytes;
    }
    return true;
}
