#include "partition_spec.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "tensorcast.h"

static int bad_spec(const char *text, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    return fail(
        error, ERROR_INVALID_ARGUMENT, "BAD_SPEC",
        "spec '%s': it has one entry per dimension, separated by commas: an axis of the mesh, several as (a,b), or - for "
        "a dimension that is not split",
        text_escape(text, strlen(text), shown));
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
    char name[TEXT_NAME_CHARS], shown[TEXT_NAME_CHARS], mesh[MESH_TEXT_CHARS];
    if (!length)
        return bad_spec(parse->text, parse->error);
    int axis = mesh_find(parse->mesh, parse->at, length);
    if (axis < 0)
        return fail(parse->error, ERROR_INVALID_ARGUMENT, "NO_SUCH_AXIS", "spec '%s': the mesh has no axis '%s'; it is %s",
                    text_escape(parse->text, strlen(parse->text), shown), text_escape(parse->at, length, name),
                    mesh_text(parse->mesh, mesh));
    if (parse->used[axis])
        return fail(parse->error, ERROR_INVALID_ARGUMENT, "AXIS_TWICE",
                    "spec '%s': axis '%s' occurs twice, and can split a tensor only once",
                    text_escape(parse->text, strlen(parse->text), shown), parse->mesh->axes[axis].name);
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

int partition_spec_parse(const char *text, const struct mesh *mesh, struct arena *arena, struct partition_spec *spec,
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

int partition_spec_apply(const struct partition_spec *spec, const struct mesh *mesh,
                         const uint64_t coordinates[MESH_MAX_AXES], const uint64_t *shape, size_t rank, struct block *blocks,
                         struct error *error)
{
    if (spec->n_entries > rank)
        return fail(error, ERROR_INVALID_ARGUMENT, "SPEC_TOO_LONG",
                    "the spec has %zu entries for %zu dimension%s; put a spec of its own before this one", spec->n_entries,
                    rank, rank == 1 ? "" : "s");
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
