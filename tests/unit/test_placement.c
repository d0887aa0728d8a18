/* Where tensors begin so that blocks of their files land in place: congruent, in file order, with little padding. */
#include "tests/support/unit.h"

#include "resolve/placement.h"
#include "tests/support/source_memory.h"

enum { FILE_BYTES = 4 << 20, HEADER_BYTES = 1 << 18, MAX_TENSORS = 3000 };

struct wanted { /* a tensor of a file: rows of bytes, or one dimension of F32 */
    const char *name;
    uint64_t rows, columns;
};

static unsigned char file_bytes[FILE_BYTES];
static struct artifact *artifact;

/* One file whose data begin at `pad` modulo 64. */
static void put(const struct wanted *tensors, size_t n, uint64_t pad, bool reads_direct)
{
    static char header[HEADER_BYTES];
    char *out = header;
    uint64_t end = 0;
    struct error error;
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = 4 * tensors[i].rows * tensors[i].columns;
        out += sprintf(out, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[%llu,%llu],\"data_offsets\":[%llu,%llu]}", i ? ',' : '{',
                       tensors[i].name, (unsigned long long)tensors[i].rows, (unsigned long long)tensors[i].columns,
                       (unsigned long long)end, (unsigned long long)(end + bytes));
        end += bytes;
    }
    *out++ = '}';
    while ((uint64_t)(out - header + 8) % 64 != pad)
        *out++ = ' ';
    uint64_t length = (uint64_t)(out - header);
    memcpy(file_bytes, &length, 8);
    memcpy(file_bytes + 8, header, length);
    source_memory_put("model", "a.safetensors", file_bytes, 8 + length + end);
    if (artifact_resolve("memory:model", &(struct source_options){0}, NULL, false, &artifact, &error) < 0)
        fail_msg("%s", error.message);
    artifact->source->caps.direct_reads = reads_direct;
}

static int clear(void **state)
{
    (void)state;
    artifact_unref(artifact);
    artifact = NULL;
    source_memory_clear();
    return 0;
}

static struct mapping *build(const struct view_item *items, size_t n, uint64_t align, enum view_placement placement)
{
    struct view_spec view = {
        .whole = !items, .items = items, .n_items = n, .align_bytes = align, .placement = (int)placement};
    struct error error;
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    if (!mapping)
        fail_msg("%s", error.message);
    return mapping;
}

static const struct transfer *transfer_of(const struct mapping *mapping, size_t tensor)
{
    for (size_t i = 0; i < mapping->n_transfers; i++)
        if (mapping->transfers[i].tensor == tensor)
            return &mapping->transfers[i];
    fail_msg("tensor %zu has no transfer", tensor);
    return NULL;
}

static bool is_congruent(const struct mapping *mapping, size_t tensor)
{
    const struct transfer *transfer = transfer_of(mapping, tensor);
    assert_int_equal(transfer->dst_offset, mapping->tensors[tensor].offset);
    return (transfer->src_offset - transfer->dst_offset) % PLACEMENT_BLOCK_BYTES == 0;
}

static const struct wanted three[] = {{"a", 1000, 33}, {"b", 7, 1}, {"c", 500, 129}};
static const struct view_item backward[] = {
    {.name = "c", .name_length = 1}, {.name = "b", .name_length = 1}, {.name = "a", .name_length = 1}};

TEST_IN(neighbours_of_a_file_stay_one_image, NULL, clear)
{
    put(three, 3, 8, true);
    struct mapping *mapping = build(NULL, 0, 0, PLACEMENT_SOURCE);
    for (size_t i = 0; i < 3; i++)
        assert_true(is_congruent(mapping, i));
    assert_int_equal(mapping->tensors[1].offset, mapping->tensors[0].offset + mapping->tensors[0].bytes);
    assert_int_equal(mapping->tensors[2].offset, mapping->tensors[1].offset + mapping->tensors[1].bytes);
    assert_true(mapping->tensors[0].offset < PLACEMENT_BLOCK_BYTES);
    assert_int_equal(mapping->replica_bytes, mapping->tensors[0].offset + mapping->view_bytes);
    mapping_destroy(mapping);
}

TEST_IN(the_order_of_the_view_does_not_matter, NULL, clear)
{
    put(three, 3, 8, true);
    struct mapping *forth = build(NULL, 0, 0, PLACEMENT_SOURCE), *back = build(backward, 3, 0, PLACEMENT_SOURCE);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(back->tensors[i].record->name, backward[i].name);
        assert_int_equal(back->tensors[i].offset, forth->tensors[2 - i].offset);
        assert_true(is_congruent(back, i));
    }
    assert_int_equal(back->replica_bytes, forth->replica_bytes);
    mapping_destroy(forth);
    mapping_destroy(back);
}

TEST_IN(thousands_of_small_tensors_do_not_grow, NULL, clear)
{
    static struct wanted tensors[MAX_TENSORS];
    static char names[MAX_TENSORS][8];
    static struct view_item every_second[MAX_TENSORS / 2];
    for (size_t i = 0; i < MAX_TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "t%zu", i);
        tensors[i] = (struct wanted){names[i], 1 + i % 7, 5};
        every_second[i / 2] = (struct view_item){.name = names[i], .name_length = strlen(names[i])};
    }
    put(tensors, MAX_TENSORS, 8, true);
    struct mapping *whole = build(NULL, 0, 0, PLACEMENT_SOURCE);
    assert_true(whole->replica_bytes < whole->view_bytes + PLACEMENT_BLOCK_BYTES);
    struct mapping *some = build(every_second, MAX_TENSORS / 2, 0, PLACEMENT_SOURCE);
    struct mapping *packed = build(every_second, MAX_TENSORS / 2, 64, PLACEMENT_PACKED);
    assert_true(some->replica_bytes <= packed->replica_bytes); /* none of them is worth a block */
    mapping_destroy(whole);
    mapping_destroy(some);
    mapping_destroy(packed);
}

TEST_IN(rows_of_a_rank_land_and_columns_are_packed, NULL, clear)
{
    static const struct wanted two[] = {{"up", 256, 1027}, {"down", 256, 1027}};
    static const struct slice rows[] = {{64, 128}, {0, INT64_MAX}}, columns[] = {{0, INT64_MAX}, {64, 128}};
    const struct view_item items[] = {{.name = "down", .name_length = 4, .n_slices = 2, .slices = columns},
                                      {.name = "up", .name_length = 2, .n_slices = 2, .slices = rows}};
    put(two, 2, 8, true);
    struct mapping *mapping = build(items, 2, 0, PLACEMENT_SOURCE);
    assert_true(is_congruent(mapping, 1));
    assert_true(mapping->tensors[1].offset < PLACEMENT_BLOCK_BYTES);
    assert_int_equal(mapping->tensors[0].offset % VIEW_DEFAULT_ALIGN, 0);
    assert_true(mapping->tensors[0].offset - mapping->tensors[1].offset - mapping->tensors[1].bytes < VIEW_DEFAULT_ALIGN);
    mapping_destroy(mapping);
}

TEST_IN(long_rows_of_columns_land, NULL, clear)
{
    static const struct wanted wide[] = {{"w", 4, 32768}};
    static const struct slice columns[] = {{0, INT64_MAX}, {8192, 24576}};
    const struct view_item item = {.name = "w", .name_length = 1, .n_slices = 2, .slices = columns};
    put(wide, 1, 8, true);
    struct mapping *mapping = build(&item, 1, 0, PLACEMENT_SOURCE);
    assert_int_equal(transfer_of(mapping, 0)->n_rows, 4);
    assert_true(is_congruent(mapping, 0));
    mapping_destroy(mapping);
}

TEST_IN(alignment_goes_before_congruence, NULL, clear)
{
    put(three, 3, 8, true);
    struct mapping *mapping = build(NULL, 0, 64, PLACEMENT_SOURCE);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mapping->tensors[i].offset % 64, 0);
    assert_false(is_congruent(mapping, 0));
    mapping_destroy(mapping);
    assert_int_equal(clear(NULL), 0);
    put(three, 3, 0, true);
    mapping = build(NULL, 0, 64, PLACEMENT_SOURCE);
    assert_true(is_congruent(mapping, 0));
    mapping_destroy(mapping);
    mapping = build(NULL, 0, 2 * PLACEMENT_BLOCK_BYTES, PLACEMENT_SOURCE);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mapping->tensors[i].offset % (2 * PLACEMENT_BLOCK_BYTES), 0);
    mapping_destroy(mapping);
}

TEST_IN(nothing_changes_where_nothing_is_read_past_the_page_cache, NULL, clear)
{
    put(three, 3, 8, false);
    struct mapping *source = build(backward, 3, 0, PLACEMENT_SOURCE), *packed = build(backward, 3, 64, PLACEMENT_PACKED);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(source->tensors[i].offset, packed->tensors[i].offset);
    assert_string_equal(source->view_digest, packed->view_digest); /* so that they share a replica */
    mapping_destroy(source);
    mapping_destroy(packed);
}

TEST_IN(replicas_of_both_kinds_do_not_mix, NULL, clear)
{
    put(three, 3, 8, true);
    struct mapping *source = build(NULL, 0, 64, PLACEMENT_SOURCE), *packed = build(NULL, 0, 64, PLACEMENT_PACKED);
    struct mapping *natural = build(NULL, 0, 0, PLACEMENT_SOURCE);
    assert_string_not_equal(source->view_digest, packed->view_digest);
    assert_string_not_equal(source->view_digest, natural->view_digest);
    mapping_destroy(source);
    mapping_destroy(packed);
    mapping_destroy(natural);
}

TEST_IN(tensors_without_bytes_have_a_place, NULL, clear)
{
    static const struct wanted some[] = {{"none", 0, 3}, {"some", 200, 300}, {"last", 0, 1}};
    put(some, 3, 8, true);
    struct mapping *mapping = build(NULL, 0, 0, PLACEMENT_SOURCE);
    assert_true(is_congruent(mapping, 1));
    for (size_t i = 0; i < 3; i++)
        assert_true(mapping->tensors[i].offset + mapping->tensors[i].bytes <= mapping->replica_bytes);
    mapping_destroy(mapping);
}
