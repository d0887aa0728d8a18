/* Walks the runs of a mapping in file order and keeps one open step: a span that may still grow, or the rows of one run.
 *
 * Runs are sorted, disjoint spans, so a step that is closed stays closed. Spans that touch or overlap (one source slice
 * wanted twice) always become one. Rows of exact steps stay count x stride, never one step per row. */
#include "plan/steps.h"

struct walk {
    struct step_rule rule;
    struct plan_step open; /* count 0 = none */
    struct plan_step *out; /* NULL = measure only */
    struct step_totals totals;
};

static void close_step(struct walk *walk)
{
    const struct plan_step *open = &walk->open;
    if (open->count == 0)
        return;
    if (walk->out)
        walk->out[walk->totals.n_steps] = *open;
    walk->totals.n_steps++;
    walk->totals.requests += open->count;
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

static void add_run(struct walk *walk, const struct byte_run *run)
{
    if (run->n_rows == 1 || run->src_stride - run->row_bytes < walk->rule.hull_below_bytes) {
        add_span(walk, run->file, run->src_offset, byte_run_end(run));
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
    for (size_t i = mapping->file_first[file]; i < mapping->file_first[file + 1]; i++)
        add_run(walk, &mapping->runs[i]);
    close_step(walk);
}

struct step_totals steps_measure(const struct mapping *mapping, struct step_rule rule)
{
    struct walk walk = {.rule = rule};
    for (size_t file = 0; file < mapping->artifact->source->n_files; file++)
        walk_file(&walk, mapping, file);
    return walk.totals;
}

void steps_build(const struct mapping *mapping, struct step_rule rule, struct plan *plan)
{
    size_t n_files = mapping->artifact->source->n_files;
    plan->n_steps = steps_measure(mapping, rule).n_steps;
    plan->steps = arena_array(&plan->arena, plan->n_steps, sizeof *plan->steps);
    plan->file_first = arena_array(&plan->arena, n_files + 1, sizeof *plan->file_first);
    struct walk walk = {.rule = rule, .out = plan->steps};
    for (size_t file = 0; file < n_files; file++) {
        walk_file(&walk, mapping, file);
        plan->file_first[file + 1] = walk.totals.n_steps;
    }
}
