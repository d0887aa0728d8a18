/* Walks what a mapping reads in file order and keeps one open step: a span that may still grow, or the rows of one run.
 *
 * Runs are sorted, disjoint spans, so a step that is closed stays closed. Spans that touch always become one. Rows of exact
 * steps stay count x stride, never one step per row. */
#include "plan/steps.h"

struct walk {
    struct step_rule rule;
    struct plan_step open; /* count 0 = none */
    uint64_t closed_end;   /* of the step before it, in the same file */
    struct plan_step *out; /* NULL = measure only */
    struct step_totals totals;
};

/* Every border of the grid that lies inside a row makes one request more. */
static uint64_t count_requests(const struct plan_step *step, uint64_t grid_bytes)
{
    uint64_t first = step->offset, end = first + (step->count - 1) * step->stride + step->bytes, requests = step->count;
    if (grid_bytes == 0)
        return requests;
    if (step->count == 1)
        return (end - 1) / grid_bytes - first / grid_bytes + 1;
    for (uint64_t border = (first / grid_bytes + 1) * grid_bytes; border < end; border += grid_bytes) {
        uint64_t inside = (border - first) % step->stride;
        requests += inside > 0 && inside < step->bytes;
    }
    return requests;
}

static void close_step(struct walk *walk)
{
    const struct plan_step *open = &walk->open;
    if (open->count == 0)
        return;
    /* rows that stay apart have neighbours that they do not stay apart from: on the grid, those share a request */
    uint64_t grid = walk->rule.grid_bytes, end = walk->closed_end;
    uint64_t gap = open->offset - end;
    walk->closed_end = open->offset + (open->count - 1) * open->stride + open->bytes;
    if (grid != 0 && end != 0 && gap < walk->rule.join_below_bytes && (end - 1) / grid == open->offset / grid) {
        walk->totals.requests--;
        walk->totals.read_bytes += gap;
    }
    if (walk->out)
        walk->out[walk->totals.n_steps] = *open;
    walk->totals.n_steps++;
    walk->totals.requests += count_requests(open, walk->rule.grid_bytes);
    walk->totals.read_bytes += open->count * open->bytes;
    walk->open.count = 0;
}

static void add_span(struct walk *walk, uint32_t file, uint64_t start, uint64_t end)
{
    struct plan_step *open = &walk->open;
    uint64_t open_end = open->offset + open->bytes;
    uint64_t gap = start > open_end ? start - open_end : 0;
    if (open->count == 1 && gap < walk->rule.join_below_bytes) {
        if (end > open_end)
            open->bytes = open->stride = end - open->offset;
        return;
    }
    close_step(walk);
    *open = (struct plan_step){.offset = start, .bytes = end - start, .count = 1, .stride = end - start, .file = file};
}

static void add_run(struct walk *walk, const struct transfer *run)
{
    if (run->n_rows == 1 || run->src_stride - run->row_bytes < walk->rule.hull_below_bytes) {
        add_span(walk, run->file, run->src_offset, transfer_end(run));
        return;
    }
    close_step(walk);
    walk->open = (struct plan_step){.offset = run->src_offset,
                                    .bytes = run->row_bytes,
                                    .count = run->n_rows,
                                    .stride = run->src_stride,
                                    .file = run->file};
}

static void walk_file(struct walk *walk, const struct mapping *mapping, size_t file)
{
    struct mapping_reads reads = mapping_reads(mapping, file);
    for (size_t i = 0; i < reads.n; i++)
        add_run(walk, &reads.list[i]);
    close_step(walk);
    walk->closed_end = 0;
}

struct step_totals steps_measure(const struct mapping *mapping, struct step_rule rule)
{
    struct walk walk = {.rule = rule};
    for (size_t file = 0; file < mapping->artifact->source->n_files; file++)
        walk_file(&walk, mapping, file);
    return walk.totals;
}

int steps_build(const struct mapping *mapping, struct step_rule rule, struct plan *plan, struct error *error)
{
    size_t n_files = mapping->artifact->source->n_files;
    plan->n_steps = steps_measure(mapping, rule).n_steps;
    plan->steps = arena_try_array(&plan->arena, plan->n_steps, sizeof *plan->steps, error);
    plan->file_first = arena_try_array(&plan->arena, n_files + 1, sizeof *plan->file_first, error);
    if (!plan->steps || !plan->file_first)
        return -1;
    struct walk walk = {.rule = rule, .out = plan->steps};
    for (size_t file = 0; file < n_files; file++) {
        walk_file(&walk, mapping, file);
        plan->file_first[file + 1] = walk.totals.n_steps;
    }
    return 0;
}
