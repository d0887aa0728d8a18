/* What a second resolve of the same artifact does not read, and what it notices. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "base/metadata.h"
#include "resolve/artifact.h"
#include "resolve/header_cache.h"
#include "resolve/manifest.h"
#include "tests/support/source_memory.h"
#include "tests/support/artifact_scene.h"
#include "tests/support/layout_scene.h"
#include "tests/support/model_dir.h"

TEST_IN(a_second_resolve_reads_nothing_and_says_the_same, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_part("one.safetensors", "ac");
    artifact_scene_put_part("two.safetensors", "b");
    artifact_scene_put_text(
        ARTIFACT_SCENE_INDEX,
        "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\",\"c\":\"one.safetensors\"}}");
    struct artifact *first = artifact_scene_resolve(false), *second = artifact_scene_resolve(false),
                    *fresh = artifact_scene_resolve(true);
    assert_true(first->header_bytes_read > 0);
    assert_true(second->header_bytes_read == 0);
    assert_int_equal(fresh->header_bytes_read, first->header_bytes_read);
    assert_ptr_equal(first->tensors, second->tensors);
    assert_string_equal(first->identity, second->identity);
    assert_string_equal(first->identity, fresh->identity);
    artifact_scene_holds(second, "acb");
    artifact_unref(first);
    artifact_scene_holds(second, "acb");
    artifact_unref(artifact_ref(second));
    artifact_scene_holds(second, "acb");
    artifact_unref(second);
    artifact_scene_holds(fresh, "acb");
    artifact_unref(fresh);
    artifact_unref(NULL);
}

TEST_IN(a_changed_part_changes_identity_and_is_read_again, artifact_scene_open, artifact_scene_close)
{
    struct error error;
    artifact_scene_put_part("one.safetensors", "a");
    artifact_scene_put_part("two.safetensors", "b");
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}}");
    struct artifact *old = artifact_scene_resolve(false);
    assert_int_equal(artifact_check_unchanged(old, &error), 0);
    artifact_scene_put_part("two.safetensors", "b");
    assert_int_equal(artifact_check_unchanged(old, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "two.safetensors"));
    struct artifact *fresh = artifact_scene_resolve(false);
    assert_true(fresh->header_bytes_read > 0 && fresh->header_bytes_read < old->header_bytes_read);
    assert_string_not_equal(fresh->identity, old->identity);
    artifact_scene_holds(fresh, "ab");
    artifact_unref(old);
    artifact_unref(fresh);
}

TEST_IN(an_index_that_appears_or_changes_is_noticed, artifact_scene_open, artifact_scene_close)
{
    artifact_scene_put_part("a.safetensors", "a");
    artifact_scene_put_part("b.safetensors", "b");
    struct artifact *artifact = artifact_scene_resolve(false);
    artifact_scene_holds(artifact, "ab");
    artifact_unref(artifact);
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "{\"weight_map\":{\"b\":\"b.safetensors\"}}");
    artifact = artifact_scene_resolve(false);
    artifact_scene_holds(artifact, "b");
    artifact_unref(artifact);
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX, "{\"weight_map\":{\"a\":\"a.safetensors\"}}");
    artifact = artifact_scene_resolve(false);
    artifact_scene_holds(artifact, "a");
    artifact_unref(artifact);
}

static void *resolve_often(void *tiny_cache)
{
    for (int i = 0; i < 200; i++) {
        struct artifact *artifact;
        struct error error;
        if (artifact_resolve("memory:m", &artifact_scene_options, tiny_cache, i % 50 == 0, &artifact, &error) < 0)
            return "failed";
        if (artifact->n_tensors != 3 || map_find(&artifact->by_name, "b", 1) == MAP_NONE)
            return "wrong";
        artifact_unref(artifact);
        if (i % 10 == 0)
            source_memory_put("m", "unrelated", "x", 1);
    }
    return NULL;
}

TEST_IN(threads_resolve_at_once_through_a_cache_that_keeps_forgetting, artifact_scene_open, artifact_scene_close)
{
    struct header_cache *tiny;
    struct error error;
    pthread_t threads[4];
    artifact_scene_put_part("one.safetensors", "ac");
    artifact_scene_put_part("two.safetensors", "b");
    assert_int_equal(header_cache_create(NULL, 10000, &tiny, &error), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, resolve_often, tiny), 0);
    for (size_t i = 0; i < 4; i++) {
        void *complaint;
        assert_int_equal(pthread_join(threads[i], &complaint), 0);
        assert_null(complaint);
    }
    assert_true(header_cache_memory_bytes(tiny) <= 10000);
    header_cache_destroy(tiny);
}

TEST_IN(shards_beside_an_index_are_found_again_without_reading, artifact_scene_open, artifact_scene_close)
{
    for (unsigned r = 1; r <= 2; r++) {
        char name[64], info[64];
        snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", r);
        snprintf(info, sizeof info, "{\"w\": {\"saved_offsets\": [%u]}}", 2 * (r - 1));
        layout_put("m", name, "w U8 2", info, 0);
    }
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX,
                            "{\"weight_map\":{\"w\":\"shard-00001-model-00001-of-00001.safetensors\"}}");
    struct artifact *first = artifact_scene_resolve(false), *second = artifact_scene_resolve(false);
    assert_true(first->source->n_files == 2 && second->source->n_files == 2);
    assert_true(first->header_bytes_read > 0 && second->header_bytes_read == 0);
    assert_string_equal(first->identity, second->identity);
    assert_string_equal(first->source_key, second->source_key);
    assert_ptr_equal(first->table, second->table);
    artifact_unref(first);
    layout_put("m", "shard-00003-model-00001-of-00001.safetensors", "w U8 1", "{\"w\": {\"saved_offsets\": [4]}}", 0);
    struct artifact *third = artifact_scene_resolve(false); /* one more has come */
    assert_int_equal(third->source->n_files, 3);
    assert_int_equal(third->total_bytes, 5);
    artifact_unref(second);
    artifact_unref(third);
}

/* Times that lie ahead tell nothing, as those of a moment ago: a lease has to, of the index file too. */
TEST_IN(an_artifact_with_a_new_index_file_is_the_same_while_it_is_held, artifact_scene_open, artifact_scene_close)
{
    static const char index[] = "{\"weight_map\":{\"t\":\"a.safetensors\"}}";
    const struct timespec ahead[2] = {{.tv_sec = time(NULL) + 3600}, {.tv_sec = time(NULL) + 3600}};
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *held, *again;
    struct error error;
    model_dir_create(root);
    model_dir_safetensors(root, "a.safetensors", "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    model_dir_write(root, ARTIFACT_SCENE_INDEX, index, strlen(index));
    assert_int_equal(utimensat(AT_FDCWD, model_dir_path(root, ARTIFACT_SCENE_INDEX, path), ahead, 0), 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(artifact_resolve(reference, &relative, artifact_scene_cache, false, &held, &error), 0);
        assert_int_equal(artifact_resolve(reference, &relative, artifact_scene_cache, false, &again, &error), 0);
        assert_string_equal(again->source_key, held->source_key);
        artifact_unref(again);
        artifact_unref(held);
    }
    model_dir_destroy(root);
}

TEST_IN(an_identity_is_the_same_a_moment_after_the_file_was_written_and_later, artifact_scene_open, artifact_scene_close)
{
    enum { AHEAD_NS = 100000000 };
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *early, *late;
    struct timespec times[2];
    struct error error;
    model_dir_create(root);
    model_dir_safetensors(root, "a.safetensors", "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec += (times[0].tv_nsec + AHEAD_NS) / 1000000000;
    times[0].tv_nsec = (times[0].tv_nsec + AHEAD_NS) % 1000000000;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, model_dir_path(root, "a.safetensors", path), times, 0), 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    assert_int_equal(artifact_resolve(reference, &relative, artifact_scene_cache, false, &early, &error), 0);
    nanosleep(&(struct timespec){.tv_nsec = 2 * AHEAD_NS}, NULL);
    char identity[sizeof early->identity];
    memcpy(identity, early->identity, sizeof identity);
    artifact_unref(early);
    assert_int_equal(artifact_resolve(reference, &relative, artifact_scene_cache, false, &late, &error), 0);
    assert_string_equal(late->identity, identity);
    artifact_unref(late);
    model_dir_destroy(root);
}

/* Whatever the limit, a resolve succeeds or says that there is too much metadata, and gives back what it took. */
TEST_IN(what_resolving_takes_is_charged_and_can_be_refused, artifact_scene_open, artifact_scene_close)
{
    struct quota *quota = quota_create();
    uint64_t needed = 0;
    artifact_scene_put_part("a.safetensors", "a");
    artifact_scene_put_part("b.safetensors", "b");
    artifact_scene_put_text(ARTIFACT_SCENE_INDEX,
                            "{\"weight_map\":{\"b\":\"b.safetensors\",\"\\u0061\":\"a.safetensors\"}}");
    artifact_scene_put_text("m.manifest.json", "{\"format\":\"tensorcast-manifest\",\"version\":1,\"files\":[]}");
    quota_set_kept(quota, 0);
    metadata_enter((struct metadata_account){quota, 12345});
    for (uint64_t limit = 0; !needed; limit += 64) {
        struct artifact *artifact;
        struct error error;
        quota_set_limits(quota, QUOTA_METADATA, limit, 0);
        int failed = artifact_resolve("memory:m", &artifact_scene_options, NULL, true, &artifact, &error);
        if (!failed) {
            artifact_scene_holds(artifact, "ab");
            assert_true(quota_taken(quota, QUOTA_METADATA) > 0); /* its table, for its life */
            assert_int_equal(artifact->manifest_problem.code, ERROR_OK);
            needed = limit;
            artifact_unref(artifact);
        } else if (strcmp(error.reason, "METADATA_EXCEEDED") != 0) {
            fail_msg("%s: %s", error.reason, error.message);
        }
        assert_int_equal(quota_taken(quota, QUOTA_METADATA), 0);
    }
    assert_true(needed > 1000);
    metadata_enter((struct metadata_account){0});
    quota_destroy(quota);
}
