/* Pieces get owners, then batches; then everything is counted. See collective_plan.h; the pieces are made next door.
 *
 * Two passes decide the owners. By files, the largest first, each to the owner that has least so far: it then streams whole
 * files. Only when that is too uneven are files split, by position: the k-th owner gets the k-th equal stretch of all
 * pieces. */
#include "plan/collective_plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "plan/collective_pieces.h"
#include "plan/plan.h"
#include "plan/rows.h"

static const uint64_t LEAST_BATCH_BYTES = 2 << 20; /* keeps hostile limits from making many pieces */

static uint64_t larger_bytes(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool is_inner(const struct collective_piece *piece)
{
    return piece->job == JOB_DIM1 || piece->job == JOB_RECT2D;
}

struct limits {
    uint64_t batch_bytes, inner_bytes;
};

static struct limits limits_of(const struct materialization_strategy *strategy)
{
    uint64_t batch = larger_bytes(strategy->owner_file_collective_batch_bytes, LEAST_BATCH_BYTES);
    uint64_t inner = larger_bytes(strategy->owner_file_collective_dim1_staging_bytes, LEAST_BATCH_BYTES);
    return (struct limits){batch, inner < batch ? inner : batch};
}

/* --- owners --------------------------------------------------------------------------------------------------------- */

static void give_piece(struct collective_plan *plan, size_t piece, uint32_t owner)
{
    plan->pieces[piece].owner = owner;
    plan->owners[owner].bytes += plan->pieces[piece].bytes;
}

static double owner_skew(const struct collective_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->world_size; i++)
        most = larger_bytes(most, plan->owners[i].bytes);
    if (plan->numbers.unique_source_bytes == 0)
        return 1;
    return (double)most * plan->n_here / (double)plan->numbers.unique_source_bytes;
}

struct weighted_file {
    uint64_t bytes;
    size_t file;
};

static int compare_files(const void *a, const void *b)
{
    const struct weighted_file *left = a, *right = b;
    if (left->bytes != right->bytes)
        return left->bytes > right->bytes ? -1 : 1;
    return left->file < right->file ? -1 : left->file > right->file;
}

static int own_by_files(struct collective_plan *plan, struct error *error)
{
    struct weighted_file *files = metadata_array(plan->n_files, sizeof *files, error);
    if (!files)
        return -1;
    for (size_t file = 0; file < plan->n_files; file++) {
        files[file].file = file;
        for (size_t i = plan->file_first[file]; i < plan->file_first[file + 1]; i++)
            files[file].bytes += plan->pieces[i].bytes;
    }
    qsort(files, plan->n_files, sizeof *files, compare_files);
    for (size_t f = 0; f < plan->n_files; f++) {
        uint32_t least = plan->here[0];
        for (uint32_t i = 1; i < plan->n_here; i++)
            if (plan->owners[plan->here[i]].bytes < plan->owners[least].bytes)
                least = plan->here[i];
        uint32_t owner = least;
        for (size_t i = plan->file_first[files[f].file]; i < plan->file_first[files[f].file + 1]; i++)
            give_piece(plan, i, owner);
    }
    metadata_free(files);
    return 0;
}

static int choose_owners(struct collective_plan *plan, const struct materialization_strategy *strategy, struct error *error)
{
    if (own_by_files(plan, error) != 0)
        return -1;
    plan->owner_skew = owner_skew(plan);
    if (plan->numbers.unique_source_bytes <= limits_of(strategy).batch_bytes) {
        plan->owner_skew = 1; /* what fits into one batch has nothing to balance */
        return 0;
    }
    if (plan->owner_skew <= strategy->owner_file_collective_max_owner_skew_ratio)
        return 0;
    plan->is_split = true;
    memset(plan->owners, 0, plan->world_size * sizeof *plan->owners);
    double share = (double)plan->numbers.unique_source_bytes / plan->n_here, before = 0;
    for (size_t i = 0; i < plan->n_pieces; i++) {
        double middle = before + (double)plan->pieces[i].bytes / 2;
        uint32_t owner = (uint32_t)(middle / share);
        give_piece(plan, i, plan->here[owner < plan->n_here ? owner : plan->n_here - 1]);
        before += (double)plan->pieces[i].bytes;
    }
    plan->owner_skew = owner_skew(plan);
    return 0;
}

/* --- batches -------------------------------------------------------------------------------------------------------- */

struct packing {
    struct limits limits;
    size_t room;  /* for batches */
    size_t *open; /* by owner: its batch that takes more; SIZE_MAX = it has none yet */
};

/* The owner's open batch takes the piece, or a new one does. */
static int put_into_batch(struct collective_plan *plan, struct packing *packing, size_t i, struct error *error)
{
    struct collective_piece *piece = &plan->pieces[i];
    size_t at = packing->open[piece->owner];
    uint64_t inner_bytes = is_inner(piece) ? piece->bytes : 0;
    bool fits = at != SIZE_MAX && plan->batches[at].bytes + piece->bytes <= packing->limits.batch_bytes &&
                plan->batches[at].inner_bytes + inner_bytes <= packing->limits.inner_bytes;
    if (!fits) {
        if (METADATA_RESERVE(plan->batches, plan->n_batches, packing->room, error) != 0)
            return -1;
        at = packing->open[piece->owner] = plan->n_batches++;
        plan->batches[at] = (struct collective_batch){.owner = piece->owner};
        plan->owners[piece->owner].n_batches++;
    }
    piece->batch = (uint32_t)at;
    plan->batches[at].n_pieces++;
    plan->batches[at].bytes += piece->bytes;
    plan->batches[at].inner_bytes += inner_bytes;
    return 0;
}

/* Pieces are walked in the order of the source, so batches are numbered by their first piece. */
static int make_batches(struct collective_plan *plan, struct limits limits, struct error *error)
{
    struct packing packing = {.limits = limits, .open = metadata_array(plan->world_size, sizeof *packing.open, error)};
    int failed = packing.open ? 0 : -1;
    for (uint32_t i = 0; !failed && i < plan->world_size; i++)
        packing.open[i] = SIZE_MAX;
    for (size_t i = 0; !failed && i < plan->n_pieces; i++)
        failed = put_into_batch(plan, &packing, i, error);
    metadata_free(packing.open);
    if (failed != 0)
        return -1;
    size_t *filled = metadata_array(plan->n_batches, sizeof *filled, error);
    plan->order = filled ? metadata_array(plan->n_pieces, sizeof *plan->order, error) : NULL;
    for (size_t b = 0, first = 0; b < plan->n_batches; first += plan->batches[b++].n_pieces) {
        plan->batches[b].first = first;
        plan->numbers.largest_batch_bytes = larger_bytes(plan->numbers.largest_batch_bytes, plan->batches[b].bytes);
    }
    for (size_t i = 0; plan->order && i < plan->n_pieces; i++) {
        uint32_t batch = plan->pieces[i].batch;
        plan->order[plan->batches[batch].first + filled[batch]++] = i;
    }
    metadata_free(filled);
    return plan->order ? 0 : -1;
}

/* --- a rank's part of the pieces ------------------------------------------------------------------------------------ */

struct walk { /* one rank's runs against the pieces, both in file order */
    const struct collective_plan *group;
    const struct mapping *mapping;
    uint32_t rank;
    struct collective_plan *counted; /* optional: peer bytes go from owners to others than themselves */
    struct plan_step *out;           /* optional */
    size_t n_steps;
};

static void add_step(struct walk *walk, struct plan_step step)
{
    if (walk->out)
        walk->out[walk->n_steps] = step;
    walk->n_steps++;
}

static struct plan_step exact_step(const struct transfer *run)
{
    struct rows rows = rows_of_transfer(run);
    return (struct plan_step){rows.offset, rows.bytes, rows.count, rows.stride, run->file};
}

/* A contiguous piece is read from the rank's first byte to its last, all of it wanted by some rank; of rows, the rank's
 * columns united with those that touch them. */
static void add_part(struct walk *walk, const struct collective_piece *piece, const struct transfer *run)
{
    uint64_t lo = larger_bytes(piece->lo, run->src_offset), end = transfer_end(run), hi = piece->hi < end ? piece->hi : end;
    if (piece->count == 1 && piece->n_columns == 1) {
        add_step(walk, (struct plan_step){lo, hi - lo, 1, hi - lo, piece->file});
        return;
    }
    const struct collective_columns *columns = &walk->group->columns[piece->first_columns];
    uint64_t row = 0; /* of the run, where the piece begins */
    if (run->src_offset < piece->lo)
        row = (piece->lo - run->src_offset + run->src_stride - 1) / run->src_stride;
    uint64_t in_row = run->src_offset + row * run->src_stride;
    while (columns->offset + columns->bytes <= in_row)
        columns++;
    add_step(walk, (struct plan_step){columns->offset, columns->bytes, piece->count, piece->stride, piece->file});
}

static void take_part(struct walk *walk, const struct collective_piece *piece, const struct transfer *run)
{
    struct rows rows = rows_of_transfer(run);
    uint64_t bytes = rows_within(&rows, piece->lo, piece->hi);
    if (bytes == 0) /* other ranks' columns between the run's rows */
        return;
    if (walk->counted && walk->group->leaders[piece->owner] != walk->rank) {
        walk->counted->numbers.peer_transfer_bytes += bytes;
        walk->counted->owners[piece->owner].peer_bytes += bytes;
        walk->counted->batches[piece->batch].peer_bytes += bytes;
    }
    add_part(walk, piece, run);
}

static void walk_file(struct walk *walk, size_t file)
{
    const struct collective_plan *group = walk->group;
    size_t piece = group->file_first[file], end = group->file_first[file + 1];
    struct mapping_reads reads = mapping_reads(walk->mapping, file);
    for (size_t i = 0; i < reads.n; i++) {
        const struct transfer *run = &reads.list[i];
        while (piece < end && group->pieces[piece].hi <= run->src_offset)
            piece++;
        size_t at = piece;
        for (; at < end && group->pieces[at].lo < transfer_end(run); at++)
            take_part(walk, &group->pieces[at], run);
        if (at == piece)
            add_step(walk, exact_step(run));
    }
}

int collective_plan_steps(const struct collective_plan *group, const struct mapping *mapping, struct plan *plan,
                          struct error *error)
{
    struct walk walk = {.group = group, .mapping = mapping};
    for (size_t file = 0; file < group->n_files; file++)
        walk_file(&walk, file);
    plan->n_steps = walk.n_steps;
    plan->steps = arena_try_array(&plan->arena, plan->n_steps, sizeof *plan->steps, error);
    plan->file_first = arena_try_array(&plan->arena, group->n_files + 1, sizeof *plan->file_first, error);
    if (!plan->steps || !plan->file_first)
        return -1;
    walk = (struct walk){.group = group, .mapping = mapping, .out = plan->steps};
    for (size_t file = 0; file < group->n_files; file++) {
        walk_file(&walk, file);
        plan->file_first[file + 1] = walk.n_steps;
    }
    return 0;
}

/* --- numbers -------------------------------------------------------------------------------------------------------- */

static void count_bytes(struct collective_plan *plan, const struct collective_rank *ranks, size_t n_ranks,
                        const struct collective_facts *facts)
{
    for (size_t i = 0; i < n_ranks; i++) {
        struct walk walk = {.group = plan, .mapping = ranks[i].mapping, .rank = ranks[i].rank, .counted = plan};
        for (size_t file = 0; file < plan->n_files; file++)
            walk_file(&walk, file);
        plan->numbers.landed_bytes += ranks[i].mapping->view_bytes;
        plan->numbers.needed_bytes += mapping_source_bytes(ranks[i].mapping) * ranks[i].n_sharers;
    }
    uint64_t once = plan->numbers.unique_source_bytes + plan->numbers.residual_bytes;
    plan->numbers.dedup_saving_bytes = plan->numbers.needed_bytes > once ? plan->numbers.needed_bytes - once : 0;
    plan->max_inflight_batches = larger_bytes(facts->strategy->owner_file_collective_max_inflight_batches, 1);
    uint64_t inflight = plan->max_inflight_batches < plan->n_batches ? plan->max_inflight_batches : plan->n_batches;
    plan->numbers.staged_bytes = inflight * plan->numbers.largest_batch_bytes;
    plan->numbers.peak_temporary_bytes =
        plan->numbers.staged_bytes < facts->staging_budget_bytes ? plan->numbers.staged_bytes : facts->staging_budget_bytes;
}

static int make_tables(struct collective_plan *plan, const struct collective_facts *facts, struct error *error)
{
    struct arena *arena = &plan->arena;
    plan->leaders = arena_try_array(arena, plan->world_size, sizeof *plan->leaders, error);
    plan->here = plan->leaders ? arena_try_array(arena, plan->world_size, sizeof *plan->here, error) : NULL;
    plan->file_first = plan->here ? arena_try_array(arena, plan->n_files + 1, sizeof *plan->file_first, error) : NULL;
    plan->owners = plan->file_first ? arena_try_array(arena, plan->world_size, sizeof *plan->owners, error) : NULL;
    if (!plan->owners)
        return -1;
    memcpy(plan->leaders, facts->leaders, plan->world_size * sizeof *plan->leaders);
    for (uint32_t rank = 0; rank < plan->world_size; rank++)
        if (!facts->elsewhere || !facts->elsewhere[rank])
            plan->here[plan->n_here++] = rank;
    return 0;
}

struct collective_plan *collective_plan_build(const struct collective_rank *ranks, size_t n_ranks,
                                              const struct collective_facts *facts, struct error *error)
{
    struct collective_plan *plan = memory_alloc(sizeof *plan);
    struct limits limits = limits_of(facts->strategy);
    struct collective_cut cut = {limits.batch_bytes, limits.inner_bytes};
    arena_init(&plan->arena, 0);
    plan->references = 1;
    plan->group_id = arena_text(&plan->arena, facts->group_id, strlen(facts->group_id));
    plan->world_size = facts->world_size;
    plan->n_memories = (uint32_t)n_ranks;
    plan->n_files = ranks[0].mapping->artifact->source->n_files;
    if (make_tables(plan, facts, error) != 0 || collective_pieces_build(ranks, n_ranks, cut, plan, error) != 0 ||
        choose_owners(plan, facts->strategy, error) != 0 || make_batches(plan, limits, error) != 0) {
        collective_plan_unref(plan);
        return NULL;
    }
    count_bytes(plan, ranks, n_ranks, facts);
    return plan;
}

struct collective_plan *collective_plan_ref(struct collective_plan *plan)
{
    atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
    return plan;
}

void collective_plan_unref(struct collective_plan *plan)
{
    if (!plan || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) > 1)
        return;
    metadata_free(plan->pieces);
    metadata_free(plan->columns);
    metadata_free(plan->order);
    metadata_free(plan->batches);
    arena_fini(&plan->arena);
    free(plan);
}
