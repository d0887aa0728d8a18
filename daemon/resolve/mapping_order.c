/* From transfers in any order to transfers that can be found by a range of the file, and to what has to be read.
 *
 * Sorting merges stretches that are sorted already: builders emit tensor by tensor, each in file order. Then transfers whose
 * spans overlap are a cluster, and its union is made by the first of these that can:
 *
 *   one transfer               itself
 *   contiguous ones, and rows  the union of spans
 *   that lie within them
 *   rows of one stride         the union of their columns: what a transposed matrix or alternate rows are
 *   anything else              every row by itself, sorted, as long as there are not too many
 *   too many rows              everything from the first to the last byte */
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "resolve/mapping.h"

enum {
    MAX_ROWS_APART = 1 << 20,      /* of one mapping, that are sorted one by one: some 0.1 s */
    WINDOW_BYTES = 8 << 20,        /* what a worker reads at once, about */
    MAX_WINDOW_TRANSFERS = 1 << 19 /* that it has to look at, and keep up to three clips of */
};

/* --- sorting -------------------------------------------------------------------------------------------------------- */

static bool is_before(const struct transfer *a, const struct transfer *b)
{
    if (a->file != b->file)
        return a->file < b->file;
    if (a->src_offset != b->src_offset)
        return a->src_offset < b->src_offset;
    return a->dst_offset < b->dst_offset;
}

/* Behind the last of the transfers from `first` on that come in order. */
static size_t find_run_end(const struct transfer *list, size_t first, size_t n)
{
    size_t end = first + 1;
    while (end < n && !is_before(&list[end], &list[end - 1]))
        end++;
    return end < n ? end : n;
}

/* Merges neighbouring runs of `from` into `to`. Returns the number of runs that are left. */
static size_t merge_runs(const struct transfer *from, size_t n, struct transfer *to)
{
    size_t n_runs = 0;
    for (size_t first = 0; first < n; n_runs++) {
        size_t middle = find_run_end(from, first, n);
        size_t end = middle < n ? find_run_end(from, middle, n) : n;
        size_t a = first, b = middle;
        for (size_t out = first; out < end; out++)
            to[out] = from[a < middle && (b == end || !is_before(&from[b], &from[a])) ? a++ : b++];
        first = end;
    }
    return n_runs;
}

static int sort_transfers(struct mapping *mapping, struct error *error)
{
    size_t n = mapping->n_transfers, n_runs;
    if (n == 0 || find_run_end(mapping->transfers, 0, n) == n)
        return 0;
    struct transfer *from = mapping->transfers, *to = metadata_array(n, sizeof *to, error), *spare = to;
    if (!spare)
        return -1;
    do {
        n_runs = merge_runs(from, n, to);
        struct transfer *merged = to;
        to = from;
        from = merged;
    } while (n_runs > 1);
    if (from != mapping->transfers)
        memcpy(mapping->transfers, from, n * sizeof *from);
    metadata_free(spare);
    return 0;
}

static int find_files(struct mapping *mapping, struct error *error)
{
    size_t n_files = mapping->artifact->source->n_files, file = 0;
    mapping->file_first = arena_try_array(&mapping->arena, n_files + 1, sizeof *mapping->file_first, error);
    if (!mapping->file_first)
        return -1;
    for (size_t i = 0; i < mapping->n_transfers; i++)
        while (file < mapping->transfers[i].file)
            mapping->file_first[++file] = i;
    while (file < n_files)
        mapping->file_first[++file] = mapping->n_transfers;
    return 0;
}

/* --- the union ------------------------------------------------------------------------------------------------------ */

struct span {
    uint64_t lo, hi;
};

struct unite {
    struct transfer *reads;
    size_t n_reads, reads_room, cluster_first; /* the reads of this cluster begin there */
    struct span *spans;                        /* scratch */
    size_t n_spans, spans_room;
    uint64_t rows_left; /* that may be looked at one by one */
    const struct transfer *cluster;
    size_t n_cluster;
    struct error *error;
};

static bool is_contiguous(const struct transfer *transfer)
{
    return transfer->n_rows == 1 || transfer->src_stride == transfer->row_bytes;
}

static int add_read(struct unite *unite, uint64_t offset, uint64_t bytes, uint64_t n_rows, uint64_t stride)
{
    if (METADATA_RESERVE(unite->reads, unite->n_reads, unite->reads_room, unite->error))
        return -1;
    unite->reads[unite->n_reads++] = (struct transfer){.src_offset = offset,
                                                       .row_bytes = bytes,
                                                       .n_rows = n_rows,
                                                       .src_stride = n_rows > 1 ? stride : bytes,
                                                       .file = unite->cluster->file,
                                                       .tensor = unite->cluster->tensor};
    return 0;
}

/* Becomes one more row of the last read where it can. Spans come in rising order and do not touch. */
static int add_span(struct unite *unite, struct span span)
{
    struct transfer *last = unite->n_reads > unite->cluster_first ? &unite->reads[unite->n_reads - 1] : NULL;
    uint64_t bytes = span.hi - span.lo;
    if (last && last->row_bytes == bytes && last->n_rows == 1) {
        last->src_stride = span.lo - last->src_offset;
        last->n_rows = 2;
        return 0;
    }
    if (last && last->row_bytes == bytes && span.lo == last->src_offset + last->n_rows * last->src_stride) {
        last->n_rows++;
        return 0;
    }
    return add_read(unite, span.lo, bytes, 1, bytes);
}

static int note_span(struct unite *unite, uint64_t lo, uint64_t hi)
{
    if (METADATA_RESERVE(unite->spans, unite->n_spans, unite->spans_room, unite->error))
        return -1;
    unite->spans[unite->n_spans++] = (struct span){lo, hi};
    return 0;
}

static int add_spans(struct unite *unite)
{
    for (size_t i = 0; i < unite->n_spans; i++)
        if (add_span(unite, unite->spans[i]))
            return -1;
    return 0;
}

/* Sorted spans -> disjoint ones that do not touch. */
static void join_spans(struct unite *unite)
{
    size_t kept = 0;
    for (size_t i = 1; i < unite->n_spans; i++) {
        struct span *last = &unite->spans[kept], next = unite->spans[i];
        if (next.lo > last->hi)
            unite->spans[++kept] = next;
        else if (next.hi > last->hi)
            last->hi = next.hi;
    }
    unite->n_spans = unite->n_spans ? kept + 1 : 0;
}

static bool have_one_stride(const struct unite *unite)
{
    const struct transfer *first = unite->cluster;
    for (size_t i = 0; i < unite->n_cluster; i++) {
        const struct transfer *other = &unite->cluster[i];
        if (other->n_rows != first->n_rows || other->src_stride != first->src_stride ||
            other->src_offset + other->row_bytes > first->src_offset + first->src_stride)
            return false;
    }
    return true;
}

static bool takes_rows(struct unite *unite, uint64_t n_rows)
{
    if (n_rows > unite->rows_left)
        return false;
    unite->rows_left -= n_rows;
    return true;
}

/* Of columns of equal rows. */
static int unite_columns(struct unite *unite)
{
    const struct transfer *first = unite->cluster;
    uint64_t stride = first->src_stride, n_rows = first->n_rows;
    unite->n_spans = 0;
    for (size_t i = 0; i < unite->n_cluster; i++)
        if (note_span(unite, unite->cluster[i].src_offset, unite->cluster[i].src_offset + unite->cluster[i].row_bytes))
            return -1;
    join_spans(unite);
    uint64_t lo = unite->spans[0].lo, width = unite->spans[unite->n_spans - 1].hi - lo;
    if (width == stride && unite->n_spans == 1)
        return add_read(unite, lo, n_rows * stride, 1, stride);
    if (unite->n_spans == 1 || n_rows > UINT64_MAX / unite->n_spans || !takes_rows(unite, n_rows * unite->n_spans))
        return add_read(unite, lo, width, n_rows, stride);
    for (uint64_t row = 0; row < n_rows; row++)
        for (size_t i = 0; i < unite->n_spans; i++)
            if (add_span(unite, (struct span){unite->spans[i].lo + row * stride, unite->spans[i].hi + row * stride}))
                return -1;
    return 0;
}

static int compare_spans(const void *a, const void *b)
{
    const struct span *left = a, *right = b;
    return left->lo < right->lo ? -1 : left->lo > right->lo;
}

static int unite_rows(struct unite *unite)
{
    unite->n_spans = 0;
    for (size_t i = 0; i < unite->n_cluster; i++) {
        const struct transfer *transfer = &unite->cluster[i];
        uint64_t n_rows = is_contiguous(transfer) ? 1 : transfer->n_rows;
        uint64_t bytes = is_contiguous(transfer) ? transfer_bytes(transfer) : transfer->row_bytes;
        for (uint64_t row = 0; row < n_rows; row++) {
            uint64_t lo = transfer->src_offset + row * transfer->src_stride;
            if (note_span(unite, lo, lo + bytes))
                return -1;
        }
    }
    qsort(unite->spans, unite->n_spans, sizeof *unite->spans, compare_spans);
    join_spans(unite);
    return add_spans(unite);
}

/* `hi`: behind the last byte of the cluster. */
static int unite_cluster(struct unite *unite, uint64_t hi)
{
    const struct transfer *first = unite->cluster;
    unite->cluster_first = unite->n_reads;
    if (unite->n_cluster == 1 && !is_contiguous(first))
        return add_read(unite, first->src_offset, first->row_bytes, first->n_rows, first->src_stride);
    if (unite->n_cluster == 1)
        return add_read(unite, first->src_offset, transfer_bytes(first), 1, 0);
    unite->n_spans = 0;
    for (size_t i = 0; i < unite->n_cluster; i++)
        if (is_contiguous(&first[i]) && note_span(unite, first[i].src_offset, transfer_end(&first[i])))
            return -1;
    join_spans(unite);
    uint64_t n_apart = 0; /* rows that lie in no contiguous span as a whole */
    for (size_t i = 0, at = 0; i < unite->n_cluster; i++) {
        while (at < unite->n_spans && unite->spans[at].hi <= first[i].src_offset)
            at++;
        bool is_within = at < unite->n_spans && unite->spans[at].lo <= first[i].src_offset &&
                         unite->spans[at].hi >= transfer_end(&first[i]);
        n_apart += is_within ? 0 : first[i].n_rows;
    }
    if (n_apart == 0)
        return add_spans(unite);
    if (unite->n_spans == 0 && have_one_stride(unite))
        return unite_columns(unite);
    if (takes_rows(unite, n_apart))
        return unite_rows(unite);
    return add_read(unite, first->src_offset, hi - first->src_offset, 1, 0);
}

static int unite_file(struct unite *unite, const struct mapping *mapping, size_t file)
{
    size_t i = mapping->file_first[file], end = mapping->file_first[file + 1];
    while (i < end) {
        uint64_t hi = transfer_end(&mapping->transfers[i]);
        unite->cluster = &mapping->transfers[i];
        for (unite->n_cluster = 1; i + unite->n_cluster < end; unite->n_cluster++) {
            const struct transfer *next = &unite->cluster[unite->n_cluster];
            if (next->src_offset >= hi)
                break;
            hi = transfer_end(next) > hi ? transfer_end(next) : hi;
        }
        if (unite_cluster(unite, hi))
            return -1;
        i += unite->n_cluster;
    }
    return 0;
}

static int unite_all(struct mapping *mapping, struct unite *unite)
{
    struct mapping_order *order = mapping->order;
    size_t n_files = mapping->artifact->source->n_files;
    order->reads_first = arena_try_array(&mapping->arena, n_files + 1, sizeof *order->reads_first, unite->error);
    if (!order->reads_first)
        return -1;
    for (size_t file = 0; file < n_files; file++) {
        if (unite_file(unite, mapping, file))
            return -1;
        order->reads_first[file + 1] = unite->n_reads;
    }
    order->n_reads = unite->n_reads;
    order->reads = arena_try_array(&mapping->arena, unite->n_reads, sizeof *order->reads, unite->error);
    if (!order->reads)
        return -1;
    memcpy(order->reads, unite->reads, unite->n_reads * sizeof *order->reads);
    return 0;
}

static int find_reach(struct mapping *mapping, struct error *error)
{
    uint64_t *reach = arena_try_array(&mapping->arena, mapping->n_transfers, sizeof *reach, error);
    if (!reach)
        return -1;
    mapping->order->reach = reach;
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        uint64_t end = transfer_end(&mapping->transfers[i]);
        bool is_first = i == 0 || mapping->transfers[i].file != mapping->transfers[i - 1].file;
        reach[i] = is_first || end > reach[i - 1] ? end : reach[i - 1];
    }
    return 0;
}

/* Workers belong to all users: how long one is busy with a window, and the memory of its clips, do not depend on the view. */
static int check_windows(const struct mapping *mapping, struct error *error)
{
    const uint64_t *reach = mapping->order->reach;
    for (size_t i = 0, first = 0; i < mapping->n_transfers; i++) {
        const struct transfer *last = &mapping->transfers[i];
        uint64_t lo = last->src_offset > WINDOW_BYTES ? last->src_offset - WINDOW_BYTES : 0;
        while (mapping->transfers[first].file != last->file || reach[first] <= lo)
            first++;
        if (i - first >= MAX_WINDOW_TRANSFERS)
            return fail(error, ERROR_UNIMPLEMENTED, "TOO_MANY_RUNS",
                        "tensor %s: more than %d byte runs meet within %d MiB of a file; slice fewer inner dimensions",
                        text_show_bytes(mapping->tensors[last->tensor].record->name,
                                        mapping->tensors[last->tensor].record->name_length),
                        MAX_WINDOW_TRANSFERS, WINDOW_BYTES >> 20);
    }
    return 0;
}

int mapping_order(struct mapping *mapping, struct error *error)
{
    mapping->order = NULL;
    if (sort_transfers(mapping, error) || find_files(mapping, error))
        return -1;
    const struct transfer *list = mapping->transfers;
    size_t n_apart = 1;
    while (n_apart < mapping->n_transfers &&
           (list[n_apart].file != list[n_apart - 1].file || transfer_end(&list[n_apart - 1]) <= list[n_apart].src_offset))
        n_apart++;
    if (n_apart >= mapping->n_transfers)
        return 0;
    struct unite unite = {.rows_left = MAX_ROWS_APART, .error = error};
    mapping->order = arena_alloc(&mapping->arena, sizeof *mapping->order);
    int result = find_reach(mapping, error) || check_windows(mapping, error) || unite_all(mapping, &unite) ? -1 : 0;
    metadata_free(unite.reads);
    metadata_free(unite.spans);
    return result;
}

/* --- looking up ----------------------------------------------------------------------------------------------------- */

size_t mapping_find(const struct mapping *mapping, uint32_t file, uint64_t at)
{
    size_t lo = mapping->file_first[file], hi = mapping->file_first[file + 1];
    const uint64_t *reach = mapping->order ? mapping->order->reach : NULL;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if ((reach ? reach[middle] : transfer_end(&mapping->transfers[middle])) <= at)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

uint64_t mapping_source_bytes(const struct mapping *mapping)
{
    uint64_t bytes = 0;
    for (size_t file = 0; file < mapping->artifact->source->n_files; file++) {
        struct mapping_reads reads = mapping_reads(mapping, file);
        for (size_t i = 0; i < reads.n; i++)
            bytes += transfer_bytes(&reads.list[i]);
    }
    return bytes;
}
