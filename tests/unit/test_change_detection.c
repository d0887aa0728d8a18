/* Files with and without a lease: what is used, what is waited for, and what is refused. Files of another user stand for
 * what cannot be leased. */
#include "tests/support/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "source/disk/change_detection.h"

enum { NOBODY = 65534 };
static const char old_file_of_root[] = "/usr/bin/env"; /* older than a minute, wherever tests are run */

struct scene {
    char path[64];
    int fd;
    struct change_detection detection;
    struct source_file file;
    uint64_t waited_ns;
    struct cancel cancel;
    int n_asked;
    bool writes, gives_up;
    struct error error;
};

static bool ask(void *data)
{
    struct scene *scene = data;
    if (scene->n_asked++ == 0 && scene->writes) {
        int fd = open(scene->path, O_WRONLY | O_APPEND);
        assert_true(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
    }
    return scene->gives_up;
}

static int create_in(struct scene *scene, const char *folder)
{
    snprintf(scene->path, sizeof scene->path, "%s/test_changes.XXXXXX", folder);
    int fd = mkstemp(scene->path);
    if (fd < 0 || write(fd, "some bytes", 10) != 10 || fchmod(fd, 0666) < 0 || close(fd) < 0)
        return -1;
    scene->fd = scene->detection.fd = open(scene->path, O_RDONLY);
    scene->file.name = "part";
    scene->cancel = (struct cancel){ask, scene};
    return scene->fd;
}

static int create(void **state)
{
    *state = calloc(1, sizeof(struct scene));
    return create_in(*state, "/tmp") < 0;
}

static int destroy(void **state)
{
    struct scene *scene = *state;
    change_detection_end(&scene->detection);
    close(scene->fd);
    unlink(scene->path);
    free(scene);
    return 0;
}

static int begin(struct scene *scene)
{
    return change_detection_begin(&scene->detection, &scene->file, &scene->waited_ns, &scene->cancel, &scene->error);
}

/* As a user who may read the file but is neither its owner nor privileged. */
static int begin_as_stranger(struct scene *scene)
{
    if (geteuid() != 0)
        skip();
    assert_int_equal(seteuid(NOBODY), 0);
    int failed = begin(scene);
    assert_int_equal(seteuid(0), 0);
    return failed;
}

static void reopen(struct scene *scene, const char *path)
{
    close(scene->fd);
    scene->fd = scene->detection.fd = open(path, O_RDONLY);
    assert_true(scene->fd >= 0);
}

static void write_one_byte(const struct scene *scene)
{
    int fd = open(scene->path, O_WRONLY);
    assert_true(fd >= 0 && write(fd, "y", 1) == 1 && close(fd) == 0);
}

TEST_IN(one_s_own_file_is_leased_and_nothing_is_waited_for, create, destroy)
{
    struct scene *scene = *state;
    assert_int_equal(begin(scene), 0);
    assert_non_null(scene->detection.lease);
    assert_int_equal(scene->file.changes_by, CHANGES_BY_LEASE);
    assert_string_equal(scene->file.changes_reason, "");
    assert_int_equal(scene->file.size_bytes, 10);
    assert_int_equal(scene->waited_ns, 0);
    assert_int_equal(change_detection_check(&scene->detection, &scene->file, &scene->error), 0);
    write_one_byte(scene);
    assert_int_equal(change_detection_check(&scene->detection, &scene->file, &scene->error), -1);
    assert_string_equal(scene->error.reason, "SOURCE_CHANGED");
}

TEST_IN(a_leased_file_that_was_opened_for_writing_has_changed_although_nothing_was_written, create, destroy)
{
    struct scene *scene = *state;
    assert_int_equal(begin(scene), 0);
    close(open(scene->path, O_RDWR));
    assert_int_equal(change_detection_check(&scene->detection, &scene->file, &scene->error), -1);
    assert_string_equal(scene->error.reason, "SOURCE_CHANGED");
    assert_non_null(strstr(scene->error.message, "opened for writing"));
}

TEST_IN(a_file_that_is_being_written_is_refused_by_name, create, destroy)
{
    struct scene *scene = *state;
    int writer = open(scene->path, O_WRONLY);
    assert_int_equal(begin(scene), -1);
    close(writer);
    assert_int_equal(scene->error.code, ERROR_FAILED_PRECONDITION);
    assert_string_equal(scene->error.reason, "SOURCE_BEING_WRITTEN");
    assert_non_null(strstr(scene->error.message, "part is open for writing"));
    assert_null(scene->detection.lease);
    assert_int_equal(begin(scene), 0);
}

/* tmpfs: a write through a mapping may leave the times as they are, so they identify nothing for long. */
TEST_IN(where_times_do_not_tell_an_identity_counts_for_the_span_of_its_lease, create, destroy)
{
    struct scene *scene = *state, shm = {0};
    if (create_in(&shm, "/dev/shm") < 0)
        skip();
    assert_int_equal(begin(&shm), 0);
    assert_int_equal(shm.file.changes_by, CHANGES_BY_LEASE);
    assert_int_not_equal(shm.file.identity.lease_span, 0);
    change_detection_end(&shm.detection);
    close(shm.fd);
    unlink(shm.path);
    reopen(scene, old_file_of_root);
    if (geteuid() != 0)
        skip();
    assert_int_equal(begin(scene), 0);
    assert_int_equal(scene->file.identity.lease_span, 0);
}

TEST_IN(an_old_file_without_a_lease_is_judged_by_its_times, create, destroy)
{
    struct scene *scene = *state;
    reopen(scene, old_file_of_root);
    assert_int_equal(geteuid() ? begin(scene) : begin_as_stranger(scene), 0);
    assert_null(scene->detection.lease);
    assert_int_equal(scene->file.changes_by, CHANGES_BY_TIMESTAMPS);
    assert_non_null(strstr(scene->file.changes_reason, "CAP_LEASE"));
    assert_int_equal(scene->file.identity.lease_span, 0);
    assert_int_equal(scene->waited_ns, 0);
    assert_int_equal(change_detection_check(&scene->detection, &scene->file, &scene->error), 0);
}

TEST_IN(a_young_file_without_a_lease_is_waited_for_and_not_trusted, create, destroy)
{
    struct scene *scene = *state;
    uint64_t start = clock_now_ns();
    assert_int_equal(begin_as_stranger(scene), 0);
    assert_true(scene->waited_ns > 0 && clock_now_ns() - start >= scene->waited_ns);
    assert_int_equal(scene->file.changes_by, CHANGES_RACY);
    assert_true(scene->file.changes_reason[0]);
    write_one_byte(scene);
    assert_int_equal(change_detection_check(&scene->detection, &scene->file, &scene->error), -1);
    assert_string_equal(scene->error.reason, "SOURCE_CHANGED");
}

TEST_IN(a_file_that_changes_while_it_is_waited_for_is_being_written, create, destroy)
{
    struct scene *scene = *state;
    scene->writes = true;
    assert_int_equal(begin_as_stranger(scene), -1);
    assert_true(scene->n_asked > 0);
    assert_string_equal(scene->error.reason, "SOURCE_BEING_WRITTEN");
}

TEST_IN(who_gave_up_waits_no_longer, create, destroy)
{
    struct scene *scene = *state;
    scene->gives_up = true;
    assert_int_equal(begin_as_stranger(scene), -1);
    assert_int_equal(scene->error.code, ERROR_CANCELLED);
}

TEST_IN(one_source_waits_for_its_files_together_and_not_for_ever, create, destroy)
{
    struct scene *scene = *state;
    scene->waited_ns = 2 * CHANGE_SETTLE_NS;
    assert_int_equal(begin_as_stranger(scene), 0);
    assert_int_equal(scene->waited_ns, 2 * CHANGE_SETTLE_NS);
    assert_int_equal(scene->file.changes_by, CHANGES_RACY);
}
