/* Random views of random tensors, whole or in random pieces: the transfers of a mapping move exactly the bytes that an
 * element-by-element walk moves, in file order, disjoint on both sides, within the bounds the mapping states. So do those to
 * targets with random strides in two regions. Prints its seed; TEST_SEED repeats a run. */
#include "tests/support/unit.h"

#include <time.h>

#include "resolve/mapping.h"
#include "tests/support/source_memory.h"
#include "tests/support/pieces.h"
#include "tests/support/random_cases.h"
#include "tests/support/transfer_apply.h"

enum {
    N_CASES = RANDOM_CASES(20000),
    MAX_TENSORS = 6,
    MAX_RANK = 6,
    MAX_CUTS = 3,
    MAX_PARTS = MAX_TENSORS << MAX_CUTS,
    N_FILES = 3
};
enum { FILE_ROOM = 1 << 20, HEADER_ROOM = 1 << 16 };

static uint64_t random_state;
static size_t n_spread;    /* transfers that are not packed where they go to */
static size_t n_backwards; /* whose rows go backwards there */

static uint64_t random_below(uint64_t n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state * 0x2545F4914F6CDD1Du >> 33) % n;
}

struct part { /* of a tensor, stored as a tensor of its own */
    size_t tensor, file;
    bool is_whole;
    uint64_t start[MAX_RANK], size[MAX_RANK];
};

struct model { /* one random checkpoint in a few files, and a random view of it */
    size_t n_tensors;
    char names[MAX_TENSORS][32];
    enum dtype dtypes[MAX_TENSORS];
    uint32_t ranks[MAX_TENSORS];
    uint64_t shapes[MAX_TENSORS][MAX_RANK];
    struct view_item items[MAX_TENSORS];
    struct slice slices[MAX_TENSORS][MAX_RANK];
    size_t tensor_of_item[MAX_TENSORS];
    size_t n_items;
    unsigned char *values[MAX_TENSORS];
    struct part parts[MAX_PARTS]; /* in no order */
    size_t n_parts;
    unsigned char *files[N_FILES];
    uint64_t file_bytes[N_FILES];
};

static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_BF16, DTYPE_F32, DTYPE_C64, DTYPE_BOOL};

static void make_tensors(struct model *model)
{
    static const uint64_t extents[] = {0, 1, 1, 2, 3, 4, 5, 7};
    model->n_tensors = 1 + random_below(MAX_TENSORS);
    for (size_t i = 0; i < model->n_tensors; i++) {
        snprintf(model->names[i], sizeof model->names[i], "layer.%zu.w", i);
        model->dtypes[i] = dtypes[random_below(sizeof dtypes / sizeof *dtypes)];
        model->ranks[i] = (uint32_t)random_below(MAX_RANK + 1);
        for (uint32_t d = 0; d < model->ranks[i]; d++)
            model->shapes[i][d] = extents[random_below(20) == 0 ? 0 : 1 + random_below(7)];
    }
}

static uint64_t tensor_bytes(const struct model *model, size_t i)
{
    uint64_t bytes = dtype_bits(model->dtypes[i]) / 8;
    for (uint32_t d = 0; d < model->ranks[i]; d++)
        bytes *= model->shapes[i][d];
    return bytes;
}

/* Half of the tensors are cut in two, up to three times. */
static void cut_tensor(struct model *model, size_t t)
{
    size_t first = model->n_parts++;
    struct part *whole = &model->parts[first];
    *whole = (struct part){.tensor = t, .is_whole = model->ranks[t] == 0 || random_below(2) == 0};
    memcpy(whole->size, model->shapes[t], sizeof whole->size);
    for (size_t cuts = 0; !whole->is_whole && cuts < MAX_CUTS; cuts++) {
        uint32_t d = (uint32_t)random_below(model->ranks[t]);
        uint64_t at = random_below(model->shapes[t][d] + 1);
        for (size_t i = first, n = model->n_parts; i < n; i++) {
            struct part *part = &model->parts[i], *rest = &model->parts[model->n_parts];
            if (at <= part->start[d] || at >= part->start[d] + part->size[d])
                continue;
            *rest = *part;
            rest->start[d] = at;
            rest->size[d] = part->start[d] + part->size[d] - at;
            part->size[d] = at - part->start[d];
            model->n_parts++;
        }
    }
}

static void cut_tensors(struct model *model)
{
    for (size_t t = 0; t < model->n_tensors; t++) {
        uint64_t bytes = tensor_bytes(model, t);
        model->values[t] = malloc(bytes + 1);
        for (uint64_t i = 0; i < bytes; i++)
            model->values[t][i] = (unsigned char)random_below(256);
        cut_tensor(model, t);
    }
    for (size_t i = 0; i < model->n_parts; i++) {
        size_t other = random_below(i + 1);
        struct part part = model->parts[i];
        model->parts[i] = model->parts[other];
        model->parts[other] = part;
        model->parts[other].file = random_below(N_FILES);
        model->parts[i].file = random_below(N_FILES);
    }
}

static bool is_inside(const struct model *model, size_t t, uint64_t element, const uint64_t *start, const uint64_t *size)
{
    for (uint32_t d = model->ranks[t]; d-- > 0; element /= model->shapes[t][d]) {
        uint64_t at = element % model->shapes[t][d];
        if (at < start[d] || at - start[d] >= size[d])
            return false;
    }
    return true;
}

/* Copies the elements of a box one by one; returns their bytes. */
static uint64_t copy_elements(const struct model *model, size_t t, const uint64_t *start, const uint64_t *size,
                              unsigned char *out)
{
    uint64_t element = dtype_bits(model->dtypes[t]) / 8, n_elements = tensor_bytes(model, t) / element, written = 0;
    for (uint64_t i = 0; i < n_elements; i++) {
        if (!is_inside(model, t, i, start, size))
            continue;
        memcpy(out + written, model->values[t] + i * element, element);
        written += element;
    }
    return written;
}

static char *print_numbers(char *out, const uint64_t *numbers, uint32_t n)
{
    for (uint32_t d = 0; d < n; d++)
        out += sprintf(out, "%s%llu", d ? "," : "", (unsigned long long)numbers[d]);
    return out;
}

static void write_file(struct model *model, size_t file)
{
    static const char *const names[N_FILES] = {"a.safetensors", "b.safetensors", "c.safetensors"};
    static char header[HEADER_ROOM];
    static unsigned char data[FILE_ROOM];
    char *out = header;
    uint64_t end = 0;
    *out++ = '{';
    for (size_t i = 0; i < model->n_parts; i++) {
        const struct part *part = &model->parts[i];
        if (part->file != file)
            continue;
        uint64_t bytes = copy_elements(model, part->tensor, part->start, part->size, data + end);
        out += sprintf(out, "%s\"%s%s", out[-1] == '{' ? "" : ",", model->names[part->tensor], part->is_whole ? "" : "@");
        out = print_numbers(out, part->start, part->is_whole ? 0 : model->ranks[part->tensor]);
        out += sprintf(out, "\":{\"dtype\":\"%s\",\"shape\":[", dtype_name(model->dtypes[part->tensor]));
        out = print_numbers(out, part->size, model->ranks[part->tensor]);
        out += sprintf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)end, (unsigned long long)(end + bytes));
        end += bytes;
    }
    strcpy(out, "}");
    uint64_t length = strlen(header);
    model->file_bytes[file] = 8 + length + end;
    model->files[file] = malloc(model->file_bytes[file]);
    memcpy(model->files[file], &length, 8);
    memcpy(model->files[file] + 8, header, length);
    memcpy(model->files[file] + 8 + length, data, end);
    source_memory_put("model", names[file], model->files[file], model->file_bytes[file]);
}

static int64_t random_bound(uint64_t extent)
{
    int64_t range = (int64_t)extent + 2;
    return (int64_t)random_below((uint64_t)(2 * range + 1)) - range;
}

static void make_view(struct model *model)
{
    size_t order[MAX_TENSORS];
    for (size_t i = 0; i < model->n_tensors; i++) {
        size_t j = random_below(i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    model->n_items = 1 + random_below(model->n_tensors);
    for (size_t i = 0; i < model->n_items; i++) {
        size_t t = order[i];
        bool whole = random_below(4) == 0;
        for (uint32_t d = 0; d < model->ranks[t]; d++) {
            struct slice *slice = &model->slices[i][d];
            slice->start = random_below(4) ? random_bound(model->shapes[t][d]) : 0;
            slice->stop = random_below(4) ? random_bound(model->shapes[t][d]) : INT64_MAX;
        }
        model->tensor_of_item[i] = t;
        model->items[i] = (struct view_item){.name = model->names[t],
                                             .name_length = strlen(model->names[t]),
                                             .n_slices = whole ? 0 : model->ranks[t],
                                             .slices = model->slices[i]};
    }
}

/* NumPy's rule for one bound, written anew. */
static uint64_t bound(int64_t value, uint64_t extent)
{
    if (value == INT64_MAX || value > (int64_t)extent)
        return extent;
    if (value < 0)
        value += (int64_t)extent;
    return value < 0 ? 0 : (uint64_t)value;
}

/* Copies the view's elements of item i one by one to `out`; returns the bytes and checks the shape. */
static uint64_t walk_elements(const struct model *model, size_t i, const struct view_tensor *got, unsigned char *out)
{
    size_t t = model->tensor_of_item[i];
    uint64_t first[MAX_RANK], size[MAX_RANK];
    for (uint32_t d = 0; d < model->ranks[t]; d++) {
        bool sliced = model->items[i].n_slices != 0;
        uint64_t last = sliced ? bound(model->slices[i][d].stop, model->shapes[t][d]) : model->shapes[t][d];
        first[d] = sliced ? bound(model->slices[i][d].start, model->shapes[t][d]) : 0;
        size[d] = last > first[d] ? last - first[d] : 0;
        assert_int_equal(got->shape[d], size[d]);
    }
    return copy_elements(model, t, first, size, out);
}

static void check_transfers(const struct mapping *mapping, const struct model *model, unsigned char *replica)
{
    uint64_t moved = 0;
    assert_int_equal(mapping->file_first[0], 0);
    assert_int_equal(mapping->file_first[mapping->artifact->source->n_files], mapping->n_transfers);
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        assert_true(transfer->row_bytes > 0 && transfer->n_rows > 0 && transfer->src_stride >= transfer->row_bytes);
        assert_true(transfer->dst_stride >= (int64_t)transfer->row_bytes &&
                    transfer_dst_end(transfer, transfer->row_bytes) <= mapping->replica_bytes);
        assert_true(transfer->n_rows > 1 ||
                    (transfer->src_stride == transfer->row_bytes && transfer->dst_stride == (int64_t)transfer->row_bytes));
        assert_true(i >= mapping->file_first[transfer->file] && i < mapping->file_first[transfer->file + 1]);
        assert_true(transfer_end(transfer) <= model->file_bytes[transfer->file]);
        if (i && mapping->transfers[i - 1].file == transfer->file)
            assert_true(transfer_end(&mapping->transfers[i - 1]) <= transfer->src_offset);
        assert_int_equal(transfer->operation, OPERATION_COPY);
        transfer_apply(transfer, NULL, model->files[transfer->file], replica);
        moved += transfer_bytes(transfer);
        n_spread += transfer->dst_stride > (int64_t)transfer->row_bytes;
    }
    assert_int_equal(moved, mapping->view_bytes);
}

/* No two share a byte, whatever their order, and what lies between them is never written: zero in the replica. */
static void check_places(const struct mapping *mapping, const unsigned char *replica)
{
    static unsigned char taken[FILE_ROOM + (1 << 16)];
    uint64_t align = mapping->align_bytes, end = 0;
    assert_true(mapping->replica_bytes < sizeof taken);
    memset(taken, 0, mapping->replica_bytes + 1);
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        uint64_t element = dtype_bits(tensor->record->dtype) / 8;
        assert_int_equal(tensor->offset % (align ? align : element), 0);
        assert_true(tensor->offset + tensor->bytes <= mapping->replica_bytes);
        end = tensor->offset + tensor->bytes > end ? tensor->offset + tensor->bytes : end;
        for (uint64_t at = tensor->offset; at < tensor->offset + tensor->bytes; at++)
            assert_int_equal(taken[at]++, 0);
    }
    assert_int_equal(end, mapping->replica_bytes);
    for (uint64_t at = 0; at < mapping->replica_bytes; at++)
        assert_true(taken[at] || !replica[at]);
}

static void check_tensors(const struct mapping *mapping, const struct model *model, const unsigned char *replica)
{
    static unsigned char wanted[FILE_ROOM];
    uint64_t end = 0;
    for (size_t i = 0; i < mapping->n_tensors; i++) {
        const struct view_tensor *tensor = &mapping->tensors[i];
        uint64_t bytes = walk_elements(model, i, tensor, wanted);
        assert_string_equal(tensor->record->name, model->items[i].name);
        assert_int_equal(tensor->bytes, bytes);
        if (mapping->placement == PLACEMENT_PACKED)
            assert_int_equal(tensor->offset, (end + mapping->align_bytes - 1) / mapping->align_bytes * mapping->align_bytes);
        assert_memory_equal(replica + tensor->offset, wanted, bytes);
        assert_int_equal(tensor->job == JOB_EMPTY, bytes == 0);
        end = tensor->offset + bytes;
    }
    assert_true(mapping->placement == PLACEMENT_SOURCE || end == mapping->replica_bytes);
}

/* --- targets --------------------------------------------------------------------------------------------------------- */

enum { N_REGIONS = 2, UNTOUCHED = 0xEE, REGION_ROOM = 4 * FILE_ROOM }; /* random strides leave gaps of their own */

struct goal { /* the targets of a view */
    struct target_region regions[N_REGIONS];
    struct target_list list;
    struct target targets[MAX_TENSORS];
    struct target_fill fills[1];
    int64_t strides[MAX_TENSORS][MAX_RANK];
    uint64_t used[N_REGIONS];
    uint64_t steps[MAX_TENSORS], phases[MAX_TENSORS]; /* between elements; which of them a target has */
    uint64_t fill_dims[2];
    int64_t fill_strides[2];
};

static uint64_t span_of(const struct target *target)
{
    uint64_t span = dtype_bits(target->dtype) / 8;
    for (uint32_t d = 0; d < target->rank; d++)
        span += target->dims[d] ? (target->dims[d] - 1) * (uint64_t)llabs(target->strides[d]) : 0;
    return span;
}

static bool is_twin(const struct target *a, const struct target *b)
{
    return a->rank > 0 && a->rank == b->rank && a->dtype == b->dtype &&
           memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

/* Dimensions in any order, with gaps between them, some backwards. */
static void choose_strides(struct goal *goal, size_t i)
{
    struct target *target = &goal->targets[i];
    uint32_t order[MAX_RANK];
    goal->steps[i] = 1 + random_below(3);
    goal->phases[i] = 0;
    uint64_t pitch = dtype_bits(target->dtype) / 8 * goal->steps[i];
    bool is_plain = random_below(4) == 0;
    for (uint32_t d = 0; d < target->rank; d++) {
        uint32_t at = is_plain ? 0 : (uint32_t)random_below(d + 1);
        order[d] = order[at];
        order[at] = d;
    }
    for (uint32_t n = 0; n < target->rank; n++) {
        uint32_t d = is_plain ? target->rank - 1 - n : order[n];
        goal->strides[i][d] = (int64_t)pitch * (!is_plain && random_below(4) == 0 ? -1 : 1);
        pitch = pitch * (target->dims[d] ? target->dims[d] : 1) + (random_below(3) ? 0 : random_below(5));
    }
}

static void place_target(struct goal *goal, const struct view_tensor *tensor, size_t i)
{
    struct target *target = &goal->targets[i], *last = i ? target - 1 : NULL;
    *target = (struct target){
        .dtype = tensor->record->dtype, .rank = tensor->record->rank, .dims = tensor->shape, .strides = goal->strides[i]};
    if (last && is_twin(last, target) && goal->phases[i - 1] + 1 < goal->steps[i - 1] && tensor->bytes) { /* in its gaps */
        target->strides = last->strides;
        target->region = last->region;
        target->offset = last->offset + dtype_bits(target->dtype) / 8;
        goal->steps[i] = goal->steps[i - 1];
        goal->phases[i] = goal->phases[i - 1] + 1;
        return;
    }
    choose_strides(goal, i);
    uint64_t element = dtype_bits(target->dtype) / 8;
    target->region = (uint32_t)random_below(N_REGIONS);
    target->offset = goal->used[target->region] + random_below(9);
    goal->used[target->region] = target->offset + span_of(target) + element * (goal->steps[i] - 1);
    for (uint32_t d = 0; d < target->rank; d++)
        if (target->strides[d] < 0 && target->dims[d])
            target->offset += (target->dims[d] - 1) * (uint64_t)-target->strides[d];
}

static void place_fill(struct goal *goal)
{
    static const unsigned char values[2][4] = {{1, 2, 3, 4}, {7, 7, 7, 7}};
    goal->fill_dims[0] = 1 + random_below(3);
    goal->fill_dims[1] = 1 + random_below(5);
    goal->fill_strides[0] = 50;
    goal->fill_strides[1] = -(int64_t)(4 + random_below(5));
    goal->fills[0] = (struct target_fill){.target = {.name = "fill",
                                                     .name_length = 4,
                                                     .dtype = DTYPE_F32,
                                                     .rank = 2,
                                                     .dims = goal->fill_dims,
                                                     .strides = goal->fill_strides,
                                                     .offset = goal->used[0] + 50},
                                          .value = values[random_below(2)],
                                          .value_bytes = 4};
    goal->used[0] += 50 + 2 * 50 + 4;
}

static void make_goal(struct goal *goal, const struct mapping *packed)
{
    struct error error;
    *goal = (struct goal){0};
    for (size_t i = 0; i < packed->n_tensors; i++)
        place_target(goal, &packed->tensors[i], i);
    place_fill(goal);
    for (size_t r = 0; r < N_REGIONS; r++)
        goal->regions[r].bytes = goal->used[r];
    goal->list = (struct target_list){.regions = goal->regions,
                                      .n_regions = N_REGIONS,
                                      .tensors = goal->targets,
                                      .n_tensors = packed->n_tensors,
                                      .fills = goal->fills,
                                      .n_fills = random_below(2)};
    assert_int_equal(target_place_regions(&goal->list, &error), 0);
}

/* `values`: of the elements in C order, `value_step` bytes apart. */
static void put_elements(const struct target *target, unsigned char *region, const unsigned char *values,
                         uint64_t value_step)
{
    uint64_t element = dtype_bits(target->dtype) / 8, n = 1;
    for (uint32_t d = 0; d < target->rank; d++)
        n *= target->dims[d];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t at = target->offset, rest = i;
        for (uint32_t d = target->rank; d-- > 0; rest /= target->dims[d])
            at += rest % target->dims[d] * (uint64_t)target->strides[d];
        memcpy(region + at, values + i * value_step, element);
    }
}

static void write_fills(const struct mapping *mapping, unsigned char *space)
{
    for (size_t i = 0; i < mapping->n_fills; i++) {
        const struct mapping_fill *fill = &mapping->fills[i];
        assert_int_equal(fill->row_bytes % fill->value_bytes, 0);
        for (uint64_t row = 0; row < fill->n_rows; row++)
            for (uint64_t at = 0; at < fill->row_bytes; at++)
                space[fill->dst_offset + row * fill->dst_stride + at] = fill->value[at % fill->value_bytes];
    }
}

/* What the packed replica has, element by element, is in the regions, and nothing else has been written. */
static void check_targets(const struct model *model, const struct goal *goal, const struct mapping *packed,
                          const unsigned char *replica, const struct mapping *mapping)
{
    static unsigned char space[N_REGIONS * (TARGET_REGION_ALIGN + REGION_ROOM)], wanted[REGION_ROOM];
    assert_true(mapping->has_targets && mapping->replica_bytes == goal->list.space_bytes &&
                mapping->replica_bytes <= sizeof space);
    assert_int_equal(mapping->view_bytes, packed->view_bytes);
    assert_string_not_equal(mapping->view_digest, packed->view_digest);
    for (size_t r = 0; r < N_REGIONS; r++)
        memset(space + goal->regions[r].base, UNTOUCHED, goal->regions[r].bytes);
    for (size_t i = 0; i < mapping->n_transfers; i++) {
        const struct transfer *transfer = &mapping->transfers[i];
        assert_true(transfer->n_rows > 1 ||
                    (transfer->src_stride == transfer->row_bytes && transfer->dst_stride == (int64_t)transfer->row_bytes));
        assert_true((uint64_t)llabs(transfer->dst_stride) >= transfer->row_bytes);
        n_backwards += transfer->dst_stride < 0;
        transfer_apply(transfer, NULL, model->files[transfer->file], space);
    }
    write_fills(mapping, space);
    for (size_t r = 0; r < N_REGIONS; r++) {
        assert_true(goal->regions[r].bytes <= sizeof wanted);
        memset(wanted, UNTOUCHED, goal->regions[r].bytes);
        for (size_t i = 0; i < goal->list.n_tensors; i++)
            if (goal->targets[i].region == r && packed->tensors[i].bytes)
                put_elements(&goal->targets[i], wanted, replica + packed->tensors[i].offset,
                             dtype_bits(goal->targets[i].dtype) / 8);
        for (size_t i = 0; i < goal->list.n_fills && r == 0; i++)
            put_elements(&goal->fills[i].target, wanted, goal->fills[i].value, 0);
        assert_memory_equal(space + goal->regions[r].base, wanted, goal->regions[r].bytes);
    }
}

static void run_targets(const struct model *model, const struct mapping *packed, const unsigned char *replica,
                        struct artifact *artifact)
{
    static struct goal goal;
    struct error error;
    make_goal(&goal, packed);
    struct view_spec view = {.items = model->items, .n_items = model->n_items, .align_bytes = 64, .targets = &goal.list};
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    if (!mapping)
        fail_msg("%s", error.message);
    check_targets(model, &goal, packed, replica, mapping);
    mapping_destroy(mapping);
}

static void run_case(void)
{
    struct model model = {0};
    struct error error;
    struct artifact *stored;
    make_tensors(&model);
    cut_tensors(&model);
    source_memory_clear();
    for (size_t i = 0; i < N_FILES; i++)
        write_file(&model, i);
    make_view(&model);
    if (artifact_resolve("memory:model", &(struct source_options){0}, NULL, false, &stored, &error) < 0)
        fail_msg("%s", error.message);
    struct view_spec view = {.items = model.items, .n_items = model.n_items, .align_bytes = 1u << random_below(9)};
    view.placement = random_below(2) ? PLACEMENT_SOURCE : PLACEMENT_PACKED;
    if (view.placement == PLACEMENT_SOURCE && random_below(2))
        view.align_bytes = 0;
    stored->source->caps.direct_reads = true;
    struct artifact *artifact = pieces_join(stored);
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    if (!mapping)
        fail_msg("%s", error.message);
    unsigned char *replica = calloc(1, mapping->replica_bytes + 1);
    check_transfers(mapping, &model, replica);
    check_tensors(mapping, &model, replica);
    check_places(mapping, replica);
    run_targets(&model, mapping, replica, artifact);
    free(replica);
    mapping_destroy(mapping);
    pieces_free(artifact);
    artifact_unref(stored);
    for (size_t i = 0; i < N_FILES; i++)
        free(model.files[i]);
    for (size_t i = 0; i < model.n_tensors; i++)
        free(model.values[i]);
}

TEST(mappings_move_what_an_element_walk_moves)
{
    const char *seed = getenv("TEST_SEED");
    random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL) * 0x9E3779B97F4A7C15u;
    print_message("TEST_SEED=%llu, %d cases\n", (unsigned long long)random_state, N_CASES);
    for (int i = 0; i < N_CASES; i++)
        run_case();
    assert_true(n_spread > N_CASES / 10 && n_backwards > N_CASES / 10);
    source_memory_clear();
}
