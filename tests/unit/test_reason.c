/* Reasons: every kind has a row, and a text that begins with its name. */
#include "tests/support/unit.h"

#include "plan/reason.h"

TEST(every_kind_has_a_name_and_an_advice)
{
    for (size_t kind = 0; kind < REASON_COUNT; kind++) {
        assert_true(reason_rows[kind].name && *reason_rows[kind].name);
        assert_true(reason_rows[kind].shape && *reason_rows[kind].advice);
        struct reason reason = reason_of((enum reason_kind)kind);
        assert_int_equal(reason.kind, kind);
        assert_string_equal(reason.text, reason_rows[kind].name);
    }
}

TEST(what_is_particular_stands_behind_the_name)
{
    struct reason reason = reason_with(REASON_GROUP_ASSEMBLE_TIMEOUT, "missing=%d,%d", 1, 3);
    assert_int_equal(reason.kind, REASON_GROUP_ASSEMBLE_TIMEOUT);
    assert_string_equal(reason.text, "group_assemble_timeout:missing=1,3");
    reason = reason_with(REASON_GROUP_CLOSED, "%s", reason.text);
    assert_int_equal(reason.kind, REASON_GROUP_CLOSED);
    assert_string_equal(reason.text, "group_closed:group_assemble_timeout:missing=1,3");
}

TEST(a_long_text_is_cut)
{
    struct reason reason = reason_with(REASON_GROUP_CLOSED, "%0300d", 0);
    assert_int_equal(strlen(reason.text), REASON_CHARS - 1);
}
