/* A format is one row: this one is of a program of its own, which has the table below instead of that of daemon/resolve. Files
 * of it are found in a folder, read, and composed with views like those of every other format. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/header_cache.h"
#include "resolve/header_store.h"
#include "resolve/mapping.h"
#include "tests/support/source_memory.h"

#undef fail /* ours is in base/error.h */

/* --- "raw": 8 bytes of anything, 8 letters that name the only tensor, and its bytes --- */

enum { FIRST_BYTES = 8, NAME_BYTES = 8, DATA_AT = FIRST_BYTES + NAME_BYTES };

static bool raw_probe(const char *file_name)
{
    size_t length = strlen(file_name);
    return length > 4 && strcmp(file_name + length - 4, ".raw") == 0;
}

static bool raw_is_whole(const char *folder_on_disk)
{
    (void)folder_on_disk;
    return true;
}

static int raw_length(const unsigned char *first, uint64_t file_bytes, uint64_t *header_bytes, struct error *error)
{
    (void)first;
    *header_bytes = NAME_BYTES;
    return file_bytes >= DATA_AT ? 0 : fail(error, ERROR_INVALID_ARGUMENT, "BAD_RAW", "a raw file has a name of 8 letters");
}

static struct part_header *raw_parse(const char *text, uint64_t header_bytes, uint64_t file_bytes, struct format_help *help,
                                     struct error *error)
{
    (void)help, (void)error;
    struct part_header *header = memory_alloc(sizeof *header);
    *header = (struct part_header){.n_tensors = 1, .data_offset = DATA_AT, .file_bytes = file_bytes, .references = 1};
    arena_init(&header->arena, 0);
    uint64_t *shape = arena_alloc(&header->arena, sizeof *shape);
    char *name = arena_alloc(&header->arena, header_bytes + 1);
    *shape = file_bytes - DATA_AT;
    memcpy(name, text, header_bytes);
    header->tensors = arena_alloc(&header->arena, sizeof *header->tensors);
    *header->tensors = (struct stored_tensor){.name = name,
                                              .name_length = NAME_BYTES,
                                              .dtype = DTYPE_U8,
                                              .rank = 1,
                                              .shape = shape,
                                              .offset = DATA_AT,
                                              .bytes = *shape};
    return header;
}

static const struct source_format raw_of_sources = {.is_part = raw_probe, .is_whole = raw_is_whole};

static const char *const raw_single_names[] = {"model.raw", NULL}, *const raw_index_names[] = {"model.raw.index.json", NULL};

static const struct format raw = {
    .name = "raw",
    .single_names = raw_single_names,
    .index_names = raw_index_names,
    .pattern = "*.raw",
    .source_format = &raw_of_sources,
    .probe = raw_probe,
    .cache_kind = HEADER_KIND_SAFETENSORS, /* there is no state directory here */
    .first_bytes = FIRST_BYTES,
    .length = raw_length,
    .parse = raw_parse,
};

const struct format *const formats[] = {&raw};
const size_t n_formats = 1;

/* --- tests --- */

static const struct source_options options = {0};
static struct header_cache *cache;

static int create(void **state)
{
    struct error error;
    (void)state;
    source_memory_clear();
    source_memory_put("m", "a.raw", "????????tensor_Aabcdefgh", 24);
    source_memory_put("m", "b.raw", "????????tensor_B0123456789", 26);
    source_memory_put("m", "notes.txt", "not a part", 10);
    return header_cache_create(NULL, 1 << 20, &cache, &error);
}

static int destroy(void **state)
{
    (void)state;
    header_cache_destroy(cache);
    source_memory_clear();
    return 0;
}

static struct artifact *resolve(const char *reference, struct error *error)
{
    struct artifact *artifact = NULL;
    return artifact_resolve(reference, &options, cache, false, &artifact, error) == 0 ? artifact : NULL;
}

TEST_IN(files_of_a_format_with_a_row_are_found_and_read, create, destroy)
{
    struct error error;
    struct artifact *artifact = resolve("memory:m", &error);
    assert_non_null(artifact);
    assert_int_equal(artifact->n_tensors, 2);
    assert_string_equal(artifact->tensors[0].name, "tensor_A");
    assert_string_equal(artifact->tensors[1].name, "tensor_B");
    artifact_unref(artifact);
}

TEST_IN(a_view_of_them_is_transfers_like_any_other, create, destroy)
{
    const struct slice slice = {.start = 3, .stop = 7};
    const struct view_item item = {.name = "tensor_B", .name_length = NAME_BYTES, .slices = &slice, .n_slices = 1};
    const struct view_spec view = {.items = &item, .n_items = 1, .align_bytes = 64};
    struct error error;
    struct artifact *artifact = resolve("memory:m", &error);
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    assert_non_null(mapping);
    assert_int_equal(mapping->n_transfers, 1);
    assert_int_equal(mapping->transfers[0].file, 1);
    assert_int_equal(mapping->transfers[0].src_offset, DATA_AT + 3);
    assert_int_equal(mapping->transfers[0].row_bytes, 4);
    mapping_destroy(mapping);
    artifact_unref(artifact);
}

TEST_IN(what_a_row_says_of_a_bad_file_is_the_answer, create, destroy)
{
    struct error error;
    source_memory_put("m", "c.raw", "????????short", 13);
    assert_null(resolve("memory:m", &error));
    assert_string_equal(error.reason, "BAD_RAW");
}
