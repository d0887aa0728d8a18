/* One file behind a redirect: the store's own address leads to a signed one elsewhere that lives for an hour or so.
 *
 * Where it leads is asked once and kept for all ranges, asked again at 80% of its life and when the target refuses - once
 * for each target, however many ranges meet the refusal. Headers of `home` (a token) go to the origin of `from` and nowhere
 * else. Thread-safe; the callbacks of struct http_store block only on the caller's thread. */
#ifndef SOURCE_REDIRECT_H
#define SOURCE_REDIRECT_H

#include "source/http/http.h"
#include "source/stores.h"

struct redirect;

struct redirect_options {
    struct stores *stores;
    const char *from;                  /* copied */
    const char *to;                    /* copied; where it led a moment ago, NULL = not asked yet */
    const struct http_store *home;     /* for requests to the origin of `from`, and to judge its answers; copied */
    const struct http_header *headers; /* of every range, wherever it leads: If-Match; copied */
    size_t n_headers;
    bool is_confined;            /* it may lead to trusted URLs only */
    const struct cancel *cancel; /* of the questions where it leads; lives as long as the redirect */
    uid_t uid;                   /* whose questions they are */
};

struct redirect *redirect_create(const struct redirect_options *options);
void redirect_destroy(struct redirect *redirect); /* accepts NULL */

/* For struct http_store; data is the redirect. check is up to the backend. */
int redirect_prepare(struct redirect *redirect, struct http_attempt *attempt, struct error *error);
enum http_verdict redirect_judge(struct redirect *redirect, const struct http_reply *reply, struct error *error);

#endif
