/* An artifact: the immutable set of tensors behind a reference, with the identity of every part file.
 *
 * artifact_resolve() opens the source, decides which files count (index file, model.safetensors, or all *.safetensors),
 * takes their headers from the cache or reads and validates them, and checks that files and index agree. It blocks: call
 * it on a helper thread. The result is const, reference-counted and shared by requests, loads and replicas. */
#ifndef RESOLVE_ARTIFACT_H
#define RESOLVE_ARTIFACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/error.h"
#include "base/map.h"
#include "base/dtype.h"
#include "resolve/manifest.h"
#include "resolve/format.h"
#include "resolve/notes.h"
#include "source/source.h"

struct tensor_record {
    const char *name; /* NUL-terminated */
    const uint64_t *shape;
    uint64_t bytes;
    uint32_t name_length;
    uint32_t first_piece, n_pieces; /* for artifact_piece() */
    enum dtype dtype : 8;
    uint32_t rank : 24;
};

/* A box of a tensor's elements, which lie in C order and without a gap in one file. The listed pieces of a tensor
 * (artifact_piece()) are disjoint and together all of it; a piece may lie in other files as well, see copies. */
struct tensor_piece {
    uint64_t offset; /* absolute in the part file */
    const uint64_t
        *box;        /* where in the tensor it begins, then its size: rank numbers each; NULL = it is all of the tensor */
    uint32_t file;   /* index into source->files */
    uint32_t tensor; /* for artifact_stored() */
};

/* How files make up tensors; docs/layouts.md. Of `plain`, each tensor is whole and in one file. */
enum layout_kind { LAYOUT_PLAIN, LAYOUT_TOPOLOGY, LAYOUT_DCP };
const char *layout_kind_name(enum layout_kind kind); /* "plain", "topology", "dcp" */

struct artifact_layout {
    enum layout_kind kind;
    uint32_t world_size; /* ranks that wrote it; 0 = plain */
    /* Of DCP: numbers in names that no file has, ascending: allowed to be missing, or none. */
    const uint32_t *missing_shards, *missing_files;
    size_t n_missing_shards, n_missing_files;
};

/* What an index names and what is not there: files, and the tensors in them. */
struct absent_tensor {
    const char *name; /* NUL-terminated */
    uint32_t name_length, file;
};

struct artifact_absent {
    struct notes files; /* names */
    struct absent_tensor *tensors;
    size_t n_tensors;
};

struct artifact_table; /* resolve/artifact_table.h */
struct derivation;     /* resolve/derivation.h */

struct change_proof { /* how a change of the files would show, of the worst of them, the index file included */
    enum change_detector by;
    const char *reason; /* static; why by nothing better, "" = there is nothing better */
};

struct artifact {
    struct source *source;
    struct source *index_source; /* NULL, or the index file, kept open because source_key has the span of its lease */
    const char *reference;       /* the source's, or ... */
    char *run_reference;         /* ... this one, of a run of segments (activation_store.h); NULL = it is none */
    char identity[DIGEST_HEX_CHARS + 1];   /* digest of all files' names, identities and headers, the index file's
                                            * identity included */
    char source_key[DIGEST_HEX_CHARS + 1]; /* the same with the spans of leases instead: as long as the bytes are known to be
                                            * the same. What this process shares is found by it */
    struct artifact_layout layout;
    const struct tensor_record *tensors; /* in the order of their first pieces */
    size_t n_tensors;
    const struct tensor_piece *pieces; /* files in artifact order, pieces by offset within a file; they do not overlap */
    size_t n_pieces;
    const uint32_t *piece_lists; /* pieces by tensor, each box once; NULL = each tensor has one, and they are in the same
                                  * order */
    /* Per piece the next one that holds the same box of the same tensor, round in a ring that ends where it began; NULL =
     * nothing is stored twice. The lists have the first of each ring. */
    const uint32_t *copies;
    struct map by_name;
    uint64_t total_bytes;
    struct derivation *derivation; /* NULL = the tensors are those that are stored */
    struct artifact *stored;       /* else: the artifact that they are derived from, to which everything else belongs */
    struct artifact_table *table;  /* owns those above; NULL in an artifact that a test put together */
    struct manifest *manifest;     /* found beside the files; NULL = none */
    struct error manifest_problem; /* one is there but is not to be used, and why; code ERROR_OK = none */
    uint64_t header_bytes_read;    /* 0 = everything came from the cache */
    struct change_proof changes;
    const char *document_name; /* static: topology.json or the index that told which files count; NULL = none did */
    struct notes notes;        /* what is worth knowing of how it was found; of what is derived those of what is stored */
    int references;            /* atomic */
};

enum {                                   /* flags of artifact_resolve() */
       RESOLVE_FRESH = 1,                /* read and check every header although it is cached */
       RESOLVE_ALLOW_MISSING_SHARDS = 2, /* of DCP: numbers of files may be missing as long as the boxes are complete */
       RESOLVE_ALLOW_ABSENT_FILES = 4, /* files that the index names need not be there: the caller asks artifact_absent() */
};

struct header_cache; /* resolve/header_cache.h: in memory and in the state directory; thread-safe */

/* cache may be NULL. Callers that ask for the same remote artifact at the same time, not fresh and with the same cache - and
 * so with the same options - share one answer. */
int artifact_resolve(const char *reference, const struct source_options *options, struct header_cache *cache, unsigned flags,
                     struct artifact **artifact, struct error *error);
struct artifact *artifact_ref(struct artifact *artifact);
void artifact_unref(struct artifact *artifact); /* any thread; accepts NULL */

/* What is not there; none without RESOLVE_ALLOW_ABSENT_FILES. */
const struct artifact_absent *artifact_absent(const struct artifact *artifact);
/* NOT_FOUND that names the file when something is not there, else 0. Returns -1. */
int artifact_check_complete(const struct artifact *artifact, struct error *error);

/* The name of a manifest that is to be found beside it. The caller frees. */
char *artifact_manifest_name(const struct artifact *artifact);

/* The tensor that a piece belongs to. */
static inline const struct tensor_record *artifact_stored(const struct artifact *artifact, uint32_t tensor)
{
    return &(artifact->stored ? artifact->stored->tensors : artifact->tensors)[tensor];
}

/* The k-th piece of a tensor, in file order. */
static inline const struct tensor_piece *artifact_piece(const struct artifact *artifact, const struct tensor_record *tensor,
                                                        uint32_t k)
{
    size_t i = tensor->first_piece + k;
    return &artifact->pieces[artifact->piece_lists ? artifact->piece_lists[i] : i];
}
/* Whether the same box of the same tensor is stored elsewhere, too. */
static inline bool artifact_is_copied(const struct artifact *artifact, const struct tensor_piece *piece)
{
    size_t i = (size_t)(piece - artifact->pieces);
    return artifact->copies && artifact->copies[i] != i;
}
/* How many times a tensor is stored: as often as each of its pieces is. 1 for what is derived. */
uint32_t artifact_n_copies(const struct artifact *artifact, const struct tensor_record *tensor);
/* Whether the tensor lies in several boxes: its file is no more than that of its first piece. */
static inline bool artifact_is_in_pieces(const struct tensor_record *tensor)
{
    return tensor->n_pieces != 1;
}
uint64_t artifact_piece_end(const struct artifact *artifact, const struct tensor_piece *piece); /* in its file */
/* The first piece of that file, or of one behind it, that ends behind `at`: an index into pieces, n_pieces = none. */
size_t artifact_find_piece(const struct artifact *artifact, uint32_t file, uint64_t at);

/* What the manifest says of a piece that is all of a tensor, by the name that is stored there, or by its place; `file` is the manifest's
 * of its file. False: nothing. */
bool artifact_piece_crc32c(const struct artifact *artifact, const struct manifest_file *file,
                           const struct tensor_piece *piece, uint32_t *crc32c);

/* What lies before the tensors of a file: how much, and its CRC of that kind. */
uint64_t artifact_prefix_bytes(const struct artifact *artifact, size_t file);
uint64_t artifact_prefix_crc(const struct artifact *artifact, size_t file, enum checksum_kind kind);

/* What a file says of itself: the pairs of its __metadata__, in order; NULL and 0 in an artifact that a test put together. */
const struct part_metadata *artifact_metadata(const struct artifact *artifact, size_t file, size_t *n_pairs);

bool artifact_is_racy(const struct artifact *artifact); /* what was read of it is not to be kept, nor shared later */

/* 0 while no file has changed since it was resolved, else FAILED_PRECONDITION naming the file. */
int artifact_check_unchanged(const struct artifact *artifact, struct error *error);

/* The two index documents of the original system: name -> [offset, size, shape, stride, dtype, storage_offset].
 * source = positions in the concatenated data sections, without tensors in several boxes; canonical = 8-byte-aligned
 * repack. Caller frees; NULL: no memory. */
char *artifact_source_index_json(const struct artifact *artifact);
char *artifact_canonical_index_json(const struct artifact *artifact);

/* What an artifact says of itself: __metadata__ of its first part file; of a variant, that of the artifact it is made of. One
 * answer carries of it keys, values, and ARTIFACT_METADATA_PAIR_BYTES for each pair. */
enum { ARTIFACT_METADATA_MAX_BYTES = 8 << 20, ARTIFACT_METADATA_PAIR_BYTES = 16 };

struct artifact_metadata {
    const struct part_metadata **pairs; /* in the arena, in their order; they point into the artifact */
    size_t n_pairs;
    bool is_there;           /* the file has it, perhaps without a pair */
    uint64_t left_out_bytes; /* not 0: it is larger than ARTIFACT_METADATA_MAX_BYTES, and no pair is given */
};

/* Of a key that occurs twice the last value counts, as for the reference reader. -1: no memory for it. */
int artifact_metadata_collect(const struct artifact *artifact, struct arena *arena, struct artifact_metadata *metadata,
                              struct error *error);
/* Of each key its last pair, in their order, at the end of `kept`, which has room for all. Returns how many. `known` is an
 * empty map, which has its keys then. */
size_t artifact_metadata_keep_last(const struct part_metadata *pairs, size_t n_pairs, struct map *known,
                                   const struct part_metadata **kept);

#endif
