/* Lowers boxes with a list of levels (count, stride): the innermost is the row, the next one the rows of a run, and each
 * position of the levels outside them is a run of its own. */
#include "tests/support/mapping_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct mapping_fake {
    struct mapping mapping;
    struct artifact artifact;
    struct source source;
    uint64_t *file_ends;
    size_t tensors_capacity, runs_capacity;
};

struct level {
    uint64_t count, stride;
};

struct box {
    struct level levels[TENSOR_MAX_RANK + 1]; /* innermost first; levels[0] is the row in bytes */
    uint32_t n_levels;
    uint64_t first_byte;
};

struct mapping_fake *mapping_fake_create(const char *reference, uint32_t n_files, uint64_t data_offset)
{
    struct mapping_fake *fake = memory_alloc(sizeof *fake);
    arena_init(&fake->mapping.arena, 0);
    struct arena *arena = &fake->mapping.arena;
    fake->source.files = arena_array(arena, n_files, sizeof *fake->source.files);
    fake->source.n_files = n_files;
    fake->source.reference = fake->artifact.reference = arena_text(arena, reference, strlen(reference));
    fake->artifact.source = &fake->source;
    fake->mapping.artifact = &fake->artifact;
    fake->mapping.align_bytes = 64;
    fake->file_ends = arena_array(arena, n_files, sizeof *fake->file_ends);
    for (uint32_t i = 0; i < n_files; i++) {
        char name[64];
        int length = snprintf(name, sizeof name, "model-%05u-of-%05u.safetensors", i + 1, n_files);
        fake->source.files[i].name = arena_text(arena, name, (size_t)length);
        fake->file_ends[i] = data_offset;
    }
    return fake;
}

void mapping_fake_destroy(struct mapping_fake *fake)
{
    free(fake->mapping.tensors);
    free(fake->mapping.transfers);
    arena_fini(&fake->mapping.arena);
    free(fake);
}

static struct box lower(uint64_t element_bytes, uint32_t rank, const uint64_t *shape, const uint64_t *starts,
                        const uint64_t *stops)
{
    struct box box = {.levels = {{.count = element_bytes, .stride = 1}}, .n_levels = 1};
    uint64_t stride = element_bytes;
    for (uint32_t i = rank; i-- > 0;) {
        uint64_t start = starts ? starts[i] : 0, count = (stops ? stops[i] : shape[i]) - start;
        struct level *inner = &box.levels[box.n_levels - 1];
        box.first_byte += start * stride;
        if (stride == inner->count * inner->stride)
            inner->count *= count;
        else if (count != 1)
            box.levels[box.n_levels++] = (struct level){count, stride};
        stride *= shape[i];
    }
    return box;
}

static void add_runs(struct mapping_fake *fake, const struct box *box, uint32_t level, struct transfer run)
{
    if (level < 2) {
        struct mapping *mapping = &fake->mapping;
        ARRAY_RESERVE(mapping->transfers, mapping->n_transfers, fake->runs_capacity);
        run.dst_offset = mapping->replica_bytes;
        mapping->transfers[mapping->n_transfers++] = run;
        mapping->replica_bytes += run.n_rows * run.row_bytes;
        return;
    }
    for (uint64_t i = 0; i < box->levels[level].count; i++) {
        add_runs(fake, box, level - 1, run);
        run.src_offset += box->levels[level].stride;
    }
}

static enum job_kind kind_of(const struct box *box, uint64_t bytes, uint64_t wanted, bool outer_sliced)
{
    if (wanted == 0)
        return JOB_EMPTY;
    if (wanted == bytes)
        return JOB_REPLICATED;
    if (box->n_levels == 1)
        return JOB_DIM0;
    return box->n_levels == 2 && !outer_sliced ? JOB_DIM1 : JOB_RECT2D;
}

static uint64_t box_bytes(const struct box *box)
{
    uint64_t bytes = 1;
    for (uint32_t i = 0; i < box->n_levels; i++)
        bytes *= box->levels[i].count;
    return bytes;
}

void mapping_fake_add(struct mapping_fake *fake, uint32_t file, uint64_t element_bytes, uint32_t rank, const uint64_t *shape,
                      const uint64_t *starts, const uint64_t *stops)
{
    struct mapping *mapping = &fake->mapping;
    struct tensor_record *record = arena_alloc(&mapping->arena, sizeof *record);
    record->name = "t";
    record->name_length = 1;
    uint64_t offset = fake->file_ends[file];
    record->bytes = element_bytes;
    for (uint32_t i = 0; i < rank; i++)
        record->bytes *= shape[i];
    fake->file_ends[file] += record->bytes;
    fake->artifact.total_bytes += record->bytes;
    struct box box = lower(element_bytes, rank, shape, starts, stops);
    uint64_t wanted = box_bytes(&box);
    bool outer_sliced = rank && starts && (starts[0] || stops[0] != shape[0]);
    mapping->replica_bytes = (mapping->replica_bytes + 63) / 64 * 64;
    ARRAY_RESERVE(mapping->tensors, mapping->n_tensors, fake->tensors_capacity);
    mapping->tensors[mapping->n_tensors++] = (struct view_tensor){.record = record,
                                                                  .offset = mapping->replica_bytes,
                                                                  .bytes = wanted,
                                                                  .job = kind_of(&box, record->bytes, wanted, outer_sliced)};
    mapping->view_bytes += wanted;
    if (wanted == 0)
        return;
    struct level rows = box.n_levels > 1 ? box.levels[1] : (struct level){1, box.levels[0].count};
    add_runs(fake, &box, box.n_levels - 1,
             (struct transfer){.src_offset = offset + box.first_byte,
                               .row_bytes = box.levels[0].count,
                               .n_rows = rows.count,
                               .src_stride = rows.stride,
                               .dst_stride = box.levels[0].count,
                               .file = file,
                               .tensor = (uint32_t)(mapping->n_tensors - 1)});
}

void mapping_fake_skip(struct mapping_fake *fake, uint32_t file, uint64_t bytes)
{
    fake->file_ends[file] += bytes;
}

static int compare_runs(const void *a, const void *b)
{
    const struct transfer *left = a, *right = b;
    if (left->file != right->file)
        return left->file < right->file ? -1 : 1;
    return (left->src_offset > right->src_offset) - (left->src_offset < right->src_offset);
}

const struct mapping *mapping_fake_finish(struct mapping_fake *fake)
{
    struct mapping *mapping = &fake->mapping;
    size_t n_files = fake->source.n_files;
    if (mapping->n_transfers)
        qsort(mapping->transfers, mapping->n_transfers, sizeof *mapping->transfers, compare_runs);
    mapping->file_first = arena_array(&mapping->arena, n_files + 1, sizeof *mapping->file_first);
    for (size_t i = 0; i < mapping->n_transfers; i++)
        mapping->file_first[mapping->transfers[i].file + 1]++;
    for (size_t i = 0; i < n_files; i++) {
        mapping->file_first[i + 1] += mapping->file_first[i];
        fake->source.files[i].size_bytes = fake->file_ends[i];
    }
    return mapping;
}

void mapping_fake_add_bytes(struct mapping_fake *fake, uint32_t file, uint64_t bytes)
{
    mapping_fake_add(fake, file, 1, 1, (uint64_t[]){bytes}, NULL, NULL);
}

void mapping_fake_add_columns(struct mapping_fake *fake, uint32_t file, uint64_t rows, uint64_t row_bytes, uint64_t start,
                              uint64_t stop)
{
    mapping_fake_add(fake, file, 1, 2, (uint64_t[]){rows, row_bytes}, (uint64_t[]){0, start}, (uint64_t[]){rows, stop});
}
