/* What hosts share: ids of file versions that are the same on all of them, and one owner for each block. */
#include "tests/support/unit.h"

#include "hosts/election.h"

static struct source_file file_of(const char *name, uint64_t inode, uint64_t mtime_ns)
{
    return (struct source_file){.name = name,
                                .size_bytes = 100 << 20,
                                .identity = {.device = 7, .inode = inode, .size_bytes = 100 << 20, .mtime_ns = mtime_ns},
                                .changes_by = CHANGES_BY_VERSION};
}

TEST(a_file_is_the_same_on_two_hosts_when_its_version_is)
{
    struct source_file files[] = {file_of("a", 1, 2), file_of("a", 1, 2), file_of("a", 1, 3), file_of("b", 1, 2)};
    struct source source = {.reference = "https://h/m", .files = files, .n_files = 4, .caps = {.reads_are_requests = true}};
    struct shared_file shared[4];
    const char *reason;
    for (size_t i = 0; i < 4; i++)
        assert_true(shared_file_of(&source, i, &shared[i], &reason));
    assert_string_equal(shared[0].id, shared[1].id);
    assert_int_equal(shared[0].hash, shared[1].hash);
    assert_string_not_equal(shared[0].id, shared[2].id);
    assert_string_not_equal(shared[0].id, shared[3].id);
    assert_int_equal(strlen(shared[0].id), SHARED_ID_CHARS - 1);
}

TEST(a_file_of_a_network_file_system_is_known_by_what_its_server_says)
{
    struct source_file files[] = {file_of("a", 1, 2), file_of("a", 1, 2)};
    struct source source = {
        .reference = "https://h/m", .files = files, .n_files = 2, .caps = {.filesystem = SOURCE_NETWORK}};
    struct shared_file here, there;
    const char *reason;
    files[0].changes_by = files[1].changes_by = CHANGES_BY_TIMESTAMPS;
    files[1].identity.device = 8;      /* each host numbers its mounts */
    files[1].identity.lease_span = 42; /* of one process */
    assert_true(shared_file_of(&source, 0, &here, &reason) && shared_file_of(&source, 1, &there, &reason));
    assert_string_equal(here.id, there.id);
}

TEST(what_is_one_hosts_alone_or_has_no_version_is_not_shared)
{
    struct source_file file = file_of("a", 1, 2);
    struct source source = {.reference = "https://h/m", .files = &file, .n_files = 1};
    struct shared_file shared;
    const char *reason;
    assert_false(shared_file_of(&source, 0, &shared, &reason));
    assert_string_equal(reason, "the file is on this host");
    source.caps.reads_are_requests = true;
    file.changes_by = CHANGES_BY_TIMESTAMPS;
    assert_false(shared_file_of(&source, 0, &shared, &reason));
    assert_string_equal(reason, "the store gives no strong version of the file");
    source.caps = (struct source_caps){.filesystem = SOURCE_NETWORK};
    file.changes_by = CHANGES_RACY;
    assert_false(shared_file_of(&source, 0, &shared, &reason));
    assert_string_equal(reason, "the file was changed just now");
}

TEST(a_file_whose_numbers_another_host_s_may_have_is_not_shared)
{
    struct source_file file = file_of("a", 1, 1000000000);
    struct source source = {.files = &file, .n_files = 1, .caps = {.filesystem = SOURCE_NETWORK, .filesystem_type = "fuse"}};
    struct shared_file shared;
    const char *reason;
    file.changes_by = CHANGES_BY_TIMESTAMPS;
    file.identity.ctime_ns = 2000000000;
    assert_false(shared_file_of(&source, 0, &shared, &reason));
    assert_non_null(strstr(reason, "whole seconds"));
    file.identity.ctime_ns++;
    assert_true(shared_file_of(&source, 0, &shared, &reason));
    file.identity.ctime_ns--;
    strcpy(source.caps.filesystem_type, "0x47504653");
    assert_false(shared_file_of(&source, 0, &shared, &reason));
    strcpy(source.caps.filesystem_type, "lustre"); /* its servers number files, and know no fractions */
    assert_true(shared_file_of(&source, 0, &shared, &reason));
}

TEST(a_reference_whose_query_is_not_shown_is_not_shared)
{
    struct source_file file = file_of("a", 1, 2);
    struct source source = {
        .reference = "https://h/m?...", .files = &file, .n_files = 1, .caps = {.reads_are_requests = true}};
    struct shared_file shared;
    const char *reason;
    assert_false(shared_file_of(&source, 0, &shared, &reason));
    assert_non_null(strstr(reason, "query"));
    source.reference = "https://h/m";
    assert_true(shared_file_of(&source, 0, &shared, &reason));
}

enum { HOSTS = 64, BLOCKS = 20000 };

static bool is_host(void *data, size_t host)
{
    return data && *(size_t *)data == host;
}

TEST(blocks_are_spread_evenly_and_a_host_that_goes_moves_only_its_own)
{
    struct shared_file file = {.hash = 12345};
    uint64_t hashes[HOSTS];
    size_t owned[HOSTS] = {0}, gone = 17;
    for (size_t i = 0; i < HOSTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "host-%zu", i);
        hashes[i] = shared_host_hash(name);
    }
    for (uint64_t block = 0; block < BLOCKS; block++) {
        size_t owner = election_winner(&file, block, hashes, HOSTS, is_host, NULL);
        size_t next = election_winner(&file, block, hashes, HOSTS, is_host, &gone);
        owned[owner]++;
        assert_true(owner == gone ? next != gone : next == owner);
    }
    for (size_t i = 0; i < HOSTS; i++)
        assert_in_range(owned[i], BLOCKS / HOSTS * 3 / 4, BLOCKS / HOSTS * 5 / 4);
}

TEST(hosts_agree_whatever_the_order_of_their_lists)
{
    struct shared_file file = {.hash = 99};
    uint64_t one[] = {shared_host_hash("a"), shared_host_hash("b"), shared_host_hash("c")},
             other[] = {one[2], one[0], one[1]};
    for (uint64_t block = 0; block < 1000; block++)
        assert_int_equal(one[election_winner(&file, block, one, 3, is_host, NULL)],
                         other[election_winner(&file, block, other, 3, is_host, NULL)]);
}

TEST(no_host_owns_a_block_when_all_are_out)
{
    struct shared_file file = {.hash = 1};
    uint64_t hash = 5;
    size_t out = 0;
    assert_int_equal(election_winner(&file, 0, &hash, 1, is_host, &out), 1);
    assert_int_equal(election_winner(&file, 0, &hash, 0, is_host, NULL), 0);
}
