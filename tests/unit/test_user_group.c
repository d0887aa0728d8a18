/* Unix groups by name, and of the other end of a socket: this process itself. */
#include "tests/support/unit.h"

#include "base/user_group.h"

#include <sys/socket.h>
#include <unistd.h>

TEST(a_group_is_found_by_name_or_number)
{
    struct error error;
    gid_t gid = 1;
    assert_int_equal(user_group_find("k", "root", &gid, &error), 0);
    assert_int_equal(gid, 0);
    assert_int_equal(user_group_find("k", "54321", &gid, &error), 0);
    assert_int_equal(gid, 54321);
    assert_int_equal(user_group_find("limits.x", "no-such-group", &gid, &error), -1);
    assert_string_equal(error.reason, "UNKNOWN_GROUP");
    assert_non_null(strstr(error.message, "limits.x: there is no group no-such-group"));
    assert_int_equal(user_group_find("k", "4294967295", &gid, &error), -1); /* that is none */
    assert_int_equal(user_group_find("k", "12x", &gid, &error), -1);
}

TEST(a_peer_is_in_its_groups_and_in_no_other)
{
    int ends[2], n = getgroups(0, NULL);
    gid_t *groups = test_calloc((size_t)n + 1, sizeof *groups), other = 54321;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(getgroups(n, groups), n);
    groups[n] = getegid();
    for (int i = 0; i <= n; i++) {
        assert_true(user_group_has_peer(groups[i], ends[0]));
        other += other == groups[i]; /* ascending: what is left is none of them */
    }
    assert_false(user_group_has_peer(other, ends[0]));
    assert_false(user_group_has_peer(USER_GROUP_NONE, ends[0]));
    close(ends[0]);
    close(ends[1]);
    assert_false(user_group_has_peer(getegid(), ends[0]));
    test_free(groups);
}
