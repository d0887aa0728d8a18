/* What a device has of a dimension is a list of runs of its indices, in order. S(d) takes a part of their concatenation, _S(d,k)
 * takes k parts; runs that touch are joined. In the end a view needs one run. */
#include "placement.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "tensorcast.h"

/* --- text --- */

static int bad_placements(const char *text, const char *why, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PLACEMENTS", "placements '%s': %s",
                text_escape(text, strlen(text), shown), why);
}

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " ");
}

/* A whole number behind an optional "key=" or "key:"; NULL = it is not there. */
static const char *take_number(const char *at, const char *const *keys, int64_t *number)
{
    char *end;
    at = skip_blanks(at);
    for (; *keys; keys++) {
        size_t length = strlen(*keys);
        if (strncmp(at, *keys, length) == 0 && at[length] == '=') {
            at += length + 1;
            break;
        }
    }
    const char *digits = *at == '-' ? at + 1 : at;
    if (*digits < '0' || *digits > '9' || strspn(digits, "0123456789") > 18)
        return NULL;
    *number = strtoll(at, &end, 10);
    return skip_blanks(end);
}

static const char *after_word(const char *at, const char *const *words)
{
    for (; *words; words++)
        if (strncmp(at, *words, strlen(*words)) == 0 && !strchr("abcdefghijklmnopqrstuvwxyz_", at[strlen(*words)] | 32))
            return at + strlen(*words);
    return NULL;
}

static const char *const replicate_words[] = {"R", "Replicate", NULL}, *const shard_words[] = {"S", "Shard", NULL};
static const char *const strided_words[] = {"_S", "SS", "_StridedShard", "StridedShard", NULL};
static const char *const dim_keys[] = {"dim", NULL}, *const factor_keys[] = {"sf", "split_factor", NULL};

/* The placement at `at`; returns what follows it, NULL = there is none. */
static const char *take_placement(const char *at, struct placement *placement)
{
    const char *end = after_word(at, replicate_words);
    int64_t factor = 1;
    if (end)
        return strncmp(end, "()", 2) == 0 ? end + 2 : end;
    bool strided = !(end = after_word(at, shard_words));
    if (strided)
        end = after_word(at, strided_words);
    if (!end || *end != '(' || !(end = take_number(end + 1, dim_keys, &placement->dimension)))
        return NULL;
    if (strided && (*end != ',' || !(end = take_number(end + 1, factor_keys, &factor)) || factor < 1))
        return NULL;
    placement->shards = true;
    placement->split_factor = (uint64_t)factor;
    return *end == ')' && placement->dimension < TC_MAX_RANK && placement->dimension >= -TC_MAX_RANK ? end + 1 : NULL;
}

int placements_parse(const char *text, const struct mesh *mesh, struct arena *arena, struct placements *placements,
                     struct error *error)
{
    const char *at = text;
    char shown[TEXT_NAME_CHARS], axes[MESH_TEXT_CHARS];
    size_t n = 0;
    placements->of_axis = arena_array(arena, MESH_MAX_AXES, sizeof *placements->of_axis);
    for (; n < MESH_MAX_AXES; n++) {
        at = take_placement(skip_blanks(at), &placements->of_axis[n]);
        if (!at && strstr(text, "P"))
            return bad_placements(text, "Partial holds a part of a sum, which is nothing that a checkpoint has", error);
        if (!at)
            return bad_placements(text, "each is R, S(dimension) or _S(dimension,split_factor)", error);
        at = skip_blanks(at);
        if (*at != ',')
            break;
        at++;
    }
    if (*at)
        return bad_placements(text, "each is R, S(dimension) or _S(dimension,split_factor), with commas between them",
                              error);
    if (n + 1 != mesh->n_axes)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PLACEMENTS",
                    "placements '%s' are %zu for %zu axes; the mesh is %s, and each axis has one",
                    text_escape(text, strlen(text), shown), n + 1, mesh->n_axes, mesh_text(mesh, axes));
    return 0;
}

/* --- runs of a dimension --- */

struct runs {
    struct block *items; /* in order, none empty, none touches the next */
    size_t n, capacity;
    uint64_t extent; /* of all together */
};

static void add_run(struct runs *runs, uint64_t offset, uint64_t extent)
{
    struct block *last = runs->n ? &runs->items[runs->n - 1] : NULL;
    runs->extent += extent;
    if (last && last->offset + last->extent == offset) {
        last->extent += extent;
        return;
    }
    ARRAY_RESERVE(runs->items, runs->n, runs->capacity);
    runs->items[runs->n++] = (struct block){offset, extent};
}

/* Adds [start, stop) of the concatenation of `from`. `*at`, `*before`: a run of `from` and what lies before it, where the last
 * call stopped; calls go from front to back. */
static void add_part(struct runs *to, const struct runs *from, uint64_t start, uint64_t stop, size_t *at, uint64_t *before)
{
    while (start < stop) {
        const struct block *run = &from->items[*at];
        if (start - *before >= run->extent) {
            *before += run->extent;
            ++*at;
            continue;
        }
        uint64_t skip = start - *before, take = run->extent - skip < stop - start ? run->extent - skip : stop - start;
        add_run(to, run->offset + skip, take);
        start += take;
    }
}

static uint64_t rounded_up(uint64_t count, uint64_t parts)
{
    return count / parts + (count % parts != 0);
}

static uint64_t smaller_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* torch.chunk: [start, stop) of the chunk `index` of `parts`. index <= parts, and the chunk that starts behind the end is empty. */
static struct block chunk_of(uint64_t extent, uint64_t parts, uint64_t index)
{
    uint64_t share = rounded_up(extent, parts),
             start = share && index > extent / share ? extent : smaller_of(share * index, extent);
    return (struct block){start, smaller_of(share, extent - start)};
}

static int split_runs(struct runs *runs, const struct placement *placement, uint64_t parts, uint64_t index,
                      struct error *error)
{
    struct runs split = {0};
    size_t at = 0;
    uint64_t before = 0, piece = rounded_up(runs->extent, placement->split_factor);
    if (piece && rounded_up(runs->extent, piece) + runs->n > PLACEMENT_MAX_RUNS)
        return fail(error, ERROR_INVALID_ARGUMENT, "TOO_MANY_RUNS",
                    "a strided placement cuts a dimension into more than %d runs", PLACEMENT_MAX_RUNS);
    for (uint64_t start = 0; start < runs->extent; start += smaller_of(piece, runs->extent - start)) {
        struct block chunk = chunk_of(smaller_of(piece, runs->extent - start), parts, index);
        add_part(&split, runs, start + chunk.offset, start + chunk.offset + chunk.extent, &at, &before);
    }
    free(runs->items);
    *runs = split;
    return 0;
}

/* The runs of one dimension that are left when every axis has done its part. */
static int apply_to_dimension(const struct placements *placements, const struct mesh *mesh, const uint64_t *coordinates,
                              size_t rank, size_t dimension, struct runs *runs, struct error *error)
{
    for (size_t i = 0; i < mesh->n_axes; i++) {
        const struct placement *placement = &placements->of_axis[i];
        int64_t split = placement->dimension < 0 ? placement->dimension + (int64_t)rank : placement->dimension;
        if (placement->shards && split == (int64_t)dimension &&
            split_runs(runs, placement, mesh->axes[i].size, coordinates[i], error) < 0)
            return -1;
    }
    return 0;
}

static int check_dimensions(const struct placements *placements, const struct mesh *mesh, size_t rank, struct error *error)
{
    for (size_t i = 0; i < mesh->n_axes; i++) {
        const struct placement *placement = &placements->of_axis[i];
        if (placement->shards && (placement->dimension >= (int64_t)rank || placement->dimension < -(int64_t)rank))
            return fail(error, ERROR_INVALID_ARGUMENT, "NO_SUCH_DIMENSION",
                        "it has %zu dimension%s, and axis %s splits dimension %" PRId64
                        "; put placements of its own before these",
                        rank, rank == 1 ? "" : "s", mesh->axes[i].name, placement->dimension);
    }
    return 0;
}

int placements_apply(const struct placements *placements, const struct mesh *mesh, const uint64_t coordinates[MESH_MAX_AXES],
                     const uint64_t *shape, size_t rank, struct block *blocks, struct error *error)
{
    int status = check_dimensions(placements, mesh, rank, error);
    for (size_t d = 0; status == 0 && d < rank; d++) {
        struct runs runs = {0};
        if (shape[d])
            add_run(&runs, 0, shape[d]);
        status = apply_to_dimension(placements, mesh, coordinates, rank, d, &runs, error);
        if (status == 0 && runs.n > 1)
            status = fail(error, ERROR_UNIMPLEMENTED, "NOT_ONE_BLOCK",
                          "of dimension %zu (%" PRIu64 ") this device has %zu runs that do not lie together, from %" PRIu64
                          " and %" PRIu64 " on, and a view takes one; load the rows between them, too, with --slice",
                          d, shape[d], runs.n, runs.items[0].offset, runs.items[1].offset);
        else if (status == 0)
            blocks[d] = runs.n ? runs.items[0] : (struct block){shape[d], 0};
        free(runs.items);
    }
    return status;
}
