/* What an artifact holds, the same whether the daemon told it or this process resolved it: files, tensors, identity.
 *
 * Built once, then const. A catalog borrows names and shapes from what it was built from, which it takes and releases with
 * itself. */
#ifndef CLI_CATALOG_H
#define CLI_CATALOG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "resolve/artifact.h"
#include "tensorcast.h"
#include "tensorcast/daemon/v1/store_daemon.pb-c.h"

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

struct catalog {
    const Tensorcast__Daemon__V1__ResolveResponse *told; /* the artifact's */
    struct catalog_tensor *tensors; /* artifact order, or what selection_filter_catalog() left of them */
    size_t n_tensors;
    size_t n_all_tensors; /* of the artifact */
    struct tc_artifact *artifact;
    struct artifact *resolved; /* by this process; NULL = the daemon did */
    struct arena arena;
};

/* Takes both. */
struct catalog *catalog_create(struct tc_artifact *artifact, struct artifact *resolved);
void catalog_destroy(struct catalog *catalog); /* accepts NULL */

struct json_writer;
/* What every object about an artifact begins with: artifact, identity, files. */
void catalog_json_file(struct json_writer *json, const char *name, uint64_t bytes); /* an item of a list of files */
void catalog_json_head(const struct catalog *catalog, struct json_writer *json);
/* The object of `tensorcast inspect --json`. The caller frees. */
char *catalog_json(const struct catalog *catalog);
/* A table of every tensor, then what it adds up to. */
void catalog_print(const struct catalog *catalog, size_t columns, FILE *out); /* columns: of a terminal; 0 = any */
void catalog_print_names(const struct catalog *catalog, FILE *out); /* a line each, control characters escaped, never cut */

/* What an artifact adds up to: parameters, bytes of each type, metadata. For people in at most CATALOG_SUMMARY_LINES lines. */
enum { CATALOG_SUMMARY_LINES = 12 };

void catalog_summary_print(const struct catalog *catalog, FILE *out);
/* {"artifact", "identity", "layout", "n_files", "n_tensors", "parameters", "total_bytes", "dtypes": [{"dtype", "n_tensors",
 * "parameters", "bytes"}], "metadata"}. The caller frees. */
char *catalog_summary_json(const struct catalog *catalog);

#endif
