/* The code in the answer's XML decides, the status where there is none: answers to HEAD have no body. */
#include "source/s3/s3_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "source/s3/aws_keys.h"

struct rule {
    const char *code;
    enum s3_fault_kind kind;
};

static const struct rule rules[] = {
    {"PermanentRedirect", S3_FAULT_REGION},
    {"TemporaryRedirect", S3_FAULT_REGION},
    {"Redirect", S3_FAULT_REGION},
    {"AuthorizationHeaderMalformed", S3_FAULT_REGION},
    {"IllegalLocationConstraintException", S3_FAULT_REGION},
    {"RequestTimeTooSkewed", S3_FAULT_CLOCK},
    {"RequestInTheFuture", S3_FAULT_CLOCK},
    {"ExpiredToken", S3_FAULT_KEYS},
    {"ExpiredTokenException", S3_FAULT_KEYS},
    {"TokenRefreshRequired", S3_FAULT_KEYS},
    {"InvalidToken", S3_FAULT_KEYS},
    {"InvalidAccessKeyId", S3_FAULT_KEYS},
    {"RequestExpired", S3_FAULT_KEYS},
    {"SlowDown", S3_FAULT_THROTTLED},
    {"SlowDownRead", S3_FAULT_THROTTLED},
    {"ServiceUnavailable", S3_FAULT_THROTTLED},
    {"Throttling", S3_FAULT_THROTTLED},
    {"ThrottlingException", S3_FAULT_THROTTLED},
    {"ThrottledException", S3_FAULT_THROTTLED},
    {"RequestThrottled", S3_FAULT_THROTTLED},
    {"RequestThrottledException", S3_FAULT_THROTTLED},
    {"RequestLimitExceeded", S3_FAULT_THROTTLED},
    {"BandwidthLimitExceeded", S3_FAULT_THROTTLED},
    {"LimitExceededException", S3_FAULT_THROTTLED},
    {"TooManyRequests", S3_FAULT_THROTTLED},
    {"TooManyRequestsException", S3_FAULT_THROTTLED},
    {"RequestTimeout", S3_FAULT_RETRY},
    {"RequestTimeoutException", S3_FAULT_RETRY},
    {"InternalError", S3_FAULT_RETRY},
    {"OperationAborted", S3_FAULT_RETRY},
};

static enum s3_fault_kind kind_of(const struct http_reply *reply, const struct aws_error *said)
{
    for (size_t i = 0; said->code && i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(said->code, rules[i].code) == 0)
            return rules[i].kind;
    }
    /* Without a code 400 and 403 may be expired keys as well as no permission: worth one look for newer ones. */
    int status = reply->head.status;
    if (status == 401 || (!said->code && (status == 400 || status == 403)))
        return S3_FAULT_KEYS;
    if (status == 429 || status == 503)
        return S3_FAULT_THROTTLED;
    if (status == 408 || status == 500 || status == 502 || status == 504)
        return S3_FAULT_RETRY;
    bool leads_elsewhere = status == 301 || status == 302 || status == 307 || status == 308;
    return leads_elsewhere ? S3_FAULT_REGION : S3_FAULT_FINAL;
}

/* --- what goes with it --- */

static enum error_code error_code_of(int status, enum s3_fault_kind kind)
{
    bool is_passing = kind == S3_FAULT_RETRY || kind == S3_FAULT_THROTTLED;
    return kind == S3_FAULT_KEYS ? ERROR_PERMISSION_DENIED : http_error_code(status, is_passing ? HTTP_RETRY : HTTP_FAIL);
}

static void describe_fault(const struct http_reply *reply, const struct aws_error *said, const struct s3_fault *fault,
                           struct error *error)
{
    char code[TEXT_NAME_CHARS] = "", message[TEXT_NAME_CHARS] = "", region[100] = "";
    if (said->code)
        text_escape(said->code, strlen(said->code), code);
    if (said->message)
        text_escape(said->message, strlen(said->message), message);
    if (fault->region[0])
        snprintf(region, sizeof region, "; the bucket is in region %s", fault->region);
    fail(error, error_code_of(reply->head.status, fault->kind), "S3_ERROR", "S3 answers %d%s%s%s%s%s", reply->head.status,
         *code ? " " : "", code, *message ? ": " : "", message, region);
}

struct s3_fault s3_fault_of(const struct http_reply *reply, int64_t now, struct error *error)
{
    struct s3_fault fault = {0};
    struct aws_error said;
    aws_error_parse(reply->body ? reply->body : "", reply->body_bytes, &said);
    fault.kind = kind_of(reply, &said);
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *region = http_head_find(&reply->head, "x-amz-bucket-region");
    if (!region)
        region = said.region;
    size_t length = region ? strlen(region) : 0;
    if (length > 0 && length < sizeof fault.region && strspn(region, allowed) == length) /* it becomes part of a host */
        memcpy(fault.region, region, length + 1);
    if (fault.kind == S3_FAULT_CLOCK) {
        const char *date = http_head_find(&reply->head, "date");
        struct tm utc = {0};
        const char *rest = date ? strptime(date, "%a, %d %b %Y %H:%M:%S GMT", &utc) : NULL;
        if (rest && !*rest)
            fault.clock_offset_s = (int64_t)timegm(&utc) - now;
        else
            fault.kind = S3_FAULT_FINAL;
    }
    describe_fault(reply, &said, &fault, error);
    aws_error_clear(&said);
    return fault;
}
