/* Errors carry code, reason and a message that stays UTF-8 however it is cut. */
#include "tests/support/unit.h"

#include <errno.h>
#undef fail /* cmocka's; ours is the one under test */

#include "base/error.h"
#include "base/text.h"

TEST(a_failure_has_code_reason_and_values)
{
    struct error error;
    assert_int_equal(fail(&error, ERROR_NOT_FOUND, "TENSOR_NOT_FOUND", "no tensor %s among %d", "w", 3), -1);
    assert_int_equal(error.code, ERROR_NOT_FOUND);
    assert_string_equal(error.reason, "TENSOR_NOT_FOUND");
    assert_string_equal(error.message, "no tensor w among 3");
}

TEST(a_message_may_quote_the_error_it_replaces)
{
    struct error error;
    fail(&error, ERROR_INTERNAL, "FIRST", "the cause");
    fail(&error, ERROR_ABORTED, "SECOND", "again: %s", error.message);
    assert_string_equal(error.message, "again: the cause");
    error_prefix(&error, "load %s", error.message);
    assert_string_equal(error.message, "load again: the cause: again: the cause");
}

TEST(a_failed_system_call_names_its_errno_in_words_and_letters)
{
    static const struct {
        int value;
        enum error_code code;
    } cases[] = {{ENOENT, ERROR_NOT_FOUND},          {EACCES, ERROR_PERMISSION_DENIED},
                 {ENOMEM, ERROR_RESOURCE_EXHAUSTED}, {EMFILE, ERROR_RESOURCE_EXHAUSTED},
                 {ENOSPC, ERROR_RESOURCE_EXHAUSTED}, {EIO, ERROR_DATA_LOSS},
                 {EUCLEAN, ERROR_DATA_LOSS},         {ENOTCONN, ERROR_UNAVAILABLE},
                 {ETIMEDOUT, ERROR_UNAVAILABLE},     {EHOSTDOWN, ERROR_UNAVAILABLE},
                 {EREMOTEIO, ERROR_UNAVAILABLE},     {ESTALE, ERROR_FAILED_PRECONDITION},
                 {ENXIO, ERROR_FAILED_PRECONDITION}, {EXDEV, ERROR_INTERNAL}};
    struct error error;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(fail_errno(&error, cases[i].value, "cannot open %s", "/x"), -1);
        assert_int_equal(error.code, cases[i].code);
        assert_true(error.reason[0] != '\0');
    }
    fail_errno(&error, ENOENT, "cannot open %s", "/x");
    assert_string_equal(error.message, "cannot open /x: No such file or directory (ENOENT)");
    fail_errno(&error, 9999, "odd");
    assert_non_null(strstr(error.message, "9999"));
}

TEST(a_long_message_is_cut_between_characters)
{
    char text[2 * ERROR_MESSAGE_CHARS];
    struct error error;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        fail(&error, ERROR_INTERNAL, "LONG", "%s", text);
        assert_true(strlen(error.message) > ERROR_MESSAGE_CHARS - 5);
        assert_true(text_is_utf8(error.message, strlen(error.message)));
        error_prefix(&error, "p");
        assert_true(text_is_utf8(error.message, strlen(error.message)));
        fail_errno(&error, EIO, "%s", text);
        assert_true(text_is_utf8(error.message, strlen(error.message)));
    }
}

TEST(a_message_that_just_fits_is_kept_whole)
{
    char text[ERROR_MESSAGE_CHARS];
    struct error error;
    memset(text, 'x', sizeof text);
    memcpy(text + sizeof text - 3, "\xc3\xa4", 3);
    fail(&error, ERROR_INTERNAL, "FITS", "%s", text);
    assert_string_equal(error.message, text);
}

TEST(codes_have_the_names_and_numbers_of_grpc)
{
    assert_string_equal(error_code_name(ERROR_OK), "OK");
    assert_string_equal(error_code_name(ERROR_INVALID_ARGUMENT), "INVALID_ARGUMENT");
    assert_string_equal(error_code_name(ERROR_NOT_FOUND), "NOT_FOUND");
    assert_string_equal(error_code_name(ERROR_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
    assert_string_equal(error_code_name(ERROR_FAILED_PRECONDITION), "FAILED_PRECONDITION");
    assert_string_equal(error_code_name(ERROR_UNIMPLEMENTED), "UNIMPLEMENTED");
    assert_string_equal(error_code_name(ERROR_DATA_LOSS), "DATA_LOSS");
    assert_string_equal(error_code_name((enum error_code)99), "UNKNOWN");
}

TEST(a_reason_that_is_decided_on_is_a_value_wherever_its_text_came_from)
{
    struct error error;
    fail(&error, ERROR_FAILED_PRECONDITION, REASON(SOURCE_CHANGED), "m changed");
    assert_int_equal(error.kind, ERROR_KIND_SOURCE_CHANGED);
    assert_string_equal(error.reason, "SOURCE_CHANGED");
    error_append(&error, " (%d tries)", 3);
    assert_string_equal(error.message, "m changed (3 tries)");
    assert_int_equal(error.kind, ERROR_KIND_SOURCE_CHANGED);
    fail(&error, ERROR_UNAVAILABLE, "SHUTTING_DOWN", "bye");
    assert_int_equal(error.kind, ERROR_KIND_OTHER);
    fail_errno(&error, EMFILE, "open");
    assert_int_equal(error.kind, ERROR_KIND_TOO_MANY_OPEN_FILES);
    for (int kind = ERROR_KIND_OTHER + 1; kind < ERROR_KIND_COUNT; kind++) {
        char sent[ERROR_REASON_CHARS];
        strcpy(sent, error_reasons[kind]);
        fail(&error, ERROR_INTERNAL, sent, "from afar");
        assert_int_equal(error.kind, kind);
    }
}

TEST(notes_are_listed_in_order_and_left_out_when_they_do_not_fit)
{
    struct error error;
    const char *value, *key;
    char long_value[ERROR_NOTES_BYTES];
    fail(&error, ERROR_NOT_FOUND, "X", "x");
    assert_null(error_next_note(&error, NULL, &value));
    error_note(&error, "a", "%d", 1);
    memset(long_value, 'v', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = '\0';
    error_note(&error, "b", "%s", long_value);
    error_note(&error, "c", "%s", "");
    error_prefix(&error, "where");
    key = error_next_note(&error, NULL, &value);
    assert_string_equal(key, "a");
    assert_string_equal(value, "1");
    key = error_next_note(&error, key, &value);
    assert_string_equal(key, "c");
    assert_string_equal(value, "");
    assert_null(error_next_note(&error, key, &value));
    const size_t most = sizeof error.notes - 3 - 1 - 1; /* key, NUL of the value, empty key */
    for (size_t length = most - 1; length <= most + 1; length++) {
        fail(&error, ERROR_NOT_FOUND, "X", "x");
        error_note(&error, "kk", "%.*s", (int)length, long_value);
        key = error_next_note(&error, NULL, &value);
        assert_true(length <= most ? key && strlen(value) == length : !key);
    }
    fail(&error, ERROR_NOT_FOUND, "Y", "another error has none");
    assert_null(error_next_note(&error, NULL, &value));
}
