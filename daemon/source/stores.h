/* What all object-store sources share: the HTTP engine, settings and credentials. One per process, made at start from the
 * configuration and given to every source through struct source_options. Thread-safe. */
#ifndef SOURCE_STORES_H
#define SOURCE_STORES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "source/http/http.h"

struct stores;

enum { STORES_LINE_CHARS = 256 };
struct stores_line { /* what a backend says of itself at start, and never a secret */
    char endpoint[STORES_LINE_CHARS], credentials[STORES_LINE_CHARS];
};

struct stores_row { /* one per scheme; the table is daemon/stores/store_table.c and ends with an empty row */
    const char *scheme;
    void (*describe)(struct stores *stores, struct stores_line *line);
};
extern const struct stores_row stores_rows[];

struct stores_options { /* "" or NULL = from the environment names users know, then the default */
    struct http_engine_options http;
    uint64_t request_bytes; /* of one range of a large read (16 MiB) */
    uint32_t
        parallel_requests; /* worth having in flight (LEVANTER_FSSPEC_MAX_CONCURRENT_CHUNKS ... http.max_host_connections) */
    uint64_t chunk_bytes;  /* of deterministic extents, `plan --compat` (LEVANTER_FSSPEC_CHUNK_BYTES ... 2000000000) */
    bool allow_plain_http; /* http:// to other hosts than loopback */
    const char *const *trusted_urls; /* prefixes of references */
    size_t n_trusted_urls;           /* 0 = all references are trusted */
    bool https_off, gcs_off, s3_off, hf_off;
    const struct cancel *cancel; /* ends every request that has no cancel of its own; lives as long as the stores */
    struct {
        const char *endpoint; /* STORAGE_EMULATOR_HOST ... https://storage.googleapis.com */
        const char *credentials_file;
        const char *user_project; /* who pays */
        bool anonymous;
    } gcs;
    struct {
        const char *endpoint, *region, *profile;
        const char *addressing; /* "auto", "path", "virtual" */
        bool anonymous;
        bool requester_pays; /* AWS_REQUEST_PAYER=requester */
    } s3;
    struct {
        const char *endpoint, *cache_dir;
        const char *token_file; /* filled in as "": HF_TOKEN is used */
        bool offline;
    } hf;
};

int stores_create(const struct stores_options *options, struct stores **stores, struct error *error);
void stores_destroy(struct stores *stores); /* accepts NULL; no source may be left */
struct http_engine *stores_http(struct stores *stores);
const struct stores_options *stores_options(const struct stores *stores); /* every default filled in; "" = none, no NULL */

/* What a backend keeps for the life of the process: credentials, tokens, redirects. Made by the first caller, once. */
enum stores_slot { STORES_HTTPS, STORES_HF, STORES_GCS, STORES_S3, STORES_N_SLOTS };
void *stores_keep(struct stores *stores, enum stores_slot slot, void *(*create)(struct stores *stores),
                  void (*destroy)(void *kept));

/* 0, or PERMISSION_DENIED: the scheme is switched off, or the reference is not below a trusted URL. */
int stores_check_reference(const struct stores *stores, const char *reference, struct error *error);
/* The rules of http_fence.h, for redirects and links. */
const struct http_fence *stores_fence(const struct stores *stores);
/* 0 where requests may lead: http_fence_check(). */
int stores_check_url(const struct stores *stores, const char *url, struct error *error);

/* One line per scheme for the log at start: which endpoint and which credentials won, never a secret.
 * Calls tell(data, scheme, endpoint, credentials). */
void stores_describe(struct stores *stores,
                     void (*tell)(void *data, const char *scheme, const char *endpoint, const char *credentials),
                     void *data);

#endif
