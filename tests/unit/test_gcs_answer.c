/* Answers of Google Cloud Storage: what it writes is understood, what makes no sense is refused. */
#include "tests/support/unit.h"

#include "source/gcs/gcs_answer.h"

static int parse(const char *text, struct gcs_object *object)
{
    struct error error;
    return gcs_object_parse(text, strlen(text), object, &error);
}

TEST(metadata_of_an_object_is_read_and_checksums_that_are_missing_or_wrong_are_none)
{
    static const char md5[] = "md5 d41d8cd98f00b204e9800998ecf8427e";
    static const struct {
        const char *more, *sums[2];
        bool is_compressed;
    } rows[] = {
        {"\"crc32c\":\"4waSgw==\",\"md5Hash\":\"1B2M2Y8AsgTpgAmY7PhCfg==\",\"acl\":[{\"name\":\"no\"}]",
         {"crc32c e3069283", md5},
         false},
        {"\"crc32c\":\"4waS\",\"md5Hash\":\"1B2M2Y8AsgTpgAmY7PhCfg==\",\"contentEncoding\":\"gzip\"", {md5}, true},
        {"\"contentEncoding\":\"identity\"", {NULL}, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gcs_object object;
        char json[400], text[CHECKSUM_TEXT_CHARS];
        snprintf(json, sizeof json,
                 "{\"kind\":\"storage#object\",\"name\":\"m/a\\u00fc.safetensors\",\"size\":\"9223372036854775807\","
                 "\"generation\":\"1700000000000001\",%s}",
                 rows[i].more);
        assert_int_equal(parse(json, &object), 0);
        assert_string_equal(object.name, "m/a\xc3\xbc.safetensors");
        assert_string_equal(object.generation, "1700000000000001");
        assert_true(object.size_bytes == INT64_MAX && object.compressed == rows[i].is_compressed);
        for (size_t n = 0; n < 2; n++) {
            if (rows[i].sums[n])
                assert_string_equal(checksum_print(&object.checksums[n], text), rows[i].sums[n]);
            else
                assert_int_equal(object.checksums[n].kind, CHECKSUM_NONE);
        }
        gcs_object_clear(&object);
    }
}

TEST(an_object_that_nothing_can_be_pinned_to_is_refused)
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

TEST(a_page_may_be_empty_and_still_lead_on)
{
    struct gcs_page page;
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

TEST(pages_that_make_no_sense_are_refused)
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
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        struct gcs_page page;
        if (parse_page(pages[i], &page) == 0)
            fail_msg("taken: %s", pages[i]);
        assert_int_equal(page.n_objects, 0);
        assert_null(page.next_token);
    }
}

TEST(a_page_has_a_limited_number_of_items)
{
    static const char item[] = "{\"name\":\"a\",\"size\":\"1\",\"generation\":\"2\"},";
    char *text = malloc((GCS_MAX_PAGE_ITEMS + 1) * sizeof item + 100);
    for (int more = 0; more < 2; more++) {
        struct gcs_page page;
        char *at = text + sprintf(text, "{\"items\":[");
        for (int i = 0; i < GCS_MAX_PAGE_ITEMS + more; i++)
            at += sprintf(at, "%s", item);
        sprintf(at - 1, "]}");
        assert_int_equal(parse_page(text, &page), more ? -1 : 0);
        gcs_page_clear(&page);
    }
    free(text);
}

TEST(errors_are_understood_in_json_and_in_plain_text)
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
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gcs_complaint complaint;
        gcs_complaint_parse(cases[i].answer, strlen(cases[i].answer), &complaint);
        assert_string_equal(complaint.reason, cases[i].reason);
        assert_string_equal(complaint.message, cases[i].message);
    }
}
