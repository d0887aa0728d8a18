/* Walks the plan's steps block by block, then counts what the mapping wants of each; see needs.h. Only blocks with something
 * to read are listed: files may be sparse and far larger than what is wanted of them. */
#include "execute/needs.h"

#include "base/metadata.h"
#include "plan/rows.h"

static int add_step(struct run_needs *needs, size_t *room, const struct plan_step *step, uint64_t block_bytes,
                    struct error *error)
{
    struct rows rows = rows_of_step(step);
    for (uint64_t at = rows.offset; at != UINT64_MAX;) {
        uint64_t block = at / block_bytes, end = (block + 1) * block_bytes;
        struct need *last = needs->n ? &needs->list[needs->n - 1] : NULL;
        if (!last || last->file != step->file || last->block != block) {
            if (METADATA_RESERVE(needs->list, needs->n, *room, error) != 0)
                return -1;
            last = &needs->list[needs->n++];
            *last = (struct need){.block = block, .file = step->file};
        }
        last->read_bytes += (uint32_t)rows_within(&rows, at, end);
        at = rows_next(&rows, end);
    }
    return 0;
}

/* Needs and what is to be read are both in file order; a transfer's first block is at or after that of the one before. */
static size_t count_wanted(struct run_needs *needs, const struct transfer *wanted, size_t first, uint64_t block_bytes)
{
    struct need *list = needs->list;
    struct rows rows = rows_of_transfer(wanted);
    uint64_t end = rows_end(&rows);
    while (first < needs->n && (list[first].file < wanted->file ||
                                (list[first].file == wanted->file && (list[first].block + 1) * block_bytes <= rows.offset)))
        first++;
    for (size_t i = first; i < needs->n && list[i].file == wanted->file; i++) {
        uint64_t lo = list[i].block * block_bytes;
        if (lo >= end)
            break;
        list[i].wanted_bytes += (uint32_t)rows_within(&rows, lo, lo + block_bytes);
    }
    return first;
}

int needs_build(struct run_needs *needs, const struct plan *plan, const struct mapping *mapping, uint64_t block_bytes,
                struct error *error)
{
    size_t room = 0, first = 0;
    for (size_t i = 0; i < plan->n_steps; i++)
        if (add_step(needs, &room, &plan->steps[i], block_bytes, error) != 0) {
            needs->n = 0;
            return -1;
        }
    for (size_t file = 0; file < mapping->artifact->source->n_files; file++) {
        struct mapping_reads reads = mapping_reads(mapping, file);
        for (size_t i = 0; i < reads.n; i++)
            first = count_wanted(needs, &reads.list[i], first, block_bytes);
    }
    return 0;
}
