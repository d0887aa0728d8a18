/* Lines of an answer's head become names and values; see http_head.h. Anything odd is refused, not repaired. */
#include "source/http/http_head.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static void drop_lines(struct http_head_builder *builder)
{
    for (size_t i = 0; i < builder->n_headers; i++)
        memory_free_const(builder->headers[i].name);
    builder->n_headers = builder->n_bytes = 0;
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

static bool is_name(const char *name, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (name[i] <= ' ' || name[i] >= 0x7f)
            return false;
    return count > 0;
}

static size_t trim_value(const char **value, size_t count)
{
    while (count > 0 && (**value == ' ' || **value == '\t'))
        (*value)++, count--;
    while (count > 0 && strchr(" \t\r\n", (*value)[count - 1]))
        count--;
    return count;
}

int http_head_add_line(struct http_head_builder *builder, const char *line, size_t count, struct error *error)
{
    if (memchr(line, '\0', count))
        return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the answer's head holds a NUL");
    if (count > 5 && memcmp(line, "HTTP/", 5) == 0)
        return begin_head(builder, line, count, error);
    if (builder->n_headers == HTTP_HEAD_MAX_LINES || count > HTTP_HEAD_MAX_BYTES - builder->n_bytes)
        return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "the answer's head has more than %d lines or %d bytes",
                    HTTP_HEAD_MAX_LINES, HTTP_HEAD_MAX_BYTES);
    const char *colon = memchr(line, ':', count);
    if (!colon || !is_name(line, (size_t)(colon - line)))
        return fail(error, ERROR_UNAVAILABLE, "BAD_ANSWER", "line %zu of the answer's head is not \"name: value\"",
                    builder->n_headers + 1);
    const char *value = colon + 1;
    size_t name_chars = (size_t)(colon - line), value_chars = trim_value(&value, count - name_chars - 1);
    char *text = memory_alloc(name_chars + value_chars + 2);
    for (size_t i = 0; i < name_chars; i++)
        text[i] = line[i] >= 'A' && line[i] <= 'Z' ? (char)(line[i] + 32) : line[i];
    memcpy(text + name_chars + 1, value, value_chars);
    ARRAY_RESERVE(builder->headers, builder->n_headers, builder->headers_room);
    builder->headers[builder->n_headers++] = (struct http_header){.name = text, .value = text + name_chars + 1};
    builder->n_bytes += count;
    builder->head.headers = builder->headers;
    builder->head.n_headers = builder->n_headers;
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
