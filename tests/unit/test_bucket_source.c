/* References to buckets, and how their objects are named. */
#include "tests/support/unit.h"

#include "source/bucket_source.h"

static const struct source_ops ops = {.name = "gs"};

static bool is_part(const char *name)
{
    return strstr(name, ".safetensors");
}

static const struct source_format format = {.is_part = is_part};

TEST(buckets_keys_and_folders_are_told_apart)
{
    static const struct {
        const char *path, *bucket, *key, *prefix, *file_name;
    } cases[] = {{"//b", "b", "", "", NULL},
                 {"//b/", "b", "", "", NULL},
                 {"//b/x/y", "b", "x/y", "x/y/", NULL},
                 {"//b//x/", "b", "/x", "/x/", NULL},
                 {"//b/x.safetensors", "b", "x.safetensors", "", "x.safetensors"},
                 {"//b/x/y.safetensors", "b", "x/y.safetensors", "x/", "y.safetensors"}};
    struct error error;
    char text[BUCKET_SHOWN_CHARS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bucket_source source = {.objects.base = {.ops = &ops, .format = &format}};
        assert_int_equal(bucket_source_parse(&source, cases[i].path, &error), 0);
        assert_string_equal(source.bucket, cases[i].bucket);
        assert_string_equal(source.key, cases[i].key);
        assert_string_equal(source.prefix, cases[i].prefix);
        assert_int_equal(source.objects.base.is_single_file, cases[i].file_name != NULL);
        if (cases[i].file_name)
            assert_string_equal(source.objects.base.file_name, cases[i].file_name);
        char *expected = malloc(100);
        snprintf(expected, 100, "gs://b/%sz", cases[i].prefix);
        assert_string_equal(bucket_source_shown(&source, "z", text), expected);
        free(expected);
        bucket_source_close(&source.objects.base);
    }
}

TEST(what_is_no_bucket_is_refused)
{
    static const char *const paths[] = {"b/x", "///x", "//me@b/x", ""};
    struct error error;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct bucket_source source = {.objects.base = {.ops = &ops, .format = &format}};
        assert_int_equal(bucket_source_parse(&source, paths[i], &error), -1);
        assert_non_null(strstr(error.message, "gs://bucket/model"));
        bucket_source_close(&source.objects.base);
    }
}
