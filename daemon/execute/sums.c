/* One ledger per scan, that is per version of a part file; see sums.h. */
#include "execute/sums.h"

#include "execute/engine_private.h"

void sums_add(struct engine *engine, struct scan *scan, const struct source_read *read, uint64_t bytes)
{
    if (read->checksum == CHECKSUM_NONE)
        return;
    pthread_mutex_lock(&engine->lock);
    if (scan->ledger.kind == read->checksum)
        ledger_add(&scan->ledger, read->offset, bytes, read->checksum_value);
    pthread_mutex_unlock(&engine->lock);
}

/* A manifest stands in for a store that gives none. */
static enum checksum_kind manifest_kind(const struct artifact *artifact, uint32_t file)
{
    const struct manifest_file *known =
        artifact->manifest ? manifest_find_file(artifact->manifest, artifact->source->files[file].name) : NULL;
    return known ? known->crc32c.kind : CHECKSUM_NONE;
}

/* The widest of those that are computed quickly. */
enum checksum_kind sums_choose(const struct run *run, uint32_t file)
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
    return kind ? kind : manifest_kind(run->options.mapping->artifact, file);
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

struct ledger sums_copy(struct run *run, uint32_t file)
{
    struct ledger copy = {0};
    pthread_mutex_lock(&run->engine->lock);
    const struct ledger *ledger = find_ledger(run, file);
    if (ledger)
        copy = ledger_copy(ledger);
    pthread_mutex_unlock(&run->engine->lock);
    return copy;
}

void sums_correct(struct run *run, uint32_t file, const struct ledger_range *range)
{
    pthread_mutex_lock(&run->engine->lock);
    struct ledger *ledger = find_ledger(run, file);
    if (ledger)
        ledger_correct(ledger, range->offset, range->bytes, range->crc);
    pthread_mutex_unlock(&run->engine->lock);
}
