/* The busiest artifacts by name, all others in one number, and no load is lost between them. */
#include "tests/support/unit.h"

#include <stdlib.h>

#include "load/artifact_count.h"

static void load(size_t number, size_t times)
{
    char reference[32];
    snprintf(reference, sizeof reference, "disk:/models/%zu", number);
    while (times--)
        artifact_count_add(reference);
}

static uint64_t sum(const struct artifact_counts *counts)
{
    uint64_t n = counts->other;
    for (size_t i = 0; i < counts->n; i++)
        n += counts->busiest[i].loads;
    return n;
}

static int tear_down(void **state __attribute__((unused)))
{
    artifact_count_reset();
    return 0;
}

TEST_IN(fifty_are_named_and_the_fifty_first_is_among_others, NULL, tear_down)
{
    for (size_t i = 0; i < ARTIFACT_COUNT_BUSIEST; i++)
        load(i, 1);
    struct artifact_counts counts = artifact_count_get();
    assert_int_equal(counts.n, ARTIFACT_COUNT_BUSIEST);
    assert_int_equal(counts.other, 0);
    load(ARTIFACT_COUNT_BUSIEST, 1);
    counts = artifact_count_get();
    assert_int_equal(counts.n, ARTIFACT_COUNT_BUSIEST);
    assert_int_equal(counts.other, 1);
    assert_string_equal(counts.busiest[0].reference, "disk:/models/0");
    load(ARTIFACT_COUNT_BUSIEST, 2); /* that of `other` is the busiest now, and counts in full */
    counts = artifact_count_get();
    assert_string_equal(counts.busiest[0].reference, "disk:/models/50");
    assert_int_equal(counts.busiest[0].loads, 3);
    assert_int_equal(sum(&counts), ARTIFACT_COUNT_BUSIEST + 3);
}

TEST_IN(more_artifacts_than_rows_displace_the_least_loaded, NULL, tear_down)
{
    load(7, 3);
    for (size_t i = 0; i < 2 * ARTIFACT_COUNT_ROWS; i++)
        load(i, 1);
    const struct artifact_counts counts = artifact_count_get();
    assert_string_equal(counts.busiest[0].reference, "disk:/models/7");
    assert_int_equal(counts.busiest[0].loads, 4);
    assert_int_equal(sum(&counts), 2 * ARTIFACT_COUNT_ROWS + 3);
}

TEST_IN(a_name_of_a_kilobyte_is_told_apart_and_a_longer_one_is_not, NULL, tear_down)
{
    char name[ARTIFACT_COUNT_NAME_BYTES + 2];
    memset(name, 'a', sizeof name);
    name[ARTIFACT_COUNT_NAME_BYTES + 1] = '\0';
    artifact_count_add(name);
    struct artifact_counts counts = artifact_count_get();
    assert_true(counts.n == 0 && counts.other == 1);
    name[ARTIFACT_COUNT_NAME_BYTES] = '\0';
    artifact_count_add(name);
    counts = artifact_count_get();
    assert_true(counts.n == 1 && counts.other == 1);
}

/* Or rate() would take it for a restart of the daemon. */
TEST_IN(no_counter_falls_whichever_artifacts_are_the_busiest, NULL, tear_down)
{
    enum { NAMES = 3 * ARTIFACT_COUNT_ROWS, LOADS = 20000 };
    static uint64_t shown[NAMES]; /* by the last look; 0 = it was not among them */
    uint64_t other = 0;
    unsigned seed = 7;
    for (size_t i = 0; i < LOADS; i++) { /* the busy ones change as time goes on, and most are loaded once */
        unsigned chance = (unsigned)rand_r(&seed);
        load((chance % 3 ? i / 100 + chance % 80 : chance) % NAMES, 1);
        const struct artifact_counts now = artifact_count_get();
        uint64_t before[NAMES];
        memcpy(before, shown, sizeof shown);
        memset(shown, 0, sizeof shown);
        assert_true(now.other >= other);
        assert_int_equal(sum(&now), i + 1);
        other = now.other;
        for (size_t k = 0; k < now.n; k++) {
            size_t number = strtoul(now.busiest[k].reference + strlen("disk:/models/"), NULL, 10);
            shown[number] = now.busiest[k].loads;
            assert_true(shown[number] >= before[number]);
        }
    }
}
