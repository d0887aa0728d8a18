/* What S3's client remembers has a bound, and is right or forgotten; where objects lie, and what refusals mean. No server is
 * asked. */
#include "tests/support/unit.h"

#include "source/known.h"
#include "source/s3/s3_client.h"
#include "source/stores.h"

enum { REGIONS = 1024, SLOTS = 4096 };

static struct stores *stores;
static struct s3_client *client;

static int open_client(void **state)
{
    static const char text[] = "sources: {s3: {region: us-west-2, anonymous: true}}";
    struct error error;
    const struct config *config = config_parse(text, strlen(text), "test.yaml", &error);
    (void)state;
    unsetenv("AWS_ENDPOINT_URL_S3");
    unsetenv("AWS_ENDPOINT_URL");
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    assert_int_equal(stores_create(config, NULL, &stores, &error), 0);
    config_destroy(config);
    client = s3_client_of(stores);
    return 0;
}

static int close_client(void **state)
{
    (void)state;
    stores_destroy(stores);
    return 0;
}

static void tell_region(const char *bucket, const char *region)
{
    struct error error;
    struct http_header header = {"x-amz-bucket-region", region};
    struct http_reply reply = {.head = {.status = 301, .headers = &header, .n_headers = 1}, .body = "", .url = ""};
    struct s3_request request = {.client = client, .bucket = bucket};
    s3_client_judge(&request, &reply, &error);
}

static void assert_region(const char *bucket, const char *region)
{
    char *url = s3_client_url(client, bucket, "key", NULL);
    if (!strstr(url, region))
        fprintf(stderr, "%s: not %s\n", url, region);
    assert_non_null(strstr(url, region));
    assert_non_null(strstr(url, bucket));
    free(url);
}

TEST_IN(regions_of_many_buckets_are_right_or_forgotten, open_client, close_client)
{
    char bucket[32], region[32];
    for (unsigned i = 0; i < REGIONS + 2; i++) {
        snprintf(bucket, sizeof bucket, "bucket-%u", i);
        snprintf(region, sizeof region, "region-%u", i);
        tell_region(bucket, region);
        assert_region(bucket, region);
    }
    assert_region("bucket-0", "us-west-2"); /* as before it was told */
    assert_region("bucket-1", "us-west-2");
    assert_region("bucket-2", "region-2");
    tell_region("bucket-2", "region-other");
    assert_region("bucket-2", "region-other");
    assert_region("bucket-3", "region-3");
}

TEST(facts_of_many_names_are_right_or_forgotten)
{
    struct known *known = known_create(sizeof(unsigned));
    unsigned n_found = 0, found;
    char url[64];
    for (unsigned i = 0; i < 6 * SLOTS; i++) { /* all are told, then all are asked for */
        unsigned number = i % (3 * SLOTS);
        bool is_told = i < 3 * SLOTS;
        snprintf(url, sizeof url, "https://host/%u", number);
        const struct source_identity key = source_identity_of(url, 0);
        if (is_told)
            known_set(known, &key, &number);
        bool is_found = known_find(known, &key, &found);
        assert_true(is_found ? found == number : !is_told);
        n_found += is_found && !is_told;
    }
    assert_in_range(n_found, 1, SLOTS);
    known_destroy(known);
}

/* --- where an object lies --- */

TEST(urls_are_those_the_store_expects)
{
    static const struct {
        const char *base;
        enum s3_addressing addressing;
        const char *bucket, *region, *key, *query, *url;
    } cases[] = {
        {"", S3_ADDRESSING_AUTO, "bucket", "eu-west-3", "a/b c", NULL, "https://bucket.s3.eu-west-3.amazonaws.com/a/b%20c"},
        {"", S3_ADDRESSING_AUTO, "bucket", "eu-west-3", "", "list-type=2",
         "https://bucket.s3.eu-west-3.amazonaws.com/?list-type=2"},
        {"", S3_ADDRESSING_AUTO, "with.dots", "eu-west-3", "k", NULL, "https://s3.eu-west-3.amazonaws.com/with.dots/k"},
        {"", S3_ADDRESSING_AUTO, "Upper", "us-east-1", "k", NULL, "https://s3.us-east-1.amazonaws.com/Upper/k"},
        {"", S3_ADDRESSING_PATH, "bucket", "us-east-1", "k", NULL, "https://s3.us-east-1.amazonaws.com/bucket/k"},
        {"", S3_ADDRESSING_AUTO, "bucket", "cn-north-1", "k", NULL, "https://bucket.s3.cn-north-1.amazonaws.com.cn/k"},
        {"http://127.0.0.1:9000", S3_ADDRESSING_AUTO, "bucket", "x", "a//b/./c+%", NULL,
         "http://127.0.0.1:9000/bucket/a//b/./c%2B%25"},
        {"http://127.0.0.1:9000", S3_ADDRESSING_AUTO, "bucket", "x", "", "a=b", "http://127.0.0.1:9000/bucket?a=b"},
        {"https://h/s3", S3_ADDRESSING_PATH, "bucket", "x", "k", NULL, "https://h/s3/bucket/k"},
        {"http://s3.localhost:1", S3_ADDRESSING_VIRTUAL, "bucket", "x", "k", NULL, "http://bucket.s3.localhost:1/k"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct s3_endpoint endpoint = {cases[i].base, cases[i].addressing};
        char *url = s3_client_endpoint_url(&endpoint, cases[i].bucket, cases[i].region, cases[i].key, cases[i].query);
        assert_string_equal(url, cases[i].url);
        free(url);
    }
}

TEST(a_bucket_cannot_change_the_meaning_of_a_url)
{
    static const char *const wrong[] = {"", "a/b", "a@evil.com", "a:1", "a?x", "a#x", "a b", "\xc3\xbc", "..", "-a", "a%2e"};
    struct error error;
    char name[258];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(s3_client_check_bucket(wrong[i], &error), -1);
    memset(name, 'a', sizeof name);
    name[256] = '\0';
    assert_int_equal(s3_client_check_bucket(name, &error), -1);
    name[255] = '\0';
    assert_int_equal(s3_client_check_bucket(name, &error), 0);
    assert_int_equal(s3_client_check_bucket("My_bucket-1.x", &error), 0);
}

/* --- what a refusal means --- */

#define BODY(code, more) "<?xml version=\"1.0\"?><Error><Code>" code "</Code><Message>m\n</Message>" more "</Error>"

static struct s3_fault fault_of(int status, const char *body, const char *name, const char *value, struct error *error)
{
    const struct http_header header = {name, value};
    const struct http_reply reply = {
        .head = {status, &header, name ? 1 : 0}, .body = (char *)body, .body_bytes = body ? strlen(body) : 0};
    return s3_fault_of(&reply, 1000000000, error);
}

TEST(the_code_decides_and_the_status_where_there_is_none)
{
    static const struct {
        int status;
        const char *body;
        enum s3_fault_kind kind;
        enum error_code code;
    } cases[] = {
        {503, BODY("SlowDown", ""), S3_FAULT_THROTTLED, ERROR_UNAVAILABLE},
        {400, BODY("ThrottlingException", ""), S3_FAULT_THROTTLED, ERROR_UNAVAILABLE},
        {429, NULL, S3_FAULT_THROTTLED, ERROR_UNAVAILABLE},
        {503, "<html>", S3_FAULT_THROTTLED, ERROR_UNAVAILABLE},
        {400, BODY("RequestTimeout", ""), S3_FAULT_RETRY, ERROR_UNAVAILABLE},
        {500, BODY("InternalError", ""), S3_FAULT_RETRY, ERROR_UNAVAILABLE},
        {502, NULL, S3_FAULT_RETRY, ERROR_UNAVAILABLE},
        {400, BODY("ExpiredToken", ""), S3_FAULT_KEYS, ERROR_PERMISSION_DENIED},
        {403, BODY("InvalidAccessKeyId", ""), S3_FAULT_KEYS, ERROR_PERMISSION_DENIED},
        {403, NULL, S3_FAULT_KEYS, ERROR_PERMISSION_DENIED},
        {401, BODY("Unauthorized", ""), S3_FAULT_KEYS, ERROR_PERMISSION_DENIED},
        {403, BODY("AccessDenied", ""), S3_FAULT_FINAL, ERROR_PERMISSION_DENIED},
        {403, BODY("SignatureDoesNotMatch", ""), S3_FAULT_FINAL, ERROR_PERMISSION_DENIED},
        {404, BODY("NoSuchKey", ""), S3_FAULT_FINAL, ERROR_NOT_FOUND},
        {412, BODY("PreconditionFailed", ""), S3_FAULT_FINAL, ERROR_FAILED_PRECONDITION},
        {416, BODY("InvalidRange", ""), S3_FAULT_FINAL, ERROR_FAILED_PRECONDITION},
        {501, BODY("NotImplemented", ""), S3_FAULT_FINAL, ERROR_UNAVAILABLE},
        {418, NULL, S3_FAULT_FINAL, ERROR_INVALID_ARGUMENT},
    };
    struct error error;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct s3_fault fault = fault_of(cases[i].status, cases[i].body, NULL, NULL, &error);
        if (fault.kind != cases[i].kind || error.code != cases[i].code)
            fail_msg("%d %s: kind %d, %s", cases[i].status, cases[i].body ? cases[i].body : "", fault.kind, error.message);
    }
}

TEST(another_region_is_told_by_the_header_or_the_body)
{
    struct error error;
    struct s3_fault fault = fault_of(301, BODY("PermanentRedirect", ""), "x-amz-bucket-region", "eu-west-1", &error);
    assert_int_equal(fault.kind, S3_FAULT_REGION);
    assert_string_equal(fault.region, "eu-west-1");
    assert_non_null(strstr(error.message, "the bucket is in region eu-west-1"));
    fault = fault_of(400, BODY("AuthorizationHeaderMalformed", "<Region>ap-south-1</Region>"), NULL, NULL, &error);
    assert_int_equal(fault.kind, S3_FAULT_REGION);
    assert_string_equal(fault.region, "ap-south-1");
    fault = fault_of(301, NULL, "x-amz-bucket-region", "evil.com/", &error); /* would become part of a host */
    assert_string_equal(fault.region, "");
}

TEST(a_clock_that_is_off_is_corrected_by_the_date_of_the_answer)
{
    struct error error;
    struct s3_fault fault = fault_of(403, BODY("RequestTimeTooSkewed", ""), "date", "Sun, 09 Sep 2001 02:46:40 GMT", &error);
    assert_int_equal(fault.kind, S3_FAULT_CLOCK);
    assert_int_equal(fault.clock_offset_s, 3600);
    fault = fault_of(403, BODY("RequestTimeTooSkewed", ""), "date", "yesterday", &error);
    assert_int_equal(fault.kind, S3_FAULT_FINAL);
}

TEST(what_the_server_says_is_shown_escaped)
{
    struct error error;
    fault_of(403, BODY("AccessDenied", ""), NULL, NULL, &error);
    assert_string_equal(error.message, "S3 answers 403 AccessDenied: m\\n");
}
