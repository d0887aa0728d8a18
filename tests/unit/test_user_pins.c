/* What users pin stays, and counts as theirs. Memory is real, its users are numbers. */
#include "tests/support/unit.h"

#include "replica/replica.h"

#include "base/quota.h"
#include "tests/support/source_memory.h"

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
static struct replica *add(struct scene *scene, uid_t uid, const char *name, uint64_t mib)
{
    static const char header[] = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
    char file[8 + sizeof header - 1 + 8] = {sizeof header - 1}, reference[32];
    struct artifact *artifact;
    struct replica parts = {.uid = uid, .charged_bytes = mib * MIB};
    memcpy(file + 8, header, sizeof header - 1);
    file[sizeof file - 1] = name[0]; /* another identity */
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

static uint64_t used_mib(const struct scene *scene)
{
    return replica_used_bytes(scene->table) / MIB;
}

static uint64_t has_mib(const struct scene *scene, uid_t uid)
{
    return holders_bytes(replica_holders(scene->table), uid) / MIB;
}

TEST_IN(what_is_pinned_is_neither_evicted_nor_released, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 40);
    assert_int_equal(user_pins_add(replica, A, NULL, &scene->error), 0);
    assert_int_equal(user_pins_add(replica, A, NULL, &scene->error), 0); /* once is enough */
    assert_int_equal(user_pins_count(replica), 1);
    replica_unpin(replica, A);
    assert_int_equal(has_mib(scene, A), 40);
    assert_int_equal(reserve(scene, 0, 61), -1);
    assert_non_null(strstr(scene->error.message, "leased replicas or pinned (40.0 MiB pinned)"));
    assert_non_null(strstr(scene->error.message, "unpin replicas"));
    replica_table_configure(scene->table, &(struct replica_limits){BUDGET_MIB * MIB, 0, 10}); /* idle ones go at once */
    struct replica_counts counts = replica_release(scene->table, 0, NULL);
    assert_int_equal(counts.pinned, 1);
    assert_int_equal(counts.pinned_bytes, 40 * MIB);
    assert_int_equal(counts.kept + counts.released, 0);
    struct user_pins_removed removed = user_pins_remove(scene->table, A, "memory:m");
    assert_int_equal(removed.replicas, 1);
    assert_int_equal(removed.bytes, 40 * MIB);
    assert_int_equal(used_mib(scene), 0);
    assert_int_equal(has_mib(scene, A), 0);
    assert_int_equal(user_pins_remove(scene->table, A, "memory:m").replicas, 0);
}

TEST_IN(users_unpin_their_own_and_root_unpins_all, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 10);
    assert_int_equal(user_pins_add(replica, A, NULL, &scene->error), 0);
    replica_unpin(replica, A);
    struct user_pins_removed removed = user_pins_remove(scene->table, B, NULL);
    assert_int_equal(removed.replicas, 0);
    assert_int_equal(removed.of_others, 1);
    removed = user_pins_remove(scene->table, 0, NULL);
    assert_int_equal(removed.replicas, 1);
    assert_int_equal(used_mib(scene), 10); /* idle: it goes when a load needs the room */
    assert_false(user_pins_any(replica));
}

TEST_IN(a_user_cannot_pin_more_than_the_share_of_one_user, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, 0, "m", 95);
    replica_pin(replica, A); /* as the load that asks for it has */
    assert_int_equal(user_pins_add(replica, A, NULL, &scene->error), -1);
    assert_int_equal(scene->error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(scene->error.message, "memory:m is loaded but not pinned"));
    assert_int_equal(user_pins_add(replica, 0, NULL, &scene->error), 0);
    replica_unpin(replica, A);
    replica_unpin(replica, 0);
    assert_int_equal(used_mib(scene), 95);
}

TEST_IN(a_user_has_1024_pins_and_not_one_more, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 1);
    char label[16];
    for (int i = 0; i < USER_PINS_MAX; i++) {
        snprintf(label, sizeof label, "%d", i);
        assert_int_equal(user_pins_add(replica, A, label, &scene->error), 0);
    }
    assert_int_equal(user_pins_add(replica, A, NULL, &scene->error), -1);
    assert_string_equal(scene->error.reason, "TOO_MANY_PINS");
    replica_unpin(replica, A);
}

static bool is_b(const void *data, const char *label)
{
    (void)data;
    return strcmp(label, "b") == 0;
}

TEST_IN(labels_that_nobody_lists_any_more_go_and_requests_stay, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *one = add(scene, A, "m", 10), *other = add(scene, A, "n", 10);
    assert_int_equal(user_pins_add(one, A, "a", &scene->error), 0);
    assert_int_equal(user_pins_add(one, A, "b", &scene->error), 0);
    assert_int_equal(user_pins_add(other, A, "a", &scene->error), 0);
    replica_pin(other, B);
    assert_int_equal(user_pins_add(other, B, NULL, &scene->error), 0);
    replica_unpin(other, B);
    replica_unpin(one, A);
    replica_unpin(other, A);
    user_pins_remove_labels(scene->table, is_b, NULL);
    assert_int_equal(user_pins_count(one), 1);
    assert_int_equal(user_pins_count(other), 1);
    assert_int_equal(has_mib(scene, A), 10);
    assert_int_equal(has_mib(scene, B), 10);
}

TEST_IN(a_pin_ends_when_the_source_has_changed_and_nobody_else_has_it, set_up, tear_down)
{
    struct scene *scene = *state;
    struct replica *replica = add(scene, A, "m", 10);
    struct artifact *old = artifact_ref(replica->mapping->artifact);
    struct artifact current = *old;
    assert_int_equal(user_pins_add(replica, A, NULL, &scene->error), 0);
    current.source_key[0] ^= 1;
    replica_drop_stale(scene->table, &current);
    assert_int_equal(used_mib(scene), 10); /* a client has it, too */
    replica_unpin(replica, A);
    replica_drop_stale(scene->table, &current);
    assert_int_equal(used_mib(scene), 0);
    assert_int_equal(has_mib(scene, A), 0);
    artifact_unref(old);
}
