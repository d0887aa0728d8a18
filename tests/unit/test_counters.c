/* The table of counters: its families, and that every closed list that labels one has its rows. */
#include "tests/support/unit.h"

#include "config/executor.h"
#include "integrity/verify.h"
#include "observe/counters.h"
#include "source/store.h"

TEST(every_row_has_a_label_of_its_own_and_the_unit_of_its_family)
{
    for (size_t i = 0; i < COUNTERS_N; i++) {
        const struct counters_row *row = &counters_rows[i], *before = i ? row - 1 : NULL;
        bool is_of_family = before && strcmp(before->name, row->name) == 0;
        assert_true(is_of_family || *row->help);
        assert_true(!*row->label == !*row->value);
        assert_false(is_of_family && (strcmp(before->unit, row->unit) != 0 || strcmp(before->label, row->label) != 0));
        for (size_t j = 0; j < i; j++)
            assert_false(strcmp(counters_rows[j].name, row->name) == 0 && strcmp(counters_rows[j].value, row->value) == 0);
    }
}

TEST(what_is_added_is_in_its_row_and_in_the_sum_of_its_family)
{
    counters_add(counters_find(COUNTER_READ_BYTES, "s3"), 5);
    counters_add(counters_find(COUNTER_READ_BYTES, "of no row"), 7);
    counters_add(COUNTER_READ_REQUESTS, 11);
    assert_int_equal(counters_get(COUNTER_READ_BYTES_S3), 5);
    assert_int_equal(counters_get(COUNTER_READ_BYTES_OTHER), 7);
    assert_int_equal(counters_sum(COUNTER_READ_BYTES), 12);
    assert_int_equal(counters_sum(COUNTER_READ_REQUESTS), 11);
}

TEST(every_executor_verdict_and_store_has_its_row)
{
    for (int i = 0; i < EXECUTOR_COUNT; i++)
        assert_string_equal(counters_rows[counters_find(COUNTER_RUNS, executor_names[i])].value, executor_names[i]);
    for (enum verified verified = VERIFIED_OFF; verified <= VERIFIED_ALL; verified++)
        assert_string_equal(counters_rows[counters_find(COUNTER_VERDICTS, verified_name(verified))].value,
                            verified_name(verified));
    for (const struct store *const *store = store_table; *store; store++)
        if ((*store)->is_remote)
            assert_int_not_equal(counters_find(COUNTER_READ_BYTES, (*store)->source->name), COUNTER_READ_BYTES_OTHER);
}
