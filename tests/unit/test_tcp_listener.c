/* Addresses of the configuration: which are taken, and that what is bound can be connected to. */
#include "tests/support/unit.h"

#include <errno.h>
#include <unistd.h>

#include "base/tcp_listener.h"

TEST(only_a_number_with_a_port_is_an_address)
{
    static const char *const good[] = {"127.0.0.1:9464", "0.0.0.0:0", "[::1]:65535", "[::]:1"};
    static const char *const bad[] = {
        "",          "127.0.0.1", "127.0.0.1:",      ":9464",       "127.0.0.1:65536", "127.0.0.1:-1",
        "::1:9464",  "[::1]",     "[127.0.0.1]:1",   "localhost:1", "1.2.3:4",         "127.0.0.1:1x",
        "[::1:9464", "[]:1",      "127.0.0.1:000001"};
    struct tcp_address address;
    char text[TCP_ADDRESS_CHARS];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(tcp_address_parse(good[i], &address));
        assert_string_equal(tcp_address_print(&address, text), good[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (tcp_address_parse(bad[i], &address))
            fail_msg("%s is taken", bad[i]);
}

TEST(port_0_finds_a_free_one_and_a_second_listener_there_is_refused)
{
    struct tcp_address wanted, bound, again;
    assert_true(tcp_address_parse("127.0.0.1:0", &wanted));
    int first = tcp_listen(&wanted, &bound);
    assert_true(first >= 0);
    assert_int_not_equal(tcp_address_port(&bound), 0);
    assert_int_equal(tcp_listen(&bound, &again), -1);
    assert_int_equal(errno, EADDRINUSE);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&bound.socket, bound.bytes), 0);
    close(client);
    close(first);
}
