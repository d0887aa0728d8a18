/* What a report says of targets, before a load and after it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "load/into_report.h"

#include <cmocka.h>

static void there_is_none_without_targets(void **state)
{
    const struct mapping mapping = {.view_bytes = 10};
    const struct load_result result = {.mapping = &mapping};
    struct into_report report;
    (void)state;
    assert_false(into_report_make(&result, &report));
}

static void a_plan_tells_what_is_to_be_written_and_how(void **state)
{
    static const struct {
        enum executor executor;
        bool has_address, converts, is_direct, is_ordered, is_collective;
    } rows[] = {{EXECUTOR_TENSOR_BATCHED_LOCAL, true, false, true, true, false},
                {EXECUTOR_GENERIC_BYTE_RANGE, true, true, false, false, false},
                {EXECUTOR_OWNER_FILE_COLLECTIVE, false, false, false, true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct device device = {.caps.direct_segments = rows[i].has_address};
        const struct mapping mapping = {
            .has_targets = true, .view_bytes = 10, .fill_bytes = 5, .n_operations = rows[i].converts ? 2 : 0};
        const struct plan plan = {.executor = rows[i].executor, .residual_bytes = 3};
        const struct load_result result = {.device = &device, .mapping = &mapping, .plan = &plan};
        struct into_report report;
        assert_true(into_report_make(&result, &report));
        assert_int_equal(report.direct_write_supported, rows[i].is_direct);
        assert_int_equal(report.source_ordered, rows[i].is_ordered);
        assert_int_equal(report.collective_handled, rows[i].is_collective);
        assert_string_equal(report.dominant_executor, executor_names[rows[i].executor]);
        assert_int_equal(report.committed_bytes, 15);
        assert_int_equal(report.fallback_bytes, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_none_without_targets),
        cmocka_unit_test(a_plan_tells_what_is_to_be_written_and_how),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
