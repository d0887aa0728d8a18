/* The header of every part file: from the cache or read, and whichever cannot be read is named. */
#include "tests/support/unit.h"

#include "resolve/headers.h"
#include "tests/support/source_memory.h"

enum { FILES = 3 };

static struct source *source;
static struct header_cache *cache;
static struct lookup lookup;
static struct part_header *headers[FILES];
static struct error error;

static void put(int file, const char *json, uint64_t data_bytes)
{
    char bytes[512] = {0}, name[32];
    uint64_t length = strlen(json);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, json, length);
    snprintf(name, sizeof name, "%d.safetensors", file);
    source_memory_put("headers", name, bytes, 8 + length + data_bytes);
}

static void open_files(void)
{
    const struct source_options options = {0};
    assert_int_equal(source_open("memory:headers", &options, &source, &error), 0);
    for (int i = 0; i < FILES; i++) {
        char name[32];
        size_t file;
        snprintf(name, sizeof name, "%d.safetensors", i);
        assert_int_equal(source_add_file(source, name, &file, &error), 0);
        source->files[i].changes_by = CHANGES_BY_VERSION;
    }
}

static int set_up(void **state)
{
    (void)state;
    memset(headers, 0, sizeof headers);
    for (int i = 0; i < FILES; i++) {
        char json[128];
        snprintf(json, sizeof json, "{\"t%d\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", i);
        put(i, json, 4);
    }
    assert_int_equal(header_cache_create(NULL, 1 << 20, &cache, &error), 0);
    lookup = (struct lookup){.cache = cache};
    return 0;
}

static void forget_headers(void)
{
    for (int i = 0; i < FILES; i++)
        part_header_unref(headers[i]);
    memset(headers, 0, sizeof headers);
}

static int tear_down(void **state)
{
    (void)state;
    forget_headers();
    source_unref(source);
    header_cache_destroy(cache);
    source_memory_clear();
    return 0;
}

static void assert_read(void)
{
    assert_int_equal(headers_read(source, formats[0], &lookup, headers, &error), 0);
    for (int i = 0; i < FILES; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(headers[i]->n_tensors, 1);
        assert_string_equal(headers[i]->tensors[0].name, name);
    }
}

TEST_IN(every_file_has_its_header, set_up, tear_down)
{
    open_files();
    assert_read();
    assert_true(lookup.bytes_read > 0);
}

TEST_IN(so_has_each_when_several_are_read_at_once, set_up, tear_down)
{
    open_files();
    source->caps.reads_are_requests = true;
    source->caps.parallel_requests = 4;
    assert_read();
}

TEST_IN(what_the_cache_knows_is_not_read_again_unless_asked, set_up, tear_down)
{
    open_files();
    assert_read();
    forget_headers();
    lookup = (struct lookup){.cache = cache};
    assert_read();
    assert_int_equal(lookup.bytes_read, 0);
    forget_headers();
    lookup.fresh = true;
    assert_read();
    assert_true(lookup.bytes_read > 0);
}

TEST_IN(a_file_that_is_no_safetensors_is_named, set_up, tear_down)
{
    put(1, "no JSON", 0);
    open_files();
    assert_int_equal(headers_read(source, formats[0], &lookup, headers, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "1.safetensors"));
}

TEST_IN(a_file_without_room_for_a_length_is_refused, set_up, tear_down)
{
    source_memory_put("headers", "2.safetensors", "1234567", 7);
    open_files();
    assert_int_equal(headers_read(source, formats[0], &lookup, headers, &error), -1);
    assert_string_equal(error.reason, "HEADER_TOO_SMALL");
    assert_non_null(strstr(error.message, "2.safetensors"));
}

#define U8(at) "{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" at "]}"

TEST_IN(files_with_the_same_header_share_what_it_says, set_up, tear_down)
{
    put(1, "{\"t0\":" U8("0,4") "}", 4);
    put(2, "{\"t0\":" U8("0,4") "}", 4);
    open_files();
    assert_int_equal(headers_read(source, formats[0], &lookup, headers, &error), 0);
    assert_ptr_equal(headers[1], headers[0]);
    assert_ptr_equal(headers[2], headers[0]);
}

/* The second header is the one of the most tensors, but comes later. */
TEST_IN(names_are_those_of_the_own_file_whatever_the_others_have, set_up, tear_down)
{
    static const char *const texts[FILES] = {"{\"a\":" U8("0,4") ",\"b\":" U8("4,8") ",\"c\":" U8("8,12") "}",
                                             "{\"a\":" U8("4,8") ",\"c\":" U8("0,4") ",\"\\u0063d\":" U8("8,12") "}",
                                             "{\"a\":" U8("0,4") ",\"c\":" U8("4,8") "}"};
    static const char *const names[FILES][4] = {{"a", "b", "c"}, {"c", "a", "cd"}, {"a", "c"}};
    for (int i = 0; i < FILES; i++)
        put(i, texts[i], i == 2 ? 8 : 12);
    open_files();
    assert_int_equal(headers_read(source, formats[0], &lookup, headers, &error), 0);
    header_cache_destroy(cache); /* no other user holds the headers any longer */
    cache = NULL;
    for (int i = 0; i + 1 < FILES; i++) { /* the last one lives longest, with names of another */
        for (size_t k = 0; names[i][k]; k++)
            assert_string_equal(headers[i]->tensors[k].name, names[i][k]);
        part_header_unref(headers[i]);
        headers[i] = NULL;
    }
    assert_string_equal(headers[2]->tensors[0].name, "a");
    assert_string_equal(headers[2]->tensors[1].name, "c");
    assert_int_equal(headers[2]->n_tensors, 2);
}

TEST_IN(a_name_that_occurs_twice_is_found_beside_other_headers, set_up, tear_down)
{
    static const char *const twice[] = {"{\"t0\":" U8("0,4") ",\"t0\":" U8("4,8") "}",
                                        "{\"x\":" U8("0,4") ",\"x\":" U8("4,8") "}"};
    open_files();
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++) {
        source_unref(source);
        put(0, "{\"t0\":" U8("0,4") ",\"x\":" U8("4,8") "}", 8);
        put(1, twice[i], 8);
        open_files();
        assert_int_equal(headers_read(source, formats[0], &lookup, headers, &error), -1);
        assert_string_equal(error.reason, "DUPLICATE_TENSOR");
        assert_non_null(strstr(error.message, "1.safetensors"));
        forget_headers();
    }
}
