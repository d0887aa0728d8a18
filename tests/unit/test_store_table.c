/* A store is one file and one row: this one is a store of its own, and the program has the table below instead of that of
 * daemon/source. Everything that tells stores apart - references, the configuration, switches, messages, the log at start -
 * must find it there. docs/backends.md shows the same lines. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "source/source.h"
#include "source/stores.h"
#include "tests/support/source_bytes.h"

#undef fail /* ours is in base/error.h */

/* --- "same:BYTE": a folder of one file that has this byte everywhere --- */

#define FILE_NAME "model.safetensors"

struct source_same {
    struct source base;
    unsigned char byte;
};

struct same_settings {
    struct store_settings base;
    uint64_t size_bytes;
};

static const struct store source_same_store;

static int same_open(struct source *source, const char *path, const struct source_options *options, struct error *error)
{
    (void)options;
    if (path[1])
        return fail(error, ERROR_INVALID_ARGUMENT, "BAD_REFERENCE", "same:%s: one byte is expected", path);
    ((struct source_same *)source)->byte = (unsigned char)*path;
    source->caps = (struct source_caps){.filesystem = SOURCE_LOCAL, .filesystem_type = "same"};
    return 0;
}

static int same_list(struct source *source, const char *folder, char ***names, size_t *n_names, struct error *error)
{
    (void)source;
    (void)folder;
    (void)error;
    *names = memory_alloc(sizeof **names);
    (*names)[0] = memory_copy_text(FILE_NAME);
    *n_names = 1;
    return 0;
}

static int same_open_file(struct source *source, const char *name, struct source_file *file, void **handle,
                          struct error *error)
{
    const struct source_same *same = (const struct source_same *)source;
    const char text[] = {(char)same->byte, '\0'};
    *handle = NULL;
    if (strcmp(name, FILE_NAME) != 0)
        return fail(error, ERROR_NOT_FOUND, "NO_SUCH_FILE", "there is " FILE_NAME " only");
    file->size_bytes = 1000;
    file->identity = source_identity_of(text, file->size_bytes);
    return 0;
}

static int same_read(struct source *source, struct source_read *read, struct error *error)
{
    (void)error;
    for (int i = 0; i < read->n_iov; i++)
        memset(read->iov[i].iov_base, ((const struct source_same *)source)->byte, read->iov[i].iov_len);
    return 0;
}

static int same_check_unchanged(struct source *source, size_t file, bool by_name, struct error *error)
{
    (void)by_name;
    (void)source;
    (void)file;
    (void)error;
    return 0;
}

static void same_close(struct source *source)
{
    (void)source;
}

static const struct source_ops same_ops = {
    .name = "same",
    .source_size = sizeof(struct source_same),
    .open = same_open,
    .list = same_list,
    .open_file = same_open_file,
    .read = same_read,
    .check_unchanged = same_check_unchanged,
    .close = same_close,
};

static const struct config_key keys[] = {
    {"sources.same.enabled", CONFIG_BOOL, CONFIG_FIELD(same_settings, base.is_enabled), .fallback = "true",
     .help = "Lets artifacts be loaded from same: references."},
    {"sources.same.endpoint", CONFIG_TEXT, CONFIG_FIELD(same_settings, base.endpoint), .fallback = "", .may_be_empty = true,
     .help = "Never contacted.", .environment = "SAME_ENDPOINT", .otherwise = "https://same.example"},
    {"sources.same.size", CONFIG_SIZE, CONFIG_FIELD(same_settings, size_bytes), .fallback = "4KiB", .max = 1 << 20,
     .help = "Of the file."},
};
static const struct config_section section = {keys, sizeof keys / sizeof keys[0], sizeof(struct same_settings)};

static void same_describe(struct stores *stores, struct store_line *line)
{
    const struct same_settings *settings = stores_settings(stores, &source_same_store);
    snprintf(line->endpoint, sizeof line->endpoint, "%s", settings->base.endpoint);
    snprintf(line->credentials, sizeof line->credentials, "none");
}

static const struct store source_same_store = {
    .scheme = "same",
    .alias = "equal",
    .source = &same_ops,
    .is_remote = true,
    .section = &section,
    .describe = same_describe,
};

const struct store *const store_table[] = {&source_same_store, NULL};

/* --- what the row is enough for --- */

static struct stores *make_stores(const char *text)
{
    struct stores *stores;
    struct error error;
    const struct config *config = config_parse(text, strlen(text), "test.yaml", &error);
    assert_non_null(config);
    assert_int_equal(stores_create(config, NULL, &stores, &error), 0);
    config_destroy(config);
    return stores;
}

TEST(references_lead_to_it)
{
    static const char *const references[] = {"same:x", "equal:x"};
    struct stores *stores = make_stores("");
    for (size_t i = 0; i < 2; i++) {
        const struct source_options options = {.stores = stores};
        struct source *source;
        struct error error;
        size_t file;
        char byte = 0;
        assert_true(source_is_remote(references[i]));
        assert_int_equal(source_open(references[i], &options, &source, &error), 0);
        assert_int_equal(source_add_file(source, FILE_NAME, &file, &error), 0);
        assert_int_equal(source_read_bytes(source, file, 999, &byte, 1, &error), 0);
        assert_int_equal(byte, 'x');
        source_unref(source);
    }
    stores_destroy(stores);
}

TEST(an_unknown_scheme_is_told_of_it)
{
    struct source *source;
    struct error error;
    assert_int_equal(source_open("s3://bucket/x", &(struct source_options){0}, &source, &error), -1);
    assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
    assert_non_null(strstr(error.message, "same:"));
}

TEST(the_configuration_has_its_keys)
{
    struct error error;
    struct stores *stores = make_stores("sources: {same: {size: 8KiB}}");
    const struct same_settings *settings = stores_settings(stores, &source_same_store);
    static const char wrong[] = "sources: {s3: {region: here}}";
    assert_int_equal(settings->size_bytes, 8192);
    assert_string_equal(settings->base.endpoint, "https://same.example");
    assert_non_null(schema_find("sources.same.size"));
    assert_null(config_parse(wrong, strlen(wrong), "test.yaml", &error));
    stores_destroy(stores);
}

TEST(the_configuration_switches_it_off)
{
    struct stores *stores = make_stores("sources: {same: {enabled: false}}");
    const struct source_options options = {.stores = stores};
    struct source *source;
    struct error error;
    assert_int_equal(source_open("equal:x", &options, &source, &error), -1);
    assert_string_equal(error.reason, "SOURCE_SWITCHED_OFF");
    stores_destroy(stores);
}

static void note(void *data, const char *scheme, const struct store_line *line)
{
    snprintf(data, 256, "%s %s %s", scheme, line->endpoint, line->credentials);
}

TEST(the_log_at_start_describes_it)
{
    char line[256] = "";
    setenv("SAME_ENDPOINT", "https://other.example", 1);
    struct stores *stores = make_stores("");
    unsetenv("SAME_ENDPOINT");
    stores_describe(stores, note, line);
    assert_string_equal(line, "same https://other.example none");
    stores_destroy(stores);
}
