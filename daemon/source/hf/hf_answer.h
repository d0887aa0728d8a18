/* What the hub's API answers: the commit of a revision, pages of a tree and the link to the next one. Pure; any thread. */
#ifndef SOURCE_HF_ANSWER_H
#define SOURCE_HF_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "source/http/http.h"

enum { HF_COMMIT_CHARS = 40 };

bool hf_is_commit(const char *revision);

/* DATA_LOSS, BAD_ANSWER, with an empty commit, when it names none. */
int hf_answer_commit(const void *bytes, size_t count, char commit[HF_COMMIT_CHARS + 1], struct error *error);

struct hf_entry {            /* a file; texts live during the call and may hold NULs */
    struct json_string path; /* from the top of the repository */
    struct json_string pin;  /* SHA-256 of what git-lfs keeps, else git's own; may be empty */
    uint64_t size_bytes;
    struct checksum checksum; /* of no kind when there is none */
};
typedef int hf_answer_entry(void *data, const struct hf_entry *entry, struct error *error);

/* Calls take() for each file of a page until it fails. DATA_LOSS, BAD_ANSWER, for what is no page. */
int hf_answer_page(const void *bytes, size_t count, hf_answer_entry *take, void *data, struct error *error);

/* Link: <https://...>; rel="next" -> what stands there, malloced; NULL = the last page. */
char *hf_answer_next_page(const struct http_head *head);

#endif
