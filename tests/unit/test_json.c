/* The JSON reader accepts exactly RFC 8259, and what the writer writes it reads back. */
#include "tests/support/unit.h"

#include <sys/resource.h>

#include "base/json.h"

static const char *const well_formed[] = {
    "{}",
    "[]",
    " \t\r\n{ } ",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "-1",
    "12.5",
    "1e5",
    "1E+5",
    "1.25e-3",
    "\"\"",
    "[1, [2, {\"a\": []}], \"x\"]",
    "{\"a\": 1, \"a\": 2}",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    "\"\\u0000\\ud83d\\ude00\"",
    "\"\x7f\"",
    "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
    "123456789012345678901234567890",
};

static const char *const malformed[] = {
    "",
    " ",
    "{",
    "}",
    "[",
    "]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{,}",
    "{\"a\"}",
    "{\"a\":}",
    "{\"a\":1,}",
    "{\"a\" 1}",
    "{a:1}",
    "{1:2}",
    "{'a':1}",
    "nul",
    "nulll",
    "True",
    "NaN",
    "Infinity",
    "-",
    "+1",
    "01",
    "-01",
    ".5",
    "1.",
    "1.e5",
    "1e",
    "1e+",
    "0x10",
    "\"",
    "\"abc",
    "\"\\",
    "\"\\x\"",
    "\"\\u12\"",
    "\"\\u12g4\"",
    "\"\\ud800\"",
    "\"\\ud800x\"",
    "\"\\udc00\"",
    "\"\\ud800\\ud800\"",
    "\"\\ud800\\u0041\"",
    "\"a\nb\"",
    "\"a\tb\"",
    "\"\x01\"",
    "\"\xff\"",
    "\"\xc0\x80\"",
    "\"\xed\xa0\x80\"",
    "\"\xf4\x90\x80\x80\"",
    "\"\xe2\x82\"",
    "\xef\xbb\xbf{}",
    "{} {}",
    "1 2",
    "[1] x",
    "/**/1",
    "[1}",
    "{\"a\":1]",
};

static bool accepts(const char *text, size_t length)
{
    struct json json;
    struct arena arena;
    arena_init(&arena, 0);
    json_init(&json, text, length, &arena);
    bool skipped = json_skip(&json);
    bool accepted = json_end(&json);
    assert_true(skipped || !accepted);
    assert_int_equal(accepted, json_ok(&json));
    arena_fini(&arena);
    return accepted;
}

TEST(well_formed_values_are_skipped)
{
    for (size_t i = 0; i < sizeof well_formed / sizeof *well_formed; i++) {
        if (!accepts(well_formed[i], strlen(well_formed[i])))
            fail_msg("refused: %s", well_formed[i]);
    }
}

TEST(malformed_values_are_refused)
{
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        if (accepts(malformed[i], strlen(malformed[i])))
            fail_msg("accepted: %s", malformed[i]);
    }
    assert_false(accepts("\"a\0b\"", 5));
}

static bool accepts_leniently(const char *text, struct json_string *string)
{
    struct json json;
    struct arena arena;
    arena_init(&arena, 0);
    json_init(&json, text, strlen(text), &arena);
    json.is_lenient = true;
    bool taken = string ? json_take_string(&json, string) : json_skip(&json);
    bool accepted = json_end(&json) && taken;
    if (string && accepted)
        assert_memory_equal(string->text,
                            "a\xef\xbf\xbd"
                            "b",
                            string->length);
    arena_fini(&arena);
    return accepted;
}

TEST(documents_of_others_may_have_what_python_writes)
{
    static const char *const taken[] =
        {"NaN",         "Infinity",           "-Infinity", "[NaN, -Infinity, 1]", "{\"a\": {\"b\": Infinity}}",
         "\"\\ud800\"", "\"\\udfff\\ud800x\""},
                             *const refused[] = {"-NaN", "Inf",  "nan",       "infinity", "+Infinity", "- Infinity",
                                                 "NaNs", "NULL", "\"\\ud8\"", "01",       "[1,]",      "{'a': 1}"};
    struct json_string string;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        assert_true(accepts_leniently(taken[i], NULL));
        assert_false(accepts(taken[i], strlen(taken[i])));
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_false(accepts_leniently(refused[i], NULL));
    assert_true(accepts_leniently("\"a\\ud800b\"", &string));
    assert_int_equal(string.length, 5);
}

TEST(every_cut_of_a_document_is_refused)
{
    static const char text[] = "{\"a\": [1.5e3, true, null, \"\\ud83d\\ude00\\n\"], \"b\": {\"c\": false}}";
    for (size_t length = 0; length < sizeof text - 1; length++)
        assert_false(accepts(text, length));
    assert_true(accepts(text, sizeof text - 1));
}

TEST(nesting_is_limited)
{
    char text[2 * (JSON_MAX_DEPTH + 1)];
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    assert_true(accepts(text, 2 * JSON_MAX_DEPTH));
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    assert_false(accepts(text, sizeof text));
}

TEST(values_are_walked_in_order)
{
    static const char text[] =
        "{\"u\": 18446744073709551615, \"i\": -9223372036854775808, \"n\": null, \"s\": [\"a\\u0000b\", \"plain\"]}";
    struct json json;
    struct arena arena;
    struct json_string key, first, second;
    uint64_t u = 0;
    int64_t i = 0;
    arena_init(&arena, 0);
    json_init(&json, text, sizeof text - 1, &arena);
    assert_int_equal(json_peek(&json), JSON_OBJECT);
    assert_true(json_begin_object(&json));
    assert_true(json_next_key(&json, &key) && json_take_u64(&json, &u));
    assert_true(json_next_key(&json, &key) && json_take_i64(&json, &i));
    assert_memory_equal(key.text, "i", 1);
    assert_true(json_next_key(&json, &key) && json_peek(&json) == JSON_NULL && json_take_null(&json));
    assert_true(json_next_key(&json, &key) && json_begin_array(&json));
    assert_true(json_next_item(&json) && json_take_string(&json, &first));
    assert_true(json_next_item(&json) && json_take_string(&json, &second));
    assert_false(json_next_item(&json));
    assert_false(json_next_key(&json, &key));
    assert_true(json_end(&json));
    assert_true(u == UINT64_MAX && i == INT64_MIN);
    assert_int_equal(first.length, 3);
    assert_memory_equal(first.text, "a\0b", 3);
    assert_true(second.text > text && second.text < text + sizeof text); /* no escapes: no copy */
    arena_fini(&arena);
}

TEST(surrogate_pairs_become_one_character)
{
    static const char text[] = "\"\\uD83D\\ude00\\u00e9\\u20AC\\u0041\"", wanted[] = "\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac"
                                                                                     "A";
    struct json json;
    struct arena arena;
    struct json_string value;
    arena_init(&arena, 0);
    json_init(&json, text, sizeof text - 1, &arena);
    assert_true(json_take_string(&json, &value) && json_end(&json));
    assert_int_equal(value.length, sizeof wanted - 1);
    assert_memory_equal(value.text, wanted, value.length);
    arena_fini(&arena);
}

TEST(integers_are_exact_or_refused)
{
    static const char *const refused[] = {"18446744073709551616", "-1", "1.0", "1e2", "1E2", "\"1\"", "true", "", "01", "-"};
    struct json json;
    uint64_t u;
    int64_t i;
    for (size_t n = 0; n < sizeof refused / sizeof *refused; n++) {
        json_init(&json, refused[n], strlen(refused[n]), NULL);
        assert_false(json_take_u64(&json, &u) && json_end(&json));
    }
    static const uint64_t taken[] = {
        0, 7, 10, 999999999999999999u, 1000000000000000000u, 9999999999999999999u, 10000000000000000000u, UINT64_MAX};
    for (size_t n = 0; n < sizeof taken / sizeof *taken; n++) {
        char text[32];
        snprintf(text, sizeof text, "%llu ", (unsigned long long)taken[n]);
        json_init(&json, text, strlen(text), NULL);
        assert_true(json_take_u64(&json, &u) && json_end(&json));
        assert_int_equal(u, taken[n]);
    }
    static const char *const no_integers[] = {"- 1", "-", "--1", "-01", "-1.0", "1e2", "-1E2", "\"1\"", "true", ""};
    for (size_t n = 0; n < sizeof no_integers / sizeof *no_integers; n++) {
        json_init(&json, no_integers[n], strlen(no_integers[n]), NULL);
        assert_false(json_take_i64(&json, &i) && json_end(&json));
    }
}

TEST(signed_integers_are_clipped_to_64_bits)
{
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = {{"9223372036854775807", INT64_MAX},
                {"9223372036854775808", INT64_MAX},
                {"-9223372036854775808", INT64_MIN},
                {"-9223372036854775809", INT64_MIN},
                {"99999999999999999999999999999999", INT64_MAX},
                {"-99999999999999999999999999999999", INT64_MIN},
                {"-0", 0},
                {"-17", -17}};
    struct json json;
    int64_t i;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        json_init(&json, rows[n].text, strlen(rows[n].text), NULL);
        assert_true(json_take_i64(&json, &i) && json_end(&json));
        assert_true(i == rows[n].value);
    }
}

TEST(errors_tell_the_place)
{
    struct json json;
    uint64_t u;
    char text[JSON_ERROR_CHARS];
    json_init(&json, "[1, x]", 6, NULL);
    assert_true(json_begin_array(&json) && json_next_item(&json) && json_take_u64(&json, &u) && json_next_item(&json));
    assert_false(json_take_u64(&json, &u));
    assert_string_equal(json_error(&json, text), "expected a non-negative integer at byte 4");
    assert_false(json_fail(&json, "later complaints change nothing"));
    assert_false(json_next_item(&json) || json_begin_array(&json) || json_skip(&json) || json_end(&json));
    assert_string_equal(json_error(&json, text), "expected a non-negative integer at byte 4");
}

TEST(the_arena_cap_bounds_escaped_strings)
{
    struct json json;
    struct arena arena;
    struct json_string value;
    static char text[10002];
    memset(text, 'a', sizeof text);
    memcpy(text, "\"\\n", 3);
    text[sizeof text - 1] = '"';
    arena_init(&arena, 5000);
    json_init(&json, text, sizeof text, &arena);
    assert_false(json_take_string(&json, &value));
    arena_fini(&arena);
}

/* Names come from files of strangers, and answers are read in terminals. */
/* A limit of address space stands for a host without memory; sanitizers need too much of it. */
TEST(a_document_without_memory_is_none)
{
    struct json_writer writer = {.can_fail = true};
    struct rlimit before, little;
    static char text[4 << 20];
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip();
#endif
    memset(text, 'a', sizeof text);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    little = (struct rlimit){1 << 20, before.rlim_max};
    json_write_open(&writer, '[');
    assert_int_equal(setrlimit(RLIMIT_AS, &little), 0);
    json_write_string(&writer, text, sizeof text);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    json_write_close(&writer, ']');
    assert_true(writer.has_failed);
    assert_null(writer.text);
    assert_true(writer.length >= sizeof text); /* what there was no memory for */
}

TEST(the_writer_escapes_what_would_change_how_text_is_shown)
{
    static const char name[] = "a\x7f\xc2\x9b"
                               "31m\xe2\x80\xaegnp\xe2\x81\xa6\xe2\x80\xa8\xef\xbb\xbf\xc3\xa4\xf0\x9f\x98\x80";
    struct json json;
    struct arena arena;
    struct json_string value;
    struct json_writer writer = {0};
    json_write_text(&writer, name);
    assert_string_equal(writer.text, "\"a\\u007f\\u009b31m\\u202egnp\\u2066\\u2028\\ufeff\xc3\xa4\xf0\x9f\x98\x80\"");
    arena_init(&arena, 0);
    json_init(&json, writer.text, writer.length, &arena);
    assert_true(json_take_string(&json, &value) && json_end(&json));
    assert_int_equal(value.length, sizeof name - 1);
    assert_memory_equal(value.text, name, value.length);
    arena_fini(&arena);
    free(writer.text);
}

/* A header that is to be another program's byte for byte. */
TEST(a_writer_of_files_escapes_what_json_says_and_no_more)
{
    struct json_writer writer = {.escapes_least = true};
    json_write_text(&writer, "a\"\\\b\f\n\r\t\x01\x1f\x7f\xc2\x9b\xe2\x80\xae\xe2\x80\xa8\xc3\xa4");
    assert_string_equal(writer.text,
                        "\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc2\x9b\xe2\x80\xae\xe2\x80\xa8\xc3\xa4\"");
    free(writer.text);
}

TEST(the_writer_sets_commas_and_quotes)
{
    struct json_writer writer = {0};
    json_write_open(&writer, '{');
    json_write_key(&writer, "a\"b");
    json_write_open(&writer, '[');
    json_write_u64(&writer, UINT64_MAX);
    json_write_i64(&writer, -5);
    json_write_double(&writer, 0.1);
    json_write_double(&writer, 1.0 / 0.0);
    json_write_bool(&writer, true);
    json_write_open(&writer, '{');
    json_write_close(&writer, '}');
    json_write_close(&writer, ']');
    json_write_key(&writer, "s");
    json_write_string(&writer, "\x01\n\0\xff\xc3\xa9\\", 7);
    json_write_close(&writer, '}');
    assert_string_equal(writer.text, "{\"a\\\"b\":[18446744073709551615,-5,0.1,0,true,{}],"
                                     "\"s\":\"\\u0001\\n\\u0000\xEF\xBF\xBD\xc3\xa9\\\\\"}");
    assert_int_equal(writer.length, strlen(writer.text));
    assert_true(accepts(writer.text, writer.length));
    free(writer.text);
}

TEST(written_strings_are_read_back)
{
    char all[128];
    struct json json;
    struct arena arena;
    struct json_string value;
    struct json_writer writer = {0};
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    json_write_string(&writer, all, sizeof all);
    arena_init(&arena, 0);
    json_init(&json, writer.text, writer.length, &arena);
    assert_true(json_take_string(&json, &value) && json_end(&json));
    assert_int_equal(value.length, sizeof all);
    assert_memory_equal(value.text, all, sizeof all);
    arena_fini(&arena);
    free(writer.text);
}
