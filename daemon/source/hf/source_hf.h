/* "hf://org/model[@revision][/folder or file.safetensors]": a repository of the Hugging Face hub, or of what speaks like it.
 */
#ifndef SOURCE_SOURCE_HF_H
#define SOURCE_SOURCE_HF_H

#include "source/hf/hf_answer.h"
#include "source/object_source.h"
#include "source/disk/source_disk.h"
#include "source/store.h"

/* Keys "sources.hf.*" of the configuration. */
struct hf_settings {
    struct store_settings base;
    const char *cache_dir;
    const char *token_file; /* "": HF_TOKEN is used */
    bool is_offline;
};

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

extern const struct store source_hf_store;
static inline const struct hf_settings *hf_settings_of(const struct stores *stores)
{
    return stores_settings(stores, &source_hf_store);
}

/* In hf_api.c. Requests carry the token and go to the endpoint only. */
int hf_api_find_commit(struct source_hf *hf, uint32_t max_tries,
                       struct error *error);                        /* fills commit; 0 tries = the default */
int hf_api_list(struct object_source *source, struct error *error); /* asks once for each commit and folder */
void hf_api_listed(struct object_source *source);
char *hf_api_file_url(const struct source_hf *hf, const char *name); /* of the pinned commit */
struct http_store
hf_api_store(struct source_hf *hf); /* of every request to the endpoint: the token, what its refusals mean */

#endif
