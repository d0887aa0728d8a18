/* The command line as typed values. One table (args_options.c) drives the parser and the help texts.
 *
 * Global options stand before or after the command; `--option value` and `--option=value` mean the same; `--` ends options.
 * Everything that is wrong without asking anybody is refused here. Memory belongs to args_fini(); texts are argv's. */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/error.h"
#include "client/sharding.h"
#include "activations_args.h"
#include "export_args.h"
#include "options.h"
#include "progress.h"
#include "slice_text.h"
#include "tensorcast.h"
#include "tp_rules.h"

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

enum { PLACEMENT_UNSET = -1 };

struct load_args {                             /* how to load it */
    int executor, collective, source_locality; /* the library's enums */
    const char *group, *source_sharing_domain;
    int placement;            /* the library's enum; PLACEMENT_UNSET */
    const char *device;       /* NULL = host memory */
    const char *memory_text;  /* what --memory says, which means another thing to export; NULL = nothing */
    int memory;               /* enum tc_memory */
    int64_t rank, world_size; /* of `plan`, too */
};

struct output_args {
    const char *path; /* --out */
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

struct prewarm_args {
    bool detach, pin;
};

struct plan_args {
    bool compat;
    uint64_t chunk_bytes; /* 0 = not given */
};

struct args {
    int command; /* enum command; -1 = none */
    bool help, version, json, quiet, standalone, allow_missing_shards;
    const char *socket;
    uint64_t timeout_ms; /* 0 = none */
    int progress;        /* enum progress_kind */
    const char *artifact;
    const char *shell;           /* of completion */
    const char **more_artifacts; /* of a command that takes several */
    size_t n_more_artifacts;
    bool all; /* instead of an artifact */
    struct view_args view;
    struct variant_args variant;
    struct load_args load;
    struct output_args output;
    struct plan_args plan;
    struct fetch_args fetch;
    struct prewarm_args prewarm;
    struct export_args export;
    struct activations_args activations;
    struct arena arena;
};

extern const struct option_table args_options;
const char *args_path_of_name(struct args *args, const char *name); /* "./NAME" */

/* argv[0] is skipped. When it fails, the message says what is wrong and args->command tells whose help to offer. */
int args_parse(int argc, char **argv, struct args *args, struct error *error);
void args_fini(struct args *args); /* also after a failure */

/* The general help, or that of one command. */
void args_print_help(int command, FILE *out);

#endif
