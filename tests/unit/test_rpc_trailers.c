/* What headers and trailers say of whom nobody knows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/base64.h"
#include "client/rpc_trailers.h"
#include "google/rpc/status.pb-c.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static struct rpc_trailers trailers;

static int clear(void **state)
{
    (void)state;
    memset(&trailers, 0, sizeof trailers);
    return 0;
}

static void hear(const char *name, const char *value)
{
    rpc_trailers_header(&trailers, name, strlen(name), value, strlen(value));
}

/* google.rpc.Status with one ErrorInfo, and as many bytes of message as that its base64 has `length` characters. */
static void hear_details(const char *reason, const char *key, const char *value, size_t length)
{
    static char text[32 << 10], padding[32 << 10];
    static uint8_t details[32 << 10];
    uint8_t packed[256];
    Google__Rpc__MetadataEntry entry = GOOGLE__RPC__METADATA_ENTRY__INIT, *entries[] = {&entry};
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__Detail detail = GOOGLE__RPC__DETAIL__INIT, *list[] = {&detail};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    entry.key = key, entry.value = value;
    info.reason = reason, info.metadata = entries, info.n_metadata = 1;
    detail.type_url = "type.googleapis.com/google.rpc.ErrorInfo";
    detail.value = (ProtobufCBinaryData){google__rpc__error_info__pack(&info, packed), packed};
    status.details = list, status.n_details = 1, status.message = padding;
    memset(padding, 'x', length > 1000 ? length * 3 / 4 - 300 : 0);
    size_t n = base64_encode(details, google__rpc__status__pack(&status, details), text);
    while (n < length) {
        padding[strlen(padding)] = 'x';
        n = base64_encode(details, google__rpc__status__pack(&status, details), text);
    }
    rpc_trailers_header(&trailers, "grpc-status-details-bin", strlen("grpc-status-details-bin"), text, n);
    memset(padding, 0, sizeof padding);
}

static void numbers_of_http_and_of_statuses_have_three_digits(void **state)
{
    static const char *const bad[] = {"", "-1", "1000", "20x", "0x1", " 200"};
    (void)state;
    hear(":status", "200");
    assert_int_equal(trailers.http_status, 200);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hear(":status", bad[i]);
        assert_int_equal(trailers.http_status, -1);
        hear("grpc-status", bad[i]);
        assert_int_equal(trailers.code, 2);
    }
    hear("grpc-status", "16");
    assert_int_equal(trailers.code, 16);
}

static void a_message_is_printable_whatever_it_was(void **state)
{
    char longest[3 * ERROR_MESSAGE_CHARS];
    (void)state;
    hear("grpc-message", "a%0Ab%1B%5B31m%00%FFc%E2%82%AC%E2%82");
    assert_string_equal(trailers.told.message, "a\nb?[31m??c\xe2\x82\xac??");
    memset(longest, 'x', sizeof longest);
    rpc_trailers_header(&trailers, "grpc-message", strlen("grpc-message"), longest, sizeof longest);
    assert_int_equal(strlen(trailers.told.message), ERROR_MESSAGE_CHARS - 1);
}

static void a_reason_is_a_word_for_programs(void **state)
{
    const char *value;
    (void)state;
    hear_details("TENSOR_GONE", "tensor", "w", 0);
    assert_true(trailers.has_info);
    assert_string_equal(trailers.told.reason, "TENSOR_GONE");
    assert_string_equal(error_next_note(&trailers.told, NULL, &value), "tensor");
    assert_string_equal(value, "w");
    clear(state);
    hear_details("no word\x1b[31m", "tensor", "\xff", 0);
    assert_true(trailers.has_info);
    assert_string_equal(trailers.told.reason, "");
    assert_null(error_next_note(&trailers.told, NULL, &value));
}

static void details_that_are_none_count_as_not_sent(void **state)
{
    static const char *const bad[] = {"", "!", "abc=d", "A", "/////w=="};
    (void)state;
    for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
        hear("grpc-status-details-bin", bad[i]);
        assert_false(trailers.has_info);
    }
}

static void details_of_16_kib_are_read_and_longer_ones_are_not(void **state)
{
    (void)state;
    hear_details("LONG", "k", "v", 16384);
    assert_string_equal(trailers.told.reason, "LONG");
    clear(state);
    hear_details("LONGER", "k", "v", 16385);
    assert_false(trailers.has_info);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(numbers_of_http_and_of_statuses_have_three_digits, clear),
        cmocka_unit_test_setup(a_message_is_printable_whatever_it_was, clear),
        cmocka_unit_test_setup(a_reason_is_a_word_for_programs, clear),
        cmocka_unit_test_setup(details_that_are_none_count_as_not_sent, clear),
        cmocka_unit_test_setup(details_of_16_kib_are_read_and_longer_ones_are_not, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
