/* The signer against signatures that others computed: the "AWS Signature Version 4 Test Suite" (as botocore's repository
 * keeps it under tests/unit/auth/aws4_testsuite), the examples of the S3 API reference ("Authenticating Requests: Using the
 * Authorization Header"), and botocore 1.44.5's S3SigV4Auth for the keys and tokens neither of them has.
 *
 * Of the suite, left out are the cases that S3 rules out: paths are normalized there (normalize-path, except for those it
 * leaves alone), and headers that occur twice or on several lines, which this signer never gets. */
#include "tests/support/unit.h"

#include "source/s3/sigv4.h"

#define ALL_UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#define FORM_SHA256 "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e" /* of "Param1=value1" */
#define STS_TOKEN                                                                                                           \
    "AQoDYXdzEPT//////////"                                                                                                 \
    "wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mS"                     \
    "EI/qkPpKPi/"                                                                                                           \
    "kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0"           \
    "rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

/* Where a row says nothing: GET of "/" on 2015-08-30 by the suite's key, without a body; of S3, the examples' key. */
struct signed_case {
    const char *name, *method, *url, *token, *region, *access_key;
    int64_t unix_time;
    struct http_header headers[4];
    const char *payload_hash;
    const char *signed_headers, *signature;
};

#define SUITE "https://example.amazonaws.com"
#define DOC "https://examplebucket.s3.amazonaws.com"
#define PUT_SHA256 "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072" /* of "Welcome to Amazon S3." */
#define EMPTY_SUM                                                                                                           \
    {                                                                                                                       \
        "x-amz-content-sha256", SIGV4_EMPTY_SHA256                                                                          \
    }

static const struct signed_case suite[] = {
    {"get-vanilla", .signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-vanilla without a path", .url = SUITE,
     .signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
    {"get-unreserved", .url = SUITE "/" ALL_UNRESERVED,
     .signature = "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
    {"get-utf8", .url = SUITE "/%E1%88%B4", .signature = "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
    {"normalize-path/get-space", .url = SUITE "/example%20space/",
     .signature = "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
    {"normalize-path/get-special-character", .url = SUITE "/example/%24delete",
     .signature = "a853c9b21b528b19643d00910d35b83a10c366a10833ceefb45edd6c80e40f27"},
    {"get-header-value-trim", .headers = {{"my-header1", " value1"}, {"my-header2", " \"a   b   c\" "}},
     .signed_headers = "host;my-header1;my-header2;x-amz-date",
     .signature = "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
    {"get-vanilla-empty-query-key", .url = SUITE "/?Param1=value1",
     .signature = "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
    {"get-vanilla-query-order-encoded", .url = SUITE "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1",
     .signature = "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"},
    {"get-vanilla-query-order-key-case", .url = SUITE "/?Param2=value2&Param1=value1",
     .signature = "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
    {"get-vanilla-query-order-key", .url = SUITE "/?Param1=value2&Param1=Value1",
     .signature = "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1"},
    {"get-vanilla-query-order-value", .url = SUITE "/?Param1=value2&Param1=value1",
     .signature = "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
    {"get-vanilla-query-unreserved", .url = SUITE "/?" ALL_UNRESERVED "=" ALL_UNRESERVED,
     .signature = "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
    {"get-vanilla-utf8-query", .url = SUITE "/?%E1%88%B4=bar",
     .signature = "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
    {"post-vanilla", .method = "POST", .signature = "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
    {"post-vanilla-query", .method = "POST", .url = SUITE "/?Param1=value1",
     .signature = "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
    {"post-header-key-sort", .method = "POST", .headers = {{"my-header1", "value1"}},
     .signed_headers = "host;my-header1;x-amz-date",
     .signature = "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
    {"post-header-value-case", .method = "POST", .headers = {{"my-header1", "VALUE1"}},
     .signed_headers = "host;my-header1;x-amz-date",
     .signature = "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
    {"post-sts-header-before", .method = "POST", .token = STS_TOKEN,
     .signed_headers = "host;x-amz-date;x-amz-security-token",
     .signature = "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
    {"post-x-www-form-urlencoded", .method = "POST", .headers = {{"content-type", "application/x-www-form-urlencoded"}},
     .payload_hash = FORM_SHA256, .signed_headers = "content-type;host;x-amz-date",
     .signature = "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
    {"post-x-www-form-urlencoded-parameters", .method = "POST",
     .headers = {{"content-type", "application/x-www-form-urlencoded; charset=utf8"}}, .payload_hash = FORM_SHA256,
     .signed_headers = "content-type;host;x-amz-date",
     .signature = "1a72ec8f64bd914b0e42e42607c7fbce7fb2c7465f63e3092b3b0d39fa77a6fe"},
    {"by Python's hmac: parameters without a value, none, and an empty token", .url = "http://h:1?b=2&&a&b=", .token = "",
     .payload_hash = "UNSIGNED-PAYLOAD", .signature = "08c5f196bbfb93abfb26641e7e411f30ae4c1cd0a96ac2990d2dac0b31855692"},
};

static const struct signed_case s3_cases[] = {
    {"documentation: GET Object", .url = DOC "/test.txt", .headers = {{"range", "bytes=0-9"}, EMPTY_SUM},
     .signed_headers = "host;range;x-amz-content-sha256;x-amz-date",
     .signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"documentation: PUT Object", .method = "PUT", .url = DOC "/test%24file.text",
     .headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                 {"x-amz-content-sha256", PUT_SHA256},
                 {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
     .payload_hash = PUT_SHA256, .signed_headers = "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
     .signature = "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"documentation: GET Bucket Lifecycle", .url = DOC "/?lifecycle", .headers = {EMPTY_SUM},
     .signed_headers = "host;x-amz-content-sha256;x-amz-date",
     .signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"documentation: List Objects", .url = DOC "/?max-keys=2&prefix=J", .headers = {EMPTY_SUM},
     .signed_headers = "host;x-amz-content-sha256;x-amz-date",
     .signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
    {"botocore: a path that must not be normalized, a port",
     .url = "http://127.0.0.1:9000/bucket/a//b/dot/./x%20y%2Bz%28%25%29%C3%BC", .region = "eu-west-3",
     .access_key = "AKIDEXAMPLE", .unix_time = 1709251198, .headers = {{"x-amz-checksum-mode", "ENABLED"}, EMPTY_SUM},
     .signed_headers = "host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date",
     .signature = "7dde0a8156b4e213c1ccc7ce1498adfeab7ea8fab2c7f1432fa57fb88b6649a5"},
    {"botocore: a list with a token that has a plus, and a session token",
     .url = "https://bucket.s3.eu-west-3.amazonaws.com/"
            "?prefix=m%2F&list-type=2&encoding-type=url&continuation-token=L%2F06%20%2B%3D&uploads",
     .token = "TOKEN+/==", .region = "eu-west-3", .access_key = "AKIDEXAMPLE", .unix_time = 1709251198,
     .headers = {{"x-amz-checksum-mode", "ENABLED"}, EMPTY_SUM},
     .signed_headers = "host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date;x-amz-security-token",
     .signature = "ff99bfaa952b0323a60ce9c64ea83a2497c8b3dd64c9d5b03787df457f566b28"},
};

static const char *or_else(const char *value, const char *otherwise)
{
    return value ? value : otherwise;
}

static void check_signature(const struct signed_case *one, const char *service, int64_t unix_time, const char *access_key,
                            const char *date)
{
    char expected[500];
    struct sigv4_signature signature;
    unix_time = one->unix_time ? one->unix_time : unix_time;
    access_key = or_else(one->access_key, access_key);
    const char *secret = strcmp(access_key, "AKIDEXAMPLE") == 0 ? "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
                                                                : "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    struct sigv4_key key = {access_key, secret, one->token, or_else(one->region, "us-east-1"), service};
    struct sigv4_request request = {.method = or_else(one->method, "GET"),
                                    .url = or_else(one->url, SUITE "/"),
                                    .headers = one->headers,
                                    .payload_hash = or_else(one->payload_hash, SIGV4_EMPTY_SHA256),
                                    .unix_time = unix_time};
    while (request.n_headers < 4 && one->headers[request.n_headers].name)
        request.n_headers++;
    sigv4_sign(&key, &request, &signature);
    date = one->unix_time ? "20240229T235958Z" : date;
    assert_string_equal(signature.date, date);
    snprintf(expected, sizeof expected,
             "AWS4-HMAC-SHA256 Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=%s, Signature=%s", access_key, date,
             key.region, service, or_else(one->signed_headers, "host;x-amz-date"), one->signature);
    if (strcmp(signature.authorization, expected) != 0)
        fail_msg("%s: %s instead of %s", one->name, signature.authorization, expected);
    free(signature.authorization);
}

TEST(the_published_test_suite_holds)
{
    for (size_t i = 0; i < sizeof suite / sizeof suite[0]; i++)
        check_signature(&suite[i], "service", 1440938160, "AKIDEXAMPLE", "20150830T123600Z");
}

TEST(requests_to_s3_are_signed_as_its_documentation_and_botocore_do)
{
    for (size_t i = 0; i < sizeof s3_cases / sizeof s3_cases[0]; i++)
        check_signature(&s3_cases[i], "s3", 1369353600, "AKIAIOSFODNN7EXAMPLE", "20130524T000000Z");
}
