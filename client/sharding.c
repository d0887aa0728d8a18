#include "sharding.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "client.h"
#include "tensorcast.h"

/* TPU topologies, hosts x chips, as the scripts that use them lay them out. A v5e-64 has 4 hosts of 8 chips, so 32 devices;
 * Google's v5litepod-64 has 64. */
static const struct preset {
    const char *name;
    uint64_t data, model;
} presets[] = {
    {"v5e-8", 1, 8},    {"v5e-64", 4, 8}, {"v5litepod-64", 16, 4}, {"v5e-128", 8, 8},
    {"v5e-256", 16, 8}, {"v4-32", 4, 4},  {"v4-64", 8, 4},
};
enum { MESH_TEXT_CHARS = 160 };
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

static int bad_mesh(const char *text, const char *why, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_MESH", "mesh '%s': %s", text_show(text), why);
}

static bool is_name(const char *name, size_t length)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", others[] = "0123456789-.";
    for (size_t i = 0; i < length; i++)
        if (!strchr(letters, name[i]) && (!i || !strchr(others, name[i])))
            return false;
    return length > 0;
}

/* index of the axis, -1 = none */
static int mesh_find(const struct mesh *mesh, const char *name, size_t name_length)
{
    for (size_t i = 0; i < mesh->n_axes; i++)
        if (strlen(mesh->axes[i].name) == name_length && memcmp(mesh->axes[i].name, name, name_length) == 0)
            return (int)i;
    return -1;
}

/* One "NAME=SIZE". */
static int add_axis(const char *whole, const char *item, size_t length, struct arena *arena, struct mesh *mesh,
                    struct error *error)
{
    const char *equals = memchr(item, '=', length);
    size_t name_length = equals ? (size_t)(equals - item) : 0, digits = equals ? length - name_length - 1 : 0;
    if (!equals || !is_name(item, name_length) || !digits || digits > 10 || strspn(equals + 1, "0123456789") < digits)
        return bad_mesh(whole, "it is AXIS=SIZE,AXIS=SIZE and so on, or the name of a known one such as v5e-64", error);
    if (mesh_find(mesh, item, name_length) >= 0)
        return bad_mesh(whole, "two axes have the same name", error);
    if (mesh->n_axes == MESH_MAX_AXES)
        return bad_mesh(whole, "it has more than 16 axes", error);
    uint64_t size = strtoull(equals + 1, NULL, 10);
    if (!size)
        return bad_mesh(whole, "an axis has at least one device", error);
    if (size > MESH_MAX_DEVICES || mesh->n_devices * size > MESH_MAX_DEVICES)
        return bad_mesh(whole, "it has more than 1073741824 devices", error);
    mesh->axes[mesh->n_axes++] = (struct mesh_axis){arena_text(arena, item, name_length), size};
    mesh->n_devices *= size;
    return 0;
}

static int no_preset(const char *text, struct error *error)
{
    const char *names[N_PRESETS];
    char why[TEXT_NAME_CHARS + 64];
    for (size_t i = 0; i < N_PRESETS; i++)
        names[i] = presets[i].name;
    const char *nearest = text_nearest(text, names, N_PRESETS);
    snprintf(why, sizeof why, "no mesh of that name is known%s%s; any other is AXIS=SIZE,AXIS=SIZE and so on",
             nearest ? ", the nearest is " : "", nearest ? nearest : "");
    return bad_mesh(text, why, error);
}

int mesh_parse(const char *text, struct arena *arena, struct mesh *mesh, struct error *error)
{
    *mesh = (struct mesh){.n_devices = 1};
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(presets[i].name, text) != 0)
            continue;
        *mesh = (struct mesh){.axes = {{"data", presets[i].data}, {"model", presets[i].model}},
                              .n_axes = 2,
                              .n_devices = presets[i].data * presets[i].model};
        return 0;
    }
    if (*text && !strpbrk(text, "=,"))
        return no_preset(text, error);
    for (const char *item = text;; item++) {
        size_t length = strcspn(item, ",");
        if (add_axis(text, item, length, arena, mesh, error) < 0)
            return -1;
        item += length;
        if (!*item)
            return 0;
    }
}

static const char *mesh_text(const struct mesh *mesh, char out[MESH_TEXT_CHARS])
{
    size_t used = 0;
    *out = '\0';
    for (size_t i = 0; i < mesh->n_axes && used < MESH_TEXT_CHARS - 1; i++) {
        int length = snprintf(out + used, MESH_TEXT_CHARS - used, "%s%s=%" PRIu64, i ? ", " : "", mesh->axes[i].name,
                              mesh->axes[i].size);
        used += (size_t)length;
    }
    return out;
}

/* --- partition spec --- */

static int bad_spec(const char *text, struct error *error)
{
    return fail(
        error, ERROR_INVALID_ARGUMENT, "BAD_SPEC",
        "spec '%s': it has one entry per dimension, separated by commas: an axis of the mesh, several as (a,b), or - for "
        "a dimension that is not split",
        text_show(text));
}

struct parse {
    const char *text, *at;
    const struct mesh *mesh;
    bool used[MESH_MAX_AXES];
    struct error *error;
};

static int take_axis(struct parse *parse, struct spec_entry *entry)
{
    size_t length = strcspn(parse->at, "(),+");
    char mesh[MESH_TEXT_CHARS];
    if (!length)
        return bad_spec(parse->text, parse->error);
    int axis = mesh_find(parse->mesh, parse->at, length);
    if (axis < 0)
        return fail(parse->error, ERROR_INVALID_ARGUMENT, "NO_SUCH_AXIS", "spec '%s': the mesh has no axis '%s'; it is %s",
                    text_show(parse->text), text_show_bytes(parse->at, length), mesh_text(parse->mesh, mesh));
    if (parse->used[axis])
        return fail(parse->error, ERROR_INVALID_ARGUMENT, "AXIS_TWICE",
                    "spec '%s': axis '%s' occurs twice, and can split a tensor only once", text_show(parse->text),
                    parse->mesh->axes[axis].name);
    parse->used[axis] = true;
    entry->axes[entry->n_axes++] = (unsigned char)axis;
    parse->at += length;
    return 0;
}

/* "-", "a", "(a,b)" or "a+b". */
static int take_entry(struct parse *parse, struct spec_entry *entry)
{
    bool in_brackets = *parse->at == '(';
    if (parse->at[0] == '-' && (!parse->at[1] || parse->at[1] == ',')) {
        parse->at++;
        return 0;
    }
    if (in_brackets)
        parse->at++;
    for (;;) {
        if (take_axis(parse, entry) < 0)
            return -1;
        if (*parse->at != (in_brackets ? ',' : '+'))
            break;
        parse->at++;
    }
    if (in_brackets && *parse->at++ != ')')
        return bad_spec(parse->text, parse->error);
    return 0;
}

/* Fails with INVALID_ARGUMENT: an axis that the mesh lacks, or that occurs twice. */
static int partition_spec_parse(const char *text, const struct mesh *mesh, struct arena *arena, struct partition_spec *spec,
                                struct error *error)
{
    struct parse parse = {.text = text, .at = text, .mesh = mesh, .error = error};
    *spec = (struct partition_spec){.entries = arena_array(arena, TC_MAX_RANK, sizeof *spec->entries)};
    while (*text) { /* an empty spec splits nothing */
        if (spec->n_entries == TC_MAX_RANK)
            return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SPEC", "a spec has at most 64 entries");
        if (take_entry(&parse, &spec->entries[spec->n_entries++]) < 0)
            return -1;
        if (!*parse.at)
            break;
        if (*parse.at++ != ',')
            return bad_spec(text, error);
    }
    return 0;
}

static int does_not_divide(const struct spec_entry *entry, const struct mesh *mesh, size_t dimension, uint64_t extent,
                           uint64_t parts, struct error *error)
{
    char axes[MESH_TEXT_CHARS] = "";
    size_t used = 0;
    for (size_t i = 0; i < entry->n_axes && used < sizeof axes - 1; i++)
        used += (size_t)snprintf(axes + used, sizeof axes - used, "%s%s", i ? " x " : "", mesh->axes[entry->axes[i]].name);
    return fail(error, ERROR_INVALID_ARGUMENT, "DOES_NOT_DIVIDE",
                "dimension %zu (%" PRIu64 ") does not divide by the %" PRIu64
                " parts of %s; put a spec of its own before this one, with - for that dimension",
                dimension, extent, parts, axes);
}

/* The block of the device at these coordinates, one entry per dimension. Fails with INVALID_ARGUMENT when the tensor has fewer
 * dimensions than the spec, or one does not divide; the caller says which tensor. */
static int partition_spec_apply(const struct partition_spec *spec, const struct mesh *mesh,
                                const uint64_t coordinates[MESH_MAX_AXES], const uint64_t *shape, size_t rank,
                                struct block *blocks, struct error *error)
{
    if (spec->n_entries > rank)
        return fail(error, ERROR_INVALID_ARGUMENT, "SPEC_TOO_LONG",
                    "the spec has %zu entries for %zu dimension%s; put a spec of its own before this one", spec->n_entries,
                    rank, text_plural(rank));
    for (size_t d = 0; d < rank; d++) {
        const struct spec_entry *entry = d < spec->n_entries ? &spec->entries[d] : NULL;
        uint64_t parts = 1, index = 0;
        for (size_t i = 0; entry && i < entry->n_axes; i++) { /* no overflow: a mesh has 2^30 devices at most */
            uint64_t size = mesh->axes[entry->axes[i]].size;
            parts *= size;
            index = index * size + coordinates[entry->axes[i]];
        }
        if (shape[d] % parts)
            return does_not_divide(entry, mesh, d, shape[d], parts, error);
        blocks[d] = (struct block){shape[d] / parts * index, shape[d] / parts};
    }
    return 0;
}

/* --- placement --- */

/* --- text --- */

static int bad_placements(const char *text, const char *why, struct error *error)
{
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_PLACEMENTS", "placements '%s': %s", text_show(text), why);
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

/* "S(0),R,_S(1,2)", or with torch's long names: Shard(0), Shard(dim=0), Replicate(), _StridedShard(dim=0, sf=2). Fails with
 * INVALID_ARGUMENT. */
static int placements_parse(const char *text, const struct mesh *mesh, struct arena *arena, struct placements *placements,
                            struct error *error)
{
    const char *at = text;
    char axes[MESH_TEXT_CHARS];
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
                    "placements '%s' are %zu for %zu axes; the mesh is %s, and each axis has one", text_show(text), n + 1,
                    mesh->n_axes, mesh_text(mesh, axes));
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
                        rank, text_plural(rank), mesh->axes[i].name, placement->dimension);
    }
    return 0;
}

/* The block of the device at these coordinates. Fails with INVALID_ARGUMENT when the tensor has no such dimension, with
 * UNIMPLEMENTED when the device has several runs of a dimension that do not lie together; the caller says which tensor. */
static int placements_apply(const struct placements *placements, const struct mesh *mesh,
                            const uint64_t coordinates[MESH_MAX_AXES], const uint64_t *shape, size_t rank,
                            struct block *blocks, struct error *error)
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

/* --- best effort --- */

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) /* of 0 and b: b */
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* In the grid of devices (replicas, parts of dimension 0, parts of dimension 1 ...) the last one turns fastest, and the parts
 * are chosen in the same order: one loop does both. */
void best_effort_apply(uint64_t n_devices, uint64_t device, const uint64_t *shape, size_t rank, struct block *blocks)
{
    for (size_t d = rank; d-- > 0;) {
        uint64_t parts = greatest_common_divisor(shape[d], n_devices), extent = shape[d] / parts;
        blocks[d] = (struct block){extent * (device % parts), extent};
        n_devices /= parts;
        device /= parts;
    }
}

/* Over a mesh: its axis "data" splits the last dimension that it divides; all other axes replicate. */
static void best_effort_on_mesh(const struct mesh *mesh, const uint64_t coordinates[MESH_MAX_AXES], const uint64_t *shape,
                                size_t rank, struct block *blocks)
{
    int axis = mesh_find(mesh, "data", 4);
    uint64_t parts = axis < 0 ? 1 : mesh->axes[axis].size;
    for (size_t d = rank; d-- > 0;) {
        blocks[d] = (struct block){0, shape[d]};
        if (parts == 1 || shape[d] % parts)
            continue;
        blocks[d] = (struct block){shape[d] / parts * coordinates[axis], shape[d] / parts};
        parts = 1;
    }
}

/* --- sharding --- */

/* GLOB=VALUE; brackets may hold an '=', as in _StridedShard(dim=0, sf=2), so the glob ends at the last one outside of them. */
static int split_rule(const char *text, struct arena *arena, struct sharding_rule *rule, struct error *error)
{
    int depth = 0;
    for (size_t at = strlen(text); at-- > 1;) {
        depth += (text[at] == ')') - (text[at] == '(');
        if (text[at] != '=' || depth)
            continue;
        rule->glob = arena_text(arena, text, at);
        rule->text = arena_text(arena, text + at + 1, strlen(text + at + 1));
        return 0;
    }
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_RULE", "'%s' is not GLOB=VALUE, as in '*.weight=model,-' or '*=S(0),R'",
                text_show(text));
}

/* Which of the three ways it is. */
static int choose_kind(const struct tc_sharding_options *options, struct sharding *sharding, struct error *error)
{
    int n_ways = (options->n_specs > 0) + (options->n_placements > 0) + (options->best_effort != 0);
    if (n_ways != 1)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SHARDING",
                    n_ways ? "specs, placements and the best-effort rule exclude each other"
                           : "a mesh needs specs, placements or the best-effort rule, which say how it splits tensors");
    sharding->kind = options->n_specs ? SHARDING_SPECS : options->n_placements ? SHARDING_PLACEMENTS : SHARDING_BEST_EFFORT;
    sharding->n_rules = options->n_specs + options->n_placements;
    if (!options->mesh && sharding->kind != SHARDING_BEST_EFFORT)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SHARDING",
                    "specs and placements need a mesh, such as data=4,model=8");
    return 0;
}

static int place_device(const struct tc_sharding_options *options, struct sharding *sharding, struct error *error)
{
    uint64_t n_devices = sharding->mesh.n_devices;
    char mesh[MESH_TEXT_CHARS];
    if (options->best_effort < 0 || options->best_effort > MESH_MAX_DEVICES)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SHARDING", "best effort is over 1 to %d devices, not %" PRId64,
                    MESH_MAX_DEVICES, options->best_effort);
    if (n_devices && options->best_effort && (uint64_t)options->best_effort != n_devices)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SHARDING",
                    "best effort over %" PRId64 " devices on a mesh of %" PRIu64 " (%s): give the mesh's number, or no mesh",
                    options->best_effort, n_devices, mesh_text(&sharding->mesh, mesh));
    if (n_devices > 1 && sharding->kind == SHARDING_BEST_EFFORT && mesh_find(&sharding->mesh, "data", 4) < 0)
        return fail(
            error, ERROR_INVALID_ARGUMENT, "BAD_SHARDING",
            "best effort on a mesh splits by its axis 'data', and %s has none: every device would hold everything; name "
            "an axis so, give no mesh, or give specs",
            mesh_text(&sharding->mesh, mesh));
    sharding->n_devices = n_devices ? n_devices : (uint64_t)options->best_effort;
    if (options->mesh_rank < 0 || (uint64_t)options->mesh_rank >= sharding->n_devices)
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_SHARDING",
                    "rank %" PRId64 " is not on a mesh of %" PRIu64 " devices: ranks go from 0 to %" PRIu64,
                    options->mesh_rank, sharding->n_devices, sharding->n_devices - 1);
    sharding->device = (uint64_t)options->mesh_rank;
    /* Where a device stands on each axis. */
    uint64_t device = sharding->device;
    for (size_t i = sharding->mesh.n_axes; i-- > 0;) {
        sharding->coordinates[i] = device % sharding->mesh.axes[i].size;
        device /= sharding->mesh.axes[i].size;
    }
    return 0;
}

int sharding_build(const struct tc_sharding_options *options, struct arena *arena, struct sharding *sharding,
                   struct error *error)
{
    *sharding = (struct sharding){0};
    if (choose_kind(options, sharding, error) < 0 ||
        (options->mesh && mesh_parse(options->mesh, arena, &sharding->mesh, error) < 0) ||
        place_device(options, sharding, error) < 0)
        return -1;
    sharding->rules = arena_array(arena, sharding->n_rules, sizeof *sharding->rules);
    for (size_t i = 0; i < sharding->n_rules; i++) {
        struct sharding_rule *rule = &sharding->rules[i];
        if (split_rule((options->n_specs ? options->specs : options->placements)[i], arena, rule, error) < 0)
            return -1;
        if ((sharding->kind == SHARDING_SPECS
                 ? partition_spec_parse(rule->text, &sharding->mesh, arena, &rule->spec, error)
                 : placements_parse(rule->text, &sharding->mesh, arena, &rule->placements, error)) < 0)
            return -1;
    }
    return 0;
}

static const struct sharding_rule *find_rule(const struct sharding *sharding, const char *name, size_t name_length)
{
    for (size_t i = 0; i < sharding->n_rules; i++)
        if (text_glob(sharding->rules[i].glob, name, name_length))
            return &sharding->rules[i];
    return NULL;
}

static int find_blocks(const struct sharding *sharding, const struct sharding_rule *rule, const uint64_t *shape, size_t rank,
                       struct block *blocks, struct error *error)
{
    if (sharding->kind == SHARDING_SPECS)
        return partition_spec_apply(&rule->spec, &sharding->mesh, sharding->coordinates, shape, rank, blocks, error);
    if (sharding->kind == SHARDING_PLACEMENTS)
        return placements_apply(&rule->placements, &sharding->mesh, sharding->coordinates, shape, rank, blocks, error);
    if (sharding->mesh.n_devices)
        best_effort_on_mesh(&sharding->mesh, sharding->coordinates, shape, rank, blocks);
    else
        best_effort_apply(sharding->n_devices, sharding->device, shape, rank, blocks);
    return 0;
}

int sharding_apply(const struct sharding *sharding, const char *name, size_t name_length, const uint64_t *shape, size_t rank,
                   struct arena *arena, const struct tc_slice **slices, struct error *error)
{
    const struct sharding_rule *rule = find_rule(sharding, name, name_length);
    struct block blocks[TC_MAX_RANK];
    bool whole = true;
    *slices = NULL;
    if ((sharding->n_rules && !rule) || rank > TC_MAX_RANK)
        return 0;
    if (find_blocks(sharding, rule, shape, rank, blocks, error) < 0) {
        error_note(error, "tensor", "%.*s", (int)name_length, name);
        return error_prefix(error, "tensor '%s', rule '%s=%s'", text_show_bytes(name, name_length), text_show(rule->glob),
                            rule->text);
    }
    for (size_t d = 0; d < rank; d++) {
        whole &= blocks[d].extent == shape[d];
        if (blocks[d].offset > INT64_MAX - blocks[d].extent) /* only of an empty tensor: there is nothing to split */
            return 0;
    }
    if (whole)
        return 0;
    struct tc_slice *parts = arena_array(arena, rank, sizeof *parts);
    for (size_t d = 0; d < rank; d++)
        parts[d] = blocks[d].extent == shape[d]
                       ? (struct tc_slice){0, TC_OPEN_END}
                       : (struct tc_slice){(int64_t)blocks[d].offset, (int64_t)(blocks[d].offset + blocks[d].extent)};
    *slices = parts;
    return 0;
}

/* --- the public interface --- */

struct tc_sharding {
    struct sharding sharding;
    struct arena arena;
};

struct tc_sharding *tc_sharding_create(const struct tc_sharding_options *options, struct tc_error *error)
{
    struct error cause;
    struct tc_sharding *sharding = memory_alloc(sizeof *sharding);
    arena_init(&sharding->arena, 0);
    if (sharding_build(options, &sharding->arena, &sharding->sharding, &cause) == 0)
        return sharding;
    client_fail(error, &cause);
    tc_sharding_destroy(sharding);
    return NULL;
}

void tc_sharding_destroy(struct tc_sharding *sharding)
{
    if (!sharding)
        return;
    arena_fini(&sharding->arena);
    free(sharding);
}

int tc_sharding_slices(const struct tc_sharding *sharding, const char *name, const uint64_t *shape, size_t rank,
                       struct tc_slice *slices, struct tc_error *error)
{
    struct error cause;
    struct arena arena;
    const struct tc_slice *found;
    arena_init(&arena, 0);
    int status = sharding_apply(&sharding->sharding, name, strlen(name), shape, rank, &arena, &found, &cause);
    for (size_t d = 0; status == 0 && d < rank; d++)
        slices[d] = found ? found[d] : (struct tc_slice){0, TC_OPEN_END};
    arena_fini(&arena);
    return status == 0 ? 0 : client_fail(error, &cause);
}

struct shard_view {
    struct tc_view view; /* first: what the caller holds */
    struct arena arena;
};

struct tc_view *tc_sharding_view(const struct tc_sharding *sharding, const struct tc_artifact *artifact,
                                 struct tc_error *error)
{
    struct error cause;
    struct shard_view *shard = memory_alloc(sizeof *shard);
    arena_init(&shard->arena, 0);
    size_t n = tc_artifact_n_tensors(artifact);
    struct tc_view_item *items = arena_array(&shard->arena, n + 1, sizeof *items);
    for (size_t i = 0; i < n; i++) {
        struct tc_tensor_info info;
        tc_artifact_tensor(artifact, i, &info);
        items[i].name = arena_text(&shard->arena, info.name, strlen(info.name));
        if (sharding_apply(&sharding->sharding, info.name, strlen(info.name), info.shape, info.rank, &shard->arena,
                           &items[i].slices, &cause) < 0) {
            client_fail(error, &cause);
            tc_view_release(&shard->view);
            return NULL;
        }
        items[i].n_slices = items[i].slices ? info.rank : 0;
    }
    shard->view = (struct tc_view){.items = items, .n_items = n};
    return &shard->view;
}

void tc_view_release(struct tc_view *view)
{
    if (!view)
        return;
    struct shard_view *shard = (struct shard_view *)view;
    arena_fini(&shard->arena);
    free(shard);
}
