#include "mesh.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* TPU topologies, hosts x chips, as the scripts that use them lay them out. A v5e-64 has 4 hosts of 8 chips, so 32 devices;
 * Google's v5litepod-64 has 64. */
static const struct preset {
    const char *name;
    uint64_t data, model;
} presets[] = {
    {"v5e-8", 1, 8},    {"v5e-64", 4, 8}, {"v5litepod-64", 16, 4}, {"v5e-128", 8, 8},
    {"v5e-256", 16, 8}, {"v4-32", 4, 4},  {"v4-64", 8, 4},
};
enum { N_PRESETS = sizeof presets / sizeof presets[0] };

static int bad_mesh(const char *text, const char *why, struct error *error)
{
    char shown[TEXT_NAME_CHARS];
    return fail(error, ERROR_INVALID_ARGUMENT, "BAD_MESH", "mesh '%s': %s", text_escape(text, strlen(text), shown), why);
}

static bool is_name(const char *name, size_t length)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", others[] = "0123456789-.";
    for (size_t i = 0; i < length; i++)
        if (!strchr(letters, name[i]) && (!i || !strchr(others, name[i])))
            return false;
    return length > 0;
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

int mesh_find(const struct mesh *mesh, const char *name, size_t name_length)
{
    for (size_t i = 0; i < mesh->n_axes; i++)
        if (strlen(mesh->axes[i].name) == name_length && memcmp(mesh->axes[i].name, name, name_length) == 0)
            return (int)i;
    return -1;
}

void mesh_coordinates(const struct mesh *mesh, uint64_t device, uint64_t coordinates[MESH_MAX_AXES])
{
    for (size_t i = mesh->n_axes; i-- > 0;) {
        coordinates[i] = device % mesh->axes[i].size;
        device /= mesh->axes[i].size;
    }
}

const char *mesh_text(const struct mesh *mesh, char out[MESH_TEXT_CHARS])
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
