/* What runs out of memory while a header grows leaves it as it was; that headers are right is test_segment.c's. */
#include "tests/support/unit.h"

#include "activations/segment_contents.h"
#include "activations/segment_journal.h"
#include "base/metadata.h"
#include "tests/support/activation_cases.h"

static struct error error;

static struct segment_contents one_sample(void)
{
    struct segment_contents contents = {0};
    struct case_sample made;
    case_sample_make(&made, 1, 2);
    assert_int_equal(contents_add(&contents, &made.sample, &error), 0);
    free(made.bytes);
    return contents;
}

/* So many that the next ones fit in no memory. */
TEST(a_sample_without_memory_leaves_nothing)
{
    struct segment_contents contents = one_sample();
    struct case_sample made;
    struct quota *quota = quota_create();
    size_t *const counts[] = {&contents.entries.length, &contents.info.length, &contents.narrowed.length,
                              &contents.n_arrays,       &contents.n_layers,    &contents.n_samples};
    case_sample_make(&made, 2, 2);
    contents.charge = (struct quota_charge){.quota = quota, .uid = 7};
    contents.charge.kind = QUOTA_METADATA;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        size_t before[sizeof counts / sizeof counts[0]];
        uint64_t data_bytes = contents.data_bytes;
        size_t right = *counts[i];
        *counts[i] = SIZE_MAX / 2;
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            before[k] = *counts[k];
        assert_int_equal(contents_add(&contents, &made.sample, &error), -1);
        assert_string_equal(error.reason, "OUT_OF_MEMORY");
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            assert_int_equal(*counts[k], before[k]);
        assert_int_equal(contents.data_bytes, data_bytes);
        assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
        *counts[i] = right;
    }
    assert_int_equal(contents_add(&contents, &made.sample, &error), 0);
    free(made.bytes);
    contents_fini(&contents);
    quota_destroy(quota);
}

TEST(a_header_without_memory_is_an_error)
{
    const struct segment_facts facts = {.number = 1};
    struct segment_contents contents = one_sample();
    size_t length, right = contents.entries.length;
    contents.entries.length = SIZE_MAX - 1000;
    assert_null(contents_head(&contents, 0, &length, &error));
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
    contents.entries.length = right;
    char *head = contents_head(&contents, 0, &length, &error);
    assert_non_null(head);
    free(head);
    right = contents.narrowed.length;
    contents.narrowed.length = SIZE_MAX - 1000;
    assert_null(contents_head(&contents, 0, &length, &error));
    assert_null(contents_entry(&contents, &facts, &error));
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
    contents.narrowed.length = right;
    contents_fini(&contents);
}

TEST(a_record_without_memory_is_an_error)
{
    struct journal_text text = {.length = SIZE_MAX / 2, .capacity = SIZE_MAX / 2};
    struct case_sample made;
    case_sample_make(&made, 1, 2);
    assert_int_equal(segment_journal_reserve(&text, &made.sample, &error), -1);
    assert_string_equal(error.reason, "OUT_OF_MEMORY");
    assert_int_equal(text.length, SIZE_MAX / 2);
    text = (struct journal_text){0};
    assert_int_equal(segment_journal_reserve(&text, &made.sample, &error), 0);
    const unsigned char *bytes = text.bytes;
    segment_journal_add(&text, &made.sample, made.sample.bytes);
    assert_ptr_equal(text.bytes, bytes);
    assert_int_equal(text.length, segment_journal_record_bytes(&made.sample));
    free(text.bytes);
    free(made.bytes);
}
