/* Which files make up an artifact, what is wrong with them, and what a second resolve does not read. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/metadata.h"
#include "resolve/artifact.h"
#include "resolve/header_cache.h"
#include "resolve/manifest.h"
#include "resolve/safetensors.h"
#include "resolve/shard_index.h"
#include "source/source_memory.h"
#include "tests/support/layout_scene.h"
#include "tests/support/model_dir.h"

#include <cmocka.h>

#define INDEX "model.safetensors.index.json"

static const struct source_options options = {0};
static struct header_cache *cache;

static int create(void **state)
{
    struct error error;
    (void)state;
    source_memory_clear();
    return header_cache_create(NULL, 64 << 20, &cache, &error);
}

static int destroy(void **state)
{
    (void)state;
    header_cache_destroy(cache);
    source_memory_clear();
    return 0;
}

static void put_text(const char *file, const char *text)
{
    source_memory_put("m", file, text, strlen(text));
}

/* A file with U8 tensors of 4 bytes, one per letter of `letters`. */
static void put_part(const char *file, const char *letters)
{
    char header[4096] = "{", entry[128];
    unsigned char bytes[8192] = {0};
    size_t n = strlen(letters);
    for (size_t i = 0; i < n; i++) {
        snprintf(entry, sizeof entry, "%s\"%c\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%zu,%zu]}", i ? "," : "",
                 letters[i], 4 * i, 4 * i + 4);
        strcat(header, entry);
    }
    strcat(header, "}");
    uint64_t length = strlen(header);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    source_memory_put("m", file, bytes, 8 + length + 4 * n);
}

static struct artifact *resolve(bool fresh)
{
    struct artifact *artifact;
    struct error error;
    if (artifact_resolve("memory:m", &options, cache, fresh, &artifact, &error) < 0)
        fail_msg("%s", error.message);
    return artifact;
}

static void refuses(enum error_code code, const char *named)
{
    struct artifact *artifact;
    struct error error;
    assert_int_equal(artifact_resolve("memory:m", &options, cache, false, &artifact, &error), -1);
    assert_null(artifact);
    if (error.code != code || !strstr(error.message, named))
        fail_msg("%s: %s", error_code_name(error.code), error.message);
}

/* The names of the tensors, in order. */
static void holds(const struct artifact *artifact, const char *letters)
{
    assert_int_equal(artifact->n_tensors, strlen(letters));
    for (size_t i = 0; i < artifact->n_tensors; i++) {
        assert_int_equal(artifact->tensors[i].name[0], letters[i]);
        assert_int_equal(map_find(&artifact->by_name, &letters[i], 1), i);
    }
    assert_int_equal(map_find(&artifact->by_name, "?", 1), MAP_NONE);
    assert_int_equal(artifact->total_bytes, 4 * strlen(letters));
}

static void the_index_decides_and_other_files_are_ignored(void **state)
{
    (void)state;
    put_part("two.safetensors", "bd");
    put_part("one.safetensors", "ac");
    put_part("model.safetensors", "ax");
    put_text("junk.safetensors", "not a safetensors file");
    put_text(INDEX, "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\",\"c\":\"one.safetensors\","
                    "\"d\":\"two.safetensors\"}}");
    struct artifact *artifact = resolve(false);
    holds(artifact, "acbd");
    assert_int_equal(artifact->source->n_files, 2);
    assert_string_equal(artifact->source->files[0].name, "one.safetensors");
    assert_int_equal(artifact_piece(artifact, &artifact->tensors[2], 0)->file, 1);
    artifact_unref(artifact);
}

static void model_safetensors_is_taken_alone_when_there_is_no_index(void **state)
{
    (void)state;
    put_part("model.safetensors", "a");
    put_part("consolidated.safetensors", "ab");
    struct artifact *artifact = resolve(false);
    holds(artifact, "a");
    artifact_unref(artifact);
}

static void otherwise_every_safetensors_file_counts_in_name_order(void **state)
{
    (void)state;
    put_part("b.safetensors", "b");
    put_part("a.safetensors", "ca");
    put_text("config.json", "{}");
    put_text("._a.safetensors", "left behind by macOS");
    put_text(".safetensors", "x");
    struct artifact *artifact = resolve(false);
    holds(artifact, "cab");
    artifact_unref(artifact);
}

static void a_folder_without_safetensors_is_not_an_artifact(void **state)
{
    (void)state;
    put_text("pytorch_model.bin", "PK");
    refuses(ERROR_NOT_FOUND, "memory:m");
}

static void broken_parts_are_named(void **state)
{
    (void)state;
    put_part("a.safetensors", "a");
    put_text("b.safetensors", "1234567");
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
    put_text("b.safetensors", "");
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
    source_memory_put("m", "b.safetensors", "\2\0\0\0\0\0\0\0{", 9);
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
    source_memory_put("m", "b.safetensors", "\2\0\0\0\0\0\0\0{}1", 11);
    refuses(ERROR_DATA_LOSS, "b.safetensors: ");
}

static void a_name_in_two_files_is_refused(void **state)
{
    (void)state;
    put_part("a.safetensors", "xy");
    put_part("b.safetensors", "zy");
    refuses(ERROR_DATA_LOSS, "tensor y is in a.safetensors and in b.safetensors");
}

static void index_and_files_must_agree(void **state)
{
    (void)state;
    put_part("one.safetensors", "a");
    put_part("two.safetensors", "b");
    put_text(INDEX, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}");
    refuses(ERROR_DATA_LOSS, "tensor b is not in one.safetensors");
    put_text(INDEX, "{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}");
    refuses(ERROR_DATA_LOSS, "tensor a is not in two.safetensors");
    put_part("one.safetensors", "ae");
    put_text(INDEX, "{\"weight_map\":{\"a\":\"one.safetensors\"}}");
    refuses(ERROR_DATA_LOSS, "tensor e is not in the index but in one.safetensors");
    put_text(INDEX, "{\"weight_map\":{\"a\":\"gone.safetensors\"}}");
    refuses(ERROR_NOT_FOUND, "gone.safetensors");
    put_text(INDEX, "{\"weight_map\":[]}");
    refuses(ERROR_DATA_LOSS, INDEX);
    put_text(INDEX, "");
    refuses(ERROR_DATA_LOSS, INDEX);
}

static void the_number_of_part_files_is_limited(void **state)
{
    char name[32];
    (void)state;
    for (int i = 0; i < 10001; i++) {
        if (i == 10000) {
            struct artifact *artifact = resolve(false);
            assert_int_equal(artifact->source->n_files, 10000);
            artifact_unref(artifact);
        }
        snprintf(name, sizeof name, "%05d.safetensors", 10000 - i); /* put in front: the table is a list */
        source_memory_put("m", name, "\2\0\0\0\0\0\0\0{}", 10);
    }
    refuses(ERROR_UNIMPLEMENTED, "10000");
}

static void a_file_without_tensors_is_an_empty_artifact(void **state)
{
    (void)state;
    source_memory_put("m", "model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    struct artifact *artifact = resolve(false);
    holds(artifact, "");
    artifact_unref(artifact);
}

static void a_second_resolve_reads_nothing_and_says_the_same(void **state)
{
    (void)state;
    put_part("one.safetensors", "ac");
    put_part("two.safetensors", "b");
    put_text(INDEX, "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\",\"c\":\"one.safetensors\"}}");
    struct artifact *first = resolve(false), *second = resolve(false), *fresh = resolve(true);
    assert_true(first->header_bytes_read > 0);
    assert_true(second->header_bytes_read == 0);
    assert_int_equal(fresh->header_bytes_read, first->header_bytes_read);
    assert_ptr_equal(first->tensors, second->tensors);
    assert_string_equal(first->identity, second->identity);
    assert_string_equal(first->identity, fresh->identity);
    holds(second, "acb");
    artifact_unref(first);
    holds(second, "acb");
    artifact_unref(artifact_ref(second));
    holds(second, "acb");
    artifact_unref(second);
    holds(fresh, "acb");
    artifact_unref(fresh);
    artifact_unref(NULL);
}

static void a_changed_part_changes_identity_and_is_read_again(void **state)
{
    struct error error;
    (void)state;
    put_part("one.safetensors", "a");
    put_part("two.safetensors", "b");
    put_text(INDEX, "{\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}}");
    struct artifact *old = resolve(false);
    assert_int_equal(artifact_check_unchanged(old, NULL, &error), 0);
    put_part("two.safetensors", "b");
    assert_int_equal(artifact_check_unchanged(old, NULL, &error), -1);
    assert_int_equal(error.code, ERROR_FAILED_PRECONDITION);
    assert_non_null(strstr(error.message, "two.safetensors"));
    struct artifact *fresh = resolve(false);
    assert_true(fresh->header_bytes_read > 0 && fresh->header_bytes_read < old->header_bytes_read);
    assert_string_not_equal(fresh->identity, old->identity);
    holds(fresh, "ab");
    artifact_unref(old);
    artifact_unref(fresh);
}

static void an_index_that_appears_or_changes_is_noticed(void **state)
{
    (void)state;
    put_part("a.safetensors", "a");
    put_part("b.safetensors", "b");
    struct artifact *artifact = resolve(false);
    holds(artifact, "ab");
    artifact_unref(artifact);
    put_text(INDEX, "{\"weight_map\":{\"b\":\"b.safetensors\"}}");
    artifact = resolve(false);
    holds(artifact, "b");
    artifact_unref(artifact);
    put_text(INDEX, "{\"weight_map\":{\"a\":\"a.safetensors\"}}");
    artifact = resolve(false);
    holds(artifact, "a");
    artifact_unref(artifact);
}

static void *resolve_often(void *tiny_cache)
{
    for (int i = 0; i < 200; i++) {
        struct artifact *artifact;
        struct error error;
        if (artifact_resolve("memory:m", &options, tiny_cache, i % 50 == 0, &artifact, &error) < 0)
            return "failed";
        if (artifact->n_tensors != 3 || map_find(&artifact->by_name, "b", 1) == MAP_NONE)
            return "wrong";
        artifact_unref(artifact);
        if (i % 10 == 0)
            source_memory_put("m", "unrelated", "x", 1);
    }
    return NULL;
}

static void threads_resolve_at_once_through_a_cache_that_keeps_forgetting(void **state)
{
    struct header_cache *tiny;
    struct error error;
    pthread_t threads[4];
    (void)state;
    put_part("one.safetensors", "ac");
    put_part("two.safetensors", "b");
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

static void single_files_resolve_alone(void **state)
{
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *artifact;
    struct error error;
    (void)state;
    model_dir_create(root);
    model_dir_safetensors(root, "one.safetensors", "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    model_dir_safetensors(root, "other.safetensors", "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    snprintf(reference, sizeof reference, "disk:%s/one.safetensors", root);
    assert_int_equal(artifact_resolve(reference, &relative, cache, false, &artifact, &error), 0);
    holds(artifact, "a");
    assert_int_equal(artifact_check_unchanged(artifact, NULL, &error), 0);
    artifact_unref(artifact);
    model_dir_destroy(root);
}

static void links_that_lead_nowhere_are_not_taken_for_absent_files(void **state)
{
    static const char *const links[] = {INDEX, "model.safetensors", "z.safetensors", "topology.json"};
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *artifact;
    struct error error;
    (void)state;
    model_dir_create(root);
    model_dir_safetensors(root, "a.safetensors", "{}", 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        model_dir_link(root, links[i], "nowhere");
        assert_int_equal(artifact_resolve(reference, &relative, cache, false, &artifact, &error), -1);
        assert_int_equal(error.code, ERROR_NOT_FOUND);
        if (!strstr(error.message, links[i]))
            fail_msg("%s is not named: %s", links[i], error.message);
        assert_int_equal(unlink(model_dir_path(root, links[i], path)), 0);
    }
    model_dir_destroy(root);
}

static void a_topology_of_more_than_a_gibibyte_is_refused_unread(void **state)
{
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *artifact;
    struct error error;
    (void)state;
    model_dir_create(root);
    model_dir_write(root, "topology.json", "", 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    assert_int_equal(truncate(model_dir_path(root, "topology.json", path), (1 << 30) + 1L), 0); /* a hole */
    assert_int_equal(artifact_resolve(reference, &relative, cache, false, &artifact, &error), -1);
    assert_int_equal(error.code, ERROR_DATA_LOSS);
    assert_non_null(strstr(error.message, "topology.json: 1073741825 bytes are too many"));
    model_dir_destroy(root);
}

static void shards_beside_an_index_are_found_again_without_reading(void **state)
{
    (void)state;
    for (unsigned r = 1; r <= 2; r++) {
        char name[64], info[64];
        snprintf(name, sizeof name, "shard-%05u-model-00001-of-00001.safetensors", r);
        snprintf(info, sizeof info, "{\"w\": {\"saved_offsets\": [%u]}}", 2 * (r - 1));
        layout_put("m", name, "w U8 2", info, 0);
    }
    put_text(INDEX, "{\"weight_map\":{\"w\":\"shard-00001-model-00001-of-00001.safetensors\"}}");
    struct artifact *first = resolve(false), *second = resolve(false);
    assert_true(first->source->n_files == 2 && second->source->n_files == 2);
    assert_true(first->header_bytes_read > 0 && second->header_bytes_read == 0);
    assert_string_equal(first->identity, second->identity);
    assert_string_equal(first->source_key, second->source_key);
    assert_ptr_equal(first->table, second->table);
    artifact_unref(first);
    layout_put("m", "shard-00003-model-00001-of-00001.safetensors", "w U8 1", "{\"w\": {\"saved_offsets\": [4]}}", 0);
    struct artifact *third = resolve(false); /* one more has come */
    assert_int_equal(third->source->n_files, 3);
    assert_int_equal(third->total_bytes, 5);
    artifact_unref(second);
    artifact_unref(third);
}

/* What one caller is allowed is in the cache for all, but not allowed to all. */
static void leave_to_miss_shards_is_the_callers_own(void **state)
{
    struct artifact *artifact;
    struct error error;
    (void)state;
    layout_put("m", "shard-00002-model-00001-of-00001.safetensors", "w U8 2", "{\"w\": {\"saved_offsets\": [0]}}", 0);
    refuses(ERROR_DATA_LOSS, "shard-00001");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(artifact_resolve("memory:m", &options, cache, RESOLVE_ALLOW_MISSING_SHARDS, &artifact, &error), 0);
        artifact_unref(artifact);
        refuses(ERROR_DATA_LOSS, "shard-00001");
    }
}

/* Times that lie ahead tell nothing, as those of a moment ago: a lease has to, of the index file too. */
static void an_artifact_with_a_new_index_file_is_the_same_while_it_is_held(void **state)
{
    static const char index[] = "{\"weight_map\":{\"t\":\"a.safetensors\"}}";
    const struct timespec ahead[2] = {{.tv_sec = time(NULL) + 3600}, {.tv_sec = time(NULL) + 3600}};
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *held, *again;
    struct error error;
    (void)state;
    model_dir_create(root);
    model_dir_safetensors(root, "a.safetensors", "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    model_dir_write(root, INDEX, index, strlen(index));
    assert_int_equal(utimensat(AT_FDCWD, model_dir_path(root, INDEX, path), ahead, 0), 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(artifact_resolve(reference, &relative, cache, false, &held, &error), 0);
        assert_int_equal(artifact_resolve(reference, &relative, cache, false, &again, &error), 0);
        assert_string_equal(again->source_key, held->source_key);
        artifact_unref(again);
        artifact_unref(held);
    }
    model_dir_destroy(root);
}

static void an_identity_is_the_same_a_moment_after_the_file_was_written_and_later(void **state)
{
    enum { AHEAD_NS = 100000000 };
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8], path[MODEL_PATH_CHARS];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *early, *late;
    struct timespec times[2];
    struct error error;
    (void)state;
    model_dir_create(root);
    model_dir_safetensors(root, "a.safetensors", "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec += (times[0].tv_nsec + AHEAD_NS) / 1000000000;
    times[0].tv_nsec = (times[0].tv_nsec + AHEAD_NS) % 1000000000;
    times[1] = times[0];
    assert_int_equal(utimensat(AT_FDCWD, model_dir_path(root, "a.safetensors", path), times, 0), 0);
    snprintf(reference, sizeof reference, "disk:%s", root);
    assert_int_equal(artifact_resolve(reference, &relative, cache, false, &early, &error), 0);
    nanosleep(&(struct timespec){.tv_nsec = 2 * AHEAD_NS}, NULL);
    char identity[sizeof early->identity];
    memcpy(identity, early->identity, sizeof identity);
    artifact_unref(early);
    assert_int_equal(artifact_resolve(reference, &relative, cache, false, &late, &error), 0);
    assert_string_equal(late->identity, identity);
    artifact_unref(late);
    model_dir_destroy(root);
}

static void index_documents_list_names_offsets_and_strides(void **state)
{
    static const char one[] = "{\"w\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[3,15]},"
                              "\"odd\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    static const char two[] = "{\"e\":{\"dtype\":\"F4\",\"shape\":[2,0],\"data_offsets\":[0,0]},"
                              "\"a\\\"\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}";
    char root[MODEL_PATH_CHARS], reference[MODEL_PATH_CHARS + 8];
    const struct source_options relative = {.allow_relative = true};
    struct artifact *artifact;
    struct error error;
    (void)state;
    model_dir_create(root);
    model_dir_safetensors(root, "1.safetensors", one, 15);
    model_dir_safetensors(root, "2.safetensors", two, 4);
    snprintf(reference, sizeof reference, "disk:%s", root);
    assert_int_equal(artifact_resolve(reference, &relative, cache, false, &artifact, &error), 0);
    char *source_index = artifact_source_index_json(artifact), *canonical = artifact_canonical_index_json(artifact);
    assert_string_equal(source_index,
                        "{\"a\\\"\":[15,4,[],[],\"torch.float32\",0],\"e\":[15,0,[2,0],[1,1],\"F4\",0],"
                        "\"odd\":[0,3,[3],[1],\"torch.uint8\",0],\"w\":[3,12,[2,3],[3,1],\"torch.bfloat16\",0]}");
    assert_string_equal(canonical,
                        "{\"a\\\"\":[0,4,[],[],\"torch.float32\",0],\"e\":[8,0,[2,0],[1,1],\"F4\",0],"
                        "\"odd\":[8,3,[3],[1],\"torch.uint8\",0],\"w\":[16,12,[2,3],[3,1],\"torch.bfloat16\",0]}");
    free(source_index);
    free(canonical);
    artifact_unref(artifact);
    model_dir_destroy(root);
}

/* Whatever the limit, a resolve succeeds or says that there is too much metadata, and gives back what it took. */
static void what_resolving_takes_is_charged_and_can_be_refused(void **state)
{
    struct quota *quota = quota_create();
    uint64_t needed = 0;
    (void)state;
    put_part("a.safetensors", "a");
    put_part("b.safetensors", "b");
    put_text(INDEX, "{\"weight_map\":{\"b\":\"b.safetensors\",\"\\u0061\":\"a.safetensors\"}}");
    put_text("m.manifest.json", "{\"format\":\"tensorcast-manifest\",\"version\":1,\"files\":[]}");
    quota_set_kept(quota, 0);
    metadata_enter((struct metadata_account){quota, 12345});
    for (uint64_t limit = 0; !needed; limit += 64) {
        struct artifact *artifact;
        struct error error;
        quota_set_limits(quota, QUOTA_METADATA, limit, 0);
        int failed = artifact_resolve("memory:m", &options, NULL, true, &artifact, &error);
        if (!failed) {
            holds(artifact, "ab");
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, create, destroy)

/* A document of `bytes` bytes: it ends in blanks. */
static void put_padded(const char *file, const char *json, size_t bytes)
{
    char *text = memory_alloc(bytes);
    memset(text, ' ', bytes);
    memcpy(text, json, strlen(json));
    source_memory_put("m", file, text, bytes);
    free(text);
}

static void an_index_of_a_hundred_million_bytes_is_read_and_one_byte_more_is_refused(void **state)
{
    static const char index[] = "{\"weight_map\":{\"a\":\"one.safetensors\"}}";
    (void)state;
    put_part("one.safetensors", "a");
    put_padded("model.safetensors.index.json", index, SHARD_INDEX_MAX_BYTES);
    struct artifact *artifact = resolve(false);
    holds(artifact, "a");
    artifact_unref(artifact);
    put_padded("model.safetensors.index.json", index, SHARD_INDEX_MAX_BYTES + 1);
    refuses(ERROR_DATA_LOSS, "100000001 bytes are too many for an index");
}

static void a_manifest_of_64_mib_is_read_and_one_byte_more_is_a_problem(void **state)
{
    static const char manifest[] = "{\"format\":\"tensorcast-manifest\",\"version\":1,\"files\":[]}";
    (void)state;
    put_part("model.safetensors", "a");
    for (size_t longer = 0; longer < 2; longer++) {
        put_padded("model.manifest.json", manifest, MANIFEST_MAX_BYTES + longer);
        struct artifact *artifact = resolve(false);
        bool is_refused = strstr(artifact->manifest_problem.message, "67108865 bytes are too many for a manifest");
        assert_int_equal(is_refused, longer);
        artifact_unref(artifact);
    }
}

/* The header is not that of the file: 16 million tensors would take gigabytes. */
static void more_than_16_million_tensors_of_all_files_are_refused(void **state)
{
    struct error error;
    struct source *source;
    (void)state;
    put_part("model-1.safetensors", "a");
    put_part("model-2.safetensors", "b");
    artifact_unref(resolve(false));
    if (source_open("memory:m", &options, &source, &error) < 0 ||
        source_add_file(source, "model-1.safetensors", &(size_t){0}, &error) < 0)
        fail_msg("%s", error.message);
    struct part_header *header = header_cache_find(cache, &format_safetensors, &source->files[0].identity);
    assert_non_null(header);
    header->n_tensors = 1 << 24;
    put_part("model-3.safetensors", "c"); /* other files: no table of them is known */
    refuses(ERROR_UNIMPLEMENTED, "more than 16777216 tensors");
    header->n_tensors = 1;
    part_header_unref(header);
    source_unref(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_index_decides_and_other_files_are_ignored),
        TEST(model_safetensors_is_taken_alone_when_there_is_no_index),
        TEST(otherwise_every_safetensors_file_counts_in_name_order),
        TEST(a_folder_without_safetensors_is_not_an_artifact),
        TEST(broken_parts_are_named),
        TEST(a_name_in_two_files_is_refused),
        TEST(index_and_files_must_agree),
        TEST(the_number_of_part_files_is_limited),
        TEST(an_index_of_a_hundred_million_bytes_is_read_and_one_byte_more_is_refused),
        TEST(a_manifest_of_64_mib_is_read_and_one_byte_more_is_a_problem),
        TEST(more_than_16_million_tensors_of_all_files_are_refused),
        TEST(a_file_without_tensors_is_an_empty_artifact),
        TEST(a_second_resolve_reads_nothing_and_says_the_same),
        TEST(a_changed_part_changes_identity_and_is_read_again),
        TEST(an_index_that_appears_or_changes_is_noticed),
        TEST(threads_resolve_at_once_through_a_cache_that_keeps_forgetting),
        TEST(what_resolving_takes_is_charged_and_can_be_refused),
        TEST(single_files_resolve_alone),
        TEST(a_topology_of_more_than_a_gibibyte_is_refused_unread),
        TEST(shards_beside_an_index_are_found_again_without_reading),
        TEST(leave_to_miss_shards_is_the_callers_own),
        TEST(links_that_lead_nowhere_are_not_taken_for_absent_files),
        TEST(an_artifact_with_a_new_index_file_is_the_same_while_it_is_held),
        TEST(an_identity_is_the_same_a_moment_after_the_file_was_written_and_later),
        TEST(index_documents_list_names_offsets_and_strides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
