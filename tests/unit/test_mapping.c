/* What a mapping refuses, how it calls its jobs, and when two views are the same. tests/property/test_mapping.c checks the
 * bytes. */
#include "tests/support/unit.h"

#include "base/metadata.h"
#include "resolve/mapping.h"
#include "tests/support/source_memory.h"
#include "tests/support/pieces.h"

static struct artifact *artifact;

static void put(const char *file, const char *header, uint64_t data_bytes)
{
    static unsigned char bytes[1 << 17];
    uint64_t length = strlen(header);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    source_memory_put("model", file, bytes, 8 + length + data_bytes);
}

static struct artifact *resolve(void)
{
    struct artifact *resolved;
    struct error error;
    if (artifact_resolve("memory:model", &(struct source_options){0}, NULL, false, &resolved, &error) < 0)
        fail_msg("%s", error.message);
    return resolved;
}

static int create(void **state)
{
    (void)state;
    put("a.safetensors",
        "{\"m\":{\"dtype\":\"F32\",\"shape\":[4,6],\"data_offsets\":[0,96]},"
        "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[96,100]},"
        "\"none\":{\"dtype\":\"F32\",\"shape\":[3,0],\"data_offsets\":[100,100]},"
        "\"cube\":{\"dtype\":\"U8\",\"shape\":[4,6,5],\"data_offsets\":[100,220]}}",
        220);
    put("b.safetensors", "{\"f4\":{\"dtype\":\"F4\",\"shape\":[4,8],\"data_offsets\":[0,16]}}", 16);
    artifact = resolve();
    return 0;
}

static int destroy(void **state)
{
    (void)state;
    artifact_unref(artifact);
    source_memory_clear();
    return 0;
}

static const struct slice all = {0, INT64_MAX};

#define ITEM(text, n, ...)                                                                                                  \
    {                                                                                                                       \
        .name = text, .name_length = sizeof text - 1, .n_slices = n, .slices = (const struct slice[])                       \
        {                                                                                                                   \
            __VA_ARGS__                                                                                                     \
        }                                                                                                                   \
    }
#define WHOLE(text)                                                                                                         \
    {                                                                                                                       \
        .name = text, .name_length = sizeof text - 1                                                                        \
    }

static struct mapping *build(const struct view_item *items, size_t n_items, struct error *error)
{
    struct view_spec view = {.items = items, .n_items = n_items, .align_bytes = 64};
    return mapping_build(&view, artifact, error);
}

static void refuses(const struct view_item *items, size_t n_items, enum error_code code, const char *named)
{
    struct error error;
    assert_null(build(items, n_items, &error));
    assert_int_equal(error.code, code);
    if (!strstr(error.message, named))
        fail_msg("%s is not named: %s", named, error.message);
}

TEST(impossible_views_are_refused_and_the_tensor_named)
{
    const struct view_item twice[] = {WHOLE("m"), ITEM("m", 2, {0, 1}, all)}, unknown[] = {WHOLE("scalars")},
                           few[] = {ITEM("m", 1, all)};
    const struct view_item many[] = {ITEM("m", 3, all, all, all)}, scalar[] = {ITEM("scalar", 1, all)};
    const struct view_item half[] = {ITEM("f4", 2, all, {1, 3})};
    refuses(twice, 2, ERROR_INVALID_ARGUMENT, "tensor m ");
    refuses(unknown, 1, ERROR_NOT_FOUND, "scalars");
    refuses(unknown, 1, ERROR_NOT_FOUND, "did you mean scalar?");
    refuses(few, 1, ERROR_INVALID_ARGUMENT, "tensor m ");
    refuses(many, 1, ERROR_INVALID_ARGUMENT, "tensor m ");
    refuses(scalar, 1, ERROR_INVALID_ARGUMENT, "tensor scalar ");
    refuses(half, 1, ERROR_UNIMPLEMENTED, "tensor f4:");
    refuses(NULL, 0, ERROR_INVALID_ARGUMENT, "no tensor");
}

TEST(leading_slices_leave_the_dimensions_behind_them_whole)
{
    const struct view_item fewer[] = {ITEM("m", 1, {1, 3}), ITEM("cube", 2, all, {2, 5}), WHOLE("scalar")};
    const struct view_item spelled[] = {ITEM("m", 2, {1, 3}, all), ITEM("cube", 3, all, {2, 5}, all), WHOLE("scalar")};
    const struct view_item many = ITEM("m", 3, all, all, all);
    struct view_spec view = {.items = fewer, .n_items = 3, .align_bytes = 64, .leading = true};
    struct error error;
    struct mapping *mapping = mapping_build(&view, artifact, &error), *same = build(spelled, 3, &error);
    assert_non_null(mapping);
    assert_memory_equal(mapping->tensors[1].shape, ((const uint64_t[]){4, 3, 5}), 3 * sizeof(uint64_t));
    assert_int_equal(mapping->n_transfers, same->n_transfers);
    for (size_t i = 0; i < same->n_transfers; i++)
        assert_memory_equal(&mapping->transfers[i], &same->transfers[i], sizeof same->transfers[i]);
    mapping_destroy(mapping);
    mapping_destroy(same);
    view.items = &many;
    view.n_items = 1;
    assert_null(mapping_build(&view, artifact, &error));
    assert_string_equal(error.reason, "WRONG_NUMBER_OF_SLICES");
}

TEST(alignment_is_a_power_of_two_up_to_two_mebibytes)
{
    static const uint64_t good[] = {1, 2, 64, VIEW_MAX_ALIGN}, bad[] = {0, 3, 65, VIEW_MAX_ALIGN * 2ull};
    struct error error;
    for (size_t i = 0; i < 4; i++) {
        struct view_spec view = {.whole = true, .align_bytes = good[i]};
        struct mapping *mapping = mapping_build(&view, artifact, &error);
        assert_non_null(mapping);
        for (size_t t = 0; t < mapping->n_tensors; t++)
            assert_int_equal(mapping->tensors[t].offset % good[i], 0);
        mapping_destroy(mapping);
        view.align_bytes = bad[i];
        assert_null(mapping_build(&view, artifact, &error));
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    }
}

TEST(jobs_are_named_by_their_geometry)
{
    const struct {
        struct view_item item;
        enum job_kind kind;
    } cases[] = {
        {WHOLE("m"), JOB_REPLICATED},
        {ITEM("m", 2, {-100, 100}, {0, 6}), JOB_REPLICATED},
        {WHOLE("scalar"), JOB_REPLICATED},
        {ITEM("m", 2, {1, 3}, {0, INT64_MAX}), JOB_DIM0},
        {ITEM("cube", 3, {1, 3}, {0, INT64_MAX}, {0, INT64_MAX}), JOB_DIM0},
        {ITEM("m", 2, {0, INT64_MAX}, {1, 3}), JOB_DIM1},
        {ITEM("cube", 3, {0, INT64_MAX}, {1, 3}, {0, INT64_MAX}), JOB_DIM1},
        {ITEM("cube", 3, {0, INT64_MAX}, {0, INT64_MAX}, {4, 5}), JOB_DIM1},
        {ITEM("m", 2, {1, 3}, {1, 3}), JOB_RECT2D},
        {ITEM("cube", 3, {1, 3}, {2, 4}, {1, 4}), JOB_RECT2D},
        {ITEM("m", 2, {3, 1}, {0, INT64_MAX}), JOB_EMPTY},
        {WHOLE("none"), JOB_EMPTY},
    };
    struct error error;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mapping *mapping = build(&cases[i].item, 1, &error);
        assert_non_null(mapping);
        if (mapping->tensors[0].job != cases[i].kind)
            fail_msg("case %zu is %s", i, job_kind_name(mapping->tensors[0].job));
        mapping_destroy(mapping);
    }
}

TEST(a_whole_view_keeps_the_order_of_the_artifact)
{
    static const char *const names[] = {"m", "scalar", "none", "cube", "f4"};
    struct view_spec view = {.whole = true, .align_bytes = 64};
    struct error error;
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    assert_int_equal(mapping->n_tensors, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(mapping->tensors[i].record->name, names[i]);
    assert_int_equal(mapping->view_bytes, 236);
    assert_int_equal(mapping->replica_bytes, 128 + 64 + 128 + 16);
    assert_int_equal(mapping->n_transfers, 4);
    mapping_destroy(mapping);
}

TEST(an_artifact_without_tensors_has_an_empty_whole_view)
{
    struct view_spec view = {.whole = true, .align_bytes = 64};
    struct error error;
    source_memory_put("hollow", "model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    struct artifact *hollow;
    assert_int_equal(artifact_resolve("memory:hollow", &(struct source_options){0}, NULL, false, &hollow, &error), 0);
    struct mapping *mapping = mapping_build(&view, hollow, &error);
    assert_non_null(mapping);
    assert_true(mapping->n_tensors == 0 && mapping->n_transfers == 0 && mapping->replica_bytes == 0);
    mapping_destroy(mapping);
    artifact_unref(hollow);
}

static const char *digest_of(const struct view_item *items, size_t n_items, char out[DIGEST_HEX_CHARS + 1])
{
    struct error error;
    struct mapping *mapping = build(items, n_items, &error);
    assert_non_null(mapping);
    memcpy(out, mapping->view_digest, DIGEST_HEX_CHARS + 1);
    mapping_destroy(mapping);
    return out;
}

TEST(slices_that_mean_the_same_share_a_digest)
{
    const struct view_item same[][1] = {
        {ITEM("m", 2, {1, 3}, {0, 6})}, {ITEM("m", 2, {-3, -1}, all)}, {ITEM("m", 2, {1, 3}, {-100, 100})}};
    const struct view_item whole[][1] = {{WHOLE("m")}, {ITEM("m", 2, all, all)}, {ITEM("m", 2, {0, 4}, {0, 6})}};
    const struct view_item empty[][1] = {{ITEM("m", 2, {2, 2}, {1, 3})}, {ITEM("m", 2, {3, 1}, {4, 6})}};
    char one[DIGEST_HEX_CHARS + 1], other[DIGEST_HEX_CHARS + 1];
    for (size_t i = 1; i < 3; i++) {
        assert_string_equal(digest_of(same[0], 1, one), digest_of(same[i], 1, other));
        assert_string_equal(digest_of(whole[0], 1, one), digest_of(whole[i], 1, other));
    }
    assert_string_equal(digest_of(empty[0], 1, one), digest_of(empty[1], 1, other));
}

TEST(different_views_have_different_digests)
{
    const struct view_item views[][2] = {
        {WHOLE("m"), WHOLE("cube")},
        {WHOLE("cube"), WHOLE("m")},
        {WHOLE("m"), ITEM("cube", 3, {0, 2}, all, all)},
        {WHOLE("m"), ITEM("cube", 3, {2, 4}, all, all)},
        {WHOLE("m"), WHOLE("scalar")},
        {WHOLE("m"), ITEM("cube", 3, {0, 0}, all, all)},
    };
    enum { N = sizeof views / sizeof *views };
    char digests[N][DIGEST_HEX_CHARS + 1];
    for (size_t i = 0; i < N; i++) {
        digest_of(views[i], 2, digests[i]);
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(digests[i], digests[j]);
    }
    struct view_spec view = {.items = views[0], .n_items = 2, .align_bytes = 128};
    struct error error;
    struct mapping *mapping = mapping_build(&view, artifact, &error);
    assert_string_not_equal(mapping->view_digest, digests[0]);
    mapping_destroy(mapping);
}

/* A shape of [n, 2, 3, 2, 4] cut in its last three dimensions: 2 n runs of 2 rows. The bytes need not exist; at the limit
 * itself half a gigabyte of runs would, so that side is tested far below. */
TEST(the_number_of_runs_is_limited)
{
    const struct view_item items[] = {ITEM("w", 5, all, all, {0, 2}, {0, 1}, {0, 2})};
    const uint64_t sizes[] = {1000, MAPPING_MAX_RUNS / 2 + 1};
    struct error error;
    for (size_t i = 0; i < 2; i++) {
        uint64_t shape[] = {sizes[i], 2, 3, 2, 4};
        struct tensor_record record = {.name = "w",
                                       .name_length = 1,
                                       .dtype = DTYPE_F4,
                                       .rank = 5,
                                       .shape = shape,
                                       .n_pieces = 1,
                                       .bytes = sizes[i] * 24};
        struct tensor_piece piece = {.offset = 100};
        struct source source = {.n_files = 1};
        struct artifact fake = {.source = &source,
                                .reference = "memory:fake",
                                .tensors = &record,
                                .n_tensors = 1,
                                .pieces = &piece,
                                .n_pieces = 1,
                                .references = 2};
        map_init(&fake.by_name, 1);
        map_add(&fake.by_name, "w", 1, 0);
        struct view_spec view = {.items = items, .n_items = 1, .align_bytes = 64};
        struct mapping *mapping = mapping_build(&view, &fake, &error);
        assert_int_equal(mapping != NULL, i == 0);
        if (mapping)
            assert_int_equal(mapping->n_transfers, 2 * sizes[i]);
        else
            assert_int_equal(error.code, ERROR_UNIMPLEMENTED);
        mapping_destroy(mapping);
        map_fini(&fake.by_name);
    }
}

TEST(a_mapping_is_charged_to_its_user_and_refused_beyond_the_limit)
{
    const struct view_item items[] = {ITEM("cube", 3, all, {0, 2}, {0, 1})};
    struct quota *quota = quota_create();
    struct error error;
    quota_set_kept(quota, 0);
    metadata_enter((struct metadata_account){quota, 12345});
    struct mapping *mapping = build(items, 1, &error);
    uint64_t taken = quota_taken(quota, QUOTA_METADATA);
    assert_true(taken >= mapping->n_transfers * sizeof *mapping->transfers);
    assert_int_equal(taken, mapping->arena.charge.amount);
    mapping_destroy(mapping);
    for (uint64_t limit = 0; limit < taken; limit += 64) {
        quota_set_limits(quota, QUOTA_METADATA, limit, 0);
        assert_null(build(items, 1, &error));
        assert_string_equal(error.reason, "METADATA_EXCEEDED");
        assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    }
    metadata_enter((struct metadata_account){0});
    quota_destroy(quota);
}

/* Rows 0 and 1 of w are in the second file, columns 0 to 2 of the others in the first, columns 3 to 5 in the second. */
TEST(pieces_of_a_tensor_become_transfers_in_file_order)
{
    const struct view_item rows[] = {ITEM("w", 2, {1, 4}, all)}, columns[] = {ITEM("w", 2, all, {4, 6})};
    struct view_spec whole = {.whole = true, .align_bytes = 64};
    struct error error;
    source_memory_clear();
    put("a.safetensors", "{\"w@2,0\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}", 6);
    put("b.safetensors",
        "{\"w@2,3\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]},"
        "\"w@0,0\":{\"dtype\":\"U8\",\"shape\":[2,6],\"data_offsets\":[6,18]}}",
        18);
    struct artifact *stored = resolve(), *before = artifact;
    artifact = pieces_join(stored);
    struct mapping *mapping = mapping_build(&whole, artifact, &error);
    const struct transfer *t = mapping->transfers;
    assert_true(mapping->n_transfers == 3 && mapping->file_first[1] == 1 && mapping->view_bytes == 24);
    assert_true(t[0].dst_offset == 12 && t[0].row_bytes == 3 && t[0].n_rows == 2 && t[0].dst_stride == 6);
    assert_true(t[1].dst_offset == 15 && t[1].row_bytes == 3 && t[1].src_stride == 3 && t[1].dst_stride == 6);
    assert_true(t[2].dst_offset == 0 && t[2].row_bytes == 12 && t[2].n_rows == 1);
    assert_int_equal(mapping->tensors[0].job, JOB_REPLICATED);
    assert_int_equal(mapping_find(mapping, 1, t[1].src_offset), 1);
    assert_int_equal(mapping_find(mapping, 1, transfer_end(&t[1])), 2);
    assert_int_equal(mapping_find(mapping, 1, transfer_end(&t[2])), 3);
    assert_int_equal(artifact_find_piece(artifact, 1, t[2].src_offset), 2);
    assert_int_equal(artifact_find_piece(artifact, 1, artifact_piece_end(artifact, &artifact->pieces[2])), 3);
    mapping_destroy(mapping);
    mapping = build(rows, 1, &error); /* of each piece, a part */
    assert_true(mapping->n_transfers == 3 && mapping->tensors[0].job == JOB_DIM0 && mapping->view_bytes == 18);
    mapping_destroy(mapping);
    mapping = build(columns, 1, &error); /* nothing of the first file */
    assert_true(mapping->n_transfers == 2 && mapping->file_first[1] == 0 && mapping->tensors[0].job == JOB_DIM1);
    mapping_destroy(mapping);
    pieces_free(artifact);
    artifact_unref(stored);
    artifact = before;
}

TESTS_IN(create, destroy)
