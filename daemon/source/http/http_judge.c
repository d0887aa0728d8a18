/* What an answer that is not 2xx means to any store; see http.h. */
#include "source/http/http.h"

#include <string.h>
#include <strings.h>

static const struct meaning {
    int status;
    enum http_verdict verdict;
    enum error_code code;
    const char *reason, *text;
} meanings[] = {
    {401, HTTP_FAIL, ERROR_PERMISSION_DENIED, "NOT_AUTHENTICATED", "the credentials are missing or not accepted"},
    {403, HTTP_FAIL, ERROR_PERMISSION_DENIED, "ACCESS_DENIED", "these credentials may not do that"},
    {404, HTTP_FAIL, ERROR_NOT_FOUND, "NO_SUCH_OBJECT", "there is no such object"},
    {408, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_BUSY", "the server lost its patience"},
    {410, HTTP_FAIL, ERROR_NOT_FOUND, "NO_SUCH_OBJECT", "the object is gone"},
    {412, HTTP_FAIL, ERROR_FAILED_PRECONDITION, REASON(OBJECT_CHANGED), "the object was replaced while being read"},
    {416, HTTP_FAIL, ERROR_FAILED_PRECONDITION, REASON(OBJECT_CHANGED),
     "the object ends before these bytes: it was replaced"},
    {429, HTTP_THROTTLED, ERROR_UNAVAILABLE, "THROTTLED", "too many requests"},
    {500, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server failed"},
    {502, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server behind the front end failed"},
    {503, HTTP_THROTTLED, ERROR_UNAVAILABLE, "SERVER_BUSY", "the server is overloaded"},
    {504, HTTP_RETRY, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server behind the front end is too slow"},
};

static const struct meaning *meaning_of(int status)
{
    static const struct meaning redirect = {0, HTTP_FAIL, ERROR_UNAVAILABLE, "REDIRECTED",
                                            "a redirect that is not followed"};
    static const struct meaning refusal = {0, HTTP_FAIL, ERROR_INTERNAL, "REQUEST_REFUSED",
                                           "the server refuses the request"};
    static const struct meaning failure = {0, HTTP_FAIL, ERROR_UNAVAILABLE, "SERVER_ERROR", "the server failed"};
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (meanings[i].status == status)
            return &meanings[i];
    return status < 400 ? &redirect : status < 500 ? &refusal : &failure;
}

enum http_verdict http_judge(const struct http_reply *reply, struct error *error)
{
    const struct meaning *meaning = meaning_of(reply->head.status);
    fail(error, meaning->code, meaning->reason, "the server answered %d: %s", reply->head.status, meaning->text);
    return meaning->verdict;
}

enum error_code http_error_code(int status, enum http_verdict verdict)
{
    const struct meaning *meaning = meaning_of(status);
    if (verdict == HTTP_RETRY || verdict == HTTP_THROTTLED)
        return ERROR_UNAVAILABLE;
    return meaning->status || status >= 500 ? meaning->code : ERROR_INVALID_ARGUMENT;
}

bool http_reply_is_page(const struct http_reply *reply)
{
    static const char *const beginnings[] = {"<!doctype html", "<html"};
    const char *body = reply->body + strspn(reply->body, " \t\r\n");
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        if (strncasecmp(body, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    const char *type = http_head_find(&reply->head, "content-type");
    return type && strncasecmp(type, "text/html", strlen("text/html")) == 0 && *body == '<';
}
