/* A request being put together; see http_attempt.h. */
#include "source/http/http_attempt.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"

/* Tokens and signatures have many names (x-amz-security-token, x-goog-..., cookie), so this is a list of what may go. */
static bool may_go_anywhere(const char *name)
{
    static const char *const names[] = {"accept", "content-type", "if-match", "if-none-match", "if-modified-since"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

void http_attempt_begin(struct http_attempt *attempt, const struct http_call *call, const char *url, bool is_foreign)
{
    http_attempt_clear(attempt);
    attempt->method = memory_copy_text(call->method ? call->method : "GET");
    attempt->url = memory_copy_text(url);
    attempt->body = call->body;
    attempt->body_bytes = call->body_bytes;
    http_attempt_add_header(attempt, "Accept-Encoding", "identity");
    for (size_t i = 0; i < call->n_headers; i++)
        if (!is_foreign || may_go_anywhere(call->headers[i].name))
            http_attempt_add_header(attempt, call->headers[i].name, call->headers[i].value);
}

static void free_header(struct http_header *header)
{
    memory_free_const(header->name);
    memory_free_const(header->value);
}

void http_attempt_clear(struct http_attempt *attempt)
{
    for (size_t i = 0; i < attempt->n_headers; i++)
        free_header(&attempt->headers[i]);
    free(attempt->headers);
    free(attempt->method);
    free(attempt->url);
    *attempt = (struct http_attempt){0};
}

const char *http_attempt_method(const struct http_attempt *attempt)
{
    return attempt->method;
}

const char *http_attempt_url(const struct http_attempt *attempt)
{
    return attempt->url;
}

void http_attempt_set_url(struct http_attempt *attempt, const char *url)
{
    char *copy = memory_copy_text(url);
    free(attempt->url);
    attempt->url = copy;
}

void http_attempt_set_credential(struct http_attempt *attempt, uint64_t generation)
{
    attempt->credential = generation;
}

void http_attempt_set_ca_file(struct http_attempt *attempt, const char *ca_file)
{
    attempt->ca_file = ca_file;
}

int http_attempt_admit(struct http_attempt *attempt, const struct http_call *call, const struct http_fence *fence,
                       struct error *error)
{
    struct url home;
    if (url_parse(call->url, &home, error) < 0 || url_parse(attempt->url, &attempt->where, error) < 0 ||
        (!call->no_proxy && http_fence_check(fence, attempt->url, error) < 0))
        return -1;
    attempt->guard =
        call->no_proxy ? (struct http_guard){.may_be_reserved = true} : http_fence_guard(fence, &attempt->where, &home);
    char *url = url_print(&attempt->where);
    free(attempt->url);
    attempt->url = url;
    return url_parse(url, &attempt->where, error);
}

static struct http_header *find_header(const struct http_attempt *attempt, const char *name)
{
    for (size_t i = 0; i < attempt->n_headers; i++)
        if (strcasecmp(attempt->headers[i].name, name) == 0)
            return &attempt->headers[i];
    return NULL;
}

bool http_attempt_has_header(const struct http_attempt *attempt, const char *name)
{
    return find_header(attempt, name) != NULL;
}

void http_attempt_add_header(struct http_attempt *attempt, const char *name, const char *value)
{
    if (strpbrk(name, "\r\n: ") || !*name || strpbrk(value, "\r\n")) {
        attempt->is_malformed = true;
        return;
    }
    struct http_header copy = {.name = memory_copy_text(name), .value = memory_copy_text(value)};
    struct http_header *header = find_header(attempt, name);
    if (header) {
        free_header(header);
    } else {
        ARRAY_RESERVE(attempt->headers, attempt->n_headers, attempt->headers_room);
        header = &attempt->headers[attempt->n_headers++];
    }
    *header = copy;
}
