/* The first step of resolving: which files a checkpoint is made of, by topology.json, by its index document, by the name of
 * its only file, or all there are. Opens them; reads nothing but documents. Blocks.
 *
 * Files that an index names need not all be there (`absent`). One of which none is there is passed over where there is something
 * else: the only file, or one complete set. */
#ifndef RESOLVE_DISCOVER_H
#define RESOLVE_DISCOVER_H

#include "base/activation_name.h"
#include "resolve/document.h"
#include "resolve/format.h"
#include "resolve/manifest.h"
#include "resolve/notes.h"
#include "resolve/shard_index.h"
#include "resolve/topology.h"

struct artifact_table;

struct discovery {
    const struct format *format;
    struct source *source;       /* with the part files in artifact order */
    struct source *index_source; /* with topology.json or the index as its only file; NULL = there is neither */
    const char *document_name;   /* static: of that file; NULL = there is neither */
    bool is_topology;            /* it is topology.json */
    bool is_run;                 /* of a store of activations these segments count, and nothing else */
    struct activation_run run;
    char *run_reference; /* then, as source->reference is shown */
    bool has_all_files;  /* every part file of the folder counts, and is there */
    char *gap;           /* then: the first file that one of the sets lacks which say how many they are; NULL = none */
    struct notes absent; /* files that the index names and that are not there, in its order */
    struct notes notes;  /* what is said of how it was found */
    char **listed;       /* the folder's names, once it was listed; none where nothing can be */
    size_t n_listed;
    bool is_listed;
    struct topology *topology; /* parsed only when needed, as is the index; the table may have taken its numbers */
    struct shard_index *index;
    struct document index_text; /* which they borrow */
};

int discover(const char *reference, const struct source_options *options, struct lookup *lookup, struct discovery *discovery,
             struct error *error);
void discovery_fini(struct discovery *discovery); /* accepts what a failed discover() has left */

/* Parses topology.json or the index, when there is one and it was not needed before. */
int discovery_need_document(struct discovery *discovery, struct lookup *lookup, struct error *error);
/* The files turned out to be shards: adds the others of the folder behind them. Where nothing can be listed, an index has
 * named some, and those are tried whose numbers lie between. */
int discovery_add_shards(struct discovery *discovery, struct error *error);

static inline const struct source_identity *discovery_index_identity(const struct discovery *discovery)
{
    return &discovery->index_source->files[0].identity;
}

/* The manifest beside the checkpoint; NULL when there is none, or one that cannot be used: then `problem` says why. Whether
 * that is an error is for verification to decide. */
struct manifest *discover_manifest(const struct discovery *discovery, const struct source_options *options,
                                   const struct lookup *lookup, struct error *problem);
char *discover_manifest_name(const struct source *source); /* the caller frees */

#endif
