/* What a unit test begins with: TEST(what_holds) { ... } defines a test and lists it, TEST_IN() one with a setup and a teardown of
 * its own. main() runs them in the order of the file. */
#ifndef TESTS_SUPPORT_UNIT_H
#define TESTS_SUPPORT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#undef fail /* which base/error.h has, too */
#undef fail_msg
#define fail_msg(...) (print_error("ERROR: " __VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

enum { UNIT_ROOM = 128 };

static struct {
    struct CMUnitTest tests[UNIT_ROOM];
    size_t n;
    int (*setup)(void **state), (*teardown)(void **state);
} unit_list;

#define TEST_IN(name, setup, teardown)                                                                                      \
    static void name(void **state);                                                                                         \
    __attribute__((constructor)) static void name##_is_listed(void)                                                         \
    {                                                                                                                       \
        unit_list.tests[unit_list.n++] = (struct CMUnitTest)cmocka_unit_test_setup_teardown(name, setup, teardown);         \
    }                                                                                                                       \
    static void name(void **state __attribute__((unused)))
#define TEST(name) TEST_IN(name, NULL, NULL)
/* Of all tests together. */
#define TESTS_IN(setup_, teardown_)                                                                                         \
    __attribute__((constructor)) static void set_up_all(void)                                                               \
    {                                                                                                                       \
        unit_list.setup = setup_;                                                                                           \
        unit_list.teardown = teardown_;                                                                                     \
    }

int main(void)
{
    return _cmocka_run_group_tests(__BASE_FILE__, unit_list.tests, unit_list.n, unit_list.setup, unit_list.teardown);
}

#endif
