/* Host folders that are known: found by store and host, and what they take together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "activations/host_registry.h"
#include "activations/host_table.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

static struct error error;

static void what_is_removed_is_gone_and_the_others_are_still_found(void **state)
{
    struct host_table *table = host_table_create();
    char path[32];
    (void)state;
    for (uint32_t i = 0; i < 600; i++) {
        snprintf(path, sizeof path, "/data/%u", i % 200);
        struct table_host *host = host_table_add(table, path, i / 200, &error);
        assert_non_null(host);
        assert_ptr_equal(host_table_add(table, path, i / 200, &error), host);
        assert_ptr_equal(host_table_at(table, i), host);
        assert_null(host_table_at(table, i + 1));
        host_table_count(table, host, i);
    }
    for (uint32_t i = 0; i < 600; i++) {
        snprintf(path, sizeof path, "/data/%u", i % 200);
        if (i % 200 < 150)
            host_table_remove(table, host_table_find(table, path, i / 200));
    }
    uint64_t expected = 0;
    for (uint32_t i = 0; i < 600; i++) {
        snprintf(path, sizeof path, "/data/%u", i % 200);
        const struct table_host *host = host_table_find(table, path, i / 200);
        if (i % 200 < 150) {
            assert_null(host);
            continue;
        }
        assert_int_equal(host->bytes, i);
        assert_string_equal(host->path, path);
        assert_int_equal(host->host, i / 200);
        expected += i;
    }
    assert_int_equal(host_table_bytes(table), expected);
    host_table_destroy(table);
}

static void as_many_folders_are_known_as_are_remembered(void **state)
{
    struct host_table *table = host_table_create();
    uint32_t n = 0;
    (void)state;
    while (host_table_add(table, "/data/acts", n, &error))
        n++;
    assert_string_equal(error.reason, "TOO_MANY_HOST_FOLDERS");
    assert_int_equal(n, HOST_REGISTRY_MAX);
    host_table_remove(table, host_table_find(table, "/data/acts", 7));
    assert_non_null(host_table_add(table, "/data/acts", n, &error));
    host_table_destroy(table);
}

static void a_folder_that_is_known_by_two_paths_takes_its_bytes_once(void **state)
{
    struct host_table *table = host_table_create();
    const struct folder_identity one = {1, 7}, elsewhere = {2, 7};
    (void)state;
    const char *const paths[] = {"/data/a", "/data/b", "/data/c"};
    const struct folder_identity identities[] = {one, one, elsewhere};
    for (size_t i = 0; i < 3; i++) {
        struct table_host *host = host_table_add(table, paths[i], 3, &error);
        host_table_identify(table, host, identities[i]);
        host_table_count(table, host, 100);
    }
    assert_int_equal(host_table_bytes(table), 200);
    assert_int_equal(host_table_find(table, "/data/a", 3)->bytes, 0);
    host_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_removed_is_gone_and_the_others_are_still_found),
        cmocka_unit_test(a_folder_that_is_known_by_two_paths_takes_its_bytes_once),
        cmocka_unit_test(as_many_folders_are_known_as_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
