/* What an artifact holds, the same whether the daemon told it or this process resolved it: files, tensors, identity.
 *
 * Built once, then const. A catalog borrows names and shapes from the thing it was built from, which it takes and releases
 * with itself. */
#ifndef CLI_CATALOG_H
#define CLI_CATALOG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "resolve/artifact.h"
#include "tensorcast.h"

struct catalog_file {
    const char *name;
    uint64_t bytes;
};

struct catalog_tensor {
    const char *name; /* NUL-terminated; name_length counts */
    size_t name_length;
    const char *dtype;
    const uint64_t *shape;
    size_t rank;
    uint64_t bytes;
    size_t index;    /* in artifact order */
    size_t file;     /* of its first piece */
    size_t n_pieces; /* 1 = it is whole */
    size_t copies;
};

struct catalog_absent { /* a tensor in a file that is not there */
    const char *name, *file;
};

struct catalog {
    const char *reference, *identity;
    struct artifact_layout layout; /* its kind only when this process resolved it */
    const char *layout_name;
    uint64_t total_bytes;
    struct catalog_file *files;
    size_t n_files;
    struct catalog_tensor *tensors; /* artifact order, or what selection_filter_catalog() left of them */
    size_t n_tensors;
    size_t n_all_tensors; /* of the artifact */
    const char **notes, **absent_files;
    size_t n_notes, n_absent_files;
    struct catalog_absent *absent;
    size_t n_absent;
    struct tc_metadata *metadata; /* __metadata__ of the first file, each key once */
    size_t n_metadata;
    uint64_t metadata_left_out_bytes; /* not 0: it is too large to be told */
    struct tc_artifact *from_daemon;  /* one of the two is NULL */
    struct artifact *from_disk;
    struct arena arena;
};

struct catalog *catalog_from_daemon(struct tc_artifact *artifact); /* takes it */
struct catalog *catalog_from_disk(struct artifact *artifact);      /* takes the caller's reference */
void catalog_destroy(struct catalog *catalog);                     /* accepts NULL */

struct json_writer;
/* What every object about an artifact begins with: artifact, identity, files. */
void catalog_json_head(const struct catalog *catalog, struct json_writer *json);
void catalog_json_notes(const struct catalog *catalog,
                        struct json_writer *json); /* "notes", "absent_files", where there are */
void catalog_json_metadata(const struct catalog *catalog, struct json_writer *json); /* the member "metadata" */
void catalog_print_layout(const struct catalog *catalog, FILE *out);                 /* a line, unless it is plain */
void catalog_print_notes(const struct catalog *catalog, FILE *out); /* a line each, and the files that are missing */
/* The object of `tensorcast inspect --json`. The caller frees. */
char *catalog_json(const struct catalog *catalog);
/* A table of every tensor, then what it adds up to. */
void catalog_print(const struct catalog *catalog, size_t columns, FILE *out); /* columns: of a terminal; 0 = any */
void catalog_print_names(const struct catalog *catalog, FILE *out); /* a line each, control characters escaped, never cut */
/* One of the index documents; needs TC_RESOLVE_INDEXES when it came from the daemon. The caller frees. */
char *catalog_index_json(const struct catalog *catalog, bool canonical);

#endif
