/* Errors as trailers: complete when they fit, cut so that they always do. */
#include "tests/support/unit.h"

#undef fail /* ours is in base/error.h */

#include "base/text.h"
#include "google/rpc/status.pb-c.h"
#include "rpc/rpc_status.h"

static struct rpc_status built;

static Google__Rpc__Status *build(const struct error *error)
{
    rpc_status_build(error, &built);
    assert_true(built.details_bytes <= RPC_STATUS_DETAIL_BYTES);
    assert_true(text_is_utf8(built.message, strlen(built.message)));
    Google__Rpc__Status *status = google__rpc__status__unpack(NULL, built.details_bytes, built.details);
    assert_non_null(status);
    assert_string_equal(status->message, built.message);
    assert_int_equal(status->code, error->code);
    return status;
}

TEST(code_message_and_reason_travel)
{
    struct error error;
    fail(&error, ERROR_PERMISSION_DENIED, "OUTSIDE_TRUSTED_ROOTS", "%s is outside", "/étc");
    Google__Rpc__Status *status = build(&error);
    assert_string_equal(built.message, "/étc is outside");
    Google__Rpc__ErrorInfo *info =
        google__rpc__error_info__unpack(NULL, status->details[0]->value.len, status->details[0]->value.data);
    assert_string_equal(info->reason, "OUTSIDE_TRUSTED_ROOTS");
    assert_string_equal(info->domain, "tensorcast");
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
}

TEST(notes_become_metadata)
{
    struct error error;
    fail(&error, ERROR_RESOURCE_EXHAUSTED, "HOST_BUDGET_EXCEEDED", "too much");
    error_note(&error, "needed_bytes", "%d", 7);
    error_note(&error, "tensor", "%s", "a\xc3\xa9");
    Google__Rpc__Status *status = build(&error);
    Google__Rpc__ErrorInfo *info =
        google__rpc__error_info__unpack(NULL, status->details[0]->value.len, status->details[0]->value.data);
    assert_int_equal(info->n_metadata, 2);
    assert_string_equal(info->metadata[0]->key, "needed_bytes");
    assert_string_equal(info->metadata[0]->value, "7");
    assert_string_equal(info->metadata[1]->value, "a\xc3\xa9");
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
}

TEST(the_longest_message_and_reason_fit)
{
    struct error error = {.code = ERROR_INTERNAL};
    memset(error.reason, 'R', sizeof error.reason - 1);
    memset(error.message, 'm', sizeof error.message - 1);
    for (int i = 0; i < 300; i++)
        error_note(&error, "k", "v");
    google__rpc__status__free_unpacked(build(&error), NULL);
    assert_int_equal(strlen(built.message), sizeof error.message - 1);
}

TEST(text_that_is_not_utf8_does_not_cost_the_status)
{
    struct error error = {.code = ERROR_DATA_LOSS, .reason = "X", .message = "bad \xff name"};
    google__rpc__status__free_unpacked(build(&error), NULL);
    assert_string_equal(built.message, "bad ? name");
}

TEST(eight_notes_travel_and_a_ninth_stays_behind)
{
    struct error error;
    char key[2] = "a";
    fail(&error, ERROR_INTERNAL, "MANY_NOTES", "many");
    for (int i = 0; i < 9; i++, key[0]++)
        error_note(&error, key, "%d", i);
    Google__Rpc__Status *status = build(&error);
    Google__Rpc__ErrorInfo *info =
        google__rpc__error_info__unpack(NULL, status->details[0]->value.len, status->details[0]->value.data);
    assert_int_equal(info->n_metadata, 8);
    assert_string_equal(info->metadata[7]->value, "7");
    google__rpc__error_info__free_unpacked(info, NULL);
    google__rpc__status__free_unpacked(status, NULL);
}
