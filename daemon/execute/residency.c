/* Runs of one file that lie close together are one span; rows that lie far apart are spans of their own. Spans are asked for in
 * pieces, since the kernel looks at every page of what it is asked: 6 ms for a GiB. A first pass counts the pieces; when they
 * are more than the questions, the second asks for every n-th. Of many pieces it asks for the beginnings: what is cached of a
 * piece is mostly all or nothing. */
#include "execute/residency.h"

#include "source/source.h"

enum { MAX_QUESTIONS = 256, PIECE_BYTES = 1 << 20, NEAR_BYTES = 1 << 20, MAX_ROWS = 4, MAX_ASKED_BYTES = 64 << 20 };

struct sample {
    struct source *source;
    struct source_extent extents[MAX_QUESTIONS]; /* of one file, asked for together */
    size_t n_extents;
    uint64_t asked_bytes, cached_bytes;
    uint64_t n_pieces, every; /* every 0 = only count */
    uint64_t most_bytes;      /* of a piece that are asked for */
};

struct span {
    uint64_t offset, end;
};

static void ask_extents(struct sample *sample, size_t file)
{
    if (sample->n_extents > 0)
        sample->cached_bytes += source_resident_extents(sample->source, file, sample->extents, sample->n_extents);
    sample->n_extents = 0;
}

static void ask(struct sample *sample, size_t file, struct span span)
{
    uint64_t first = sample->n_pieces, n = (span.end - span.offset + PIECE_BYTES - 1) / PIECE_BYTES;
    sample->n_pieces += n;
    if (!sample->every)
        return;
    for (uint64_t i = (sample->every - first % sample->every) % sample->every; i < n; i += sample->every) {
        uint64_t offset = span.offset + i * PIECE_BYTES, left = span.end - offset;
        uint64_t bytes = left < sample->most_bytes ? left : sample->most_bytes;
        sample->asked_bytes += bytes;
        sample->extents[sample->n_extents++] = (struct source_extent){offset, bytes};
        if (sample->n_extents == MAX_QUESTIONS)
            ask_extents(sample, file);
    }
}

static void ask_file(struct sample *sample, const struct mapping *mapping, size_t file)
{
    struct span span = {0};
    struct mapping_reads reads = mapping_reads(mapping, file);
    for (size_t i = 0; i < reads.n; i++) {
        const struct transfer *run = &reads.list[i];
        if (run->src_stride - run->row_bytes >= NEAR_BYTES) {
            uint64_t step = (run->n_rows + MAX_ROWS - 1) / MAX_ROWS; /* evenly chosen */
            for (uint64_t row = 0; row < run->n_rows; row += step) {
                uint64_t offset = run->src_offset + row * run->src_stride;
                ask(sample, file, (struct span){offset, offset + run->row_bytes});
            }
            continue;
        }
        if (span.end == span.offset || run->src_offset - span.end >= NEAR_BYTES) {
            if (span.end > span.offset)
                ask(sample, file, span);
            span.offset = run->src_offset;
        }
        span.end = transfer_end(run);
    }
    if (span.end > span.offset)
        ask(sample, file, span);
    ask_extents(sample, file);
}

double residency_cached_share(const struct mapping *mapping)
{
    struct source *source = mapping->artifact->source;
    struct sample sample = {.source = source};
    if (!source->caps.residency)
        return 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t file = 0; file < source->n_files; file++)
            ask_file(&sample, mapping, file);
        sample.every = 1 + sample.n_pieces / MAX_QUESTIONS;
        uint64_t n_asked = 1 + sample.n_pieces / sample.every;
        sample.most_bytes = MAX_ASKED_BYTES / n_asked < PIECE_BYTES ? MAX_ASKED_BYTES / n_asked : PIECE_BYTES;
        sample.n_pieces = 0;
    }
    return sample.asked_bytes ? (double)sample.cached_bytes / (double)sample.asked_bytes : 0;
}
