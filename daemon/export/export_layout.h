/* What an export writes: its files with their headers, what of each tensor lies in which of them and where, and the
 * documents beside them.
 *
 *   tensors + options --export_layout_build--> files, parts, documents
 *
 * Tensors are in the official order (element type descending, then name), in every file. Headers are byte for byte what the
 * official safetensors writer makes: the metadata first, then the tensors in the order of their data, padded with blanks to
 * a multiple of 8. Pure: no I/O. Const once built; memory belongs to the layout. */
#ifndef EXPORT_LAYOUT_H
#define EXPORT_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/error.h"
#include "resolve/artifact.h"

enum export_format { EXPORT_HF, EXPORT_TOPOLOGY, EXPORT_DCP };
enum export_uneven {               /* a dimension that does not divide by the number of ranks */
                     UNEVEN_ERROR, /* is refused */
                     UNEVEN_CEIL,  /* is cut into chunks of the rounded-up size; the last ones may be short or empty */
                     UNEVEN_SHARE  /* is not cut: every rank has the tensor */
};

enum { EXPORT_NOT_SPLIT = -1, EXPORT_ALL_RANKS = -1, EXPORT_MAX_WORLD_SIZE = 4096 };

struct export_tensor {                  /* a tensor of the artifact, or a box of one */
    const struct tensor_record *record; /* borrowed */
    const uint64_t *start;              /* where the box begins, rank numbers; NULL = at the beginning */
    const uint64_t *shape;              /* of the box, rank numbers */
    uint64_t bytes;
    int split; /* the dimension that is cut over the ranks, or EXPORT_NOT_SPLIT */
};

struct export_pair { /* of __metadata__; UTF-8, may hold NULs */
    const char *key, *value;
    size_t key_length, value_length;
};

struct export_layout_options {
    enum export_format format;
    enum export_uneven uneven;
    uint32_t world_size;                /* of topology and dcp */
    int64_t rank;                       /* whose file alone is written, or EXPORT_ALL_RANKS */
    uint64_t max_file_bytes;            /* of tensors in a file; 0 = no limit */
    const char *const *file_of_tensor;  /* by tensor as they are given: the mapping of --mapping; NULL = none */
    const struct export_pair *metadata; /* of the source, sorted by key */
    size_t n_metadata;
};

struct export_part { /* a box of a tensor in a file */
    uint32_t file;
    const uint64_t *start, *size; /* in the export tensor, rank numbers each; start NULL = all of it */
    uint64_t offset;              /* behind the header */
    uint64_t bytes;
};

struct export_file {
    const char *name;
    size_t head_bytes; /* length field and header */
    uint64_t file_bytes;
    bool is_written; /* false: another rank was asked for */
};

struct export_sink { /* takes a text piece by piece; -1 ends it */
    int (*put)(void *data, const char *text, size_t length, struct error *error);
    void *data;
};

struct layout_format; /* export_layout.c */

struct export_layout {
    struct export_tensor *tensors; /* official order */
    size_t n_tensors;
    struct export_file *files;
    size_t n_files;
    struct export_part *parts; /* by tensor, then file */
    size_t *first_part;        /* those of tensor t are [first_part[t], first_part[t + 1]) */
    const char *document_name; /* of what says which file has what; NULL = there is none */
    const struct layout_format *format;
    uint32_t world_size;
    const struct export_pair *metadata; /* borrowed */
    size_t n_metadata;
    struct arena arena;
};

/* Copies what it is given except for records and metadata. NULL on error: INVALID_ARGUMENT naming tensor or file. */
struct export_layout *export_layout_build(const struct export_tensor *tensors, size_t n_tensors,
                                          const struct export_layout_options *options, struct error *error);
void export_layout_destroy(struct export_layout *layout); /* accepts NULL */

/* The first head_bytes of a file. Made when it is asked for, as are documents: there may be millions of parts. The caller
 * frees. */
char *export_layout_head(const struct export_layout *layout, uint32_t file);
int export_layout_write_document(const struct export_layout *layout, const struct export_sink *sink, struct error *error);

/* Of --mapping: a document in the form of model.safetensors.index.json, whose weight_map says which file gets which tensor. It
 * names every tensor exactly once and no other; files are plain names that end in .safetensors. Fills file_of[i] for tensors[i];
 * names belong to the arena. INVALID_ARGUMENT naming tensor or file. */
int export_mapping_parse(const char *text, size_t length, const struct export_tensor *tensors, size_t n_tensors,
                         struct arena *arena, const char **file_of, struct error *error);

uint64_t export_layout_bytes(const struct export_layout *layout); /* of the files that are written */
/* Everything that decides what is in the files: equal digests, equal files from equal tensors. */
void export_layout_digest(const struct export_layout *layout, struct digest *digest);

#endif
