/* A file behind a redirect: the store's own address leads to a signed one elsewhere that lives for an hour or so.
 *
 * Where it leads is asked once and kept for all ranges, asked again at 80% of its life and when the target refuses - once
 * for each target, however many ranges meet the refusal. Headers of `home` (a token) go to the origin of the file's URL and
 * nowhere else. Thread-safe; the callbacks of struct http_store block only on the caller's thread. */
#ifndef SOURCE_REDIRECT_H
#define SOURCE_REDIRECT_H

#include "source/object_source.h"

struct redirect_options {
    const char *to;                /* where it led a moment ago; NULL = not asked yet */
    const struct http_store *home; /* for requests to the origin of the URL, and to judge its answers; copied; may be NULL */
    const char *if_match;          /* of every range, wherever it leads; copied; NULL = any version */
    bool is_confined;              /* it may lead to trusted URLs only */
    int (*check)(void *file, const struct http_head *head, struct error *error); /* of struct http_store; data is the file */
};

/* The rest of object_ops.open for such a file, whose url is set: fills store and data. */
void redirect_open_file(struct object_file *file, const struct redirect_options *options);
void redirect_close_file(struct object_file *file); /* object_ops.close */
/* Pure: seconds from now until a URL ends that Amazon, Google or CloudFront signed (X-Amz-Expires, X-Goog-Expires, Expires; se is
 * not read); 0 = it does not say. */
uint64_t redirect_life_s(const char *url, uint64_t now_unix_s);

#endif
