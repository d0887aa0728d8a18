/* One scan per file version, found by identity, so that loads of different artifacts, paths and ranks meet; see scan.h.
 *
 * Order within a run: blocks that it wants whole, in file order, then blocks that are read mostly for the sake of others
 * (column slices). Ranks that arrive within a moment of each other join the second kind before it is read.
 *
 * Where other hosts have some of the blocks, half of the workers take near ones and half far ones, so that the store and the
 * network are used from the start. The order of far ones differs from host to host: not all ask the same owner at once. */
#include "execute/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "execute/engine_private.h"
#include "execute/run.h"

static bool is_same_version(const struct scan *scan, const struct source *source, uint32_t file, uint64_t block_bytes)
{
    static const struct source_identity unknown;
    const struct source_identity *identity = &source->files[file].identity;
    if (scan->block_bytes != block_bytes || memcmp(&scan->identity, identity, sizeof *identity) != 0)
        return false;
    bool tells = memcmp(identity, &unknown, sizeof unknown) != 0 && source->files[file].changes_by != CHANGES_RACY;
    return tells || (scan->source == source && scan->file == file);
}

static struct scan *find_or_create_scan(struct engine *engine, const struct run *run, uint32_t file)
{
    const struct source *source = run->options.mapping->artifact->source;
    for (struct scan *scan = engine->scans; scan; scan = scan->next)
        if (is_same_version(scan, source, file, run->block_bytes))
            return scan;
    struct scan *fresh = memory_alloc(sizeof *fresh);
    *fresh = (struct scan){.identity = source->files[file].identity,
                           .source = source,
                           .file = file,
                           .block_bytes = run->block_bytes,
                           .next = engine->scans};
    fresh->ledger.kind = scan_choose_sum(run, file);
    engine->scans = fresh;
    return fresh;
}

static void destroy_scan(struct engine *engine, struct scan *scan)
{
    struct scan **link = &engine->scans;
    while (*link != scan)
        link = &(*link)->next;
    *link = scan->next;
    staging_forget(&engine->staging, scan);
    staging_forget(&engine->remote.images, scan);
    staging_forget(&engine->remote.windows, scan);
    ledger_fini(&scan->ledger);
    free(scan);
}

void scan_attach(struct engine *engine, struct run *run)
{
    const struct need *needs = run->needs.list;
    size_t room = 0;
    for (size_t i = 0; i < run->needs.n; i++)
        room += i == 0 || needs[i].file != needs[i - 1].file;
    run->members = memory_alloc_array(room, sizeof *run->members);
    for (size_t first = 0, end; first < run->needs.n; first = end) {
        for (end = first + 1; end < run->needs.n && needs[end].file == needs[first].file;)
            end++;
        struct scan *scan = find_or_create_scan(engine, run, needs[first].file);
        struct member *member = &run->members[run->n_members++];
        *member = (struct member){.run = run, .scan = scan, .next = scan->members, .first_need = first, .end_need = end};
        scan->members = member;
    }
}

void scan_detach(struct engine *engine, struct run *run)
{
    for (size_t i = 0; i < run->n_members; i++) {
        struct scan *scan = run->members[i].scan;
        struct member **link = &scan->members;
        while (*link != &run->members[i])
            link = &(*link)->next;
        *link = run->members[i].next;
        if (!scan->members)
            destroy_scan(engine, scan);
    }
    run->n_members = 0;
}

/* Index of the member's need for the block, or end_need. */
static size_t find_need(const struct member *member, uint64_t block)
{
    const struct need *needs = member->run->needs.list;
    size_t lo = member->first_need, hi = member->end_need;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (needs[middle].block < block)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < member->end_need && needs[lo].block == block ? lo : member->end_need;
}

bool scan_is_done(const struct member *member, uint64_t block)
{
    size_t need = find_need(member, block);
    return need < member->end_need && member->run->needs.list[need].state == NEED_DONE;
}

bool scan_is_wanted(const struct scan *scan, uint64_t block)
{
    for (const struct member *member = scan->members; member; member = member->next) {
        const struct run *run = member->run;
        size_t need = run->stage == RUN_ACTIVE && !run->has_failed ? find_need(member, block) : member->end_need;
        if (need < member->end_need && run->needs.list[need].state == NEED_PENDING)
            return true;
    }
    return false;
}

static struct member *member_of(struct run *run, size_t need)
{
    size_t lo = 0, hi = run->n_members;
    while (lo + 1 < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (run->members[middle].first_need <= need)
            lo = middle;
        else
            hi = middle;
    }
    return &run->members[lo];
}

static bool is_in_flight(const struct run *run, const struct scan *scan, uint64_t block)
{
    const struct crew *crew = run->origin ? &run->engine->remote.crew : &run->engine->crew;
    for (size_t i = 0; i < crew->n; i++) {
        const struct item *item = &crew->workers[i].item;
        if (item->kind == ITEM_BLOCK && item->scan == scan && item->block == block)
            return true;
    }
    return false;
}

bool scan_is_takeable(struct run *run, size_t need)
{
    return !is_in_flight(run, member_of(run, need)->scan, run->needs.list[need].block);
}

static bool take_deferred(struct run *run, size_t *need)
{
    struct run_needs *needs = &run->needs;
    size_t kept = 0;
    bool found = false;
    for (size_t i = 0; i < needs->n_deferred; i++) {
        size_t candidate = needs->deferred[i];
        if (needs->list[candidate].state != NEED_PENDING) /* joined another item meanwhile */
            continue;
        if (!found && scan_is_takeable(run, candidate)) {
            *need = candidate;
            found = true;
        } else {
            needs->deferred[kept++] = candidate;
        }
    }
    needs->n_deferred = kept;
    return found;
}

/* The next pending one of this pass: of the kind that fewer workers are at, near or far, and of the other
 * when there is none left. */
static bool find_next(struct run_needs *needs, size_t *need)
{
    bool is_far = needs->n_far > 0 && needs->n_taken[false] > needs->n_taken[true];
    for (int i = 0; i < 2; i++, is_far = !is_far) {
        size_t n = is_far ? needs->n_far : needs->n;
        while (needs->n_seen[is_far] < n) {
            size_t at = needs->n_seen[is_far]++, candidate = is_far ? needs->far[at] : at;
            const struct need *next = &needs->list[candidate];
            if (next->is_far != is_far || next->state != NEED_PENDING || need_is_amplified(next) != (needs->pass == 1))
                continue;
            *need = candidate;
            return true;
        }
    }
    return false;
}

static bool take_next(struct run *run, size_t *need)
{
    struct run_needs *needs = &run->needs;
    for (; needs->pass < 2; needs->pass++, needs->n_seen[false] = needs->n_seen[true] = 0) {
        while (find_next(needs, need)) {
            if (scan_is_takeable(run, *need))
                return true;
            ARRAY_RESERVE(needs->deferred, needs->n_deferred, needs->deferred_room);
            needs->deferred[needs->n_deferred++] = *need;
        }
    }
    return false;
}

bool scan_take(struct run *run, struct item *item)
{
    size_t need;
    if (!take_deferred(run, &need) && !take_next(run, &need))
        return false;
    scan_take_need(run, need, item);
    return true;
}

size_t scan_find_need(const struct run *run, uint32_t file, uint64_t block)
{
    size_t lo = 0, hi = run->n_members;
    while (lo < hi) {
        size_t middle = lo + (hi - lo) / 2;
        if (run->needs.list[run->members[middle].first_need].file < file)
            lo = middle + 1;
        else
            hi = middle;
    }
    if (lo == run->n_members || run->needs.list[run->members[lo].first_need].file != file)
        return SIZE_MAX;
    size_t need = find_need(&run->members[lo], block);
    return need < run->members[lo].end_need ? need : SIZE_MAX;
}

static void add_block_part(struct item *item, struct run *run, size_t need)
{
    struct part *part = item_add_part(item, run);
    part->need = need;
    part->file = run->needs.list[need].file;
    run_take_need(run, need);
}

void scan_take_need(struct run *run, size_t need, struct item *item)
{
    item_set_kind(item, ITEM_BLOCK);
    item->scan = member_of(run, need)->scan;
    item->block = run->needs.list[need].block;
    add_block_part(item, run, need);
    for (struct member *member = item->scan->members; member; member = member->next) {
        if (member->run == run || member->run->stage != RUN_ACTIVE || member->run->has_failed)
            continue;
        size_t theirs = find_need(member, item->block);
        if (theirs < member->end_need && member->run->needs.list[theirs].state == NEED_PENDING)
            add_block_part(item, member->run, theirs);
    }
}

/* --- sums: one ledger per scan, that is per version of a part file --- */

void scan_add_sum(struct engine *engine, struct scan *scan, const struct source_read *read, uint64_t bytes)
{
    if (read->checksum == CHECKSUM_NONE)
        return;
    pthread_mutex_lock(&engine->lock);
    if (scan->ledger.kind == read->checksum)
        ledger_add(&scan->ledger, read->offset, bytes, read->checksum_value);
    pthread_mutex_unlock(&engine->lock);
}

/* The widest of those that are computed quickly. */
enum checksum_kind scan_choose_sum(const struct run *run, uint32_t file)
{
    const struct source *source = run->options.mapping->artifact->source;
    enum checksum_kind kind = CHECKSUM_NONE;
    if (run->options.is_unverified || !source->caps.sums_on_the_way)
        return CHECKSUM_NONE;
    for (size_t i = 0; i < CHECKSUM_PER_FILE; i++) {
        enum checksum_kind given = source->files[file].checksums[i].kind;
        if (checksum_kind_is_crc(given) && checksum_bytes(given) > checksum_bytes(kind))
            kind = given;
    }
    const struct manifest *manifest = run->options.mapping->artifact->manifest; /* stands in for a store that gives none */
    const struct manifest_file *known = !kind && manifest ? manifest_find_file(manifest, source->files[file].name) : NULL;
    return known ? known->crc32c.kind : kind;
}

static struct ledger *find_ledger(struct run *run, uint32_t file)
{
    for (size_t i = 0; i < run->n_members; i++) {
        const struct member *member = &run->members[i];
        if (run->needs.list[member->first_need].file == file)
            return &member->scan->ledger;
    }
    return NULL;
}

struct ledger scan_copy_sums(struct run *run, uint32_t file)
{
    struct ledger copy = {0};
    pthread_mutex_lock(&run->engine->lock);
    const struct ledger *ledger = find_ledger(run, file);
    if (ledger)
        copy = ledger_copy(ledger);
    pthread_mutex_unlock(&run->engine->lock);
    return copy;
}

void scan_correct_sums(struct run *run, uint32_t file, const struct ledger_range *range)
{
    pthread_mutex_lock(&run->engine->lock);
    struct ledger *ledger = find_ledger(run, file);
    if (ledger)
        ledger_correct(ledger, range->offset, range->bytes, range->crc);
    pthread_mutex_unlock(&run->engine->lock);
}
