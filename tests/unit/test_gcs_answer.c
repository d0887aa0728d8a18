/* Answers of Google Cloud Storage: what it writes is understood, what makes no sense is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/gcs/gcs_answer.h"

#include <cmocka.h>

static int parse(const char *text, struct gcs_object *object)
{
    struct error error;
    return gcs_object_parse(text, strlen(text), object, &error);
}

static void metadata_of_an_object_is_read(void **state)
{
    struct gcs_object object;
    char text[CHECKSUM_TEXT_CHARS];
    (void)state;
    assert_int_equal(
        parse("{\"kind\":\"storage#object\",\"name\":\"m/a\\u00fc.safetensors\",\"size\":\"9223372036854775807\","
              "\"generation\":\"1700000000000001\",\"crc32c\":\"4waSgw==\",\"md5Hash\":\"1B2M2Y8AsgTpgAmY7PhCfg==\","
              "\"acl\":[{\"name\":\"no\"}]}",
              &object),
        0);
    assert_string_equal(object.name, "m/a\xc3\xbc.safetensors");
    assert_string_equal(object.generation, "1700000000000001");
    assert_true(object.size_bytes == INT64_MAX);
    assert_string_equal(checksum_print(&object.checksums[0], text), "crc32c e3069283");
    assert_string_equal(checksum_print(&object.checksums[1], text), "md5 d41d8cd98f00b204e9800998ecf8427e");
    assert_false(object.compressed);
    gcs_object_clear(&object);
}

static void checksums_that_are_missing_or_wrong_are_none(void **state)
{
    struct gcs_object object;
    (void)state;
    assert_int_equal(parse("{\"name\":\"a\",\"size\":\"0\",\"generation\":\"1\",\"crc32c\":\"4waS\",\"md5Hash\":"
                           "\"1B2M2Y8AsgTpgAmY7PhCfg==\",\"contentEncoding\":\"gzip\"}",
                           &object),
                     0);
    assert_int_equal(object.checksums[0].kind, CHECKSUM_MD5);
    assert_int_equal(object.checksums[1].kind, CHECKSUM_NONE);
    assert_true(object.compressed);
    gcs_object_clear(&object);
    assert_int_equal(parse("{\"name\":\"a\",\"size\":\"0\",\"generation\":\"1\",\"contentEncoding\":\"identity\"}", &object),
                     0);
    assert_int_equal(object.checksums[0].kind, CHECKSUM_NONE);
    assert_false(object.compressed);
    gcs_object_clear(&object);
}

static void an_object_that_nothing_can_be_pinned_to_is_refused(void **state)
{
    static const char *const objects[] = {
        "",
        "[]",
        "{\"size\":\"1\",\"generation\":\"1\"}",
        "{\"name\":\"\",\"size\":\"1\",\"generation\":\"1\"}",
        "{\"name\":\"a\\u0000b\",\"size\":\"1\",\"generation\":\"1\"}",
        "{\"name\":\"a\",\"generation\":\"1\"}",
        "{\"name\":\"a\",\"size\":\"1\"}",
        "{\"name\":\"a\",\"size\":1,\"generation\":\"1\"}",
        "{\"name\":\"a\",\"size\":\"-1\",\"generation\":\"1\"}",
        "{\"name\":\"a\",\"size\":\"10000000000000000000\",\"generation\":\"1\"}",
        "{\"name\":\"a\",\"size\":\"1\",\"generation\":\"1&x=y\"}",
        "{\"name\":\"a\",\"size\":\"1\",\"generation\":\"\"}",
        "{\"name\":\"a\",\"size\":\"1\",\"generation\":\"1\"}{}",
    };
    struct gcs_object object;
    (void)state;
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        if (parse(objects[i], &object) == 0)
            fail_msg("taken: %s", objects[i]);
    }
}

static int parse_page(const char *text, struct gcs_page *page)
{
    struct error error;
    return gcs_page_parse(text, strlen(text), page, &error);
}

static void a_page_may_be_empty_and_still_lead_on(void **state)
{
    struct gcs_page page;
    (void)state;
    assert_int_equal(parse_page("{\"kind\":\"storage#objects\",\"nextPageToken\":\"a+/=\"}", &page), 0);
    assert_int_equal(page.n_objects, 0);
    assert_string_equal(page.next_token, "a+/=");
    gcs_page_clear(&page);
    assert_int_equal(
        parse_page("{\"items\":[{\"name\":\"a\",\"size\":\"1\",\"generation\":\"2\"},{\"name\":\"b\",\"size\":\"3\","
                   "\"generation\":\"4\"}],\"prefixes\":[\"x/\"],\"nextPageToken\":\"\"}",
                   &page),
        0);
    assert_int_equal(page.n_objects, 2);
    assert_int_equal(page.n_prefixes, 1);
    assert_string_equal(page.prefixes[0], "x/");
    assert_string_equal(page.objects[1].name, "b");
    assert_null(page.next_token);
    gcs_page_clear(&page);
}

static void pages_that_make_no_sense_are_refused(void **state)
{
    static const char *const pages[] = {"",
                                        "[]",
                                        "{\"items\":{}}",
                                        "{\"items\":[{\"name\":\"a\",\"size\":\"1\"}]}",
                                        "{\"items\":[{\"name\":\"a\",\"size\":\"1\",\"generation\":\"2\"},3]}",
                                        "{\"nextPageToken\":1}",
                                        "{\"prefixes\":[1]}",
                                        "{\"prefixes\":{}}",
                                        "{\"prefixes\":[\"a\\u0000b\"]}",
                                        "{\"nextPageToken\":\"a\",\"nextPageToken\":\"b\"}",
                                        "{\"nextPageToken\":\"a\\u0000b\"}",
                                        "{\"items\":[]",
                                        "<html>"};
    (void)state;
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        struct gcs_page page;
        if (parse_page(pages[i], &page) == 0)
            fail_msg("taken: %s", pages[i]);
        assert_int_equal(page.n_objects, 0);
        assert_null(page.next_token);
    }
}

static int parse_many(int n_items)
{
    static const char item[] = "{\"name\":\"a\",\"size\":\"1\",\"generation\":\"2\"},";
    struct gcs_page page;
    char *text = malloc((size_t)n_items * sizeof item + 100), *at = text;
    at += sprintf(at, "{\"items\":[");
    for (int i = 0; i < n_items; i++)
        at += sprintf(at, "%s", item);
    sprintf(at - 1, "]}");
    int failed = parse_page(text, &page);
    gcs_page_clear(&page);
    free(text);
    return failed;
}

static void a_page_has_a_limited_number_of_items(void **state)
{
    (void)state;
    assert_int_equal(parse_many(GCS_MAX_PAGE_ITEMS), 0);
    assert_int_equal(parse_many(GCS_MAX_PAGE_ITEMS + 1), -1);
}

static void errors_are_understood_in_json_and_in_plain_text(void **state)
{
    static const struct {
        const char *answer, *reason, *message;
    } cases[] = {
        {"{\"error\":{\"code\":403,\"message\":\"too\\nfast\",\"errors\":[{\"domain\":\"x\",\"reason\":"
         "\"rateLimitExceeded\"},"
         "{\"reason\":\"second\"}],\"status\":\"X\"}}",
         "rateLimitExceeded", "too\\nfast"},
        {"{\"error\":\"invalid_grant\"}", "", ""},
        {"{\"error\":{\"errors\":[{\"reason\":\"not a word\"}]}}", "", ""},
        {"{\"error\":{\"errors\":[3]}}", "", ""},
        {"No such object: b/k", "", "No such object: b/k"},
        {"Not Found\nmore", "", "Not Found"},
        {"<html>x", "", ""},
        {"", "", ""},
        {"{\"error\":{\"message\":\"cut", "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gcs_complaint complaint;
        gcs_complaint_parse(cases[i].answer, strlen(cases[i].answer), &complaint);
        assert_string_equal(complaint.reason, cases[i].reason);
        assert_string_equal(complaint.message, cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metadata_of_an_object_is_read),
        cmocka_unit_test(checksums_that_are_missing_or_wrong_are_none),
        cmocka_unit_test(an_object_that_nothing_can_be_pinned_to_is_refused),
        cmocka_unit_test(a_page_may_be_empty_and_still_lead_on),
        cmocka_unit_test(pages_that_make_no_sense_are_refused),
        cmocka_unit_test(a_page_has_a_limited_number_of_items),
        cmocka_unit_test(errors_are_understood_in_json_and_in_plain_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
