/* Sentences in the order in which they were added. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "resolve/notes.h"

#include <cmocka.h>

static void notes_are_kept_in_order_and_copied(void **state)
{
    struct notes notes = {0}, others = {0};
    (void)state;
    notes_add(&others, "%d tensors", 2);
    notes_add(&notes, "first");
    notes_append(&notes, &others);
    notes_fini(&others);
    assert_int_equal(notes.n, 2);
    assert_string_equal(notes.texts[0], "first");
    assert_string_equal(notes.texts[1], "2 tensors");
    notes_fini(&notes);
    assert_int_equal(notes.n, 0);
    notes_fini(&notes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(notes_are_kept_in_order_and_copied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
