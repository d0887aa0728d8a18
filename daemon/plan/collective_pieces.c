/* A sweep over the runs of all ranks in file order. Runs whose spans overlap are a cluster; what a cluster is decides how it
 * is read, by one routine each:
 *
 *   replicated, dim0   every run is contiguous, or lies within the contiguous ones: their union
 *   dim1               rows of one stride that begin in the same row and are as many: the union of their columns
 *   anything else      residual
 *
 * Pieces are cut at the batch limits: contiguous ones where the engine begins a read, rows between two rows. Small ones that
 * touch are joined, or a checkpoint of many small tensors would have a piece for every tensor and rank.
 *
 * How many of anything there are is the clients' choice, so all of it is metadata and can run out. */
#include "plan/collective_pieces.h"

#include "base/metadata.h"
#include "plan/rows.h"

static const uint64_t CUT_ALIGN_BYTES = 2 << 20; /* what the engine reads at a time */

struct entry {
    const struct transfer *run;
    uint32_t rank; /* index into ranks */
};

struct sweep {
    const struct collective_rank *ranks;
    size_t n_ranks;
    struct collective_cut cut;
    struct collective_plan *plan;
    size_t pieces_room, columns_room;
    struct mapping_reads *reads; /* per rank: of the file, those that are left */
    uint64_t *begins;            /* of the next run; UINT64_MAX = none is left */
    struct entry *cluster;
    size_t n_cluster, cluster_room;
    struct collective_columns *spans; /* scratch: unions, never more than the cluster has runs */
    size_t n_spans, spans_room;
    struct error *error;
    bool has_failed; /* and nothing is added any more */
};

static bool is_inner(enum job_kind job)
{
    return job == JOB_DIM1 || job == JOB_RECT2D;
}

static bool is_contiguous(const struct transfer *run)
{
    return run->n_rows == 1 || run->src_stride == run->row_bytes;
}

static const struct view_tensor *tensor_of(const struct sweep *sweep, const struct entry *entry)
{
    return &sweep->ranks[entry->rank].mapping->tensors[entry->run->tensor];
}

/* Its columns are the last ones that were added. */
static void add_piece(struct sweep *sweep, struct collective_piece piece)
{
    struct collective_plan *plan = sweep->plan;
    if (sweep->has_failed || METADATA_RESERVE(plan->pieces, plan->n_pieces, sweep->pieces_room, sweep->error) != 0) {
        sweep->has_failed = true;
        return;
    }
    plan->numbers.unique_source_bytes += piece.bytes;
    plan->numbers.n_jobs[piece.job]++;
    plan->pieces[plan->n_pieces++] = piece;
}

static void add_columns(struct sweep *sweep, uint64_t offset, uint64_t bytes)
{
    struct collective_plan *plan = sweep->plan;
    if (sweep->has_failed || METADATA_RESERVE(plan->columns, plan->n_columns, sweep->columns_room, sweep->error) != 0) {
        sweep->has_failed = true;
        return;
    }
    plan->columns[plan->n_columns++] = (struct collective_columns){offset, bytes};
}

/* --- replicated and dim0: contiguous spans -------------------------------------------------------------------------- */

static bool join_last(struct sweep *sweep, uint64_t lo, uint64_t end, enum job_kind job)
{
    struct collective_plan *plan = sweep->plan;
    uint32_t file = sweep->cluster[0].run->file;
    struct collective_piece *last = plan->n_pieces ? &plan->pieces[plan->n_pieces - 1] : NULL;
    bool is_span = last && last->count == 1 && last->n_columns == 1;
    if (!is_span || last->file != file || last->hi != lo || last->job != job || end - last->lo > CUT_ALIGN_BYTES)
        return false;
    last->hi = end;
    last->bytes = last->stride = plan->columns[last->first_columns].bytes = end - last->lo;
    plan->numbers.unique_source_bytes += end - lo;
    return true;
}

static void add_contiguous(struct sweep *sweep, uint64_t lo, uint64_t end, enum job_kind job)
{
    if (join_last(sweep, lo, end, job))
        return;
    uint64_t limit = is_inner(job) ? sweep->cut.inner_bytes : sweep->cut.contiguous_bytes;
    while (lo < end && !sweep->has_failed) {
        uint64_t hi = end;
        if (end - lo > limit) {
            uint64_t aligned = (lo + limit) & ~(CUT_ALIGN_BYTES - 1);
            hi = aligned > lo ? aligned : lo + limit;
        }
        add_columns(sweep, lo, hi - lo);
        add_piece(sweep, (struct collective_piece){.lo = lo,
                                                   .hi = hi,
                                                   .count = 1,
                                                   .stride = hi - lo,
                                                   .bytes = hi - lo,
                                                   .first_columns = sweep->plan->n_columns - 1,
                                                   .n_columns = 1,
                                                   .file = sweep->cluster[0].run->file,
                                                   .job = job});
        lo = hi;
    }
}

/* Adds to the union, whose spans come in rising order. */
static void unite(struct sweep *sweep, uint64_t offset, uint64_t end)
{
    struct collective_columns *last = sweep->n_spans ? &sweep->spans[sweep->n_spans - 1] : NULL;
    if (last && offset <= last->offset + last->bytes) {
        if (end > last->offset + last->bytes)
            last->bytes = end - last->offset;
        return;
    }
    sweep->spans[sweep->n_spans++] = (struct collective_columns){offset, end - offset};
}

/* `span` moves along with rising offsets. */
static bool lies_in_union(const struct sweep *sweep, const struct transfer *run, size_t *span)
{
    while (*span < sweep->n_spans && sweep->spans[*span].offset + sweep->spans[*span].bytes <= run->src_offset)
        (*span)++;
    const struct collective_columns *at = &sweep->spans[*span];
    return *span < sweep->n_spans && at->offset <= run->src_offset && transfer_end(run) <= at->offset + at->bytes;
}

static bool take_contiguous(struct sweep *sweep, enum job_kind job)
{
    sweep->n_spans = 0;
    for (size_t i = 0; i < sweep->n_cluster; i++)
        if (is_contiguous(sweep->cluster[i].run))
            unite(sweep, sweep->cluster[i].run->src_offset, transfer_end(sweep->cluster[i].run));
    for (size_t i = 0, span = 0; i < sweep->n_cluster; i++)
        if (!is_contiguous(sweep->cluster[i].run) && !lies_in_union(sweep, sweep->cluster[i].run, &span))
            return false;
    for (size_t i = 0; i < sweep->n_spans; i++)
        add_contiguous(sweep, sweep->spans[i].offset, sweep->spans[i].offset + sweep->spans[i].bytes, job);
    return true;
}

/* --- dim1: the same rows, one stride ------------------------------------------------------------------------------- */

static bool rows_line_up(const struct sweep *sweep)
{
    const struct transfer *first = sweep->cluster[0].run;
    for (size_t i = 0; i < sweep->n_cluster; i++) {
        const struct transfer *run = sweep->cluster[i].run;
        bool same = run->n_rows == first->n_rows && run->src_stride == first->src_stride &&
                    run->src_offset + run->row_bytes <= first->src_offset + first->src_stride;
        if (!same)
            return false;
    }
    return true; /* and no rank is here twice: its runs are disjoint spans */
}

/* Rows that are too large for a piece are cut, too. */
static void add_large_rows(struct sweep *sweep, uint64_t n_rows, uint64_t stride, enum job_kind job)
{
    for (uint64_t row = 0; row < n_rows && !sweep->has_failed; row++)
        for (size_t i = 0; i < sweep->n_spans; i++) {
            uint64_t lo = sweep->spans[i].offset + row * stride;
            add_contiguous(sweep, lo, lo + sweep->spans[i].bytes, job);
        }
}

static void add_rows(struct sweep *sweep, uint64_t n_rows, uint64_t stride, enum job_kind job)
{
    const struct collective_columns *last = &sweep->spans[sweep->n_spans - 1];
    uint64_t lo = sweep->spans[0].offset, width = last->offset + last->bytes - lo, bytes = 0;
    for (size_t i = 0; i < sweep->n_spans; i++)
        bytes += sweep->spans[i].bytes;
    uint64_t most = sweep->cut.inner_bytes / bytes;
    if (most == 0) {
        add_large_rows(sweep, n_rows, stride, job);
        return;
    }
    for (uint64_t row = 0, count; row < n_rows && !sweep->has_failed; row += count) {
        count = n_rows - row < most ? n_rows - row : most;
        size_t first = sweep->plan->n_columns;
        for (size_t i = 0; i < sweep->n_spans; i++)
            add_columns(sweep, sweep->spans[i].offset + row * stride, sweep->spans[i].bytes);
        add_piece(sweep, (struct collective_piece){.lo = lo + row * stride,
                                                   .hi = lo + (row + count - 1) * stride + width,
                                                   .count = count,
                                                   .stride = stride,
                                                   .bytes = count * bytes,
                                                   .first_columns = first,
                                                   .n_columns = sweep->n_spans,
                                                   .file = sweep->cluster[0].run->file,
                                                   .job = job});
    }
}

static bool take_rows(struct sweep *sweep, enum job_kind job)
{
    const struct transfer *first = sweep->cluster[0].run;
    if (!rows_line_up(sweep))
        return false;
    sweep->n_spans = 0;
    for (size_t i = 0; i < sweep->n_cluster; i++) /* clusters are sorted by offset */
        unite(sweep, sweep->cluster[i].run->src_offset,
              sweep->cluster[i].run->src_offset + sweep->cluster[i].run->row_bytes);
    if (sweep->n_spans == 1 && sweep->spans[0].bytes == first->src_stride)
        add_contiguous(sweep, first->src_offset, first->src_offset + first->n_rows * first->src_stride, job);
    else
        add_rows(sweep, first->n_rows, first->src_stride, job);
    return true;
}

/* --- the sweep ------------------------------------------------------------------------------------------------------ */

static void finish_cluster(struct sweep *sweep)
{
    /* the kind that needs the most care */
    enum job_kind job = JOB_REPLICATED;
    for (size_t i = 0; i < sweep->n_cluster; i++) {
        enum job_kind own = tensor_of(sweep, &sweep->cluster[i])->job;
        job = own > job ? own : job;
    }
    if (!take_contiguous(sweep, job) && !take_rows(sweep, job)) {
        for (size_t i = 0; i < sweep->n_cluster; i++)
            sweep->plan->numbers.residual_bytes += sweep->cluster[i].run->n_rows * sweep->cluster[i].run->row_bytes;
    }
}

static void note_begin(struct sweep *sweep, size_t rank)
{
    const struct mapping_reads *reads = &sweep->reads[rank];
    sweep->begins[rank] = reads->n ? reads->list->src_offset : UINT64_MAX;
}

/* The rank whose next run of the file begins first; n_ranks when none has any left. */
static size_t find_first(const struct sweep *sweep)
{
    size_t first = 0;
    for (size_t i = 1; i < sweep->n_ranks; i++)
        if (sweep->begins[i] < sweep->begins[first])
            first = i;
    return sweep->begins[first] < UINT64_MAX ? first : sweep->n_ranks;
}

static int add_run(struct sweep *sweep, struct entry entry)
{
    if (METADATA_RESERVE(sweep->cluster, sweep->n_cluster, sweep->cluster_room, sweep->error) != 0 ||
        METADATA_RESERVE(sweep->spans, sweep->n_cluster, sweep->spans_room, sweep->error) != 0)
        return -1;
    sweep->cluster[sweep->n_cluster++] = entry;
    return 0;
}

static int sweep_file(struct sweep *sweep, size_t file)
{
    uint64_t end = 0;
    for (size_t i = 0; i < sweep->n_ranks; i++) {
        sweep->reads[i] = mapping_reads(sweep->ranks[i].mapping, file);
        note_begin(sweep, i);
    }
    sweep->n_cluster = 0;
    for (size_t i; (i = find_first(sweep)) < sweep->n_ranks;) {
        const struct transfer *run = sweep->reads[i].list++;
        sweep->reads[i].n--;
        note_begin(sweep, i);
        if (sweep->n_cluster && run->src_offset >= end) {
            finish_cluster(sweep);
            sweep->n_cluster = 0;
        }
        end = sweep->n_cluster && end > transfer_end(run) ? end : transfer_end(run);
        if (sweep->has_failed || add_run(sweep, (struct entry){run, (uint32_t)i}) != 0)
            return -1;
    }
    if (sweep->n_cluster)
        finish_cluster(sweep);
    return sweep->has_failed ? -1 : 0;
}

int collective_pieces_build(const struct collective_rank *ranks, size_t n_ranks, struct collective_cut cut,
                            struct collective_plan *plan, struct error *error)
{
    struct sweep sweep = {.ranks = ranks, .n_ranks = n_ranks, .cut = cut, .plan = plan, .error = error};
    sweep.reads = metadata_array(n_ranks, sizeof *sweep.reads, error);
    sweep.begins = sweep.reads ? metadata_array(n_ranks, sizeof *sweep.begins, error) : NULL;
    int failed = sweep.begins ? 0 : -1;
    for (size_t file = 0; file < plan->n_files && !failed; file++) {
        plan->file_first[file] = plan->n_pieces;
        failed = sweep_file(&sweep, file);
    }
    plan->file_first[plan->n_files] = plan->n_pieces;
    metadata_free(sweep.reads);
    metadata_free(sweep.begins);
    metadata_free(sweep.cluster);
    metadata_free(sweep.spans);
    return failed;
}
