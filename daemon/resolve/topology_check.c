/* Whether the parts of a topology add up: the rules of the reference in its order, tensor by tensor in the order of names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/metadata.h"
#include "base/text.h"
#include "resolve/cover.h"
#include "resolve/topology.h"

struct checker {
    struct topology *topology;
    struct cover cover;
    uint32_t *seen_by; /* per file: the last tensor that has a chunk in it, counted from 1 */
    const uint64_t **boxes;
    size_t boxes_capacity;
    struct error *error;
};

/* `word` is the reference's, `reason` ours. */
static int fail_rule(const struct checker *checker, const struct topology_tensor *tensor, const char *reason,
                     const char *word, const char *detail)
{
    char name[TEXT_NAME_CHARS];
    fail(checker->error, ERROR_DATA_LOSS, reason, "tensor %s: %s: %s", text_escape(tensor->name, tensor->name_length, name),
         word, detail);
    return error_note(checker->error, "tensor", "%.*s", (int)tensor->name_length, tensor->name);
}

enum { DETAIL_CHARS = 256 + 2 * TEXT_NAME_CHARS };

static const char *file_text(const struct checker *checker, const struct topology_chunk *chunk, char text[TEXT_NAME_CHARS])
{
    const char *name = checker->topology->files[chunk->file];
    return text_escape(name, strlen(name), text);
}

static int check_files(struct checker *checker, const struct topology_tensor *tensor)
{
    const struct topology *topology = checker->topology;
    const struct topology_chunk *chunks = tensor->n_chunks ? &topology->chunks[tensor->first_chunk] : NULL;
    uint32_t number = (uint32_t)(tensor - topology->tensors) + 1;
    char detail[DETAIL_CHARS], file[TEXT_NAME_CHARS];
    for (uint32_t i = 0; i < tensor->n_chunks; i++) {
        if (chunks[i].file < topology->n_files)
            continue;
        snprintf(detail, sizeof detail, "%s %u is in a file that is not one of the %zu of filenames",
                 tensor->is_shared ? "copy" : "chunk", i, topology->n_files);
        return fail_rule(checker, tensor, "INVALID_FILENAME_INDEX", "InvalidFilenameIndex", detail);
    }
    for (uint32_t i = 0; i < tensor->n_chunks; i++) {
        uint32_t *seen_by = &checker->seen_by[chunks[i].file];
        if (*seen_by == number) {
            snprintf(detail, sizeof detail, "it is in %s twice", file_text(checker, &chunks[i], file));
            return fail_rule(checker, tensor, "DUPLICATE_INDICES", "DuplicateIndices", detail);
        }
        *seen_by = number;
    }
    return 0;
}

static int check_bounds(const struct checker *checker, const struct topology_tensor *tensor)
{
    const struct topology *topology = checker->topology;
    const uint64_t *shape = &topology->numbers[tensor->shape_at];
    char detail[DETAIL_CHARS], file[TEXT_NAME_CHARS];
    for (uint32_t i = 0; i < tensor->n_chunks; i++) {
        const struct topology_chunk *chunk = &topology->chunks[tensor->first_chunk + i];
        if (chunk->n_offsets != tensor->rank || chunk->n_sizes != tensor->rank) {
            snprintf(detail, sizeof detail, "chunk %u in %s has %u offsets and %u sizes, the tensor %u dimensions", i,
                     file_text(checker, chunk, file), chunk->n_offsets, chunk->n_sizes, tensor->rank);
            return fail_rule(checker, tensor, "INVALID_CHUNK_DIMENSIONS", "InvalidChunkDimensions", detail);
        }
        const uint64_t *offsets = &topology->numbers[chunk->box_at], *sizes = offsets + tensor->rank;
        for (uint32_t d = 0; d < tensor->rank; d++) {
            if (offsets[d] <= shape[d] && sizes[d] <= shape[d] - offsets[d])
                continue;
            snprintf(detail, sizeof detail, "chunk %u in %s: %llu elements from %llu on in dimension %u, which has %llu", i,
                     file_text(checker, chunk, file), (unsigned long long)sizes[d], (unsigned long long)offsets[d], d,
                     (unsigned long long)shape[d]);
            return fail_rule(checker, tensor, "CHUNK_OUT_OF_BOUNDS", "ChunkOutOfBounds", detail);
        }
    }
    return 0;
}

static int check_cover(struct checker *checker, const struct topology_tensor *tensor)
{
    const struct topology *topology = checker->topology;
    const struct topology_chunk *chunks = tensor->n_chunks ? &topology->chunks[tensor->first_chunk] : NULL;
    const size_t *pair = checker->cover.pair;
    char detail[DETAIL_CHARS], one[TEXT_NAME_CHARS], two[TEXT_NAME_CHARS];
    while (checker->boxes_capacity < tensor->n_chunks)
        if (metadata_reserve((void **)&checker->boxes, &checker->boxes_capacity, sizeof *checker->boxes, checker->error) < 0)
            return -1;
    for (uint32_t i = 0; i < tensor->n_chunks; i++)
        checker->boxes[i] = &topology->numbers[chunks[i].box_at];
    switch (
        cover_check(&checker->cover, tensor->rank, &topology->numbers[tensor->shape_at], checker->boxes, tensor->n_chunks)) {
    case COVER_EXACT:
        return 0;
    case COVER_OVERLAPS:
        snprintf(detail, sizeof detail, "chunk %zu in %s and chunk %zu in %s have elements in common", pair[0],
                 file_text(checker, &chunks[pair[0]], one), pair[1], file_text(checker, &chunks[pair[1]], two));
        return fail_rule(checker, tensor, "OVERLAPPING_CHUNKS", "OverlappingChunks", detail);
    case COVER_GAP:
        return fail_rule(checker, tensor, "NON_COVERING_CHUNKS", "NonCoveringChunks",
                         "not every element of the tensor is in a chunk");
    case COVER_TOO_COMPLEX:
        return fail(checker->error, ERROR_UNIMPLEMENTED, "LAYOUT_TOO_COMPLEX",
                    "tensor %s is cut in too many ways to be checked in reasonable time",
                    text_escape(tensor->name, tensor->name_length, one));
    case COVER_NO_MEMORY:
        break;
    }
    return -1;
}

static int compare_files(const void *a, const void *b)
{
    const struct topology_chunk *x = a, *y = b;
    return (x->file > y->file) - (x->file < y->file);
}

static void sort_by_file(struct topology_chunk *chunks, uint32_t n)
{
    uint32_t n_sorted = 1;
    while (n_sorted < n && chunks[n_sorted - 1].file < chunks[n_sorted].file)
        n_sorted++;
    if (n_sorted < n)
        qsort(chunks, n, sizeof *chunks, compare_files);
}

static int check_tensor(struct checker *checker, const struct topology_tensor *tensor)
{
    struct topology *topology = checker->topology;
    char detail[DETAIL_CHARS];
    if (!tensor->is_shared && tensor->n_chunks != topology->world_size) {
        snprintf(detail, sizeof detail, "%u chunks for a world size of %llu", tensor->n_chunks,
                 (unsigned long long)topology->world_size);
        return fail_rule(checker, tensor, "INVALID_CHUNK_COUNT", "InvalidChunkCount", detail);
    }
    if (tensor->is_shared && tensor->lists_files && !tensor->n_chunks)
        return fail_rule(checker, tensor, "NO_FILE_OF_TENSOR", "InvalidFilenameIndex", "filename_indices is empty");
    if (check_files(checker, tensor) < 0)
        return -1;
    if (!tensor->is_shared && (check_bounds(checker, tensor) < 0 || check_cover(checker, tensor) < 0))
        return -1;
    if (tensor->n_chunks)
        sort_by_file(&topology->chunks[tensor->first_chunk], tensor->n_chunks);
    return 0;
}

int topology_check(struct topology *topology, struct error *error)
{
    struct checker checker = {.topology = topology, .cover = {.error = error}, .error = error};
    checker.seen_by = metadata_array(topology->n_files, sizeof *checker.seen_by, error);
    int failed = checker.seen_by ? 0 : -1;
    for (size_t i = 0; i < topology->n_tensors && !failed; i++)
        failed = check_tensor(&checker, &topology->tensors[i]);
    if (!failed &&
        (!topology->world_size || topology->world_size > UINT32_MAX)) /* and no tensor is cut, which tells first */
        failed = fail(error, ERROR_DATA_LOSS, "MALFORMED_TOPOLOGY", "not a topology: world_size is the number of ranks");
    cover_fini(&checker.cover);
    metadata_free(checker.seen_by);
    metadata_free(checker.boxes);
    return failed;
}
