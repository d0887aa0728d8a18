/* Between export_layout.c and the formats, layout_*.c: each decides which files there are and what of a tensor goes into
 * which of them, and writes the documents that say so. Offsets and headers are the same work for all. */
#ifndef EXPORT_LAYOUT_PRIVATE_H
#define EXPORT_LAYOUT_PRIVATE_H

#include "base/json.h"
#include "export/export_layout.h"

struct layout_build {
    struct export_layout *layout;
    const struct export_layout_options *options;
    size_t n_parts, part_room;
    const char *const *file_names; /* of --mapping, by tensor in official order; NULL = none */
    struct error *error;
};

struct layout_format {
    const char *name;
    /* Makes layout->files with their names, and says by layout_add_part() what of each tensor is in which, in order. */
    int (*place)(struct layout_build *build);
    /* Optional. The members of a file's __metadata__ instead of the source's. */
    void (*describe)(const struct export_layout *layout, uint32_t file, struct json_writer *json);
    /* Of a layout whose place() has set document_name. */
    int (*write_document)(const struct export_layout *layout, const struct export_sink *sink, struct error *error);
};

extern const struct layout_format layout_hf, layout_topology, layout_dcp;

void layout_set_files(struct layout_build *build, size_t n_files);
/* start NULL = the whole tensor; else rank numbers each, of the layout's arena. */
void layout_add_part(struct layout_build *build, size_t tensor, uint32_t file, const uint64_t *start, const uint64_t *size);
/* What of a tensor is in that file; NULL = nothing. */
const struct export_part *layout_find_part(const struct export_layout *layout, size_t tensor, uint32_t file);
int export_put_text(const struct export_sink *sink, const char *text, struct error *error);
/* A member of an object, `depth` levels deep, on a line of its own. Takes the text of json. */
int layout_put_member(const struct export_sink *sink, struct json_writer *json, size_t depth, bool is_first,
                      struct error *error);
/* Rank's box of a tensor that is split. Returns whether it is empty. */
bool layout_cut(struct layout_build *build, const struct export_tensor *tensor, uint32_t rank, const uint64_t **start,
                const uint64_t **size);
/* Tensors by name, bytewise: indexes that the caller frees. */
uint32_t *layout_by_name(const struct export_layout *layout);

#endif
