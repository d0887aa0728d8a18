/* "hf://org/model[@revision][/folder or file.safetensors]": a repository of the Hugging Face hub, or of what speaks like it.
 */
#ifndef SOURCE_SOURCE_HF_H
#define SOURCE_SOURCE_HF_H

#include "source/hf/hf_answer.h"
#include "source/hf/hf_settings.h"
#include "source/object_source.h"
#include "source/disk/source_disk.h"

struct source_hf {
    union { /* first: what it becomes when the local cache has everything is a source on disk */
        struct object_source objects;
        struct source_disk disk;
    };
    char *repository; /* "org/model" */
    char *revision;   /* as asked for: "main" */
    char *folder;     /* below the repository, "" = its top; of a single file: its folder */
    char *file_name;
    char *token;                      /* NULL = none */
    char commit[HF_COMMIT_CHARS + 1]; /* "" until known */
    bool has_asked;                   /* the hub said which commit it is */
};

void hf_free(struct source_hf *hf); /* the texts; part of a close */

extern const struct store source_hf_store;
static inline const struct hf_settings *hf_settings_of(const struct stores *stores)
{
    return stores_settings(stores, &source_hf_store);
}

/* In hf_api.c. What is kept are trees. Requests carry the token and go to the endpoint only. */
void *hf_api_connect(struct stores *stores);
void hf_api_disconnect(void *trees);
int hf_api_find_commit(struct source_hf *hf, uint32_t max_tries,
                       struct error *error);                        /* fills commit; 0 tries = the default */
int hf_api_list(struct object_source *source, struct error *error); /* asks once for each commit and folder */
void hf_api_listed(struct object_source *source);
char *hf_api_file_url(const struct source_hf *hf, const char *name); /* of the pinned commit */
struct http_store
hf_api_store(struct source_hf *hf); /* of every request to the endpoint: the token, what its refusals mean */

/* In hf_cache.c. Fills commit from the cache's refs; false when the cache does not know the revision. */
bool hf_cache_find_commit(struct source_hf *hf, const char *cache_dir);
/* What the cache must hold of the commit: whatever is there; every tensor; config.json, too, since who fetched tensors alone
 * has none of the files beside them. */
enum hf_cache_need { HF_CACHE_ANYTHING, HF_CACHE_TENSORS, HF_CACHE_SIDECARS };
/* Turns the source into one on disk when the cache holds that: 1, else 0; -1 on errors. Of the options only the immutable
 * roots count. */
int hf_cache_open(struct source_hf *hf, const struct source_options *options, const char *cache_dir, enum hf_cache_need need,
                  struct error *error);

#endif
