/* What the queue keeps, where it lets files be sent, and what it counts; that it sends to a store, no test says yet. */
#include "tests/support/unit.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "upload/upload_queue.h"
#include "base/memory.h"
#include "base/quota.h"
#include "config/config.h"
#include "source/stores.h"
#include "upload/upload_log.h"
#include "tests/support/shell.h"

struct scene {
    char folder[64];
    struct stores *stores;
    struct quota *quota;
    struct upload_queue *queue;
    struct error error;
};

static const char *const prefixes[] = {"gs://open/acts", "s3://all"};

static void open_queue(struct scene *scene)
{
    const struct upload_options options = {
        .state_dir = scene->folder, .stores = scene->stores, .quota = scene->quota, .prefixes = prefixes, .n_prefixes = 2};
    scene->queue = upload_queue_create(&options);
    assert_int_equal(upload_queue_open(scene->queue, &scene->error), 0);
}

static void begin(struct scene *scene)
{
    *scene = (struct scene){.folder = "/tmp/tc-uploads-XXXXXX"};
    assert_non_null(mkdtemp(scene->folder));
    assert_int_equal(stores_create(config_defaults(), NULL, &scene->stores, &scene->error), 0);
    scene->quota = quota_create();
    quota_set_limits(scene->quota, QUOTA_UPLOADS, UPLOAD_QUEUE_MAX, 0);
    open_queue(scene);
}

static void end(struct scene *scene)
{
    upload_queue_destroy(scene->queue);
    stores_destroy(scene->stores);
    for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++)
        assert_int_equal(quota_taken(scene->quota, kind), 0);
    quota_destroy(scene->quota);
    shell("rm -rf %s", scene->folder);
}

static int add(struct scene *scene, const char *file, const char *reference, bool is_manifest)
{
    const struct upload_item item = {.file = file,
                                     .reference = reference,
                                     .group = "disk:/acts/host_003 %",
                                     .bytes = 7,
                                     .crc32c = 0xdeadbeef,
                                     .is_manifest = is_manifest};
    return upload_queue_add(scene->queue, &item, 1, &scene->error);
}

static struct upload_counts counts_of(struct scene *scene)
{
    struct upload_counts counts;
    upload_queue_counts(scene->queue, "disk:/acts/host_003 %", &counts);
    return counts;
}

TEST(files_are_sent_below_the_prefixes_and_nowhere_else_where_some_are_named)
{
    static const struct {
        const char *reference;
        enum error_code code;
    } rows[] = {{"gs://open/acts/x", ERROR_OK},
                {"s3://all/x", ERROR_OK},
                {"gs://open/activations", ERROR_PERMISSION_DENIED},
                {"gs://open/x", ERROR_PERMISSION_DENIED},
                {"s3://allx/x", ERROR_PERMISSION_DENIED},
                {"gs://open/acts/../x", ERROR_INVALID_ARGUMENT},
                {"disk:/etc/cron.d/x", ERROR_INVALID_ARGUMENT},
                {"hf://o/m/x", ERROR_INVALID_ARGUMENT}};
    struct scene scene;
    begin(&scene);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status = upload_queue_check(scene.queue, rows[i].reference, &scene.error);
        assert_int_equal(status < 0 ? scene.error.code : ERROR_OK, rows[i].code);
    }
    upload_queue_set_prefixes(scene.queue, NULL, 0);
    assert_int_equal(upload_queue_check(scene.queue, "gs://any/x", &scene.error), 0);
    assert_int_equal(upload_queue_check(scene.queue, "disk:/any/x", &scene.error), -1);
    end(&scene);
}

TEST(what_was_added_is_there_after_a_restart_and_no_other_user_reads_it)
{
    struct scene scene;
    struct stat found;
    char *path;
    begin(&scene);
    assert_int_equal(add(&scene, "/acts/a b\xff\n", "s3://all/a b", false), 0);
    assert_int_equal(add(&scene, "/acts/c", "s3://all/c", false), 0);
    assert_int_equal(add(&scene, "/acts/c", "s3://all/c", false), 0); /* the same */
    assert_int_equal(add(&scene, "/acts/manifest.json", "s3://all/manifest.json", true), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(counts_of(&scene).pending, 2);
        assert_int_equal(counts_of(&scene).failed, 0);
        upload_queue_destroy(scene.queue);
        open_queue(&scene);
    }
    path = memory_print("%s/uploads.log", scene.folder);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0600);
    free(path);
    end(&scene);
}

static void append_text(struct scene *scene, const char *text)
{
    char *path = memory_print("%s/uploads.log", scene->folder);
    FILE *file = fopen(path, "ae");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

TEST(ends_in_the_log_are_counted_and_half_a_line_is_not)
{
    struct scene scene;
    begin(&scene);
    for (char name[] = "/acts/a"; name[6] < 'f'; name[6]++) {
        char *reference = memory_print("s3://all%s", name);
        assert_int_equal(add(&scene, name, reference, false), 0);
        free(reference);
    }
    upload_queue_destroy(scene.queue);
    append_text(
        &scene,
        "D 1\nS 2 secret%20id\nF 3 6 OBJECT_EXISTS it%20is%20there\nF 4 5 NO_BUCKET gone\nnonsense\nX\nD x\nD 99\nD 5");
    for (int i = 0; i < 2; i++) {
        open_queue(&scene);
        assert_int_equal(counts_of(&scene).failed, 1);
        assert_int_equal(counts_of(&scene).pending, 3); /* 4: a bucket may be made */
        assert_string_equal(counts_of(&scene).error, "it is there");
        if (i == 0)
            upload_queue_destroy(scene.queue);
    }
    end(&scene);
}

struct told {
    _Atomic int n_failed;
    char reason[64];
};

static void take_end(void *data, const struct upload_item *item, const struct error *error)
{
    struct told *told = data;
    assert_string_equal(item->file, "/nowhere/at/all");
    assert_int_equal(item->bytes, 7);
    snprintf(told->reason, sizeof told->reason, "%s", error_code_name(error->code));
    told->n_failed++;
}

/* As a daemon finds them that starts. */
static void find_rows(struct scene *scene, int n)
{
    upload_queue_destroy(scene->queue);
    char *path = memory_print("%s/uploads.log", scene->folder);
    FILE *file = fopen(path, "ae");
    for (int i = 1; i <= n; i++)
        fprintf(file, "A %d 1 0 0 /a/%d s3://all/%d g\n", i, i, i);
    fclose(file);
    free(path);
    open_queue(scene);
}

TEST(two_hundred_thousand_files_may_wait_and_not_one_more)
{
    struct scene scene;
#ifdef __SANITIZE_THREAD__ /* it starts no thread, so nothing could be found here, and each row is dear */
    skip();
#endif
    begin(&scene);
    find_rows(&scene, UPLOAD_QUEUE_MAX - 1);
    assert_int_equal(add(&scene, "/acts/last", "s3://all/last", false), 0);
    assert_int_equal(add(&scene, "/acts/more", "s3://all/more", false), -1);
    assert_int_equal(scene.error.code, ERROR_RESOURCE_EXHAUSTED);
    assert_string_equal(scene.error.reason, "TOO_MANY_UPLOADS");
    assert_int_equal(add(&scene, "/acts/last", "s3://all/last", false), 0); /* it is there */
    end(&scene);
}

TEST(rows_are_counted_until_they_are_gone)
{
    struct scene scene;
    begin(&scene);
    for (char name[] = "/acts/a"; name[6] < 'f'; name[6]++) {
        char *reference = memory_print("s3://all%s", name);
        assert_int_equal(add(&scene, name, reference, false), 0);
        free(reference);
    }
    upload_queue_destroy(scene.queue);
    assert_int_equal(quota_taken(scene.quota, QUOTA_UPLOADS), 0);
    quota_set_limits(scene.quota, QUOTA_UPLOADS, 2, 0);
    open_queue(&scene); /* after a start, too, although it is more than there may be now */
    assert_int_equal(counts_of(&scene).pending, 5);
    assert_int_equal(quota_taken(scene.quota, QUOTA_UPLOADS), 5);
    assert_int_equal(add(&scene, "/acts/x", "s3://all/x", false), -1);
    upload_queue_leave(scene.queue, "disk:/acts/host_003 %", "s3://all/acts/a");
    assert_int_equal(counts_of(&scene).pending, 1);
    upload_queue_leave(scene.queue, "disk:/acts/host_003 %", "s3://elsewhere");
    assert_int_equal(quota_taken(scene.quota, QUOTA_UPLOADS), 0);
    end(&scene);
}

/* As of a daemon that has run for months. Folders stand for a bucket, which only a log can say. */
TEST(a_log_of_what_has_ended_gets_shorter_by_itself)
{
    enum { N = 1500 };
    struct scene scene;
    struct stat found = {0};
    begin(&scene);
    upload_queue_destroy(scene.queue);
    char *path = memory_print("%s/uploads.log", scene.folder), *data = memory_print("%s/data", scene.folder);
    FILE *file = fopen(data, "w");
    assert_int_equal(fwrite("123456789", 1, 9, file), 9);
    assert_int_equal(fclose(file), 0);
    file = fopen(path, "w");
    for (int i = 1; i <= N; i++)
        fprintf(file, "A %d 9 e3069283 0 %s disk:%s/to/%0200d g\n", i, data, scene.folder, i);
    assert_int_equal(fclose(file), 0);
    open_queue(&scene);
    assert_int_equal(stat(path, &found), 0);
    off_t at_first = found.st_size;
    upload_queue_start(scene.queue);
    struct upload_counts counts = {.pending = N};
    for (int i = 0; i < 6000 && counts.pending; i++, usleep(10000))
        upload_queue_counts(scene.queue, NULL, &counts);
    assert_int_equal(counts.failed, 0);
    upload_queue_stop(scene.queue);
    assert_int_equal(stat(path, &found), 0);
    assert_true(found.st_size < at_first);
    upload_queue_destroy(scene.queue);
    open_queue(&scene);
    upload_queue_counts(scene.queue, NULL, &counts);
    assert_int_equal(counts.failed + counts.pending, 0);
    free(data);
    free(path);
    end(&scene);
}

TEST(a_file_that_is_gone_has_failed_and_the_listener_is_told)
{
    struct scene scene;
    struct told told = {0};
    begin(&scene);
    upload_queue_listen(scene.queue, &(struct upload_listener){.ended = take_end, .data = &told});
    assert_int_equal(add(&scene, "/nowhere/at/all", "s3://all/x", false), 0);
    upload_queue_start(scene.queue);
    for (int i = 0; i < 6000 && counts_of(&scene).failed == 0; i++)
        usleep(10000);
    assert_int_equal(counts_of(&scene).failed, 1);
    assert_int_equal(told.n_failed, 1);
    assert_string_equal(told.reason, "NOT_FOUND");
    end(&scene);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned n_held, n_others;
    bool is_open;
};

/* Opens nothing: of host 3 only when the gate is open. */
static int open_at_gate(void *data, const struct upload_item *item, bool *is_done, struct error *error)
{
    struct gate *gate = data;
    bool is_held = strstr(item->group, "host_003");
    pthread_mutex_lock(&gate->lock);
    *(is_held ? &gate->n_held : &gate->n_others) += 1;
    pthread_cond_broadcast(&gate->changed);
    while (is_held && !gate->is_open)
        pthread_cond_wait(&gate->changed, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
    *is_done = false;
    return fail(error, ERROR_INVALID_ARGUMENT, "NOT_OF_A_STORE", "nothing to send");
}

static void ignore_end(void *data, const struct upload_item *item, const struct error *failure)
{
    (void)data;
    (void)item;
    (void)failure;
}

TEST(a_group_whose_files_hang_leaves_a_thread_to_the_others)
{
    struct scene scene;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    begin(&scene);
    upload_queue_listen(scene.queue, &(struct upload_listener){.open = open_at_gate, .ended = ignore_end, .data = &gate});
    for (int i = 0; i < UPLOAD_QUEUE_THREADS + 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "s3://all/%d", i);
        assert_int_equal(add(&scene, name + 4, name, false), 0);
    }
    upload_queue_start(scene.queue);
    pthread_mutex_lock(&gate.lock);
    while (gate.n_held < UPLOAD_QUEUE_THREADS_OF_GROUP)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
    const struct upload_item other = {.file = "/acts/o", .reference = "s3://all/o", .group = "disk:/acts/host_004"};
    assert_int_equal(upload_queue_add(scene.queue, &other, 1, &scene.error), 0);
    pthread_mutex_lock(&gate.lock);
    while (!gate.n_others)
        pthread_cond_wait(&gate.changed, &gate.lock);
    assert_int_equal(gate.n_held, UPLOAD_QUEUE_THREADS_OF_GROUP);
    gate.is_open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    upload_queue_stop(scene.queue);
    end(&scene);
}

TEST(what_fails_on_its_way_to_a_place_that_was_left_has_ended)
{
    struct scene scene;
    struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    begin(&scene);
    upload_queue_listen(scene.queue, &(struct upload_listener){.open = open_at_gate, .ended = ignore_end, .data = &gate});
    assert_int_equal(add(&scene, "all/1", "s3://all/1", false), 0);
    upload_queue_start(scene.queue);
    pthread_mutex_lock(&gate.lock);
    while (!gate.n_held)
        pthread_cond_wait(&gate.changed, &gate.lock);
    upload_queue_leave(scene.queue, "disk:/acts/host_003 %", "s3://elsewhere");
    gate.is_open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    for (int i = 0; i < 6000 && counts_of(&scene).pending; i++)
        usleep(10000);
    assert_int_equal(counts_of(&scene).pending, 0);
    assert_int_equal(counts_of(&scene).failed, 0);
    upload_queue_stop(scene.queue);
    end(&scene);
}
