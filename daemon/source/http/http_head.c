/* Lines of an answer's head become names and values; see http_head.h. Anything odd is refused, not repaired. libcurl reports
 * every wrong answer here as a success. */
#include "source/http/http_head.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"

static void drop_lines(struct http_head_builder *builder)
{
    for (size_t i = 0; i < builder->head.n_headers; i++)
        memory_free_const(builder->headers[i].name);
    builder->n_bytes = 0;
    builder->head = (struct http_head){0};
}

void http_head_clear(struct http_head_builder *builder)
{
    drop_lines(builder);
    free(builder->headers);
    *builder = (struct http_head_builder){0};
}

static int begin_head(struct http_head_builder *builder, const char *line, size_t count, struct error *error)
{
    drop_lines(builder);
    const char *space = memchr(line, ' ', count);
    if (space && line + count - space >= 4) {
        int status = 0, n_digits = 0;
        for (; n_digits < 3 && space[1 + n_digits] >= '0' && space[1 + n_digits] <= '9'; n_digits++)
            status = status * 10 + (space[1 + n_digits] - '0');
        builder->head.status = status;
        if (n_digits == 3 && status >= 100)
            return 0;
    }
    return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the answer's status line has no status");
}

int http_head_add_line(struct http_head_builder *builder, const char *line, size_t count, struct error *error)
{
    size_t n_headers = builder->head.n_headers;
    if (memchr(line, '\0', count))
        return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the answer's head holds a NUL");
    if (count > 5 && memcmp(line, "HTTP/", 5) == 0)
        return begin_head(builder, line, count, error);
    if (n_headers == HTTP_HEAD_MAX_LINES || count > HTTP_HEAD_MAX_BYTES - builder->n_bytes)
        return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the answer's head has more than %d lines or %d bytes",
                    HTTP_HEAD_MAX_LINES, HTTP_HEAD_MAX_BYTES);
    size_t name_chars = 0;
    while (name_chars < count && line[name_chars] > ' ' && line[name_chars] < 0x7f && line[name_chars] != ':')
        name_chars++;
    if (name_chars == 0 || name_chars == count || line[name_chars] != ':')
        return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "line %zu of the answer's head is not \"name: value\"",
                    n_headers + 1);
    const char *value = line + name_chars + 1;
    size_t value_chars = count - name_chars - 1;
    for (; value_chars > 0 && (*value == ' ' || *value == '\t'); value_chars--)
        value++;
    while (value_chars > 0 && strchr(" \t\r\n", value[value_chars - 1]))
        value_chars--;
    char *text = memory_alloc(name_chars + value_chars + 2);
    for (size_t i = 0; i < name_chars; i++)
        text[i] = line[i] >= 'A' && line[i] <= 'Z' ? (char)(line[i] + 32) : line[i];
    memcpy(text + name_chars + 1, value, value_chars);
    ARRAY_RESERVE(builder->headers, n_headers, builder->headers_room);
    builder->headers[n_headers] = (struct http_header){.name = text, .value = text + name_chars + 1};
    builder->n_bytes += count;
    builder->head.headers = builder->headers;
    builder->head.n_headers++;
    return 0;
}

struct http_head http_head_take(struct http_head_builder *builder)
{
    struct http_head head = builder->head;
    if (head.n_headers == 0)
        free(builder->headers);
    *builder = (struct http_head_builder){0};
    return head;
}

void http_head_free(struct http_head *head)
{
    for (size_t i = 0; i < head->n_headers; i++)
        memory_free_const(head->headers[i].name);
    memory_free_const(head->headers);
    *head = (struct http_head){0};
}

const char *http_head_find(const struct http_head *head, const char *name)
{
    for (size_t i = head->n_headers; i > 0; i--)
        if (strcmp(head->headers[i - 1].name, name) == 0)
            return head->headers[i - 1].value;
    return NULL;
}

static bool take_number(const char **text, uint64_t *number)
{
    const char *from = *text;
    *number = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++) {
        if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, (uint64_t)(**text - '0'), number))
            return false;
    }
    return *text > from;
}

static bool take_text(const char **text, const char *wanted)
{
    size_t length = strlen(wanted);
    bool is_there = strncmp(*text, wanted, length) == 0;
    *text += is_there ? length : 0;
    return is_there;
}

bool http_head_content_range(const struct http_head *head, struct http_content_range *range)
{
    const char *text = http_head_find(head, "content-range");
    if (!text || !take_text(&text, "bytes ") || !take_number(&text, &range->first) || !take_text(&text, "-") ||
        !take_number(&text, &range->last) || !take_text(&text, "/"))
        return false;
    range->total_bytes = UINT64_MAX;
    if (!take_text(&text, "*") && !take_number(&text, &range->total_bytes))
        return false;
    return *text == '\0' && range->first <= range->last && range->last < range->total_bytes;
}

bool http_head_content_length(const struct http_head *head, uint64_t *bytes)
{
    const char *text = http_head_find(head, "content-length");
    return text && take_number(&text, bytes) && *text == '\0';
}

const char *http_head_request_id(const struct http_head *head)
{
    static const char *const names[] = {"x-amz-request-id", "x-guploader-uploadid", "x-request-id"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *id = http_head_find(head, names[i]);
        if (id && *id)
            return id;
    }
    return NULL;
}

/* --- is it the answer that was asked for? --- */

static const char *show_header(const struct http_head *head, const char *name)
{
    const char *value = http_head_find(head, name);
    return value ? text_show(value) : "none";
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
    if (!http_head_content_range(head, &range)) {
        fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the answer's Content-Range is unusable: %s",
             show_header(head, "content-range"));
        return HTTP_FAULT_PROTOCOL;
    }
    if (range.total_bytes == UINT64_MAX) {
        fail(error, ERROR_FAILED_PRECONDITION, "SERVER_UNFIT",
             "the server does not say how large the object is (Content-Range: %s)", show_header(head, "content-range"));
        return HTTP_FAULT_PROTOCOL;
    }
    enum http_fault fault = expected->is_exact ? check_exact(expected, &range, error) : HTTP_FAULT_NONE;
    if (fault != HTTP_FAULT_NONE)
        return fault;
    bool stops_early = !expected->is_exact && range.last + 1 < expected->end && range.last + 1 != range.total_bytes;
    if (range.first != expected->first_byte || range.last >= expected->end || stops_early) {
        fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "asked for bytes %" PRIu64 "-%" PRIu64 ", was answered %s",
             expected->first_byte, expected->end - 1, show_header(head, "content-range"));
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
    const char *encoding = http_head_find(head, "content-encoding");
    *body_bytes = UINT64_MAX;
    if (expected->has_no_body)
        return HTTP_FAULT_NONE;
    if (encoding && *encoding && strcasecmp(encoding, "identity") != 0) {
        fail(error, ERROR_FAILED_PRECONDITION, "STORED_COMPRESSED",
             "it is stored compressed (Content-Encoding %s), so its bytes are not those of the file: store it without",
             show_header(head, "content-encoding"));
        return HTTP_FAULT_FINAL;
    }
    enum http_fault fault = head->status == 206 && expected->is_range ? check_range(expected, head, body_bytes, error)
                                                                      : check_whole(expected, head, body_bytes, error);
    return fault == HTTP_FAULT_NONE ? check_length(expected, head, body_bytes, error) : fault;
}
