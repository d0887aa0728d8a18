/* What S3 says when it does not give what was asked for, and what follows from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "source/s3/s3_fault.h"

#include <cmocka.h>

#define BODY(code, more) "<?xml version=\"1.0\"?><Error><Code>" code "</Code><Message>m\n</Message>" more "</Error>"

static struct s3_fault fault_of(int status, const char *body, const char *name, const char *value, struct error *error)
{
    const struct http_header header = {name, value};
    const struct http_reply reply = {
        .head = {status, &header, name ? 1 : 0}, .body = (char *)body, .body_bytes = body ? strlen(body) : 0};
    return s3_fault_of(&reply, 1000000000, error);
}

static void the_code_decides_and_the_status_where_there_is_none(void **state)
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
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct s3_fault fault = fault_of(cases[i].status, cases[i].body, NULL, NULL, &error);
        if (fault.kind != cases[i].kind || error.code != cases[i].code)
            fail_msg("%d %s: kind %d, %s", cases[i].status, cases[i].body ? cases[i].body : "", fault.kind, error.message);
    }
}

static void another_region_is_told_by_the_header_or_the_body(void **state)
{
    struct error error;
    (void)state;
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

static void a_clock_that_is_off_is_corrected_by_the_date_of_the_answer(void **state)
{
    struct error error;
    (void)state;
    struct s3_fault fault = fault_of(403, BODY("RequestTimeTooSkewed", ""), "date", "Sun, 09 Sep 2001 02:46:40 GMT", &error);
    assert_int_equal(fault.kind, S3_FAULT_CLOCK);
    assert_int_equal(fault.clock_offset_s, 3600);
    fault = fault_of(403, BODY("RequestTimeTooSkewed", ""), "date", "yesterday", &error);
    assert_int_equal(fault.kind, S3_FAULT_FINAL);
}

static void what_the_server_says_is_shown_escaped(void **state)
{
    struct error error;
    (void)state;
    fault_of(403, BODY("AccessDenied", ""), NULL, NULL, &error);
    assert_string_equal(error.message, "S3 answers 403 AccessDenied: m\\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_code_decides_and_the_status_where_there_is_none),
        cmocka_unit_test(another_region_is_told_by_the_header_or_the_body),
        cmocka_unit_test(a_clock_that_is_off_is_corrected_by_the_date_of_the_answer),
        cmocka_unit_test(what_the_server_says_is_shown_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
