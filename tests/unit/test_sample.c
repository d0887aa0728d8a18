/* What a sample may be, how it is spelled, which ones a host has, and what of it the journal keeps. */
#include "tests/support/unit.h"

#include "activations/sample_set.h"
#include "activations/segment_journal.h"
#include "base/memory.h"
#include "tests/support/activation_cases.h"

#undef fail /* ours is in base/error.h */

static struct error error;

static int check(uint32_t id, uint32_t rank, const uint64_t *shape, enum dtype dtype, const char *info)
{
    struct sample_tensor tensor = {.layer = 1, .rank = rank, .shape = shape, .dtype = dtype};
    struct sample sample = {.id = id, .n_tensors = 1, .info = info, .info_bytes = strlen(info)};
    return sample_check(&sample, &tensor, &error);
}

TEST(a_sample_has_a_number_below_one_hundred_million)
{
    const uint64_t shape[] = {3};
    assert_int_equal(check(0, 1, shape, DTYPE_F32, ""), 0);
    assert_int_equal(check(ACTIVATION_MAX_SAMPLE, 1, shape, DTYPE_F32, ""), 0);
    assert_int_equal(check(ACTIVATION_MAX_SAMPLE + 1, 1, shape, DTYPE_F32, ""), -1);
    assert_string_equal(error.reason, "BAD_SAMPLE");
}

TEST(sixty_four_dimensions_are_taken_and_one_more_is_not)
{
    uint64_t shape[SAMPLE_MAX_RANK + 1];
    for (int i = 0; i <= SAMPLE_MAX_RANK; i++)
        shape[i] = 1;
    assert_int_equal(check(1, SAMPLE_MAX_RANK, shape, DTYPE_F32, ""), 0);
    assert_int_equal(check(1, SAMPLE_MAX_RANK + 1, shape, DTYPE_F32, ""), -1);
    assert_int_equal(check(1, 0, NULL, DTYPE_F32, ""), 0);
}

TEST(a_sample_of_64_tib_is_the_largest)
{
    const uint64_t most[] = {1 << 20, SAMPLE_MAX_BYTES >> 20}, more[] = {2, SAMPLE_MAX_BYTES}, wraps[] = {UINT64_MAX, 9};
    const uint64_t nothing[] = {0, UINT64_MAX}, odd[] = {3};
    assert_int_equal(check(1, 2, most, DTYPE_U8, ""), 0);
    assert_int_equal(check(1, 2, more, DTYPE_U8, ""), -1);
    assert_int_equal(check(1, 2, wraps, DTYPE_U8, ""), -1);
    assert_int_equal(check(1, 2, nothing, DTYPE_U8, ""), -1);
    assert_int_equal(check(1, 1, odd, DTYPE_F4, ""), -1);
}

TEST(texts_about_a_sample_are_a_json_object_of_at_most_a_mebibyte)
{
    const uint64_t shape[] = {3};
    char *long_text = memory_alloc(SAMPLE_MAX_INFO_BYTES + 3), deep[80] = "{\"a\":", *at = deep + 5;
    assert_int_equal(check(1, 1, shape, DTYPE_F32, "{\"text\": \"\\\"{[\"}"), 0);
    assert_int_equal(check(1, 1, shape, DTYPE_F32, "[1]"), -1);
    assert_int_equal(check(1, 1, shape, DTYPE_F32, "{} {}"), -1);
    assert_int_equal(check(1, 1, shape, DTYPE_F32, "{\"a\": \"\xff\"}"), -1);
    memset(long_text, 'x', SAMPLE_MAX_INFO_BYTES);
    memcpy(long_text, "{\"a\":\"", 6);
    memcpy(long_text + SAMPLE_MAX_INFO_BYTES - 2, "\"}", 2);
    assert_int_equal(check(1, 1, shape, DTYPE_F32, long_text), 0);
    memcpy(long_text + SAMPLE_MAX_INFO_BYTES - 2, "x\"}", 3);
    assert_int_equal(check(1, 1, shape, DTYPE_F32, long_text), -1);
    free(long_text);
    memset(at, '[', 31);
    memset(at + 31, ']', 31);
    strcpy(at + 62, "}");
    assert_int_equal(check(1, 1, shape, DTYPE_F32, deep), 0);
    memset(at, '[', 32);
    memset(at + 32, ']', 32);
    strcpy(at + 64, "}");
    assert_int_equal(check(1, 1, shape, DTYPE_F32, deep), -1);
}

TEST(a_sample_has_from_one_to_65536_layers_each_once)
{
    const uint64_t shape[] = {1};
    struct sample_tensor *tensors = memory_alloc_array(SAMPLE_MAX_TENSORS + 1, sizeof *tensors);
    for (uint32_t i = 0; i <= SAMPLE_MAX_TENSORS; i++)
        tensors[i] = (struct sample_tensor){.layer = SAMPLE_MAX_TENSORS - i, .rank = 1, .shape = shape, .dtype = DTYPE_U8};
    struct sample sample = {.id = 1, .n_tensors = SAMPLE_MAX_TENSORS};
    assert_int_equal(sample_check(&sample, tensors, &error), 0);
    sample.n_tensors++;
    assert_int_equal(sample_check(&sample, tensors, &error), -1);
    sample.n_tensors = 0;
    assert_int_equal(sample_check(&sample, tensors, &error), -1);
    tensors[7].layer = tensors[3].layer;
    sample.n_tensors = 10;
    assert_int_equal(sample_check(&sample, tensors, &error), -1);
    assert_string_equal(error.reason, "LAYER_TWICE");
    tensors[7].layer = 99999;
    tensors[2].is_narrowed = true;
    assert_int_equal(sample_check(&sample, tensors, &error), -1);
    free(tensors);
}

TEST(a_set_of_samples_has_what_was_added)
{
    static const uint32_t some[] = {0, 63, 64, 65535, 65536, ACTIVATION_MAX_SAMPLE};
    struct sample_set set = {0};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        assert_false(sample_set_has(&set, some[i]));
        assert_int_equal(sample_set_add(&set, some[i], &error), 0);
        assert_int_equal(sample_set_add(&set, some[i], &error), 0);
        assert_true(sample_set_has(&set, some[i]));
        assert_int_equal(set.highest, some[i]);
        assert_int_equal(set.n_samples, i + 1);
    }
    assert_false(sample_set_has(&set, 1));
    sample_set_remove(&set, ACTIVATION_MAX_SAMPLE);
    assert_int_equal(set.highest, 65536);
    assert_false(sample_set_has(&set, ACTIVATION_MAX_SAMPLE));
    sample_set_fini(&set);
}

TEST(names_are_read_as_they_are_written_and_no_other_way)
{
    static const char *const no_hosts[] = {"host_3",    "host_0003", "host_",   "host_100000",
                                           "hosts_003", "host_003x", "host_-03"};
    static const char *const no_tensors[] = {"layer_1/sample_1", "layer_01/sample_00000001", "layer_1/sample_100000000",
                                             "layer_4294967296/sample_00000001", "layer_1/sample_00000001x"};
    char name[ACTIVATION_NAME_CHARS];
    uint32_t a, b;
    assert_true(activation_parse_host(activation_host_name(3, name), &a) && a == 3);
    assert_true(activation_parse_host(activation_host_name(ACTIVATION_MAX_HOST, name), &a) && a == ACTIVATION_MAX_HOST);
    for (size_t i = 0; i < sizeof no_hosts / sizeof no_hosts[0]; i++)
        assert_false(activation_parse_host(no_hosts[i], &a));
    assert_true(activation_parse_segment(activation_segment_name(ACTIVATION_MAX_SEGMENT, ".open", name), ".open", &a));
    assert_int_equal(a, ACTIVATION_MAX_SEGMENT);
    assert_false(activation_parse_segment("segment_1000000.open", ".open", &a));
    assert_false(activation_parse_segment("segment_000000.open", ".open", &a));
    assert_false(activation_parse_segment("segment_000001.journal", ".open", &a));
    activation_tensor_name(UINT32_MAX, 17, name);
    assert_true(activation_parse_tensor(name, strlen(name), &a, &b) && a == UINT32_MAX && b == 17);
    for (size_t i = 0; i < sizeof no_tensors / sizeof no_tensors[0]; i++)
        assert_false(activation_parse_tensor(no_tensors[i], strlen(no_tensors[i]), &a, &b));
}

/* --- the journal --- */

static uint32_t taken[8];
static size_t n_taken;

static int take(void *data, const struct sample *sample, uint64_t data_end, struct error *failure)
{
    struct case_sample same;
    (void)failure;
    case_sample_make(&same, sample->id, sample->tensors[0].shape[0]);
    *(uint64_t *)data += same.sample.bytes;
    assert_int_equal(data_end, *(uint64_t *)data);
    assert_int_equal(sample->n_tensors, 2);
    assert_int_equal(sample->bytes, same.sample.bytes);
    assert_int_equal(sample->info_bytes, same.sample.info_bytes);
    assert_memory_equal(sample->info, same.info, sample->info_bytes);
    taken[n_taken++] = sample->id;
    free(same.bytes);
    return 0;
}

static size_t read_back(const unsigned char *bytes, size_t count, size_t *valid)
{
    uint64_t room, end = 0;
    n_taken = 0;
    assert_int_equal(segment_journal_read(bytes, count, &room, valid, take, &end, &error), 0);
    return n_taken;
}

TEST(a_journal_gives_back_whole_records_however_it_was_cut)
{
    struct journal_text text = {0};
    unsigned char file[4096];
    size_t ends[4] = {SEGMENT_JOURNAL_HEAD_BYTES}, valid;
    uint64_t end = 0;
    segment_journal_head(8192, file);
    for (uint32_t i = 0; i < 3; i++) {
        struct case_sample made;
        case_sample_make(&made, 7 + i, i);
        end += made.sample.bytes;
        segment_journal_add(&text, &made.sample, end);
        ends[i + 1] = SEGMENT_JOURNAL_HEAD_BYTES + text.length;
        assert_int_equal(ends[i + 1] - ends[i], segment_journal_record_bytes(&made.sample));
        free(made.bytes);
    }
    memcpy(file + SEGMENT_JOURNAL_HEAD_BYTES, text.bytes, text.length);
    free(text.bytes);
    for (size_t count = SEGMENT_JOURNAL_HEAD_BYTES; count <= ends[3]; count++) {
        size_t whole = count >= ends[3] ? 3 : count >= ends[2] ? 2 : count >= ends[1];
        assert_int_equal(read_back(file, count, &valid), whole);
        assert_int_equal(valid, ends[whole]);
    }
    for (size_t i = SEGMENT_JOURNAL_HEAD_BYTES; i < ends[3]; i++) {
        file[i] ^= 4;
        assert_in_range(read_back(file, ends[3], &valid), 0, 2);
        file[i] ^= 4;
    }
    file[0] = 'X';
    assert_int_equal(read_back(file, ends[3], &valid), 0);
    assert_int_equal(valid, 0);
}

static int count_record(void *data, const struct sample *sample, uint64_t data_end, struct error *failure)
{
    (void)data_end, (void)failure;
    assert_int_equal(sample->n_tensors, SAMPLE_MAX_TENSORS);
    assert_int_equal(sample->info_bytes, SAMPLE_MAX_INFO_BYTES);
    ++*(int *)data;
    return 0;
}

static int read_records(const struct journal_text *text)
{
    uint64_t room;
    size_t valid;
    int n = 0;
    assert_int_equal(segment_journal_read(text->bytes, text->length, &room, &valid, count_record, &n, &error), 0);
    return n;
}

/* Empty arrays may have the longest shapes. */
TEST(the_largest_sample_has_a_record_that_is_read)
{
    static const uint64_t shape[SAMPLE_MAX_RANK];
    struct sample_tensor *tensors = calloc(SAMPLE_MAX_TENSORS, sizeof *tensors);
    char *info = malloc(SAMPLE_MAX_INFO_BYTES);
    struct journal_text text = {0};
    memset(info, ' ', SAMPLE_MAX_INFO_BYTES);
    info[0] = '{';
    info[SAMPLE_MAX_INFO_BYTES - 1] = '}';
    for (uint32_t i = 0; i < SAMPLE_MAX_TENSORS; i++)
        tensors[i] = (struct sample_tensor){.layer = i, .rank = SAMPLE_MAX_RANK, .shape = shape, .dtype = DTYPE_F32};
    struct sample sample = {.id = 7, .n_tensors = SAMPLE_MAX_TENSORS, .info = info, .info_bytes = SAMPLE_MAX_INFO_BYTES};
    assert_int_equal(sample_check(&sample, tensors, &error), 0);
    assert_in_range(segment_journal_record_bytes(&sample), 0, SEGMENT_JOURNAL_MAX_RECORD_BYTES);
    text.bytes = calloc(SEGMENT_JOURNAL_HEAD_BYTES, 1);
    text.length = text.capacity = SEGMENT_JOURNAL_HEAD_BYTES;
    segment_journal_head(8192, text.bytes);
    segment_journal_add(&text, &sample, 0);
    assert_int_equal(read_records(&text), 1);
    uint32_t longer = SEGMENT_JOURNAL_MAX_RECORD_BYTES + 1;
    memcpy(text.bytes + SEGMENT_JOURNAL_HEAD_BYTES, &longer, sizeof longer);
    assert_int_equal(read_records(&text), 0);
    free(text.bytes);
    free(tensors);
    free(info);
}
