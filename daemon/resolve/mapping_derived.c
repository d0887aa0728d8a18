/* Slices of derived tensors, lowered: each map is clipped to the slice, its tables are expanded, what is left is clipped to
 * the pieces of the stored tensor, and each part that comes out becomes runs. This is walked twice, to count
 * and to emit. Parts with scales get an operation of their own, whose grid is what the part needs and no more. */
#include <string.h>

#include "base/checked.h"
#include "base/metadata.h"
#include "base/text.h"
#include "resolve/derivation.h"
#include "resolve/mapping_build.h"

struct emitting;

struct walk { /* over one array */
    struct mapping_builder *builder;
    const struct tensor_record *record; /* of the tensor that it is done for */
    const struct index_array *array;
    const uint64_t *start, *size; /* the slice of it */
    const struct target *target;  /* whose strides count; NULL = C order without a gap */
    unsigned to_bits;
    const struct copy_choice *choice; /* which copy of a piece is read; NULL = that is being found out */
    /* part: NULL = of a tensor as it is stored, perhaps of no run */
    int (*take)(struct walk *walk, const struct index_draft *part, const struct tensor_piece *piece,
                const struct box_runs *runs);
    struct emitting *emitting; /* NULL = runs are counted */
    /* of the map at hand */
    const struct tensor_record *stored;
    const struct tensor_piece *piece;
    const uint64_t *src_start;            /* what lies at offset 0; NULL = zeros */
    unsigned from_bits, part_bits;        /* of one element, stored and derived */
    uint64_t src_stride[TENSOR_MAX_RANK]; /* in stored elements */
    int64_t dst_stride_bits[TENSOR_MAX_RANK];
};

static void fill_strides(uint32_t rank, const uint64_t *shape, uint64_t *strides)
{
    uint64_t n = 1;
    for (uint32_t i = rank; i-- > 0; n *= shape[i])
        strides[i] = n;
}

static int lower_part(void *data, const struct index_draft *part)
{
    struct walk *walk = data;
    const struct tensor_piece *piece = walk->choice ? copy_choice_find(walk->choice, walk->piece) : walk->piece;
    struct loop_nest nest = {.n_loops = part->n_loops};
    struct box_runs runs;
    uint64_t dst = 0;
    for (uint32_t i = 0; i < part->src_rank; i++)
        nest.src +=
            (part->src_start[i] - (walk->src_start ? walk->src_start[i] : 0)) * walk->src_stride[i] * walk->from_bits;
    for (uint32_t i = 0; i < walk->array->rank; i++)
        dst += (part->dst_start[i] - walk->start[i]) * (uint64_t)walk->dst_stride_bits[i];
    nest.dst = (int64_t)dst;
    for (uint32_t i = 0; i < part->n_loops; i++) {
        const struct index_loop *loop = &part->loops[i];
        nest.loops[i] = (struct nest_loop){loop->size, loop->src_step * walk->src_stride[loop->src_dim] * walk->from_bits,
                                           (int64_t)(loop->dst_step * (uint64_t)walk->dst_stride_bits[loop->dst_dim])};
    }
    return box_lower_nest(&nest, walk->from_bits, walk->part_bits, &runs)
               ? walk->take(walk, part, piece, &runs)
               : mapping_fail_sub_byte(walk->builder, walk->record);
}

static int clip_to_pieces(void *data, const struct index_draft *part)
{
    struct walk *walk = data;
    const struct tensor_record *stored = walk->stored;
    const struct index_taker taker = {lower_part, walk};
    for (uint32_t k = 0; k < stored->n_pieces; k++) {
        walk->piece = artifact_piece(walk->builder->artifact, stored, k);
        if (!walk->piece->box) {
            if (lower_part(walk, part) < 0)
                return -1;
            continue;
        }
        const uint64_t *box = walk->piece->box;
        fill_strides(stored->rank, box + stored->rank, walk->src_stride);
        walk->src_start = box;
        if (index_clip(part, INDEX_SRC, stored->rank, box, box + stored->rank, &taker) < 0)
            return -1;
    }
    return 0;
}

static int expand_tables(void *data, const struct index_draft *part)
{
    return index_expand_tables(part, &(struct index_taker){clip_to_pieces, data});
}

static int walk_array(struct walk *walk)
{
    const struct index_array *array = walk->array;
    const struct index_taker taker = {expand_tables, walk};
    for (size_t m = 0; m < array->n_maps; m++) {
        struct index_draft draft;
        const struct index_map *map = &array->maps[m];
        walk->stored = artifact_stored(walk->builder->artifact, map->source);
        if (map->src_rank == 1) /* flat, or of one dimension: the same */
            walk->src_stride[0] = 1;
        else
            fill_strides(map->src_rank, walk->stored->shape, walk->src_stride);
        walk->src_start = NULL;
        walk->from_bits = dtype_bits(walk->stored->dtype);
        walk->part_bits = map->operation ? walk->to_bits : walk->from_bits;
        uint64_t n = walk->part_bits;
        for (uint32_t i = array->rank; i-- > 0; n *= walk->size[i])
            walk->dst_stride_bits[i] = (int64_t)n;
        uint32_t n_strided = walk->target ? array->rank : 0;
        if (walk->target)
            target_row(walk->target, &n_strided);
        for (uint32_t i = 0; i < n_strided; i++)
            walk->dst_stride_bits[i] = walk->target->dims[i] == 1 ? 0 : walk->target->strides[i] * 8;
        index_draft(map, array->rank, &draft);
        if (index_clip(&draft, INDEX_DST, array->rank, walk->start, walk->size, &taker) < 0)
            return -1;
    }
    return 0;
}

/* The slice of a tensor of the view. */
static int walk_tensor(struct walk *walk, const struct mapping_slice *slice)
{
    const struct artifact *artifact = walk->builder->artifact;
    const struct tensor_record *record = walk->record = slice->record;
    const struct derived_tensor *derived = &artifact->derivation->tensors[record - artifact->derivation->records];
    const struct index_array array = {record->rank, record->shape, derived->maps, derived->n_maps};
    const struct tensor_record *stored = artifact_stored(artifact, derived->source);
    const struct mapping_slice same = {stored, slice->start, slice->size, slice->target};
    struct box_runs runs;
    walk->array = &array;
    walk->start = slice->start;
    walk->size = slice->size;
    walk->target = slice->target;
    walk->to_bits = dtype_bits(record->dtype);
    for (uint32_t k = 0; k < stored->n_pieces && derived->is_stored; k++) {
        const struct tensor_piece *piece = artifact_piece(artifact, stored, k);
        if (!mapping_lower_slice(&same, piece->box, &runs))
            return mapping_fail_sub_byte(walk->builder, record);
        if (walk->take(walk, NULL, walk->choice ? copy_choice_find(walk->choice, piece) : piece, &runs) < 0)
            return -1;
    }
    return derived->is_stored ? 0 : walk_array(walk);
}

static int take_count(struct walk *walk, const struct index_draft *part, const struct tensor_piece *piece,
                      const struct box_runs *runs)
{
    (void)part;
    if (runs->n_runs)
        copy_choice_want(&walk->builder->choice, piece);
    return mapping_count(walk->builder, walk->record, runs->n_runs);
}

int mapping_derived_count(struct mapping_builder *builder, const struct mapping_slice *slice)
{
    return walk_tensor(&(struct walk){.builder = builder, .take = take_count}, slice);
}

/* --- operations ----------------------------------------------------------------------------------------------------- */

struct emitting {
    struct mapping_builder *builder;
    const struct derivation *derivation;
    struct transfer *out;
    uint32_t index;               /* in the view */
    uint32_t *operation_of_chain; /* of chains without scales; 0 = not made yet */
    size_t operation_capacity, grid_capacity, scale_capacity;
    const struct tensor_piece *last_piece; /* whose scales the last operation has */
    uint32_t last_chain;
};

/* Arrays grow by metadata_reserve() and move to the mapping's arena at the end. */
static int add_operation(struct emitting *emitting, const struct operation *operation, uint32_t *index)
{
    struct mapping *mapping = emitting->builder->mapping;
    struct error *error = emitting->builder->error;
    const struct tensor_record *record = emitting->builder->mapping->tensors[emitting->index].record;
    if (mapping->n_operations >= OPERATION_MAX_PER_MAPPING) {
        fail(error, ERROR_UNIMPLEMENTED, "TOO_MANY_OPERATIONS",
             "tensor %s: the view needs more than %d different conversions; load fewer tensors at once",
             text_show_bytes(record->name, record->name_length), OPERATION_MAX_PER_MAPPING);
        return error_note_tensor(error, record->name, record->name_length);
    }
    if (METADATA_RESERVE(mapping->operations, mapping->n_operations, emitting->operation_capacity, error) < 0)
        return -1;
    *index = (uint32_t)mapping->n_operations;
    mapping->operations[mapping->n_operations++] = *operation;
    return 0;
}

static struct operation operation_of(const struct element_chain *chain)
{
    struct operation operation = {.from = chain->from,
                                  .to = chain->n_steps ? chain->steps[chain->n_steps - 1].to : chain->from,
                                  .from_bytes = dtype_bits(chain->from) / 8,
                                  .n_steps = chain->n_steps};
    operation.to_bytes = dtype_bits(operation.to) / 8;
    for (uint32_t i = 0; i < chain->n_steps; i++)
        operation.steps[i].to = chain->steps[i].to;
    return operation;
}

/* --- scales --------------------------------------------------------------------------------------------------------- */

struct blocks { /* of a part: both ends included */
    struct index_range rows, columns;
};

/* Rows and columns of a part of a flat map. Reshapes may have joined rows that follow each other without a gap: then loops
 * know nothing of rows, and all columns count. */
static void measure_flat(const struct index_draft *part, const struct scaling *scaling, struct blocks *found)
{
    uint64_t step = scaling->row_step, at = part->src_start[0] - scaling->src_start[0], row = at / step, column = at % step;
    uint64_t rows = 0, columns = 0; /* that the loops reach */
    for (uint32_t i = 0; i < part->n_loops; i++) {
        uint64_t reach = (part->loops[i].size - 1) * part->loops[i].src_step;
        if (part->loops[i].src_step % step == 0)
            rows += reach / step;
        else
            columns += reach;
    }
    if (column + columns >= step) {
        rows += (column + columns) / step;
        column = 0;
        columns = step - 1;
    }
    row += scaling->first_row;
    column += scaling->first_column;
    found->rows = (struct index_range){row, row + rows};
    found->columns = (struct index_range){column, column + columns};
}

/* Where the elements of a part lie in the matrix, in blocks; and the grid except for its values. */
static struct blocks measure_part(const struct walk *walk, const struct index_draft *part, const struct scaling *scaling,
                                  const struct tensor_piece *piece, struct scale_grid *grid)
{
    uint64_t bytes = dtype_bits(walk->stored->dtype) / 8;
    struct blocks found;
    if (part->src_rank == 1) {
        measure_flat(part, scaling, &found);
        grid->origin = piece->offset + scaling->src_start[0] * bytes;
        grid->n_columns = scaling->row_step;
        grid->first_row = scaling->first_row;
        grid->first_column = scaling->first_column;
    } else {
        uint32_t row = part->src_rank - 2, column = part->src_rank - 1;
        uint64_t to_row = scaling->first_row - scaling->src_start[row]; /* may wrap around, and back where it is added */
        uint64_t to_column = scaling->first_column - scaling->src_start[column], outer = 0;
        const struct index_range rows = index_extent(part, INDEX_SRC, row);
        const struct index_range columns = index_extent(part, INDEX_SRC, column);
        found.rows = (struct index_range){rows.first + to_row, rows.last + to_row};
        found.columns = (struct index_range){columns.first + to_column, columns.last + to_column};
        for (uint32_t i = 0; i < row; i++)
            outer += (part->src_start[i] - piece->box[i]) * walk->src_stride[i];
        grid->origin = piece->offset + outer * bytes;
        grid->n_columns = piece->box[part->src_rank + column];
        grid->first_row = piece->box[row] + to_row;
        grid->first_column = piece->box[column] + to_column;
    }
    grid->block_rows = scaling->block_rows;
    grid->block_columns = scaling->block_columns;
    grid->dtype = scaling->scales_dtype;
    struct blocks blocks = {{found.rows.first / grid->block_rows, found.rows.last / grid->block_rows},
                            {found.columns.first / grid->block_columns, found.columns.last / grid->block_columns}};
    grid->grid_rows = blocks.rows.last - blocks.rows.first + 1;
    grid->grid_columns = blocks.columns.last - blocks.columns.first + 1;
    grid->first_row -= blocks.rows.first * grid->block_rows; /* values begin with the first block that is needed */
    grid->first_column -= blocks.columns.first * grid->block_columns;
    return blocks;
}

static int take_scales(struct walk *walk, const struct index_draft *part, const struct tensor_piece *piece,
                       const struct box_runs *runs)
{
    struct emitting *emitting = walk->emitting;
    struct scales *scales = &emitting->builder->mapping->scales;
    (void)part;
    for (uint64_t i = 0; i < runs->n_runs; i++) {
        struct box_runs one = *runs;
        box_run_offsets(runs, i, &one.src_offset, &one.dst_offset);
        one.n_runs = 1;
        one.n_outer = 0;
        if (mapping_count(emitting->builder, walk->record, 1) < 0 ||
            METADATA_RESERVE(scales->transfers, scales->n_transfers, emitting->scale_capacity, emitting->builder->error) < 0)
            return -1;
        mapping_emit(&one, piece, scales->bytes, emitting->index, OPERATION_COPY, &scales->transfers[scales->n_transfers++]);
    }
    return 0;
}

static int add_scales(struct emitting *emitting, const struct scaling *scaling, const struct blocks *blocks,
                      struct scale_grid *grid)
{
    struct mapping *mapping = emitting->builder->mapping;
    struct scales *scales = &mapping->scales;
    uint64_t start[2] = {blocks->rows.first, blocks->columns.first}, size[2] = {grid->grid_rows, grid->grid_columns};
    struct walk walk = {.builder = emitting->builder,
                        .record = mapping->tensors[emitting->index].record,
                        .array = &scaling->scales,
                        .start = start,
                        .size = size,
                        .choice = &emitting->builder->choice,
                        .take = take_scales,
                        .emitting = emitting};
    grid->values = arena_try_array(&mapping->arena, size[0] * size[1], sizeof *grid->values, emitting->builder->error);
    if (!grid->values || walk_array(&walk) < 0 ||
        METADATA_RESERVE(scales->grids, scales->n_grids, emitting->grid_capacity, emitting->builder->error) < 0)
        return -1;
    grid->scales_offset = scales->bytes;
    scales->grids[scales->n_grids++] = grid;
    scales->bytes += size[0] * size[1] * dtype_bits(scaling->scales_dtype) / 8;
    return 0;
}

static int scale_part(const struct walk *walk, const struct index_draft *part, const struct tensor_piece *piece,
                      uint32_t *index)
{
    struct emitting *emitting = walk->emitting;
    struct mapping *mapping = emitting->builder->mapping;
    const struct element_chain *chain = &emitting->derivation->chains[part->operation];
    struct operation operation = operation_of(chain);
    bool is_known = emitting->last_piece == piece && emitting->last_chain == part->operation;
    struct operation *last = is_known ? &mapping->operations[mapping->n_operations - 1] : NULL;
    for (uint32_t i = 0; i < chain->n_steps; i++) {
        if (chain->steps[i].scaling == NO_SCALING)
            continue;
        const struct scaling *scaling = &emitting->derivation->scalings[chain->steps[i].scaling];
        struct scale_grid grid = {0};
        const struct blocks blocks = measure_part(walk, part, scaling, piece, &grid);
        const struct scale_grid *known = last ? last->steps[i].grid : NULL;
        if (known && known->origin == grid.origin && known->n_columns == grid.n_columns &&
            known->first_row == grid.first_row && known->first_column == grid.first_column &&
            known->grid_rows == grid.grid_rows &&
            known->grid_columns == grid.grid_columns) { /* the same blocks of the same box */
            operation.steps[i].grid = known;
            continue;
        }
        struct scale_grid *kept = arena_try_array(&mapping->arena, 1, sizeof *kept, emitting->builder->error);
        if (!kept)
            return -1;
        *kept = grid;
        if (add_scales(emitting, scaling, &blocks, kept) < 0)
            return -1;
        operation.steps[i].grid = kept;
        is_known = false;
    }
    emitting->last_piece = piece;
    emitting->last_chain = part->operation;
    *index = (uint32_t)(mapping->n_operations - 1);
    return is_known ? 0 : add_operation(emitting, &operation, index);
}

static int find_operation(const struct walk *walk, const struct index_draft *part, const struct tensor_piece *piece,
                          uint32_t *index)
{
    struct emitting *emitting = walk->emitting;
    *index = OPERATION_COPY;
    if (!part || !part->operation)
        return 0;
    const struct element_chain *chain = &emitting->derivation->chains[part->operation];
    for (uint32_t i = 0; i < chain->n_steps; i++)
        if (chain->steps[i].scaling != NO_SCALING)
            return scale_part(walk, part, piece, index);
    const struct operation operation = operation_of(chain);
    uint32_t *known = &emitting->operation_of_chain[part->operation];
    if (!*known && add_operation(emitting, &operation, known) < 0)
        return -1;
    *index = *known;
    return 0;
}

/* --- emitting ------------------------------------------------------------------------------------------------------- */

static int take_transfers(struct walk *walk, const struct index_draft *part, const struct tensor_piece *piece,
                          const struct box_runs *runs)
{
    struct emitting *emitting = walk->emitting;
    const struct view_tensor *tensor = &emitting->builder->mapping->tensors[emitting->index];
    uint32_t operation;
    if (find_operation(walk, part, piece, &operation) < 0)
        return -1;
    emitting->out = mapping_emit(runs, piece, tensor->offset, emitting->index, operation, emitting->out);
    return 0;
}

/* From memory that grew to the arena. */
static void *move_to_arena(struct mapping *mapping, void *items, size_t n, size_t size, struct error *error)
{
    void *kept = arena_try_array(&mapping->arena, n, size, error);
    if (kept && n)
        memcpy(kept, items, n * size);
    metadata_free(items);
    return kept;
}

static int settle(struct emitting *emitting, int failed)
{
    struct mapping *mapping = emitting->builder->mapping;
    struct scales *scales = &mapping->scales;
    struct error ignored = {0}, *error = failed ? &ignored : emitting->builder->error;
    mapping->operations =
        move_to_arena(mapping, mapping->operations, mapping->n_operations, sizeof *mapping->operations, error);
    scales->transfers = move_to_arena(mapping, scales->transfers, scales->n_transfers, sizeof *scales->transfers, error);
    scales->grids = move_to_arena(mapping, scales->grids, scales->n_grids, sizeof *scales->grids, error);
    if (mapping->n_operations == 1) {
        mapping->operations = NULL;
        mapping->n_operations = 0;
        return failed;
    }
    return failed || !mapping->operations || !scales->transfers || !scales->grids ? -1 : 0;
}

int mapping_derived_emit(struct mapping_builder *builder)
{
    struct mapping *mapping = builder->mapping;
    const struct operation copy = {0};
    struct emitting emitting = {.builder = builder, .derivation = builder->artifact->derivation};
    uint32_t index;
    copy_choice_settle(&builder->choice);
    mapping->transfers = arena_try_array(&mapping->arena, builder->n_transfers, sizeof *mapping->transfers, builder->error);
    emitting.out = mapping->transfers;
    emitting.operation_of_chain =
        metadata_array(emitting.derivation->n_chains, sizeof *emitting.operation_of_chain, builder->error);
    int failed = !mapping->transfers || !emitting.operation_of_chain || add_operation(&emitting, &copy, &index) < 0 ? -1 : 0;
    for (size_t i = 0; i < mapping->n_tensors && !failed; i++) {
        emitting.index = (uint32_t)i;
        emitting.last_piece = NULL;
        const struct mapping_slice slice = mapping_slice(builder, i);
        failed = walk_tensor(
            &(struct walk){.builder = builder, .choice = &builder->choice, .take = take_transfers, .emitting = &emitting},
            &slice);
    }
    failed = settle(&emitting, failed);
    metadata_free(emitting.operation_of_chain);
    if (failed)
        return failed;
    mapping->n_transfers = (size_t)(emitting.out - mapping->transfers);
    return mapping_order(mapping, builder->error);
}
