/* What a load that ends adds to which counters. */
#include "tests/support/unit.h"

#include "load/load_count.h"
#include "load/ticket.h"
#include "tests/support/group_stage.h"

static uint64_t ended(unsigned executor, enum load_source source, enum error_code code)
{
    return load_counts_of(executor, source).ended[code];
}

TEST(a_reference_names_its_source_by_its_scheme)
{
    static const struct {
        const char *reference;
        enum load_source source;
    } rows[] = {{"disk:/models/m", LOAD_SOURCE_DISK},
                {"https://h/m", LOAD_SOURCE_HTTPS},
                {"http://h/m", LOAD_SOURCE_HTTPS},
                {"hf://org/m", LOAD_SOURCE_HF},
                {"gs://b/m", LOAD_SOURCE_GS},
                {"s3://b/m", LOAD_SOURCE_S3},
                {"mem:m", LOAD_SOURCE_MEM},
                {"memory:m", LOAD_SOURCE_NONE},
                {"none:m", LOAD_SOURCE_NONE},
                {"", LOAD_SOURCE_NONE},
                {NULL, LOAD_SOURCE_NONE},
                {"disk", LOAD_SOURCE_DISK},
                {"diskette:/m", LOAD_SOURCE_NONE}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(load_source_of(rows[i].reference), rows[i].source);
}

TEST(the_bounds_of_the_histogram_rise)
{
    for (size_t i = 1; i < LOAD_BUCKETS; i++)
        assert_true(load_bucket_s[i] > load_bucket_s[i - 1]);
}

TEST(what_is_refused_counts_with_its_code_and_without_an_executor)
{
    const struct error error = {.code = ERROR_INVALID_ARGUMENT};
    uint64_t before = ended(EXECUTOR_COUNT, LOAD_SOURCE_GS, ERROR_INVALID_ARGUMENT);
    load_count_refused("gs://bucket/model", &error);
    assert_int_equal(ended(EXECUTOR_COUNT, LOAD_SOURCE_GS, ERROR_INVALID_ARGUMENT), before + 1);
}

TEST(a_question_that_finds_nothing_resident_is_no_load)
{
    const struct error error = {.code = ERROR_NOT_FOUND, .kind = ERROR_KIND_NOT_RESIDENT};
    const struct load_result result = {.artifact = "s3://bucket/model"};
    load_count_result(&result, &error);
    assert_int_equal(ended(EXECUTOR_COUNT, LOAD_SOURCE_S3, ERROR_NOT_FOUND), 0);
}

/* "memory:" is a source of tests alone, so these are loads of no source. */
TEST_IN(a_load_and_one_from_its_replica_count_what_their_reports_say, group_set_up, group_tear_down)
{
    struct group_stage *group = *state;
    struct stage_client first, second;
    uint64_t needed = load_counted_bytes(LOAD_BYTES_NEEDED, LOAD_SOURCE_NONE);
    uint64_t read = load_counted_bytes(LOAD_BYTES_READ, LOAD_SOURCE_NONE);
    stage_client_init(&group->stage, &first, "memory:m");
    stage_submit(&first);
    stage_run(&group->stage);
    unsigned executor = ticket_result(first.ticket)->executor;
    uint64_t view_bytes = ticket_result(first.ticket)->mapping->view_bytes;
    const struct load_counts before = load_counts_of(executor, LOAD_SOURCE_NONE);
    assert_int_equal(load_counted_bytes(LOAD_BYTES_READ, LOAD_SOURCE_NONE) - read, 8 << 20);
    stage_client_init(&group->stage, &second, "memory:m");
    stage_submit(&second);
    stage_run(&group->stage);
    const struct load_counts after = load_counts_of(executor, LOAD_SOURCE_NONE);
    uint64_t n_before = 0, n_after = 0;
    for (size_t i = 0; i <= LOAD_BUCKETS; i++) {
        n_before += before.took[i];
        n_after += after.took[i];
    }
    assert_int_equal(after.ended[ERROR_OK], before.ended[ERROR_OK] + 1);
    assert_int_equal(n_after, n_before + 1);
    assert_int_equal(after.total_ns - before.total_ns, ticket_result(second.ticket)->times.total_ns);
    assert_int_equal(load_counted_bytes(LOAD_BYTES_NEEDED, LOAD_SOURCE_NONE) - needed, 2 * view_bytes);
    assert_int_equal(load_counted_bytes(LOAD_BYTES_READ, LOAD_SOURCE_NONE) - read, 8 << 20);
    stage_let_go(&first);
    stage_let_go(&second);
}
