/* Formats of files that hold tensors: one row each. A row says by which names its files are found, how long the header of one
 * is, and what a header says: the tensors that are stored in the file and the sums of the bytes before them.
 *
 * Headers are const once parsed and reference-counted. Rows are pure: bytes in, header out; any thread. */
#ifndef RESOLVE_FORMAT_H
#define RESOLVE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/dtype.h"

enum { TENSOR_MAX_RANK = 64 };

struct stored_tensor { /* an array as it lies in one file, in C order without a gap: a tensor, or a piece of one */
    const char *name;  /* NUL-terminated copy; name_length counts */
    uint32_t name_length;
    enum dtype dtype;
    uint32_t rank;
    const uint64_t *shape;
    uint64_t offset; /* absolute in the file */
    uint64_t bytes;
};

struct part_metadata { /* a pair of free texts, NUL-terminated copies; lengths count */
    const char *key, *value;
    size_t key_length, value_length;
};

struct part_header {
    struct stored_tensor *tensors; /* by offset, those without bytes as the header lists them */
    size_t n_tensors;
    struct part_metadata *metadata; /* what the file says of itself (safetensors: __metadata__), in its order */
    size_t n_metadata;
    bool has_metadata;    /* perhaps of no pairs */
    uint64_t data_offset; /* how many bytes lie before the tensors */
    uint64_t file_bytes;
    uint64_t prefix_crcs[CHECKSUM_CRC64NVME + 1]; /* by kind, of the first data_offset bytes */
    struct arena arena;
    struct part_header *names_of; /* another one, whose names these are; NULL = the arena has them */
    int references;               /* atomic */
};
/* The last one of that key, as the reference reader has it; NULL = none. */
const struct part_metadata *part_header_find_metadata(const struct part_header *header, const char *key);
struct part_header *part_header_ref(struct part_header *header);
void part_header_unref(struct part_header *header); /* accepts NULL */

/* Whether a document may name a part file so: in the same folder, not hidden, and no way out of it. */
bool part_name_is_plain(const char *name, size_t length);
/* The same one or more folders below, "vision/tower.safetensors": every component is plain. */
bool part_name_is_below(const char *name, size_t length);

/* What a source has to know of safetensors: which names are those of parts, and whether a folder holds a whole checkpoint. */
struct source_format;
extern const struct source_format source_format_safetensors;

/* What helps to parse one header of an artifact after the other. Of one thread; zeroed at first. Parsers leave their memory
 * here, from metadata_alloc(), so that the kernel need not make its pages anew for each. */
struct format_help {
    struct part_header *sibling; /* of the same artifact, so mostly with the same names in the same order; may be NULL */
    void *entries;
    uint64_t *dims;
    size_t entry_capacity, dim_capacity;
};
void format_help_fini(struct format_help *help); /* not of the sibling */

enum { FORMAT_MAX_FIRST_BYTES = 64 };

struct format {
    const char *name;
    /* Of the only file of a folder, and of the document that names all of them: pairs. The first pair is looked for
     * first, and is written. NULL-terminated. */
    const char *const *single_names, *const *index_names;
    const char *pattern;                       /* of the files' names, for people */
    const struct source_format *source_format; /* what stores ask about names */
    bool (*probe)(const char *file_name);      /* whether a file of that name in a folder is one of the checkpoint's */
    int cache_kind;                            /* of its headers in the state directory: enum header_kind */
    uint64_t first_bytes;                      /* so many tell ... */
    int (*length)(const unsigned char *first, uint64_t file_bytes, uint64_t *header_bytes, struct error *error);
    /* ... how many header bytes follow them; those are parsed. NULL on error. */
    struct part_header *(*parse)(const char *header, uint64_t header_bytes, uint64_t file_bytes, struct format_help *help,
                                 struct error *error);
};

/* Every format there is; the first is that of a file whose name says nothing. */
extern const struct format *const formats[];
extern const size_t n_formats;

#endif
