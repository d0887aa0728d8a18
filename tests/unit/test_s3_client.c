/* What S3's client remembers has a bound, and is right or forgotten. Nothing is asked of anybody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/s3/s3_client.h"
#include "source/stores.h"
#include "source/web/web_known.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

enum { REGIONS = 1024, CHECKSUMS = 4096 };

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

static void regions_of_many_buckets_are_right_or_forgotten(void **state)
{
    char bucket[32], region[32];
    (void)state;
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

static void checksums_of_many_objects_are_right_or_forgotten(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * CHECKSUMS; i++) {
        const struct source_identity identity = {.device = i, .inode = i * 7, .size_bytes = i};
        struct checksum kept[CHECKSUM_PER_FILE] = {0}, found[CHECKSUM_PER_FILE];
        memcpy(kept[0].value, &i, sizeof i);
        kept[0].kind = CHECKSUM_CRC32C;
        s3_client_keep_checksums(client, &identity, kept);
        assert_true(s3_client_find_checksums(client, &identity, found));
        assert_memory_equal(found[0].value, &i, sizeof i);
    }
    for (unsigned i = 0; i < 2 * CHECKSUMS; i++) {
        const struct source_identity identity = {.device = i, .inode = i * 7, .size_bytes = i};
        struct checksum found[CHECKSUM_PER_FILE];
        if (s3_client_find_checksums(client, &identity, found))
            assert_memory_equal(found[0].value, &i, sizeof i);
    }
}

static void facts_of_many_urls_are_right_or_forgotten(void **state)
{
    struct web_known *known = web_known_create();
    struct web_fact fact;
    unsigned n_found = 0;
    char url[64], etag[64];
    (void)state;
    for (unsigned i = 0; i < 3 * CHECKSUMS; i++) {
        snprintf(url, sizeof url, "https://host/%u", i);
        snprintf(etag, sizeof etag, "\"%u\"", i);
        web_known_set(known, url, &(struct web_fact){.etag = etag, .size_bytes = i});
        assert_true(web_known_find(known, url, &fact));
        web_fact_clear(&fact);
    }
    for (unsigned i = 0; i < 3 * CHECKSUMS; i++) {
        snprintf(url, sizeof url, "https://host/%u", i);
        snprintf(etag, sizeof etag, "\"%u\"", i);
        if (!web_known_find(known, url, &fact))
            continue;
        n_found++;
        assert_string_equal(fact.etag, etag);
        assert_int_equal(fact.size_bytes, i);
        web_fact_clear(&fact);
    }
    assert_in_range(n_found, 1, CHECKSUMS);
    web_known_destroy(known);
}

static void a_long_etag_is_not_kept(void **state)
{
    struct web_known *known = web_known_create();
    struct web_fact fact;
    char etag[602];
    (void)state;
    memset(etag, 'e', sizeof etag - 1);
    etag[sizeof etag - 1] = '\0';
    web_known_set(known, "https://host/long", &(struct web_fact){.etag = etag});
    assert_false(web_known_find(known, "https://host/long", &fact));
    etag[600] = '\0';
    web_known_set(known, "https://host/long", &(struct web_fact){.etag = etag});
    assert_true(web_known_find(known, "https://host/long", &fact));
    web_fact_clear(&fact);
    web_known_destroy(known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(regions_of_many_buckets_are_right_or_forgotten, open_client, close_client),
        cmocka_unit_test_setup_teardown(checksums_of_many_objects_are_right_or_forgotten, open_client, close_client),
        cmocka_unit_test(facts_of_many_urls_are_right_or_forgotten),
        cmocka_unit_test(a_long_etag_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
