/* Sentences in the order in which they were added. */
#include "tests/support/unit.h"

#include "resolve/notes.h"

TEST(notes_are_kept_in_order_and_copied)
{
    struct notes notes = {0}, others = {0};
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
