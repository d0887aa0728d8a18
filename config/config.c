/* Builds a struct config: every default first, then what the file says, then what follows from both.
 *
 * The file is walked item by item with the schema at hand: a key is known or refused at once, a section is entered only
 * where the schema has one, and so nothing nests deeper than the schema does. The first mistake ends the walk. */
#include "config/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/text.h"
#include "config/config_path.h"
#include "config/config_prewarm.h"
#include "config/config_value.h"
#include "config/config_yaml.h"
#include "config/schema.h"

struct built {            /* what a `const struct config *` really points to */
    struct config config; /* first */
    struct arena arena;   /* its strings */
    const char *name;     /* config_name() */
    bool is_permanent;    /* the defaults, which nobody owns */
};

struct walk {
    struct config_yaml yaml;
    struct built *built;
    struct config_yaml_place *places; /* per schema row; line 0 = the default stands */
};

static struct config_yaml_place *place_of_key(const struct walk *walk, const struct config_key *key)
{
    return &walk->places[key - schema_keys];
}

static int fail_value(const struct walk *walk, struct config_yaml_place place, const struct config_key *key,
                      const char *complaint, struct error *error)
{
    return config_yaml_fail(&walk->yaml, place, error, "CONFIG_INVALID_VALUE", "%s: %s", key->path, complaint);
}

static const char *shown_item(const struct config_yaml_item *item, char out[TEXT_NAME_CHARS])
{
    if (item->kind == CONFIG_YAML_OPEN_LIST)
        return "a list";
    if (item->kind == CONFIG_YAML_OPEN_MAP)
        return "a section";
    return *item->text ? text_escape(item->text, strlen(item->text), out) : "nothing";
}

static int fail_kind(const struct walk *walk, const struct config_key *key, const struct config_yaml_item *item,
                     struct error *error)
{
    char complaint[CONFIG_COMPLAINT_CHARS], expected[CONFIG_EXPECTED_CHARS], shown[TEXT_NAME_CHARS];
    snprintf(complaint, sizeof complaint, "expected %s, got %s", config_value_expected(key, expected),
             shown_item(item, shown));
    return fail_value(walk, item->place, key, complaint, error);
}

static int read_scalar(struct walk *walk, const struct config_key *key, const struct config_yaml_item *item,
                       struct error *error)
{
    char complaint[CONFIG_COMPLAINT_CHARS];
    if (item->kind != CONFIG_YAML_SCALAR)
        return fail_kind(walk, key, item, error);
    struct arena *arena = &walk->built->arena;
    const char *text = schema_is_path(key) ? config_yaml_path(&walk->yaml, item->text, arena) : item->text;
    if (config_value_parse(key, text, item->is_plain, arena, &walk->built->config, complaint) < 0)
        return fail_value(walk, item->place, key, complaint, error);
    return 0;
}

static int read_list(struct walk *walk, const struct config_key *key, struct config_yaml_item *item, struct error *error)
{
    if (item->kind != CONFIG_YAML_OPEN_LIST)
        return fail_kind(walk, key, item, error);
    config_value_clear_list(key, &walk->built->config);
    if (key->type == CONFIG_PREWARMS)
        return config_prewarm_read(&walk->yaml, &walk->built->arena, &walk->built->config, error);
    for (;;) {
        if (config_yaml_next(&walk->yaml, item, error) < 0)
            return -1;
        if (item->kind == CONFIG_YAML_CLOSE_LIST)
            return 0;
        if (read_scalar(walk, key, item, error) < 0)
            return -1;
    }
}

static int read_key(struct walk *walk, const struct config_key *key, struct error *error)
{
    struct config_yaml_item item;
    if (config_yaml_next(&walk->yaml, &item, error) < 0)
        return -1;
    *place_of_key(walk, key) = item.place;
    return schema_is_list(key) ? read_list(walk, key, &item, error) : read_scalar(walk, key, &item, error);
}

/* The last component of a key in another section, for a key that stands in the wrong one. */
static const char *find_elsewhere(const char *name)
{
    const char *found = NULL;
    for (size_t i = 0; i < schema_n_keys && !found; i++)
        found = strcmp(schema_last_name(&schema_keys[i]), name) == 0 ? schema_keys[i].path : NULL;
    return found;
}

static int fail_unknown(const struct walk *walk, const char *section, const struct config_yaml_item *item,
                        struct error *error)
{
    char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS], shown[TEXT_NAME_CHARS], hint[ERROR_MESSAGE_CHARS / 2];
    const char *candidates[CONFIG_MAX_CHILDREN], *dot = *section ? "." : "";
    size_t n = schema_children(section, names), used = 0;
    for (size_t i = 0; i < n; i++)
        candidates[i] = names[i];
    const char *elsewhere = find_elsewhere(item->text), *nearest = text_nearest(item->text, candidates, n);
    if (elsewhere)
        snprintf(hint, sizeof hint, "did you mean %s?", elsewhere);
    else if (nearest)
        snprintf(hint, sizeof hint, "did you mean %s%s%s?", section, dot, nearest);
    else
        used = (size_t)snprintf(hint, sizeof hint, "known here:");
    for (size_t i = 0; used && i < n && used < sizeof hint; i++)
        used += (size_t)snprintf(hint + used, sizeof hint - used, "%s %s", i ? "," : "", names[i]);
    return config_yaml_fail(&walk->yaml, item->place, error, "CONFIG_UNKNOWN_KEY", "unknown key %s%s%s; %s", section, dot,
                            text_escape(item->text, strlen(item->text), shown), hint);
}

static bool is_null(const char *text)
{
    return !*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static int read_map(struct walk *walk, const char *section, struct error *error);

static int read_section(struct walk *walk, const char *section, struct error *error)
{
    struct config_yaml_item item;
    char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS], shown[TEXT_NAME_CHARS];
    if (config_yaml_next(&walk->yaml, &item, error) < 0)
        return -1;
    if (item.kind == CONFIG_YAML_OPEN_MAP)
        return read_map(walk, section, error);
    if (item.kind == CONFIG_YAML_SCALAR && item.is_plain && is_null(item.text))
        return 0; /* every key of the section may be commented out */
    schema_children(section, names);
    return config_yaml_fail(&walk->yaml, item.place, error, "CONFIG_INVALID_VALUE",
                            "%s: expected a section with keys such as %s.%s, got %s", section, section, names[0],
                            shown_item(&item, shown));
}

struct seen { /* names met in one mapping, for duplicates; bounded because unknown names end the walk */
    char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS];
    size_t lines[CONFIG_MAX_CHILDREN], n;
};

static int note_name(const struct walk *walk, struct seen *seen, const char *path, const struct config_yaml_item *item,
                     struct error *error)
{
    for (size_t i = 0; i < seen->n; i++) {
        if (strcmp(seen->names[i], path) == 0)
            return config_yaml_fail(&walk->yaml, item->place, error, "CONFIG_DUPLICATE_KEY",
                                    "%s is given twice; the first is on line %zu", path, seen->lines[i]);
    }
    snprintf(seen->names[seen->n], CONFIG_PATH_CHARS, "%s", path);
    seen->lines[seen->n++] = item->place.line;
    return 0;
}

static int read_entry(struct walk *walk, const char *section, struct seen *seen, const struct config_yaml_item *item,
                      struct error *error)
{
    char path[CONFIG_PATH_CHARS];
    if (item->kind != CONFIG_YAML_SCALAR)
        return config_yaml_fail(&walk->yaml, item->place, error, "CONFIG_UNKNOWN_KEY",
                                "a key is a name, not a list or a mapping");
    int length = snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", item->text);
    bool fits = (size_t)length < sizeof path && *item->text && !strchr(item->text, '.');
    const struct config_key *key = fits ? schema_find(path) : NULL;
    bool is_section = fits && schema_is_section(path);
    if (!key && !is_section)
        return fail_unknown(walk, section, item, error);
    if (note_name(walk, seen, path, item, error) < 0)
        return -1;
    return key ? read_key(walk, key, error) : read_section(walk, path, error);
}

static int read_map(struct walk *walk, const char *section, struct error *error)
{
    struct seen seen = {.n = 0};
    struct config_yaml_item item;
    for (;;) {
        if (config_yaml_next(&walk->yaml, &item, error) < 0)
            return -1;
        if (item.kind == CONFIG_YAML_CLOSE_MAP)
            return 0;
        if (read_entry(walk, section, &seen, &item, error) < 0)
            return -1;
    }
}

static void set_defaults(struct built *built)
{
    char complaint[CONFIG_COMPLAINT_CHARS];
    for (size_t i = 0; i < schema_n_keys; i++) {
        if (schema_is_list(&schema_keys[i]) && !*schema_keys[i].fallback)
            continue;
        if (config_value_parse(&schema_keys[i], schema_keys[i].fallback, true, &built->arena, &built->config, complaint) <
            0) {
            fprintf(stderr, "schema: the default of %s: %s\n", schema_keys[i].path, complaint);
            abort();
        }
    }
}

/* A list begins anew with the first of its values. */
static int set_other_defaults(struct built *built, const struct config_default *defaults, size_t n_defaults,
                              struct error *error)
{
    char complaint[CONFIG_COMPLAINT_CHARS];
    for (size_t i = 0; i < n_defaults; i++) {
        const struct config_key *key = schema_find(defaults[i].key);
        if (schema_is_list(key) && (i == 0 || strcmp(defaults[i - 1].key, key->path) != 0))
            config_value_clear_list(key, &built->config);
        if (config_value_parse(key, defaults[i].value, true, &built->arena, &built->config, complaint) < 0)
            return fail(error, ERROR_INVALID_ARGUMENT, "CONFIG_INVALID_VALUE", "%s, as the environment says it: %s",
                        key->path, complaint);
    }
    return 0;
}

/* What follows from several keys together. */
static int complete(struct walk *walk, struct error *error)
{
    struct config *config = &walk->built->config;
    const struct config_key *key = schema_find("server.handoff_socket_path");
    struct config_yaml_place place = *place_of_key(walk, key);
    char derived[CONFIG_DERIVED_CHARS];
    if (!*config->server.handoff_socket_path) {
        place = *place_of_key(walk, schema_find("server.socket_path"));
        config_path_derive_handoff(config->server.socket_path, derived);
        if (strlen(derived) > CONFIG_SOCKET_PATH_MAX)
            return config_yaml_fail(
                &walk->yaml, place, error, "CONFIG_INVALID_VALUE",
                "%s, derived from server.socket_path, has %zu bytes and may have %d; shorten one or set the other",
                key->path, strlen(derived), CONFIG_SOCKET_PATH_MAX);
        config->server.handoff_socket_path = arena_text(&walk->built->arena, derived, strlen(derived));
    }
    if (strcmp(config->server.handoff_socket_path, config->server.socket_path) == 0)
        return fail_value(walk, place, key, "it is the same as server.socket_path; these are two sockets", error);
    return 0;
}

static int add_roots(struct built *built, const struct config_source *source, struct error *error)
{
    static const char *const lists[] = {"sources.disk.trusted_roots", "activations.roots"};
    char complaint[CONFIG_COMPLAINT_CHARS];
    for (size_t i = 0; i < 2 * source->n_roots; i++)
        if (config_value_add_root(schema_find(lists[i % 2]), source->roots[i / 2], &built->arena, &built->config,
                                  complaint) < 0)
            return fail(error, ERROR_INVALID_ARGUMENT, "CONFIG_INVALID_VALUE", "--root: %s", complaint);
    return 0;
}

static int read_file(struct walk *walk, const char *text, size_t length, const struct config_source *source,
                     struct error *error)
{
    bool is_empty;
    if (config_yaml_open(&walk->yaml, text, length, walk->built->name, &is_empty, error) < 0)
        return -1;
    walk->yaml.home = source->home;
    int result = is_empty ? 0 : read_map(walk, "", error);
    if (result == 0 && !is_empty)
        result = config_yaml_end(&walk->yaml, error);
    if (result == 0)
        result = complete(walk, error);
    config_yaml_close(&walk->yaml);
    return result;
}

static struct config *parse_over(const char *text, size_t length, const struct config_source *source, struct error *error)
{
    struct built *built = memory_alloc(sizeof *built);
    struct walk walk = {.built = built, .places = memory_alloc_array(schema_n_keys, sizeof *walk.places)};
    built->config.internal = built;
    arena_init(&built->arena, 0);
    built->name = source->path ? source->path : source->name;
    built->name = arena_text(&built->arena, built->name, strlen(built->name));
    set_defaults(built);
    int result = set_other_defaults(built, source->defaults, source->n_defaults, error);
    if (result == 0)
        result = read_file(&walk, length ? text : "", length, source, error);
    if (result == 0)
        result = add_roots(built, source, error);
    free(walk.places);
    if (result == 0)
        return &built->config;
    config_destroy(&built->config);
    return NULL;
}

struct config *config_parse(const char *text, size_t length, const char *path, struct error *error)
{
    return parse_over(text, length, &(struct config_source){.path = path}, error);
}

/* Reads at most one byte more than a configuration may have. Returns the count or -1 with errno. */
struct config *config_load(const struct config_source *source, struct error *error)
{
    enum { ROOM = CONFIG_YAML_MAX_BYTES + 1 };
    char shown[TEXT_NAME_CHARS];
    const char *path = source->path;
    if (!path)
        return parse_over("", 0, source, error);
    char *text = memory_alloc(ROOM);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t length = fd < 0 ? -1 : file_io_read(fd, text, ROOM);
    struct config *config = NULL;
    if (length < 0)
        fail_errno(error, errno, "cannot read the configuration %s", text_escape(path, strlen(path), shown));
    else
        config = parse_over(text, (size_t)length, source, error);
    if (fd >= 0)
        close(fd);
    free(text);
    return config;
}

static const struct config *defaults;

static void build_defaults(void)
{
    struct error error;
    defaults = config_parse("", 0, "(defaults)", &error);
    assert(defaults); /* set_defaults() has aborted otherwise */
    ((struct built *)defaults->internal)->is_permanent = true;
}

const struct config *config_defaults(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build_defaults);
    return defaults;
}

const char *config_name(const struct config *config)
{
    const struct built *built = config->internal;
    return built->name;
}

void config_destroy(const struct config *config)
{
    struct built *built = config ? config->internal : NULL;
    if (!built || built->is_permanent)
        return;
    arena_fini(&built->arena);
    free(built);
}

void config_compare(const struct config *old, const struct config *fresh,
                    void (*changed)(void *data, const struct config_change *change), void *data)
{
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        bool may_be_secret = key->type == CONFIG_TEXT || key->type == CONFIG_PREFIXES || key->type == CONFIG_PREWARMS;
        char *from = config_value_text(key, old), *to = config_value_text(key, fresh), shown[2][REDACT_CHARS];
        struct config_change change = {key->path, from, to, key->reloadable};
        if (may_be_secret) { /* in the user's name of a URL */
            redact(from, shown[0], sizeof shown[0]);
            redact(to, shown[1], sizeof shown[1]);
            change.from = shown[0];
            change.to = shown[1];
        }
        if (strcmp(from, to) != 0)
            changed(data, &change);
        free(from);
        free(to);
    }
}

void config_keep_fixed(const struct config *old, struct config *fresh)
{
    for (const struct config_key *key = schema_keys; key < schema_keys + schema_n_keys; key++) {
        if (!key->reloadable)
            memcpy((char *)fresh + key->offset, (const char *)old + key->offset, key->size);
    }
}

const char *collective_transport_name(enum collective_transport transport)
{
    return schema_find("engine.collective_transport")->names[transport];
}
