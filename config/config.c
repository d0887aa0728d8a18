/* Builds a struct config: every default first, then what the files say, one after the other, then what follows from all of it.
 *
 * A file is walked item by item with the schema at hand: a key is known or refused at once, a section is entered only
 * where the schema has one, and so nothing nests deeper than the schema does. The first mistake ends the walk. */
#include "config/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_io.h"
#include "base/memory.h"
#include "base/redact.h"
#include "base/tcp_listener.h"
#include "base/text.h"
#include "config/config_prewarm.h"
#include "config/config_value.h"
#include "config/config_yaml.h"
#include "config/schema.h"

struct mark { /* line 0 = the default stands */
    struct config_yaml_place place;
    const char *file;
    bool is_drop_in; /* file is not the first one */
};

struct built {            /* what a `const struct config *` really points to */
    struct config config; /* first */
    struct arena arena;   /* its strings */
    const char *name;     /* config_name() */
    struct config_list drop_ins;
    struct mark *marks; /* per schema row: where its value is from */
    bool is_permanent;  /* the defaults, which are never freed */
};

struct walk {
    struct config_yaml yaml;
    struct built *built;
    const char *file; /* that is read */
    bool is_drop_in;  /* it is not the first one */
};

static int fail_value(const struct walk *walk, struct config_yaml_place place, const struct config_key *key,
                      const char *complaint, struct error *error)
{
    return config_yaml_fail(&walk->yaml, place, error, "CONFIG_INVALID_VALUE", "%s: %s", key->path, complaint);
}

static const char *shown_item(const struct config_yaml_item *item)
{
    if (item->kind == CONFIG_YAML_OPEN_LIST)
        return "a list";
    if (item->kind == CONFIG_YAML_OPEN_MAP)
        return "a section";
    return *item->text ? text_show(item->text) : "nothing";
}

static int fail_kind(const struct walk *walk, const struct config_key *key, const struct config_yaml_item *item,
                     struct error *error)
{
    char complaint[CONFIG_COMPLAINT_CHARS], expected[CONFIG_EXPECTED_CHARS];
    snprintf(complaint, sizeof complaint, "expected %s, got %s", config_value_expected(key, expected), shown_item(item));
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

static int fail_unknown(const struct walk *walk, const char *section, const struct config_yaml_item *item,
                        struct error *error)
{
    char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS], hint[ERROR_MESSAGE_CHARS / 2];
    const char *candidates[CONFIG_MAX_CHILDREN], *dot = *section ? "." : "";
    size_t n = schema_children(section, names), used = 0;
    for (size_t i = 0; i < n; i++)
        candidates[i] = names[i];
    const char *elsewhere = NULL, *nearest = text_nearest(item->text, candidates, n); /* in another section, or here */
    for (size_t i = 0; i < schema_n_keys && !elsewhere; i++)
        elsewhere = strcmp(schema_last_name(&schema_keys[i]), item->text) == 0 ? schema_keys[i].path : NULL;
    if (elsewhere)
        snprintf(hint, sizeof hint, "did you mean %s?", elsewhere);
    else if (nearest)
        snprintf(hint, sizeof hint, "did you mean %s%s%s?", section, dot, nearest);
    else
        used = (size_t)snprintf(hint, sizeof hint, "known here:");
    for (size_t i = 0; used && i < n && used < sizeof hint; i++)
        used += (size_t)snprintf(hint + used, sizeof hint - used, "%s %s", i ? "," : "", names[i]);
    return config_yaml_fail(&walk->yaml, item->place, error, "CONFIG_UNKNOWN_KEY", "unknown key %s%s%s; %s", section, dot,
                            text_show(item->text), hint);
}

static int read_map(struct walk *walk, const char *section, struct error *error);

static int read_section(struct walk *walk, const char *section, const struct config_yaml_item *item, struct error *error)
{
    char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS];
    if (item->kind == CONFIG_YAML_OPEN_MAP)
        return read_map(walk, section, error);
    if (item->kind == CONFIG_YAML_SCALAR && item->is_plain &&
        (!*item->text || strcmp(item->text, "~") == 0 || strcmp(item->text, "null") == 0))
        return 0; /* every key of the section may be commented out */
    schema_children(section, names);
    return config_yaml_fail(&walk->yaml, item->place, error, "CONFIG_INVALID_VALUE",
                            "%s: expected a section with keys such as %s.%s, got %s", section, section, names[0],
                            shown_item(item));
}

struct seen { /* names met in one mapping, for duplicates; bounded because unknown names end the walk */
    char names[CONFIG_MAX_CHILDREN][CONFIG_PATH_CHARS];
    size_t lines[CONFIG_MAX_CHILDREN], n;
};

static int read_entry(struct walk *walk, const char *section, struct seen *seen, struct config_yaml_item *item,
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
    for (size_t i = 0; i < seen->n; i++) {
        if (strcmp(seen->names[i], path) == 0)
            return config_yaml_fail(&walk->yaml, item->place, error, "CONFIG_DUPLICATE_KEY",
                                    "%s is given twice; the first is on line %zu", path, seen->lines[i]);
    }
    snprintf(seen->names[seen->n], CONFIG_PATH_CHARS, "%s", path);
    seen->lines[seen->n++] = item->place.line;
    if (config_yaml_next(&walk->yaml, item, error) < 0)
        return -1;
    if (!key)
        return read_section(walk, path, item, error);
    walk->built->marks[key - schema_keys] = (struct mark){item->place, walk->file, walk->is_drop_in};
    return schema_is_list(key) ? read_list(walk, key, item, error) : read_scalar(walk, key, item, error);
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

/* Of a key, after all files were read. */
static int fail_key(struct walk *walk, const struct config_key *marked, const struct config_key *key, const char *complaint,
                    struct error *error)
{
    const struct mark *mark = &walk->built->marks[marked - schema_keys];
    const char *file = mark->file ? mark->file : walk->built->name;
    text_escape(file, strlen(file), walk->yaml.shown_path);
    return fail_value(walk, mark->place, key, complaint, error);
}

/* What follows from several keys together. */
static int complete(struct walk *walk, struct error *error)
{
    struct config *config = &walk->built->config;
    const struct config_key *key = schema_find("server.handoff_socket_path"), *marked = key;
    char complaint[CONFIG_COMPLAINT_CHARS], derived[CONFIG_DERIVED_CHARS];
    if (!*config->server.handoff_socket_path) {
        marked = schema_find("server.socket_path");
        config_path_derive_handoff(config->server.socket_path, derived);
        if (strlen(derived) > CONFIG_SOCKET_PATH_MAX) {
            snprintf(complaint, sizeof complaint,
                     "derived from server.socket_path, it has %zu bytes and may have %d; shorten one or set the other",
                     strlen(derived), CONFIG_SOCKET_PATH_MAX);
            return fail_key(walk, marked, key, complaint, error);
        }
        config->server.handoff_socket_path = arena_text(&walk->built->arena, derived, strlen(derived));
    }
    if (strcmp(config->server.handoff_socket_path, config->server.socket_path) == 0)
        return fail_key(walk, marked, key, "it is the same as server.socket_path; these are two sockets", error);
    key = schema_find("server.metrics_address");
    struct tcp_address address;
    if (*config->server.metrics_address && !tcp_address_parse(config->server.metrics_address, &address))
        return fail_key(walk, key, key, "expected ADDRESS:PORT with a number as address, such as 127.0.0.1:9464 or [::1]:0",
                        error);
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

static int read_text(struct walk *walk, const char *text, size_t length, const char *home, struct error *error)
{
    bool is_empty;
    if (config_yaml_open(&walk->yaml, text, length, walk->file, &is_empty, error) < 0)
        return -1;
    walk->yaml.home = home;
    int result = is_empty ? 0 : read_map(walk, "", error);
    if (result == 0 && !is_empty)
        result = config_yaml_end(&walk->yaml, error);
    config_yaml_close(&walk->yaml);
    return result;
}

/* Reads at most one byte more than a configuration may have. The first file may be a pipe. A FIFO among the others would wait for
 * its writer. */
static int read_file(struct walk *walk, const char *path, const char *home, struct error *error)
{
    enum { ROOM = CONFIG_YAML_MAX_BYTES + 1 };
    char *text = memory_alloc(ROOM);
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (walk->is_drop_in ? O_NONBLOCK : 0)), result;
    bool is_odd = walk->is_drop_in && fd >= 0 && fstat(fd, &status) == 0 && !S_ISREG(status.st_mode);
    ssize_t length = fd < 0 || is_odd ? -1 : file_io_read(fd, text, ROOM);
    walk->file = arena_text(&walk->built->arena, path, strlen(path));
    if (is_odd)
        result = fail(error, ERROR_FAILED_PRECONDITION, REASON(NOT_A_REGULAR_FILE),
                      "the configuration %s is no regular file: remove it", text_show(path));
    else if (length < 0)
        result = fail_errno(error, errno, "cannot read the configuration %s", text_show(path));
    else
        result = read_text(walk, text, (size_t)length, home, error);
    if (fd >= 0)
        close(fd);
    free(text);
    return result;
}

static int read_drop_ins(struct walk *walk, const struct config_source *source, struct error *error)
{
    struct built *built = walk->built;
    const char **names = arena_array(&built->arena, source->n_drop_ins, sizeof *names);
    walk->is_drop_in = true;
    for (size_t i = 0; i < source->n_drop_ins; i++) {
        if (read_file(walk, source->drop_ins[i], source->home, error) < 0)
            return -1;
        names[i] = walk->file;
    }
    built->drop_ins = (struct config_list){names, source->n_drop_ins};
    return 0;
}

/* text: instead of a file. */
static struct config *build_config(const char *text, size_t length, const struct config_source *source, struct error *error)
{
    struct built *built = memory_alloc(sizeof *built);
    struct walk walk = {.built = built};
    built->config.internal = built;
    arena_init(&built->arena, 0);
    built->marks = arena_array(&built->arena, schema_n_keys, sizeof *built->marks);
    built->name = source->path ? source->path : source->name;
    built->name = walk.file = arena_text(&built->arena, built->name, strlen(built->name));
    set_defaults(built);
    int result = set_other_defaults(built, source->defaults, source->n_defaults, error);
    if (result == 0)
        result =
            text ? read_text(&walk, text, length, source->home, error) : read_file(&walk, source->path, source->home, error);
    if (result == 0)
        result = read_drop_ins(&walk, source, error);
    if (result == 0)
        result = complete(&walk, error);
    if (result == 0)
        result = add_roots(built, source, error);
    if (result == 0)
        return &built->config;
    config_destroy(&built->config);
    return NULL;
}

struct config *config_parse(const char *text, size_t length, const char *path, struct error *error)
{
    return build_config(length ? text : "", length, &(struct config_source){.path = path}, error);
}

struct config *config_load(const struct config_source *source, struct error *error)
{
    return build_config(source->path ? NULL : "", 0, source, error);
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

struct config_list config_drop_ins(const struct config *config)
{
    const struct built *built = config->internal;
    return built->drop_ins;
}

const char *config_drop_in_of(const struct config *config, const struct config_key *key)
{
    const struct built *built = config->internal;
    const struct mark *mark = &built->marks[key - schema_keys];
    return mark->is_drop_in ? mark->file : NULL;
}

int config_prefix_place(const struct config *config, const struct config_key *key, struct error *error)
{
    const struct built *built = config->internal;
    const struct mark *mark = &built->marks[key - schema_keys];
    if (!mark->place.line)
        return error_prefix(error, "%s", built->name);
    return error_prefix(error, "%s:%zu:%zu", text_show(mark->file), mark->place.line, mark->place.column);
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
        char *from = config_value_text(key, old), *to = config_value_text(key, fresh);
        bool may_be_secret = key->type == CONFIG_PREFIXES || key->type == CONFIG_PREWARMS ||
                             (key->type == CONFIG_TEXT && (strpbrk(from, "@?") || strpbrk(to, "@?")));
        struct config_change change = {key->path, from, to, key->reloadable};
        if (may_be_secret) { /* in the user's name of a URL */
            change.from = redact_show(from);
            change.to = redact_show(to);
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
