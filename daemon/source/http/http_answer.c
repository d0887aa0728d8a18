/* Checks of an answer's head; see http_answer.h. libcurl reports every wrong answer here as a success. */
#include "source/http/http_answer.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "source/http/http_head.h"

static const char *shown_header(const struct http_head *head, const char *name, char out[TEXT_NAME_CHARS])
{
    const char *value = http_head_find(head, name);
    return value ? text_escape(value, strlen(value), out) : "none";
}

static enum http_fault check_encoding(const struct http_head *head, struct error *error)
{
    char text[TEXT_NAME_CHARS];
    const char *encoding = http_head_find(head, "content-encoding");
    if (!encoding || !*encoding || strcasecmp(encoding, "identity") == 0)
        return HTTP_FAULT_NONE;
    fail(error, ERROR_FAILED_PRECONDITION, "STORED_COMPRESSED",
         "it is stored compressed (Content-Encoding %s), so its bytes are not those of the file: store it without",
         shown_header(head, "content-encoding", text));
    return HTTP_FAULT_FINAL;
}

static enum http_fault check_exact(const struct http_expectation *expected, const struct http_content_range *range,
                                   struct error *error)
{
    if (range->total_bytes == expected->object_bytes)
        return HTTP_FAULT_NONE;
    fail(error, ERROR_FAILED_PRECONDITION, REASON(OBJECT_CHANGED),
         "it has %" PRIu64 " bytes now and had %" PRIu64 ": it was replaced while being read", range->total_bytes,
         expected->object_bytes);
    return HTTP_FAULT_FINAL;
}

static enum http_fault check_range(const struct http_expectation *expected, const struct http_head *head,
                                   uint64_t *body_bytes, struct error *error)
{
    struct http_content_range range;
    char text[TEXT_NAME_CHARS];
    if (!http_head_content_range(head, &range)) {
        fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the answer's Content-Range is unusable: %s",
             shown_header(head, "content-range", text));
        return HTTP_FAULT_PROTOCOL;
    }
    if (range.total_bytes == UINT64_MAX) {
        fail(error, ERROR_FAILED_PRECONDITION, "SERVER_UNFIT",
             "the server does not say how large the object is (Content-Range: %s)",
             shown_header(head, "content-range", text));
        return HTTP_FAULT_PROTOCOL;
    }
    enum http_fault fault = expected->is_exact ? check_exact(expected, &range, error) : HTTP_FAULT_NONE;
    if (fault != HTTP_FAULT_NONE)
        return fault;
    bool stops_early = !expected->is_exact && range.last + 1 < expected->end && range.last + 1 != range.total_bytes;
    if (range.first != expected->first_byte || range.last >= expected->end || stops_early) {
        fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "asked for bytes %" PRIu64 "-%" PRIu64 ", was answered %s",
             expected->first_byte, expected->end - 1, shown_header(head, "content-range", text));
        return HTTP_FAULT_PROTOCOL;
    }
    *body_bytes = range.last - range.first + 1;
    return HTTP_FAULT_NONE;
}

/* All of it is as good as a part where that part is all of it. */
static enum http_fault check_whole(const struct http_expectation *expected, const struct http_head *head,
                                   uint64_t *body_bytes, struct error *error)
{
    uint64_t length = 0;
    bool is_known = http_head_content_length(head, &length), is_from_start = expected->first_byte == 0;
    if (!expected->is_range || (!expected->is_exact && is_from_start && is_known && length <= expected->end))
        return HTTP_FAULT_NONE;
    if (expected->is_exact && is_from_start && expected->end == expected->object_bytes && head->status == 200) {
        const struct http_content_range whole = {.total_bytes = is_known ? length : expected->object_bytes};
        *body_bytes = expected->object_bytes;
        return check_exact(expected, &whole, error);
    }
    fail(error, ERROR_FAILED_PRECONDITION, "RANGE_IGNORED",
         "the server ignores Range: it was asked for bytes %" PRIu64 "-%" PRIu64 " and answered %d; parts of files "
         "can only be read from a server that answers 206",
         expected->first_byte, expected->end - 1, head->status);
    return HTTP_FAULT_PROTOCOL;
}

static enum http_fault check_length(const struct http_expectation *expected, const struct http_head *head,
                                    uint64_t *body_bytes, struct error *error)
{
    uint64_t length;
    if (http_head_content_length(head, &length)) {
        if (*body_bytes != UINT64_MAX && *body_bytes != length) {
            fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER",
                 "the answer's Content-Length %" PRIu64 " is not the %" PRIu64 " bytes of its Content-Range", length,
                 *body_bytes);
            return HTTP_FAULT_PROTOCOL;
        }
        *body_bytes = length;
    }
    if (expected->is_exact || *body_bytes == UINT64_MAX || *body_bytes <= expected->max_bytes)
        return HTTP_FAULT_NONE;
    fail(error, ERROR_RESOURCE_EXHAUSTED, "ANSWER_TOO_LONG",
         "the answer has %" PRIu64 " bytes, more than the %" PRIu64 " that are taken", *body_bytes, expected->max_bytes);
    return HTTP_FAULT_FINAL;
}

enum http_fault http_answer_check(const struct http_expectation *expected, const struct http_head *head,
                                  uint64_t *body_bytes, struct error *error)
{
    *body_bytes = UINT64_MAX;
    if (expected->has_no_body)
        return HTTP_FAULT_NONE;
    enum http_fault fault = check_encoding(head, error);
    if (fault == HTTP_FAULT_NONE && (head->status != 206 || !expected->is_range))
        fault = check_whole(expected, head, body_bytes, error);
    else if (fault == HTTP_FAULT_NONE)
        fault = check_range(expected, head, body_bytes, error);
    return fault == HTTP_FAULT_NONE ? check_length(expected, head, body_bytes, error) : fault;
}
