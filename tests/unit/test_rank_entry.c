/* Entries of ranks in etcd: what this program writes is read, and nothing else. */
#include "tests/support/unit.h"

#include "load/rank_entry.h"
#include "load/rank_needs.h"

#define GROUP "0123456789abcdef0123456789abcdef"
static const char key[] = "groups/" GROUP "/ranks/2";
static const struct rank_entry good = {.group = GROUP,
                                       .rank = 2,
                                       .world_size = 4,
                                       .host = "h1",
                                       .incarnation = "ab",
                                       .load = "cd",
                                       .reference = "r",
                                       .artifact = "a",
                                       .policy = "p"};

TEST(an_entry_is_read_as_it_was_written)
{
    struct rank_entry again;
    char *written = rank_entry_key(&good), *value = rank_entry_write(&good);
    assert_string_equal(written, key);
    assert_true(rank_entry_parse(key, value, &again));
    char *rewritten = rank_entry_write(&again), needs[] = "0,16,3,1";
    assert_string_equal(rewritten, value);
    assert_null(again.needs);
    assert_int_equal(again.rank, 2);
    assert_string_equal(again.group, GROUP);
    free(written);
    free(value);
    free(rewritten);
    struct rank_entry with_needs = good;
    with_needs.needs = needs;
    value = rank_entry_write(&with_needs);
    assert_true(rank_entry_parse(key, value, &again));
    assert_string_equal(again.needs, needs);
    free(value);
    free(again.needs);
}

TEST(a_value_that_no_daemon_wrote_is_no_entry)
{
#define REST "\"incarnation\": \"ab\", \"load\": \"cd\", \"reference\": \"r\", \"artifact\": \"a\", \"policy\": \"p\""
#define VALUE "{\"host\": \"h1\", \"world_size\": 4, " REST "}"
    static const struct {
        const char *what, *key, *value;
    } rows[] = {
        {"a key of something else", "hosts/h1/ab", VALUE},
        {"a short group", "groups/0123/ranks/2", VALUE},
        {"a long group", "groups/0" GROUP "/ranks/2", VALUE},
        {"a part of the key", "groups/" GROUP "/rank", VALUE},
        {"no rank", "groups/" GROUP "/ranks/", VALUE},
        {"a rank with a sign", "groups/" GROUP "/ranks/+2", VALUE},
        {"a rank that is written otherwise", "groups/" GROUP "/ranks/02", VALUE},
        {"a rank with more behind it", "groups/" GROUP "/ranks/2/x", VALUE},
        {"a rank of ten digits", "groups/" GROUP "/ranks/1000000000", VALUE},
        {"a rank beyond the world size", "groups/" GROUP "/ranks/4", VALUE},
        {"no object", key, "[]"},
        {"a member missing", key, "{\"host\": \"h1\", " REST "}"},
        {"an empty host", key, "{\"host\": \"\", \"world_size\": 4, " REST "}"},
        {"a host that is a number", key, "{\"host\": 1, \"world_size\": 4, " REST "}"},
        {"a world size of 2^32", key, "{\"host\": \"h1\", \"world_size\": 4294967296, " REST "}"},
        {"needs that are no list", key, "{\"host\": \"h1\", \"world_size\": 4, \"needs\": \"all\", " REST "}"},
        {"needs that are a number", key, "{\"host\": \"h1\", \"world_size\": 4, \"needs\": 7, " REST "}"},
        {"needs and a member missing", key, "{\"host\": \"h1\", \"needs\": \"0,1\", " REST "}"},
        {"a host of 64 characters", key, "{\"host\": \"" GROUP GROUP "\", \"world_size\": 4, " REST "}"},
    };
    struct rank_entry entry;
    assert_true(rank_entry_parse(key, VALUE, &entry));
    assert_true(rank_entry_parse("groups/" GROUP "/ranks/0", VALUE, &entry));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rank_entry_parse(rows[i].key, rows[i].value, &entry) || entry.needs)
            fail_msg("%s was taken", rows[i].what);
}

TEST(needs_are_taken_up_to_30_kib)
{
    struct rank_entry entry = good, again;
    char *needs = test_malloc(RANK_NEEDS_MAX_CHARS + 1);
    for (size_t i = 0; i < RANK_NEEDS_MAX_CHARS; i++)
        needs[i] = i % 2 ? ',' : '1';
    needs[RANK_NEEDS_MAX_CHARS - 1] = needs[RANK_NEEDS_MAX_CHARS] = '\0';
    entry.needs = needs;
    char *value = rank_entry_write(&entry);
    assert_true(rank_entry_parse(key, value, &again));
    assert_string_equal(again.needs, needs);
    free(again.needs);
    free(value);
    needs[RANK_NEEDS_MAX_CHARS - 1] = '1'; /* as many numbers, one of which has two digits */
    value = rank_entry_write(&entry);
    assert_false(rank_entry_parse(key, value, &again));
    free(value);
    test_free(needs);
}

TEST(digests_tell_texts_apart_and_where_they_end)
{
    char one[RANK_DIGEST_CHARS], other[RANK_DIGEST_CHARS];
    rank_entry_digest((const char *[]){"a", "b"}, 2, one);
    rank_entry_digest((const char *[]){"ab", ""}, 2, other);
    assert_int_equal(strlen(one), RANK_DIGEST_CHARS - 1);
    assert_string_not_equal(one, other);
    assert_null(strchr(one, '/'));
}
