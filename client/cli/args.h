/* The command line as typed values. The tables of commands and options drive the parser, the help and completion.
 *
 * Global options stand before or after the command; `--option value` and `--option=value` mean the same; `--` ends options.
 * Everything that is wrong without asking a server is refused here. Memory belongs to args_fini(); texts are argv's. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/error.h"
#include "client/sharding.h"
#include "command_table.h"
#include "options.h"
#include "progress.h"
#include "view_text.h"
#include "tensorcast.h"

struct selector {     /* --tensor or --slice */
    const char *glob; /* NULL = a slice */
    struct slice_text slice;
};

struct view_args {
    const char *file;           /* "-" = standard input; NULL = none */
    struct selector *selectors; /* command-line order */
    size_t n_selectors;
    bool has_tp;
    struct tp_rule *rules; /* of tp */
    struct tp_split tp;
    bool has_sharding;
    struct tc_sharding_options mesh;  /* --mesh and the like, as they were given */
    const char **specs, **placements; /* of mesh */
    struct sharding sharding;         /* made of them */
};

struct variant_args {
    const char *recipe;          /* a file or a name; NULL = none */
    const char *dtype;           /* what everything is cast to in the end; NULL = nothing */
    struct tc_setting *settings; /* command-line order */
    size_t n_settings;
};

enum index_kind { INDEX_NONE = -1, INDEX_SOURCE, INDEX_CANONICAL };

enum { PLACEMENT_UNSET = -1, ARGS_UNSET = -1 }; /* ARGS_UNSET: of counts and ranks */

struct load_args {                             /* how to load it */
    int executor, collective, source_locality; /* the library's enums */
    const char *group, *source_sharing_domain;
    int placement;            /* the library's enum; PLACEMENT_UNSET */
    const char *device;       /* NULL = host memory */
    const char *memory_text;  /* what --memory says, which means another thing to export; NULL = nothing */
    int memory;               /* enum tc_memory */
    int64_t rank, world_size; /* of `plan`, too */
    bool compat;              /* of `plan` alone */
    uint64_t chunk_bytes;     /* likewise; 0 = not given */
};

struct output_args {
    const char *path;  /* --out */
    const char *trace; /* --trace; NULL = none */
    bool digest;
    uint64_t hold_ms;
    int index; /* enum index_kind */
    bool summary, names;
    uint64_t watch_ms; /* of `status`: so often; 0 = once */
};

enum fetch_kind { FETCH_SIDECARS, FETCH_TENSORS, FETCH_ALL };

struct fetch_args {
    const char *folder; /* DIR, of `folder`, too; NULL = not given */
    bool sidecars, tensors;
    int kind; /* enum fetch_kind */
};

struct serve_args {              /* of operators' commands */
    bool detach, pin;            /* of `prewarm` */
    bool ready;                  /* of `health` */
    int64_t engines;             /* of `size` */
    const char *config, *bundle; /* of `doctor`; NULL = not given */
};

struct export_args {
    int format, uneven;      /* the enums of export/export_layout.h */
    uint64_t max_file_bytes; /* 0 = not given */
    uint64_t memory_bytes;   /* likewise */
    const char *mapping;     /* NULL = none */
    bool no_sidecars, force, resume, verify;
};

struct partition_args {
    uint64_t machines, machine, hosts, host; /* host: of import, too */
    int is_flat;                             /* --order */
};

struct estimate_args { /* of --dtype, too */
    uint64_t layers, seq, hidden, samples;
    double price, ratio; /* below 0 = not given */
};

struct claim_args {
    uint64_t units, done, lease_ms;
    const char *owner;
};

#define ACTIVATIONS_UNSET UINT64_MAX /* a number that was not given */

struct args {
    int command; /* enum command; -1 = none */
    bool help, version, json, quiet, standalone, allow_missing_shards;
    const char *socket;
    uint64_t timeout_ms;         /* 0 = none */
    int progress;                /* enum progress_kind */
    const char *artifact;        /* or another first operand; NULL = none */
    const char **more_artifacts; /* of a command that takes several */
    size_t n_more_artifacts;
    bool all; /* instead of an artifact */
    struct view_args view;
    struct variant_args variant;
    struct load_args load;
    struct output_args output;
    struct fetch_args fetch;
    struct serve_args serve;
    struct export_args export;
    struct partition_args partition; /* of activations */
    struct estimate_args estimate;
    struct claim_args claim;
    struct arena arena;
};

extern const char *const args_shells[];                             /* that have completion; NULL at the end */
const char *args_path_of_name(struct args *args, const char *name); /* "./NAME" */

/* argv[0] is skipped. When it fails, the message says what is wrong and args->command tells whose help to offer. */
int args_parse(int argc, char **argv, struct args *args, struct error *error);
void args_fini(struct args *args); /* also after a failure */

#endif
