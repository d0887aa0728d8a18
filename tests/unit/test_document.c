/* Documents beside the tensors: read once, kept while their file is the same, refused when they are too large. */
#include "tests/support/unit.h"

#include "base/memory.h"
#include "resolve/document.h"
#include "tests/support/source_memory.h"

struct scene {
    struct source *source;
    struct header_cache *cache;
    struct lookup lookup;
    struct document document;
    struct error error;
};

static struct scene scene;

static int set_up(void **state)
{
    const struct source_options options = {0};
    size_t file;
    (void)state;
    memset(&scene, 0, sizeof scene);
    source_memory_put("document", "d.json", "{\"a\": 1}", 8);
    assert_int_equal(source_open("memory:document", &options, &scene.source, &scene.error), 0);
    assert_int_equal(source_add_file(scene.source, "d.json", &file, &scene.error), 0);
    scene.source->files[0].changes_by = CHANGES_BY_VERSION;
    assert_int_equal(header_cache_create(NULL, 1 << 20, &scene.cache, &scene.error), 0);
    scene.lookup.cache = scene.cache;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    document_free(&scene.document);
    header_cache_destroy(scene.cache);
    source_unref(scene.source);
    source_memory_clear();
    return 0;
}

static int read_at_most(uint64_t bytes)
{
    document_free(&scene.document);
    const struct document_kind kind = {"a document", bytes, "TOO_LARGE"};
    return document_read(&scene.lookup, scene.source, 0, &kind, &scene.document, &scene.error);
}

TEST_IN(a_document_is_read_whole_and_counted, set_up, tear_down)
{
    assert_int_equal(read_at_most(8), 0);
    assert_int_equal(scene.document.bytes, 8);
    assert_memory_equal(scene.document.text, "{\"a\": 1}", 8);
    assert_int_equal(scene.lookup.bytes_read, 8);
}

TEST_IN(a_large_document_is_read_in_pieces_that_join, set_up, tear_down)
{
    enum { BYTES = (70 << 20) + 3 };
    char *text = memory_alloc(BYTES);
    size_t file;
    for (size_t i = 0; i < BYTES; i += 64)
        memcpy(text + i, &i, BYTES - i < sizeof i ? BYTES - i : sizeof i);
    source_memory_put("document", "large.json", text, BYTES);
    assert_int_equal(source_add_file(scene.source, "large.json", &file, &scene.error), 0);
    const struct document_kind kind = {"a document", BYTES, "TOO_LARGE"};
    assert_int_equal(document_read(&scene.lookup, scene.source, file, &kind, &scene.document, &scene.error), 0);
    assert_int_equal(scene.lookup.bytes_read, BYTES);
    assert_int_equal(memcmp(scene.document.text, text, BYTES), 0);
    free(text);
}

TEST_IN(one_byte_too_many_is_refused_before_it_is_read, set_up, tear_down)
{
    assert_int_equal(read_at_most(7), -1);
    assert_int_equal(scene.error.code, ERROR_DATA_LOSS);
    assert_string_equal(scene.error.reason, "TOO_LARGE");
    assert_int_equal(scene.lookup.bytes_read, 0);
}

TEST_IN(a_file_that_may_change_unseen_has_no_cache, set_up, tear_down)
{
    assert_ptr_equal(lookup_cache(&scene.lookup, scene.source, 0), scene.cache);
    scene.source->files[0].changes_by = CHANGES_RACY;
    assert_null(lookup_cache(&scene.lookup, scene.source, 0));
}

TEST_IN(an_error_names_the_file_once, set_up, tear_down)
{
    struct error error;
    fail_errno(&error, 5, "nothing");
    assert_int_equal(document_prefix(&error, "d.json"), -1);
    assert_non_null(strstr(error.message, "d.json"));
    char before[ERROR_MESSAGE_CHARS];
    memcpy(before, error.message, sizeof before);
    document_prefix(&error, "d.json");
    assert_string_equal(error.message, before);
}
