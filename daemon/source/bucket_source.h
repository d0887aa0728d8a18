/* "SCHEME://bucket/prefix": what stores of buckets share. Every file below the prefix, and not below a folder of it, is an
 * object that one listing tells of; so are the files in a folder, once that is listed. Each range is pinned to what the
 * listing told. A backend embeds struct bucket_source at the beginning of its own struct and calls bucket_source_parse()
 * first in its open. */
#ifndef SOURCE_BUCKET_SOURCE_H
#define SOURCE_BUCKET_SOURCE_H

#include "base/text.h"
#include "source/object_source.h"

/* Adds the objects of one page to the table. `token` is what the page before said comes next, NULL for the first;
 * *next_token becomes the caller's to free, NULL after the last page. */
typedef int object_page(struct object_source *source, const char *token, char **next_token, struct error *error);

struct bucket_source {
    struct object_source objects;
    object_page *page; /* the backend's */
    char *bucket;
    char *prefix; /* "" or with a slash at its end; of a single file, of its folder */
    char *key;    /* as in the reference */
};

/* "//bucket/some/key" -> bucket, key without slashes at its ends (may be ""), prefix, is_single_file. */
int bucket_source_parse(struct bucket_source *source, const char *path, struct error *error);
void bucket_source_close(struct source *source); /* of the backend's ops */

char *bucket_source_key(const struct bucket_source *source, const char *name); /* malloced */
/* "s3://bucket/key" of that object, escaped. Returns `text`. */
enum { BUCKET_SHOWN_CHARS = 2 * TEXT_NAME_CHARS };
const char *bucket_source_shown(const struct bucket_source *source, const char *name, char text[BUCKET_SHOWN_CHARS]);

/* A document of at most max_bytes from `url`, which it frees. */
int bucket_source_fetch(struct bucket_source *source, const struct http_store *store, const char *method, char *url,
                        size_t max_bytes, struct http_reply *reply, struct error *error);

/* All pages of a listing: all of them, empty ones too. A listing that repeats, never ends or is empty is an error. */
int bucket_source_list_pages(struct object_source *source, object_page *page, struct error *error);

/* object_ops.list; messages name bucket and prefix. */
int bucket_source_list(struct object_source *objects, struct error *error);
/* Adds the object behind `key`, unless it is not in the folder; takes the texts of `object`, whose name is filled in. */
int bucket_source_add(struct bucket_source *source, const char *key, struct object *object, struct error *error);
/* Adds a folder that the listing tells of, "prefix/sub/". */
int bucket_source_add_folder(struct bucket_source *source, const char *prefix, struct error *error);
/* What is being listed, encoded for a query. Malloced. */
char *bucket_source_listed_prefix(const struct bucket_source *source);

/* The end of http_store.judge for a range: 404, 412 or 416 are explained by one more look at the object, through
 * object_ops.stat: deleted, or replaced by what. */
void bucket_source_explain(struct bucket_source *source, const struct object *object, const struct http_reply *reply,
                           struct error *error);

#endif
