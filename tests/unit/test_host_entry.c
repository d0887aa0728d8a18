/* Entries of hosts in etcd: what this program writes is read, and nothing else. */
#include "tests/support/unit.h"

#include "hosts/host_entry.h"

static const char good[] =
    "{\"name\": \"h1\", \"domain\": \"d\", \"address\": \"10.0.0.7:7070\", \"version\": \"1\", \"incarnation\": \"ab\"}";

TEST(an_entry_is_read_as_it_was_written)
{
    struct host_entry entry, again;
    assert_true(host_entry_parse("hosts/h1/ab", good, &entry));
    entry.started_ms = 1234567890123;
    char *value = host_entry_write(&entry), *key = host_entry_key(&entry);
    assert_string_equal(key, "hosts/h1/ab");
    assert_true(host_entry_parse(key, value, &again));
    assert_string_equal(again.address, "10.0.0.7:7070");
    assert_string_equal(again.domain, "d");
    assert_int_equal(again.started_ms, 1234567890123);
    free(value);
    free(key);
    host_entry_fini(&entry);
    host_entry_fini(&again);
}

TEST(a_value_that_no_host_wrote_is_no_entry)
{
#define ENTRY(name, address, rest) "{\"name\": \"" name "\", \"address\": \"" address "\", " rest "}"
#define REST "\"version\": \"1\", \"incarnation\": \"ab\""
    static const struct {
        const char *what, *key, *value;
    } rows[] = {
        {"another host's key", "hosts/h2/ab", good},
        {"a key without incarnation", "hosts/h1", good},
        {"members missing", "hosts/h1/ab", "{\"name\": \"h1\"}"},
        {"no object", "hosts/h1/ab", "[]"},
        {"a name that is a path", "hosts/../ab", ENTRY("..", "10.0.0.7:7070", REST)},
        {"an address that is a name", "hosts/h1/ab", ENTRY("h1", "example.com:80", REST)},
        {"no port", "hosts/h1/ab", ENTRY("h1", "10.0.0.7", REST)},
        {"a port beyond 65535", "hosts/h1/ab", ENTRY("h1", "10.0.0.7:65536", REST)},
        {"a port that is none", "hosts/h1/ab", ENTRY("h1", "10.0.0.7:7@x", REST)},
        {"an incarnation with a slash", "hosts/h1/a/b",
         ENTRY("h1", "10.0.0.7:7070", "\"version\": \"1\", \"incarnation\": \"a/b\"")},
        {"a version that is a number", "hosts/h1/ab",
         ENTRY("h1", "10.0.0.7:7070", "\"version\": 1, \"incarnation\": \"ab\"")},
    };
    struct host_entry entry;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (host_entry_parse(rows[i].key, rows[i].value, &entry))
            fail_msg("%s was taken", rows[i].what);
}

TEST(names_are_letters_digits_and_three_signs)
{
    char name[80] = "";
    assert_true(host_name_is_good("gpu-7.rack_2"));
    for (const char *const *bad = (const char *const[]){"", ".", "..", "a/b", "a b", "a\n", "\xc3\xa4", NULL}; *bad; bad++)
        assert_false(host_name_is_good(*bad));
    memset(name, 'x', 63);
    assert_true(host_name_is_good(name));
    name[63] = 'x';
    assert_false(host_name_is_good(name));
}
