/* Which addresses are this host, which may not be asked for, and which texts are addresses at all. */
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/address.h"

static void expect_kind(const char *text, enum address_kind kind)
{
    struct address address;
    if (!address_parse(text, strlen(text), &address))
        fail_msg("%s is no address", text);
    if (address_kind(&address) != kind)
        fail_msg("%s is of kind %d", text, address_kind(&address));
}

TEST(this_host_is_its_loopback_alone)
{
    expect_kind("127.0.0.1", ADDRESS_THIS_HOST);
    expect_kind("127.255.255.255", ADDRESS_THIS_HOST);
    expect_kind("::1", ADDRESS_THIS_HOST);
    expect_kind("::ffff:127.0.0.1", ADDRESS_THIS_HOST); /* the kernel connects there */
    expect_kind("126.255.255.255", ADDRESS_ANY);
    expect_kind("128.0.0.1", ADDRESS_ANY);
    expect_kind("::2", ADDRESS_RESERVED); /* 0.0.0.2 in the old form */
    expect_kind("2001:db8::1", ADDRESS_ANY);
}

TEST(link_local_and_metadata_addresses_are_reserved_in_every_form)
{
    static const char *const reserved[] = {
        "169.254.0.0",
        "169.254.169.254",
        "169.254.255.255",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "fe80::1",
        "febf:ffff::1",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "::ffff:169.254.169.254",
        "::169.254.1.1",
        "::ffff:0:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.1.1",
        "2002:a9fe:a9fe::",
        "64:ff9b::127.0.0.1",
        "2002:7f00:1::",
        "::ffff:0.0.0.0",
    };
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        expect_kind(reserved[i], ADDRESS_RESERVED);
    expect_kind("169.253.255.255", ADDRESS_ANY);
    expect_kind("169.255.0.0", ADDRESS_ANY);
    expect_kind("fe7f::1", ADDRESS_ANY);
    expect_kind("fec0::1", ADDRESS_ANY);
    expect_kind("fd00:ec3::1", ADDRESS_ANY);
    expect_kind("10.0.0.1", ADDRESS_ANY);
    expect_kind("64:ff9b::8.8.8.8", ADDRESS_ANY);
}

TEST(only_the_usual_spelling_is_an_address)
{
    static const char *const none[] = {"127.1",      "2130706433", "0x7f000001",   "0177.0.0.1", "127.0.0.01", "127.0.0.256",
                                       "127.0.0.1.", "",           "fe80::1%eth0", "[::1]",      "1.2.3",      " 127.0.0.1",
                                       "::g",        "localhost",  "1.2.3.4.5",    "::1::",      "0x7f.0.0.1"};
    struct address address;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        if (address_parse(none[i], strlen(none[i]), &address))
            fail_msg("%s is taken for an address", none[i]);
    }
    assert_false(address_parse("1.2.3.4\0x", 9, &address));
}

TEST(a_host_that_may_be_read_as_a_number_is_known)
{
    static const char *const numeric[] = {"127.1",  "2130706433", "0x7f000001", "0X7f.1", "0177.0.0.1", "1.2.3.4",
                                          "a.b.12", "127.0.0.1.", "0",          "h.0x",   "1.2.0xg"};
    static const char *const names[] = {"example.com", "1.example", "0x7f.example", "h1", "1-2", "a.b-1", "", "."};
    for (size_t i = 0; i < sizeof numeric / sizeof *numeric; i++)
        assert_true(address_is_numeric(numeric[i], strlen(numeric[i])));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(address_is_numeric(names[i], strlen(names[i])));
}

/* inet_aton() is what the resolver falls back to: whatever it reads is a number to us. */
TEST(whatever_the_resolver_reads_as_a_number_is_one)
{
    static const char alphabet[] = "0129.xXaf";
    char text[8] = "";
    for (unsigned n = 0; n < 9 * 9 * 9 * 9 * 9; n++) {
        struct in_addr ignored;
        for (unsigned i = 0, rest = n; i < 5; i++, rest /= 9)
            text[i] = alphabet[rest % 9];
        if (inet_aton(text, &ignored) && !address_is_numeric(text, strlen(text)))
            fail_msg("%s is a number to the resolver", text);
    }
}

TEST(the_address_of_a_socket_is_that_of_its_text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr local = {.sa_family = AF_UNIX};
    struct address address, parsed;
    char text[ADDRESS_CHARS];
    inet_pton(AF_INET, "169.254.169.254", &v4.sin_addr);
    inet_pton(AF_INET6, "fd00:ec2::254", &v6.sin6_addr);
    assert_true(address_of_socket((struct sockaddr *)&v4, &address));
    assert_true(address_parse("169.254.169.254", 15, &parsed));
    assert_memory_equal(&address, &parsed, sizeof address);
    assert_string_equal(address_print(&address, text), "169.254.169.254");
    assert_true(address_of_socket((struct sockaddr *)&v6, &address));
    assert_string_equal(address_print(&address, text), "fd00:ec2::254");
    assert_false(address_of_socket(&local, &address));
}
