/* The replica table: who holds, keeps and may take how much of a budget. Memory is real, its users are numbers. */
#include "tests/support/unit.h"

#include "replica/replica.h"

#include "observe/log.h"
#include "tests/support/source_memory.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
enum { A = 70001, B = 70002, C = 70003, BUDGET_MIB = 100, LONG_MS = 600000 };

struct scene {
    struct loop *loop;
    struct device *device;
    struct replica_table *table;
    struct error error;
};

static int set_up(void **state)
{
    struct scene *scene = test_calloc(1, sizeof *scene);
    scene->loop = loop_create();
    scene->device = device_host_create(0);
    scene->table =
        replica_table_create(scene->loop, REPLICA_MEMORY_HOST, &(struct replica_limits){BUDGET_MIB * MIB, LONG_MS, 10});
    *state = scene;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *scene = *state;
    replica_table_destroy(scene->table);
    device_destroy(scene->device);
    loop_destroy(scene->loop);
    source_memory_clear();
    test_free(scene);
    return 0;
}

static int reserve(struct scene *scene, uid_t uid, uint64_t mib)
{
    return replica_reserve(scene->table, uid, mib * MIB, &scene->error);
}

/* Of so many MiB in the books; the memory itself is a page. Pinned once by its user. */
static struct replica *add_version(struct scene *scene, uid_t uid, const char *name, char version, uint64_t mib)
{
    static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
    char file[8 + sizeof header - 1 + 8] = {sizeof header - 1}, reference[32];
    struct artifact *artifact;
    struct replica parts = {.uid = uid, .charged_bytes = mib * MIB};
    memcpy(file + 8, header, sizeof header - 1);
    file[sizeof file - 1] = version; /* another identity */
    source_memory_put(name, "model.safetensors", file, sizeof file);
    snprintf(reference, sizeof reference, "memory:%s", name);
    assert_int_equal(artifact_resolve(reference, &(struct source_options){0}, NULL, false, &artifact, &scene->error), 0);
    parts.mapping = mapping_build(&(struct view_spec){.whole = true, .align_bytes = 64}, artifact, &scene->error);
    artifact_unref(artifact);
    assert_non_null(parts.mapping);
    assert_int_equal(device_allocate(scene->device, 8, &parts.segment, &scene->error), 0);
    memcpy(parts.segment->host_address, "weights", 8);
    assert_int_equal(device_seal(parts.segment, &scene->error), 0);
    parts.key = replica_key_of(parts.mapping, scene->device, REPLICA_SHARED_BY_ALL);
    assert_int_equal(reserve(scene, uid, mib), 0);
    return replica_add(scene->table, &parts);
}

static struct replica *add(struct scene *scene, uid_t uid, const char *name, uint64_t mib)
{
    return add_version(scene, uid, name, name[0], mib);
}

/* What a client gets, whose lease ends at once. Takes a pin of the user. */
static int give(struct scene *scene, struct replica *replica, uid_t uid)
{
    int fd = device_export_fd(replica->segment, &scene->error);
    assert_true(fd >= 0);
    replica_lend(replica, uid);
    return fd;
}

static uint64_t used_mib(const struct scene *scene)
{
    return replica_used_bytes(scene->table) / MIB;
}

static uint64_t has_mib(const struct scene *scene, uid_t uid)
{
    return holders_bytes(replica_holders(scene->table), uid) / MIB;
}

static void remember(void *data, const struct replica *replica)
{
    *(const struct replica **)data = replica;
}

static const struct replica *newest(const struct scene *scene)
{
    const struct replica *last = NULL;
    replica_each(scene->table, remember, &last);
    return last;
}

static size_t n_listed(const struct scene *scene)
{
    size_t n = 0;
    for (const struct replica *replica = newest(scene); replica; replica = replica->older)
        n++;
    return n;
}

TEST_IN(replicas_are_counted_as_they_come_and_go, set_up, tear_down)
{
    struct scene *scene = *state;
    assert_int_equal(replica_count(scene->table), 0);
    replica_unpin(add(scene, A, "a", 1), A);
    replica_unpin(add(scene, A, "b", 1), A);
    assert_int_equal(replica_count(scene->table), 2);
    assert_int_equal(n_listed(scene), 2);
    replica_release(scene->table, 0, "memory:a");
    assert_int_equal(replica_count(scene->table), 1);
    assert_int_equal(n_listed(scene), 1);
}

TEST_IN(a_walk_in_turns_finds_each_replica_once_whatever_becomes_of_others, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replicas[4];
    const struct replica *replica;
    char found[8] = "";
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < 4; i++)
            replica_unpin(replicas[i] = add(scene, A, (const char *[]){"a", "b", "c", "d"}[i], 1), A);
        replica_walk_begin(scene->table);
        assert_ptr_equal(replica_walk_next(scene->table), replicas[0]);
        replica_find(scene->table, &replicas[0]->key); /* seen already, and the newest now */
        replica_find(scene->table, &replicas[1]->key); /* the next one, which moves behind all others */
        replica_release(scene->table, 0, "memory:c");  /* the one after that, which goes */
        replica_unpin(add(scene, A, "e", 1), A);
        for (size_t n = 0; (replica = replica_walk_next(scene->table)); n++)
            found[n] = replica->mapping->artifact->reference[strlen("memory:")];
        assert_string_equal(found, "dbe");
        assert_null(replica_walk_next(scene->table));
        replica_release(scene->table, 0, NULL);
    }
}

TEST_IN(one_user_leaves_a_part_of_the_budget_to_others, set_up, tear_down)
{
    struct scene *scene = *state;
    assert_int_equal(replica_available_bytes(scene->table, A), 90 * MIB);
    assert_int_equal(reserve(scene, A, 91), -1);
    assert_string_equal(scene->error.reason, "HOST_BUDGET_EXCEEDED");
    assert_non_null(strstr(scene->error.message, "limits.kept_for_others"));
    assert_int_equal(reserve(scene, A, 90), 0);
    assert_int_equal(reserve(scene, A, 1), -1);
    assert_int_equal(reserve(scene, B, 9), 0);
    replica_unreserve(scene->table, A, 90 * MIB);
    replica_unreserve(scene->table, B, 9 * MIB);
    assert_int_equal(used_mib(scene), 0);
}

TEST_IN(root_and_the_daemons_own_user_may_take_all_that_is_left, set_up, tear_down)
{
    struct scene *scene = *state;
    reserve(scene, A, 90);
    assert_int_equal(reserve(scene, getuid(), 10), 0);
    assert_int_equal(reserve(scene, 0, 1), -1);
    assert_null(strstr(scene->error.message, "limits.kept_for_others"));
    replica_unreserve(scene->table, A, 90 * MIB);
    replica_unreserve(scene->table, getuid(), 10 * MIB);
}

TEST_IN(with_nothing_kept_for_others_one_user_may_take_everything, set_up, tear_down)
{
    struct scene *scene = *state;
    replica_table_configure(scene->table, &(struct replica_limits){BUDGET_MIB * MIB, LONG_MS, 0});
    assert_int_equal(reserve(scene, A, BUDGET_MIB), 0);
    replica_unreserve(scene->table, A, BUDGET_MIB * MIB);
}

TEST_IN(two_users_who_want_all_have_equal_parts, set_up, tear_down)
{
    struct scene *scene = *state;
    uint64_t a = 0, b = 0;
    for (int i = 0; i < 200; i++) {
        a += reserve(scene, A, 1) == 0;
        b += reserve(scene, B, 1) == 0;
    }
    assert_int_equal(a, b);
    assert_true(a >= 45 && a + b < BUDGET_MIB);
    replica_unreserve(scene->table, A, a * MIB);
    replica_unreserve(scene->table, B, b * MIB);
}

TEST_IN(memory_counts_for_everybody_who_holds_it_and_once_for_the_budget, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    replica_pin(replica, B);
    replica_pin(replica, B);
    assert_int_equal(used_mib(scene), 40);
    assert_int_equal(has_mib(scene, A), 40);
    assert_int_equal(has_mib(scene, B), 40);
    replica_unpin(replica, A);
    replica_unpin(replica, B);
    assert_int_equal(has_mib(scene, A), 0);
    assert_int_equal(has_mib(scene, B), 40);
    replica_unpin(replica, B);
    assert_int_equal(has_mib(scene, B), 0);
    assert_int_equal(used_mib(scene), 40); /* idle: it goes when a load needs the room */
    assert_int_equal(reserve(scene, A, 90), 0);
    assert_int_equal(used_mib(scene), 90);
    replica_unreserve(scene->table, A, 90 * MIB);
}

TEST_IN(the_refusal_says_who_holds_most, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    assert_int_equal(reserve(scene, B, 20), 0);
    assert_int_equal(reserve(scene, C, 64), -1);
    assert_non_null(strstr(scene->error.message, "user 70001 has 40.0 MiB (40 %), user 70002 has 20.0 MiB (20 %)"));
    assert_non_null(
        strstr(scene->error.message, "40.0 MiB are held by leased replicas, 20.0 MiB by loads in flight, 0 B by"));
    replica_unreserve(scene->table, B, 20 * MIB);
    replica_unpin(replica, A);
}

/* --- what clients keep ---------------------------------------------------------------------------------------------- */

static void assert_kept_until(struct scene *scene, void (*let_go)(void *data), void *data)
{
    assert_int_equal(replica_kept_bytes(scene->table), 40 * MIB);
    assert_int_equal(used_mib(scene), 40);
    assert_int_equal(has_mib(scene, A), 40);
    assert_int_equal(reserve(scene, B, 61), -1); /* not evicted either: that would make no room */
    assert_non_null(strstr(scene->error.message, "40.0 MiB by clients that kept memory beyond their lease; user 70001 has"));
    let_go(data);
    assert_int_equal(reserve(scene, B, 70), 0); /* at once: a load that wants memory looks */
    assert_int_equal(has_mib(scene, A), 0);
    replica_unreserve(scene->table, B, 70 * MIB);
    assert_int_equal(replica_kept_bytes(scene->table), 0);
}

static void close_descriptor(void *data)
{
    close(*(int *)data);
}

static void unmap(void *data)
{
    munmap(*(void **)data, 4096);
}

TEST_IN(a_kept_descriptor_stays_charged_to_who_was_given_it, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    int fd = give(scene, replica, A);
    replica_unlend(replica, A);
    assert_kept_until(scene, close_descriptor, &fd);
}

TEST_IN(a_kept_mapping_stays_charged, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    int fd = give(scene, replica, A);
    void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    replica_unlend(replica, A);
    assert_kept_until(scene, unmap, &memory);
}

static void send_descriptor(int socket, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    *CMSG_FIRSTHDR(&message) =
        (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
    assert_int_equal(sendmsg(socket, &message, 0), 1);
}

static void close_both(void *data)
{
    close(((int *)data)[0]);
    close(((int *)data)[1]);
}

TEST_IN(a_descriptor_that_lies_unread_in_a_socket_stays_charged, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    int ends[2], fd = give(scene, replica, A);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    send_descriptor(ends[0], fd);
    close(fd);
    replica_unlend(replica, A);
    assert_kept_until(scene, close_both, ends);
}

TEST_IN(memory_of_a_dropped_replica_stays_charged_until_nobody_has_it, set_up, tear_down)
{
    struct scene *scene = *state;
    replica_table_configure(scene->table,
                            &(struct replica_limits){BUDGET_MIB * MIB, 0, 10}); /* idle ones are dropped at once */
    struct replica *replica = add(scene, A, "m", 40);
    struct replica_key key = replica->key;
    int fd = give(scene, replica, A);
    replica_unlend(replica, A);
    assert_null(replica_find(scene->table, &key));
    assert_kept_until(scene, close_descriptor, &fd);
    assert_int_equal(used_mib(scene), 0);
}

static void stop_when_nothing_is_charged(void *data)
{
    struct scene *scene = data;
    if (replica_used_bytes(scene->table) == 0)
        loop_stop(scene->loop);
}

TEST_IN(nobody_has_to_ask_for_kept_memory_to_be_looked_at, set_up, tear_down)
{
    struct scene *scene = *state;
    replica_table_configure(scene->table, &(struct replica_limits){BUDGET_MIB * MIB, 0, 10});
    struct replica *replica = add(scene, A, "m", 40);
    int fd = give(scene, replica, A);
    replica_unlend(replica, A);
    assert_int_equal(used_mib(scene), 40);
    close(fd);
    struct loop_timer *timer = loop_timer_create(scene->loop, stop_when_nothing_is_charged, scene);
    loop_timer_start(timer, 0, 1);
    loop_run(scene->loop);
    loop_timer_destroy(timer);
    assert_int_equal(has_mib(scene, A), 0);
}

TEST_IN(whoever_leases_kept_memory_again_holds_it_alone, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    int fd = give(scene, replica, A);
    replica_unlend(replica, A);
    assert_int_equal(has_mib(scene, A), 40);
    replica_pin(replica, B);
    int of_b = give(scene, replica, B);
    assert_int_equal(has_mib(scene, A), 0);
    assert_int_equal(has_mib(scene, B), 40);
    close(of_b);
    replica_unlend(replica, B);
    assert_int_equal(has_mib(scene, A), 40); /* either of them may have it */
    assert_int_equal(has_mib(scene, B), 40);
    assert_int_equal(used_mib(scene), 40);
    close(fd);
    assert_int_equal(replica_kept_bytes(scene->table), 0);
    assert_int_equal(has_mib(scene, A), 0);
    assert_int_equal(has_mib(scene, B), 0);
}

TEST_IN(many_remains_are_all_looked_at_in_turn, set_up, tear_down)
{
    enum { N = 300 };
    struct scene *scene = *state;
    int fds[N];
    replica_table_configure(scene->table, &(struct replica_limits){BUDGET_MIB * MIB * 10, 0, 10});
    for (int i = 0; i < N; i++) {
        struct replica *replica = add(scene, A, "m", 1);
        fds[i] = give(scene, replica, A);
        replica_unlend(replica, A);
    }
    assert_int_equal(used_mib(scene), N);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    for (int i = 0; i < 2; i++) /* each looks at some */
        assert_int_equal(reserve(scene, B, 2000), -1);
    assert_int_equal(used_mib(scene), 0);
}

TEST_IN(a_lease_that_takes_its_memory_along_leaves_nothing_behind, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    close(give(scene, replica, A));
    replica_unlend(replica, A);
    assert_false(replica->holding.is_kept);
    assert_null(replica->holding.list);
    assert_int_equal(has_mib(scene, A), 0);
}

TEST_IN(replicas_that_nobody_holds_make_way_for_descriptors_ones_own_first, set_up, tear_down)
{
    struct scene *scene = *state;
    struct error none, too_many;
    size_t counter = 0;
    (fail)(&none, ERROR_RESOURCE_EXHAUSTED, "HOST_BUDGET_EXCEEDED", "something else");
    (fail)(&too_many, ERROR_RESOURCE_EXHAUSTED, "DESCRIPTORS_EXCEEDED", "no descriptors");
    replica_unpin(add(scene, A, "a", 10), A);
    struct replica_key of_a = newest(scene)->key;
    replica_unpin(add(scene, B, "b", 10), B);
    struct replica_key of_b = newest(scene)->key;
    struct replica *held = add(scene, B, "c", 10);
    assert_false(replica_make_room(scene->table, B, &none, &counter));
    assert_true(replica_make_room(scene->table, B, &too_many, &counter));
    assert_null(replica_find(scene->table, &of_b)); /* although that of A has been idle for longer */
    assert_non_null(replica_find(scene->table, &of_a));
    assert_true(replica_make_room(scene->table, B, &too_many, &counter));
    assert_null(replica_find(scene->table, &of_a));
    assert_false(replica_make_room(scene->table, B, &too_many, &counter));
    replica_unpin(held, B);
}

/* --- other versions ------------------------------------------------------------------------------------------------- */

TEST_IN(a_resolve_drops_unused_replicas_of_other_versions_of_its_artifact_alone, set_up, tear_down)
{
    struct scene *scene = *state;
    replica_unpin(add_version(scene, A, "m", '1', 1), A);
    replica_unpin(add_version(scene, B, "m", '1', 2), B);
    replica_unpin(add_version(scene, A, "m", '2', 4), A);
    struct replica *used = add_version(scene, A, "m", '2', 8);
    replica_unpin(add(scene, A, "other", 16), A);
    struct replica *current = add_version(scene, A, "m", '3', 32);
    const struct artifact *artifact = current->mapping->artifact;
    replica_unpin(current, A);
    replica_drop_stale(scene->table, artifact);
    assert_int_equal(used_mib(scene), 8 + 16 + 32);
    replica_unpin(used, A);
    replica_drop_stale(scene->table, artifact);
    assert_int_equal(used_mib(scene), 16 + 32);
    replica_release(scene->table, 0, "memory:m");
    assert_int_equal(used_mib(scene), 16);
    replica_unpin(add_version(scene, A, "m", '1', 1), A); /* it is known anew */
    struct replica *next = add_version(scene, A, "m", '2', 2);
    replica_drop_stale(scene->table, next->mapping->artifact);
    assert_int_equal(used_mib(scene), 16 + 2);
    replica_unpin(next, A);
}

/* --- release -------------------------------------------------------------------------------------------------------- */

TEST_IN(release_drops_ones_own_replicas_and_root_all, set_up, tear_down)
{
    struct scene *scene = *state;
    replica_unpin(add(scene, A, "a", 10), A);
    replica_unpin(add(scene, B, "b", 10), B);
    struct replica_counts counts = replica_release(scene->table, A, NULL);
    assert_int_equal(counts.released, 1);
    assert_int_equal(counts.of_others, 1);
    counts = replica_release(scene->table, A, "memory:b");
    assert_int_equal(counts.released, 0);
    assert_int_equal(counts.of_others, 1);
    assert_int_equal(used_mib(scene), 10);
    counts = replica_release(scene->table, 0, NULL);
    assert_int_equal(counts.released, 1);
    assert_int_equal(counts.of_others, 0);
    assert_int_equal(used_mib(scene), 0);
}

TEST_IN(release_does_not_count_what_clients_keep_as_freed, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    int fd = give(scene, replica, A);
    replica_unlend(replica, A);
    struct replica_counts counts = replica_release(scene->table, A, NULL);
    assert_int_equal(counts.released, 1);
    assert_int_equal(counts.released_bytes, 0);
    assert_int_equal(used_mib(scene), 40);
    close(fd);
}

static int set_up_all_tests(void **state)
{
    struct error error;
    log_open("/dev/null", LOG_ERROR, LOG_LOGFMT, &error);
    (void)state;
    return 0;
}

TESTS_IN(set_up_all_tests, NULL)
