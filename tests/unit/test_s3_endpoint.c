/* URLs of objects in S3, for Amazon and for others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/s3/s3_endpoint.h"

#include <cmocka.h>

static void urls_are_those_the_store_expects(void **state)
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
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct s3_endpoint endpoint = {cases[i].base, cases[i].addressing};
        char *url = s3_endpoint_url(&endpoint, cases[i].bucket, cases[i].region, cases[i].key, cases[i].query);
        assert_string_equal(url, cases[i].url);
        free(url);
    }
}

static void a_bucket_cannot_change_the_meaning_of_a_url(void **state)
{
    static const char *const wrong[] = {"", "a/b", "a@evil.com", "a:1", "a?x", "a#x", "a b", "\xc3\xbc", "..", "-a", "a%2e"};
    struct error error;
    char name[258];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(s3_endpoint_check_bucket(wrong[i], &error), -1);
    memset(name, 'a', sizeof name);
    name[256] = '\0';
    assert_int_equal(s3_endpoint_check_bucket(name, &error), -1);
    name[255] = '\0';
    assert_int_equal(s3_endpoint_check_bucket(name, &error), 0);
    assert_int_equal(s3_endpoint_check_bucket("My_bucket-1.x", &error), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_those_the_store_expects),
        cmocka_unit_test(a_bucket_cannot_change_the_meaning_of_a_url),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
