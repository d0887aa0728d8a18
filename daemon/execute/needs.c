/* Walks the plan's steps block by block, then counts what the mapping wants of each; see needs.h. Only blocks with something
 * to read are listed: files may be sparse and far larger than what is wanted of them. */
#include "execute/needs.h"

#include "base/memory.h"

struct walk {
    struct run *run;
    uint64_t block_bytes;
    size_t room;
};

static void add_read(struct walk *walk, uint32_t file, uint64_t block, uint64_t bytes)
{
    struct run *run = walk->run;
    struct need *last = run->n_needs ? &run->needs[run->n_needs - 1] : NULL;
    if (!last || last->file != file || last->block != block) {
        ARRAY_RESERVE(run->needs, run->n_needs, walk->room);
        last = &run->needs[run->n_needs++];
        *last = (struct need){.block = block, .file = file};
    }
    last->read_bytes += (uint32_t)bytes;
}

static void add_step(struct walk *walk, const struct plan_step *step)
{
    struct rows rows = rows_of_step(step);
    for (uint64_t at = rows.offset; at != UINT64_MAX;) {
        uint64_t block = at / walk->block_bytes, end = (block + 1) * walk->block_bytes;
        add_read(walk, step->file, block, rows_within(&rows, at, end));
        at = rows_next(&rows, end);
    }
}

/* Needs and runs are both in file order; a run's first block is at or after the one before. */
static size_t count_wanted(struct run *run, const struct transfer *wanted, size_t first, uint64_t block_bytes)
{
    struct rows rows = rows_of_transfer(wanted);
    uint64_t end = rows_end(&rows);
    while (first < run->n_needs &&
           (run->needs[first].file < wanted->file ||
            (run->needs[first].file == wanted->file && (run->needs[first].block + 1) * block_bytes <= rows.offset)))
        first++;
    for (size_t i = first; i < run->n_needs && run->needs[i].file == wanted->file; i++) {
        uint64_t lo = run->needs[i].block * block_bytes;
        if (lo >= end)
            break;
        run->needs[i].wanted_bytes += (uint32_t)rows_within(&rows, lo, lo + block_bytes);
    }
    return first;
}

void needs_build(struct run *run, uint64_t block_bytes)
{
    const struct plan *plan = run->options.plan;
    const struct mapping *mapping = run->options.mapping;
    struct walk walk = {.run = run, .block_bytes = block_bytes};
    for (size_t i = 0; i < plan->n_steps; i++)
        add_step(&walk, &plan->steps[i]);
    for (size_t i = 0, first = 0; i < mapping->n_transfers; i++)
        first = count_wanted(run, &mapping->transfers[i], first, block_bytes);
}
