#include "sharding.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "best_effort.h"
#include "client.h"

/* GLOB=VALUE; brackets may hold an '=', as in _StridedShard(dim=0, sf=2), so the glob ends at the last one outside of them. */
static int split_rule(const char *text, struct arena *arena, struct sharding_rule *rule, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
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
                text_escape(text, strlen(text), shown));
}

static int build_rules(const char *const *texts, struct arena *arena, struct sharding *sharding, struct error *error)
{
    sharding->rules = arena_array(arena, sharding->n_rules, sizeof *sharding->rules);
    for (size_t i = 0; i < sharding->n_rules; i++) {
        struct sharding_rule *rule = &sharding->rules[i];
        if (split_rule(texts[i], arena, rule, error) < 0)
            return -1;
        if ((sharding->kind == SHARDING_SPECS
                 ? partition_spec_parse(rule->text, &sharding->mesh, arena, &rule->spec, error)
                 : placements_parse(rule->text, &sharding->mesh, arena, &rule->placements, error)) < 0)
            return -1;
    }
    return 0;
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
    mesh_coordinates(&sharding->mesh, sharding->device, sharding->coordinates);
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
    return build_rules(options->n_specs ? options->specs : options->placements, arena, sharding, error);
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
    char shown[TEXT_NAME_CHARS], glob[TEXT_NAME_CHARS];
    const struct sharding_rule *rule = find_rule(sharding, name, name_length);
    struct block blocks[TC_MAX_RANK];
    bool whole = true;
    *slices = NULL;
    if ((sharding->n_rules && !rule) || rank > TC_MAX_RANK)
        return 0;
    if (find_blocks(sharding, rule, shape, rank, blocks, error) < 0) {
        error_note(error, "tensor", "%.*s", (int)name_length, name);
        return error_prefix(error, "tensor '%s', rule '%s=%s'", text_escape(name, name_length, shown),
                            text_escape(rule->glob, strlen(rule->glob), glob), rule->text);
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
