/* The head of an answer, line by line, and what is concluded from it. What is taken for a range is the one that was
 * asked for, or honestly the beginning of it. Reaches http_head.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/http/http_head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int truth)
{
    if (!truth)
        abort();
}

static void check_head(const struct http_head *head)
{
    const struct http_expectation range = {
        .is_range = true, .is_exact = true, .first_byte = 100, .end = 200, .object_bytes = 1000};
    const struct http_expectation document = {.max_bytes = 1 << 20};
    struct http_content_range said;
    struct error error = {0};
    uint64_t bytes;
    check(head->n_headers <= HTTP_HEAD_MAX_LINES);
    for (size_t i = 0; i < head->n_headers; i++)
        check(head->headers[i].name[0] && http_head_find(head, head->headers[i].name));
    if (http_answer_check(&range, head, &bytes, &error) == HTTP_FAULT_NONE)
        check(head->status == 206 && http_head_content_range(head, &said) && said.first == 100 && said.last <= 199 &&
              bytes == said.last - said.first + 1 && said.total_bytes == 1000);
    else
        check(error.code && error.message[0]);
    if (http_answer_check(&document, head, &bytes, &error) == HTTP_FAULT_NONE)
        check(bytes == UINT64_MAX || bytes <= document.max_bytes);
    if (http_head_content_range(head, &said))
        check(said.first <= said.last && said.last < said.total_bytes);
}

/* Lines keep their ends, as libcurl hands them over. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_head_builder builder = {0};
    struct error error = {0};
    const char *line = (const char *)data, *end = line + size;
    int failed = 0;
    while (line < end && !failed) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t count = (size_t)((newline ? newline + 1 : end) - line);
        failed = http_head_add_line(&builder, line, count, &error);
        line += count;
    }
    if (failed)
        check(error.code == ERROR_UNAVAILABLE);
    struct http_head head = http_head_take(&builder);
    if (!failed)
        check_head(&head);
    http_head_free(&head);
    return 0;
}
