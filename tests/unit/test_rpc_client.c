/* What a client makes of the answers of whatever listens on its socket, written frame by frame. How connections and
 * calls end is in test_rpc_client_ends.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <sys/socket.h>

#include "base/base64.h"
#include "client/rpc_client.h"
#include "client/rpc_stream.h"
#include "google/rpc/status.pb-c.h"
#include "tests/support/frame_server.h"

#include <cmocka.h> /* last: its macro fail() would hide ours */

static void is_bad(const char *words)
{
    frame_server_fails_with(ERROR_INTERNAL, "BAD_ANSWER", words);
    assert_int_equal(frame_server.n_connections, 1);
}

static void an_answer_is_read(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
}

static void other_services_are_no_daemon(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_headers(1, END_STREAM, ":status", "404", "content-type", "text/html", NULL);
    frame_server_is_unreachable("HTTP status 404");
    assert_int_equal(frame_server.n_connections, 1);
}

static void other_content_is_no_daemon(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_headers(1, 0, ":status", "200", "content-type", "text/html", NULL);
    frame_server_say_frame(DATA, 0, 1, "<html>", 6);
    frame_server_answer->hangs = true; /* more of it may follow for ever */
    frame_server_is_unreachable("application/grpc");
}

static void an_interim_answer_is_waited_through(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_headers(1, 0, ":status", "103", NULL);
    frame_server_say_seven(1);
    struct rpc_client *client = rpc_client_create(frame_server.path, NULL);
    assert_int_equal(frame_server_ask(client), 7);
    rpc_client_destroy(client);
}

static void the_status_of_the_daemon_is_the_error(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status", "5",
                             "grpc-message", "no %C3%A9 100%25 %", NULL);
    frame_server_fails_with(ERROR_NOT_FOUND, "NOT_FOUND", "no \xc3\xa9 100% %");
    assert_int_equal(frame_server.n_connections, 1);
}

/* As the daemon packs it. */
static void say_details(bool padded)
{
    uint8_t packed[256], details[512];
    char text[1024];
    Google__Rpc__MetadataEntry entry = GOOGLE__RPC__METADATA_ENTRY__INIT, *entries[] = {&entry};
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__Detail detail = GOOGLE__RPC__DETAIL__INIT, *list[] = {&detail};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    entry.key = "tensor", entry.value = "w";
    info.reason = "TENSOR_GONE", info.metadata = entries, info.n_metadata = 1;
    detail.type_url = "type.googleapis.com/google.rpc.ErrorInfo";
    detail.value = (ProtobufCBinaryData){google__rpc__error_info__pack(&info, packed), packed};
    status.message = "12"; /* so that there is something to pad */
    status.details = list, status.n_details = 1;
    size_t n = base64_encode(details, google__rpc__status__pack(&status, details), text);
    assert_int_not_equal(n % 4, 0);
    while (padded && n % 4)
        text[n++] = '=';
    text[n] = '\0';
    frame_server_say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status", "14",
                             "grpc-message", "gone", "grpc-status-details-bin", text, NULL);
}

static void reason_and_notes_come_in_base64_with_or_without_padding(void **state)
{
    const char *value;
    (void)state;
    frame_server.n_answers = 2;
    for (unsigned i = 0; i < 2; i++) {
        frame_server_answer = &frame_server_answers[i];
        frame_server_say_settings();
        say_details(i == 1);
    }
    frame_server_answer = frame_server_answers;
    for (unsigned i = 0; i < 2; i++) {
        frame_server_fails_with(ERROR_UNAVAILABLE, "TENSOR_GONE", "gone");
        assert_string_equal(error_next_note(&frame_server_error, NULL, &value), "tensor");
        assert_string_equal(value, "w");
        assert_int_equal(frame_server.n_connections, i + 1); /* the daemon answered: it is not asked again */
    }
}

static void a_status_that_is_no_number_of_one_is_unknown(void **state)
{
    static const char *const codes[] = {"17", "-1", "x", "9999999999"};
    (void)state;
    frame_server.n_answers = 4;
    for (size_t i = 0; i < 4; i++) {
        frame_server_answer = &frame_server_answers[i];
        frame_server_say_settings();
        frame_server_say_headers(1, END_STREAM, ":status", "200", "content-type", "application/grpc", "grpc-status",
                                 codes[i], NULL);
    }
    frame_server_answer = frame_server_answers;
    for (size_t i = 0; i < 4; i++)
        frame_server_fails_with((enum error_code)2, "UNKNOWN", "");
}

static void an_answer_without_a_status_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, END_STREAM, sizeof frame_server_seven, frame_server_seven, sizeof frame_server_seven);
    is_bad("without a status");
}

static void trailers_without_a_status_are_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_headers(1, END_STREAM, "x", "y", NULL);
    is_bad("without a status");
}

static void a_message_that_is_shorter_than_said_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, 3, frame_server_seven, sizeof frame_server_seven);
    frame_server_say_status(1, "0");
    is_bad("within a message");
}

static void a_message_that_is_longer_than_said_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, 1, "\x58\x07\x58\x07\x58\x07\x58", 7);
    frame_server_say_status(1, "0");
    frame_server_fails_with(ERROR_INTERNAL, "BAD_ANSWER", ""); /* the first byte alone is no message */
}

static void a_compressed_message_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_frame(DATA, 0, 1, "\1\0\0\0\2\x58\x07", 7);
    frame_server_answer->hangs = true;
    is_bad("compressed");
}

static void a_message_may_have_one_gibibyte_and_no_more(void **state)
{
    (void)state;
    frame_server.n_answers = 2;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, RPC_STREAM_MAX_MESSAGE_BYTES + 1u, "", 0);
    frame_server_answer->hangs = true;
    is_bad("1073741825 bytes");
    frame_server_answer = &frame_server_answers[1];
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, RPC_STREAM_MAX_MESSAGE_BYTES, "", 0);
    frame_server_say_status(1, "0");
    frame_server_fails_with(ERROR_INTERNAL, "BAD_ANSWER", "within a message");
    frame_server_answer = frame_server_answers;
}

static void a_message_of_another_type_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, 3, "\xff\xff\xff", 3);
    frame_server_say_status(1, "0");
    is_bad("is not a tensorcast.daemon.v1.StatusResponse");
}

static void an_answer_without_a_message_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_status(1, "0");
    is_bad("holds no message");
}

static void an_answer_of_two_messages_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_head(1);
    frame_server_say_message(1, 0, 0, "", 0);
    frame_server_say_message(1, 0, 0, "", 0); /* and so on */
    frame_server_answers[0].hangs = true;
    is_bad("holds more than one message");
}

static void a_stream_that_is_reset_is_bad(void **state)
{
    (void)state;
    frame_server_say_settings();
    frame_server_say_reset(1, 2);
    is_bad("INTERNAL_ERROR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVED(an_answer_is_read),
        SERVED(other_services_are_no_daemon),
        SERVED(other_content_is_no_daemon),
        SERVED(an_interim_answer_is_waited_through),
        SERVED(the_status_of_the_daemon_is_the_error),
        SERVED(reason_and_notes_come_in_base64_with_or_without_padding),
        SERVED(a_status_that_is_no_number_of_one_is_unknown),
        SERVED(an_answer_without_a_status_is_bad),
        SERVED(trailers_without_a_status_are_bad),
        SERVED(a_message_that_is_shorter_than_said_is_bad),
        SERVED(a_message_that_is_longer_than_said_is_bad),
        SERVED(a_compressed_message_is_bad),
        SERVED(a_message_may_have_one_gibibyte_and_no_more),
        SERVED(a_message_of_another_type_is_bad),
        SERVED(an_answer_without_a_message_is_bad),
        SERVED(an_answer_of_two_messages_is_bad),
        SERVED(a_stream_that_is_reset_is_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
