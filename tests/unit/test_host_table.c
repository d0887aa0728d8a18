/* Host folders that were ever written: whose they are, how many, and what they take. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "activations/host_table.h"
#include "base/memory.h"

#include <cmocka.h>
#undef fail /* ours is in base/error.h */

enum { ANN = 70001, BOB = 70002, KEPT_PERCENT = 10 };

static struct error error;

static struct known_host known(const char *path, uint32_t host, uid_t uid, bool is_shared)
{
    static char text[128]; /* as a registry has it, which may be written */
    snprintf(text, sizeof text, "%s", path);
    return (struct known_host){.path = text, .host = host, .uid = uid, .is_shared = is_shared};
}

static struct table_host *add(struct host_table *table, const char *path, uint32_t host, uid_t uid)
{
    const struct known_host wanted = known(path, host, uid, false);
    return host_table_add(table, &wanted, KEPT_PERCENT, &error);
}

static bool may(const struct host_table *table, const char *path, uid_t uid, bool is_member)
{
    const struct known_host user = known(path, 9, uid, is_member);
    return host_table_check(table, &user, &error) == 0;
}

static void a_store_is_for_its_first_user_and_for_root(void **state)
{
    struct host_table *table = host_table_create();
    (void)state;
    assert_non_null(add(table, "/data/acts", 3, ANN));
    assert_true(may(table, "/data/acts", ANN, false));
    assert_true(may(table, "/data/acts", 0, false));
    assert_false(may(table, "/data/acts", BOB, true));
    assert_string_equal(error.reason, "STORE_OF_ANOTHER_USER");
    assert_false(may(table, "/data/acts/host_003/x", BOB, false));
    assert_false(may(table, "/data/acts/host_003", BOB, false));
    assert_true(may(table, "/data/acts/host_004", BOB, false));
    assert_true(may(table, "/data", BOB, false));
    assert_true(may(table, "/data/acts2", BOB, false));
    struct table_host *fourth = add(table, "/data/acts", 4, 0); /* by root: hers all the same */
    assert_int_equal(host_table_known(fourth).uid, ANN);
    host_table_destroy(table);
}

static void a_store_of_a_member_is_for_all_members(void **state)
{
    struct host_table *table = host_table_create();
    const struct known_host member = known("/data/acts", 3, ANN, true);
    (void)state;
    assert_non_null(host_table_add(table, &member, KEPT_PERCENT, &error));
    assert_true(may(table, "/data/acts", BOB, true));
    assert_false(may(table, "/data/acts", BOB, false));
    host_table_destroy(table);
}

static void what_is_removed_is_nobodys_and_the_others_are_still_found(void **state)
{
    struct host_table *table = host_table_create();
    char path[32];
    uint64_t all, own;
    (void)state;
    for (uint32_t i = 0; i < 600; i++) {
        snprintf(path, sizeof path, "/data/%u", i % 200);
        struct table_host *host = add(table, path, i / 200, i % 2 ? ANN : BOB);
        assert_non_null(host);
        assert_ptr_equal(add(table, path, i / 200, ANN), host);
        assert_ptr_equal(host_table_at(table, i), host);
        assert_null(host_table_at(table, i + 1));
        host_table_count(table, host, i);
    }
    for (uint32_t i = 0; i < 600; i++) {
        snprintf(path, sizeof path, "/data/%u", i % 200);
        if (i % 200 < 150)
            host_table_remove(table, host_table_find(table, path, i / 200));
    }
    assert_null(host_table_find(table, "/data/7", 0));
    assert_true(may(table, "/data/7", BOB, false));
    assert_false(may(table, "/data/151", BOB, false));
    uint64_t expected_all = 0, expected_own = 0;
    for (uint32_t i = 0; i < 600; i++) {
        snprintf(path, sizeof path, "/data/%u", i % 200);
        const struct table_host *host = host_table_find(table, path, i / 200);
        if (i % 200 < 150) {
            assert_null(host);
            continue;
        }
        assert_int_equal(host->bytes, i);
        assert_string_equal(host_table_known(host).path, path);
        expected_all += i;
        expected_own += i % 2 ? i : 0;
    }
    host_table_bytes(table, ANN, &all, &own);
    assert_int_equal(all, expected_all);
    assert_int_equal(own, expected_own);
    host_table_destroy(table);
}

static void a_user_has_nine_of_ten_places_and_root_the_last_one(void **state)
{
    struct host_table *table = host_table_create();
    uint32_t n = 0;
    (void)state;
    while (add(table, "/data/acts", n, ANN))
        n++;
    assert_string_equal(error.reason, "TOO_MANY_HOST_FOLDERS");
    assert_in_range(n, HOST_REGISTRY_MAX / 100 * 89, HOST_REGISTRY_MAX / 100 * 91);
    assert_non_null(add(table, "/data/his", 1, BOB));
    const struct known_host of_root = known("/data/roots", 0, 0, false);
    struct known_host next = of_root;
    for (n++; n < HOST_REGISTRY_MAX; n++, next.host++)
        assert_non_null(host_table_add(table, &next, 0, &error));
    assert_null(host_table_add(table, &next, 0, &error));
    host_table_destroy(table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_is_for_its_first_user_and_for_root),
        cmocka_unit_test(a_store_of_a_member_is_for_all_members),
        cmocka_unit_test(what_is_removed_is_nobodys_and_the_others_are_still_found),
        cmocka_unit_test(a_user_has_nine_of_ten_places_and_root_the_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
