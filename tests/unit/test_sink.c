/* Files into a folder: the smallest sink, and what the driver promises of every one. */
#include "tests/support/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sink/sink.h"
#include "base/crc.h"
#include "base/memory.h"
#include "sink/sink_ops.h"
#include "sink/sink_sum.h"
#include "tests/support/shell.h"

enum { BIG_BYTES = 20 << 20 };

struct scene {
    char folder[64];
    char *source, *target, *reference, *session;
    char *bytes;
    size_t count;
    int fd, n_keeps, left_before_cancel;
    struct sink_result result;
    struct error error;
};

static void begin(struct scene *scene, size_t count)
{
    *scene = (struct scene){.folder = "/tmp/tc-sink-XXXXXX", .count = count, .left_before_cancel = -1};
    assert_non_null(mkdtemp(scene->folder));
    scene->source = memory_print("%s/source", scene->folder);
    scene->target = memory_print("%s/a/b/target", scene->folder);
    scene->reference = memory_print("disk:%s", scene->target);
    scene->session = memory_copy_text("");
    scene->bytes = memory_alloc(count + 1);
    for (size_t i = 0; i < count; i++)
        scene->bytes[i] = (char)(i * 2654435761u >> 13);
    scene->fd = open(scene->source, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(scene->fd, scene->bytes, count), count);
}

static void end(struct scene *scene)
{
    close(scene->fd);
    shell("rm -rf %s", scene->folder);
    free(scene->source);
    free(scene->target);
    free(scene->reference);
    free(scene->session);
    free(scene->bytes);
}

static int keep(void *data, const char *session, bool is_news, struct error *error)
{
    struct scene *scene = data;
    (void)error;
    assert_true(is_news || *session);
    free(scene->session);
    scene->session = memory_copy_text(session);
    scene->n_keeps++;
    return 0;
}

static bool is_cancelled(void *data)
{
    struct scene *scene = data;
    return scene->left_before_cancel >= 0 && scene->left_before_cancel-- == 0;
}

static int put(struct scene *scene, bool replaces)
{
    const struct cancel cancel = {is_cancelled, scene};
    const struct sink_upload upload = {.reference = scene->reference,
                                       .fd = scene->fd,
                                       .bytes = scene->count,
                                       .replaces = replaces,
                                       .session = scene->session,
                                       .keep = keep,
                                       .data = scene,
                                       .cancel = &cancel};
    return sink_put(NULL, &upload, &scene->result, &scene->error);
}

static void holds(const struct scene *scene)
{
    FILE *file = fopen(scene->target, "re");
    assert_non_null(file);
    char *found = memory_alloc(scene->count + 1);
    assert_int_equal(fread(found, 1, scene->count + 1, file), scene->count);
    assert_memory_equal(found, scene->bytes, scene->count);
    free(found);
    fclose(file);
}

TEST(a_file_of_any_size_arrives_with_its_sum)
{
    static const size_t sizes[] = {0, 1, 8 << 20, (8 << 20) + 1, BIG_BYTES};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct scene scene;
        begin(&scene, sizes[i]);
        assert_int_equal(put(&scene, false), 0);
        holds(&scene);
        assert_int_equal(scene.result.crc32c, crc32c_update(0, scene.bytes, scene.count));
        assert_int_equal(scene.result.sent_bytes, scene.count);
        assert_string_equal(scene.session, "");
        end(&scene);
    }
}

TEST(what_is_there_is_left_alone_unless_it_is_replaced)
{
    static const size_t sizes[] = {100, BIG_BYTES};
    for (size_t i = 0; i < 2; i++) {
        struct scene scene;
        begin(&scene, sizes[i]);
        assert_int_equal(put(&scene, false), 0);
        scene.bytes[7] ^= 1;
        assert_int_equal(pwrite(scene.fd, scene.bytes + 7, 1, 7), 1);
        assert_int_equal(put(&scene, false), -1);
        assert_int_equal(scene.error.code, ERROR_ALREADY_EXISTS);
        assert_int_equal(put(&scene, true), 0);
        holds(&scene);
        end(&scene);
    }
}

TEST(the_same_bytes_under_the_name_are_success)
{
    struct scene scene;
    begin(&scene, BIG_BYTES);
    assert_int_equal(put(&scene, false), 0);
    assert_int_equal(put(&scene, false), 0);
    assert_true(scene.result.was_there);
    assert_int_equal(scene.result.sent_bytes, 0);
    end(&scene);
}

TEST(what_was_cut_off_goes_on_and_sends_no_part_twice)
{
    struct scene scene;
    struct stat found;
    begin(&scene, BIG_BYTES);
    scene.left_before_cancel = 2;
    assert_int_equal(put(&scene, false), -1);
    assert_int_equal(scene.error.code, ERROR_CANCELLED);
    assert_string_not_equal(scene.session, "");
    assert_int_equal(stat(scene.target, &found), -1);
    scene.left_before_cancel = -1;
    uint64_t sent = scene.result.sent_bytes;
    assert_int_equal(sent, 16 << 20);
    assert_int_equal(put(&scene, false), 0);
    assert_int_equal(scene.result.resumed_bytes, sent);
    assert_int_equal(scene.result.sent_bytes, BIG_BYTES - sent);
    holds(&scene);
    end(&scene);
}

TEST(a_file_that_changed_between_two_calls_does_not_arrive_mixed)
{
    struct scene scene;
    begin(&scene, BIG_BYTES);
    scene.left_before_cancel = 2;
    assert_int_equal(put(&scene, false), -1);
    scene.bytes[5] ^= 1;
    assert_int_equal(pwrite(scene.fd, scene.bytes + 5, 1, 5), 1);
    scene.left_before_cancel = -1;
    assert_int_equal(put(&scene, false), 0); /* the read-back finds it, and all is sent again */
    holds(&scene);
    end(&scene);
}

TEST(a_session_that_is_gone_is_begun_anew)
{
    struct scene scene;
    begin(&scene, BIG_BYTES);
    free(scene.session);
    scene.session = memory_copy_text("/etc/passwd");
    assert_int_equal(put(&scene, false), 0);
    assert_int_equal(scene.result.resumed_bytes, 0);
    holds(&scene);
    end(&scene);
}

TEST(a_file_with_another_sum_than_it_must_have_is_not_sent)
{
    struct scene scene;
    struct stat found;
    begin(&scene, 1000);
    const struct sink_upload upload = {
        .reference = scene.reference, .fd = scene.fd, .bytes = 1000, .is_summed = true, .crc32c = 1};
    assert_int_equal(sink_put(NULL, &upload, &scene.result, &scene.error), -1);
    assert_int_equal(scene.error.kind, ERROR_KIND_SOURCE_CHANGED);
    assert_int_equal(stat(scene.target, &found), -1);
    assert_int_equal(ftruncate(scene.fd, 10), 0);
    assert_int_equal(put(&scene, false), -1);
    assert_int_equal(scene.error.kind, ERROR_KIND_SOURCE_CHANGED);
    end(&scene);
}

TEST(a_file_whose_size_is_not_told_is_not_sent_as_an_empty_one)
{
    struct scene scene;
    struct stat found;
    begin(&scene, 0);
    close(scene.fd);
    scene.fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    assert_int_equal(put(&scene, false), -1);
    assert_string_equal(scene.error.reason, "SIZE_NOT_TOLD");
    assert_int_equal(stat(scene.target, &found), -1);
    end(&scene);
}

TEST(references_that_name_no_object_are_refused)
{
    static const char *const bad[] = {"gs://",  "gs://bucket",    "gs://bucket/", "s3://b//a", "s3://b/a/../c", "gs://b/a\n",
                                      "disk:a", "https://host/a", "hf://o/m",     "gs:/b/a",   "s3://b/."};
    static const char *const good[] = {"gs://b/a b", "s3://bucket/a/b%2F?c", "disk:/a"};
    struct error error;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sink_check_reference(bad[i], &error), -1);
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(sink_check_reference(good[i], &error), 0);
}

TEST(an_objects_name_has_1024_bytes_and_not_one_more)
{
    char reference[1100] = "gs://b/";
    struct error error;
    memset(reference + 7, 'x', SINK_MAX_KEY_CHARS);
    assert_int_equal(sink_check_reference(reference, &error), 0);
    reference[7 + SINK_MAX_KEY_CHARS] = 'x';
    assert_int_equal(sink_check_reference(reference, &error), -1);
}

TEST(etags_are_those_that_stores_make)
{
    char etag[SINK_ETAG_CHARS];
    struct part_sum parts[2];
    struct sink_sums one = {parts, 1}, two = {parts, 2};
    struct sink_part part = {.number = 0, .bytes = "hello", .count = 5, .crc32c = crc32c_update(0, "hello", 5)};
    sink_sum_parts(&two, &part, 1, true);
    part.number = 1;
    sink_sum_parts(&two, &part, 1, true);
    sink_sum_etag(&one, etag);
    assert_string_equal(etag, "5d41402abc4b2a76b9719d911017c592");
    sink_sum_etag(&two, etag);
    assert_string_equal(etag, "616b22817b80eed9f65c3aa38cd29054-2");
    const char *proof;
    struct sink_object object = {.size_bytes = 5, .etag = "\"5d41402abc4b2a76b9719d911017c592\""};
    assert_int_equal(sink_sum_compare(&one, &object, &proof), SINK_SAME);
    object.etag[3] ^= 1;
    assert_int_equal(sink_sum_compare(&one, &object, &proof), SINK_DIFFERENT);
    strcpy(object.etag, "\"opaque\"");
    assert_int_equal(sink_sum_compare(&one, &object, &proof), SINK_UNKNOWN);
    object.size_bytes = 4;
    assert_int_equal(sink_sum_compare(&one, &object, &proof), SINK_DIFFERENT);
    assert_int_equal(sink_sum_crc32c(&two), crc32c_update(0, "hellohello", 10));
}
