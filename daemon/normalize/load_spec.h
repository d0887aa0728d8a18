/* What one request means, with every default filled in: the only place where a wire request and the typed configuration
 * meet. Two things are kept apart: retrieval policy (where bytes may come from, which executor is preferred, how strict the
 * request is about a collective) and execution topology (who loads together, where the source lives).
 *
 * Pure: no clock, no I/O. const once built; memory belongs to the arena of the load, but the view's items are borrowed from
 * the request. */
#ifndef NORMALIZE_LOAD_SPEC_H
#define NORMALIZE_LOAD_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "config/config.h"

enum collective_policy { COLLECTIVE_AUTO, COLLECTIVE_REQUIRED, COLLECTIVE_DISABLED };
enum source_locality { LOCALITY_AUTO, LOCALITY_HOST_LOCAL, LOCALITY_SHARED_SOURCE };

/* Whether the client may be given the files' own pages. UNSPECIFIED: it knows of no files, which is as COPIED. */
enum memory_preference { MEMORY_UNSPECIFIED, MEMORY_AUTO, MEMORY_COPIED, MEMORY_MAPPED };

struct retrieval_policy {
    enum executor_preference executor; /* the request's, or the configuration's when the request says AUTO */
    bool executor_from_request;
    enum collective_policy collective;
};

struct execution_topology {
    bool has_group;
    const char *group_id;
    const char *attempt; /* NULL = the client does not tell its retries from other requests */
    uint32_t rank, world_size;
    enum source_locality source_locality;
    const char
        *source_sharing_domain; /* NULL = none. Locality SHARED_SOURCE or a domain is proof of sharing; AUTO never is */
};

/* A slice as NumPy means it: negative = from the end, clipped; INT64_MAX = open end, 0 = open start. */
struct slice {
    int64_t start, stop;
};

struct view_item {
    const char *name; /* bytes; length below */
    size_t name_length;
    uint32_t n_slices; /* 0 = the whole tensor, else the tensor's rank, or less in a leading view */
    const struct slice *slices;
};

struct target_list;

/* Of tensors in the replica: in view order, each at the next multiple of its alignment, or so that blocks of the files land
 * in place (resolve/placement.h). */
enum view_placement { PLACEMENT_PACKED, PLACEMENT_SOURCE, PLACEMENT_N };

struct view_spec { /* a request's view before it meets the artifact */
    bool whole;    /* every tensor of the artifact, in its own order */
    bool leading;  /* slices may be of the first dimensions only; those behind them are whole */
    const struct view_item *items;
    size_t n_items;
    uint64_t align_bytes; /* power of two, 1 .. 2 MiB, default 64; of PLACEMENT_SOURCE also 0 = the size of an element */
    int placement;        /* enum view_placement */
    /* Where every tensor goes, in memory of the client (resolve/target.h); borrowed. NULL = packed into memory of the daemon */
    const struct target_list *targets;
    uint64_t budget_bytes; /* of the memory that the daemon would take for it; 0 = none is taken */
};

enum { VIEW_DEFAULT_ALIGN = 64, VIEW_MAX_ALIGN = 2 << 20 };

struct load_spec {
    const char *artifact;      /* reference, checked to have a scheme */
    bool allow_missing_shards; /* of DCP: a rank that saved nothing has no file */
    bool resident_only;        /* what is not in memory, or on its way there, is refused */
    const char *device;        /* NULL = host memory; whether there is such a device is found out later */
    struct view_spec view;
    enum memory_preference memory; /* not UNSPECIFIED; of a GPU COPIED */
    struct retrieval_policy policy;
    struct execution_topology topology;
};

struct file_names { /* files of an artifact instead of its tensors */
    const char *const *names;
    size_t n;
    const char *identity; /* of them, "" = any; see FileSet in store_daemon.proto */
};

/* The request in this module's own terms; api/codec.c and the command line fill it. Strings are borrowed. */
struct load_request {
    const char *artifact;
    bool allow_missing_shards, resident_only;
    const char *device;    /* NULL, "" or "cpu" = host memory */
    struct view_spec view; /* align_bytes 0 = default */
    int memory;            /* enum memory_preference as a number, checked here */
    int executor;          /* enum executor_preference as a number, checked here */
    int collective;        /* enum collective_policy */
    bool has_group;
    const char *group_id, *attempt; /* attempt: NULL or "" = none */
    int64_t rank, world_size;
    const void *variant;               /* JSON of a recipe */
    size_t variant_bytes;              /* 0 = the artifact as it is stored */
    int source_locality;               /* enum source_locality */
    const char *source_sharing_domain; /* NULL or "" = none */
    const struct file_names *files;    /* NULL = tensors */
};

/* Checks and completes a request. Everything that can be refused without looking at the source is refused here. */
int load_spec_build(const struct load_request *request, const struct materialization_strategy *strategy, struct arena *arena,
                    struct load_spec *spec, struct error *error);

#endif
