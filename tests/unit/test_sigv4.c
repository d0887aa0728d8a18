/* The signer against signatures that others computed: the "AWS Signature Version 4 Test Suite" (as botocore's repository
 * keeps it under tests/unit/auth/aws4_testsuite), the examples of the S3 API reference ("Authenticating Requests: Using the
 * Authorization Header"), and botocore 1.44.5's S3SigV4Auth for the keys and tokens neither of them has.
 *
 * Of the suite, left out are the cases that S3 rules out: paths are normalized there (normalize-path, but for those it
 * leaves alone), and headers that occur twice or on several lines, which this signer never gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/s3/sigv4.h"

#include <cmocka.h>

#define ALL_UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define FORM_SHA256 "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e" /* of "Param1=value1" */
#define STS_TOKEN                                                                                                           \
    "AQoDYXdzEPT//////////"                                                                                                 \
    "wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mS"                     \
    "EI/qkPpKPi/"                                                                                                           \
    "kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0"           \
    "rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

struct suite_case {
    const char *name, *method, *target;
    const char *token;
    struct http_header headers[2];
    const char *payload_hash;
    const char *signed_headers, *signature;
};

static const struct suite_case suite[] = {
    {"get-vanilla",
     "GET",
     "/",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-vanilla without a path",
     "GET",
     "",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-unreserved",
     "GET",
     "/" ALL_UNRESERVED,
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
    {"get-utf8",
     "GET",
     "/%E1%88%B4",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
    {"normalize-path/get-space",
     "GET",
     "/example%20space/",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
    {"normalize-path/get-special-character",
     "GET",
     "/example/%24delete",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "a853c9b21b528b19643d00910d35b83a10c366a10833ceefb45edd6c80e40f27"},
    {"get-header-value-trim",
     "GET",
     "/",
     NULL,
     {{"my-header1", " value1"}, {"my-header2", " \"a   b   c\" "}},
     NULL,
     "host;my-header1;my-header2;x-amz-date",
     "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    {"get-vanilla-empty-query-key",
     "GET",
     "/?Param1=value1",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
    {"get-vanilla-query-order-encoded",
     "GET",
     "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
    {"get-vanilla-query-order-key-case",
     "GET",
     "/?Param2=value2&Param1=value1",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-vanilla-query-order-key",
     "GET",
     "/?Param1=value2&Param1=Value1",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1"},
    {"get-vanilla-query-order-value",
     "GET",
     "/?Param1=value2&Param1=value1",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
    {"get-vanilla-query-unreserved",
     "GET",
     "/?" ALL_UNRESERVED "=" ALL_UNRESERVED,
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    {"get-vanilla-utf8-query",
     "GET",
     "/?%E1%88%B4=bar",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
    {"post-vanilla",
     "POST",
     "/",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-vanilla-query",
     "POST",
     "/?Param1=value1",
     NULL,
     {{0}},
     NULL,
     "host;x-amz-date",
     "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
    {"post-header-key-sort",
     "POST",
     "/",
     NULL,
     {{"my-header1", "value1"}},
     NULL,
     "host;my-header1;x-amz-date",
     "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
    {"post-header-value-case",
     "POST",
     "/",
     NULL,
     {{"my-header1", "VALUE1"}},
     NULL,
     "host;my-header1;x-amz-date",
     "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
    {"post-sts-header-before",
     "POST",
     "/",
     STS_TOKEN,
     {{0}},
     NULL,
     "host;x-amz-date;x-amz-security-token",
     "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
    {"post-x-www-form-urlencoded",
     "POST",
     "/",
     NULL,
     {{"content-type", "application/x-www-form-urlencoded"}},
     FORM_SHA256,
     "content-type;host;x-amz-date",
     "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
    {"post-x-www-form-urlencoded-parameters",
     "POST",
     "/",
     NULL,
     {{"content-type", "application/x-www-form-urlencoded; charset=utf8"}},
     FORM_SHA256,
     "content-type;host;x-amz-date",
     "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"},
};

static void expect(const char *name, const char *authorization, const char *expected)
{
    if (strcmp(authorization, expected) != 0)
        fail_msg("%s: %s instead of %s", name, authorization, expected);
}

static void the_published_test_suite_holds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof suite / sizeof suite[0]; i++) {
        const struct suite_case *one = &suite[i];
        char url[400], expected[400];
        struct sigv4_signature signature;
        struct sigv4_key key = {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", one->token, "us-east-1",
                                "service"};
        snprintf(url, sizeof url, "https://example.amazonaws.com%s", one->target);
        snprintf(expected, sizeof expected,
                 "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=%s, "
                 "Signature=%s",
                 one->signed_headers, one->signature);
        struct sigv4_request request = {.method = one->method,
                                        .url = url,
                                        .headers = one->headers,
                                        .n_headers = !!one->headers[0].name + !!one->headers[1].name,
                                        .payload_hash = one->payload_hash ? one->payload_hash : SIGV4_EMPTY_SHA256,
                                        .unix_time = 1440938160};
        sigv4_sign(&key, &request, &signature);
        assert_string_equal(signature.date, "20150830T123600Z");
        expect(one->name, signature.authorization, expected);
        free(signature.authorization);
    }
}

struct s3_case {
    const char *name, *method, *url, *token, *region;
    int64_t unix_time;
    const char *access_key;
    struct http_header headers[4];
    const char *payload_hash, *authorization;
};

#define DOC_SCOPE "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders="
#define OWN_SCOPE "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20240229/eu-west-3/s3/aws4_request, SignedHeaders="
#define PUT_SHA256 "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072" /* of "Welcome to Amazon S3." */

static const struct s3_case s3_cases[] = {
    {"documentation: GET Object",
     "GET",
     "https://examplebucket.s3.amazonaws.com/test.txt",
     NULL,
     "us-east-1",
     1369353600,
     "AKIAIOSFODNN7EXAMPLE",
     {{"range", "bytes=0-9"}, {"x-amz-content-sha256", SIGV4_EMPTY_SHA256}},
     SIGV4_EMPTY_SHA256,
     DOC_SCOPE "host;range;x-amz-content-sha256;x-amz-date, "
               "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"documentation: PUT Object",
     "PUT",
     "https://examplebucket.s3.amazonaws.com/test%24file.text",
     NULL,
     "us-east-1",
     1369353600,
     "AKIAIOSFODNN7EXAMPLE",
     {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
      {"x-amz-content-sha256", PUT_SHA256},
      {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
     PUT_SHA256,
     DOC_SCOPE "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, "
               "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"documentation: GET Bucket Lifecycle",
     "GET",
     "https://examplebucket.s3.amazonaws.com/?lifecycle",
     NULL,
     "us-east-1",
     1369353600,
     "AKIAIOSFODNN7EXAMPLE",
     {{"x-amz-content-sha256", SIGV4_EMPTY_SHA256}},
     SIGV4_EMPTY_SHA256,
     DOC_SCOPE "host;x-amz-content-sha256;x-amz-date, "
               "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"documentation: List Objects",
     "GET",
     "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J",
     NULL,
     "us-east-1",
     1369353600,
     "AKIAIOSFODNN7EXAMPLE",
     {{"x-amz-content-sha256", SIGV4_EMPTY_SHA256}},
     SIGV4_EMPTY_SHA256,
     DOC_SCOPE "host;x-amz-content-sha256;x-amz-date, "
               "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    {"botocore: a path that must not be normalized, a port",
     "GET",
     "http://127.0.0.1:9000/bucket/a//b/dot/./x%20y%2Bz%28%25%29%C3%BC",
     NULL,
     "eu-west-3",
     1709251198,
     "AKIDEXAMPLE",
     {{"x-amz-checksum-mode", "ENABLED"}, {"x-amz-content-sha256", SIGV4_EMPTY_SHA256}},
     SIGV4_EMPTY_SHA256,
     OWN_SCOPE "host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date, "
               "Signature=7dde0a8156b4e213c1ccc7ce1498adfeab7ea8fab2c7f1432fa57fb88b6649a5"},
    {"botocore: a list with a token that has a plus, and a session token",
     "GET",
     "https://bucket.s3.eu-west-3.amazonaws.com/"
     "?prefix=m%2F&list-type=2&encoding-type=url&continuation-token=L%2F06%20%2B%3D&uploads",
     "TOKEN+/==",
     "eu-west-3",
     1709251198,
     "AKIDEXAMPLE",
     {{"x-amz-checksum-mode", "ENABLED"}, {"x-amz-content-sha256", SIGV4_EMPTY_SHA256}},
     SIGV4_EMPTY_SHA256,
     OWN_SCOPE "host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date;x-amz-security-token, "
               "Signature=ff99bfaa952b0323a60ce9c64ea83a2497c8b3dd64c9d5b03787df457f566b28"},
};

static void requests_to_s3_are_signed_as_its_documentation_and_botocore_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof s3_cases / sizeof s3_cases[0]; i++) {
        const struct s3_case *one = &s3_cases[i];
        struct sigv4_signature signature;
        const char *secret = strcmp(one->access_key, "AKIDEXAMPLE") == 0 ? "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
                                                                         : "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        struct sigv4_key key = {one->access_key, secret, one->token, one->region, "s3"};
        struct sigv4_request request = {.method = one->method,
                                        .url = one->url,
                                        .headers = one->headers,
                                        .payload_hash = one->payload_hash,
                                        .unix_time = one->unix_time};
        while (request.n_headers < 4 && one->headers[request.n_headers].name)
            request.n_headers++;
        sigv4_sign(&key, &request, &signature);
        expect(one->name, signature.authorization, one->authorization);
        free(signature.authorization);
    }
}

static void the_canonical_request_shows_what_was_signed(void **state)
{
    struct sigv4_key key = {"AK", "secret", "", "r", "s3"};
    struct sigv4_request request = {
        .method = "GET", .url = "http://h:1?b=2&&a&b=", .payload_hash = "UNSIGNED-PAYLOAD", .unix_time = 0};
    (void)state;
    char *text = sigv4_canonical_request(&key, &request);
    assert_string_equal(text,
                        "GET\n/\na=&b=&b=2\nhost:h:1\nx-amz-date:19700101T000000Z\n\nhost;x-amz-date\nUNSIGNED-PAYLOAD");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_test_suite_holds),
        cmocka_unit_test(requests_to_s3_are_signed_as_its_documentation_and_botocore_do),
        cmocka_unit_test(the_canonical_request_shows_what_was_signed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
