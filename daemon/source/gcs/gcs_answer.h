/* Answers of Google Cloud Storage's JSON API: metadata of objects, pages of listings, errors. Pure; any thread. */
#ifndef SOURCE_GCS_ANSWER_H
#define SOURCE_GCS_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checksum.h"
#include "base/error.h"

struct gcs_object { /* malloced texts */
    char *name;
    char *bucket;     /* NULL = it was not said */
    char *generation; /* a decimal number */
    uint64_t size_bytes;
    bool compressed; /* Content-Encoding: ranges of it are not ranges of the file */
    struct checksum checksums[CHECKSUM_PER_FILE];
};
void gcs_object_clear(struct gcs_object *object);
int gcs_object_parse(const void *bytes, size_t count, struct gcs_object *object, struct error *error);

enum { GCS_MAX_PAGE_ITEMS = 10000 };

struct gcs_page {
    struct gcs_object *objects;
    size_t n_objects, capacity;
    char **prefixes; /* of deeper objects, up to and with the slash */
    size_t n_prefixes, prefixes_capacity;
    char *next_token; /* NULL = the last page */
};
int gcs_page_parse(const void *bytes, size_t count, struct gcs_page *page, struct error *error);
void gcs_page_clear(struct gcs_page *page);

enum { GCS_COMPLAINT_CHARS = 420, GCS_REASON_CHARS = 64 };
struct gcs_complaint {
    char reason[GCS_REASON_CHARS];     /* "rateLimitExceeded"; "" when it is no error of the API */
    char message[GCS_COMPLAINT_CHARS]; /* escaped */
};
void gcs_complaint_parse(const void *bytes, size_t count, struct gcs_complaint *complaint);

#endif
