/* Bytes by host: one row a host, sorted, and no more rows than there is room for. */
#include "tests/support/unit.h"

#include "execute/from_hosts.h"

TEST(bytes_of_a_host_are_added_to_its_row)
{
    struct from_hosts hosts = {0};
    static const char *const names[] = {"m", "b", "z", "m", "a", "z"};
    for (size_t i = 0; i < 6; i++)
        from_hosts_add(&hosts, names[i], i + 1);
    static const struct from_host expected[] = {{"a", 5}, {"b", 2}, {"m", 5}, {"z", 9}};
    assert_int_equal(hosts.n, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(hosts.list[i].name, expected[i].name);
        assert_int_equal(hosts.list[i].bytes, expected[i].bytes);
    }
    free(hosts.list);
}

TEST(a_long_name_is_cut_and_found_again)
{
    struct from_hosts hosts = {0};
    char name[FROM_HOSTS_NAME_CHARS + 10];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    from_hosts_add(&hosts, name, 1);
    from_hosts_add(&hosts, name, 2);
    assert_int_equal(hosts.n, 1);
    assert_int_equal(strlen(hosts.list[0].name), FROM_HOSTS_NAME_CHARS - 1);
    assert_int_equal(hosts.list[0].bytes, 3);
    free(hosts.list);
}

TEST(hosts_beyond_1024_are_counted_together)
{
    struct from_hosts hosts = {0};
    char name[16];
    for (unsigned i = 0; i < FROM_HOSTS_MAX + 3; i++) {
        snprintf(name, sizeof name, "h%u", i);
        from_hosts_add(&hosts, name, 1);
    }
    from_hosts_add(&hosts, "h0", 1);
    uint64_t sum = 0;
    for (size_t i = 0; i < hosts.n; i++)
        sum += hosts.list[i].bytes;
    assert_int_equal(sum, FROM_HOSTS_MAX + 4);
    assert_int_equal(hosts.n, FROM_HOSTS_MAX + 1);
    assert_string_equal(hosts.list[0].name, "(others)");
    assert_int_equal(hosts.list[0].bytes, 3);
    free(hosts.list);
}
